"""One repeat, carried out in a process of its own; it leaves a finished folder, or an error."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cellrepro.determinism import modes
from cellrepro.model.epoch_schedule import trains_nothing
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images, scored_for_training
from cellrepro.run.ledger_beginning import Environment, write_beginning
from cellrepro.run.options import RecordingOptions
from cellrepro.run.plan import Request
from cellrepro.run.repeat_work import RepeatWork
from cellrepro.run.training_recorder import TrainingRecorder
from cellrepro.run.until_found import as_trained
from cellrepro.run.worker_segmenting import (
    scores_by_image,
    scores_of_checkpoints,
    segment_images,
)
from cellrepro.run.worker_training import other_ranks, save_trained_weights, train_network
from cellrepro.spec.spec import Spec
from cellrepro.store.checkpoints import Origin
from cellrepro.store.manifest import (
    DataRecord,
    Manifest,
    MaskRecord,
    ModelRecord,
    TrainingRecord,
    WeightsRecord,
)
from cellrepro.store.peak_memory import peak_memory
from cellrepro.store.store import MANIFEST
from cellrepro.trace.torch_warnings import WarningLog


def make_repeat(
    child: Child,
    *,
    request: Request,
    repeat: int,
    staged: Path,
    recording: RecordingOptions,
    unfinished: Path | None = None,
    with_images: bool,
) -> None:
    """Train or segment as the spec says and leave everything in one folder.

    Checkpoints lie in the folder ``unfinished`` until the repeat is stored.
    """
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    log = WarningLog()
    phases = _Phases(child, log)
    with ExitStack() as stack:
        with phases.phase("import"):
            device = stack.enter_context(child.prepared(request.cellpose))
        stack.enter_context(log.listening())
        environment = Environment.here(child.setup.profile, device)
        with phases.phase("data"):
            folder = read_images(request)
        with phases.phase("model"):
            initial = request.build(device, staged)
        spec = request.spec
        recorder = TrainingRecorder(
            recording, staged, level=spec.ledger, seed=spec.seed, unfinished=unfinished
        )
        work = RepeatWork(
            child,
            request,
            device,
            initial.network,
            folder,
            recorder,
            staged,
            with_images=with_images,
        )
        child.setup.seed_all()
        if spec.ledger != "off":
            write_beginning(work, environment)
        origin = None
        if spec.task == "train":
            origin = Origin(
                spec=spec.model_dump(mode="json"),
                repeat=repeat,
                numeric_class=environment.numeric_class,
                initial_weights=initial.record.initial_weights,
            )
        results = _computed(work, initial.record, origin, phases=phases, stack=stack)
        recorder.finish(results.carried_out)
        switches_at_end = modes.switches()
    manifest = _manifest(
        work,
        results,
        environment,
        repeat=repeat,
        started=started,
        seconds=phases.seconds,
        switches_at_end=switches_at_end,
        log=log,
    )
    for sentence in manifest.switches_that_moved:
        child.tell("note", f"note: {sentence}")
    (staged / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")


class _Phases:
    """Names the parts of the work to the caller and to the log of warnings, and times them."""

    def __init__(self, child: Child, log: WarningLog) -> None:
        self._child = child
        self.log = log
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name and time one part, for one block."""
        self.log.phase = name
        self._child.phase(name)
        begun = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - begun, 3)


@dataclass(frozen=True)
class _Results:
    """What came of a repeat."""

    carried_out: Spec
    """As it was asked for, with the number of epochs that a training has had."""
    model: ModelRecord
    """What it began with."""
    masks: dict[str, MaskRecord]
    """By the name of the image."""
    training: TrainingRecord | None
    """Of a training."""
    weights: WeightsRecord | None
    """Of a training."""
    train_scores: dict[str, float | None]
    """Of training images, by name."""
    n_loose_calls: int
    """How often the operation that was left loose was called."""


def _computed(
    work: RepeatWork,
    model: ModelRecord,
    origin: Origin | None,
    *,
    phases: _Phases,
    stack: ExitStack,
) -> _Results:
    """Train, where there is an origin of a training, and segment; score training images, too."""
    loose = work.child.loosened()  # which may be entered again

    def watched() -> AbstractContextManager[object]:
        """With PyTorch's warnings placed in mode ``warn``, else with the loose operation loose."""
        return phases.log.observing(work.network) if work.spec.mode == "warn" else loose

    carried_out = work.spec
    training = None
    weights = None
    train_scores: dict[str, float | None] = {}
    if origin is not None:
        with phases.phase("train"), watched():
            team = stack.enter_context(other_ranks(work))
            training = train_network(work, origin, team)
        carried_out = as_trained(work.spec, training)
        if work.recorder.origin is not None:  # a training that went on began with different weights
            initial_weights = work.recorder.origin.initial_weights
            model = model.model_copy(update={"initial_weights": initial_weights})
        weights = save_trained_weights(work, architecture=model.architecture)
        _in_precision_of_profile(work)  # only after saving: what was trained is kept
    with phases.phase("segment"), watched():
        masks = segment_images(work)
    if training is not None:
        with phases.phase("score"), loose:
            train_scores = scores_by_image(work, scored_for_training(work.folder))
            training.ap50_after = scores_of_checkpoints(work, carried_out)
    return _Results(
        carried_out=carried_out,
        model=model,
        masks=masks,
        training=training,
        weights=weights,
        train_scores=train_scores,
        n_loose_calls=loose.n_calls,
    )


def _in_precision_of_profile(work: RepeatWork) -> None:
    import torch

    work.network.dtype = getattr(torch, work.child.setup.profile.dtype)


def _manifest(
    work: RepeatWork,
    results: _Results,
    environment: Environment,
    *,
    repeat: int,
    started: str,
    seconds: dict[str, float],
    switches_at_end: Mapping[str, Any],
    log: WarningLog,
) -> Manifest:
    """All that is on record of a repeat."""
    spec = results.carried_out
    folder = work.folder
    switches_set = environment.switches
    moved = {
        name: switches_at_end[name]
        for name in switches_set
        if switches_set[name] != switches_at_end[name]
    }
    return Manifest(
        key=spec.key,
        repeat=repeat,
        vacuous=_reasons_of_vacuity(results),
        started=started,
        seconds=seconds,
        peak_memory=peak_memory(),
        **environment.by_field(),
        seeds={"python": spec.seed, "numpy": spec.seed, "torch": spec.seed, "data": spec.data_seed},
        data=DataRecord(
            path=str(work.request.data.resolve()),
            digest=folder.digest,
            files=folder.files,
            n_train=len(folder.train),
            n_test=len(folder.test),
            segmented="test" if folder.test else "train",
            kept_as=None if spec.images_digest == folder.digest else spec.images_digest,
            warnings=list(folder.warnings),
        ),
        model=results.model,
        training=results.training,
        weights=results.weights,
        masks=results.masks,
        train_scores=results.train_scores,
        # On record and no error: the bits of the repeat can be compared all the same.
        moved=moved,
        warnings=log.records(),
    )


def _reasons_of_vacuity(results: _Results) -> list[str]:
    """Why an equality with this repeat would prove nothing."""
    spec = results.carried_out
    reasons = []
    if results.weights is not None and results.weights.n_changed == 0:
        why_nothing = trains_nothing(spec.epochs, spec.learning_rate)
        reasons.append(why_nothing or "training changed no weight")
    if not any(record.n_objects for record in results.masks.values()):
        reasons.append(f"no object was found in any of the {len(results.masks)} images")
    if spec.loose is not None and not results.n_loose_calls:
        reasons.append(f"{spec.loose} was never called, so --loose changed nothing")
    return reasons
