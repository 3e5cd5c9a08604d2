"""Why two results differ, as it is said first: the cause, how sure that is, what finds it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cellrepro.explanation.cellpose_call import note_on
from cellrepro.explanation.setting_meanings import digests_in_words, field_in_words
from cellrepro.explanation.settings_of_both import is_missing, setting_in_words
from cellrepro.words import cut
from samebits.words import amount, joined

_MOST_LETTERS = 60  # of a value

FILES_ALONE = "From what the files record alone; nothing was segmented."
"""How a likely cause is known."""
RUNS_ALONE = "From what the runs record; nothing was computed again."
"""How one of two stored runs is known."""
MASKS_ALONE = "From the masks alone; nothing was segmented."
"""How one is known that no file records."""


@dataclass(frozen=True)
class Share:
    """How many of several things."""

    n: int
    """Those that are meant."""
    of: int
    """All of them."""

    @property
    def n_others(self) -> int:
        """All but those that are meant."""
        return self.of - self.n


@dataclass(frozen=True)
class Cause:
    """What makes two results differ."""

    name: str
    """The setting or field under its own name, or what else it is: ``numbers``, ``outlines``,
    ``position``, ``edits by hand``, ``stitching``, ``straight cuts``, ``image``, ``image.crop``,
    ``chance``."""
    a: object = None
    """Its value in A; ``?`` where no file records it, null for what has no value."""
    b: object = None
    """Its value in B."""
    confirmed: bool = False
    """Whether it was shown to make the difference: by segmenting again, or, of numbers, outlines,
    positions, edits by hand and crops, by the masks themselves; else it is the likely one of what
    is recorded."""
    cells: Share | None = None
    """Changed cells that it explains, of all changed cells; null where no file tells."""
    images: Share | None = None
    """Images of two folders in which it fits, of those that differ; null of two files."""
    words: str = field(default="", repr=False)
    """What is said of it in place of two values."""
    usual: str = field(default="", repr=False)
    """What Cellpose takes where a side records nothing, or no diameter; empty where that is not
    known."""
    near: tuple[str, ...] = field(default=(), repr=False)
    """Letters of the sides whose number was found by trying, so that others near it may do."""
    detail: str = field(default="", repr=False)
    """What of it can change cells, as the precision of two profiles; empty where its name says
    all."""

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"{field_in_words(self.name)}{f' ({self.detail})' if self.detail else ''}"

    @property
    def values_text(self) -> str:
        """Say how much it explains, and what each side has of it.

        >>> Cause("diameter", 42.4, "?", usual="30").values_text
        'A records 42.4, B nothing (the usual value is 30)'
        >>> Cause("diameter", 42.4, None, confirmed=True, usual="30").values_text
        '42.4 in A, not set (as if 30) in B'
        >>> Cause("diameter", 30.0, 42.2, confirmed=True, near=("B",)).values_text
        '30 in A, about 42.2 in B'
        >>> Cause("diameter", 42.4, 30.0, images=Share(2, 3)).values_text
        'fits in 2 of the 3 images that differ; A records 42.4, B 30'
        >>> Cause("stitching", words="planes were cut", cells=Share(1, 3)).values_text
        'explains 1 of 3 changed cells, the other 2 stay unexplained; planes were cut'
        """
        return "; ".join([*self._how_much(), self._values()])

    def _how_much(self) -> Iterator[str]:
        if self.images is not None:
            yield _images_text(self.images)
        if self.cells is not None and self.cells.n_others:
            others = self.cells.n_others
            stay = "the other one stays" if others == 1 else f"the other {others} stay"
            changed = amount(self.cells.of, "changed cell")
            yield f"explains {self.cells.n} of {changed}, {stay} unexplained"

    def _values(self) -> str:
        if self.words:
            return self.words
        if digests_in_words(self.name):
            return f"A and B record {digests_in_words(self.name)}"
        a, b = (self._value(value) for value in (self.a, self.b))
        is_recorded = not (is_missing(self.a) or is_missing(self.b))
        if self.confirmed or (is_recorded and None in (self.a, self.b)):
            about_a, about_b = ("about " * (letter in self.near) for letter in "AB")
            return f"{about_a}{a} in A, {about_b}{b} in B"
        usual = f" (the usual value is {self.usual})" if self.usual else ""
        if is_missing(self.a):
            return f"A records nothing{usual}; B records {b}"
        if is_missing(self.b):
            return f"A records {a}, B nothing{usual}"
        return f"A records {a}, B {b}"

    def _value(self, value: object) -> str:
        return cut(setting_in_words(self.name, value, unset_as=self.usual), _MOST_LETTERS)

    def __str__(self) -> str:
        return f"{self.title}; {self.values_text}"


def _images_text(images: Share) -> str:
    if images.of == 1:
        return "in the only image that differs"
    of = f"all {images.of}" if images.n == images.of else f"{images.n} of the {images.of}"
    return f"fits in {of} images that differ"


@dataclass(frozen=True)
class Why:
    """The cause of a difference, as far as it is known, and what finds out more."""

    cause: Cause | None
    """None where nothing tells."""
    others: tuple[Cause, ...] = ()
    """Found ones beside it, or what else may be one, the most likely first."""
    nothing_tells: str = "nothing that is recorded tells"
    """What is said where there is no cause."""
    remains: tuple[str, ...] = ()
    """What it leaves unexplained, or why nothing was segmented again, a clause each."""
    evidence: tuple[str, ...] = ()
    """What other runs of the store tell of it, a sentence each."""
    find_out: str = ""
    """The command that finds the cause; empty where none does."""

    @property
    def is_found(self) -> bool:
        """Whether the cause was shown to make the difference."""
        return self.cause is not None and self.cause.confirmed

    @property
    def sentence(self) -> str:
        """Say the cause in a line.

        >>> Why(Cause("diameter", 42.4, "?")).sentence
        'likely: diameter; A records 42.4, B nothing'
        >>> Why(None).sentence
        'why: not known, as nothing that is recorded tells'
        """
        others = f" ({self.others_text})" if self.others_text else ""
        said = (f"{self._head()}{others}", *self._found_beside, *self.remains, *self.evidence)
        return "; ".join(said)

    def _head(self) -> str:
        if self.cause is None:
            return f"why: not known, as {self.nothing_tells}"
        return f"{'found' if self.is_found else 'likely'}: {self.cause}"

    @property
    def _found_beside(self) -> list[str]:
        """The other causes that were found, of which each is needed."""
        return [f"and: {other}" for other in self.others] if self.is_found else []

    @property
    def others_text(self) -> str:
        """Name what else may be the cause; empty where nothing else may."""
        if self.is_found or not self.others:
            return ""
        names = dict.fromkeys(other.title for other in self.others)
        what = "what" if self.cause is None else "what else"
        return f"{what} may be the cause: {joined(list(names))}"

    def lines(self) -> Iterator[str]:
        """Say the cause, what is known beside it, and the command that finds it out."""
        yield from self.said_lines()
        if self.find_out:
            yield from find_out_lines(self.find_out)

    def said_lines(self) -> Iterator[str]:
        """Say the cause, and on lines of their own what is known beside it."""
        yield self._head()
        others = [self.others_text] if self.others_text else []
        for each in (*self._found_beside, *others, *self.remains, *self.evidence):
            yield f"  {each}"


def find_out_lines(command: str) -> Iterator[str]:
    """Give the command that finds a cause, and what to put into it."""
    yield f"  to find out: {command}"
    if note := note_on(command):
        yield f"    ({note})"
