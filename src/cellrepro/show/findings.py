"""What there is to say about a store: its runs in chapters, their names, pairs and differences.

Plain data, for a page or another listing: no HTML and no figures. Runs are compared within one
task and one data set; equal results are found by their digests first, so that only different masks
are read.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from cellrepro.compare.masks import MaskComparison, compare_masks
from cellrepro.compare.runs import Judgement, judge
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.control.determinism import MODES
from cellrepro.errors import BadInput
from cellrepro.record.digests import value_digest
from cellrepro.record.spec import PARAMETERS, Spec
from cellrepro.record.store import Repeat, Run, Store
from cellrepro.show.words import amount, ppm_text

_AXIS_NAMES = {
    "repeats": "repeats of one spec",
    "profile": "profiles",
    "mode": "modes",
    "seed": "seeds",
    "data_seed": "data seeds",
    "model": "models",
    "epochs": "numbers of epochs",
    "batch_size": "batch sizes",
    "learning_rate": "learning rates",
    "images_per_epoch": "images per epoch",
    "ledger": "ledgers",
}
AXES = ("repeats", "profile", "mode", "seed")
"""The axes that every chapter is looked at along; others follow where they vary."""
_WHAT, _WHY = "<what>", "<why>"
_OUTCOMES: dict[Verdict | None, str] = {
    Verdict.IDENTICAL: "{0} came out bit-identical",
    Verdict.SAME_OBJECTS: "{0} found the same objects under other numbers",
    Verdict.DIFFERENT: f"{{0}} came out different ({_WHAT})",
    Verdict.VACUOUS: f"{{0}} prove{{s}} nothing ({_WHY})",
    None: "{0} ran once, so there is nothing to compare",
}
_MOST_PAIRS = 150  # of runs along one axis
_MOST_PIXELS = 2e8  # compared along one axis: some 20 seconds


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
        Plain documents, as described in `cellrepro.show.report.Report`.
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
        [_run_document(run, judgement) for chapter in chapters for run, judgement in chapter.runs],
        [group for chapter in chapters for group in _group_documents(chapter)],
    )


# -- what the store holds ------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A repeat that failed, and why; its spec is None where another version kept it."""

    key: str
    repeat: int
    reason: str
    spec: Spec | None


def _failures(store: Store) -> list[Failure]:
    found = []
    for record in store.failures():
        try:
            spec = Spec.model_validate(record.get("spec"))
        except ValidationError:  # kept by another version: listed, but in no table
            spec = None
        found.append(Failure(record["key"], record["repeat"], record["reason"], spec))
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
    runs: list[tuple[Run, Judgement]]
    failures: list[Failure]

    @property
    def title(self) -> str:
        """The data set and what was done with it."""
        return f"{self.data}: {'trained' if self.task == 'train' else 'only segmented'}"

    @property
    def repeats(self) -> list[Repeat]:
        """Of all runs."""
        return [repeat for run, _ in self.runs for repeat in run.repeats]

    @property
    def n_images(self) -> int:
        """That a run segmented, at most."""
        return max(judgement.n_images for _, judgement in self.runs)

    @cached_property
    def names(self) -> Names:
        """Of all specs, also of those that only failed."""
        specs = {run.key: run.spec for run, _ in self.runs}
        for failure in self.failures:
            if failure.spec is not None:
                specs.setdefault(failure.key, failure.spec)
        return Names(specs)

    @cached_property
    def axes(self) -> list[Axis]:
        """Along which the masks were compared; reads those that differ, once."""
        return _axes(self)

    def label(self, repeat: Repeat) -> str:
        """What a repeat is called in pictures."""
        return f"{self.names.short(repeat.manifest.key)} #{repeat.index}"


def _chapters(store: Store, runs: Sequence[Run], failures: Sequence[Failure]) -> list[Chapter]:
    by_data: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        by_data[run.spec.task, run.spec.data_digest].append(run)
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
        order = {run.key: chapter.names.order(run.key) for run in members}
        judged.sort(key=lambda pair: order[pair[0].key])
        chapters.append(chapter)
    return sorted(chapters, key=lambda c: (c.task != "train", c.data, c.data_digest))


class Names:
    """What the specs of a chapter are called: by what varies among them, and nothing else."""

    def __init__(self, specs: Mapping[str, Spec]):
        profiles = _told_apart(
            {key: (spec.profile, spec.profile_settings) for key, spec in specs.items()}
        )
        models = _told_apart(
            {key: (_short_model(spec.model), spec.model_digest) for key, spec in specs.items()}
        )
        self.facts: dict[str, dict[str, Any]] = {
            key: {
                name: {"profile": profiles, "model": models}.get(name, {}).get(key)
                or getattr(spec, "held" if name == "mode" else name)
                for name in PARAMETERS
            }
            for key, spec in specs.items()
        }
        self.varying = [name for name in PARAMETERS if len(self.values(name)) > 1]
        self.row_fields = self._row_fields()

    def values(self, name: str) -> list[Any]:
        """The different values of a field, in the order in which people expect them."""
        found = {facts[name] for facts in self.facts.values()}
        return sorted(found, key=lambda value: sort_key(name, value))

    def _row_fields(self) -> list[str]:
        """Fields that name a row; one that follows from the others would only lengthen it."""
        first = ("profile", "mode", "seed")
        kept: list[str] = [name for name in first if name in self.varying]
        for name in self.varying:
            if name in kept:
                continue
            seen: dict[tuple, set] = defaultdict(set)
            for facts in self.facts.values():
                seen[tuple(facts[field] for field in kept)].add(facts[name])
            if any(len(values) > 1 for values in seen.values()):
                kept.append(name)
        return [name for name in kept if name not in ("profile", "mode")]

    def order(self, key: str) -> tuple:
        """Sorts specs as tables show them: by rows, then columns."""
        return (
            *(sort_key(name, self.facts[key][name]) for name in (*self.row_fields, "profile")),
            sort_key("mode", self.facts[key]["mode"]),
            key,
        )

    def row(self, key: str) -> str:
        """Of the matrix of verdicts."""
        facts = self.facts[key]
        return ", ".join(said(name, facts[name]) for name in self.row_fields or ["seed"])

    def column(self, key: str) -> tuple[str, str]:
        """Profile and mode."""
        return self.facts[key]["profile"], self.facts[key]["mode"]

    @cached_property
    def usual(self) -> dict[str, Any]:
        """Values that most specs share, by field; a short name does not mention them."""
        found = {}
        for name in self.row_fields:
            value, n = Counter(facts[name] for facts in self.facts.values()).most_common(1)[0]
            if name != "seed" and n > 2 * len(self.facts) / 3:
                found[name] = value
        return found

    def short(self, key: str) -> str:
        """A spec in a few words."""
        return self.context(key, "") or (key[:8] if len(self.facts) == 1 else "the usual spec")

    def without(self, key: str, axis: str) -> tuple:
        """Everything that was asked for, one field excepted."""
        return tuple(value for name, value in self.facts[key].items() if name != axis)

    def context(self, key: str, axis: str) -> str:
        """A spec in a few words, one field excepted."""
        facts = self.facts[key]
        fields: list[str] = [name for name in ("profile", "mode") if name in self.varying]
        fields += [n for n in self.row_fields if n not in self.usual or facts[n] != self.usual[n]]
        return ", ".join(said(name, facts[name]) for name in fields if name != axis)


def _told_apart(named: Mapping[str, tuple[str, Any]]) -> dict[str, str]:
    """Names by key, with a piece of a digest where one name stands for two contents."""
    contents: dict[str, set[str]] = defaultdict(set)
    for name, content in named.values():
        contents[name].add(value_digest(content))
    return {
        key: name if len(contents[name]) == 1 else f"{name} ({value_digest(content)[:6]})"
        for key, (name, content) in named.items()
    }


def _short_model(model: str) -> str:
    key, slash, index = model.partition("/")
    return f"{key[:8]}/{index}" if slash and len(key) >= 16 else model


def sort_key(name: str, value: Any) -> tuple:
    """Sorts the values of a field as people expect them."""
    if name == "mode":
        return MODES.index(value.partition(",")[0]), value
    return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))


def said(name: str, value: Any) -> str:
    """A field's value in words; profiles and modes speak for themselves."""
    if name in ("profile", "mode"):
        return str(value)
    return f"{name.replace('_', ' ')} {'default' if value is None else value}"


# -- comparing runs ------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two repeats of a chapter, compared over their images."""

    context: str
    name_a: str
    name_b: str
    a: Repeat
    b: Repeat
    weights_equal: bool | None
    verdict: Verdict
    n_images: int
    n_pixels: int
    n_differing: int
    n_lost: int
    n_gained: int
    worst: tuple[str, float]
    """The image with most differing pixels per million, and how many."""

    @property
    def ppm(self) -> float:
        """Differing pixels per million over all images; 0 over nothing."""
        return 1e6 * self.n_differing / self.n_pixels if self.n_pixels else 0.0


@dataclass(frozen=True)
class Axis:
    """All pairs of runs that differ in one field only (or are repeats of one run)."""

    name: str
    pairs: list[Pair]
    n_left_out: int

    @property
    def title(self) -> str:
        """What differs along it, in the plural."""
        return _AXIS_NAMES[self.name]

    @property
    def told(self) -> list[Pair]:
        """Pairs that found objects, so that their masks say something."""
        return [pair for pair in self.pairs if pair.verdict != Verdict.VACUOUS]

    @property
    def differing(self) -> list[Pair]:
        """Pairs whose masks differ."""
        return [pair for pair in self.pairs if pair.verdict == Verdict.DIFFERENT]

    @property
    def largest_ppm(self) -> float:
        """Differing pixels per million of the pair in which most differ."""
        return max(pair.ppm for pair in self.pairs)

    @property
    def worst(self) -> Pair:
        """The pair with the image in which most pixels differ."""
        return max(self.pairs, key=lambda pair: pair.worst[1])


@dataclass
class _MaskPairs:
    """Compares the masks of repeats; each different pair of label images is read once."""

    known: dict[tuple[str, str, str], MaskComparison] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    n_compared: int = 0
    """Pixels so far."""

    def compare(self, a: Repeat, b: Repeat, *, context: str, name_a: str, name_b: str) -> Pair:
        first, second = a.manifest, b.manifest
        images = [name for name in first.masks if name in second.masks]
        verdicts, n_pixels, n_differing, n_lost, n_gained = [], 0, 0, 0, 0
        worst = ("", -1.0)
        for image in images:
            one, other = first.masks[image], second.masks[image]
            ppm = 0.0
            if one.canonical_digest == other.canonical_digest:
                equal = Verdict.IDENTICAL if one.digest == other.digest else Verdict.SAME_OBJECTS
                verdicts.append(equal if one.n_objects else Verdict.VACUOUS)
            else:
                result, swapped = self._result(image, a, b)
                verdicts.append(result.verdict)
                n_differing += result.n_differing
                lost, gained = len(result.lost), len(result.gained)
                n_lost += gained if swapped else lost
                n_gained += lost if swapped else gained
                ppm = result.ppm
            n_pixels += self._size(image, a)
            worst = max(worst, (image, ppm), key=lambda entry: entry[1])
        told = [verdict for verdict in verdicts if verdict != Verdict.VACUOUS]
        return Pair(
            context=context,
            name_a=name_a,
            name_b=name_b,
            a=a,
            b=b,
            weights_equal=None
            if first.weights is None or second.weights is None
            else first.weights.digest == second.weights.digest,
            verdict=combine(told),
            n_images=len(images),
            n_pixels=n_pixels,
            n_differing=n_differing,
            n_lost=n_lost,
            n_gained=n_gained,
            worst=worst,
        )

    def _result(self, image: str, a: Repeat, b: Repeat) -> tuple[MaskComparison, bool]:
        digests = [repeat.manifest.masks[image].canonical_digest for repeat in (a, b)]
        swapped = digests[0] > digests[1]
        if swapped:
            a, b, digests = b, a, digests[::-1]
        key = (image, digests[0], digests[1])
        if key not in self.known:
            self.known[key] = compare_masks(a.masks(image), b.masks(image))
            self.n_compared += self.known[key].n_pixels
        return self.known[key], swapped

    def _size(self, image: str, repeat: Repeat) -> int:
        if image not in self.sizes:
            self.sizes[image] = repeat.masks(image).size
        return self.sizes[image]


def _axes(chapter: Chapter) -> list[Axis]:
    """Every axis along which runs differ, with its pairs; repeats, profiles and modes first."""
    compared = _MaskPairs()
    names = [*AXES, *(name for name in chapter.names.varying if name not in AXES)]
    axes = []
    for name in names:
        chosen = _repeat_pairs(chapter) if name == "repeats" else _run_pairs(chapter, name)
        enough = compared.n_compared + _MOST_PIXELS
        pairs = []
        for context, name_a, a, name_b, b in chosen[:_MOST_PAIRS]:
            if compared.n_compared < enough:
                pairs.append(compared.compare(a, b, context=context, name_a=name_a, name_b=name_b))
        if pairs:
            axes.append(Axis(name, pairs, len(chosen) - len(pairs)))
    return axes


def _repeat_pairs(chapter: Chapter) -> list[tuple[str, str, Repeat, str, Repeat]]:
    """Repeats of one spec with different masks; one of each kind."""
    found = []
    for run, _ in chapter.runs:
        kinds: dict[str, Repeat] = {}
        for repeat in run.repeats:
            kinds.setdefault(repeat.manifest.masks_digest, repeat)
        for a, b in itertools.combinations(kinds.values(), 2):
            labels = (f"repeat {a.index}", f"repeat {b.index}")
            found.append((chapter.names.short(run.key), labels[0], a, labels[1], b))
    return found


def _run_pairs(chapter: Chapter, axis: str) -> list[tuple[str, str, Repeat, str, Repeat]]:
    """First repeats of runs that differ in one field only."""
    names = chapter.names
    contexts: dict[tuple, list[Run]] = defaultdict(list)
    for run, _ in chapter.runs:
        contexts[names.without(run.key, axis)].append(run)
    found = []
    for runs in contexts.values():
        runs = sorted(runs, key=lambda run: sort_key(axis, names.facts[run.key][axis]))
        for a, b in itertools.combinations(runs, 2):
            labels = [said(axis, names.facts[run.key][axis]) for run in (a, b)]
            context = names.context(a.key, axis)
            found.append((context, labels[0], a.repeats[0], labels[1], b.repeats[0]))
    return found


# -- the headline --------------------------------------------------------------------------


def _sentence(chapters: Sequence[Chapter], failures: Sequence[Failure]) -> str:
    parts = [
        (f"{chapter.data}: " if len(chapters) > 1 else "") + _chapter_sentence(chapter)
        for chapter in chapters
    ]
    if failures:
        parts.append(f"{amount(len(failures), 'repeat')} failed")
    return ". ".join(parts) + "."


def _chapter_sentence(chapter: Chapter) -> str:
    clauses = [_outcomes(chapter)]
    profiles = next((axis for axis in chapter.axes if axis.name == "profile"), None)
    if profiles is not None:
        clauses.append(_between_profiles(chapter, profiles))
    score = _score_clause(chapter)
    if score:
        clauses.append(score)
    return "; ".join(clauses)


def _outcomes(chapter: Chapter) -> str:
    n_repeats = sorted({judgement.n_repeats for _, judgement in chapter.runs})
    verb = "trained" if chapter.task == "train" else "segmented"
    n = len(chapter.runs)
    often = {(1,): "once", (2,): "twice", (1, 2): "once or twice"}.get(
        tuple(n_repeats),
        f"{n_repeats[0]} times"
        if len(n_repeats) == 1
        else f"{n_repeats[0]} to {n_repeats[-1]} times",
    )
    head = f"{amount(n, 'spec')} {'was' if n == 1 else 'were'} {verb} {often}"
    if n > 1 and n_repeats != [1]:
        head += " each"
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


def _between_profiles(chapter: Chapter, axis: Axis) -> str:
    n = len(chapter.names.values("profile"))
    between = f"between the {n} profiles"
    if not axis.told:
        return f"{between} nothing can be compared, no objects were found"
    if axis.differing:
        return (
            f"{between} the masks differ in {len(axis.differing)} of "
            f"{amount(len(axis.told), 'comparison')}, by up to {ppm_text(axis.largest_ppm)}"
        )
    text = f"{between} all masks show the same objects ({amount(len(axis.told), 'comparison')})"
    unequal = sum(pair.weights_equal is False for pair in axis.pairs)
    which = "all" if unequal == len(axis.pairs) > 1 else str(unequal)
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


def _run_document(run: Run, judgement: Judgement) -> dict[str, Any]:
    scores = [r.manifest.ap50 for r in run.repeats if r.manifest.ap50 is not None]
    return {
        "key": run.key,
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
