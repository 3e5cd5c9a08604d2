"""What there is to say about a store: its runs in chapters, their names, pairs and differences.

Plain data, for a page or another listing: no HTML and no figures. Runs are compared within one
task and one data set; equal results are found by their digests first, so that only different masks
are read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from cellrepro.compare import spread
from cellrepro.compare.pairs import Pair
from cellrepro.compare.runs import Judgement, judge
from cellrepro.compare.spread import Axis, Spread
from cellrepro.compare.verdicts import Verdict
from cellrepro.control.determinism import MODES
from cellrepro.errors import BadInput
from cellrepro.record.digests import value_digest
from cellrepro.record.spec import PARAMETERS, Spec
from cellrepro.record.store import Repeat, Run, Store
from cellrepro.show.words import amount, ppm_text

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
    def spread(self) -> Spread:
        """How far the masks lie apart along every axis; reads those that differ, once."""
        return _spread(self)

    @property
    def axes(self) -> list[Axis]:
        """Along which the masks were compared."""
        return list(self.spread.axes)

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


def _spread(chapter: Chapter) -> Spread:
    """The runs along every axis, named as this chapter names them."""
    others = [name for name in chapter.names.varying if name not in (*AXES, *spread.AXES)]
    names = [*AXES, *(name for name in spread.AXES if name not in AXES), *others]
    measured = spread.measure([run for run, _ in chapter.runs], axes=names)
    return Spread(
        tuple(
            replace(axis, pairs=[_named(pair, chapter.names) for pair in axis.pairs])
            for axis in measured.axes
        )
    )


def _named(pair: Pair, names: Names) -> Pair:
    """A pair under the names of its chapter, which tell apart what only contents do."""
    keys = pair.spec_a.key, pair.spec_b.key
    context = names.short(keys[0]) if pair.axis == "repeats" else names.context(keys[0], pair.axis)
    if pair.axis not in PARAMETERS:
        return replace(pair, context=context)
    name_a, name_b = (said(pair.axis, names.facts[key][pair.axis]) for key in keys)
    return replace(pair, context=context, name_a=name_a, name_b=name_b)


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
    """What a chapter's headline is made of: how its runs came out; then profiles and score."""
    clauses = [_outcomes(chapter)]
    profiles = next((axis for axis in chapter.axes if axis.name == "profile"), None)
    if profiles is not None:
        clauses.append(_between_profiles(chapter, profiles))
    score = _score_clause(chapter)
    if score:
        clauses.append(score)
    return clauses


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
