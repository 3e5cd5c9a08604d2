"""The report on all runs together: where they agree, and the cells that fewest of them have."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from cellrepro.compare.consensus import Agreement, agree
from cellrepro.show.figures.agreement import agreement_map, least_stable
from cellrepro.show.report.page import View, figure, table_file
from cellrepro.show.report.summary import Chapter
from cellrepro.store.store import Repeat

_MOST_PIXELS = 3e7  # of different results, whose agreement is looked at
_MOST_CELLS = 8  # of those least stable


def agreement_view(chapter: Chapter) -> View | None:
    """Where all runs agree; of the image with most unstable cells the map, and these cells. None
    where every image came out alike in all runs."""
    found, n_left_out = _agreements(chapter)
    if not found:
        return None
    shares = {name: one.n_stable / max(1, len(one.objects)) for name, (_, one) in found.items()}
    image = min(shares, key=shares.__getitem__)
    repeats, worst = found[image]
    pixels = chapter.store.image(chapter.data_digest, image)
    rows = _rows(chapter, repeats, worst)
    n = min(_MOST_CELLS, sum(one.n_runs_with < worst.n_runs for one in worst.objects))
    unstable = None
    if n:
        readers = [partial(repeat.masks, image) for repeat in repeats]
        data = table_file(f"least-stable-{image}", rows[:n])
        unstable = figure(least_stable(pixels, worst, readers, n=n), data)
    return View(
        agreements=[agreement for _, agreement in found.values()],
        n_left_out=n_left_out,
        image=image,
        worst=worst,
        map=figure(agreement_map(pixels, worst), table_file(f"stability-{image}", rows)),
        unstable=unstable,
    )


def _rows(chapter: Chapter, repeats: list[Repeat], agreement: Agreement) -> list[dict]:
    labels = [chapter.names.label(repeat) for repeat in repeats]
    return [
        {
            "cell at": "y {:.0f}, x {:.0f}".format(*one.position[-2:]),
            "area, pixels": one.area,
            "runs with it": one.n_runs_with,
            "share": one.share,
            "mean IoU": one.mean_iou,
            "without it": "; ".join(n for i, n in enumerate(labels) if i not in one.runs),
        }
        for one in agreement.objects
    ]


def _agreements(chapter: Chapter) -> tuple[dict[str, tuple[list[Repeat], Agreement]], int]:
    """By image, where some runs differ: most different results first, as far as time allows; and
    how many images are left out."""
    holders: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        for name in repeat.manifest.masks:
            holders[name].append(repeat)
    digests = {
        name: [repeat.manifest.masks[name].canonical_digest for repeat in repeats]
        for name, repeats in holders.items()
    }
    differing = [name for name in digests if len(set(digests[name])) > 1]
    differing.sort(key=lambda name: -len(set(digests[name])))
    found: dict[str, tuple[list[Repeat], Agreement]] = {}
    n_pixels = 0
    for name in differing:
        if n_pixels > _MOST_PIXELS:
            break
        readers = [partial(repeat.masks, name) for repeat in holders[name]]
        agreement = agree(readers, digests=digests[name])
        found[name] = holders[name], agreement
        n_pixels += agreement.n_distinct * agreement.consensus.size
    return found, len(differing) - len(found)
