"""What a training writes down and keeps as it goes: its ledgers, and checkpoints to go on from.

`cellrepro.lab.worker` tells a `Keeper` of every epoch; the keeper saves what is needed to go on
after a kill, and hands everything over to the finished repeat.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellrepro.determinism import seeding
from cellrepro.errors import BadInput
from cellrepro.model.training import Loop
from cellrepro.store import checkpoints
from cellrepro.store.checkpoints import Checkpoint, Origin
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, Entry, Ledger, Pieces

CHECKPOINTS = "checkpoints"
"""The folder of a stored repeat that holds those that were kept."""


@dataclass(frozen=True)
class Keeping:
    """What to keep of a training beside its result; none of it changes the result."""

    unfinished: Path | None = None
    """Where the training leaves what is needed to go on after a kill; none for no checkpoints."""
    resume: bool = False
    checkpoint_every: int = 0
    """Epochs; 0 for no checkpoints."""
    keep_checkpoints: bool = False
    """Store all of them with the finished repeat, not only the last until it is finished."""
    operation_steps: tuple[int, ...] | None = None
    """Of ``ledger="ops"``; none for all. Where nothing is trained, images take their place."""


class Keeper:
    """Keeps what a training leaves as it goes.

    Attributes
    ----------
    ledger : Ledger
        Entries not yet written.
    resumed : list of int
        Epochs that were done when a process took over from one that was killed.
    notes : list of str
        What the user is to be told of the checkpoint that was taken.
    """

    def __init__(self, keeping: Keeping, staged: Path, *, level: str, seed: int) -> None:
        self._keeping, self._staged, self._level, self._seed = keeping, staged, level, seed
        place = (keeping.unfinished or staged / ".unfinished") / "rows"
        self.ledger = Ledger()
        self._pieces = {LEDGER: Pieces(place / "steps", Entry)}
        self._operations: Any = None
        if level == "ops":
            from cellrepro.trace.operation_ledger import OperationRow
            from cellrepro.trace.random_draws import Draw

            self._pieces[OPERATIONS] = Pieces(place / "operations", OperationRow)
            self._pieces[DRAWS] = Pieces(place / "draws", Draw)
        self.resumed: list[int] = []
        self.notes: list[str] = []
        self._origin: Origin | None = None  # of a training, once it has begun

    def watch(self, network: Any) -> Any:
        """Who listens to the training, or none."""
        if self._level == "off":
            return None
        from cellrepro.trace.training_steps import StepWatch, Watches

        listeners: list[Any] = [StepWatch(self.ledger)]
        if self._level == "ops":
            from cellrepro.trace.operation_ledger import OperationWatch

            self._operations = OperationWatch(network, steps=self._keeping.operation_steps)
            listeners.append(self._operations)
        return Watches(listeners)

    def watching_image(self, network: Any, index: int) -> AbstractContextManager[Any]:
        """Write down the operations of segmenting one image, where nothing was trained."""
        if self._level != "ops" or self._origin is not None:
            return nullcontext()
        if self._operations is None:
            self.watch(network)
        return self._operations.step(index, 0)

    def begin(self, origin: Origin, network: Any, loop: Loop) -> None:
        """Take up an unfinished training, if there is one and it is asked for.

        One that belongs to another training, or whose generators do not follow from the seed, is
        refused.
        """
        self._origin = origin
        found = self._last() if self._keeping.resume else None
        if found is not None:
            self._go_on(found, network, loop)
            return
        for pieces in self._pieces.values():
            pieces.go_back(0)
        for folder in self._checkpoints():
            shutil.rmtree(folder, ignore_errors=True)

    def _checkpoints(self) -> list[Path]:
        unfinished = self._keeping.unfinished
        return [] if unfinished is None else checkpoints.folders(unfinished)

    def _last(self) -> Checkpoint | None:
        """The last checkpoint that can be used, and notes of those that cannot."""
        if self._keeping.unfinished is None:
            return None
        found, passed_over = checkpoints.nearest(self._keeping.unfinished)
        if found is None:
            if passed_over:
                raise BadInput(f"{'; '.join(passed_over)}; {checkpoints.START_ANEW}")
            return None
        self.notes += [
            f"{problem}; the training goes on from an older checkpoint, after epoch {found.epoch}"
            for problem in passed_over
        ]
        return found

    def _go_on(self, found: Checkpoint, network: Any, loop: Loop) -> None:
        assert self._origin is not None
        checkpoints.refuse_other(found, self._origin)
        checked = checkpoints.seed_check(found, seed=self._seed)
        if checked.problems:
            raise BadInput(
                f"the checkpoint {found.folder} does not follow from seed {self._seed}: "
                f"{'; '.join(checked.problems)}; train without --resume to start anew"
            )
        weights, optimizer = found.tensors()
        network.load_state_dict(weights)
        loop.restore({"loop": found.loop, "optimizer": optimizer})
        for name, pieces in self._pieces.items():
            pieces.go_back(found.n_rows.get(name, 0))
        self.ledger.entries.clear()  # what comes before the first step is written already
        self.ledger.step, self.ledger.epoch = found.step - 1, found.epoch - 1  # of the last step
        self.resumed = [*found.loop.get("resumed", []), found.epoch]
        seeding.restore(found.generators)  # last: nothing may draw between it and the first step

    def epoch_ended(self, network: Any, loop: Loop) -> None:
        """Write down what is new, and a checkpoint if it is time."""
        keeping = self._keeping
        if keeping.unfinished is None or not keeping.checkpoint_every:
            self._flush()
            return
        if len(loop.training.epochs) % keeping.checkpoint_every:
            return
        self._flush()
        state = loop.state()
        state["loop"]["resumed"] = self.resumed
        assert self._origin is not None
        checkpoints.save(
            keeping.unfinished,
            origin=self._origin,
            network=network,
            loop_state=state,
            n_rows={name: pieces.n_rows for name, pieces in self._pieces.items()},
        )
        if not keeping.keep_checkpoints:
            checkpoints.keep_last(keeping.unfinished)

    def finish(self) -> None:
        """Hand ledgers and checkpoints over to the repeat."""
        self._flush()
        if self._level != "off":
            for name, pieces in self._pieces.items():
                pieces.finish(self._staged / name)
        shutil.rmtree(self._staged / ".unfinished", ignore_errors=True)
        if self._keeping.keep_checkpoints and self._keeping.unfinished is not None:
            (self._staged / CHECKPOINTS).mkdir()
            for folder in self._checkpoints():
                shutil.copytree(folder, self._staged / CHECKPOINTS / folder.name)

    def _flush(self) -> None:
        self._pieces[LEDGER].append(self.ledger.entries)
        self.ledger.entries.clear()
        if self._operations is not None:
            for name, rows in (
                (OPERATIONS, self._operations.rows),
                (DRAWS, self._operations.draws),
            ):
                self._pieces[name].append(rows)
                rows.clear()
