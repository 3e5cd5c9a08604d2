"""Study 4: what determinism costs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.words import share_text
from studies.evidence import Values, keep_figure, table
from studies.numbers import markdown


def study_4() -> Values:
    """Time and memory of a step in every mode."""
    rows = table("cost.csv")
    told = []
    for one in rows.sort_values(["encoder", "profile", "ratio"]).itertuples():
        plain = rows[(rows.encoder == one.encoder) & (rows.profile == one.profile)]
        plain = plain[plain.name == "plain"].iloc[0]
        memory = one.peak_memory / plain.peak_memory
        ratio = f"{one.ratio:.2f} ({one.lowest:.2f} to {one.highest:.2f})"
        told.append([one.encoder, one.profile, f"`{one.name}`: {one.what}", f"{one.rounds}", ratio])
        told[-1].append(f"{one.seconds:.3g} s")
        told[-1] += [f"{memory:.2f}", f"{one.peak_memory / 1e9:.2f} GB"]
    head = ["network", "profile", "way", "rounds", "time beside plain (range)", "a step"]
    head += ["peak memory beside plain", "peak memory"]
    found: Values = {"table": markdown(head, told)}
    ratios = {f"{one.encoder} {one.profile} {one.name}": one for one in rows.itertuples()}
    found["of"] = {name: f"{one.ratio:.2f}" for name, one in ratios.items()}
    both = (ratios["tiny cpu strict"].seconds, ratios["tiny cpu fast"].seconds)
    found["beside_fast"] = f"{both[0] / both[1]:.2f}"
    memory = [ratios[f"vit-l cpu {name}"].peak_memory for name in ("strict", "plain")]
    found["less"] = share_text(1 - memory[0] / memory[1])
    found["largest"] = f"{rows.ratio.max():.2f}"
    title = "Time of a training step, plain Cellpose is 1"
    found["figure"] = keep_figure("4-cost.png", cost_figure(rows, title))
    return found


def cost_figure(rows: pd.DataFrame, title: str) -> Picture:
    """A panel for each network and profile: ratios, with the range of rounds."""
    groups = list(rows.groupby(["encoder", "profile"], sort=True))
    figure = Picture(height=3.2)
    panels = figure.subplots(1, len(groups), sharex=True, squeeze=False)[0]
    for panel, ((encoder, profile), some) in zip(panels, groups, strict=True):
        ways = some[some.name != "plain"].sort_values("name")
        reach = [ways.ratio - ways.lowest, ways.highest - ways.ratio]
        look = {"fmt": "o", "color": SERIES[0], "capsize": 3}
        panel.errorbar(ways.ratio, np.arange(len(ways)), xerr=reach, **look)
        panel.axvline(1, color="#444444", lw=1, ls=(0, (4, 2)))
        style.rows(panel, ways.name, size=9)
        n = int(some.rounds.iloc[0])
        style.title(panel, f"{encoder}, profile {profile}, {n} rounds", size=9)
        style.label_axes(panel, x="time beside plain")
        style.x_grid(panel)
    ratios = (
        f"{one.encoder} {one.profile} {one.name} {one.ratio:.2f}" for one in rows.itertuples()
    )
    heading = f"{title} (lines: from the lowest to the highest round)"
    return figure.described(heading, "", f"{heading}. {'; '.join(ratios)}.")
