"""What a notebook looks at in a store: which runs when nobody names one, and what they found."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from cellrepro.asked.spec import Spec
from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.model.network import SMALL, TINY, find_model
from cellrepro.run.train import train
from cellrepro.same.metrics import MaskComparison, compare_masks
from cellrepro.same.names import Names, place_of, sort_key
from cellrepro.store.store import Repeat, Run, Store
from cellrepro.words import joined

_START: dict[str, Any] = {"epochs": 6, "images_per_epoch": 32, "learning_rate": 0.01}
"""A tiny network that finds most cells of the synthetic images, in some ten seconds."""
_ONE_THREAD = {"profile": "cpu-1thread"}
_HANDFUL: Any = ({"repeats": 2}, {"seed": 1}, {"seed": 2}, _ONE_THREAD, {"mode": "fast"})
"""The fewest trainings to compare all: repeats, three seeds, another profile, another mode."""
_QUESTION = ("task", "data_digest", "epochs", "batch_size", "learning_rate", "images_per_epoch")
"""With the model: fields of a spec that are alike where only seeds, profile and mode differ."""
_CHANGES = ("mode", "profile", "seed", "data_seed", "machine", "version")


def _trained_on(store: Store, data: str | Path) -> list[Run]:
    """The stored trainings over a folder of images, known by their content."""
    wanted = "train", folder_digest(data)
    return [run for run in store.runs() if (run.spec.task, run.spec.data_digest) == wanted]


def best_network(store: Store, data: str | Path) -> Repeat:
    """The network trained on a folder whose masks agree best with the ground truth."""
    found = _with_objects(_trained_on(store, data))
    trained = [repeat for repeat in found if not repeat.manifest.vacuous]
    if not trained:
        raise BadInput(
            f"the store {store.root} holds no network trained on {data} that finds objects; run "
            "01_seeded_training first, or name a model"
        )
    return max(trained, key=lambda repeat: repeat.manifest.ap50 or 0.0)


def some_runs(store: Store, data: str | Path, *, model: str = TINY) -> list[Run]:
    """The stored trainings over a folder; where there are too few to compare, a handful is made.

    They start from ``model``; instead of a small one from the best network over this folder, which
    is trained first if there is none.
    """
    found = _trained_on(store, data)
    if len(found) > 1:
        return found
    common: dict[str, Any] = {"repeats": 1, "store": store.root}
    short = {**common, "epochs": 3, "images_per_epoch": 8}  # seconds each
    if model in SMALL:
        if not found:
            train(data, model=model, **common, **_START)
        model = best_network(store, data).name
        short["learning_rate"] = 0.01  # so steep that another seed changes cells
    for changes in _HANDFUL:
        train(data, model=model, **short | changes)
    return _trained_on(store, data)


def asked_alike(runs: Iterable[Run]) -> list[Run]:
    """The most runs with the same settings but for seeds, profile and mode, in their order."""
    groups: dict[tuple, list[Run]] = defaultdict(list)
    for run in runs:
        groups[_question(run.spec)].append(run)
    order = operator.attrgetter("spec.profile", "spec.held", "key")
    most: list[Run] = max(groups.values(), key=len, default=[])
    return sorted(most, key=lambda run: (sort_key("seed", run.spec.seed), *order(run)))


def same_question(store: Store, first: Repeat) -> list[Repeat]:
    """The repeats that found objects, of runs like one but for seeds, profile and mode."""
    question = _question(first.spec)
    found = [repeat for repeat in _with_objects(store.runs()) if _question(repeat.spec) == question]
    return sorted(found, key=lambda repeat: repeat.manifest.key != first.manifest.key)


def _question(spec: Spec) -> tuple:
    asked = {**dict(spec), **spec.asked}
    return (spec.model_digest or spec.model, *(asked[name] for name in _QUESTION))


def _with_objects(runs: Iterable[Run]) -> list[Repeat]:
    return [repeat for run in runs for repeat in run.repeats if repeat.manifest.n_objects]


def against_truth(store: Store, repeat: Repeat) -> list[MaskComparison]:
    """The ground truth beside a repeat's masks, image by image, where there is one."""
    digest = repeat.spec.images_digest
    truths = {name: store.truth(digest, name) for name in repeat.manifest.masks}
    known = {name: truth for name, truth in truths.items() if truth is not None}
    return [compare_masks(truth, repeat.masks(name)) for name, truth in known.items()]


def distinct_networks(runs: Sequence[Run]) -> list[list[Repeat]]:
    """The repeats of some trainings, grouped by equal weights, the largest group first."""
    groups: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in (repeat for run in runs for repeat in run.repeats):
        if repeat.manifest.weights is not None:
            groups[repeat.manifest.weights.digest].append(repeat)
    return sorted(groups.values(), key=len, reverse=True)


def one_change_each(repeats: Sequence[Repeat]) -> list[Repeat]:
    """The first repeat, then the first of each kind that differs from it in one thing alone.

    The first two where every other differs in several things.
    """
    names = Names(repeats)
    first, *others = ([names.facts[place_of(one)][name] for name in _CHANGES] for one in repeats)
    found: dict[tuple[bool, ...], Repeat] = {}
    for facts, repeat in zip(others, repeats[1:], strict=True):
        changed = tuple(a != b for a, b in zip(first, facts, strict=True))
        if sum(changed) < 2:
            found.setdefault(changed, repeat)
    return [repeats[0], *found.values()] if found else list(repeats[:2])


def short_names(repeats: Sequence[Repeat]) -> list[str]:
    """A name for each repeat: what tells it apart from the others, and nothing else."""
    names = Names(repeats)
    return [names.label(repeat) for repeat in repeats]


_KINDS = (
    *("two machines", "two profiles", "two modes", "two repeats of one spec", "other settings"),
    "two seeds",
)
"""What two runs that are compared may differ in, the most telling first."""
_MOST_FIELDS = 3
"""How many fields a pair may differ in and still be told apart from one that differs in more."""
_MACHINES, _PROFILES, _MODES, _REPEATS, _OTHERS, _SEEDS = range(len(_KINDS))
_KIND_OF = {
    **dict.fromkeys(("machine", "version", "place"), _MACHINES),
    **{"profile": _PROFILES, "mode": _MODES, "seed": _SEEDS, "data_seed": _SEEDS},
}


def telling_pair(store: Store, data: str | Path) -> tuple[tuple[Repeat, Repeat], str]:
    """Two repeats over a folder to compare where nobody names any, and why these.

    Masks that differ come before equal ones; then machines before profiles, and seeds last.
    """
    digest = folder_digest(data, to_train=False)
    found = [one for one in _with_objects(store.runs()) if one.spec.data_digest == digest]
    if len(found) < 2:
        raise BadInput(
            f"the store {store.root} holds fewer than two runs over {data} that found objects; "
            "run 01_seeded_training with two profiles or seeds, or `make demo`"
        )
    return telling_pair_of(found)


def telling_pair_of(found: Sequence[Repeat]) -> tuple[tuple[Repeat, Repeat], str]:
    """Of two or more repeats that found objects in the same images, as `telling_pair`."""
    names = Names(found)
    results = [one for one in found if not names.is_start(place_of(one))]
    candidates = [_Candidate.of(names, one) for one in (results if len(results) > 1 else found)]
    equal = len({one.masks for one in candidates}) == 1
    a, b = _most_telling(candidates, equal=equal)
    kinds = _kinds_between(a, b)
    why = joined([_KINDS[kind] for kind in kinds])
    why += " whose masks are equal, as all are" if equal else " whose masks differ"
    agree = [kind for kind in range(kinds[-1]) if _differ_in_one_kind(candidates, kind)]
    if agree and not equal:
        why += f"; the masks of {joined([_KINDS[kind] for kind in agree])} agree"
    return (a.repeat, b.repeat), f"{why}. Looked for in this order: {', '.join(_KINDS)}"


@dataclass(frozen=True)
class _Candidate:
    """A repeat that may be compared: what it is, field by field, and what it found."""

    repeat: Repeat
    facts: Mapping[str, Any]
    masks: tuple[str, ...]  # canonical digests

    @classmethod
    def of(cls, names: Names, repeat: Repeat) -> _Candidate:
        records = repeat.manifest.masks.values()
        masks = tuple(record.canonical_digest for record in records)
        return cls(repeat, names.facts[place_of(repeat)], masks)

    def values(self, fields: Iterable[str]) -> tuple[Any, ...]:
        return tuple(self.facts[field] for field in fields)


_Pair = tuple[_Candidate, _Candidate]


def _kind_of(field: str) -> int:
    return _KIND_OF.get(field, _OTHERS)


def _kinds_between(a: _Candidate, b: _Candidate) -> list[int]:
    """The `_KINDS` in which two differ, the most telling first."""
    changed = {_kind_of(field) for field in a.facts if a.facts[field] != b.facts[field]}
    return sorted(changed) or [_REPEATS]


def _varying(candidates: Sequence[_Candidate]) -> list[str]:
    fields = candidates[0].facts
    return [field for field in fields if len({one.facts[field] for one in candidates}) > 1]


def _most_telling(candidates: Sequence[_Candidate], *, equal: bool) -> _Pair:
    """Two that differ in their masks (where all are equal: in what they are), first in one of the
    most telling kinds, then in the fewest fields, then the earliest.

    What may differ is chosen before the pair, and candidates that share all the rest are one
    group: pairing each with each would take an hour over ten thousand.
    """
    varying = _varying(candidates)
    position = {id(one): number for number, one in enumerate(candidates)}
    for allowed in _allowed_differences(varying):
        shared = [[field for field in varying if field not in fields] for fields in allowed]
        found = [
            pair
            for rest, fields in zip(shared, allowed, strict=True)
            for group in _grouped(candidates, rest)
            if (pair := _first_apart(group, fields, equal=equal)) is not None
        ]
        if found:
            return min(found, key=lambda pair: [position[id(one)] for one in pair])
    raise AssertionError("any two may differ in all fields")  # the last that is allowed


def _allowed_differences(varying: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Fields in which two may differ: sets that are equally telling come together, and those of a
    kind before the next kind; at last, of each kind, all up to it."""
    for last in range(len(_KINDS)):
        if last == _REPEATS:
            yield [()]
        up_to = [field for field in varying if _kind_of(field) <= last]
        for n_fields in range(1, min(len(up_to), _MOST_FIELDS) + 1):
            by_kinds: dict[tuple[int, ...], list[tuple[str, ...]]] = defaultdict(list)
            for fields in combinations(up_to, n_fields):
                kinds = tuple(sorted({_kind_of(field) for field in fields}))
                if kinds[-1] == last:
                    by_kinds[kinds].append(fields)
            yield from (by_kinds[kinds] for kinds in sorted(by_kinds))
        if len(up_to) > _MOST_FIELDS:
            yield [tuple(up_to)]


def _grouped(
    candidates: Iterable[_Candidate], fields: Sequence[str]
) -> Collection[list[_Candidate]]:
    """Those that have the same values of some fields."""
    groups: dict[tuple[Any, ...], list[_Candidate]] = defaultdict(list)
    for one in candidates:
        groups[one.values(fields)].append(one)
    return groups.values()


def _first_apart(
    group: Sequence[_Candidate], fields: Sequence[str], *, equal: bool
) -> _Pair | None:
    """The first two of a group that differ in some of the fields, if there are any, and in masks
    unless all are equal."""

    def apart(a: _Candidate, b: _Candidate) -> bool:
        one_kind = not fields or a.values(fields) != b.values(fields)
        return a is not b and one_kind and (equal or a.masks != b.masks)

    first = group[0]
    others = [one for one in group if apart(first, one)]
    if others:
        return first, others[0]
    # All others share the fields' values with the first, or its masks: of each sort one is enough.
    alike = [one for one in group[1:] if one.values(fields) == first.values(fields)]
    elsewhere = [one for one in group[1:] if one.values(fields) != first.values(fields)]
    other_masks = next((one for one in alike if one.masks != first.masks), None)
    if other_masks is None or not elsewhere:
        return None
    a, b = sorted((other_masks, elsewhere[0]), key=group.index)
    return (a, b) if apart(a, b) else None


def _differ_in_one_kind(candidates: Sequence[_Candidate], kind: int) -> bool:
    """Whether two of them differ in this kind of field and in nothing else."""
    varying = _varying(candidates)
    fields = [field for field in varying if _kind_of(field) == kind]
    rest = [field for field in varying if field not in fields]
    groups = _grouped(candidates, rest)
    if kind == _REPEATS:
        return any(len(group) > 1 for group in groups)
    return any(len({one.values(fields) for one in group}) > 1 for group in groups)


def diverging_pair(store: Store, data: str | Path) -> tuple[str, str] | None:
    """Two repeats of a training on one machine that came out differently, of the fewest steps."""
    found = []
    for run in _trained_on(store, data):
        if run.spec.ledger == "off":
            continue
        for of_machine in run.machines.values():
            first, *others = of_machine.values()
            apart = (one for one in others if one.manifest.weights != first.manifest.weights)
            other = next(apart, None)
            if first.manifest.training is not None and other is not None:
                found.append((first.manifest.training.n_steps, first.name, other.name))
    return min(found)[1:] if found else None


def elsewhere(model: str, store: Store) -> str:
    """A model reference as it can be used with another store: a run's weights by their file."""
    path = find_model(model, store).path
    return model if path is None else str(path.resolve())
