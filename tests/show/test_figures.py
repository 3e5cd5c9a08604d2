"""Figures of images, trainings and segmentations: what they show, and what they refuse."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cellrepro.errors import BadInput
from cellrepro.images.folder import ImageFolder, LabelledImage
from cellrepro.show.figures import masks, style, training
from cellrepro.store.store import Store
from drawn import pixels, texts
from stores import NOTHING, SIZE, TRUTH, add_run, squares, three


def n_painted(picture, colour, opacity=1.0):
    """Pixels of a colour laid over black, on the lines of its pattern and beside them."""
    expected = np.rint(np.array(masks.rgb(colour)) * opacity)
    return sum(
        int((np.abs(picture.astype(int) - shade) <= 1).all(axis=2).sum())
        for shade in (expected, expected * masks.DARKER)
    )


def folder(n_train, n_test, *, labels=TRUTH):
    def item(name):
        return LabelledImage(name, np.zeros((SIZE, SIZE), np.uint16), labels, Path(name), None)

    return ImageFolder(
        path=Path("cells"),
        train=tuple(item(f"train_{i}") for i in range(n_train)),
        test=tuple(item(f"test_{i}") for i in range(n_test)),
        files={},
        digest="d" * 64,
        warnings=(),
    )


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


# -- the picture itself --------------------------------------------------------------------


def test_a_picture_shows_itself_with_its_caption_and_its_words():
    picture = style.note("nothing to see").described("Nothing", "A caption. " * 30, "a note")
    data, metadata = picture._repr_mimebundle_()
    assert metadata == {"image/png": {"alt": "a note"}}
    assert data["text/plain"] == "a note"
    alone, both = (Image.open(io.BytesIO(picture.png(caption=below))) for below in (False, True))
    above = both.crop((0, 0, *alone.size))
    assert above.tobytes() == alone.convert("RGB").tobytes()
    assert np.asarray(both)[alone.height :].min() < 120  # something is written there
    assert picture.png() == picture.png()


def test_zero_has_a_place_of_its_own_on_an_axis_in_powers_of_ten():
    axes = style.Picture().subplots()
    style.with_zero(axes, "x", [0, 2e-6, 0.3, np.inf])
    axes.set_xlim(0, 1)
    written = [text.get_text() for text in axes.get_xticklabels()]
    assert written == ["0", "10⁻⁶", "10⁻⁴", "10⁻²", "10⁰"]


# -- images --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_train", "n_test", "n", "expected"),
    [
        (8, 3, 6, ["train_0", "train_1", "train_2", "train_3", "test_0", "test_1"]),
        (1, 9, 4, ["train_0", "test_0", "test_1", "test_2"]),
        (2, 0, 6, ["train_0", "train_1"]),
    ],
    ids=["both", "few to train", "no test"],
)
def test_data_at_a_glance_shows_both_parts(n_train, n_test, n, expected):
    picture = masks.data_at_a_glance(folder(n_train, n_test), n=n)
    titles = [axes.get_title() for axes in picture.axes if axes.get_title()]
    assert [title.split("\n")[0].split(": ")[1] for title in titles] == expected
    assert "2 objects" in texts(picture)
    with pytest.raises(BadInput, match="no images to show"):
        masks.data_at_a_glance(folder(0, 0))


def test_masks_beside_truth(store):
    run = add_run(store, [(1.0, three(squares(second=False)))])
    picture = masks.masks_beside_truth(store, run.repeats[0], n=2)
    assert len(picture.axes) == 2 * 3
    assert "found: 1 object, AP@0.5 0.500" in texts(picture)
    with pytest.raises(BadInput, match="holds no masks of any image"):
        masks.masks_beside_truth(store, run.repeats[0], n=0)


def test_difference_paints_what_differs():
    picture = masks.difference(None, squares(), squares(grown=30, second=False), name_a="one")
    assert "46 of 2 304 pixels differ; objects lost 1, gained 0" in texts(picture)
    map_ = pixels(picture)[2]
    scale = (map_.shape[0] / SIZE) ** 2
    assert n_painted(map_, masks.COLOURS["only_a"], 0.85) == 16 * scale
    assert n_painted(map_, masks.COLOURS["only_b"], 0.85) == 30 * scale


def test_a_single_pixel_in_a_large_image_is_seen():
    a = np.zeros((1200, 1200), np.uint16)
    a[100:400, 100:400] = 1
    b = a.copy()
    b[400, 200] = 1
    picture = masks.difference(None, a, b)
    assert n_painted(pixels(picture)[2], masks.COLOURS["only_b"], 0.85) == 25
    assert len(picture.axes[2].patches) == 1  # a ring points at it


def test_difference_with_truth_and_votes():
    votes = (squares() > 0).astype(int) * 3
    picture = masks.difference(None, squares(), squares(), truth=TRUTH, votes=(votes, 3))
    assert len(pixels(picture)) == 4
    written = texts(picture)
    assert "The two outline the same objects" in written
    assert "truth" in written


@pytest.mark.parametrize(
    "image",
    [np.full((4, 4), 7, np.uint8), np.array([[np.nan, 1], [np.inf, 2]]), np.zeros((4, 4, 3), bool)],
    ids=["flat", "not finite", "of bool"],
)
def test_odd_images_become_grey(image):
    grey = masks.grey_image(image)
    assert grey.dtype == np.uint8
    assert grey.shape == image.shape[:2]


# -- trainings -----------------------------------------------------------------------------


def test_equal_curves_share_a_line(store):
    run = add_run(store, [(1.0, three()), (1.0, three()), (1.5, three())])
    picture = training.training_curves(run.repeats, labels=["zero", "one", "two"])
    written = texts(picture)
    assert "3 repeats, 2 different curves" in written
    assert "zero = one" in written
    loss, rate = picture.axes
    assert [len(loss.lines), len(rate.lines)] == [4, 2]  # with markers at the tested epochs
    assert loss.lines[0].get_linewidth() > 1.5 * loss.lines[2].get_linewidth()
    assert "follow one curve" in texts(training.training_curves(run.repeats[:2]))


def test_curves_are_refused_where_nothing_was_trained(store):
    run = add_run(store, [(None, three())], task="segment")
    with pytest.raises(BadInput, match="none of the 1 repeats trained"):
        training.training_curves(run.repeats)
    with pytest.raises(BadInput, match="2 labels were given for 1 repeats"):
        training.training_curves(run.repeats, labels=["a", "b"])


def test_scores_count_what_falls_together():
    rows = [("seed 0", "cpu", 0.75), ("seed 0", "cpu", 0.75), ("seed 0", "gpu", 0.5)]
    picture = training.scores(rows)
    written = texts(picture)
    assert "0.750 (2×)" in written
    assert "0.500" in written
    low, high = picture.axes[0].get_xlim()
    assert high - low >= 0.1
    with pytest.raises(BadInput, match="no score was given"):
        training.scores([])


def test_inference_times(store):
    run = add_run(store, [(None, three()), (None, three())], task="segment")
    picture = training.inference_times(run.repeats, labels=["one", "one"])
    assert "2 repeats, 6 images in all" in texts(picture)
    with pytest.raises(BadInput, match="none of the 0 repeats segmented"):
        training.inference_times([])


@pytest.mark.parametrize("name", ["a $x^$ b", r"\frac{1}_y", "x" * 300, "two\nlines", "", "<b>&"])
def test_any_name_can_be_drawn(store, name):
    run = add_run(store, [(1.0, {"img": squares()}), (2.0, {"img": NOTHING})])
    for picture in (
        training.training_curves(run.repeats, labels=[name, "other"]),
        training.scores([(name, name, 0.5), ("other", "group", 0.5)]),
        training.inference_times(run.repeats, labels=[name, "other"]),
        masks.difference(None, squares(), NOTHING, name_a=name, name_b=name),
    ):
        texts(picture)
