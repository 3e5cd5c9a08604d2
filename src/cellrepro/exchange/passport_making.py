"""Making the passport of a stored repeat; it does not depend on when or where it is made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pydantic import JsonValue

from cellrepro.comparison.judgement import judge
from cellrepro.exchange.json_records import JsonObject, as_json
from cellrepro.exchange.mask_digests import (
    FILES_DIGEST,
    MASKS,
    AllMasksDigests,
    MaskDigests,
    files_digest,
)
from cellrepro.exchange.passport import (
    BUILD_TYPES,
    IMAGES,
    MACHINE,
    RESULT,
    STARTING_WEIGHTS,
    VERSIONS,
    Passport,
    read_passport,
)
from cellrepro.exchange.provenance import (
    PROVENANCE,
    BuildDefinition,
    Builder,
    BuildMetadata,
    Provenance,
    RunDetails,
    package_url,
)
from cellrepro.exchange.statement import ResourceDescriptor, Statement, read_payload, utc_time
from cellrepro.spec.spec import Spec
from cellrepro.store.environment_record import ENVIRONMENT_FIELDS
from cellrepro.store.manifest import Manifest
from cellrepro.store.stored_run import MANIFEST, SPEC, WEIGHTS, Repeat, Run, readable
from cellrepro.words import cut
from samebits.digests import file_digest
from samebits.errors import BadInput
from samebits.heard_warning import HeardWarning

MOST_BYTES = 700_000
"""Limit of a payload, above which images and then masks are named together: 1 MB in an envelope."""
PROGRAM_DIGEST = "cellrepro_program"
"""Name of the digest of a wrapped program: SHA-256 over its command and its files."""
_MODEL_FILE = "model-file"
_PROGRAM = "program"
_WARNINGS = "warnings"
_MOST_NAMED = 10_000  # files; so many never fit
_MOST_WARNINGS = 100
_MOST_REASONS = 50
_LONGEST_TEXT = 300  # of a warning or a reason
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def passport_of(repeat: Repeat, *, run: Run | None = None) -> Passport:
    """Make the passport of a stored repeat; ``run`` adds the verdict over its other repeats."""
    statement = _statement(repeat, run)
    where = f"the passport of {repeat.name}"
    return read_passport(read_payload(statement.payload(), where=where), where=where)


def _statement(repeat: Repeat, run: Run | None) -> Statement:
    """Name every mask and image if that fits; otherwise images together, or masks as well."""
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
        yield AllMasksDigests.of(masks).subject
        return
    for image, digests in masks.items():
        subject = digests.subject
        yield replace(subject, annotations={"image": image, **subject.annotations})


def _digest_in(manifest: Manifest, file: str) -> str:
    try:
        return manifest.files[file]
    except KeyError as error:
        raise BadInput(
            f"the manifest of {manifest.key}/{manifest.machine.name}/{manifest.repeat} has no "
            f"digest of {file}; expected a finished repeat of a store: run it again"
        ) from error


def _numeric_environment(manifest: Manifest, spec: Spec) -> JsonObject:
    """What numbers depend on beside the spec, without versions: these are dependencies."""
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
    """The network from which the run started, or the program that it ran."""
    model = manifest.model
    if spec.task == "wrap":
        if spec.model_digest is not None:
            yield ResourceDescriptor(name=_PROGRAM, digest={PROGRAM_DIGEST: spec.model_digest})
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
            name=_MODEL_FILE,
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


def _other_files(repeat: Repeat) -> Iterator[ResourceDescriptor]:
    """Manifest, spec, ledger and notebook one by one; folders, such as checkpoints, as a whole."""
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
    """The verdict over the repeats of this machine, and why equality may prove nothing."""
    manifest = repeat.manifest
    repeats = {repeat.index: repeat} if run is None else run.machines.get(repeat.machine, {})
    judgement = judge([each.outcome for each in readable(repeats.values())])
    vacuous = [_one_line(reason) for reason in manifest.vacuous[:_MOST_REASONS]]
    return ResourceDescriptor(
        name=RESULT,
        annotations={
            "verdict": None if judgement.overall is None else str(judgement.overall),
            "n_repeats": judgement.n_repeats,
            "vacuous": list(vacuous),
            "ap50": manifest.ap50,
        },
    )


def _warnings(warnings: Iterable[HeardWarning]) -> Iterator[ResourceDescriptor]:
    """Counts of warnings, and the texts of the most frequent ones."""
    kinds = sorted(warnings, key=lambda each: (-each.count, each.category, each.message))
    if not kinds:
        return
    most_frequent: list[JsonValue] = [
        {"category": each.category, "count": each.count, "message": _one_line(each.message)}
        for each in kinds[:_MOST_WARNINGS]
    ]
    annotations: JsonObject = {
        "n_kinds": len(kinds),
        "count": sum(each.count for each in kinds),
        "kinds": most_frequent,
    }
    yield ResourceDescriptor(name=_WARNINGS, annotations=annotations)


def _one_line(text: str) -> str:
    """A text without control characters, and of bounded length."""
    return cut(_CONTROL_CHARACTERS.sub(" ", text), _LONGEST_TEXT)
