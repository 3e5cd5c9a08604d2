"""What there is to say about a store: its runs in chapters, their names, pairs and differences.

Runs are compared within one task and one data set; of masks with equal digests none is read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from cellrepro.asked.spec import PARAMETERS, Spec
from cellrepro.errors import BadInput
from cellrepro.same.axes import AXES, OBSERVING
from cellrepro.same.names import Names, place_of, value_in_words
from cellrepro.same.seed_spread import Axis, Spread, measure_spread
from cellrepro.same.verdicts import Judgement, Verdict, judge
from cellrepro.store.failures import KeptFailure
from cellrepro.store.manifest import mean_score
from cellrepro.store.store import Repeat, Run, Store
from cellrepro.words import amount, ppm_text, span

PLACES = ("device", "threads", "precision", "profile", "machine", "version")
"""Axes of where and how it was computed."""
OF_MACHINE = ("machine", "version", "place")
"""What names say of where a run was computed."""

_OUTCOMES = {
    Verdict.IDENTICAL: "came out bit-identical",
    Verdict.SAME_OBJECTS: "found the same objects under other numbers",
    Verdict.DIFFERENT: "came out different ({of_these} in the masks)",
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

    @property
    def verdict(self) -> str:
        """As a word."""
        return str(self.judgement.overall or "no verdict")

    @property
    def ap50(self) -> float | None:
        """The mean score of its repeats."""
        return mean_score(repeat.manifest.ap50 for repeat in self.repeats)


@dataclass(frozen=True)
class Failure:
    """A repeat that failed, and why."""

    place: str  # spec and machine
    repeat: int | str
    reason: str
    spec: Spec | None  # none where another version kept it


@dataclass(frozen=True)
class Chapter:
    """The runs of one task on one data set: only these are compared with each other."""

    store: Store
    task: str
    data: str
    images_digest: str
    every: list[Judged]
    failures: list[Failure]

    @property
    def title(self) -> str:
        """The data set and what was done with it."""
        return f"{self.data}: {value_in_words('task', self.task)}"

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
        fields = set(PARAMETERS) - {OBSERVING}
        others = [name for name in self.names.varying if name in fields]
        axes = list(dict.fromkeys(("repeats", *PLACES, *AXES, *others)))
        runs = [Run(one.spec, one.repeats) for one in self.every]
        return measure_spread(runs, axes=axes, names=self.names)

    @cached_property
    def clauses(self) -> list[str]:
        """The headline: how the runs came out, whether places differ, the score."""
        places = [axis for axis in self.spread.axes if axis.name in PLACES and axis.told]
        return [_outcomes(self), *map(_between, places), *_score(self)]


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
        parts = [f"{one.data}: {'; '.join(one.clauses)}" for one in self.chapters]
        if self.failures:
            parts.append(f"{amount(len(self.failures), 'repeat')} failed")
        return ". ".join(parts) + "."


def summarise(store: Store) -> Summary:
    """Read a store and compare what it holds; it is refused if it holds no finished run."""
    runs, failures = store.runs(), [_failure(kept) for kept in store.failures()]
    if not runs:
        raise BadInput(
            f"the store {store.root} holds no finished run, and {len(failures)} that failed; run "
            "`cellrepro train DATA` or `cellrepro grid FILE` first, or name another folder with "
            "--store"
        )
    by_data: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for run in runs:
        for machine in run.machines.values():
            repeats = tuple(machine.values())
            for repeat in repeats:
                repeat.refuse_damage()
            judgement = judge([repeat.manifest for repeat in repeats])
            one = Judged(place_of(repeats[0]), run.spec, repeats, judgement)
            by_data[run.spec.task, run.spec.images_digest].append(one)
    chapters = []
    for kind, every in by_data.items():
        failed = [f for f in failures if f.spec and (f.spec.task, f.spec.images_digest) == kind]
        chapter = Chapter(store, kind[0], every[0].spec.data, kind[1], every, failed)
        names = chapter.names
        every.sort(key=lambda one: names.order(one.place))
        chapters.append(chapter)
    chapters.sort(key=lambda one: (one.task != "train", one.data, one.images_digest))
    return Summary(chapters, failures)


def _failure(kept: KeptFailure) -> Failure:
    try:
        spec = Spec.model_validate(kept.spec)
    except ValidationError:  # kept by another version: listed, but in no table
        spec = None
    return Failure(f"{kept.key}/{kept.machine}", kept.repeat, kept.reason, spec)


# -- the headline --------------------------------------------------------------------------


def _outcomes(chapter: Chapter) -> str:
    verb = "trained" if chapter.task == "train" else "segmented"
    n, n_specs = len(chapter.results), chapter.n_specs
    head = f"{amount(n_specs, 'spec')} {verb} in {amount(len(chapter.repeats), 'run')}"
    if n > n_specs:
        head += f", judged machine by machine ({n} in all)"
    n_masks = sum(one.judgement.masks == Verdict.DIFFERENT for one in chapter.results)
    counts = Counter(one.judgement.overall for one in chapter.results)
    parts = [f"{counts[of]} {words}" for of, words in _OUTCOMES.items() if counts[of]]
    n_different = counts[Verdict.DIFFERENT]
    of_these = "all" if n_masks == n_different else str(n_masks) if n_masks else "none"
    if n_different == 1:
        of_these = "also" if n_masks else "not"
    return f"{head}: {', '.join(parts)}".format(of_these=of_these)


def _between(axis: Axis) -> str:
    """In how many comparisons along an axis the masks differ."""
    n_differing = len(axis.differing)
    over = amount(len(axis.told), "comparison")
    if not n_differing:
        return f"between {axis.title} the masks agree in {over}"
    by = ppm_text(axis.largest_ppm)
    if len(axis.told) == 1:
        return f"between {axis.title} the masks differ in the only comparison, by {by}"
    most = f"by {'up to ' if n_differing > 1 else ''}{by}"
    return f"between {axis.title} the masks differ in {n_differing} of {over}, {most}"


def _score(chapter: Chapter) -> list[str]:
    values = [r.manifest.ap50 for r in chapter.repeats if r.manifest.ap50 is not None]
    if not values:
        return []
    mean = sum(values) / len(values)
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    spread = "" if low == high else f" on average ({span(low, high)})"
    return [f"AP@0.5 against the ground truth is {mean:.3f}{spread}"]


# -- plain documents -----------------------------------------------------------------------


def run_documents(chapters: Sequence[Chapter]) -> list[dict[str, Any]]:
    """Every spec and machine, as described in `cellrepro.show.report.build.Report`."""
    return [
        {
            "key": one.spec.key,
            "machine": one.repeats[0].machine,
            "start": chapter.names.is_start(one.place),
            "spec": one.spec.model_dump(mode="json"),
            "repeats": [repeat.index for repeat in one.repeats],
            "verdict": one.judgement.overall,
            "weights": one.judgement.weights,
            "masks": one.judgement.masks,
            "reasons": list(one.judgement.reasons),
            "images": one.judgement.n_images,
            "ap50": one.ap50,
            "ap50_train": mean_score(repeat.manifest.ap50_train for repeat in one.repeats),
        }
        for chapter in chapters
        for one in chapter.every
    ]


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
