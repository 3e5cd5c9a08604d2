"""Why a segmentation gives no cell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NoCell:
    """What each step left on the way from the network's output to masks without a cell."""

    highest_probability: float
    """That the network gives a pixel, as ``cellprob_threshold`` counts it."""
    n_found: int
    """Cells that the flows give."""
    n_not_too_large: int
    """Of these, cells that ``max_size_fraction`` leaves."""
    n_fitting: int
    """Of these, cells that ``flow_threshold`` leaves. ``min_size`` leaves none."""
    with_usual: tuple[tuple[str, int], ...]
    """Settings of which each by itself, with its usual value, would give so many cells."""
