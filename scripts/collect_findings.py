"""Measure a table of evidence/ in a store in which the grids of grids/findings were run.

A table keeps what was measured before. Runs themselves are taken out of a store by `cellrepro
export`: evidence/README.md says how.
"""

from __future__ import annotations

import sys

from cyclopts import App
from evidence_tables import cells, devices, forecasts, pairs, settings

from cellrepro import BadInput

app = App(name="collect_findings.py", help=__doc__)
for measure in (
    pairs.weights,
    pairs.steps,
    pairs.growth,
    pairs.first,
    cells.cells,
    devices.portable,
    devices.portable_training,
    settings.settings,
    settings.cost,
    forecasts.forecast_passes,
    forecasts.forecast,
    forecasts.forecast_cost,
):
    app.command(measure, name=measure.__name__)


def main() -> None:
    """Measure the table that the command line names."""
    try:
        app()
    except BadInput as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
