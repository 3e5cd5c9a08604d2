"""What becomes of the cells of images when one setting is varied by itself: an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.results import Result, Row, derived
from cellrepro.spec.field_words import setting_in_words
from cellrepro.words import amount, share_text, some

IntervalOver = Literal["images", "cells"]
"""Images (bootstrap), or cells (binomial) where there are fewer than three images."""


@dataclass(frozen=True)
class Variant:
    """What one setting at one value does to the cells of all images."""

    name: str
    """The setting."""
    value: Any
    """The value that it was given."""
    changed: float
    """Share of both sides' cells without a counterpart at IoU 0.5."""
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
    def setting(self) -> str:
        """The setting and its value in words."""
        return _setting(self.name, self.value)

    def line(self, *, usual_ap50: float | None) -> str:
        """Say how many cells it changes, and what became of them."""
        changed = share_text(self.changed)
        if self.interval is not None:
            low, high = self.interval
            changed += f"; {share_text(low)} to {share_text(high)}"
        counts = {ObjectKind(kind).in_words: n for kind, n in self.kinds.items() if n}
        kinds = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        scores = ""
        if usual_ap50 is not None and self.ap50 is not None:
            scores = f"; AP@0.5 {self.ap50:.3f} (usual {usual_ap50:.3f})"
        return f"  {self.n_changed} of {self.n_cells} ({changed})  {self.setting}: {kinds}{scores}"


@dataclass(frozen=True)
class Example:
    """The image that a setting changes most."""

    name: str
    """The setting."""
    value: Any
    image: str
    pixels: np.ndarray = field(repr=False)
    """(Y, X) or (Y, X, C)."""
    usual: np.ndarray = field(repr=False)
    """Masks, uint32 (Y, X), 0 is background."""
    masks: np.ndarray = field(repr=False)
    """The same with the setting varied."""
    share: float = 0.0
    """Share of its cells that changed."""


@dataclass(frozen=True, repr=False)
class Sensitivity(Result):
    """What every setting does to the cells of some images, what changes most first."""

    model: str
    """The network that segmented."""
    base: Mapping[str, object]
    """The settings beside which each is varied, where they are not the usual ones."""
    settings: tuple[Variant, ...]
    """Each setting at each value that it was given, what changes most cells first."""
    images: int
    """Number of images."""
    objects: int
    """Cells with the settings of ``base``."""
    ap50: float | None
    """Average precision at IoU 0.5 with the settings of ``base``, mean over images with a ground
    truth."""
    network_passes: int
    """How often the network was run, over all images."""
    examples: Mapping[str, Example] = field(repr=False)
    """The image that changes most, for each setting that changes cells."""
    figures: Mapping[str, Path] = field(default_factory=dict)
    """Pictures by setting."""

    def sentence(self) -> str:
        """Say which setting changes most cells, and how many values change none."""
        over = f"{amount(len(self.settings), 'value')} on {amount(self.images, 'image')}"
        if not any(variant.n_cells for variant in self.settings):
            return f"vacuous: no cell was found with any of {over}"
        strongest = self.settings[0]
        n_without_effect = sum(not variant.n_changed for variant in self.settings)
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
            for variant in self.settings
        ]

    def lines(self) -> list[str]:
        """Say what each setting and value changes, most first; then which change no pixel."""
        cells = amount(self.objects, "cell")
        base = ", ".join(_setting(name, value) for name, value in self.base.items())
        lines = [
            f"{cells} in {amount(self.images, 'image')} with {base or 'the usual settings'}. "
            "Below, each setting by itself: the cells that have no counterpart (IoU 0.5), of the "
            "cells of both results, with the usual value and with this one; "
            f"{self._interval_kind()}; and what became of the cells, in the words of `compare`:"
        ]
        for variant in self.settings:
            if variant.changed or variant.ppm:
                lines.append(variant.line(usual_ap50=self.ap50))
        idle = [variant.setting for variant in self.settings if not variant.ppm]
        if idle:
            lines.append(f"no pixel of {cells} changes with {some(idle, len(idle))}")
        for name, path in self.figures.items():
            lines.append(f"{name}: {path}")
        return lines

    def _interval_kind(self) -> str:
        """Say what the intervals are of."""
        if any(variant.interval_over == "images" for variant in self.settings):
            return "their 95 % interval over images (bootstrap)"
        return "their 95 % interval over cells (binomial, since images are fewer than three)"


def _setting(name: str, value: object) -> str:
    return setting_in_words(f"settings.{name}", value)
