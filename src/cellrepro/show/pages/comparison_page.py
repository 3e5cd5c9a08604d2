"""The page about two label images of one image: settings, picture, cells and scores."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from cellrepro.comparison.changed_cells import listed_changes, resized_cells
from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.mask_totals import image_weight, kinds_over, totals_over, verdict_over
from cellrepro.comparison.object_changes import (
    KEPT_WITHIN,
    MOST_TELLING_FIRST,
    RESIZED,
    RESIZED_MEANS,
    ObjectChange,
    ObjectKind,
)
from cellrepro.comparison.verdicts import Verdict
from cellrepro.conclusions.conclusion import Conclusion
from cellrepro.explanation.cellpose_call import note_on
from cellrepro.explanation.differing_fields import follows
from cellrepro.explanation.explanation_lines import made_again_lines
from cellrepro.explanation.label_notes import counting_notes, no_cell_note, of_images
from cellrepro.explanation.recorded_cause import IMAGE, OTHER_NUMBERS
from cellrepro.explanation.recorded_settings import tell_settings
from cellrepro.explanation.setting_meanings import recorded_in_words, setting_meaning
from cellrepro.explanation.settings_of_both import SettingOfBoth, is_missing, setting_in_words
from cellrepro.explanation.why import FILES_ALONE, MASKS_ALONE, RUNS_ALONE, Cause, Why
from cellrepro.show.explorer.page_part import ExplorerPart, explorer_part
from cellrepro.show.explorer.view import View
from cellrepro.show.figures.colours import DOTS, OTHER_OBJECT
from cellrepro.show.pages.cell_tiles import CellTile, cell_tiles
from cellrepro.show.pages.conclusion_part import conclusion_part
from cellrepro.show.pages.mask_pictures import (
    ComparedMasks,
    beside_made_again,
    compared_masks,
    place_columns,
)
from cellrepro.show.pages.page_file import PageTarget, rendered, write_page
from cellrepro.show.pages.parts import MOST_ROWS, Cell, Figure, Table, table
from cellrepro.show.tables.masks import SHOWN, score_of
from cellrepro.words import as_sentence
from samebits.words import amount, joined

if TYPE_CHECKING:
    from cellrepro.explanation.explanation import Explanation

_MOST_TILES = 12
_LEAST_GROWTH = 0.01  # of the size of a kept cell, of which the page speaks
_FIRST_ROWS = 12  # of the list of changed cells; the others come when they are asked for
_MOST_EXPLORED = 4096 * 4096  # pixels, of all planes; the explorer of more is too large for a page
_USUAL_CHANNELS = 3  # with more of them, an image may have fewer pixels
_EXPLORER_HEIGHT = 560  # CSS pixels
_WHERE_TO_RUN = (
    "in the folder to which these file names belong",
    "in the folder in which the two were compared",
)
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
    pixel_size: float | None = None
    """The side of a pixel, micrometres; None where the image's file does not say it."""
    is_chosen: bool = False
    """Whether the user named this image, of several."""
    are_runs: bool = False
    """Whether both are stored runs, not files."""
    why: Why | None = None
    """What makes the two differ; None where they do not, or nobody looked."""
    explanation: Explanation | None = None
    """What segmenting again has shown, where a network was given."""
    systematic: tuple[str, ...] = ()
    """Of which images all cells of B follow from those of A by one change, a sentence each."""
    conclusions: tuple[Conclusion, ...] = ()
    """What the groups of images say under each side, where they were named."""
    lacks_images: bool = False
    """Whether one side has images that the other lacks, and nothing else differs."""
    kicker: str = ""
    """What the page is about, above the headline; empty where it is the two results."""
    headline: str = ""
    """Said before what the two hold, where B is no result of its own."""

    @property
    def are_unrelated(self) -> bool:
        """Whether the two seem to be masks of two images."""
        cause = None if self.why is None else self.why.cause
        return len(self.by_image) == 1 and cause is not None and cause.name == IMAGE


@dataclass(frozen=True)
class SettingValue:
    """What one side has of a setting."""

    text: str
    is_recorded: bool


@dataclass(frozen=True)
class SettingRow:
    """A setting on the page."""

    name: str
    label: str
    """The name for people."""
    a: SettingValue
    b: SettingValue
    differs: bool
    """Whether both sides record it, with two values."""
    meaning: str
    """What it does; empty where it does not differ."""

    @property
    def is_alike(self) -> bool:
        """Whether both sides have the same of it."""
        return self.a == self.b


@dataclass(frozen=True)
class ScoreRow:
    """A score with its names, its value with the unit, and its meaning."""

    name: str
    """Its field in JSON."""
    label: str
    value: str
    meaning: str


@dataclass(frozen=True)
class ShownCause:
    """A cause: what is seen first, and sentences about it."""

    name: str
    """With the values of both sides, where these say all."""
    details: str
    """Empty where the name says all."""
    meaning: str
    """What the setting does; empty where its name says it, or a table below."""


@dataclass(frozen=True)
class WhyBox:
    """The box at the top of the page: why the two differ."""

    kind: Literal["found", "likely", "unknown"]
    title: str
    causes: tuple[ShownCause, ...]
    """Empty where nothing tells."""
    facts: tuple[str, ...]
    """How it is known, what else may be the cause, what remains."""
    label: str
    """What the commands do; empty where there are none."""
    put_in: str
    """What to put in place of words in capitals."""
    commands: tuple[str, ...]


def write_comparison_page(target: PageTarget, pair: ShownPair) -> None:
    """Write the page."""
    changes = listed_changes(pair.comparison)
    n_resized = len(resized_cells(changes))
    n_changed = len(changes) - n_resized
    conclusions = conclusion_part(pair.conclusions)
    headline = pair.headline if conclusions is None else conclusions.headline
    view = View(pair.image_name, [pair.a, pair.b], pair.image, pixel_size=pair.pixel_size)
    names = {setting.name: setting for setting in pair.settings}
    rows = [_setting_row(setting) for name, setting in names.items() if not follows(name, names)]
    counting = [*counting_notes(pair.comparison), *_reasons_for_no_cell(pair)]
    drawn = _drawn(pair)
    n_images = len(pair.by_image)
    said = {of_images([name], n_images) + note for name in _names_of(pair) for note in counting}
    page = rendered(
        "comparison.html.j2",
        pair=pair,
        headline=headline or _headline(pair),
        cells_headline=_headline(pair) if headline else "",
        totals=totals_over(pair.by_image.values()),
        cells_text=totals_over([pair.comparison]).cells_text(),
        counting=[as_sentence(note) for note in counting],
        remarks=[remark for remark in pair.remarks if remark not in said],
        is_chosen=pair.is_chosen,
        totals_verdict=Verdict.DIFFERENT
        if pair.lacks_images
        else verdict_over(pair.by_image.values()),
        why=_why_box(pair, rows),
        made_again=_made_again(pair),
        differing=[row for row in rows if row.differs],
        rows=rows,
        # Of folders the cause says what their files record; a forecast has none.
        tells_settings=pair.are_runs
        or bool(pair.headline)
        or len(pair.by_image) > 1
        or tell_settings(setting.name for setting in pair.settings),
        figure=drawn.figure,
        categories=drawn.categories,
        drawn_kinds=_listed_kinds(drawn.changes),
        is_resized_drawn=bool(resized_cells(drawn.changes)),
        tiles=() if pair.are_unrelated else _tiles(changes, pair),
        listed=_listed_text(n_changed, n_resized),
        n_listed=len(changes),
        dots=_legend_of_dots(drawn.changes),
        resized=RESIZED if n_resized else "",
        resized_words=RESIZED,
        resized_means=f"{RESIZED_MEANS} in B",
        moved=ObjectKind.MOVED,
        kept_within=KEPT_WITHIN,
        kept=ObjectKind.KEPT
        if pair.comparison.n_differing and pair.comparison.kinds[ObjectKind.KEPT]
        else None,
        most_growth=_most_growth(pair.comparison),
        other_object=OTHER_OBJECT,
        is_stack=pair.a.ndim == 3,
        tables_of_changes=_tables_of_changes(changes, pair),
        cells=_cells_by_number(changes[:_MOST_TILES]),
        scores=_scores(pair.comparison),
        images=_table_of_images(pair),
        part=_explorer(view, pair),
        changed_kinds=_listed_kinds(pair.comparison.objects),
        most=MOST_ROWS,
        conclusions=conclusions,
    )
    write_page(target, page)


def _names_of(pair: ShownPair) -> list[str]:
    """The name by which remarks know the shown image."""
    return [name for name, result in pair.by_image.items() if result is pair.comparison]


# -- sentences -------------------------------------------------------------------------------


_HEADLINES = {
    Verdict.IDENTICAL: "The two are identical.",
    Verdict.SAME_OBJECTS: "The two hold the same cells with different numbers.",
    Verdict.VACUOUS: "Neither of the two holds a cell.",
}
"""What the page says first, by the verdict; of all others that the cells differ."""


def _headline(pair: ShownPair) -> str:
    if pair.are_unrelated:
        return "Probably not two results of one image: check the files."
    if pair.lacks_images:
        return "One has images that the other lacks; in those of both the cells are the same."
    return headline_over([*pair.by_image.values()])


def headline_over(results: Sequence[MaskComparison]) -> str:
    """Say of the images of A and B whether they hold the same cells."""
    verdict = verdict_over(results)
    if verdict in _HEADLINES:
        return _HEADLINES[verdict]
    n_a = sum(result.n_objects_a for result in results)
    n_b = sum(result.n_objects_b for result in results)
    if not (n_a and n_b):
        return f"{'B' if n_a else 'A'} holds no cell."
    kinds = kinds_over(results)
    if any(n for kind, n in kinds.items() if kind != ObjectKind.KEPT):
        return "The two hold different cells."
    if any(result.n_differing for result in results):
        return "The two hold the same cells with different outlines."
    return "The two hold the same outlines, numbered in another way."


def _reasons_for_no_cell(pair: ShownPair) -> Iterator[str]:
    """Say beside the headline what usually makes a side without a cell, unless that was found."""
    is_found = pair.why is not None and pair.why.is_found
    sides = {"A": pair.comparison.n_objects_a, "B": pair.comparison.n_objects_b}
    empty = [side for side, n in sides.items() if not n]
    if len(empty) == 1 and not is_found:
        yield no_cell_note(empty[0])


def _listed_text(n_changed: int, n_resized: int) -> str:
    """Count the cells that a reader has to see: "5 changed cells and 1 kept in another size"."""
    changed = [amount(n_changed, "changed cell")] if n_changed or not n_resized else []
    return joined([*changed, f"{n_resized} kept in another size"] if n_resized else changed)


def _most_growth(comparison: MaskComparison) -> str:
    """Say how much larger or smaller that kept cell is whose size changes most; else empty."""
    kept = (change for change in comparison.objects if change.kind == ObjectKind.KEPT)
    most = max(kept, key=lambda change: abs(change.growth), default=None)
    return "" if most is None or abs(most.growth) < _LEAST_GROWTH else most.growth_in_words


def _setting_row(setting: SettingOfBoth) -> SettingRow:
    differs = setting.differs and setting.may_change_cells
    return SettingRow(
        name=setting.name,
        label=recorded_in_words(setting.name),
        a=_setting_value(setting.name, setting.a),
        b=_setting_value(setting.name, setting.b),
        differs=differs,
        meaning=setting_meaning(setting.name) if differs else "",
    )


def _setting_value(name: str, value: object) -> SettingValue:
    text = setting_in_words(name, value)
    return SettingValue(text, is_recorded=not is_missing(value))


# -- why -------------------------------------------------------------------------------------


def _why_box(pair: ShownPair, rows: Sequence[SettingRow]) -> WhyBox | None:
    """Make the box; None where there is nothing to say that the headline does not."""
    why = pair.why
    explanation = pair.explanation
    if why is None or (why.cause is not None and why.cause.words == OTHER_NUMBERS):
        return None
    facts = [*_why_facts(why, explanation, are_runs=pair.are_runs)]
    put_in = note_on(why.find_out)
    commands = [why.find_out] if why.find_out else []
    made_b = None if explanation is None else explanation.commands["b"]
    to_do = "To find out, type in a terminal,"
    if why.is_found and made_b is not None:
        to_do = "To make B again, type in a terminal,"
        put_in = ""
        commands = made_b.texts()
    label = f"{to_do} {_WHERE_TO_RUN[pair.are_runs]}" if commands else ""
    if why.cause is None:
        is_of_image = explanation is not None and len(pair.by_image) > 1
        of_image = f"{pair.image_name}: " if is_of_image else ""
        return WhyBox(
            kind="unknown",
            title="Why they differ is not known",
            causes=(),
            facts=(f"{of_image}{as_sentence(why.nothing_tells)}", *facts),
            label=label,
            put_in=put_in,
            commands=tuple(commands),
        )
    listed_below = {row.name for row in rows if row.differs}
    causes = [why.cause, *(why.others if why.is_found else ())]
    return WhyBox(
        kind="found" if why.is_found else "likely",
        title=_title(why),
        causes=tuple(_shown_cause(cause, listed_below) for cause in causes),
        facts=tuple(facts),
        label=label,
        put_in=put_in,
        commands=tuple(commands),
    )


def _title(why: Why) -> str:
    if not why.is_found:
        return "Likely cause"
    n_causes = 1 + len(why.others)
    return "Cause found" if n_causes == 1 else f"{n_causes} causes found"


def _shown_cause(cause: Cause, listed_below: Collection[str]) -> ShownCause:
    meaning = "" if cause.name in listed_below else as_sentence(setting_meaning(cause.name))
    if cause.words or cause.cells is not None or cause.images is not None:
        return ShownCause(cause.title, as_sentence(cause.values_text), meaning)
    return ShownCause(str(cause), "", meaning)


def _why_facts(why: Why, explanation: Explanation | None, *, are_runs: bool) -> Iterator[str]:
    """Say how the cause is known, what else may be one, and what it leaves unexplained."""
    if explanation is None and why.cause is not None and not why.is_found:
        if are_runs:
            yield RUNS_ALONE
        else:
            of_masks = why.cause.a is None and why.cause.b is None
            yield MASKS_ALONE if of_masks else FILES_ALONE
    if why.others_text:
        yield as_sentence(why.others_text)
    yield from map(as_sentence, (*why.remains, *why.evidence))
    if explanation is not None:
        yield from map(as_sentence, made_again_lines(explanation))


# -- pictures --------------------------------------------------------------------------------


def _drawn(pair: ShownPair) -> ComparedMasks:
    """Draw image, outlines and differences; no closer picture, as the tiles are close."""
    return compared_masks(
        pair.image_name,
        pair.image,
        pair.a,
        pair.b,
        "cells",
        comparison=pair.comparison,
        closer=False,
    )


def _made_again(pair: ShownPair) -> Figure | None:
    """Draw B beside what the cause makes of A; None where no cause was found."""
    if pair.why is None or not pair.why.is_found or pair.explanation is None:
        return None
    replayed = pair.explanation.replayed
    if replayed is None or replayed.made.shape != pair.b.shape:
        return None
    return beside_made_again(pair.image, pair.b, replayed.made)


def _tiles(changes: Sequence[ObjectChange], pair: ShownPair) -> tuple[CellTile, ...]:
    return cell_tiles(
        changes[:_MOST_TILES], pair.image, pair.a, pair.b, by_plane=pair.comparison.by_plane
    )


def _explorer(view: View, pair: ShownPair) -> ExplorerPart | None:
    n_channels = 1 if pair.image is None else pair.image.size / pair.a.size
    if pair.a.size * max(1, n_channels / _USUAL_CHANNELS) > _MOST_EXPLORED:
        return None
    return explorer_part(view, pair.name_a, pair.name_b, height=_EXPLORER_HEIGHT)


# -- tables ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class KindOfDot:
    """What a dot on a cell means."""

    colour: str
    """As a class of the style sheet."""
    text: str


def _listed_kinds(changes: Iterable[ObjectChange]) -> list[ObjectKind]:
    """Name what became of changed cells, as legends list it."""
    kinds = {change.kind for change in changes}
    return [kind for kind in MOST_TELLING_FIRST if kind in kinds and kind != ObjectKind.KEPT]


def _legend_of_dots(changes: Sequence[ObjectChange]) -> list[KindOfDot]:
    """Say what each colour of dots means, of those that are drawn."""
    texts: dict[str, list[str]] = {}
    for kind in _listed_kinds(changes):
        texts.setdefault(DOTS[kind], []).append(kind.in_words)
    if resized_cells(changes):
        texts.setdefault(DOTS[ObjectKind.KEPT], []).append(RESIZED)
    return [
        KindOfDot(colour.replace("_", "-"), " or ".join(words)) for colour, words in texts.items()
    ]


@dataclass(frozen=True)
class TableOfChanges:
    """Some rows of the list of changed cells."""

    summary: str
    """What is pressed to see them; empty for those that are seen at once."""
    table: Table
    cells: str
    """The numbers of their cells, as `_cells_by_number` gives them."""


def _tables_of_changes(changes: Sequence[ObjectChange], pair: ShownPair) -> list[TableOfChanges]:
    """List the cells that a reader has to see: the first ones, and the others."""
    first = changes[:_FIRST_ROWS]
    others = changes[_FIRST_ROWS:MOST_ROWS]
    parts = {
        f"The first {amount(len(first), 'cell')}" if pair.are_unrelated else "": first,
        f"The next {amount(len(others), 'cell')}": others,
    }
    return [
        TableOfChanges(summary, _table_of_changes(part), _cells_by_number(part))
        for summary, part in parts.items()
        if part
    ]


def _table_of_changes(changes: Sequence[ObjectChange]) -> Table:
    unit = "voxels" if any(len(change.position) == 3 for change in changes) else "pixels"
    rows = [
        {
            "change": f"{change.kind.sign} {change.in_words}",
            "cell in A": ", ".join(map(str, change.labels_a)) or "–",
            "cell in B": ", ".join(map(str, change.labels_b)) or "–",
            **place_columns(change),
            "shift": change.shift_text,
            "IoU": change.iou if change.labels_a and change.labels_b else None,
            f"{unit} in A": change.area_a if change.labels_a else None,
            f"{unit} in B": change.area_b if change.labels_b else None,
        }
        for change in changes
    ]
    kinds = {"shift": "number", "IoU": "iou", f"{unit} in A": "count", f"{unit} in B": "count"}
    return table(rows, kinds | dict.fromkeys(("z", "y", "x"), "{:.0f}"))


def _cells_by_number(changes: Sequence[ObjectChange]) -> str:
    """Give the numbers by which the explorer knows changed cells, as JSON."""
    cells = [{"labels_a": each.labels_a, "labels_b": each.labels_b} for each in changes]
    return json.dumps(cells, separators=(",", ":"))


def _scores(comparison: MaskComparison) -> list[ScoreRow]:
    rows = []
    unit = totals_over([comparison]).unit
    for name in _SCORES:
        score = SHOWN[name]
        rows.append(
            ScoreRow(
                name=name,
                label=score.label,
                value=_score_text(score_of(comparison, name), unit if score.unit else ""),
                meaning=score.meaning.format(a="A", b="B"),
            )
        )
    return rows


def _score_text(value: float, unit: str) -> str:
    """Write a fraction with three decimals, and what has a unit with its sign."""
    if np.isnan(value):
        return "–"
    text = f"{value:+.1f} {unit}" if unit else f"{value:.3f}"
    return text.replace("-", "\N{MINUS SIGN}")


def _table_of_images(pair: ShownPair) -> Table | None:
    """List the images that changed most first; there is no table of a single image."""
    if len(pair.by_image) < 2:
        return None
    worst_first = sorted(pair.by_image.items(), key=lambda item: -image_weight(item[1]))
    rows = [
        {
            "image": Cell(f"{name} (below)", href="#picture", value=name)
            if result is pair.comparison
            else name,
            "verdict": str(result.verdict),
            "cells in A": result.n_objects_a,
            "cells in B": result.n_objects_b,
            "cells changed": sum(result.kinds.values()) - result.kinds[ObjectKind.KEPT],
            RESIZED: len(resized_cells(result.objects)),
            "F1": score_of(result, "f1"),
            "pixels that differ": result.ppm / 1e6,
        }
        for name, result in worst_first
    ]
    kinds = {
        "verdict": "verdict",
        "cells in A": "count",
        "cells in B": "count",
        "cells changed": "count",
        RESIZED: "count",
        "F1": "{:.3f}",
        "pixels that differ": "share",
    }
    return table(rows, kinds, file="images")
