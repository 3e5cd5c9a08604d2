"""Whatever a user names, concluded from: masks and images by their names, then the conclusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.run_names import Names
from cellrepro.conclusions.conclusions import Conclusions, conclusions_of
from cellrepro.conclusions.groups import GroupNames
from cellrepro.conclusions.measuring import ImageReader
from cellrepro.conclusions.over_runs import ConclusionsOverRuns, conclusions_over
from cellrepro.conclusions.readouts import ChosenReadout, OwnReadout, chosen_readouts
from cellrepro.explanation.compare_files import masks_of_both
from cellrepro.explanation.mask_files import MaskReaders, in_one_size
from cellrepro.explanation.references import file_or_run, masks_of, reference_kind
from cellrepro.images.folder_files import image_of_name
from cellrepro.images.image_file import image_of_masks, refuse_other_size
from cellrepro.images.label_image import label_image
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.store.stored_run import undamaged
from samebits.errors import BadInput
from samebits.words import joined, some

if TYPE_CHECKING:
    from cellrepro.store.stored_run import Repeat

MasksByImage = str | Path | Mapping[str, np.ndarray]
ImagesByName = str | Path | Mapping[str, np.ndarray]


def conclusion(
    a: MasksByImage,
    b: MasksByImage,
    images: ImagesByName | None = None,
    *,
    groups: GroupNames | str | Path,
    readouts: str | OwnReadout | Sequence[str | OwnReadout] = defaults.READOUTS,
    control: str | None = None,
    margin: float = defaults.MARGIN,
    pairs: str | None = None,
    store: str | Path = defaults.STORE,
) -> Conclusions:
    """Say whether the conclusion of an experiment is the same under two sets of masks.

    For each readout it gives the effect of the treatment under the masks of A and of B, each with
    its 95 % interval, their difference paired by image, and one of three words: the conclusion
    ``stands``, it ``changes``, or that is ``undecidable`` with so few images.

    Parameters
    ----------
    a, b : str, Path or mapping of str to ndarray
        A folder of masks, or a run of the store as ``KEY/REPEAT``; or label images by the name of
        their image, (Y, X) or (Z, Y, X), 0 for background.
    images : str, Path or mapping of str to ndarray, optional
        The folder of the images, or the images themselves; channels are the last axis. Only
        intensities need them, and those of two stored runs are in their store.
    groups : str, Path or mapping of str to str or float
        A CSV file with the columns ``image`` and ``group``, or the group of each image. Where all
        groups are numbers, and more than two, they are doses: a line is fitted, and the effect is
        from the lowest dose to the highest.
    readouts : str, function, or sequence of them
        Names as `cellrepro.compare` takes them for its ``readout``, in one text with commas between
        them or in a list. Or a function of your own, which takes the masks of an image, numbered
        from 1, and the image, (Y, X, C) or None, and returns one number, or one for each cell,
        of which the mean is taken.
    control : str, optional
        The group with which the others are compared: by default the one called control, untreated,
        wt or alike, else the first one; of numbers the lowest.
    margin : float
        The share of the control's mean under A by less than which two effects are the same.
    pairs : str, optional
        Which files of two folders belong together, as of `cellrepro.compare`.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    Conclusions
        Its ``str`` says of which readouts the conclusion stands; its ``images`` have what was
        measured of each image.

    Raises
    ------
    BadInput
        If something does not exist, is no table of groups, names no image with masks, or leaves no
        two groups; if a readout is none, or asks for an image that is missing.
    NeedsExtra
        If a readout of single cells is asked for, and scikit-image is not installed.

    Notes
    -----
    Images are the units, not cells: cells of one image are alike. Intervals are expanded percentile
    bootstrap intervals over images (Hesterberg 2015) from 10 000 resamples, the same ones for A, B
    and their difference, and in every process.
    """
    chosen = chosen_readouts(readouts)
    opened_store = Store(store)
    return conclusions_of(
        *_masks_of_both(a, b, opened_store, pairs),
        groups=groups,
        readouts=chosen,
        control=control,
        margin=margin,
        read_image=_image_reader(images, a, opened_store, chosen),
    )


def conclusion_over_runs(
    runs: Mapping[str, MasksByImage] | Sequence[str | Path] | None = None,
    images: ImagesByName | None = None,
    *,
    groups: GroupNames | str | Path,
    readouts: str | OwnReadout | Sequence[str | OwnReadout] = defaults.READOUTS,
    reference: str | None = None,
    control: str | None = None,
    margin: float = defaults.MARGIN,
    store: str | Path = defaults.STORE,
) -> ConclusionsOverRuns:
    """Give the effect under the masks of every run, and say in how many the conclusion stands.

    Each run is compared with a reference as `conclusion` does it: over seeds, devices, versions,
    modes or settings, whatever the runs differ in.

    Parameters
    ----------
    runs : mapping or sequence, optional
        Folders of masks, or runs of the store as ``KEY/REPEAT``; or by name folders, runs, or label
        images by the name of their image. By default the runs of the store over the images that
        most of its runs have, the first repeat on each machine.
    images : str, Path or mapping of str to ndarray, optional
        As of `conclusion`.
    groups : str, Path or mapping of str to str or float
        As of `conclusion`.
    readouts : str, function, or sequence of them
        As of `conclusion`.
    reference : str, optional
        The name of the run with which the others are compared; by default the first one.
    control : str, optional
        As of `conclusion`.
    margin : float
        As of `conclusion`.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    ConclusionsOverRuns
        Its ``stands`` have the share of runs; `cellrepro.show.effects_of_runs` draws it.

    Raises
    ------
    BadInput
        As of `conclusion`, and if there are fewer than two runs.
    NeedsExtra
        If a readout of single cells is asked for, and scikit-image is not installed.
    """
    chosen = chosen_readouts(readouts)
    opened_store = Store(store)
    if runs is None:
        named: Mapping[str, MasksByImage] = _runs_alike(opened_store)
    elif isinstance(runs, Mapping):
        named = runs
    else:
        named = {str(run): run for run in runs}
    masks = {name: _masks(run, name, opened_store) for name, run in named.items()}
    return conclusions_over(
        masks,
        groups=groups,
        readouts=chosen,
        reference=reference,
        control=control,
        margin=margin,
        read_image=_image_reader(images, next(iter(named.values()), ""), opened_store, chosen),
    )


def _runs_alike(store: Store) -> dict[str, MasksByImage]:
    """The first repeat of each spec and machine over the images of most of them, by short names."""
    repeats: dict[str, Repeat] = {}
    for run in store.readable_runs():
        for repeat in undamaged(run.repeats):
            repeats.setdefault(place_of(repeat), repeat)
    counts = Counter(repeat.spec.images_digest for repeat in repeats.values())
    if not counts:
        raise BadInput(f"the store {store.root} holds no finished run; name runs, or another store")
    (digest, _), *_ = counts.most_common(1)
    alike = [repeat for repeat in repeats.values() if repeat.spec.images_digest == digest]
    names = Names(alike)
    shown = [repeat for repeat in alike if not names.is_start(place_of(repeat))]
    shown.sort(key=lambda repeat: names.order(place_of(repeat)))
    return {names.of_repeat(repeat): repeat.name for repeat in shown}


def _image_reader(
    images: ImagesByName | None,
    run: MasksByImage,
    store: Store,
    readouts: Sequence[ChosenReadout],
) -> ImageReader | None:
    """Give what reads the images, where a readout may look at them."""
    if images is not None and any(readout.may_need_image for readout in readouts):
        return _given_images(images)
    if any(readout.needs_image for readout in readouts):
        return _stored_images(run, store, readouts)
    return None


def readers_of_both(
    a: MasksByImage, b: MasksByImage, images: ImagesByName | None, store: Store
) -> tuple[MaskReaders, MaskReaders, ImageReader | None]:
    """Give what reads the masks of both sides, and the images where there are any."""
    read_image = None if images is None else _given_images(images)
    if images is None and not isinstance(a, Mapping) and reference_kind(Path(a)) == "run":
        read_image = stored_images(store, store.find(str(a)).spec.images_digest)
    return *_masks_of_both(a, b, store, None), read_image


def _masks_of_both(
    a: MasksByImage, b: MasksByImage, store: Store, pairs: str | None
) -> tuple[MaskReaders, MaskReaders]:
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        return _masks(a, "a", store), _masks(b, "b", store)
    kinds = {reference_kind(file_or_run(a, name="a")), reference_kind(file_or_run(b, name="b"))}
    if kinds == {"run"}:  # one key twice means two repeats
        first, second = store.find_two(str(a), str(b))
        return masks_of(first.name, store), masks_of(second.name, store)
    return in_one_size(*masks_of_both(a, b, store, pairs=pairs))


def _masks(side: MasksByImage, letter: str, store: Store) -> MaskReaders:
    if isinstance(side, Mapping):
        return {
            name: partial(label_image, f"the label image of {letter}", masks)
            for name, masks in side.items()
        }
    return masks_of(str(file_or_run(side, name=letter)), store)


def _given_images(images: ImagesByName) -> ImageReader:
    """Read images of a folder, or take those of a mapping."""

    def read(name: str, masks_shape: tuple[int, ...]) -> np.ndarray:
        if not isinstance(images, Mapping):
            file = image_of_name(images, name)
            image = image_of_masks(file, masks_shape)
            refuse_other_size(file, image, masks_shape)
            return image
        if name not in images:
            raise BadInput(
                f"there are masks of it and no image, but of {some(list(images), 3) or 'none'}; "
                "expected the image of each label image that has a group"
            )
        image = np.asarray(images[name])
        refuse_other_size("the image", image, masks_shape)
        return image

    return read


def _stored_images(
    side: MasksByImage, store: Store, readouts: Sequence[ChosenReadout]
) -> ImageReader:
    """Read the images of a run from its store."""
    if isinstance(side, Mapping) or reference_kind(Path(side)) != "run":
        asked = joined([readout.name for readout in readouts if readout.needs_image])
        raise BadInput(
            f"{asked} cannot be measured without the images; give their folder (--image FOLDER)"
        )
    return stored_images(store, store.find(str(side)).spec.images_digest)


def stored_images(store: Store, images_digest: str) -> ImageReader:
    """Read the images that runs segmented from their store."""

    def read(name: str, masks_shape: tuple[int, ...]) -> np.ndarray:
        image = store.image(images_digest, name)
        if image is None:
            raise BadInput("its image is not in the store; give the folder of the images")
        refuse_other_size("the stored image", image, masks_shape)
        return image

    return read
