"""A passport: one repeat as a small statement, from which it can be checked and replayed.

It is an in-toto Statement with the predicate of SLSA provenance. What each field means stands in
docs/passport.md; nothing in it depends on when or where it is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property

from pydantic import JsonValue, TypeAdapter

from cellrepro.comparison.verdicts import Verdict, judge
from cellrepro.digests.digests import file_digest, value_digest
from cellrepro.errors import BadInput
from cellrepro.exchange.attestation import Attestation, read_payload
from cellrepro.exchange.package_urls import package_of, package_url
from cellrepro.exchange.records import JsonObject, JsonRecord, as_json, read_record, why_not_read
from cellrepro.exchange.statement import (
    FILES_DIGEST,
    LABELS_DIGEST,
    OUTLINES_DIGEST,
    PROGRAM_DIGEST,
    PROVENANCE,
    BuildDefinition,
    Builder,
    BuildMetadata,
    Provenance,
    ResourceDescriptor,
    RunDetails,
    Sha256,
    Statement,
    canonical_json,
)
from cellrepro.spec.spec import Spec
from cellrepro.store.manifest import ENVIRONMENT_FIELDS, Inside, Manifest, WarningRecord
from cellrepro.store.stored_run import MANIFEST, SPEC, WEIGHTS, Repeat, Run, read_spec

BUILD_TYPES = {
    "train": "urn:cellrepro:buildtype:train:v1",
    "segment": "urn:cellrepro:buildtype:segment:v1",
    "wrap": "urn:cellrepro:buildtype:wrap:v1",
}
"""Which kind of run a passport is of, by its task; docs/passport.md says what each means."""
_OF_RUNS = tuple(f"urn:cellrepro:buildtype:{task}:" for task in BUILD_TYPES)
MACHINE = "urn:cellrepro:machine:"
"""Before the name of a machine, where an address is asked for."""

MASKS = "masks"
"""Name of the subject that stands for all masks, where there are too many to name each."""
IMAGES = "images/"
"""Before the name of a file of the image folder, among the dependencies."""
STARTING_WEIGHTS = "starting-weights"
MODEL_FILE = "model-file"
PROGRAM = "program"
RESULT = "result"
WARNINGS = "warnings"
VERSIONS = "versions"
SHA256 = re.compile("[0-9a-f]{64}")

MOST_BYTES = 700_000
"""Of a payload, above which images and then masks are named together: 1 MB in an envelope."""
_MOST_NAMED = 10_000  # files; so many never fit
_MOST_WARNINGS = 100
_MOST_REASONS = 50
_LONGEST_TEXT = 300  # of a warning or a reason

RUN_NAME = re.compile(
    r"([0-9a-f]{16})/([A-Za-z0-9][\w.-]{0,63}-[0-9a-f]{8})/(0|[1-9]\d{0,8})", re.ASCII
)
"""KEY/MACHINE/REPEAT, each as a store names its folders."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", re.ASCII)
"""A time of RFC 3339, in UTC."""
TIME_EXAMPLE = "2026-11-01T12:00:00Z"


@dataclass(frozen=True)
class MaskDigests(JsonRecord):
    """The masks of one image, by their digests."""

    file: Inside
    """In the repeat's folder."""
    sha256: Sha256
    """Of the file."""
    labels: Sha256
    """Of the labels as numbered."""
    outlines: Sha256
    """Of the labels numbered in raster order: equal for equal outlines."""
    n_objects: int
    """Cells."""


@dataclass(frozen=True)
class AllMasksDigests(JsonRecord):
    """All masks of a repeat by one digest of each kind; docs/passport.md says how it is made."""

    files: Sha256
    """Of the sorted lines ``sha256  masks/NAME.tif``."""
    labels: Sha256
    """`Manifest.masks_digest`."""
    outlines: Sha256
    """The same over the digests of the outlines."""
    n_images: int
    """Images that were segmented."""
    n_objects: int
    """Cells in all of them."""


@dataclass(frozen=True)
class Passport:
    """What the passport of one repeat says."""

    attestation: Attestation
    """The statement as it came, with its signatures."""
    spec: Spec
    """What was asked for."""
    key: str
    """Of the spec."""
    machine: str
    """Name of the machine that computed it."""
    repeat: int
    """Its number, from 0."""
    weights: str | None
    """SHA-256 of the trained weights; None where nothing was trained."""
    masks: dict[str, MaskDigests]
    """By image; empty where there are too many to name each."""
    all_masks: AllMasksDigests | None
    """Of all masks together; None where none were made."""
    starting_weights: str | None
    """SHA-256 of the weights it started from, as the store writes them; None where another program
    segmented."""
    images: dict[str, str]
    """SHA-256 of each file of the image folder by its relative name; empty where there are too many
    to name each. `spec` has the digest of the folder."""
    packages: dict[str, str]
    """Version of Python and of each numeric library, by name."""
    environment: JsonObject
    """What the numbers depend on beside the spec: by the names of
    `cellrepro.store.manifest.ENVIRONMENT_FIELDS`, as a manifest has them."""
    files: dict[str, str]
    """SHA-256 of every other file of the repeat, its manifest and spec among them."""
    started: str | None
    """RFC 3339, UTC."""
    vacuous: tuple[str, ...]
    """Why equality with another repeat would prove nothing."""
    verdict: Verdict | None
    """Over the repeats of this machine; None of a single one."""
    n_repeats: int
    """Repeats that the verdict is over."""

    @property
    def digest(self) -> str:
        """SHA-256 of the passport: by it a receipt names it."""
        return self.attestation.digest

    @property
    def name(self) -> str:
        """KEY/MACHINE/REPEAT, as commands accept it."""
        return f"{self.key}/{self.machine}/{self.repeat}"

    @property
    def host(self) -> JsonObject:
        """Processor, cores, memory, system and GPUs."""
        host = self.environment.get("host")
        return host if isinstance(host, dict) else {}

    @cached_property
    def results(self) -> tuple[ResourceDescriptor, ...]:
        """Weights, and all masks as one: what a receipt is about."""
        results = []
        if self.weights is not None:
            results.append(ResourceDescriptor(name=WEIGHTS, digest={"sha256": self.weights}))
        if self.all_masks is not None:
            results.append(_all_masks_subject(self.all_masks))
        return tuple(results)


# -- made ----------------------------------------------------------------------------------


def passport_of(repeat: Repeat, *, run: Run | None = None) -> Passport:
    """Give the passport of a stored repeat."""
    statement = _statement(repeat, run)
    where = f"the passport of {repeat.name}"
    return read_passport(read_payload(statement.payload(), where=where), where=where)


def _statement(repeat: Repeat, run: Run | None) -> Statement:
    """With every mask and image by name where that fits, else images together, else masks, too."""
    manifest = repeat.manifest
    for names_masks, names_images in ((True, True), (True, False), (False, False)):
        n_masks = len(manifest.masks) if names_masks else 0
        n_images = len(manifest.data.files) if names_images else 0
        if max(n_masks, n_images) > _MOST_NAMED:
            continue
        statement = Statement(
            subject=(*_weights_made(manifest), *_masks_made(manifest, each=names_masks)),
            predicate_type=PROVENANCE,
            predicate=as_json(_provenance(repeat, run, each_image=names_images)),
        )
        if len(statement.payload()) <= MOST_BYTES:
            break
    return statement


def _provenance(repeat: Repeat, run: Run | None, *, each_image: bool) -> Provenance:
    manifest = repeat.manifest
    spec = repeat.spec
    definition = BuildDefinition(
        build_type=BUILD_TYPES[spec.task],
        external_parameters=json.loads(spec.model_dump_json()),
        internal_parameters=_numeric_environment(manifest, spec),
        resolved_dependencies=(
            *_images_used(manifest, each=each_image),
            *_starting_weights(manifest, spec),
            *_libraries(manifest),
        ),
    )
    details = RunDetails(
        builder=Builder(
            id=f"{MACHINE}{repeat.machine}",
            version={"cellrepro": manifest.versions.get("cellrepro", "unknown")},
        ),
        metadata=_metadata(repeat),
        byproducts=(*_other_files(repeat), _result(repeat, run), *_warnings(manifest.warnings)),
    )
    return Provenance(build_definition=definition, run_details=details)


def _weights_made(manifest: Manifest) -> Iterator[ResourceDescriptor]:
    weights = manifest.weights
    if weights is not None:
        yield ResourceDescriptor(
            name=WEIGHTS,
            digest={"sha256": weights.digest},
            annotations={"n_changed": weights.n_changed},
        )


def _masks_made(manifest: Manifest, *, each: bool) -> Iterator[ResourceDescriptor]:
    masks = {
        image: MaskDigests(
            file=record.file,
            sha256=_digest_in(manifest, record.file),
            labels=record.digest,
            outlines=record.canonical_digest,
            n_objects=record.n_objects,
        )
        for image, record in sorted(manifest.masks.items())
    }
    if not masks:
        return
    if not each:
        yield _all_masks_subject(_together(masks))
        return
    for image, digests in masks.items():
        yield ResourceDescriptor(
            name=digests.file,
            digest={
                "sha256": digests.sha256,
                LABELS_DIGEST: digests.labels,
                OUTLINES_DIGEST: digests.outlines,
            },
            annotations={"image": image, "n_objects": digests.n_objects},
        )


def _digest_in(manifest: Manifest, file: str) -> str:
    try:
        return manifest.files[file]
    except KeyError as error:
        raise BadInput(
            f"the manifest of {manifest.key}/{manifest.machine.name}/{manifest.repeat} has no "
            f"digest of {file}; expected a finished repeat of a store: run it again"
        ) from error


def _together(masks: Mapping[str, MaskDigests]) -> AllMasksDigests:
    return AllMasksDigests(
        files=files_digest({digests.file: digests.sha256 for digests in masks.values()}),
        labels=value_digest({image: digests.labels for image, digests in masks.items()}),
        outlines=value_digest({image: digests.outlines for image, digests in masks.items()}),
        n_images=len(masks),
        n_objects=sum(digests.n_objects for digests in masks.values()),
    )


def _all_masks_subject(masks: AllMasksDigests) -> ResourceDescriptor:
    return ResourceDescriptor(
        name=MASKS,
        digest={
            FILES_DIGEST: masks.files,
            LABELS_DIGEST: masks.labels,
            OUTLINES_DIGEST: masks.outlines,
        },
        annotations={"n_images": masks.n_images, "n_objects": masks.n_objects},
    )


def files_digest(files: Mapping[str, str]) -> str:
    """Digest many files by one digest, as a folder of images is."""
    lines = sorted(f"{digest}  {name}\n".encode() for name, digest in files.items())
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _numeric_environment(manifest: Manifest, spec: Spec) -> JsonObject:
    """What numbers depend on beside the spec; versions are among the dependencies."""
    names = {name for name in ENVIRONMENT_FIELDS if name != VERSIONS}
    record = manifest.model_dump(mode="json", include=names | {"seeds", "moved"})
    machine = manifest.machine.model_dump(mode="json")
    return {**record, "machine": machine, "profile": spec.profile, "mode": spec.mode}


def _images_used(manifest: Manifest, *, each: bool) -> Iterator[ResourceDescriptor]:
    data = manifest.data
    yield ResourceDescriptor(
        name=IMAGES,
        digest={FILES_DIGEST: data.digest},
        annotations={"n_train": data.n_train, "n_test": data.n_test, "segmented": data.segmented},
    )
    if each:
        for name, digest in sorted(data.files.items()):
            yield ResourceDescriptor(name=f"{IMAGES}{name}", digest={"sha256": digest})


def _starting_weights(manifest: Manifest, spec: Spec) -> Iterator[ResourceDescriptor]:
    """The network, or the program, from which the run started."""
    model = manifest.model
    if spec.task == "wrap":
        if spec.model_digest is not None:
            yield ResourceDescriptor(name=PROGRAM, digest={PROGRAM_DIGEST: spec.model_digest})
        return
    yield ResourceDescriptor(
        name=STARTING_WEIGHTS,
        digest={"sha256": model.initial_weights},
        annotations={
            "architecture": model.architecture,
            "dtype": model.dtype,
            "n_parameters": model.n_parameters,
        },
    )
    if spec.model_digest is not None:
        yield ResourceDescriptor(
            name=MODEL_FILE,
            digest={"sha256": spec.model_digest},
            annotations={"model": spec.model},
        )


def _libraries(manifest: Manifest) -> Iterator[ResourceDescriptor]:
    for name, version in sorted(manifest.versions.items()):
        yield ResourceDescriptor(name=name, uri=package_url(name, version))


def _metadata(repeat: Repeat) -> BuildMetadata:
    return BuildMetadata(
        invocation_id=repeat.name,
        started_on=utc_time(repeat.manifest.began),
        finished_on=utc_time(repeat.manifest.ended),
    )


def utc_time(moment: datetime) -> str:
    """Write a time as RFC 3339 has it, in UTC, to the second: `TIME_EXAMPLE`."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _other_files(repeat: Repeat) -> Iterator[ResourceDescriptor]:
    """Manifest, spec, ledger, notebook; those of a folder, such as checkpoints, together."""
    folder = repeat.folder
    single = {
        MANIFEST: file_digest(folder / MANIFEST),
        SPEC: file_digest(folder.parents[1] / SPEC),
    }
    by_folder: dict[str, dict[str, str]] = {}
    for name, digest in repeat.manifest.files.items():
        top, slash, _ = name.partition("/")
        if slash and top != MASKS:
            by_folder.setdefault(top, {})[name] = digest
        elif not slash and name != WEIGHTS:
            single[name] = digest
    for name, digest in sorted(single.items()):
        yield ResourceDescriptor(name=name, digest={"sha256": digest})
    for name, files in sorted(by_folder.items()):
        yield ResourceDescriptor(
            name=name, digest={FILES_DIGEST: files_digest(files)}, annotations={"n": len(files)}
        )


def _result(repeat: Repeat, run: Run | None) -> ResourceDescriptor:
    """Whether the repeats of this machine came out the same, and what they prove."""
    manifest = repeat.manifest
    repeats = {repeat.index: repeat} if run is None else run.machines.get(repeat.machine, {})
    judgement = judge([each.outcome for each in repeats.values()])
    vacuous = [_cut(reason) for reason in manifest.vacuous[:_MOST_REASONS]]
    return ResourceDescriptor(
        name=RESULT,
        annotations={
            "verdict": None if judgement.overall is None else str(judgement.overall),
            "n_repeats": judgement.n_repeats,
            "vacuous": list(vacuous),
            "ap50": manifest.ap50,
        },
    )


def _warnings(warnings: Iterable[WarningRecord]) -> Iterator[ResourceDescriptor]:
    """How often each kind was given; the most frequent ones by their text."""
    kinds = sorted(warnings, key=lambda each: (-each.count, each.category, each.message))
    if not kinds:
        return
    told: list[JsonValue] = [
        {"category": each.category, "count": each.count, "message": _cut(each.message)}
        for each in kinds[:_MOST_WARNINGS]
    ]
    annotations: JsonObject = {
        "n_kinds": len(kinds),
        "count": sum(each.count for each in kinds),
        "kinds": told,
    }
    yield ResourceDescriptor(name=WARNINGS, annotations=annotations)


def _cut(text: str) -> str:
    """One line, without what a terminal would take for commands."""
    line = _CONTROL.sub(" ", text)
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


# -- read ----------------------------------------------------------------------------------


def is_passport(statement: Statement) -> bool:
    """Whether a statement is a passport of this kind, of any version."""
    definition = statement.predicate.get("buildDefinition")
    build_type = definition.get("buildType") if isinstance(definition, dict) else None
    return (
        statement.predicate_type == PROVENANCE
        and isinstance(build_type, str)
        and build_type.startswith(_OF_RUNS)
    )


def read_passport(attestation: Attestation, *, where: str) -> Passport:
    """Read what a passport says."""
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
    told = read_record(_Result, result.annotations)
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
        vacuous=told.vacuous,
        verdict=told.verdict,
        n_repeats=told.n_repeats,
    )


@dataclass(frozen=True)
class _Result(JsonRecord):
    """The annotations of `RESULT`."""

    verdict: Verdict | None
    n_repeats: int
    vacuous: tuple[str, ...]


def _run_name(text: str | None) -> tuple[str, str, int]:
    parts = RUN_NAME.fullmatch(text or "")
    if parts is None:
        raise ValueError(f"its invocationId is {str(text)[:80]!r}, not KEY/MACHINE/REPEAT")
    return parts[1], parts[2], int(parts[3])


def _refuse_contradictions(provenance: Provenance, spec: Spec, *, key: str, machine: str) -> None:
    """Refuse a passport whose name is not that of what it describes."""
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
    """Refuse images that are not those of the spec."""
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
    found = [resource for resource in resources if resource.name == name]
    if len(found) > 1:
        raise ValueError(f"it has {len(found)} resources named {name}")
    return found[0] if found else None


def _one_named(name: str, resources: Iterable[ResourceDescriptor]) -> ResourceDescriptor:
    found = _named(name, resources)
    if found is None:
        raise ValueError(f"it has no resource named {name}")
    return found


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
        masks[_inside(image)] = read_record(
            MaskDigests,
            {
                "file": subject.name,
                "sha256": subject.digest.get("sha256"),
                "labels": subject.digest.get(LABELS_DIGEST),
                "outlines": subject.digest.get(OUTLINES_DIGEST),
                "n_objects": subject.annotations.get("n_objects"),
            },
        )
    return masks


def _all_masks_read(
    subjects: Iterable[ResourceDescriptor], masks: Mapping[str, MaskDigests]
) -> AllMasksDigests | None:
    subject = _named(MASKS, subjects)
    if masks:
        if subject is not None:
            raise ValueError("it names masks both each by itself and all together")
        return _together(masks)
    if subject is None:
        return None
    return read_record(
        AllMasksDigests,
        {
            "files": subject.digest.get(FILES_DIGEST),
            "labels": subject.digest.get(LABELS_DIGEST),
            "outlines": subject.digest.get(OUTLINES_DIGEST),
            "n_images": subject.annotations.get("n_images"),
            "n_objects": subject.annotations.get("n_objects"),
        },
    )


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
