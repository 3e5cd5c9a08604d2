"""Study 6: what changes a segmentation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from collecting.settings import networks_of

from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.comparison.seed_spread import measure_spread
from cellrepro.show.figures import style
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Run
from cellrepro.words import joined, ppm_text, share_text
from studies.evidence import EVIDENCE, SETS, every_run, keep_figure, keep_rows, table
from studies.lines import left_of_zero
from studies.numbers import markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["setting", "threads", "precision", "seed"]
"""``threads``: and instructions."""

LOOKS: dict[Kind, str] = {"setting": "o", "threads": "s", "precision": "^", "seed": "D"}
"""Markers in the figure."""


@dataclass(frozen=True)
class Change:
    """Something that was changed in a segmentation, and the share of cells that changed with it.

    The fields are columns of 6-changes.csv; what is not known is NaN.

    Attributes
    ----------
    kind : Kind
    what : str
    changed, low, high, ppm : float
    ap : float
        Difference of AP@0.5.
    """

    kind: Kind
    what: str
    changed: float
    low: float
    high: float
    ppm: float
    ap: float

    @property
    def has_interval(self) -> bool:
        """Whether ``low`` and ``high`` are known."""
        return not math.isnan(self.low)


@dataclass(frozen=True)
class OfImages:
    """What the text says of one set of images.

    Attributes
    ----------
    changes : list of Change
        The largest first.
    n_networks : int
    epochs : int
        Of them.
    least_score : str
        AP at IoU 0.5.
    most_score : str
    most_unseen : str
        Share that may change where none did.
    """

    changes: list[Change]
    n_networks: int
    epochs: int
    least_score: str
    most_score: str
    most_unseen: str

    @property
    def seed(self) -> Change:
        """Training again with a different seed."""
        (seed,) = [change for change in self.changes if change.kind == "seed"]
        return seed

    @property
    def others(self) -> list[Change]:
        """All but the seed."""
        return [change for change in self.changes if change.kind != "seed"]

    @property
    def settings(self) -> list[Change]:
        """Values of settings."""
        return [change for change in self.changes if change.kind == "setting"]

    @property
    def n_settings(self) -> int:
        """Settings of which values were tried."""
        return len({change.what.split(" ")[0] for change in self.settings})

    @property
    def more(self) -> list[Change]:
        """Changes with more cells than the seed, on average."""
        return [change for change in self.others if change.changed > self.seed.changed]

    @property
    def more_pixels(self) -> list[Change]:
        """Changes with more pixels than the seed, on average."""
        return [change for change in self.others if change.ppm > self.seed.ppm]

    @property
    def clearly_more(self) -> str:
        """Those whose interval lies above the seed's."""
        return listed([change for change in self.others if change.low > self.seed.high])

    @property
    def none(self) -> list[Change]:
        """Changes without a changed cell."""
        return [change for change in self.others if not change.changed]

    @property
    def without(self) -> str:
        """The same, in words."""
        return listed(self.none)


@dataclass(frozen=True)
class Study6:
    """What the text says of what changes a segmentation."""

    sets: dict[str, OfImages]
    table: str
    figure: str


def study_6() -> Study6:
    """Compare what changes a segmentation with a different seed of the training."""
    sets = {}
    for images in SETS:
        networks = networks_of(Store(EVIDENCE), images)
        if len(networks) > 2:
            sets[images] = of_images(images, networks)
    changes = {images: each.changes for images, each in sets.items()}
    keep_rows(
        "6-changes.csv",
        [
            {"images": images, **asdict(change)}
            for images, of_set in changes.items()
            for change in of_set
        ],
    )
    title = "Cells that change when one thing is changed"
    return Study6(
        sets=sets,
        table=table_of_changes(changes),
        figure=keep_figure("6-changes.png", changes_figure(changes, title)),
    )


def of_images(images: str, networks: Sequence[Run]) -> OfImages:
    """All changes over one set of images, and the networks that segmented it."""
    manifests = [run.repeats[0].manifest for run in networks]
    scores = [manifest.ap50 for manifest in manifests]
    mean_cells = sum(manifest.n_objects for manifest in manifests) / len(manifests)
    return OfImages(
        changes=changes_of(images, networks),
        n_networks=len(networks),
        epochs=networks[0].spec.epochs,
        least_score=f"{min(scores):.2f}",
        most_score=f"{max(scores):.2f}",
        most_unseen=share_text(3 / mean_cells),  # rule of three
    )


# -- changes -------------------------------------------------------------------------------


def changes_of(images: str, networks: Sequence[Run]) -> list[Change]:
    """All that was changed, the largest first."""
    seeds = measure_spread(networks, axes=["seed"]).axis("seed")
    assert seeds is not None, f"{images}: no two seeds"
    keys = [run.key for run in networks]
    changes = [
        as_change("seed", "retraining with a different seed", seeds),
        *by_setting(images, keys),
        *by_device(images, keys),
    ]
    return sorted(changes, key=lambda change: (-change.changed, -change.ppm))


def by_setting(images: str, keys: Sequence[str]) -> list[Change]:
    """Means over networks, and the outer ends of their intervals."""
    rows = table("settings.csv")
    rows = rows[(rows.images == images) & rows.network.isin(keys)]
    return [
        Change(
            kind="setting",
            what=f"{name} {value}",
            changed=float(of_value.changed.mean()),
            low=float(of_value.low.min()),
            high=float(of_value.high.max()),
            ppm=float(of_value.ppm.mean()),
            ap=float((of_value.ap50 - of_value.usual_ap50).mean()),
        )
        for (name, value), of_value in rows.groupby(["name", "value"], sort=False)
    ]


def by_device(images: str, keys: Sequence[str]) -> list[Change]:
    """These networks on other profiles: each beside profile `cpu`."""
    runs = [
        run
        for run in every_run()
        if run.spec.data == images
        and run.spec.task == "segment"
        and run.spec.model.split("/")[0] in keys
    ]
    if not runs:
        return []
    changes = []
    kinds: tuple[Kind, ...] = ("threads", "precision")
    for kind in kinds:
        axis = measure_spread(runs, axes=[kind]).axis(kind)
        by_profile: dict[str, list[Pair]] = {}
        for pair in axis.pairs if axis else []:
            profiles = [pair.a.spec.profile, pair.b.spec.profile]
            if "cpu" in profiles:
                profiles.remove("cpu")
                by_profile.setdefault(profiles[0], []).append(pair)
        for profile, pairs in by_profile.items():
            changes.append(as_change(kind, f"profile {profile}", Axis(kind, pairs)))
    return changes


def as_change(kind: Kind, what: str, axis: Axis) -> Change:
    """An axis's mean; with its interval where there are several pairs."""
    distribution = axis.distribution()
    interval = distribution.interval if len(axis.evidence) != 1 else None
    return Change(
        kind=kind,
        what=what,
        changed=distribution.mean,
        low=interval.low if interval else math.nan,
        high=interval.high if interval else math.nan,
        ppm=axis.distribution("ppm").mean,
        ap=math.nan,
    )


# -- words, table, figure ------------------------------------------------------------------


def listed(changes: Sequence[Change]) -> str:
    """What was changed, with the share of the cells where there is one."""
    words = [
        f"{change.what} ({share_text(change.changed)})" if change.changed else change.what
        for change in changes
    ]
    return joined(words) or "nothing"


def table_of_changes(changes: Mapping[str, Sequence[Change]]) -> str:
    """A row for each change, in the order of the first set of images."""
    head = ["what was changed"]
    rows: dict[str, list[str]] = {}
    for images, of_set in changes.items():
        n_before = len(head) - 1
        head += [f"{images}: cells changed (interval)", "pixels", "AP@0.5 minus usual"]
        for change in of_set:
            row = rows.setdefault(change.what, [change.what, *["–"] * n_before])
            row += _cells_of(change)
    return markdown(head, [row + ["–"] * (len(head) - len(row)) for row in rows.values()])


def _cells_of(change: Change) -> list[str]:
    changed = share_text(change.changed)
    if change.has_interval:
        changed += f" ({share_text(change.low)} to {share_text(change.high)})"
    score = "–" if math.isnan(change.ap) else f"{change.ap:+.3f}"
    return [changed, ppm_text(change.ppm), score]


def changes_figure(changes: Mapping[str, Sequence[Change]], title: str) -> Picture:
    """Draw a panel for each set of images, a row for each change; the seed's interval is a band."""
    names = list(dict.fromkeys(each.what for of_set in changes.values() for each in of_set))
    figure = Picture(height=1.3 + 0.22 * len(names))
    panels = figure.subplots(1, len(changes), sharey=True, squeeze=False)[0]
    for panel, (images, of_set) in zip(panels, changes.items(), strict=True):
        _draw_changes(panel, of_set, names)
        style.title(panel, images, size=10)
    style.rows(panels[0], names)
    labels = {"setting": "setting of eval", "threads": "threads, instructions"}
    marks = [
        style.line(labels.get(kind, kind), marker=mark, color=_colour(kind), mec="black")
        for kind, mark in LOOKS.items()
    ]
    style.legend(figure, marks)
    largest = "; ".join(f"{images}: {listed(of_set[:6])}" for images, of_set in changes.items())
    return figure.described(title, "", f"{title}. Largest changes: {largest}.")


def _draw_changes(panel: Axes, changes: Sequence[Change], names: Sequence[str]) -> None:
    ends = []
    for change in changes:
        ends.append(change.changed)
        if change.has_interval:
            ends += [change.low, change.high]
    style.with_zero(panel, "x", ends)
    for change in changes:
        y = names.index(change.what)
        colour = _colour(change.kind)
        if change.kind == "seed":
            panel.axvspan(change.low, change.high, color="#F6D896", zorder=0)
        if change.has_interval:
            panel.plot([change.low, change.high], [y, y], color=colour, lw=1.5)
        panel.plot(change.changed, y, LOOKS[change.kind], color=colour, ms=6, mec="black")
    panel.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
    panel.set_xlim(left=left_of_zero(ends))
    style.label_axes(panel, x="logarithmic; 0 apart; lines: outer ends of intervals")
    panel.tick_params(axis="x", labelsize=8)
    style.x_grid(panel)


def _colour(kind: Kind) -> str:
    return SERIES[list(LOOKS).index(kind)]
