"""Whatever a user names, compared: mask files, folders of masks, baselines, weights, runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.comparison.mask_totals import verdict_over
from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import BadInput
from cellrepro.explanation.mask_file_record import RecordedMasks, recorded_masks
from cellrepro.explanation.mask_files import MASK_ENDINGS, MaskReaders, newer_seg_notes
from cellrepro.explanation.recorded_settings import RecordedSettings
from cellrepro.explanation.references import file_or_run, kind_in_words, masks_of, reference_kind
from cellrepro.explanation.settings_of_both import recorded_side_by_side
from cellrepro.explanation.two_results import (
    Comparison,
    compare_by_image,
    masks_differ,
    stitching_notes,
)
from cellrepro.images.image_file import read_labels
from cellrepro.images.image_names import image_name
from cellrepro.spec import defaults

if TYPE_CHECKING:
    from cellrepro.store.store import Store


def compare(a: str | Path, b: str | Path, *, store: str | Path = defaults.STORE) -> Comparison:
    """Compare two files, folders or runs that both have masks, or both have weights."""
    path_a = file_or_run(a, name="a")
    path_b = file_or_run(b, name="b")
    kinds = {reference_kind(path_a), reference_kind(path_b)}
    if kinds == {"masks"}:  # two files need NumPy alone, and wait for no library of a store
        return _compare_two_files(path_a, path_b)
    from cellrepro.store.store import Store

    opened_store = Store(store)
    if kinds == {"run"}:
        from cellrepro.explanation.compare_repeats import compare_repeats

        return compare_repeats(*opened_store.find_two(str(a), str(b)), store=opened_store)
    if "weights" not in kinds:
        masks_a = masks_of(str(a), opened_store)
        masks_b = masks_of(str(b), opened_store)
        if len(masks_a) == len(masks_b) == 1 and kinds != {"folder"}:  # whatever they are called
            masks_b = dict(zip(masks_a, masks_b.values(), strict=True))
        comparison = _compare_mask_files(masks_a, masks_b, who=f"{a} and {b}")
        newer = [
            f"{side}: {note}"
            for side, path in (("A", path_a), ("B", path_b))
            if reference_kind(path) == "folder"
            for note in newer_seg_notes(path)
        ]
        return replace(comparison, notes=(*comparison.notes, *newer))
    if kinds <= {"weights", "run"}:
        from cellrepro.explanation.compare_weights import compare_weights_files

        return compare_weights_files(_weights_of(a, opened_store), _weights_of(b, opened_store))
    raise _not_comparable(path_a, path_b)


def _with_any_record(file: Path) -> RecordedMasks:
    """Read masks and record; a damaged record becomes a remark, as masks need none."""
    try:
        return recorded_masks(file)
    except BadInput as error:
        remark = f"what is recorded of it is not used: {error}"
        return RecordedMasks(read_labels(file), RecordedSettings(remarks=(remark,)))


def _compare_two_files(a: Path, b: Path) -> Comparison:
    """Compare two mask files, and what is recorded of how they were made."""
    file_a = _with_any_record(a)
    file_b = _with_any_record(b)
    name = image_name(a.stem)
    masks_a: MaskReaders = {name: lambda: file_a.masks}
    masks_b: MaskReaders = {name: lambda: file_b.masks}
    comparison = _compare_mask_files(masks_a, masks_b, who=f"{a} and {b}")
    remarks = [
        f"{letter}: {remark}"
        for letter, file in (("A", file_a), ("B", file_b))
        for remark in file.record.remarks
    ]
    return replace(
        comparison,
        settings=recorded_side_by_side(file_a.record.plain, file_b.record.plain),
        notes=(*comparison.notes, *_notes_on_edits(file_a, file_b), *remarks),
    )


def _notes_on_edits(a: RecordedMasks, b: RecordedMasks) -> tuple[str, ...]:
    """Say which cells only one of two files has since they were drawn or removed by hand."""
    if not (a.edits or b.edits):
        return ()
    from cellrepro.explanation.hand_edits import EditedSide, effect_of_hand

    return effect_of_hand(
        EditedSide("A", a.masks, a.edits), EditedSide("B", b.masks, b.edits)
    ).notes


def _compare_mask_files(a: MaskReaders, b: MaskReaders, *, who: str) -> Comparison:
    compared = compare_by_image(a, b, who=who)
    masks = compared.by_image
    verdict = verdict_over(masks.values()) if a.keys() == b.keys() else Verdict.DIFFERENT
    return Comparison(
        verdict=verdict,
        differs=("masks",) if masks_differ(verdict) else (),
        masks=masks,
        notes=(*compared.notes, *stitching_notes(masks)),
    )


def _weights_of(reference: str | Path, store: Store) -> Path:
    path = Path(reference)
    if reference_kind(path) == "weights":
        return path
    repeat = store.find(str(reference))
    if repeat.weights is None:
        raise BadInput(f"run {repeat.name} only segmented; it holds no weights to compare")
    return repeat.weights


def _not_comparable(a: Path, b: Path) -> BadInput:
    return BadInput(
        f"{a} and {b} are not of one kind: {kind_in_words(a)} and {kind_in_words(b)}; expected two "
        f"mask files ({', '.join(MASK_ENDINGS)}), folders of masks, baselines, KEY/REPEAT of the "
        "store, or weights files"
    )
