"""What is measured of the cells of an image, each thing declared once: name, unit, meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.extras import absent, needs
from samebits.errors import BadInput
from samebits.words import some

Measured = float | NDArray[np.float64]
"""A number of the image, or one for each cell, whose mean is taken."""
OwnReadout = Callable[[np.ndarray, "np.ndarray | None"], Measured]
"""Takes the masks, numbered from 1, and the image, or None where none was given."""
_MOST_LETTERS = 80  # of a name that a message repeats


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of an image, as all readouts see them."""

    masks: np.ndarray
    """Numbered from 1."""
    columns: Mapping[str, NDArray[np.float64]]
    """What scikit-image measured of each cell, by its own names; ``NAME-0`` of a channel."""


@dataclass(frozen=True)
class Readout:
    """Something that is measured of the cells of an image."""

    name: str
    unit: str
    meaning: str
    measure: Callable[[Cells, int], Measured]
    """Of the cells, and of a channel of the image."""
    properties: tuple[str, ...] = ()
    """Those of ``skimage.measure.regionprops_table`` that it needs."""
    by_channel: bool = False
    """Whether it reads the image, one channel of it."""


def _count(cells: Cells, channel: int) -> float:
    return float(cells.masks.max(initial=0))


def _area_fraction(cells: Cells, channel: int) -> float:
    return np.count_nonzero(cells.masks) / max(1, cells.masks.size)


def _nearest_neighbour(cells: Cells, channel: int) -> Measured:
    from scipy.spatial import KDTree

    axes = range(cells.masks.ndim)
    centres = np.stack([cells.columns[f"centroid-{axis}"] for axis in axes], axis=1)
    if len(centres) < 2:
        return np.empty(0)
    return np.asarray(KDTree(centres).query(centres, k=2)[0][:, 1], float)


def _total_intensity(cells: Cells, channel: int) -> Measured:
    return cells.columns["area"] * cells.columns[f"intensity_mean-{channel}"]


def _of_library(
    name: str, unit: str, meaning: str, column: str, *, by_channel: bool = False
) -> Readout:
    """A readout that scikit-image has under a name of its own."""

    def measure(cells: Cells, channel: int) -> Measured:
        return cells.columns[f"{column}-{channel}" if by_channel else column]

    return Readout(name, unit, meaning, measure, (column,), by_channel=by_channel)


READOUTS: dict[str, Readout] = {
    readout.name: readout
    for readout in (
        Readout("count", "cells", "cells in an image", _count),
        _of_library("area", "pixels", "area of a cell", "area"),
        _of_library(
            "equivalent_diameter",
            "pixels",
            "diameter of a circle with the area of the cell",
            "equivalent_diameter_area",
        ),
        Readout("area_fraction", "share", "share of the image that is in cells", _area_fraction),
        Readout(
            "nearest_neighbour",
            "pixels",
            "distance from the centre of a cell to the nearest other one",
            _nearest_neighbour,
            ("centroid",),
        ),
        _of_library(
            "mean_intensity",
            "grey levels",
            "mean intensity of the pixels of a cell",
            "intensity_mean",
            by_channel=True,
        ),
        Readout(
            "total_intensity",
            "grey levels",
            "sum of the intensities of the pixels of a cell",
            _total_intensity,
            ("area", "intensity_mean"),
            by_channel=True,
        ),
        _of_library(
            "maximum_intensity",
            "grey levels",
            "largest intensity in a cell",
            "intensity_max",
            by_channel=True,
        ),
    )
}
"""By name. What is measured of each cell is averaged over the cells of the image."""


@dataclass(frozen=True)
class ChosenReadout:
    """A readout as a user asked for it."""

    name: str
    """As it was asked for: with the channel, where one was named."""
    what: Readout | OwnReadout
    channel: int = 0

    @property
    def unit(self) -> str:
        """Its unit; empty for a function of the user's."""
        return self.what.unit if isinstance(self.what, Readout) else ""

    @property
    def needs_image(self) -> bool:
        """Whether it cannot be measured without the image."""
        return isinstance(self.what, Readout) and self.what.by_channel

    @property
    def may_need_image(self) -> bool:
        """Whether an image that is given has to be read for it: a function may look at it."""
        return self.needs_image or not isinstance(self.what, Readout)

    def value(self, cells: Cells, image: np.ndarray | None) -> float:
        """The number of an image: the mean over its cells; NaN where there is none."""
        if isinstance(self.what, Readout):
            measured = np.asarray(self.what.measure(cells, self.channel), float)
        else:
            measured = self._own(self.what(cells.masks, image))
        known = measured[np.isfinite(measured)]
        return float(known.mean()) if known.size else float("nan")

    def _own(self, measured: object) -> NDArray[np.float64]:
        """Take what a function of the user's gave as numbers."""
        expected = "expected one number for the image, or an array with one for each cell"
        try:
            numbers = np.asarray(measured, float)
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"the readout {self.name} gave no numbers ({error}); {expected}"
            ) from error
        if numbers.ndim > 1:
            raise BadInput(
                f"the readout {self.name} gave an array of shape {numbers.shape}; {expected}"
            )
        return numbers


def cells_of(
    masks: np.ndarray, image: np.ndarray | None, readouts: Sequence[ChosenReadout]
) -> Cells:
    """Measure at once what all readouts need of each cell."""
    named = [one.what for one in readouts if isinstance(one.what, Readout)]
    properties = dict.fromkeys(name for readout in named for name in readout.properties)
    if not properties:
        return Cells(masks, {})
    from skimage.measure import regionprops_table

    of_channels = image if any(readout.by_channel for readout in named) else None
    table = regionprops_table(masks, of_channels, properties=tuple(properties))
    return Cells(masks, {name: np.asarray(column, float) for name, column in table.items()})


def chosen_readouts(
    readouts: str | OwnReadout | Sequence[str | OwnReadout],
) -> tuple[ChosenReadout, ...]:
    """Find the readouts that were asked for, in a text with commas, a list, or a function."""
    if isinstance(readouts, str):
        asked: Sequence[str | OwnReadout] = [part.strip() for part in readouts.split(",")]
    elif callable(readouts):
        asked = [readouts]
    else:
        asked = readouts
    chosen = tuple(_chosen(one) for one in asked)
    names = [one.name for one in chosen]
    if not names or len(names) != len(set(names)):
        raise BadInput(
            f"readouts are {', '.join(names) or 'none'}; expected at least one, each once, of "
            f"{_known()}"
        )
    if any(isinstance(one.what, Readout) and one.what.properties for one in chosen):
        missing = absent(["skimage"])
        if missing:
            raise needs(missing, what="a readout of single cells")
    return chosen


def _known() -> str:
    names = [f"{name}[:CHANNEL]" if one.by_channel else name for name, one in READOUTS.items()]
    return ", ".join(names)


def _chosen(asked: str | OwnReadout) -> ChosenReadout:
    if callable(asked):
        return ChosenReadout(getattr(asked, "__name__", type(asked).__name__), asked)
    if not isinstance(asked, str):
        raise BadInput(
            f"a readout is of the type {type(asked).__name__}; expected a name ({_known()}), or a "
            "function that takes the masks and the image"
        )
    name, colon, channel = asked.partition(":")
    readout = READOUTS.get(name)
    if readout is None:
        raise BadInput(f"the readout is {asked[:_MOST_LETTERS]!r}; expected one of {_known()}")
    is_channel = channel.isascii() and channel.isdigit() and len(channel) < 4
    if colon and not (readout.by_channel and is_channel):
        with_channels = [name for name, one in READOUTS.items() if one.by_channel]
        raise BadInput(
            f"the readout is {asked[:_MOST_LETTERS]!r}; channels are numbers from 0, only of "
            f"{some(with_channels)}"
        )
    return ChosenReadout(asked, readout, int(channel or 0))
