"""New masks compared with those of a baseline, image by image, and what limits could hide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.explanation.baseline_limits import Limits
from cellrepro.explanation.label_notes import label_notes, of_images
from cellrepro.explanation.mask_files import MaskReaders, read_both
from cellrepro.images.integer_images import Integers
from cellrepro.store.baseline_file import BaselineFile
from samebits.errors import BadInput
from samebits.results import derived
from samebits.words import grouped


@dataclass(frozen=True)
class Cell:
    """A cell of a baseline."""

    image: str
    """Name of its image."""
    label: int
    """Its number in the baseline."""
    area: int
    """Size in pixels."""


@dataclass(frozen=True)
class Hidden:
    """What limits could hide: cells that could vanish within them."""

    all_at_once: bool
    """Whether all cells together could vanish, so that masks without a cell pass."""
    cells: tuple[Cell, ...] = field(repr=False)
    """Cells of which any one could vanish, smallest first."""

    at_once: int
    """How many of these could vanish together, whichever they are; 0 where none could."""

    @derived
    def n(self) -> int:
        """Number of cells of which any one could vanish."""
        return len(self.cells)

    @derived
    def smallest(self) -> Cell | None:
        """The smallest of these cells; None where none could vanish."""
        return self.cells[0] if self.cells else None

    def sentence(self) -> str:
        """Say which cells could vanish and the limits be kept, the smallest first."""
        if self.all_at_once:
            return "masks without any cell would keep these limits"
        if not self.cells:
            return "with these limits no cell can be lost unnoticed"
        smallest = self.cells[0]
        described = (
            f"of {grouped(smallest.area)} pixels (cell {smallest.label} of {smallest.image})"
        )
        if self.n == 1:
            return f"with these limits one cell could be lost unnoticed: {described}"
        any_of_them = "any one" if self.at_once == 1 else f"any {self.at_once}"
        return (
            f"with these limits {any_of_them} of {self.n} cells could be lost unnoticed: the "
            f"smallest {described}, the largest of {grouped(self.cells[-1].area)}"
        )


@dataclass(frozen=True)
class ImageOfBaseline:
    """An image of a baseline, and its comparison with the new masks."""

    n_pixels: int
    cells: tuple[Cell, ...]
    """Of the baseline."""
    result: MaskComparison | None = None
    """None where the image has no new masks, or they cannot be compared."""
    problem: str = ""
    """Why the masks cannot be compared, or do not pass though no pixel differs; else empty."""
    notes: tuple[str, ...] = ()
    """How the two were read."""


@dataclass(frozen=True)
class BaselineComparison:
    """All images of a baseline, by name."""

    images: Mapping[str, ImageOfBaseline]

    @property
    def results(self) -> dict[str, MaskComparison]:
        """The comparisons by image, where the masks could be compared."""
        return {
            name: image.result for name, image in self.images.items() if image.result is not None
        }

    @property
    def problems(self) -> list[str]:
        """One sentence for each image with a problem."""
        return [image.problem for image in self.images.values() if image.problem]

    @property
    def notes(self) -> tuple[str, ...]:
        """How the masks of each image were read, with its name where there are several."""
        return tuple(
            of_images([name], len(self.images)) + note
            for name, image in self.images.items()
            for note in image.notes
        )

    def hidden(self, limits: Limits) -> Hidden:
        """Find what limits could hide."""
        cells = self._hidden_cells(limits)
        return Hidden(
            all_at_once=self._passes_empty(limits),
            cells=cells,
            at_once=self._n_at_once(cells, limits),
        )

    def _hidden_cells(self, limits: Limits) -> tuple[Cell, ...]:
        """Find the cells of which any one could vanish within the limits, smallest first."""
        images = self.images.values()
        n_cells = sum(len(image.cells) for image in images)
        hidden = [
            cell
            for image in images
            for cell in image.cells
            if _passes_without(cell, image.n_pixels, n_cells, limits)
        ]
        return tuple(sorted(hidden, key=lambda cell: cell.area))

    def _n_at_once(self, hidden: Sequence[Cell], limits: Limits) -> int:
        """Find how many of these cells could vanish together, were they the largest of an image."""
        n_cells = sum(len(image.cells) for image in self.images.values())
        ppm_lost = dict.fromkeys(self.images, 0.0)
        of_image = Counter[str]()
        most_ppm = [0.0] * len(hidden)  # of so many and one cells
        for cell in reversed(hidden):
            ppm_lost[cell.image] += 1e6 * (cell.area / self.images[cell.image].n_pixels)
            index = of_image[cell.image]
            most_ppm[index] = max(most_ppm[index], ppm_lost[cell.image])
            of_image[cell.image] += 1
        ppm = 0.0
        for n, of_one_image in enumerate(most_ppm, 1):
            ppm = max(ppm, of_one_image)
            reached = {"max_ppm": ppm, "max_changed": n / (2 * n_cells - n), "max_lost": n}
            if any(reached[name] > limit for name, limit in limits.items()):
                return n - 1
        return len(hidden)

    def _passes_empty(self, limits: Limits) -> bool:
        """Whether masks without any cell keep the limits."""
        images = self.images.values()
        ppm = max(
            1e6 * (sum(cell.area for cell in image.cells) / image.n_pixels) for image in images
        )
        n_cells = sum(len(image.cells) for image in images)
        reached = {"max_ppm": ppm, "max_changed": 1.0, "max_lost": n_cells}
        return all(reached[name] <= limit for name, limit in limits.items())


def compare_with_baseline(baseline: BaselineFile, actual: MaskReaders) -> BaselineComparison:
    """Compare the masks of each image of a baseline, where there are new ones."""
    return BaselineComparison(
        {
            name: _compare_image(name, baseline.masks(name), actual.get(name))
            for name in baseline.record["images"]
        }
    )


def _compare_image(
    name: str, expected: Integers, read_actual: Callable[[], Integers] | None
) -> ImageOfBaseline:
    numbers, areas = np.unique(expected[expected > 0], return_counts=True)
    by_number = zip(numbers.tolist(), areas.tolist(), strict=True)
    image = ImageOfBaseline(
        n_pixels=expected.size,
        cells=tuple(Cell(name, label, area) for label, area in by_number),
    )
    if read_actual is None:
        return image
    try:
        _, actual, drawn = read_both(lambda: expected, read_actual, b="the masks")
        result = compare_masks(expected, actual)
    except BadInput as error:
        return replace(image, problem=f"the masks of {name} cannot be compared: {error}")
    of_labels = label_notes(expected, actual, result, a="the baseline", b="the masks")
    notes = (*drawn, *of_labels.sentences)
    problem = ""
    if not result.same_numbering:
        problem = f"one number is not one cell in the baseline and in the masks of {name}"
    return replace(image, result=result, problem=problem, notes=notes)


def _passes_without(cell: Cell, n_pixels: int, n_cells: int, limits: Limits) -> bool:
    """Whether masks keep the limits that lack this cell alone."""
    ppm = 1e6 * (cell.area / n_pixels)
    reached = {"max_ppm": ppm, "max_changed": 1 / (2 * n_cells - 1), "max_lost": 1}
    return all(reached[name] <= limit for name, limit in limits.items())
