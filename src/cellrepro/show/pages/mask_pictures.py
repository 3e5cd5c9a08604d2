"""Pictures of what differs between two label images, and a CSV file of every cell.

On a page they stand side by side, or below each other on a phone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.changed_cells import is_listed, listed_changes, resized_cells
from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.comparison.mask_totals import fates_text
from cellrepro.comparison.number_remarks import n_numbers
from cellrepro.comparison.object_changes import ObjectChange
from cellrepro.comparison.verdicts import Verdict
from cellrepro.show.figures.colours import COLOURS, DOTS
from cellrepro.show.figures.pixels import (
    background_of,
    category_picture,
    channels_text,
    painted,
    panel_shape,
    with_outlines,
)
from cellrepro.show.figures.stack_planes import flat
from cellrepro.show.pages.parts import Figure, Mark, Panel, panel, table_file
from cellrepro.words import area_text, share_text, that_differ
from samebits.words import amount, grouped

_MOST_MARKS = 40  # cells that get a sign each; more get dots
_MOST_LARGEDOTS = 2500  # dots that are four pixels wide; more are one pixel each
_UNDERDOTS = 0.5  # factor of the picture's brightness
_SMALLEST_WINDOW = 40  # side of the part that is shown closer, pixels
_LARGEST_WINDOW = 160
_LEAST_RADIUS = 0.014  # of a ring, as a share of the longer side


@dataclass(frozen=True)
class ComparedMasks:
    """A comparison with its figure."""

    comparison: MaskComparison
    figure: Figure
    changes: Sequence[ObjectChange]
    """What became of the cells that the figure shows: of a stack, those on its plane."""
    categories: frozenset[int]
    """The kinds of pixels that it shows, as `categories` numbers them."""


def counts_text(comparison: MaskComparison) -> str:
    """Say what became of the cells: "3 kept, 1 lost"."""
    return fates_text(comparison.kinds, resized_cells(comparison.objects))


def compared_masks(
    name: str,
    image: np.ndarray | None,
    a: np.ndarray,
    b: np.ndarray,
    file: str,
    *,
    comparison: MaskComparison | None = None,
    closer: bool = True,
) -> ComparedMasks:
    """Draw two label images of an image, compared here or before; ``file`` names the CSV file.

    The last panel shows the place where most differs, unless it is not to come ``closer``.
    """
    if comparison is None:
        comparison = compare_masks(a, b)
    data = table_file(file, _rows_of_cells(name, comparison))
    pair = _DrawnPair.of(image, a, b, comparison)
    return ComparedMasks(
        comparison,
        Figure(tuple(pair.panels(closer=closer)), data),
        changes=[each.change for each in pair.changes],
        categories=frozenset(np.unique(pair.categories).tolist()),
    )


def beside_made_again(image: np.ndarray | None, b: np.ndarray, made: np.ndarray) -> Figure:
    """Draw B, (Y, X), beside what was made in its place, and what still differs."""
    pair = _DrawnPair.of(image, made, b, compare_masks(made, b))
    outlines = [
        panel(with_outlines(pair.background, {"b": masks}), heading, f"Outlines of {heading}.")
        for heading, masks in (("B", b), ("B made again", made))
    ]
    n_pixels = pair.n_differing
    left = amount(n_pixels, "pixel") if n_pixels else "nothing"
    heading = f"What still differs: {left}"
    return Figure((*outlines, replace(pair.differences(), heading=heading)))


def _rows_of_cells(name: str, comparison: MaskComparison) -> list[dict[str, object]]:
    """Make the rows of the CSV file, with cells that are not kept first."""
    same = [change for change in comparison.objects if not is_listed(change)]
    return [_row_of_cell(name, change) for change in [*listed_changes(comparison), *same]]


def _row_of_cell(name: str, change: ObjectChange) -> dict[str, object]:
    return {
        "image": name,
        "what": change.in_words,
        **{axis: round(at, 1) for axis, at in place_columns(change).items()},
        "iou": change.iou,
        "area_a": change.area_a,
        "labels_a": " ".join(map(str, change.labels_a)),
        "area_b": change.area_b,
        "labels_b": " ".join(map(str, change.labels_b)),
    }


def place_columns(change: ObjectChange) -> dict[str, float]:
    """Get the centroid of a cell by the titles of columns; planes count from 0."""
    *planes, y, x = change.position
    place = {"y": y, "x": x}
    return {"z": round(planes[0]), **place} if planes else place


@dataclass(frozen=True, eq=False)
class _DrawnPair:
    """Two label images of one image, or one plane of them, to be drawn side by side."""

    image: np.ndarray | None
    a: np.ndarray
    b: np.ndarray
    categories: np.ndarray
    """Where the two agree, and how they differ elsewhere."""
    n_cells: tuple[int, int]
    """Cells of either side that are drawn."""
    changes: Sequence[_PlacedChange]
    """What became of the cells that are drawn."""
    plane: str
    """What the plane of a stack is called; empty for a flat image."""
    are_renumbered: bool
    """Whether all outlines are the same and numbers are not."""

    @classmethod
    def of(
        cls, image: np.ndarray | None, a: np.ndarray, b: np.ndarray, comparison: MaskComparison
    ) -> _DrawnPair:
        """Choose what is drawn: all of a flat image, the plane of a stack that differs most."""
        shown = flat(image, a, b)
        shown_a, shown_b = (each for each in shown.labels if each is not None)
        n_cells = (comparison.n_objects_a, comparison.n_objects_b)
        if shown.z is None:
            changes = [_PlacedChange.of(each) for each in comparison.objects]
        else:
            changes = _on_plane(comparison, shown_a, shown_b, shown.z)
            n_cells = (n_numbers(shown_a), n_numbers(shown_b))
        return cls(
            image=shown.image,
            a=shown_a,
            b=shown_b,
            categories=shown.categories,
            n_cells=n_cells,
            changes=changes,
            plane=shown.name,
            are_renumbered=comparison.verdict in (Verdict.SAME_OBJECTS, Verdict.DIFFERENT)
            and not comparison.n_differing,
        )

    @cached_property
    def background(self) -> np.ndarray:
        """The image as it is shown, or black."""
        return background_of(self.image, self.a.shape)

    @property
    def n_differing(self) -> int:
        """Pixels that differ, of those that are drawn."""
        return int(np.count_nonzero(self.categories >= 2))

    def panels(self, *, closer: bool) -> Iterator[Panel]:
        """Draw the image, if there is one; the outlines of both; what differs; and it closer."""
        if self.image is not None:
            channels = channels_text(self.image, self.a.shape)
            heading = self._heading(f"Image: {channels}" if channels else "Image")
            yield panel(with_outlines(self.background, {}), heading, "The image alone.")
        yield self._outlines()
        yield self.differences()
        window = _window(self.categories >= 2) if closer else None
        if window is not None:
            yield self._closer(window)

    def _heading(self, what: str) -> str:
        return f"{what}, {self.plane}" if self.plane else what

    def _outlines(self) -> Panel:
        n_a, n_b = self.n_cells
        alt = (
            f"Outlines of the first (blue), {amount(n_a, 'cell')}, and of the second (orange, "
            f"dashed), {amount(n_b, 'cell')}; white where they coincide."
        )
        picture = with_outlines(self.background, {"a": self.a, "b": self.b})
        return panel(picture, self._heading("Outlines of both"), alt)

    def differences(self) -> Panel:
        """Draw what differs, with a sign or a dot at every cell that is listed."""
        picture = category_picture(self.background, self.categories)[0]
        heading = self._heading("What differs")
        listed = [each for each in self.changes if is_listed(each.change)]
        marks = []
        if not self.n_differing:
            heading += ": only the numbers of the cells" if self.are_renumbered else ": nothing"
        elif len(listed) <= _MOST_MARKS:
            marks = _marks(listed, self.a.shape)
        else:
            _dot(picture, listed, self.a.shape)
            heading += ": a dot on each cell"
        kinds = Counter(str(each.change.kind) for each in self.changes)
        resized = resized_cells(each.change for each in self.changes)
        alt = (
            f"{heading}; of the outlines {that_differ(self.n_differing, 'pixel')} of "
            f"{grouped(self.categories.size)} "
            f"({share_text(self.n_differing / self.categories.size)}). "
            f"{fates_text(kinds, resized)}."
        )
        return panel(picture, heading, alt, marks)

    def _closer(self, window: tuple[slice, slice]) -> Panel:
        rows, columns = ((side.start, side.stop) for side in window)
        place = area_text(rows, columns)
        labels = {"a": self.a[window], "b": self.b[window]}
        alt = f"Outlines of both in {place}, where most pixels differ."
        picture = with_outlines(self.background[window], labels)
        return panel(picture, self._heading(f"Closer: {place}"), alt)


class _PlacedChange(NamedTuple):
    """A change as it is drawn."""

    change: ObjectChange
    place: tuple[float, ...]
    """Its centre, (y, x)."""
    area: float
    """Pixels, on the side that shows more."""

    @classmethod
    def of(cls, change: ObjectChange) -> _PlacedChange:
        """Place it where it lies, on whichever plane."""
        return cls(change, change.position[-2:], max(change.area_a, change.area_b))


def _on_plane(
    comparison: MaskComparison, a: np.ndarray, b: np.ndarray, z: int
) -> list[_PlacedChange]:
    """Give what became of the cells of a stack that a plane shows, each where it lies there."""
    if comparison.by_plane:
        on_it = [each for each in comparison.objects if round(each.position[0]) == z]
        return [_PlacedChange.of(each) for each in on_it]
    cells_a = _cells_of(a)
    cells_b = _cells_of(b)
    placed = []
    for change in comparison.objects:
        of_a = [cells_a[label] for label in change.labels_a if label in cells_a]
        of_b = [cells_b[label] for label in change.labels_b if label in cells_b]
        if of_a or of_b:
            shown = max((of_a, of_b), key=lambda cells: sum(cell.area for cell in cells))
            area = sum(cell.area for cell in shown)
            y, x = (sum(cell.area * cell.place[axis] for cell in shown) / area for axis in (0, 1))
            placed.append(_PlacedChange(change, (y, x), area))
    return placed


class _CellOnPlane(NamedTuple):
    area: int
    place: tuple[float, ...]


def _cells_of(plane: np.ndarray) -> dict[int, _CellOnPlane]:
    """Measure the cells of a plane, by their labels."""
    from scipy import ndimage

    labels, areas = np.unique(plane[plane > 0], return_counts=True)
    places = ndimage.center_of_mass(plane > 0, plane, labels)
    return {
        label: _CellOnPlane(area, place)
        for label, area, place in zip(labels.tolist(), areas.tolist(), places, strict=True)
    }


def _marks(changed: Sequence[_PlacedChange], shape: Sequence[int]) -> list[Mark]:
    """Mark changed cells of an image of that shape, in the pixels of its panel."""
    longer = max(panel_shape(shape))
    scale = longer / max(shape)
    marks = []
    for each in changed:
        y, x = ((coordinate + 0.5) * scale for coordinate in each.place)
        radius = max(_LEAST_RADIUS * longer, 1.25 * scale * (each.area / np.pi) ** 0.5)
        sign = each.change.kind.sign
        marks.append(Mark(sign, x=round(x, 1), y=round(y, 1), radius=round(radius, 1)))
    return marks


def _dot(picture: np.ndarray, changed: Sequence[_PlacedChange], shape: Sequence[int]) -> None:
    """Put a dot on every changed cell, in place, where signs would hide each other."""
    from scipy import ndimage

    rows, columns = picture.shape[:2]
    numbers = {kind: number for number, kind in enumerate(DOTS, start=1)}
    dots = np.zeros((rows, columns), np.uint8)
    for change, (y, x), _ in changed:
        row = min(rows - 1, int((y + 0.5) * rows / shape[0]))
        column = min(columns - 1, int((x + 0.5) * columns / shape[1]))
        dots[row, column] = max(dots[row, column], numbers[change.kind])
    if len(changed) <= _MOST_LARGEDOTS:
        dots = ndimage.grey_dilation(dots, size=(4, 4))
    picture[:] = np.rint(picture * _UNDERDOTS)
    picture[ndimage.binary_dilation(dots > 0, np.ones((3, 3)))] = 0
    for kind, colour in DOTS.items():
        painted(picture, dots == numbers[kind], COLOURS[colour])


def _window(differs: np.ndarray) -> tuple[slice, slice] | None:
    """Find the rows and columns where most pixels differ; None where the image is small."""
    from scipy import ndimage

    shorter = min(differs.shape)
    side = int(np.clip(shorter // 4, _SMALLEST_WINDOW, _LARGEST_WINDOW))
    if shorter < 2 * side or not differs.any():
        return None
    density = ndimage.gaussian_filter(differs.astype(np.float32), side / 4)
    middle = np.array(np.unravel_index(density.argmax(), density.shape))
    last_start = np.array(differs.shape) - side
    row, column = np.clip(middle - side // 2, 0, last_start).tolist()
    return slice(row, row + side), slice(column, column + side)
