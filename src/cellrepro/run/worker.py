"""The worker: makes one repeat in a child process, and leaves a finished folder or an error."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timezone
from pathlib import Path

from cellrepro.determinism import modes
from cellrepro.process.child import Child
from cellrepro.process.machine_here import environment_here
from cellrepro.run.inputs import read_images, scored_for_training
from cellrepro.run.options import RecordingOptions
from cellrepro.run.plan import Request
from cellrepro.run.repeat_work import Phases, RepeatWork
from cellrepro.run.training_recorder import TrainingRecorder
from cellrepro.run.worker_segmenting import scores_by_image, scores_of_checkpoints, segment_images
from cellrepro.run.worker_training import leave_trained_weights, other_ranks, train_network
from cellrepro.store.stored_run import MANIFEST


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
    """Train or segment as the spec says, and write everything into one folder.

    Checkpoints lie in the folder ``unfinished`` until the repeat is stored.
    """
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    spec = request.spec
    phases = Phases(child)
    with ExitStack() as stack:
        with phases.phase("import"):
            device = stack.enter_context(child.prepared(request.cellpose))
        stack.enter_context(phases.log.listening())
        environment = environment_here(child.setup.profile, device)
        switches = modes.switches()
        with phases.phase("data"):
            folder = read_images(request)
        with phases.phase("model"):
            network, model = request.build(device, staged)
        work = RepeatWork(
            child=child,
            request=request,
            repeat=repeat,
            started=started,
            phases=phases,
            device=device,
            environment=environment,
            switches=switches,
            folder=folder,
            network=network,
            model=model,
            recorder=TrainingRecorder(
                recording, staged, level=spec.ledger, seed=spec.seed, unfinished=unfinished
            ),
            staged=staged,
            with_images=with_images,
            loose=child.loosened(),
        )
        child.setup.seed_all()
        if spec.ledger != "off":
            work.write_beginning()
        _carry_out(work, stack)
        switches_at_end = modes.switches()
    manifest = work.manifest(switches_at_end)
    for sentence in manifest.switches_that_moved:
        child.tell("note", f"note: {sentence}")
    (staged / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")


def _carry_out(work: RepeatWork, stack: ExitStack) -> None:
    """Train and segment as the spec says, and score what was trained."""
    phases = work.phases
    if work.spec.task == "train":
        with phases.phase("train"), _watched(work):
            team = stack.enter_context(other_ranks(work))
            work.training = train_network(work, team)
        leave_trained_weights(work)
    with phases.phase("segment"), _watched(work):
        work.masks = segment_images(work)
    if work.training is not None:
        with phases.phase("score"), work.loose:
            work.train_scores = scores_by_image(work, scored_for_training(work.folder))
            work.training.ap50_after = scores_of_checkpoints(work)
    work.recorder.finish(work.carried_out)


def _watched(work: RepeatWork) -> AbstractContextManager[object]:
    """Locate PyTorch's warnings in mode ``warn``; else leave the loose operation loose."""
    if work.spec.mode == "warn":
        return work.phases.log.observing(work.network)
    return work.loose
