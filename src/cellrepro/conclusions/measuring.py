"""The readouts of every image under the masks of each side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cellrepro.comparison.label_numbers import canonical
from cellrepro.conclusions.readouts import ChosenReadout, cells_of
from samebits.errors import BadInput

PixelReaders = Mapping[str, Callable[[], np.ndarray]]
"""Arrays by the name of their image; each is read when it is needed."""
ImageReader = Callable[[str, tuple[int, ...]], np.ndarray]
"""Reads the image of a name, whose masks have that shape."""

_SAME = 1e-12  # of a mean, which the order of its terms may move by so much


@dataclass(frozen=True)
class MeasuredImage:
    """What was measured of one image, by readout; null where the image shows no cell."""

    image: str
    group: str
    """As the table of groups writes it."""
    a: Mapping[str, float]
    """Under the masks of A."""
    b: Mapping[str, float]
    """Under the masks of B."""


Measures = Mapping[str, Mapping[str, float]]
"""By image, then by readout."""


def measured_side(
    masks: PixelReaders,
    images: Iterable[str],
    readouts: Sequence[ChosenReadout],
    *,
    read_image: ImageReader | None,
) -> Measures:
    """Measure some images under the masks of one side."""
    measures = {}
    for name in images:
        try:
            labels = masks[name]()
            image = None
            if read_image is not None:
                image = _with_channels(read_image(name, labels.shape), labels, readouts)
            measures[name] = measured_masks(labels, image, readouts)
        except BadInput as error:
            raise BadInput(f"image {name}: {error}") from error
    return measures


def measured_pairs(
    a: Measures, b: Measures, groups: Mapping[str, str]
) -> tuple[MeasuredImage, ...]:
    """Put what was measured under both sides beside each other, image by image."""
    return tuple(
        MeasuredImage(name, group, a[name], _as_equal(b[name], a[name]))
        for name, group in groups.items()
    )


def measured_masks(
    masks: np.ndarray, image: np.ndarray | None, readouts: Sequence[ChosenReadout]
) -> dict[str, float]:
    """Measure one image under one label image."""
    cells = cells_of(canonical(masks).astype(np.int32), image, readouts)
    return {readout.name: readout.value(cells, image) for readout in readouts}


def _as_equal(values: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    """Take the other side's number for one that is the same but for the order of its terms."""
    return {
        name: others[name] if abs(value - others[name]) <= _SAME * abs(value) else value
        for name, value in values.items()
    }


def _with_channels(
    image: np.ndarray, masks: np.ndarray, readouts: Sequence[ChosenReadout]
) -> np.ndarray:
    """Give an image its axis of channels, and refuse a channel that it has not."""
    with_channels = image[..., np.newaxis] if image.ndim == masks.ndim else image
    n_channels = with_channels.shape[-1]
    for readout in readouts:
        if readout.needs_image and readout.channel >= n_channels:
            raise BadInput(
                f"it has {n_channels} channels, numbered from 0, and {readout.name} is asked for; "
                "name a channel that it has"
            )
    return with_channels
