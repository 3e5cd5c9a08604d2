"""How near a search came to a result: the condition that comes closest, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from cellrepro.enums import StrEnum
from cellrepro.explanation.conditions import Condition
from cellrepro.explanation.trials import Gap
from samebits.results import derived

_AS_GOOD_AS_EQUAL = 1e-3  # share of pixels of cells that rounding on another device changes
_IN_PART = 0.5  # share of cells made again pixel for pixel; with other settings none is


class Reproduced(StrEnum):
    """Whether the conditions of a result were found; each member equals its word."""

    MADE = "made"
    IN_PART = "in part"
    """At least half of its cells were, pixel for pixel."""
    NOT_FOUND = "not found"
    VACUOUS = "vacuous"
    """It has no cell: any condition that finds nothing makes it."""


NetworkDoubt = Literal["", "probably another", "not searched"]
PROBABLY_ANOTHER: NetworkDoubt = "probably another"


@dataclass(frozen=True)
class ValueTried:
    """A name of a condition, with a value that was tried."""

    name: str
    """The setting."""
    value: Any
    """A value with which no cell was found."""


@dataclass(frozen=True)
class Fit:
    """The condition that comes closest to a result, and what it leaves."""

    nearest: Condition
    """The settings that come nearest to it."""
    start: Condition = field(repr=False)
    """What is recorded; the rest was searched."""
    gap: Gap = field(repr=False)
    """Between the result and what the condition makes."""
    of_cells: int
    """Cells of both the side and what was made."""
    n_target: int = field(repr=False)
    """Cells of the result."""
    exact: int
    """Cells of the side that were made again pixel for pixel."""
    n_pixels: int = field(repr=False)
    """Pixels of the result's cells."""
    tried: int
    """Conditions that were tried."""
    n_values: int = field(default=0, repr=False)
    """Values that a search with enough time tries one by one, of what nobody recorded."""
    n_values_left: int = field(default=0, repr=False)
    """Those of them that were not tried."""
    stopped: bool = False
    """Whether time was up, or the user ended the search, before everything was tried."""
    empty_with: tuple[ValueTried, ...] = ()
    """Changes with which no cell is found."""
    network_doubt: NetworkDoubt = ""
    """``probably another``: the settings that change most cells are recorded, and do not make it;
    ``not searched``, as that is so of the other side. Else empty."""

    @derived
    def found(self) -> Reproduced:
        """Whether this is how the side was made: ``vacuous`` where it has no cell, so that any
        condition that finds nothing makes it."""
        if self.empty_with or (not self.n_target and self.gap.n_differing):
            return Reproduced.VACUOUS
        n_as_good_as_none = _AS_GOOD_AS_EQUAL * self.n_pixels
        if not self.gap.n_unmatched and self.gap.n_differing <= n_as_good_as_none:
            return Reproduced.MADE
        if self.exact >= _IN_PART * self.n_target:
            return Reproduced.IN_PART
        return Reproduced.NOT_FOUND

    @derived
    def cells_left(self) -> int:
        """Cells without a match, of both the side and what was made."""
        return self.gap.n_unmatched

    @derived
    def pixels_left(self) -> int:
        """Pixels that still differ."""
        return self.gap.n_differing

    @property
    def makes_no_cell(self) -> bool:
        """Whether a search to its end makes not one cell exactly: where the network is right, what
        is nearly right makes some."""
        return not self.exact and not self.stopped

    @property
    def n_values_tried(self) -> int:
        """Values that were tried one by one."""
        return self.n_values - self.n_values_left

    @property
    def came_to_something(self) -> bool:
        """Whether the result, or a good part of it, was made again."""
        return self.found in (Reproduced.MADE, Reproduced.IN_PART)

    @property
    def is_unmade(self) -> bool:
        """Whether it has cells, and what makes all of them was not found."""
        return self.found in (Reproduced.NOT_FOUND, Reproduced.IN_PART)

    @property
    def believed(self) -> Condition:
        """The condition as far as it may be called a cause."""
        return self.nearest if self.came_to_something else self.start
