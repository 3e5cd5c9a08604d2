"""The verb ``compare``: two results compared, with a page about them on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.errors import BadInput
from cellrepro.explanation import compare_files
from cellrepro.explanation.mask_files import MaskReaders
from cellrepro.explanation.references import kind_in_words, masks_of, reference_kind
from cellrepro.explanation.settings_of_both import SettingOfBoth
from cellrepro.explanation.two_results import Comparison
from cellrepro.images.folder_files import image_of_name
from cellrepro.images.image_file import image_of_masks, refuse_other_size
from cellrepro.images.image_names import image_name
from cellrepro.images.ome_zarr import is_zarr
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName, Words
from cellrepro.words import amount, some

if TYPE_CHECKING:
    from cellrepro.show.pages.comparison_page import ShownPair
    from cellrepro.store.store import Store
    from cellrepro.store.stored_run import Repeat


def compare(
    a: FileName,
    b: FileName,
    /,
    *,
    image: FileName | None = None,
    html: FileName | None = None,
    overwrite: bool = False,
    groups: FileName | None = None,
    readout: Words = defaults.READOUTS,
    control: str | None = None,
    margin: float = defaults.MARGIN,
    store: FileName = defaults.STORE,
) -> Comparison:
    """Compare two runs, masks, folders of masks, baselines or weights files.

    Parameters
    ----------
    a : str or Path
        ``KEY`` (then its first repeat) or ``KEY/REPEAT`` of the store, or the path of a mask file,
        ``_seg.npy`` among them, of a folder of masks, of a baseline, or of a weights file.
    b : str or Path
        The second one; ``KEY KEY`` means the first two repeats of a run.
    image : str or Path, optional
        The image of the masks: TIFF, PNG or JPEG. It is checked that the masks have its size, and
        the page shows them on it. Of folders of masks it also says which image the page shows; or
        it is the folder of their images, from which readouts of intensities are measured.
    html : str or Path, optional
        A file that ends in ``.html``: a page with the settings that differ, both masks on the
        image, the cells that differ most, the list of all changed cells, and the scores. It is one
        file, which asks no server for anything. Of several images it shows the one on which most
        cells differ.
    overwrite : bool
        Whether a file that is there becomes the page.
    groups : str or Path, optional
        A CSV file with the columns ``image`` and ``group``: does the conclusion of the experiment
        stand, with B in place of A? Groups that are numbers are doses.
    readout : str or sequence of str
        What is compared between the groups, names with commas between them: ``count``, ``area``,
        ``equivalent_diameter``, ``area_fraction``, ``nearest_neighbour``, ``mean_intensity``,
        ``total_intensity``, ``maximum_intensity``; of a channel, from 0, as ``mean_intensity:1``.
    control : str, optional
        The group with which the others are compared; by default the one called control, untreated,
        wt or alike, else the first one, of numbers the lowest.
    margin : float
        Effects that differ by less than this share of the control's mean are the same.
    store : str or Path
        Folder of finished runs. Its other runs show what seeds do, with which the difference of
        two runs is compared.

    Returns
    -------
    Comparison
        Its ``str`` is the verdict with what differs.

    Raises
    ------
    BadInput
        If one of them does not exist or cannot be read, if they are not of one kind, or if their
        masks have no image in common; if the image is not of the size of the masks, or the page
        is there already or cannot be written.

    Notes
    -----
    Masks are compared by the name of their image: ``NAME_masks.tif``, ``NAME_cp_masks.png``,
    ``NAME_seg.npy`` and the image ``NAME`` of a run belong together, and in a folder without such
    names ``NAME.tif``. A file that is given is compared with the only image of the other side,
    whatever that is called.

    Examples
    --------
    Are these two masks the same, and what became of each cell?

    ``cellrepro compare gui_masks.tif script_masks.tif``

    Write a page with the picture, as one file to send

    ``cellrepro compare a_masks.tif b_masks.tif --image cells.tif --html page.html``

    Does the experiment say the same with the other masks?

    ``cellrepro compare old_masks/ new_masks/ --groups groups.csv --readout count,area``
    """
    if html is None:
        refuse_idle(("overwrite",), "without --html")
    if groups is None:
        refuse_idle(("readout", "control", "margin"), "without --groups")
    target = None
    if html is not None:
        from cellrepro.show.pages.page_file import page_target

        target = page_target(html, overwrite=overwrite)
    comparison = compare_files.compare(a, b, store=store)
    if groups is not None:
        from cellrepro.explanation.conclude_files import conclusion

        concluded = conclusion(
            a,
            b,
            image,
            groups=groups,
            readouts=readout,
            control=control,
            margin=margin,
            store=store,
        )
        comparison = replace(
            comparison,
            conclusions=concluded.conclusions,
            notes=(*comparison.notes, *concluded.notes),
        )
    if html is None and (image is None or groups is not None):
        return comparison
    # Drawing takes a second to import, which a comparison without a page need not wait for.
    from cellrepro.show.pages.comparison_page import write_comparison_page
    from cellrepro.store.store import Store

    if not comparison.masks:
        raise BadInput(
            f"{a} and {b} are {kind_in_words(Path(a))} and {kind_in_words(Path(b))} "
            "without masks, so there is no picture of them; leave --image and --html out"
        )
    pair = _shown_pair(a, b, comparison, image=image, store=Store(store))
    if target is None or html is None:
        return comparison
    write_comparison_page(target, pair)
    return replace(comparison, html=Path(html))


def _shown_pair(
    a: str | Path,
    b: str | Path,
    comparison: Comparison,
    *,
    image: str | Path | None,
    store: Store,
) -> ShownPair:
    """Read the masks of one image, and that image, whose size must be theirs."""
    from cellrepro.show.pages.comparison_page import ShownPair
    from cellrepro.show.pages.explorer_page import side_name

    name = _shown_image(comparison, image)
    if image is not None and _is_folder_of_images(image):
        image = image_of_name(image, name)
    of_runs = {reference_kind(Path(a)), reference_kind(Path(b))} == {"run"}
    repeats = store.find_two(str(a), str(b)) if of_runs else None
    if repeats is not None:
        masks_a, masks_b = (repeat.masks(name) for repeat in repeats)
        name_a, name_b = (repeat.name for repeat in repeats)
    else:
        masks_a, masks_b = (_masks(masks_of(str(side), store), name) for side in (a, b))
        name_a = side_name(a, b, "A")
        name_b = side_name(b, a, "B")
    return ShownPair(
        image_name=name if image is None else Path(image).stem,
        name_a=name_a,
        name_b=name_b,
        a=masks_a,
        b=masks_b,
        image=_pixels(image, repeats, name, masks_a, store),
        comparison=comparison.masks[name],
        settings=comparison.settings if repeats is None else _differences_of_runs(comparison),
        are_runs=repeats is not None,
        remarks=comparison.notes,
        by_image=comparison.masks,
        conclusions=comparison.conclusions,
    )


def _differences_of_runs(comparison: Comparison) -> tuple[SettingOfBoth, ...]:
    """The fields of spec and environment in which two runs differ, as settings."""
    return tuple(
        SettingOfBoth(name, values.a, values.b)
        for fields in (comparison.spec, comparison.environment)
        for name, values in fields.items()
    )


def _shown_image(comparison: Comparison, image: str | Path | None) -> str:
    """Choose the image on the page: the one that was given, else the one that differs most."""
    from cellrepro.show.pages.comparison_page import image_weight

    names = list(comparison.masks)
    if len(names) == 1:
        return names[0]
    if image is None or _is_folder_of_images(image):
        return max(names, key=lambda name: image_weight(comparison.masks[name]))
    name = image_name(Path(image).stem)
    if name not in names:
        raise BadInput(
            f"{image} is none of the {amount(len(names), 'image')} whose masks were compared; "
            f"expected the file of one of {some(names)}"
        )
    return name


def _is_folder_of_images(image: str | Path) -> bool:
    path = Path(image)
    return path.is_dir() and not is_zarr(path)  # which is one image


def _masks(readers: MaskReaders, name: str) -> np.ndarray:
    """Read the masks of an image; a single file has but one, whatever it is called."""
    if name not in readers and len(readers) == 1:
        return next(iter(readers.values()))()
    return readers[name]()


def _pixels(
    image: str | Path | None,
    repeats: tuple[Repeat, Repeat] | None,
    name: str,
    masks: np.ndarray,
    store: Store,
) -> np.ndarray | None:
    """Read the image, which must have the size of the masks; of two runs it is in their store."""
    if image is None:
        if repeats is None:
            return None
        return store.image(repeats[0].spec.images_digest, name)
    pixels = image_of_masks(image, masks.shape)
    refuse_other_size(image, pixels, masks.shape)
    return pixels
