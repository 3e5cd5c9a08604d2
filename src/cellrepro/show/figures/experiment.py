"""A figure of an experiment: an image of each group, with the cells of two sets of masks."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np

from cellrepro.comparison.category_map import categories
from cellrepro.comparison.number_remarks import n_numbers
from cellrepro.conclusions.conclusions import Conclusions
from cellrepro.conclusions.measuring import MeasuredImage
from cellrepro.explanation.conclude_files import ImagesByName, MasksByImage, readers_of_both
from cellrepro.show.figures import style
from cellrepro.show.figures.colours import COLOURS
from cellrepro.show.figures.pixels import (
    SIDE,
    background_of,
    category_picture,
    enlarged,
    outlined,
    painted,
    with_outlines,
)
from cellrepro.show.figures.stack_planes import flat
from cellrepro.show.figures.style import WIDTH, Picture
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.words import as_sentence
from samebits.words import amount

_NAME_LETTERS = 34  # of an image or a side in the title of a panel


def groups_at_a_glance(
    result: Conclusions,
    a: MasksByImage,
    b: MasksByImage,
    images: ImagesByName | None = None,
    *,
    name_a: str = "A",
    name_b: str = "B",
    store: str | Path = defaults.STORE,
) -> Picture:
    """Draw a typical image of the control and of each other group, with the cells of A and of B.

    Parameters
    ----------
    result : Conclusions
        From `cellrepro.conclusion` of the same masks.
    a, b, images, store
        As for `cellrepro.conclusion`. Where there are no images, outlines stand on black.
    name_a, name_b : str
        What the two sets of masks are called.

    Returns
    -------
    Picture
        Typical is the image of a group whose first readout is nearest to the median under A.

    Raises
    ------
    BadInput
        If masks or images do not exist.
    """
    masks_a, masks_b, read_image = readers_of_both(a, b, images, Store(store))
    typical = _typical_images(result)
    figure = Picture(height=0.8 + len(typical) * (WIDTH / 3 + 0.2))
    rows = figure.subplots(len(typical), 3, squeeze=False)
    short_a = style.clipped(name_a, _NAME_LETTERS)
    short_b = style.clipped(name_b, _NAME_LETTERS)
    for row, one in zip(rows, typical, strict=True):
        label_a = masks_a[one.image]()
        label_b = masks_b[one.image]()
        image = None if read_image is None else read_image(one.image, label_a.shape)
        plane = flat(image, label_a, label_b)
        shown_a, shown_b = plane.labels
        assert shown_a is not None
        assert shown_b is not None
        background = background_of(plane.image, shown_a.shape)
        pictures = (
            with_outlines(background, {}),
            with_outlines(background, {"a": shown_a}, solid=True),
            _with_lost_cells(background, shown_a, shown_b),
        )
        titles = (
            f"{one.group}: {style.clipped(one.image, _NAME_LETTERS)}",
            f"{short_a}: {amount(n_numbers(label_a), 'cell')}",
            f"{short_b}: {amount(n_numbers(label_b), 'cell')}",
        )
        for axes, title, picture in zip(row, titles, pictures, strict=True):
            style.image_panel(axes, picture)
            style.title(axes, title)
    style.legend(
        figure,
        [
            style.line(f"cells of {short_a}", color=COLOURS["a"], linewidth=2.5),
            style.line(f"cells of {short_b}", color=COLOURS["b"], linewidth=2.5),
            style.patch(f"only in {short_a}", fc=COLOURS["only_a"], hatch="////"),
            style.patch(f"only in {short_b}", fc=COLOURS["only_b"], hatch="\\\\\\\\"),
        ],
    )
    first = result.conclusions[0].readout
    return figure.described(
        "One image of each group: the image, its cells in A, its cells in B",
        as_sentence(f"each is the image of its group whose {first} in A is nearest to the median"),
        f"Images of {', '.join(one.group for one in typical)} with outlines of {name_a}, {name_b}.",
    )


def _typical_images(result: Conclusions) -> list[MeasuredImage]:
    """One image of each group, the control first."""
    first = result.conclusions[0]
    groups = [first.control, *dict.fromkeys(one.treated for one in result.conclusions)]
    typical = []
    for group in groups:
        images = [one for one in result.images if one.group == group]
        known = [one for one in images if not math.isnan(one.a[first.readout])] or images
        median = statistics.median(one.a[first.readout] for one in known)
        typical.append(min(known, key=lambda one: abs(one.a[first.readout] - median)))
    return typical


def _with_lost_cells(background: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Outline the cells of B, and paint what only one side calls a cell."""
    picture, _ = category_picture(background, categories(a, b), side=SIDE)
    labels = enlarged(b, picture.shape[:2])
    painted(picture, outlined(labels, thickness=2), COLOURS["b"])
    return picture
