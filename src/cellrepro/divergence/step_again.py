"""One step of a stored training, repeated in a process of its own.

Every step on the way from the nearest checkpoint is held against the run's ledger. Where a race
gave other bits, the step is taken back and tried again.
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
from typing import Any

from cellrepro.bits.digests import comparable
from cellrepro.determinism import seeds
from cellrepro.errors import BadInput
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.progress import progress
from cellrepro.run.checkpointing import CHECKPOINTS
from cellrepro.run.inputs import training_loop
from cellrepro.run.plan import Request
from cellrepro.store import checkpoints
from cellrepro.store.ledger import LEDGER, Ledger, LedgerRow, by_place, read_rows
from cellrepro.store.store import Repeat
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.trace.random_draws import Draw

_TRIES = 12
"""How often a step on the way is tried again until it ends in the bits of the stored run."""


@dataclass
class Replay:
    """What a replay of one step saw."""

    arrival: str  # how the state before the step was reached
    entries: list[LedgerRow]  # the step's ledger,
    rows: list[OperationRow]  # its operations,
    draws: list[Draw]  # and its draws of random numbers
    again: list[OperationRow] | None = None  # of the repetition that diverged from the first
    n_repetitions: int = 0  # of the step from the same state, until it diverged
    audited: tuple[NondeterministicOperation, ...] = ()
    n_replays: int = 0  # of single operations, by the audit
    kept: dict[int, list[Any]] = field(default_factory=dict)  # outputs of chosen operations


def replays(
    requests: Sequence[Request], repeats: Sequence[Repeat], step: int, *, quiet: bool, **effort: Any
) -> list[Replay]:
    """Repeat one step of one or two stored trainings with every operation written down.

    It is repeated up to ``repetitions`` times from the same state, until it diverges from itself;
    then each operation known to race is run again ``suspects`` times. Of two, each operation has
    its error against float64, and outputs that are compared are kept.
    """
    repeats = [Repeat(repeat.folder.resolve()) for repeat in repeats]
    total, names = len(repeats) * (step + 3), [repeat.name for repeat in repeats]
    with (
        progress(total, f"replay of {' and '.join(names)}", quiet=quiet) as bar,
        tempfile.TemporaryDirectory() as meeting,
        ThreadPoolExecutor(2) as pool,
    ):

        def one(side: int) -> Replay:
            task = partial(
                replayed,
                request=requests[side],
                repeats=repeats,
                side=side,
                step=step,
                meeting=Path(meeting),
                **effort,
            )
            label = f"replay of step {step} of {names[side]}"
            setup = requests[side].setup
            try:
                return in_child(task, setup, label=label, on_event=counting(bar))
            except BaseException:
                _leave(Path(meeting), side, [])  # the other one must not wait for ever
                raise

        if len(requests) == 1:
            return [one(0)]
        return list(pool.map(one, (0, 1)))  # each thread only waits for its process


def same_as_stored(entries: Sequence[LedgerRow], stored: Mapping[Any, LedgerRow]) -> bool | None:
    """Whether entries have the digests that a ledger holds; None where none can be compared."""
    both = [(entry, stored.get((entry.step, entry.stage, entry.name))) for entry in entries]
    pairs = [(one.digest, other.digest) for one, other in both if other is not None]
    pairs = [pair for pair in pairs if comparable(*pair)]
    return all(a == b for a, b in pairs) if pairs else None


# -- inside the child ----------------------------------------------------------------------


class Stepper:
    """A training that can be taken back."""

    def __init__(self, request: Request, device: Any) -> None:
        from cellrepro.images.folder import read_folder
        from cellrepro.model.network import build
        from cellrepro.trace.watches import StepWatch, Watches

        spec = request.spec
        folder = read_folder(request.data)
        # As the run began: bfloat16 rounds the weights, and the loop widens them again.
        dtype = spec.profile_settings.get("dtype", "float32")
        self.network = build(request.model, seed=spec.seed, device=device, dtype=dtype)
        beginning = Ledger()
        StepWatch(beginning).weights("weights-init", self.network)
        self.initial_weights = beginning.entries
        request.setup.seed_all()
        self.ledger = Ledger()
        watch = Watches([StepWatch(self.ledger)])
        self.loop = training_loop(spec, self.network, folder, watch=watch)

    def snapshot(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        return {
            "network": copy.deepcopy(self.network.state_dict()),
            "loop": copy.deepcopy(self.loop.state()),
            "generators": seeds.capture(),
        }

    def go_back(self, snapshot: Mapping[str, Any]) -> None:
        """Be where a snapshot was taken."""
        self.network.load_state_dict(snapshot["network"])
        self.loop.restore(copy.deepcopy(snapshot["loop"]))
        seeds.restore(snapshot["generators"])

    def go_to(self, step: int, expected: Mapping[Any, LedgerRow], kept: Path, child: Child) -> str:
        """Be before a step, each step on the way held against the stored ledger; how that went."""
        if same_as_stored(self.initial_weights, expected) is False:
            raise BadInput("the initial weights are not those that the run began with")
        nearest, passed_over = checkpoints.nearest(kept, step=step)
        if nearest is not None:
            weights, optimizer = nearest.tensors()
            loop = {"loop": nearest.loop, "optimizer": optimizer}
            self.go_back({"network": weights, "loop": loop, "generators": nearest.generators})
        start, n_verified = self.loop.training.n_steps, 0
        for here in range(start, step):
            before = self.snapshot()
            agrees = self._step(expected)
            tries = 1 if n_verified == here - start else _TRIES  # once lost, the bits stay lost
            while agrees is False and tries < _TRIES:
                self.go_back(before)
                agrees = self._step(expected)
                tries += 1
            n_verified += agrees is True
            child.phase(f"step {here}")
        self.ledger.entries.clear()
        place = f"the checkpoint at step {start}" if start else "the initial weights"
        way = f"{n_verified} of {step - start} steps on the way in the stored bits"
        over = "".join(f"; a nearer checkpoint was passed over: {why}" for why in passed_over)
        return f"restored from {place}, {way}{over}"

    def _step(self, expected: Mapping[Any, LedgerRow]) -> bool | None:
        """Make a step; whether it ended as the stored one: weights, optimizer and generators."""
        self.ledger.entries.clear()
        self.loop.step()
        ends = [e for e in self.ledger.entries if e.stage in ("update", "weights", "rng")]
        return same_as_stored(ends, expected)


def replayed(
    child: Child,
    *,
    request: Request,
    repeats: Sequence[Repeat],
    side: int,
    meeting: Path,
    step: int,
    repetitions: int = 0,
    suspects: int = 0,
) -> Replay:
    """Go to the step, then through it, again and again as asked; see `replays`."""
    from cellrepro.divergence.judge import to_compare
    from cellrepro.trace.operation_audit import Auditor
    from cellrepro.trace.operation_ledger import OperationLedger

    folder, in_two = repeats[side].folder, len(repeats) > 1
    stored = by_place(read_rows(repeats[side].file(LEDGER), LedgerRow))
    with child.prepared() as device, child.loosened():
        child.phase("images and flows")
        stepper = Stepper(request, device)
        arrival = stepper.go_to(step, stored, folder / CHECKPOINTS, child)
        child.phase(f"operations of step {step}")
        before = stepper.snapshot()
        stepper.loop.step()  # tables that are made once and kept are there from now on
        stepper.ledger.entries.clear()
        stepper.go_back(before)
        with OperationLedger(stepper.network, step=step, reference=in_two) as first:
            stepper.loop.step()
        rows = first.rows
        seen = Replay(arrival, list(stepper.ledger.entries), rows, first.draws)
        if in_two:
            _leave(meeting, side, rows)
            pairs = to_compare(repeats, *(_left(meeting, each) for each in range(2)))
            wanted = frozenset(pair[side].index for pair in pairs)
            stepper.go_back(before)
            with OperationLedger(stepper.network, step=step, wanted=wanted) as again:
                stepper.loop.step()
            for index, tensors in again.kept.items():
                seen.kept[index] = [tensor.cpu().contiguous() for tensor in tensors]
        expected = [row.outputs for row in rows]
        while seen.again is None and seen.n_repetitions < repetitions:
            stepper.go_back(before)
            with OperationLedger(stepper.network, step=step) as other:
                stepper.loop.step()
            seen.n_repetitions += 1
            if [row.outputs for row in other.rows] != expected:
                seen.again = other.rows
        if suspects:
            stepper.go_back(before)
            with Auditor(suspects=suspects, model=stepper.network) as auditor:
                stepper.loop.step()
            found = auditor.result(n_steps=1)
            seen.audited, seen.n_replays = found.ops, found.n_replays
    return seen


def _leave(meeting: Path, side: int, rows: list[OperationRow]) -> None:
    """Give the other process the operations of this one."""
    part = meeting / f"part {side}"
    part.write_bytes(pickle.dumps(rows))
    part.rename(meeting / f"rows {side}")


def _left(meeting: Path, side: int) -> list[OperationRow]:
    """The operations of a process, once they are there; if the caller ends, so does this one."""
    while not (meeting / f"rows {side}").exists():
        time.sleep(0.02)
    return pickle.loads((meeting / f"rows {side}").read_bytes())
