"""A table of what makes trainings differ outside the training step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cellrepro.audits.source_of_difference import EXPERIMENTS, Source
from cellrepro.show.tables.frames import frame

if TYPE_CHECKING:
    import pandas as pd


def source_table(sources: Sequence[Source]) -> pd.DataFrame:
    """List each question with its answer on this data, and how to hold what differs.

    Parameters
    ----------
    sources : sequence of Source
        From `cellrepro.audits.outside_the_step.sources_of_difference`.

    Returns
    -------
    DataFrame
    """
    rows = [
        {
            "question": EXPERIMENTS[source.name].question,
            "here": "yes" if source.moves else "no",
            "comparisons": source.n_compared,
            "how to prevent it": source.remedy if source.moves else "–",
        }
        for source in sources
    ]
    return frame(rows, "question")
