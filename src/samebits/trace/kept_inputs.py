"""What an operation overwrites and draws from, kept so that it can be executed again."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from samebits import torch_internals
from samebits.trace.observer import Call
from samebits.trace.replay_plan import ReplayPlan, inputs_of, is_plain

_LINE = 64  # bytes to which PyTorch aligns memory; libraries may add in a different order off it


def bytes_of(storage: Any) -> torch.Tensor:
    """A storage as a tensor of bytes: uint8, one axis."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def seen_on(view: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """The same view of a copy of its storage, given as bytes."""
    tensor = torch.empty(0, dtype=view.dtype, device=view.device)
    offset = int(view.storage_offset()) + memory.storage_offset() // view.element_size()
    tensor.set_(memory.untyped_storage(), offset, view.size(), view.stride())
    tensor = tensor.conj() if view.is_conj() else tensor
    return torch_internals.negative_view(tensor) if view.is_neg() else tensor


def _copy(memory: torch.Tensor) -> torch.Tensor:
    """The same bytes once more, as they lie to the lines of memory."""
    if not memory.is_cpu:
        return memory.clone()
    begin = memory.data_ptr() % _LINE // 16 * 16  # 16 bytes: the largest item
    copy = torch.empty(begin + memory.nbytes, dtype=torch.uint8, device="cpu")[begin:]
    # Not PyTorch's copy: waiting for its threads costs more than the second one brings.
    ctypes.memmove(copy.data_ptr(), memory.data_ptr(), memory.nbytes)
    return copy


class Before:
    """Memory that an operation will overwrite, and generator states, kept to execute it again.

    ``instead`` has other contents for some storages, by their number.
    """

    def __init__(
        self, call: Call, plan: ReplayPlan, instead: Mapping[int, torch.Tensor] | None = None
    ) -> None:
        self.complete = True  # if not, it writes into what cannot be copied as plain memory
        self.kept = dict(instead or {})  # bytes, by storage
        self.copies: dict[int, torch.Tensor] = {}  # given in its place by `again`
        self._call = call
        for tensor in plan.overwritten(call.args, call.kwargs):
            if is_plain(tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.kept:
                    self.kept[storage._cdata] = _copy(bytes_of(storage))
            elif isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                self.complete = False
        # An argument that shares memory with a written one has to share the copy too. Views are
        # those of now: an operation may make its output larger.
        self._views = {
            id(leaf): leaf.detach()
            for leaf in filter(is_plain, inputs_of(call))
            if leaf.untyped_storage()._cdata in self.kept
        }
        self._generators = list(_generators(call, plan)) if plan.draws else []
        self._states = [get() for get, _ in self._generators]
        self._after: list[Any] = []

    def again(self) -> tuple[tuple, dict[str, Any]]:
        """The same arguments, with fresh copies of what is written, and the generators put back."""
        self._after = self._after or [get() for get, _ in self._generators]
        self.copies = {key: _copy(kept) for key, kept in self.kept.items()}
        self._put(self._states)

        def copied(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [copied(item) for item in value]
            view = self._views.get(id(value))
            if view is None:
                return value
            return seen_on(view, self.copies[view.untyped_storage()._cdata])

        kwargs = {name: copied(value) for name, value in self._call.kwargs.items()}
        return tuple(map(copied, self._call.args)), kwargs

    def finish(self) -> None:
        """Leave the generators as the operation itself left them."""
        self._put(self._after)

    def _put(self, states: list[Any]) -> None:
        for (_, put), state in zip(self._generators, states, strict=False):
            put(state)


def _generators(
    call: Call, plan: ReplayPlan
) -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Getters and setters of the generators that an operation may draw from."""
    leaves = inputs_of(call)
    generators = [leaf for leaf in leaves if isinstance(leaf, torch.Generator)]
    if not generators:
        generators = [torch.default_generator]
        for device in devices_of(leaves):
            if device.type == "mps":
                generators.append(torch.mps._get_default_mps_generator())
            elif device.type not in ("cpu", "meta"):
                module = torch.get_device_module(device)  # cuda and xpu
                index = module.current_device() if device.index is None else device.index
                generators.append(module.default_generators[index])
    yield from ((generator.get_state, generator.set_state) for generator in generators)
    if plan.guarded:
        yield random.getstate, random.setstate
        yield np.random.get_state, np.random.set_state


def devices_of(leaves: Iterable[Any]) -> set[torch.device]:
    """The devices of tensors among the leaves, and the leaves that are devices."""
    devices = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
    return devices | {leaf for leaf in leaves if isinstance(leaf, torch.device)}
