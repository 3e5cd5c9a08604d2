"""Stored runs in the explorer: which of them can be chosen, and which two are shown first."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.run_names import Names
from cellrepro.images.folder import folder_digest
from cellrepro.show.explorer.view import View
from cellrepro.show.explorer.widget import Explorer
from cellrepro.show.repeats_apart import PairOnImage, repeats_with_other_cells
from cellrepro.show.which_runs import question_of
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.errors import BadInput
from samebits.words import amount, grouped

MOST_RUNS = 200
"""How many stored repeats one can choose from, where none is named."""


def explore_runs(
    store: Store | str | Path,
    runs: Sequence[str] = (),
    *,
    data: str | Path | None = None,
    image: str = "",
    title: str = "",
    height: int = 512,
    still: bool = True,
) -> Explorer:
    """Show stored runs in the explorer; masks are read when they are looked at.

    Parameters
    ----------
    store, runs, data
        As for `stored_repeats`; the first two that are named are shown first, else two whose masks
        differ. Of more than `MOST_RUNS` repeats that nobody named as many can be chosen, and a
        note says so.
    image : str
        Which image is shown first; by default one on which the first two runs differ.
    title, height
        As for `explore`.
    still : bool
        Whether a notebook keeps a still picture below the explorer, for pages without a kernel.

    Returns
    -------
    Explorer

    Raises
    ------
    BadInput
        If there are fewer than two repeats, or no two of them segmented the same image.
    """
    store = store if isinstance(store, Store) else Store(store)
    repeats = stored_repeats(store, runs, data=data)
    if len(repeats) < 2:
        raise BadInput(
            f"{store.root} has {amount(len(repeats), 'repeat')} of "
            f"{', '.join(runs) or data or 'any images'}; "
            "the explorer compares two or more: name another one, or train again with "
            "`cellrepro train`"
        )
    images = _shared_images(store, repeats)
    first = _first_shown(repeats, images, only_first_two=bool(runs))
    listed = repeats
    notes = [*_missing_images(store, repeats)]
    n_poor = max(shared.view.n_repeats.count(0) for shared in images if shared.view.n_repeats)
    if n_poor:
        notes.append(
            f"What several results agree on leaves out {amount(n_poor, 'result')} of a score "
            "(AP@0.5) below half of the best"
        )
    if len(repeats) > MOST_RUNS and not runs:
        listed = _listed(repeats, first)
        images = _shared_images(store, listed)
        notes.append(
            f"{len(listed)} of the {grouped(len(repeats))} repeats can be chosen here, different "
            "masks before equal ones; name runs to look at others"
        )
    names = Names(listed)
    return Explorer(
        [shared.view for shared in images],
        [names.of_repeat(repeat) for repeat in listed],
        image=image or first.image,
        a=listed.index(first.a),
        b=listed.index(first.b),
        title=title,
        note=". ".join(notes),
        height=height,
        still=still,
    )


def _missing_images(store: Store, repeats: Sequence[Repeat]) -> Iterator[str]:
    """Say where the images should be that the store lacks, and what puts them there."""
    digests = {repeat.spec.images_digest for repeat in repeats}
    if not all(map(store.has_images, digests)):
        yield (
            f"Masks stand on black, as the folder {store.root / 'data'} lacks their images: copy "
            "it from where the store is whole, or train or segment once more over the images, as "
            "a new run keeps them"
        )


def stored_repeats(
    store: Store, runs: Sequence[str] = (), *, data: str | Path | None = None
) -> list[Repeat]:
    """Get the repeats that were named, or all that have objects in one set of images.

    Parameters
    ----------
    store : Store
    runs : sequence of str
        ``KEY/MACHINE/REPEAT``, or ``KEY`` for all its repeats.
    data : str or Path, optional
        A folder of images; by default the images that most repeats are over. A network that
        others of them were trained from is left out, and where there are others, so is a training
        of which one operation was left loose to show its effect.

    Returns
    -------
    list of Repeat
        Named ones in the order of ``runs``, others in the order of their names.

    Raises
    ------
    BadInput
        If a named run is not in the store, or ``data`` is no folder of images.
    """
    return _named_repeats(store, runs) if runs else _repeats_over(store, data)


def _named_repeats(store: Store, runs: Sequence[str]) -> list[Repeat]:
    repeats: dict[str, Repeat] = {}
    for reference in runs:
        of_run = () if "/" in reference else store.find_run(reference).repeats
        for repeat in of_run or [store.find(reference)]:
            repeats[repeat.name] = repeat
    return list(repeats.values())


def _repeats_over(store: Store, data: str | Path | None) -> list[Repeat]:
    """The repeats that segmented one set of images and have objects there."""
    by_images: dict[str, list[Repeat]] = defaultdict(list)
    for run in store.readable_runs():
        for repeat in run.repeats:
            if repeat.manifest.n_objects:
                by_images[repeat.spec.data_digest].append(repeat)
    if data is None:
        repeats = max(by_images.values(), key=len, default=[])
    else:
        repeats = by_images[folder_digest(data, to_train=False)]
    names = Names(repeats)
    results = [repeat for repeat in repeats if not names.is_start(place_of(repeat))]
    usual = [repeat for repeat in results if repeat.spec.loose is None]
    results = usual if len(usual) > 1 else results
    return sorted(results, key=lambda repeat: (names.order(place_of(repeat)), repeat.index))


@dataclass(frozen=True, eq=False)
class _SharedImage:
    """An image that two or more repeats segmented."""

    view: View
    records: list[MaskRecord | None]
    """The record of each repeat's masks; None for a repeat without masks of this image."""


def _shared_images(store: Store, repeats: Sequence[Repeat]) -> list[_SharedImage]:
    """Find every image that two or more of the repeats segmented."""
    # One name can mean another image in another data set.
    keys = dict.fromkeys(
        (repeat.spec.images_digest, name) for repeat in repeats for name in repeat.manifest.masks
    )
    has_several_data_sets = len({digest for digest, _ in keys}) > 1
    images = []
    for digest, name in keys:
        shared = _shared_image(store, repeats, digest, name, with_digest=has_several_data_sets)
        if len(shared.view.runs_with_masks) > 1:
            images.append(shared)
    if not images:
        raise BadInput(
            f"no two of the {len(repeats)} repeats segmented the same image; name runs over the "
            "same folder of images"
        )
    return images


def _shared_image(
    store: Store, repeats: Sequence[Repeat], digest: str, name: str, *, with_digest: bool
) -> _SharedImage:
    """Make the view of an image; its arrays are read from the store when they are shown."""
    records = [
        repeat.manifest.masks.get(name) if repeat.spec.images_digest == digest else None
        for repeat in repeats
    ]
    masks = [
        partial(repeat.masks, name) if record else None
        for repeat, record in zip(repeats, records, strict=True)
    ]
    has_truth = store.kept(digest, f"{name}_masks.tif").exists()
    view = View(
        f"{name} ({digest[:6]})" if with_digest else name,
        masks,
        image=partial(store.image, digest, name),
        truth=partial(store.truth, digest, name) if has_truth else None,
        digests=[record.digest if record else None for record in records],
        n_repeats=[int(not is_poor) for is_poor in _are_poor(records)],
    )
    return _SharedImage(view, records)


def _are_poor(results: Sequence[MaskRecord | _Result | None]) -> list[bool]:
    """Which masks score less than half of the best, so that they say nothing of a cell."""
    scores = [None if result is None else result.ap50 for result in results]
    best = max((score or 0.0 for score in scores), default=0.0)
    return [score is not None and score < best / 2 for score in scores]


# -- what is shown first -------------------------------------------------------------------


@dataclass(frozen=True)
class _Result:
    """The masks of one image by one of the repeats, as its manifest records them."""

    run: int
    """The position of the repeat in the list."""
    ap50: float | None
    """Against the ground truth."""
    place: str
    """Its spec and machine."""
    question: tuple[object, ...] | None
    """Of a training, as `question_of` gives it; None of other runs."""
    seed: int | None
    how: tuple[str, ...]
    """Mode and profile."""
    n_objects: int
    digest: str
    """Canonical: it does not depend on the numbers of objects."""


def _first_shown(
    repeats: Sequence[Repeat], images: Sequence[_SharedImage], *, only_first_two: bool
) -> PairOnImage:
    """Choose image and repeats.

    Repeats of one spec that found other cells come first, unless one of them is poor. Then, by the
    manifests, those whose numbers of objects differ: repeats of one spec on one machine before
    others, then trainings that answer one question, as two seeds of one starting network, those
    first that differ in their seed alone, or in mode and profile alone, then those that differ by
    most. Then those that differ in pixels alone. Where there is a ground truth, masks that agree
    with it far less than the best are no example.
    """
    places = [place_of(repeat) for repeat in repeats]
    questions = [_question_of_training(repeat) for repeat in repeats]
    if not only_first_two:
        apart = repeats_with_other_cells([repeats[run] for run in _good_runs(images)])
        if apart is not None:
            run = repeats.index(apart.a)
            record = apart.a.manifest.masks[apart.image]
            name = next(each.view.name for each in images if each.records[run] is record)
            return apart._replace(image=name)
    best = None
    first = PairOnImage(repeats[0], repeats[1], images[0].view.name)
    for number, shared in enumerate(images):
        results = [
            _Result(
                run,
                record.ap50,
                places[run],
                questions[run],
                repeats[run].spec.seed,
                (repeats[run].spec.mode, repeats[run].spec.profile),
                record.n_objects,
                record.canonical_digest,
            )
            for run, record in enumerate(shared.records)
            if record is not None and (run < 2 or not only_first_two)
        ]
        shown = results if only_first_two else _good(results)
        for a, b in _pairs_farthest_apart(shown):
            differs = a.digest != b.digest
            n_more = abs(a.n_objects - b.n_objects)
            is_repeated = a.place == b.place
            is_one_question = a.question is not None and a.question == b.question
            is_one_change = is_one_question and (a.seed == b.seed) != (a.how == b.how)
            rank = (
                n_more > 0,
                differs and is_repeated,
                is_one_question,
                is_one_change,
                differs,
                n_more,
            )
            earliest = (-a.run, -b.run, -number)
            if best is None or (rank, earliest) > best:
                best = (rank, earliest)
                first = PairOnImage(repeats[a.run], repeats[b.run], shared.view.name)
    return first


def _question_of_training(repeat: Repeat) -> tuple[object, ...] | None:
    return question_of(repeat.spec) if repeat.spec.task == "train" else None


def _good_runs(images: Sequence[_SharedImage]) -> list[int]:
    """The repeats that are poor on no image, by position."""
    are_poor = zip(*(_are_poor(shared.records) for shared in images), strict=True)
    return [run for run, on_images in enumerate(are_poor) if not any(on_images)]


def _good(results: Sequence[_Result]) -> Sequence[_Result]:
    """Leave out results that score less than half of the best; all where fewer than two remain."""
    poor = _are_poor(results)
    good = [result for result, is_poor in zip(results, poor, strict=True) if not is_poor]
    return good if len(good) > 1 else results


def _pairs_farthest_apart(results: Sequence[_Result]) -> Iterator[tuple[_Result, _Result]]:
    """Pair the two results that differ most, of all, of each spec, of each question, and of those
    of a question that have one seed, or one mode and profile.

    That is a handful of pairs; pairing each with each would be quadratic.
    """
    groups: dict[tuple[object, ...], list[_Result]] = defaultdict(list)
    for result in results:
        groups["place", result.place].append(result)
        if result.question is not None:
            groups["question", result.question].append(result)
            groups["seed", result.question, result.seed].append(result)
            groups["how", result.question, result.how].append(result)
    for group in (results, *groups.values()):
        if len(group) > 1:
            yield _farthest_apart(group)


def _farthest_apart(results: Sequence[_Result]) -> tuple[_Result, _Result]:
    """Pick the results with fewest and most objects; if all have as many, two that differ."""
    fewest = min(results, key=lambda result: result.n_objects)
    most = max(results, key=lambda result: result.n_objects)
    if fewest.n_objects < most.n_objects:
        return (fewest, most) if fewest.run < most.run else (most, fewest)
    first = results[0]
    different = (result for result in results if result.digest != first.digest)
    return first, next(different, results[1])


def _listed(repeats: Sequence[Repeat], first: PairOnImage) -> list[Repeat]:
    """Pick `MOST_RUNS` repeats to choose from, in their order.

    Those that are shown first are among them, then the first of each result, then others.
    """
    first_of_result: dict[tuple[str, ...], int] = {}
    for run, repeat in enumerate(repeats):
        masks = [record.canonical_digest for record in repeat.manifest.masks.values()]
        first_of_result.setdefault((repeat.spec.images_digest, *masks), run)
    of_first = (repeats.index(first.a), repeats.index(first.b))
    by_need = dict.fromkeys((*of_first, *first_of_result.values(), *range(len(repeats))))
    return [repeats[run] for run in sorted(itertools.islice(by_need, MOST_RUNS))]
