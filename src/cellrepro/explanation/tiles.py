"""Cells that depend on where tiles lie: images segmented whole, cropped, and with more overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.straight_borders import Seam, StraightBorder, seam, straight_borders
from cellrepro.determinism.mode_names import Mode
from cellrepro.errors import BadInput
from cellrepro.explanation.straight_cuts import Cuts, cut_lines, straight_cuts
from cellrepro.explanation.tile_lines import tile_lines
from cellrepro.explanation.unmatched_cells import labels_in, unmatched_cells
from cellrepro.model.cellpose_generation import TileLayout
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.progress import print_note
from cellrepro.results import Result, Row, derived
from cellrepro.run.inputs import read_images, segmented_part
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.segmentation_plan import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.spec import defaults
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.stated import refuse_idle
from cellrepro.store.store import Store
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import EvalSettings
from cellrepro.words import amount

CROPS = ((37, 53), (91, 22))
"""Rows and columns, in pixels, that are cut off at the beginning, so that tiles lie elsewhere."""
OVERLAP = 0.4
"""``tile_overlap`` of the variant with more overlap."""

_N_VARIANTS = 2 + 2 * len(CROPS)  # whole, with more overlap; each crop scaled in two ways
_NEAR_CUT = 16  # pixels from the beginning of a crop, where cells are cut off
_USUAL_LAYOUT = TileLayout()

Segmenter = Callable[..., np.ndarray]
"""Takes an image and arguments of ``CellposeModel.eval``; gives masks (Y, X)."""

TileCause = Literal["tiling", "normalisation", "none"]


@dataclass(frozen=True)
class Tiled:
    """One image, and what became of its cells when tiles lay elsewhere."""

    name: str
    """The image."""
    n_cells: int
    """In the usual result."""
    n_dependent: int
    """Cells of the usual result without a counterpart at IoU 0.5 where other tiles lie, with the
    same normalisation."""
    n_gained: int
    """Cells there without a counterpart in the usual result. A cell that several variants have
    counts once."""
    n_by_normalisation: int
    """Cells of a crop without a counterpart where the crop is normalised by itself, and cells that
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

    def line(self) -> str:
        """Say how many of its cells depend on tiles, and where they end straight."""
        seam = self.seam
        return (
            f"{self.name}: {self.n_dependent} of {amount(self.n_cells, 'cell')} depend on where "
            f"tiles lie, and {self.n_gained} are gained; {self.n_by_normalisation} change where a "
            f"crop is scaled by itself; straight ends: {seam.n_at} at "
            f"{amount(seam.n_lines, 'tile border')}, {seam.n_elsewhere} at "
            f"{amount(seam.n_other_lines, 'other line')} (chance {seam.chance:.2g})"
        )


@dataclass(frozen=True, repr=False)
class TileDependence(Result):
    """What becomes of the cells of some images when tiles lie elsewhere."""

    images: tuple[Tiled, ...]
    """One for each image."""
    variants: tuple[str, ...]
    """How tiles were laid otherwise, in words."""

    @derived
    def cause(self) -> TileCause:
        """``tiling`` where cells change though intensities are scaled alike; ``normalisation``
        where they change only because a crop is scaled by itself; else ``none``."""
        if any(image.n_dependent or image.n_gained for image in self.images):
            return "tiling"
        return "normalisation" if any(image.n_by_normalisation for image in self.images) else "none"

    @derived
    def vacuous(self) -> bool:
        """Whether no cell was found in any image, so that none could depend on tiles."""
        return not any(image.n_cells or image.n_gained for image in self.images)

    @property
    def differs(self) -> bool:
        """Whether a cell depends on tiles or is cut, or there is no cell."""
        is_cut = any(image.cuts for image in self.images)
        return self.cause != "none" or is_cut or self.vacuous

    def sentence(self) -> str:
        """Say how many cells depend on where tiles lie."""
        over = amount(len(self.images), "image")
        if self.vacuous:
            return f"vacuous: no cell was found in {over}"
        n_cells = amount(sum(image.n_cells for image in self.images), "cell")
        if self.cause == "none":
            return f"none of {n_cells} in {over} depends on where tiles lie"
        if self.cause == "normalisation":
            return (
                f"none of {n_cells} in {over} depends on where tiles lie; cells of crops change "
                "since these are normalised by themselves"
            )
        n_dependent = sum(image.n_dependent for image in self.images)
        n_gained = sum(image.n_gained for image in self.images)
        return (
            f"{n_dependent} of {n_cells} in {over} depend on where tiles lie, and {n_gained} more "
            "appear where they lie elsewhere"
        )

    def rows(self) -> list[Row]:
        """Give every image."""
        return [
            {
                "image": image.name,
                "cells": image.n_cells,
                "depend on tiles": image.n_dependent,
                "gained": image.n_gained,
                "by normalisation": image.n_by_normalisation,
                "straight ends at tile borders": image.seam.n_at,
            }
            for image in self.images
        ]

    def lines(self) -> list[str]:
        """Say how tiles were laid, what each image's cells do, and the cause."""
        variants = ", ".join(self.variants)
        lines = [f"compared with the whole image: {variants}; intensities scaled alike"]
        for image in self.images:
            lines.append(image.line())
            lines += cut_lines(image.cuts)
        if self.vacuous:
            lines.append("vacuous: no cell was found in any image, so none could depend on tiles")
        lines.append(f"cause: {self.cause}")
        return lines


def tiles(
    data: FileName | None = None,
    /,
    *,
    masks: FileName | None = None,
    settings: EvalSettings | None = None,
    model: str | None = None,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> TileDependence | Cuts:
    """Say which cells depend on the position of tiles; find straight cuts in any masks.

    Images are segmented whole, cropped, and with tiles that overlap more, and every cell is
    followed.

    Parameters
    ----------
    data : str or Path, optional
        Folder of images.
    masks : str or Path, optional
        A label image instead: its straight cuts alone, and nothing is segmented.
    settings : mapping, optional
        Of all variants, as for `cellrepro.segment`.
    model : str, optional
        A name of Cellpose or of this lab, a weights file, or ``KEY/REPEAT`` of a stored run. By
        default the network that Cellpose itself takes.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    TileDependence or Cuts
        Image by image the cells that depend on where tiles lie, and the cause; or the cuts.

    Raises
    ------
    BadInput
        If settings change the normalisation, which is varied itself, or an image is a stack; if
        both or neither of images and masks are given.

    Examples
    --------
    Find straight cuts in masks that you have

    ``cellrepro tiles --masks cells_masks.tif``

    Which cells depend on where the tiles lie?

    ``cellrepro tiles my_images``
    """
    if masks is not None and data is None:
        of_a_network = ("model", "seed", "profile", "mode", "settings", "store")
        refuse_idle(of_a_network, "beside --masks, where nothing is segmented")
        return straight_cuts(masks)
    if data is None or masks is not None:
        raise BadInput("give a folder of images, or --masks with a label image")
    plan = plan_segmentation(
        SegmentationOptions(
            data=data,
            settings=settings,
            model=model,
            seed=seed,
            profile=profile,
            mode=mode,
            store=store,
        )
    )
    changed = plan.spec.settings.normalize.changed
    if changed:
        raise BadInput(
            f"settings.normalize has {', '.join(changed)}; tiles varies the normalisation "
            "itself: leave it out"
        )
    if not quiet:
        print_note(segmenting_announced(plan, Store(store), n_each=_N_VARIANTS))
    images = in_child(
        partial(tiled, request=plan.request),
        plan.request.setup,
        label="tiles",
        steps=1 + plan.n_images,
        quiet=quiet,
    )
    crops = [f"{rows} rows and {columns} columns cut off" for rows, columns in CROPS]
    return TileDependence(images, (*crops, f"tile_overlap {OVERLAP}"))


def tiled(child: Child, *, request: Request) -> tuple[Tiled, ...]:
    """Runs in a child process: follow the cells of every image."""
    followed = []
    with child.opened(request.model) as (network, _):
        from cellrepro.determinism.generator_states import generators_kept
        from cellrepro.model.evaluator import evaluator

        evaluate = evaluator(network)
        settings = request.spec.settings

        def segment(image: np.ndarray, **arguments: object) -> np.ndarray:
            """The masks alone; the arguments are those of ``CellposeModel.eval``."""
            return evaluate(image, **arguments).masks  # type: ignore[arg-type]

        for image in segmented_part(read_images(request)):
            if image.stack:
                raise BadInput(f"{image.name} is a stack; tiles looks at flat images")
            with generators_kept():
                followed.append(
                    follow(
                        segment,
                        image.name,
                        image.image,
                        settings,
                        layout=evaluate.tile_layout,
                        scaled_channels=evaluate.channels_of(image.image, settings.arguments()),
                    )
                )
            child.tell("done", image.name)
    return tuple(followed)


# -- one image -------------------------------------------------------------------------------


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


# -- cells without a counterpart -------------------------------------------------------------


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
