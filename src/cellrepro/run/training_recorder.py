"""The recorder of a training: its ledgers, and the checkpoints from which it can go on."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cellrepro.model.encoders import CellposeNetwork
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.run.options import RecordingOptions
from cellrepro.spec.defaults import LedgerKind
from cellrepro.spec.spec import Spec
from cellrepro.store import checkpoint_choice, checkpoints
from cellrepro.store.checkpoints import CHECKPOINTS, Checkpoint, Origin
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, Ledger, LedgerRow
from cellrepro.store.row_tables import Pieces, read_rows, write_rows
from cellrepro.store.whole_files import link_or_copy
from samebits import checkpoint_seeds, generator_states
from samebits.digests import value_digest
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.model.operation_watch import OperationWatch
    from cellrepro.model.watches import Watch, Watches

RowType = TypeVar("RowType")

_UNFINISHED = ".unfinished"
"""Folder of a repeat for what grows, where no other folder is given; it is gone at the end."""


class TrainingRecorder:
    """Writes ledgers and checkpoints of a training, and moves them to the finished repeat.

    The worker calls `begin`, `epoch_ended` after every epoch, and `finish`. Until then the files
    lie in the folder ``unfinished``.
    """

    def __init__(
        self,
        recording: RecordingOptions,
        staged: Path,
        *,
        level: LedgerKind,
        seed: int | None,
        unfinished: Path | None = None,
    ) -> None:
        self._recording = recording
        self._staged = staged
        self._level = level
        self._seed = seed
        self._unfinished = unfinished or staged / _UNFINISHED
        self._pieces = growing_ledgers(self._unfinished, level)
        self._operations: OperationWatch | None = None
        self.ledger = Ledger()
        self.origin: Origin | None = None
        self.resumed: list[int] = []
        self.continued_from: str | None = None
        self.goes_on_from: Path | None = None

    def watch(self, network: CellposeNetwork) -> Watches | None:
        """Make the watches of the training's steps; None with ``ledger="off"``."""
        if self._level == "off":
            return None
        from cellrepro.model.watches import StepWatch, Watches

        watches: list[Watch] = [StepWatch(self.ledger)]
        if self._level == "ops":
            watches.append(self._operation_watch(network))
        return Watches(watches)

    def _operation_watch(self, network: CellposeNetwork) -> OperationWatch:
        """The watch of operations, made on first use."""
        from cellrepro.model.operation_watch import OperationWatch

        if self._operations is None:
            steps = self._recording.operation_steps
            self._operations = OperationWatch(network, steps=steps)
        return self._operations

    def watching_image(
        self, network: CellposeNetwork, index: int
    ) -> AbstractContextManager[object]:
        """Watch the operations of segmenting one image, if nothing was trained."""
        was_trained = self.origin is not None
        if self._level != "ops" or was_trained:
            return nullcontext()
        return self._operation_watch(network).step(index, 0)

    # -- the beginning of a training -------------------------------------------------------

    def begin(self, origin: Origin, network: CellposeNetwork, loop: TrainingLoop) -> list[str]:
        """Resume an unfinished training if asked to, else remove its files; gives notes."""
        self.origin = origin
        if self._recording.resume:
            checkpoint, passed_over = checkpoint_choice.nearest(self._unfinished)
            if checkpoint is not None:
                self._go_on(checkpoint, origin, network, loop)
                return [f"{reason}; an older checkpoint is taken" for reason in passed_over]
            if passed_over:
                raise BadInput(f"{'; '.join(passed_over)}; {checkpoints.START_ANEW}")
        for pieces in self._pieces.values():
            pieces.go_back(0)
        for folder in checkpoints.folders(self._unfinished):
            shutil.rmtree(folder, ignore_errors=True)
        return []

    def _go_on(
        self, checkpoint: Checkpoint, origin: Origin, network: CellposeNetwork, loop: TrainingLoop
    ) -> None:
        if origin.spec.get("seed") is None and origin.spec.get("model_digest") is None:
            # No seed draws the initial weights: every process has others, and the training began
            # with those of the checkpoint.
            origin = replace(origin, initial_weights=checkpoint.origin.initial_weights)
            self.origin = origin
        checkpoint_choice.refuse_other(checkpoint, origin)
        self._refuse_other_seeds(checkpoint)
        self.goes_on_from = checkpoint.folder
        state = checkpoint.training_state()
        network.load_state_dict(state.network)
        loop.restore(state.loop)
        for name, pieces in self._pieces.items():
            pieces.go_back(checkpoint.n_rows.get(name, 0))
        self.ledger.entries.clear()  # what comes before the first step is written already
        self.ledger.step = checkpoint.step - 1  # of the last step
        self.ledger.epoch = checkpoint.epoch - 1
        self.resumed = [*checkpoint.loop.get("resumed", []), checkpoint.epoch]
        self.continued_from = checkpoint.loop.get("continued_from")
        # Last: nothing may draw between it and the first step.
        generator_states.restore(checkpoint.generators)

    def _refuse_other_seeds(self, checkpoint: Checkpoint) -> None:
        if self._seed is None:
            return
        problems = checkpoint_seeds.other_seeds(checkpoint.generators, self._seed)
        if problems:
            raise BadInput(
                f"{checkpoint.folder} is not of seed {self._seed}: {'; '.join(problems)}; train "
                "without resume"
            )

    # -- on the way ------------------------------------------------------------------------

    def epoch_ended(self, network: CellposeNetwork, loop: TrainingLoop) -> None:
        """Write new rows, and a checkpoint if one is due."""
        interval = self._recording.checkpoint_every or 0
        to_store = self._recording.keep_checkpoints
        is_stored_end = loop.finished and to_store != "none"
        is_between = interval > 0 and len(loop.training.epochs) % interval > 0
        if is_between and not is_stored_end:
            return
        self._write_ledgers()
        makes_checkpoint = interval > 0 or is_stored_end
        if not makes_checkpoint or self.origin is None:
            return
        state = loop.state()
        state.position["resumed"] = self.resumed
        state.position["continued_from"] = self.continued_from
        checkpoints.save(
            self._unfinished,
            origin=self.origin,
            network=network,
            loop_state=state,
            n_rows={name: pieces.n_rows for name, pieces in self._pieces.items()},
        )
        if to_store != "all":
            checkpoint_choice.keep_last(self._unfinished)

    def _write_ledgers(self) -> None:
        """Append the new rows of every ledger to its file."""
        self._append(LEDGER, self.ledger.entries)
        if self._operations is not None:
            self._append(OPERATIONS, self._operations.rows)
            self._append(DRAWS, self._operations.draws)

    def _append(self, name: str, rows: list[RowType]) -> None:
        """Append rows to a growing ledger, and empty the list."""
        self._pieces[name].append(rows)
        rows.clear()

    # -- the end ---------------------------------------------------------------------------

    @property
    def checkpoints_to_store(self) -> list[Checkpoint]:
        """The checkpoints that the finished repeat will hold, the earliest first."""
        if self._recording.keep_checkpoints == "none":
            return []
        return [checkpoints.read_plain(path) for path in checkpoints.folders(self._unfinished)]

    def finish(self, carried_out: Spec | None = None) -> None:
        """Move ledgers and checkpoints to the repeat."""
        self._write_ledgers()
        if self._level != "off":
            for name, pieces in self._pieces.items():
                pieces.finish(self._staged / name)
            if carried_out is not None and self._is_other_than_planned(carried_out):
                path = self._staged / LEDGER
                rows = with_spec(read_rows(path, LedgerRow), carried_out)
                write_rows(path, rows, LedgerRow)
        for checkpoint in self.checkpoints_to_store:
            target = self._staged / CHECKPOINTS / checkpoint.folder.name
            shutil.copytree(checkpoint.folder, target, copy_function=link_or_copy)
        shutil.rmtree(self._staged / _UNFINISHED, ignore_errors=True)

    def _is_other_than_planned(self, carried_out: Spec) -> bool:
        """Whether a training had another number of epochs than planned."""
        if self.origin is None:
            return False
        return carried_out.model_dump(mode="json") != self.origin.spec


# -- ledgers -------------------------------------------------------------------------------------


def growing_ledgers(unfinished: Path, level: LedgerKind) -> dict[str, Pieces]:
    """The growing ledgers of a training, by the name of the finished file."""
    rows = unfinished / "rows"
    ledgers = {LEDGER: Pieces(rows / "steps", LedgerRow)}
    if level == "ops":
        from samebits import Draw, OperationRow

        ledgers[OPERATIONS] = Pieces(rows / "operations", OperationRow)
        ledgers[DRAWS] = Pieces(rows / "draws", Draw)
    return ledgers


def add_spec(ledger: Ledger, spec: Spec) -> None:
    """Add a row for each field of the spec."""
    for name, value in spec.model_dump(mode="json").items():
        ledger.add("spec", name, value_digest(value), detail=value)


def with_spec(rows: list[LedgerRow], spec: Spec) -> list[LedgerRow]:
    """Replace the rows of the spec in a step ledger."""
    ledger_of_spec = Ledger()
    add_spec(ledger_of_spec, spec)
    position = next(i for i, row in enumerate(rows) if row.stage == "spec")
    rows_without_spec = [row for row in rows if row.stage != "spec"]
    return [
        *rows_without_spec[:position],
        *ledger_of_spec.entries,
        *rows_without_spec[position:],
    ]
