"""The page about two label images of one image: settings, picture, cells and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.object_changes import MOST_TELLING_FIRST, ObjectChange, ObjectKind
from cellrepro.comparison.systematic_change import SystematicChange
from cellrepro.comparison.verdicts import Verdict
from cellrepro.explanation.recorded_settings import NOT_OF_CELLS, tell_settings
from cellrepro.explanation.setting_meanings import difference_text, setting_meaning
from cellrepro.explanation.settings_of_both import SettingOfBoth, is_missing, setting_text
from cellrepro.show.explorer.page_part import ExplorerPart, explorer_part
from cellrepro.show.explorer.view import View
from cellrepro.show.pages.cell_tiles import CellTile, cell_tiles, changed_cells
from cellrepro.show.pages.mask_pictures import compared_masks, place_columns
from cellrepro.show.pages.page_file import PageTarget, rendered, write_page
from cellrepro.show.pages.parts import MOST_ROWS, Figure, Table, table
from cellrepro.show.tables.masks import SHOWN, score_of
from cellrepro.words import amount, joined

_MOST_TILES = 12
_MOST_NAMED = 3  # settings in the headline
_MOST_EXPLORED = 4096 * 4096  # pixels, of all planes; the explorer of more is too large for a page
_EXPLORER_HEIGHT = 560  # CSS pixels

_SCORES = (
    "ap50",
    "f1",
    "mean_matched_iou",
    "dice",
    "pq",
    "boundary_f1",
    "mean_matched_area_difference",
)
"""Keys of `SHOWN`, in the order of the page."""


@dataclass(frozen=True)
class ShownPair:
    """Two label images of one image, and what the page says of them."""

    image_name: str
    name_a: str
    """What A is called."""
    name_b: str
    a: np.ndarray
    b: np.ndarray
    image: np.ndarray | None
    """In the shape of the masks, with or without channels last."""
    comparison: MaskComparison
    settings: tuple[SettingOfBoth, ...]
    """Those that at least one side records, those that differ first."""
    remarks: tuple[str, ...]
    by_image: Mapping[str, MaskComparison]
    """The comparisons of all images, among which this is one."""
    are_runs: bool = False
    """Whether both are stored runs, not files."""
    change: SystematicChange | None = None
    """The one change of all cells, where there is one."""


@dataclass(frozen=True)
class SettingValue:
    """What one side has of a setting."""

    text: str
    is_recorded: bool


@dataclass(frozen=True)
class SettingRow:
    """A setting on the page."""

    name: str
    a: SettingValue
    b: SettingValue
    differs: bool
    """Whether both sides record it, with two values."""
    meaning: str
    """What it does; empty where it does not differ."""


@dataclass(frozen=True)
class ScoreRow:
    """A score with its name, value and meaning."""

    name: str
    value: str
    meaning: str


def write_comparison_page(target: PageTarget, pair: ShownPair) -> None:
    """Write the page."""
    changes = changed_cells(pair.comparison)
    view = View(pair.image_name, [pair.a, pair.b], pair.image)
    rows = [_setting_row(setting) for setting in pair.settings]
    page = rendered(
        "comparison.html.j2",
        pair=pair,
        headline=_headline(pair),
        differing=[row for row in rows if row.differs],
        rows=rows,
        tells_settings=pair.are_runs or tell_settings(setting.name for setting in pair.settings),
        figure=_figure(pair),
        tiles=_tiles(changes, pair),
        n_changed=len(changes),
        every_change=_table_of_changes(changes),
        scores=_scores(pair.comparison),
        images=_table_of_images(pair.by_image),
        part=_explorer(view, pair),
        kinds=MOST_TELLING_FIRST,
        changed_kinds=[
            kind
            for kind in MOST_TELLING_FIRST
            if pair.comparison.kinds[kind] and kind != ObjectKind.KEPT
        ],
        cells_text=cells_text(pair.comparison),
        most=MOST_ROWS,
    )
    write_page(target, page)


# -- sentences -------------------------------------------------------------------------------


def cells_text(comparison: MaskComparison) -> str:
    """Say how many cells both sides have, and what became of them."""
    n_cells = f"{amount(comparison.n_objects_a, 'cell')} in A, {comparison.n_objects_b} in B"
    counts = [
        f"{comparison.kinds[kind]} {kind.in_words}"
        for kind in ObjectKind
        if comparison.kinds[kind] and kind != ObjectKind.KEPT
    ]
    if not counts:
        return f"{n_cells}; every cell of one is in the other"
    return f"{n_cells}; {joined(counts)}, {comparison.kinds[ObjectKind.KEPT]} kept"


def _headline(pair: ShownPair) -> str:
    """Say which settings differ; else whether cells do."""
    differing = [
        setting for setting in pair.settings if setting.differs and setting.name not in NOT_OF_CELLS
    ]
    if differing:
        named = [
            difference_text(setting.name, setting.a, setting.b)
            for setting in differing[:_MOST_NAMED]
        ]
        n_more = len(differing) - len(named)
        more = [f"{n_more} more"] if n_more else []
        return f"Made with different settings: {'; '.join([*named, *more])}."
    sentences = {
        Verdict.IDENTICAL: "The two hold the same cells, pixel for pixel and number for number.",
        Verdict.SAME_OBJECTS: "The two hold the same cells with different numbers.",
        Verdict.VACUOUS: "Neither of the two holds a cell, so nothing was compared.",
    }
    return sentences.get(pair.comparison.verdict, "The two hold different cells.")


def _setting_row(setting: SettingOfBoth) -> SettingRow:
    differs = setting.differs and setting.may_change_cells
    return SettingRow(
        name=setting.name,
        a=_setting_value(setting.a),
        b=_setting_value(setting.b),
        differs=differs,
        meaning=setting_meaning(setting.name) if differs else "",
    )


def _setting_value(value: object) -> SettingValue:
    text = setting_text(value)
    return SettingValue(text, is_recorded=not is_missing(value))


# -- pictures --------------------------------------------------------------------------------


def _figure(pair: ShownPair) -> Figure:
    """Draw image, outlines and differences; no closer picture, as the tiles are close."""
    return compared_masks(
        pair.image_name,
        pair.image,
        pair.a,
        pair.b,
        "cells",
        comparison=pair.comparison,
        closer=False,
    ).figure


def _tiles(changes: Sequence[ObjectChange], pair: ShownPair) -> tuple[CellTile, ...]:
    return cell_tiles(changes[:_MOST_TILES], pair.image, pair.a, pair.b)


def _explorer(view: View, pair: ShownPair) -> ExplorerPart | None:
    if pair.a.size > _MOST_EXPLORED:
        return None
    return explorer_part(view, pair.name_a, pair.name_b, height=_EXPLORER_HEIGHT)


# -- tables ----------------------------------------------------------------------------------


def _table_of_changes(changes: Sequence[ObjectChange]) -> Table | None:
    if not changes:
        return None
    rows = [
        {
            "what": f"{change.kind.sign} {change.kind.in_words}",
            "cell in A": " ".join(map(str, change.labels_a)) or "–",
            "cell in B": " ".join(map(str, change.labels_b)) or "–",
            **place_columns(change),
            "IoU": change.iou if change.labels_a and change.labels_b else None,
            "pixels in A": change.area_a,
            "pixels in B": change.area_b,
        }
        for change in changes[:MOST_ROWS]
    ]
    kinds = {"IoU": "{:.2f}", "pixels in A": "count", "pixels in B": "count"}
    return table(rows, kinds | dict.fromkeys(("plane", "y", "x"), "{:.0f}"))


def _scores(comparison: MaskComparison) -> list[ScoreRow]:
    rows = []
    for name in _SCORES:
        value = score_of(comparison, name)
        text = "–" if np.isnan(value) else f"{value:.3f}".replace("-", "\N{MINUS SIGN}")
        rows.append(ScoreRow(name, text, SHOWN[name].meaning_of("A", "B")))
    return rows


def _table_of_images(by_image: Mapping[str, MaskComparison]) -> Table | None:
    """List the images that changed most first; there is no table of a single image."""
    if len(by_image) < 2:
        return None
    worst_first = sorted(by_image.items(), key=lambda item: -image_weight(item[1]))
    rows = [
        {
            "image": name,
            "verdict": str(result.verdict),
            "cells in A": result.n_objects_a,
            "cells in B": result.n_objects_b,
            "cells changed": result.changed,
            "pixels": result.ppm,
        }
        for name, result in worst_first
    ]
    kinds = {
        "verdict": "verdict",
        "cells in A": "count",
        "cells in B": "count",
        "cells changed": "share",
        "pixels": "ppm",
    }
    return table(rows, kinds, file="images")


def image_weight(comparison: MaskComparison) -> float:
    """Get a weight to sort images by: the share of cells that differ, then of pixels."""
    of_cells = comparison.n_unmatched / max(1, comparison.n_objects_a + comparison.n_objects_b)
    return of_cells + 1e-6 * comparison.n_differing / max(1, comparison.n_pixels)
