"""Which stored runs a notebook looks at when nobody names one."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cellrepro.cells.images import folder_digest
from cellrepro.cells.network import find_model
from cellrepro.errors import BadInput
from cellrepro.record.store import Repeat, Run, Store
from cellrepro.run import train

Named = tuple[Run, Repeat]

_HANDFUL: tuple[dict[str, Any], ...] = (
    {"repeats": 2},
    {"seed": 1},
    {"seed": 2},
    {"profile": "cpu-1thread"},
    {"mode": "fast"},
)
"""The fewest trainings that answer all: repeats, three seeds, another profile, another mode."""
_SHORT: dict[str, Any] = {"epochs": 3, "images_per_epoch": 8, "learning_rate": 0.01}
"""Seconds each, and steep enough that another seed moves cells of a network that finds them."""


def best_network(store: Store, data: str | Path) -> Repeat:
    """The trained network whose masks agree best with the ground truth of a folder.

    Parameters
    ----------
    store : Store
    data : str or Path
        The folder of images the network was trained on.

    Raises
    ------
    BadInput
        If the store holds none that finds objects.
    """
    trained = [
        repeat
        for run in trained_on(store, data)
        for repeat in run.repeats
        if not repeat.manifest.vacuous
    ]
    if not trained:
        raise BadInput(
            f"the store {store.root} holds no network trained on {data} that finds objects; run "
            "01_seeded_training first, or name a model"
        )
    return max(trained, key=lambda repeat: repeat.manifest.ap50 or 0.0)


def trained_on(store: Store, data: str | Path) -> list[Run]:
    """The stored trainings over a folder of images, known by their content."""
    digest = folder_digest(data).digest
    return [
        run for run in store.runs() if run.spec.data_digest == digest and run.spec.task == "train"
    ]


def some_runs(store: Store, data: str | Path, *, model: str = "tiny") -> list[Run]:
    """The stored trainings over a folder; where there are too few to compare, a handful is made.

    Parameters
    ----------
    store : Store
    data : str or Path
        The folder of images.
    model : str
        What to train from if there are fewer than two: ``tiny`` is taken further from the best
        network over this folder, which is trained first if there is none.

    Returns
    -------
    list of Run
    """
    if len(trained_on(store, data)) < 2:
        start, short = model, dict(_SHORT)
        if model == "tiny":
            if not trained_on(store, data):
                train(data, repeats=1, store=store.root)
            start = best_network(store, data).name
        else:
            del short["learning_rate"]  # a pretrained network has a default of its own
        for asked_for in _HANDFUL:
            train(data, model=start, store=store.root, **{"repeats": 1, **short, **asked_for})
    return trained_on(store, data)


def same_question(store: Store, data: str | Path, first: Run) -> list[Named]:
    """The repeats that were asked the same as a run: all but seeds, profile and mode alike.

    Parameters
    ----------
    store : Store
    data : str or Path
        The folder of images.
    first : Run

    Returns
    -------
    list of (Run, Repeat)
        Those that found objects, that run's own first.
    """
    found = [
        (run, repeat)
        for run in trained_on(store, data)
        if _question(run) == _question(first)
        for repeat in run.repeats
        if repeat.manifest.n_objects
    ]
    return sorted(found, key=lambda named: named[0].key != first.key)


def _question(run: Run) -> tuple:
    spec = run.spec
    return (
        spec.model_digest or spec.model,
        spec.epochs,
        spec.batch_size,
        spec.learning_rate,
        spec.images_per_epoch,
    )


def distinct_networks(runs: Sequence[Run]) -> list[list[Repeat]]:
    """The repeats of some trainings, grouped by equal weights, the largest group first."""
    groups: dict[str, list[Repeat]] = defaultdict(list)
    for run in runs:
        for repeat in run.repeats:
            if repeat.manifest.weights is not None:
                groups[repeat.manifest.weights.digest].append(repeat)
    return sorted(groups.values(), key=lambda members: (-len(members), members[0].name))


def asked(store: Store, repeat: Repeat) -> str:
    """What a repeat was asked for, in a few words."""
    spec = store.find(repeat.name)[0].spec
    return f"seed {spec.seed}, {spec.profile}, {spec.held} ({spec.epochs} epochs)"


def short_names(store: Store, repeats: Sequence[Repeat]) -> list[str]:
    """A name for each repeat: what tells it apart from the others, and which repeat it is."""
    found = [store.find(repeat.name)[0].spec for repeat in repeats]
    specs = [{**spec.model_dump(), "mode": spec.held} for spec in found]
    told = [
        name
        for name in ("data", "model", "seed", "data_seed", "epochs", "profile", "mode")
        if len({str(spec[name]) for spec in specs}) > 1
    ]
    return [
        ", ".join([*(_said(name, spec[name]) for name in told), f"repeat {repeat.index}"])
        for spec, repeat in zip(specs, repeats, strict=True)
    ]


def _said(name: str, value: object) -> str:
    return str(value) if name in ("profile", "mode", "data") else f"{name} {str(value)[:10]}"


def telling_pair(store: Store, data: str | Path) -> tuple[Named, Named]:
    """Two repeats over a folder of images whose masks differ, if there are any.

    Preferred are two that were asked for alike: repeats of one spec, then specs that differ in
    fewest fields. Where all masks are equal, two equal ones of different specs before repeats.

    Raises
    ------
    BadInput
        If the store does not hold two repeats over it that found objects.
    """
    digest = folder_digest(data, need_masks=False, need_train=False).digest
    named = [
        (run, repeat)
        for run in store.runs()
        if run.spec.data_digest == digest
        for repeat in run.repeats
        if repeat.manifest.n_objects
    ]
    pairs = list(itertools.combinations(named, 2))
    if not pairs:
        raise BadInput(
            f"the store {store.root} holds fewer than two runs over {data} that found objects; "
            "run 01_seeded_training with two profiles or seeds, or `make demo`"
        )
    return min(pairs, key=_how_telling)


def _how_telling(pair: tuple[Named, Named]) -> tuple[bool, bool, int, str]:
    (run_a, a), (run_b, b) = pair
    fields_a, fields_b = run_a.spec.model_dump(), run_b.spec.model_dump()
    n_asked_otherwise = sum(fields_a[name] != fields_b[name] for name in fields_a)
    equal = _outlines(a) == _outlines(b)
    return equal, equal and n_asked_otherwise == 0, n_asked_otherwise, a.name


def _outlines(repeat: Repeat) -> dict[str, str]:
    return {name: record.canonical_digest for name, record in repeat.manifest.masks.items()}


def parted_pair(store: Store, data: str | Path) -> tuple[str, str] | None:
    """Two repeats of one training over a folder that came out differently, or none.

    Preferred are those whose step in which they part can be gone through quickest: few steps.

    Parameters
    ----------
    store : Store
    data : str or Path
        The folder of images they were trained on.

    Returns
    -------
    tuple of str or None
        Two ``KEY/REPEAT``.
    """
    found = [
        (a.manifest.training.n_steps, a.name, b.name)
        for run in trained_on(store, data)
        if run.spec.ledger != "off"
        for a, b in itertools.combinations(run.repeats, 2)
        if a.manifest.weights is not None
        and b.manifest.weights is not None
        and a.manifest.training is not None
        and a.manifest.weights.digest != b.manifest.weights.digest
    ]
    return min(found)[1:] if found else None


def elsewhere(model: str, store: Store) -> str:
    """A model reference as it can be used with another store: a run's weights by their file.

    Parameters
    ----------
    model : str
        ``tiny``, a Cellpose model name, a weights file, or ``KEY/REPEAT`` of a stored run.
    store : Store
        That holds the run.

    Returns
    -------
    str
    """
    path = find_model(model, store).path
    return model if path is None else str(path.resolve())
