"""What `tiles` answers: which cells depend on where tiles lie, and straight cuts in masks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.words import amount

if TYPE_CHECKING:
    from cellrepro.changes.tile_dependence import Tiled, TileDependence
    from cellrepro.same.straight_borders import Seam, StraightBorder


_LINES = {False: "row or column", True: "row, column or plane"}
"""What a flat label image and a stack may be cut along."""


@dataclass(frozen=True)
class TiledImageDocument:
    """How an image depends on its tiles."""

    name: str
    """The image."""
    n_cells: int
    """In the usual result."""
    n_dependent: int
    """Cells without a counterpart where tiles lie elsewhere."""
    n_gained: int
    """Cells there without a counterpart in the usual result."""
    n_by_normalisation: int
    """Cells that change where a crop is normalised by itself."""
    seam: Seam
    """Straight ends at tile borders, beside everywhere else."""
    cuts: Sequence[StraightBorder]
    """Rows, columns and planes at which cells end straight."""
    dependent: Sequence[int]
    """Labels of the cells that depend on tiles."""
    stands_out: bool
    """Whether there are more straight ends at tile borders than elsewhere."""


@dataclass(frozen=True)
class TilesDocument:
    """What ``cellrepro tiles --json`` prints."""

    images: Sequence[TiledImageDocument]
    """One for each image."""
    cause: str
    """``tiling``, ``normalisation`` or ``none``."""
    variants: Sequence[str]
    """How tiles were laid otherwise, in words."""
    vacuous: bool
    """Whether no image has a cell."""


@dataclass(frozen=True)
class CutImageDocument:
    """The straight cuts of a label image."""

    name: str
    """The file."""
    cuts: Sequence[StraightBorder]
    """Those first at which most cells end."""


@dataclass(frozen=True)
class CutsDocument:
    """What ``cellrepro tiles --masks FILE --json`` prints."""

    images: Sequence[CutImageDocument]
    """One for each label image."""
    vacuous: bool
    """Whether the label image holds no object."""


def tiles_answer(dependence: TileDependence) -> Answer[TilesDocument]:
    """Answer with the cells of each image that depend on tiles, and with its straight cuts."""
    document = TilesDocument(
        images=[_image_document(image) for image in dependence.images],
        cause=dependence.cause,
        variants=dependence.variants,
        vacuous=dependence.vacuous,
    )
    variants = ", ".join(dependence.variants)
    lines = [f"compared with the whole image: {variants}; intensities scaled alike"]
    for image in dependence.images:
        lines.append(_image_line(image))
        lines += _cut_lines(image.cuts)
    if dependence.vacuous:
        lines.append("vacuous: no cell was found in any image, so none could depend on tiles")
    lines.append(f"cause: {dependence.cause}")
    return Answer(document, lines)


def cuts_answer(
    name: str, cuts: Sequence[StraightBorder], *, n_objects: int, is_stack: bool = False
) -> Answer[CutsDocument]:
    """Answer with the straight cuts in one label image."""
    if cuts:
        lines = [f"{name}:", *_cut_lines(cuts)]
    elif n_objects:
        lines = [f"{name}: no {_LINES[is_stack]} at which more cells end straight than elsewhere"]
    else:
        lines = [f"{name}: vacuous: it holds no object, so none could be cut"]
    return Answer(CutsDocument([CutImageDocument(name, cuts)], vacuous=not n_objects), lines)


def _image_document(image: Tiled) -> TiledImageDocument:
    return TiledImageDocument(
        name=image.name,
        n_cells=image.n_cells,
        n_dependent=image.n_dependent,
        n_gained=image.n_gained,
        n_by_normalisation=image.n_by_normalisation,
        seam=image.seam,
        cuts=image.cuts,
        dependent=image.dependent,
        stands_out=image.seam.stands_out,
    )


def _image_line(image: Tiled) -> str:
    seam = image.seam
    return (
        f"{image.name}: {image.n_dependent} of {amount(image.n_cells, 'cell')} depend on where "
        f"tiles lie, and {image.n_gained} are gained; {image.n_by_normalisation} change where a "
        f"crop is scaled by itself; straight ends: {seam.n_at} at "
        f"{amount(seam.n_lines, 'tile border')}, {seam.n_elsewhere} at "
        f"{amount(seam.n_other_lines, 'other line')} (chance {seam.chance:.2g})"
    )


def _where(cut: StraightBorder) -> str:
    """Say where a cut is; planes count from 1, as in viewers."""
    if cut.axis == "z":
        return f"between planes {cut.at} and {cut.at + 1}"
    return f"at {cut.axis} {cut.at}"


def _cut_lines(cuts: Iterable[StraightBorder]) -> list[str]:
    return [
        f"    straight cut {_where(cut)}: {amount(cut.n_objects, 'straight end')} along "
        f"{amount(cut.length, 'pixel')} (chance {cut.chance:.2g})"
        for cut in cuts
    ]
