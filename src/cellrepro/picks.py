"""Which stored runs a notebook looks at when nobody names one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from cellrepro.cells.images import folder_digest
from cellrepro.errors import BadInput
from cellrepro.record.store import Repeat, Run, Store

Named = tuple[Run, Repeat]


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
    digest = folder_digest(data).digest
    trained = [
        repeat
        for run in store.runs()
        if run.spec.data_digest == digest
        for repeat in run.repeats
        if repeat.weights is not None and not repeat.manifest.vacuous
    ]
    if not trained:
        raise BadInput(
            f"the store {store.root} holds no network trained on {data} that finds objects; run "
            "01_seeded_training first, or name a model"
        )
    return max(trained, key=lambda repeat: repeat.manifest.ap50 or 0.0)


def telling_pair(store: Store) -> tuple[Named, Named]:
    """Two repeats over the same images whose masks differ, if there are any.

    Preferred are two that were asked for alike: repeats of one spec, then specs that differ in
    fewest fields. Where all masks are equal, two equal ones of different specs before repeats.

    Raises
    ------
    BadInput
        If the store does not hold two repeats with objects over the same images.
    """
    by_data: dict[str, list[Named]] = defaultdict(list)
    for run in store.runs():
        for repeat in run.repeats:
            if any(record.n_objects for record in repeat.manifest.masks.values()):
                by_data[run.spec.data_digest].append((run, repeat))
    pairs = [
        (a, b) for named in by_data.values() for i, a in enumerate(named) for b in named[i + 1 :]
    ]
    if not pairs:
        raise BadInput(
            f"the store {store.root} holds fewer than two runs with objects over the same images; "
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
