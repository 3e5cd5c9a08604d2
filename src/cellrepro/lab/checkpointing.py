"""What a training writes down and keeps as it goes: its ledgers, and checkpoints to go on from."""

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

    unfinished: Path | None = None  # where checkpoints lie until the repeat is stored
    resume: bool = False
    checkpoint_every: int = 0  # epochs; 0 for no checkpoints
    keep_checkpoints: bool = False  # store all of them, not only the last until it is finished
    operation_steps: tuple[int, ...] | None = None
    """Of ``ledger="ops"``; none for all. Where nothing is trained, images take their place."""


class Keeper:
    """Told of every epoch by the worker; hands what it kept over to the finished repeat."""

    def __init__(self, keeping: Keeping, staged: Path, *, level: str, seed: int | None) -> None:
        self._keeping, self._staged, self._level, self._seed = keeping, staged, level, seed
        self._place = keeping.unfinished or staged / ".unfinished"
        rows = self._place / "rows"
        self.ledger = Ledger()  # entries not yet written
        self._pieces = {LEDGER: Pieces(rows / "steps", Entry)}
        if level == "ops":
            from cellrepro.trace.operation_ledger import OperationRow
            from cellrepro.trace.random_draws import Draw

            self._pieces[OPERATIONS] = Pieces(rows / "operations", OperationRow)
            self._pieces[DRAWS] = Pieces(rows / "draws", Draw)
        self._operations: Any = None
        self._origin: Origin | None = None  # of a training, once it has begun
        self.resumed: list[int] = []  # epochs that were done when a process took over

    def watch(self, network: Any) -> Any:
        """Who listens to the training, or none."""
        if self._level == "off":
            return None
        from cellrepro.trace.training_steps import StepWatch, Watches

        watches: list[Any] = [StepWatch(self.ledger)]
        if self._level == "ops":
            from cellrepro.trace.operation_ledger import OperationWatch

            self._operations = OperationWatch(network, steps=self._keeping.operation_steps)
            watches.append(self._operations)
        return Watches(watches)

    def watching_image(self, network: Any, index: int) -> AbstractContextManager[Any]:
        """Write down the operations of segmenting one image, where nothing was trained."""
        if self._level != "ops" or self._origin is not None:
            return nullcontext()
        if self._operations is None:
            self.watch(network)
        return self._operations.step(index, 0)

    def begin(self, origin: Origin, network: Any, loop: Loop) -> list[str]:
        """Take up an unfinished training, if asked for; returns what the user should know of it."""
        self._origin = origin
        if self._keeping.resume:
            found, passed_over = checkpoints.nearest(self._place)
            if found is not None:
                self._go_on(found, origin, network, loop)
                return [f"{what}; an older checkpoint is taken" for what in passed_over]
            if passed_over:
                raise BadInput(f"{'; '.join(passed_over)}; {checkpoints.START_ANEW}")
        for pieces in self._pieces.values():
            pieces.go_back(0)
        for folder in checkpoints.folders(self._place):
            shutil.rmtree(folder, ignore_errors=True)
        return []

    def _go_on(self, found: Checkpoint, origin: Origin, network: Any, loop: Loop) -> None:
        checkpoints.refuse_other(found, origin)
        seed = self._seed
        problems = [] if seed is None else seeding.other_seeds(found.generators, seed)
        if problems:
            raise BadInput(
                f"{found.folder} is not of seed {seed}: {'; '.join(problems)}; train without "
                "--resume"
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

    @property
    def kept(self) -> list[Checkpoint]:
        """The checkpoints that the finished repeat will hold, the earliest first."""
        found = checkpoints.folders(self._place) if self._keeping.keep_checkpoints else []
        return [checkpoints.read_plain(folder) for folder in found]

    def epoch_ended(self, network: Any, loop: Loop) -> None:
        """Write down what is new, and a checkpoint if it is time."""
        every = self._keeping.checkpoint_every
        if every and len(loop.training.epochs) % every:
            return
        self._flush()
        if not every or self._origin is None:
            return
        state = loop.state()
        state["loop"]["resumed"] = self.resumed
        checkpoints.save(
            self._place,
            origin=self._origin,
            network=network,
            loop_state=state,
            n_rows={name: pieces.n_rows for name, pieces in self._pieces.items()},
        )
        if not self._keeping.keep_checkpoints:
            checkpoints.keep_last(self._place)

    def finish(self) -> None:
        """Hand ledgers and checkpoints over to the repeat."""
        self._flush()
        if self._level != "off":
            for name, pieces in self._pieces.items():
                pieces.finish(self._staged / name)
        for one in self.kept:
            shutil.copytree(one.folder, self._staged / CHECKPOINTS / one.folder.name)
        shutil.rmtree(self._staged / ".unfinished", ignore_errors=True)

    def _flush(self) -> None:
        fresh: dict[str, list[Any]] = {LEDGER: self.ledger.entries}
        if self._operations is not None:
            fresh |= {OPERATIONS: self._operations.rows, DRAWS: self._operations.draws}
        for name, rows in fresh.items():
            self._pieces[name].append(rows)
            rows.clear()


def as_after(checkpoint: Checkpoint, network: Any, dtype: str) -> None:
    """Give a network the weights of a checkpoint, to segment in a profile's precision."""
    import torch

    network.dtype = torch.float32  # in which it was trained
    network.load_state_dict(checkpoint.network())
    network.dtype = getattr(torch, dtype)
