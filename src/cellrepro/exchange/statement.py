"""Records of in-toto and SLSA, as far as a passport and a receipt are made of them.

in-toto Statement v1, SLSA provenance v1, Simple Verification Result v0.2. What others add to a
document is left alone: it is ignored, as these forms ask for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from cellrepro.exchange.records import CamelCaseRecord, JsonObject, as_json

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
VERIFICATION_RESULT = "https://in-toto.io/attestation/svr/v0.2"

Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
"""64 digits in lower-case hex."""

FILES_DIGEST = "cellrepro_files"
"""Of many files: SHA-256 of the sorted lines ``sha256  name``, each ended by a line feed."""
LABELS_DIGEST = "cellrepro_labels"
"""Of masks: SHA-256 of the labels as they are numbered."""
OUTLINES_DIGEST = "cellrepro_outlines"
"""Of masks: SHA-256 of the labels numbered in raster order, equal for equal outlines."""
PROGRAM_DIGEST = "cellrepro_program"
"""Of a program that segments: SHA-256 over its command and its files, as the spec has it."""


@dataclass(frozen=True)
class ResourceDescriptor(CamelCaseRecord):
    """One thing that a statement speaks of, by name or address and by digest."""

    name: str | None = None
    uri: str | None = None
    digest: dict[str, str] = field(default_factory=dict)
    annotations: JsonObject = field(default_factory=dict)

    @property
    def sha256(self) -> str | None:
        """Its SHA-256, where it has one."""
        return self.digest.get("sha256")


@dataclass(frozen=True)
class Statement(CamelCaseRecord):
    """A statement about things that are named by their digests; what it says is the predicate."""

    subject: tuple[ResourceDescriptor, ...]
    predicate_type: str
    predicate: JsonObject = field(default_factory=dict)
    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = STATEMENT

    def payload(self) -> bytes:
        """The statement as sorted, compact JSON in UTF-8: what is signed, and digested."""
        return canonical_json({**as_json(self), "_type": STATEMENT})


@dataclass(frozen=True)
class BuildDefinition(CamelCaseRecord):
    """What was asked for, and everything that it was made from."""

    build_type: str
    """Which kind of run, and so what all the rest means."""
    external_parameters: JsonObject
    """The spec, whole."""
    internal_parameters: JsonObject = field(default_factory=dict)
    """In which numeric environment it was carried out."""
    resolved_dependencies: tuple[ResourceDescriptor, ...] = ()
    """Images, starting weights and libraries."""


@dataclass(frozen=True)
class Builder(CamelCaseRecord):
    """Where it was carried out."""

    id: str
    """The machine, as an address."""
    version: dict[str, str] = field(default_factory=dict)
    """Of what carried it out, by name."""


@dataclass(frozen=True)
class BuildMetadata(CamelCaseRecord):
    """Which run it was, and when."""

    invocation_id: str | None = None
    """KEY/MACHINE/REPEAT."""
    started_on: str | None = None
    """RFC 3339, UTC; so is the next."""
    finished_on: str | None = None
    """The start and the time of all its phases."""


@dataclass(frozen=True)
class RunDetails(CamelCaseRecord):
    """What is particular to one run."""

    builder: Builder
    metadata: BuildMetadata = BuildMetadata()
    byproducts: tuple[ResourceDescriptor, ...] = ()
    """What came of it beside the subjects."""


@dataclass(frozen=True)
class Provenance(CamelCaseRecord):
    """The predicate of a passport: how the subjects were made (SLSA provenance v1)."""

    build_definition: BuildDefinition
    run_details: RunDetails


@dataclass(frozen=True)
class Verifier(CamelCaseRecord):
    """Who verified, and against what."""

    id: str
    policies: tuple[ResourceDescriptor, ...]


@dataclass(frozen=True)
class VerificationResult(CamelCaseRecord):
    """The predicate of a receipt: which properties were found to hold (SVR v0.2)."""

    verifier: Verifier
    time_created: str
    properties: tuple[str, ...]
    cellrepro: JsonObject = field(default_factory=dict)
    """Extension: the details, as `cellrepro.exchange.receipt.Receipt` reads them."""


def canonical_json(document: object) -> bytes:
    """Write JSON with sorted keys and no spaces, in UTF-8: equal documents are equal bytes."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")
