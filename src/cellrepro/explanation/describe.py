"""Describe a file, such as weights, masks or a baseline; a stored run; or the name of a network."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.comparison.judgement import judge
from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.number_remarks import number_remarks, pieces_of_map
from cellrepro.errors import no_such_file
from cellrepro.explanation.commands_of_record import commands_of_record
from cellrepro.explanation.description import Description
from cellrepro.explanation.file_kinds import FileKind
from cellrepro.explanation.folder_content import folder_content
from cellrepro.explanation.hand_edits import hand_edits
from cellrepro.explanation.image_description import described_image
from cellrepro.explanation.label_notes import n_by_plane
from cellrepro.explanation.mask_file_record import label_image_record, seg_file_record
from cellrepro.explanation.mask_files import MASK_ENDINGS
from cellrepro.explanation.recognition import may_hold_weights, recognised, unknown
from cellrepro.explanation.references import reference_kind
from cellrepro.explanation.run_log import is_run_log, log_record
from cellrepro.explanation.run_record import run_commands, run_record
from cellrepro.explanation.weights_description import described_weights
from cellrepro.images.decoding import FORMATS, SEG_ENDING, decode_labels, read_bytes
from cellrepro.images.image_file import read_labels
from cellrepro.images.image_names import is_named_as_masks
from cellrepro.images.ome_zarr import is_zarr
from cellrepro.images.outline_files import is_outline_file, outline_format, read_outlines
from cellrepro.images.seg_file import SegFile, read_seg
from cellrepro.model.cellpose_generation import generation_of, of_another_generation
from cellrepro.model.encoders import ENCODERS
from cellrepro.model.known_weights import AS_IT_IS
from cellrepro.model.pretrained import known_to_cellpose
from cellrepro.model.weight_sources import cellpose_folder
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command
from cellrepro.store import baseline_file, checkpoints
from cellrepro.store.store import Store
from cellrepro.store.stored_run import SPEC, Repeat, Run, readable
from samebits.digests import array_digest, file_digest
from samebits.errors import BadInput
from samebits.words import amount

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOADS_DEFAULT = (
    "given this name as a model, the Cellpose that is installed loads its default, and only its "
    "log says so"
)
_MOST_DRAWN = 2**26
"""Pixels of an image in which outlines are drawn to see whether they overlap."""


def describe(
    reference: str, *, log: str | Path | None = None, store: str | Path = defaults.STORE
) -> Description:
    """Describe a file, a run of the store, or the name of a network.

    ``log`` is Cellpose's log of the run that made masks; what it records is added.
    """
    opened_store = Store(store)
    path = Path(reference)
    described = _described(reference, path, opened_store)
    if path.is_file():
        described = replace(described, file=path.name)
    if log is None:
        return described
    if described.recorded is None:
        raise BadInput(f"--log is {log}, and {reference} holds no masks that it could be of")
    record = described.recorded.with_more_of(log_record(Path(log)))
    return replace(described, recorded=record, commands=commands_of_record(record, opened_store))


def _described(reference: str, path: Path, store: Store) -> Description:
    if is_run_log(path):
        record = log_record(path)
        return Description("run.log", recorded=record, commands=commands_of_record(record, store))
    if path.exists() and is_outline_file(path):
        return _of_outlines(path)
    if (
        path.is_file()
        and path.suffix.lower() in FORMATS
        and path.suffix.lower() not in MASK_ENDINGS
    ):
        return described_image(path)
    if path.suffix.lower() not in MASK_ENDINGS and not checkpoints.is_one(path):
        other = recognised(path)
        if other is not None:
            return _of_other(other)
    kind = reference_kind(path)
    if kind == "folder":
        in_store = _reference_in_store(path)
        if in_store is not None:
            own_store, own_reference = in_store
            return _of_run_or_name(own_reference, own_store)
        raise BadInput(
            f"{path} is {folder_content(path)}; expected one file in it, or a KEY of the store. "
            "`cellrepro compare A B` takes two folders of masks"
        )
    if not path.exists():
        return _of_run_or_name(reference, store)
    if kind == "masks":
        return _of_masks_or_image(path, store)
    if kind == "baseline":
        details = baseline_file.read(path).record
        return Description("baseline", digest=file_digest(path), details=details)
    if path.is_file() and not may_hold_weights(path):
        return _of_other(unknown(path))
    return described_weights(path)


def _reference_in_store(folder: Path) -> tuple[Store, str] | None:
    """Tell the store and the run, or its repeat, that a folder is of; None for any other one."""
    folder = folder.resolve()
    for run in [folder, *folder.parents[:2]]:
        if run.parent.name == "runs" and (run / SPEC).is_file():
            return Store(run.parents[1]), folder.relative_to(run.parent).as_posix()
    return None


def _of_masks_or_image(path: Path, store: Store) -> Description:
    """Describe masks; a file of pixels that holds none is an image, unless its name says masks."""
    if path.name.endswith(SEG_ENDING):
        seg = read_seg(path)
        return _of_masks(path, seg.masks, seg, store)
    try:
        masks = read_labels(path)
    except BadInput:
        if is_zarr(path) or is_named_as_masks(path.stem):
            raise
        with suppress(BadInput):
            return described_image(path)
        raise
    return _of_masks(path, masks, None, store)


def _of_other(kind: FileKind) -> Description:
    return Description("other", details={"what": kind.name, "next": kind.next_step})


def _of_outlines(path: Path) -> Description:
    outlines = read_outlines(path)
    is_small = math.prod(outlines.extent) <= _MOST_DRAWN
    notes = outlines.drawn().notes if is_small else outlines.remarks
    details: dict[str, Any] = {
        "n_objects": len(outlines.cells),
        "format": outline_format(path),
        "reach": f"{' × '.join(map(str, outlines.extent))} pixels (Y × X)",
        "points": "outermost pixels of each cell, as Cellpose writes them"
        if outlines.run_along_pixels
        else "corners of pixels, as ImageJ and QuPath draw them",
    }
    if outlines.categories:
        details["classes"] = ", ".join(
            f"{name} {n}" for name, n in sorted(outlines.categories.items())
        )
    digest = file_digest(path) if path.is_file() else None
    return Description("outlines", digest=digest, details=details, note="; ".join(notes))


def _of_masks(
    path: Path, masks: NDArray[np.int64], seg: SegFile | None, store: Store
) -> Description:
    renumbered = canonical(masks)
    n_objects = int(renumbered.max(initial=0))
    pieces = pieces_of_map(masks) if masks.ndim == 2 else None
    details: dict[str, Any] = {
        "shape": masks.shape,
        "n_objects": n_objects,
        **({"n_pieces": pieces.n_pieces} if pieces else {}),
        **({"n_objects_by_plane": n_by_plane(masks)} if masks.ndim == 3 else {}),
        **(_diameters(renumbered) if pieces is None else {}),
        "largest_label": int(masks.max(initial=0)),
        "canonical_digest": array_digest(renumbered),
    }
    if seg is None:
        record = label_image_record(path, masks)
    else:
        record = seg_file_record(path, seg)
        details |= _details_of_seg(seg)
    return Description(
        kind="label image" if seg is None else "_seg.npy",
        dtype=_stored_dtype(path, masks) if seg is None else None,
        digest=file_digest(path) if path.is_file() else None,
        details=details,
        note="; ".join(number_remarks(masks)),
        recorded=record,
        commands=commands_of_record(record, store, is_stack=masks.ndim > 2),
    )


def _stored_dtype(path: Path, masks: NDArray[np.int64]) -> str:
    """The type of numbers in the file; those of floating-point labels are read as int64."""
    if masks.dtype == np.int64 and path.is_file():
        return str(decode_labels(path, read_bytes(path), may_map=True).pixels.dtype)
    return str(masks.dtype)


def _diameters(masks: NDArray[np.integer]) -> dict[str, str]:
    """How large the cells of one plane are: the diameters of circles of their areas."""
    areas = np.bincount(masks.ravel())[1:]
    if masks.ndim > 2 or not areas.size:
        return {}
    diameters = 2 * np.sqrt(areas / np.pi)
    low, middle, high = (float(f"{size:.3g}") for size in np.quantile(diameters, (0, 0.5, 1)))
    spread = "" if low == high else f", {low:g} to {high:g}"
    return {
        "diameters_of_the_cells": f"median {middle:g} pixels{spread} (circles of the same area)"
    }


def _details_of_seg(seg: SegFile) -> dict[str, object]:
    """What a ``_seg.npy`` holds beside its masks: settings, and how many cells were drawn."""
    recorded = {name: value for name, value in seg.settings.items() if name != "ismanual"}
    if recorded.get("manual_changes"):  # the pixels of each, a hundred thousand characters
        recorded["manual_changes"] = [f"{edit.kind} at {edit.place}" for edit in hand_edits(seg)]
    drawn = seg.settings.get("ismanual")
    n_drawn = sum(map(bool, drawn)) if isinstance(drawn, list) else 0
    return {"settings": recorded, "n_manual": n_drawn}


def _of_run_or_name(reference: str, store: Store) -> Description:
    try:
        repeat = store.find(reference)
    except BadInput as error:
        if Path(reference).is_symlink():
            raise BadInput(
                f"{reference} is a link to {Path(reference).readlink()}, which is not there; give "
                "the file itself, or make the link anew"
            ) from error
        if Path(reference).is_absolute() or Path(reference).suffix:
            raise no_such_file(reference) from error
        if "/" in reference:
            raise
        if known_to_cellpose(reference):
            return Description("name", loads_as=AS_IT_IS, note=_of_cellpose_network(reference))
        if reference in ENCODERS:
            return _of_lab_network(reference)
        owner = of_another_generation(reference)
        if not owner:
            expected = "a file, KEY/REPEAT of a stored run, or the name of a network of Cellpose"
            raise no_such_file(reference, expected=expected) from error
        default = generation_of().default_network
        return Description("name", loads_as=default, note=f"{_LOADS_DEFAULT}{owner}")
    return _of_run(repeat, store.run(repeat.spec.key))


def _of_cellpose_network(name: str) -> str:
    """Say whether a network of Cellpose is on this computer."""
    file = cellpose_folder() / name
    if file.is_file():
        return (
            f"one of this Cellpose's networks; its file is {file}, which can be described as well"
        )
    return f"one of this Cellpose's networks; Cellpose downloads it to {file} when it is first used"


def _of_lab_network(name: str) -> Description:
    what = "name of a network of cellrepro, whose weights a seed draws; it has learnt nothing yet"
    training = lab_command("train", "DATA", "--model", name, store=None)
    details = {"what": what, "next": f"`{training}` trains it"}
    default = generation_of().default_network
    return Description("name", loads_as=default, details=details, note=_LOADS_DEFAULT)


def _of_run(repeat: Repeat, run: Run | None) -> Description:
    manifest = repeat.manifest
    repeats = {} if run is None else run.machines.get(repeat.folder.parent.name, {})
    judgement = judge([each.outcome for each in readable(repeats.values())])
    spec = repeat.spec
    of_training = {
        "epochs": spec.epochs,
        "learning_rate": spec.learning_rate,
    }
    details = {
        "name": repeat.name,
        "label": repeat.spec.label,
        "task": repeat.spec.task,
        "n_images": len(manifest.masks),
        "n_objects": manifest.n_objects,
        "verdict": judgement.detail() or "none",
        "repeats": len(repeats),
        **(of_training if spec.task == "train" else {}),
        "started": manifest.started,
        "computed_on": f"{repeat.machine} ({amount(manifest.threads, 'thread')})",
    }
    record = run_record(repeat)
    of_weights = Description("run", note="it only segmented and holds no weights")
    if repeat.weights is not None:
        of_weights = described_weights(repeat.weights)
    return replace(
        of_weights,
        kind="run",
        details={**details, **of_weights.details},
        recorded=record,
        commands=run_commands(repeat),
    )
