"""One image segmented whole, cropped and with more overlap, and its cells followed through all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from cellrepro.comparison.object_matching import labels_in, unmatched_cells
from cellrepro.comparison.straight_borders import Seam, StraightBorder, seam, straight_borders
from cellrepro.explanation.tile_lines import tile_lines
from cellrepro.model.tile_layout import TileLayout
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.words import place_text
from samebits.results import derived
from samebits.words import amount, grouped, some, verb_of

CROPS = ((37, 53), (91, 22))
"""Rows and columns, in pixels, that are cut off at the beginning, so that tiles lie elsewhere."""
OVERLAP = 0.4
"""``tile_overlap`` of the variant with more overlap."""
N_VARIANTS = 2 + 2 * len(CROPS)
"""The whole image, the one with more overlap, and each crop scaled in two ways."""

_MOST_NUMBERS = 6  # of cells that are named
_NEAR_CUT = 16  # pixels from the beginning of a crop, where cells are cut off
_USUAL_LAYOUT = TileLayout()

Segmenter = Callable[..., np.ndarray]
"""Takes an image and arguments of ``CellposeModel.eval``; gives masks (Y, X)."""


@dataclass(frozen=True)
class Tiled:
    """One image, and what became of its cells when tiles lay elsewhere."""

    name: str
    """The image."""
    n_cells: int
    """In the usual result."""
    n_dependent: int
    """Cells of the usual result without a match where other tiles lie, with the same
    normalisation."""
    n_gained: int
    """Cells there without a match in the usual result. A cell that several variants have
    counts once."""
    n_by_normalisation: int
    """Cells of a crop without a match where the crop is normalised by itself, and cells that
    appear there. A cell that several crops show counts once."""
    seam: Seam
    """Straight ends at tile borders, beside everywhere else."""
    cuts: tuple[StraightBorder, ...]
    """Rows, columns and planes at which cells end straight in the usual result."""
    masks: NDArray[np.uint32] = field(repr=False)
    """The usual result; 0 is background."""
    dependent: tuple[int, ...]
    """Labels of the cells that depend on tiles."""

    @derived
    def stands_out(self) -> bool:
        """Whether there are more straight ends at tile borders than elsewhere."""
        return self.seam.stands_out

    def lines(self) -> list[str]:
        """Say which of its cells depend on tiles, and where they end straight."""
        which = f" ({some(self._places(), _MOST_NUMBERS)})" if self.dependent else ""
        n_scaled = self.n_by_normalisation
        gained = scaled = ""
        if self.n_gained:
            appear = verb_of(self.n_gained, "appears", "appear")
            gained = f", and {grouped(self.n_gained)} more {appear} where they lie elsewhere"
        if n_scaled:
            changes = verb_of(n_scaled, "changes", "change")
            scaled = f"; {n_scaled} {changes} where intensities of a crop are scaled by themselves"
        return [
            f"{self.name}: {grouped(self.n_dependent)} of {amount(self.n_cells, 'cell')} "
            f"{verb_of(self.n_dependent, 'depends', 'depend')} on where tiles lie{which}"
            f"{gained}{scaled}",
            f"  {self.seam}",
        ]

    def _places(self) -> list[str]:
        """Say of each cell that depends on tiles its number, and where it lies."""
        centres = ndimage.center_of_mass(self.masks > 0, self.masks, self.dependent)
        shown = zip(self.dependent, centres, strict=True)
        return [f"cell {label} at {place_text(centre)}" for label, centre in shown]


def follow(
    segment: Segmenter,
    name: str,
    image: np.ndarray,
    settings: Settings,
    *,
    layout: TileLayout = _USUAL_LAYOUT,
    scaled_channels: np.ndarray | None = None,
) -> Tiled:
    """Segment one image in all variants, and follow its cells."""
    own_scale = settings.arguments()
    channels = image if scaled_channels is None else scaled_channels
    scale_of_whole = {**own_scale, "normalize": {"lowhigh": _low_and_high(channels)}}
    usual = segment(image, **scale_of_whole)
    lost_labels: set[int] = set()
    gained = _DistinctCells(usual.shape)
    lost_by_normalisation = _DistinctCells(usual.shape)
    gained_by_normalisation = _DistinctCells(usual.shape)
    for crop in _crops_that_fit(image.shape):
        pixels = np.ascontiguousarray(crop.of(image))
        cropped = segment(pixels, **scale_of_whole)
        lost, appeared = _lost_and_gained(crop.of(usual), cropped)
        lost_labels |= lost
        gained.add(cropped, appeared, crop)
        normalised_by_itself = segment(pixels, **own_scale)
        lost, appeared = _lost_and_gained(cropped, normalised_by_itself)
        lost_by_normalisation.add(cropped, lost, crop)
        gained_by_normalisation.add(normalised_by_itself, appeared, crop)
    if not settings.augment and settings.tile_overlap < OVERLAP:
        overlapping = segment(image, **{**scale_of_whole, "tile_overlap": OVERLAP})
        by_overlap = unmatched_cells(usual, overlapping)
        lost_labels |= by_overlap.before
        gained.add(overlapping, by_overlap.after, _Crop(0, 0))
    return Tiled(
        name=name,
        n_cells=int(np.count_nonzero(np.unique(usual))),
        n_dependent=len(lost_labels),
        n_gained=gained.n,
        n_by_normalisation=lost_by_normalisation.n + gained_by_normalisation.n,
        seam=seam(usual, list(tile_lines(image.shape, settings, layout))),
        cuts=straight_borders(usual),
        masks=usual,
        dependent=tuple(sorted(lost_labels)),
    )


@dataclass(frozen=True)
class _Crop:
    """What is cut off at the beginning of an image, in pixels."""

    n_rows: int
    n_columns: int

    def of(self, image: np.ndarray) -> np.ndarray:
        """The part of an image or of its masks that is left."""
        return image[self.n_rows :, self.n_columns :]


def _crops_that_fit(shape: Sequence[int]) -> Iterator[_Crop]:
    """The crops that leave more than half of an image along each axis."""
    for n_rows, n_columns in CROPS:
        if 2 * n_rows < shape[0] and 2 * n_columns < shape[1]:
            yield _Crop(n_rows, n_columns)


def _low_and_high(image: np.ndarray) -> list[list[float]]:
    """The intensities that Cellpose scales to 0 and 1 in the whole image, for each channel."""
    channels = image[..., None] if image.ndim == 2 else image
    limits = []
    for channel in range(channels.shape[-1]):
        values = channels[..., channel].astype(np.float32)
        low, high = np.percentile(values, (1, 99)).tolist()
        limits.append([low, high if high - low > 1e-3 else low + 1])
    return limits


# -- cells without a match -------------------------------------------------------------------


def _lost_and_gained(before: np.ndarray, cropped: np.ndarray) -> tuple[set[int], set[int]]:
    """The labels that only one of two results of a crop has, but for cells that it cuts off."""
    unmatched = unmatched_cells(before, cropped)
    return unmatched.before - _labels_near_cut(before), unmatched.after - _labels_near_cut(cropped)


def _labels_near_cut(masks: np.ndarray) -> set[int]:
    return labels_in(masks[:_NEAR_CUT]) | labels_in(masks[:, :_NEAR_CUT])


class _DistinctCells:
    """Counts cells of several results of one image, a cell that several of them have once."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.n = 0
        self._shape = shape
        self._results: list[np.ndarray] = []

    def add(self, masks: np.ndarray, labels: set[int], crop: _Crop) -> None:
        """Add the cells of some labels in the masks of a crop."""
        cells = np.zeros(self._shape, masks.dtype)
        crop.of(cells)[:] = np.where(np.isin(masks, sorted(labels)), masks, 0)
        new_labels = set(labels)
        for earlier in self._results:
            new_labels &= unmatched_cells(cells, earlier).before
        self.n += len(new_labels)
        self._results.append(cells)
