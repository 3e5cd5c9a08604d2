"""Which stored runs and which of their images the explorer shows, and which of them first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cellrepro.compare.names import Names, place_of
from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.show.explorer.planes import View
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.store import Repeat, Run, Store


@dataclass(frozen=True)
class Shown:
    """A stored repeat, and what it is called among the others."""

    run: Run
    repeat: Repeat
    label: str = ""


@dataclass(frozen=True, eq=False)
class SharedImage:
    """An image, and what the manifests say of each repeat's masks."""

    view: View
    records: list[MaskRecord | None]


def stored_repeats(
    store: Store, runs: Sequence[str] = (), *, data: str | Path | None = None
) -> list[Shown]:
    """The repeats that were named, or all that found objects in one set of images.

    Parameters
    ----------
    store : Store
    runs : sequence of str
        ``KEY/MACHINE/REPEAT``, or ``KEY`` for all its repeats.
    data : str or Path, optional
        A folder of images; by default the images that most repeats are over. A network that
        others of them were trained from is left out.

    Returns
    -------
    list of Shown
    """
    found = _named(store, runs) if runs else _over_one_data_set(store, data)
    names = Names(repeat for _, repeat in found)
    if not runs:
        found = [pair for pair in found if not names.is_start(place_of(pair[1]))]
        found.sort(key=lambda pair: (names.order(place_of(pair[1])), pair[1].index))
    return [Shown(run, repeat, names.label(repeat)) for run, repeat in found]


def _named(store: Store, references: Sequence[str]) -> list[tuple[Run, Repeat]]:
    """Each once, in that order."""
    found: dict[str, tuple[Run, Repeat]] = {}
    for reference in references:
        run = store.find_run(reference.partition("/")[0])
        for repeat in run.repeats if "/" not in reference else [store.find(reference)]:
            found.setdefault(repeat.name, (run, repeat))
    return list(found.values())


def _over_one_data_set(store: Store, data: str | Path | None) -> list[tuple[Run, Repeat]]:
    groups: dict[str, list[tuple[Run, Repeat]]] = {}
    for run in store.runs():
        for repeat in run.repeats:
            if repeat.manifest.n_objects:
                groups.setdefault(run.spec.data_digest, []).append((run, repeat))
    if data is None:
        return max(groups.values(), key=len, default=[])
    return groups.get(folder_digest(data, need_masks=False, need_train=False).digest, [])


def shared_images(store: Store, shown: Sequence[Shown]) -> list[SharedImage]:
    """Every image that two or more of the repeats segmented."""
    # One name can mean another image in another data set.
    keys = list(
        dict.fromkeys(
            (one.run.spec.data_digest, name) for one in shown for name in one.repeat.manifest.masks
        )
    )
    several = len({digest for digest, _ in keys}) > 1
    images = []
    for digest, name in keys:
        records = [
            one.repeat.manifest.masks.get(name) if one.run.spec.data_digest == digest else None
            for one in shown
        ]
        if len(records) - records.count(None) < 2:
            continue
        view = View(
            f"{name} ({digest[:6]})" if several else name,
            [
                partial(one.repeat.masks, name) if record else None
                for one, record in zip(shown, records, strict=True)
            ],
            image=partial(store.image, digest, name),
            truth=partial(store.truth, digest, name),
            digests=[record.digest if record else None for record in records],
        )
        images.append(SharedImage(view, records))
    if not images:
        raise BadInput(
            f"no two of the {len(shown)} repeats segmented the same image; name runs over the "
            "same folder of images"
        )
    return images


def first_shown(
    shown: Sequence[Shown], images: Sequence[SharedImage], *, chosen: bool
) -> tuple[str, int, int]:
    """The image and the two repeats that are shown first; the first two where these are `chosen`.

    Repeats of one spec on one machine that differ come first, as they should not; then what differs
    by most objects. Manifests say that; no mask is read.
    """
    places = [place_of(one.repeat) for one in shown]
    pairs = [(0, 1)] if chosen else list(itertools.combinations(range(len(shown)), 2))
    found: list[tuple[tuple[bool, bool, int], tuple[str, int, int]]] = []
    for (a, b), image in itertools.product(pairs, images):
        one, other = image.records[a], image.records[b]
        if one is not None and other is not None:
            differs = one.canonical_digest != other.canonical_digest
            n_more = abs(one.n_objects - other.n_objects)
            rank = (differs and places[a] == places[b], differs, n_more)
            found.append((rank, (image.view.name, a, b)))
    if not found:
        return images[0].view.name, 0, 1
    return max(found, key=lambda entry: entry[0])[1]
