"""Study 6: what changes a segmentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from collect_findings import networks_of

from cellrepro.same.seed_spread import Axis, measure_spread
from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.store import Run, Store
from cellrepro.words import joined, ppm_text, share_text
from studies.evidence import EVIDENCE, SETS, Values, every_run, keep_figure, keep_rows, table
from studies.numbers import markdown


class Change(NamedTuple):
    """Something that was changed in a segmentation, and the share of cells that changed with it."""

    kind: str  # setting, threads (and instructions), precision, seed
    what: str
    changed: float
    low: float
    high: float
    ppm: float
    ap: float  # difference of AP@0.5


def study_6() -> Values:
    """What changes a segmentation, beside another seed of the training."""
    found: Values = {"sets": {}}
    for images in SETS:
        networks = networks_of(Store(EVIDENCE), images)
        if len(networks) > 2:
            found["sets"][images] = told_of(changes_of(images, networks), networks)
    sets = found["sets"]
    every = {images: one["changes"] for images, one in sets.items()}
    rows = [{"images": name, **one._asdict()} for name, some in every.items() for one in some]
    keep_rows("6-changes.csv", rows)
    found["table"] = table_of_changes(every)
    title = "Cells that change when one thing is changed"
    found["figure"] = keep_figure("6-changes.png", changes_figure(every, title))
    return found


def changes_of(images: str, networks: Sequence[Run]) -> list[Change]:
    """Of all that was changed, the largest first."""
    seeds = measure_spread(networks, axes=["seed"]).axis("seed")
    assert seeds is not None, f"{images}: no two seeds"
    keys = [run.key for run in networks]
    found = [as_change("seed", "retraining with another seed", seeds)]
    found += [*by_setting(images, keys), *by_device(images, keys)]
    return sorted(found, key=lambda one: (-one.changed, -one.ppm))


def told_of(changes: Sequence[Change], networks: Sequence[Run]) -> Values:
    """What the text says of one set of images."""
    (seed,) = (one for one in changes if one.kind == "seed")
    firsts = [run.repeats[0] for run in networks]
    others = [one for one in changes if one.kind != "seed"]
    found: Values = {"changes": changes, "seed": seed, "n": len(others)}
    found["settings"] = [one for one in others if one.kind == "setting"]
    found["n_settings"] = len({one.what.split(" ")[0] for one in found["settings"]})
    found["more"] = [one for one in others if one.changed > seed.changed]
    found["more_pixels"] = [one for one in others if one.ppm > seed.ppm]
    found["few"] = share_text(3 / (sum(r.manifest.n_objects for r in firsts) / len(firsts)))
    found["clearly"] = said_of([one for one in others if one.low > seed.high])
    found["none"] = [one for one in others if not one.changed]
    found["without"] = said_of(found["none"])
    found["epochs"], found["networks"] = networks[0].spec.epochs, len(networks)
    aps = [repeat.manifest.ap50 for repeat in firsts]
    found["ap"] = f"{min(aps):.2f}", f"{max(aps):.2f}"
    return found


def table_of_changes(every: dict[str, list[Change]]) -> str:
    """A row for each change, in the order of the first set of images."""
    head, rows = ["what was changed"], {}
    for images, changes in every.items():
        n_columns = len(head) - 1
        head += [f"{images}: cells changed (interval)", "pixels", "AP@0.5 minus usual"]
        for one in changes:
            span = f" ({share_text(one.low)} to {share_text(one.high)})"
            told = [share_text(one.changed) + (span if one.low == one.low else "")]
            told += [ppm_text(one.ppm), f"{one.ap:+.3f}" if one.ap == one.ap else "–"]
            rows.setdefault(one.what, [one.what, *["–"] * n_columns]).extend(told)
    return markdown(head, [row + ["–"] * (len(head) - len(row)) for row in rows.values()])


def said_of(changes: Sequence[Change]) -> str:
    """What was changed, with the share of the cells where there is one."""
    told = [
        f"{one.what} ({share_text(one.changed)})" if one.changed else one.what for one in changes
    ]
    return joined(told) or "nothing"


def by_setting(images: str, keys: Sequence[str]) -> list[Change]:
    """Means over networks, and the outer ends of their intervals."""
    rows = table("settings.csv")
    rows = rows[(rows.images == images) & rows.network.isin(keys)]
    found = []
    for (name, value), some in rows.groupby(["name", "value"], sort=False):
        numbers = some.changed.mean(), some.low.min(), some.high.max(), some.ppm.mean()
        ap = (some.ap50 - some.usual_ap50).mean()
        found.append(Change("setting", f"{name} {value}", *map(float, (*numbers, ap))))
    return found


def by_device(images: str, keys: Sequence[str]) -> list[Change]:
    """These networks on other profiles: each beside profile `cpu`."""
    runs = [run for run in every_run() if (run.spec.data, run.spec.task) == (images, "segment")]
    runs = [run for run in runs if run.spec.model.split("/")[0] in keys]
    found = []
    for name in ("threads", "precision"):
        axis = measure_spread(runs, axes=[name]).axis(name) if runs else None
        beside: dict[str, list[Any]] = {}
        for pair in axis.pairs if axis else []:
            profiles = [pair.a.spec.profile, pair.b.spec.profile]
            if "cpu" in profiles:
                profiles.remove("cpu")
                beside.setdefault(profiles[0], []).append(pair)
        for profile, some in beside.items():
            found.append(as_change(name, f"profile {profile}", Axis(name, some)))
    return found


def as_change(kind: str, what: str, axis: Axis) -> Change:
    """An axis's mean with its interval."""
    got = axis.distribution()
    low, high = (got.interval.low, got.interval.high) if got.interval else (math.nan, math.nan)
    n = len(axis.evidence)
    if n == 1:
        low = high = math.nan
    return Change(kind, what, got.mean, low, high, axis.distribution("ppm").mean, math.nan)


LOOKS = {"setting": "o", "threads": "s", "precision": "^", "seed": "D"}


def changes_figure(every: dict[str, list[Change]], title: str) -> Picture:
    """A panel for each set of images, a row for each change; the seed's interval is a band."""
    names = list(dict.fromkeys(one.what for changes in every.values() for one in changes))
    figure = Picture(height=1.3 + 0.22 * len(names))
    panels = figure.subplots(1, len(every), sharey=True, squeeze=False)[0]
    for panel, (images, changes) in zip(panels, every.items(), strict=True):
        ends = [end for one in changes for end in (one.changed, one.low, one.high) if end == end]
        style.with_zero(panel, "x", ends)
        for one in changes:
            y, colour = names.index(one.what), SERIES[list(LOOKS).index(one.kind)]
            if one.kind == "seed":
                panel.axvspan(one.low, one.high, color="#F6D896", zorder=0)
            if one.low == one.low:
                panel.plot([one.low, one.high], [y, y], color=colour, lw=1.5)
            panel.plot(one.changed, y, LOOKS[one.kind], color=colour, ms=6, mec="black")
        panel.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
        panel.set_xlim(left=-0.3 * min([v for v in ends if v > 0] or [0.01]))
        style.label_axes(panel, x="logarithmic; 0 apart; lines: outer ends of intervals")
        style.title(panel, images, size=10)
        panel.tick_params(axis="x", labelsize=8)
        style.x_grid(panel)
    style.rows(panels[0], names)
    told = {"setting": "setting of eval", "threads": "threads, instructions", "seed": "seed"}
    marks = [
        style.line(told.get(kind, kind), marker=mark, color=SERIES[i], mec="black")
        for i, (kind, mark) in enumerate(LOOKS.items())
    ]
    style.legend(figure, marks)
    most = "; ".join(f"{name}: {said_of(some[:6])}" for name, some in every.items())
    return figure.described(title, "", f"{title}. Largest changes: {most}.")
