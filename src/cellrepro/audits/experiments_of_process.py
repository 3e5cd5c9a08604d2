"""Whether importing Cellpose, or drawing before a network is made, changes what follows."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cellrepro.audits.source_of_difference import Source, changed_names
from cellrepro.model.encoders import TINY
from cellrepro.model.network import IMPORTED, seeded_network
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from samebits.digests import value_digest
from samebits.generator_digests import generator_digests
from samebits.generator_states import generators_kept
from samebits.modes import switches
from samebits.seeds import seed_everything
from samebits.tensor_digests import tensor_digest
from samebits.words import verb_of

if TYPE_CHECKING:
    from torch import nn


def import_order(modules: Sequence[str] = IMPORTED) -> Source:
    """Try whether importing Cellpose, in a fresh process, undoes a switch or moves a generator."""
    task = partial(imported, modules=list(modules))
    states = in_child(task, None, label="sources, imports")
    changes = {
        module: changed_names(before, after)
        for module, (before, after) in zip(modules, pairwise(states), strict=True)
    }
    changing = [module for module, changed in changes.items() if changed]
    evidence = (
        f"allow_tf32 set to False: {states[-1]['cuda_matmul_allow_tf32']} after the imports; "
        f"changed by {', '.join(changing) or 'none of them'}",
        *(
            f"import {module} changed: {', '.join(changed) or 'nothing'}"
            for module, changed in changes.items()
        ),
    )
    return Source(
        name="import-order",
        moves=bool(changing),
        n_compared=len(modules) * len(states[0]),
        evidence=evidence,
    )


def imported(child: Child, *, modules: list[str]) -> list[dict[str, object]]:
    """Import modules one after the other, in the child.

    Gives digests of the generators and values of the switches, before the first and after each.
    """
    import torch

    seed_everything(0, quiet=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    states = []
    for module in ("torch", *modules):
        importlib.import_module(module)
        generators = {f"generator {name}": value for name, value in generator_digests().items()}
        states.append({**generators, **switches()})
    return states


def initial_weights() -> Source:
    """Try whether the initial weights by PyTorch and by the lab depend on earlier draws."""
    initialisations: dict[str, Callable[[nn.Module], None]] = {
        "PyTorch's own initialisation": _reset_by_pytorch,
        "cellrepro's seeded_network": _unchanged,
    }
    facts = []
    moves = False
    n_tensors = 0
    for label, initialise in initialisations.items():
        first = _weight_digests(initialise, n_draws=0)
        again = _weight_digests(initialise, n_draws=0)
        after_draw = _weight_digests(initialise, n_draws=1)
        n_differing = len(changed_names(first, after_draw))
        facts.append(
            f"{label}: seed 0 {_short_digest(first)}, again {_short_digest(again)}, after one "
            f"more draw {_short_digest(after_draw)} ({n_differing} of {len(first)} tensors "
            f"{verb_of(n_differing, 'differs', 'differ')})"
        )
        moves |= not first == again == after_draw
        n_tensors += len(first)
    return Source(
        name="initial-weights",
        moves=moves,
        n_compared=n_tensors,
        evidence=tuple(facts),
    )


def _weight_digests(initialise: Callable[[nn.Module], None], *, n_draws: int) -> dict[str, str]:
    """Digests of a new network's tensors, made after some draws from one state."""
    import torch

    with generators_kept():
        seed_everything(0, quiet=True)
        torch.rand(n_draws)
        network = seeded_network(TINY, seed=0)
        initialise(network)
    return {name: tensor_digest(value) for name, value in network.state_dict().items()}


@runtime_checkable
class _Resettable(Protocol):
    """A module that draws its own weights."""

    def reset_parameters(self) -> None:
        """Draw them anew."""


def _reset_by_pytorch(network: nn.Module) -> None:
    """Let every module draw its weights as PyTorch does."""
    for module in network.modules():
        if isinstance(module, _Resettable):
            module.reset_parameters()


def _unchanged(network: nn.Module) -> None:
    """Keep a network's weights."""


def _short_digest(digests: Mapping[str, str]) -> str:
    """The first 12 hex digits of a digest over several."""
    return value_digest(digests)[:12]
