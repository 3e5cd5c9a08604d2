"""The band in which a training on other computers grows apart from the one here, by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cellrepro.show.figures import style
from cellrepro.show.figures.style import MARKERS, SERIES, WIDTH, Picture
from samebits.words import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.divergence.growth_forecast import GrowthForecast, RealTraining

_BAND = SERIES[0]
_OF_REAL = SERIES[1:]


def growth_band(forecast: GrowthForecast, *, width: float = WIDTH) -> Picture:
    """Draw where a training on other computers will lie: weights, pixels and cells, by epoch.

    The band goes from the lowest to the highest draw, with a line for each. The same training as
    the store has it from elsewhere is drawn over it.

    Parameters
    ----------
    forecast : GrowthForecast
        From `cellrepro.forecast` of a training.
    width : float
        Inches.

    Returns
    -------
    Picture
    """
    moments = forecast.moments
    epochs = [moment.epoch for moment in moments]
    picture = Picture(width, height=7.4 if forecast.real else 6.8)
    weights, pixels, cells = picture.subplots(3, 1, sharex=True)
    distances = [[distance for _, distance in real.distances] for real in forecast.real]
    _draw_band(weights, epochs, [moment.distance_by_draw for moment in moments], distances)
    _draw_band(
        pixels,
        epochs,
        [moment.pixels_by_draw for moment in moments],
        [[real.pixels] for real in forecast.real],
    )
    _draw_band(
        cells,
        epochs,
        [moment.cells_by_draw for moment in moments],
        [[real.cells] for real in forecast.real],
        logarithmic=False,
    )
    for index, real in enumerate(forecast.real):
        look = _look_of_real(index)
        weights.plot(*zip(*real.distances, strict=True), **look)
        at_end = [real.distances[-1][0]]
        pixels.plot(at_end, [real.pixels], **look)
        cells.plot(at_end, [real.cells], **look)
    style.label_axes(weights, y="distance of the weights\n(share of their size)")
    style.title(weights, "weights: how far from those of this computer", size=9)
    style.label_axes(pixels, y="pixels that differ")
    style.title(pixels, "masks: pixels that differ from those of this computer", size=9)
    style.label_axes(cells, x="epochs trained", y="cells that differ")
    style.title(cells, f"masks: cells that differ, of {forecast.n_cells} at the end", size=9)
    cells.locator_params(axis="both", integer=True)
    _explain(picture, forecast.draws, forecast.real)
    return picture.described(
        f"On other computers {forecast.cells_that_differ()}",
        "The masks are those that each training would have given had it ended there. The axes of "
        "weights and pixels are logarithmic, with 0 at the foot.",
        f"Bands over {amount(len(moments), 'epoch')}. {forecast.sentence()}.",
    )


def _draw_band(
    axes: Axes,
    epochs: Sequence[int],
    by_draw: Sequence[Sequence[float]],
    of_real: Sequence[Sequence[float]],
    *,
    logarithmic: bool = True,
) -> None:
    """Draw the band of the draws, on an axis that has room for the real ones, too."""
    if logarithmic:
        style.with_zero(axes, "y", [value for values in (*by_draw, *of_real) for value in values])
    low, high = map(min, by_draw), map(max, by_draw)
    axes.fill_between(epochs, [*low], [*high], color=_BAND, alpha=0.25, linewidth=0)
    for of_draw in zip(*by_draw, strict=True):
        axes.plot(epochs, of_draw, color=_BAND, linewidth=1)


def _look_of_real(index: int) -> dict[str, object]:
    return {
        "color": _OF_REAL[index % len(_OF_REAL)],
        "marker": MARKERS[index % len(MARKERS)],
        "markeredgecolor": "black",
        "linestyle": "--",
        "linewidth": 1.2,
    }


def _explain(picture: Picture, n_draws: int, real: Sequence[RealTraining]) -> None:
    """Name the band, and the real trainings by profile and run."""
    band = style.patch(f"forecast: {amount(n_draws, 'draw')}", color=_BAND, alpha=0.25)
    of_store = [
        style.line(f"{one.profile}: {one.name}", **_look_of_real(index))
        for index, one in enumerate(real)
    ]
    style.legend(picture, [band, *of_store])
