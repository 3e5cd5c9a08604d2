"""The section on the image on which two runs differ most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.mask_totals import ImageShares, image_weight
from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.show.pages.mask_pictures import compared_masks
from cellrepro.show.pages.parts import Figure
from cellrepro.show.report.summary import Chapter


@dataclass(frozen=True)
class WorstImage:
    """The image on which two runs differ most."""

    axis: Axis
    pair: Pair
    image: str
    compared: Sequence[Pair]
    """The pairs of runs that were looked at to find it."""
    comparison: MaskComparison
    figure: Figure


@dataclass(frozen=True)
class _Candidate:
    """An image on which two runs differ."""

    chapter: Chapter
    axis: Axis
    pair: Pair
    image: str

    def weight(self) -> tuple[bool, float]:
        """Get what sorts it among others."""
        in_a = self.pair.a.manifest.masks[self.image]
        in_b = self.pair.b.manifest.masks[self.image]
        return weight_on_page(self.pair.images[self.image], in_a.n_objects, in_b.n_objects)


def weight_on_page(image: ImageShares, n_objects_a: int, n_objects_b: int) -> tuple[bool, float]:
    """Get what sorts images on the page, the greatest first: `image_weight`.

    A run without cells differs most from every other one, and says least: it comes last.
    """
    return bool(n_objects_a and n_objects_b), image_weight(image)


def worst_image(axes: Sequence[tuple[Chapter, Axis]], file: str = "") -> WorstImage | None:
    """Find the image on which two runs differ most, in cells, then in pixels.

    None where no masks differ.
    """
    candidates = [
        _Candidate(chapter, axis, pair, image)
        for chapter, axis in axes
        for pair in axis.differing
        for image in pair.images
    ]
    if not candidates:
        return None
    worst = max(candidates, key=_Candidate.weight)
    chapter = worst.chapter
    compared = compared_masks(
        worst.image,
        chapter.store.image(chapter.images_digest, worst.image),
        worst.pair.a.masks(worst.image),
        worst.pair.b.masks(worst.image),
        f"cells-{file}{worst.image}",
    )
    return WorstImage(
        axis=worst.axis,
        pair=worst.pair,
        image=worst.image,
        compared=[pair for _, axis in axes for pair in axis.pairs],
        comparison=compared.comparison,
        figure=compared.figure,
    )
