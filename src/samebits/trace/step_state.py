"""The state that a training step starts from: kept, compared after a run, put back."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from samebits.bit_equality import same_bits
from samebits.errors import BadInput
from samebits.generator_digests import generator_digests
from samebits.generator_states import capture, restore
from samebits.trace.replay_plan import is_plain
from samebits.trace.stateful_parts import alive, has_state, parameters_of, way_back
from samebits.trace.step_reach import Binding, Reached, bindings_of

_MOST_BYTES = 2**26
"""The largest tensor that is kept if it is no weight; what is larger is taken for data."""


@dataclass(frozen=True)
class _KeptTensor:
    """A tensor, and the values that it had."""

    name: str
    tensor: torch.Tensor
    values: torch.Tensor
    is_weight: bool
    """Whether it is a tensor of a module or an optimizer, or one that is trained."""
    registry: dict[str, Any] | None = None
    """The module's dictionary that holds it by its name, where a step may put another tensor; None
    if it is no module's."""

    @property
    def present(self) -> torch.Tensor:
        """The tensor that is now in its place."""
        return self.tensor if self.registry is None else self.registry[self.name]

    def put_back(self) -> None:
        if self.registry is not None:
            self.registry[self.name] = self.tensor
        if not same_bits(self.tensor.detach(), self.values):
            self.tensor.copy_(self.values)


@dataclass(frozen=True)
class _KeptGradient:
    """A parameter, and the gradient that it had."""

    parameter: torch.Tensor
    gradient: torch.Tensor | None

    def put_back(self) -> None:
        self.parameter.grad = copy.deepcopy(self.gradient)


@dataclass(frozen=True)
class _KeptBinding:
    """A variable, item or attribute, and the weights that were bound to it."""

    binding: Binding
    weights: Any

    @property
    def is_as_it_was(self) -> bool:
        return self.binding.read() is self.weights

    def put_back(self) -> None:
        if not self.is_as_it_was:
            self.binding.write(self.weights)


class StepState:
    """Everything a step starts from: parts that are given, objects that it reaches, generators."""

    def __init__(self, parts: Iterable[Any], reached: list[Reached]) -> None:
        self._modules: list[torch.nn.Module] = []  # none inside another
        self._other_parts: list[Any] = []  # optimizers, schedulers, scalers
        self._tensors: list[_KeptTensor] = []
        self._gradients: dict[int, _KeptGradient] = {}  # by the id of the parameter
        self._bindings = [
            _KeptBinding(binding, binding.read())
            for one in reached
            for binding in bindings_of(one)
            if _are_weights(binding.read())
        ]
        self._ways_back: list[Callable[[], None]] = []  # of what is neither of these
        self._known: dict[int, Any] = {}  # what is kept, by id; held, so that no id is used again
        self._hidden: dict[int, Any] = {}  # networks and optimizers that no name leads to, by id
        stateful = [one.value for one in reached if has_state(one.value)]
        for part in (*parts, *stateful):
            self._keep(part)
        for one in reached:
            if isinstance(one.value, torch.Tensor):
                self._keep_tensor(one.name, one.value)
        self._keep_hidden_parts()
        self._generators = capture()

    @property
    def is_empty(self) -> bool:
        """Whether no network, optimizer or parameter was found."""
        loose_weights = any(one.is_weight and one.registry is None for one in self._tensors)
        return not (self._modules or self._other_parts or loose_weights)

    # -- keeping ---------------------------------------------------------------------------

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

        Gradients, buffers and training flags are kept. Weights are kept when their optimizer is
        about to step, for few of these objects belong to the step.
        """
        for one in alive():
            if isinstance(one, torch.nn.Module):
                self._ways_back.append(functools.partial(setattr, one, "training", one.training))
            if id(one) in self._known:
                continue
            self._hidden[id(one)] = one
            if isinstance(one, torch.nn.Module):
                for name, buffer in one._buffers.items():
                    if buffer is not None:
                        self._keep_tensor(f"{type(one).__name__} {name}", buffer)
                for own_parameter in _own_parameters(one):
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
        self._other_parts.append(part)
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
            for registry in (module._parameters, module._buffers):
                for name, tensor in registry.items():
                    if tensor is not None and id(tensor) not in self._known:
                        self._add_tensor(name, tensor, is_weight=True, registry=registry)
            for parameter in _own_parameters(module):
                self._keep_gradient(parameter)

    def _keep_parameter(self, name: str, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._known:
            self._add_tensor(name, tensor, is_weight=True)
            self._keep_gradient(tensor)

    def _keep_tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Keep a tensor by itself, but not what another one was computed from, or large data."""
        if not is_plain(tensor) or tensor.is_inference() or tensor.grad_fn is not None:
            return
        if tensor.requires_grad:
            self._keep_parameter(name, tensor)
        elif id(tensor) not in self._known and tensor.nbytes <= _MOST_BYTES:
            self._add_tensor(name, tensor, is_weight=False)

    def _add_tensor(
        self,
        name: str,
        tensor: torch.Tensor,
        *,
        is_weight: bool,
        registry: dict[str, Any] | None = None,
    ) -> None:
        self._known[id(tensor)] = tensor
        values = tensor.detach().clone()
        self._tensors.append(_KeptTensor(name, tensor, values, is_weight, registry))

    def _keep_gradient(self, parameter: torch.Tensor) -> None:
        if id(parameter) not in self._gradients:
            kept = _KeptGradient(parameter, copy.deepcopy(parameter.grad))
            self._gradients[id(parameter)] = kept

    # -- after a run -----------------------------------------------------------------------

    def put_back(self) -> None:
        """Make everything as it was when it was kept."""
        with torch.no_grad():
            for tensor in self._tensors:
                tensor.put_back()
        for binding in self._bindings:
            binding.put_back()
        for gradient in self._gradients.values():
            gradient.put_back()
        for go_back in self._ways_back:
            go_back()
        restore(self._generators)

    def has_changed(self) -> bool:
        """Whether any tensor is not as it was kept."""
        return not (
            all(same_bits(one.present, one.values) for one in self._tensors)
            and all(same_bits(one.parameter.grad, one.gradient) for one in self._gradients.values())
            and all(
                one.is_as_it_was or _same_tensors(one.binding.read(), one.weights)
                for one in self._bindings
            )
        )

    def results(self, loss: Any) -> Iterator[tuple[str, Any]]:
        """Every tensor and number that a step gave, by name."""
        modules = self._modules
        model = modules[0] if len(modules) == 1 else torch.nn.ModuleList(modules)
        own = {id(parameter) for parameter in model.parameters()}
        loose = [one for one in self._tensors if one.registry is None]
        alone = [(one.name, one.tensor) for one in loose if one.is_weight]
        alone = [(name, tensor) for name, tensor in alone if id(tensor) not in own]
        yield from flat(loss, "loss")
        for name, parameter in (*model.named_parameters(), *alone):
            yield from flat(parameter.grad, f"gradient {name}")
        for name, tensor in (*model.named_parameters(), *model.named_buffers(), *alone):
            yield from flat(tensor, f"weights {name}")
        for one in loose:
            if not one.is_weight and not same_bits(one.tensor, one.values):
                yield from flat(one.tensor, f"tensor {one.name}")
        for bound in self._bindings:
            if not bound.is_as_it_was:
                yield from flat(bound.binding.read(), f"weights {bound.binding.name}")
        for part in self._other_parts:
            if isinstance(part, torch.optim.Optimizer):
                yield from flat(part.state_dict()["state"], "optimizer")
            else:
                yield from flat(part.state_dict(), type(part).__name__)
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


def _own_parameters(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters of a module without those inside it; its methods may be the user's own."""
    return [parameter for parameter in module._parameters.values() if parameter is not None]


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
