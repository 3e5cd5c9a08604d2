"""One image segmented under any condition, and how far that is from a given result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.object_matching import matches, overlap, partners
from cellrepro.errors import CellreproError
from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION, Condition
from cellrepro.explanation.image_readings import as_read
from cellrepro.model.shared_steps import RecentResults
from cellrepro.process.cellpose_versions import is_installed
from cellrepro.spec.segmentation_settings import CHANNELS, NAMES, Settings
from samebits.digests import value_digest

if TYPE_CHECKING:
    from cellrepro.model.window import Window


class Gap(NamedTuple):
    """How far two results of one image are apart."""

    n_unmatched: int
    """Cells of both sides without a match."""
    n_differing: int
    """Pixels."""


class Trial(NamedTuple):
    """A condition that was tried for a result, and the gap that it leaves."""

    gap: Gap
    condition: Condition

    @property
    def exact(self) -> bool:
        """Whether it makes the result, pixel for pixel."""
        return self.gap.n_differing == 0


def nearest(trials: list[Trial]) -> Trial:
    """Give the first with fewest differing pixels, which tell more than cells, and sooner."""
    return min(trials, key=n_differing)


def n_differing(trial: Trial) -> int:
    """Sort key: the pixels that a trial leaves."""
    return trial.gap.n_differing


def gap_between(a: np.ndarray, b: np.ndarray) -> Gap:
    """Measure how far two results are apart, counted as `cellrepro.compare_masks` does."""
    if np.array_equal(a, b):
        return Gap(0, 0)
    table = overlap(a, b)
    n_shared = int(table.pixels.sum())
    n_agreeing = int(table.pixels[partners(table)].sum())
    n_pixels_of_cells = int(table.areas_a.sum() + table.areas_b.sum())
    return Gap(
        n_unmatched=table.n_a + table.n_b - 2 * len(matches(table, 0.5)),
        n_differing=n_pixels_of_cells - n_shared - n_agreeing,
    )


def condition_digest(condition: Mapping[str, Any]) -> str:
    """Stand for a condition, whatever the order of its names."""
    return value_digest(sorted((name, str(value)) for name, value in condition.items()))


def n_cells_in(masks: np.ndarray) -> int:
    """Count the cells of a label image."""
    return int(canonical(masks).max(initial=0))


@dataclass(frozen=True)
class Usual:
    """Values for a condition that does not name these."""

    model: str
    precision: str
    version: str | None = None
    """Version of Cellpose; None in a process with a different one."""

    def by_name(self) -> Condition:
        """The same as a condition."""
        values = {MODEL: self.model, PRECISION: self.precision}
        return values if self.version is None else {**values, VERSION: self.version}


Builder = Callable[[str, str], Any]
"""Builds a network of Cellpose, by the name of its model and by precision."""


class Trials:
    """Segments one image under any condition, and keeps recent results."""

    def __init__(
        self,
        image: np.ndarray,
        build: Builder,
        usual: Usual,
        *,
        window: Window | None = None,
        elsewhere: Callable[[Condition], np.ndarray] | None = None,
        tell: Callable[[float], None] | None = None,
    ) -> None:
        self.image = image
        self.usual = usual
        self.window = window
        self._build = build
        self._elsewhere = elsewhere
        self._tell = tell
        self._results = RecentResults()
        self._evaluators: dict[tuple[str, str], Any] = {}

    def masks(self, condition: Mapping[str, Any]) -> np.ndarray:
        """The labels (Y, X) under a condition; of a window, the cells wholly in it."""
        key = condition_digest(condition)
        labels: np.ndarray = self._results.get(key, lambda: self._segmented(condition))
        return labels

    def gap(self, condition: Mapping[str, Any], target: np.ndarray) -> Gap:
        """Measure the gap between a result and the labels under a condition."""
        return gap_between(self.masks(condition), target)

    def gap_if_possible(self, condition: Mapping[str, Any], target: np.ndarray) -> Gap | None:
        """The same; None where Cellpose refuses the condition."""
        try:
            return self.gap(condition, target)
        except CellreproError:
            return None

    def _segmented(self, condition: Mapping[str, Any]) -> np.ndarray:
        if self._elsewhere is not None and is_elsewhere(condition):
            segment = partial(self._elsewhere, dict(condition))
        else:
            segment = partial(self._segmented_here, condition, self._evaluator(condition))
        began = time.monotonic()
        labels = segment()
        if self._tell is not None:
            self._tell(time.monotonic() - began)
        return labels

    def _segmented_here(self, condition: Mapping[str, Any], evaluate: Any) -> np.ndarray:
        settings = Settings().replaced(
            **{name: value for name, value in condition.items() if name in (*NAMES, CHANNELS)}
        )
        masks = evaluate(as_read(self.image, condition), **settings.arguments()).masks
        labels: np.ndarray = masks.astype(np.uint32)
        return labels if self.window is None else self.window.cells_of(labels)

    def _evaluator(self, condition: Mapping[str, Any]) -> Any:
        from cellrepro.model.evaluator import evaluator

        model = condition.get(MODEL, self.usual.model)
        precision = condition.get(PRECISION, self.usual.precision)
        if (model, precision) not in self._evaluators:
            network = self._build(model, precision)
            self._evaluators[model, precision] = evaluator(
                network, sharing=True, window=self.window
            )
        return self._evaluators[model, precision]


def is_elsewhere(condition: Mapping[str, Any]) -> bool:
    """Whether a condition needs a different version of Cellpose, and so a process of its own."""
    return not is_installed(condition.get(VERSION))
