"""Callbacks of a training loop, and those that write digests of every step into the ledger.

A loop calls the methods of a `Watch` as it goes. A watch changes nothing: digests only read memory,
and nothing is drawn from a generator.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from cellrepro.store.ledger import Ledger
from samebits.digests import value_digest
from samebits.generator_digests import generator_digests
from samebits.tensor_digests import tensor_digest, tensors_digest
from samebits.torch_internals import modes_suspended_if_any


class Watch:
    """The callbacks, in the order in which they come inside `step`; here each does nothing."""

    def step(self, step: int, epoch: int) -> AbstractContextManager[Any]:
        """A block around everything of one step, from its first draw on; numbers count from 0."""
        return nullcontext()

    def batch(
        self, names: Sequence[str], crops: Sequence[Mapping[str, Any]], images: Any, targets: Any
    ) -> None:
        """A batch was made: the images drawn, how each was cropped, and the tensors of it."""

    def forward(self, output: torch.Tensor) -> None:
        """The network has given its output."""

    def loss(self, loss: torch.Tensor) -> None:
        """The loss was computed, a scalar."""

    def backward(self, network: torch.nn.Module) -> None:
        """The gradients were computed; the weights are not updated yet."""

    def updated(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer has made its step."""


class Watches(Watch):
    """Several watches, called in order; ``watches`` may be changed between steps.

    Observers of operations do not see the operations of the other watches.
    """

    def __init__(self, watches: Iterable[Watch]) -> None:
        self.watches = tuple(watches)

    @contextmanager
    def step(self, step: int, epoch: int) -> Iterator[None]:
        """Enter the step of every watch."""
        with ExitStack() as stack:
            for watch in self.watches:
                stack.enter_context(watch.step(step, epoch))
            yield

    def batch(
        self, names: Sequence[str], crops: Sequence[Mapping[str, Any]], images: Any, targets: Any
    ) -> None:
        """Tell every watch."""
        self._tell(lambda watch: watch.batch(names, crops, images, targets))

    def forward(self, output: torch.Tensor) -> None:
        """Tell every watch."""
        self._tell(lambda watch: watch.forward(output))

    def loss(self, loss: torch.Tensor) -> None:
        """Tell every watch."""
        self._tell(lambda watch: watch.loss(loss))

    def backward(self, network: torch.nn.Module) -> None:
        """Tell every watch."""
        self._tell(lambda watch: watch.backward(network))

    def updated(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Tell every watch."""
        self._tell(lambda watch: watch.updated(network, optimizer))

    def _tell(self, callback: Callable[[Watch], None]) -> None:
        with modes_suspended_if_any():
            for watch in self.watches:
                callback(watch)


class StepWatch(Watch):
    """Writes digests of all that goes into a step and comes out of it into a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @contextmanager
    def step(self, step: int, epoch: int) -> Iterator[None]:
        """Digest the generators before and after the step."""
        self.ledger.step = step
        self.ledger.epoch = epoch
        self.generators("before")
        yield
        self.generators("after")

    def batch(
        self, names: Sequence[str], crops: Sequence[Mapping[str, Any]], images: Any, targets: Any
    ) -> None:
        """Digest what was drawn, and the tensors that came of it."""
        drawn = list(names)
        cropped = list(crops)
        self.ledger.add("batch", "images drawn", value_digest(drawn), detail=drawn)
        self.ledger.add("batch", "crops", value_digest(cropped), detail=cropped)
        self.ledger.add("batch", "images", tensor_digest(images))
        self.ledger.add("batch", "targets", tensor_digest(targets))

    def forward(self, output: torch.Tensor) -> None:
        """Digest the network's output."""
        self.ledger.add("forward", "output", tensor_digest(output))

    def loss(self, loss: torch.Tensor) -> None:
        """Digest the loss, and write it down."""
        self.ledger.add("loss", "loss", tensor_digest(loss), value=float(loss.detach()))

    def backward(self, network: torch.nn.Module) -> None:
        """Digest the gradients, by group of layers."""
        gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
        self._groups("backward", gradients)

    def updated(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Digest the optimizer's state and settings, and the new weights."""
        # In the network's order: the optimizer's own is another after a state was loaded.
        moments = {
            f"{name}/{key}": value
            for name, parameter in network.named_parameters()
            for key, value in optimizer.state.get(parameter, {}).items()
        }
        self._groups("update", moments)
        groups = optimizer.param_groups
        rates = [float(group["lr"]) for group in groups]
        settings = [{k: group[k] for k in group if k not in ("params", "lr")} for group in groups]
        self.ledger.add("update", "learning rate", value_digest(rates), value=rates[0])
        self.ledger.add("update", "settings", tensor_digest(settings))
        self.weights("weights", network)

    def weights(self, stage: str, network: torch.nn.Module) -> None:
        """Digest every parameter and buffer, by group of layers."""
        self._groups(stage, network.state_dict(keep_vars=False))

    def generators(self, when: str) -> None:
        """Digest the state of every global generator."""
        for name, digest in generator_digests().items():
            self.ledger.add("rng", f"{name} {when}", digest)

    def _groups(self, stage: str, tensors: Mapping[str, Any]) -> None:
        """Write one digest for each group of layers."""
        groups: dict[str, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            groups.setdefault(layer_group(name), {})[name] = tensor
        for group, members in groups.items():
            self.ledger.add(stage, group, tensors_digest(members))


@functools.lru_cache(maxsize=65536)
def layer_group(name: str) -> str:
    """The group of layers that a parameter belongs to: up to its first number, or its module.

    >>> layer_group("encoder.blocks.0.attn.qkv.weight"), layer_group("W2")
    ('encoder.blocks.0', 'W2')
    """
    numbered = re.match(r"(.*?\.\d+)(?:\.|$)", name)
    if numbered is not None:
        return numbered[1]
    parts = name.partition("/")[0].split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else parts[0]
