"""Does the place of the tiles matter: the same image cropped and overlapped otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from cellrepro.asked import defaults
from cellrepro.asked.segmentation_settings import Settings
from cellrepro.determinism.choices import Mode
from cellrepro.errors import BadInput
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.results import Result, Row
from cellrepro.run.inputs import read_images, segmented_part
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from cellrepro.same.matching import matches, overlap
from cellrepro.same.straight_borders import Seam, StraightBorder, seam, straight_borders
from cellrepro.words import amount

CROPS = ((37, 53), (91, 22))
"""Rows and columns that are cut off at the beginning, so that tiles lie elsewhere; pixels."""
OVERLAP = 0.4
"""Of tiles in the variant that overlaps more."""

_TILE = 256  # pixels, of Cellpose
_PAD = 16  # pixels; Cellpose pads to a multiple, at least by as many
_USUAL_DIAMETER = 30.0  # pixels, to which Cellpose scales
_EDGE = 16  # pixels from a crop's own edge, where cells are cut off

TileCause = Literal["tiling", "normalisation", "none"]


@dataclass(frozen=True)
class Tiled:
    """One image, and what became of its cells when tiles lay elsewhere."""

    name: str
    n_cells: int
    n_dependent: int
    """Without a counterpart at IoU 0.5 in a variant of tiles, normalised alike."""
    n_gained: int
    """Cells of such variants without a counterpart in the usual result."""
    n_by_normalisation: int
    """Of either, in a crop normalised by itself beside the same crop."""
    seam: Seam
    """Straight ends at tile borders, beside everywhere else."""
    cuts: tuple[StraightBorder, ...]
    masks: np.ndarray = field(repr=False)
    """uint32 (Y, X), 0 is background, as usual."""
    dependent: tuple[int, ...]
    """Labels."""


@dataclass(frozen=True, repr=False)
class TileDependence(Result):
    """What becomes of the cells of some images when tiles lie elsewhere."""

    images: tuple[Tiled, ...]
    variants: tuple[str, ...]
    """In words."""

    @property
    def vacuous(self) -> bool:
        """Whether no cell was found in any image, so that none could depend on tiles."""
        return not any(image.n_cells or image.n_gained for image in self.images)

    @property
    def cause(self) -> TileCause:
        """``tiling`` where cells change though intensities are scaled alike; ``normalisation``
        where they change only because a crop is scaled by itself; else ``none``."""
        if any(image.n_dependent or image.n_gained for image in self.images):
            return "tiling"
        return "normalisation" if any(image.n_by_normalisation for image in self.images) else "none"

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


def tiles(
    data: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    model: str = defaults.MODEL,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> TileDependence:
    """Segment images whole, cropped, and with tiles that overlap more; follow every cell.

    Parameters
    ----------
    data : str or Path
        Folder of images.
    settings : mapping, optional
        Of all variants, as for `cellrepro.segment`.
    model : str
        A name of Cellpose or of this lab, a weights file, or ``KEY/REPEAT`` of a stored run.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict"}
        How strictly PyTorch is held to equal results.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    TileDependence
        Image by image the cells that depend on where tiles lie, and the cause.

    Raises
    ------
    BadInput
        If settings change the normalisation, which is varied itself, or an image is a stack.
    """
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
    """Inside the child: every image in every variant."""
    followed = []
    with child.opened(request.model) as (network, _):
        from cellrepro.determinism.generator_states import generators_kept
        from cellrepro.model.inference import evaluator

        evaluate = evaluator(network)
        for image in segmented_part(read_images(request)):
            if image.stack:
                raise BadInput(f"{image.name} is a stack; tiles looks at flat images")
            with generators_kept():
                followed.append(follow(evaluate, image.name, image.image, request.spec.settings))
            child.tell("done", image.name)
    return tuple(followed)


# -- one image -------------------------------------------------------------------------------


class _Apart(NamedTuple):
    """Labels without a counterpart at IoU 0.5, of two results of which one is usual."""

    lost: set[int]
    """Of the usual one."""
    gained: set[int]
    """Of the other."""


def follow(evaluate: Callable[..., Any], name: str, image: np.ndarray, settings: Settings) -> Tiled:
    """Segment one image in all variants, and follow its cells.

    Parameters
    ----------
    evaluate : callable
        Takes pixels and arguments of ``CellposeModel.eval``; its first result are masks.
    name : str
        Of the image.
    image : ndarray, shape (Y, X) or (Y, X, C)
    settings : Settings
        Of all variants.
    """
    free_arguments = settings.arguments()
    fixed_arguments = {**free_arguments, "normalize": {"lowhigh": _low_and_high(image)}}
    usual, *_ = evaluate(image, **fixed_arguments)
    by_tiling: list[_Apart] = []
    n_by_normalisation = 0
    for n_rows, n_columns in _crops_that_fit(image.shape):
        crop = np.ascontiguousarray(image[n_rows:, n_columns:])
        cropped, *_ = evaluate(crop, **fixed_arguments)
        by_tiling.append(_apart(usual[n_rows:, n_columns:], cropped))
        normalised_by_itself, *_ = evaluate(crop, **free_arguments)
        lost, gained = _apart(cropped, normalised_by_itself)
        n_by_normalisation += len(lost) + len(gained)
    if not settings.augment and settings.tile_overlap < OVERLAP:
        overlapping, *_ = evaluate(image, **{**fixed_arguments, "tile_overlap": OVERLAP})
        by_tiling.append(_apart(usual, overlapping))
    dependent = {label for apart in by_tiling for label in apart.lost}
    return Tiled(
        name=name,
        n_cells=int(np.count_nonzero(np.unique(usual))),
        n_dependent=len(dependent),
        n_gained=sum(len(apart.gained) for apart in by_tiling),
        n_by_normalisation=n_by_normalisation,
        seam=seam(usual, list(tile_lines(image.shape, settings))),
        cuts=straight_borders(usual),
        masks=usual,
        dependent=tuple(sorted(dependent)),
    )


def _crops_that_fit(shape: Sequence[int]) -> list[tuple[int, int]]:
    return [
        (n_rows, n_columns)
        for n_rows, n_columns in CROPS
        if 2 * n_rows < shape[0] and 2 * n_columns < shape[1]
    ]


def _low_and_high(image: np.ndarray) -> list[list[float]]:
    """What Cellpose scales to 0 and 1 in the whole image, of each channel."""
    channels = image[..., None] if image.ndim == 2 else image
    limits = []
    for channel in range(channels.shape[-1]):
        values = channels[..., channel].astype(np.float32)
        low, high = np.percentile(values, (1, 99)).tolist()
        limits.append([low, high if high - low > 1e-3 else low + 1])
    return limits


def _apart(usual: np.ndarray, other: np.ndarray) -> _Apart:
    return _Apart(
        lost=_without_counterpart(usual, other), gained=_without_counterpart(other, usual)
    )


def _without_counterpart(masks: np.ndarray, other: np.ndarray) -> set[int]:
    """Labels of the first that no object of the second matches at IoU 0.5, away from the edge."""
    table = overlap(masks, other)
    matched = {int(table.labels_a[table.rows[index]]) for index in matches(table, 0.5)}
    near_edge = np.ones(masks.shape, bool)
    near_edge[_EDGE:, _EDGE:] = False  # only there cells were cut off
    cut_off = set(np.unique(masks[near_edge]).tolist())
    return {int(label) for label in table.labels_a} - matched - cut_off


# -- where tiles lie -------------------------------------------------------------------------


class Line(NamedTuple):
    """Where a tile begins or ends."""

    axis: str
    """``y`` or ``x``."""
    at: int
    """Pixels from the beginning of the image."""


def tile_lines(shape: Sequence[int], settings: Settings) -> Iterator[Line]:
    """Find where tiles begin and end inside an image, as Cellpose 4.2.1.1 lays them out.

    Parameters
    ----------
    shape : sequence of int
        (Y, X) or (Y, X, C) of the image.
    settings : Settings
        Of which ``diameter``, ``bsize``, ``augment`` and ``tile_overlap`` count.
    """
    scale = 1.0 if settings.diameter is None else _USUAL_DIAMETER / settings.diameter
    size = settings.bsize or _TILE
    for axis, n_pixels in zip("yx", shape[:2], strict=True):
        n_scaled = int(n_pixels * scale)
        n_missing = -n_scaled % _PAD if n_scaled >= size else max(0, size - n_scaled - _PAD)
        n_before = _PAD // 2 + n_missing // 2
        n_padded = n_scaled + n_missing + _PAD
        n_tiles = _n_tiles(n_padded, size, settings)
        starts = np.linspace(0, n_padded - min(size, n_padded), n_tiles).astype(int)
        for line in sorted({*starts.tolist(), *(starts + size).tolist()}):
            at = round((line - n_before) / scale)
            if 0 < at < n_pixels:
                yield Line(axis, at)


def _n_tiles(n_padded: int, size: int, settings: Settings) -> int:
    """How many tiles of a size cover an axis of a padded image."""
    if settings.augment:
        return max(2, math.ceil(2 * n_padded / size))
    if n_padded <= size:
        return 1
    return math.ceil((1 + 2 * settings.tile_overlap) * n_padded / size)
