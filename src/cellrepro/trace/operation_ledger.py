"""The operation ledger: every dispatched operation of a step, with digests of what went in and out.

An output is digested when it is made. An input was the output of an earlier operation, so its
digest is remembered by the memory it lies in, as long as that memory lives and nothing was written
into it; what is not known is digested. What is written past PyTorch, as by NumPy into memory that
both share, is not seen.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.store.bits import in_one_stretch
from cellrepro.store.digests import tensor_digest
from cellrepro.trace.float64 import Reference
from cellrepro.trace.observer import Call
from cellrepro.trace.random_draws import Draw, DrawLog
from cellrepro.trace.reexecution import inputs_of, is_plain, leaves_of, plan_of
from cellrepro.trace.training_steps import Watch


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation as it ran."""

    step: int  # from 0
    index: int  # order within the step, from 0
    op: str  # this and the next three as in `cellrepro.store.manifest.Place`
    module: str | None
    source: str | None
    phase: str
    inputs: str  # digest of all but devices, 32 hex digits
    outputs: str  # digest of all that it computed and wrote; empty for views and where nothing came
    shapes: str  # of the tensors that went in and came out: ``2x3, 4 -> 2x3``
    dtypes: str
    norm: float | None = None  # Euclidean, of all floating outputs together
    draws: bool = False  # it may draw random numbers
    ulp: float | None = None  # its error against float64, see `cellrepro.trace.float64`
    limit: float | None = None  # and what its class of operation may err
    problem: str | None = None  # why its replay in float64 failed, where it did


class OperationLedger(DrawLog):
    """Writes down every operation of a ``with`` block, and every draw of random numbers.

    Every row is given ``step``. ``norms`` are a quarter of the cost; ``reference`` replays every
    operation in float64 on its own inputs, which is slow; `kept` holds copies of the outputs of the
    operations ``wanted``, by their index.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        step: int = 0,
        norms: bool = True,
        reference: bool = False,
        wanted: Collection[int] = (),
    ) -> None:
        super().__init__(model, step=step)
        self.kept: dict[int, list[torch.Tensor]] = {}
        self._norms, self._reference, self._wanted = norms, reference, wanted
        self.rows: list[OperationRow] = []
        self._known = _Known()

    def observe(self, call: Call) -> Any:
        """Run one operation and write it down."""
        plan, known, place, index = plan_of(call.func), self._known, call.place, len(self.rows)
        inputs, shapes, dtypes = known.digest(inputs_of(call))
        reference = Reference.of(call, plan) if self._reference else None
        resizes = place.op.startswith(("aten.resize_.", "aten.resize_as_."))
        resizes = resizes and is_plain(call.args[0])
        n_written = call.args[0].untyped_storage().nbytes() if resizes else 0
        returned = super().observe(call) if plan.draws else call.run()
        outputs, norm = "", None
        error: Any = None, None
        if (plan.written or plan.replayable) and not resizes:
            values = plan.outputs(call.args, call.kwargs, returned)
            if plan.written:
                known.written(values)
            outputs, shapes_out, dtypes_out = known.digest(values, computed=True)
            shapes, dtypes = f"{shapes} -> {shapes_out}", f"{dtypes} -> {dtypes_out}"
            norm = _norm(values) if self._norms else None
            error = error if reference is None else reference.error(values) or error
        else:  # what is only viewed was digested before
            values = leaves_of([returned])
            if plan.allocates or resizes:
                known.handed_out(values, n_written)
        if index in self._wanted:
            self.kept[index] = [v.detach().clone() for v in values if isinstance(v, torch.Tensor)]
        row: tuple[Any, ...] = (
            *(self._step, index, place.op, place.module, place.source, place.phase),
            *(inputs, outputs, shapes, dtypes, norm, plan.draws, *error),
            None if reference is None else reference.problem,
        )
        self.rows.append(OperationRow(*row))
        return returned


class OperationWatch(Watch):
    """Keeps the operation ledgers, rows and draws, of chosen steps; of all by default.

    In chosen steps each operation is also held against float64, which is slow.
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


# -- digests -------------------------------------------------------------------------------

_SMALL = 1 << 14  # bytes, up to which a digest is cheaper than remembering it
MOST_REMEMBERED = 4096  # storages, before those that are gone are forgotten
_SAID_WHOLE = (  # types whose text is their value; of other things it may hold an address
    *(int, float, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format),
)


class _Known:
    """Digests of memory, remembered while the memory lives and is not written into."""

    def __init__(self) -> None:
        # By storage: a weak reference, which keeps its number from being given again, and the
        # digests of stretches of it, by first byte and length, or by view.
        self._held: dict[int, tuple[StorageWeakRef, dict[tuple[Any, ...], bytes]]] = {}
        # By storage: how many bytes have not been written yet.
        self._unwritten: dict[int, tuple[StorageWeakRef, int]] = {}

    def written(self, values: Iterable[Any]) -> None:
        """What an operation wrote into is not what it was."""
        for value in filter(is_plain, values):
            storage = value.untyped_storage()
            self._held.pop(storage._cdata, None)
            alive, n_bytes = self._unwritten.pop(storage._cdata, (None, 0))
            if alive is not None and n_bytes > value.nbytes:
                self._unwritten[storage._cdata] = alive, n_bytes - value.nbytes

    def handed_out(self, values: Iterable[Any], n_written: int) -> None:
        """Memory that nobody has written into, but for so many bytes: it is not digested."""
        for storage in [value.untyped_storage() for value in filter(is_plain, values)]:
            _, n_bytes = self._unwritten.get(storage._cdata, (None, 0))
            n_bytes += storage.nbytes() - n_written
            if n_bytes > 0:
                self._unwritten[storage._cdata] = StorageWeakRef(storage), n_bytes

    def digest(self, values: list[Any], *, computed: bool = False) -> tuple[str, str, str]:
        """One digest of several values, in order, and the shapes and dtypes of the tensors.

        What was just computed has been written, also where the memory around it has not.
        """
        parts: list[bytes] = []
        shapes: list[str] = []
        dtypes: list[str] = []
        for value in values:
            if not isinstance(value, torch.Tensor):
                if not isinstance(value, torch.device):  # where it runs is no input
                    text = repr(value) if isinstance(value, _SAID_WHOLE) else type(value).__name__
                    parts.append(text.encode())
                continue
            dense = in_one_stretch(value)
            size = () if value.is_nested else value.shape
            header, shape, dtype = _kind(value.dtype, size, value.stride() if dense else None)
            shapes.append(shape)
            dtypes.append(dtype)
            parts.append(header)
            key = value.untyped_storage()._cdata if self._unwritten and is_plain(value) else None
            if key in self._unwritten and not computed:
                parts.append(b"unwritten")
            elif not value.is_meta:
                parts.append(self._memory(value, dense))
        return xxhash.xxh3_128_hexdigest(b";".join(parts)), ", ".join(shapes), ", ".join(dtypes)

    def _memory(self, tensor: torch.Tensor, dense: bool) -> bytes:
        """Digest of the memory of a tensor, or of its values where there are gaps in it."""
        if not (dense or is_plain(tensor)) or tensor.nbytes <= _SMALL:
            return _digest(tensor, dense)
        storage = tensor.untyped_storage()
        held = self._held.get(storage._cdata)
        if held is None:
            if len(self._held) >= MOST_REMEMBERED:
                self._held = {k: one for k, one in self._held.items() if not one[0].expired()}
            held = self._held[storage._cdata] = (StorageWeakRef(storage), {})
        view: tuple[Any, ...] = tensor.data_ptr() - storage.data_ptr(), tensor.nbytes
        if not dense:
            view += tensor.shape, tensor.stride(), tensor.dtype, tensor.is_neg(), tensor.is_conj()
        if view not in held[1]:
            held[1][view] = _digest(tensor, dense)
        return held[1][view]


def _digest(tensor: torch.Tensor, dense: bool) -> bytes:
    if not dense:
        return tensor_digest(tensor).encode()
    return xxhash.xxh3_128_digest((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()))


@functools.lru_cache(maxsize=4096)
def _kind(dtype: torch.dtype, size: Any, strides: Any) -> tuple[bytes, str, str]:
    """What a kind of tensor adds to a digest, its shape and its dtype in words."""
    name = str(dtype).removeprefix("torch.")
    return f"{name}{tuple(size)}{strides}".encode(), "x".join(map(str, size)) or "1", name


def _norm(outputs: list[Any]) -> float | None:
    """Euclidean norm of all floating outputs together: float32 sums are enough for a size."""
    tensors = [value.detach() for value in outputs if isinstance(value, torch.Tensor)]
    floating = [value for value in tensors if value.is_floating_point() and not value.is_meta]
    wide = [value if value.dtype.itemsize >= 4 else value.float() for value in floating]
    try:
        squares = [float(torch.linalg.vector_norm(value)) ** 2 for value in wide]
    except RuntimeError:  # in parts, or laid out by another library
        return None
    return sum(squares) ** 0.5 if squares else None
