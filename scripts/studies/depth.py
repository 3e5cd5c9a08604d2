"""How far repeats are apart, by depth of the network: a part of study 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from cellrepro.comparison.measured_axis import Distribution
from cellrepro.comparison.seed_spread import Spread, measure_spread
from cellrepro.show.figures.spread import spread_rows
from studies.evidence import (
    FIRST_EPOCHS,
    SHORT_EPOCHS,
    keep_rows,
    repeated_runs,
    rows_of_study_3,
    runs_of,
)
from studies.lines import StrictRuns, strict_runs
from studies.numbers import Span, markdown, range_of_scores, span_of, with_interval

MODELS = {"tiny": 2, "tiny-4": 4, "tiny-8": 8, "tiny-12": 12, "vit-l": 24}
"""Networks and their depth in blocks."""


@dataclass(frozen=True)
class WeightsApart:
    """Pairs of repeats after some training.

    Attributes
    ----------
    rows : DataFrame
    n_differing : int
    distance : Span
        Relative.
    """

    rows: pd.DataFrame
    n_differing: int
    distance: Span

    def cells(self) -> list[str]:
        """Of a table's row."""
        distance = f"{self.distance.median} ({self.distance.range})"
        return [f"{self.n_differing} of {len(self.rows)}", distance]


@dataclass(frozen=True)
class CellsApart:
    """What became of the cells after forty epochs.

    Attributes
    ----------
    spread : Spread
    repeats : Distribution
        Share that changed between repeats.
    seeds : Distribution or None
    scores : str
    """

    spread: Spread
    repeats: Distribution
    seeds: Distribution | None
    scores: str

    @property
    def pairs(self) -> str:
        """In how many pairs of repeats cells changed."""
        n_changed = sum(share > 0 for share in self.repeats.values)
        return f"{n_changed} of {len(self.repeats.values)}"

    def cells(self) -> list[str]:
        """Of a table's row."""
        seeds = [] if self.seeds is None else [with_interval(self.seeds)]
        return [with_interval(self.repeats), *seeds, self.scores]


@dataclass(frozen=True)
class OfDepth:
    """One network.

    Attributes
    ----------
    model : str
    n_blocks : int
    first : WeightsApart or None
        After the first steps.
    short : WeightsApart or None
        After forty epochs.
    found : CellsApart or None
    """

    model: str
    n_blocks: int
    first: WeightsApart | None
    short: WeightsApart | None
    found: CellsApart | None


@dataclass(frozen=True)
class ByDepth:
    """What the text says by depth.

    Attributes
    ----------
    networks : mapping of int to OfDepth
        By blocks.
    table : str
    strict : StrictRuns
        Of 12 blocks.
    """

    networks: Mapping[int, OfDepth]
    table: str
    strict: StrictRuns


def by_depth() -> ByDepth:
    """Compare networks after the first steps and after whole trainings."""
    networks = {n_blocks: _of_depth(model, n_blocks) for model, n_blocks in MODELS.items()}
    kept_steps = []
    kept_cells = []
    for network in networks.values():
        for apart in (network.first, network.short):
            if apart is not None:
                kept_steps.append(apart.rows)
        if network.found is not None:
            rows = spread_rows(network.found.spread)
            kept_cells += [{"depth": network.n_blocks, **row} for row in rows]
    keep_rows("3-steps.csv", pd.concat(kept_steps))
    keep_rows("3-depth.csv", kept_cells)
    return ByDepth(
        networks=networks,
        table=_table(networks),
        strict=strict_runs(runs_of("nuclei", SHORT_EPOCHS, "tiny-12")),
    )


def _of_depth(model: str, n_blocks: int) -> OfDepth:
    first = _weights_apart(model, n_blocks, FIRST_EPOCHS)
    short = _weights_apart(model, n_blocks, SHORT_EPOCHS)
    cells_apart = None if short is None else _cells_apart(model)
    return OfDepth(model, n_blocks, first, short, cells_apart)


def _weights_apart(model: str, n_blocks: int, epochs: int) -> WeightsApart | None:
    """None where no pair was trained so long."""
    weights = rows_of_study_3("weights.csv", epochs, model)
    if weights.empty:
        return None
    steps = rows_of_study_3("steps.csv", epochs, model)
    return WeightsApart(
        rows=steps.merge(weights, on=["images", "a", "b"]).assign(depth=n_blocks),
        n_differing=int((weights.n_differing > 0).sum()),
        distance=span_of(weights.relative_l2, digits=2),
    )


def _cells_apart(model: str) -> CellsApart:
    runs = repeated_runs(SHORT_EPOCHS, model)
    spread = measure_spread(runs)
    repeats = spread.axis("repeats")
    seeds = spread.axis("seed")
    assert repeats is not None, f"{model}: no training was repeated"
    return CellsApart(
        spread=spread,
        repeats=repeats.distribution(),
        seeds=seeds.distribution() if seeds else None,
        scores=range_of_scores(runs),
    )


def _table(networks: Mapping[int, OfDepth]) -> str:
    head = ["blocks", "network"]
    for moment in ("four steps", f"{SHORT_EPOCHS} epochs"):
        head += [f"pairs that differ after {moment}", "distance of the weights: median (range)"]
    head += ["cells changed between repeats", "between seeds", "AP@0.5"]
    rows = []
    for network in networks.values():
        row = [str(network.n_blocks), f"`{network.model}`"]
        for part in (network.first, network.short, network.found):
            if part is not None:
                row += part.cells()
        row += ["–"] * (len(head) - len(row))
        rows.append(row)
    return markdown(head, rows)
