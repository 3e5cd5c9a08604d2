"""What becomes of the cells of some images when one setting is varied by itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cellrepro.asked.segmentation_settings import Settings
from cellrepro.results import Result, Row
from cellrepro.same.image_differences import ImageDifference
from cellrepro.same.within_spread import FEWEST_IMAGES, draws
from cellrepro.words import amount, share_text

_Z = 1.959963984540054  # of a normal distribution, 95 % lie within as many standard deviations

IntervalOver = Literal["images", "cells"]
"""Over what an interval was taken: images (bootstrap), or cells (binomial) of fewer than 3."""


@dataclass(frozen=True)
class Variation:
    """One setting at one value, beside the usual settings."""

    name: str
    value: Any

    def of(self, base: Settings) -> Settings:
        """Vary the usual settings."""
        return base.replaced(**{self.name: self.value})


@dataclass(frozen=True)
class Variant:
    """What a variation does to the cells over all images."""

    name: str
    """The setting."""
    value: Any
    """That it was given."""
    changed: float
    """Share of both sides' cells without a counterpart at IoU 0.5."""
    n_changed: int
    """These cells."""
    n_cells: int
    """Of both sides."""
    interval: tuple[float, float] | None
    """95 % of the share; None where there is no cell."""
    interval_over: IntervalOver
    """``images`` (bootstrap), or ``cells`` (binomial) where there are fewer than three images."""
    kinds: Mapping[str, int]
    """What became of the cells: kept, moved, lost, gained, split, merged."""
    n_objects: int
    """With this value."""
    ppm: float
    """Differing pixels per million."""
    ap50: float | None
    """Mean over images with a truth."""
    image: str
    """That changes most."""


@dataclass(frozen=True)
class Example:
    """The image that a setting changes most."""

    name: str
    value: Any
    image: str
    pixels: np.ndarray = field(repr=False)
    """(Y, X) or (Y, X, C)."""
    usual: np.ndarray = field(repr=False)
    """Masks, uint32 (Y, X), 0 is background."""
    masks: np.ndarray = field(repr=False)
    """The same with the setting varied."""
    share: float = 0.0
    """Of its cells that changed."""


@dataclass(frozen=True, repr=False)
class Sensitivity(Result):
    """What every setting does to the cells of some images, what changes most first."""

    model: str
    base: Settings
    """Beside which each is varied."""
    variants: tuple[Variant, ...]
    examples: Mapping[str, Example]
    """By setting; of those that change cells."""
    n_images: int
    n_objects: int
    """With the usual settings."""
    ap50: float | None
    """With the usual settings, mean over images with a truth."""
    n_passes: int
    """Of the network, over all images."""

    def sentence(self) -> str:
        """Say which setting changes most cells, and how many values change none."""
        over = f"{amount(len(self.variants), 'value')} on {amount(self.n_images, 'image')}"
        if not any(variant.n_cells for variant in self.variants):
            return f"vacuous: no cell was found with any of {over}"
        strongest = self.variants[0]
        n_without_effect = sum(not variant.n_changed for variant in self.variants)
        if not strongest.n_changed:
            return f"none of {over} changes a cell"
        return (
            f"of {over}, {strongest.name} {strongest.value} changes most: "
            f"{share_text(strongest.changed)} of the cells; {n_without_effect} change none"
        )

    def rows(self) -> list[Row]:
        """Give every value, those that change most cells first."""
        return [
            {
                "setting": variant.name,
                "value": variant.value,
                "cells changed": share_text(variant.changed),
                "of cells": variant.n_cells,
                "cells": variant.n_objects,
                "AP50": "" if variant.ap50 is None else f"{variant.ap50:.3f}",
                "image that changes most": variant.image,
            }
            for variant in self.variants
        ]


class Tally:
    """What was found with one set of settings, image after image."""

    def __init__(self) -> None:
        self.n_objects = 0
        self._scores: list[float] = []

    def add(self, masks: np.ndarray, score: float | None) -> None:
        """Count the cells of one image; its score is None where there is no truth."""
        self.n_objects += int(np.count_nonzero(np.unique(masks)))
        if score is not None and not math.isnan(score):
            self._scores.append(score)

    @property
    def ap50(self) -> float | None:
        """Mean over the images that have one."""
        return float(np.mean(self._scores)) if self._scores else None


class VariationTally(Tally):
    """The same with one setting varied, and how far that is from the usual result."""

    def __init__(self, variation: Variation) -> None:
        super().__init__()
        self.variation = variation
        self._differences: dict[str, ImageDifference] = {}

    def add_difference(self, image: str, difference: ImageDifference) -> None:
        """Count what differs from the usual result of an image."""
        self._differences[image] = difference

    def variant(self) -> Variant:
        """Give what the variation does over all images."""
        differences = list(self._differences.values())
        n_changed = np.array([difference.n_unmatched for difference in differences])
        n_cells = np.array([difference.n_objects for difference in differences])
        interval = share_interval(n_changed, n_cells)
        kinds: Counter[str] = Counter()
        for difference in differences:
            kinds.update(difference.kinds)
        n_differing = sum(difference.n_differing for difference in differences)
        n_pixels = sum(difference.n_pixels for difference in differences)
        return Variant(
            name=self.variation.name,
            value=self.variation.value,
            changed=share_changed(differences),
            n_changed=int(n_changed.sum()),
            n_cells=int(n_cells.sum()),
            interval=interval.limits,
            interval_over=interval.over,
            kinds=kinds,
            n_objects=self.n_objects,
            ppm=1e6 * n_differing / n_pixels,
            ap50=self.ap50,
            image=max(
                self._differences, key=lambda image: share_changed([self._differences[image]])
            ),
        )


def share_changed(differences: Iterable[ImageDifference]) -> float:
    """Give the share of cells without a counterpart over some images; 0 where there are none."""
    over_images = list(differences)
    n_changed = sum(difference.n_unmatched for difference in over_images)
    n_cells = sum(difference.n_objects for difference in over_images)
    return n_changed / max(1, n_cells)


class Interval(NamedTuple):
    """A 95 % interval of a share."""

    limits: tuple[float, float] | None
    """None where there is no cell."""
    over: IntervalOver


def share_interval(n_changed: ArrayLike, n_cells: ArrayLike) -> Interval:
    """Give the 95 % interval of the share of cells that changed.

    From three images on a percentile bootstrap over images, as in `cellrepro.same.seed_spread`;
    from fewer Wilson's for a binomial share (1927), as if each cell was drawn by itself. It counts
    half of both sides' cells, since a counterpart is two cells and one chance.
    """
    changed = np.asarray(n_changed, float)
    cells = np.asarray(n_cells, float)
    if np.count_nonzero(cells) >= FEWEST_IMAGES:
        drawn = draws(len(cells), 0)
        with np.errstate(invalid="ignore"):
            low, high = np.nanquantile((drawn @ changed) / (drawn @ cells), (0.025, 0.975))
        return Interval((float(low), float(high)), "images")
    n_chances = float(cells.sum()) / 2
    if not n_chances:
        return Interval(None, "cells")
    return Interval(_wilson(float(changed.sum() / cells.sum()), n_chances), "cells")


def _wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a share of n chances; exact at its ends."""
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    reach = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low = max(0.0, middle - reach) if share else 0.0
    high = min(1.0, middle + reach) if share < 1 else 1.0
    return low, high
