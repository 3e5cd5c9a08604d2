"""Figures of many runs of one image: where they disagree, and the objects they disagree about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cellrepro.comparison.consensus import Agreement, Stability
from cellrepro.comparison.label_numbers import canonical
from cellrepro.show.figures import pixels, style
from cellrepro.show.figures.colours import COLOURS
from cellrepro.show.figures.pixels import enlarged, outlined, painted, panel_shape
from cellrepro.show.figures.style import WIDTH, Picture
from samebits.errors import BadInput, whole
from samebits.words import amount, grouped, verb_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

MAP = "plasma"
"""Ordered by lightness, so it reads in grey and with any colour vision; never grey itself, as
cividis is in its middle, so no share can be taken for the image below it."""

_FEW_RUNS = 7
"""Up to which each number of runs has its own colour in the legend."""
_LOWEST = 0.25
"""The map ends here, where all runs agree: darker colours are lost on a dimmed image."""
_SMALLEST_CROP = 24
"""Pixels of the image."""
_REACH = 3.0
"""Side of a crop over the square root of the area of its object."""
_CROP_SIDE = 420
"""Pixels of the enlarged crop."""
_CROP_DIMMED = 0.65
"""Of its brightness that the image keeps in a crop."""
_COLUMNS = 4
_LINE = 4
"""Pixels of the enlarged crop."""
_DASH = (14, 8)
"""On and off, pixels of the enlarged crop."""
_TOUCHING = 0.1
"""Share of an object below which another one is a neighbour, not its replacement."""
_FAINTEST = 0.4
"""Opacity of an outline that hardly any run has."""

Masks = ArrayLike | Callable[[], ArrayLike]
"""A label image, or what reads it."""


def agreement_map(image: np.ndarray | None, agreement: Agreement, *, side: int = 840) -> Picture:
    """Draw where runs disagree, over the dimmed image.

    Left the share of runs that call a pixel cell, right the share that give it the same object,
    which also shows changed borders between cells that touch, merged and cut cells. Coloured is
    only what some, but not all, runs say. White lines outline the consensus. Where few pixels are
    disputed, each is drawn larger.

    Parameters
    ----------
    image : ndarray or None, shape (Y, X) or (Y, X, C)
    agreement : Agreement
        Of masks of shape (Y, X), from `cellrepro.agree`.
    side : int
        Longer side of a panel, pixels.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If the masks are no plane, or the image has a different shape.
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(colormaps[MAP](np.linspace(1, _LOWEST, 256)))
    background = pixels.background_of(image, agreement.consensus.shape)
    shape = panel_shape(background.shape, side)
    lines = outlined(enlarged(agreement.consensus, shape), thickness=1)
    figure = Picture(height=1.1 + WIDTH / 2 * min(1.6, shape[0] / shape[1]))
    left, right = figure.subplots(1, 2)
    for axes, share, title in (
        (left, agreement.cell_share, "share of runs that call it cell"),
        (right, agreement.same_object_share, "share of runs that give it the same cell"),
    ):
        picture = pixels.dimmed(background, shape)
        painted(picture, lines, COLOURS["agree"], 0.7)
        _paint_disputed(picture, share, colours)
        style.image_panel(axes, picture)
        style.title(axes, title)
    n_runs = agreement.n_runs
    if n_runs <= _FEW_RUNS:
        numbers = range(1, n_runs)
        shares = [style.patch(f"in {n} of {n_runs} runs", fc=colours(n / n_runs)) for n in numbers]
        style.legend(figure, [*shares, style.line("consensus", color="lightgrey", linewidth=2)])
    else:
        _share_bar(figure, [left, right], colours, n_runs)
    caption = (
        "Not coloured: what no run or all runs say. White lines: the consensus. Few disputed "
        "pixels are drawn larger."
    )
    return figure.described(map_heading(agreement), caption)


def _share_bar(figure: Picture, panels: Sequence[Axes], colours: Colormap, n_runs: int) -> None:
    """Draw the colours of all shares below the panels."""
    from matplotlib.cm import ScalarMappable

    bar = figure.colorbar(
        ScalarMappable(cmap=colours),
        ax=panels,
        pad=0.02,
        orientation="horizontal",
        fraction=0.05,
        aspect=45,
    )
    bar.set_label(f"share of the {amount(n_runs, 'run')}", fontsize=9)
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["no run", "25 %", "50 %", "75 %", "all"])
    bar.ax.tick_params(labelsize=9)


def _paint_disputed(picture: np.ndarray, share: np.ndarray, colours: Colormap) -> None:
    """Colour the pixels that some, but not all, runs claim, in place."""
    disputed = np.where((share > 0) & (share < 1), share, 0)
    shown = pixels.all_seen(disputed, (picture.shape[0], picture.shape[1]))
    picture[shown > 0] = np.rint(colours(shown[shown > 0])[:, :3] * 255)


def map_heading(agreement: Agreement) -> str:
    """Say in a line how far some runs agree."""
    runs = amount(agreement.n_runs, "run")
    objects = amount(len(agreement.objects), "cell")
    if agreement.n_distinct == 1 and not agreement.objects:
        return f"{runs}: none holds a cell"
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
    """Draw the objects that fewest runs have, each with its outlines in all runs.

    A piece of the image per object, the least stable first. Solid lines are its outlines in the
    runs that have it, dashed lines what the other runs have in its place, both the stronger the
    more runs draw them there.

    Parameters
    ----------
    image : ndarray or None, shape (Y, X) or (Y, X, C)
    agreement : Agreement
        From `cellrepro.agree`.
    masks_of_runs : sequence of ndarray of int, shape (Y, X), or of functions that read it
        What the agreement was made from; one run of each different result is read.
    n : int
        Objects at most.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If the masks are not those that the agreement was made from, or the image has another shape.
    """
    background = pixels.background_of(image, agreement.consensus.shape)
    whole("n", n, 1)
    results = _results(agreement, masks_of_runs)
    # The least stable come first, so these are the first of all objects.
    unstable = [
        item
        for item in agreement.objects
        if item.n_runs_with < agreement.n_runs or item.mean_iou < 1
    ]
    shown = unstable[:n]
    if not shown:
        return style.note(map_heading(agreement))
    n_rows = -(-len(shown) // _COLUMNS)
    figure = Picture(height=0.9 + n_rows * (WIDTH / _COLUMNS + 0.4))
    panels = figure.subplots(n_rows, _COLUMNS, squeeze=False).ravel()
    has_others = False
    for position, item in enumerate(shown):
        crop = _crop(item, background.shape[:2])
        others = np.where(agreement.consensus == item.label, 0, agreement.consensus)
        pieces = [_piece(result, position, crop) for result in results]
        has_others |= any(labels.any() for _, labels in _objects_instead(pieces))
        style.image_panel(panels[position], _crop_picture(background[crop], others[crop], pieces))
        style.title(panels[position], _crop_title(item, agreement.n_runs), size=9)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    dashed = {"color": COLOURS["a"], "linewidth": 2.5, "linestyle": (0, (2.5, 1.5))}
    dashes = [style.line("what the other runs have there", **dashed)] if has_others else []
    handles = [
        style.line("runs that have it", color=COLOURS["b"], linewidth=2.5),
        *dashes,
        style.line("other cells of the consensus", color="#BBBBBB", linewidth=1),
    ]
    style.legend(figure, handles)
    least = "least stable" if len(shown) == 1 else f"{len(shown)} least stable"
    return figure.described(
        f"The {least} of {amount(len(agreement.objects), 'cell')} "
        f"({agreement.n_stable} {verb_of(agreement.n_stable, 'is', 'are')} in all "
        f"{amount(agreement.n_runs, 'run')})",
    )


def _crop_title(item: Stability, n_runs: int) -> str:
    y, x = (round(value) for value in item.position)
    title = f"in {item.n_runs_with} of {amount(n_runs, 'run')}\nat y {y}, x {x}"
    if item.n_runs_with > 1:  # one run always agrees with itself
        title += f"; mean IoU {item.mean_iou:.2f}"
    return title


class _Result(NamedTuple):
    """Equal masks of one or more runs."""

    n_runs: int
    labels: np.ndarray
    """Canonical, shape (Y, X)."""
    members: np.ndarray
    """For each of its objects, where that is in ``Agreement.objects``."""


class _Piece(NamedTuple):
    """A result, cropped around one object."""

    n_runs: int
    labels: np.ndarray
    number: int
    """The object's label here; 0 where the result lacks it."""


def _results(agreement: Agreement, masks_of_runs: Sequence[Masks]) -> list[_Result]:
    """Read each different result; refuses masks that the agreement was not made from."""
    results = []
    fits = len(masks_of_runs) == agreement.n_runs
    if fits:
        for runs, members in zip(agreement.results, agreement.members, strict=True):
            source = masks_of_runs[runs[0]]
            labels = canonical(source() if callable(source) else source).astype(np.int32)
            same_shape = labels.shape == agreement.consensus.shape
            fits &= same_shape and labels.max(initial=0) == len(members)
            results.append(_Result(len(runs), labels, members))
    if not fits:
        raise BadInput(
            f"the masks given, of {amount(len(masks_of_runs), 'run')}, are not those from which "
            f"the agreement was made, of {amount(agreement.n_runs, 'run')} and shape "
            f"{agreement.consensus.shape}; give the same masks in the same order"
        )
    return results


def _crop(item: Stability, shape: Sequence[int]) -> tuple[slice, ...]:
    """A square around an object, moved inside the image; smaller where the image is."""
    side = max(_SMALLEST_CROP, round(_REACH * math.sqrt(item.area)))
    firsts = [
        min(max(0, round(centre - side / 2)), max(0, size - side))
        for centre, size in zip(item.position, shape, strict=True)
    ]
    return tuple(slice(first, first + side) for first in firsts)


def _piece(result: _Result, position: int, crop: tuple[slice, ...]) -> _Piece:
    """Crop a result around the object at a position of ``Agreement.objects``."""
    number = 0
    if position in result.members:
        number = int(np.argmax(result.members == position)) + 1  # labels count from 1
    return _Piece(result.n_runs, result.labels[crop], number)


def _crop_picture(
    background: np.ndarray, neighbours: np.ndarray, pieces: Sequence[_Piece]
) -> np.ndarray:
    """Draw an object's outlines in all results over its surroundings."""
    shape = panel_shape(background.shape, _CROP_SIDE)
    picture = pixels.dimmed(background, shape, _CROP_DIMMED)
    painted(picture, outlined(enlarged(neighbours, shape), thickness=1), COLOURS["agree"], 0.6)
    having = [piece for piece in pieces if piece.number]
    # Dashes above, so that both are seen where they fall together.
    of_object = [(piece.n_runs, _only(piece.labels, [piece.number])) for piece in having]
    _paint_outlines(picture, of_object, COLOURS["b"])
    _paint_outlines(picture, _objects_instead(pieces), COLOURS["a"], dash=_DASH)
    return picture


def _objects_instead(pieces: Sequence[_Piece]) -> list[tuple[int, np.ndarray]]:
    """What the results that lack an object have in its place, each with its number of runs."""
    having = [piece for piece in pieces if piece.number]
    region = np.any([piece.labels == piece.number for piece in having], axis=0)
    return [(piece.n_runs, _instead(piece.labels, region)) for piece in pieces if not piece.number]


def _only(labels: np.ndarray, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
    """Keep some objects of a label image, and number them anew."""
    return canonical(np.where(np.isin(labels, numbers), labels, 0))


def _instead(labels: np.ndarray, region: np.ndarray) -> np.ndarray:
    """Keep the objects that lie where a missing one would be."""
    n_touching = np.bincount(labels[region])
    enough = max(1, _TOUCHING * np.count_nonzero(region))
    return _only(labels, np.flatnonzero(n_touching >= enough))


def _paint_outlines(
    picture: np.ndarray,
    drawn_by_runs: Sequence[tuple[int, np.ndarray]],
    colour: str,
    *,
    dash: tuple[int, int] | None = None,
) -> None:
    """Lay outlines over a picture, in place, the stronger the more runs draw them there."""
    shape = (picture.shape[0], picture.shape[1])
    share = np.zeros(shape)
    n_alike: Counter[bytes] = Counter()  # most results draw here what others draw, too
    objects = {}
    for n_runs, labels in drawn_by_runs:
        content = labels.tobytes()
        n_alike[content] += n_runs
        objects[content] = labels
    for content, n_runs in n_alike.items():
        lines = outlined(enlarged(objects[content], shape), thickness=_LINE, dash=dash)
        share += lines * n_runs
    share /= max(1, n_alike.total())
    painted(picture, share > 0, colour, _FAINTEST + (1 - _FAINTEST) * share)
