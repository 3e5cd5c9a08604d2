"""The report on all runs together: how far they spread, beside what seeds do; where they agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from cellrepro.bits.digests import value_digest
from cellrepro.same.consensus import Agreement, Stability, agree
from cellrepro.same.seed_spread import Axis, Spread
from cellrepro.same.verdicts import Verdict, combine
from cellrepro.show.figures.agreement import agreement_map, least_stable
from cellrepro.show.figures.spread import spread_axis, spread_rows
from cellrepro.show.report.page import Shown, View, figure, table_file, which
from cellrepro.show.report.summary import Chapter
from cellrepro.store.store import Repeat

_MOST_PIXELS = 3e7  # of different results, whose agreement is looked at
_MOST_OF_ONE = 5e7  # of one image; of more results some runs are drawn
_MOST_CELLS = 8  # of those least stable
_MOST_NAMES = 20  # of runs without a cell


def spread_figure(chapter: Chapter) -> tuple[Shown, str] | None:
    """All axes beside each other, with the caption; none where nothing was compared."""
    if not any(axis.evidence for axis in chapter.spread.axes):
        return None
    drawn = spread_axis(chapter.spread)
    data = table_file(f"spread-{chapter.data}", spread_rows(chapter.spread))
    return figure(drawn, data), drawn.caption


def axis_verdict(spread: Spread, axis: Axis) -> Verdict:
    """The one verdict over the pairs along an axis, beside what seeds do."""
    verdict = combine(pair.verdict for pair in axis.evidence)
    if verdict == Verdict.DIFFERENT and axis.name != "seed" and spread.decide(axis.name).within:
        return Verdict.WITHIN_SPREAD
    return verdict


def agreement_view(chapter: Chapter) -> View | None:
    """Where all runs agree; of the image with most unstable cells the map, and these cells. None
    where every image came out alike in all runs."""
    found, n_left_out, n_having = _agreements(chapter)
    if not found:
        return None
    drawn = [(name, one) for name, (_, one) in found.items() if one.n_runs < n_having[name]]
    shares = {name: one.n_stable / max(1, len(one.objects)) for name, (_, one) in found.items()}
    image = min(shares, key=shares.__getitem__)
    repeats, worst = found[image]
    pixels = chapter.store.image(chapter.images_digest, image)
    rows, readers = _rows(chapter, repeats, worst), [partial(one.masks, image) for one in repeats]
    if worst.consensus.ndim == 3:  # the plane on which most is disputed
        disputed = (worst.same_object_share > 0) & (worst.same_object_share < 1)
        plane = int(disputed.sum(axis=(1, 2)).argmax())
        readers = [partial(_plane, read, plane) for read in readers]
        worst, pixels = agree(readers), None if pixels is None else pixels[plane]
    n = min(_MOST_CELLS, sum(one.n_runs_with < worst.n_runs for one in worst.objects))
    unstable = None
    if n:
        data = table_file(f"least-stable-{image}", rows[:n])
        unstable = figure(least_stable(pixels, worst, readers, n=n), data)
    return View(
        agreements=[agreement for _, agreement in found.values()],
        n_left_out=n_left_out,
        drawn=drawn,
        n_having=n_having,
        image=image,
        worst=worst,
        map=figure(agreement_map(pixels, worst), table_file(f"stability-{image}", rows)),
        unstable=unstable,
    )


def _plane(read: Callable[[], np.ndarray], plane: int) -> np.ndarray:
    return read()[plane]


def _rows(chapter: Chapter, repeats: list[Repeat], agreement: Agreement) -> list[dict]:
    labels = [chapter.names.of_repeat(repeat) for repeat in repeats]

    def lacking(one: Stability) -> list[str]:
        having = {*one.runs}
        return [label for run, label in enumerate(labels) if run not in having]

    return [
        {
            "cell at": "y {:.0f}, x {:.0f}".format(*one.position[-2:]),
            "area, pixels": one.area,
            "runs with it": one.n_runs_with,
            "share": one.share,
            "mean IoU": one.mean_iou,
            "without it": which(lacking(one), agreement.n_runs, "run", most=_MOST_NAMES),
        }
        for one in agreement.objects
    ]


def _agreements(
    chapter: Chapter,
) -> tuple[dict[str, tuple[list[Repeat], Agreement]], int, dict[str, int]]:
    """By image, where some runs differ: most different results first, as far as time allows; how
    many images are left out; and how many runs have each, of which some may have been drawn."""
    digests: dict[str, dict[Repeat, str]] = defaultdict(dict)
    for repeat in chapter.repeats:
        for name, record in repeat.manifest.masks.items():
            digests[name][repeat] = record.canonical_digest
    n_results = {name: len({*by_repeat.values()}) for name, by_repeat in digests.items()}
    differing = sorted((n for n in n_results if n_results[n] > 1), key=lambda n: -n_results[n])
    found: dict[str, tuple[list[Repeat], Agreement]] = {}
    n_pixels = 0
    for name in differing:
        if n_pixels > _MOST_PIXELS:
            break
        chosen = _drawn(name, digests[name])
        readers = [partial(repeat.masks, name) for repeat in chosen]
        agreement = agree(readers, digests=[digests[name][repeat] for repeat in chosen])
        found[name] = chosen, agreement
        n_pixels += agreement.n_distinct * agreement.consensus.size
    return found, len(differing) - len(found), {name: len(digests[name]) for name in found}


def _drawn(image: str, digests: Mapping[Repeat, str]) -> list[Repeat]:
    """All runs; or, where their different results are too many, as many as are not, drawn by a
    digest of their names, so that nothing about a run decides."""
    size = next(iter(digests)).masks(image).size
    left = max(2, int(_MOST_OF_ONE / size))
    seen: set[str] = set()
    drawn: set[Repeat] = set()
    for repeat in sorted(digests, key=lambda one: value_digest(one.name)):
        seen.add(digests[repeat])
        if len(seen) > left:
            break
        drawn.add(repeat)
    return [repeat for repeat in digests if repeat in drawn]
