"""What a path or name that a user gave refers to: a run, masks, a baseline or weights."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cellrepro.errors import no_such_file
from cellrepro.explanation.cellpose_call import words_to_replace
from cellrepro.explanation.mask_files import (
    MaskReaders,
    is_mask_file,
    mask_files,
    readers,
)
from cellrepro.images.image_names import image_name
from cellrepro.images.ome_zarr import is_zarr
from cellrepro.images.outline_files import is_outline_file
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.store.store import Store

_WEIGHTS = (".safetensors", ".pth", ".pt")  # usual endings; Cellpose's files have none
_MAY_BE_A_KEY = re.compile(r"[0-9a-f]+(/|$)")
ReferenceKind = Literal["folder", "masks", "baseline", "weights", "run"]

_KINDS_IN_WORDS: Mapping[ReferenceKind, str] = {
    "folder": "a folder",
    "masks": "a mask file",
    "baseline": "a baseline",
    "weights": "a weights file",
    "run": "a run",
}


def reference_kind(path: Path) -> ReferenceKind:
    """Tell what a path refers to, by what lies there or else by its ending."""
    if is_zarr(path):
        return "masks"
    if path.is_dir() and not is_outline_file(path):
        from cellrepro.store import checkpoints

        return "weights" if checkpoints.is_one(path) else "folder"
    if is_mask_file(path):
        return "masks"
    from cellrepro.explanation.recognition import recognised
    from cellrepro.store import baseline_file

    if path.is_file() and baseline_file.is_one(path):
        return "baseline"
    other = recognised(path)
    if other is not None:
        raise BadInput(f"{path} is {other.name}; {other.next_step}")
    return "weights" if path.exists() or path.suffix.lower() in _WEIGHTS else "run"


def file_or_run(reference: str | Path, *, name: str) -> Path:
    """Check that a reference is a path or names a run, and that its file exists."""
    if not isinstance(reference, str | os.PathLike):
        raise BadInput(
            f"{name} is of the type {type(reference).__name__}; expected the path of a file, or "
            "KEY/REPEAT of a stored run. Arrays are compared by cellrepro.compare_masks(a, b), and "
            "shown by cellrepro.explore(image, a, b)"
        )
    path = Path(reference)
    if reference_kind(path) != "run":
        if not path.exists():
            raise no_such_file(reference)
    elif not _MAY_BE_A_KEY.match(str(reference)):
        expected = "a file, a folder, or KEY/REPEAT of a stored run, as `cellrepro list` names them"
        raise no_such_file(reference, expected=expected)
    return path


def kind_in_words(path: Path) -> str:
    """Say in words what a path refers to: "a mask file", "a folder"."""
    kind = reference_kind(path)
    ending = path.suffix.lower()
    if kind == "weights" and ending and ending not in _WEIGHTS:
        return f"a file with the ending {ending}"
    return _KINDS_IN_WORDS[kind]


def masks_of(reference: str, store: Store) -> MaskReaders:
    """Find the masks of a run, a mask file, a folder or a baseline, by image."""
    path = Path(reference)
    kind = reference_kind(path)
    if kind == "run":
        repeat = store.find(reference)
        return {name: partial(repeat.masks, name) for name in repeat.manifest.masks}
    if kind == "baseline":
        from cellrepro.store import baseline_file

        baseline = baseline_file.read(path)
        return {name: partial(baseline.masks, name) for name in baseline.record["images"]}
    if kind == "weights":
        raise BadInput(f"{reference} is no mask file, folder of masks, baseline or run")
    if kind == "folder":
        return readers(mask_files(path))
    return readers({image_name(path.stem): path})


def refuse_to_segment(image: object, options: Mapping[str, object], *, ready: str = "") -> None:
    """Refuse options of a segmentation beside no image, or beside a folder of them.

    ``ready`` is the command that segments one image.
    """
    of_one = f". For one image: {ready}" if ready else ""
    if put_in := words_to_replace(ready):
        of_one += f" ({put_in})"
    expected = "give two files of masks and --image with the file of their image"
    given = "there is no image" if image is None else f"image is {image}, a folder"
    for name, value in options.items():
        if value is not None:
            raise BadInput(
                f"{name} is {value!r}, and {given}: one image is segmented at a time; {expected}, "
                f"or leave --{name} out{of_one}"
            )
