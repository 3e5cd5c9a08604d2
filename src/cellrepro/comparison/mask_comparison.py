"""Label images side by side: the same objects or not, how many pixels differ, and the scores.

``a`` and ``b`` stand where neither side is the truth; where one is, it is ``a``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cellrepro.comparison.changed_cells import cell_rows, listed_cells
from cellrepro.comparison.label_pair import ReadPair, read_pair
from cellrepro.comparison.mask_totals import totals_over
from cellrepro.comparison.object_changes import ObjectChange, object_changes
from cellrepro.comparison.object_matching import partners
from cellrepro.comparison.scores import THRESHOLDS, MaskScores, ratio, scores_of
from cellrepro.comparison.verdicts import Verdict
from cellrepro.images.label_image import label_images
from samebits.results import Result, Row, derived, json_names

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from cellrepro.comparison.label_numbers import Numbering


@dataclass(frozen=True, eq=False, repr=False)
class MaskCounts:
    """The counts of two label images: pixels, and the changes of every object."""

    shape: tuple[int, ...]
    """(Y, X) or (Z, Y, X), pixels."""
    n_pixels: int
    """All pixels; the next five numbers add up to this."""
    n_background: int
    """Pixels that are background on both sides."""
    n_agree: int
    """Pixels that are of partners on both sides, the same object in both."""
    n_only_a: int
    """Pixels of an object in a, and background in b."""
    n_only_b: int
    """Pixels of an object in b, and background in a."""
    n_other_object: int
    """Pixels of objects on both sides that are no partners, not the same object."""
    n_differing: int
    """``n_only_a + n_only_b + n_other_object``."""
    ppm: float
    """Differing pixels per million, ``1 000 000 · n_differing / n_pixels``; 10 000 ppm are 1 %."""
    verdict: Verdict
    """Never ``within-spread``, which takes more than two images to know."""
    same_numbering: bool
    """Whether what is one number on one side is one number on the other; else the verdict is
    ``different``, even where all outlines are equal."""
    by_plane: bool
    """Whether every plane was compared by itself, as numbers of one side begin anew in each."""
    numbering_a: Numbering
    """How the numbers of each side run through planes: none is in two, objects keep theirs, or they
    begin anew."""
    numbering_b: Numbering
    """How the numbers of each side run through planes: none is in two, objects keep theirs, or they
    begin anew."""
    n_shared_a: int
    """Numbers of each side that name several objects which do not touch. These count by
    themselves."""
    n_shared_b: int
    """Numbers of each side that name several objects which do not touch. These count by
    themselves."""
    objects: tuple[ObjectChange, ...] = field(repr=False)
    """The changes of all objects; each object is in exactly one of them."""
    kinds: Counter[str] = field(repr=False)
    """How many changes of each `ObjectKind` there are."""
    n_objects_a: int
    """Objects of a."""
    n_objects_b: int
    """Objects of b."""
    n_renumbered: int
    """Objects that have different numbers on the two sides."""


@dataclass(frozen=True, eq=False, repr=False)
class MaskComparison(MaskScores, MaskCounts, Result):
    """How two label images of equal shape differ, as `compare_masks` returns it.

    Two objects are *partners* if the one-to-one assignment with the largest total overlap pairs
    them; pixels are counted by it. Two objects *match* if their intersection over union (IoU) is
    at least a threshold; scores are counted by that, and where no threshold is named it is 0.5. An
    IoU above 0.5 implies partners. A score over nothing is NaN.
    """

    @derived
    def n_kept(self) -> int:
        """Objects with a counterpart that covers them, less than 1 pixel away."""
        return self.kinds["kept"]

    @derived
    def n_moved(self) -> int:
        """Objects whose counterpart lies a pixel or more away, or has an IoU below 0.5."""
        return self.kinds["moved"]

    @derived
    def n_lost(self) -> int:
        """Objects that only a has."""
        return self.kinds["lost"]

    @derived
    def n_gained(self) -> int:
        """Objects that only b has."""
        return self.kinds["gained"]

    @derived
    def n_split(self) -> int:
        """Objects of a that are several in b; all parts of one count once."""
        return self.kinds["split"]

    @derived
    def n_merged(self) -> int:
        """Objects of b that are several in a; all parts of one count once."""
        return self.kinds["merged"]

    @derived
    def thresholds(self) -> tuple[float, ...]:
        """The IoU at which ``ap``, ``precision``, ``recall`` and ``f1`` are given."""
        return THRESHOLDS

    def sentence(self) -> str:
        """How many cells each side has, what became of them, and how many pixels differ."""
        return totals_over([self]).sentence()

    def rows(self) -> Sequence[Row]:
        """A row for every object that is not kept, or is kept in another size."""
        return cell_rows(listed_cells({"": self}), a="A", b="B", n_images=1)

    def figures(self) -> dict[str, Any]:
        """Every count and score by name, as JSON has them."""
        return {name: getattr(self, name) for name in json_names(type(self))}


def compare_masks(a: ArrayLike, b: ArrayLike) -> MaskComparison:
    """Get the verdict on two label images, what became of every object, and every score.

    Parameters
    ----------
    a, b : array_like of int, shape (Y, X) or (Z, Y, X)
        0 is background, every other label one object. Neither has to be the truth; where the two
        sides mean different things (precision, recall, AJI, the Rand error), a is.

    Returns
    -------
    MaskComparison
        Renumbering the objects of either only turns ``identical`` into ``same-objects``. Swapping
        a and b swaps the two sides, and changes nothing else but the AJI and the Rand error.

    Raises
    ------
    BadInput
        If one is no label image, or their shapes differ.

    Examples
    --------
    >>> result = compare_masks([[1, 1, 0, 2]], [[1, 1, 0, 0]])
    >>> result.verdict.value, result.n_differing, result.recall50
    ('different', 1, 0.5)
    >>> [(change.kind.value, change.labels_a, change.position) for change in result.objects]
    [('kept', (1,), (0.0, 0.5)), ('lost', (2,), (0.0, 3.0))]
    """
    pair = read_pair(*label_images(("a", a), ("b", b)))
    return MaskComparison(**vars(counts_of(pair)), **vars(scores_of(pair)))


def counts_of(pair: ReadPair) -> MaskCounts:
    """Count pixels and objects of two label images."""
    table = pair.table
    n_pixels = pair.a.image.size
    n_shared = int(table.pixels.sum())
    n_agree = int(table.pixels[partners(table)].sum())
    n_only_a = int(table.areas_a.sum()) - n_shared
    n_only_b = int(table.areas_b.sum()) - n_shared
    n_other_object = n_shared - n_agree
    n_differing = n_only_a + n_only_b + n_other_object
    objects = object_changes(table)
    return MaskCounts(
        shape=pair.a.image.shape,
        n_pixels=n_pixels,
        n_background=table.n_background,
        n_agree=n_agree,
        n_only_a=n_only_a,
        n_only_b=n_only_b,
        n_other_object=n_other_object,
        n_differing=n_differing,
        ppm=1e6 * ratio(n_differing, n_pixels),
        verdict=_verdict(pair, n_differing),
        same_numbering=pair.numbers_mean_the_same,
        by_plane=pair.by_plane,
        numbering_a=pair.a.numbering,
        numbering_b=pair.b.numbering,
        n_shared_a=pair.a.n_shared,
        n_shared_b=pair.b.n_shared,
        objects=objects,
        kinds=Counter(change.kind for change in objects),
        n_objects_a=table.n_a,
        n_objects_b=table.n_b,
        n_renumbered=sum(change.renumbered for change in objects),
    )


def _verdict(pair: ReadPair, n_differing: int) -> Verdict:
    if pair.table.equal_labels:
        return Verdict.IDENTICAL if pair.table.n_a else Verdict.VACUOUS
    differs = n_differing or not pair.numbers_mean_the_same
    return Verdict.DIFFERENT if differs else Verdict.SAME_OBJECTS
