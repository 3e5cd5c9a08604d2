"""Images with outlines of their masks, and where two label images of one image differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.transforms import Bbox

from cellrepro.comparison.category_map import categories
from cellrepro.comparison.changed_cells import listed_changes, resized_cells
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.mask_totals import fates_text, image_weight, totals_over
from cellrepro.comparison.number_remarks import n_numbers
from cellrepro.comparison.object_changes import (
    MOST_TELLING_FIRST,
    RESIZED,
    ObjectChange,
    ObjectKind,
)
from cellrepro.comparison.scores import average_precision
from cellrepro.show.figures import style
from cellrepro.show.figures.colours import COLOURS, OTHER_OBJECT
from cellrepro.show.figures.pixels import (
    SIDE,
    background_of,
    category_picture,
    panel_shape,
    shown_image,
    vote_on_cell,
    vote_picture,
    with_outlines,
)
from cellrepro.show.figures.scale_bar import draw_scale_bar, scale_bar
from cellrepro.show.figures.stack_planes import flat
from cellrepro.show.figures.style import WIDTH, Picture
from cellrepro.words import pixels_text, share_text
from samebits.errors import BadInput
from samebits.words import amount, grouped, some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.comparison.mask_totals import MaskTotals
    from cellrepro.images.folder import ImageFolder
    from cellrepro.store.store import Store
    from cellrepro.store.stored_run import Repeat

_MANY_PLACES = 12
"""Beyond this many separate differences, rings would hide them."""
_SMALL = 0.003
"""Share of the pixels below which differences get rings, so that nobody overlooks them."""
_MOST_SIGNS = 40
"""Beyond this many changed cells, signs would hide them."""
_MOST_IMAGES = 10
"""Named in a message."""
_MOST_VOTES = 6
"""Beyond this many repeats the legend leaves some numbers out, as their colours are close."""
_NAME_LETTERS = 34
"""Of an image or a run in the title of a panel."""


@dataclass(frozen=True)
class _Panel:
    """An array of colours with a title."""

    title: str
    pixels: np.ndarray
    """Of uint8, shape (Y, X, 3)."""

    def draw(self, axes: Axes) -> None:
        style.image_panel(axes, self.pixels)
        style.title(axes, self.title)


def data_at_a_glance(folder: ImageFolder, *, n: int = 6) -> Picture:
    """Draw images of a folder with the outlines of their masks, by name.

    Parameters
    ----------
    folder : ImageFolder
        From `cellrepro.read_folder`.
    n : int
        Images at most. Training and test images are both shown if there are both.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If the folder holds no image.
    """
    n_test = min(len(folder.test), max(n - len(folder.train), -(-n // 3)))
    chosen = [("train", item) for item in folder.train[: n - n_test]]
    chosen += [("test", item) for item in folder.test[:n_test]]
    if not chosen:
        raise BadInput(f"{folder.path} holds no images to show; expected one or more")
    n_columns = min(3, len(chosen))
    n_rows = -(-len(chosen) // n_columns)
    figure = Picture(height=0.5 + n_rows * (WIDTH / n_columns + 0.3))
    for i, (split, item) in enumerate(chosen, start=1):
        height, width = item.image.shape[:2]
        outlines = {} if item.masks is None else {"truth": item.masks}
        objects = "no masks" if item.masks is None else _cells(item.masks)
        name = style.clipped(item.name, _NAME_LETTERS)
        panel = _Panel(
            f"{split}: {name}\n{width} × {height} pixels, {objects}",
            with_outlines(shown_image(item.image), outlines, solid=True),
        )
        panel.draw(figure.add_subplot(n_rows, n_columns, i))
    n_images = len(folder.train) + len(folder.test)
    return figure.described(
        f"{len(chosen)} of {n_images} images of {folder.path.name}: "
        f"{len(folder.train)} to train, {len(folder.test)} to test",
    )


def masks_beside_truth(store: Store, repeat: Repeat, *, n: int = 3) -> Picture:
    """Draw images of one repeat beside their ground truth and what the network found.

    Parameters
    ----------
    store : Store
        Which keeps images and ground truth.
    repeat : Repeat
    n : int
        Images at most, the first by name. Of a stack the plane is shown on which they differ most.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If there is no image to show.
    """
    names = sorted(repeat.manifest.masks)[:n]
    if not names:
        raise BadInput(f"{repeat.name} holds no masks of any image to show")
    side = WIDTH / 3
    figure = Picture(height=0.4 + len(names) * (side + 0.05))
    rows = figure.subplots(len(names), 3, squeeze=False)
    for row, name in zip(rows, names, strict=True):
        for axes, panel in zip(row, _beside_truth(store, repeat, name), strict=True):
            panel.draw(axes)
    n_images = len(repeat.manifest.masks)
    shown = f"{len(names)} of {amount(n_images, 'image')}"
    return figure.described(
        f"Annotated cells and cells found by repeat {repeat.index}, on {shown}",
        f"Outlines of the annotation are yellow, of the run {repeat.name} blue. AP@0.5 counts a "
        "cell as found from an IoU of 0.5 on: one that is cut short may still count.",
    )


def _beside_truth(store: Store, repeat: Repeat, name: str) -> list[_Panel]:
    """An image alone, with its ground truth, and with what was found."""
    digest = repeat.manifest.data.images_digest
    plane = flat(store.image(digest, name), repeat.masks(name), store.truth(digest, name))
    masks, truth = plane.labels
    assert masks is not None
    background = background_of(plane.image, masks.shape)
    image_title = style.clipped(name, _NAME_LETTERS)
    if plane.name:
        image_title += f", {plane.name}"
    if plane.image is None:
        image_title += "\n(the image was not kept)"
    truth_title = "no ground truth"
    found_title = f"found: {_cells(masks)}"
    truth_outlines = {}
    if truth is not None:
        truth_title = f"ground truth: {_cells(truth)}"
        truth_outlines = {"truth": truth}
        found_title += f", AP@0.5 {average_precision(truth, masks)[0]:.3f}"
    return [
        _Panel(image_title, with_outlines(background, {}, solid=True)),
        _Panel(truth_title, with_outlines(background, truth_outlines, solid=True)),
        _Panel(found_title, with_outlines(background, {"a": masks}, solid=True)),
    ]


def cells_changed(
    store: Store, a: Repeat, b: Repeat, *, image: str = "", name_a: str = "A", name_b: str = "B"
) -> Picture:
    """Draw the image on which most cells differ between two repeats, or the one that is named.

    Parameters
    ----------
    store : Store
        Which keeps the images.
    a, b : Repeat
        Over the same images; else the picture says that there is nothing to draw.
    image : str
        The name of an image; by default the one on which most cells changed.
    name_a, name_b : str
        What the two are called.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If the two have no such image.
    """
    images_digest = a.spec.images_digest
    names = a.manifest.masks.keys() & b.manifest.masks.keys()
    if not names or b.spec.images_digest != images_digest:
        return style.note("the two have no masks of one image, so no cells can be drawn")
    comparisons = {name: compare_masks(a.masks(name), b.masks(name)) for name in sorted(names)}
    if image and image not in comparisons:
        images = some(list(comparisons), _MOST_IMAGES)
        raise BadInput(f"there is no image {image!r}; expected one of {images}")
    most = max(comparisons, key=lambda name: image_weight(comparisons[name]))
    shown = image or most
    figure = difference(
        store.image(images_digest, shown),
        a.masks(shown),
        b.masks(shown),
        name_a=name_a,
        name_b=name_b,
    )
    totals = totals_over(comparisons.values())
    caption = f"{shown}: {_changed_text(totals, is_most=shown == most)}."
    alt = f"Outlines of two results, and where they differ. {caption}"
    return figure.described(figure.get_suptitle(), caption, alt)


def _changed_text(totals: MaskTotals, *, is_most: bool) -> str:
    """What is said beneath the one image that is shown of all."""
    n_images = amount(totals.n_images, "image")
    if not totals.n_objects:
        return f"no cell was found in {n_images}, so this says nothing about cells; train longer"
    if not totals.n_differing:
        return f"no pixel differs, in {n_images}"
    most = (
        f"most cells without a match here, of {n_images}; "
        if is_most and totals.n_images > 1
        else ""
    )
    return f"{most}over all, {share_text(totals.ppm / 1e6)} of the pixels differ"


def difference(
    image: np.ndarray | None,
    a: np.ndarray,
    b: np.ndarray,
    *,
    name_a: str = "A",
    name_b: str = "B",
    votes: tuple[np.ndarray, int] | None = None,
    pixel_size: float | None = None,
    side: int = SIDE,
) -> Picture:
    """Draw two label images side by side, and where they differ; micrometres where known."""
    plane = flat(image, a, b)
    plane_a, plane_b = plane.labels
    assert plane_a is not None
    assert plane_b is not None
    background = background_of(plane.image, plane_a.shape)
    short_a = _short(name_a)
    short_b = _short(name_b)
    comparison = compare_masks(plane_a, plane_b)
    differing, drawn = category_picture(background, categories(plane_a, plane_b), side=side)
    panels = [
        _Panel(f"{short_a}: {_cells(plane_a)}", _outlined("a", plane_a, background, side)),
        _Panel(f"{short_b}: {_cells(plane_b)}", _outlined("b", plane_b, background, side)),
        _Panel(f"where they differ: {pixels_text(comparison.ppm)}", differing),
    ]
    if votes is not None:
        n_votes, n_runs = votes
        picture = vote_picture(background, n_votes, n_runs, side=side)
        panels.append(_Panel(f"in how many of {n_runs} results a pixel is cell", picture))
    n_columns = 3 if len(panels) == 3 else 2
    n_rows = len(panels) // n_columns
    panel_width = WIDTH / n_columns
    height = panel_width * min(1.6, plane_a.shape[0] / plane_a.shape[1])
    figure = Picture(height=0.9 + n_rows * (height + 0.3))
    grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=True):
        panel.draw(axes)
    if pixel_size:
        n_columns = plane_a.shape[1]
        shape = panel_shape(plane_a.shape, side)
        bar = scale_bar(pixel_size, n_columns)
        draw_scale_bar(grid[0], bar, n_columns=n_columns, shape=shape)
    _ring(grid[2], drawn >= 2)
    changes = listed_changes(comparison)
    _sign_changes(grid[2], changes, drawn.shape[0] / plane_a.shape[0], panel_width=panel_width)
    signs = _signs_explained(changes)
    style.legend(figure, _explained(name_a, name_b), signs, _votes_explained(votes))
    return figure.described(_difference_heading(plane.name, comparison, plane_a.size))


def _short(name: str) -> str:
    """What a side is called in the title of a panel: A or B, if that begins its name."""
    side, separator, _ = name.partition(": ")
    return side if separator and len(side) == 1 else style.clipped(name, _NAME_LETTERS)


def _outlined(key: str, labels: np.ndarray, background: np.ndarray, side: int) -> np.ndarray:
    """The outlines of one side, ``a`` or ``b``."""
    return with_outlines(background, {key: labels}, side=side)


def _explained(name_a: str, name_b: str) -> list[Artist]:
    """The legend of `difference`."""
    return [
        style.line(name_a, color=COLOURS["a"], linewidth=2.5),
        style.line(name_b, color=COLOURS["b"], linewidth=2.5, linestyle=(0, (3, 1.5))),
        style.patch(f"only {_short(name_a)}", fc=COLOURS["only_a"], hatch="////"),
        style.patch(f"only {_short(name_b)}", fc=COLOURS["only_b"], hatch="\\\\\\\\"),
        style.patch(OTHER_OBJECT, fc=COLOURS["other_object"], hatch="..."),
        style.patch("the same cell", fc="#8C8C8C"),
    ]


def _votes_explained(votes: tuple[np.ndarray, int] | None) -> list[Artist]:
    """The colour of every number of results that call a pixel cell; of many, some in between."""
    if votes is None:
        return []
    n_runs = votes[1]
    n_named = min(n_runs, _MOST_VOTES)
    numbers = dict.fromkeys(np.linspace(1, n_runs, n_named).round().astype(int).tolist())
    return [style.patch(f"in {n} of {n_runs} results", fc=vote_on_cell(n, n_runs)) for n in numbers]


def _signs_explained(changed: Sequence[ObjectChange]) -> list[Artist]:
    """Say what the signs mean that are drawn; nothing where there are none."""
    if len(changed) > _MOST_SIGNS:
        return []
    kinds = {change.kind for change in changed}
    return [
        style.patch(
            f"{kind.sign}  {RESIZED if kind == ObjectKind.KEPT else kind.in_words}",
            fc="none",
            ec="none",
        )
        for kind in MOST_TELLING_FIRST
        if kind in kinds
    ]


def _sign_changes(
    axes: Axes, changed: Sequence[ObjectChange], scale: float, *, panel_width: float
) -> None:
    """Write the sign of what became of a cell beside each that changed, where they are few.

    ``panel_width`` is about that of the axes, in inches.
    """
    if len(changed) > _MOST_SIGNS:
        return
    placed: list[Bbox] = []
    by_points = 72 * panel_width / np.ptp(axes.get_xlim())
    size = (np.ptp(axes.get_xlim()) * by_points, np.ptp(axes.get_ylim()) * by_points)
    for change in changed:
        y, x = (scale * value for value in change.position[-2:])
        boxes = _boxes_beside(change.kind.sign, (x * by_points, y * by_points))
        free = (box for box in boxes if _is_free(box, placed, size))
        box = next(free, boxes[0])
        placed.append(box)
        centre_x, centre_y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        axes.annotate(
            change.kind.sign,
            (x, y),
            (centre_x - x * by_points, y * by_points - centre_y),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            weight="bold",
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "black", "lw": 0.6},
            gid="sign",
        )


def _boxes_beside(sign: str, at: tuple[float, float]) -> list[Bbox]:
    """The places for a sign around a point, in points from the upper left: above right first."""
    width, height = 4 + 5.5 * len(sign), 11.0
    places = [
        (away * right, away * down)
        for away in (1, 2.2)
        for right, down in ((1, -1), (-1, -1), (1, 1), (-1, 1), (1, 0), (-1, 0), (0, -1), (0, 1))
    ]
    return [
        Bbox.from_bounds(
            at[0] + right * (6 + width / 2) - width / 2,
            at[1] + down * (6 + height / 2) - height / 2,
            width,
            height,
        )
        for right, down in places
    ]


def _is_free(box: Bbox, placed: Sequence[Bbox], size: tuple[float, float]) -> bool:
    """Whether a sign lies in a picture of this size, and on none of those that were written."""
    width, height = size
    is_inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    return is_inside and not box.count_overlaps(placed)


def _difference_heading(plane: str, comparison: MaskComparison, n_pixels: int) -> str:
    if not comparison.n_differing:
        return "The two outline the same cells"
    prefix = f"{plane}: " if plane else ""
    cells = fates_text(comparison.kinds, resized_cells(comparison.objects))
    return (
        f"{prefix}{cells}; {grouped(comparison.n_differing)} of {grouped(n_pixels)} pixels differ"
    )


def _cells(labels: np.ndarray) -> str:
    return amount(n_numbers(labels), "cell")


def _ring(axes: Axes, differs: np.ndarray) -> None:
    """Circle the places that differ, where they are few and small enough to be overlooked."""
    from scipy import ndimage

    places, n_places = ndimage.label(ndimage.binary_dilation(differs, iterations=6))
    if 0 < n_places <= _MANY_PLACES and np.count_nonzero(differs) < _SMALL * differs.size:
        centres = ndimage.center_of_mass(places, places, range(1, n_places + 1))
        y, x = np.transpose(centres)
        axes.scatter(x, y, s=250, facecolors="none", edgecolors="white")
