"""Figures of many runs: where they colour, what they say, and what they refuse."""

import numpy as np
import pytest

from cellrepro.compare.consensus import agree
from cellrepro.errors import BadInput
from cellrepro.show.figures.agreement import agreement_map, least_stable
from cellrepro.show.figures.masks import COLOURS, rgb
from drawn import is_coloured, pixels, texts

SIZE = 40
IMAGE = np.tile(np.arange(SIZE, dtype=np.uint16), (SIZE, 1))


def boxes(*places):
    """A label image of squares of 10 pixels at some (y, x)."""
    masks = np.zeros((SIZE, SIZE), np.int32)
    for number, (y, x) in enumerate(places, 1):
        masks[y : y + 10, x : x + 10] = number
    return masks


ALL_THREE = boxes((2, 2), (2, 20), (25, 5))
TWO = boxes((2, 2), (2, 20))
MERGED = np.where(np.isin(ALL_THREE, (1, 2)), 1, ALL_THREE)


def test_the_map_colours_what_is_disputed_and_nothing_else():
    figure = agreement_map(IMAGE, agree([ALL_THREE] * 3 + [TWO]))
    for picture in pixels(figure):
        scale = picture.shape[0] // SIZE
        rows, columns = np.nonzero(is_coloured(picture))
        assert (rows.min() // scale, rows.max() // scale) == (25, 34)
        assert (columns.min() // scale, columns.max() // scale) == (5, 14)
        orange = picture[30 * scale, 10 * scale]  # three of four runs
        assert orange[0] > 200
        assert orange[2] < 90
    written = texts(figure)
    assert "4 runs, 2 different results: 2 of 3 objects are in all runs" in written
    assert "100 of 1 600 pixels are disputed" in written


def test_a_merge_is_on_the_right_only():
    cell, same = pixels(agreement_map(IMAGE, agree([ALL_THREE] * 3 + [MERGED])))
    assert not is_coloured(cell).any()
    assert is_coloured(same).any()


def test_one_disputed_pixel_is_seen():
    one_more = ALL_THREE.copy()
    one_more[12, 2] = 1
    for side in (840, 13):
        for picture in pixels(agreement_map(IMAGE, agree([ALL_THREE, one_more]), side=side)):
            assert 1 / SIZE**2 < is_coloured(picture).mean() < 0.3


def test_least_stable_says_in_how_many_runs():
    runs = [ALL_THREE] * 7 + [TWO] * 13
    figure = least_stable(IMAGE, agree(runs), runs)
    written = texts(figure)
    assert "The 1 least stable of 3 objects (2 are in all 20 runs)" in written
    assert "in 7 of 20 runs\nat y 30, x 10; mean IoU 1.00" in written
    (crop,) = pixels(figure)
    apart = {side: np.abs(crop.astype(int) - rgb(COLOURS[side])).max(-1) for side in "ab"}
    assert apart["b"].min() <= 2
    assert apart["a"].min() > 30  # the other runs have nothing there
    assert "all hold the same 3 objects" in texts(least_stable(IMAGE, agree(runs[:2]), runs[:2]))


def test_refusals():
    runs = [ALL_THREE, TWO]
    with pytest.raises(BadInput, match=r"image has shape \(39, 40\)"):
        agreement_map(IMAGE[1:], agree(runs))
    with pytest.raises(BadInput, match="the same masks in the same order"):
        least_stable(IMAGE, agree(runs), runs[::-1])
    with pytest.raises(BadInput, match="give one plane"):
        agreement_map(None, agree([np.zeros((2, 3, 4), int)]))
