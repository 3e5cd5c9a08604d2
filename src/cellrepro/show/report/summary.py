"""The store as the report reads it: runs judged and put into chapters, and the headline.

Runs are compared within one task and one data set; of masks with equal digests none is read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from cellrepro.comparison.judgement import Judgement, judge
from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.place_fields import place_of, value_in_words
from cellrepro.comparison.run_names import Names
from cellrepro.comparison.seed_spread import Spread, measure_spread
from cellrepro.comparison.spread_axes import AXES, OBSERVING
from cellrepro.comparison.verdicts import Verdict
from cellrepro.show.shown_verdicts import SHOWN, VERDICT_SIGNS
from cellrepro.spec.spec import PARAMETERS, Spec
from cellrepro.store.manifest import mean_score
from cellrepro.store.references import TYPED_DIGITS
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat, Run
from cellrepro.store.unfinished import KeptFailure
from cellrepro.words import share_text, span
from samebits.errors import BadInput, without_number
from samebits.words import amount, some

PLACES = ("device", "threads", "precision", "profile", "machine", "version")
"""The axes of the spread that are about where and how runs were computed."""
OF_MACHINE = ("machine", "version", "place")
"""The facts in a run's name that are about its machine."""

_OUTCOMES = {verdict: shown.of_repeats for verdict, shown in SHOWN.items()}


def short_name(name: str) -> str:
    """The beginning of the key in a run's or repeat's name, without the machine.

    >>> short_name("5b6a96162fad0d15/amd-epyc-fd4e872e/1"), short_name("5b6a96162fad0d15")
    ('5b6a9616/1', '5b6a9616')
    """
    key, *place = name.split("/")
    return "/".join([key[:TYPED_DIGITS], *place[1:]])


@dataclass(frozen=True)
class JudgedSpec:
    """A spec on one machine: its repeats there, and how they came out."""

    place: str
    spec: Spec
    repeats: tuple[Repeat, ...]
    judgement: Judgement

    @property
    def verdict(self) -> str:
        """The verdict over its repeats, as a word."""
        return str(self.judgement.overall or "no verdict")

    @property
    def detail(self) -> str:
        """Which of weights and masks differ between its repeats; empty where none does."""
        is_equal = self.judgement.overall in (None, Verdict.IDENTICAL)
        return "" if is_equal else self.judgement.detail()

    @property
    def ap50(self) -> float | None:
        """The mean AP@0.5 of its repeats."""
        return mean_score(repeat.manifest.ap50 for repeat in self.repeats)


@dataclass(frozen=True)
class Failure:
    """A repeat that failed, and why."""

    place: str
    """``KEY/MACHINE``."""
    repeat: int | str
    reason: str
    spec: Spec | None
    """None where another version stored it."""

    @property
    def key(self) -> str:
        """The key of its spec."""
        return self.place.partition("/")[0]

    @property
    def machine(self) -> str:
        """The machine on which it failed."""
        return self.place.partition("/")[2]

    @property
    def label(self) -> str:
        """What was asked for."""
        return "of a different version" if self.spec is None else self.spec.label


@dataclass(frozen=True)
class Chapter:
    """The runs of one task on one data set: only these are compared with each other."""

    store: Store
    task: str
    data: str
    images_digest: str
    judged: list[JudgedSpec]
    """In the order of their names."""
    failures: list[Failure]

    @property
    def store_in_commands(self) -> str:
        """The store's own name: a report is sent, and does not say where on this computer it is."""
        return self.store.root.resolve().name

    @property
    def title(self) -> str:
        """The data set and the task."""
        return f"{self.data}: {value_in_words('task', self.task)}"

    @cached_property
    def results(self) -> list[JudgedSpec]:
        """All but the networks from which others were trained."""
        return [result for result in self.judged if not self.names.is_start(result.place)]

    @property
    def n_specs(self) -> int:
        """How many specs the results are of."""
        return len({result.spec.key for result in self.results})

    @property
    def repeats(self) -> list[Repeat]:
        """The repeats of all results."""
        return [repeat for result in self.results for repeat in result.repeats]

    @property
    def n_starting(self) -> int:
        """Runs of the networks from which others were trained."""
        return sum(len(judged.repeats) for judged in self.judged) - len(self.repeats)

    @cached_property
    def names(self) -> Names:
        """The short names of all specs, those that only failed among them."""
        failed = {
            failure.place: failure.spec for failure in self.failures if failure.spec is not None
        }
        repeats = (repeat for judged in self.judged for repeat in judged.repeats)
        return Names(repeats, failed)

    @cached_property
    def spread(self) -> Spread:
        """How far masks differ along every axis; only masks that differ are read, once."""
        fields = set(PARAMETERS) - {OBSERVING}
        further = [name for name in self.names.varying if name in fields]
        axes = list(dict.fromkeys(("repeats", *PLACES, *AXES, *further)))
        runs = [Run(judged.spec, judged.repeats) for judged in self.judged]
        return measure_spread(runs, axes=axes, names=self.names)

    @cached_property
    def clauses(self) -> list[str]:
        """The parts of the headline: outcomes, differences between places, the score."""
        places = [axis for axis in self.spread.axes if axis.name in PLACES and axis.not_vacuous]
        return [_outcomes(self), *map(_between, places), *_score(self)]


@dataclass(frozen=True)
class Outcome:
    """How some specs came out, or some repeats failed."""

    verdict: str
    n: int

    @property
    def said(self) -> str:
        """The number with what it is of, and the outcome."""
        if self.verdict == "failed":
            return f"{amount(self.n, 'repeat')} failed"
        if self.verdict == "no verdict":
            return f"{amount(self.n, 'spec')}: one repeat, nothing to compare"
        return f"{amount(self.n, 'spec')}: repeats {self.verdict}"


@dataclass(frozen=True)
class Summary:
    """The chapters of a store: trainings first, then by the name of the data set."""

    chapters: list[Chapter]
    failures: list[Failure]
    """All of them, also those of specs in no chapter."""
    left_out: dict[str, str]
    """Why damaged repeats or runs are left out, by ``KEY/MACHINE/REPEAT`` or ``KEY``."""

    @property
    def n_runs(self) -> int:
        """Runs that are compared."""
        return sum(len(chapter.repeats) for chapter in self.chapters)

    @property
    def n_specs(self) -> int:
        """Specs that these are of, each counted once on each machine."""
        return sum(len(chapter.results) for chapter in self.chapters)

    @property
    def n_single(self) -> int:
        """Specs with one repeat, of which there is no verdict."""
        return sum(len(each.repeats) == 1 for chapter in self.chapters for each in chapter.results)

    @property
    def is_counted_by_machine(self) -> bool:
        """Whether a spec counts several times."""
        return any(len(chapter.results) > chapter.n_specs for chapter in self.chapters)

    @property
    def n_starting(self) -> int:
        """Runs that are not compared, as others were trained from them."""
        return sum(chapter.n_starting for chapter in self.chapters)

    @property
    def outcomes(self) -> list[Outcome]:
        """How the specs of all chapters came out, each verdict with their number."""
        counts = Counter(result.verdict for chapter in self.chapters for result in chapter.results)
        if self.failures:
            counts["failed"] = len(self.failures)
        return [Outcome(verdict, counts[verdict]) for verdict in VERDICT_SIGNS if counts[verdict]]

    @property
    def sentence(self) -> str:
        """The headline."""
        parts = [f"{chapter.data}: {'; '.join(chapter.clauses)}" for chapter in self.chapters]
        if self.failures:
            parts.append(f"{amount(len(self.failures), 'run')} failed")
        if self.left_out:
            parts.append(f"Damaged, and left out: {some(list(self.left_out))}")
        return ". ".join(parts) + "."


def summarise(store: Store, damaged: Mapping[str, str]) -> Summary:
    """Read a store and compare what it holds."""
    left_out = dict(damaged)
    runs = _whole_runs(store, left_out)
    failures = [_failure(kept_failure) for kept_failure in store.failures()]
    if not runs and left_out:
        name, why = next(iter(left_out.items()))
        raise BadInput(
            f"no run of the store {store.root} is as it was stored; the first of "
            f"{amount(len(left_out), 'damaged one')} is {name}: {why}"
        )
    if not runs:
        failed = f", and {amount(len(failures), 'repeat')} that failed" if failures else ""
        raise BadInput(
            f"the store {store.root} holds no finished run{failed}; run "
            "`cellrepro train DATA` or `cellrepro grid FILE` first, or name another folder with "
            "--store"
        )
    return Summary(chapters_of(store, runs, failures), failures, left_out)


def chapters_of(
    store: Store, runs: Sequence[Run], failures: Sequence[Failure] = ()
) -> list[Chapter]:
    """Put runs into chapters: trainings first, then by the name of the data set."""
    chapters = [
        _chapter(store, task, digest, judged, failures)
        for (task, digest), judged in _judged_by_images(runs).items()
    ]
    return sorted(
        chapters, key=lambda chapter: (chapter.task != "train", chapter.data, chapter.images_digest)
    )


def damaged_repeats(store: Store) -> dict[str, str]:
    """Read all files of all repeats; get the reasons of those that are damaged."""
    damaged: dict[str, str] = {}
    for run in _whole_runs(store, damaged):
        for repeat in run.repeats:
            try:
                _read_all(repeat, store)
            except (BadInput, OSError) as error:
                damaged[repeat.folder_name] = without_number(error)
    return damaged


def _read_all(repeat: Repeat, store: Store) -> None:
    """Read masks, images and truths of a repeat, which raises if one is damaged."""
    digest = repeat.spec.images_digest
    for image in repeat.manifest.masks:
        repeat.masks(image)
        store.image(digest, image)
        store.truth(digest, image)


def _whole_runs(store: Store, left_out: dict[str, str]) -> list[Run]:
    """Get the runs of a store without damaged repeats, which are added to ``left_out``."""
    runs = []
    for run in store.readable_runs():
        whole = []
        for repeat in run.repeats:
            if repeat.folder_name in left_out:
                continue
            if repeat.why_damaged is None:
                whole.append(repeat)
            else:
                left_out[repeat.folder_name] = repeat.why_damaged
        if whole:
            runs.append(Run(run.spec, tuple(whole)))
    left_out |= store.passed_over
    return runs


def _judged_by_images(runs: Sequence[Run]) -> dict[tuple[str, str], list[JudgedSpec]]:
    """Judge every spec on every machine, by its task and the digest of its images."""
    judged: dict[tuple[str, str], list[JudgedSpec]] = defaultdict(list)
    for run in runs:
        for machine in run.machines.values():
            repeats = tuple(machine.values())
            judgement = judge([repeat.manifest for repeat in repeats])
            result = JudgedSpec(place_of(repeats[0]), run.spec, repeats, judgement)
            judged[run.spec.task, run.spec.images_digest].append(result)
    return judged


def _chapter(
    store: Store,
    task: str,
    images_digest: str,
    judged: list[JudgedSpec],
    failures: Sequence[Failure],
) -> Chapter:
    failed = [
        failure
        for failure in failures
        if failure.spec
        and failure.spec.task == task
        and failure.spec.images_digest == images_digest
    ]
    chapter = Chapter(store, task, judged[0].spec.data, images_digest, judged, failed)
    names = chapter.names
    judged.sort(key=lambda result: names.order(result.place))
    return chapter


def _failure(kept_failure: KeptFailure) -> Failure:
    try:
        spec = Spec.model_validate(kept_failure.spec)
    except ValidationError:  # a different version stored it: listed, but in no table
        spec = None
    place = f"{kept_failure.key}/{kept_failure.machine}"
    return Failure(place, kept_failure.repeat, kept_failure.reason, spec)


# -- the headline --------------------------------------------------------------------------


def _outcomes(chapter: Chapter) -> str:
    """Count how the repeats came out."""
    verb = "trained" if chapter.task == "train" else "segmented"
    n_results = len(chapter.results)
    specs = amount(chapter.n_specs, "spec")
    head = f"{specs} {verb} in {amount(len(chapter.repeats), 'repeat')}"
    if n_results > chapter.n_specs:
        head += f", judged machine by machine ({n_results} in all)"
    counts = Counter(result.judgement.overall for result in chapter.results)
    parts = [
        f"{_whose_repeats(counts[verdict], n_results)} {words}"
        for verdict, words in _OUTCOMES.items()
        if counts[verdict]
    ]
    if counts[None]:
        which = "each" if counts[None] == n_results else f"{counts[None]} of the specs"
        parts.append(f"{which} carried out once, with no repeat to compare with")
    n_masks = sum(result.judgement.masks == Verdict.DIFFERENT for result in chapter.results)
    of_these = _how_many(n_masks, counts[Verdict.DIFFERENT])
    return f"{head}: {', '.join(parts)}".format(of_these=of_these)


def _whose_repeats(n: int, n_all: int) -> str:
    """The repeats of some specs among all."""
    if n_all == 1:
        return "its repeats"
    return f"the repeats of {'all' if n == n_all else n}"


def _how_many(n: int, n_all: int) -> str:
    """Say of how many of all results something holds, in a word or a number."""
    if n_all == 1:
        return "also" if n else "not"
    if n == n_all:
        return "all"
    return f"{n} of them" if n else "none"


def _between(axis: Axis) -> str:
    """Say in how many comparisons along an axis the masks differ."""
    n_differing = len(axis.differing)
    comparisons = amount(len(axis.not_vacuous), "comparison")
    if not n_differing:
        return f"between {axis.title} the masks agree in {comparisons}"
    largest = f"{share_text(axis.largest_ppm / 1e6)} of the pixels"
    if len(axis.not_vacuous) == 1:
        return f"between {axis.title} the masks differ in 1 comparison, by {largest}"
    by = f"by {largest}"
    if n_differing > 1:
        by = f"at most by {largest} over all images"
    return f"between {axis.title} the masks differ in {n_differing} of {comparisons}, {by}"


def _score(chapter: Chapter) -> list[str]:
    """Say the mean score and its range; nothing without ground truth."""
    scores = [repeat.manifest.ap50 for repeat in chapter.repeats]
    values = [score for score in scores if score is not None]
    if not values:
        return []
    mean = sum(values) / len(values)
    low = f"{min(values):.3f}"
    high = f"{max(values):.3f}"
    spread = "" if low == high else f" on average ({span(low, high)})"
    return [f"AP@0.5 against the ground truth is {mean:.3f}{spread}"]
