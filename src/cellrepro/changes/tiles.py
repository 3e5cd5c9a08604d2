"""Does the place of the tiles matter: the same image cropped and overlapped otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.asked import defaults
from cellrepro.asked.segmentation_settings import Settings
from cellrepro.errors import BadInput
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.run.inputs import read_images, segmented_part
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from cellrepro.same.matching import matches, overlap
from cellrepro.same.straight_borders import Seam, StraightBorder, seam, straight_borders

CROPS = ((37, 53), (91, 22))
"""Rows and columns that are cut off at the beginning, so that tiles lie elsewhere; pixels."""
OVERLAP = 0.4
"""Of tiles in the variant that overlaps more."""

_TILE, _PAD = 256, 16  # pixels; Cellpose pads to a multiple, at least by as many
_EDGE = 16  # pixels from a crop's own edge, where cells are cut off


@dataclass(frozen=True)
class Tiled:
    """One image, and what became of its cells when tiles lay elsewhere."""

    name: str
    n_cells: int
    n_dependent: int  # without a counterpart at IoU 0.5 in a variant of tiles, normalised alike
    n_gained: int  # cells of such variants without a counterpart in the usual result
    n_by_normalisation: int  # of either, in a crop normalised by itself beside the same crop
    seam: Seam  # straight ends at tile borders, beside everywhere else
    cuts: tuple[StraightBorder, ...]
    masks: np.ndarray = field(repr=False)  # uint32 (Y, X), as usual
    dependent: tuple[int, ...]  # labels


@dataclass(frozen=True)
class TileDependence:
    """All images together."""

    images: tuple[Tiled, ...]
    variants: tuple[str, ...]  # in words

    @property
    def vacuous(self) -> bool:
        """Whether no cell was found in any image, so that none could depend on tiles."""
        return not any(one.n_cells or one.n_gained for one in self.images)

    @property
    def cause(self) -> str:
        """``tiling`` where cells change though intensities are scaled alike; ``normalisation``
        where they change only because a crop is scaled by itself; else ``none``."""
        if any(one.n_dependent or one.n_gained for one in self.images):
            return "tiling"
        return "normalisation" if any(one.n_by_normalisation for one in self.images) else "none"


def tiles(
    data: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    model: str = defaults.MODEL,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    mode: str = defaults.MODE,
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
    model, seed, profile, mode, store
        As for `cellrepro.segment`.
    quiet : bool
        Show no progress.
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
    fixed = plan.spec.settings.normalize
    if fixed.changed:
        raise BadInput(
            f"settings.normalize has {', '.join(fixed.changed)}; tiles varies the normalisation "
            "itself: leave it out"
        )
    images = in_child(
        partial(tiled, request=plan.request),
        plan.request.setup,
        label="tiles",
        steps=1 + plan.n_images,
        quiet=quiet,
    )
    crops = [f"{y} rows and {x} columns cut off" for y, x in CROPS]
    return TileDependence(images, (*crops, f"tile_overlap {OVERLAP}"))


def tiled(child: Child, *, request: Request) -> tuple[Tiled, ...]:
    """Inside the child: every image in every variant."""
    with child.prepared() as device:
        from cellrepro.determinism.seeds import generators_kept
        from cellrepro.model.inference import evaluator
        from cellrepro.model.network import build

        dtype = child.setup.profile.dtype
        network = build(request.model, seed=request.spec.seed, device=device, dtype=dtype)
        evaluate, found = evaluator(network), []
        for image in segmented_part(read_images(request)):
            if image.stack:
                raise BadInput(f"{image.name} is a stack; tiles looks at flat images")
            with generators_kept():
                found.append(follow(evaluate, image.name, image.image, request.spec.settings))
            child.tell("done", image.name)
    return tuple(found)


def follow(evaluate: Any, name: str, image: np.ndarray, settings: Settings) -> Tiled:
    """One image in all variants; ``evaluate`` takes pixels and arguments of ``eval``."""
    given = settings.arguments() | {"normalize": {"lowhigh": _low_and_high(image)}}
    usual, *_ = evaluate(image, **given)
    dependent: set[int] = set()
    n_gained = n_by_normalisation = 0
    for y, x in _that_fit(image.shape):
        crop = np.ascontiguousarray(image[y:, x:])
        fixed, *_ = evaluate(crop, **given)
        lost, gained = _apart(usual[y:, x:], fixed)
        dependent, n_gained = dependent | lost, n_gained + len(gained)
        free, *_ = evaluate(crop, **settings.arguments())
        n_by_normalisation += sum(map(len, _apart(fixed, free)))
    if not settings.augment and settings.tile_overlap < OVERLAP:
        other, *_ = evaluate(image, **given | {"tile_overlap": OVERLAP})
        lost, gained = _apart(usual, other)
        dependent, n_gained = dependent | lost, n_gained + len(gained)
    n_cells = int(np.count_nonzero(np.unique(usual)))
    lines = list(tile_lines(image.shape, settings))
    return Tiled(
        name,
        n_cells,
        len(dependent),
        n_gained,
        n_by_normalisation,
        seam(usual, lines),
        straight_borders(usual),
        usual,
        tuple(sorted(dependent)),
    )


def _that_fit(shape: Sequence[int]) -> list[tuple[int, int]]:
    return [(y, x) for y, x in CROPS if 2 * y < shape[0] and 2 * x < shape[1]]


def _low_and_high(image: np.ndarray) -> list[list[float]]:
    """What Cellpose scales to 0 and 1 in the whole image, of each channel."""
    channels = image[..., None] if image.ndim == 2 else image
    values = (channels[..., c].astype(np.float32) for c in range(channels.shape[-1]))
    found = [np.percentile(one, (1, 99)).tolist() for one in values]
    return [[low, high if high - low > 1e-3 else low + 1] for low, high in found]


def _apart(usual: np.ndarray, other: np.ndarray) -> tuple[set[int], set[int]]:
    return _without_counterpart(usual, other), _without_counterpart(other, usual)


def _without_counterpart(usual: np.ndarray, other: np.ndarray) -> set[int]:
    """Labels of the first that no object of the second matches at IoU 0.5, away from the edge."""
    table = overlap(usual, other)
    matched = {int(table.labels_a[table.rows[i]]) for i in matches(table, 0.5)}
    rim = np.ones(usual.shape, bool)
    rim[_EDGE:, _EDGE:] = False  # only there cells were cut off
    return {int(one) for one in table.labels_a} - matched - set(np.unique(usual[rim]).tolist())


def tile_lines(shape: Sequence[int], settings: Settings) -> Iterator[tuple[str, int]]:
    """Where tiles begin and end inside an image, as Cellpose 4.2.1.1 lays them out."""
    scale = 1.0 if settings.diameter is None else 30.0 / settings.diameter
    size = settings.bsize or _TILE
    for axis, n in zip("yx", shape[:2], strict=True):
        scaled = int(n * scale)
        missing = -scaled % _PAD if scaled >= size else max(0, size - scaled - _PAD)
        before, padded = _PAD // 2 + missing // 2, scaled + missing + _PAD
        if settings.augment:
            n_tiles = max(2, math.ceil(2 * padded / size))
        else:
            more = 1 + 2 * settings.tile_overlap
            n_tiles = 1 if padded <= size else math.ceil(more * padded / size)
        starts = np.linspace(0, padded - min(size, padded), n_tiles).astype(int)
        for line in sorted({*starts.tolist(), *(starts + size).tolist()}):
            at = round((line - before) / scale)
            if 0 < at < n:
                yield axis, at
