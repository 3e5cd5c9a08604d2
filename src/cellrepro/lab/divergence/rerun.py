"""One step of a stored training, repeated in a process of its own.

The state before the step is restored from the nearest checkpoint, or from the very beginning, and
every step on the way is held against the run's ledger. Where a race gave other bits on the way, the
step is taken back and tried again.
"""

from __future__ import annotations

import copy
import json
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cellrepro.determinism import seeding
from cellrepro.errors import BadInput
from cellrepro.lab.checkpointing import CHECKPOINTS
from cellrepro.lab.process import Child, call
from cellrepro.lab.worker import Request, training_loop
from cellrepro.store import checkpoints
from cellrepro.store.digests import comparable
from cellrepro.store.ledger import LEDGER, Entry, Ledger, by_place
from cellrepro.store.store import Repeat
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.trace.random_draws import Draw

_ROWS, _CHOSEN = "rows.pickle", "chosen.json"
_TRIES = 12
"""How often a step on the way is tried again until it ends in the bits of the stored run."""


@dataclass(frozen=True)
class Replay:
    """What a replay of one step saw.

    Attributes
    ----------
    arrival : str
        How the state before the step was reached.
    entries, rows, draws
        The step's ledger, its operations and its draws of random numbers.
    again : list of OperationRow or None
        Of the repetition that diverged from the first, when one did.
    n_repetitions : int
        How often the step was repeated from the same state, until it diverged.
    audited, n_replays
        What the audit of the step found, and its replays of single operations.
    kept : dict
        ``INDEX/inputs/0``, ``INDEX/outputs/0``, …: tensors of the operations that were chosen.
    """

    arrival: str
    entries: list[Entry]
    rows: list[OperationRow]
    draws: list[Draw]
    again: list[OperationRow] | None = None
    n_repetitions: int = 0
    audited: tuple[NondeterministicOperation, ...] = ()
    n_replays: int = 0
    kept: dict[str, Any] = field(default_factory=dict)


def replay(
    request: Request,
    repeat: Repeat,
    *,
    step: int,
    repetitions: int = 0,
    suspects: int = 0,
    choose: Callable[[list[OperationRow]], Collection[int]] | None = None,
    on_event: Callable[[dict[str, Any]], None] = lambda event: None,
) -> Replay:
    """Repeat one step of a stored training with every operation written down.

    It is repeated up to ``repetitions`` times from the same state, until it diverges from itself;
    then each operation known to race is run again ``suspects`` times. ``choose`` is given the
    step's operations, each with its error against float64, and says whose tensors to keep.
    """
    with tempfile.TemporaryDirectory() as meeting:

        def heard(event: dict[str, Any]) -> None:
            if event["event"] != "rows":
                return on_event(event)
            assert choose is not None
            chosen = choose(pickle.loads(Path(meeting, _ROWS).read_bytes()))
            part = Path(meeting, f"{_CHOSEN}.part")
            part.write_text(json.dumps(sorted(chosen)), encoding="utf-8")
            part.rename(Path(meeting, _CHOSEN))

        return call(
            "cellrepro.lab.divergence.rerun:replayed",
            request.setup,
            label=f"replay of step {step} of {repeat.name}",
            on_event=heard,
            request=request,
            folder=repeat.folder.resolve(),
            step=step,
            repetitions=repetitions,
            suspects=suspects,
            meeting=None if choose is None else Path(meeting),
        )


def replay_both(
    requests: Sequence[Request],
    repeats: Sequence[Repeat],
    *,
    step: int,
    choose: Callable[[list[Any], list[Any]], list[tuple[Any, Any]]],
    on_event: Callable[[dict[str, Any]], None],
) -> list[Replay]:
    """The same step of two runs at the same time, with the tensors of the pairs that are chosen."""
    rows: list[list[Any]] = [[], []]
    pairs: list[tuple[Any, Any]] = []
    both_there = threading.Barrier(2, action=lambda: pairs.extend(choose(*rows)))

    def choose_own(index: int, own: list[Any]) -> list[int]:
        rows[index] = own
        both_there.wait()
        return [pair[index].index for pair in pairs]

    def one(index: int) -> Replay:
        try:
            return replay(
                requests[index],
                repeats[index],
                step=step,
                choose=lambda own: choose_own(index, own),
                on_event=on_event,
            )
        except BaseException:
            both_there.abort()  # the other one must not wait for ever
            raise

    with ThreadPoolExecutor(2) as pool:  # each thread only waits for its process
        futures = [pool.submit(one, index) for index in (0, 1)]
    problems = [problem for future in futures if (problem := future.exception()) is not None]
    # A broken barrier is only the consequence of what happened to the other one.
    for problem in sorted(problems, key=lambda p: isinstance(p, threading.BrokenBarrierError)):
        raise problem
    return [future.result() for future in futures]


def same_as_stored(entries: Sequence[Entry], stored: Mapping[Any, Entry]) -> bool | None:
    """Whether entries have the digests that a ledger holds; None where none can be compared."""
    found = [same for _, same in _held(entries, stored)]
    return all(found) if found else None


def _held(entries: Sequence[Entry], stored: Mapping[Any, Entry]) -> list[tuple[Entry, bool]]:
    """The entries that a stored ledger has, in digests of the same kind, and whether they agree."""
    both = [(entry, stored.get((entry.step, entry.stage, entry.name))) for entry in entries]
    return [
        (entry, entry.digest == other.digest)
        for entry, other in both
        if other is not None and comparable(entry.digest, other.digest)
    ]


# -- inside the child ----------------------------------------------------------------------


class Stepper:
    """A training that can be taken back."""

    def __init__(self, request: Request, device: Any) -> None:
        from cellrepro.images.folder import read_folder
        from cellrepro.model.network import build
        from cellrepro.trace.training_steps import StepWatch, Watches

        spec = request.spec
        folder = read_folder(request.data)
        # As the run began: bfloat16 rounds the weights, and the loop widens them again.
        dtype = spec.profile_settings.get("dtype", "float32")
        self.network = build(request.model, seed=spec.seed, device=device, dtype=dtype)
        beginning = Ledger()
        StepWatch(beginning).weights("weights-init", self.network)
        self.initial_weights = beginning.entries
        seeding.seed_everything(spec.seed)
        self.ledger = Ledger()
        watch = Watches([StepWatch(self.ledger)])
        self.loop = training_loop(spec, self.network, folder, watch=watch)

    def snapshot(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        return {
            "network": copy.deepcopy(self.network.state_dict()),
            "loop": copy.deepcopy(self.loop.state()),
            "generators": seeding.capture(),
        }

    def go_back(self, snapshot: Mapping[str, Any]) -> None:
        """Be where a snapshot was taken."""
        self.network.load_state_dict(snapshot["network"])
        self.loop.restore(copy.deepcopy(snapshot["loop"]))
        seeding.restore(snapshot["generators"])

    def go_to(self, step: int, stored: Sequence[Entry], kept: Path, child: Child) -> str:
        """Be before a step, each step on the way held against the stored ledger; how that went."""
        passed_over = self._start(stored, kept, step)
        expected = by_place(stored)
        start, n_verified, n_retries = self.loop.training.n_steps, 0, 0
        diverged: int | None = None
        while (here := self.loop.training.n_steps) < step:
            before = self.snapshot() if diverged is None else None
            for attempt in range(_TRIES):
                agrees = self._step(expected)
                if before is None or agrees is not False:
                    n_verified += before is not None and agrees is True
                    break
                if attempt + 1 < _TRIES:
                    n_retries += 1
                    self.go_back(before)
            else:
                diverged = here
            child.phase(f"step {here}")
        self.ledger.entries.clear()
        text = (
            f"restored from {f'the checkpoint at step {start}' if start else 'the initial weights'}"
        )
        if step > start:
            text += f", {n_verified} of {step - start} steps on the way in the stored bits"
        if n_retries:
            text += f" after {n_retries} tries that ended in others"
        if diverged is not None:
            text += f"; from step {diverged} on the stored bits could not be reached again"
        if passed_over:
            text += f"; a nearer checkpoint was passed over: {'; '.join(passed_over)}"
        return text

    def _start(self, stored: Sequence[Entry], kept: Path, step: int) -> tuple[str, ...]:
        """Be at the nearest checkpoint at or before a step; what is wrong with nearer ones."""
        held = _held(self.initial_weights, by_place(stored))
        other = [entry.name for entry, same in held if not same]
        if other:
            raise BadInput(
                f"the initial weights of {', '.join(other[:4])} are not those that the run began "
                "with, so its steps cannot be repeated here"
            )
        nearest, passed_over = checkpoints.nearest(kept, step=step)
        if nearest is not None:
            weights, optimizer = nearest.tensors()
            loop = {"loop": nearest.loop, "optimizer": optimizer}
            self.go_back({"network": weights, "loop": loop, "generators": nearest.generators})
        return passed_over

    def _step(self, expected: Mapping[Any, Entry]) -> bool | None:
        """Make a step; whether it ended as the stored one: weights, optimizer and generators."""
        self.ledger.entries.clear()
        self.loop.step()
        ends = [e for e in self.ledger.entries if e.stage in ("update", "weights", "rng")]
        return same_as_stored(ends, expected)


def replayed(
    child: Child,
    *,
    request: Request,
    folder: Path,
    step: int,
    repetitions: int,
    suspects: int,
    meeting: Path | None,
) -> Replay:
    """Go to the step, then through it, again and again as asked; see `replay`."""
    from cellrepro.trace.flips import Auditor
    from cellrepro.trace.operation_ledger import OperationLedger

    stored = Ledger.read(folder / LEDGER).entries
    with child.prepared() as device, child.setup.loosened():
        child.phase("images and flows")
        stepper = Stepper(request, device)
        arrival = stepper.go_to(step, stored, folder / CHECKPOINTS, child)
        child.phase(f"operations of step {step}")
        before = stepper.snapshot()
        with OperationLedger(stepper.network, step=step, reference=meeting is not None) as first:
            stepper.loop.step()
        seen = Replay(
            arrival=arrival,
            entries=list(stepper.ledger.entries),
            rows=first.rows,
            draws=first.draws,
        )
        if meeting is not None:
            chosen = _chosen(child, first.rows, meeting)
            if chosen:
                stepper.go_back(before)
                seen.kept.update(_tensors(stepper, step, first.rows, chosen))
        expected = [row.outputs for row in first.rows]
        for n in range(1, repetitions + 1):
            stepper.go_back(before)
            with OperationLedger(stepper.network, step=step) as other:
                stepper.loop.step()
            seen = replace(seen, n_repetitions=n)
            if [row.outputs for row in other.rows] != expected:
                seen = replace(seen, again=other.rows)
                break
        if suspects:
            stepper.go_back(before)
            with Auditor(suspects=suspects, model=stepper.network) as auditor:
                stepper.loop.step()
            found = auditor.result(n_steps=1)
            seen = replace(seen, audited=found.ops, n_replays=found.n_replays)
    return seen


def _tensors(
    stepper: Stepper, step: int, rows: Sequence[OperationRow], chosen: Collection[int]
) -> dict[str, Any]:
    """What went into the chosen operations of a step and came out, from going through it."""
    from cellrepro.trace.operation_ledger import OperationLedger, names_of

    names = names_of(rows)
    wanted = {names[index]: index for index in chosen}
    with OperationLedger(stepper.network, step=step, wanted=wanted) as again:
        stepper.loop.step()
    return {
        f"{wanted[name]}/{side}/{number}": tensor.cpu().contiguous()
        for name, sides in again.kept.items()
        for side, tensors in sides.items()
        for number, tensor in enumerate(tensors)
    }


def _chosen(child: Child, rows: list[OperationRow], meeting: Path) -> list[int]:
    """The caller's choice among operations; if the caller ends, so does this process."""
    (meeting / _ROWS).write_bytes(pickle.dumps(rows))
    child.tell("rows")
    while not (meeting / _CHOSEN).exists():
        time.sleep(0.02)
    return json.loads((meeting / _CHOSEN).read_text(encoding="utf-8"))
