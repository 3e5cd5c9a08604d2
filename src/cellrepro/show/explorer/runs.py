"""Stored runs in the explorer: any two or more of them, on any image they segmented.

A door like `cellrepro.lab.compare_results`: notebooks call it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.compare.names import Names, place_of
from cellrepro.errors import BadInput
from cellrepro.images.folder import folder_digest
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.store import Repeat, Run, Store

if TYPE_CHECKING:
    from cellrepro.show.explorer.widget import Explorer, View

Named = tuple[Run, Repeat]


def explore_runs(
    store: Store | str | Path,
    runs: Sequence[str] = (),
    *,
    data: str | Path | None = None,
    image: str = "",
    title: str = "",
    height: int = 512,
) -> Explorer:
    """Show stored runs in the explorer; masks are read when they are looked at.

    Parameters
    ----------
    store : Store or path
    runs : sequence of str
        ``KEY/MACHINE/REPEAT``, or ``KEY`` for all its repeats; the first two are shown first. By
        default every repeat over `data` but those that others of them were trained from, and first
        two whose masks differ.
    data : str or Path, optional
        A folder of images: only runs over it. By default the data that most repeats are over;
        not used where runs are named.
    image : str
        Which image is shown first; by default one on which the first two runs differ.
    title : str
        Shown above the picture.
    height : int
        Height of the picture on screen, in CSS pixels.

    Returns
    -------
    Explorer
        With the images of which two or more of the runs have masks.

    Raises
    ------
    BadInput
        If there are fewer than two repeats, or no two of them segmented the same image.
    """
    from cellrepro.show.explorer.widget import explore_views

    place = store if isinstance(store, Store) else Store(store)
    named = _named(place, runs) if runs else _over_one_data_set(place, data)
    if len(named) < 2:
        which = f"named by {', '.join(runs)}" if runs else f"over {data or 'the same images'}"
        raise BadInput(
            f"{place.root} has {len(named)} repeats {which}; the explorer compares two or more: "
            "name another one, or train again with `cellrepro train`"
        )
    names = Names.of((run.spec, repeat) for run, repeat in named)
    images = _images(place, named)
    first, a, b = _first(named, images, chosen=bool(runs))
    return explore_views(
        [each.view for each in images],
        [names.label(repeat) for _, repeat in named],
        image=image or first,
        a=a,
        b=b,
        title=title,
        height=height,
    )


def n_repeats(store: Store | str | Path, data: str | Path | None = None) -> int:
    """How many repeats `explore_runs` shows if none are named.

    Parameters
    ----------
    store : Store or path
    data : str or Path, optional
        As for `explore_runs`.

    Returns
    -------
    int
    """
    place = store if isinstance(store, Store) else Store(store)
    return len(_over_one_data_set(place, data))


def _named(store: Store, references: Sequence[str]) -> list[Named]:
    """The repeats that were named, each once, in that order."""
    found: dict[str, Named] = {}
    for reference in references:
        run = store.find_run(reference.partition("/")[0])
        for each in run.repeats if "/" not in reference else store.find(reference)[1:]:
            found.setdefault(each.name, (run, each))
    return list(found.values())


def _over_one_data_set(store: Store, data: str | Path | None) -> list[Named]:
    """The results that found objects in one set of images."""
    groups: dict[str, list[Named]] = {}
    for run in store.runs():
        for repeat in run.repeats:
            if repeat.manifest.n_objects:
                groups.setdefault(run.spec.data_digest, []).append((run, repeat))
    if data is not None:
        digest = folder_digest(data, need_masks=False, need_train=False).digest
        found = groups.get(digest, [])
    else:
        found = max(groups.values(), key=len, default=[])
    names = Names.of((run.spec, repeat) for run, repeat in found)
    results = [named for named in found if not names.is_start(place_of(named[1]))]
    return sorted(results, key=lambda named: (names.order(place_of(named[1])), named[1].index))


@dataclass(frozen=True, eq=False)
class _Image:
    """An image by its name on screen, and what the manifests say of each repeat's masks."""

    name: str
    view: View
    records: list[MaskRecord | None]


def _images(store: Store, named: Sequence[Named]) -> list[_Image]:
    """Every image that two or more of the repeats segmented."""
    from cellrepro.show.explorer.widget import View

    # One name can mean another image in another data set.
    keys = {
        (run.spec.data_digest, name): None for run, item in named for name in item.manifest.masks
    }
    several = len({digest for digest, _ in keys}) > 1
    images = []
    for digest, name in keys:
        records = [
            item.manifest.masks.get(name) if run.spec.data_digest == digest else None
            for run, item in named
        ]
        if len(records) - records.count(None) < 2:
            continue
        shown = f"{name} ({digest[:6]})" if several else name
        view = View(
            shown,
            [
                partial(item.masks, name) if record else None
                for (_, item), record in zip(named, records, strict=True)
            ],
            image=partial(store.image, digest, name),
            truth=partial(store.truth, digest, name),
            digests=[record.digest if record else None for record in records],
        )
        images.append(_Image(shown, view, records))
    if not images:
        raise BadInput(
            f"no two of the {len(named)} repeats segmented the same image; name runs over the "
            "same folder of images"
        )
    return images


def _first(
    named: Sequence[Named], images: Sequence[_Image], *, chosen: bool
) -> tuple[str, int, int]:
    """The image and the two repeats that are shown first.

    Repeats of one spec on one machine that differ come first, as they should not; then what differs
    by most objects. Manifests tell; no mask is read.
    """
    pairs = [(0, 1)] if chosen else itertools.combinations(range(len(named)), 2)
    best: tuple[tuple[bool, bool, int], tuple[str, int, int]] | None = None
    for a, b in pairs:
        one_spec = place_of(named[a][1]) == place_of(named[b][1])
        for image in images:
            record_a, record_b = image.records[a], image.records[b]
            if record_a is None or record_b is None:
                continue
            differs = record_a.canonical_digest != record_b.canonical_digest
            n_more = abs(record_a.n_objects - record_b.n_objects)
            telling = (differs and one_spec, differs, n_more)
            if best is None or telling > best[0]:
                best = telling, (image.name, a, b)
    return best[1] if best else (images[0].name, 0, 1)
