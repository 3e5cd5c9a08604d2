"""Tables of runs: their different results, the five steps over them, how fast they were."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.run_names import Names
from cellrepro.show.tables.frames import frame
from cellrepro.words import grouped, span

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.comparison.five_steps import Step
    from cellrepro.show.inference_rates import Rate, SegmentationSpeed
    from cellrepro.store.stored_run import Repeat, Run


def result_table(runs: Sequence[Run]) -> pd.DataFrame:
    """List the different results of some runs: a row for all repeats that are equal bit for bit.

    The result most repeats have comes first, a network that others were trained from last. Equal
    numbers in a column mean equal bits.

    Raises
    ------
    Damaged
        If a file of a repeat is not what was stored.
    """
    repeats = [repeat for run in runs for repeat in run.repeats]
    names = Names(repeats)
    by_result: dict[tuple[str, str], list[Repeat]] = defaultdict(list)
    for repeat in repeats:
        repeat.refuse_damage()
        manifest = repeat.manifest
        trained = manifest.weights.digest if manifest.weights else ""
        by_result[trained, manifest.masks_digest].append(repeat)

    def order(result: tuple[str, str]) -> tuple[bool, int]:
        members = by_result[result]
        is_start = all(names.is_start(place_of(repeat)) for repeat in members)
        return is_start, -len(members)

    results = sorted(by_result, key=order)
    weights_number = _numbered(weights for weights, _ in results if weights)
    masks_number = _numbered(masks for _, masks in results)
    rows = []
    for weights, masks in results:
        members = by_result[weights, masks]
        settings = Counter(names.of_spec(place_of(repeat)) for repeat in members)
        rows.append(
            {
                "weights": weights_number.get(weights, "–"),
                "masks": masks_number[masks],
                "repeats": len(members),
                "settings": "; ".join(f"{name} ({n}×)" for name, n in settings.items()),
                "cells": members[0].manifest.n_objects,
                "AP@0.5": members[0].manifest.ap50,
            }
        )
    return frame(rows, "weights")


def protocol_table(steps: Sequence[Step]) -> pd.DataFrame:
    """List the five steps: question, answer, over what, and what to run where there is none."""
    rows = [
        {
            "step": step.number,
            "question": step.question,
            "answer": step.answer,
            "pairs": step.n_pairs,
            "what is missing": step.todo.replace("`", "") or "–",
        }
        for step in steps
    ]
    return frame(rows, "step")


def rate_table(speeds: Sequence[SegmentationSpeed]) -> pd.DataFrame:
    """List how fast segmentations were: of everything a second the median (lowest to highest).

    Parameters
    ----------
    speeds : sequence of SegmentationSpeed
        From `cellrepro.show.inference_rates`.

    Returns
    -------
    DataFrame
        Without the columns that have nothing to say.
    """
    rows = [
        {
            "images": speed.images,
            "size": speed.size,
            "batch size": speed.batch_size,
            "setting": speed.setting or None,
            "repeats": speed.n_repeats,
            "timed": speed.n_timed,
            "images/s": _rate_text(speed.images_per_second),
            "megapixels/s": _rate_text(speed.megapixels_per_second),
            "cells/s": _rate_text(speed.cells_per_second),
            "first image, s": speed.first_image_seconds,
            "masks of all repeats": speed.verdict,
        }
        for speed in speeds
    ]
    return frame(rows, "images").dropna(axis="columns", how="all")


def _rate_text(rate: Rate) -> str:
    median = grouped(rate.median)
    reach = span(grouped(rate.lowest), grouped(rate.highest))
    return median if reach == median else f"{median} ({reach})"


def _numbered(digests: Iterable[str]) -> dict[str, str]:
    """Number different digests in their order: #1, #2 …"""
    return {digest: f"#{i}" for i, digest in enumerate(dict.fromkeys(digests), start=1)}
