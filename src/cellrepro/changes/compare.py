"""Two things a user names, compared: runs or repeats, mask files, folders of masks, weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.asked import defaults
from cellrepro.changes.compare_repeats import compare_repeats
from cellrepro.changes.comparison import (
    Comparison,
    compare_by_image,
    masks_differ,
    not_finite_notes,
    stitching_notes,
)
from cellrepro.changes.named import (
    MASK_ENDINGS,
    MaskReaders,
    file_or_run,
    image_name,
    kind_of,
    masks_of,
    named_as,
)
from cellrepro.changes.recorded_settings import side_by_side
from cellrepro.changes.sides import read_side
from cellrepro.errors import BadInput
from cellrepro.images.image_file import read_labels
from cellrepro.images.integer_images import Integers
from cellrepro.same.mask_totals import verdict_over
from cellrepro.same.verdicts import Verdict
from cellrepro.same.weight_files import compare_files
from cellrepro.same.weights import compare_weights
from cellrepro.store.store import Store


def compare(a: str | Path, b: str | Path, *, store: str | Path = defaults.STORE) -> Comparison:
    """Compare two things that both have masks, or both have weights.

    Parameters
    ----------
    a, b : str or Path
        Each is ``KEY`` (then its first repeat; the same one twice: its first two) or ``KEY/REPEAT``
        of the store, or the path of a mask file, ``_seg.npy`` among them, of a folder of masks, of
        a baseline, or of a weights file.
    store : str or Path
        Folder of finished runs. Its other runs show what seeds do, beside which two runs are held.

    Returns
    -------
    Comparison
        Its ``str`` is the verdict with what differs.

    Raises
    ------
    BadInput
        If one of them does not exist or cannot be read, if they are not of one kind, or if their
        masks have no image in common.

    See Also
    --------
    cellrepro.show.pages.compare.compare : What users call; it says how files are matched, and
        writes the page.
    """
    opened_store = Store(store)
    path_a = file_or_run(a, name="a")
    path_b = file_or_run(b, name="b")
    kinds = {kind_of(path_a), kind_of(path_b)}
    if kinds == {"run"}:
        return compare_repeats(*opened_store.find_two(str(a), str(b)), store=opened_store)
    if kinds == {"masks"}:
        return _compare_two_files(str(a), str(b), opened_store)
    if "weights" not in kinds:
        masks_a = masks_of(str(a), opened_store)
        masks_b = masks_of(str(b), opened_store)
        if len(masks_a) == len(masks_b) == 1 and kinds != {"folder"}:  # whatever they are called
            masks_b = dict(zip(masks_a, masks_b.values(), strict=True))
        return _compare_mask_files(masks_a, masks_b, who=f"{a} and {b}")
    if kinds <= {"weights", "run"}:
        return _compare_weights_files(_weights_of(a, opened_store), _weights_of(b, opened_store))
    raise _not_comparable(path_a, path_b)


@dataclass(frozen=True)
class _MaskFile:
    """A mask file, with what is recorded of how it was made.

    Attributes
    ----------
    masks : ndarray of int
    recorded : mapping of str to object
    remarks : sequence of str
    """

    masks: Integers
    recorded: Mapping[str, object]
    remarks: Sequence[str]

    @classmethod
    def read(cls, file: str, store: Store) -> _MaskFile:
        """Read it; a record that cannot be read becomes a remark, as masks are compared without."""
        try:
            side = read_side(file, image="", store=store)
        except BadInput as error:
            return cls(read_labels(file), {}, [f"what is recorded of it is not used: {error}"])
        return cls(side.masks, {**side.recorded, **side.known}, side.record.remarks)


def _compare_two_files(a: str, b: str, store: Store) -> Comparison:
    """Compare two mask files, and what is recorded of how they were made."""
    file_a = _MaskFile.read(a, store)
    file_b = _MaskFile.read(b, store)
    name = image_name(Path(a).stem)
    masks_a: MaskReaders = {name: lambda: file_a.masks}
    masks_b: MaskReaders = {name: lambda: file_b.masks}
    comparison = _compare_mask_files(masks_a, masks_b, who=f"{a} and {b}")
    table = side_by_side(file_a.recorded, file_b.recorded)
    remarks = [
        f"{letter}: {remark}"
        for letter, file in (("A", file_a), ("B", file_b))
        for remark in file.remarks
    ]
    return replace(
        comparison,
        settings=tuple(setting for setting in table if setting.is_recorded),
        notes=(*comparison.notes, *remarks),
    )


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


def _compare_weights_files(a: Path, b: Path) -> Comparison:
    weights = compare_weights(a, b)
    files = compare_files(a, b, same_parameters=weights.equal, checkpoints=any(weights.under))
    notes = list(not_finite_notes(weights))
    for side, key in zip("AB", weights.under, strict=True):
        if key:
            notes.append(
                f"{side} is a checkpoint; its network was found under {key!r} and nothing else was "
                "compared"
            )
    return Comparison(
        verdict=weights.verdict,
        differs=() if weights.equal else ("weights",),
        weights=weights,
        files=files,
        notes=tuple(notes),
    )


def _weights_of(reference: str | Path, store: Store) -> Path:
    path = Path(reference)
    if kind_of(path) == "weights":
        return path
    repeat = store.find(str(reference))
    if repeat.weights is None:
        raise BadInput(f"run {repeat.name} only segmented; it holds no weights to compare")
    return repeat.weights


def _not_comparable(a: Path, b: Path) -> BadInput:
    """Give the error for weights together with masks."""
    return BadInput(
        f"{a} and {b} are not of one kind: {named_as(a)} and {named_as(b)}; expected two mask "
        f"files ({', '.join(MASK_ENDINGS)}), folders of masks, baselines, KEY/REPEAT of the store, "
        "or weights files"
    )
