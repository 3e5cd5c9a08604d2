"""The state that a training step starts from: kept, compared after a run, put back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from cellrepro.determinism.generator_states import capture, restore
from cellrepro.digests.same_bits import same_bits
from cellrepro.digests.tensor_digests import generator_digests
from cellrepro.errors import BadInput
from cellrepro.trace.replay_plan import is_plain
from cellrepro.trace.stateful_parts import has_state, way_back
from cellrepro.trace.step_reach import Binding, Reached, alive, bindings_of, parameters_of

_MOST_BYTES = 1 << 26  # of a tensor that is no weight: what is larger is data


class _Registered(NamedTuple):
    """A tensor of a module, in the dict that holds it: a step may put another one there."""

    held: dict[str, Any]
    name: str
    tensor: torch.Tensor
    kept: torch.Tensor


class _LooseTensor(NamedTuple):
    """A tensor of no module: a parameter, or what the step may write into."""

    name: str
    tensor: torch.Tensor
    kept: torch.Tensor


class _Bound(NamedTuple):
    """A binding with the weights that it had: a step may bind others."""

    binding: Binding
    kept: Any


class StepState:
    """Everything a step starts from: parts that are given, objects that it reaches, generators."""

    def __init__(self, parts: Iterable[Any], reached: list[Reached]) -> None:
        self._modules: list[torch.nn.Module] = []  # none inside another
        self._others: list[Any] = []
        self._registered: list[_Registered] = []
        self._parameters: list[_LooseTensor] = []  # of optimizers, or by themselves
        self._tensors: list[_LooseTensor] = []  # what is no parameter; a result if it was written
        self._gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self._training: list[tuple[torch.nn.Module, bool]] = []
        self._ways_back: list[Callable[[], None]] = []
        self._known: dict[int, Any] = {}  # also so that no number is used again
        self._hidden: dict[int, Any] = {}
        stateful = [one.value for one in reached if has_state(one.value)]
        for part in (*parts, *stateful):
            self._keep(part)
        for one in reached:
            if isinstance(one.value, torch.Tensor):
                self._keep_tensor(one.name, one.value)
        self._bound = list(_bound(reached))
        self._keep_hidden_parts()
        self._generators = capture()

    @property
    def is_empty(self) -> bool:
        """Whether no network, optimizer or parameter was found."""
        return not (self._modules or self._others or self._parameters)

    def keep_hidden(self, optimizer: Any) -> bool:
        """Keep an optimizer that is about to step; False for one that was made in the step."""
        if id(optimizer) in self._hidden:
            schedules = [
                one
                for one in self._hidden.values()
                if isinstance(one, torch.optim.lr_scheduler.LRScheduler)
                and one.optimizer is optimizer
            ]
            for part in (optimizer, *schedules):
                self._keep(part)
        return id(optimizer) in self._known

    def _keep_hidden_parts(self) -> None:
        """Keep what a step changes, before an update, of networks that no name leads to.

        Gradients, buffers and training flags. Weights are kept when their optimizer is about to
        step, for few of these objects belong to the step.
        """
        for one in alive():
            if isinstance(one, torch.nn.Module):
                self._training.append((one, one.training))
            if id(one) in self._known:
                continue
            self._hidden[id(one)] = one
            if isinstance(one, torch.nn.Module):
                for name, buffer in one._buffers.items():
                    if buffer is not None:
                        self._keep_tensor(f"{type(one).__name__} {name}", buffer)
                for own_parameter in one._parameters.values():
                    if own_parameter is not None:
                        self._keep_gradient(own_parameter)
            for parameter in parameters_of(one):
                self._keep_gradient(parameter)

    def _keep(self, part: Any) -> None:
        if id(part) in self._known:
            return
        self._known[id(part)] = part
        if isinstance(part, torch.nn.Module):
            self._keep_module(part)
            return
        self._others.append(part)
        for index, parameter in enumerate(parameters_of(part)):
            self._keep_parameter(f"{type(part).__name__}.{index}", parameter)
        self._ways_back.append(way_back(part))

    def _keep_module(self, model: torch.nn.Module) -> None:
        _check_parameters(model)
        self._modules = [one for one in self._modules if one not in set(model.modules())]
        self._modules.append(model)
        for module in model.modules():
            if module is not model and id(module) in self._known:
                continue  # with all that is inside it
            self._known[id(module)] = module
            for held in (module._parameters, module._buffers):
                for name, tensor in held.items():
                    if tensor is not None and id(tensor) not in self._known:
                        self._known[id(tensor)] = tensor
                        kept = tensor.detach().clone()
                        self._registered.append(_Registered(held, name, tensor, kept))
            for parameter in module._parameters.values():
                if parameter is not None:
                    self._keep_gradient(parameter)

    def _keep_parameter(self, name: str, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._known:
            self._known[id(tensor)] = tensor
            self._parameters.append(_LooseTensor(name, tensor, tensor.detach().clone()))
            self._keep_gradient(tensor)

    def _keep_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Keep a tensor by itself, but not what another one was computed from, or large data."""
        if not is_plain(tensor) or tensor.is_inference() or tensor.grad_fn is not None:
            return
        if tensor.requires_grad:
            self._keep_parameter(name, tensor)
        elif id(tensor) not in self._known and tensor.nbytes <= _MOST_BYTES:
            self._known[id(tensor)] = tensor
            self._tensors.append(_LooseTensor(name, tensor, tensor.clone()))

    def _keep_gradient(self, parameter: torch.Tensor) -> None:
        self._gradients.setdefault(id(parameter), (parameter, copy.deepcopy(parameter.grad)))

    def put_back(self) -> None:
        """Make everything as it was when it was kept."""
        with torch.no_grad():
            for held, name, tensor, kept in self._registered:
                held[name] = tensor
                _write(tensor, kept)
            for _, tensor, kept in (*self._parameters, *self._tensors):
                _write(tensor, kept)
        for binding, kept in self._bound:
            if binding.read() is not kept:
                binding.write(kept)
        for parameter, gradient in self._gradients.values():
            parameter.grad = copy.deepcopy(gradient)
        for module, training in self._training:
            module.training = training
        for go_back in self._ways_back:
            go_back()
        restore(self._generators)

    def has_changed(self) -> bool:
        """Whether any tensor is not as it was kept."""
        tensors: list[Any] = [(held[name], kept) for held, name, _, kept in self._registered]
        tensors += [(tensor, kept) for _, tensor, kept in (*self._parameters, *self._tensors)]
        tensors += [(parameter.grad, kept) for parameter, kept in self._gradients.values()]
        if not all(same_bits(now, kept) for now, kept in tensors):
            return True
        return any(not _same_tensors(now, kept) for _, now, kept in self._bound_anew())

    def _bound_anew(self) -> Iterator[tuple[str, Any, Any]]:
        """The bindings of other weights than before: name, weights now, weights before."""
        for binding, kept in self._bound:
            now = binding.read()
            if now is not kept:
                yield binding.name, now, kept

    def results(self, loss: Any) -> Iterator[tuple[str, Any]]:
        """Every tensor and number that a step gave, by name."""
        modules = self._modules
        model = modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)
        own = {id(parameter) for parameter in model.parameters()}
        alone = [(name, one) for name, one, _ in self._parameters if id(one) not in own]
        yield from flat(loss, "loss")
        for name, parameter in (*model.named_parameters(), *alone):
            yield from flat(parameter.grad, f"gradient {name}")
        for name, tensor in (*model.named_parameters(), *model.named_buffers(), *alone):
            yield from flat(tensor, f"weights {name}")
        for name, tensor, kept in self._tensors:
            if not same_bits(tensor, kept):
                yield from flat(tensor, f"tensor {name}")
        for name, now, _ in self._bound_anew():
            yield from flat(now, f"weights {name}")
        for item in self._others:
            if isinstance(item, torch.optim.Optimizer):
                yield from flat(item.state_dict()["state"], "optimizer")
            else:
                yield from flat(item.state_dict(), type(item).__name__)
        yield "generators", repr(generator_digests())


def _check_parameters(model: torch.nn.Module) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if torch.nn.parameter.is_lazy(tensor):
            raise BadInput(
                f"{name} of the network is not made before its first pass; run one batch through "
                "it, and then check the step"
            )
        if tensor.is_inference():
            raise BadInput(
                f"{name} of the network was made in inference mode and cannot be trained or put "
                "back; make the network outside of torch.inference_mode()"
            )


def _bound(reached: Iterable[Reached]) -> Iterator[_Bound]:
    """The bindings of weights: a step that computes new ones binds them there."""
    for one in reached:
        for binding in bindings_of(one):
            kept = binding.read()
            if _are_weights(kept):
                yield _Bound(binding, kept)


def _are_weights(value: Any) -> bool:
    """Whether a value is a tensor that is trained, or a plain container with one."""
    if isinstance(value, torch.Tensor):
        return value.requires_grad and value.is_leaf
    if type(value) is dict:
        value = list(value.values())
    return type(value) in (list, tuple) and any(
        isinstance(item, torch.Tensor) and _are_weights(item) for item in value
    )


def _same_tensors(a: Any, b: Any) -> bool:
    tensors_a = dict(flat(a, ""))
    tensors_b = dict(flat(b, ""))
    return tensors_a.keys() == tensors_b.keys() and all(
        same_bits(tensor, tensors_b[name]) for name, tensor in tensors_a.items()
    )


def _write(tensor: torch.Tensor, kept: torch.Tensor) -> None:
    if not same_bits(tensor.detach(), kept):
        tensor.copy_(kept)


def flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Tensors, arrays of numbers as tensors, and numbers of a nested value, by their path."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{name} {key}")
    elif isinstance(value, torch.Tensor):
        yield name, value.detach()
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        yield name, torch.tensor(value.astype(value.dtype.newbyteorder("=")))
    elif isinstance(value, int | float | complex):
        yield name, value
