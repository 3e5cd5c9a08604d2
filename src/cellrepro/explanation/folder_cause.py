"""Why the masks of two folders differ: a cause is tested on every image, not on one.

An image fits a cause, tells nothing of it, or contradicts it. What one image shows of a whole run,
as the size up to which cells were removed, is no cause where another image contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cellrepro.comparison.systematic_change import images_by_change, over_images
from cellrepro.explanation.recorded_cause import (
    IMAGE,
    MIN_SIZE,
    OUTLINES,
    FileEvidence,
    likely_causes,
    proven_cause,
)
from cellrepro.explanation.size_limit import SizeLimit
from cellrepro.explanation.size_limit import over_images as limit_over_images
from cellrepro.explanation.why import Cause, Share, Why
from samebits.words import amount, some, verb_of

_MOST_IMAGES = 4  # that are named


@dataclass(frozen=True)
class _Fitting:
    """A cause with the images in which it fits, the one that differs most first."""

    cause: Cause
    images: Sequence[str]


def why_of_folders(
    by_image: Mapping[str, FileEvidence], *, find_out: Mapping[str, str]
) -> Why | None:
    """Say what probably makes two folders differ, and in how many images; None where they do not.

    ``by_image`` has every image, the one that differs most first; ``find_out`` the command that
    segments an image again, the one that is wanted first.
    """
    differing = _over_all_cells({name: each for name, each in by_image.items() if each.differs})
    if not differing:
        return None
    proven = _proven(differing)
    explained = {name for fitting in proven for name in fitting.images}
    rest = {name: each for name, each in differing.items() if name not in explained}
    likely = _likely(rest, by_image)
    proven_causes = [_with_share(fitting, len(differing)) for fitting in proven]
    likely_ones = [_with_share(fitting, len(differing)) for fitting in likely]
    if not rest:
        return Why(proven_causes[0], tuple(proven_causes[1:]))
    command = next((line for name, line in find_out.items() if name in rest), "")
    if not proven:
        if likely:
            return Why(likely_ones[0], tuple(likely_ones[1:]), find_out=command)
        nothing = "nothing that is recorded tells"
        if not any(each.tells_settings for each in rest.values()):
            nothing = "no file of either folder records its settings"
        hints = tuple(_contradicted_limits(rest, by_image))
        return Why(None, nothing_tells=nothing, remains=hints, find_out=command)
    which = some(list(rest), _MOST_IMAGES)
    others = f"the other {verb_of(len(rest), 'image that differs', 'images that differ')} ({which})"
    if likely:
        known = Why(likely_ones[0], tuple(likely_ones[1:])).sentence
    else:
        known = "; ".join(_contradicted_limits(rest, by_image)) or "nothing tells"
    remains = f"{others}: {known}"
    return Why(proven_causes[0], tuple(proven_causes[1:]), remains=(remains,), find_out=command)


def _with_share(fitting: _Fitting, n_differing: int) -> Cause:
    return replace(fitting.cause, images=Share(len(fitting.images), n_differing))


def _over_all_cells(by_image: Mapping[str, FileEvidence]) -> dict[str, FileEvidence]:
    """Give images that were changed alike what all their cells together show of that change."""
    changes = {name: each.systematic for name, each in by_image.items() if each.systematic}
    pooled = dict(by_image)
    for names in images_by_change(changes):
        change = over_images([changes[name] for name in names])
        pooled |= {name: replace(by_image[name], systematic=change) for name in names}
    return pooled


def _proven(differing: Mapping[str, FileEvidence]) -> list[_Fitting]:
    """Give what the masks prove, with the images of which they prove it."""
    causes: dict[tuple[str, str], list[str]] = {}
    for name, evidence in differing.items():
        cause = proven_cause(evidence)
        if cause is not None:
            causes.setdefault((cause.name, cause.words), []).append(name)
    found = [
        _Fitting(Cause(name, confirmed=True, words=words), images)
        for (name, words), images in causes.items()
    ]
    return sorted(found, key=lambda fitting: -len(fitting.images))


def _likely(rest: Mapping[str, FileEvidence], every: Mapping[str, FileEvidence]) -> list[_Fitting]:
    """Give what may be the cause in the images of which nothing is proven, most images first."""
    causes: dict[tuple[str, str], dict[str, Cause]] = {}
    for name, evidence in rest.items():
        for cause in _of_image(evidence):
            which = cause.words if cause.name == OUTLINES else ""
            causes.setdefault((cause.name, which), {})[name] = cause
    found = [_Fitting(_over(each, rest), list(each)) for each in causes.values()]
    if not any(fitting.cause.name == MIN_SIZE for fitting in found):
        found += _size_limits(rest, every)
    return sorted(found, key=lambda fitting: -len(fitting.images))


def _of_image(evidence: FileEvidence) -> list[Cause]:
    """List what an image tells by itself: a size limit is one of all images, or none."""
    if evidence.unrelated:
        return [Cause(IMAGE, words=evidence.unrelated)]
    return likely_causes(replace(evidence, size_limit=None))


def _size_limits(
    rest: Mapping[str, FileEvidence], every: Mapping[str, FileEvidence]
) -> Iterator[_Fitting]:
    """Find the size up to which a side lacks cells in some images, and keeps none in any."""
    n_changed = sum(evidence.n_changed for evidence in rest.values())
    for of_side in _limits_by_side(rest):
        limit = _limit_over(of_side, every)
        if limit is not None:
            share = Share(limit.n_missing, n_changed)
            yield _Fitting(Cause(MIN_SIZE, cells=share, words=limit.text), list(of_side))


def _contradicted_limits(
    rest: Mapping[str, FileEvidence], every: Mapping[str, FileEvidence]
) -> Iterator[str]:
    """Say of limits that hold in some images which cells of others contradict them."""
    for of_side in _limits_by_side(rest):
        limit = _limit_over(of_side, {name: every[name] for name in of_side})
        if limit is None or _limit_over(of_side, every) is not None:
            continue
        smallest = min(
            each.smallest_cells[limit.side]
            for each in every.values()
            if limit.side in each.smallest_cells
        )
        yield (
            f"in {amount(len(of_side), 'image')} {limit.text}; in other "
            f"images {limit.side} keeps cells down to {amount(smallest, 'pixel')}, so that "
            f"no {MIN_SIZE} explains it that is the same for all images"
        )


def _limits_by_side(rest: Mapping[str, FileEvidence]) -> Iterator[dict[str, SizeLimit]]:
    """Give the limits of the images in which A lacks the smallest cells, and those of B."""
    limits = {name: each.size_limit for name, each in rest.items() if each.size_limit}
    for side in ("A", "B"):
        of_side = {name: limit for name, limit in limits.items() if limit.side == side}
        if of_side:
            yield of_side


def _limit_over(
    of_side: Mapping[str, SizeLimit], images: Mapping[str, FileEvidence]
) -> SizeLimit | None:
    smallest = [evidence.smallest_cells for evidence in images.values()]
    return limit_over_images(list(of_side.values()), smallest)


def _over(by_image: Mapping[str, Cause], rest: Mapping[str, FileEvidence]) -> Cause:
    """Put together what several images tell of one cause."""
    causes = list(by_image.values())
    first_image, cause = next(iter(by_image.items()))
    values = {(str(each.a), str(each.b), each.words) for each in causes}
    if any(each.cells is not None for each in causes):
        n_explained = sum(each.cells.n for each in causes if each.cells is not None)
        n_changed = sum(evidence.n_changed for evidence in rest.values())
        cause = replace(cause, cells=Share(n_explained, n_changed))
    if len(values) > 1:
        said = replace(cause, cells=None).values_text
        cause = replace(cause, words=f"for example in {first_image}: {said}")
    return cause
