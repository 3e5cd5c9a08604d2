"""The runs as a table: a row for each repeat, which a reader sorts, filters, and folds to two.

The template prints it whole, so that it can be read without JavaScript; ``run_table.js`` does the
rest. What the browser needs for two rows beside each other is `RunTable.data`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cellrepro.command_lines import quoted
from cellrepro.comparison.object_changes import MOST_TELLING_FIRST
from cellrepro.comparison.place_fields import BARE
from cellrepro.explanation.compare_repeats import environment_by_name, not_applicable, spec_by_name
from cellrepro.explanation.setting_meanings import field_in_words
from cellrepro.explanation.settings_of_both import setting_in_words
from cellrepro.nested_values import flattened
from cellrepro.show.explorer.page_part import ExplorerPart, json_in_a_script
from cellrepro.show.pages.page_file import rendered
from cellrepro.show.report.run_pairs import RunPairs, run_pairs
from cellrepro.show.report.section_equality import Equality, equalities_of
from cellrepro.show.report.summary import Chapter, JudgedSpec, chapters_of, short_name
from cellrepro.spec.lab_command import store_options
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat, Run
from samebits.errors import BadInput
from samebits.words import amount

MOST_LISTED = 1000
"""Rows; a browser sorts as many at once, and their page has a megabyte."""

_MOST_WHOLE = 30
"""Rows of a table that is shown whole; of a longer one there is a window."""

_MOST_BYTES_IN_NOTEBOOK = 2**19  # of packed masks and images: notebooks are committed
TEMPLATES = Path(__file__).with_name("templates")
"""Of the report and of its parts."""
_SCRIPT = Path(__file__).with_name("run_table.js")

Links = Callable[[Repeat], Mapping[str, str]]
"""Gives the addresses of what is kept of a repeat, by a word for each."""


@dataclass(frozen=True)
class RunCell:
    """A value that was asked for."""

    text: str
    number: float | None = None
    """By which it is sorted; None for words."""


@dataclass(frozen=True)
class RunRow:
    """A row: one repeat."""

    name: str
    """``KEY/MACHINE/REPEAT``."""
    label: str
    """What tells it from the others, in words."""
    data: str
    """The images, and what was done."""
    asked: Sequence[RunCell]
    """Its values in `RunTable.asked`."""
    verdict: str
    """Over the repeats of its spec on its machine."""
    detail: str
    """What of them differs, or that there is only one; else empty."""
    result: str
    """Its letter and number, as in the section on equal runs."""
    colour: str
    """The class of that letter in the style sheet; empty where it stands alone."""
    n_cells: int
    ap50: float | None
    seconds: float
    started: str
    """Date and time, UTC."""
    links: Mapping[str, str]

    @property
    def short_name(self) -> str:
        """The beginning of the key, and the repeat."""
        return short_name(self.name)

    @property
    def anchor(self) -> str:
        """The name by which the page links to this row."""
        return f"run-{self.name.replace('/', '-')}"


@dataclass(frozen=True)
class RunTable:
    """All runs of some chapters, and which two of them can be looked at in the explorer."""

    asked: Sequence[str]
    """The fields of the spec, and of where it was carried out, in which runs differ."""
    rows: Sequence[RunRow]
    n_runs: int
    """With those that are not listed."""
    n_starting: int
    """Those of them from which others were trained."""
    has_several_data_sets: bool
    has_links: bool
    data: str
    """JSON, for ``run_table.js``."""
    script: str
    explorer: ExplorerPart | None
    """None where no two runs differ on any image."""
    explorer_note: str
    """What the explorer leaves out."""

    @property
    def numeric(self) -> set[int]:
        """Which of ``asked`` hold a number in some row."""
        cells = (each for row in self.rows for each in enumerate(row.asked))
        return {column for column, cell in cells if cell.number is not None}

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in view, without a window to scroll in."""
        return len(self.rows) <= _MOST_WHOLE


def run_table(
    chapters: Sequence[Chapter],
    equalities: Sequence[Equality],
    pairs: RunPairs,
    *,
    links: Links = lambda repeat: {},
    first: Sequence[str] = (),
    most: int = MOST_LISTED,
) -> RunTable:
    """Make the table of all repeats in some chapters.

    Of more than ``most`` the ``first`` are listed, by name, then the first of every result.
    """
    every = list(_every_repeat(chapters, equalities))
    asked = _asked(chapters)
    listed = _listed(every, first, most)
    rows = [_row(each, asked, links) for each in listed]
    return RunTable(
        asked=[name.removeprefix("settings.").replace("_", " ") for name in asked],
        rows=rows,
        n_runs=len(every),
        n_starting=sum(chapter.n_starting for chapter in chapters),
        has_several_data_sets=len(chapters) > 1,
        has_links=any(row.links for row in rows),
        data=json_in_a_script(
            {
                "kinds": [kind.in_words for kind in MOST_TELLING_FIRST],
                "spec": _facts([_spec(each.repeat) for each in listed]),
                "environment": _facts(
                    [environment_by_name(each.repeat.manifest) for each in listed]
                ),
                "bits": [_bits(each.repeat) for each in listed],
                "command_name": [_command_name(each) for each in listed],
                "command_options": "".join(f" {word}" for word in _store_words(chapters)),
                "endings": pairs.endings,
                "result": [pairs.results.get(each.repeat.name) for each in listed],
                "outlines": pairs.outlines,
                "chapter": pairs.chapters,
                "images": pairs.image_names,
                "side": pairs.sides,
                "pairs": [asdict(pair) for pair in pairs.pairs],
            }
        ),
        script=_SCRIPT.read_text(encoding="utf-8"),
        explorer=pairs.explorer,
        explorer_note=pairs.note,
    )


# -- in a notebook -------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class RunTableOutput:
    """The table in a notebook; what is saved with it works without a kernel."""

    table: RunTable

    def __repr__(self) -> str:
        """Give the number of runs."""
        return f"<table of {amount(self.table.n_runs, 'repeat')}>"

    def _repr_html_(self) -> str:
        return rendered("run_table_output.html.j2", TEMPLATES, table=self.table)


def table_of_runs(store: Store, runs: Sequence[Run]) -> RunTableOutput:
    """Show runs as the report does: sorted, filtered, and two of them with all that differs.

    Parameters
    ----------
    store : Store
        Which holds their images.
    runs : sequence of Run
        Those of it that are listed.

    Returns
    -------
    RunTableOutput
        Which shows itself in a notebook, and stays when it is saved. Where it is not trusted it is
        the table alone.

    Raises
    ------
    BadInput
        If there is no run, or a file of one cannot be read.
    """
    if not runs:
        raise BadInput(
            f"there are no runs of {store.root} to list; give some, as `cellrepro.Store.runs` does"
        )
    chapters = chapters_of(store, runs)
    equalities = equalities_of(chapters)
    pairs = run_pairs(chapters, equalities, most_bytes=_MOST_BYTES_IN_NOTEBOOK)
    return RunTableOutput(run_table(chapters, equalities, pairs))


# -- rows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Listed:
    """A repeat with what its row is made of."""

    chapter: Chapter
    equality: Equality
    judged: JudgedSpec
    repeat: Repeat


def _every_repeat(chapters: Sequence[Chapter], equalities: Sequence[Equality]) -> Iterator[_Listed]:
    for chapter, equality in zip(chapters, equalities, strict=True):
        for judged in chapter.judged:
            for repeat in judged.repeats:
                yield _Listed(chapter, equality, judged, repeat)


def _asked(chapters: Sequence[Chapter]) -> list[str]:
    """The fields in which runs of one chapter differ; those of several have each a name."""
    varying = dict.fromkeys(name for chapter in chapters for name in chapter.names.varying)
    return [name for name in varying if name not in ("task", "data")]


def _listed(every: Sequence[_Listed], first: Sequence[str], most: int) -> list[_Listed]:
    """Choose the rows, in their order: what is linked to, starts, the first of each result."""
    if len(every) <= most:
        return list(every)
    needed = [
        number
        for number, each in enumerate(every)
        if each.repeat.name in first or each.chapter.names.is_start(each.judged.place)
    ]
    first_of_result: dict[tuple[int, str], int] = {}
    for number, each in enumerate(every):
        result = each.equality.of(each.repeat)
        first_of_result.setdefault((id(each.chapter), result), number)
    by_need = dict.fromkeys((*needed, *first_of_result.values(), *range(len(every))))
    chosen = sorted(list(by_need)[: max(most, len(needed))])
    return [every[number] for number in chosen]


def _row(each: _Listed, asked: Sequence[str], links: Links) -> RunRow:
    repeat = each.repeat
    manifest = repeat.manifest
    values = each.chapter.names.values[each.judged.place]
    return RunRow(
        name=repeat.name,
        label=each.chapter.names.of_repeat(repeat),
        data=each.chapter.title,
        asked=[_asked_cell(name, values[name]) for name in asked],
        verdict=each.judged.verdict,
        detail=each.judged.detail or ("one repeat" if len(each.judged.repeats) == 1 else ""),
        result=each.equality.of(repeat),
        colour=each.equality.colour(repeat),
        n_cells=manifest.n_objects,
        ap50=manifest.ap50,
        seconds=sum(manifest.seconds.values()),
        started=manifest.started[:16].replace("T", " "),
        links=links(repeat),
    )


def _asked_cell(name: str, value: object) -> RunCell:
    if value == "":
        return RunCell("–")
    if name in BARE or isinstance(value, bool) or not isinstance(value, int | float):
        return RunCell(setting_in_words(name, value))
    return RunCell(setting_in_words(name, value), float(value))


def _store_words(chapters: Sequence[Chapter]) -> list[str]:
    """The words of a command that name the store, if it needs them."""
    options = store_options(chapters[0].store_in_commands) if chapters else []
    return [quoted(word) for word in options]


def _command_name(each: _Listed) -> str:
    """The shortest name under which a command finds a repeat."""
    machines = [one for one in each.chapter.judged if one.spec.key == each.judged.spec.key]
    return short_name(each.repeat.name) if len(machines) == 1 else each.repeat.name


def _bits(repeat: Repeat) -> tuple[str, str]:
    """Digests of masks and weights, to tell whether those of two runs are equal in every bit."""
    weights = repeat.manifest.weights
    return repeat.manifest.masks_digest[:16], weights.digest[:16] if weights else ""


# -- what two rows differ in ---------------------------------------------------------------


def _facts(of_rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The fields in which any two rows differ; rows that are equal in all share an entry.

    A field that a row does not have counts as None, as in `compare`.
    """
    names = dict.fromkeys(name for fields in of_rows for name in fields)
    texts = {name: _texts(name, [fields.get(name) for fields in of_rows]) for name in names}
    varying = [name for name in names if len({*texts[name]}) > 1]
    numbers: dict[tuple[str | None, ...], int] = {}
    of_row = [
        numbers.setdefault(values, len(numbers))
        for values in (
            zip(*(texts[name] for name in varying), strict=True) if varying else [()] * len(of_rows)
        )
    ]
    in_words = [field_in_words(name.removeprefix("settings.")) for name in varying]
    return {"names": in_words, "values": list(numbers), "of_row": of_row}


def _texts(name: str, values: Sequence[object]) -> list[str | None]:
    """The texts of one field's values: different ones of different values, None of no value."""
    contents = [json.dumps(value, sort_keys=True, default=str) for value in values]
    by_content = {
        content: setting_in_words(name, value)
        for content, value in zip(contents, values, strict=True)
    }
    is_told_apart = len({*by_content.values()}) == len(by_content)
    return [
        None
        if isinstance(value, _NotApplicable)
        else by_content[content]
        if is_told_apart
        else content
        for content, value in zip(contents, values, strict=True)
    ]


class _NotApplicable:
    """Stands for a field that the task of a spec does not have, which differs from nothing."""

    def __repr__(self) -> str:
        return "–"


def _spec(repeat: Repeat) -> dict[str, object]:
    """The fields of a spec, those of its profile one by one."""
    left_out = dict.fromkeys(not_applicable(repeat.spec), _NotApplicable())
    fields = dict(flattened({**spec_by_name(repeat.spec), **left_out}))
    fields.pop("profile_settings.name", None)  # the profile's, which is a field of its own
    return fields
