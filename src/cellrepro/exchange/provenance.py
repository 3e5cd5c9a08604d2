"""The predicate of passports: how the subjects were made, as SLSA provenance v1 has it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from cellrepro.exchange.json_records import CamelCaseRecord, JsonObject
from cellrepro.exchange.statement import ResourceDescriptor, Statement

PROVENANCE = "https://slsa.dev/provenance/v1"


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


def build_type_of(statement: Statement) -> str | None:
    """The kind of what a statement of provenance is about; None for any other statement."""
    definition = statement.predicate.get("buildDefinition")
    if statement.predicate_type != PROVENANCE or not isinstance(definition, dict):
        return None
    build_type = definition.get("buildType")
    return build_type if isinstance(build_type, str) else None


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
