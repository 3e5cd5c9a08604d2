"""Tables of several networks: how far they lie apart, and statistics of their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from cellrepro.comparison.weight_statistics import weight_statistics
from cellrepro.show.tables.frames import frame, readable
from cellrepro.words import share_text
from samebits.words import grouped

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from pandas.io.formats.style import Styler

    from cellrepro.comparison.weight_comparison import WeightsComparison

_MEANINGS = {
    "parameters that differ": "in at least one bit",
    "L2 distance": "length of the difference of all parameters",
    "relative L2": "the same as a share of the first network's length",
    "cosine": "1 where both point the same way",
    "largest difference": "of one parameter",
    "in": "where that is",
    "median ulp": "steps between neighbouring floating-point numbers, of one parameter",
    "largest ulp": "most steps of any parameter; many where a sign changed",
}
"""The rows of `weights_table`, and what each says."""


def weights_table(comparisons: Mapping[str, WeightsComparison]) -> pd.DataFrame:
    """Say how far pairs of networks, by what each is called, lie apart: one measure a row."""
    measured = {name: _measures(comparison) for name, comparison in comparisons.items()}
    rows = [
        {
            "measure": measure,
            **{name: measures[measure] for name, measures in measured.items()},
            "meaning": meaning,
        }
        for measure, meaning in _MEANINGS.items()
    ]
    return frame(rows, "measure")


def _measures(comparison: WeightsComparison) -> dict[str, str]:
    """Make the column of one pair, by the keys of `_MEANINGS`."""
    share_differing = comparison.n_differing / max(1, comparison.n_parameters)
    return {
        "parameters that differ": share_text(share_differing),
        "L2 distance": f"{comparison.l2:.3g}",
        "relative L2": f"{comparison.relative_l2:.3g}",
        "cosine": f"{comparison.cosine:.9f}",
        "largest difference": f"{comparison.max_abs:.3g}",
        "in": comparison.max_abs_name or "–",
        "median ulp": _ulp(comparison.median_ulp),
        "largest ulp": _ulp(comparison.max_ulp),
    }


def _ulp(steps: int | None) -> str:
    return "–" if steps is None else grouped(steps)


_DARKEST_WITH_BLACK = 0.18
"""Relative luminance from which on black has more contrast than white (WCAG 2)."""


def distance_matrix(
    matrix: np.ndarray, names: Sequence[str], *, numbers: Sequence[int] | None = None
) -> Styler:
    """Show how far N networks lie apart from each other, dark where far.

    Parameters
    ----------
    matrix : ndarray of float, shape (N, N)
        A field of `cellrepro.similarity`, such as ``relative_l2``; NaN where two networks cannot be
        compared.
    names : sequence of N str
        What each network is called.
    numbers : sequence of N int, optional
        The number of each, as in the table of runs; 1 to N by default.

    Returns
    -------
    Styler
        Which shows itself in a notebook.
    """
    import numpy as np
    import pandas as pd

    titles = [str(number) for number in numbers or range(1, len(names) + 1)]
    labels = [f"{title}: {name}" for title, name in zip(titles, names, strict=True)]
    table = pd.DataFrame(matrix, index=pd.Index(labels, name="network"), columns=titles)
    positive = np.where(np.isfinite(matrix) & (matrix > 0), matrix, np.nan)
    shades = np.log10(np.fmax(positive, np.nanmin(positive, initial=1.0)))

    def unshaded(distance: float) -> str:
        return "" if 0 < distance < np.inf else "background: white; color: black"

    return (
        readable(table)
        .format("{:.2g}", na_rep="–", subset=titles)
        .background_gradient(
            "cividis_r",
            axis=None,
            subset=titles,
            gmap=shades,
            text_color_threshold=_DARKEST_WITH_BLACK,
        )
        .map(unshaded, subset=titles)
    )


def statistics_table(paths: Mapping[str, Path], *, by_layer: bool = False) -> pd.DataFrame:
    """Describe the file and the parameters of networks.

    Parameters
    ----------
    paths : mapping of str to Path
        Weights files, by what each network is called.
    by_layer : bool
        A row for each layer instead of one for each network.

    Returns
    -------
    DataFrame
    """
    rows: list[dict[str, object]] = []
    for name, path in paths.items():
        (_, whole), *layers = weight_statistics(path).items()
        if by_layer:
            rows += [
                {"network": name, "layer": layer, **asdict(statistics)}
                for layer, statistics in layers
            ]
        else:
            n_bytes = path.stat().st_size
            rows.append({"network": name, "file, bytes": n_bytes, **asdict(whole)})
    return frame(rows, "network")
