"""Estimates of duration, by similar runs in the store."""

from __future__ import annotations

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
    """Find a repeat of the same task, network and profile; of several, the nearest in epochs."""
    candidates = [repeat for repeat in past if _is_similar(repeat, spec, architecture)]
    return min(
        candidates,
        key=lambda repeat: abs(repeat.spec.epochs - spec.epochs),
        default=None,
    )


def segmenting_announced(plan: Plan, store: Store, *, n_each: int, ways: str) -> str:
    """Estimate in words how long many segmentations of the same images will take.

    ``ways`` says what the segmentations of one image are.
    """
    n_in_all = plan.n_images * n_each
    planned = (
        f"{amount(plan.n_images, 'image')}, each segmented {amount(n_each, 'time')} ({ways}): "
        f"{amount(n_in_all, 'segmentation')}, of which nothing is kept on the disk"
    )
    past = [run.repeats[0] for run in store.runs()[:MOST_READ]]
    similar = most_similar(past, plan.spec, plan.request.model.architecture)
    seconds = 0.0 if similar is None else similar.manifest.seconds.get("segment", 0.0)
    if similar is None or not seconds or not similar.manifest.masks:
        return f"{planned}; after the first image the progress says how long they take here"
    of_one = seconds / len(similar.manifest.masks)
    return (
        f"{planned}; these take about {minutes(of_one * n_in_all)}, as one took "
        f"{of_one:.1f} s in {similar.name}; before that, Cellpose starts and loads the network"
    )


def _is_similar(repeat: Repeat, spec: Spec, architecture: str) -> bool:
    try:
        return (
            repeat.spec.task == spec.task
            and repeat.spec.profile == spec.profile
            and repeat.manifest.model.architecture == architecture
        )
    except BadInput:  # of a damaged one nothing is known
        return False
