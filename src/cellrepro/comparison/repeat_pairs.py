"""Two stored repeats that differ along one axis only, and what adds up over many such pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.mask_totals import kinds_over, verdict_over
from cellrepro.comparison.repeat_facts import Sample
from cellrepro.comparison.spread_axes import DRAWN
from cellrepro.comparison.verdicts import Verdict

if TYPE_CHECKING:
    from cellrepro.comparison.image_differences import ImageDifference
    from cellrepro.store.manifest import Manifest
    from cellrepro.store.stored_run import Repeat

MEASURES = ("changed", "ppm", "ap", "ap50")
"""Share of cells without a match; differing pixels per million; 1 - AP, mean over IoU 0.5
to 0.95; 1 - AP at 0.5."""

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two repeats that differ along one axis only."""

    axis: str
    context: str
    """The values, in words, of all else that varies among the pairs."""
    name_a: str
    """The value of a on the axis, in words."""
    name_b: str
    a: Repeat
    b: Repeat
    units: tuple[str, str]
    """The values of a and b on the axis, as the bootstrap draws them."""
    surroundings: str = ""
    """Equal for pairs that are alike in all but the axis."""
    settings: str = ""
    """Equal for pairs that are alike in all but the axis and `DRAWN`."""
    setting: str = ""
    """The values, in words, of those settings that vary among the runs."""
    images: Mapping[str, ImageDifference] = field(default_factory=dict)
    """The differences on each image, once they were compared."""

    @property
    def contrast(self) -> tuple:
        """The same for pairs that differ from each other in draws only."""
        is_draw = self.axis in (*DRAWN, "repeats")
        return (self.settings, () if is_draw else tuple(sorted(self.units)))

    @cached_property
    def verdict(self) -> Verdict:
        """Give the verdict on the masks; images without any object do not count beside others."""
        return verdict_over(self.images.values())

    @property
    def n_images(self) -> int:
        """Images that both sides segmented."""
        return len(self.images)

    @property
    def n_pixels(self) -> int:
        """Pixels of these images together."""
        return sum(image.n_pixels for image in self.images.values())

    @property
    def n_differing(self) -> int:
        """Pixels of these images that are not of the same object on both sides."""
        return sum(image.n_differing for image in self.images.values())

    @property
    def kinds(self) -> dict[str, int]:
        """Objects kept, moved, lost, gained, split and merged over all images."""
        return kinds_over(self.images.values())

    def mean(self, measure: str) -> float:
        """Average one of `MEASURES` over all images; NaN over nothing."""
        return mean_of([self], measure, list(self.images))

    @property
    def changed(self) -> float:
        """Share of the cells of both sides without a match; NaN over none."""
        return self.mean("changed")

    @property
    def ppm(self) -> float:
        """Differing pixels per million over all images; 0 over nothing."""
        return self.mean("ppm") if self.images else 0.0

    @cached_property
    def vacuous(self) -> bool:
        """Whether it proves nothing: neither side found an object, or nothing was trained."""
        if self.verdict == Verdict.VACUOUS:
            return True
        trained = [side.weights for side in self._manifests if side.weights is not None]
        return bool(trained) and not any(weights.n_changed for weights in trained)

    @property
    def one_sided(self) -> bool:
        """Whether only one side found any object."""
        return not self.vacuous and not all(side.n_objects for side in self._manifests)

    @property
    def weights_equal(self) -> bool | None:
        """Whether both ended in the same weights; None where none were trained."""
        weights_a, weights_b = (side.weights for side in self._manifests)
        if weights_a is None or weights_b is None:
            return None
        return weights_a.digest == weights_b.digest

    @property
    def has_same_bits(self) -> bool:
        """Whether the masks, and the weights where any were trained, are equal to the last bit."""
        return self.verdict == Verdict.IDENTICAL and self.weights_equal is not False

    @property
    def differs_in_threads_alone(self) -> bool:
        """Whether the profiles set numbers of threads, and the same instruction set."""
        a, b = (Sample(side).facts["threads"] for side in (self.a, self.b))
        return a[1:] == b[1:]  # the first is their number

    @property
    def _manifests(self) -> tuple[Manifest, Manifest]:
        return self.a.manifest, self.b.manifest


# -- over many pairs -------------------------------------------------------------------------


def parts_of(pairs: Sequence[Pair], measure: str, images: Sequence[str]) -> tuple[Values, Values]:
    """Numerators and denominators of a measure, each of shape (P pairs, I images)."""
    nothing = (0.0, 0.0)
    parts = [
        [pair.images[image].part(measure) if image in pair.images else nothing for image in images]
        for pair in pairs
    ]
    fractions = np.array(parts, np.float64).reshape(len(pairs), len(images), 2)
    return fractions[..., 0], fractions[..., 1]


def images_of(pairs: Iterable[Pair]) -> list[str]:
    """Every image of some pairs, once."""
    return list(dict.fromkeys(image for pair in pairs for image in pair.images))


def units_of(pairs: Iterable[Pair]) -> list[str]:
    """The different values on the axis: of pairs of seeds, the seeds."""
    return sorted({unit for pair in pairs for unit in pair.units})


def mean_of(pairs: Sequence[Pair], measure: str, images: Sequence[str]) -> float:
    """The mean over pairs of a measure over images; NaN over nothing."""
    if not pairs or not images:
        return math.nan
    numerators, denominators = parts_of(pairs, measure, images)
    with np.errstate(invalid="ignore"):
        return float(np.mean(numerators.sum(1) / denominators.sum(1)))
