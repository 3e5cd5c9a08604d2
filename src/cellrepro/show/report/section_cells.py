"""The report on cells: where they differ between runs, against the ground truth, over all runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellrepro.compare.axes import Pair
from cellrepro.compare.consensus import Agreement, Stability, agree
from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.compare.object_changes import ObjectKind
from cellrepro.compare.seed_spread import Axis
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.show.figures import agreement as agreement_plots
from cellrepro.show.figures import training
from cellrepro.show.report.findings import AXES, PLACES, Chapter, where
from cellrepro.show.report.page import Shown, figure, table_file, which
from cellrepro.show.report.panels import (
    CHANGES,
    cell_rows,
    counts_text,
    difference_panels,
    object_counts,
    truth_panels,
)
from cellrepro.store.store import Repeat
from cellrepro.text import amount, grouped, ppm_text, share_text

_EQUAL = (Verdict.IDENTICAL, Verdict.SAME_OBJECTS)
_TOLD_KINDS = tuple(str(kind) for kind in CHANGES if kind != ObjectKind.KEPT)
_MOST_LINES = 30  # of a figure with a line per spec
_MOST_CELLS = 8  # of those least stable
_MOST_PIXELS = 3e7  # of different results, whose agreement is looked at


# -- the worst image -----------------------------------------------------------------------


@dataclass(frozen=True)
class Worst:
    """The image on which two runs differ most, and these two."""

    chapter: Chapter
    axis: Axis
    pair: Pair
    image: str
    comparison: MaskComparison


def worst_of_all(chapters: Sequence[Chapter]) -> Worst | None:
    """By cells that changed, then by pixels, over all chapters; none where no masks differ.

    A run that found nothing differs most from every other, and says least: it comes last.
    """
    found = [
        (_weight(pair, image), chapter, axis, pair, image)
        for chapter in chapters
        for axis in chapter.axes
        if axis.differing
        for pair, image in [_most_different(axis)]
    ]
    if not found:
        return None
    _, chapter, axis, pair, image = max(found, key=lambda entry: entry[0])
    return _worst(chapter, axis, pair, image)


def _most_different(axis: Axis) -> tuple[Pair, str]:
    """The pair of runs, and the image, in which most of the cells changed; then most pixels."""
    places = [(pair, image) for pair in axis.differing for image in pair.found.images]
    return max(places, key=lambda place: _weight(*place))


def _weight(pair: Pair, image: str) -> tuple[bool, float, float]:
    one, other = pair.a.manifest.masks[image], pair.b.manifest.masks[image]
    i, found = pair.found.images.index(image), pair.found
    return (
        bool(one.n_objects and other.n_objects),
        float(found.n_unmatched[i] / max(1, found.n_objects[i])),
        float(found.n_differing[i] / max(1, found.n_pixels[i])),
    )


def _worst(chapter: Chapter, axis: Axis, pair: Pair, image: str) -> Worst:
    comparison = compare_masks(pair.a.masks(image), pair.b.masks(image))
    return Worst(chapter, axis, pair, image, comparison)


def worst_view(worst: Worst) -> dict[str, Any]:
    """The picture of the worst image, which runs these are, and what became of the cells."""
    pair, comparison = worst.pair, worst.comparison
    counts = object_counts(comparison)
    in_cells = f"{share_text(comparison.changed)} of the cells"
    in_pixels = f"{ppm_text(comparison.ppm)} of the pixels, and in no cell"
    differ_in = in_cells if comparison.n_unmatched else in_pixels
    return {
        "figure": _difference_figure(worst),
        "a": pair.name_a,
        "b": pair.name_b,
        "run_a": pair.a.name,
        "run_b": pair.b.name,
        "context": pair.context,
        "axis": worst.axis.title,
        "image": worst.image,
        "data": worst.chapter.title,
        "counts": [
            {"kind": kind, "n": n, "sign": CHANGES[kind][0], "means": CHANGES[kind][1]}
            for kind, n in counts.items()
        ],
        "n_a": comparison.n_objects_a,
        "n_b": comparison.n_objects_b,
        "changed": share_text(comparison.changed),
        "ppm": ppm_text(comparison.ppm),
        "sentence": f"On {worst.image}, {pair.name_a} and {pair.name_b} differ in {differ_in}: "
        f"{counts_text(counts)}.",
    }


def _difference_figure(worst: Worst) -> Shown:
    pair, comparison = worst.pair, worst.comparison
    n = sum(len(axis.pairs) for axis in worst.chapter.axes)
    where = f" ({pair.context})" if pair.context else ""
    return Shown(
        difference_panels(
            worst.chapter.store.image(worst.chapter.data_digest, worst.image),
            pair.a.masks(worst.image),
            pair.b.masks(worst.image),
            comparison,
            name_a=pair.name_a,
            name_b=pair.name_b,
        ),
        f"{worst.image}, {pair.name_a} (blue) against {pair.name_b} (orange, dashed; white where "
        f"both coincide){where}: {ppm_text(comparison.ppm)} of its pixels differ, "
        f"{share_text(comparison.changed)} of the cells have no counterpart. The image on which "
        f"two runs differ most, of {amount(n, 'comparison')} over "
        f"{amount(pair.n_images, 'image')} each. Where few pixels differ, they are drawn larger "
        "than they are.",
        table_file(f"cells-{worst.image}", cell_rows(comparison, image=worst.image)),
    )


# -- along every axis ----------------------------------------------------------------------


def axis_view(chapter: Chapter, axis: Axis, *, shown: Worst | None) -> dict[str, Any]:
    """The comparisons along one axis: in a sentence, a table and, where masks differ, a picture.

    Parameters
    ----------
    shown : Worst or None
        What stands at the top of the page already and is not shown twice.
    """
    picture, above = None, False
    if axis.name in AXES and axis.differing:
        pair, image = _most_different(axis)
        above = shown is not None and (shown.pair, shown.image) == (pair, image)
        if not above:
            picture = _axis_figure(_worst(chapter, axis, pair, image))
    return {
        "title": axis.title,
        "summary": _axis_summary(axis),
        "left_out": axis.n_left_out,
        "rows": [] if axis.name == "repeats" else _axis_rows(axis),
        "kinds": _TOLD_KINDS,
        "pairs": axis.pairs,
        "picture": picture,
        "folded": axis.name not in PLACES,  # for a page read in minutes
        "above": above,
        "download": table_file(f"{axis.name}-{chapter.data}", [_pair_row(p) for p in axis.pairs]),
    }


def _axis_figure(worst: Worst) -> Shown:
    chapter, axis, pair, comparison = worst.chapter, worst.axis, worst.pair, worst.comparison
    where = f" ({pair.context})" if pair.context else ""
    return Shown(
        difference_panels(
            chapter.store.image(chapter.data_digest, worst.image),
            pair.a.masks(worst.image),
            pair.b.masks(worst.image),
            comparison,
            name_a=pair.name_a,
            name_b=pair.name_b,
        )[-3:],
        f"The image on which {axis.title} differ most: {worst.image}, {pair.name_a} (blue) "
        f"against {pair.name_b} (orange, dashed; white where both coincide){where}. "
        f"{ppm_text(comparison.ppm)} of its pixels differ; cells: "
        f"{counts_text(object_counts(comparison))}. Chosen from "
        f"{amount(len(axis.pairs), 'comparison')} over {amount(pair.n_images, 'image')} each.",
        table_file(f"cells-{axis.name}-{worst.image}", cell_rows(comparison, image=worst.image)),
    )


def _pair_row(pair: Pair) -> dict[str, Any]:
    return {
        "with": pair.context,
        "a": pair.name_a,
        "b": pair.name_b,
        "run_a": pair.a.name,
        "run_b": pair.b.name,
        "masks": str(pair.verdict),
        "weights_equal": "" if pair.weights_equal is None else pair.weights_equal,
        "changed": pair.changed,
        "ppm": pair.ppm,
        **pair.kinds,
        "images": pair.n_images,
        "worst_image": pair.worst[0],
    }


def _axis_summary(axis: Axis) -> str:
    n, n_told = len(axis.pairs), len(axis.told)
    each = "each " if n > 1 else ""
    parts = [f"{amount(n, 'comparison')}, {each}over {amount(axis.pairs[0].n_images, 'image')}"]
    with_weights = [pair for pair in axis.pairs if pair.weights_equal is not None]
    if with_weights:
        n_equal = sum(bool(pair.weights_equal) for pair in with_weights)
        parts.append(f"the weights are bit-identical in {n_equal} of {len(with_weights)}")
    if n_told:
        text = f"the masks show the same objects in {n_told - len(axis.differing)} of {n_told}"
        if axis.differing:
            largest = max(pair.changed for pair in axis.differing)
            text += f"; up to {ppm_text(axis.largest_ppm)} of the pixels differ, and " + (
                f"{share_text(largest)} of the cells" if largest else "no cell is missing"
            )
        parts.append(text)
    if n_told < n:
        parts.append(f"{n - n_told} found no objects or trained nothing, and prove nothing")
    return "; ".join(parts) + "."


def _axis_rows(axis: Axis) -> list[dict[str, Any]]:
    """One row per pair of values, over all surroundings in which both occur."""
    by_names: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in axis.pairs:
        by_names[pair.name_a, pair.name_b].append(pair)
    rows = []
    for (name_a, name_b), pairs in by_names.items():
        told = [pair for pair in pairs if not pair.vacuous]
        weighed = [pair.weights_equal for pair in pairs if pair.weights_equal is not None]
        scores = [abs(a - b) for a, b in map(_scores_of, pairs) if a is not None and b is not None]
        rows.append(
            {
                "a": name_a,
                "b": name_b,
                "n": len(pairs),
                "verdict": str(combine(pair.verdict for pair in told)),
                "weights": f"{sum(weighed)} of {len(weighed)}" if weighed else "–",
                "masks": f"{sum(p.verdict in _EQUAL for p in told)} of {len(told)}"
                if told
                else "–",
                "ppm": ppm_text(max(pair.ppm for pair in told)) if told else "–",
                "changed": share_text(max(pair.changed for pair in told)) if told else "–",
                "kinds": [_largest(told, kind) if told else "–" for kind in _TOLD_KINDS],
                "score": _score_text(max(scores)) if scores else "–",
            }
        )
    return rows


def _largest(pairs: Sequence[Pair], kind: str) -> int:
    return max(pair.kinds[kind] for pair in pairs)


def _score_text(difference: float) -> str:
    return "0" if difference == 0 else f"{difference:.2g}"


def _scores_of(pair: Pair) -> tuple[float | None, float | None]:
    return pair.a.manifest.ap50, pair.b.manifest.ap50


# -- ground truth --------------------------------------------------------------------------


def truth_view(chapter: Chapter) -> dict[str, Any] | None:
    """Scores of every run, and the best and the worst image; none without ground truth."""
    scored = [
        (run, repeat) for run, _ in chapter.runs for repeat in run.repeats
        if repeat.manifest.ap50 is not None
    ]  # fmt: skip
    if not scored:
        return None
    names = chapter.names
    with_mode = "mode" in names.varying
    rows = [
        (
            names.row(where(run)) + (f", {names.column(where(run))[1]}" if with_mode else ""),
            names.column(where(run))[0],
            float(repeat.manifest.ap50 or 0.0),
        )
        for run, repeat in scored
    ]
    lines = list(dict.fromkeys(row[0] for row in rows))
    shown = [row for row in rows if row[0] in lines[:_MOST_LINES]]
    n_images = sum(r.ap50 is not None for r in scored[0][1].manifest.masks.values())
    values = [score for _, _, score in rows]
    of = "" if len(shown) == len(rows) else f"the first {len(shown)} of "
    return {
        "scores": figure(
            training.scores(shown),
            alt=f"AP@0.5 of every run, a point each: from {min(values):.3f} to {max(values):.3f}, "
            f"mean {sum(values) / len(values):.3f}.",
            caption=f"AP@0.5 of {of}{amount(len(rows), 'run')} of "
            f"{amount(chapter.n_specs, 'spec')}, each the mean over "
            f"{amount(n_images, 'image')} with ground truth.",
            data=table_file(f"scores-{chapter.data}", _score_rows(scored)),
        ),
        "pictures": _best_and_worst(chapter, [repeat for _, repeat in scored]),
    }


def _score_rows(scored: Sequence[tuple[Any, Repeat]]) -> list[dict[str, Any]]:
    return [
        {
            "run": repeat.name,
            "image": name,
            "ap50": record.ap50,
            "cells": record.n_objects,
            "true_cells": record.n_true,
        }
        for _, repeat in scored
        for name, record in repeat.manifest.masks.items()
        if record.ap50 is not None
    ]


def _best_and_worst(chapter: Chapter, repeats: Sequence[Repeat]) -> list[Shown]:
    per_image = [
        (record.ap50, name, repeat)
        for repeat in repeats
        for name, record in repeat.manifest.masks.items()
        if record.ap50 is not None
    ]
    best = max(per_image, key=lambda entry: entry[0])
    worst = min(per_image, key=lambda entry: entry[0])
    over = f"of {amount(len(per_image), 'result')} (images times runs)"
    chosen = [(f"The worst by AP@0.5 {over}", worst), (f"The best by AP@0.5 {over}", best)]
    if best[0] == worst[0]:
        chosen = [(f"All scores are equal; the first {over}", best)]
    return [_truth_figure(chapter, what, name, repeat) for what, (_, name, repeat) in chosen]


def _truth_figure(chapter: Chapter, what: str, name: str, repeat: Repeat) -> Shown:
    masks = repeat.masks(name)  # says what to do if the file is gone
    truth = chapter.store.truth(chapter.data_digest, name)
    caption = f"{what}: {name}, by {chapter.label(repeat)}, AP@0.5 "
    caption += f"{repeat.manifest.masks[name].ap50:.3f}."
    if truth is None:  # the score was kept and the image was not
        return Shown((), f"{caption} The image and its truth are not in the store.")
    comparison = compare_masks(truth, masks)
    image = chapter.store.image(chapter.data_digest, name)
    counts = counts_text(object_counts(comparison))
    return Shown(
        truth_panels(image, truth, masks, comparison),
        f"{caption} Against the truth: {counts}; Dice {comparison.dice:.3f}, "
        f"PQ {comparison.pq:.3f}. Coloured: blue only the truth, orange only found, pink another "
        "cell.",
        table_file(f"against-truth-{name}", cell_rows(comparison, image=name)),
    )


# -- agreement over runs -------------------------------------------------------------------


def agreement_view(chapter: Chapter) -> dict[str, Any] | None:
    """Where all runs of a chapter agree, and the cells that fewest of them have.

    None where every image came out alike in all runs.
    """
    found, n_left_out = _agreements(chapter)
    if not found:
        return None
    image, (repeats, agreement) = min(found.items(), key=lambda item: _stable_share(item[1][1]))
    sources = [_reader(repeat, image) for repeat in repeats]
    pixels = chapter.store.image(chapter.data_digest, image)
    n_runs, n_results = agreement.n_runs, agreement.n_distinct
    over = f"{amount(n_runs, 'run')} with {amount(n_results, 'different result')}"
    rows = [_stability_row(chapter, repeats, one) for one in agreement.objects]
    unstable = [row for row in rows if row["runs_with"] < n_runs]
    least = [one for one in agreement.objects if one.n_runs_with < n_runs][:_MOST_CELLS]
    return {
        "sentence": _stable_sentence([one for _, one in found.values()], n_left_out),
        "image": image,
        "map": figure(
            agreement_plots.agreement_map(pixels, agreement),
            alt=f"Where {n_runs} runs disagree on {image}: {grouped(agreement.n_disputed)} of "
            f"{grouped(agreement.consensus.size)} pixels; {agreement.n_stable} of "
            f"{amount(len(agreement.objects), 'cell')} are in all runs.",
            caption=f"The image with most unstable cells, {image}, in {over}: the share of runs "
            "that call a pixel cell, and that give it the same cell.",
            data=table_file(f"stability-{image}", rows),
        ),
        "least": None
        if not unstable
        else figure(
            agreement_plots.least_stable(
                pixels, agreement, sources, n=min(_MOST_CELLS, len(unstable))
            ),
            alt="The least stable cells: "
            + "; ".join(
                f"at y {row['y']:.0f}, x {row['x']:.0f} in {row['runs_with']} of {n_runs} runs"
                for row in unstable[:_MOST_CELLS]
            )
            + ".",
            caption=f"The least stable cells of {image} in {over}, with their outlines in the runs "
            "that have them and what the other runs have there.",
            data=table_file(f"least-stable-{image}", unstable[:_MOST_CELLS]),
        ),
        "rows": [
            row | {"example": which(_without(chapter, repeats, one), n_runs, "run", most=3)}
            for row, one in zip(unstable, least, strict=False)
        ],
        "n_unstable": len(unstable),
        "over": over,
    }


def _stable_sentence(found: Sequence[Agreement], n_left_out: int) -> str:
    n_cells = sum(len(one.objects) for one in found)
    n_stable = sum(one.n_stable for one in found)
    n_runs = sorted({one.n_runs for one in found})
    runs = (
        f"all {amount(n_runs[0], 'run')}"
        if len(n_runs) == 1
        else f"all runs that segmented their image ({n_runs[0]} to {n_runs[-1]})"
    )
    text = (
        f"{n_stable} of {amount(n_cells, 'cell')} ({share_text(n_stable / max(1, n_cells))}) are "
        f"in {runs}, over {amount(len(found), 'image')} on which runs differ."
    )
    if n_left_out:
        text += (
            f" {amount(n_left_out, 'further image')} on which they differ "
            f"{'was' if n_left_out == 1 else 'were'} not looked at, so that this page is written "
            "in seconds."
        )
    return text


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
        sources = [_reader(repeat, name) for repeat in holders[name]]
        agreement = agree(sources, digests=digests[name])
        found[name] = holders[name], agreement
        n_pixels += agreement.n_distinct * agreement.consensus.size
    return found, len(differing) - len(found)


def _reader(repeat: Repeat, image: str) -> Callable[[], np.ndarray]:
    return lambda: repeat.masks(image)


def _stable_share(agreement: Agreement) -> float:
    return agreement.n_stable / len(agreement.objects) if agreement.objects else 1.0


def _stability_row(chapter: Chapter, repeats: Sequence[Repeat], one: Stability) -> dict[str, Any]:
    return {
        **dict(zip("zyx"[-len(one.position) :], np.round(one.position, 2).tolist(), strict=True)),
        "area": one.area,
        "runs_with": one.n_runs_with,
        "share": round(one.share, 4),
        "mean_iou": round(one.mean_iou, 4),
        "without": "; ".join(_without(chapter, repeats, one)),
    }


def _without(chapter: Chapter, repeats: Sequence[Repeat], one: Stability) -> list[str]:
    having = set(one.runs)
    return [chapter.label(repeat) for i, repeat in enumerate(repeats) if i not in having]
