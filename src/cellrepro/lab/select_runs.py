"""What a notebook looks at in a store: which runs when nobody names one, and what they found."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.compare.names import Names, place_of, sort_key
from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.lab.run import train
from cellrepro.model.network import SMALL, TINY, find_model
from cellrepro.store.spec import Spec
from cellrepro.store.store import Repeat, Run, Store
from cellrepro.text import joined

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
    digest = repeat.spec.data_digest
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
    names = Names(found)
    results = [one for one in found if not names.is_start(place_of(one))]
    pairs = list(combinations(results if len(results) > 1 else found, 2))
    ranks = [_how_telling(names, *pair) for pair in pairs]
    best = min(ranks)
    equal, last, _, kinds = best
    agree = sorted({alone[0] for *_, alone in ranks if len(alone) == 1 and alone[0] < last})
    why = joined([_KINDS[kind] for kind in kinds])
    why += " whose masks are equal, as all are" if equal else " whose masks differ"
    if agree and not equal:
        why += f"; the masks of {joined([_KINDS[kind] for kind in agree])} agree"
    return pairs[ranks.index(best)], f"{why}. Looked for in this order: {', '.join(_KINDS)}"


def _how_telling(names: Names, a: Repeat, b: Repeat) -> tuple[bool, int, int, list[int]]:
    """Sorts pairs: whether their masks are equal; of the `_KINDS` in which they differ the last; in
    how many fields they differ; all these kinds."""
    one, other = (names.facts[place_of(repeat)] for repeat in (a, b))
    changed = [_KIND_OF.get(name, _OTHERS) for name in one if one[name] != other[name]]
    kinds = sorted({*changed}) or [_REPEATS]
    masks = [[m.canonical_digest for m in x.manifest.masks.values()] for x in (a, b)]
    return masks[0] == masks[1], kinds[-1], len(changed), kinds


def diverging_pair(store: Store, data: str | Path) -> tuple[str, str] | None:
    """Two repeats of a training on one machine that came out differently, of the fewest steps."""
    found = [
        (a.manifest.training.n_steps, a.name, b.name)
        for run in _trained_on(store, data)
        if run.spec.ledger != "off"
        for repeats in run.machines.values()
        for a, b in combinations(repeats.values(), 2)
        if a.manifest.training is not None and a.manifest.weights != b.manifest.weights
    ]
    return min(found)[1:] if found else None


def elsewhere(model: str, store: Store) -> str:
    """A model reference as it can be used with another store: a run's weights by their file."""
    path = find_model(model, store).path
    return model if path is None else str(path.resolve())
