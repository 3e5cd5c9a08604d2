"""What `growth` answers: how the difference of two runs grows from checkpoint to checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.words import ppm_text, share_text

if TYPE_CHECKING:
    from cellrepro.divergence.growth import Moment

_COLUMNS = "epoch  distance  pixels                cells changed  AP@0.5 of A, of B"
_EXPLAINED = (
    "distance: of the weights, relative to their length; pixels and cells: of the masks had "
    "training ended there"
)


@dataclass(frozen=True)
class MomentDocument:
    """How far two runs lie apart after some epochs. What was not segmented or scored is none."""

    epoch: int
    """Epochs done."""
    n_differing: int
    """Parameters whose bits differ, out of the next."""
    n_parameters: int
    """Of each network."""
    relative_l2: float
    """Distance of the weights, relative to their length."""
    ppm: float | None
    """Differing pixels per million of the masks."""
    lost: int | None
    """Objects of A without a match in B at IoU 0.5."""
    gained: int | None
    """Objects of B without a match in A."""
    objects: tuple[int, int] | None
    """In A and in B."""
    changed: float | None
    """Share of both sides' objects without a match."""
    distance: float
    """As ``relative_l2``."""
    ap50_a: float | None
    """Mean AP at IoU 0.5 against the ground truth."""
    ap50_b: float | None
    """Mean AP at IoU 0.5 against the ground truth."""


@dataclass(frozen=True)
class GrowthDocument:
    """What ``cellrepro growth --json`` prints."""

    a: str
    """``KEY/MACHINE/REPEAT``."""
    b: str
    """The same of the other run."""
    moments: Sequence[MomentDocument]
    """The earliest first."""


def growth_answer(moments: Sequence[Moment], a: str, b: str) -> Answer[GrowthDocument]:
    """Answer with a line for each checkpoint."""
    document = GrowthDocument(a=a, b=b, moments=[_moment_document(moment) for moment in moments])
    rows = [_moment_line(moment) for moment in moments]
    return Answer(document, [f"A: {a}", f"B: {b}", _COLUMNS, *rows, _EXPLAINED])


def _moment_document(moment: Moment) -> MomentDocument:
    ap50_a, ap50_b = moment.ap50 or (None, None)
    return MomentDocument(
        epoch=moment.epoch,
        n_differing=moment.n_differing,
        n_parameters=moment.n_parameters,
        relative_l2=moment.relative_l2,
        ppm=moment.ppm,
        lost=moment.lost,
        gained=moment.gained,
        objects=moment.objects,
        changed=moment.changed,
        distance=moment.relative_l2,
        ap50_a=ap50_a,
        ap50_b=ap50_b,
    )


def _moment_line(moment: Moment) -> str:
    pixels = "–" if moment.ppm is None else ppm_text(moment.ppm)
    cells = "–" if moment.changed is None else share_text(moment.changed)
    scores = "–" if moment.ap50 is None else "{:.3f}, {:.3f}".format(*moment.ap50)
    return f"{moment.epoch:5}  {moment.relative_l2:<8.2g}  {pixels:20}  {cells:13}  {scores}"
