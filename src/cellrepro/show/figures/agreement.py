"""Figures of many runs of one image: where they disagree, and the objects they disagree about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cellrepro.compare.consensus import Agreement, Stability
from cellrepro.compare.labels import canonical
from cellrepro.errors import BadInput, whole
from cellrepro.show.figures import style
from cellrepro.show.figures.masks import (
    COLOURS,
    enlarged,
    grey_image,
    outlined,
    painted,
    panel_shape,
)
from cellrepro.show.figures.style import WIDTH, Picture
from cellrepro.text import amount, grouped

MAP = "plasma"
"""Ordered by lightness, so it reads in grey and with any colour vision; never grey itself, as
cividis is in its middle, so no share can be taken for the image below it."""

_LOWEST = 0.25  # the map begins here: darker colours are lost on a dimmed image
_DIMMED = 0.45
_OPACITY = 0.85  # of the map, where the image below it is large enough to be read
_LINE_OPACITY = 0.7
_ROOM = 2  # pixels of the panel per pixel of the image from which a line hides no dispute
_FEW = 0.01  # share of disputed pixels below which they are drawn as spots
_SPOT = 3.0  # radius of a spot, pixels of the panel
_SMALLEST_CROP = 24  # pixels of the image
_REACH = 3.0  # side of a crop over the square root of the area of its object
_COLUMNS = 4
_CROP_DIMMED = 0.65
_LINE = 4  # pixels of the enlarged crop
_DASH = (14, 8)
_TOUCHING = 0.1  # share of an object below which another one is a neighbour, not its replacement
_FAINTEST = 0.4  # opacity of an outline that hardly any run has

Masks = ArrayLike | Callable[[], ArrayLike]
"""A label image, or what reads it."""


# -- the map -------------------------------------------------------------------------------


def agreement_map(image: np.ndarray | None, agreement: Agreement, *, side: int = 840) -> Picture:
    """Where runs disagree, over the dimmed image.

    Left the share of runs that call a pixel cell, right the share that give it the same object,
    which also shows changed borders between cells that touch, merged and cut cells. Coloured is
    only what some, but not all, runs say. White lines outline the consensus. Where less than one
    pixel in a hundred is disputed, each is drawn larger, and the picture says so.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C), or None
        Without it the map stands on black.
    agreement : Agreement
        Of two-dimensional masks, from `cellrepro.agree`.
    side : int
        Longer side of a panel, pixels.
    """
    background = _background(image, agreement)
    height, width = background.shape
    figure = Picture(height=1.1 + WIDTH / 2 * min(1.6, height / width))
    panels = figure.subplots(1, 2)
    for panel, share, text in (
        (panels[0], agreement.cell_share, "share of runs that call it cell"),
        (panels[1], agreement.same_object_share, "share of runs that give it the same object"),
    ):
        style.image_panel(panel, _map_picture(background, share, agreement.consensus, side))
        style.title(panel, text)
    _colour_bar(figure, list(panels), agreement)
    return figure.described(_map_heading(agreement))


def _map_picture(
    background: np.ndarray, share: np.ndarray, consensus: np.ndarray, side: int
) -> np.ndarray:
    shape = panel_shape(background.shape, side)
    picture = np.repeat(enlarged(background, shape)[..., None] * _DIMMED, 3, axis=2)
    lines = outlined(enlarged(consensus, shape), thickness=1)
    painted(picture, lines, COLOURS["agree"], _LINE_OPACITY)
    shown = _disputed(share, shape)
    coloured = np.isfinite(shown)
    roomy = shape[0] >= _ROOM * share.shape[0]
    opacity = _OPACITY if roomy else 1.0
    colours = _colour_map()(shown[coloured])[:, :3] * 255
    picture[coloured] += opacity * (colours - picture[coloured])
    if roomy:  # once more above the map; in a smaller panel it would hide disputes about borders
        painted(picture, lines & coloured, COLOURS["agree"], _LINE_OPACITY)
    return np.rint(picture).astype(np.uint8)


def _disputed(share: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Shares strictly between 0 and 1 at the size of a panel, NaN elsewhere."""
    held = np.where((share > 0) & (share < 1), share, np.nan)
    panel = enlarged(held, shape)
    if shape[0] < share.shape[0]:
        # Fine borders fall between the pixels of a smaller panel; keep the most disputed ones.
        y, x = np.nonzero(np.isfinite(held))
        order = np.argsort(-np.abs(held[y, x] - 0.5), kind="stable")
        y, x = y[order], x[order]
        panel[y * shape[0] // share.shape[0], x * shape[1] // share.shape[1]] = held[y, x]
    if _few(share):
        from scipy import ndimage

        found = np.isfinite(panel)
        distance, nearest = ndimage.distance_transform_edt(~found, return_indices=True)
        panel = np.where(distance <= _SPOT, panel[tuple(nearest)], np.nan)
    return panel


def _few(share: np.ndarray) -> bool:
    n_disputed = np.count_nonzero((share > 0) & (share < 1))
    return bool(0 < n_disputed < _FEW * share.size)


def _colour_map() -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[MAP](np.linspace(_LOWEST, 1, 256)))


def _colour_bar(figure: Picture, panels: list[Any], agreement: Agreement) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(0, 1), _colour_map())
    place: dict[str, Any] = {"orientation": "horizontal", "fraction": 0.05, "aspect": 45}
    bar = figure.colorbar(colours, ax=panels, pad=0.02, **place)
    larger = ""
    if _few(agreement.cell_share) or _few(agreement.same_object_share):
        larger = " Few pixels are disputed, so each is drawn larger."
    bar.set_label(
        f"share of the {amount(agreement.n_runs, 'run')}; not coloured: no run or all runs. "
        f"White lines: the consensus.{larger}",
        fontsize=9,
    )
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["no run", "25 %", "50 %", "75 %", "all"])
    bar.ax.tick_params(labelsize=9)


def _map_heading(agreement: Agreement) -> str:
    runs = amount(agreement.n_runs, "run")
    objects = amount(len(agreement.objects), "object")
    if agreement.vacuous:
        return f"{runs}: none holds an object, so there is nothing to agree on"
    if agreement.n_distinct == 1:
        return f"{runs}: {'all hold the same ' if agreement.n_runs > 1 else ''}{objects}"
    return (
        f"{runs}, {agreement.n_distinct} different results: {agreement.n_stable} of {objects} are "
        f"in all runs; {grouped(agreement.n_disputed)} of {grouped(agreement.consensus.size)} "
        "pixels are disputed"
    )


# -- the least stable objects --------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """What one result has around an object; ``number`` is the object's there, 0 if it lacks it."""

    n_runs: int
    labels: np.ndarray
    number: int


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
    more runs draw them there.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C), or None
        Without it the outlines stand on black.
    agreement : Agreement
        Of two-dimensional masks.
    masks_of_runs : sequence of array_like of int, shape (Y, X), or of callables
        What the agreement was made from; one run of each different result is read.
    n : int
        How many objects at most.
    """
    background = _background(image, agreement)
    whole("n", n, 1)
    if len(masks_of_runs) != agreement.n_runs:
        raise BadInput(
            f"the masks of {amount(len(masks_of_runs), 'run')} were given, but the agreement is of "
            f"{amount(agreement.n_runs, 'run')}; give the same masks in the same order"
        )
    # The least stable come first, so these are the first of all objects.
    unstable = [i for i in agreement.objects if i.n_runs_with < agreement.n_runs or i.mean_iou < 1]
    if not unstable:
        return style.note(_map_heading(agreement))
    shown = unstable[:n]
    cuts, pieces = _pieces(agreement, masks_of_runs, len(shown))
    n_columns = min(_COLUMNS, len(shown))
    n_rows = -(-len(shown) // n_columns)
    side = WIDTH / _COLUMNS
    figure = Picture(width=max(5.0, side * n_columns), height=0.9 + n_rows * (side + 0.4))
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for panel, item, cut, of in zip(panels, shown, cuts, pieces, strict=False):
        neighbours = np.where(agreement.consensus == item.label, 0, agreement.consensus)[cut]
        style.image_panel(panel, _crop_picture(background[cut], neighbours, of))
        style.title(panel, _crop_title(item, agreement.n_runs), size=9)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    dashed = {"color": COLOURS["a"], "linewidth": 2.5, "linestyle": (0, (2.5, 1.5))}
    handles = [
        style.line("runs that have it", color=COLOURS["b"], linewidth=2.5),
        style.line("what the other runs have there", **dashed),
        style.line("other objects of the consensus", color="#BBBBBB", linewidth=1),
    ]
    style.legend(figure, handles, most_columns=3)
    return figure.described(
        f"The {len(shown)} least stable of {amount(len(agreement.objects), 'object')} "
        f"({agreement.n_stable} are in all {amount(agreement.n_runs, 'run')})",
    )


def _pieces(
    agreement: Agreement, masks_of_runs: Sequence[Masks], n: int
) -> tuple[list[tuple[slice, slice]], list[list[_Piece]]]:
    """Of the first n objects, where to look, and what one run of each result has there."""
    cuts = [_cut(item, agreement.consensus.shape) for item in agreement.objects[:n]]
    pieces: list[list[_Piece]] = [[] for _ in range(n)]
    for n_runs, labels, members in _results(agreement, masks_of_runs):
        for place, cut in enumerate(cuts):
            number = int(np.argmax(members == place)) + 1 if place in members else 0
            pieces[place].append(_Piece(n_runs, labels[cut].copy(), number))
    return cuts, pieces


def _results(
    agreement: Agreement, masks_of_runs: Sequence[Masks]
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Runs, canonical label image and members of each different result."""
    for runs, members in zip(agreement.results, agreement.members, strict=True):
        source = masks_of_runs[runs[0]]
        labels = canonical(source() if callable(source) else source).astype(np.int32)
        n_found = int(labels.max(initial=0))
        if labels.shape != agreement.consensus.shape or n_found != len(members):
            raise BadInput(
                f"the masks of run {runs[0]} have shape {labels.shape} and "
                f"{amount(n_found, 'object')}, but the agreement was made from masks of shape "
                f"{agreement.consensus.shape}, here with {amount(len(members), 'object')}; give "
                "the same masks in the same order"
            )
        yield len(runs), labels, members


def _cut(item: Stability, shape: Sequence[int]) -> tuple[slice, slice]:
    """A square around an object, moved inside the image; smaller where the image is."""
    side = max(_SMALLEST_CROP, round(_REACH * math.sqrt(item.area)))
    slices = []
    for centre, size in zip(item.position, shape, strict=True):
        length = min(side, size)
        first = min(max(0, round(centre - length / 2)), size - length)
        slices.append(slice(first, first + length))
    return slices[0], slices[1]


def _crop_picture(
    background: np.ndarray, neighbours: np.ndarray, pieces: Sequence[_Piece]
) -> np.ndarray:
    shape = panel_shape(background.shape, 420)
    picture = np.repeat(enlarged(background, shape)[..., None] * _CROP_DIMMED, 3, axis=2)
    painted(picture, outlined(enlarged(neighbours, shape), thickness=1), COLOURS["agree"], 0.6)
    region = np.any([piece.labels == piece.number for piece in pieces if piece.number], axis=0)
    # Dashes above, so that both are seen where they fall together.
    for having, colour, dash in ((True, COLOURS["b"], None), (False, COLOURS["a"], _DASH)):
        chosen = [piece for piece in pieces if bool(piece.number) is having]
        share = np.zeros(shape)
        for piece in chosen:
            numbers = [piece.number] if having else _instead(piece, region)
            labels = np.where(np.isin(piece.labels, numbers), piece.labels, 0)
            lines = outlined(enlarged(labels, shape), thickness=_LINE, dash=dash)
            share += lines * piece.n_runs / sum(piece.n_runs for piece in chosen)
        painted(picture, share > 0, colour, _FAINTEST + (1 - _FAINTEST) * share)
    return np.rint(picture).astype(np.uint8)


def _instead(piece: _Piece, region: np.ndarray) -> np.ndarray:
    """Objects that lie where another run has the object, not merely touching it."""
    pixels = np.bincount(piece.labels[region], minlength=1)
    pixels[0] = 0
    return np.flatnonzero(pixels >= max(1, _TOUCHING * np.count_nonzero(region)))


def _crop_title(item: Stability, n_runs: int) -> str:
    y, x = (round(value) for value in item.position)
    # One run always agrees with itself.
    overlap = f"; mean IoU {item.mean_iou:.2f}" if item.n_runs_with > 1 else ""
    return f"in {item.n_runs_with} of {amount(n_runs, 'run')}\nat y {y}, x {x}{overlap}"


def _background(image: np.ndarray | None, agreement: Agreement) -> np.ndarray:
    shape = agreement.consensus.shape
    if len(shape) != 2:
        raise BadInput(
            f"the masks have shape {shape}, and only masks of shape (Y, X) can be drawn; make the "
            "agreement of one plane, for example of masks[z] of every run"
        )
    if image is None:
        return np.zeros(shape, np.uint8)
    if np.shape(image)[:2] != shape:
        raise BadInput(
            f"the image has shape {np.shape(image)}, but the masks have {shape}; expected the "
            "image that was segmented, of shape (Y, X) or (Y, X, C)"
        )
    return grey_image(image)
