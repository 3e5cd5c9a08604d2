"""Whether a call of Cellpose's ``eval`` changes what the next one gives."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import ne
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cellrepro.audits.source_of_difference import Source
from cellrepro.images.folder import ImageFolder
from cellrepro.model import evaluator
from cellrepro.model.encoders import TINY
from cellrepro.model.network import seeded_network
from samebits.digests import value_digest
from samebits.generator_states import generators_kept
from samebits.tensor_digests import tensor_digest

_EVAL_PIXELS = 512  # along an edge: enough to tell results apart
_PARTIAL = {"percentile": [1.0, 99.0]}
"""A dictionary as users pass it to ``eval``, which reads the other fields from its defaults."""


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
        f"eval(normalize={_PARTIAL}) gives {value_digest(before)[:12]} before and "
        f"{value_digest(after)[:12]} after another call; {n_differing} of {len(images)} images "
        "came out otherwise",
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
