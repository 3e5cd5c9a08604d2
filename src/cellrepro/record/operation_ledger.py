"""The operation ledger: every dispatched operation of a step, with digests of what went in and out.

An output is digested when it is made. An input was the output of an earlier operation, so its
digest is remembered by the memory it lies in, as long as that memory lives and nothing was written
into it; what is not known is digested.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.record.bits import in_one_stretch
from cellrepro.record.digests import tensor_digest
from cellrepro.record.draws import Draw, DrawLog, to_rows
from cellrepro.record.operations import Call, Place
from cellrepro.record.reference import Judged, Reference, judge
from cellrepro.record.replay import Plan, leaves_of
from cellrepro.record.watching import Watch


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation as it ran.

    Attributes
    ----------
    step : int
        From 0.
    index : int
        Order within the step, from 0.
    op, module, source, phase
        As in `cellrepro.record.operations.Place`.
    inputs : str
        Digest of all inputs but devices, 32 hex digits.
    outputs : str
        Digest of all that it computed and wrote, 32 hex digits; empty for views and where nothing
        came out.
    shapes, dtypes : str
        Of the tensors that went in and came out: ``2x3, 4 -> 2x3``.
    norm : float or None
        Euclidean norm of all floating outputs together.
    draws : bool
        Whether it may draw random numbers.
    ulp, limit : float or None
        Its error against a float64 replay of its own inputs, in units in the last place, and
        what its class of operation may err; none where that was not asked for or makes no sense.
    """

    step: int
    index: int
    op: str
    module: str | None
    source: str | None
    phase: str
    inputs: str
    outputs: str
    shapes: str
    dtypes: str
    norm: float | None = None
    draws: bool = False
    ulp: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class DrawRow:
    """One use of a global generator in a step; the fields of `cellrepro.record.draws.Draw`."""

    step: int
    index: int
    generator: str
    n: int | None
    what: str
    source: str | None
    module: str | None
    phase: str | None

    def draw(self) -> Draw:
        """Without its step."""
        return Draw(
            *(self.index, self.generator, self.n, self.what),
            *(self.source, self.module, self.phase),
        )


class OperationLedger(DrawLog):
    """Writes down every operation of a ``with`` block, and every draw of random numbers.

    Parameters
    ----------
    model : torch.nn.Module, optional
        See `Observer`.
    step : int
        Given to every row.
    norms : bool
        Norms of outputs; a quarter of the cost.
    reference : bool
        Replay every operation in float64 on its own inputs and measure its error; slow.
    wanted : int, optional
        Keep the tensors of this one operation, by its order, in `kept`.

    Attributes
    ----------
    rows : list of OperationRow
    draws : list of Draw
    kept : dict
        ``inputs`` and ``outputs`` of the wanted operation, lists of tensors (copies).
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        step: int = 0,
        norms: bool = True,
        reference: bool = False,
        wanted: int | None = None,
    ) -> None:
        super().__init__(model)
        self.rows: list[OperationRow] = []
        self.kept: dict[str, list[torch.Tensor]] = {}
        self._step, self._norms, self._reference, self._wanted = step, norms, reference, wanted
        self._known = _Known()
        self._plans: dict[Any, Plan] = {}

    def __exit__(self, *exception: Any) -> None:
        """Stop watching and hold no memory of the step."""
        super().__exit__(*exception)
        self._known = _Known()

    def observe(self, call: Call) -> Any:
        """Run one operation and write it down."""
        plan = self._plans.get(call.func)
        if plan is None:
            plan = self._plans[call.func] = Plan.of(call.func)
        known, place, index = self._known, call.place, len(self.rows)
        given = leaves_of([*call.args, *call.kwargs.values()])
        inputs = known.digest(given, unwritten=_untouched(plan, call))
        reference = Reference.of(call, plan) if self._reference else None
        wanted = index == self._wanted
        if wanted:
            self.kept["inputs"] = _copies(given)
        returned = super().observe(call) if plan.draws else call.run()
        computed = bool(plan.fresh or plan.written) and not _uninitialised(plan, place)
        outputs = plan.outputs(call.args, call.kwargs, returned) if computed else []
        known.forget(outputs)
        if wanted:
            self.kept["outputs"] = _copies(outputs)
        judged = judge(call, reference, outputs) if reference is not None else None
        self.rows.append(
            self._row(place, index, given, inputs, outputs, draws=plan.draws, judged=judged)
        )
        return returned

    def _row(
        self,
        place: Place,
        index: int,
        given: list[Any],
        inputs: str,
        outputs: list[Any],
        *,
        draws: bool,
        judged: Judged | None,
    ) -> OperationRow:
        shapes, dtypes = zip(_described(given), _described(outputs), strict=True)
        return OperationRow(
            step=self._step,
            index=index,
            op=place.op,
            module=place.module,
            source=place.source,
            phase=place.phase,
            inputs=inputs,
            outputs=self._known.digest(outputs) if outputs else "",
            shapes=" -> ".join(shapes),
            dtypes=" -> ".join(dtypes),
            norm=_norm(outputs) if self._norms else None,
            draws=draws,
            ulp=None if judged is None else judged.ulp,
            limit=None if judged is None else judged.limit,
        )


class OperationWatch(Watch):
    """Keeps an operation ledger of chosen steps.

    Parameters
    ----------
    network : torch.nn.Module
    steps : iterable of int, optional
        Which steps, from 0; all by default.
    options
        For `OperationLedger`.

    Attributes
    ----------
    rows : list of OperationRow
        Of all watched steps so far.
    draws : list of DrawRow
        Of the same steps.
    """

    def __init__(
        self, network: torch.nn.Module, *, steps: Iterable[int] | None = None, **options: Any
    ) -> None:
        self._network, self._options = network, options
        self._steps = None if steps is None else frozenset(steps)
        self.rows: list[OperationRow] = []
        self.draws: list[DrawRow] = []

    @contextmanager
    def step(self, step: int, epoch: int) -> Iterator[None]:  # noqa: D102
        if self._steps is not None and step not in self._steps:
            yield
            return
        ledger = OperationLedger(self._network, step=step, **self._options)
        with ledger:
            yield
        self.rows += ledger.rows
        self.draws += [DrawRow(step, **row) for row in to_rows(ledger.draws)]


class _Known:
    """Digests of memory, remembered while the memory lives and is not written into."""

    _MOST = 4096

    def __init__(self) -> None:
        # By storage: a weak reference, which keeps its number from being given again, and the
        # digests of stretches of it, by first byte and length.
        self._held: dict[int, tuple[StorageWeakRef, dict[tuple[int, int], bytes]]] = {}

    def forget(self, outputs: Iterable[Any]) -> None:
        """What an operation wrote is not what it was."""
        for value in outputs:
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                try:
                    self._held.pop(value.untyped_storage()._cdata, None)
                except (NotImplementedError, RuntimeError):  # a wrapper without memory of its own
                    continue

    def digest(self, values: list[Any], *, unwritten: bool = True) -> str:
        """One digest of several values, in order: 32 hex digits."""
        whole = xxhash.xxh3_128()
        for value in values:
            if isinstance(value, torch.device):
                continue  # where it runs is no part of what it is asked
            if not isinstance(value, torch.Tensor):
                whole.update(repr(value).encode() + b";")
            elif in_one_stretch(value):
                meta = f"{value.dtype}{tuple(value.shape)}{value.stride()};"
                whole.update(meta.encode())
                whole.update(self._memory(value, remember=unwritten))
            elif value.is_meta:
                whole.update(f"{value.dtype}{tuple(value.shape)}meta;".encode())
            else:
                whole.update(tensor_digest(value).encode())
        return whole.hexdigest()

    def _memory(self, tensor: torch.Tensor, *, remember: bool) -> bytes:
        n_bytes = tensor.nbytes
        if n_bytes <= _SMALL:
            return _bytes_digest(tensor.data_ptr(), n_bytes)
        storage = tensor.untyped_storage()
        held = self._held.get(storage._cdata)
        stretch = (tensor.data_ptr() - storage.data_ptr(), n_bytes)
        if held is not None and stretch in held[1]:
            return held[1][stretch]
        digest = _bytes_digest(tensor.data_ptr(), n_bytes)
        if remember:
            if held is None:
                if len(self._held) >= self._MOST:
                    self._sweep()
                held = self._held[storage._cdata] = (StorageWeakRef(storage), {})
            held[1][stretch] = digest
        return digest

    def _sweep(self) -> None:
        self._held = {key: held for key, held in self._held.items() if not held[0].expired()}


_SMALL = 1 << 12  # bytes, up to which a digest is cheaper than remembering it


def _bytes_digest(address: int, n_bytes: int) -> bytes:
    return xxhash.xxh3_128_digest((ctypes.c_char * n_bytes).from_address(address))


def _untouched(plan: Plan, call: Call) -> bool:
    """Whether an operation leaves its inputs as they are, so that their digests stay true."""
    return not plan.written


def _uninitialised(plan: Plan, place: Place) -> bool:
    return not plan.replayable and not plan.written


def _copies(values: Iterable[Any]) -> list[torch.Tensor]:
    return [value.detach().clone() for value in values if isinstance(value, torch.Tensor)]


def _described(values: list[Any]) -> tuple[str, str]:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    shapes = ", ".join("x".join(map(str, tensor.shape)) or "1" for tensor in tensors)
    dtypes = ", ".join(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
    return shapes, dtypes


def _norm(outputs: list[Any]) -> float | None:
    total, seen = 0.0, False
    for value in outputs:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not value.is_meta:
            total += float(torch.linalg.vector_norm(value.detach(), dtype=torch.float64)) ** 2
            seen = True
    return total**0.5 if seen else None
