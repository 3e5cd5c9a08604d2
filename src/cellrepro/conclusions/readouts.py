"""What is measured of the cells of an image, each thing declared once: name, unit, meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellrepro.errors import BadInput
from cellrepro.extras import absent, needs
from cellrepro.words import some

Measured = float | NDArray[np.float64]
"""A number of the image, or one for each cell, whose mean is taken."""
OwnReadout = Callable[[np.ndarray, "np.ndarray | None"], Measured]
"""Takes the masks, numbered from 1, and the image, or None where none was given."""
_MOST_LETTERS = 80  # of a name that a message repeats


@dataclass(frozen=True)
class Readout:
    """Something that is measured of the cells of an image."""

    name: str
    unit: str
    meaning: str
    measure: Callable[[np.ndarray, np.ndarray | None, int], Measured]
    """Of masks numbered from 1, an image with its channels last, and the channel."""
    by_channel: bool = False
    """Whether it reads the image, one channel of it."""
    by_library: bool = False
    """Whether scikit-image measures it."""


def _count(masks: np.ndarray, image: np.ndarray | None, channel: int) -> float:
    return float(masks.max(initial=0))


def _area_fraction(masks: np.ndarray, image: np.ndarray | None, channel: int) -> float:
    return np.count_nonzero(masks) / masks.size if masks.size else float("nan")


def _nearest_neighbour(masks: np.ndarray, image: np.ndarray | None, channel: int) -> Measured:
    from scipy.spatial import cKDTree
    from skimage.measure import regionprops_table

    table = regionprops_table(masks, properties=("centroid",))
    centres = np.stack(list(table.values()), axis=1)
    if len(centres) < 2:
        return np.empty(0)
    distances, _ = cKDTree(centres).query(centres, k=2)
    return np.asarray(distances[:, 1], float)


def _property(name: str) -> Callable[[np.ndarray, np.ndarray | None, int], Measured]:
    """Measure what scikit-image has under a name."""

    def measured(masks: np.ndarray, image: np.ndarray | None, channel: int) -> Measured:
        from skimage.measure import regionprops_table

        pixels = None if image is None else image[..., channel]
        table = regionprops_table(masks, pixels, properties=(name,))
        return np.asarray(table[name], float)

    return measured


def _total_intensity(masks: np.ndarray, image: np.ndarray | None, channel: int) -> Measured:
    from skimage.measure import regionprops_table

    assert image is not None
    table = regionprops_table(masks, image[..., channel], properties=("area", "intensity_mean"))
    return np.asarray(table["area"] * table["intensity_mean"], float)


READOUTS: dict[str, Readout] = {
    readout.name: readout
    for readout in (
        Readout("count", "cells", "cells in an image", _count),
        Readout("area", "pixels", "area of a cell", _property("area"), by_library=True),
        Readout(
            "equivalent_diameter",
            "pixels",
            "diameter of a circle with the area of the cell",
            _property("equivalent_diameter_area"),
            by_library=True,
        ),
        Readout("area_fraction", "share", "share of the image that is in cells", _area_fraction),
        Readout(
            "nearest_neighbour",
            "pixels",
            "distance from the centre of a cell to the nearest other one",
            _nearest_neighbour,
            by_library=True,
        ),
        Readout(
            "mean_intensity",
            "intensity",
            "mean intensity of the pixels of a cell",
            _property("intensity_mean"),
            by_channel=True,
            by_library=True,
        ),
        Readout(
            "total_intensity",
            "intensity",
            "sum of the intensities of the pixels of a cell",
            _total_intensity,
            by_channel=True,
            by_library=True,
        ),
        Readout(
            "maximum_intensity",
            "intensity",
            "largest intensity in a cell",
            _property("intensity_max"),
            by_channel=True,
            by_library=True,
        ),
    )
}
"""By name. What is measured of each cell is averaged over the cells of the image."""


@dataclass(frozen=True)
class ChosenReadout:
    """A readout as a user asked for it."""

    name: str
    """As it was asked for: with the channel, where one was named."""
    unit: str
    needs_image: bool
    """Whether it cannot be measured without the image."""
    measure: Callable[[np.ndarray, np.ndarray | None], Measured]
    channel: int = 0
    is_own: bool = False
    """Whether it is a function of the user's, which may look at the image."""

    @property
    def may_need_image(self) -> bool:
        """Whether an image that is given has to be read for it."""
        return self.needs_image or self.is_own

    def value(self, masks: np.ndarray, image: np.ndarray | None) -> float:
        """The number of an image: the mean over its cells; NaN where there is none."""
        try:
            measured = np.asarray(self.measure(masks, image), float)
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"the readout {self.name} gave no numbers ({error}); expected one number for the "
                "image, or an array with one for each cell"
            ) from error
        if measured.ndim > 1:
            raise BadInput(
                f"the readout {self.name} gave an array of shape {measured.shape}; expected one "
                "number for the image, or an array with one for each cell"
            )
        known = measured[np.isfinite(measured)]
        return float(known.mean()) if known.size else float("nan")


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
    if any(_by_library(one) for one in asked):
        missing = absent(["skimage"])
        if missing:
            raise needs(missing, what="a readout of single cells")
    return chosen


def _by_library(asked: str | OwnReadout) -> bool:
    return isinstance(asked, str) and READOUTS[asked.partition(":")[0]].by_library


def _known() -> str:
    return ", ".join(
        name + ("[:CHANNEL]" if one.by_channel else "") for name, one in READOUTS.items()
    )


def _chosen(asked: str | OwnReadout) -> ChosenReadout:
    if callable(asked):
        name = getattr(asked, "__name__", type(asked).__name__)
        return ChosenReadout(name, "", needs_image=False, measure=asked, is_own=True)
    if not isinstance(asked, str):
        raise BadInput(
            f"a readout is of the type {type(asked).__name__}; expected a name ({_known()}), or a "
            "function that takes the masks and the image"
        )
    name, colon, channel_text = asked.partition(":")
    readout = READOUTS.get(name)
    is_channel = channel_text.isascii() and channel_text.isdigit() and len(channel_text) < 4
    if readout is None or (colon and not (readout.by_channel and is_channel)):
        expected = (
            "expected one of " if readout is None else "channels are numbers from 0, only of "
        )
        raise BadInput(
            f"the readout is {asked[:_MOST_LETTERS]!r}; {expected}"
            + (
                _known()
                if readout is None
                else some([n for n, r in READOUTS.items() if r.by_channel])
            )
        )
    channel = int(channel_text or 0)

    def measure(masks: np.ndarray, image: np.ndarray | None) -> Measured:
        return readout.measure(masks, image, channel)

    return ChosenReadout(asked, readout.unit, readout.by_channel, measure, channel)
