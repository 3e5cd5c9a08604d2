"""What a process did before a training and what that changes: imports, draws, calls of ``eval``.

Questions of `cellrepro.lab.outside_the_step` about the process and the network, not the images.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from cellrepro.determinism.modes import switches
from cellrepro.determinism.seeding import check_seed, generators_kept, seed_everything
from cellrepro.lab.outside_the_step import Data, Source, n_other, read, short
from cellrepro.lab.process import Child, call
from cellrepro.model import cellpose_itself
from cellrepro.model.network import TINY, seeded_network
from cellrepro.store.digests import generator_digests, tensor_digest, value_digest
from cellrepro.text import amount

_EVAL_PIXELS = 512  # along an edge: enough to tell results apart
_PARTIAL = {"percentile": [1.0, 99.0]}
"""A dictionary as users pass it to ``eval``; what it leaves out is read from the defaults."""


# -- imports -------------------------------------------------------------------------------


def import_order(modules: Sequence[str] = cellpose_itself.IMPORTED) -> Source:
    """Whether importing Cellpose undoes a switch that was set, or changes a generator.

    In a fresh process the generators are seeded, ``torch.backends.cuda.matmul.allow_tf32`` is set
    to False, and Cellpose with what it brings in (or other modules) is imported, one by one.
    """
    work = "cellrepro.lab.process_state:imported"
    states, tf32 = call(work, None, label="sources, imports", modules=list(modules))
    evidence, others = [], []
    for name, before, after in zip(modules, states, states[1:], strict=False):
        drawn = _changed(before["generators"], after["generators"])
        switched = [
            f"{key} {before['switches'][key]!r} to {after['switches'][key]!r}"
            for key in _changed(before["switches"], after["switches"])
        ]
        variables = _changed(before["variables"], after["variables"])
        others += [name] * bool(drawn or switched)
        evidence.append(
            f"import {name}: generators moved: {', '.join(drawn) or 'none'}; "
            f"switches changed: {', '.join(switched) or 'none'}"
            + (f"; variables changed: {', '.join(variables)}" if variables else "")
        )
    first, last = (value_digest(states[at]["generators"]) for at in (0, -1))
    return Source(
        name="import-order",
        question="Does importing Cellpose undo what was set before, or move a generator?",
        moves=bool(others),
        evidence=(
            f"allow_tf32 set to False: {tf32[0]} after the imports, {tf32[1]} when set after them"
            + (f"; moved by {', '.join(others)}" if others else ""),
            *evidence,
            f"generators {first[:12]} before the imports, {last[:12]} after",
        ),
        remedy="import Cellpose first, then seed and set switches; the modes of cellrepro do so "
        "and read the switches back",
        n_compared=len(modules) * (len(states[0]["generators"]) + len(states[0]["switches"])),
    )


def imported(child: Child, *, modules: list[str]) -> tuple[list[dict[str, Any]], list[bool]]:
    """Inside the child: the state before and after each import, and TF32 set before and after."""
    import torch

    seed_everything(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    states = [_state()]
    for module in modules:
        importlib.import_module(module)
        states.append(_state())
    tf32 = [torch.backends.cuda.matmul.allow_tf32]
    torch.backends.cuda.matmul.allow_tf32 = False
    return states, [*tf32, torch.backends.cuda.matmul.allow_tf32]


def _state() -> dict[str, dict[str, Any]]:
    return {
        "generators": generator_digests(),
        "switches": switches(),
        "variables": dict(os.environ),
    }


# -- weights -------------------------------------------------------------------------------


def initial_weights(*, seed: int = 0) -> Source:
    """Whether the initial weights depend on what was drawn before they were made.

    `tiny` is made with one seed twice, with the next seed, and after one number drawn from every
    global generator: as the lab makes it, and as PyTorch does, by ``reset_parameters``.
    """
    import torch

    check_seed(seed)
    next_seed = (seed + 1) % 2**32
    evidence, moves, n_compared = [], False, 0
    with generators_kept():
        for kind, make in (
            ("PyTorch's own initialisation", _as_pytorch),
            ("cellrepro's seeded_network", partial(seeded_network, TINY)),
        ):
            made = []
            for use, n_drawn in ((seed, 0), (seed, 0), (next_seed, 0), (seed, 1)):
                seed_everything(use)
                for _ in range(n_drawn):
                    random.random(), np.random.random_sample(), torch.rand(1)
                state = make(seed=use).state_dict()
                made.append({name: tensor_digest(value) for name, value in state.items()})
            first, again, other, after = made
            evidence.append(
                f"{kind}: seed {seed} {short(first)}, again {short(again)}, seed {next_seed} "
                f"{short(other)}, seed {seed} after one more draw {short(after)} "
                f"({len(_changed(first, after))} of {len(first)} tensors differ)"
            )
            moves |= first != again or first != after
            n_compared += len(first)
    return Source(
        name="initial-weights",
        question="Do the initial weights depend on what was drawn before the network was made?",
        moves=moves,
        evidence=tuple(evidence),
        remedy="start from one file of weights and compare its digest, or draw them from a "
        "generator of their own, as cellrepro.model.network.seeded_network does",
        n_compared=n_compared,
    )


def _as_pytorch(*, seed: int) -> Any:
    """`tiny` with the weights that its layers draw by themselves, from where PyTorch is now."""
    network = seeded_network(TINY, seed=seed)
    for module in network.modules():
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    return network


# -- hidden state --------------------------------------------------------------------------


def hidden_state(data: Data) -> Source:
    """Whether one call of ``CellposeModel.eval`` changes the result of the next.

    ``models.normalize_default`` is shared by the whole process, and ``eval`` writes into it. Images
    are segmented with a few normalisation parameters, before and after a call that turns it off.
    """
    images = [image.image[:_EVAL_PIXELS, :_EVAL_PIXELS] for image in read(data).train[:2]]
    evaluated = cellpose_itself.evaluator(seeded_network(TINY, seed=0))

    def outputs(normalize: Any) -> list[str]:
        """Digests of what the network says of each image."""
        return [value_digest(list(map(tensor_digest, evaluated(x, normalize)))) for x in images]

    with _put_back(cellpose_itself.shared_defaults()) as (defaults, start), generators_kept():
        plain = outputs(True)
        _set(defaults, start)
        before, again = outputs(dict(_PARTIAL)), outputs(dict(_PARTIAL))
        outputs(not start["normalize"])
        written = [f"{k} {start[k]!r} to {now!r}" for k, now in defaults.items() if start[k] != now]
        after, plain_after = outputs(dict(_PARTIAL)), outputs(True)
    n_changed = n_other(again, after)
    return Source(
        name="hidden-state",
        question="Does a call of Cellpose's eval change the result of a later call?",
        moves=n_changed > 0 or plain != plain_after,
        evidence=(
            f"eval(normalize={_PARTIAL}) gives {short(again)} before and {short(after)} after "
            f"another call; {n_changed} of {amount(len(images), 'image')} came out otherwise",
            f"called twice with nothing between: {short(before)} and {short(again)}",
            f"eval(normalize={not start['normalize']}) wrote into models.normalize_default: "
            f"{', '.join(written) or 'nothing'}",
            f"eval(normalize=True) gives {short(plain)} before and {short(plain_after)} after",
            f"normalize_default['normalize'] is {start['normalize']} in this process now",
        ),
        remedy="pass every parameter you rely on, 'normalize': True among them, or run each "
        "analysis in a process of its own, as cellrepro does",
        n_compared=2 * len(images),
    )


@contextlib.contextmanager
def _put_back(shared: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Give a shared dictionary its content back, also when the block raises."""
    start = copy.deepcopy(shared)
    try:
        yield shared, start
    finally:
        _set(shared, start)


def _set(shared: dict[str, Any], content: dict[str, Any]) -> None:
    shared.clear()
    shared.update(copy.deepcopy(content))


def _changed(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [name for name in sorted(a | b) if a.get(name) != b.get(name)]
