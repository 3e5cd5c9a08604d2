"""The worker: makes one repeat in a child process, and leaves a finished folder or an error."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from cellrepro.model.encoders import CellposeNetwork
from cellrepro.model.training_loop import Epoch, Training, TrainingLoop
from cellrepro.process.child import Child
from cellrepro.process.machine_here import environment_here
from cellrepro.run.data_parallel import team_of
from cellrepro.run.inputs import read_images, training_loop
from cellrepro.run.options import RecordingOptions
from cellrepro.run.plan import INITIAL_WEIGHTS, Request
from cellrepro.run.rank_exchange import RankTeam
from cellrepro.run.repeat_work import Phases, RepeatWork
from cellrepro.run.training_recorder import TrainingRecorder
from cellrepro.run.until_found import Seeker
from cellrepro.run.worker_scoring import (
    scores_by_image,
    scores_of_checkpoints,
    scores_of_training_images,
)
from cellrepro.run.worker_segmenting import segment_images
from cellrepro.store.checkpoints import Origin
from cellrepro.store.manifest import mean_score
from cellrepro.store.stored_run import MANIFEST, WEIGHTS
from cellrepro.store.training_record import TrainingRecord, WeightsRecord
from samebits import modes
from samebits.tensor_digests import tensor_digest


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
            team = stack.enter_context(_other_ranks(work))
            work.training = _train_network(work, team)
        _leave_trained_weights(work)
    with phases.phase("segment"), _watched(work):
        work.masks = segment_images(work)
    if work.training is not None:
        with phases.phase("score"), work.loose:
            work.train_scores = scores_of_training_images(work)
            work.training.ap50_after = scores_of_checkpoints(work)
    work.recorder.finish(work.carried_out)


def _watched(work: RepeatWork) -> AbstractContextManager[object]:
    """Locate PyTorch's warnings in mode ``warn``; else leave the loose operation loose."""
    if work.spec.mode == "warn":
        return work.phases.log.observing(work.network)
    return work.loose


# -- training ------------------------------------------------------------------------------


def _other_ranks(work: RepeatWork) -> AbstractContextManager[RankTeam | None]:
    """Start the other ranks of a training, if it has several, for one block."""
    if work.spec.ranks == 1:
        return nullcontext()
    return team_of(work.child, work.request, work.device)


def _train_network(work: RepeatWork, team: RankTeam | None) -> TrainingRecord:
    """Train the network to the end, or to its goal."""
    recorder = work.recorder
    listener = _EpochListener(work)
    loop = training_loop(
        work.spec,
        work.network,
        work.folder,
        on_epoch=listener.epoch_ended,
        watch=recorder.watch(work.network),
        team=team,
    )
    listener.loop = loop
    if work.spec.ledger != "off":
        for name, array in loop.prepared.items():
            recorder.ledger.add("data", name, tensor_digest(array))
    for sentence in recorder.begin(_origin_of(work), work.network, loop):
        work.child.tell("note", f"note: {sentence}")
    if team is not None:
        team.begin(
            work.network,
            loop,
            seeded=work.spec.seed is not None,
            is_portable=work.spec.mode == "portable",
            checkpoint=recorder.goes_on_from,
        )
    for epoch in loop.training.epochs:  # those of a training that goes on
        listener.tell(epoch, "found")
    while not loop.finished:
        loop.step()
    recorder.ledger.step = loop.training.n_steps
    recorder.ledger.epoch = len(loop.training.epochs)
    return _record_of(loop.training, recorder, listener.seeker)


def _record_of(
    training: Training, recorder: TrainingRecorder, seeker: Seeker | None
) -> TrainingRecord:
    """The record of a training that is over."""
    return TrainingRecord(
        learning_rates=[epoch.learning_rate for epoch in training.epochs],
        train_losses=[epoch.train_loss for epoch in training.epochs],
        test_losses=[epoch.test_loss for epoch in training.epochs],
        n_steps=training.n_steps,
        n_removed=training.n_removed,
        resumed_at=recorder.resumed,
        continued_from=recorder.continued_from,
        until=None if seeker is None else seeker.record,
    )


def _origin_of(work: RepeatWork) -> Origin:
    """The training that the checkpoints of a repeat belong to."""
    numeric_class = work.environment.numeric_class
    assert numeric_class is not None  # only stores of before have none
    return Origin(
        spec=work.spec.model_dump(mode="json"),
        repeat=work.repeat,
        numeric_class=numeric_class,
        initial_weights=work.model.initial_weights,
    )


class _EpochListener:
    """After every epoch it ends the training at its goal, writes checkpoints and sends progress."""

    def __init__(self, work: RepeatWork) -> None:
        self._work = work
        self.loop: TrainingLoop | None = None  # as soon as it is made
        self.seeker: Seeker | None = None
        if work.request.goal is not None:
            self.seeker = Seeker(
                work.request.goal,
                work.folder,
                score=lambda images: mean_score(scores_by_image(work, images).values()),
                say=lambda sentence: work.child.tell("note", sentence),
            )

    def epoch_ended(self, epoch: Epoch) -> None:
        """Handle the end of an epoch."""
        assert self.loop is not None
        is_enough = self.seeker is not None and self.seeker.is_enough(epoch.index + 1)
        if is_enough and not self.loop.finished:
            self.loop.end_here()
        self._work.recorder.epoch_ended(self._work.network, self.loop)
        self.tell(epoch, "done")

    def tell(self, epoch: Epoch, kind: Literal["done", "found"]) -> None:
        """Send the progress of the training."""
        how_far = f"epoch {epoch.index + 1}/{self._work.spec.epochs}"
        rate = f"learning rate {epoch.learning_rate:.1e}"
        self._work.child.tell(kind, f"{how_far}, {rate}", loss=epoch.train_loss)


def _leave_trained_weights(work: RepeatWork) -> None:
    """Write the trained weights, and go on in the precision of the profile."""
    import torch

    from cellrepro.model.weights_file import save_weights

    if work.recorder.origin is not None:  # a training that went on began with different weights
        initial_weights = work.recorder.origin.initial_weights
        work.model = work.model.model_copy(update={"initial_weights": initial_weights})
    initial = work.staged / INITIAL_WEIGHTS
    n_changed = _n_changed(work.network, initial)
    initial.unlink()
    digest = save_weights(work.network, work.staged / WEIGHTS, architecture=work.model.architecture)
    work.weights = WeightsRecord(digest=digest, n_changed=n_changed)
    # Only after saving: what was trained is kept.
    work.network.dtype = getattr(torch, work.child.setup.profile.dtype)


def _n_changed(network: CellposeNetwork, initial: Path) -> int:
    """Number of scalars whose bits differ from a weights file, read tensor by tensor."""
    from safetensors import safe_open

    from samebits.bit_equality import as_integers

    n_changed = 0
    with safe_open(initial, framework="pt") as file:
        for name, parameter in network.named_parameters():
            if name == "diam_labels":  # set from the data's diameters
                continue
            trained = as_integers(parameter.cpu())
            n_changed += int((trained != as_integers(file.get_tensor(name))).sum())
    return n_changed
