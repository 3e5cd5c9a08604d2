"""Masks held to a baseline, a small file that was saved before: what differs, and which limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from cellrepro.comparison.changed_cells import ChangedCell, cell_rows, cells_of, is_listed, rank
from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.mask_totals import changes_in_words, totals_over
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.explanation.baseline_comparison import (
    BaselineComparison,
    Hidden,
    compare_with_baseline,
)
from cellrepro.explanation.baseline_limits import (
    Limits,
    Measure,
    limits_from,
    limits_text,
    refuse_out_of_range,
)
from cellrepro.explanation.mask_files import MaskReaders
from cellrepro.explanation.references import masks_of
from cellrepro.spec import defaults
from cellrepro.store import baseline_file
from cellrepro.store.store import Store
from cellrepro.terminal import FileName, MasksOfImages, Share
from cellrepro.words import pixels_text, share_text
from samebits.errors import BadInput
from samebits.results import Result, Row, derived, table_lines
from samebits.words import grouped, joined, some


@dataclass(frozen=True, repr=False)
class BaselineCheck(Result):
    """How masks differ from a baseline, and whether that is within limits."""

    ok: bool
    """Whether nothing is broken: every limit is kept."""
    ppm: float
    """Differing pixels per million of the image that differs most."""
    image: str
    """The image that differs most."""
    n_images: int
    """Images that were compared."""
    changed: float
    """Share of the cells of both sides without a match at IoU 0.5."""
    lost: int
    """Cells that are lost: only the baseline has them."""
    broken: tuple[str, ...]
    """What is beyond its limit or could not be compared, a sentence each."""
    limits: Limits
    """The limits that the masks were held to."""
    changed_cells: tuple[ChangedCell, ...] = field(repr=False)
    """Cells that changed at all, those that tell most first."""
    hidden: Hidden
    """What the limits could hide."""
    notes: tuple[str, ...]
    """How masks were read, and what was done to their numbers, with the image."""

    @derived
    def cells(self) -> list[dict[str, object]]:
        """Each cell that changed: `ObjectChange` with its ``image``."""
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
        return self._rows_of(self.changed_cells)

    def _rows_of(self, cells: Sequence[ChangedCell]) -> list[Row]:
        n_images = len({cell.image for cell in cells})
        return cell_rows(cells, a="baseline", b="masks", n_images=n_images)

    def lines(self) -> list[str]:
        """Say what breaks the limits, and which cells could vanish within them."""
        lines = [self._head(), *(f"  {sentence}" for sentence in self.broken)]
        if self.broken:
            changed = [cell for cell in self.changed_cells if is_listed(cell.change)]
            if not changed and self.changed_cells:
                lines.append("    the cells that are kept, with an outline that differs:")
            lines += table_lines(self._rows_of(changed or self.changed_cells), indent=4)
        lines.append(f"  limits: {limits_text(self.limits)}")
        lines.append(f"  {self.hidden.sentence()}")
        lines += [f"  note: {note}" for note in self.notes]
        return lines

    def _head(self) -> str:
        """Pixels are those of one image, as their limit is; cells those of all."""
        state = "ok" if self.ok else "broken"
        pixels = f"{pixels_text(self.ppm)} differ"
        share = share_text(self.ppm / 1e6)
        if self.ppm and share.endswith("%"):  # the limit is in parts per million
            pixels = f"{grouped(self.ppm)} ppm ({share}) of the pixels differ"
        if self.n_images > 1 and self.ppm:
            pixels += f" in {self.image}, where most do"
        over = f" in {self.n_images} images" if self.n_images > 1 else ""
        unmatched = f"{share_text(self.changed)} of the cells{over} without a match"
        kinds = Counter(str(cell.change.kind) for cell in self.changed_cells)
        changes = joined(changes_in_words(kinds)) or "no cell"
        return f"{state}: {pixels}; {unmatched}; changed: {changes}"


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
        Share of the cells without a match at IoU 0.5, counted on both sides, 0 to 1 or as
        ``"5 %"``.
    max_lost : int, optional
        Lost cells, which only the baseline has. Without any of the three limits those of the
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
    limits = limits_from(max_ppm, max_changed, max_lost) or baseline.record.get("limits", {})
    refuse_out_of_range(limits)
    expected_names = list(baseline.record["images"])
    actual = _readers(masks, Store(store))
    if len(actual) == len(expected_names) == 1:  # whatever the file is called
        actual = dict(zip(expected_names, actual.values(), strict=True))
    if not actual.keys() & set(expected_names):
        raise BadInput(
            f"{masks} has masks of {some([*actual])}, the baseline of {some(expected_names)}"
        )
    comparison = compare_with_baseline(baseline, actual)
    if not comparison.results:
        raise BadInput("; ".join(comparison.problems))
    not_compared = [*_without_counterpart(expected_names, [*actual]), *comparison.problems]
    return _judged(comparison, not_compared, limits)


def _without_counterpart(expected_names: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Say which images only the baseline has masks of, and which only the new masks are of."""
    missing = [name for name in expected_names if name not in names]
    added = [name for name in names if name not in expected_names]
    if missing:
        yield f"no masks of {some(missing)}"
    if added:
        yield (
            f"there are masks of {some(added)}, which the baseline does not hold: compare the "
            "images of the baseline alone, or save a new one"
        )


def _readers(
    masks: str | Path | np.ndarray | Mapping[str, np.ndarray], store: Store
) -> MaskReaders:
    if isinstance(masks, str | Path):
        return masks_of(str(masks), store)
    images = masks if isinstance(masks, Mapping) else {"masks": masks}
    return {name: partial(np.asarray, image) for name, image in images.items()}


def _judged(
    comparison: BaselineComparison, not_compared: Sequence[str], limits: Limits
) -> BaselineCheck:
    """Judge the comparison, with a sentence for every broken limit."""
    results = comparison.results
    worst = max(results, key=lambda name: results[name].ppm)
    totals = totals_over(results.values())
    ppm = results[worst].ppm
    changed = totals.changed
    lost = totals.kinds[ObjectKind.LOST]
    measures = (
        Measure("max_ppm", ppm, grouped(ppm), f"ppm of the pixels of {worst}"),
        Measure("max_changed", changed, grouped(100 * changed), "% of the cells without a match"),
        Measure("max_lost", lost, str(lost), "cell lost" if lost == 1 else "cells lost"),
    )
    broken = list(not_compared)
    for measure in measures:
        limit = limits.get(measure.limit_name, math.inf)
        if measure.value > limit:
            broken.append(measure.beyond(limit))
    return BaselineCheck(
        ok=not broken,
        ppm=ppm,
        image=worst,
        n_images=len(results),
        changed=changed,
        lost=lost,
        broken=tuple(broken),
        limits=limits,
        changed_cells=_changed_cells(results),
        hidden=comparison.hidden(limits),
        notes=comparison.notes,
    )


def _changed_cells(results: Mapping[str, MaskComparison]) -> tuple[ChangedCell, ...]:
    """Cells that changed at all, in the order of `compare`."""
    cells = [cell for cell in cells_of(results) if not cell.change.is_equal]
    return tuple(sorted(cells, key=lambda cell: rank(cell.change)))
