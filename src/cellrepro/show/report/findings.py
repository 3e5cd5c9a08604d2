"""What there is to say about a store: its runs in chapters, their names, pairs and differences.

Plain data, for a page or another listing: no HTML and no figures. Runs are compared within one
task and one data set; equal results are found by their digests first, so that only different masks
are read.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from cellrepro.compare import seed_spread as spread
from cellrepro.compare.names import Names, place_of, starting
from cellrepro.compare.seed_spread import Axis, Spread
from cellrepro.compare.verdicts import Judgement, Verdict, judge
from cellrepro.errors import BadInput
from cellrepro.store.spec import PARAMETERS, Spec
from cellrepro.store.store import Repeat, Run, Store
from cellrepro.text import amount, joined, ppm_text

PLACES = ("device", "threads", "precision", "profile", "machine", "version")
"""Axes of where and how it was computed."""
OF_MACHINE = ("machine", "version", "place")
"""What names say of where a run was computed."""
AXES = ("repeats", *PLACES, "mode", "seed")
"""The axes that every chapter is looked at along; others follow where they vary."""
_WHAT, _WHY = "<what>", "<why>"
_OUTCOMES: dict[Verdict | None, str] = {
    Verdict.IDENTICAL: "{0} came out bit-identical",
    Verdict.SAME_OBJECTS: "{0} found the same objects under other numbers",
    Verdict.DIFFERENT: f"{{0}} came out different ({_WHAT})",
    Verdict.VACUOUS: f"{{0}} prove{{s}} nothing ({_WHY})",
    None: "{0} ran once, so there is nothing to compare",
}


@dataclass(frozen=True)
class Findings:
    """What there is to say about a store.

    Attributes
    ----------
    chapters : list of Chapter
        Trainings first, then by the name of the data set.
    failures : list of Failure
        Of all chapters, and of specs that belong to none.
    sentence : str
        The headline.
    runs, groups : list of dict
        Plain documents, as described in `cellrepro.show.report.build.Report`.
    """

    chapters: list[Chapter]
    failures: list[Failure]
    sentence: str
    runs: list[dict[str, Any]]
    groups: list[dict[str, Any]]


def find(store: Store) -> Findings:
    """Read a store and compare what it holds.

    Parameters
    ----------
    store : Store
        Only read.

    Returns
    -------
    Findings

    Raises
    ------
    BadInput
        If the store holds no finished run, or one of its files is missing or damaged.
    """
    runs, failures = store.runs(), _failures(store)
    _refuse_empty(store, runs, failures)
    chapters = _chapters(store, runs, failures)
    return Findings(
        chapters,
        failures,
        _sentence(chapters, failures),
        [
            _run_document(run, judgement, start=chapter.names.is_start(where(run)))
            for chapter in chapters
            for run, judgement in chapter.every
        ],
        [group for chapter in chapters for group in _group_documents(chapter)],
    )


# -- what the store holds ------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A repeat that failed, and why; its spec is None where another version kept it."""

    key: str
    machine: str
    repeat: int
    reason: str
    spec: Spec | None

    @property
    def place(self) -> str:
        """Spec and machine."""
        return f"{self.key}/{self.machine}"


def _failures(store: Store) -> list[Failure]:
    found = []
    for record in store.failures():
        try:
            spec = Spec.model_validate(record.get("spec"))
        except ValidationError:  # kept by another version: listed, but in no table
            spec = None
        what = {name: record[name] for name in ("key", "machine", "repeat", "reason")}
        found.append(Failure(**what, spec=spec))
    return found


def _refuse_empty(store: Store, runs: Sequence[Run], failures: Sequence[Failure]) -> None:
    if runs:
        return
    failed = (
        f" ({amount(len(failures), 'repeat')} failed; the first: {failures[0].reason})"
        if failures
        else ""
    )
    raise BadInput(
        f"the store {store.root} holds no finished run{failed}, so there is nothing to report; "
        "expected one or more: run `cellrepro train DATA` or `cellrepro grid FILE` first, or name "
        "another folder with --store"
    )


@dataclass(frozen=True)
class Chapter:
    """The runs of one task on one data set: only these are compared with each other."""

    store: Store
    task: str
    data: str
    data_digest: str
    every: list[tuple[Run, Judgement]]
    """Each with its repeats on one machine."""
    failures: list[Failure]

    @property
    def title(self) -> str:
        """The data set and what was done with it."""
        return f"{self.data}: {'trained' if self.task == 'train' else 'only segmented'}"

    @property
    def runs(self) -> list[tuple[Run, Judgement]]:
        """The results: without those that others were trained from."""
        return [(run, found) for run, found in self.every if not self.names.is_start(where(run))]

    @property
    def starts(self) -> list[Run]:
        """Those that others were trained from."""
        return [run for run, _ in self.every if self.names.is_start(where(run))]

    @property
    def n_specs(self) -> int:
        """Of the results."""
        return len({run.key for run, _ in self.runs})

    @property
    def repeats(self) -> list[Repeat]:
        """Of all results."""
        return [repeat for run, _ in self.runs for repeat in run.repeats]

    @property
    def n_images(self) -> int:
        """That a run segmented, at most."""
        return max(judgement.n_images for _, judgement in self.runs)

    @cached_property
    def names(self) -> Names:
        """Of all specs, also of those that only failed."""
        shown = [(run.spec, repeat) for run, _ in self.every for repeat in run.repeats]
        failed = {one.place: one.spec for one in self.failures if one.spec is not None}
        return Names(
            {**failed, **{place_of(repeat): spec for spec, repeat in shown}},
            {place_of(repeat): repeat.manifest.machine for _, repeat in shown},
            repeats=Counter(place_of(repeat) for _, repeat in shown),
            starts=starting(shown),
        )

    @cached_property
    def spread(self) -> Spread:
        """How far the masks lie apart along every axis; reads those that differ, once."""
        others = [name for name in self.names.varying if name in PARAMETERS]
        names = dict.fromkeys((*AXES, *spread.AXES, *others))
        return spread.measure([run for run, _ in self.every], axes=list(names), names=self.names)

    @property
    def axes(self) -> list[Axis]:
        """Along which the masks were compared."""
        return list(self.spread.axes)

    def label(self, repeat: Repeat) -> str:
        """What a repeat is called in pictures."""
        return self.names.label(repeat)


def where(run: Run) -> str:
    """Spec and machine of a run whose repeats are of one machine."""
    return place_of(run.repeats[0])


def _chapters(store: Store, runs: Sequence[Run], failures: Sequence[Failure]) -> list[Chapter]:
    by_data: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        by_data[run.spec.task, run.spec.data_digest] += _by_machine(run)
    chapters = []
    for (task, digest), members in by_data.items():
        judged = [(run, judge([r.manifest for r in run.repeats])) for run in members]
        failed = [
            failure
            for failure in failures
            if failure.spec is not None
            and (failure.spec.task, failure.spec.data_digest) == (task, digest)
        ]
        chapter = Chapter(store, task, members[0].spec.data, digest, judged, failed)
        names = chapter.names  # of all of them: a list is empty while it is sorted
        judged.sort(key=lambda pair: names.order(where(pair[0])))
        chapters.append(chapter)
    return sorted(chapters, key=lambda c: (c.task != "train", c.data, c.data_digest))


def _by_machine(run: Run) -> list[Run]:
    """Repeats are counted and judged machine by machine."""
    found: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in run.repeats:
        found[place_of(repeat)].append(repeat)
    return [Run(run.spec, tuple(repeats)) for repeats in found.values()]


# -- the headline --------------------------------------------------------------------------


def _sentence(chapters: Sequence[Chapter], failures: Sequence[Failure]) -> str:
    parts = [
        (f"{chapter.data}: " if len(chapters) > 1 else "") + "; ".join(clauses(chapter))
        for chapter in chapters
    ]
    if failures:
        parts.append(f"{amount(len(failures), 'repeat')} failed")
    return ". ".join(parts) + "."


def clauses(chapter: Chapter) -> list[str]:
    """What a chapter's headline is made of: how its runs came out; where it parts; the score."""
    between = [_between(axis) for axis in chapter.axes if axis.name in PLACES]
    across = list(across_machines(chapter))[:2]
    alone = across if len(across) == 1 else []  # several are told one by one, further down
    return list(filter(None, [_outcomes(chapter), *alone, *between, _score_clause(chapter)]))


def _outcomes(chapter: Chapter) -> str:
    n_repeats = sorted({judgement.n_repeats for _, judgement in chapter.runs})
    verb = "trained" if chapter.task == "train" else "segmented"
    n, n_specs = len(chapter.runs), chapter.n_specs
    often = {(1,): "once", (2,): "twice", (1, 2): "once or twice"}.get(
        tuple(n_repeats),
        f"{n_repeats[0]} times"
        if len(n_repeats) == 1
        else f"{n_repeats[0]} to {n_repeats[-1]} times",
    )
    head = f"{amount(n_specs, 'spec')} {'was' if n_specs == 1 else 'were'} {verb} {often}"
    if n > 1 and n_repeats != [1]:
        head += " each"
    if n > n_specs:
        head += f", judged machine by machine ({n} in all)"
    counts = Counter(judgement.overall for _, judgement in chapter.runs)
    if set(counts) == {None}:
        alone = "it has" if n == 1 else "they have"
        text = f"{head}, so {alone} no second repeat to be compared with"
        reasons = _reasons([judgement for _, judgement in chapter.runs])
        return f"{text} ({'; '.join(reasons)})" if reasons else text
    outcomes = [
        text.format(_all(counts[verdict], n), s="s" if counts[verdict] == 1 else "")
        for verdict, text in _OUTCOMES.items()
        if counts[verdict]
    ]
    vacuous = [judgement for _, judgement in chapter.runs if judgement.overall == Verdict.VACUOUS]
    text = f"{head}: {', '.join(outcomes)}".replace(_WHAT, _what_differs(chapter))
    return text.replace(_WHY, "; ".join(_reasons(vacuous)))


def across_machines(chapter: Chapter) -> dict[str, list[str]]:
    """Of specs that several machines carried out: which of these agree with themselves, and with
    each other.

    Returns
    -------
    dict of str to list of str
        As in "laptop 3 of 3 equal; a100 3 of 3 equal; laptop and a100 differ", with the names of
        the specs of which that is so.
    """
    by_spec: dict[str, list[Run]] = defaultdict(list)
    for run, _ in chapter.runs:
        by_spec[run.key].append(run)
    found: dict[str, list[str]] = defaultdict(list)
    for runs in by_spec.values():
        if len(runs) > 1:
            spec = chapter.names.context(where(runs[0]), OF_MACHINE) or runs[0].key[:8]
            found[_each_and_together(chapter.names, runs)].append(spec)
    return dict(found)


def _each_and_together(names: Names, runs: Sequence[Run]) -> str:
    """Of one spec, each run on a machine of its own."""
    parts = []
    alike: dict[frozenset, list[str]] = defaultdict(list)
    for run in runs:
        facts = names.facts[where(run)]
        name = ", ".join(filter(None, (facts[field] for field in OF_MACHINE)))
        counts = Counter(_result(repeat) for repeat in run.repeats if not repeat.manifest.vacuous)
        if not counts:
            parts.append(f"{name} proves nothing")
            continue
        n = sum(counts.values())
        most = max(counts.values())
        equal = f"{most if most > 1 else 'none'} of {n} equal"
        parts.append(f"{name} {equal if n > 1 else 'ran once'}")
        alike[frozenset(counts)].append(name)
    parts += [f"{joined(members)} agree" for members in alike.values() if len(members) > 1]
    couples = list(itertools.combinations(alike.items(), 2))
    in_part = [(a[0], b[0]) for (x, a), (y, b) in couples if x & y]
    parts += [f"{joined(couple)} agree in part" for couple in in_part]
    if couples and not in_part:
        parts.append(f"{joined([members[0] for members in alike.values()])} differ")
    elif couples:
        parts += [f"{a[0]} and {b[0]} differ" for (x, a), (y, b) in couples if not x & y]
    return "; ".join(parts)


def _result(repeat: Repeat) -> tuple[str, ...]:
    """Equal for equal weights and equal outlines."""
    manifest = repeat.manifest
    outlines = [manifest.masks[name].canonical_digest for name in sorted(manifest.masks)]
    return (manifest.weights.digest if manifest.weights else "", *outlines)


def _what_differs(chapter: Chapter) -> str:
    kinds = Counter(
        (judgement.weights == Verdict.DIFFERENT, judgement.masks)
        for _, judgement in chapter.runs
        if judgement.overall == Verdict.DIFFERENT
    )
    words: dict[Verdict | None, str] = {
        Verdict.IDENTICAL: "the masks are identical",
        Verdict.SAME_OBJECTS: "the objects are the same",
        Verdict.DIFFERENT: "the masks differ",
        Verdict.VACUOUS: "no objects were found",
    }
    texts = []
    for (weights, masks), n in kinds.items():
        text = words[masks] if not weights else f"the weights differ, {words[masks]}"
        if weights and masks == Verdict.DIFFERENT:
            text = "the weights and the masks differ"
        texts.append(text if len(kinds) == 1 else f"{n}: {text}")
    return "; ".join(texts)


def _between(axis: Axis) -> str:
    """Whether the masks part along an axis."""
    between = f"between {axis.title}"
    if not axis.told:
        return f"{between} nothing can be compared, no objects were found"
    if axis.differing:
        return (
            f"{between} the masks differ in {len(axis.differing)} of "
            f"{amount(len(axis.told), 'comparison')}, by up to {ppm_text(axis.largest_ppm)}"
        )
    text = f"{between} all masks show the same objects ({amount(len(axis.told), 'comparison')})"
    unequal = sum(pair.weights_equal is False for pair in axis.told)
    which = "all" if unequal == len(axis.told) > 1 else str(unequal)
    return f"{text}, but the weights differ in {which}" if unequal else text


def _score_clause(chapter: Chapter) -> str:
    values = [r.manifest.ap50 for r in chapter.repeats if r.manifest.ap50 is not None]
    if not values:
        return ""
    mean, low, high = _distinct([sum(values) / len(values), min(values), max(values)])
    spread = f" ({low}–{high})" if low != high else ""
    return f"mean AP@0.5 against the ground truth is {mean}{spread}"


def _distinct(values: Sequence[float]) -> list[str]:
    """Numbers with as few digits, two to four, as keep the smallest and largest apart."""
    for digits in (2, 3, 4):
        texts = [f"{value:.{digits}f}" for value in values]
        if texts[1] != texts[2]:
            return texts
    return [f"{value:.2f}" for value in values] if values[1] == values[2] else texts


def _reasons(judgements: Iterable[Judgement]) -> list[str]:
    """Why runs prove nothing; that they stand alone is said elsewhere."""
    every = (reason for judgement in judgements for reason in judgement.reasons)
    return [reason for reason in dict.fromkeys(every) if not reason.startswith("a single repeat")]


def _all(n: int, total: int) -> str:
    return ("it" if total == 1 else f"all {n}") if n == total else str(n)


# -- plain documents -----------------------------------------------------------------------


def _run_document(run: Run, judgement: Judgement, *, start: bool) -> dict[str, Any]:
    scores = [r.manifest.ap50 for r in run.repeats if r.manifest.ap50 is not None]
    return {
        "key": run.key,
        "machine": run.repeats[0].machine,
        "start": start,
        "spec": run.spec.model_dump(mode="json"),
        "repeats": [repeat.index for repeat in run.repeats],
        "verdict": _word(judgement.overall),
        "weights": _word(judgement.weights),
        "masks": _word(judgement.masks),
        "reasons": list(judgement.reasons),
        "images": judgement.n_images,
        "ap50": sum(scores) / len(scores) if scores else None,
    }


def _word(verdict: Verdict | None) -> str | None:
    return None if verdict is None else str(verdict)


def _group_documents(chapter: Chapter) -> list[dict[str, Any]]:
    weights: dict[str, list[str]] = defaultdict(list)
    masks: dict[str, list[str]] = defaultdict(list)
    found = {}
    for repeat in chapter.repeats:
        manifest = repeat.manifest
        if manifest.weights is not None:
            weights[manifest.weights.digest].append(repeat.name)
        digest = manifest.masks_digest
        masks[digest].append(repeat.name)
        found[digest] = manifest.n_objects
    return [{"weights": digest, "members": members} for digest, members in weights.items()] + [
        {"masks": digest, "members": members, "n_objects": found[digest]}
        for digest, members in masks.items()
    ]
