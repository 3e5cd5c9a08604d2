"""Tables of runs: the five steps over them, how fast they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cellrepro.show.tables.frames import frame
from samebits.words import amount, grouped

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.comparison.five_steps import Step
    from cellrepro.show.inference_rates import SegmentationSpeed


def protocol_table(steps: Sequence[Step]) -> pd.DataFrame:
    """List the steps that have an answer: question, answer, and over how many pairs."""
    rows = [
        {
            "step": step.number,
            "question": step.question,
            "answer": step.answer,
            "pairs": step.n_pairs,
        }
        for step in steps
        if not step.runs_needed
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
            "size, pixels": speed.size,
            "masks": speed.verdict,
            "tiles at once": speed.n_tiles_at_once,
            "setting": speed.setting or None,
            "timed": f"{speed.n_repeats} × {_timed_text(speed)}",
            "images/s": speed.images_per_second.text(grouped),
            "megapixels/s": speed.megapixels_per_second.text(grouped),
            "cells/s": speed.cells_per_second.text(grouped),
            "first image, s": speed.first_image_seconds,
        }
        for speed in speeds
    ]
    return frame(rows, "images").dropna(axis="columns", how="all")


def _timed_text(speed: SegmentationSpeed) -> str:
    return "the first image" if speed.is_first_image else amount(speed.n_timed, "image")
