"""What one setting at one value does to the cells of some images, beside the usual settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cellrepro.comparison.image_differences import ImageDifference
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.resampling import interval_of_share, many_draws
from cellrepro.comparison.within_spread import FEWEST_IMAGES
from cellrepro.spec.field_words import setting_in_words
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.words import share_span, share_text
from samebits.results import Row, derived

IntervalOver = Literal["images", "cells"]
"""Images (bootstrap), or cells (binomial) where there are fewer than three images."""

_WIDEST = 0.5  # of all shares that there can be; an interval of more tells next to nothing
_Z = 1.959963984540054  # standard deviations within which 95 % of a normal distribution lie


@dataclass(frozen=True)
class Variation:
    """One setting at one value, beside the base settings."""

    name: str
    """The setting."""
    value: Any
    """The value that it was given."""

    @property
    def setting(self) -> str:
        """The setting and its value in words."""
        return setting_in_words(f"settings.{self.name}", self.value)

    def applied_to(self, base: Settings) -> Settings:
        """Change this one of the base settings."""
        return base.replaced(**{self.name: self.value})


@dataclass(frozen=True)
class Variant(Variation):
    """What one setting at one value does to the cells of all images."""

    changed: float
    """Share of both sides' cells without a match."""
    n_changed: int
    """Number of these cells."""
    n_cells: int
    """Cells of both sides."""
    interval: tuple[float, float] | None
    """95 % interval of the share; None where there is no cell."""
    interval_over: IntervalOver
    """``images`` (bootstrap), or ``cells`` (binomial) where there are fewer than three images."""
    kinds: Mapping[str, int]
    """What became of the cells, by the word for it."""
    n_resized: int
    """Kept cells that are more than a quarter smaller or a third larger."""
    n_objects: int
    """Cells with this value."""
    ppm: float
    """Differing pixels per million."""
    ap50: float | None
    """Average precision at IoU 0.5, mean over images with a ground truth."""
    image: str
    """The image that changes most."""

    @derived
    def kept(self) -> int:
        """Cells that were kept, as in ``kinds``."""
        return self.kinds.get("kept", 0)

    @derived
    def moved(self) -> int:
        """Cells that moved, as in ``kinds``."""
        return self.kinds.get("moved", 0)

    @derived
    def lost(self) -> int:
        """Cells that were lost, as in ``kinds``."""
        return self.kinds.get("lost", 0)

    @derived
    def gained(self) -> int:
        """Cells that were gained, as in ``kinds``."""
        return self.kinds.get("gained", 0)

    @derived
    def split(self) -> int:
        """Cells that were split, as in ``kinds``."""
        return self.kinds.get("split", 0)

    @derived
    def merged(self) -> int:
        """Cells that were merged, as in ``kinds``."""
        return self.kinds.get("merged", 0)

    @property
    def telling_interval(self) -> tuple[float, float] | None:
        """The interval; None where there is none, or one of more than half of all shares."""
        if self.interval is None or self.interval[1] - self.interval[0] > _WIDEST:
            return None
        return self.interval

    @property
    def _interval_text(self) -> str:
        if self.interval is None:
            return ""
        return share_span(*self.telling_interval) if self.telling_interval else "\N{EN DASH}"

    def row(self, *, with_interval: bool = True) -> Row:
        """Say how many cells it changes, and what became of them."""
        fates = [f"{n} {ObjectKind(kind).in_words}" for kind, n in self.kinds.items() if n]
        if self.n_resized:
            kept = f"{self.kept} {ObjectKind.KEPT.in_words}"
            with_size = f"{kept} ({self.n_resized} of another size)"
            fates = [with_size if fate == kept else fate for fate in fates]
        interval = {"interval": self._interval_text} if with_interval else {}
        return {
            "setting": self.setting,
            "no match": share_text(self.changed),
            **interval,
            "what became of the cells": ", ".join(fates),
            "AP@0.5": "" if self.ap50 is None else f"{self.ap50:.3f}",
        }


@dataclass(frozen=True)
class Example(Variation):
    """The image that a setting changes most."""

    image: str
    pixels: np.ndarray = field(repr=False)
    """(Y, X) or (Y, X, C)."""
    usual: np.ndarray = field(repr=False)
    """Masks, uint32 (Y, X), 0 is background."""
    masks: np.ndarray = field(repr=False)
    """The same with the setting varied."""
    share: float = 0.0
    """Share of its cells without a match."""


class VariedImage(NamedTuple):
    """One image under a variation."""

    image: str
    n_objects: int
    ap50: float | None
    """None where there is no truth."""
    difference: ImageDifference
    """From the image under the base settings."""
    n_resized: int
    """Kept cells that are more than a quarter smaller or a third larger."""


def variant_of(variation: Variation, images: Sequence[VariedImage]) -> Variant:
    """Sum up what a variation does to all images."""
    differences = [varied.difference for varied in images]
    n_changed = np.array([difference.n_unmatched for difference in differences])
    n_cells = np.array([difference.n_objects for difference in differences])
    interval = _share_interval(n_changed, n_cells)
    kinds: Counter[str] = Counter()
    for difference in differences:
        kinds.update(difference.kinds)
    n_differing = sum(difference.n_differing for difference in differences)
    n_pixels = sum(difference.n_pixels for difference in differences)
    worst = max(images, key=lambda varied: share_changed([varied.difference]))
    return Variant(
        name=variation.name,
        value=variation.value,
        changed=share_changed(differences),
        n_changed=int(n_changed.sum()),
        n_cells=int(n_cells.sum()),
        interval=interval.limits,
        interval_over=interval.over,
        kinds=kinds,
        n_resized=sum(varied.n_resized for varied in images),
        n_objects=sum(varied.n_objects for varied in images),
        ppm=1e6 * n_differing / n_pixels,
        ap50=mean_score(varied.ap50 for varied in images),
        image=worst.image,
    )


def mean_score(scores: Iterable[float | None]) -> float | None:
    """The mean over the images that have a score, which is None or NaN of others."""
    known = [score for score in scores if score is not None and not math.isnan(score)]
    return float(np.mean(known)) if known else None


def share_changed(differences: Iterable[ImageDifference]) -> float:
    """The share of cells without a match; 0 where there is no cell."""
    over_images = list(differences)
    n_changed = sum(difference.n_unmatched for difference in over_images)
    n_cells = sum(difference.n_objects for difference in over_images)
    return n_changed / max(1, n_cells)


class _Interval(NamedTuple):
    """A 95 % interval of a share."""

    limits: tuple[float, float] | None
    """None where there is no cell."""
    over: IntervalOver


def _share_interval(n_changed: ArrayLike, n_cells: ArrayLike) -> _Interval:
    """The 95 % interval of the share of cells without a match.

    From three images with cells on it is a bootstrap over images, where any of them changes; else
    Wilson's interval of a binomial share (1927), as if each cell were drawn by itself. That counts
    half of both sides' cells, since a cell and its match are one trial.
    """
    with_cells = np.asarray(n_cells, float) > 0
    changed = np.asarray(n_changed, float)[with_cells]
    cells = np.asarray(n_cells, float)[with_cells]
    if len(cells) >= FEWEST_IMAGES and changed.any():
        drawn = many_draws(len(cells), 0)
        share = float(changed.sum() / cells.sum())
        resampled = (drawn @ changed) / (drawn @ cells)
        return _Interval(interval_of_share(share, resampled, len(cells)), "images")
    n_trials = float(cells.sum()) / 2
    if not n_trials:
        return _Interval(None, "cells")
    return _Interval(_wilson(float(changed.sum() / cells.sum()), n_trials), "cells")


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a share of n trials; exact at its ends."""
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    reach = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low = max(0.0, middle - reach) if share else 0.0
    high = min(1.0, middle + reach) if share < 1 else 1.0
    return low, high
