"""Study 4: what determinism costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.words import share_text
from studies.evidence import keep_figure, table
from studies.numbers import markdown


@dataclass(frozen=True)
class Study4:
    """What the text says of time and memory.

    Attributes
    ----------
    ratios : dict of str to str
        Of time beside plain Cellpose, by ``NETWORK PROFILE WAY``.
    beside_fast : str
        Mode strict, tiny.
    less_memory : str
        Of mode strict, ViT-L.
    largest : str
        Ratio of all.
    table, figure : str
    """

    ratios: dict[str, str]
    beside_fast: str
    less_memory: str
    largest: str
    table: str
    figure: str


def study_4() -> Study4:
    """Time and memory of a step in every mode."""
    rows = table("cost.csv")
    by_way = rows.set_index(["encoder", "profile", "name"])
    strict = by_way.loc["tiny", "cpu", "strict"]
    fast = by_way.loc["tiny", "cpu", "fast"]
    large_strict = by_way.loc["vit-l", "cpu", "strict"]
    large_plain = by_way.loc["vit-l", "cpu", "plain"]
    title = "Time of a training step, plain Cellpose is 1"
    return Study4(
        ratios={" ".join(names): f"{ratio:.2f}" for names, ratio in by_way.ratio.items()},
        beside_fast=f"{strict.seconds / fast.seconds:.2f}",
        less_memory=share_text(1 - large_strict.peak_memory / large_plain.peak_memory),
        largest=f"{rows.ratio.max():.2f}",
        table=table_of_costs(rows),
        figure=keep_figure("4-cost.png", cost_figure(rows, title)),
    )


def table_of_costs(rows: pd.DataFrame) -> str:
    """A row for each way of training, of each network and profile."""
    plain = rows[rows.name == "plain"].set_index(["encoder", "profile"])
    lines = []
    for way in rows.sort_values(["encoder", "profile", "ratio"]).itertuples():
        memory = way.peak_memory / plain.peak_memory[way.encoder, way.profile]
        lines.append(
            [
                way.encoder,
                way.profile,
                f"`{way.name}`: {way.what}",
                f"{way.rounds}",
                f"{way.ratio:.2f} ({way.lowest:.2f} to {way.highest:.2f})",
                f"{way.seconds:.3g} s",
                f"{memory:.2f}",
                f"{way.peak_memory / 1e9:.2f} GB",
            ]
        )
    head = [
        "network",
        "profile",
        "way",
        "rounds",
        "time compared with plain (range)",
        "a step",
        "peak memory compared with plain",
        "peak memory",
    ]
    return markdown(head, lines)


def cost_figure(rows: pd.DataFrame, title: str) -> Picture:
    """Draw a panel for each network and profile: ratios, with the range of rounds."""
    groups = list(rows.groupby(["encoder", "profile"], sort=True))
    figure = Picture(height=3.2)
    panels = figure.subplots(1, len(groups), sharex=True, squeeze=False)[0]
    for panel, ((encoder, profile), of_group) in zip(panels, groups, strict=True):
        ways = of_group[of_group.name != "plain"].sort_values("name")
        reach = [ways.ratio - ways.lowest, ways.highest - ways.ratio]
        places = np.arange(len(ways))
        panel.errorbar(ways.ratio, places, xerr=reach, fmt="o", color=SERIES[0], capsize=3)
        panel.axvline(1, color="#444444", lw=1, ls=(0, (4, 2)))
        style.rows(panel, ways.name, size=9)
        n_rounds = int(of_group.rounds.iloc[0])
        style.title(panel, f"{encoder}, profile {profile}, {n_rounds} rounds", size=9)
        style.label_axes(panel, x="time compared with plain")
        style.x_grid(panel)
    ratios = [
        f"{way.encoder} {way.profile} {way.name} {way.ratio:.2f}" for way in rows.itertuples()
    ]
    heading = f"{title} (lines: from the lowest to the highest round)"
    return figure.described(heading, "", f"{heading}. {'; '.join(ratios)}.")
