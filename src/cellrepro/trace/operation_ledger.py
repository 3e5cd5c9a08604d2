"""The operation ledger: every dispatched operation of a step, with digests of what went in and out.

An output is digested when it is made. An input was the output of an earlier operation, so its
digest is remembered by the memory it lies in, as long as that memory lives and nothing was written
into it; what is not known is digested. What is written past PyTorch, as by NumPy into memory that
both share, is not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import xxhash
from torch.multiprocessing.reductions import StorageWeakRef

from cellrepro.bits.digests import memory_digest, tensor_digest
from cellrepro.bits.same import in_one_stretch
from cellrepro.trace.float64_reference import Reference
from cellrepro.trace.observer import Call
from cellrepro.trace.random_draws import Draw, DrawLog
from cellrepro.trace.reexecution import inputs_of, is_plain, leaves_of, plan_of
from cellrepro.trace.watches import Watch


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation as it ran.

    Attributes
    ----------
    step, index : int
        The step, and the order within it, both from 0.
    op, module, source, phase : str or None
        As in `cellrepro.bits.site.Site`.
    inputs : str
        Digest of all but devices, 32 hex digits.
    outputs : str
        Digest of all that it computed and wrote; empty for views and where nothing came.
    shapes, dtypes : str
        Of the tensors that went in and came out: ``2x3, 4 -> 2x3``.
    norm : float or None
        Euclidean, of all floating outputs together.
    draws : bool
        Whether it may draw random numbers.
    ulp : float or None
        Its error against float64, see `cellrepro.trace.float64_reference`.
    limit : float or None
        What its class of operation may err, in ulp.
    problem : str or None
        Why its replay in float64 failed, where it did.
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
    problem: str | None = None


class OperationLedger(DrawLog):
    """Writes down every operation of a ``with`` block, and every draw of random numbers.

    Parameters
    ----------
    model : torch.nn.Module, optional
        Modules are named by their path in it.
    step : int
        Which every row is given.
    norms : bool
        Whether norms are computed, a quarter of the cost.
    reference : bool
        Whether every operation is replayed in float64 on its own inputs, which is slow.
    wanted : collection of int
        The operations, by their index, of whose outputs `kept` holds copies.

    Attributes
    ----------
    rows : list of OperationRow
        In the order in which operations ran.
    kept : dict of int to list of torch.Tensor
        Outputs of the operations wanted.
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
        self._norms = norms
        self._reference = reference
        self._wanted = wanted
        self.rows: list[OperationRow] = []
        self._known = _Known()

    def observe(self, call: Call) -> Any:
        """Run one operation and write it down."""
        plan = plan_of(call.func)
        known = self._known
        index = len(self.rows)
        inputs, shapes, dtypes = known.digest(inputs_of(call))
        reference = Reference.of(call, plan) if self._reference else None
        resizes = plan.resizes and is_plain(call.args[0])
        n_written = call.args[0].untyped_storage().nbytes() if resizes else 0
        returned = super().observe(call) if plan.draws else call.run()
        outputs = ""
        norm = None
        judged: tuple[float, float] | None = None
        if (plan.written or plan.replayable) and not resizes:
            values = plan.outputs(call.args, call.kwargs, returned)
            if plan.written:
                known.written(values)
            outputs, shapes_out, dtypes_out = known.digest(values, computed=True)
            shapes = f"{shapes} -> {shapes_out}"
            dtypes = f"{dtypes} -> {dtypes_out}"
            if self._norms:
                norm = _norm(values)
            if reference is not None:
                judged = reference.error(values)
        else:  # what is only viewed was digested before
            values = leaves_of(returned)
            if plan.allocates or resizes:
                known.handed_out(values, n_written)
        if index in self._wanted:
            self.kept[index] = [v.detach().clone() for v in values if isinstance(v, torch.Tensor)]
        ulp, limit = judged or (None, None)
        place = call.place
        self.rows.append(
            OperationRow(
                step=self._step,
                index=index,
                op=place.op,
                module=place.module,
                source=place.source,
                phase=place.phase,
                inputs=inputs,
                outputs=outputs,
                shapes=shapes,
                dtypes=dtypes,
                norm=norm,
                draws=plan.draws,
                ulp=ulp,
                limit=limit,
                problem=None if reference is None else reference.problem,
            )
        )
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
    int,
    float,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.layout,
    torch.memory_format,
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
            kind = _kind_of(value)
            shapes.append(kind.shape)
            dtypes.append(kind.dtype)
            parts.append(kind.header)
            if self._unwritten and not computed and self._is_unwritten(value):
                parts.append(b"unwritten")
            elif not value.is_meta:
                parts.append(self._memory(value, kind.dense))
        return xxhash.xxh3_128_hexdigest(b";".join(parts)), ", ".join(shapes), ", ".join(dtypes)

    def _is_unwritten(self, tensor: torch.Tensor) -> bool:
        return is_plain(tensor) and tensor.untyped_storage()._cdata in self._unwritten

    def _memory(self, tensor: torch.Tensor, dense: bool) -> bytes:
        """Digest of the memory of a tensor, or of its values where there are gaps in it."""
        if not (dense or is_plain(tensor)):  # in parts, which have no size together
            return _digest(tensor, dense)
        n_bytes = tensor.nbytes
        if n_bytes <= _SMALL:
            return _digest(tensor, dense)
        storage = tensor.untyped_storage()
        held = self._held.get(storage._cdata)
        if held is None:
            if len(self._held) >= MOST_REMEMBERED:
                self._held = {k: one for k, one in self._held.items() if not one[0].expired()}
            held = self._held[storage._cdata] = (StorageWeakRef(storage), {})
        view: tuple[Any, ...] = tensor.data_ptr() - storage.data_ptr(), n_bytes
        if not dense:
            view += tensor.shape, tensor.stride(), tensor.dtype, tensor.is_neg(), tensor.is_conj()
        digests = held[1]
        if view not in digests:
            digests[view] = _digest(tensor, dense)
        return digests[view]


def _digest(tensor: torch.Tensor, dense: bool) -> bytes:
    if not dense:
        return tensor_digest(tensor).encode()
    return memory_digest(tensor.data_ptr(), tensor.nbytes)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a kind of tensor adds to a digest, and its shape and dtype in words."""

    header: bytes
    shape: str
    dtype: str
    dense: bool  # its elements fill one stretch of the processor's memory


_ORDINARY = (torch.Tensor, torch.nn.Parameter)
_KINDS: dict[tuple[Any, ...], _Kind] = {}
_MOST_KINDS = 4096


def _kind_of(tensor: torch.Tensor) -> _Kind:
    """The kind of a tensor, made once for each dtype, shape and layout."""
    strides = None  # of a tensor that does not lie in the processor's memory as it is
    size: Any = ()  # a nested tensor has none
    if not tensor.is_nested:
        size = tensor.shape
        if (
            type(tensor) in _ORDINARY
            and tensor.is_cpu
            and tensor.layout is torch.strided
            and not tensor.is_neg()
            and tensor.data_ptr() != 0
        ):
            strides = tensor.stride()
    key = (tensor.dtype, size, strides)
    kind = _KINDS.get(key)
    if kind is None:
        if len(_KINDS) >= _MOST_KINDS:
            _KINDS.clear()
        dense = in_one_stretch(tensor)
        name = str(tensor.dtype).removeprefix("torch.")
        header = f"{name}{tuple(size)}{strides if dense else None}".encode()
        kind = _KINDS[key] = _Kind(header, "x".join(map(str, size)) or "1", name, dense)
    return kind


def _norm(outputs: list[Any]) -> float | None:
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
        except RuntimeError:  # in parts, or laid out by another library
            return None
        square = norm**2 if square is None else square + norm**2
    return None if square is None else square**0.5
