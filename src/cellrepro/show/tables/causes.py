"""A table of what makes two results differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.explanation.setting_meanings import recorded_in_words
from cellrepro.explanation.settings_of_both import value_text
from cellrepro.show.tables.frames import frame

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.explanation.explanation import Explanation


def cause_table(explanation: Explanation) -> pd.DataFrame:
    """List each cause with its value on either side, and the cells that it changes by itself.

    Parameters
    ----------
    explanation : Explanation
        From `cellrepro.explain`.

    Returns
    -------
    DataFrame
        Cells are counted in A and in A with this one change, together; without a row where no
        cause was found.
    """
    rows = [
        {
            "changed alone": recorded_in_words(cause.name),
            "in A": value_text(cause.name, cause.a),
            "in B": value_text(cause.name, cause.b),
            "cells without a match": cause.cells,
            "of": cause.of_cells,
        }
        for cause in explanation.causes
    ]
    columns = ["changed alone", "in A", "in B", "cells without a match", "of"]
    return frame(rows, columns[0], columns=columns)
