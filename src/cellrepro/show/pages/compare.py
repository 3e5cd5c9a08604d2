"""The verb ``compare``: two results compared, with a page about them on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.mask_totals import image_weight, verdict_over
from cellrepro.comparison.verdicts import Verdict
from cellrepro.explanation import compare_files
from cellrepro.explanation.mask_files import read_both
from cellrepro.explanation.references import kind_in_words, reference_kind, refuse_to_segment
from cellrepro.explanation.settings_of_both import SettingOfBoth
from cellrepro.explanation.two_results import Comparison
from cellrepro.explanation.why import Why
from cellrepro.images.folder_files import image_of_name, is_folder_of_images
from cellrepro.images.image_file import (
    image_of_masks,
    refuse_labels_as_image,
    refuse_other_size,
)
from cellrepro.images.image_names import image_name
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName, Words
from samebits.errors import BadInput
from samebits.words import amount, some

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
    model: str | None = None,
    minutes: float = defaults.SEARCH_MINUTES,
    html: FileName | None = None,
    overwrite: bool = False,
    pairs: str | None = None,
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
        ``_seg.npy``, ROIs of ImageJ and GeoJSON among them, of a folder of masks, of a baseline, or
        of a weights file.
    b : str or Path
        The other one, of the same kind; ``KEY KEY`` means the first two repeats of a run.
    image : str or Path, optional
        The image that was segmented: TIFF, PNG or JPEG. The page draws the masks on it; masks of
        another size are refused. Beside two folders of masks: the image that the page shows, or the
        folder of all their images, in which readouts such as ``mean_intensity`` are measured.
    model : str, optional
        The network that made both, as for `segment`: the image is segmented again, one
        change at a time, until it is found why the two differ, as `explain` does, which
        has more options. Without it the cause is the likely one of what the files record.
    minutes : float
        How long that search may take. It has half of the time for one side, and the rest for the
        other.
    html : str or Path, optional
        A file that ends in ``.html``: a page with the cause, the settings that differ, both masks
        on the image, the cells that differ most, the list of all changed cells, and the scores. It
        is one file, which asks no server for anything. Of several images it shows the one on which
        the cells agree least. Folders that are not there are made.
    overwrite : bool
        Whether a file that is there becomes the page.
    pairs : str, optional
        Which files of two folders belong together, where their names do not say it. ``order`` takes
        the first of A and the first of B in sorted order, then the second, and so on. Or give the
        pattern of their names: ``{image}_label.tif`` in both folders, or one for A and one for B:
        ``man_seg{image}.tif=mask{image}.tif``.
    groups : str or Path, optional
        A CSV file with the columns ``image`` and ``group``: does the experiment say the same with
        the masks of B as with those of A? Groups that are numbers are doses.
    readout : str or sequence of str
        What is compared between the groups, names with commas between them: ``count``, ``area``,
        ``equivalent_diameter``, ``area_fraction``, ``nearest_neighbour``, ``mean_intensity``,
        ``total_intensity``, ``maximum_intensity``; of a channel, from 0, as ``mean_intensity:1``.
    control : str, optional
        The group with which the others are compared; by default the one called control, untreated,
        wt or alike, else the first one, of numbers the lowest.
    margin : float
        Two effects count as the same if they differ by less than this share of the control's mean.
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
        is there already or cannot be written; with ``model`` also where `cellrepro.explain` raises.

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

    Segment again: which setting made the difference?

    ``cellrepro compare a_masks.tif b_masks.tif --image cells.tif --model cpsam``

    Does the experiment say the same with the other masks?

    ``cellrepro compare old/ new/ --groups groups.csv --readout count,area``
    """
    if html is None:
        refuse_idle(("overwrite",), "without --html")
    if groups is None:
        refuse_idle(
            ("readout", "control", "margin"),
            "without --groups, as nothing says which images are compared",
            instead="add --groups groups.csv, a table with the columns image and group",
        )
    if model is None:
        refuse_idle(("minutes",), "without --model, as nothing is segmented")
    elif image is None or is_folder_of_images(image):
        ready = compare_files.command_for_one_image(
            a, b, image=image, model=model, pairs=pairs, store=store
        )
        refuse_to_segment(image, {"model": model}, ready=ready)
    target = None
    if html is not None:
        from cellrepro.show.pages.page_file import page_target

        target = page_target(html, overwrite=overwrite)
    comparison = compare_files.compare(a, b, pairs=pairs, image=image, store=store)
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
            pairs=pairs,
            store=store,
        )
        comparison = replace(
            comparison,
            conclusions=concluded.conclusions,
            notes=(*comparison.notes, *concluded.notes),
        )
    if html is None and (image is None or (groups is not None and model is None)):
        return comparison
    # Drawing takes a second to import, which a comparison without a page need not wait for.
    from cellrepro.show.pages.comparison_page import write_comparison_page
    from cellrepro.store.store import Store

    if not comparison.masks:
        raise BadInput(
            f"{a} and {b} are {kind_in_words(Path(a))} and {kind_in_words(Path(b))} "
            "without masks, so there is no picture of them; leave --image and --html out"
        )
    pair = _shown_pair(a, b, comparison, image=image, pairs=pairs, store=Store(store))
    if model is not None and not _differ_in_masks(comparison):
        from cellrepro.model.weight_sources import find_model

        find_model(model, Store(store))  # refuses a mistyped one, though nothing is segmented
    elif model is not None and image is not None:
        from cellrepro.explanation.explain import explain
        from cellrepro.explanation.explanation_lines import vacuous_reasons

        explanation = explain(
            str(a), str(b), image=image, model=model, minutes=minutes, store=store
        )
        why = explanation.why or comparison.why
        if explanation.vacuous:
            reasons = tuple(vacuous_reasons(explanation))
            why = Why(None, nothing_tells="a side has no cell", remains=reasons)
        comparison = replace(comparison, explanation=explanation, why=why)
    if target is None or html is None:
        return comparison
    pair = replace(
        pair,
        why=comparison.why,
        explanation=comparison.explanation,
        systematic=comparison.systematic_sentences,
        remarks=_remarks(comparison),
    )
    write_comparison_page(target, pair)
    return replace(comparison, html=Path(html))


def _differ_in_masks(comparison: Comparison) -> bool:
    """Whether they outline different objects, which alone is explained by segmenting again."""
    return verdict_over(comparison.masks.values()) == Verdict.DIFFERENT


def _shown_pair(
    a: str | Path,
    b: str | Path,
    comparison: Comparison,
    *,
    image: str | Path | None,
    pairs: str | None,
    store: Store,
) -> ShownPair:
    """Read the masks of one image, and that image, whose size must be theirs."""
    from cellrepro.images.pixel_size import pixel_size_in
    from cellrepro.show.pages.comparison_page import ShownPair
    from cellrepro.show.pages.explorer_page import side_name

    name = _shown_image(comparison, image)
    is_chosen = image is not None and not is_folder_of_images(image)
    if image is not None and is_folder_of_images(image):
        image = image_of_name(image, name)
    of_runs = {reference_kind(Path(a)), reference_kind(Path(b))} == {"run"}
    repeats = store.find_two(str(a), str(b)) if of_runs else None
    if repeats is not None:
        masks_a, masks_b = (repeat.masks(name) for repeat in repeats)
        name_a, name_b = (repeat.name for repeat in repeats)
    else:
        of_a, of_b = compare_files.masks_of_both(a, b, store, pairs=pairs)
        shape = compare_files.shape_for_outlines(a, b, image)
        masks_a, masks_b, _ = read_both(of_a[name], of_b[name], shape=shape)
        name_a = side_name(a, b, "A")
        name_b = side_name(b, a, "B")
    pixels = _pixels(image, repeats, name, masks_a, store)
    if image is not None and pixels is not None:
        refuse_labels_as_image(image, pixels, a=masks_a, b=masks_b)
    return ShownPair(
        image_name=name if image is None else Path(image).stem,
        name_a=name_a,
        name_b=name_b,
        a=masks_a,
        b=masks_b,
        image=pixels,
        pixel_size=None if image is None else pixel_size_in(Path(image)),
        comparison=comparison.masks[name],
        settings=comparison.settings if repeats is None else _differences_of_runs(comparison),
        is_chosen=is_chosen,
        are_runs=repeats is not None,
        systematic=comparison.systematic_sentences,
        remarks=_remarks(comparison),
        by_image=comparison.masks,
        conclusions=comparison.conclusions,
        lacks_images=comparison.lacks_images,
    )


def _remarks(comparison: Comparison) -> tuple[str, ...]:
    """What the page says of the files beside the cause and what follows from one change."""
    said = comparison.systematic_sentences
    return tuple(note for note in comparison.notes_beside_cause if note not in said)


def _differences_of_runs(comparison: Comparison) -> tuple[SettingOfBoth, ...]:
    """The fields of spec and environment in which two runs differ, as settings."""
    return tuple(
        SettingOfBoth(name, values.a, values.b)
        for fields in (comparison.spec, comparison.environment)
        for name, values in fields.items()
    )


def _shown_image(comparison: Comparison, image: str | Path | None) -> str:
    """Choose the image on the page: the one that was given, else the one that differs most."""
    names = list(comparison.masks)
    if len(names) == 1:
        return names[0]
    if image is None or is_folder_of_images(image):
        return max(names, key=lambda name: image_weight(comparison.masks[name]))
    name = image_name(Path(image).stem)
    if name not in names:
        raise BadInput(
            f"{image} is none of the {amount(len(names), 'image')} whose masks were compared; "
            f"expected the file of one of {some(names)}"
        )
    return name


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
