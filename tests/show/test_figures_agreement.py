"""Pictures of many runs: what they say, where they colour, and what they refuse."""

import matplotlib.text
import numpy as np
import pytest

from cellrepro.compare.consensus import agree
from cellrepro.errors import BadInput
from cellrepro.show.figures import agreement as agreement_plots
from cellrepro.show.figures.agreement import agreement_map, least_stable
from cellrepro.show.figures.masks import COLOURS

SIZE = 40
IMAGE = np.tile(np.arange(SIZE, dtype=np.uint16), (SIZE, 1))


def boxes(*places):
    """A label image of squares of 10 pixels at some (y, x)."""
    masks = np.zeros((SIZE, SIZE), np.int32)
    for number, (y, x) in enumerate(places, 1):
        masks[y : y + 10, x : x + 10] = number
    return masks


def texts(picture):
    """Everything written in a picture, once it is drawn; drawing must not warn."""
    assert picture.png(dpi=40).startswith(b"\x89PNG")
    found = picture.findobj(matplotlib.text.Text)
    return "\n".join(text.get_text() for text in found if text.get_visible())


def pictures(figure):
    return [axes.images[0].get_array() for axes in figure.axes if axes.images]


def is_grey(picture):
    return (picture.max(-1) == picture.min(-1)).all()


def has(picture, colour, *, tolerance=2):
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return (np.abs(picture.astype(int) - rgb) <= tolerance).all(-1)


ALL_THREE = boxes((2, 2), (2, 20), (25, 5))
TWO = boxes((2, 2), (2, 20))
MERGED = np.where(np.isin(ALL_THREE, (1, 2)), 1, ALL_THREE)


def test_map_says_what_runs_share():
    written = texts(agreement_map(IMAGE, agree([ALL_THREE] * 3 + [TWO])))
    assert "4 runs, 2 different results: 2 of 3 objects are in all runs" in written
    assert "100 of 1 600 pixels are disputed" in written
    assert "share of the 4 runs" in written
    assert "drawn larger" not in written


def test_map_colours_what_is_disputed_and_nothing_else():
    figure = agreement_map(IMAGE, agree([ALL_THREE] * 3 + [TWO]))
    for picture in pictures(figure):
        scale = picture.shape[0] // SIZE
        coloured = picture.max(-1) != picture.min(-1)
        rows, columns = np.nonzero(coloured)
        assert (rows.min() // scale, rows.max() // scale) == (25, 34)
        assert (columns.min() // scale, columns.max() // scale) == (5, 14)
        inside = picture[30 * scale : 31 * scale, 10 * scale : 11 * scale].reshape(-1, 3)
        assert (inside[:, 0] > 200).all()  # orange: three of four runs
        assert (inside[:, 2] < 90).all()


def test_a_merge_is_on_the_right_only():
    cell, same = pictures(agreement_map(IMAGE, agree([ALL_THREE] * 3 + [MERGED])))
    assert is_grey(cell)
    assert not is_grey(same)


@pytest.mark.parametrize("side", [agreement_plots._SIDE, 13], ids=["enlarged", "shrunk"])
def test_one_disputed_pixel_is_seen(monkeypatch, side):
    monkeypatch.setattr(agreement_plots, "_SIDE", side)
    one_more = ALL_THREE.copy()
    one_more[12, 2] = 1
    figure = agreement_map(IMAGE, agree([ALL_THREE, one_more]))
    for picture in pictures(figure):
        assert picture.shape == (side, side, 3)
        coloured = (picture.max(-1) != picture.min(-1)).mean()
        assert 1 / SIZE**2 < coloured < 0.3
    assert "drawn larger" in texts(figure)


def test_equal_runs_and_no_objects_are_said():
    same = agree([ALL_THREE] * 3)
    assert "3 runs: all hold the same 3 objects" in texts(agreement_map(IMAGE, same))
    assert "3 runs: all hold the same 3 objects" in texts(
        least_stable(IMAGE, same, [ALL_THREE] * 3)
    )
    assert all(is_grey(picture) for picture in pictures(agreement_map(IMAGE, same)))
    nothing = agree([np.zeros_like(TWO)] * 2)
    assert "none holds an object" in texts(agreement_map(None, nothing))
    assert "none holds an object" in texts(least_stable(None, nothing, [np.zeros_like(TWO)] * 2))


def test_least_stable_says_in_how_many_runs():
    runs = [ALL_THREE] * 7 + [TWO] * 13
    figure = least_stable(IMAGE, agree(runs), runs)
    written = texts(figure)
    assert "The 1 least stable of 3 objects (2 are in all 20 runs)" in written
    assert "in 7 of 20 runs\nat y 30, x 10; mean IoU 1.00" in written
    (crop,) = pictures(figure)
    assert has(crop, COLOURS["b"]).any()
    assert not has(crop, COLOURS["a"], tolerance=30).any()  # the other runs have nothing there


def test_what_other_runs_have_instead_is_dashed():
    runs = [ALL_THREE] * 3 + [np.minimum(ALL_THREE, 1)]
    figure = least_stable(IMAGE, agree(runs), [lambda run=run: run for run in runs], n=2)
    written = texts(figure)
    assert "in 1 of 4 runs\n" in written
    assert "in 3 of 4 runs\n" in written
    assert "mean IoU" in written.split("in 3 of 4 runs")[1].splitlines()[1]
    assert "mean IoU" not in written.split("in 1 of 4 runs")[1].splitlines()[1]
    for crop in pictures(figure):
        # Both outlines fall together: the solid one is seen between the dashes.
        assert has(crop, COLOURS["a"]).sum() > has(crop, COLOURS["b"]).sum() > 500


def test_no_more_than_asked_for_and_in_order():
    runs = [boxes((2, 2), (20, 20)), boxes((2, 2)), boxes((3, 2)), boxes((20, 20))]
    agreement = agree(runs)
    titles = [axes.get_title() for axes in least_stable(IMAGE, agreement, runs, n=5).axes]
    assert [title.split("\n")[0] for title in titles] == ["in 2 of 4 runs", "in 3 of 4 runs"]
    assert len(pictures(least_stable(IMAGE, agreement, runs, n=1))) == 1


def test_narrow_images_and_colour():
    runs = [ALL_THREE[:, :14], TWO[:, :14]]
    image = np.dstack([IMAGE[:, :14]] * 3)
    agreement = agree(runs)
    assert pictures(agreement_map(image, agreement))[0].shape[:2] == (840, 294)
    assert len(pictures(least_stable(image, agreement, runs))) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, runs: agreement_map(IMAGE[1:], a), r"image has shape \(39, 40\)"),
        (lambda a, runs: least_stable(IMAGE, a, runs, n=0), "n is 0"),
        (lambda a, runs: least_stable(IMAGE, a, runs[:1]), "the masks of 1 run were given"),
        (lambda a, runs: least_stable(IMAGE, a, runs[::-1]), "the same masks in the same order"),
        (
            lambda a, runs: agreement_map(None, agree([np.zeros((2, 3, 4), int)])),
            "make the agreement of one plane",
        ),
    ],
    ids=["image", "n", "too few masks", "other masks", "3-D"],
)
def test_refusals(call, message):
    runs = [ALL_THREE, TWO]
    with pytest.raises(BadInput, match=message):
        call(agree(runs), runs)
