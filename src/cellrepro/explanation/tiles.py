"""Whether cells depend on where tiles lie: each image whole, cropped, and with more overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.object_matching import matches, overlap
from cellrepro.comparison.straight_borders import seam, straight_borders
from cellrepro.determinism.mode_names import Mode
from cellrepro.errors import BadInput
from cellrepro.explanation.straight_cuts import Cuts, straight_cuts
from cellrepro.explanation.tile_dependence import Tiled, TileDependence
from cellrepro.explanation.tile_lines import tile_lines
from cellrepro.model.cellpose_generation import TileLayout
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.progress import print_note
from cellrepro.run.inputs import read_images, segmented_part
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.spec import defaults
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.stated import refuse_idle
from cellrepro.store.store import Store
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import EvalSettings

CROPS = ((37, 53), (91, 22))
"""Rows and columns that are cut off at the beginning, so that tiles lie elsewhere; pixels."""
OVERLAP = 0.4
"""Of tiles in the variant that overlaps more."""

_N_VARIANTS = 2 + 2 * len(CROPS)  # whole, with more overlap; each crop on either scale
_NEAR_CUT = 16  # pixels from where a crop begins: cells there are cut off


Segmenter = Callable[..., np.ndarray]
_USUAL_LAYOUT = TileLayout()
"""Takes an image and arguments of ``CellposeModel.eval``; gives masks (Y, X)."""


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
    """Inside the child: every image in every variant."""
    followed = []
    with child.opened(request.model) as (network, _):
        from cellrepro.determinism.generator_states import generators_kept
        from cellrepro.model.inference import evaluator

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
        by_tiling = _unmatched(crop.of(usual), cropped, near_cut=_NEAR_CUT)
        lost_labels |= by_tiling.lost
        gained.add(cropped, by_tiling.gained, crop)
        normalised_by_itself = segment(pixels, **own_scale)
        by_normalisation = _unmatched(cropped, normalised_by_itself, near_cut=_NEAR_CUT)
        lost_by_normalisation.add(cropped, by_normalisation.lost, crop)
        gained_by_normalisation.add(normalised_by_itself, by_normalisation.gained, crop)
    if not settings.augment and settings.tile_overlap < OVERLAP:
        overlapping = segment(image, **{**scale_of_whole, "tile_overlap": OVERLAP})
        by_overlap = _unmatched(usual, overlapping)
        lost_labels |= by_overlap.lost
        gained.add(overlapping, by_overlap.gained, _Crop(0, 0))
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
    """What Cellpose scales to 0 and 1 in the whole image, of each channel."""
    channels = image[..., None] if image.ndim == 2 else image
    limits = []
    for channel in range(channels.shape[-1]):
        values = channels[..., channel].astype(np.float32)
        low, high = np.percentile(values, (1, 99)).tolist()
        limits.append([low, high if high - low > 1e-3 else low + 1])
    return limits


# -- cells without a counterpart -------------------------------------------------------------


class _Unmatched(NamedTuple):
    """Labels without a counterpart at IoU 0.5, of two results."""

    lost: set[int]
    """Of the first."""
    gained: set[int]
    """Of the second."""


def _unmatched(before: np.ndarray, after: np.ndarray, *, near_cut: int = 0) -> _Unmatched:
    """The cells that only one of two results has."""
    table = overlap(before, after)
    pairs = matches(table, 0.5)
    matched_before = {int(table.labels_a[table.rows[pair]]) for pair in pairs}
    matched_after = {int(table.labels_b[table.columns[pair]]) for pair in pairs}
    return _Unmatched(
        lost=_labels(before) - matched_before - _labels_near_cut(before, near_cut),
        gained=_labels(after) - matched_after - _labels_near_cut(after, near_cut),
    )


def _labels(masks: np.ndarray) -> set[int]:
    return set(np.unique(masks[masks > 0]).tolist())


def _labels_near_cut(masks: np.ndarray, n_pixels: int) -> set[int]:
    return _labels(masks[:n_pixels]) | _labels(masks[:, :n_pixels])


class _DistinctCells:
    """Counts cells of several results of one image; a cell that several of them have counts
    once."""

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
            new_labels &= _unmatched(cells, earlier).lost
        self.n += len(new_labels)
        self._results.append(cells)
