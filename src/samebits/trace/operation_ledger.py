"""The operation ledger: every dispatched operation of a step, with digests of what went in and out.

Outputs are digested when they are made, inputs when they are read, so that a write past PyTorch,
as by NumPy into memory that both share, is a difference of the next operation's inputs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from samebits.trace.float64_reference import Reference
from samebits.trace.observer import Call
from samebits.trace.operation_digests import Digested, OperationDigests
from samebits.trace.random_draws import DrawLog
from samebits.trace.replay_plan import ReplayPlan, inputs_of, is_plain, leaves_of, plan_of


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation as it ran."""

    step: int
    """The step, from 0."""
    index: int
    """Its order within the step, from 0."""
    op: str
    """Its name in PyTorch, with its overload."""
    module: str | None
    """Path of the innermost module, or the class of the network; none outside of any."""
    source: str | None
    """``FILE:LINE in FUNCTION`` outside PyTorch that called it; in the backward, its forward."""
    phase: str
    """``forward``, ``backward`` or ``update``."""
    inputs: str
    """Digest of all but devices: 32 hex digits, or 48 where something lay on a GPU."""
    outputs: str
    """Digest of all that it computed and wrote; empty for views and where nothing came."""
    shapes: str
    """Shapes of the tensors that went in and came out: ``2x3, 4 -> 2x3``."""
    dtypes: str
    """Types of the tensors that went in and came out: ``float32, int64 -> float32``."""
    norm: float | None = None
    """Euclidean, of all floating outputs together."""
    draws: bool = False
    """Whether it may draw random numbers."""
    ulp: float | None = None
    """Its error against float64, see `samebits.trace.float64_reference`."""
    limit: float | None = None
    """The largest error that its class of operation may have, in ulp."""
    problem: str | None = None
    """Why its replay in float64 failed, where it did."""


class OperationLedger(DrawLog):
    """Writes down every operation of a ``with`` block, and every draw of random numbers."""

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        step: int = 0,
        norms: bool = True,
        reference: bool = False,
        wanted: Collection[int] = (),
        across_devices: bool = False,
    ) -> None:
        super().__init__(model, step=step)
        self.rows: list[OperationRow] = []
        self.outputs: dict[int, list[torch.Tensor]] = {}
        self._norms = norms
        self._reference = reference
        self._wanted = wanted
        self._digests = OperationDigests(across_devices=across_devices)

    def observe(self, call: Call) -> object:
        """Run one operation and write it down."""
        plan = plan_of(call.func)
        inputs = self._digests.of(inputs_of(call))
        reference = Reference.of(call, plan) if self._reference else None
        resizes = plan.resizes and is_plain(call.args[0])
        n_bytes_before = call.args[0].untyped_storage().nbytes() if resizes else 0
        returned: object = super().observe(call) if plan.draws else call.run()
        outputs: Digested | None = None
        if (plan.written or plan.replayable) and not resizes:
            values = plan.outputs(call.args, call.kwargs, returned)
            if plan.written:
                self._digests.mark_written(values)
            outputs = self._digests.of(values, computed=True)
        else:  # what is only viewed was digested before
            values = leaves_of(returned)
            if plan.allocates or resizes:
                self._digests.mark_unwritten(values, n_bytes_before)
        if len(self.rows) in self._wanted:
            tensors = [value for value in values if isinstance(value, torch.Tensor)]
            self.outputs[len(self.rows)] = [tensor.detach().clone() for tensor in tensors]
        self.rows.append(self._row(call, plan, inputs, outputs, values, reference))
        return returned

    def _row(
        self,
        call: Call,
        plan: ReplayPlan,
        inputs: Digested,
        outputs: Digested | None,
        values: list[object],
        reference: Reference | None,
    ) -> OperationRow:
        """The row of a call; without outputs where it computed nothing, as of a view."""
        error = None
        norm = None
        if outputs is not None:
            error = None if reference is None else reference.error(values)
            norm = _norm(values) if self._norms else None
        return OperationRow(
            step=self._step,
            index=len(self.rows),
            op=call.site.op,
            module=call.site.module,
            source=call.site.source,
            phase=call.site.phase,
            inputs=inputs.digest,
            outputs="" if outputs is None else outputs.digest,
            shapes=inputs.shapes if outputs is None else f"{inputs.shapes} -> {outputs.shapes}",
            dtypes=inputs.dtypes if outputs is None else f"{inputs.dtypes} -> {outputs.dtypes}",
            norm=norm,
            draws=plan.draws,
            ulp=None if error is None else error.ulp,
            limit=None if error is None else error.limit,
            problem=None if reference is None else reference.problem,
        )


def _norm(outputs: list[object]) -> float | None:
    """Euclidean norm of all floating outputs together: float32 sums are enough for a size."""
    square = None
    for value in outputs:
        if not isinstance(value, torch.Tensor):
            continue
        if not value.is_floating_point() or value.is_meta:
            continue
        if value.requires_grad:
            value = value.detach()
        if value.dtype.itemsize < 4:
            value = value.float()
        try:
            norm = float(torch.linalg.vector_norm(value))
        except RuntimeError:  # in parts, or laid out by a different library
            return None
        square = norm**2 if square is None else square + norm**2
    return None if square is None else square**0.5
