"""The readouts of every image under the masks of each side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.label_pair import read_pair
from cellrepro.conclusions.readouts import ChosenReadout, cells_of
from samebits.errors import BadInput
from samebits.words import amount

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


def measured_pairs(
    a: PixelReaders,
    b: PixelReaders,
    groups: Mapping[str, str],
    readouts: Sequence[ChosenReadout],
    *,
    read_image: ImageReader | None,
) -> tuple[MeasuredImage, ...]:
    """Measure the images that have a group under the masks of both sides."""
    measured = []
    for name, group in groups.items():
        try:
            labels_a, labels_b = _read_alike(a[name](), b[name]())
            image_a = _image(name, labels_a, readouts, read_image)
            of_a = measured_masks(labels_a, image_a, readouts)
            image_b = image_a
            if labels_b.shape != labels_a.shape:
                image_b = _image(name, labels_b, readouts, read_image)
            of_b = measured_masks(labels_b, image_b, readouts)
        except BadInput as error:
            raise BadInput(f"image {name}: {error}") from error
        measured.append(MeasuredImage(name, group, of_a, _as_equal(of_b, of_a)))
    return tuple(measured)


def _read_alike(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Say which pixels are one cell as a comparison does, where the two can be compared."""
    if a.shape != b.shape:
        return a, b
    pair = read_pair(a, b)
    return pair.a.image, pair.b.image


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


def _image(
    name: str,
    masks: np.ndarray,
    readouts: Sequence[ChosenReadout],
    read_image: ImageReader | None,
) -> np.ndarray | None:
    """Read the image of some masks, with an axis of channels."""
    if read_image is None:
        return None
    return _with_channels(read_image(name, masks.shape), masks, readouts)


def _with_channels(
    image: np.ndarray, masks: np.ndarray, readouts: Sequence[ChosenReadout]
) -> np.ndarray:
    """Give an image its axis of channels, and refuse a channel that it has not."""
    with_channels = image[..., np.newaxis] if image.ndim == masks.ndim else image
    n_channels = with_channels.shape[-1]
    for readout in readouts:
        if readout.needs_image and readout.channel >= n_channels:
            raise BadInput(
                f"it has {amount(n_channels, 'channel')}, numbered from 0, and {readout.name} is "
                "asked for; "
                "name a channel that it has"
            )
    return with_channels
