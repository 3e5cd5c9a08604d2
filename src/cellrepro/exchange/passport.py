"""A passport: one repeat as a small statement, from which it can be checked and replayed.

It is an in-toto Statement with the predicate of SLSA provenance; docs/passport.md explains each
field. This file reads passports, `passport_making` makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import TypeAdapter

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.archive.entry_names import REPEAT_NAME
from cellrepro.exchange.json_records import JsonObject, JsonRecord, read_record, why_not_read
from cellrepro.exchange.mask_digests import (
    FILES_DIGEST,
    MASKS,
    AllMasksDigests,
    MaskDigests,
    files_digest,
)
from cellrepro.exchange.provenance import Provenance, build_type_of, package_of, package_url
from cellrepro.exchange.statement import (
    Attestation,
    ResourceDescriptor,
    Statement,
    canonical_json,
)
from cellrepro.spec.spec import Spec
from cellrepro.store.environment_record import ENVIRONMENT_FIELDS
from cellrepro.store.record_values import Inside
from cellrepro.store.stored_run import WEIGHTS, read_spec
from samebits.errors import BadInput

BUILD_TYPES = {
    "train": "urn:cellrepro:buildtype:train:v1",
    "segment": "urn:cellrepro:buildtype:segment:v1",
    "wrap": "urn:cellrepro:buildtype:wrap:v1",
}
"""The ``buildType`` of a passport by the task of its run; docs/passport.md explains them."""
_BUILD_TYPES_OF_RUNS = tuple(f"urn:cellrepro:buildtype:{task}:" for task in BUILD_TYPES)
MACHINE = "urn:cellrepro:machine:"
"""Prefix of the URN of a machine."""

IMAGES = "images/"
"""Dependency for the image folder, and the prefix of each of its files."""
STARTING_WEIGHTS = "starting-weights"
RESULT = "result"
VERSIONS = "versions"
SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Passport:
    """The content of a passport."""

    attestation: Attestation
    """Its statement, with the signatures."""
    spec: Spec
    key: str
    """Key of the spec."""
    machine: str
    """Name of the machine that computed it."""
    repeat: int
    """Number of the repeat, from 0."""
    weights: str | None
    """SHA-256 of the trained weights; None if nothing was trained."""
    masks: dict[str, MaskDigests]
    """Digests of the masks of each image, by its name; empty if there are too many to name each."""
    all_masks: AllMasksDigests | None
    """All masks together; None if there are none."""
    starting_weights: str | None
    """SHA-256 of the weights it started from, as the store writes them; None if another program
    segmented."""
    images: dict[str, str]
    """SHA-256 of each file of the image folder by its relative name; empty if there are too many
    to name each. `spec` has the digest of the folder."""
    packages: dict[str, str]
    """Version of Python and of each numeric library, by name."""
    environment: JsonObject
    """What the numbers depend on beside the spec: the `ENVIRONMENT_FIELDS` of the manifest."""
    files: dict[str, str]
    """SHA-256 of every other file of the repeat, its manifest and spec among them."""
    started: str | None
    """RFC 3339, UTC."""
    vacuous: tuple[str, ...]
    """Why equality with another repeat would prove nothing."""
    verdict: Verdict | None
    """Verdict over the repeats of this machine; None for a single one."""
    n_repeats: int
    """Number of repeats of this machine."""

    @property
    def digest(self) -> str:
        """SHA-256 of the statement, by which a receipt identifies the passport."""
        return self.attestation.digest

    @property
    def name(self) -> str:
        """``KEY/MACHINE/REPEAT``."""
        return f"{self.key}/{self.machine}/{self.repeat}"

    @cached_property
    def results(self) -> tuple[ResourceDescriptor, ...]:
        """The weights, and all masks as one: the subjects of a receipt."""
        results = []
        if self.weights is not None:
            results.append(ResourceDescriptor(name=WEIGHTS, digest={"sha256": self.weights}))
        if self.all_masks is not None:
            results.append(self.all_masks.subject)
        return tuple(results)


# -- reading -------------------------------------------------------------------------------


def is_passport(statement: Statement) -> bool:
    """Whether a statement is a passport of a run, of any version."""
    return (build_type_of(statement) or "").startswith(_BUILD_TYPES_OF_RUNS)


def read_passport(attestation: Attestation, *, where: str) -> Passport:
    """Validate a passport; what contradicts itself is refused."""
    try:
        return _read(attestation)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{where}: no passport that this version of cellrepro reads ({why_not_read(error)}); "
            "update cellrepro, or ask the sender for the file as it was exported"
        ) from error


def _read(attestation: Attestation) -> Passport:
    statement = attestation.statement
    provenance = read_record(Provenance, statement.predicate)
    definition = provenance.build_definition
    details = provenance.run_details
    if definition.build_type not in BUILD_TYPES.values():
        raise ValueError(f"its buildType is {definition.build_type[:80]!r}")
    spec = read_spec(canonical_json(definition.external_parameters))
    key, machine, repeat = _run_name(details.metadata.invocation_id)
    _refuse_contradictions(provenance, spec, key=key, machine=machine)
    images = _each_once(_images_read(definition.resolved_dependencies))
    _refuse_other_images(definition.resolved_dependencies, images, spec)
    masks = _masks_read(statement.subject)
    result = _one_named(RESULT, details.byproducts)
    result_record = read_record(_Result, result.annotations)
    packages = _each_once(_packages_read(definition.resolved_dependencies))
    internal = definition.internal_parameters
    environment: JsonObject = {name: internal.get(name) for name in ENVIRONMENT_FIELDS}
    environment[VERSIONS] = dict(packages)
    weights = _named(WEIGHTS, statement.subject)
    starting_weights = _named(STARTING_WEIGHTS, definition.resolved_dependencies)
    return Passport(
        attestation=attestation,
        spec=spec,
        key=key,
        machine=machine,
        repeat=repeat,
        weights=None if weights is None else _sha256(weights),
        masks=masks,
        all_masks=_all_masks_read(statement.subject, masks),
        starting_weights=None if starting_weights is None else _sha256(starting_weights),
        images=images,
        packages=packages,
        environment=environment,
        files=_each_once(_files_read(details.byproducts)),
        started=details.metadata.started_on,
        vacuous=result_record.vacuous,
        verdict=result_record.verdict,
        n_repeats=result_record.n_repeats,
    )


@dataclass(frozen=True)
class _Result(JsonRecord):
    """The annotations of `RESULT`."""

    verdict: Verdict | None
    n_repeats: int
    vacuous: tuple[str, ...]


def _run_name(text: str | None) -> tuple[str, str, int]:
    parts = re.fullmatch(REPEAT_NAME, text or "")
    if parts is None:
        raise ValueError(f"its invocationId is {str(text)[:80]!r}, not KEY/MACHINE/REPEAT")
    return parts[1], parts[2], int(parts[3])


def _refuse_contradictions(provenance: Provenance, spec: Spec, *, key: str, machine: str) -> None:
    """Refuse a passport whose spec, machine or task is not that of its name."""
    builder = provenance.run_details.builder.id
    build_type = provenance.build_definition.build_type
    if spec.key != key:
        raise ValueError(f"its spec has the key {spec.key}, and its invocationId says {key}")
    if builder != f"{MACHINE}{machine}":
        raise ValueError(f"its builder is {builder[:80]!r}, and its invocationId says {machine}")
    if build_type != BUILD_TYPES[spec.task]:
        raise ValueError(f"its buildType is {build_type}, and its spec says {spec.task}")


def _refuse_other_images(
    resources: Iterable[ResourceDescriptor], images: Mapping[str, str], spec: Spec
) -> None:
    """Refuse images whose digest is not the one in the spec."""
    folder = _one_named(IMAGES, resources)
    digests = {folder.digest.get(FILES_DIGEST)}
    if images:
        digests.add(files_digest(images))
    if digests != {spec.data_digest}:
        raise ValueError("the digests of its images are not that of its spec")


def _each_once(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    record: dict[str, str] = {}
    for name, value in pairs:
        if name in record:
            raise ValueError(f"{name[:80]!r} stands in it twice")
        record[name] = value
    return record


def _named(name: str, resources: Iterable[ResourceDescriptor]) -> ResourceDescriptor | None:
    matches = [resource for resource in resources if resource.name == name]
    if len(matches) > 1:
        raise ValueError(f"it has {len(matches)} resources named {name}")
    return matches[0] if matches else None


def _one_named(name: str, resources: Iterable[ResourceDescriptor]) -> ResourceDescriptor:
    resource = _named(name, resources)
    if resource is None:
        raise ValueError(f"it has no resource named {name}")
    return resource


def _sha256(resource: ResourceDescriptor) -> str:
    digest = resource.digest.get("sha256", "")
    if not SHA256.fullmatch(digest):
        raise ValueError(f"{str(resource.name)[:80]} has no SHA-256 of 64 digits")
    return digest


def _masks_read(subjects: Iterable[ResourceDescriptor]) -> dict[str, MaskDigests]:
    masks: dict[str, MaskDigests] = {}
    for subject in subjects:
        image = subject.annotations.get("image")
        if not isinstance(image, str):
            continue
        if image in masks:
            raise ValueError(f"the image {image[:80]!r} has masks twice")
        masks[_inside(image)] = MaskDigests.of_subject(subject)
    return masks


def _all_masks_read(
    subjects: Iterable[ResourceDescriptor], masks: Mapping[str, MaskDigests]
) -> AllMasksDigests | None:
    subject = _named(MASKS, subjects)
    if not masks:
        return None if subject is None else AllMasksDigests.of_subject(subject)
    if subject is not None:
        raise ValueError("it names masks both each by itself and all together")
    return AllMasksDigests.of(masks)


def _images_read(resources: Iterable[ResourceDescriptor]) -> Iterator[tuple[str, str]]:
    for resource in resources:
        name = resource.name or ""
        if name.startswith(IMAGES) and name != IMAGES:
            yield _inside(name.removeprefix(IMAGES)), _sha256(resource)


def _packages_read(resources: Iterable[ResourceDescriptor]) -> Iterator[tuple[str, str]]:
    for resource in resources:
        package = package_of(resource.uri)
        if package is None:
            continue
        name, version = package
        if resource.name is None or package_url(resource.name, version) != resource.uri:
            raise ValueError(f"the package {str(resource.name)[:80]!r} has the address of {name}")
        yield resource.name, version


def _files_read(resources: Iterable[ResourceDescriptor]) -> Iterator[tuple[str, str]]:
    for resource in resources:
        if resource.name is not None and "sha256" in resource.digest:
            yield _inside(resource.name), _sha256(resource)


def _inside(name: str) -> str:
    return _INSIDE.validate_python(name)


_INSIDE: TypeAdapter[str] = TypeAdapter(Inside)
