"""The stored runs that a notebook looks at when its reader names none.

Runs answer one *question* where they differ in nothing but seeds, profile and mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.comparison.mask_totals import totals_over
from cellrepro.comparison.place_fields import place_of, sort_key
from cellrepro.comparison.run_names import Names
from cellrepro.divergence.growth import has_checkpoints
from cellrepro.images.folder import folder_digest
from cellrepro.model.weight_sources import find_model
from cellrepro.spec.spec import Spec
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat, Run
from samebits.errors import BadInput
from samebits.words import amount, grouped

_QUESTION = (
    "task",
    "data_digest",
    "epochs",
    "batch_size",
    "learning_rate",
    "images_per_epoch",
    "loose",
)
"""With the model, the fields of a spec that are equal where only seeds, profile and mode differ."""
_CHANGES = ("mode", "profile", "seed", "data_seed", "machine", "version")
"""The facts that may differ between two networks of one question."""


def trained_on(store: Store, data: str | Path, *, with_loose: bool = False) -> list[Run]:
    """Get the stored trainings over a folder of images.

    Those with a loosened operation, which are made to show its effect, only if asked for.
    """
    runs = store.readable_runs(data_digest=folder_digest(data))
    return [
        run for run in runs if run.spec.task == "train" and (with_loose or run.spec.loose is None)
    ]


def beside(store: Store, repeat: Repeat) -> list[Run]:
    """Get the stored runs that did what a repeat did, training or segmenting, over its images."""
    runs = store.readable_runs(data_digest=repeat.spec.data_digest)
    return [run for run in runs if run.spec.task == repeat.spec.task]


def with_objects(runs: Iterable[Run]) -> list[Repeat]:
    """Get the repeats of some runs that found at least one object."""
    return [repeat for run in runs for repeat in run.repeats if repeat.manifest.n_objects]


def best_network(store: Store, data: str | Path) -> Repeat:
    """Get the network trained on a folder whose masks agree best with the ground truth."""
    candidates = with_objects(trained_on(store, data))
    trained = [repeat for repeat in candidates if not repeat.manifest.vacuous]
    if not trained:
        raise BadInput(
            f"the store {store.root} holds no network trained on {data} that finds objects; run "
            "01_seeded_training first, or name a model"
        )
    return max(trained, key=lambda repeat: repeat.manifest.ap50 or 0.0)


def largest_question(runs: Iterable[Run]) -> list[Run]:
    """Get the largest group of runs that differ only in seeds, profile and mode, sorted by seed."""
    groups: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        groups[question_of(run.spec)].append(run)
    most: list[Run] = max(groups.values(), key=len, default=[])

    def order(run: Run) -> tuple[object, ...]:
        spec = run.spec
        return sort_key("seed", spec.seed), spec.profile, spec.mode_in_words, run.key

    return sorted(most, key=order)


def same_question(store: Store, first: Repeat) -> list[Repeat]:
    """Get the repeats with objects of all runs like one, but for seeds, profile and mode."""
    question = question_of(first.spec)
    stored = with_objects(store.readable_runs())
    repeats = [repeat for repeat in stored if question_of(repeat.spec) == question]
    return sorted(repeats, key=lambda repeat: repeat.manifest.key != first.manifest.key)


def one_of_each_seed(repeats: Sequence[Repeat]) -> list[Repeat]:
    """Get the first repeat of each seed, so that near-copies have one vote; all, if of one seed."""
    first: dict[object, Repeat] = {}
    for repeat in repeats:
        first.setdefault((repeat.spec.seed, repeat.spec.data_seed), repeat)
    return list(first.values()) if len(first) > 1 else list(repeats)


def question_of(spec: Spec) -> tuple[object, ...]:
    """What is equal where only seeds, profile and mode differ."""
    parameters = {**dict(spec), **spec.parameters()}
    return (spec.model_digest or spec.model, *(parameters[name] for name in _QUESTION))


def against_truth(store: Store, repeat: Repeat) -> list[MaskComparison]:
    """Compare a repeat's masks with the ground truth, image by image, where there is one.

    The truth is the first side.
    """
    comparisons = []
    for name in repeat.manifest.masks:
        truth = store.truth(repeat.spec.images_digest, name)
        if truth is not None:
            comparisons.append(compare_masks(truth, repeat.masks(name)))
    return comparisons


def cells_found(store: Store, repeat: Repeat) -> str:
    """Say how many cells of the ground truth a repeat found; empty where there is no truth."""
    totals = totals_over(against_truth(store, repeat))
    if not totals.n_objects_a:
        return ""
    n_cells = amount(totals.n_objects_a, "cell")
    return f"{grouped(totals.n_matched)} of the {n_cells} of the ground truth"


def numbered_networks(
    store: Store, runs: Sequence[Run], alike: Sequence[Run]
) -> dict[int, list[Repeat]]:
    """Group the repeats of ``alike`` by equal weights, by their number in the table of ``runs``."""
    from cellrepro.show.report.section_equality import ResultNames
    from cellrepro.show.report.summary import chapters_of

    numbers = ResultNames.of(chapters_of(store, runs)).networks
    groups: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in (repeat for run in alike for repeat in run.repeats):
        if repeat.name in numbers:
            groups[numbers[repeat.name]].append(repeat)
    return dict(sorted(groups.items()))


def one_change_each(repeats: Sequence[Repeat]) -> list[Repeat]:
    """Get a repeat, and for each single fact the first repeat that differs from it in that alone.

    The one from which others differ in most facts, each alone. Where any two differ in several
    facts, the first two.
    """
    names = Names(repeats)
    facts = {repeat.name: names.values[place_of(repeat)] for repeat in repeats}

    def beside(base: Repeat) -> list[Repeat]:
        first_with: dict[frozenset[str], Repeat] = {}
        for repeat in repeats:
            values, of_base = facts[repeat.name], facts[base.name]
            changes = frozenset(name for name in _CHANGES if values[name] != of_base[name])
            if repeat is not base and len(changes) < 2:
                first_with.setdefault(changes, repeat)
        return [base, *first_with.values()]

    most = max(map(beside, repeats), key=len)
    return most if len(most) > 1 else list(repeats[:2])


def short_names(repeats: Sequence[Repeat]) -> list[str]:
    """Name each repeat by what tells it apart from the others, and nothing else."""
    names = Names(repeats)
    return [names.of_repeat(repeat) for repeat in repeats]


def diverging_pair(store: Store, data: str | Path) -> tuple[str, str] | None:
    """Name two repeats of a training with a ledger and checkpoints and with different weights.

    Both are of one machine. Of several such pairs one whose masks differ, too, and with the fewest
    steps. None where all are equal.
    """
    pairs = []
    for run in trained_on(store, data, with_loose=True):
        if run.spec.ledger == "off":
            continue
        for repeats in run.machines.values():
            first, *others = repeats.values()
            training = first.manifest.training
            differing = [
                repeat for repeat in others if repeat.manifest.weights != first.manifest.weights
            ]
            differing = [repeat for repeat in differing if has_checkpoints(repeat)]
            if training is not None and differing and has_checkpoints(first):
                pairs.append(_DivergingPair.of(first, differing, training.n_steps))
    best = min(pairs, default=None)
    return None if best is None else (best.a, best.b)


class _DivergingPair(NamedTuple):
    """Two repeats of a spec that came out differently; the least one tells most."""

    same_masks: bool
    n_steps: int
    a: str
    b: str

    @classmethod
    def of(cls, first: Repeat, differing: Sequence[Repeat], n_steps: int) -> _DivergingPair:
        masks = first.manifest.masks_digest
        other = next((one for one in differing if one.manifest.masks_digest != masks), differing[0])
        return cls(other.manifest.masks_digest == masks, n_steps, first.name, other.name)


def elsewhere(model: str, store: Store) -> str:
    """Turn a model reference into one for another store: a run becomes the path of its weights."""
    path = find_model(model, store).path
    return model if path is None else str(path.resolve())
