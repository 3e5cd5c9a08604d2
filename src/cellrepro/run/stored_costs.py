"""Estimates of duration, by similar runs in the store."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cellrepro.run.plan import Plan
from cellrepro.spec.spec import Spec
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import minutes
from samebits.errors import BadInput
from samebits.words import amount

MOST_READ = 200
"""Stored runs that are read at most."""


def most_similar(past: Sequence[Repeat], spec: Spec, architecture: str) -> Repeat | None:
    """Find one that computes alike; of several, the nearest in settings, network and epochs."""
    candidates = [repeat for repeat in past if _is_similar(repeat, spec, architecture)]
    return min(
        candidates,
        key=lambda repeat: (
            repeat.spec.settings != spec.settings,
            repeat.spec.model_digest != spec.model_digest,
            abs(repeat.spec.epochs - spec.epochs),
        ),
        default=None,
    )


def pixels_segmented(repeat: Repeat) -> int | None:
    """The pixels of all images that a repeat segmented; None where some masks are not there."""
    try:
        return sum(math.prod(repeat.masks_shape(image)) for image in repeat.manifest.masks)
    except Exception:  # of a damaged file nearly any
        return None


def segmenting_announced(plan: Plan, store: Store, *, n_each: int, ways: str) -> str:
    """Estimate in words how long many segmentations of the same images will take.

    ``ways`` says what the segmentations of one image are.
    """
    n_in_all = plan.n_images * n_each
    planned = (
        f"{amount(n_in_all, 'segmentation')}, none of them stored: "
        f"{amount(plan.n_images, 'image')}, each {ways}"
    )
    past = [run.repeats[0] for run in store.runs()[:MOST_READ]]
    similar = most_similar(past, plan.spec, plan.request.model.architecture)
    seconds = 0.0 if similar is None else similar.manifest.seconds.get("segment", 0.0)
    n_pixels = pixels_segmented(similar) if similar is not None and seconds else None
    if similar is None or not n_pixels:
        return f"{planned}; after the first image the progress says how long they take here"
    needed = seconds * plan.n_pixels * n_each / n_pixels
    return (
        f"{planned}; about {minutes(needed)} by run {similar.name}, and some seconds for the start"
    )


def _is_similar(repeat: Repeat, spec: Spec, architecture: str) -> bool:
    try:
        return (
            repeat.spec.task == spec.task
            and repeat.spec.profile == spec.profile
            and repeat.spec.mode == spec.mode
            and repeat.spec.settings.do_3D == spec.settings.do_3D
            and repeat.manifest.model.architecture == architecture
        )
    except BadInput:  # of a damaged one nothing is known
        return False
