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


def has(picture, colour, *, tolerance=2):
    return (np.abs(picture.astype(int) - rgb(colour)) <= tolerance).all(-1)


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
        inside = picture[30 * scale : 31 * scale, 10 * scale : 11 * scale].reshape(-1, 3)
        assert (inside[:, 0] > 200).all()  # orange: three of four runs
        assert (inside[:, 2] < 90).all()
    written = texts(figure)
    assert "4 runs, 2 different results: 2 of 3 objects are in all runs" in written
    assert "100 of 1 600 pixels are disputed" in written


def test_a_merge_is_on_the_right_only():
    cell, same = pixels(agreement_map(IMAGE, agree([ALL_THREE] * 3 + [MERGED])))
    assert not is_coloured(cell).any()
    assert is_coloured(same).any()


@pytest.mark.parametrize("side", [840, 13], ids=["enlarged", "shrunk"])
def test_one_disputed_pixel_is_seen(side):
    one_more = ALL_THREE.copy()
    one_more[12, 2] = 1
    figure = agreement_map(IMAGE, agree([ALL_THREE, one_more]), side=side)
    for picture in pixels(figure):
        assert picture.shape == (side, side, 3)
        assert 1 / SIZE**2 < is_coloured(picture).mean() < 0.3
    assert "drawn larger" in texts(figure)


def test_equal_runs_and_no_objects_are_said():
    same = agree([ALL_THREE] * 3)
    assert "3 runs: all hold the same 3 objects" in texts(agreement_map(IMAGE, same))
    assert "all hold the same" in texts(least_stable(IMAGE, same, [ALL_THREE] * 3))
    nothing = agree([np.zeros_like(TWO)] * 2)
    assert "none holds an object" in texts(agreement_map(None, nothing))


def test_least_stable_says_in_how_many_runs():
    runs = [ALL_THREE] * 7 + [TWO] * 13
    figure = least_stable(IMAGE, agree(runs), runs)
    written = texts(figure)
    assert "The 1 least stable of 3 objects (2 are in all 20 runs)" in written
    assert "in 7 of 20 runs\nat y 30, x 10; mean IoU 1.00" in written
    (crop,) = pixels(figure)
    assert has(crop, COLOURS["b"]).any()
    assert not has(crop, COLOURS["a"], tolerance=30).any()  # the other runs have nothing there


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, runs: agreement_map(IMAGE[1:], a), r"image has shape \(39, 40\)"),
        (lambda a, runs: least_stable(IMAGE, a, runs[::-1]), "the same masks in the same order"),
        (
            lambda a, runs: agreement_map(None, agree([np.zeros((2, 3, 4), int)])),
            "make the agreement of one plane",
        ),
    ],
    ids=["image", "other masks", "3-D"],
)
def test_refusals(call, message):
    runs = [ALL_THREE, TWO]
    with pytest.raises(BadInput, match=message):
        call(agree(runs), runs)
