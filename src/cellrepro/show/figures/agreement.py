"""Pictures of many runs of one image: where they disagree, and the objects they disagree about.

Both take an `Agreement`, from `cellrepro.compare.agree`, and return a `Picture`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cellrepro.compare.consensus import Agreement, Stability
from cellrepro.compare.labels import canonical
from cellrepro.errors import BadInput
from cellrepro.show.figures.masks import COLOURS, enlarged, grey_image, outlined
from cellrepro.show.figures.style import WIDTH, Picture
from cellrepro.text import amount, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAP = "plasma"
"""Ordered by lightness, so it reads in grey and with any colour vision; never grey itself, as
cividis is in its middle, so no share can be taken for the image below it."""

_LOWEST = 0.25  # the map begins here: darker colours are lost on a dimmed image
_DIMMED = 0.45
_OPACITY = 0.85  # of the map, where the image below it is large enough to be read
_LINE_OPACITY = 0.7
_ROOM = 2  # pixels of the panel per pixel of the image from which a line hides no dispute
_SIDE = 840  # longer side of a panel, pixels
_CROP_SIDE = 420
_FEW = 0.01  # share of disputed pixels below which they are drawn as spots
_SPOT = 3.0  # radius of a spot, pixels of the panel
_SMALLEST_CROP = 24  # pixels of the image
_MARGIN = 1.9  # side of a crop over the longer side of its object
_COLUMNS = 4
_CROP_DIMMED = 0.65
_LINE = 4  # pixels of the enlarged crop
_DASH = (14, 8)
_TOUCHING = 0.1  # share of an object below which another one is a neighbour, not its replacement
_FAINTEST = 0.4  # opacity of an outline that hardly any run has


# -- the map -------------------------------------------------------------------------------


def agreement_map(image: np.ndarray | None, agreement: Agreement) -> Picture:
    """Where runs disagree, over the dimmed image.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C), or None
        Without it the map stands on black.
    agreement : Agreement
        Of two-dimensional masks.

    Returns
    -------
    Picture
        Left the share of runs that call a pixel cell, right the share that give it the same
        object, which also shows moved borders between cells that touch, merged and cut cells.
        Coloured is only what some, but not all, runs say. White lines outline the consensus.
        Where less than one pixel in a hundred is disputed, each is drawn larger, and the
        picture says so.

    Raises
    ------
    BadInput
        If the masks are three-dimensional or the image is not of their size.
    """
    background = _background(image, agreement)
    height, width = background.shape
    panel_height = WIDTH / 2 * min(1.6, height / width)
    figure = Picture(height=1.1 + panel_height)
    panels = figure.subplots(1, 2)
    for panel, share, title in (
        (panels[0], agreement.cell_share, "share of runs that call it cell"),
        (panels[1], agreement.same_object_share, "share of runs that give it the same object"),
    ):
        _show(panel, _map_picture(background, share, agreement.consensus))
        panel.set_title(title, fontsize=10)
    _colour_bar(figure, list(panels), agreement)
    figure.suptitle(_map_heading(agreement), fontsize=11)
    return figure


def _map_picture(background: np.ndarray, share: np.ndarray, consensus: np.ndarray) -> np.ndarray:
    shape = _panel_shape(background.shape, _SIDE)
    picture = np.repeat(enlarged(background, shape)[..., None] * _DIMMED, 3, axis=2)
    line = outlined(enlarged(consensus, shape), thickness=1)
    _blend(picture, line, COLOURS["agree"], _LINE_OPACITY)
    shown = _disputed(share, shape)
    coloured = np.isfinite(shown)
    if shape[0] >= _ROOM * share.shape[0]:
        # Once more above the map; in a smaller panel it would hide disputes about that border.
        picture[coloured] += _OPACITY * (_colours(shown[coloured]) - picture[coloured])
        _blend(picture, line & coloured, COLOURS["agree"], _LINE_OPACITY)
    else:
        picture[coloured] = _colours(shown[coloured])
    return np.rint(picture).astype(np.uint8)


def _colours(shares: np.ndarray) -> np.ndarray:
    return _colour_map()(shares)[:, :3] * 255


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


def _colour_bar(figure: Picture, panels: list[Axes], agreement: Agreement) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 1), _colour_map()),
        ax=panels,
        orientation="horizontal",
        fraction=0.05,
        aspect=45,
        pad=0.02,
    )
    larger_spots = _few(agreement.cell_share) or _few(agreement.same_object_share)
    larger = " Few pixels are disputed, so each is drawn larger." if larger_spots else ""
    bar.set_label(
        f"share of the {amount(agreement.n_runs, 'run')}; not coloured: no run or all runs. "
        f"White lines: the consensus.{larger}",
        fontsize=9,
    )
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["no run", "25 %", "50 %", "75 %", "all"])
    bar.ax.tick_params(labelsize=9)


def _map_heading(agreement: Agreement) -> str:
    n_pixels = agreement.consensus.size
    runs = amount(agreement.n_runs, "run")
    if agreement.vacuous:
        return f"{runs}: none holds an object, so there is nothing to agree on"
    if agreement.n_distinct == 1:
        same = "all hold the same " if agreement.n_runs > 1 else ""
        return f"{runs}: {same}{amount(len(agreement.objects), 'object')}"
    objects = amount(len(agreement.objects), "object")
    return (
        f"{runs}, {agreement.n_distinct} different results: {agreement.n_stable} of {objects} are "
        f"in all runs; {grouped(agreement.n_disputed)} of {grouped(n_pixels)} pixels are disputed"
    )


# -- the least stable objects --------------------------------------------------------------


@dataclass(frozen=True)
class _Crop:
    """A piece of the image around one object, and what each result has there."""

    item: Stability
    rows: slice
    columns: slice
    pieces: tuple[_Piece, ...]


@dataclass(frozen=True)
class _Piece:
    """A piece of one result."""

    n_runs: int
    labels: np.ndarray
    number: int
    """Of the object in ``labels``; 0 if these runs lack it."""


def least_stable(
    image: np.ndarray | None,
    agreement: Agreement,
    masks_of_runs: Sequence[ArrayLike | Callable[[], ArrayLike]],
    *,
    n: int = 8,
) -> Picture:
    """The objects that fewest runs have, each with its outlines in all runs.

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

    Returns
    -------
    Picture
        A piece of the image per object, the least stable first. Solid lines are its outlines in
        the runs that have it, dashed lines what the other runs have in its place, both the
        stronger the more runs draw them there.

    Raises
    ------
    BadInput
        If the masks are three-dimensional or not those of the agreement, the image is not of
        their size, or ``n`` is less than 1.
    """
    background = _background(image, agreement)
    if n < 1:
        raise BadInput(f"n is {n}, and at least 1 object has to be shown")
    if len(masks_of_runs) != agreement.n_runs:
        raise BadInput(
            f"the masks of {amount(len(masks_of_runs), 'run')} were given, but the agreement is of "
            f"{amount(agreement.n_runs, 'run')}; give the same masks in the same order"
        )
    # The least stable come first, so these are the first of all objects.
    unstable = [i for i in agreement.objects if i.n_runs_with < agreement.n_runs or i.mean_iou < 1]
    if not unstable:
        return _nothing_unstable(agreement)
    crops = _crops(agreement, masks_of_runs, min(n, len(unstable)))
    n_columns = min(_COLUMNS, len(crops))
    n_rows = -(-len(crops) // n_columns)
    side = WIDTH / _COLUMNS
    figure = Picture(width=max(5.0, side * n_columns), height=0.9 + n_rows * (side + 0.4))
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for panel, crop in zip(panels, crops, strict=False):
        _show(panel, _crop_picture(crop, background, agreement.consensus))
        panel.set_title(_crop_title(crop, agreement.n_runs), fontsize=9)
    for panel in panels[len(crops) :]:
        panel.set_axis_off()
    _crop_legend(figure)
    figure.suptitle(
        f"The {len(crops)} least stable of {amount(len(agreement.objects), 'object')} "
        f"({agreement.n_stable} are in all {amount(agreement.n_runs, 'run')})",
        fontsize=11,
    )
    return figure


def _nothing_unstable(agreement: Agreement) -> Picture:
    figure = Picture(height=1.2)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.text(0.5, 0.5, _map_heading(agreement), ha="center", va="center", fontsize=10)
    return figure


def _crops(
    agreement: Agreement,
    masks_of_runs: Sequence[ArrayLike | Callable[[], ArrayLike]],
    n: int,
) -> list[_Crop]:
    """Read one run of each result twice: where the first n objects reach, then what is there."""
    from scipy import ndimage

    boxes: list[list[tuple[slice, ...]]] = [[] for _ in range(n)]
    for _, labels, members in _results(agreement, masks_of_runs):
        found = ndimage.find_objects(labels)
        for place in range(n):
            for position in np.flatnonzero(members == place):
                boxes[place].append(found[position])
    cuts = [_cut(box, agreement.consensus.shape) for box in boxes]
    pieces: list[list[_Piece]] = [[] for _ in range(n)]
    for n_runs, labels, members in _results(agreement, masks_of_runs):
        for place, cut in enumerate(cuts):
            number = int(np.argmax(members == place)) + 1 if place in members else 0
            pieces[place].append(_Piece(n_runs, labels[cut].copy(), number))
    return [
        _Crop(agreement.objects[place], *cuts[place], tuple(pieces[place])) for place in range(n)
    ]


def _results(
    agreement: Agreement, masks_of_runs: Sequence[ArrayLike | Callable[[], ArrayLike]]
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Runs, canonical label image and members of each different result."""
    for runs, members in zip(agreement.results, agreement.members, strict=True):
        source = masks_of_runs[runs[0]]
        labels = canonical(source() if callable(source) else source).astype(np.int32)
        if labels.shape != agreement.consensus.shape or labels.max(initial=0) != len(members):
            raise BadInput(
                f"the masks of run {runs[0]} have shape {labels.shape} and "
                f"{amount(int(labels.max(initial=0)), 'object')}, but the agreement was made from "
                f"masks of shape {agreement.consensus.shape}, here with "
                f"{amount(len(members), 'object')}; give the same masks in the same order"
            )
        yield len(runs), labels, members


def _cut(boxes: Sequence[tuple[slice, ...]], shape: Sequence[int]) -> tuple[slice, slice]:
    """A square around all boxes, moved inside the image; smaller where the image is."""
    starts = [min(box[axis].start for box in boxes) for axis in (0, 1)]
    stops = [max(box[axis].stop for box in boxes) for axis in (0, 1)]
    longest = max(stop - start for start, stop in zip(starts, stops, strict=True))
    side = max(_SMALLEST_CROP, round(_MARGIN * longest))
    slices = []
    for start, stop, size in zip(starts, stops, shape, strict=True):
        length = min(side, size)
        first = min(max(0, (start + stop - length) // 2), size - length)
        slices.append(slice(first, first + length))
    return slices[0], slices[1]


def _crop_picture(crop: _Crop, background: np.ndarray, consensus: np.ndarray) -> np.ndarray:
    cut = crop.rows, crop.columns
    shape = _panel_shape(background[cut].shape, _CROP_SIDE)
    picture = np.repeat(enlarged(background[cut], shape)[..., None] * _CROP_DIMMED, 3, axis=2)
    neighbours = np.where(consensus[cut] == crop.item.label, 0, consensus[cut])
    line = outlined(enlarged(neighbours, shape), thickness=1)
    _blend(picture, line, COLOURS["agree"], 0.6)
    held, others = _outline_shares(crop, shape)
    # Dashes above, so that both are seen where they fall together.
    for share, colour in ((held, COLOURS["b"]), (others, COLOURS["a"])):
        strength = _FAINTEST + (1 - _FAINTEST) * share
        _blend(picture, share > 0, colour, strength)
    return np.rint(picture).astype(np.uint8)


def _outline_shares(crop: _Crop, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Share of the runs with, and of the runs without the object, that draw a line at a pixel."""
    held, others = np.zeros(shape), np.zeros(shape)
    n_held = n_others = 0
    region = np.any([piece.labels == piece.number for piece in crop.pieces if piece.number], axis=0)
    for piece in crop.pieces:
        if piece.number:
            n_held += piece.n_runs
            labels = np.where(piece.labels == piece.number, 1, 0)
            line = outlined(enlarged(labels, shape), thickness=_LINE)
            held += piece.n_runs * line
        else:
            n_others += piece.n_runs
            labels = np.where(np.isin(piece.labels, _instead(piece, region)), piece.labels, 0)
            line = outlined(enlarged(labels, shape), thickness=_LINE, dash=_DASH)
            others += piece.n_runs * line
    return held / max(1, n_held), others / max(1, n_others)


def _instead(piece: _Piece, region: np.ndarray) -> np.ndarray:
    """Objects that lie where another run has the object, not merely touching it."""
    pixels = np.bincount(piece.labels[region], minlength=1)
    pixels[0] = 0
    return np.flatnonzero(pixels >= max(1, _TOUCHING * np.count_nonzero(region)))


def _crop_title(crop: _Crop, n_runs: int) -> str:
    item = crop.item
    y, x = (round(value) for value in item.position)
    # One run is always at one with itself.
    overlap = f"; mean IoU {item.mean_iou:.2f}" if item.n_runs_with > 1 else ""
    return f"in {item.n_runs_with} of {amount(n_runs, 'run')}\nat y {y}, x {x}{overlap}"


def _crop_legend(figure: Picture) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS["b"], linewidth=2.5, label="runs that have it"),
        Line2D(
            [],
            [],
            color=COLOURS["a"],
            linewidth=2.5,
            linestyle=(0, (2.5, 1.5)),
            label="what the other runs have there",
        ),
        Line2D([], [], color="#BBBBBB", linewidth=1, label="other objects of the consensus"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9, frameon=False)


# -- small parts ---------------------------------------------------------------------------


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


def _panel_shape(shape: Sequence[int], side: int) -> tuple[int, int]:
    scale = side / max(shape)
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def _blend(
    picture: np.ndarray, where: np.ndarray, colour: str, opacity: float | np.ndarray
) -> None:
    """Lay a colour over an RGB picture of floats, in place, with an opacity per pixel."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    alpha = np.broadcast_to(opacity, where.shape)[where][:, None]
    picture[where] = picture[where] * (1 - alpha) + rgb * alpha


def _show(panel: Axes, picture: np.ndarray) -> None:
    panel.imshow(picture)
    panel.set_xticks([])
    panel.set_yticks([])
