"""Callbacks of a training loop, and the one that writes the ledger.

A loop calls the methods of a `Watch` as it goes. A watch changes nothing: digests only read memory,
and no generator is drawn from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from cellrepro.digests.digests import value_digest
from cellrepro.digests.tensor_digests import generator_digests, tensor_digest, tensors_digest
from cellrepro.store.ledger import Ledger
from cellrepro.torch_internals import modes_suspended_if_any


class Watch:
    """The callbacks, in the order in which they come inside `step`; here each does nothing."""

    def step(self, step: int, epoch: int) -> AbstractContextManager[Any]:
        """Around everything of one step, from its first draw on; both numbers count from 0."""
        return nullcontext()

    def batch(
        self, names: Sequence[str], crops: Sequence[Mapping[str, Any]], images: Any, targets: Any
    ) -> None:
        """The images drawn, how each was cropped, and the tensors that came of it."""

    def forward(self, output: torch.Tensor) -> None:
        """The network has given its output."""

    def loss(self, loss: torch.Tensor) -> None:
        """A scalar."""

    def backward(self, network: torch.nn.Module) -> None:
        """Gradients are there, the update is not."""

    def updated(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer has made its step."""


class Watches(Watch):
    """Several watches, called in order; ``watches`` may be changed between steps.

    Observers of operations do not see those of the other watches.
    """

    def __init__(self, watches: Iterable[Watch]) -> None:
        self.watches = tuple(watches)

    @contextmanager
    def step(self, step: int, epoch: int) -> Iterator[None]:  # noqa: D102
        with ExitStack() as stack:
            for watch in self.watches:
                stack.enter_context(watch.step(step, epoch))
            yield

    def batch(  # noqa: D102
        self,
        names: Sequence[str],
        crops: Sequence[Mapping[str, Any]],
        images: torch.Tensor,
        targets: torch.Tensor,
    ) -> None:
        with modes_suspended_if_any():
            for watch in self.watches:
                watch.batch(names, crops, images, targets)

    def forward(self, output: torch.Tensor) -> None:  # noqa: D102
        with modes_suspended_if_any():
            for watch in self.watches:
                watch.forward(output)

    def loss(self, loss: torch.Tensor) -> None:  # noqa: D102
        with modes_suspended_if_any():
            for watch in self.watches:
                watch.loss(loss)

    def backward(self, network: torch.nn.Module) -> None:  # noqa: D102
        with modes_suspended_if_any():
            for watch in self.watches:
                watch.backward(network)

    def updated(  # noqa: D102
        self, network: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        with modes_suspended_if_any():
            for watch in self.watches:
                watch.updated(network, optimizer)


class StepWatch(Watch):
    """Writes digests of all that goes into a step and comes out of it into a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @contextmanager
    def step(self, step: int, epoch: int) -> Iterator[None]:  # noqa: D102
        self.ledger.step = step
        self.ledger.epoch = epoch
        self.generators("before")
        yield
        self.generators("after")

    def batch(self, names: Any, crops: Any, images: Any, targets: Any) -> None:  # noqa: D102
        drawn = list(names)
        cropped = list(crops)
        self.ledger.add("batch", "images drawn", value_digest(drawn), detail=drawn)
        self.ledger.add("batch", "crops", value_digest(cropped), detail=cropped)
        self.ledger.add("batch", "images", tensor_digest(images))
        self.ledger.add("batch", "targets", tensor_digest(targets))

    def forward(self, output: torch.Tensor) -> None:  # noqa: D102
        self.ledger.add("forward", "output", tensor_digest(output))

    def loss(self, loss: torch.Tensor) -> None:  # noqa: D102
        self.ledger.add("loss", "loss", tensor_digest(loss), value=float(loss.detach()))

    def backward(self, network: torch.nn.Module) -> None:  # noqa: D102
        gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
        self._groups("backward", gradients)

    def updated(self, network: torch.nn.Module, optimizer: Any) -> None:  # noqa: D102
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
