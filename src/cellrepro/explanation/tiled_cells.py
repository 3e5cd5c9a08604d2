"""One image segmented whole, cropped and with more overlap, and its cells followed through all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from cellrepro.comparison.object_changes import KEPT_IOU, KEPT_WITHIN, ObjectKind, object_changes
from cellrepro.comparison.object_matching import labels_in, overlap, unmatched_cells
from cellrepro.comparison.straight_borders import Seam, StraightBorder, seam, straight_borders
from cellrepro.explanation.straight_cuts import cut_text
from cellrepro.explanation.tile_lines import TileLine, tile_lines
from cellrepro.model.tile_layout import TileLayout
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.words import place_text, share_text
from samebits.results import derived
from samebits.words import amount, grouped, some, verb_of, with_verb

CROPS = ((37, 53), (91, 22))
"""Rows and columns, in pixels, that are cut off at the beginning, so that tiles lie elsewhere."""
OVERLAP = 0.4
"""``tile_overlap`` of the variant with more overlap."""
WITH_OTHER_TILES = "if the tiles lie elsewhere"
CHANGE_MEANS = (
    f"(a match: IoU of {KEPT_IOU} or more; kept: a match whose centre lies less than "
    f"{KEPT_WITHIN:.0f} pixel away, even if larger or smaller; shifted or reshaped: a match that "
    "is not kept. All cells that are not kept change)"
)
"""What counts as a change, in the words of `compare`."""

NEAR_CUT = 16
"""Pixels from the beginning of a crop, where cells are cut off or lack their surroundings."""

_MOST_NUMBERS = 6  # of cells that are named
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
    n_moved: int
    """Cells of the usual result with a match wherever other tiles lie that are not kept in at least
    one of these results: shifted or reshaped, split or merged."""
    n_other_pixels: int
    """Cells that are kept wherever other tiles lie, with other pixels in at least one of these
    results."""
    n_same_pixels: int
    """Cells with the same pixels wherever other tiles lie."""
    n_not_followed: int
    """Cells of which nothing is known, as every crop cuts them off or ends near them, and more
    overlap moves no tile."""
    n_gained: int
    """Cells there without a match in the usual result. A cell that several variants have
    counts once."""
    n_by_normalisation: int
    """Cells of a crop without a match where the crop is normalised by itself, and cells that
    appear there. A cell that several crops show counts once."""
    n_moved_by_normalisation: int
    """Cells of a crop with a match where the crop is normalised by itself that are not kept there.
    A cell that several crops show counts once."""
    seam: Seam
    """Straight ends at tile borders, beside everywhere else."""
    cuts: tuple[StraightBorder, ...]
    """Rows and columns at which cells end straight in the usual result."""
    tile_borders: tuple[TileLine, ...]
    """Rows and columns at which a tile begins or ends in the usual result."""
    masks: NDArray[np.uint32] = field(repr=False)
    """The usual result; 0 is background."""
    dependent: tuple[int, ...]
    """Labels of the cells that have no match where other tiles lie."""
    moved: tuple[int, ...]
    """Labels of the cells that are shifted or reshaped there."""
    variants: tuple[str, ...] = field(repr=False)
    """How its tiles were laid elsewhere, in words."""

    @property
    def n_changed(self) -> int:
        """Cells that are not kept where other tiles lie."""
        return self.n_dependent + self.n_moved

    @property
    def n_changed_by_normalisation(self) -> int:
        """Cells that are not kept where a crop is normalised by itself, and those that appear."""
        return self.n_by_normalisation + self.n_moved_by_normalisation

    @derived
    def stands_out(self) -> bool:
        """Whether there are more straight ends at tile borders than elsewhere."""
        return self.seam.stands_out

    @property
    def cuts_at_tiles(self) -> tuple[StraightBorder, ...]:
        """The straight cuts where a tile begins or ends."""
        return tuple(cut for cut in self.cuts if self._is_at_tile(cut))

    @property
    def is_cut(self) -> bool:
        """Whether cells are cut where tiles begin or end."""
        return self.stands_out or bool(self.cuts_at_tiles)

    @property
    def shows_something(self) -> bool:
        """Whether a cell changes or is cut, by tiles or otherwise."""
        changed = self.n_changed + self.n_gained + self.n_changed_by_normalisation
        return bool(changed or self.cuts or self.stands_out)

    def lines(self) -> list[str]:
        """Say which of its cells change with the tiles, and where they end straight."""
        n_straight = self.seam.n_at + self.seam.n_elsewhere
        return [
            f"{self.name}: {self._changed()}",
            *([f"    {self.seam}"] if n_straight or not self.tile_borders else []),
            *(f"    {cut_text(cut)}; {self._beside_tiles(cut)}" for cut in self.cuts),
        ]

    def _changed(self) -> str:
        if not (self.n_cells or self.n_gained):
            return "no cell was found"
        if self.n_changed:
            change = verb_of(self.n_changed, "changes", "change")
            n_cells = amount(self.n_cells, "cell")
            fates = ", ".join(self._fates())
            changed = f"{grouped(self.n_changed)} of {n_cells} {change}: {fates}"
        elif self.n_cells:
            changed = f"none of {amount(self.n_cells, 'cell')} changes"
        else:
            changed = "no cell was found"
        if self.n_gained:
            appear = with_verb(self.n_gained, "more cell", "appears", "appear")
            changed += f", and {appear} {WITH_OTHER_TILES}"
        if self.n_changed_by_normalisation:
            changed += f"; {changed_by_crop([self])}"
        return changed

    def _fates(self) -> Iterator[str]:
        """Say which cells have no match, and which are shifted or reshaped."""
        if self.dependent:
            which = some(self._places(self.dependent), _MOST_NUMBERS)
            yield f"{without_match(self.n_dependent)} ({which})"
        if self.moved:
            which = some(self._places(self.moved), _MOST_NUMBERS)
            yield f"{shifted_or_reshaped(self.n_moved)} ({which})"

    def _is_at_tile(self, cut: StraightBorder) -> bool:
        return (cut.axis, cut.at) in self.tile_borders

    def _beside_tiles(self, cut: StraightBorder) -> str:
        """Say whether a cut lies where a tile begins or ends."""
        if self._is_at_tile(cut):
            return "a tile begins or ends there"
        places = [line.at for line in self.tile_borders if line.axis == cut.axis]
        nearest = min(places, key=lambda at: abs(at - cut.at), default=None)
        where = "" if nearest is None else f" (the nearest does at {cut.axis} {nearest})"
        return f"no tile begins or ends there{where}"

    def _places(self, labels: Sequence[int]) -> list[str]:
        """Say of each of some cells its number, and where it lies."""
        centres = ndimage.center_of_mass(self.masks > 0, self.masks, labels)
        shown = zip(labels, centres, strict=True)
        return [f"cell {label} at {place_text(centre)}" for label, centre in shown]


def without_match(n: int) -> str:
    """Say of so many cells that they have no match."""
    return f"{grouped(n)} {verb_of(n, 'has', 'have')} no match"


def shifted_or_reshaped(n: int) -> str:
    """Say of so many cells that they have a match, but are not kept."""
    return f"{grouped(n)} {verb_of(n, 'is', 'are')} {ObjectKind.MOVED.in_words}"


def changed_by_crop(images: Sequence[Tiled]) -> str:
    """Say that cells change with the normalisation of a crop."""
    n_unmatched = sum(image.n_by_normalisation for image in images)
    n_moved = sum(image.n_moved_by_normalisation for image in images)
    fates = [
        *([without_match(n_unmatched)] if n_unmatched else []),
        *([shifted_or_reshaped(n_moved)] if n_moved else []),
    ]
    change = with_verb(n_unmatched + n_moved, "cell", "changes", "change")
    return f"{change} if the image is cropped first ({', '.join(fates)})"


def overlap_varies(settings: Settings) -> bool:
    """Whether tiles can be laid with more overlap than these settings ask for."""
    return not settings.augment and settings.tile_overlap < OVERLAP


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
    fates = _Fates()
    gained = _DistinctCells(usual.shape)
    lost_by_normalisation = _DistinctCells(usual.shape)
    gained_by_normalisation = _DistinctCells(usual.shape)
    changed_by_normalisation = _DistinctCells(usual.shape)
    variants = []
    for crop in _crops_that_fit(image.shape):
        variants.append(
            f"without its first {crop.n_rows} rows and {crop.n_columns} columns of pixels"
        )
        pixels = np.ascontiguousarray(crop.of(image))
        cropped = segment(pixels, **scale_of_whole)
        fates.add(crop.of(usual), cropped, is_cropped=True)
        _, appeared = _lost_and_gained(crop.of(usual), cropped)
        gained.add(cropped, appeared, crop)
        normalised_by_itself = segment(pixels, **own_scale)
        lost, appeared = _lost_and_gained(cropped, normalised_by_itself)
        lost_by_normalisation.add(cropped, lost, crop)
        gained_by_normalisation.add(normalised_by_itself, appeared, crop)
        of_crop = _Fates()
        of_crop.add(cropped, normalised_by_itself, is_cropped=True)
        changed_by_normalisation.add(cropped, of_crop.unmatched | of_crop.moved, crop)
    tile_borders = tuple(tile_lines(image.shape, settings, layout))
    more_overlap = settings.model_copy(update={"tile_overlap": OVERLAP})
    moves_tiles = tuple(tile_lines(image.shape, more_overlap, layout)) != tile_borders
    if overlap_varies(settings) and moves_tiles:
        usual_overlap = share_text(settings.tile_overlap)
        variants.append(
            f"whole, with tiles that overlap by {share_text(OVERLAP)} instead of {usual_overlap}"
        )
        overlapping = segment(image, **{**scale_of_whole, "tile_overlap": OVERLAP})
        fates.add(usual, overlapping, is_cropped=False)
        gained.add(overlapping, unmatched_cells(usual, overlapping).after, _Crop(0, 0))
    n_cells = int(np.count_nonzero(np.unique(usual)))
    return Tiled(
        name=name,
        n_cells=n_cells,
        n_dependent=len(fates.unmatched),
        n_moved=len(fates.moved),
        n_other_pixels=len(fates.other_pixels),
        n_same_pixels=len(fates.same_pixels),
        n_not_followed=n_cells - len(fates.followed),
        n_gained=gained.n,
        n_by_normalisation=lost_by_normalisation.n + gained_by_normalisation.n,
        n_moved_by_normalisation=changed_by_normalisation.n - lost_by_normalisation.n,
        seam=seam(usual, tile_borders),
        cuts=straight_borders(usual),
        tile_borders=tile_borders,
        masks=usual,
        dependent=tuple(sorted(fates.unmatched)),
        moved=tuple(sorted(fates.moved)),
        variants=tuple(variants),
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


# -- cells without a match, and others that change ---------------------------------------------


class _Fates:
    """What became of the cells of one result in several others: of each cell the worst."""

    def __init__(self) -> None:
        self.followed: set[int] = set()
        self.unmatched: set[int] = set()
        self._changed: set[int] = set()
        self._reshaped: set[int] = set()

    @property
    def moved(self) -> set[int]:
        """Those that have a match everywhere, but are not kept everywhere."""
        return self._changed - self.unmatched

    @property
    def other_pixels(self) -> set[int]:
        """Those that are kept everywhere, but not with the same pixels."""
        return self._reshaped - self._changed

    @property
    def same_pixels(self) -> set[int]:
        """Those with the same pixels everywhere."""
        return self.followed - self._reshaped

    def add(self, before: np.ndarray, after: np.ndarray, *, is_cropped: bool) -> None:
        """Follow the cells into one more result, but for those that a crop cuts off."""
        kept: set[int] = set()
        same: set[int] = set()
        for change in object_changes(overlap(before, after)):
            if change.kind == ObjectKind.KEPT:
                kept.update(change.labels_a)
            if change.is_equal:
                same.update(change.labels_a)
        followed = labels_in(before) - (_labels_near_cut(before) if is_cropped else set())
        unmatched = unmatched_cells(before, after).before & followed
        self.followed |= followed
        self.unmatched |= unmatched
        self._changed |= unmatched | (followed - kept)
        self._reshaped |= followed - same


def _lost_and_gained(before: np.ndarray, cropped: np.ndarray) -> tuple[set[int], set[int]]:
    """The labels that only one of two results of a crop has, but for cells that it cuts off."""
    unmatched = unmatched_cells(before, cropped)
    return unmatched.before - _labels_near_cut(before), unmatched.after - _labels_near_cut(cropped)


def _labels_near_cut(masks: np.ndarray) -> set[int]:
    return labels_in(masks[:NEAR_CUT]) | labels_in(masks[:, :NEAR_CUT])


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
