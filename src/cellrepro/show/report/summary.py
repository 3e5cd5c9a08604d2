"""What there is to say about a store: its runs in chapters, their names, pairs and differences.

Plain data, no HTML and no figures. Runs are compared within one task and one data set; equal
results are found by their digests first, so that only different masks are read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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

_ALONE = "a single repeat has nothing to be compared with"  # a reason that the sentence says
_OUTCOMES = {
    Verdict.IDENTICAL: "came out bit-identical",
    Verdict.SAME_OBJECTS: "found the same objects under other numbers",
    Verdict.DIFFERENT: "came out different",
    Verdict.VACUOUS: "gave no proof",
    None: "had nothing to be compared with",
}


@dataclass(frozen=True)
class Judged:
    """A spec on one machine: its repeats there, and how they came out."""

    place: str
    spec: Spec
    repeats: tuple[Repeat, ...]
    judgement: Judgement
    verdict: str


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
    """The runs of one task on one data set: only these are compared with each other."""

    store: Store
    task: str
    data: str
    data_digest: str
    every: list[Judged]
    failures: list[Failure]

    @property
    def title(self) -> str:
        """The data set and what was done with it."""
        return f"{self.data}: {'trained' if self.task == 'train' else 'only segmented'}"

    @cached_property
    def results(self) -> list[Judged]:
        """Without those that others were trained from."""
        return [one for one in self.every if not self.names.is_start(one.place)]

    @property
    def n_specs(self) -> int:
        """Of the results."""
        return len({one.spec.key for one in self.results})

    @property
    def repeats(self) -> list[Repeat]:
        """Of all results."""
        return [repeat for one in self.results for repeat in one.repeats]

    @cached_property
    def names(self) -> Names:
        """Of all specs, also of those that only failed."""
        failed = {one.place: one.spec for one in self.failures if one.spec is not None}
        return Names((repeat for one in self.every for repeat in one.repeats), failed)

    @cached_property
    def spread(self) -> Spread:
        """How far the masks differ along every axis; reads those that differ, once."""
        others = [name for name in self.names.varying if name in PARAMETERS]
        axes = list(dict.fromkeys((*AXES, *EVERY_AXIS, *others)))
        runs = [Run(one.spec, one.repeats) for one in self.every]
        return measure_spread(runs, axes=axes, names=self.names)

    @cached_property
    def clauses(self) -> list[str]:
        """The headline: how the runs came out, whether places differ, the score."""
        across = list(across_machines(self))
        alone = across if len(across) == 1 else []  # several are said one by one, further down
        places = [axis for axis in self.spread.axes if axis.name in PLACES and axis.told]
        return [_outcomes(self), *alone, *map(_between, places), *_score(self)]


@dataclass(frozen=True)
class Summary:
    """What there is to say about a store; trainings first, then by the name of the data set."""

    chapters: list[Chapter]
    failures: list[Failure]  # also of specs that belong to no chapter

    @property
    def main(self) -> Chapter:
        """What most runs are about."""
        return max(self.chapters, key=lambda chapter: len(chapter.repeats))

    @property
    def sentence(self) -> str:
        """The headline."""
        several = len(self.chapters) > 1
        parts = [
            (f"{chapter.data}: " if several else "") + "; ".join(chapter.clauses)
            for chapter in self.chapters
        ]
        if self.failures:
            parts.append(f"{amount(len(self.failures), 'repeat')} failed")
        return ". ".join(parts) + "."


def summarise(store: Store) -> Summary:
    """Read a store and compare what it holds; it is refused if it holds no finished run."""
    runs, failures = store.runs(), [_failure(record) for record in store.failures()]
    if not runs:
        n = amount(len(failures), "repeat")
        failed = f" ({n} failed; the first: {failures[0].reason})" if failures else ""
        raise BadInput(
            f"the store {store.root} holds no finished run{failed}, so there is nothing to report; "
            "expected one or more: run `cellrepro train DATA` or `cellrepro grid FILE` first, or "
            "name another folder with --store"
        )
    by_data: dict[tuple[str, str], dict[str, list[Repeat]]] = defaultdict(lambda: defaultdict(list))
    for repeat in (repeat for run in runs for repeat in run.repeats):
        by_data[repeat.spec.task, repeat.spec.data_digest][place_of(repeat)].append(repeat)
    chapters = []
    for (task, digest), places in by_data.items():
        every = [_judged(place, repeats) for place, repeats in places.items()]
        failed_here = [
            one
            for one in failures
            if one.spec is not None and (one.spec.task, one.spec.data_digest) == (task, digest)
        ]
        chapter = Chapter(store, task, every[0].spec.data, digest, every, failed_here)
        order = [(chapter.names.order(one.place), i) for i, one in enumerate(every)]
        every[:] = [every[i] for _, i in sorted(order)]
        chapters.append(chapter)
    chapters.sort(key=lambda one: (one.task != "train", one.data, one.data_digest))
    return Summary(chapters, failures)


def _judged(place: str, repeats: list[Repeat]) -> Judged:
    judgement = judge([repeat.manifest for repeat in repeats])
    verdict = str(judgement.overall or NO_VERDICT)
    return Judged(place, repeats[0].spec, tuple(repeats), judgement, verdict)


def _failure(record: dict[str, Any]) -> Failure:
    try:
        spec = Spec.model_validate(record.get("spec"))
    except ValidationError:  # kept by another version: listed, but in no table
        spec = None
    what = {name: record[name] for name in ("key", "machine", "repeat", "reason")}
    return Failure(**what, spec=spec)


# -- the headline --------------------------------------------------------------------------


def _outcomes(chapter: Chapter) -> str:
    repeated = sorted({one.judgement.n_repeats for one in chapter.results})
    often = " to ".join(str(n) for n in dict.fromkeys((repeated[0], repeated[-1]))) + " times"
    often = {"1 times": "once", "2 times": "twice"}.get(often, often)
    verb = "trained" if chapter.task == "train" else "segmented"
    n, n_specs = len(chapter.results), chapter.n_specs
    head = f"{amount(n_specs, 'spec')} {verb} {often}"
    if n > n_specs:
        head += f", judged machine by machine ({n} in all)"
    judged: dict[Verdict | None, list[Judgement]] = defaultdict(list)
    for one in chapter.results:
        judged[one.judgement.overall].append(one.judgement)
    parts = []
    for verdict, words in _OUTCOMES.items():
        found, different = judged[verdict], Verdict.DIFFERENT
        why = list(dict.fromkeys(r for one in found for r in one.reasons if r != _ALONE))
        if verdict == different:
            n_weights = sum(one.weights == different for one in found)
            n_masks = sum(one.masks == different for one in found)
            masks = f"masks in {n_masks}" if n_masks else "masks equal"
            why = [f"weights in {n_weights}, {masks}" if n_weights else masks]
        if found:
            parts.append(f"{len(found)} {words}" + (f" ({'; '.join(why)})" if why else ""))
    return f"{head}: {', '.join(parts)}"


def _between(axis: Axis) -> str:
    """In how many comparisons along an axis the masks and the weights differ."""
    told, n_weights = axis.told, sum(pair.weights_equal is False for pair in axis.told)
    by = f", by up to {ppm_text(axis.largest_ppm)}" if axis.differing else ""
    weights = f", the weights in {n_weights}" if n_weights else ""
    over = amount(len(told), "comparison")
    return f"between {axis.title} the masks differ in {len(axis.differing)} of {over}{by}{weights}"


def _score(chapter: Chapter) -> list[str]:
    values = [r.manifest.ap50 for r in chapter.repeats if r.manifest.ap50 is not None]
    if not values:
        return []
    mean, low, high = sum(values) / len(values), min(values), max(values)
    spread = f" ({low:.3f}–{high:.3f})" if low != high else ""
    return [f"mean AP@0.5 against the ground truth is {mean:.3f}{spread}"]


def across_machines(chapter: Chapter) -> dict[str, list[str]]:
    """Of specs that several machines carried out: which of these agree with themselves, and with
    each other, as in "laptop 3 of 3 equal; a100 3 of 3 equal; laptop and a100 differ", with the
    names of the specs of which that is so.
    """
    by_spec: dict[str, list[Judged]] = defaultdict(list)
    for one in chapter.results:
        by_spec[one.spec.key].append(one)
    found: dict[str, list[str]] = defaultdict(list)
    for key, several in by_spec.items():
        if len(several) < 2:
            continue
        parts = []
        alike: dict[frozenset, list[str]] = defaultdict(list)  # machines by their results
        for one in several:
            facts = chapter.names.facts[one.place]
            name = ", ".join(facts[field] for field in OF_MACHINE if facts[field])
            counts = Counter(map(_result, one.repeats))
            parts.append(f"{name} {max(counts.values())} of {len(one.repeats)} equal")
            alike[frozenset(counts)].append(name)
        parts += [f"{joined(members)} agree" for members in alike.values() if len(members) > 1]
        if len(alike) > 1:
            parts.append(f"{joined([members[0] for members in alike.values()])} differ")
        spec = chapter.names.context(several[0].place, OF_MACHINE) or key[:8]
        found["; ".join(parts)].append(spec)
    return dict(found)


def _result(repeat: Repeat) -> tuple[str, ...]:
    """Equal for equal weights and equal outlines."""
    masks, weights = repeat.manifest.masks, repeat.manifest.weights
    outlines = [masks[name].canonical_digest for name in sorted(masks)]
    return (weights.digest if weights else "", *outlines)


# -- plain documents -----------------------------------------------------------------------


def run_documents(chapters: Sequence[Chapter]) -> list[dict[str, Any]]:
    """Every spec and machine, as described in `cellrepro.show.report.build.Report`."""
    documents = []
    for chapter, one in ((each, one) for each in chapters for one in each.every):
        scores = [r.manifest.ap50 for r in one.repeats if r.manifest.ap50 is not None]
        judged = one.judgement
        documents.append(
            {
                "key": one.spec.key,
                "machine": one.repeats[0].machine,
                "start": chapter.names.is_start(one.place),
                "spec": one.spec.model_dump(mode="json"),
                "repeats": [repeat.index for repeat in one.repeats],
                "verdict": judged.overall,
                "weights": judged.weights,
                "masks": judged.masks,
                "reasons": list(judged.reasons),
                "images": judged.n_images,
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
