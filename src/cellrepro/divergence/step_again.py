"""One step of a stored training, carried out again in a process of its own.

Each step on the way from the nearest checkpoint is compared with the run's ledger. Where a race
gave different bits, the step is taken back and tried again.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.divergence.stepper import Arrival, Snapshot, Stepper
from cellrepro.divergence.substitute_calls import pairs_to_compare
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.progress import progress
from cellrepro.run.plan import Request
from cellrepro.store.checkpoints import CHECKPOINTS
from cellrepro.store.ledger import LEDGER, LedgerRow, by_place
from cellrepro.store.row_tables import read_rows
from cellrepro.store.stored_run import Repeat
from samebits import Draw, NondeterministicOperation, OperationRow

if TYPE_CHECKING:
    import torch

_POLL_SECONDS = 0.02  # between two looks for the other process's file


@dataclass
class StepAgain:
    """One step as it came out when it was repeated."""

    arrival: Arrival
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
    with progress(step + 1, f"replay of {stored.name}", quiet=quiet) as bar:
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
    with (
        progress(2 * (step + 1), "replay of A and B", quiet=quiet) as bar,
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
    from samebits import OperationLedger

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
    from samebits import OperationLedger

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
    from samebits import OperationLedger

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
    child.tell("done", f"operations of step {step}")
    replayed = StepAgain(arrival, list(stepper.ledger.entries), first.rows, first.draws)
    return replayed, before


def _audit(stepper: Stepper, replayed: StepAgain, suspects: int) -> None:
    """Run each operation known to race ``suspects`` times."""
    from samebits import Auditor

    with Auditor(suspects=suspects, model=stepper.network) as auditor:
        stepper.loop.step()
    audit = auditor.result(n_steps=1)
    replayed.audited = audit.ops
    replayed.n_replays = audit.n_replays
