"""The cross-device report: one page over everything a store holds, for people.

The page reads the store and nothing else. Runs are compared within one task and one data set;
equal results are found by their digests first, so that only different masks and weights are read.
"""

from __future__ import annotations

import base64
import errno
import itertools
import math
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from cellrepro.compare.masks import MaskComparison, compare_masks
from cellrepro.compare.runs import Judgement, judge
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weights import Similarity, WeightsComparison, compare_weights, similarity
from cellrepro.control.determinism import MODES
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.record.digests import value_digest
from cellrepro.record.manifest import Manifest
from cellrepro.record.spec import Spec
from cellrepro.record.store import Repeat, Run, Store
from cellrepro.show import plots

NO_VERDICT = "no verdict"
"""Stands where a verdict would, for a spec that was carried out once."""

GLOSSARY = (
    ("spec", "what was asked for: data, model, seed, epochs, profile, mode"),
    ("repeat", "the same spec carried out again, in a process of its own"),
    ("profile", "device, threads and instruction set that a run was given"),
    ("fast", "the mode that fixes nothing but the seeds"),
    ("warn", "the mode that asks for deterministic operations and warns where there is none"),
    ("strict", "the mode that allows deterministic operations only"),
    ("bit-identical", "equal to the last binary digit; written “identical” in the tables"),
    ("same-objects", "the same outlines under other object numbers"),
    ("different", "at least one pixel or one parameter differs"),
    ("vacuous", "nothing was trained or found, so equality would prove nothing"),
    ("ppm", "parts per million: differing pixels among a million pixels"),
    ("AP@0.5", "average precision: objects found right, divided by all objects, found or true; "
     "right means that found and true overlap by half of their union or more"),
    ("lost, gained", "objects of the first masks without a match in the second, and the reverse; "
     "a match overlaps by half of the union or more"),
    ("L2 distance", "length of the difference between all weights of two networks"),
    ("digest", "a fingerprint of a file; equal digests mean equal content"),
)  # fmt: skip
"""Every word of the page that a biologist may not know, in one line each."""

_FIELDS = (
    "model",
    "seed",
    "data_seed",
    "epochs",
    "batch_size",
    "learning_rate",
    "images_per_epoch",
    "profile",
    "mode",
    "ledger",
)
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
_SINGULAR = {"repeats": "repeat", "profile": "profile", "mode": "mode"}
_AXES = ("repeats", "profile", "mode", "seed")
_WHAT, _WHY = "<what>", "<why>"
_OUTCOMES: dict[Verdict | None, str] = {
    Verdict.IDENTICAL: "{0} came out bit-identical",
    Verdict.SAME_OBJECTS: "{0} found the same objects under other numbers",
    Verdict.DIFFERENT: f"{{0}} came out different ({_WHAT})",
    Verdict.VACUOUS: f"{{0}} prove{{s}} nothing ({_WHY})",
    None: "{0} ran once, so there is nothing to compare",
}
_EQUAL = (Verdict.IDENTICAL, Verdict.SAME_OBJECTS)
_MOST_PAIRS = 150  # of runs along one axis
_MOST_PIXELS = 2e8  # compared along one axis: some 20 seconds
_MOST_NETWORKS = 24
_MOST_WORK = 1.5e9  # parameters compared for the similarity of all pairs: seconds, not hours
_MOST_WITH_TWO_DIGITS = 8
_MOST_OVERLAID = 4
_MOST_CURVES = 6
_MOST_LENGTHS = 2
_MOST_TENSORS = 12
_MOST_LINES = 80  # of a figure with a line per spec or repeat


@dataclass(frozen=True)
class Report:
    """The page that was written, and what it says in plain types.

    Attributes
    ----------
    html : Path
        The page.
    runs : list of dict
        Per spec ``key``, ``spec``, ``repeats`` (indices), ``verdict`` (None for one repeat),
        ``weights`` and ``masks`` (their verdicts), ``reasons``, ``images`` and ``ap50`` (mean
        average precision at IoU 0.5, or None).
    groups : list of dict
        Bit-equal results: ``{"weights": digest, "members": ["KEY/REPEAT", ...]}``, then the same
        with ``masks`` (one digest over all images, as numbered by Cellpose) and ``n_objects``.
    sentence : str
        The headline.
    """

    html: Path
    runs: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    sentence: str


def write_report(store: Store | str | Path, *, html: str | Path | None = None) -> Report:
    """Write the report over everything in a store as one self-contained HTML file.

    Parameters
    ----------
    store : Store, str or Path
        Only read, but for the report's own folder.
    html : str or Path, optional
        Where to write; ``report/index.html`` in the store by default. It appears whole or not
        at all.

    Returns
    -------
    Report

    Raises
    ------
    BadInput
        If the store holds no finished run, one of its files is missing or damaged, or the page
        cannot be written.
    NotPossibleHere
        If the disk is full.
    """
    store = store if isinstance(store, Store) else Store(store)
    runs, failures = store.runs(), _failures(store)
    _refuse_empty(store, runs, failures)
    chapters = _chapters(store, runs, failures)
    sentence = _sentence(chapters, failures)
    page = _page(store, chapters, failures, sentence)
    target = Path(html) if html is not None else store.root / "report" / "index.html"
    _write_whole(target, page)
    return Report(
        target,
        [_run_document(run, judgement) for chapter in chapters for run, judgement in chapter.runs],
        [group for chapter in chapters for group in _group_documents(chapter)],
        sentence,
    )


# -- what the store holds ------------------------------------------------------------------


@dataclass(frozen=True)
class _Failure:
    key: str
    repeat: int
    reason: str
    spec: Spec | None


def _failures(store: Store) -> list[_Failure]:
    found = []
    for record in store.failures():
        try:
            spec = Spec.model_validate(record.get("spec"))
        except ValidationError:  # kept by another version: listed, but in no table
            spec = None
        found.append(_Failure(record["key"], record["repeat"], record["reason"], spec))
    return found


def _refuse_empty(store: Store, runs: Sequence[Run], failures: Sequence[_Failure]) -> None:
    if runs:
        return
    failed = (
        f" ({_count(len(failures), 'repeat')} failed; the first: {failures[0].reason})"
        if failures
        else ""
    )
    raise BadInput(
        f"the store {store.root} holds no finished run{failed}, so there is nothing to report; "
        "expected one or more: run `cellrepro train DATA` or `cellrepro grid FILE` first, or name "
        "another folder with --store"
    )


@dataclass(frozen=True)
class _Chapter:
    """The runs of one task on one data set: only these are compared with each other."""

    store: Store
    task: str
    data: str
    data_digest: str
    runs: list[tuple[Run, Judgement]]
    failures: list[_Failure]

    @property
    def title(self) -> str:
        return f"{self.data}: {'trained' if self.task == 'train' else 'only segmented'}"

    @property
    def repeats(self) -> list[Repeat]:
        return [repeat for run, _ in self.runs for repeat in run.repeats]

    @property
    def n_images(self) -> int:
        return max(judgement.n_images for _, judgement in self.runs)

    @cached_property
    def names(self) -> _Names:
        specs = {run.key: run.spec for run, _ in self.runs}
        for failure in self.failures:
            if failure.spec is not None:
                specs.setdefault(failure.key, failure.spec)
        return _Names(specs)

    @cached_property
    def axes(self) -> list[_Axis]:
        return _axes(self)

    def label(self, repeat: Repeat) -> str:
        """What a repeat is called in pictures."""
        return f"{self.names.short(repeat.manifest.key)} #{repeat.index}"


def _chapters(store: Store, runs: Sequence[Run], failures: Sequence[_Failure]) -> list[_Chapter]:
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
        chapter = _Chapter(store, task, members[0].spec.data, digest, judged, failed)
        order = {run.key: chapter.names.order(run.key) for run in members}
        judged.sort(key=lambda pair: order[pair[0].key])
        chapters.append(chapter)
    return sorted(chapters, key=lambda c: (c.task != "train", c.data, c.data_digest))


class _Names:
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
                or getattr(spec, name)
                for name in _FIELDS
            }
            for key, spec in specs.items()
        }
        self.varying = [name for name in _FIELDS if len(self.values(name)) > 1]
        self.row_fields = self._row_fields()

    def values(self, name: str) -> list[Any]:
        """The different values of a field, in the order in which people expect them."""
        found = {facts[name] for facts in self.facts.values()}
        return sorted(found, key=lambda value: _order(name, value))

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
            *(_order(name, self.facts[key][name]) for name in (*self.row_fields, "profile")),
            _order("mode", self.facts[key]["mode"]),
            key,
        )

    def row(self, key: str) -> str:
        """Of the matrix of verdicts."""
        facts = self.facts[key]
        return ", ".join(_said(name, facts[name]) for name in self.row_fields or ["seed"])

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
        return ", ".join(_said(name, facts[name]) for name in fields if name != axis)


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


def _order(name: str, value: Any) -> tuple:
    if name == "mode":
        return (MODES.index(value),)
    return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))


def _said(name: str, value: Any) -> str:
    if name in ("profile", "mode"):
        return str(value)
    return f"{name.replace('_', ' ')} {'default' if value is None else value}"


# -- comparing runs ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
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
        return 1e6 * self.n_differing / self.n_pixels if self.n_pixels else 0.0


@dataclass(frozen=True)
class _Axis:
    """All pairs of runs that differ in one field only (or are repeats of one run)."""

    name: str
    pairs: list[_Pair]
    n_left_out: int

    @property
    def title(self) -> str:
        return _AXIS_NAMES[self.name]

    @property
    def differing(self) -> list[_Pair]:
        return [pair for pair in self.pairs if pair.verdict == Verdict.DIFFERENT]

    @property
    def largest_ppm(self) -> float:
        return max(pair.ppm for pair in self.pairs)

    @property
    def worst(self) -> _Pair:
        return max(self.pairs, key=lambda pair: pair.worst[1])


@dataclass
class _MaskPairs:
    """Compares the masks of repeats; each different pair of label images is read once."""

    known: dict[tuple[str, str, str], MaskComparison] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    n_compared: int = 0
    """Pixels so far."""

    def compare(self, a: Repeat, b: Repeat, *, context: str, name_a: str, name_b: str) -> _Pair:
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
        return _Pair(
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
            self.known[key] = compare_masks(_masks(a, image), _masks(b, image))
            self.n_compared += self.known[key].n_pixels
        return self.known[key], swapped

    def _size(self, image: str, repeat: Repeat) -> int:
        if image not in self.sizes:
            self.sizes[image] = _masks(repeat, image).size
        return self.sizes[image]


def _masks(repeat: Repeat, image: str) -> np.ndarray:
    try:
        return repeat.masks(image)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the masks of {image} in {repeat.folder} cannot be read ({error}); expected the file "
            f"{repeat.manifest.masks[image].file}: copy the store again, or remove that repeat's "
            "folder and run it again"
        ) from error


def _axes(chapter: _Chapter) -> list[_Axis]:
    """Every axis along which runs differ, with its pairs; repeats, profiles and modes first."""
    compared = _MaskPairs()
    names = [*_AXES, *(name for name in chapter.names.varying if name not in _AXES)]
    axes = []
    for name in names:
        chosen = _repeat_pairs(chapter) if name == "repeats" else _run_pairs(chapter, name)
        enough = compared.n_compared + _MOST_PIXELS
        pairs = []
        for context, name_a, a, name_b, b in chosen[:_MOST_PAIRS]:
            if compared.n_compared < enough:
                pairs.append(compared.compare(a, b, context=context, name_a=name_a, name_b=name_b))
        if pairs:
            axes.append(_Axis(name, pairs, len(chosen) - len(pairs)))
    return axes


def _repeat_pairs(chapter: _Chapter) -> list[tuple[str, str, Repeat, str, Repeat]]:
    """Repeats of one spec with different masks; one of each kind."""
    found = []
    for run, _ in chapter.runs:
        kinds: dict[str, Repeat] = {}
        for repeat in run.repeats:
            kinds.setdefault(_masks_digest(repeat.manifest), repeat)
        for a, b in itertools.combinations(kinds.values(), 2):
            labels = (f"repeat {a.index}", f"repeat {b.index}")
            found.append((chapter.names.short(run.key), labels[0], a, labels[1], b))
    return found


def _run_pairs(chapter: _Chapter, axis: str) -> list[tuple[str, str, Repeat, str, Repeat]]:
    """First repeats of runs that differ in one field only."""
    names = chapter.names
    contexts: dict[tuple, list[Run]] = defaultdict(list)
    for run, _ in chapter.runs:
        contexts[names.without(run.key, axis)].append(run)
    found = []
    for runs in contexts.values():
        runs = sorted(runs, key=lambda run: _order(axis, names.facts[run.key][axis]))
        for a, b in itertools.combinations(runs, 2):
            labels = [_said(axis, names.facts[run.key][axis]) for run in (a, b)]
            context = names.context(a.key, axis)
            found.append((context, labels[0], a.repeats[0], labels[1], b.repeats[0]))
    return found


def _masks_digest(manifest: Manifest) -> str:
    return value_digest({name: record.digest for name, record in manifest.masks.items()})


# -- the headline --------------------------------------------------------------------------


def _sentence(chapters: Sequence[_Chapter], failures: Sequence[_Failure]) -> str:
    parts = [
        (f"{chapter.data}: " if len(chapters) > 1 else "") + _chapter_sentence(chapter)
        for chapter in chapters
    ]
    if failures:
        parts.append(f"{_count(len(failures), 'repeat')} failed")
    return ". ".join(parts) + "."


def _chapter_sentence(chapter: _Chapter) -> str:
    clauses = [_outcomes(chapter)]
    profiles = next((axis for axis in chapter.axes if axis.name == "profile"), None)
    if profiles is not None:
        clauses.append(_between_profiles(chapter, profiles))
    score = _score_clause(chapter)
    if score:
        clauses.append(score)
    return "; ".join(clauses)


def _outcomes(chapter: _Chapter) -> str:
    n_repeats = sorted({judgement.n_repeats for _, judgement in chapter.runs})
    verb = "trained" if chapter.task == "train" else "segmented"
    n = len(chapter.runs)
    often = {(1,): "once", (2,): "twice", (1, 2): "once or twice"}.get(
        tuple(n_repeats),
        f"{n_repeats[0]} times"
        if len(n_repeats) == 1
        else f"{n_repeats[0]} to {n_repeats[-1]} times",
    )
    head = f"{_count(n, 'spec')} {'was' if n == 1 else 'were'} {verb} {often}"
    if n > 1 and n_repeats != [1]:
        head += " each"
    counts = Counter(judgement.overall for _, judgement in chapter.runs)
    if set(counts) == {None}:
        alone = "it has" if n == 1 else "they have"
        text = f"{head}, so {alone} no second repeat to be compared with"
        reasons = _reasons([judgement for _, judgement in chapter.runs])
        return f"{text} ({'; '.join(reasons)})" if reasons else text
    said = [
        text.format(_all(counts[verdict], n), s="s" if counts[verdict] == 1 else "")
        for verdict, text in _OUTCOMES.items()
        if counts[verdict]
    ]
    vacuous = [judgement for _, judgement in chapter.runs if judgement.overall == Verdict.VACUOUS]
    text = f"{head}: {', '.join(said)}".replace(_WHAT, _what_differs(chapter))
    return text.replace(_WHY, "; ".join(_reasons(vacuous)))


def _what_differs(chapter: _Chapter) -> str:
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


def _between_profiles(chapter: _Chapter, axis: _Axis) -> str:
    n = len(chapter.names.values("profile"))
    told = [pair for pair in axis.pairs if pair.verdict != Verdict.VACUOUS]
    between = f"between the {n} profiles"
    if not told:
        return f"{between} nothing can be compared, no objects were found"
    if axis.differing:
        return (
            f"{between} the masks differ in {len(axis.differing)} of "
            f"{_count(len(told), 'comparison')}, by up to {plots.ppm_text(axis.largest_ppm)}"
        )
    text = f"{between} all masks show the same objects ({_count(len(told), 'comparison')})"
    unequal = sum(pair.weights_equal is False for pair in axis.pairs)
    which = "all" if unequal == len(axis.pairs) > 1 else str(unequal)
    return f"{text}, but the weights differ in {which}" if unequal else text


def _score_clause(chapter: _Chapter) -> str:
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


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


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


def _group_documents(chapter: _Chapter) -> list[dict[str, Any]]:
    weights: dict[str, list[str]] = defaultdict(list)
    masks: dict[str, list[str]] = defaultdict(list)
    n_objects = {}
    for repeat in chapter.repeats:
        manifest = repeat.manifest
        if manifest.weights is not None:
            weights[manifest.weights.digest].append(repeat.name)
        digest = _masks_digest(manifest)
        masks[digest].append(repeat.name)
        n_objects[digest] = sum(record.n_objects for record in manifest.masks.values())
    return [{"weights": digest, "members": members} for digest, members in weights.items()] + [
        {"masks": digest, "members": members, "n_objects": n_objects[digest]}
        for digest, members in masks.items()
    ]


# -- the page ------------------------------------------------------------------------------


def _page(
    store: Store, chapters: Sequence[_Chapter], failures: Sequence[_Failure], sentence: str
) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from cellrepro import __version__

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    repeats = [(chapter, repeat) for chapter in chapters for repeat in chapter.repeats]
    return environment.get_template("report.html.j2").render(
        sentence=sentence,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        n_repeats=len(repeats),
        glossary=GLOSSARY,
        signs=plots.VERDICT_SIGNS,
        colours=plots.VERDICT_COLOURS,
        chapters=[_chapter_view(chapter, alone=len(chapters) == 1) for chapter in chapters],
        failures=_failure_rows(chapters, failures),
        warnings=_warning_rows(repeats),
        environment=_environment_view(repeats),
    )


def _chapter_view(chapter: _Chapter, *, alone: bool) -> dict[str, Any]:
    return {
        "title": "" if alone else chapter.title,
        "data": chapter.data,
        "data_digest": chapter.data_digest,
        "n_images": chapter.n_images,
        "part": chapter.repeats[0].manifest.data.segmented,
        "same": _said_of_all(chapter),
        "matrix": _matrix(chapter),
        "reasons": _reason_rows(chapter),
        "usual": ", ".join(_said(name, value) for name, value in chapter.names.usual.items()),
        "beside_seeds": _beside_seeds(chapter),
        "axes": [_axis_view(chapter, axis) for axis in chapter.axes],
        "n_runs": len(chapter.runs),
        "truth": _truth_view(chapter),
        "weights": _weights_view(chapter),
        "time": _time_view(chapter),
    }


def _said_of_all(chapter: _Chapter) -> str:
    """What every spec has in common, in one line."""
    names = chapter.names
    facts = next(iter(names.facts.values()))
    fields = [f for f in _FIELDS if f not in names.varying and f != "ledger"]
    if chapter.task == "segment":
        fields = [f for f in fields if f in ("model", "seed", "profile", "mode")]
    labels = {"profile": "profile ", "mode": "mode "}
    return ", ".join(labels.get(name, "") + _said(name, facts[name]) for name in fields)


def _matrix(chapter: _Chapter) -> dict[str, Any]:
    """Rows, columns and cells of the verdicts over repeats."""
    names = chapter.names
    keys = sorted(names.facts, key=names.order)
    columns = sorted(
        {names.column(key) for key in keys},
        key=lambda column: (_order("profile", column[0]), _order("mode", column[1])),
    )
    cells: dict[tuple[str, tuple[str, str]], list[dict[str, str]]] = defaultdict(list)
    judged = {run.key: judgement for run, judgement in chapter.runs}
    for key in keys:
        place = names.row(key), names.column(key)
        cells[place].append(_cell(key, judged.get(key), chapter.failures))
    profiles = [
        (name, len(list(group))) for name, group in itertools.groupby(c[0] for c in columns)
    ]
    rows = list(dict.fromkeys(names.row(key) for key in keys))
    return {
        "profiles": profiles,
        "columns": columns,
        "rows": [(row, [cells.get((row, column), []) for column in columns]) for row in rows],
    }


def _cell(key: str, judgement: Judgement | None, failures: Sequence[_Failure]) -> dict[str, str]:
    n_failed = sum(failure.key == key for failure in failures)
    failed = f"{_count(n_failed, 'repeat')} failed" if n_failed else ""
    if judgement is None:
        return {"key": key, "verdict": "failed", "over": failed, "detail": ""}
    return {
        "key": key,
        "verdict": str(judgement.overall or NO_VERDICT),
        "over": _count(judgement.n_repeats, "repeat")
        + f", {_count(judgement.n_images, 'image')}"
        + (f"; {failed}" if failed else ""),
        "detail": ""
        if judgement.overall in (None, Verdict.IDENTICAL) or judgement.weights is None
        else f"weights {judgement.weights}, masks {judgement.masks}",
    }


def _reason_rows(chapter: _Chapter) -> list[dict[str, str]]:
    """Why a run is vacuous, or why it has no verdict."""
    found: dict[str, list[str]] = defaultdict(list)
    for run, judgement in chapter.runs:
        for reason in judgement.reasons:
            found[reason].append(chapter.names.short(run.key))
    return [
        {"reason": reason, "runs": _which(members, len(chapter.runs), "run")}
        for reason, members in found.items()
    ]


def _which(members: Sequence[str], total: int, noun: str) -> str:
    if len(members) == total > 1:
        return f"all {total} {noun}s"
    shown = "; ".join(members[:6])
    return shown + (f"; and {len(members) - 6} more" if len(members) > 6 else "")


def _failure_rows(
    chapters: Sequence[_Chapter], failures: Sequence[_Failure]
) -> list[dict[str, Any]]:
    names = {failure.key: c.names.short(failure.key) for c in chapters for failure in c.failures}
    rows = []
    for failure in failures:
        name = names.get(failure.key)
        if name is None and failure.spec is not None:
            spec = failure.spec
            name = f"{spec.task} {spec.data}, {spec.profile}, {spec.mode}, seed {spec.seed}"
        rows.append(
            {
                "key": failure.key,
                "repeat": failure.repeat,
                "name": name or "",
                "reason": failure.reason,
            }
        )
    return rows


# Differences along an axis


def _beside_seeds(chapter: _Chapter) -> str:
    """Whether what profiles, modes and repeats do matters, beside what seeds do.

    Only pairs with objects on both sides count: a network that finds nothing is no yardstick.
    """
    largest = {}
    for axis in chapter.axes:
        told = [pair.ppm for pair in axis.pairs if _finds(pair.a) and _finds(pair.b)]
        if told and axis.name in _AXES:
            largest[axis.name] = max(told)
    seeds = largest.pop("seed", None)
    if seeds is None or not largest:
        return ""
    others = ", ".join(
        f"another {_SINGULAR[name]} {plots.ppm_text(ppm)}" for name, ppm in largest.items()
    )
    return f"Another seed changes up to {plots.ppm_text(seeds)} of the pixels; {others}."


def _finds(repeat: Repeat) -> bool:
    return any(record.n_objects for record in repeat.manifest.masks.values())


def _axis_view(chapter: _Chapter, axis: _Axis) -> dict[str, Any]:
    return {
        "title": axis.title,
        "summary": _axis_summary(axis),
        "left_out": axis.n_left_out,
        "rows": [] if axis.name == "repeats" else _axis_rows(axis),
        "pairs": axis.pairs,
        "picture": _worst_picture(chapter, axis),
        "ppm_text": plots.ppm_text,
    }


def _axis_summary(axis: _Axis) -> str:
    n = len(axis.pairs)
    n_vacuous = sum(pair.verdict == Verdict.VACUOUS for pair in axis.pairs)
    told = n - n_vacuous
    each = "each " if n > 1 else ""
    parts = [f"{_count(n, 'comparison')}, {each}over {_count(axis.pairs[0].n_images, 'image')}"]
    with_weights = [pair for pair in axis.pairs if pair.weights_equal is not None]
    if with_weights:
        n_equal = sum(bool(pair.weights_equal) for pair in with_weights)
        parts.append(f"the weights are bit-identical in {n_equal} of {len(with_weights)}")
    if told:
        text = f"the masks show the same objects in {told - len(axis.differing)} of {told}"
        if axis.differing:
            lost = max(pair.n_lost for pair in axis.pairs)
            gained = max(pair.n_gained for pair in axis.pairs)
            objects = f"with up to {_count(lost, 'object')} lost and {gained} gained"
            text += (
                f"; up to {plots.ppm_text(axis.largest_ppm)} of the pixels differ, "
                f"{objects if lost or gained else 'but no object is lost or gained'}"
            )
        parts.append(text)
    if n_vacuous:
        parts.append(f"{n_vacuous} found no objects on either side and prove nothing")
    return "; ".join(parts) + "."


def _axis_rows(axis: _Axis) -> list[dict[str, Any]]:
    """One row per pair of values, over all surroundings in which both occur."""
    by_names: dict[tuple[str, str], list[_Pair]] = defaultdict(list)
    for pair in axis.pairs:
        by_names[pair.name_a, pair.name_b].append(pair)
    rows = []
    for (name_a, name_b), pairs in by_names.items():
        told = [pair for pair in pairs if pair.verdict != Verdict.VACUOUS]
        weighed = [pair.weights_equal for pair in pairs if pair.weights_equal is not None]
        scores = [abs(a - b) for a, b in map(_scores_of, pairs) if a is not None and b is not None]
        rows.append(
            {
                "a": name_a,
                "b": name_b,
                "n": len(pairs),
                "verdict": str(combine(pair.verdict for pair in told)),
                "weights": f"{sum(weighed)} of {len(weighed)}" if weighed else "–",
                "masks": f"{sum(p.verdict in _EQUAL for p in told)} of {len(told)}"
                if told
                else "–",
                "ppm": plots.ppm_text(max(pair.ppm for pair in pairs)) if told else "–",
                "lost": max(pair.n_lost for pair in pairs) if told else "–",
                "gained": max(pair.n_gained for pair in pairs) if told else "–",
                "score": _score_text(max(scores)) if scores else "–",
            }
        )
    return rows


def _score_text(difference: float) -> str:
    return "0" if difference == 0 else f"{difference:.2g}"


def _scores_of(pair: _Pair) -> tuple[float | None, float | None]:
    return pair.a.manifest.ap50, pair.b.manifest.ap50


def _worst_picture(chapter: _Chapter, axis: _Axis) -> dict[str, str] | None:
    if axis.name not in _AXES or not axis.differing:
        return None
    pair = axis.worst
    image, ppm = pair.worst
    picture = plots.difference(
        chapter.store.image(chapter.data_digest, image),
        _masks(pair.a, image),
        _masks(pair.b, image),
        name_a=pair.name_a,
        name_b=pair.name_b,
    )
    where = f" ({pair.context})" if pair.context else ""
    return _figure(
        picture,
        alt=f"Masks of {image}: {pair.name_a}, {pair.name_b}, and a map of where they differ",
        caption=f"The image on which {axis.title} differ most: {image}, {pair.name_a} against "
        f"{pair.name_b}{where}. {plots.ppm_text(ppm)} of its pixels differ. Chosen from "
        f"{_count(len(axis.pairs), 'comparison')} over {_count(pair.n_images, 'image')} each. "
        "Where few pixels differ, they are drawn larger than they are.",
    )


# Ground truth


def _truth_view(chapter: _Chapter) -> dict[str, Any] | None:
    scored = [
        (run, repeat) for run, _ in chapter.runs for repeat in run.repeats
        if repeat.manifest.ap50 is not None
    ]  # fmt: skip
    if not scored:
        return None
    names = chapter.names
    with_mode = "mode" in names.varying
    rows = [
        (
            names.row(run.key) + (f", {names.facts[run.key]['mode']}" if with_mode else ""),
            names.facts[run.key]["profile"],
            float(repeat.manifest.ap50 or 0.0),
        )
        for run, repeat in scored
    ]
    lines = list(dict.fromkeys(row[0] for row in rows))[:_MOST_LINES]
    n_images = sum(r.ap50 is not None for r in scored[0][1].manifest.masks.values())
    per_image = [
        (record.ap50, name, repeat)
        for _, repeat in scored
        for name, record in repeat.manifest.masks.items()
        if record.ap50 is not None
    ]
    best = max(per_image, key=lambda entry: entry[0])
    worst = min(per_image, key=lambda entry: entry[0])
    over = f"of {_count(len(per_image), 'result')} (images times repeats)"
    chosen = [(f"The best by AP@0.5 {over}", best), (f"The worst by AP@0.5 {over}", worst)]
    if best[0] == worst[0]:
        chosen = [(f"All scores are equal; the first {over}", best)]
    return {
        "scores": _figure(
            plots.scores([row for row in rows if row[0] in lines]),
            alt="Average precision of every repeat, a point each",
            caption=f"AP@0.5 of {_count(len(rows), 'repeat')} of "
            f"{_count(len(chapter.runs), 'spec')}, each the mean over "
            f"{_count(n_images, 'image')} with ground truth.",
        ),
        "pictures": [
            _truth_picture(chapter, what, name, repeat) for what, (_, name, repeat) in chosen
        ],
    }


def _truth_picture(chapter: _Chapter, what: str, name: str, repeat: Repeat) -> dict[str, str]:
    _masks(repeat, name)  # says what to do if the file is gone
    return _figure(
        plots.masks_beside_truth(chapter.store, repeat, names=[name]),
        alt=f"{name}: the image, the ground truth and the objects found",
        caption=f"{what}: {name}, by {chapter.label(repeat)}.",
    )


# Weights


def _weights_view(chapter: _Chapter) -> dict[str, Any] | None:
    groups: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.weights is not None and repeat.weights is not None:
            groups[repeat.manifest.weights.digest].append(repeat)
    if not groups:
        return None
    n_missing = sum(r.manifest.weights is not None and r.weights is None for r in chapter.repeats)
    n_parameters = max(members[0].manifest.model.n_parameters for members in groups.values())
    numbers = {digest: number for number, digest in enumerate(groups, start=1)}
    names = {digest: _network_name(chapter, numbers[digest], groups[digest]) for digest in groups}
    chosen = _chosen_networks(groups, n_parameters)
    first = [groups[digest][0] for digest in chosen]
    view: dict[str, Any] = {
        "n": len(groups),
        "n_repeats": sum(len(members) for members in groups.values()),
        "n_missing": n_missing,
        "n_parameters": plots.grouped(n_parameters),
        "n_shown": len(chosen),
        "groups": [
            {
                "number": numbers[digest],
                "digest": digest,
                "members": [chapter.label(member) for member in members],
            }
            for digest, members in groups.items()
        ],
        "curves": _curves(chapter),
        "matrices": [],
        "pair": None,
        "distributions": None,
    }
    overlaid = list(range(min(len(chosen), _MOST_OVERLAID)))
    if len(chosen) > 1:
        table = similarity([_weights(repeat) for repeat in first], digests=chosen)
        view["matrices"] = _matrices(
            table,
            [names[digest] for digest in chosen],
            [str(numbers[digest]) for digest in chosen],
        )
        far = _most_distant(table)
        if far is not None:
            labels = [names[chosen[i]] for i in far]
            view["pair"] = _pair_view(_weights(first[far[0]]), _weights(first[far[1]]), labels)
            overlaid = [*far, *(i for i in overlaid if i not in far)][: len(overlaid)]
    overlaid.sort()
    view["distributions"] = _figure(
        plots.weight_distributions({names[chosen[i]]: _weights(first[i]) for i in overlaid}),
        alt="Histograms of the weights by part of the network",
        caption=f"How the weights of {len(overlaid)} of {_count(len(groups), 'different network')} "
        "are spread, by part of the network. Lines on top of each other are equal.",
    )
    return view


def _weights(repeat: Repeat) -> Path:
    assert repeat.weights is not None  # only such repeats are in a group
    return repeat.weights


def _network_name(chapter: _Chapter, number: int, members: Sequence[Repeat]) -> str:
    key = members[0].manifest.key
    own = next(run for run, _ in chapter.runs if run.key == key)
    alone = len({r.manifest.weights.digest for r in own.repeats if r.manifest.weights}) == 1
    name = chapter.names.short(key) if alone else chapter.label(members[0])
    n_others = len({member.manifest.key for member in members}) - 1
    return f"{number}: {name}" + (f" (and {_count(n_others, 'other spec')})" if n_others else "")


def _chosen_networks(groups: Mapping[str, Sequence[Repeat]], n_parameters: int) -> list[str]:
    """As many different networks as can be compared in seconds; one of each spec first."""
    most = _MOST_NETWORKS
    while most > 2 and most * (most - 1) / 2 * n_parameters > _MOST_WORK:
        most -= 1
    order: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for digest, members in groups.items():
        order[digest] = seen[members[0].manifest.key]
        seen[members[0].manifest.key] += 1
    kept = set(sorted(groups, key=lambda digest: order[digest])[:most])
    return [digest for digest in groups if digest in kept]


def _matrices(
    table: Similarity, labels: Sequence[str], columns: Sequence[str]
) -> list[dict[str, str]]:
    fmt = ".1e" if len(labels) <= _MOST_WITH_TWO_DIGITS else ".0e"
    over = f"{_count(len(labels), 'different network')}, every one against every other"
    kinds = (
        ("L2 distance", table.l2, "0 is equal."),
        (
            "1 − cosine similarity",
            np.where(np.isnan(table.cosine), np.nan, np.maximum(1 - table.cosine, 0)),
            "0 is the same direction; below 1e-15 it is rounding.",
        ),
        ("largest difference of one parameter", table.max_abs, "0 is equal."),
    )
    return [
        _figure(
            plots.similarity(matrix, labels, title=title, log=True, fmt=fmt, columns=columns),
            alt=f"Table of the {title} between networks",
            caption=f"{title[0].upper()}{title[1:]} of {over}. {note} Dark is close.",
        )
        for title, matrix, note in kinds
    ]


def _most_distant(table: Similarity) -> tuple[int, int] | None:
    distances = np.triu(np.nan_to_num(table.l2, nan=-1.0), 1)
    if distances.max() <= 0:
        return None
    a, b = np.unravel_index(int(distances.argmax()), distances.shape)
    return int(a), int(b)


def _pair_view(a: Path, b: Path, labels: Sequence[str]) -> dict[str, Any]:
    result = compare_weights(a, b)
    differing = sorted(
        (row for row in result.per_tensor if row.n_differing),
        key=lambda row: -math.inf if math.isnan(row.relative_l2) else -row.relative_l2,
    )
    return {
        "a": labels[0],
        "b": labels[1],
        "text": _pair_text(result),
        "rows": differing[:_MOST_TENSORS],
        "n_differing": len(differing),
        "picture": _figure(
            plots.parameter_differences(result, n=_MOST_TENSORS),
            alt="Bars: the tensors of two networks that differ most",
            caption=f"The two most distant networks, {labels[0]} and {labels[1]}: the tensors that "
            f"differ most, of {_count(result.n_tensors, 'tensor')}.",
        ),
    }


def _pair_text(result: WeightsComparison) -> str:
    return (
        f"{plots.grouped(result.n_differing)} of {plots.grouped(result.n_parameters)} parameters "
        f"differ ({result.n_differing / result.n_parameters:.1%}); L2 distance {result.l2:.3g} "
        f"(relative {result.relative_l2:.3g}), cosine {result.cosine:.9f}, largest difference "
        f"{result.max_abs:.3g} in {result.max_abs_name}."
    )


def _curves(chapter: _Chapter) -> list[dict[str, str]]:
    """Training losses, trainings of equal length together."""
    by_length: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.training is not None:
            by_length[len(repeat.manifest.training.train_losses)].append(repeat)
    most_first = sorted(by_length, key=lambda length: -len(by_length[length]))
    return [_curve(chapter, by_length[length]) for length in most_first[:_MOST_LENGTHS]]


def _curve(chapter: _Chapter, trained: Sequence[Repeat]) -> dict[str, str]:
    """As many repeats as make no more curves than can be told apart."""
    seen: set[str] = set()
    kept = []
    for repeat in trained:
        assert repeat.manifest.training is not None
        course = repeat.manifest.training.model_dump_json()
        if course in seen or len(seen) < _MOST_CURVES:
            seen.add(course)
            kept.append(repeat)
    left_out = len(trained) - len(kept)
    return _figure(
        plots.training_curves(kept, labels=[chapter.label(repeat) for repeat in kept]),
        alt="Training loss and learning rate of every epoch",
        caption=f"Loss and learning rate per epoch of {_count(len(kept), 'repeat')}. Repeats that "
        "agree to the last digit share one line."
        + (f" {_count(left_out, 'repeat')} with further curves left out." if left_out else ""),
    )


# Time


def _time_view(chapter: _Chapter) -> dict[str, Any]:
    rows = []
    for run, _ in chapter.runs:
        phases = dict.fromkeys(phase for r in run.repeats for phase in r.manifest.seconds)
        mean = {
            phase: sum(r.manifest.seconds.get(phase, 0.0) for r in run.repeats) / len(run.repeats)
            for phase in phases
        }
        rows.append((chapter.names.short(run.key), mean))
    n = len(chapter.repeats)
    pictures = [
        _figure(
            plots.times(rows[:_MOST_LINES]),
            alt="Seconds of every phase, a bar per spec",
            caption=f"Seconds per phase of {_first(len(rows), 'spec')}, the mean over its repeats "
            f"({_count(n, 'repeat')} in all). Runs that shared a machine slow each other down.",
        )
    ]
    if chapter.task == "segment":
        drawn = chapter.repeats[:_MOST_LINES]
        labels = [chapter.label(repeat) for repeat in drawn]
        pictures.append(
            _figure(
                plots.inference_times(drawn, labels=labels),
                alt="Seconds that each image took, a line of points per repeat",
                caption=f"Seconds to segment each of {_count(chapter.n_images, 'image')}, in "
                f"{_first(n, 'repeat')}.",
            )
        )
    return {"pictures": pictures}


def _first(n: int, noun: str) -> str:
    """How many of n lines are drawn."""
    return _count(n, noun) if n <= _MOST_LINES else f"the first {_MOST_LINES} of {n} {noun}s"


# Warnings and environment


def _warning_rows(repeats: Sequence[tuple[_Chapter, Repeat]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for chapter, repeat in repeats:
        for record in repeat.manifest.warnings:
            place = (record.message, record.category, _short_path(record.file), record.line)
            row = found.setdefault(place, {"count": 0, "phases": {}, "runs": {}})
            row["count"] += record.count
            row["phases"][record.phase] = None
            row["runs"][repeat.name] = chapter.label(repeat)
    rows = [
        {
            "message": message,
            "category": category,
            "where": f"{file}, line {line}",
            "count": row["count"],
            "phases": ", ".join(row["phases"]),
            "runs": _which(list(row["runs"].values()), len(repeats), "repeat"),
        }
        for (message, category, file, line), row in found.items()
    ]
    return sorted(rows, key=lambda row: -row["count"])


def _short_path(file: str) -> str:
    """A library's file as its users name it, whatever the machine."""
    parts = Path(file.replace("\\", "/")).parts
    if "site-packages" in parts:
        last = len(parts) - 1 - parts[::-1].index("site-packages")
        return "/".join(parts[last + 1 :])
    return "/".join(parts[-2:])


def _environment_view(repeats: Sequence[tuple[_Chapter, Repeat]]) -> dict[str, Any]:
    """What differs between the surroundings of the repeats, side by side, and what does not."""
    surroundings = [_surroundings(repeat.manifest) for _, repeat in repeats]
    fields = list(dict.fromkeys(name for one in surroundings for name in one))
    values = {name: [one.get(name, "–") for one in surroundings] for name in fields}
    differing = [name for name in fields if len(set(values[name])) > 1]
    members: dict[tuple[str, ...], list[tuple[_Chapter, Repeat]]] = defaultdict(list)
    for i, entry in enumerate(repeats):
        members[tuple(values[name][i] for name in differing)].append(entry)
    columns = [
        {
            "name": "; ".join(
                dict.fromkeys(_setting(repeat, chapter) for chapter, repeat in group)
            ),
            "n": len(group),
        }
        for group in members.values()
    ]
    return {
        "n": len(members),
        "columns": columns,
        "differing": [
            {"name": name, "values": [column[i] for column in members]}
            for i, name in enumerate(differing)
        ],
        "equal": [
            {"name": name, "value": values[name][0]} for name in fields if name not in differing
        ],
    }


def _setting(repeat: Repeat, chapter: _Chapter) -> str:
    return ", ".join(chapter.names.column(repeat.manifest.key))


def _surroundings(manifest: Manifest) -> dict[str, str]:
    host = dict(manifest.host)
    memory = host.pop("memory", None)
    if isinstance(memory, int):
        host["memory"] = f"{memory / 2**30:.1f} GiB"
    host["gpus"] = ", ".join(_gpu_text(gpu) for gpu in host.pop("gpus", ())) or "none"
    flat: dict[str, Any] = {
        "device": manifest.device,
        "threads": manifest.threads,
        "instruction set in use": manifest.cpu_capability,
        **{f"host: {name}": value for name, value in host.items()},
        **{f"switch: {name}": value for name, value in manifest.switches.items()},
        **{f"variable: {name}": value for name, value in manifest.variables.items()},
        **{f"version: {name}": value for name, value in manifest.versions.items()},
        **_libraries(manifest.numeric_libraries),
    }
    return {name: _plain(value) for name, value in flat.items()}


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    return f"{gpu.get('name')} ({gpu.get('memory', 0) / 2**30:.0f} GiB, driver {gpu.get('driver')})"


def _libraries(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Kernel type and threads of each numeric library, by name and version."""
    texts: dict[str, list[str]] = defaultdict(list)
    for one in found:
        name = one.get("internal_api") or one.get("user_api") or "unknown"
        version = f" {one['version']}" if one.get("version") else ""
        threads = f"{_count(one['num_threads'], 'thread')}" if one.get("num_threads") else ""
        parts = [part for part in (one.get("architecture"), threads) if part]
        texts[f"library: {name}{version}"].append(", ".join(parts) or "loaded")
    return {name: "; ".join(values) for name, values in texts.items()}


def _plain(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value) or "none"
    return str(value)


# -- files ---------------------------------------------------------------------------------


def _figure(picture: plots.Picture, *, alt: str, caption: str) -> dict[str, str]:
    with warnings.catch_warnings():
        # A file name in a script that the font lacks shows as boxes; the caption spells it out.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        content = base64.b64encode(picture.png(dpi=110)).decode("ascii")
    return {
        "source": f"data:image/png;base64,{content}",
        "alt": alt,
        "caption": caption,
        "width": str(round(picture.get_figwidth() * 100)),
    }


def _write_whole(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".report-") as scratch:
            part = Path(scratch, "index.html")
            part.write_text(text, encoding="utf-8")
            part.replace(target)  # same file system, so whole or absent
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NotPossibleHere(
                f"no space left for the report {target}: {error}; free some"
            ) from error
        raise BadInput(
            f"the report {target} cannot be written: {error}; expected a file in a folder you may "
            "write to"
        ) from error
