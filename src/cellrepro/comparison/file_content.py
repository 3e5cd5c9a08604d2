"""What lies in a file of tensors: a network, and beside it what a training goes on from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

import numpy as np

from cellrepro.comparison.generator_reading import GeneratorState, generators_in
from cellrepro.comparison.torch_archives import Namespace
from cellrepro.comparison.weight_tensors import Network, Tensor, tensor_of
from cellrepro.pickles import Refused, is_plain, of_array

StatePart = Literal["optimizer", "scheduler", "step", "seed", "tensors", "values"]
"""What lies beside a network: settings and tensors of the optimizer; those of what changes its
learning rate; epochs and steps; seeds; tensors and plain values of anything else."""

PARTS: tuple[StatePart, ...] = get_args(StatePart)
"""In the order in which sentences and JSON have them."""

T = TypeVar("T")

_MOST_VALUES = 2**20
_DEEPEST = 32
_COUNTED = ("epoch", "step", "iter", "iteration", "batch")
"""How names of numbers end that say how far a training is."""
_SETTINGS = ("origin", "spec", "args", "config", "cfg", "hparams", "hyper_parameters", "options")
"""Keys under which stands what was asked for, as how many epochs."""


@dataclass(frozen=True)
class FileContent:
    """The content of a file of tensors. Nothing of a tensor was read yet."""

    network: Network = field(default_factory=dict)
    """Empty where the file holds none, or several."""
    under: str = ""
    """The key that the network is under; empty where it is the whole file."""
    why_no_network: str = ""
    """Why none was found."""
    tensors: Mapping[StatePart, Network] = field(default_factory=dict)
    """Tensors beside the network, by their names in the part."""
    values: Mapping[StatePart, Mapping[str, object]] = field(default_factory=dict)
    """Plain values by their names in the part: numbers, texts, None, and tuples of them."""
    generators: Mapping[str, GeneratorState] = field(default_factory=dict)

    @property
    def has_more(self) -> bool:
        """Whether it holds something beside a network."""
        return bool(self.tensors or self.values or self.generators)

    @property
    def parts(self) -> tuple[str, ...]:
        """Say what it holds beside a network, in words of `StatePart` and ``generators``."""
        generators = ("generators",) if self.generators else ()
        parts = (part for part in PARTS if part in self.tensors or part in self.values)
        return (*parts, *generators)


@dataclass
class _Sorted:
    """Values of a checkpoint, sorted into parts as they come."""

    tensors: dict[StatePart, dict[str, Tensor]] = field(default_factory=dict)
    values: dict[StatePart, dict[str, object]] = field(default_factory=dict)
    generators: dict[str, GeneratorState] = field(default_factory=dict)


def content_beside(content: object, *, network: Network, under: str, why: str = "") -> FileContent:
    """Sort what a file holds beside its network into parts."""
    beside = _Sorted()
    if under or not network:
        for path, value in _leaves(_usual_names(content), (), without=under):
            _sort(path, value, beside)
    return FileContent(
        network=network,
        under=under,
        why_no_network=why,
        tensors={part: _without_part(part, named) for part, named in beside.tensors.items()},
        values={part: _without_part(part, named) for part, named in beside.values.items()},
        generators=beside.generators,
    )


def is_optimizer(content: object) -> bool:
    """Whether this is the ``state_dict`` of an optimizer."""
    return isinstance(content, dict) and content.keys() >= {"state", "param_groups"}


def _usual_names(content: object) -> object:
    """The content with its only optimizer and scheduler under ``optimizer`` and ``scheduler``."""
    if is_optimizer(content):
        return {"optimizer": content}
    if not isinstance(content, dict):
        return content
    optimizers = [key for key, part in content.items() if is_optimizer(part)]
    schedulers = [key for key in content if "sched" in str(key).lower()]
    usual = {key: f"optimizer {key}" for key in optimizers if "optim" not in str(key).lower()}
    if len(optimizers) == 1 and "optimizer" not in content:  # a name of one, for example
        usual = {optimizers[0]: "optimizer"}
    if len(schedulers) == 1:
        usual[schedulers[0]] = "scheduler"
    named = {usual.get(key, key): part for key, part in content.items()}
    return named if len(named) == len(content) else content


def _sort(path: tuple[str, ...], value: object, into: _Sorted) -> None:
    """Add a value to its part; each has a name of its own, or one of two would be compared."""
    name = ".".join(path)
    if isinstance(value, GeneratorState):
        _add(into.generators, name, value)
    elif isinstance(value, Tensor):
        _add(into.tensors.setdefault(_part_of(path, value), {}), name, value)
    else:
        _add(into.values.setdefault(_part_of(path, value), {}), name, value)


def _add(named: dict[str, T], name: str, value: T) -> None:
    if name in named:
        raise Refused(f"two of its values lie under {name!r}")
    named[name] = value


def _without_part(part: StatePart, named: Mapping[str, T]) -> Mapping[str, T]:
    """The same under names that do not repeat the part, where each keeps a name of its own."""
    shorter = {name.removeprefix(f"{part}."): value for name, value in named.items()}
    return shorter if len(shorter) == len(named) else named


def _part_of(path: tuple[str, ...], value: object) -> StatePart:
    first = path[0].lower() if path else ""
    if "optim" in first:
        return "optimizer"
    if "sched" in first:
        return "scheduler"
    last = path[-1].lower() if path else ""
    if isinstance(value, Tensor):
        return "tensors"
    if "seed" in last:
        return "seed"
    is_counted = first not in _SETTINGS and not isinstance(value, str | tuple)
    if is_counted and last.removesuffix("s").endswith(_COUNTED):
        return "step"
    return "values"


def _leaves(
    value: object, path: tuple[str, ...], *, without: str
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every tensor, generator and plain value with the keys that lead to it.

    An explicit stack bounds their depth. Their number is bounded, too, with the lengths of names,
    lists and arrays: each of them can stand in many places, in a list that does so itself.
    """
    waiting = [(path, value)]
    n = 0
    while waiting:
        path, value = waiting.pop()
        name = ".".join(path)
        n += 1 + len(name) // 64
        if n > _MOST_VALUES or len(path) > _DEEPEST:
            raise Refused("its values are nested deeper, or more, than those of a training")
        if name == without and path:
            continue
        value = of_array(value)
        if isinstance(value, Namespace):
            value = value.attributes
        if isinstance(value, np.ndarray):
            n += value.nbytes // 2**9
            is_text = value.dtype.kind in "US"
            value = tuple(map(str, value.reshape(-1).tolist())) if is_text else tensor_of(value)
        if isinstance(value, dict | list | tuple | set):
            n += len(value) // 4
        generators = list(generators_in(name, value))
        if generators:
            yield from (((of_state,), state) for of_state, state in generators)
        elif isinstance(value, dict):
            inner = [((*path, str(key)), part) for key, part in value.items()]
            waiting += reversed(inner)
        elif isinstance(value, list | tuple) and not all(map(is_plain, value)):
            waiting += reversed([((*path, str(i)), part) for i, part in enumerate(value)])
        elif isinstance(value, list | tuple):
            yield path, tuple(value)
        elif isinstance(value, set):
            yield path, tuple(sorted(value, key=repr))
        elif isinstance(value, Tensor) or is_plain(value):
            yield path, value
        else:  # PyTorch's names of types, for example
            yield path, str(value)
