"""The first argument of every task in a child process: how to compute, and a line to the caller."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from cellrepro.libraries import has_library
from cellrepro.model.encoders import CellposeNetwork
from cellrepro.process.setup import Setup

if TYPE_CHECKING:
    import torch

    from cellrepro.model.weight_sources import ModelSource

EventKind = Literal["phase", "done", "found", "note", "now", "ready", "unanswered"]
"""``phase``: name of the part that begins; ``done``: one part is finished; ``found``: one part was
finished before this process began; ``note``: a sentence for the user; ``now``: how far it is, until
the next; ``ready``: a rank can begin; ``unanswered``: why no answer can be written.
"""

NeedOfCellpose = Literal["needed", "welcome", "unused"]
"""``welcome``: a wrapped function may use it, and an installation that is broken raises nothing."""


@dataclass(frozen=True)
class Event:
    """A message of a child to its caller, while it works."""

    kind: EventKind
    text: str


class Opened(NamedTuple):
    """A network that is ready to use, and its device."""

    network: CellposeNetwork
    device: torch.device


class LooseBlock(AbstractContextManager[object], Protocol):
    """A context in which one operation may be nondeterministic; it can be entered again."""

    n_calls: int
    """Calls of the operation in it so far."""


class _NothingLoose(nullcontext[object]):
    """A context that leaves every operation as the mode has it."""

    n_calls = 0


class Child:
    """A child process, as its task sees it: the setup, and the line to the caller."""

    def __init__(self, setup: Setup | None, send: Callable[[Event], None]) -> None:
        self._setup = setup
        self._send = send
        self._has_cellpose = False  # imported, and whole

    @property
    def setup(self) -> Setup:
        """The setup of the process; a task without a setup must not ask for it."""
        if self._setup is None:
            raise ValueError("this work was handed over without a setup")
        return self._setup

    def tell(self, kind: EventKind, text: str) -> None:
        """Send an event to the caller."""
        self._send(Event(kind, text))

    def phase(self, name: str) -> None:
        """Tell the caller which part begins."""
        self.tell("phase", name)

    def enter(self, cellpose: NeedOfCellpose = "needed") -> torch.device:
        """Import Cellpose, if it is installed, and apply the profile; no mode is in force yet."""
        self.phase("import")
        if cellpose != "unused" and has_library("cellpose"):
            from cellrepro.model.network import import_cellpose

            gc.disable()  # collecting garbage among the imports takes a tenth of a short run
            try:
                import_cellpose()
                self._has_cellpose = True
            except Exception:  # of a broken one nearly any
                if cellpose == "needed":
                    raise
            finally:
                gc.freeze()
                gc.enable()
        return self.setup.profile.enter()

    @contextmanager
    def prepared(self, cellpose: NeedOfCellpose = "needed") -> Iterator[torch.device]:
        """`enter`, with the mode in force for one block; `loosened` is for the task to add."""
        from cellrepro.determinism.modes import mode_in_force
        from cellrepro.determinism.substitutes import SUBSTITUTES

        device = self.enter(cellpose)
        profile = self.setup.profile
        loose = self.setup.loose
        without_substitute = [op for item in SUBSTITUTES for op in item.replaces if op == loose]
        switches = {str(name): wanted for name, wanted in profile.switches.items()}
        in_force = mode_in_force(
            self.setup.mode,
            loose=without_substitute,
            device=profile.kind,
            tf32=profile.tf32,
            chosen=switches,
        )
        with in_force, self._arithmetic(device):
            yield device

    @contextmanager
    def _arithmetic(self, device: torch.device) -> Iterator[None]:
        """Replace PyTorch's kernels for one block, in mode ``portable``."""
        if self.setup.mode != "portable":
            yield
            return
        from cellrepro.arithmetic.portable_mode import proved_arithmetic

        with ExitStack() as stack:
            if self._has_cellpose:
                from cellrepro.model.portable_cellpose import portable_cellpose
                from cellrepro.model.portable_training import portable_training

                stack.enter_context(portable_cellpose())
                stack.enter_context(portable_training())
            stack.enter_context(proved_arithmetic(device))
            yield

    @contextmanager
    def opened(self, model: ModelSource, *, dtype: str | None = None) -> Iterator[Opened]:
        """`prepared`, with a network built in it."""
        from cellrepro.model.network import build

        with self.prepared() as device:
            precision = dtype or self.setup.profile.dtype
            network = build(model, seed=self.setup.seed, device=device, dtype=precision)
            yield Opened(network, device)

    def loosened(self) -> LooseBlock:
        """A context in which the operation ``loose``, if any, is left as PyTorch has it."""
        if self.setup.loose is None:
            return _NothingLoose()
        from cellrepro.determinism.loose_operation import LooseOperation

        return LooseOperation(self.setup.loose)
