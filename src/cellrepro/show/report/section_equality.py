"""The report on runs as wholes: which are equal, which failed, and where each of them lies."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cellrepro.compare.names import said, sort_key
from cellrepro.compare.verdicts import Judgement, Verdict
from cellrepro.show.report.page import Column, Download, Table, links_to, table, which
from cellrepro.show.report.summary import (
    NO_VERDICT,
    Chapter,
    Failure,
    Summary,
    across_machines,
    where,
)
from cellrepro.store.digests import value_digest
from cellrepro.store.manifest import Manifest
from cellrepro.store.spec import PARAMETERS
from cellrepro.store.store import Repeat, Run
from cellrepro.text import amount

GROUP_COLOURS = ("#A9D8F5", "#F5CF85", "#E9C3D9", "#F5EE9E", "#8DB9D9", "#E5B28F", "#CFCFCF")
"""Tints of Okabe's and Ito's colours on which black text is readable; no red beside a green. The
page uses them twice, the second time striped."""

_MOST_OPEN = 24  # runs; a longer list is folded
_MADE_WITH = ("model", "seed", "epochs", "images_per_epoch", "learning_rate", "profile", "mode")


class Results:
    """Which repeats of a chapter came to the same result, and what each result is called: a letter
    for equal outlines in every image, a number for equal weights. Shared letters have a CSS class.
    """

    def __init__(self, chapter: Chapter):
        outlines: dict[str, list[Repeat]] = defaultdict(list)
        weights: dict[str, int] = {}
        self.networks: dict[str, int] = {}
        for repeat in chapter.repeats:
            outlines[_outlines_digest(repeat.manifest)].append(repeat)
            trained = repeat.manifest.weights
            if trained is not None:
                number = weights.setdefault(trained.digest, len(weights) + 1)
                self.networks[repeat.name] = number
        named = {_letters(i): members for i, members in enumerate(outlines.values())}
        shared = [letter for letter in named if len(named[letter]) > 1]
        shared.sort(key=lambda letter: -len(named[letter]))
        shared = shared[: 2 * len(GROUP_COLOURS)]
        self.masks = {repeat.name: letter for letter, group in named.items() for repeat in group}
        self.style = {letter: f"g-{i}" for i, letter in enumerate(shared)}
        self.numbered_otherwise = [
            letter
            for letter, group in named.items()
            if len({r.manifest.masks_digest for r in group}) > 1
        ]

    def of(self, repeat: Repeat) -> str:
        """What a repeat came to: ``A 1``; a dash for what is no result."""
        number = self.networks.get(repeat.name)
        letter = self.masks.get(repeat.name, "–")
        return letter if number is None else f"{letter} {number}"


def _outlines_digest(manifest: Manifest) -> str:
    return value_digest({name: mask.canonical_digest for name, mask in manifest.masks.items()})


def _letters(number: int) -> str:
    """A to Z, then AA, AB, …: the name of group ``number``, from 0.

    Examples
    --------
    >>> [_letters(n) for n in (0, 25, 26, 701, 702)]
    ['A', 'Z', 'AA', 'ZZ', 'AAA']
    """
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


# -- the matrix ----------------------------------------------------------------------------


@dataclass(frozen=True)
class MatrixCell:
    """One spec on one machine: how its repeats came out, and to which results."""

    place: str
    verdict: str
    over: str
    detail: str
    groups: list[tuple[str, str]]
    """What each is called, and its CSS class."""


@dataclass(frozen=True)
class EqualityView:
    """The matrix of equal results of one chapter, and what is to be said of it: specs that several
    machines carried out, networks that others were trained from, why there is no verdict.
    """

    chapter: Chapter
    summary: str
    equal: str
    usual: str
    numbered_otherwise: list[str]
    profiles: list[tuple[str, int]]
    columns: list[tuple[str, str]]
    rows: list[tuple[str, list[list[MatrixCell]]]]
    across: list[tuple[str, str]]
    starts: list[tuple[str, str, str, int]]
    reasons: list[tuple[str, str]]
    data: Download | None


def equality_view(chapter: Chapter, same: Results) -> EqualityView:
    """Of one chapter."""
    names = chapter.names
    places = sorted(names.shown, key=names.order)
    columns = sorted(
        {names.column(each) for each in places},
        key=lambda column: (sort_key("profile", column[0]), sort_key("mode", column[1])),
    )
    cells: dict[tuple[str, tuple[str, str]], list[MatrixCell]] = defaultdict(list)
    for each in places:
        cells[names.row(each), names.column(each)].append(_cell(chapter, each, same))
    profiles = itertools.groupby(columns, key=lambda column: column[0])
    rows = list(dict.fromkeys(names.row(each) for each in places))
    across = across_machines(chapter)
    n_across = sum(map(len, across.values()))
    reasons: dict[str, list[str]] = defaultdict(list)
    for run, judgement in chapter.runs:
        for reason in judgement.reasons:
            reasons[reason].append(names.short(where(run)))
    n_masks, n_networks = len(set(same.masks.values())), len(set(same.networks.values()))
    networks = f"{amount(n_networks, 'different network')} and " if n_networks else ""
    return EqualityView(
        chapter=chapter,
        summary=f"{amount(len(chapter.repeats), 'run')} of {amount(chapter.n_specs, 'spec')} came "
        f"to {networks}{amount(n_masks, 'different result')} in cells.",
        equal=_equal_for_all(chapter),
        usual=", ".join(said(name, value) for name, value in names.usual.items()),
        numbered_otherwise=same.numbered_otherwise,
        profiles=[(name, len(list(group))) for name, group in profiles],
        columns=columns,
        rows=[(row, [cells.get((row, column), []) for column in columns]) for row in rows],
        across=[(text, which(specs, n_across, "spec")) for text, specs in across.items()],
        starts=[_start(chapter, run) for run in chapter.starts],
        reasons=[
            (why, which(which_, len(chapter.runs), "spec")) for why, which_ in reasons.items()
        ],
        data=_run_file(chapter, same),
    )


def _cell(chapter: Chapter, place: str, same: Results) -> MatrixCell:
    n_failed = sum(failure.place == place for failure in chapter.failures)
    failed = f"{amount(n_failed, 'repeat')} failed" if n_failed else ""
    found = next((pair for pair in chapter.runs if where(pair[0]) == place), None)
    if found is None:
        return MatrixCell(place, "failed", failed, "", [])
    run, judgement = found
    groups: dict[str, str] = {}
    for repeat in run.repeats:
        groups.setdefault(same.of(repeat), same.style.get(same.masks[repeat.name], ""))
    over = "; ".join(filter(None, [amount(judgement.n_repeats, "repeat"), failed]))
    plain = judgement.overall in (None, Verdict.IDENTICAL) or judgement.weights is None
    detail = "" if plain else judgement.detail()
    return MatrixCell(place, _word(judgement), over, detail, list(groups.items()))


def _word(judgement: Judgement) -> str:
    return str(judgement.overall or NO_VERDICT)


def _equal_for_all(chapter: Chapter) -> str:
    """What every spec has in common, in one line."""
    names = chapter.names
    facts = names.facts[names.shown[0]]
    fields = [f for f in (*PARAMETERS, "machine") if f not in names.varying and f != "ledger"]
    if chapter.task == "segment":
        fields = [f for f in fields if f in ("model", "seed", "profile", "mode", "machine")]
    labels = {name: f"{name} " for name in ("profile", "mode", "machine")}
    return ", ".join(labels.get(name, "") + said(name, facts[name]) for name in fields)


def _start(chapter: Chapter, run: Run) -> tuple[str, str, str, int]:
    facts = chapter.names.facts[where(run)]
    digests = {repeat.manifest.weights.digest for repeat in run.repeats if repeat.manifest.weights}
    n = len({one.key for one, _ in chapter.runs if one.spec.model_digest in digests})
    made = ", ".join(said(name, facts[name]) for name in _MADE_WITH)
    return chapter.names.short(where(run)), run.repeats[0].name, made, n


def _run_file(chapter: Chapter, same: Results) -> Download | None:
    facts = chapter.names.facts

    def of_spec(name: str) -> Column:
        return Column(name, lambda row: facts[where(row[0])][name])

    columns = [
        Column("run", lambda row: row[2].name),
        *map(of_spec, ("machine", "version", *PARAMETERS)),
        Column("masks", lambda row: same.masks[row[2].name]),
        Column("network", lambda row: same.networks.get(row[2].name)),
        Column("verdict", lambda row: _word(row[1])),
        Column("cells", lambda row: row[2].manifest.n_objects),
        Column("weights", lambda row: row[2].manifest.weights and row[2].manifest.weights.digest),
    ]
    rows = [(run, judgement, one) for run, judgement in chapter.runs for one in run.repeats]
    return table(rows, columns, file=f"equal-results-{chapter.data}").data


# -- every run -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RunRow:
    """One repeat of the list of all runs."""

    repeat: Repeat
    spec: str
    verdict: str
    """Of the spec; empty but for its first repeat."""
    result: str
    links: dict[str, str]


@dataclass(frozen=True)
class RunsView:
    """Every run of the store, and every repeat that ended without a result."""

    rows: list[RunRow]
    failures: Table | None
    linked: bool

    @property
    def n_specs(self) -> int:
        """Of finished runs."""
        return len({row.repeat.manifest.key for row in self.rows})

    @property
    def folded(self) -> bool:
        """Whether the list is to be opened first."""
        return len(self.rows) > _MOST_OPEN


def runs_view(found: Summary, same: Sequence[Results], folder: str | None) -> RunsView:
    """What each came to and where it lies, seen from the page."""

    def rows() -> Iterator[RunRow]:
        for chapter, results in zip(found.chapters, same, strict=True):
            data = f"{chapter.data}: " if len(found.chapters) > 1 else ""
            for run, judgement in chapter.every:
                spec = data + chapter.names.short(where(run))
                for i, repeat in enumerate(run.repeats):
                    word = "" if i else _word(judgement)
                    yield RunRow(repeat, spec, word, results.of(repeat), links_to(repeat, folder))

    names = {f.place: c.names.short(f.place) for c in found.chapters for f in c.failures}

    def called(failure: Failure) -> str:
        spec = failure.spec
        if failure.place in names or spec is None:
            return names.get(failure.place, "")
        return f"{spec.task} {spec.data}, {spec.profile}, {spec.held}, seed {spec.seed}"

    columns = [
        Column("spec", called),
        Column("repeat", lambda failure: failure.repeat, "number"),
        Column("machine", lambda failure: failure.machine),
        Column("key", lambda failure: failure.key, "code"),
        Column("reason", lambda failure: failure.reason, "long"),
    ]
    failures = table(found.failures, columns) if found.failures else None
    return RunsView(list(rows()), failures, folder is not None)
