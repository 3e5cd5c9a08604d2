"""One step of a stored training, gone through again in a process of its own.

The state before the step is restored from the nearest checkpoint, or from the very beginning, and
every step on the way is held against the run's ledger. Where a race gave other bits on the way, the
step is taken back and tried again.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput
from cellrepro.lab.checkpointing import CHECKPOINTS
from cellrepro.lab.process import Child, call
from cellrepro.lab.worker import Request, training_loop
from cellrepro.store.digests import comparable
from cellrepro.store.ledger import (
    LEDGER,
    Entry,
    Ledger,
    by_place,
    read_rows,
    write_rows,
)
from cellrepro.store.store import Repeat, Run

_ROWS, _KEPT = "operations.parquet", "kept.safetensors"
_CHOSEN = "chosen.json"
_TRIES = 12
"""How often a step on the way is tried again until it ends in the bits of the stored run."""


@dataclass(frozen=True)
class Arrival:
    """How a replay came to the state before its step.

    Attributes
    ----------
    start : int
        The step of the checkpoint it started from; 0 for the initial weights.
    n_verified : int
        Steps on the way that ended in the bits of the stored run; one of which its ledger holds
        nothing is not among them.
    n_retries : int
        How often a step had to be taken back because it ended in others.
    parted_at : int or None
        A step on the way whose bits could not be reached again; the replay went on with its own.
    passed_over : tuple of str
        What is wrong with kept checkpoints that were nearer than the one it started from.
    """

    start: int
    n_verified: int
    n_retries: int
    parted_at: int | None
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """What a replay of one step saw.

    Attributes
    ----------
    arrival : Arrival
    step : int
    entries : list of Entry
        The step's ledger.
    rows : list of OperationRow
    again : list of OperationRow or None
        Of the repetition that parted from the first, when one did.
    n_repetitions : int
        How often the step was repeated from the same state, until it parted.
    audited : list of dict
        Operations that gave other bits when asked again, as `NondeterministicOperation`.
    n_replays : int
        Replays of single operations made by the audit.
    draws : list of Draw
    kept : dict
        ``INDEX/inputs/0``, ``INDEX/outputs/0``, …: tensors of the operations that were asked for.
    """

    arrival: Arrival
    step: int
    entries: list[Entry]
    rows: list[Any]
    again: list[Any] | None
    n_repetitions: int
    audited: list[dict[str, Any]]
    n_replays: int
    draws: list[Any]
    kept: dict[str, Any]


def replay(
    request: Request,
    repeat: Repeat,
    *,
    step: int,
    scratch: Path,
    repetitions: int = 0,
    suspects: int = 0,
    choose: Callable[[list[Any]], Collection[int]] | None = None,
    on_event: Callable[[dict[str, Any]], None] = lambda event: None,
) -> Replay:
    """Go through one step of a stored training again, with every operation written down.

    Parameters
    ----------
    request : Request
        Of the run: its spec, data and model.
    repeat : Repeat
        The stored repeat, with its ledger.
    step : int
        From 0.
    scratch : Path
        An empty folder for what the child writes.
    repetitions : int
        How often to go through the step again from the same state, until it parts from itself.
    suspects : int
        Replays of each operation known to race by the audit, after the repetitions; 0 for none.
    choose : callable, optional
        Given the operations of the step, each with its error against float64, it says whose
        tensors to keep, by their order; the step is then gone through once more.

    Returns
    -------
    Replay
    """
    from cellrepro.trace.operation_ledger import OperationRow
    from cellrepro.trace.random_draws import Draw

    scratch.mkdir(parents=True, exist_ok=True)
    order = {
        "ledger": (repeat.folder / LEDGER).resolve(),
        "checkpoints": (repeat.folder / CHECKPOINTS).resolve(),
        "step": step,
        "scratch": scratch.resolve(),
        "choose": choose is not None,
        "repetitions": repetitions,
        "suspects": suspects,
    }

    def heard(event: dict[str, Any]) -> None:
        if event["event"] == "rows" and choose is not None:
            chosen = choose(read_rows(scratch / _ROWS, OperationRow))
            part = scratch / f"{_CHOSEN}.part"
            part.write_text(json.dumps(sorted(chosen)), encoding="utf-8")
            part.rename(scratch / _CHOSEN)
        else:
            on_event(event)

    answer = call(
        "cellrepro.lab.divergence.rerun:replayed",
        request.setup,
        label=f"replay of step {step} of {repeat.name}",
        on_event=heard,
        request=request,
        order=order,
    )
    kept: dict[str, Any] = {}
    if (scratch / _KEPT).exists():
        from safetensors.torch import load_file

        kept = load_file(scratch / _KEPT)
    again, arrival = scratch / f"again-{_ROWS}", answer["arrival"]
    return Replay(
        arrival=Arrival(**{**arrival, "passed_over": tuple(arrival["passed_over"])}),
        step=step,
        entries=Ledger.read(scratch / LEDGER).entries,
        rows=read_rows(scratch / _ROWS, OperationRow),
        again=read_rows(again, OperationRow) if again.exists() else None,
        n_repetitions=answer["n_repetitions"],
        audited=answer["audited"],
        n_replays=answer["n_replays"],
        draws=[Draw(**row) for row in answer["draws"]],
        kept=kept,
    )


def request_of(run: Run, repeat: Repeat, *, data: Path, model: Any) -> Request:
    """What a worker needs to go through a stored run again."""
    return Request(run.spec, data.resolve(), model)


# -- inside the child ----------------------------------------------------------------------


class Stepper:
    """A training that can be taken back.

    Attributes
    ----------
    network, loop
    ledger : Ledger
        Of the steps made so far.
    beginning : list of Entry
        The initial weights.
    """

    def __init__(self, request: Request, device: Any) -> None:
        from cellrepro.determinism.seeding import seed_everything
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
        self.beginning = beginning.entries
        seed_everything(spec.seed)
        self.ledger = Ledger()
        self._listeners: list[Any] = [StepWatch(self.ledger)]
        self._watch = Watches(())
        self.loop = training_loop(spec, self.network, folder, watch=self._watch)
        self.listen()

    def listen(self, *others: Any) -> None:
        """Have others listen to the next steps, beside the ledger."""
        self._watch.watches = (*self._listeners, *others)

    def snapshot(self) -> dict[str, Any]:
        """Everything the next step depends on."""
        from cellrepro.determinism import seeding

        return {
            "network": copy.deepcopy(self.network.state_dict()),
            "loop": copy.deepcopy(self.loop.state()),
            "generators": seeding.capture(),
        }

    def go_back(self, snapshot: dict[str, Any]) -> None:
        """Be where a snapshot was taken."""
        from cellrepro.determinism import seeding

        self.network.load_state_dict(snapshot["network"])
        self.loop.restore(copy.deepcopy(snapshot["loop"]))
        seeding.restore(snapshot["generators"])

    def walk(self, stored: Sequence[Entry], *, to: int, told: Callable[[int], None]) -> Arrival:
        """Go to the state before a step, each step held against the stored ledger."""
        expected = by_place(stored)
        start, n_verified, n_retries, parted = self.loop.training.n_steps, 0, 0, None
        while self.loop.training.n_steps < to:
            here = self.loop.training.n_steps
            before = self.snapshot() if parted is None else None
            for attempt in range(_TRIES):
                self.ledger.entries.clear()
                self.loop.step()
                agree = _agree(self.ledger.entries, expected)
                if before is None or agree is not False:
                    n_verified += before is not None and agree is True
                    break
                if attempt + 1 < _TRIES:
                    n_retries += 1
                    self.go_back(before)
            else:
                parted = here
            told(here)
        self.ledger.entries.clear()
        return Arrival(start, n_verified, n_retries, parted)


def _refuse_other_weights(found: Sequence[Entry], stored: Sequence[Entry]) -> None:
    other = [entry.name for entry, same in _held(found, by_place(stored)) if not same]
    if other:
        raise BadInput(
            f"the initial weights of {', '.join(other[:4])} are not those that the run began with, "
            "so its steps cannot be gone through again here"
        )


def _agree(entries: Sequence[Entry], expected: Mapping[Any, Entry]) -> bool | None:
    """Whether a step ended where the stored one ended: weights, optimizer and generators.

    None where the stored ledger holds nothing of it that could be compared.
    """
    ends = [entry for entry in entries if entry.stage in ("update", "weights", "rng")]
    return same_as_stored(ends, expected)


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


def replayed(child: Child, *, request: Request, order: dict[str, Any]) -> dict[str, Any]:
    """Go to the step and through it."""
    from cellrepro.store import checkpoints

    step = order["step"]
    stored = Ledger.read(order["ledger"]).entries
    with child.prepared() as device, child.setup.loosened():
        child.phase("images and flows")
        stepper = Stepper(request, device)
        _refuse_other_weights(stepper.beginning, stored)
        nearest, passed_over = checkpoints.nearest(order["checkpoints"], step=step)
        if nearest is not None:
            weights, optimizer = nearest.tensors()
            stepper.go_back(
                {
                    "network": weights,
                    "loop": {"loop": nearest.loop, "optimizer": optimizer},
                    "generators": nearest.generators,
                }
            )
        arrival = stepper.walk(stored, to=step, told=lambda n: child.phase(f"step {n}"))
        child.phase(f"operations of step {step}")
        seen = _seen(stepper, order, child)
    return {"arrival": asdict(replace(arrival, passed_over=passed_over)), **seen}


def _seen(stepper: Stepper, order: dict[str, Any], child: Child) -> dict[str, Any]:
    """Go through the step, again and again as asked, and write down what was seen."""
    from safetensors.torch import save_file

    from cellrepro.trace.flips import Auditor
    from cellrepro.trace.operation_ledger import OperationLedger, OperationRow, names_of

    scratch, step = order["scratch"], order["step"]
    before = stepper.snapshot()
    with OperationLedger(stepper.network, step=step, reference=order["choose"]) as first:
        stepper.loop.step()
    stepper.ledger.write(scratch / LEDGER)
    write_rows(scratch / _ROWS, first.rows, OperationRow)
    if order["choose"]:
        child.tell("rows")
        chosen = _chosen(scratch / _CHOSEN)
        if chosen:
            names = names_of(first.rows)
            wanted = {names[index]: index for index in chosen}
            stepper.go_back(before)
            with OperationLedger(stepper.network, step=step, wanted=wanted) as again:
                stepper.loop.step()
            kept = {
                f"{wanted[name]}/{side}/{number}": tensor.cpu().contiguous()
                for name, sides in again.kept.items()
                for side, tensors in sides.items()
                for number, tensor in enumerate(tensors)
            }
            save_file(kept, scratch / _KEPT)
    n_repetitions = 0
    for _ in range(order["repetitions"]):
        stepper.go_back(before)
        with OperationLedger(stepper.network, step=step) as other:
            stepper.loop.step()
        n_repetitions += 1
        if [row.outputs for row in other.rows] != [row.outputs for row in first.rows]:
            write_rows(scratch / f"again-{_ROWS}", other.rows, OperationRow)
            break
    audited, n_replays = [], 0
    if order["suspects"]:
        stepper.go_back(before)
        with Auditor(suspects=order["suspects"], model=stepper.network) as auditor:
            stepper.loop.step()
        found = auditor.result(n_steps=1)
        audited = [asdict(op) for op in found.ops]
        n_replays = found.n_replays
    return {
        "n_repetitions": n_repetitions,
        "audited": audited,
        "n_replays": n_replays,
        "draws": [asdict(draw) for draw in first.draws],
    }


def _chosen(path: Path) -> list[int]:
    """Wait for the caller's choice; if the caller ends, so does this process."""
    while not path.exists():
        time.sleep(0.02)
    return json.loads(path.read_text(encoding="utf-8"))
