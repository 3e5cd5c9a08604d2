"""One step of a stored training, carried out again in a process of its own.

Each step on the way from the nearest checkpoint is compared with the run's ledger. Where a race
gave different bits, the step is taken back and tried again.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.determinism import generator_states
from cellrepro.digests.tensor_digests import comparable
from cellrepro.divergence.substitute_calls import pairs_to_compare
from cellrepro.errors import BadInput
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.progress import progress
from cellrepro.run.inputs import training_loop
from cellrepro.run.plan import Request
from cellrepro.run.training_recorder import CHECKPOINTS
from cellrepro.store import checkpoints
from cellrepro.store.checkpoints import TrainingState
from cellrepro.store.ledger import LEDGER, Ledger, LedgerRow, by_place, read_rows
from cellrepro.store.store import Repeat
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.trace.random_draws import Draw

if TYPE_CHECKING:
    import torch

_POLL_SECONDS = 0.02  # between two looks for the other process's file

_TRIES = 12
"""How often a step on the way is tried until it ends in the bits of the stored run."""

_ENDS = ("update", "weights", "rng")
"""Stages of a ledger with the state after a step."""

Stored = Mapping[tuple[int, str, str], LedgerRow]
"""A ledger by step, stage and name, as `cellrepro.store.ledger.by_place` gives it."""


@dataclass
class StepAgain:
    """What one step did when it was repeated."""

    arrival: str
    """How the state before the step was reached."""
    entries: list[LedgerRow]
    """The step's ledger."""
    rows: list[OperationRow]
    """Its operations."""
    draws: list[Draw]
    """Its draws of random numbers."""
    diverged: list[OperationRow] | None = None
    """Operations of the first repetition whose bits differed."""
    n_repetitions: int = 0
    """How often the step was repeated from the same state."""
    audited: tuple[NondeterministicOperation, ...] = ()
    """Operations known to race that gave different bits when they were run again."""
    n_replays: int = 0
    """How often single operations were run again."""
    outputs: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    """Tensors of the operations that are compared, by their order in the step."""


def step_again(
    request: Request,
    repeat: Repeat,
    step: int,
    *,
    repetitions: int,
    suspects: int,
    quiet: bool,
) -> StepAgain:
    """Repeat one step of a stored training, and record every operation."""
    stored = Repeat(repeat.folder.resolve())
    task = partial(
        step_in_child,
        request=request,
        repeat=stored,
        step=step,
        repetitions=repetitions,
        suspects=suspects,
    )
    with progress(step + 3, f"replay of {stored.name}", quiet=quiet) as bar:
        return in_child(
            task,
            request.setup,
            label=f"replay of step {step} of {stored.name}",
            on_event=counting(bar),
        )


def steps_again(
    requests: Sequence[Request], repeats: Sequence[Repeat], step: int, *, quiet: bool
) -> tuple[StepAgain, StepAgain]:
    """Repeat one step of two stored trainings at the same time, each in its own environment.

    Each operation has its error against float64, and outputs that are compared are kept.
    """
    stored = [Repeat(repeat.folder.resolve()) for repeat in repeats]
    names = " and ".join(repeat.name for repeat in stored)
    with (
        progress(2 * (step + 3), f"replay of {names}", quiet=quiet) as bar,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(2) as pool,
    ):

        def repeat_side(side: int) -> StepAgain:
            meeting = Meeting(Path(folder), side)
            task = partial(
                step_beside_another,
                request=requests[side],
                repeats=stored,
                meeting=meeting,
                step=step,
            )
            try:
                return in_child(
                    task,
                    requests[side].setup,
                    label=f"replay of step {step} of {stored[side].name}",
                    on_event=counting(bar),
                )
            except BaseException:
                meeting.leave([])  # the other one must not wait for ever
                raise

        a, b = pool.map(repeat_side, (0, 1))  # each thread only waits for its process
    return a, b


@dataclass(frozen=True)
class Meeting:
    """A folder in which two processes exchange the operations of their step."""

    folder: Path
    side: int
    """Number of the side, 0 or 1."""

    def leave(self, rows: list[OperationRow]) -> None:
        """Write this process's operations for the other, by an atomic rename, once."""
        if self._file(self.side).exists():
            return
        part = self.folder / f"part {self.side}"
        part.write_bytes(pickle.dumps(rows))
        part.rename(self._file(self.side))

    def rows_of(self, side: int) -> list[OperationRow]:
        """Poll for a process's operations; where the caller ends, its processes end, too."""
        while not self._file(side).exists():
            time.sleep(_POLL_SECONDS)
        rows: list[OperationRow] = pickle.loads(self._file(side).read_bytes())
        return rows

    def _file(self, side: int) -> Path:
        return self.folder / f"rows {side}"


# -- the training, step by step --------------------------------------------------------------


def same_as_stored(rows: Sequence[LedgerRow], stored: Stored) -> bool | None:
    """Whether rows have the digests that a ledger holds; None where none can be compared."""
    answers = []
    for row in rows:
        stored_row = stored.get((row.step, row.stage, row.name))
        if stored_row is not None and comparable(row.digest, stored_row.digest):
            answers.append(row.digest == stored_row.digest)
    return all(answers) if answers else None


@dataclass(frozen=True)
class Snapshot:
    """Everything that the next step depends on."""

    training: TrainingState
    """Network, training loop and optimizer."""
    generators: Any
    """What `cellrepro.determinism.generator_states.capture` gave."""


class Stepper:
    """A stored training that goes on step by step, and can go back."""

    def __init__(self, request: Request, device: Any, child: Child) -> None:
        from cellrepro.images.folder import read_folder
        from cellrepro.model.network import build
        from cellrepro.trace.watches import StepWatch, Watches

        self._child = child
        child.phase("images and flows")
        spec = request.spec
        folder = read_folder(request.data)
        # As the run began: bfloat16 rounds the weights, and the loop widens them again.
        dtype = spec.profile_settings.get("dtype", "float32")
        self.network = build(request.model, seed=spec.seed, device=device, dtype=dtype)
        beginning = Ledger()
        StepWatch(beginning).weights("weights-init", self.network)
        self._initial_weights = beginning.entries
        request.setup.seed_all()
        self.ledger = Ledger()
        watch = Watches([StepWatch(self.ledger)])
        self.loop = training_loop(spec, self.network, folder, watch=watch)

    def snapshot(self) -> Snapshot:
        """Copy all that `go_back` needs."""
        return Snapshot(
            training=copy.deepcopy(TrainingState(self.network.state_dict(), self.loop.state())),
            generators=generator_states.capture(),
        )

    def go_back(self, snapshot: Snapshot) -> None:
        """Restore a snapshot."""
        self.network.load_state_dict(snapshot.training.network)
        self.loop.restore(copy.deepcopy(snapshot.training.loop))
        generator_states.restore(snapshot.generators)

    def go_to(self, step: int, stored: Stored, folder: Path) -> str:
        """Restore the state before a step, and say how it was reached."""
        if same_as_stored(self._initial_weights, stored) is False:
            raise BadInput("the initial weights are not those that the run began with")
        nearest, passed_over = checkpoints.nearest(folder, step=step)
        if nearest is not None:
            self.go_back(Snapshot(nearest.training_state(), nearest.generators))
        start: int = self.loop.training.n_steps
        n_verified = 0
        for index in range(start, step):
            is_on_the_way = n_verified == index - start
            # Once lost, the bits stay lost.
            if self._step_as_stored(stored, n_tries=_TRIES if is_on_the_way else 1):
                n_verified += 1
            self._child.phase(f"step {index}")
        self.ledger.entries.clear()
        begun_at = f"the checkpoint at step {start}" if start else "the initial weights"
        way = f"{n_verified} of {step - start} steps on the way gave the stored bits"
        reasons = "".join(f"; a nearer checkpoint was passed over: {why}" for why in passed_over)
        return f"restored from {begun_at}, {way}{reasons}"

    def _step_as_stored(self, stored: Stored, *, n_tries: int) -> bool:
        """Make a step, several times if need be; say whether it ended in the stored bits."""
        before = self.snapshot()
        agrees = self._step(stored)
        for _ in range(n_tries - 1):
            if agrees is not False:
                break
            self.go_back(before)
            agrees = self._step(stored)
        return agrees is True

    def _step(self, stored: Stored) -> bool | None:
        """Make a step, and say whether weights, optimizer and generators are the stored ones."""
        self.ledger.entries.clear()
        self.loop.step()
        ends = [row for row in self.ledger.entries if row.stage in _ENDS]
        return same_as_stored(ends, stored)


# -- inside the child ----------------------------------------------------------------------


def step_in_child(
    child: Child,
    *,
    request: Request,
    repeat: Repeat,
    step: int,
    repetitions: int,
    suspects: int,
) -> StepAgain:
    """Go to the step in the child, then through it again and again; see `step_again`."""
    from cellrepro.trace.operation_ledger import OperationLedger

    with child.prepared() as device, child.loosened():
        stepper = Stepper(request, device, child)
        replayed, before = _first_pass(child, stepper, repeat, step)
        expected = [row.outputs for row in replayed.rows]
        while replayed.diverged is None and replayed.n_repetitions < repetitions:
            stepper.go_back(before)
            with OperationLedger(stepper.network, step=step) as repetition:
                stepper.loop.step()
            replayed.n_repetitions += 1
            if [row.outputs for row in repetition.rows] != expected:
                replayed.diverged = repetition.rows
        if suspects:
            stepper.go_back(before)
            _audit(stepper, replayed, suspects)
    return replayed


def step_beside_another(
    child: Child, *, request: Request, repeats: Sequence[Repeat], meeting: Meeting, step: int
) -> StepAgain:
    """Go through the step in the child, then again for the outputs that are compared."""
    from cellrepro.trace.operation_ledger import OperationLedger

    with child.prepared() as device, child.loosened():
        stepper = Stepper(request, device, child)
        replayed, before = _first_pass(
            child, stepper, repeats[meeting.side], step, beside_another=True
        )
        meeting.leave(replayed.rows)
        pairs = pairs_to_compare(repeats, meeting.rows_of(0), meeting.rows_of(1))
        wanted = frozenset(pair[meeting.side].index for pair in pairs)
        stepper.go_back(before)
        with OperationLedger(stepper.network, step=step, wanted=wanted) as again:
            stepper.loop.step()
        for index, tensors in again.outputs.items():
            replayed.outputs[index] = [tensor.cpu().contiguous() for tensor in tensors]
    return replayed


def _first_pass(
    child: Child, stepper: Stepper, repeat: Repeat, step: int, *, beside_another: bool = False
) -> tuple[StepAgain, Snapshot]:
    """Carry the step out once; gives what it did, and the state before it.

    Beside another run with errors against float64, and with digests that can be compared with
    those of any device.
    """
    from cellrepro.trace.operation_ledger import OperationLedger

    stored = by_place(read_rows(repeat.file(LEDGER), LedgerRow))
    arrival = stepper.go_to(step, stored, repeat.folder / CHECKPOINTS)
    child.phase(f"operations of step {step}")
    before = stepper.snapshot()
    stepper.loop.step()  # fills caches, so that the recorded passes are alike
    stepper.ledger.entries.clear()
    stepper.go_back(before)
    with OperationLedger(
        stepper.network, step=step, reference=beside_another, across_devices=beside_another
    ) as first:
        stepper.loop.step()
    replayed = StepAgain(arrival, list(stepper.ledger.entries), first.rows, first.draws)
    return replayed, before


def _audit(stepper: Stepper, replayed: StepAgain, suspects: int) -> None:
    """Run each operation known to race ``suspects`` times."""
    from cellrepro.trace.operation_audit import Auditor

    with Auditor(suspects=suspects, model=stepper.network) as auditor:
        stepper.loop.step()
    audit = auditor.result(n_steps=1)
    replayed.audited = audit.ops
    replayed.n_replays = audit.n_replays
