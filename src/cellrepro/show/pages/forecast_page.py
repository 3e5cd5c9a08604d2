"""The page about a training on other computers: its band, and the cells that differ at the end."""

from __future__ import annotations

from cellrepro.divergence.growth_forecast import GrowthForecast
from cellrepro.explanation.forecast import cell_rows
from cellrepro.show.figures.growth_band import growth_band
from cellrepro.show.pages.page_file import PageTarget, rendered, write_page
from cellrepro.show.pages.parts import MOST_ROWS, drawn_twice, figure, table, table_file
from cellrepro.words import as_sentence


def write_forecast_page(target: PageTarget, forecast: GrowthForecast) -> None:
    """Write the page of a training's forecast."""
    by_draw = [
        {
            "epoch": moment.epoch,
            "draw": draw + 1,
            "distance of the weights": moment.distance_by_draw[draw],
            "pixels that differ": moment.pixels_by_draw[draw],
            "cells that differ": moment.cells_by_draw[draw],
        }
        for moment in forecast.moments
        for draw in range(forecast.draws)
    ]
    cells = cell_rows(forecast.images, forecast.draws)
    drawn = drawn_twice(growth_band, forecast)
    page = rendered(
        "forecast.html.j2",
        forecast=forecast,
        headline=as_sentence(forecast.sentence()),
        curve=figure(drawn, table_file("growth", by_draw)),
        caption=drawn.wide.caption,
        moments=table(forecast.rows(), {}),
        remarks=[as_sentence(remark) for remark in forecast.remarks()],
        cells=table(cells[:MOST_ROWS], {}, file="cells") if cells else None,
        n_cells=len(cells),
    )
    write_page(target, page)
