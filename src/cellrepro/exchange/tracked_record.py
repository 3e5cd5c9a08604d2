"""A finished repeat as an experiment tracker takes it: parameters, curves and scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.comparison.judgement import judge
from cellrepro.exchange.bundle import Bundle
from cellrepro.exchange.kept_passports import passports_of
from cellrepro.spec.spec import Spec, fields_of_another_task
from cellrepro.store.manifest import Manifest
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, Repeat, readable
from cellrepro.version import __version__
from samebits.digests import file_digest
from samebits.errors import BadInput

_NONE = "none"
"""Text of a parameter without a value, since trackers store only texts."""


@dataclass(frozen=True)
class Point:
    """One value of a curve."""

    name: str
    """Name of the curve: ``train_loss``."""
    value: float
    """NaN or infinity in a training that diverged."""
    epoch: int = 0
    """From 0."""


@dataclass(frozen=True)
class TrackedRecord:
    """Everything that is logged of a repeat."""

    parameters: Mapping[str, str]
    """The spec as flat names and texts: ``settings.diameter``, ``profile_settings.threads``."""
    points: tuple[Point, ...]
    """Losses, learning rates and AP by epoch, then counts and times."""
    started: int
    """Milliseconds since 1970, UTC."""
    ended: int
    """Milliseconds since 1970, UTC."""


def tracked_record(spec: Spec, manifest: Manifest) -> TrackedRecord:
    """Collect parameters and curves from spec and manifest, without paths of this machine."""
    milliseconds = round(manifest.began.timestamp() * 1000)
    return TrackedRecord(
        parameters=dict(_parameters(spec)),
        points=(*_curves(manifest), *_figures(manifest)),
        started=milliseconds,
        ended=milliseconds + round(1000 * sum(manifest.seconds.values())),
    )


# -- parameters ----------------------------------------------------------------------------


def _parameters(spec: Spec) -> Iterator[tuple[str, str]]:
    left_out = {*fields_of_another_task(spec.task)}
    if spec.task != "train":
        left_out.add("batch_size")  # of a training; the one of a segmentation is a setting
    of_dictionaries = {"profile_settings", "settings"}
    for name, value in spec.model_dump(mode="json", exclude=left_out | of_dictionaries).items():
        yield name, _text(value)
    yield from _flat("profile_settings", spec.profile_settings)
    if spec.task == "segment":
        yield from _flat("settings", spec.settings.by_name())


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Flatten nested dictionaries into dotted names."""
    if not isinstance(value, dict):
        yield name, _text(value)
        return
    for key, inner in value.items():
        yield from _flat(f"{name}.{key}", inner)


def _text(value: object) -> str:
    if value is None:
        return _NONE
    return value if isinstance(value, str) else json.dumps(value)


# -- curves and figures --------------------------------------------------------------------


def _curves(manifest: Manifest) -> Iterator[Point]:
    training = manifest.training
    if training is None:
        return
    for epoch, rate in enumerate(training.learning_rates):
        yield Point("learning_rate", rate, epoch)
    for epoch, loss in enumerate(training.train_losses):
        yield Point("train_loss", loss, epoch)
    for epoch, test_loss in enumerate(training.test_losses):
        if test_loss is not None:
            yield Point("test_loss", test_loss, epoch)
    for n_epochs, score in training.ap50_after.items():
        if n_epochs < len(training.train_losses):  # the last one is that of the run
            yield Point("ap50", score, n_epochs - 1)


def _figures(manifest: Manifest) -> Iterator[Point]:
    """Scores, counts, times and memory of the finished run, at its last epoch."""
    training = manifest.training
    last_epoch = 0 if training is None else max(len(training.train_losses) - 1, 0)
    figures: dict[str, float | None] = {
        "ap50": manifest.ap50,
        "ap50_train": manifest.ap50_train,
        "n_objects": manifest.n_objects,
        "n_images": len(manifest.masks),
        "n_warnings": sum(warning.count for warning in manifest.warnings),
    }
    for phase, seconds in manifest.seconds.items():
        figures[f"seconds.{phase}"] = seconds
    for memory, n_bytes in manifest.peak_memory.items():
        figures[f"peak_bytes.{memory}"] = n_bytes
    for name, value in figures.items():
        if value is not None:
            yield Point(name, value, last_epoch)


# -- what is sent of a stored repeat -------------------------------------------------------

KNOWN_BY = "cellrepro.manifest"
"""Tag by which the run of a repeat is known: the digest of its manifest."""
PASSPORT_TAG = "cellrepro.passport"
"""Tag with the digest of its current passport."""


@dataclass(frozen=True)
class Upload:
    """A repeat that has been checked, with all that is logged of it."""

    repeat: Repeat
    passports: Bundle
    """The current passport is first."""
    tags: Mapping[str, str]
    """May change when the store gets more repeats, unlike all else."""
    files: tuple[Path, ...]
    """Artifacts beside the passport."""

    @classmethod
    def of(cls, repeat: Repeat, store: Store, files: Sequence[str]) -> Upload:
        """Check a repeat, and that it has the files that were asked for."""
        repeat.refuse_damage()
        for name in files:
            if not repeat.has(name):
                raise BadInput(
                    f"{repeat.name} has no {name}; leave --{Path(name).stem} out, or name a repeat "
                    "that has one"
                )
        paths = [repeat.folder / MANIFEST, *(repeat.file(name) for name in files)]
        passports = passports_of([repeat], store=store)
        tags = _tags(repeat, store) | {PASSPORT_TAG: passports.passports[0].digest}
        return cls(repeat, passports, tags, tuple(paths))


def _tags(repeat: Repeat, store: Store) -> dict[str, str]:
    run = store.run(repeat.spec.key)
    machines = {} if run is None else run.machines
    same_machine = machines.get(repeat.folder.parent.name, {}).values()
    verdict = judge([other.outcome for other in readable(same_machine)]).overall
    manifest = repeat.manifest
    tags: dict[str, str | None] = {
        KNOWN_BY: file_digest(repeat.folder / MANIFEST),
        "cellrepro.repeat": repeat.name,
        "cellrepro.key": repeat.spec.key,
        "cellrepro.machine": repeat.machine,
        "cellrepro.verdict": verdict,
        "cellrepro.vacuous": "; ".join(manifest.vacuous) or None,
        "cellrepro.weights": None if manifest.weights is None else manifest.weights.digest,
        "cellrepro.masks": manifest.masks_digest,
        "cellrepro.version": __version__,
    }
    return {name: str(value) for name, value in tags.items() if value is not None}
