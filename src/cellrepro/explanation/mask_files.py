"""Files of masks: of which image each is, those of a folder, which of two belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from cellrepro.images.decoding import ARCHIVE_ENDING, SEG_ENDING
from cellrepro.images.image_file import read_labels
from cellrepro.images.image_names import image_name, is_named_as_masks
from cellrepro.images.ome_zarr import is_zarr
from cellrepro.images.outline_files import (
    OUTLINE_ENDINGS,
    ROIS_ENDING,
    is_outline_file,
    read_outlines,
)
from cellrepro.images.outlines import Outlines, Shape, size_note
from samebits.errors import BadInput
from samebits.words import joined, some

MASK_ENDINGS = (".tif", ".tiff", ".png", ".npy", ARCHIVE_ENDING)
"""Of files that hold label images; files of outlines are told by `is_outline_file`."""

MaskReader = Callable[[], np.ndarray]
MaskReaders = Mapping[str, MaskReader]
"""Label images by image; each is read when it is needed."""


@dataclass(frozen=True, eq=False)
class OutlineReader:
    """Draws outlines, which have no size of an image, as a label image."""

    read: Callable[[], Outlines]

    @cached_property
    def outlines(self) -> Outlines:
        """What is in the file; it is read once."""
        return self.read()

    def __call__(self) -> np.ndarray:
        """Draw them in the smallest image with all of them."""
        return self.outlines.drawn().labels


class MasksOfBoth(NamedTuple):
    """The label images of two sides."""

    a: np.ndarray
    b: np.ndarray
    notes: tuple[str, ...]
    """What a reader has to know of outlines that were drawn, a clause each."""


def read_both(
    read_a: MaskReader,
    read_b: MaskReader,
    *,
    shape: Shape | None = None,
    a: str = "A",
    b: str = "B",
) -> MasksOfBoth:
    """Read the masks of two sides; outlines are drawn in the size of the other side."""
    notes: list[str] = []
    outlines = [each.outlines for each in (read_a, read_b) if isinstance(each, OutlineReader)]
    if len(outlines) == 2 and shape is None:
        extents = [each.extent for each in outlines]
        shape = tuple(map(max, *extents)) if len({*map(len, extents)}) == 1 else max(extents)
        notes.append(size_note(shape))

    def drawn(name: str, reader: OutlineReader, shape: Shape | None) -> np.ndarray:
        result = reader.outlines.drawn(shape)
        notes.extend(f"{name}: {note}" for note in result.notes)
        return result.labels

    if isinstance(read_b, OutlineReader):
        of_a = drawn(a, read_a, shape) if isinstance(read_a, OutlineReader) else read_a()
        return MasksOfBoth(of_a, drawn(b, read_b, of_a.shape), tuple(notes))
    of_b = read_b()
    of_a = drawn(a, read_a, of_b.shape) if isinstance(read_a, OutlineReader) else read_a()
    return MasksOfBoth(of_a, of_b, tuple(notes))


def in_one_size(a: MaskReaders, b: MaskReaders) -> tuple[MaskReaders, MaskReaders]:
    """Draw outlines of either side in the size of the other."""
    of_a = dict(a)
    of_b = dict(b)
    for name in a.keys() & b.keys():
        if isinstance(a[name], OutlineReader) or isinstance(b[name], OutlineReader):
            both = partial(read_both, a[name], b[name])
            of_a[name] = partial(_side_of, both, "a")
            of_b[name] = partial(_side_of, both, "b")
    return of_a, of_b


def _side_of(both: Callable[[], MasksOfBoth], side: Literal["a", "b"]) -> np.ndarray:
    masks = both()
    return masks.a if side == "a" else masks.b


def reader(file: Path) -> MaskReader:
    """Give a function that reads a mask file."""
    if is_outline_file(file):
        return OutlineReader(partial(read_outlines, file))
    return partial(read_labels, file)


def readers(files: Mapping[str, Path]) -> MaskReaders:
    """Give a reader for each mask file, by the same names."""
    return {name: reader(file) for name, file in files.items()}


def is_mask_file(path: Path) -> bool:
    """Whether a file is named as masks are, or holds outlines."""
    return path.suffix.lower() in MASK_ENDINGS or is_outline_file(path)


def mask_files(folder: Path) -> dict[str, Path]:
    """Find the masks in a folder, one file for each image, in the order of the files' names.

    Where files are named as masks (``NAME_masks``, ``NAME_cp_masks``, ``NAME_seg``) these alone
    count, since the others are the images; and ``NAME_seg.npy``, then outlines, count for an image
    that has no other masks, since Cellpose writes them beside them.
    """
    files = _candidates(folder)
    named_as_masks = [path for path in files if is_named_as_masks(path.stem)]
    by_image: dict[str, list[Path]] = {}
    for path in named_as_masks or files:
        by_image.setdefault(image_name(path.stem), []).append(path)
    return {name: _only_one(name, paths) for name, paths in by_image.items()}


def _candidates(folder: Path) -> list[Path]:
    """Files of a folder whose names end as those of masks do."""
    from cellrepro.images.folder_files import is_litter

    visible = (path for path in sorted(folder.iterdir()) if not is_litter(path.name))
    endings = (*MASK_ENDINGS, *OUTLINE_ENDINGS)
    return [path for path in visible if path.name.lower().endswith(endings) or is_zarr(path)]


def newer_seg_notes(folder: Path) -> Iterator[str]:
    """Say which masks of a folder were taken though a ``_seg.npy`` beside them is newer.

    A sentence each, without the name of the side.
    """
    from cellrepro.images.folder_files import is_newer

    for name, file in mask_files(folder).items():
        seg = file.with_name(f"{name}{SEG_ENDING}")
        if is_newer(seg, file):
            yield (
                f"{file.name} was compared, and {seg.name} was changed after it; if cells were "
                f"edited there, save the masks anew in the Cellpose GUI, or compare {seg.name} "
                "itself"
            )


def _only_one(name: str, paths: Sequence[Path]) -> Path:
    """Choose the file with the masks of an image; two label images are refused."""
    with_pixels = [path for path in paths if not path.name.lower().endswith(OUTLINE_ENDINGS)]
    label_images = [path for path in with_pixels if not path.name.endswith(SEG_ENDING)]
    candidates = label_images or with_pixels or _without_copies(paths)
    if len(candidates) > 1:
        names = joined([path.name for path in candidates])
        raise BadInput(
            f"{candidates[0].parent} holds {names}, which are all masks of the image {name}; "
            "expected one file for each image: move the others into a folder of their own, or give "
            "the file itself"
        )
    return candidates[0]


def _without_copies(paths: Sequence[Path]) -> Sequence[Path]:
    """Of outlines that Cellpose writes as ROIs and as text, which are the same, the ROIs."""
    rois = [path for path in paths if path.name.lower().endswith(ROIS_ENDING)]
    return rois if len(rois) == 1 else paths


# -- two folders whose names do not say what belongs together ------------------------------------

BY_ORDER = "order"
_PLACE = "{image}"


def paired(a: Path, b: Path, pattern: str | None) -> tuple[dict[str, Path], dict[str, Path]]:
    """Find the masks of two folders that belong together, by image.

    Without a pattern they are those of the same image. ``order`` takes them as they are sorted;
    ``{image}_label.tif`` says how files are called, and ``man_seg{image}.tif=mask{image}.tif`` how
    in each folder.
    """
    if pattern is None:
        return mask_files(a), mask_files(b)
    if pattern == BY_ORDER:
        return _paired_by_order(a, b)
    of_a, equals, of_b = pattern.partition("=")
    files_a = _named_like(a, of_a, pattern)
    files_b = _named_like(b, of_b if equals else of_a, pattern)
    return files_a, files_b


def _paired_by_order(a: Path, b: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    from natsort import natsorted

    files_a, files_b = (
        natsorted(mask_files(folder).items(), key=lambda item: item[1].name) for folder in (a, b)
    )
    if len(files_a) != len(files_b):
        raise BadInput(
            f"{a} and {b} hold {len(files_a)} and {len(files_b)} masks; expected as many in both "
            f"to pair them by order. {_PLACE}_masks.tif in --pairs says how they are called"
        )
    names = [name for name, _ in files_a]
    return dict(files_a), dict(zip(names, (file for _, file in files_b), strict=True))


def _named_like(folder: Path, template: str, pattern: str) -> dict[str, Path]:
    """Find the files of a folder that are called as a template says."""
    before, place, after = template.partition(_PLACE)
    if not place or _PLACE in after or "/" in template:
        raise BadInput(
            f"pairs is {pattern!r}; expected {BY_ORDER!r}, or the name of files with {_PLACE} once "
            f"in it, as {_PLACE}_label.tif, or such a name for each folder, as "
            f"man_seg{_PLACE}.tif=mask{_PLACE}.tif"
        )
    found = {
        path.name[len(before) : len(path.name) - len(after)]: path
        for path in sorted(folder.iterdir())
        if path.name.startswith(before) and path.name.endswith(after)
        if len(path.name) > len(before) + len(after)
    }
    if not found:
        there = some([path.name for path in sorted(folder.iterdir())]) or "nothing"
        raise BadInput(f"{folder} holds no file {template}, but {there}; see --pairs")
    return found
