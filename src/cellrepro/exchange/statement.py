"""The formats that passports and receipts are written in.

in-toto Statement v1, SLSA provenance v1, Simple Verification Result v0.2, and package URLs. Unknown
fields are ignored, as these specifications ask for.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal
from urllib.parse import quote, unquote

from pydantic import Field, StringConstraints

from cellrepro.exchange.strict_json import CamelCaseRecord, JsonObject, as_json

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
VERIFICATION_RESULT = "https://in-toto.io/attestation/svr/v0.2"

Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
"""64 digits of lower-case hex."""

FILES_DIGEST = "cellrepro_files"
"""Name of the digest of many files: SHA-256 of the sorted lines ``sha256  name``, each ended by a
line feed."""
LABELS_DIGEST = "cellrepro_labels"
"""Name of the digest of masks: SHA-256 of the labels as they are numbered."""
OUTLINES_DIGEST = "cellrepro_outlines"
"""Name of the digest of outlines: SHA-256 of the labels renumbered in raster order."""
PROGRAM_DIGEST = "cellrepro_program"
"""Name of the digest of a wrapped program: SHA-256 over its command and its files."""


@dataclass(frozen=True)
class ResourceDescriptor(CamelCaseRecord):
    """A file, package or result that a statement is about, by name or URI and by digest."""

    name: str | None = None
    uri: str | None = None
    digest: dict[str, str] = field(default_factory=dict)
    annotations: JsonObject = field(default_factory=dict)

    @property
    def sha256(self) -> str | None:
        """Its SHA-256, if it has one."""
        return self.digest.get("sha256")


@dataclass(frozen=True)
class Statement(CamelCaseRecord):
    """A claim, the predicate, about subjects that are identified by their digests."""

    subject: tuple[ResourceDescriptor, ...]
    predicate_type: str
    predicate: JsonObject = field(default_factory=dict)
    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = STATEMENT

    def payload(self) -> bytes:
        """The bytes that are signed and digested: canonical JSON."""
        return canonical_json({**as_json(self), "_type": STATEMENT})


@dataclass(frozen=True)
class BuildDefinition(CamelCaseRecord):
    """The inputs of a run: its spec and everything that it was made from."""

    build_type: str
    """The kind of run, which defines what the other fields mean."""
    external_parameters: JsonObject
    """The spec, whole."""
    internal_parameters: JsonObject = field(default_factory=dict)
    """The numeric environment of the run."""
    resolved_dependencies: tuple[ResourceDescriptor, ...] = ()
    """Images, starting weights and libraries."""


@dataclass(frozen=True)
class Builder(CamelCaseRecord):
    """The machine that carried out a run."""

    id: str
    """URN of the machine."""
    version: dict[str, str] = field(default_factory=dict)
    """Version of each program that carried it out, by name."""


@dataclass(frozen=True)
class BuildMetadata(CamelCaseRecord):
    """Name and time of a run."""

    invocation_id: str | None = None
    """KEY/MACHINE/REPEAT."""
    started_on: str | None = None
    """RFC 3339, UTC."""
    finished_on: str | None = None
    """RFC 3339, UTC: the start plus the duration of all phases."""


@dataclass(frozen=True)
class RunDetails(CamelCaseRecord):
    """Where and when a run was carried out, and its other results."""

    builder: Builder
    metadata: BuildMetadata = BuildMetadata()
    byproducts: tuple[ResourceDescriptor, ...] = ()
    """Files and results beside the subjects."""


@dataclass(frozen=True)
class Provenance(CamelCaseRecord):
    """The predicate of a passport: how the subjects were made (SLSA provenance v1)."""

    build_definition: BuildDefinition
    run_details: RunDetails


@dataclass(frozen=True)
class Verifier(CamelCaseRecord):
    """Who verified, and against which passport."""

    id: str
    policies: tuple[ResourceDescriptor, ...]


@dataclass(frozen=True)
class VerificationResult(CamelCaseRecord):
    """The predicate of a receipt: the properties that were verified (SVR v0.2)."""

    verifier: Verifier
    time_created: str
    properties: tuple[str, ...]
    cellrepro: JsonObject = field(default_factory=dict)
    """Extension: the details, as `cellrepro.exchange.receipt.Receipt` reads them."""


def build_type_of(statement: Statement) -> str | None:
    """The kind of what a statement of provenance is about; None for any other statement."""
    definition = statement.predicate.get("buildDefinition")
    if statement.predicate_type != PROVENANCE or not isinstance(definition, dict):
        return None
    build_type = definition.get("buildType")
    return build_type if isinstance(build_type, str) else None


def canonical_json(document: object) -> bytes:
    """JSON in UTF-8 with sorted keys and no spaces: equal documents are equal bytes."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


# -- package URLs (ECMA-427), such as pkg:pypi/torch@2.15.0 --------------------------------------

_PYTHON = "python"
_PACKAGE_URL = re.compile(r"pkg:(pypi|generic)/([^/@?#]+)@([^/@?#]+)")


def package_url(name: str, version: str) -> str:
    """The package URL of one version of a PyPI package, or of Python itself.

    >>> package_url("fill_voids", "2.1+cpu"), package_url("python", "3.11.7")
    ('pkg:pypi/fill-voids@2.1%2Bcpu', 'pkg:generic/python@3.11.7')
    """
    if name == _PYTHON:
        return f"pkg:generic/{_PYTHON}@{quote(version, safe='')}"
    return f"pkg:pypi/{quote(name.lower().replace('_', '-'), safe='')}@{quote(version, safe='')}"


def package_of(url: str | None) -> tuple[str, str] | None:
    """Name and version from a package URL of the same two kinds; None for any other.

    >>> package_of("pkg:pypi/torch@2.15.0%2Bcpu"), package_of("https://example.org")
    (('torch', '2.15.0+cpu'), None)
    """
    parts = _PACKAGE_URL.fullmatch(url or "")
    if parts is None:
        return None
    return unquote(parts[2]), unquote(parts[3])
