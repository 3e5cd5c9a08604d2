"""One step of a stored training, repeated in a process of its own.

Every step on the way from the nearest checkpoint is held against the run's ledger. Where a race
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

from cellrepro.divergence.stepper import Snapshot, Stepper
from cellrepro.divergence.substitute_calls import pairs_to_compare
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.progress import progress
from cellrepro.run.plan import Request
from cellrepro.run.training_recorder import CHECKPOINTS
from cellrepro.store.ledger import LEDGER, LedgerRow, by_place, read_rows
from cellrepro.store.store import Repeat
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.trace.random_draws import Draw

if TYPE_CHECKING:
    import torch

_POLL_SECONDS = 0.02  # between two questions whether the other process is as far


@dataclass
class StepAgain:
    """What repeating one step showed."""

    arrival: str
    """How the state before the step was reached."""
    entries: list[LedgerRow]
    """The step's ledger."""
    rows: list[OperationRow]
    """Its operations."""
    draws: list[Draw]
    """Its draws of random numbers."""
    diverged: list[OperationRow] | None = None
    """Operations of the repetition that diverged from the first."""
    n_repetitions: int = 0
    """Of the step from the same state, until it diverged."""
    audited: tuple[NondeterministicOperation, ...] = ()
    """Operations known to race that gave different bits when they were run again."""
    n_replays: int = 0
    """Of single operations, by the audit."""
    outputs: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    """Of chosen operations, by the operation's order in the step."""


def step_again(
    request: Request,
    repeat: Repeat,
    step: int,
    *,
    repetitions: int,
    suspects: int,
    quiet: bool,
) -> StepAgain:
    """Repeat one step of a stored training with every operation written down."""
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
    """A folder in which two processes give each other the operations of their step."""

    folder: Path
    side: int
    """Which of the two this is: 0 or 1."""

    def leave(self, rows: list[OperationRow]) -> None:
        """Give the other process the operations of this one, whole; what it has already stays."""
        if self._file(self.side).exists():
            return
        part = self.folder / f"part {self.side}"
        part.write_bytes(pickle.dumps(rows))
        part.rename(self._file(self.side))

    def rows_of(self, side: int) -> list[OperationRow]:
        """The operations of a process, once they are there; if the caller ends, so does this."""
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
    """Inside the child: go to the step, then through it again and again; see `step_again`."""
    from cellrepro.trace.operation_ledger import OperationLedger

    with child.prepared() as device, child.loosened():
        stepper = Stepper(request, device, child)
        seen, before = _first_pass(child, stepper, repeat, step)
        expected = [row.outputs for row in seen.rows]
        while seen.diverged is None and seen.n_repetitions < repetitions:
            stepper.go_back(before)
            with OperationLedger(stepper.network, step=step) as repetition:
                stepper.loop.step()
            seen.n_repetitions += 1
            if [row.outputs for row in repetition.rows] != expected:
                seen.diverged = repetition.rows
        if suspects:
            stepper.go_back(before)
            _audit(stepper, seen, suspects)
    return seen


def step_beside_another(
    child: Child, *, request: Request, repeats: Sequence[Repeat], meeting: Meeting, step: int
) -> StepAgain:
    """Inside the child: go through the step, then again for the outputs that are compared."""
    from cellrepro.trace.operation_ledger import OperationLedger

    with child.prepared() as device, child.loosened():
        stepper = Stepper(request, device, child)
        seen, before = _first_pass(child, stepper, repeats[meeting.side], step, beside_another=True)
        meeting.leave(seen.rows)
        pairs = pairs_to_compare(repeats, meeting.rows_of(0), meeting.rows_of(1))
        wanted = frozenset(pair[meeting.side].index for pair in pairs)
        stepper.go_back(before)
        with OperationLedger(stepper.network, step=step, wanted=wanted) as again:
            stepper.loop.step()
        for index, tensors in again.outputs.items():
            seen.outputs[index] = [tensor.cpu().contiguous() for tensor in tensors]
    return seen


def _first_pass(
    child: Child, stepper: Stepper, repeat: Repeat, step: int, *, beside_another: bool = False
) -> tuple[StepAgain, Snapshot]:
    """What the step does, and the state before it; beside another run with errors against float64,
    and with digests that can be compared with those of any device."""
    from cellrepro.trace.operation_ledger import OperationLedger

    stored = by_place(read_rows(repeat.file(LEDGER), LedgerRow))
    arrival = stepper.go_to(step, stored, repeat.folder / CHECKPOINTS)
    child.phase(f"operations of step {step}")
    before = stepper.snapshot()
    stepper.loop.step()  # tables that are made once and kept are there from now on
    stepper.ledger.entries.clear()
    stepper.go_back(before)
    with OperationLedger(
        stepper.network, step=step, reference=beside_another, across_devices=beside_another
    ) as first:
        stepper.loop.step()
    seen = StepAgain(arrival, list(stepper.ledger.entries), first.rows, first.draws)
    return seen, before


def _audit(stepper: Stepper, seen: StepAgain, suspects: int) -> None:
    """Run each operation known to race again, as often as asked."""
    from cellrepro.trace.operation_audit import Auditor

    with Auditor(suspects=suspects, model=stepper.network) as auditor:
        stepper.loop.step()
    audit = auditor.result(n_steps=1)
    seen.audited = audit.ops
    seen.n_replays = audit.n_replays
