"""What a training writes down and keeps as it goes: its ledgers, and checkpoints to go on from."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cellrepro.asked.spec import Spec
from cellrepro.bits.digests import value_digest
from cellrepro.determinism import seeds
from cellrepro.errors import BadInput
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.run.options import Kept
from cellrepro.store import checkpoints
from cellrepro.store.checkpoints import Checkpoint, Origin
from cellrepro.store.ledger import (
    DRAWS,
    LEDGER,
    OPERATIONS,
    Ledger,
    LedgerRow,
    Pieces,
    read_rows,
    write_rows,
)
from cellrepro.store.store import Repeat
from cellrepro.store.whole_files import link_or_copy

CHECKPOINTS = "checkpoints"
"""The folder of a stored repeat that holds those that were kept."""


@dataclass(frozen=True)
class Keeping:
    """What to keep of a training beside its result; none of it changes the result."""

    unfinished: Path | None = None  # where checkpoints lie until the repeat is stored
    resume: bool = False
    checkpoint_every: int = 0  # epochs; 0 for no checkpoints
    keep_checkpoints: Kept = "none"  # with the finished repeat
    continued: Repeat | None = None  # the finished training from whose last one this goes on
    operation_steps: tuple[int, ...] | None = None
    """Of ``ledger="ops"``; none for all. Where nothing is trained, images take their place."""


class Keeper:
    """Told of every epoch by the worker; hands what it kept over to the finished repeat."""

    def __init__(self, keeping: Keeping, staged: Path, *, level: str, seed: int | None) -> None:
        self._keeping, self._staged, self._level, self._seed = keeping, staged, level, seed
        self._place = keeping.unfinished or staged / ".unfinished"
        self.ledger = Ledger()  # entries not yet written
        self._pieces = _pieces(self._place, level)
        self._operations: Any = None
        self.origin: Origin | None = None  # of a training, once it has begun
        self.resumed: list[int] = []  # epochs that were done when a process took over
        self.continued_from: str | None = None
        self.goes_on_from: Path | None = None  # the checkpoint
        self._ended_as: Spec | None = None

    def watch(self, network: Any) -> Any:
        """Who listens to the training, or none."""
        if self._level == "off":
            return None
        from cellrepro.trace.watches import StepWatch, Watches

        watches: list[Any] = [StepWatch(self.ledger)]
        if self._level == "ops":
            from cellrepro.trace.operation_ledger import OperationWatch

            self._operations = OperationWatch(network, steps=self._keeping.operation_steps)
            watches.append(self._operations)
        return Watches(watches)

    def watching_image(self, network: Any, index: int) -> AbstractContextManager[Any]:
        """Write down the operations of segmenting one image, where nothing was trained."""
        if self._level != "ops" or self.origin is not None:
            return nullcontext()
        if self._operations is None:
            self.watch(network)
        return self._operations.step(index, 0)

    def begin(self, origin: Origin, network: Any, loop: TrainingLoop) -> list[str]:
        """Take up an unfinished training, if asked for; returns what the user should know of it."""
        self.origin = origin
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

    def _go_on(self, found: Checkpoint, origin: Origin, network: Any, loop: TrainingLoop) -> None:
        if origin.spec.get("seed") is None and origin.spec.get("model_digest") is None:
            # Drawn by no seed, they are others in every process; it began with those found here.
            origin = replace(origin, initial_weights=found.origin.initial_weights)
            self.origin = origin
        checkpoints.refuse_other(found, origin)
        seed = self._seed
        problems = [] if seed is None else seeds.other_seeds(found.generators, seed)
        if problems:
            raise BadInput(
                f"{found.folder} is not of seed {seed}: {'; '.join(problems)}; train without "
                "--resume"
            )
        self.goes_on_from = found.folder
        weights, optimizer = found.tensors()
        network.load_state_dict(weights)
        loop.restore({"loop": found.loop, "optimizer": optimizer})
        for name, pieces in self._pieces.items():
            pieces.go_back(found.n_rows.get(name, 0))
        self.ledger.entries.clear()  # what comes before the first step is written already
        self.ledger.step, self.ledger.epoch = found.step - 1, found.epoch - 1  # of the last step
        self.resumed = [*found.loop.get("resumed", []), found.epoch]
        self.continued_from = found.loop.get("continued_from")
        seeds.restore(found.generators)  # last: nothing may draw between it and the first step

    @property
    def kept(self) -> list[Checkpoint]:
        """The checkpoints that the finished repeat will hold, the earliest first."""
        keep = self._keeping.keep_checkpoints
        found = [] if keep == "none" else checkpoints.folders(self._place)
        return [checkpoints.read_plain(folder) for folder in found]

    def epoch_ended(self, network: Any, loop: TrainingLoop) -> None:
        """Write down what is new, and a checkpoint if it is time."""
        every, keep = self._keeping.checkpoint_every, self._keeping.keep_checkpoints
        last = loop.finished and keep != "none"
        if every and len(loop.training.epochs) % every and not last:
            return
        self._flush()
        if not (every or last) or self.origin is None:
            return
        state = loop.state()
        state["loop"] |= {"resumed": self.resumed, "continued_from": self.continued_from}
        checkpoints.save(
            self._place,
            origin=self.origin,
            network=network,
            loop_state=state,
            n_rows={name: pieces.n_rows for name, pieces in self._pieces.items()},
        )
        if keep != "all":
            checkpoints.keep_last(self._place)

    def ended_as(self, spec: Spec) -> None:
        """Say which spec was carried out, where its number of epochs was not known before."""
        self._ended_as = spec

    def finish(self) -> None:
        """Hand ledgers and checkpoints over to the repeat."""
        self._flush()
        if self._level != "off":
            for name, pieces in self._pieces.items():
                pieces.finish(self._staged / name)
            if self._ended_as is not None:
                path = self._staged / LEDGER
                rows = _as_asked(read_rows(path, LedgerRow), self._ended_as)
                write_rows(path, rows, LedgerRow)
        for one in self.kept:
            kept = self._staged / CHECKPOINTS / one.folder.name
            shutil.copytree(one.folder, kept, copy_function=link_or_copy)
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


def _pieces(place: Path, level: str) -> dict[str, Pieces]:
    """The growing ledgers of a training, by the name of the file that each ends in."""
    found = {LEDGER: Pieces(place / "rows" / "steps", LedgerRow)}
    if level == "ops":
        from cellrepro.trace.operation_ledger import OperationRow
        from cellrepro.trace.random_draws import Draw

        found[OPERATIONS] = Pieces(place / "rows" / "operations", OperationRow)
        found[DRAWS] = Pieces(place / "rows" / "draws", Draw)
    return found


# -- of a finished training ----------------------------------------------------------------


def kept_checkpoints(repeat: Repeat) -> list[Checkpoint]:
    """The checkpoints that a stored repeat kept, the earliest first; their tensors are unread.

    Raises
    ------
    BadInput
        If one says other things than when it was stored, or cannot be read.
    """
    found = []
    for folder in checkpoints.folders(repeat.folder / CHECKPOINTS):
        repeat.file(f"{CHECKPOINTS}/{folder.name}/{checkpoints.PLAIN}")
        found.append(checkpoints.read_plain(folder))
    return found


def last_checkpoint(repeat: Repeat) -> Checkpoint:
    """That of a finished training's last epoch, whole; `BadInput` if it kept none."""
    kept = kept_checkpoints(repeat)
    found = kept[-1] if kept else None
    if found is None or found.epoch != repeat.spec.epochs:
        raise BadInput(
            f"{repeat.name} is no training that kept the checkpoint of its last epoch, from which "
            "it could go on; train with --keep-checkpoints last, in another store if it is in this"
        )
    checkpoints.refuse_changed(found)
    return found


def lay_out(repeat: Repeat, spec: Spec, index: int, place: Path) -> None:
    """Leave a finished training in a folder as if one of a longer spec had been killed there."""
    last, n_rows = last_checkpoint(repeat), {}
    for name, pieces in _pieces(place, spec.ledger).items():
        shutil.rmtree(pieces.folder, ignore_errors=True)
        if last.n_rows.get(name):
            rows = read_rows(repeat.file(name), pieces.kind)[: last.n_rows[name]]
            pieces.append(_as_asked(rows, spec) if name == LEDGER else rows)
        n_rows[name] = pieces.n_rows
    plain = json.loads((last.folder / checkpoints.PLAIN).read_text(encoding="utf-8"))
    plain["origin"] |= {"spec": spec.model_dump(mode="json"), "repeat": index}
    plain["loop"]["continued_from"] = repeat.name
    scratch = place / ".continued"
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(last.folder, scratch)
    path = scratch / checkpoints.PLAIN
    path.unlink()
    path.write_text(json.dumps(plain | {"n_rows": n_rows}), encoding="utf-8")
    scratch.rename(place / last.folder.name)


def add_spec(ledger: Ledger, spec: Spec) -> None:
    """Write down what was asked for, field by field."""
    for name, value in spec.model_dump(mode="json").items():
        ledger.add("spec", name, value_digest(value), detail=value)


def _as_asked(rows: list[LedgerRow], spec: Spec) -> list[LedgerRow]:
    """The rows of a step ledger, the spec in it replaced."""
    asked = Ledger()
    add_spec(asked, spec)
    at = next(i for i, row in enumerate(rows) if row.stage == "spec")
    others = [row for row in rows if row.stage != "spec"]
    return [*others[:at], *asked.entries, *others[at:]]
