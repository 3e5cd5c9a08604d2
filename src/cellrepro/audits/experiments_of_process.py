"""Whether earlier imports, draws or calls of ``eval`` change what a process computes next."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from operator import ne
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cellrepro.audits.source_of_difference import Source, changed_names
from cellrepro.determinism.generator_states import generators_kept
from cellrepro.determinism.modes import switches
from cellrepro.determinism.seeds import seed_everything
from cellrepro.digests.digests import value_digest
from cellrepro.digests.generator_digests import generator_digests
from cellrepro.digests.tensor_digests import tensor_digest
from cellrepro.images.folder import ImageFolder
from cellrepro.model import evaluator
from cellrepro.model.encoders import TINY
from cellrepro.model.network import IMPORTED, seeded_network
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child

if TYPE_CHECKING:
    from torch import nn

_EVAL_PIXELS = 512  # along an edge: enough to tell results apart
_PARTIAL = {"percentile": [1.0, 99.0]}
"""A dictionary as users pass it to ``eval``, which reads the other fields from its defaults."""


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
            "differ)"
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


class _CellposeModel(Protocol):
    """``cellpose.models.CellposeModel``, which has no types."""

    def eval(
        self,
        image: NDArray[np.generic],
        *,
        channel_axis: int,
        normalize: bool | Mapping[str, object] = True,
        compute_masks: bool,
    ) -> tuple[NDArray[np.generic], Sequence[NDArray[np.generic]], NDArray[np.generic]]:
        """Masks, flows and styles of one image."""


def hidden_state(folder: ImageFolder) -> Source:
    """Try whether ``CellposeModel.eval`` changes its shared defaults, and so the next result."""
    images = [image.image[:_EVAL_PIXELS, :_EVAL_PIXELS] for image in folder.train[:2]]
    plain: _CellposeModel = evaluator.evaluator(seeded_network(TINY, seed=0)).model
    with _shared_defaults_kept() as shared, generators_kept():
        start = copy.deepcopy(shared)
        other_flag = not start["normalize"]
        before = _eval_digests(plain, images, normalize=dict(_PARTIAL))
        _eval_digests(plain, images, normalize=other_flag)
        written_by_flag = _changes_in_words(start, shared)
        after = _eval_digests(plain, images, normalize=dict(_PARTIAL))
        shared.update(start)
        stack = np.stack([np.atleast_3d(images[0])[..., :1]] * 2)
        plain.eval(stack, channel_axis=3, compute_masks=False)
        written_by_stack = _changes_in_words(start, shared)
    n_differing = sum(map(ne, before, after))
    evidence = (
        f"eval(normalize={_PARTIAL}) gives {_short_digest(before)} before and "
        f"{_short_digest(after)} after another call; {n_differing} of {len(images)} images came "
        "out otherwise",
        f"eval(normalize={other_flag}) wrote into models.normalize_default: "
        f"{written_by_flag}; eval of a plain stack wrote {written_by_stack}",
        f"normalize_default['normalize'] is {start['normalize']} in this process now",
    )
    return Source(
        name="hidden-state",
        moves=before != after,
        n_compared=len(images),
        evidence=evidence,
    )


@contextmanager
def _shared_defaults_kept() -> Iterator[dict[str, object]]:
    """Cellpose's shared defaults of normalisation, restored after the block."""
    shared = evaluator.shared_defaults()
    start = copy.deepcopy(shared)
    try:
        yield shared
    finally:
        shared.clear()
        shared.update(start)


def _eval_digests(
    model: _CellposeModel,
    images: Sequence[NDArray[np.generic]],
    *,
    normalize: bool | dict[str, list[float]],
) -> list[str]:
    """Digest of the flows and the cell probability of each image."""
    digests = []
    for image in images:
        _, flows, *_ = model.eval(
            np.atleast_3d(image), channel_axis=2, normalize=normalize, compute_masks=False
        )
        digests.append(value_digest([tensor_digest(array) for array in flows[1:3]]))
    return digests


def _changes_in_words(start: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Say what a call wrote into Cellpose's shared defaults."""
    changes = [
        f"{name} {start[name]!r} to {value!r}"
        for name, value in now.items()
        if start[name] != value
    ]
    return ", ".join(changes) or "nothing"


def _short_digest(value: Mapping[str, str] | Sequence[str]) -> str:
    """The first 12 hex digits of a digest over several."""
    return value_digest(value)[:12]
