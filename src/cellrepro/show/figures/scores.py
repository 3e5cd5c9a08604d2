"""A figure of the scores of runs against the ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.run_names import Names
from cellrepro.show.figures import style
from cellrepro.show.figures.style import MARKERS, SERIES, WIDTH, Picture
from cellrepro.words import span
from samebits.words import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.store.stored_run import Repeat, Run


class _Score(NamedTuple):
    """The AP@0.5 of one repeat, and where it is drawn."""

    row: str
    profile: str
    ap50: float


@dataclass(frozen=True)
class _Scores:
    """Scores on one part of the images."""

    part: str
    scores: list[_Score]

    @property
    def values(self) -> list[float]:
        return [score.ap50 for score in self.scores]

    @property
    def title(self) -> str:
        """The part, and how far its scores lie apart."""
        low = f"{min(self.values):.3f}"
        high = f"{max(self.values):.3f}"
        title = f"{self.part}: {span(low, high)}"
        if low != high:
            title += f", {max(self.values) - min(self.values):.3f} apart"
        return title


def scores_of_runs(runs: Sequence[Run], *, width: float = WIDTH) -> Picture:
    """Draw AP@0.5 of every repeat against the ground truth, a row a spec, a marker a profile.

    On the images that were segmented, and below on training images where these were scored, too.
    Beside each row stand its scores, and how many repeats have them; above all how far they lie
    apart. The axis shows a span of 0.1 or more, so that small differences look small.

    Parameters
    ----------
    runs : sequence of Run
    width : float
        Of the picture, in inches; in a narrow one the words stand above the rows.

    Returns
    -------
    Picture
    """
    every = [repeat for run in runs for repeat in run.repeats]
    repeats = [repeat for repeat in every if repeat.manifest.ap50 is not None]
    if not repeats:
        return style.note("no repeat has a score against a ground truth")
    names = Names(repeats)
    row_of = {id(each): names.without(place_of(each), {"profile"}) for each in repeats}
    rows = list(dict.fromkeys(row_of[id(repeat)] for repeat in repeats))
    profiles = list(dict.fromkeys(repeat.spec.profile for repeat in repeats))
    parts = _parts(repeats, row_of)
    figure = Picture(width)
    row_height = max(0.34, 0.13 * len(profiles)) + 0.22 * figure.is_narrow
    figure.set_figheight(1 + (0.4 + row_height * len(rows)) * len(parts))
    panels = figure.subplots(len(parts), 1, sharex=True, squeeze=False).ravel()
    for axes, part in zip(panels, parts, strict=True):
        _draw_scores(axes, part.scores, rows, profiles)
        style.title(axes, part.title, size=9)
    values = [value for part in parts for value in part.values]
    middle = (min(values) + max(values)) / 2
    shown_span = max(0.1, 1.5 * (max(values) - min(values)))
    panels[-1].set_xlim(middle - shown_span / 2, middle + shown_span / 2)
    style.label_axes(panels[-1], x="AP@0.5 (0: no cell found right, 1: all)")
    if len(profiles) > 1:
        style.legend(figure, panels[0].lines)
    text = f"AP@0.5 against the ground truth: {amount(len(repeats), 'repeat')}"
    shown = ". ".join(part.title for part in parts)
    return figure.described(text, alt=f"A row of markers for each spec. {text}. {shown}.")


def _parts(repeats: Sequence[Repeat], row_of: Mapping[int, str]) -> list[_Scores]:
    """Scores on the images segmented, and on training images where these were scored, too."""
    on_segmented = []
    on_training = []
    of_training = ""
    for repeat in repeats:
        manifest = repeat.manifest
        row = row_of[id(repeat)]
        profile = repeat.spec.profile
        if manifest.ap50 is not None:
            on_segmented.append(_Score(row, profile, manifest.ap50))
        if manifest.train_scores and manifest.ap50_train is not None:
            on_training.append(_Score(row, profile, manifest.ap50_train))
        if manifest.train_scores and not of_training:
            n_scored = len(manifest.train_scores)
            of_training = f"{n_scored} of {manifest.data.n_train} training images"
    if not on_training:
        return [_Scores("images segmented", on_segmented)]
    return [_Scores("test images", on_segmented), _Scores(of_training, on_training)]


def _draw_scores(
    axes: Axes, scores: Sequence[_Score], rows: Sequence[str], profiles: Sequence[str]
) -> None:
    """Draw each score with the marker of its profile, and write all of a row beside it."""
    is_narrow = style.picture_of(axes).is_narrow
    low = -0.1 if is_narrow else -0.35
    high = 0.4 if is_narrow else 0.35
    for i, profile in enumerate(profiles):
        aside = low + (i + 0.5) * (high - low) / len(profiles)
        of_profile = [score for score in scores if score.profile == profile]
        axes.plot(
            [score.ap50 for score in of_profile],
            [rows.index(score.row) + aside for score in of_profile],
            linestyle="none",
            label=profile,
            color=SERIES[i % len(SERIES)],
            marker=MARKERS[i % len(MARKERS)],
            ms=7,
        )
    for y, row in enumerate(rows):
        counts = Counter(f"{score.ap50:.3f}" for score in scores if score.row == row)
        text = ", ".join(f"{value} ({n}×)" for value, n in sorted(counts.items()))
        style.beside_row(axes, y, style.clipped(text, 48))
    style.rows(axes, rows, size=9)
    style.x_grid(axes)
    style.label_axes(axes)
