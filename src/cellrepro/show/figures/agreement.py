"""Figures of many runs of one image: where they disagree, and the objects they disagree about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cellrepro.errors import BadInput, whole
from cellrepro.same.consensus import Agreement, Stability
from cellrepro.same.labels import canonical
from cellrepro.show.figures import masks, style
from cellrepro.show.figures.masks import COLOURS, enlarged, outlined, painted, panel_shape
from cellrepro.show.figures.style import WIDTH, Picture
from cellrepro.words import amount, grouped

MAP = "plasma"
"""Ordered by lightness, so it reads in grey and with any colour vision; never grey itself, as
cividis is in its middle, so no share can be taken for the image below it."""

_LOWEST = 0.25  # the map begins here: darker colours are lost on a dimmed image
_SMALLEST_CROP = 24  # pixels of the image
_REACH = 3.0  # side of a crop over the square root of the area of its object
_CROP_DIMMED = 0.65  # of its brightness that the image keeps in a crop
_COLUMNS = 4
_LINE = 4  # pixels of the enlarged crop
_DASH = (14, 8)
_TOUCHING = 0.1  # share of an object below which another one is a neighbour, not its replacement
_FAINTEST = 0.4  # opacity of an outline that hardly any run has

Masks = ArrayLike | Callable[[], ArrayLike]
"""A label image, or what reads it."""


def agreement_map(image: np.ndarray | None, agreement: Agreement, *, side: int = 840) -> Picture:
    """Where runs disagree, over the dimmed image.

    Left the share of runs that call a pixel cell, right the share that give it the same object,
    which also shows changed borders between cells that touch, merged and cut cells. Coloured is
    only what some, but not all, runs say. White lines outline the consensus. Where few pixels are
    disputed, each is drawn larger. ``image``: shape (Y, X) or (Y, X, C); ``agreement``: of masks of
    shape (Y, X), from `cellrepro.agree`; ``side``: longer side of a panel, pixels.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(colormaps[MAP](np.linspace(_LOWEST, 1, 256)))
    background = masks.background_of(image, agreement.consensus.shape)
    shape = panel_shape(background.shape, side)
    lines = outlined(enlarged(agreement.consensus, shape), thickness=1)
    figure = Picture(height=1.1 + WIDTH / 2 * min(1.6, shape[0] / shape[1]))
    panels = figure.subplots(1, 2)
    for panel, share, text in (
        (panels[0], agreement.cell_share, "share of runs that call it cell"),
        (panels[1], agreement.same_object_share, "share of runs that give it the same object"),
    ):
        picture = masks.dimmed(background, shape)
        painted(picture, lines, COLOURS["agree"], 0.7)
        held = np.where((share > 0) & (share < 1), share, 0)
        shown = masks.all_seen(held, shape)
        picture[shown > 0] = np.rint(colours(shown[shown > 0])[:, :3] * 255)
        style.image_panel(panel, picture)
        style.title(panel, text)
    place: dict[str, Any] = {"orientation": "horizontal", "fraction": 0.05, "aspect": 45}
    bar = figure.colorbar(ScalarMappable(cmap=colours), ax=list(panels), pad=0.02, **place)
    bar.set_label(
        f"share of the {amount(agreement.n_runs, 'run')}; not coloured: no run or all runs. "
        "White lines: the consensus. Few disputed pixels are drawn larger.",
        fontsize=9,
    )
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["no run", "25 %", "50 %", "75 %", "all"])
    bar.ax.tick_params(labelsize=9)
    return figure.described(_map_heading(agreement))


def _map_heading(agreement: Agreement) -> str:
    runs = amount(agreement.n_runs, "run")
    objects = amount(len(agreement.objects), "object")
    if agreement.n_distinct == 1 and not agreement.objects:
        return f"{runs}: none holds an object"
    if agreement.n_distinct == 1:
        return f"{runs}: all hold the same {objects}"
    return (
        f"{runs}, {agreement.n_distinct} different results: {agreement.n_stable} of {objects} "
        f"in all runs; {grouped(agreement.n_disputed)} of {grouped(agreement.consensus.size)} "
        "pixels disputed"
    )


def least_stable(
    image: np.ndarray | None,
    agreement: Agreement,
    masks_of_runs: Sequence[Masks],
    *,
    n: int = 8,
) -> Picture:
    """The objects that fewest runs have, each with its outlines in all runs.

    A piece of the image per object, the least stable first. Solid lines are its outlines in the
    runs that have it, dashed lines what the other runs have in its place, both the stronger the
    more runs draw them there. As for `agreement_map`; ``masks_of_runs`` are what the agreement was
    made from, of which one run of each different result is read; ``n``: objects at most.
    """
    background = masks.background_of(image, agreement.consensus.shape)
    whole("n", n, 1)
    results = _results(agreement, masks_of_runs)
    # The least stable come first, so these are the first of all objects.
    unstable = [i for i in agreement.objects if i.n_runs_with < agreement.n_runs or i.mean_iou < 1]
    shown = unstable[:n]
    if not shown:
        return style.note(_map_heading(agreement))
    n_rows = -(-len(shown) // _COLUMNS)
    figure = Picture(height=0.9 + n_rows * (WIDTH / _COLUMNS + 0.4))
    panels = figure.subplots(n_rows, _COLUMNS, squeeze=False).ravel()
    for place, (panel, item) in enumerate(zip(panels, shown, strict=False)):
        cut = _cut(item, background.shape)
        neighbours = np.where(agreement.consensus == item.label, 0, agreement.consensus)[cut]
        # The object's own number in each result is one more than its place there; 0: it lacks it.
        pieces = [
            (runs, labels[cut], int(np.argmax(members == place)) + 1 if place in members else 0)
            for runs, labels, members in results
        ]
        style.image_panel(panel, _crop_picture(background[cut], neighbours, pieces))
        y, x = (round(value) for value in item.position)
        text = f"in {item.n_runs_with} of {amount(agreement.n_runs, 'run')}\nat y {y}, x {x}"
        # One run always agrees with itself.
        text += f"; mean IoU {item.mean_iou:.2f}" if item.n_runs_with > 1 else ""
        style.title(panel, text, size=9)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    dashed = {"color": COLOURS["a"], "linewidth": 2.5, "linestyle": (0, (2.5, 1.5))}
    handles = [
        style.line("runs that have it", color=COLOURS["b"], linewidth=2.5),
        style.line("what the other runs have there", **dashed),
        style.line("other objects of the consensus", color="#BBBBBB", linewidth=1),
    ]
    style.legend(figure, handles)
    least = "least stable" if len(shown) == 1 else f"{len(shown)} least stable"
    return figure.described(
        f"The {least} of {amount(len(agreement.objects), 'object')} "
        f"({agreement.n_stable} are in all {amount(agreement.n_runs, 'run')})",
    )


def _results(
    agreement: Agreement, masks_of_runs: Sequence[Masks]
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Number of runs, canonical label image and members of each different result."""
    results = []
    fits = len(masks_of_runs) == agreement.n_runs
    for runs, members in zip(agreement.results, agreement.members, strict=True) if fits else ():
        source = masks_of_runs[runs[0]]
        labels = canonical(source() if callable(source) else source).astype(np.int32)
        fits &= labels.shape == agreement.consensus.shape and labels.max(initial=0) == len(members)
        results.append((len(runs), labels, members))
    if not fits:
        raise BadInput(
            f"the masks given, of {amount(len(masks_of_runs), 'run')}, are not those from which "
            f"the agreement was made, of {amount(agreement.n_runs, 'run')} and shape "
            f"{agreement.consensus.shape}; give the same masks in the same order"
        )
    return results


def _cut(item: Stability, shape: Sequence[int]) -> tuple[slice, ...]:
    """A square around an object, moved inside the image; smaller where the image is."""
    side = max(_SMALLEST_CROP, round(_REACH * math.sqrt(item.area)))
    firsts = [
        min(max(0, round(centre - side / 2)), max(0, size - side))
        for centre, size in zip(item.position, shape, strict=True)
    ]
    return tuple(slice(first, first + side) for first in firsts)


def _crop_picture(
    background: np.ndarray,
    neighbours: np.ndarray,
    pieces: Sequence[tuple[int, np.ndarray, int]],
) -> np.ndarray:
    """``pieces``: of each result the number of its runs, its labels, and the object's number."""
    shape = panel_shape(background.shape, 420)
    picture = masks.dimmed(background, shape, _CROP_DIMMED)
    painted(picture, outlined(enlarged(neighbours, shape), thickness=1), COLOURS["agree"], 0.6)
    region = np.any([labels == number for _, labels, number in pieces if number], axis=0)
    # Dashes above, so that both are seen where they fall together.
    for having, colour, dash in ((True, COLOURS["b"], None), (False, COLOURS["a"], _DASH)):
        chosen = [piece for piece in pieces if bool(piece[2]) is having]
        share = np.zeros(shape)
        alike: Counter[bytes] = Counter()  # most results draw here what others draw, too
        for n_runs, labels, number in chosen:
            instead = np.bincount(labels[region]) >= max(1, _TOUCHING * np.count_nonzero(region))
            numbers = [number] if having else np.flatnonzero(instead)
            found = canonical(np.where(np.isin(labels, numbers), labels, 0))
            alike[found.tobytes()] += n_runs
        for content, n_runs in alike.items():
            drawn = np.frombuffer(content, found.dtype).reshape(found.shape)
            share += outlined(enlarged(drawn, shape), thickness=_LINE, dash=dash) * n_runs
        share /= max(1, alike.total())
        painted(picture, share > 0, colour, _FAINTEST + (1 - _FAINTEST) * share)
    return picture
