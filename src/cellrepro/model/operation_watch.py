"""The watch that writes down every operation of chosen steps of a training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from cellrepro.model.watches import Watch
from samebits import Draw, OperationLedger, OperationRow


class OperationWatch(Watch):
    """Writes down the operations and draws of chosen steps; of all by default.

    In chosen steps each operation is also compared with float64, which is slow.
    """

    def __init__(self, network: torch.nn.Module, *, steps: Iterable[int] | None = None) -> None:
        self._network = network
        self._steps = None if steps is None else frozenset(steps)
        self.rows: list[OperationRow] = []
        self.draws: list[Draw] = []

    @contextmanager
    def step(self, step: int, epoch: int) -> Iterator[None]:  # noqa: D102
        if self._steps is not None and step not in self._steps:
            yield
            return
        chosen = self._steps is not None
        with OperationLedger(self._network, step=step, reference=chosen) as ledger:
            yield
        self.rows += ledger.rows
        self.draws += ledger.draws
