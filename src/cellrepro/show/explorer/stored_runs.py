"""Which stored runs and which of their images the explorer shows, and which of them first."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cellrepro.compare.names import Names, place_of
from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.show.explorer.planes import View
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.store import Repeat, Store

SharedImage = tuple[View, list[MaskRecord | None]]
"""An image, and what the manifests say of each repeat's masks."""


def stored_repeats(
    store: Store, runs: Sequence[str] = (), *, data: str | Path | None = None
) -> list[Repeat]:
    """The repeats that were named, or all that found objects in one set of images.

    Parameters
    ----------
    store : Store or path
    runs : sequence of str
        ``KEY/MACHINE/REPEAT``, or ``KEY`` for all its repeats.
    data : str or Path, optional
        A folder of images; by default the images that most repeats are over. A network that
        others of them were trained from is left out.
    """
    if runs:
        named: dict[str, Repeat] = {}
        for reference in runs:
            one = "/" in reference
            found = [store.find(reference)] if one else store.find_run(reference).repeats
            named |= {repeat.name: repeat for repeat in found}
        return list(named.values())
    groups: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in (repeat for run in store.runs() for repeat in run.repeats):
        if repeat.manifest.n_objects:
            groups[repeat.spec.data_digest].append(repeat)
    if data is None:
        found = max(groups.values(), key=len, default=[])
    else:
        found = groups[folder_digest(data, to_train=False)]
    names = Names(found)
    results = [repeat for repeat in found if not names.is_start(place_of(repeat))]
    return sorted(results, key=lambda repeat: (names.order(place_of(repeat)), repeat.index))


def shared_images(store: Store, shown: Sequence[Repeat]) -> list[SharedImage]:
    """Every image that two or more of the repeats segmented."""
    # One name can mean another image in another data set.
    keys = dict.fromkeys(
        (one.spec.data_digest, name) for one in shown for name in one.manifest.masks
    )
    several = len({digest for digest, _ in keys}) > 1
    images = []
    for digest, name in keys:
        records = [
            one.manifest.masks.get(name) if one.spec.data_digest == digest else None
            for one in shown
        ]
        view = View(
            f"{name} ({digest[:6]})" if several else name,
            [
                partial(one.masks, name) if record else None
                for one, record in zip(shown, records, strict=True)
            ],
            image=partial(store.image, digest, name),
            truth=partial(store.truth, digest, name),
            digests=[record.digest if record else None for record in records],
        )
        if len(view.having) > 1:
            images.append((view, records))
    if not images:
        raise BadInput(
            f"no two of the {len(shown)} repeats segmented the same image; name runs over the "
            "same folder of images"
        )
    return images


def first_shown(
    shown: Sequence[Repeat], images: Sequence[SharedImage], *, chosen: bool
) -> tuple[str, int, int]:
    """The image and the two repeats that are shown first; the first two where these are `chosen`.

    Repeats of one spec on one machine that differ come first, as they should not; then what differs
    by most objects. Manifests say that; no mask is read.
    """
    places = [place_of(one) for one in shown]
    pairs = [(0, 1)] if chosen else itertools.combinations(range(len(shown)), 2)
    best, first = (False, False, -1), (images[0][0].name, 0, 1)
    for (a, b), (view, records) in itertools.product(pairs, images):
        one, other = records[a], records[b]
        if one is not None and other is not None:
            differs = one.canonical_digest != other.canonical_digest
            n_more = abs(one.n_objects - other.n_objects)
            rank = (differs and places[a] == places[b], differs, n_more)
            if rank > best:
                best, first = rank, (view.name, a, b)
    return first
