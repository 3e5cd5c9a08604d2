"""What the numbers of a label image show by themselves of how it was made and saved.

Each remark is a clause without the name of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cellrepro.comparison.label_numbers import numbered_by_plane, numbering
from cellrepro.images.label_pieces import LEAST_OF_LARGEST, touching_pieces
from cellrepro.images.pictures import Pieces, doubt, many_pieces
from cellrepro.words import share_text
from samebits.words import amount

_Labels = NDArray[np.integer]

LARGEST_OF_BITS = {255: "8 bit", 65535: "16 bit", 127: "signed 8 bit", 32767: "signed 16 bit"}
"""The largest number that a pixel of so many bits holds."""
NO_BACKGROUND = "no pixel is 0, so none is background"
FEW_NUMBERS = 16
"""As many as a foreground map or a map of classes has."""
_MOST_OF_IMAGE = 0.5  # share of an image, and
_MOST_OF_BORDER = 0.8  # of its border, that a single object hardly covers


def number_remarks(image: _Labels) -> Iterator[str]:
    """Say what the numbers of a label image show of how it was made and saved."""
    remarks = [*background_remarks(image)]
    yield from remarks
    if numbering(image) == "anew":
        n_objects = amount(int(numbered_by_plane(image).image.max()), "object")
        yield (
            f"its numbers begin anew in each plane, so every plane counts by itself: {n_objects} "
            f"in {amount(len(image), 'plane')}"
        )
    elif pieces_of_map(image) is not None:
        yield from () if remarks else (f"it has {doubt(image)}",)
    else:
        yield from piece_remarks(image)


def pieces_of_map(image: _Labels) -> Pieces | None:
    """How the values lie of what may be a map of the foreground or of classes; None of others."""
    return many_pieces(image) if n_numbers(image) <= FEW_NUMBERS else None


def likely_adder(added: float) -> str:
    """Say which program adds such a number to all pixels; empty where none is known for it."""
    return ", as ImageJ does with signed 16 bit" if added == 32768 else ""


def n_numbers(image: _Labels) -> int:
    """Count the numbers of a label image; 0 is none."""
    return int(np.count_nonzero(np.unique(image)))


def may_be_cut(image: _Labels) -> bool:
    """Whether the largest number is the largest that a file of 8 or 16 bits holds."""
    return int(image.max(initial=0)) in LARGEST_OF_BITS


def piece_remarks(image: _Labels, *, counts_pieces: bool = False) -> Iterator[str]:
    """Say of a label image which numbers are in several pieces, and whether they were cut.

    ``counts_pieces`` where these pieces are counted, and not their numbers.
    """
    pieces = touching_pieces(image)
    areas = pieces.areas
    if not len(areas):
        return
    values, index = np.unique(pieces.values, return_inverse=True)
    largest = np.zeros(len(values), np.int64)
    np.maximum.at(largest, index, areas)
    n_pieces = np.bincount(index[areas >= LEAST_OF_LARGEST * largest[index]])
    several = values[n_pieces > 1]
    if not len(several):
        return
    limit = int(values[-1])
    is_cut = limit in LARGEST_OF_BITS
    if is_cut and several.tolist() == [limit]:
        yield (
            f"its numbers stop at {limit}, the largest of {LARGEST_OF_BITS[limit]}: that one "
            f"number is in {amount(int(n_pieces[-1]), 'piece')} that do not touch"
            f"{'' if counts_pieces else ', and counts as one object'}; save the masks again, with "
            "16 or 32 bits"
        )
        return
    why = (
        f"; the largest is {limit}, the largest of {LARGEST_OF_BITS[limit]}, so larger ones were "
        "probably cut or began anew at 0 when it was saved; save the masks again, with 16 or 32 "
        "bits"
        if is_cut
        else ""
    )
    verb = "is" if len(several) == 1 else "are"
    yield (
        f"{len(several)} of its {amount(len(values), 'number')} {verb} in several pieces that do "
        f"not touch{'' if counts_pieces else ', and each counts as one object'}{why}"
    )


def background_remarks(image: _Labels) -> Iterator[str]:
    """Say of a label image that nothing in it is background, or what looks like background."""
    if not image.size:
        return
    sides = (image[..., 0, :], image[..., -1, :], image[..., :, 0], image[..., :, -1])
    border = np.concatenate([side.ravel() for side in sides])
    values, counts = np.unique(border, return_counts=True)
    value = int(values[np.argmax(counts)])
    is_around = value > 0 and counts.max() >= _MOST_OF_BORDER * len(border)
    smallest = int(image.min())
    share = float(np.mean(image == value)) if is_around else 0.0
    covers = f"number {value} covers {share_text(share)} of it and most of its border"
    if smallest > 0:
        why = ""
        if is_around and value == smallest:
            by_whom = likely_adder(value)
            why = f"; {covers}: it was probably added to all{by_whom}, so subtract it"
        elif is_around and value == image.max():
            why = f"; {covers}: it is probably inverted, as by an inverting LUT, so invert it"
        yield f"{NO_BACKGROUND}{why}"
    elif share > _MOST_OF_IMAGE:
        yield (
            f"{covers}: this is probably the background of an inverted image (an inverting LUT), "
            "so invert it"
        )
