"""What a training writes down and keeps as it goes: ledger, operations, checkpoints.

`worker` tells a `Keeper` of every epoch; the keeper saves what is needed to go on after a kill,
and hands everything over to the finished repeat.
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


@dataclass(frozen=True)
class Keeping:
    """What to keep of a training beside its result; none of it changes the result.

    Attributes
    ----------
    unfinished : str or None
        Folder in which the training leaves what is needed to go on after a kill; none for no
        checkpoints.
    resume : bool
        Go on from what lies there.
    checkpoint_every : int
        Epochs between checkpoints; 0 for none.
    keep_checkpoints : bool
        Store all of them with the finished repeat, not only the last until it is finished.
    operation_steps : tuple of int or None
        Steps whose operations are written down with ``ledger="ops"``; none for all. Where
        nothing is trained, images take the place of steps.
    certify : bool
        Train once more for each way of watching and store that all end in the same bits.
    """

    unfinished: str | None = None
    resume: bool = False
    checkpoint_every: int = 0
    keep_checkpoints: bool = False
    operation_steps: tuple[int, ...] | None = None
    certify: bool = False


class Keeper:
    """Keeps what a training leaves as it goes.

    Parameters
    ----------
    keeping : Keeping
    staged : Path
        The folder of the repeat that is being made.
    level : str
        ``off``, ``steps`` or ``ops``.
    seed : int
        Of the training; a checkpoint's generators must follow from it.

    Attributes
    ----------
    ledger : Ledger
        Entries not yet written.
    resumed : list of int
        Epochs that were done when this process took over; empty where it began itself.
    notes : list of str
        What the user is to be told of the checkpoint that was taken.
    """

    def __init__(self, keeping: Keeping, staged: Path, *, level: str, seed: int) -> None:
        self._keeping, self._staged, self._level, self._seed = keeping, staged, level, seed
        self._unfinished = None if keeping.unfinished is None else Path(keeping.unfinished)
        place = (self._unfinished or staged / ".unfinished") / "rows"
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
        self._trains = False

    def watch(self, network: Any) -> Any:
        """Who listens to the training, or none."""
        if self._level == "off":
            return None
        from cellrepro.trace.training_steps import StepWatch, Watches

        listeners: list[Any] = [StepWatch(self.ledger)]
        if self._level == "ops":
            from cellrepro.trace.operation_ledger import OperationWatch

            steps = self._keeping.operation_steps
            self._operations = OperationWatch(network, steps=steps)
            listeners.append(self._operations)
        return Watches(listeners)

    def watching_image(self, network: Any, index: int) -> AbstractContextManager[Any]:
        """Write down the operations of segmenting one image, where nothing was trained."""
        if self._level != "ops" or self._trains:
            return nullcontext()
        if self._operations is None:
            self.watch(network)
        return self._operations.step(index, 0)

    def begin(self, origin: Origin, network: Any, loop: Loop) -> None:
        """Take up an unfinished training if there is one and it is asked for.

        Raises
        ------
        BadInput
            If what lies there belongs to another training, or its generators do not follow from
            the seed; the message says what differs.
        """
        self._origin, self._trains = origin, True
        found = self._last() if self._keeping.resume else None
        if found is None:
            for pieces in self._pieces.values():
                pieces.go_back(0)
            self._forget_checkpoints()
            return
        from cellrepro.trace.seed_check import seed_check

        checkpoints.refuse_other(found, origin)
        checked = seed_check(found, seed=self._seed)
        if checked.problems:
            raise BadInput(
                f"the checkpoint {found.folder} does not follow from seed {self._seed}: "
                f"{'; '.join(checked.problems)}; train without --resume to start anew"
            )
        self._go_on(found, network, loop)

    def _last(self) -> Checkpoint | None:
        """The last checkpoint that can be used, and a note of those that cannot."""
        if self._unfinished is None:
            return None
        found, passed_over = checkpoints.nearest(self._unfinished)
        if found is None and passed_over:
            raise BadInput(f"{'; '.join(passed_over)}; {checkpoints.START_ANEW}")
        if found is not None:
            self.notes += [
                f"{problem}; the training goes on from an older checkpoint, after epoch "
                f"{found.epoch}"
                for problem in passed_over
            ]
        return found

    def _go_on(self, found: Checkpoint, network: Any, loop: Loop) -> None:
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
        every = self._keeping.checkpoint_every
        if self._unfinished is None or not every:
            self._flush()
            return
        if len(loop.training.epochs) % every:
            return
        self._flush()
        state = loop.state()
        state["loop"]["resumed"] = self.resumed
        checkpoints.save(
            self._unfinished,
            origin=self._origin,
            network=network,
            loop_state=state,
            n_rows={name: pieces.n_rows for name, pieces in self._pieces.items()},
        )
        if not self._keeping.keep_checkpoints:
            checkpoints.keep_last(self._unfinished)

    def finish(self) -> None:
        """Hand ledger and checkpoints over to the repeat."""
        self._flush()
        for name, pieces in self._pieces.items():
            if self._level != "off":
                pieces.finish(self._staged / name)
        shutil.rmtree(self._staged / ".unfinished", ignore_errors=True)
        if self._keeping.keep_checkpoints and self._unfinished is not None:
            (self._staged / CHECKPOINTS).mkdir()
            for folder in checkpoints.folders(self._unfinished):
                shutil.copytree(folder, self._staged / CHECKPOINTS / folder.name)

    def _flush(self) -> None:
        self._pieces[LEDGER].append(self.ledger.entries)
        self.ledger.entries.clear()
        if self._operations is not None:
            self._pieces[OPERATIONS].append(self._operations.rows)
            self._operations.rows.clear()
            self._pieces[DRAWS].append(self._operations.draws)
            self._operations.draws.clear()

    def _forget_checkpoints(self) -> None:
        if self._unfinished is not None:
            for folder in checkpoints.folders(self._unfinished):
                shutil.rmtree(folder, ignore_errors=True)
