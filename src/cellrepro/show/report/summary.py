"""What there is to say about a store: its runs in chapters, their names, pairs and differences.

Plain data, for a page or another listing: no HTML and no figures. Runs are compared within one
task and one data set; equal results are found by their digests first, so that only different masks
are read.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import ValidationError

from cellrepro.compare.axes import AXES as EVERY_AXIS
from cellrepro.compare.names import Names, place_of
from cellrepro.compare.seed_spread import Axis, Spread, measure_spread
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

NO_VERDICT = "no verdict"
"""Stands where a verdict would, for a spec that was carried out once."""


class Words(NamedTuple):
    """What the report says where a verdict stands: of runs, and of masks alone."""

    runs: str
    masks: str = ""


WORDS = {
    Verdict.IDENTICAL: Words("came out bit-identical", "the masks are identical"),
    Verdict.SAME_OBJECTS: Words(
        "found the same objects under other numbers", "the objects are the same"
    ),
    Verdict.DIFFERENT: Words("came out different", "the masks differ"),
    Verdict.VACUOUS: Words("prove nothing", "no objects were found"),
    None: Words("ran once, so there is nothing to compare"),
}


@dataclass(frozen=True)
class Summary:
    """What there is to say about a store.

    Attributes
    ----------
    chapters : list of Chapter
        Trainings first, then by the name of the data set.
    failures : list of Failure
        Of all chapters, and of specs that belong to none.
    """

    chapters: list[Chapter]
    failures: list[Failure]

    @property
    def sentence(self) -> str:
        """The headline."""
        several = len(self.chapters) > 1
        parts = [
            (f"{chapter.data}: " if several else "") + "; ".join(clauses(chapter))
            for chapter in self.chapters
        ]
        if self.failures:
            parts.append(f"{amount(len(self.failures), 'repeat')} failed")
        return ". ".join(parts) + "."


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


@dataclass(frozen=True)
class Chapter:
    """The runs of one task on one data set: only these are compared with each other.

    Attributes
    ----------
    every : list of (Run, Judgement)
        Each run with its repeats on one machine.
    """

    store: Store
    task: str
    data: str
    data_digest: str
    every: list[tuple[Run, Judgement]]
    failures: list[Failure]

    @property
    def title(self) -> str:
        """The data set and what was done with it."""
        return f"{self.data}: {'trained' if self.task == 'train' else 'only segmented'}"

    @cached_property
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
        failed = {one.place: one.spec for one in self.failures if one.spec is not None}
        return Names((repeat for run, _ in self.every for repeat in run.repeats), failed)

    @cached_property
    def spread(self) -> Spread:
        """How far the masks differ along every axis; reads those that differ, once."""
        others = [name for name in self.names.varying if name in PARAMETERS]
        axes = list(dict.fromkeys((*AXES, *EVERY_AXIS, *others)))
        return measure_spread([run for run, _ in self.every], axes=axes, names=self.names)

    @property
    def axes(self) -> list[Axis]:
        """Along which the masks were compared."""
        return list(self.spread.axes)


def where(run: Run) -> str:
    """Spec and machine of a run whose repeats are of one machine."""
    return place_of(run.repeats[0])


def summarise(store: Store) -> Summary:
    """Read a store and compare what it holds; it is refused if it holds no finished run."""
    runs, failures = store.runs(), _failures(store)
    if not runs:
        n = amount(len(failures), "repeat")
        failed = f" ({n} failed; the first: {failures[0].reason})" if failures else ""
        raise BadInput(
            f"the store {store.root} holds no finished run{failed}, so there is nothing to report; "
            "expected one or more: run `cellrepro train DATA` or `cellrepro grid FILE` first, or "
            "name another folder with --store"
        )
    by_data: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        by_data[run.spec.task, run.spec.data_digest] += _by_machine(run)
    chapters = [_chapter(store, members, failures) for members in by_data.values()]
    chapters.sort(key=lambda one: (one.task != "train", one.data, one.data_digest))
    return Summary(chapters, failures)


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


def _by_machine(run: Run) -> list[Run]:
    """Repeats are counted and judged machine by machine."""
    found: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in run.repeats:
        found[place_of(repeat)].append(repeat)
    return [Run(run.spec, tuple(repeats)) for repeats in found.values()]


def _chapter(store: Store, members: Sequence[Run], failures: Sequence[Failure]) -> Chapter:
    spec = members[0].spec
    judged = [(run, judge([r.manifest for r in run.repeats])) for run in members]
    failed = [
        one
        for one in failures
        if one.spec is not None
        and (one.spec.task, one.spec.data_digest) == (spec.task, spec.data_digest)
    ]
    chapter = Chapter(store, spec.task, spec.data, spec.data_digest, judged, failed)
    names = chapter.names  # of all of them: a list is empty while it is sorted
    judged.sort(key=lambda pair: names.order(where(pair[0])))
    return chapter


# -- the headline --------------------------------------------------------------------------


def clauses(chapter: Chapter) -> list[str]:
    """What a chapter's headline is made of: how its runs came out; where they differ; the score."""
    between = [_between(axis) for axis in chapter.axes if axis.name in PLACES]
    across = list(across_machines(chapter))
    alone = across if len(across) == 1 else []  # several are said one by one, further down
    return list(filter(None, [_outcomes(chapter), *alone, *between, _score_clause(chapter)]))


def _outcomes(chapter: Chapter) -> str:
    repeated = sorted({judgement.n_repeats for _, judgement in chapter.runs})
    words = {1: "once", 2: "twice"}
    often = " to ".join(str(n) for n in dict.fromkeys((repeated[0], repeated[-1]))) + " times"
    if len(repeated) == 1:
        often = words.get(repeated[0], often)
    n, n_specs = len(chapter.runs), chapter.n_specs
    verb = "trained" if chapter.task == "train" else "segmented"
    head = f"{amount(n_specs, 'spec')} {'was' if n_specs == 1 else 'were'} {verb} {often}"
    if n > 1 and repeated != [1]:
        head += " each"
    if n > n_specs:
        head += f", judged machine by machine ({n} in all)"
    judged: dict[Verdict | None, list[Judgement]] = defaultdict(list)
    for _, judgement in chapter.runs:
        judged[judgement.overall].append(judgement)
    if set(judged) == {None}:
        alone = "it has" if n == 1 else "they have"
        reasons = reasons_of(judged[None])
        because = f" ({'; '.join(reasons)})" if reasons else ""
        return f"{head}, so {alone} no second repeat to be compared with{because}"
    details: dict[Verdict | None, str] = {
        Verdict.DIFFERENT: _what_differs(judged[Verdict.DIFFERENT]),
        Verdict.VACUOUS: "; ".join(reasons_of(judged[Verdict.VACUOUS])),
    }
    parts = []
    for verdict, said in WORDS.items():
        k = len(judged[verdict])
        if not k:
            continue
        who = str(k) if k < n else "it" if n == 1 else f"all {n}"
        text = said.runs.replace("prove ", "proves ") if k == 1 else said.runs
        detail = details.get(verdict)
        parts.append(f"{who} {text}" + (f" ({detail})" if detail else ""))
    return f"{head}: {', '.join(parts)}"


def _what_differs(judged: Sequence[Judgement]) -> str:
    kinds = Counter((one.weights == Verdict.DIFFERENT, one.masks) for one in judged)
    texts = []
    for (weights, masks), n in kinds.items():
        text = WORDS[masks].masks
        if weights and masks == Verdict.DIFFERENT:
            text = "the weights and the masks differ"
        elif weights:
            text = f"the weights differ, {text}"
        texts.append(text if len(kinds) == 1 else f"{n}: {text}")
    return "; ".join(texts)


def reasons_of(judgements: Sequence[Judgement]) -> list[str]:
    """Why runs prove nothing; that they stand alone is said elsewhere."""
    every = dict.fromkeys(reason for judgement in judgements for reason in judgement.reasons)
    return [reason for reason in every if not reason.startswith("a single repeat")]


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
    alike: dict[frozenset, list[str]] = defaultdict(list)  # machines by their results
    for run in runs:
        facts = names.facts[where(run)]
        name = ", ".join(filter(None, (facts[field] for field in OF_MACHINE)))
        counts = Counter(_result(repeat) for repeat in run.repeats if not repeat.manifest.vacuous)
        if not counts:
            parts.append(f"{name} proves nothing")
            continue
        n, most = sum(counts.values()), max(counts.values())
        equal = f"{most if most > 1 else 'none'} of {n} equal"
        parts.append(f"{name} {equal if n > 1 else 'ran once'}")
        alike[frozenset(counts)].append(name)
    parts += [f"{joined(members)} agree" for members in alike.values() if len(members) > 1]
    couples = [
        (a[0], b[0], bool(x & y)) for (x, a), (y, b) in itertools.combinations(alike.items(), 2)
    ]
    if couples and not any(shared for *_, shared in couples):
        return "; ".join([*parts, f"{joined([m[0] for m in alike.values()])} differ"])
    parts += [f"{a} and {b} {'agree in part' if same else 'differ'}" for a, b, same in couples]
    return "; ".join(parts)


def _result(repeat: Repeat) -> tuple[str, ...]:
    """Equal for equal weights and equal outlines."""
    manifest = repeat.manifest
    outlines = [manifest.masks[name].canonical_digest for name in sorted(manifest.masks)]
    return (manifest.weights.digest if manifest.weights else "", *outlines)


def _between(axis: Axis) -> str:
    """Whether the masks differ along an axis."""
    between, told = f"between {axis.title}", axis.told
    if not told:
        return f"{between} nothing can be compared, no objects were found"
    over = amount(len(told), "comparison")
    if axis.differing:
        return (
            f"{between} the masks differ in {len(axis.differing)} of {over}, by up to "
            f"{ppm_text(axis.largest_ppm)}"
        )
    unequal = sum(pair.weights_equal is False for pair in told)
    which = "all" if unequal == len(told) > 1 else str(unequal)
    but = f", but the weights differ in {which}" if unequal else ""
    return f"{between} all masks show the same objects ({over}){but}"


def _score_clause(chapter: Chapter) -> str:
    values = [r.manifest.ap50 for r in chapter.repeats if r.manifest.ap50 is not None]
    if not values:
        return ""
    numbers = [sum(values) / len(values), min(values), max(values)]
    # As few digits as keep the least and the most apart.
    digits = next((n for n in (2, 3, 4) if f"{numbers[1]:.{n}f}" != f"{numbers[2]:.{n}f}"), 2)
    mean, low, high = (f"{number:.{digits}f}" for number in numbers)
    spread = f" ({low}–{high})" if low != high else ""
    return f"mean AP@0.5 against the ground truth is {mean}{spread}"


# -- plain documents -----------------------------------------------------------------------


def run_documents(chapters: Sequence[Chapter]) -> list[dict[str, Any]]:
    """Every spec and machine, as described in `cellrepro.show.report.build.Report`."""
    documents = []
    for chapter, (run, judgement) in ((c, pair) for c in chapters for pair in c.every):
        scores = [r.manifest.ap50 for r in run.repeats if r.manifest.ap50 is not None]
        verdicts = {
            "verdict": judgement.overall,
            "weights": judgement.weights,
            "masks": judgement.masks,
        }
        documents.append(
            {
                "key": run.key,
                "machine": run.repeats[0].machine,
                "start": chapter.names.is_start(where(run)),
                "spec": run.spec.model_dump(mode="json"),
                "repeats": [repeat.index for repeat in run.repeats],
                **{name: None if one is None else str(one) for name, one in verdicts.items()},
                "reasons": list(judgement.reasons),
                "images": judgement.n_images,
                "ap50": sum(scores) / len(scores) if scores else None,
            }
        )
    return documents


def group_documents(chapter: Chapter) -> list[dict[str, Any]]:
    """Bit-equal results, by weights and by masks."""
    weights: dict[str, list[str]] = defaultdict(list)
    masks: dict[tuple[str, int], list[str]] = defaultdict(list)
    for repeat in chapter.repeats:
        manifest = repeat.manifest
        if manifest.weights is not None:
            weights[manifest.weights.digest].append(repeat.name)
        masks[manifest.masks_digest, manifest.n_objects].append(repeat.name)
    return [{"weights": digest, "members": members} for digest, members in weights.items()] + [
        {"masks": digest, "members": members, "n_objects": n}
        for (digest, n), members in masks.items()
    ]
