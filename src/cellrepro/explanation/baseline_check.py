"""Masks held to a baseline, a small file that was saved before: what differs, and which limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.changed_cells import ChangedCell, cell_rows, cells_of
from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.comparison.mask_totals import totals_over
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.errors import BadInput
from cellrepro.explanation.references import MaskReaders, masks_of
from cellrepro.explanation.two_results import label_notes
from cellrepro.results import Result, Row, derived, table_lines
from cellrepro.spec import defaults
from cellrepro.store import baseline_file
from cellrepro.store.baseline_file import BaselineFile
from cellrepro.store.store import Store
from cellrepro.terminal import FileName, MasksOfImages, Share
from cellrepro.words import amount, ppm_text, share_text, some

Limits = Mapping[str, float]
"""Limits by name; masks are not held to one that is left out.

``max_ppm`` limits the differing pixels per million of any one image, ``max_changed`` the share of
the cells of both sides without a match at IoU 0.5, and ``max_lost`` the cells of the baseline
without a counterpart.
"""


@dataclass(frozen=True)
class Cell:
    """A cell of a baseline."""

    image: str
    """Name of its image."""
    label: int
    """Its number in the baseline."""
    area: int
    """Size in pixels."""


@dataclass(frozen=True)
class Hidden:
    """What limits could hide: cells that could vanish within them."""

    all_at_once: bool
    """Whether all cells together could vanish, so that masks without a cell pass."""
    cells: tuple[Cell, ...] = field(repr=False)
    """Cells of which any one could vanish, smallest first."""

    @derived
    def n(self) -> int:
        """Number of cells of which any one could vanish."""
        return len(self.cells)

    @derived
    def smallest(self) -> Cell | None:
        """The smallest of these cells; None where none could vanish."""
        return self.cells[0] if self.cells else None

    def sentence(self, within: str) -> str:
        """Say which cells could vanish unnoticed, the smallest first."""
        if self.all_at_once:
            return f"{within} every cell could vanish unnoticed: masks without any cell would pass"
        if not self.cells:
            return f"no cell could vanish unnoticed {within}"
        smallest = self.cells[0]
        described = f"of {smallest.area} pixels ({smallest.label} in {smallest.image})"
        if self.n == 1:
            return f"{within} one cell could vanish unnoticed: {described}"
        return (
            f"{within} any one of {self.n} cells could vanish unnoticed: the smallest {described}, "
            f"the largest of {self.cells[-1].area}"
        )


@dataclass(frozen=True, repr=False)
class BaselineCheck(Result):
    """How masks differ from a baseline, and whether that is within limits."""

    ok: bool
    """Whether nothing is broken: every limit is kept."""
    ppm: float
    """Differing pixels per million of the image that differs most."""
    changed: float
    """Share of the cells of both sides without a match at IoU 0.5."""
    lost: int
    """Cells of the baseline without a counterpart."""
    broken: tuple[str, ...]
    """What is beyond its limit or could not be compared, a sentence each."""
    limits: Limits
    """The limits that the masks were held to."""
    changed_cells: tuple[ChangedCell, ...] = field(repr=False)
    """Cells that changed at all, from the least overlap on."""
    hidden: Hidden
    """What the limits could hide."""
    notes: tuple[str, ...]
    """How masks were read, and what was done to their numbers, with the image."""

    @derived
    def cells(self) -> list[dict[str, object]]:
        """For each cell that changed, `ObjectChange` with its ``image``."""
        return [cell.change.of_image(cell.image) for cell in self.changed_cells]

    @property
    def differs(self) -> bool:
        """Whether a limit is broken."""
        return not self.ok

    def sentence(self) -> str:
        """Say whether the limits are kept, how far the masks are apart, and what is broken."""
        return "; ".join([self._head(), *self.broken])

    def rows(self) -> list[Row]:
        """Give each cell that changed."""
        return cell_rows(self.changed_cells, a="baseline", b="masks")

    def lines(self) -> list[str]:
        """Say what breaks the limits, and which cells could vanish within them."""
        lines = [self._head(), *(f"  {sentence}" for sentence in self.broken)]
        if self.broken:
            lines += table_lines(self.rows(), indent=4)
        within = f"within {limits_text(self.limits)}" if self.limits else "without limits"
        lines.append(f"  {self.hidden.sentence(within)}")
        lines += [f"  note: {note}" for note in self.notes]
        return lines

    def _head(self) -> str:
        state = "ok" if self.ok else "broken"
        changed = f"{share_text(self.changed)} of the cells changed"
        return f"{state}: {ppm_text(self.ppm)}, {changed}, {self.lost} lost"


def limits_text(limits: Limits) -> str:
    """Name limits with their values, as options are written."""
    return ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in limits.items())


def check_baseline(
    file: FileName,
    masks: MasksOfImages,
    *,
    max_ppm: float | None = None,
    max_changed: Share | None = None,
    max_lost: int | None = None,
    store: FileName = defaults.STORE,
) -> BaselineCheck:
    """Hold masks to a baseline.

    Parameters
    ----------
    file : str or Path
        The baseline.
    masks : str, Path, ndarray or mapping of str to ndarray
        A mask file, a folder, a run, or label images in memory, (Y, X) or (Z, Y, X), by image. One
        image is held to the only one of a baseline, whatever it is called.
    max_ppm : float, optional
        Differing pixels per million of any one image, 0 to 1 000 000.
    max_changed : float or str, optional
        Share of the cells of both sides without a match at IoU 0.5, 0 to 1 or as ``"5 %"``.
    max_lost : int, optional
        Cells of the baseline without a counterpart. Without any of the three limits those of the
        baseline count; if one is given, the others are not held to.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    BaselineCheck
        Whether every limit is kept, and what differs in each image.

    Raises
    ------
    BadInput
        If a limit is no number of its range, or no image of the baseline can be compared.

    Examples
    --------
    Fail if a cell of the baseline is lost

    ``cellrepro baseline check nuclei.baseline new_masks --max-lost 0``
    """
    baseline = baseline_file.read(Path(file))
    limits = _limits_from(max_ppm, max_changed, max_lost) or baseline.record.get("limits", {})
    _refuse_out_of_range(limits)
    expected_names = list(baseline.record["images"])
    actual = _readers(masks, Store(store))
    if len(actual) == len(expected_names) == 1:  # whatever the file is called
        actual = dict(zip(expected_names, actual.values(), strict=True))
    missing = [name for name in expected_names if name not in actual]
    if len(missing) == len(expected_names):
        raise BadInput(
            f"{masks} has masks of {some([*actual])}, the baseline of {some(expected_names)}"
        )
    comparison = _compare_with_baseline(baseline, actual)
    if not comparison.results:
        raise BadInput("; ".join(comparison.problems))
    broken = [f"no masks of {some(missing)}"] if missing else []
    added = [name for name in actual if name not in expected_names]
    if added:
        broken.append(
            f"there are masks of {some(added)}, which the baseline does not hold: compare the "
            "images of the baseline alone, or save a new one"
        )
    broken += comparison.problems
    return _judged(comparison, broken, limits)


def _limits_from(
    max_ppm: float | None, max_changed: float | str | None, max_lost: int | None
) -> Limits:
    share = _share(max_changed) if isinstance(max_changed, str) else max_changed
    limits = {"max_ppm": max_ppm, "max_changed": share, "max_lost": max_lost}
    return {name: value for name, value in limits.items() if value is not None}


def _share(text: str) -> float:
    """Read a share: 0.05, 5 % or 5%."""
    number = text.strip().removesuffix("%")
    try:
        return float(number) / (100 if number != text.strip() else 1)
    except ValueError as error:
        raise BadInput(f"max_changed is {text!r}; expected {_RANGES['max_changed'][1]}") from error


_RANGES: Mapping[str, tuple[float, str]] = {
    "max_ppm": (1e6, "differing pixels per million, a number from 0 to 1000000"),
    "max_changed": (1, "a share of the cells, a number from 0 to 1 or as in '5 %', which is 0.05"),
    "max_lost": (2**63, "cells, a whole number of at least 0"),
}
"""The largest value of each limit, and what to write."""


def _refuse_out_of_range(limits: Limits) -> None:
    for name, value in limits.items():
        most, expected = _RANGES[name]
        is_whole = name != "max_lost" or value == round(value)
        if not (0 <= value <= most and is_whole):
            raise BadInput(f"{name} is {value:.15g}; expected {expected}")


def _readers(
    masks: str | Path | np.ndarray | Mapping[str, np.ndarray], store: Store
) -> MaskReaders:
    if isinstance(masks, str | Path):
        return masks_of(str(masks), store)
    images = masks if isinstance(masks, Mapping) else {"masks": masks}
    return {name: partial(np.asarray, image) for name, image in images.items()}


@dataclass(frozen=True)
class _ImageOfBaseline:
    """An image of a baseline, and its comparison with the new masks."""

    n_pixels: int
    cells: tuple[Cell, ...]
    """Of the baseline."""
    result: MaskComparison | None = None
    """None where the image has no new masks, or they cannot be compared."""
    problem: str = ""
    """Why the masks cannot be compared, or do not pass though no pixel differs; else empty."""
    notes: tuple[str, ...] = ()
    """How the two were read."""


@dataclass(frozen=True)
class _BaselineComparison:
    """All images of a baseline, by name."""

    images: Mapping[str, _ImageOfBaseline]

    @property
    def results(self) -> dict[str, MaskComparison]:
        """By image, where the masks could be compared."""
        return {
            name: image.result for name, image in self.images.items() if image.result is not None
        }

    @property
    def problems(self) -> list[str]:
        """One sentence for each image with a problem."""
        return [image.problem for image in self.images.values() if image.problem]


def _compare_with_baseline(baseline: BaselineFile, actual: MaskReaders) -> _BaselineComparison:
    return _BaselineComparison(
        {
            name: _compare_image(name, baseline.masks(name), actual.get(name))
            for name in baseline.record["images"]
        }
    )


def _compare_image(
    name: str, expected: np.ndarray, read_actual: Callable[[], np.ndarray] | None
) -> _ImageOfBaseline:
    areas = np.bincount(expected.ravel())[1:].tolist()
    image = _ImageOfBaseline(
        n_pixels=expected.size,
        cells=tuple(Cell(name, label, area) for label, area in enumerate(areas, 1)),
    )
    if read_actual is None:
        return image
    try:
        actual = read_actual()
        result = compare_masks(expected, actual)
    except BadInput as error:
        return replace(image, problem=f"the masks of {name} cannot be compared: {error}")
    notes = tuple(label_notes(expected, actual, result, a="the baseline", b="the masks"))
    problem = ""
    if not result.same_numbering:
        problem = f"one number is not one cell in the baseline and in the masks of {name}"
    return replace(image, result=result, problem=problem, notes=notes)


class _Measure(NamedTuple):
    """How far masks are from a baseline, in the unit of one limit."""

    limit_name: str
    value: float
    in_words: str
    factor: float
    """From the value to the number in words."""
    unit: str
    """It follows that number."""

    def beyond(self, limit: float) -> str:
        """Say that it is beyond a limit, with as many decimals as that takes."""
        number, _, rest = self.in_words.partition(self.unit)
        value = self.value * self.factor
        rounded = number.replace(" ", "")
        shown_limit = limit * self.factor
        if not (rounded.replace(".", "").isdigit() and float(rounded) > shown_limit):
            decimals = (f"{value:.{n}f}" for n in range(16))
            number = next((text for text in decimals if float(text) > shown_limit), repr(value))
            number += " "
        return f"{number}{self.unit}{rest}, at most {limit:.15g}"


def _judged(
    comparison: _BaselineComparison, not_compared: Sequence[str], limits: Limits
) -> BaselineCheck:
    """Judge the comparison, with a sentence for every broken limit."""
    results = comparison.results
    worst = max(results, key=lambda name: results[name].ppm)
    totals = totals_over(results.values())
    ppm = results[worst].ppm
    changed = totals.n_unmatched / max(1, totals.n_objects)
    lost = totals.kinds[ObjectKind.LOST]
    measures = (
        _Measure("max_ppm", ppm, f"{ppm_text(ppm)} of the pixels of {worst}", 1, "ppm"),
        _Measure("max_changed", changed, f"{share_text(changed)} of the cells changed", 100, "%"),
        _Measure("max_lost", lost, f"{amount(lost, 'cell')} lost", 1, "cell"),
    )
    broken = list(not_compared)
    for measure in measures:
        limit = limits.get(measure.limit_name, math.inf)
        if measure.value > limit:
            broken.append(measure.beyond(limit))
    return BaselineCheck(
        ok=not broken,
        ppm=ppm,
        changed=changed,
        lost=lost,
        broken=tuple(broken),
        limits=limits,
        changed_cells=_changed_cells(results),
        hidden=Hidden(
            all_at_once=_passes_empty(comparison, limits),
            cells=_hidden_cells(comparison, limits),
        ),
        notes=tuple(
            f"{name}: {note}" for name, image in comparison.images.items() for note in image.notes
        ),
    )


def _changed_cells(results: Mapping[str, MaskComparison]) -> tuple[ChangedCell, ...]:
    """Cells that changed at all, from the least overlap and the largest cell on."""
    cells = [
        cell
        for cell in cells_of(results)
        if cell.change.kind != ObjectKind.KEPT or cell.change.iou < 1
    ]
    cells.sort(key=lambda cell: (cell.change.iou, -max(cell.change.area_a, cell.change.area_b)))
    return tuple(cells)


def _hidden_cells(comparison: _BaselineComparison, limits: Limits) -> tuple[Cell, ...]:
    """Cells of which any one could vanish within the limits, smallest first."""
    images = comparison.images.values()
    n_cells = sum(len(image.cells) for image in images)
    hidden = [
        cell
        for image in images
        for cell in image.cells
        if _passes_without(cell, image.n_pixels, n_cells, limits)
    ]
    return tuple(sorted(hidden, key=lambda cell: cell.area))


def _passes_without(cell: Cell, n_pixels: int, n_cells: int, limits: Limits) -> bool:
    """Whether masks keep the limits that lack this cell alone."""
    ppm = 1e6 * (cell.area / n_pixels)
    reached = {"max_ppm": ppm, "max_changed": 1 / (2 * n_cells - 1), "max_lost": 1}
    return all(reached[name] <= limit for name, limit in limits.items())


def _passes_empty(comparison: _BaselineComparison, limits: Limits) -> bool:
    """Whether masks without any cell keep the limits."""
    images = comparison.images.values()
    ppm = max(1e6 * (sum(cell.area for cell in image.cells) / image.n_pixels) for image in images)
    n_cells = sum(len(image.cells) for image in images)
    reached = {"max_ppm": ppm, "max_changed": 1.0, "max_lost": n_cells}
    return all(reached[name] <= limit for name, limit in limits.items())
