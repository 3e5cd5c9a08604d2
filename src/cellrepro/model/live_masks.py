"""Masks of one image under settings that move: a quick preview, and what ``eval`` itself gives.

The network's output is kept. `LiveMasks.preview` goes Cellpose's own way from it to masks, but for
the two slow steps: paths are followed anew where the threshold reaches (`followed_paths`), and
errors are computed cell by cell (`cell_flow_errors`). `LiveMasks.exact` calls ``eval``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.model.cell_flow_errors import CellFlowErrors
from cellrepro.model.cellpose_generation import FLOW_STEPS, NETWORK_DIAMETER
from cellrepro.model.followed_paths import FollowedPaths
from cellrepro.model.no_cell import NoCell
from cellrepro.spec.segmentation_settings import AFTER_NETWORK, Settings
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.model.evaluator import EvalOutput, Evaluator


def _nothing() -> None:
    pass


class LiveMasks:
    """One flat image, segmented under one setting after the other.

    `preview` may be called from one thread, `exact` and `why_none` from another; ``before_step`` is
    called before each slow step of `why_none`, and gives up by an exception.
    """

    def __init__(
        self,
        evaluate: Evaluator,
        image: np.ndarray,
        *,
        n_threads: int = 1,
        before_step: Callable[[], None] = _nothing,
    ) -> None:
        if image.ndim not in (2, 3) or min(image.shape[:2]) < 2:
            raise BadInput(
                f"the image has shape {image.shape}; expected one plane, (Y, X) or (Y, X, C), of "
                "2 pixels or more along each edge"
            )
        self._evaluate = evaluate
        self._image = image
        self._n_threads = n_threads
        self._before_step = before_step
        self._held: _HeldOutput | None = None
        self.pass_seconds = 0.0
        """Duration of the last segmentation with a pass of the network."""

    def exact(self, settings: Settings) -> np.ndarray:
        """Give the masks of ``eval``; where its output is not known, the network is run."""
        refuse_stack_settings(settings)
        n_passes = self._evaluate.n_passes
        started = time.perf_counter()
        output = self._evaluate(self._image, **settings.arguments())
        if self._evaluate.n_passes != n_passes:
            self.pass_seconds = time.perf_counter() - started
        if self._held is None or self._held.before_masks != settings.before_masks():
            self._held = _HeldOutput(output, settings, self._image.shape[:2])
        return output.masks

    def preview(self, settings: Settings) -> np.ndarray | None:
        """Give the masks of the network's output that is kept; None where another is needed."""
        held = self._held_for(settings)
        return None if held is None else held.masks(settings, self._n_threads)

    def why_none(self, settings: Settings) -> NoCell | None:
        """Find what left no cell; None where the network's output for that is not kept."""
        held = self._held_for(settings)
        if held is None:
            return None
        usual = Settings().by_name()
        given = settings.by_name()
        with_usual = []
        for name in sorted(AFTER_NETWORK):
            if given[name] != usual[name]:
                self._before_step()
                masks = held.masks(settings.replaced(**{name: usual[name]}), self._n_threads)
                with_usual.append((name, _n_cells(masks)))
        self._before_step()
        return held.no_cell(
            settings, self._n_threads, tuple(each for each in with_usual if each[1])
        )

    def _held_for(self, settings: Settings) -> _HeldOutput | None:
        from cellpose import dynamics

        held = self._held
        if held is None or held.before_masks != settings.before_masks():
            return None
        if not hasattr(dynamics, "get_masks_torch"):  # an older Cellpose
            return None
        return held


def refuse_stack_settings(settings: Settings) -> None:
    """Refuse what is for stacks."""
    if settings.do_3D or settings.stitch_threshold:
        raise BadInput("do_3D and stitch_threshold are for stacks, and the image is one plane")


def steps_of(settings: Settings) -> int:
    """Steps along the flows, as ``eval`` takes them (4.2.1.1)."""
    if settings.niter:
        return settings.niter
    is_resized = settings.diameter is not None and settings.resample
    rescale = NETWORK_DIAMETER / settings.diameter if is_resized and settings.diameter else 1.0
    return int(FLOW_STEPS / rescale)


class _HeldOutput:
    """The network's output for one image, and what was computed of it."""

    def __init__(self, output: EvalOutput, settings: Settings, shape: tuple[int, ...]) -> None:
        self.before_masks = settings.before_masks()
        self._shape = shape
        self._flows_shape = output.probability.shape
        self._highest_probability = float(output.probability.max())
        self._lock = threading.Lock()  # paths and errors keep what they computed
        self._paths = FollowedPaths(output.flows, output.probability)
        self._errors = CellFlowErrors(output.flows)

    def masks(self, settings: Settings, n_threads: int) -> np.ndarray:
        """Make masks as ``dynamics.resize_and_compute_masks`` does (4.2.1.1)."""
        import cv2
        from cellpose.transforms import resize_image
        from cellpose.utils import fill_holes_and_remove_small_masks

        with self._lock:
            masks = self._found(settings, settings.max_size_fraction, n_threads)
            self._remove_not_fitting(masks, settings, n_threads)
        if masks.max() < 2**16:
            masks = masks.astype(np.uint16)
        if self._flows_shape != self._shape:
            masks = resize_image(
                masks, *self._shape, no_channels=True, interpolation=cv2.INTER_NEAREST
            )
        filled: np.ndarray = fill_holes_and_remove_small_masks(masks, min_size=settings.min_size)
        return filled

    def no_cell(
        self, settings: Settings, n_threads: int, with_usual: tuple[tuple[str, int], ...]
    ) -> NoCell:
        """Count what each step leaves of settings that leave nothing."""
        with self._lock:
            found = self._found(settings, 1.0, n_threads)
            masks = self._found(settings, settings.max_size_fraction, n_threads)
            n_not_too_large = _n_cells(masks)
            self._remove_not_fitting(masks, settings, n_threads)
        return NoCell(
            highest_probability=self._highest_probability,
            n_found=_n_cells(found),
            n_not_too_large=n_not_too_large,
            n_fitting=_n_cells(masks),
            with_usual=with_usual,
        )

    def _found(self, settings: Settings, largest: float, n_threads: int) -> np.ndarray:
        """Cells that the flows give, but for those of more than a share of the image."""
        from cellpose.dynamics import get_masks_torch

        ends = self._paths.ends(
            settings.cellprob_threshold, steps_of(settings), n_threads=n_threads
        )
        if len(ends.pixels[0]) == 0:
            return np.zeros(self._flows_shape, np.uint16)
        masks: np.ndarray = get_masks_torch(
            ends.places.int(), ends.pixels, self._flows_shape, max_size_fraction=largest
        )
        return masks

    def _remove_not_fitting(self, masks: np.ndarray, settings: Settings, n_threads: int) -> None:
        """Remove, in place, cells whose shape does not fit their flows."""
        import fastremap

        if settings.flow_threshold and masks.max() > 0:
            errors = self._errors.of(masks, n_threads=n_threads)
            wrong = 1 + np.flatnonzero(errors > settings.flow_threshold)
            fastremap.mask(masks, wrong, in_place=True)
            fastremap.renumber(masks, in_place=True)


def _n_cells(masks: np.ndarray) -> int:
    return int(np.count_nonzero(np.unique(masks)))
