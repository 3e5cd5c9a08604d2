"""How the difference of two runs grows over the epochs: weights, pixels, cells, scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from cellrepro.show.figures import style
from cellrepro.show.figures.colours import COLOURS
from cellrepro.show.figures.style import EDGE, SERIES, Picture
from cellrepro.words import pixels_text, share_text, span
from samebits.errors import BadInput
from samebits.words import amount, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.divergence.growth import Moment

_MOST_EPOCHS = 12  # in a sentence


def growth_curve(moments: Sequence[Moment], *, at_operation: float | None = None) -> Picture:
    """Draw how the difference of two runs grows over the epochs: weights, pixels, cells, scores.

    Zero has a place of its own under the logarithmic axes. What never differs is said in the
    caption and has no panel.

    Parameters
    ----------
    moments : sequence of Moment
        From `cellrepro.growth`.
    at_operation : float, optional
        Largest difference at the operation where the two diverged, in the units of its outputs.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If there is no moment.
    """
    if not moments:
        raise BadInput("no moment was given to draw; give what `cellrepro.growth` returns")
    masked = [moment for moment in moments if moment.ppm is not None]
    scored = [moment for moment in moments if moment.ap50 is not None]
    with_pixels = any(moment.ppm for moment in masked)
    with_cells = any(moment.lost or moment.gained for moment in masked)
    n_panels = 1 + with_pixels + with_cells + bool(scored)
    figure = Picture(height=1.2 + 1.75 * n_panels)
    panels = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
    remaining = iter(panels)
    _draw_weights(next(remaining), moments)
    if with_pixels:
        _draw_pixels(next(remaining), masked)
    if with_cells:
        between = [later.epoch - earlier.epoch for earlier, later in pairwise(moments)]
        _draw_cells(next(remaining), masked, 0.6 * min(between, default=1))
    if scored:
        _draw_scores(next(remaining), scored)
    panels[-1].set_xlabel("epochs trained", fontsize=9)
    panels[-1].locator_params(axis="x", integer=True)
    n_checkpoints = amount(len(moments), "checkpoint")
    text = _heading(moments, masked)
    alt = f"Curves over {n_checkpoints}. {text}."
    caption = _caption(moments, masked, at_operation)
    if masked and not with_pixels:
        caption += " No pixel of the masks differs at any of these epochs."
    elif masked and not with_cells:
        caption += " Every cell has a match at every epoch."
    return figure.described(text, caption, alt)


def _heading(moments: Sequence[Moment], masked: Sequence[Moment]) -> str:
    if not any(moment.n_differing for moment in moments):
        return f"The weights stay equal, bit for bit, in {amount(len(moments), 'checkpoint')}"
    apart = span(f"{moments[0].relative_l2:.2g}", f"{moments[-1].relative_l2:.2g}")
    text = f"The weights {'drift' if len(moments) > 1 else 'are'} apart: {apart} of their size"
    if masked:
        text += f"; in the masks {pixels_text(masked[-1].ppm or 0.0)} differ"
    return text


def _caption(
    moments: Sequence[Moment], masked: Sequence[Moment], at_operation: float | None
) -> str:
    last = moments[-1]
    share = share_text(last.n_differing / max(1, last.n_parameters))
    origin = ""
    if at_operation is not None:
        origin = f"At the operation where they diverged, outputs differed by {at_operation:.2g}. "
    when = ""
    if masked and len(masked) < len(moments):
        epochs = some([str(moment.epoch) for moment in masked], _MOST_EPOCHS)
        when = f", after epochs {epochs}; scores of the other epochs were kept by the trainings"
    return (
        f"Weights: norm of the difference, divided by the norm of the weights; after epoch "
        f"{last.epoch}, {share} of the weights differ. {origin}The masks are those that each run "
        f"would have given had training ended there{when}. Axes of differences are logarithmic, "
        "with 0 at the foot."
    )


def _epochs(moments: Sequence[Moment]) -> list[int]:
    return [moment.epoch for moment in moments]


def _draw_weights(axes: Axes, moments: Sequence[Moment]) -> None:
    epochs = _epochs(moments)
    distances = [moment.relative_l2 for moment in moments]
    style.with_zero(axes, "y", distances)
    axes.plot(epochs, distances, "o-", color=SERIES[0], mec="black")
    for epoch, distance in zip(epochs, distances, strict=True):
        if not math.isfinite(distance):
            at_the_top = axes.get_xaxis_transform()
            axes.text(epoch, 0.97, "not\nfinite", transform=at_the_top, ha="center", va="top")
    style.label_axes(axes, y="distance of the weights\n(share of their size)")
    style.title(axes, "weights: how far apart", size=9)


def _draw_pixels(axes: Axes, masked: Sequence[Moment]) -> None:
    percents = [(moment.ppm or 0.0) / 1e4 for moment in masked]
    style.with_zero(axes, "y", percents)
    axes.plot(_epochs(masked), percents, "s-", color=SERIES[0], mec="black")
    style.label_axes(axes, y="differing pixels\n(% of all)")
    style.title(axes, "masks: pixels that differ between A and B", size=9)


def _draw_cells(axes: Axes, masked: Sequence[Moment], bar_width: float) -> None:
    """Bars up for the cells of B without a match, and down for those of A."""
    bars = (
        ("of B", [moment.gained or 0 for moment in masked], COLOURS["only_b"], ""),
        ("of A", [-(moment.lost or 0) for moment in masked], COLOURS["only_a"], "\\\\\\"),
    )
    for name, counts, colour, hatch in bars:
        drawn = axes.bar(
            _epochs(masked),
            counts,
            width=bar_width,
            color=colour,
            hatch=hatch,
            label=name,
            edgecolor=EDGE,
            linewidth=0.6,
        )
        texts = [str(abs(count)) if count else "" for count in counts]
        axes.bar_label(drawn, texts, padding=2, fontsize=8)
    axes.axhline(0, color="black", lw=0.9)
    axes.margins(y=0.3)
    axes.locator_params(axis="y", integer=True)
    axes.yaxis.set_major_formatter(lambda count, _: f"{abs(count):g}")
    axes.legend(loc="upper left", fontsize=8, frameon=False, ncols=2)
    style.label_axes(axes, y="cells")
    style.title(axes, "masks: cells without a match in the other (IoU of 0.5)", size=9)


def _draw_scores(axes: Axes, scored: Sequence[Moment]) -> None:
    """A line for each of the two runs."""
    pairs = [moment.ap50 for moment in scored if moment.ap50 is not None]
    epochs = _epochs(scored)
    of_a, of_b = zip(*pairs, strict=True)
    axes.plot(epochs, of_a, "o-", color=COLOURS["a"], mec="black", ms=5, label="A")
    axes.plot(epochs, of_b, "s--", color=COLOURS["b"], mec="black", ms=5, label="B")
    axes.set_ylim(-0.04, 1.04)
    axes.legend(loc="best", fontsize=8, frameon=False, ncols=2)
    style.label_axes(axes, y="mean AP@0.5")
    style.title(axes, "masks against the ground truth: at 1 every cell has a match", size=9)
