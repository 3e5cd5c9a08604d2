"""Files that somebody drops on a page: kept under their names, and told apart."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import fastremap
import numpy as np
import psutil

from cellrepro.errors import CellreproError
from cellrepro.explanation.file_kinds import NOT_USED
from cellrepro.explanation.folder_content import are_masks, folder_content
from cellrepro.explanation.mask_files import MASK_ENDINGS, mask_files
from cellrepro.explanation.recognition import recognised
from cellrepro.explanation.references import kind_in_words, reference_kind
from cellrepro.explanation.run_log import is_run_log
from cellrepro.images.decoding import ARCHIVE_ENDING, FORMATS
from cellrepro.images.image_axes import Axes
from cellrepro.images.image_file import image_in, read_labels
from cellrepro.images.image_names import is_named_as_masks
from cellrepro.images.outline_files import is_outline_file, read_outlines
from samebits.errors import BadInput, NotPossibleHere
from samebits.words import grouped

Use = Literal["image", "masks", "beside"]

_TEMPORARY = "cellrepro-open-"
_MOST_LETTERS = 200  # bytes of a name; file systems take 255
_FREE = 2**30  # bytes that stay free on the disk
_MOST_LOOKED_INTO = 2**28  # bytes; of larger files the name alone is asked
_NO_WINDOWS_NAME = re.compile(r'[<>:"|?*]')
_FOLDERS_OF_PROCESSES = re.compile(rf"{_TEMPORARY}(\d+)-")


@dataclass(frozen=True)
class DroppedFile:
    """A file as it was dropped."""

    path: Path
    likely: Use
    """What it probably is; ``beside`` is what neither side can be, such as a record of settings."""
    words: str
    """What was seen in it; empty where nothing was."""
    problem: str = ""
    """Why it is not what its name says."""
    shape: tuple[int, ...] = ()
    """Size of the pixels, (Y, X) or (Z, Y, X); empty where there is none, or nobody looked."""

    @property
    def name(self) -> str:
        """Its own name, without anything that leads to another place."""
        return self.path.name


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for one block, and remove those of processes that were killed."""
    for earlier in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        process = _FOLDERS_OF_PROCESSES.match(earlier.name)
        if process is not None and not psutil.pid_exists(int(process[1])):
            with contextlib.suppress(OSError):
                shutil.rmtree(earlier)  # no link is followed
    with tempfile.TemporaryDirectory(
        prefix=f"{_TEMPORARY}{os.getpid()}-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def own_name(name: str) -> str:
    r"""Give the last part of a name that a browser sends, as a file of any folder can have it.

    >>> own_name("../../gui/cells_seg.npy"), own_name("C:\\scans\\a\x1b[2J.tif"), own_name("..")
    ('cells_seg.npy', 'a[2J.tif', 'file')
    """
    last = re.split(r"[/\\]", name)[-1]
    shown = "".join(letter for letter in last if letter.isprintable()).strip()
    if os.name == "nt":
        shown = _NO_WINDOWS_NAME.sub("_", shown).rstrip(". ")
    if shown in ("", ".", ".."):
        return "file"
    stem, dot, ending = shown.rpartition(".")
    too_many = len(shown.encode()) - _MOST_LETTERS
    if too_many > 0:
        ending = ending.encode()[: _MOST_LETTERS // 2].decode(errors="ignore")
        room = _MOST_LETTERS - len(f"{dot}{ending}".encode())
        shown = f"{stem.encode()[:room].decode(errors='ignore')}{dot}{ending}"
    return shown


def keep(folder: Path, name: str, blocks: Iterable[bytes], n_bytes: int, changed: float) -> Path:
    """Write what is sent into a folder, whole or not at all.

    ``changed`` is when the file was changed, in seconds since 1970: what was edited later counts.
    """
    own = own_name(name)
    free = shutil.disk_usage(folder.parent).free
    if n_bytes > free - _FREE:
        raise NotPossibleHere(
            f"{own} has {n_bytes // 2**20} MiB, and the disk of {folder.parent} has "
            f"{free // 2**20} MiB free; make room there"
        )
    folder.mkdir(exist_ok=True)
    path = folder / own
    try:
        file = path.open("xb")
    except FileExistsError as error:
        raise BadInput(f"there are two files {own}; give one of them another name") from error
    try:
        with file:
            for block in blocks:
                file.write(block)
        os.utime(path, (changed, changed))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def told_apart(path: Path) -> DroppedFile:
    """Tell what a file is, by its name and by what is in it."""
    ending = path.suffix.lower()
    if ending in FORMATS and ending not in MASK_ENDINGS:
        return _picture(path)
    if is_run_log(path):
        words = "Cellpose's run.log, not used: nothing in it says of which result it is"
        return DroppedFile(path, "beside", words)
    if path.is_file() and not path.stat().st_size:
        return DroppedFile(path, "beside", _not_used("an empty file"))
    try:
        kind = reference_kind(path)
    except BadInput as error:  # it says what else it is
        return DroppedFile(path, "beside", _of_other(path, _without_path(error, path)))
    if kind == "folder":
        return _folder(path)
    if kind == "baseline":
        return DroppedFile(path, "masks", kind_in_words(path))
    if kind != "masks":
        return DroppedFile(path, "beside", _not_used(kind_in_words(path)))
    if is_outline_file(path):
        return _outlines(path)
    says_masks = ending not in FORMATS or is_named_as_masks(path.stem)
    if path.stat().st_size > _MOST_LOOKED_INTO or ending not in {
        *FORMATS,
        ".npy",
        ARCHIVE_ENDING,
    }:
        return DroppedFile(path, "masks" if says_masks else "image", "")
    try:
        labels = read_labels(path)
    except CellreproError as error:
        if says_masks:
            return DroppedFile(path, "masks", "", _without_path(error, path))
        return _picture(path)
    n_cells = int(np.count_nonzero(fastremap.unique(np.ascontiguousarray(labels))))
    words = f"masks of {_cells(n_cells)}, {_size(labels.shape)}"
    return DroppedFile(path, "masks", words, shape=labels.shape)


def _of_other(path: Path, reason: str) -> str:
    """Say of what is neither masks nor an image what it is, and what to do with it here."""
    kind = recognised(path)
    if kind is None:
        return _not_used(reason)
    if kind.is_record:
        return f"{kind.name}, which is read for the result that it is of"
    hint = _without_path(kind.next_step, path)
    return _not_used(kind.name) + ("" if hint == NOT_USED else f"; {hint}")


def _not_used(what: str) -> str:
    return f"not masks and not an image, not used: {what}"


def _outlines(path: Path) -> DroppedFile:
    try:
        n_cells = len(read_outlines(path).cells)
    except CellreproError as error:
        return DroppedFile(path, "masks", "", _without_path(error, path))
    return DroppedFile(path, "masks", f"outlines of {_cells(n_cells)}")


def _cells(n: int) -> str:
    return f"{grouped(n)} {'cell' if n == 1 else 'cells'}"


def _folder(path: Path) -> DroppedFile:
    try:
        files = mask_files(path)
    except BadInput as error:
        return DroppedFile(path, "masks", "a folder", _without_path(error, path))
    has_masks = bool(files) and are_masks(files)
    problem = "" if has_masks else f"{path.name} holds no masks ({', '.join(MASK_ENDINGS)})"
    return DroppedFile(path, "masks", folder_content(path), problem)


def _picture(path: Path) -> DroppedFile:
    try:
        image = image_in(path, Axes(stacks=True))
    except CellreproError as error:
        return DroppedFile(path, "image", "", _without_path(error, path))
    shape = image.pixels.shape[: 3 if image.is_stack else 2]
    return DroppedFile(path, "image", f"a picture, {_size(shape)}", shape=shape)


def _size(shape: Sequence[int]) -> str:
    return f"{' × '.join(map(grouped, shape))} pixels"


def _without_path(said: CellreproError | str, path: Path) -> str:
    """What is said of a file, without the folder that it was kept in."""
    return str(said).replace(f"{path.parent}{os.sep}", "")
