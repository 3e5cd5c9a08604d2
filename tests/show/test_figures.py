"""Figures of images, masks and trainings: what they show, and what they refuse."""

import io
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cellrepro.show
from cellrepro.comparison.consensus import agree
from cellrepro.images.folder import ImageFolder, LabelledImage
from cellrepro.show.explorer.planes import NarrowImage
from cellrepro.show.figures import masks, style, training
from cellrepro.show.figures.agreement import agreement_map, least_stable
from cellrepro.show.figures.colours import AGREED, AGREEMENT, COLOURS, DARKER, rgb
from cellrepro.show.figures.pixels import shown_image
from cellrepro.show.figures.scores import scores_of_runs
from cellrepro.show.figures.stack_planes import flat
from cellrepro.show.figures.style import WIDTH, Picture
from cellrepro.store.store import Store
from drawn import is_coloured, pixels, texts
from samebits.errors import BadInput
from stores import SIZE, TRUTH, add_run, squares, three


def n_painted(picture, colour, opacity=0.85):
    """Pixels of a colour laid over black, on the lines of its pattern and beside them."""
    expected = np.rint(np.array(rgb(colour)) * opacity)
    return sum(
        int((np.abs(picture.astype(int) - shade) <= 1).all(axis=2).sum())
        for shade in (expected, expected * DARKER)
    )


def folder(n_train, n_test):
    def item(name):
        return LabelledImage(name, np.zeros((SIZE, SIZE), np.uint16), TRUTH, Path(name))

    train = tuple(item(f"train_{i}") for i in range(n_train))
    test = tuple(item(f"test_{i}") for i in range(n_test))
    return ImageFolder(Path("cells"), train=train, test=test, files={}, digest="d", warnings=())


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


_OF_A_SIDE = {"a", "b", "lost", "gained", "split", "merged", "only", "other"}
"""Words in the selectors of a style sheet that name a side of a comparison, or its cells."""


def test_style_sheets_take_the_colours_of_sides_from_their_one_place():
    colours = set(COLOURS.values()) - {COLOURS["agree"]}
    sheets = [
        path
        for path in Path(*cellrepro.show.__path__).rglob("*.*")
        if path.suffix in (".css", ".j2")
    ]
    rules = [
        rule
        for path in sheets
        for rule in re.findall(r"([^{};>]+)\{([^{}]*)\}", path.read_text(encoding="utf-8"))
    ]
    of_sides = [rule for rule in rules if _OF_A_SIDE & set(re.findall("[a-z]+", rule[0]))]
    assert len(of_sides) > 20
    own = [rule for rule in of_sides if colours & set(re.findall("#[0-9A-F]{6}", rule[1].upper()))]
    assert not own


def test_a_picture_shows_itself_with_its_caption_and_its_words():
    picture = style.note("nothing to see").described("Nothing", "A caption. " * 30, "a note")
    data, metadata = picture._repr_mimebundle_()
    assert (data["text/plain"], metadata) == ("a note", {"image/png": {"alt": "a note"}})
    alone, both = (Image.open(io.BytesIO(picture.png(caption=below))) for below in (False, True))
    above = both.crop((0, 0, *alone.size))
    assert above.tobytes() == alone.convert("RGB").tobytes()
    assert np.asarray(both)[alone.height :].min() < 120  # something is written there


def test_data_at_a_glance_shows_both_parts():
    picture = masks.data_at_a_glance(folder(1, 9), n=4)
    titles = [axes.get_title() for axes in picture.axes if axes.get_title()]
    names = [title.split("\n")[0].split(": ")[1] for title in titles]
    assert names == ["train_0", "test_0", "test_1", "test_2"]
    assert "2 cells" in texts(picture)
    with pytest.raises(BadInput, match="no images to show"):
        masks.data_at_a_glance(folder(0, 0))


def test_masks_beside_truth(store):
    run = add_run(store, [(1.0, three(squares(second=False)))])
    picture = masks.masks_beside_truth(store, run.repeats[0], n=2)
    assert len(picture.axes) == 2 * 3
    assert "found: 1 cell, AP@0.5 0.500" in texts(picture)
    with pytest.raises(BadInput, match="holds no masks of any image"):
        masks.masks_beside_truth(store, run.repeats[0], n=0)


@pytest.mark.parametrize("name", ["a $x^$ b", "x" * 300, "two\nlines", ""])
def test_difference_paints_what_differs(name):
    """Whatever the runs are called."""
    picture = masks.difference(None, squares(), squares(grown=30, second=False), name_a=name)
    assert "46 of 2 304 pixels differ" in texts(picture)
    map_ = pixels(picture)[2]
    scale = (map_.shape[0] / SIZE) ** 2
    assert n_painted(map_, COLOURS["only_a"]) == 16 * scale
    assert n_painted(map_, COLOURS["only_b"]) == 30 * scale


def test_a_single_pixel_in_a_large_image_is_seen():
    a = np.zeros((1200, 1200), np.uint16)
    a[100:400, 100:400] = 1
    b = a.copy()
    b[400, 200] = 1
    picture = masks.difference(None, a, b)
    assert n_painted(pixels(picture)[2], COLOURS["only_b"]) == 25
    lost = masks.difference(None, squares(), squares(second=False))
    assert "1 kept, 1 lost; 16 of 2 304 pixels differ" in texts(lost)
    assert "−" in texts(lost)  # beside the cell


def test_difference_with_votes():
    votes = (squares() > 0).astype(int) * 3
    picture = masks.difference(None, squares(), squares(), votes=(votes, 3))
    *_, dark = pixels(picture)
    assert n_painted(dark, AGREEMENT[-1], 0.85 * AGREED) == 116 * 100
    assert "The two outline the same cells" in texts(picture)


def test_an_image_with_values_that_are_not_finite_is_shown():
    assert shown_image([[np.nan, 1], [np.inf, 2]]).dtype == np.uint8


def test_a_large_image_is_shown_without_wide_copies_of_it():
    image = np.add.outer(np.arange(3000), np.arange(3000)).astype(np.uint8)
    tracemalloc.start()
    try:
        shown_image(image)
        narrow = NarrowImage.of(image[..., None])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * image.nbytes
    assert (narrow.low, narrow.high) == ([2.0], [253.0])


def test_the_contrast_of_an_image_is_that_of_its_percentiles():
    image = np.random.default_rng(0).gamma(2, 900, (61, 47, 2)).astype(np.uint16)
    narrow = NarrowImage.of(image)
    low, high = np.percentile(image - image.min(), (1, 99), axis=(0, 1))
    np.testing.assert_allclose([narrow.low, narrow.high], [low, high])


def test_a_photograph_keeps_its_colours():
    """Its channels are stretched alike, by the page and by the browser."""
    photo = np.full((40, 40, 3), (90, 120, 60), np.uint8)
    photo[:20] = (180, 240, 120)
    assert shown_image(photo)[[0, -1], 0].tolist() == [[170, 255, 85], [42, 85, 0]]
    narrow = NarrowImage.of(photo)
    assert (narrow.low, narrow.high) == ([0.0] * 3, [180.0] * 3)


@pytest.mark.parametrize(
    ("n_channels", "expected"),
    [
        (1, [[255, 255, 255]]),
        (2, [[0, 255, 0], [255, 0, 255]]),
        (3, [[255, 0, 0], [0, 255, 0], [0, 0, 255]]),
        (4, [[86, 180, 233], [230, 159, 0], [0, 158, 115], [204, 121, 167]]),
    ],
)
def test_each_channel_has_a_colour(n_channels, expected):
    """Pixel c of the only row is bright in channel c alone."""
    image = np.eye(n_channels)[np.newaxis].repeat(2, axis=0)
    image = np.concatenate([image, np.zeros_like(image)])
    assert shown_image(image)[0].tolist() == expected


def test_of_a_stack_the_plane_is_shown_on_which_cells_differ_not_their_numbers():
    a = np.zeros((4, 12, 12), int)
    a[0, 1:10, 1:10] = 1
    a[2, 2:6, 2:6] = 2
    b = np.where(a == 1, 7, a)  # renumbered on the fullest plane,
    b[2, 2, 2] = 0  # and one pixel less on the third
    assert flat(None, a, b).name == "plane z 2 (of 0 to 3)"
    assert (
        flat(None, a, np.where(a, a + 1, 0)).name == "plane z 0 (of 0 to 3)"
    )  # equal: the fullest


def test_equal_curves_share_a_line(store):
    run = add_run(store, [(1.0, three()), (1.0, three()), (1.5, three())])
    picture = training.training_curves(run.repeats, labels=["zero", "one", "two"])
    written = texts(picture)
    assert "3 repeats, 2 different curves" in written
    assert "zero = one" in written
    loss, apart = picture.axes  # of the learning rate, which is the same, a sentence tells
    first, other = (each.manifest.training.train_losses for each in run.repeats[1:])
    assert apart.lines[0].get_ydata() == pytest.approx(np.abs(np.subtract(first, other)))
    assert "Learning rate: " in picture.caption
    assert all((loss.get_ylabel(), apart.get_ylabel(), apart.get_xlabel()))
    assert "test images after epoch 1: 1.9" in picture.caption
    assert "still that of the starting network" in picture.caption
    trained = run.repeats[0].manifest.training
    trained.test_losses[:] = [None, 1.25, None]
    assert "after epoch 2: 1.25" in training.training_curves(run.repeats[:1]).caption
    assert "starting" not in training.training_curves(run.repeats[:1]).caption
    trained.test_losses[:] = [1.9, None, None]
    with pytest.raises(BadInput, match="2 labels were given for 3"):
        training.training_curves(run.repeats, labels=["a", "b"])
    for repeat in run.repeats[1:]:  # they kept a checkpoint after the first epoch
        repeat.manifest.training.ap50_after[1] = 0.25
    _, apart, scores = training.training_curves(run.repeats).axes
    assert all((apart.get_ylabel(), scores.get_ylabel(), scores.get_xlabel()))
    ends = [[1, 0.25], [3, run.repeats[1].manifest.ap50]]
    assert [line.get_xydata().tolist() for line in scores.lines] == [ends, ends]


def test_equal_scores_are_counted(store):
    first = add_run(store, [(1.0, three())] * 2 + [(1.5, three(squares(second=False)))])
    other = add_run(store, [(2.0, three())], profile="cpu-1thread")
    picture = scores_of_runs([first, other])
    assert "0.833 (1×), 1.000 (3×)" in texts(picture)
    assert picture.alt == (
        "A row of markers for each spec. AP@0.5 against the ground truth: 4 repeats. "
        "images segmented: 0.833 to 1.000, 0.167 apart."
    )
    drawn = {line.get_label(): line.get_xdata().tolist() for line in picture.axes[0].lines}
    assert drawn == {"cpu": [1, 1, pytest.approx(2.5 / 3)], "cpu-1thread": [1]}
    for score, repeat in zip((0.5, 0.75, 0.5), first.repeats, strict=True):
        repeat.manifest.train_scores = {"img_x": score, "img_y": None}
    picture = scores_of_runs([first, other])
    assert "2 of 3 training images: 0.500 to 0.750, 0.250 apart" in texts(picture)
    drawn = [line.get_xdata().tolist() for line in picture.axes[1].lines]
    assert drawn == [[0.5, 0.75, 0.5], []]
    assert "no repeat has a score" in texts(scores_of_runs([]))


SIDE = 40
IMAGE = np.tile(np.arange(SIDE, dtype=np.uint16), (SIDE, 1))


def boxes(*places):
    """A label image of squares of 10 pixels at some (y, x)."""
    found = np.zeros((SIDE, SIDE), np.int32)
    for number, (y, x) in enumerate(places, 1):
        found[y : y + 10, x : x + 10] = number
    return found


ALL_THREE = boxes((2, 2), (2, 20), (25, 5))
TWO = boxes((2, 2), (2, 20))
MERGED = np.where(np.isin(ALL_THREE, (1, 2)), 1, ALL_THREE)


def test_the_map_colours_what_is_disputed_and_nothing_else():
    figure = agreement_map(IMAGE, agree([ALL_THREE] * 3 + [TWO]))
    for picture in pixels(figure):
        scale = picture.shape[0] // SIDE
        rows, columns = np.nonzero(is_coloured(picture))
        assert (rows.min() // scale, rows.max() // scale) == (25, 34)
        assert (columns.min() // scale, columns.max() // scale) == (5, 14)
    assert "100 of 1 600 pixels disputed" in texts(figure)


def test_a_merge_is_on_the_right_only():
    cell, same = pixels(agreement_map(IMAGE, agree([ALL_THREE] * 3 + [MERGED])))
    assert not is_coloured(cell).any()
    assert is_coloured(same).any()


def test_one_disputed_pixel_is_seen():
    one_more = ALL_THREE.copy()
    one_more[12, 2] = 1
    for picture in pixels(agreement_map(IMAGE, agree([ALL_THREE, one_more]), side=13)):
        assert 1 / SIDE**2 < is_coloured(picture).mean() < 0.3


def test_least_stable_says_in_how_many_runs():
    runs = [ALL_THREE] * 7 + [TWO] * 13
    figure = least_stable(IMAGE, agree(runs), runs)
    written = texts(figure)
    assert "The least stable of 3 cells (2 are in all 20 runs)" in written
    assert "in 7 of 20 runs\nat y 30, x 10; mean IoU 1.00" in written
    (crop,) = pixels(figure)
    apart = {side: np.abs(crop.astype(int) - rgb(COLOURS[side])).max(-1) for side in "ab"}
    assert apart["b"].min() <= 2
    assert apart["a"].min() > 30  # the other runs have nothing there


def test_masks_of_another_image_are_refused():
    runs = [ALL_THREE, TWO]
    with pytest.raises(BadInput, match=r"image has shape \(39, 40\)"):
        agreement_map(IMAGE[1:], agree(runs))
    with pytest.raises(BadInput, match="the same masks in the same order"):
        least_stable(IMAGE, agree(runs), runs[::-1])


def test_a_long_text_behind_a_bar_is_seen_whole():
    figure = Picture(WIDTH, 2)
    axes = figure.subplots()
    bars = axes.barh([0, 1], [62, 3])
    style.rows(axes, ["diameter 60", "augment on"])
    text = "84 of 136, 29 moved, 46 lost, 1 gained, 6 merged, AP@0.5 0.31"
    style.texts_beside(axes, bars, [text, text], [92, 4])
    figure.draw_without_rendering()
    right = axes.get_window_extent().x1
    assert all(label.get_window_extent().x1 <= right for label in axes.texts)
    assert max(axes.get_xticks()) <= 92


@pytest.mark.parametrize(
    "labels",
    [
        (
            ["A: trained, cpu, fast, seed 0, model tiny, repeat 0", *"bcdef"],
            ["g", "h"],
            [*"ijklmn"],
        ),
        (["one " * 6] * 7,),
        (["a"], ["b"] * 9, ["a label that is as long as the whole figure is wide " * 2]),
    ],
    ids=["explorer", "curves", "long"],
)
def test_a_legend_fits_and_groups_begin_a_column(labels):
    figure = Picture(height=4)
    figure.subplots()
    groups = [[style.line(label, color="k") for label in group] for group in labels]
    style.legend(figure, *groups)
    figure.savefig(io.BytesIO())
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width
    shown = [text.get_text() for text in legend.get_texts()]
    assert len([text for text in shown if text]) == sum(map(len, labels))
    for text, handle in zip(shown, legend.get_lines(), strict=True):
        assert text or handle.get_linestyle() == "None", "a line without a label"
