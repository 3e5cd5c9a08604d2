"""Which cells of some images depend on where tiles lie: the answer of `tiles`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.straight_borders import Seam, StraightBorder
from cellrepro.explanation.straight_cuts import cut_lines
from cellrepro.results import Result, Row, derived
from cellrepro.words import amount

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
