"""A training that is taken to a step, and through it again from the same state."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellrepro.process.child import Child
from cellrepro.run.inputs import training_loop
from cellrepro.run.plan import Request
from cellrepro.store import checkpoint_choice
from cellrepro.store.checkpoints import TrainingState
from cellrepro.store.ledger import Ledger, LedgerRow
from samebits import generator_states
from samebits.errors import BadInput
from samebits.tensor_digests import comparable

_TRIES = 12
"""How often a step on the way is tried until it ends in the bits of the stored run."""
_ENDS = ("update", "weights", "rng")
"""Stages of a ledger with the state after a step."""
Stored = Mapping[tuple[int, str, str], LedgerRow]
"""A ledger by step, stage and name, as `cellrepro.store.ledger.by_place` gives it."""


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
    """What `samebits.generator_states.capture` gave."""


@dataclass(frozen=True)
class Arrival:
    """How the state before a step was reached."""

    words: str
    doubt: str
    """Why what is seen from it may not be what the run did; empty where it is the stored state."""


class Stepper:
    """A stored training that goes on step by step, and can go back."""

    def __init__(self, request: Request, device: Any, child: Child) -> None:
        from cellrepro.images.folder import read_folder
        from cellrepro.model.network import build
        from cellrepro.model.watches import StepWatch, Watches

        self._child = child
        child.phase("images and flows")
        spec = request.spec
        folder = read_folder(request.data)
        # As the run began: bfloat16 rounds the weights, and the loop widens them again.
        self.network = build(request.model, seed=spec.seed, device=device, dtype=spec.precision)
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

    def go_to(self, step: int, stored: Stored, folder: Path) -> Arrival:
        """Restore the state before a step, and say how it was reached."""
        if same_as_stored(self._initial_weights, stored) is False:
            raise BadInput("the initial weights are not those that the run began with")
        nearest, passed_over = checkpoint_choice.nearest(folder, step=step)
        if nearest is not None:
            self.go_back(Snapshot(nearest.training_state(), nearest.generators))
        start: int = self.loop.training.n_steps
        n_verified = 0
        for index in range(start, step):
            is_on_the_way = n_verified == index - start
            # Once lost, the bits stay lost.
            if self._step_as_stored(stored, n_tries=_TRIES if is_on_the_way else 1):
                n_verified += 1
            self._child.tell("done", f"step {index}")
        self.ledger.entries.clear()
        begun_at = f"the checkpoint at step {start}" if start else "the initial weights"
        reasons = "".join(f"; a nearer checkpoint was passed over: {why}" for why in passed_over)
        way = _way(begun_at, n_steps=step - start, n_as_stored=n_verified)
        return Arrival(f"{way}{reasons}", _doubt(step - start, n_verified))

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


def _doubt(n_steps: int, n_as_stored: int) -> str:
    """Say what follows from steps that did not end as stored; nothing where all did.

    >>> _doubt(21, 8).partition(" when")[0]
    'only probably, as 8 of the 21 steps before it ended as stored'
    >>> _doubt(21, 21)
    ''
    """
    if n_as_stored == n_steps:
        return ""
    ended = f"{n_as_stored or 'none'} of the {n_steps} steps before it ended as stored"
    if n_steps == 1:
        ended = "the step before it did not end as stored"
    return (
        f"only probably, as {ended} when computed again: this step was seen from a state that "
        "neither run had"
    )


def _way(begun_at: str, *, n_steps: int, n_as_stored: int) -> str:
    """Say how the state before a step was reached.

    >>> _way("the initial weights", n_steps=21, n_as_stored=8)
    'computed again from the initial weights; 8 of the 21 steps on the way ended as stored'
    >>> _way("the checkpoint at step 20", n_steps=0, n_as_stored=0)
    'begun at the checkpoint at step 20, just before this step'
    """
    if not n_steps:
        return f"begun at {begun_at}, just before this step"
    ended = f"{n_as_stored} of the {n_steps} steps on the way ended as stored"
    if n_steps == 1:
        ended = f"the only step on the way {'ended' if n_as_stored else 'did not end'} as stored"
    elif n_as_stored == n_steps:
        ended = f"all {n_steps} steps on the way ended as stored"
    return f"computed again from {begun_at}; {ended}"
