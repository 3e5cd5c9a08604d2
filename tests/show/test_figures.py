"""The pictures: what they say and draw, that they show themselves, and what they refuse."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from cellrepro.compare.weights import compare_weights
from cellrepro.errors import BadInput
from cellrepro.images.folder import ImageFolder, LabelledImage
from cellrepro.show.figures import style
from cellrepro.store.store import Store
from stores import NOTHING, SIZE, TRUTH, add_run, squares, three


def texts(picture: style.Picture) -> str:
    """Everything written in a picture, once it is drawn; drawing must not warn."""
    import matplotlib.text

    assert picture.png(dpi=40).startswith(b"\x89PNG")
    found = picture.findobj(matplotlib.text.Text)
    return "\n".join(text.get_text() for text in found if text.get_visible())


def rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def n_painted(picture: np.ndarray, colour: str, opacity: float = 1.0) -> int:
    """Pixels of a colour laid over black, on the lines of its pattern and beside them."""
    expected = np.rint(np.array(rgb(colour)) * opacity)
    return sum(
        int((np.abs(picture.astype(int) - shade) <= 1).all(axis=2).sum())
        for shade in (expected, expected * style.DARKER)
    )


def folder(n_train: int, n_test: int, *, with_masks: bool = True) -> ImageFolder:
    def item(name: str) -> LabelledImage:
        image = np.zeros((SIZE, SIZE + 16), np.uint16)
        masks = np.zeros(image.shape, np.int32)
        masks[:SIZE, :SIZE] = TRUTH
        return LabelledImage(name, image, masks if with_masks else None, Path(name), None)

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


def test_shows_itself_without_a_backend():
    picture = style.verdict_matrix([("seed 0", "cpu", "identical", "2 repeats")])
    content = picture._repr_png_()
    assert Image.open(io.BytesIO(content)).format == "PNG"
    assert picture._repr_png_() == content


def test_pyplot_is_left_alone():
    program = (
        "import sys; from cellrepro.show.figures import style as plots\n"
        "plots.verdict_matrix([('a', 'b', 'identical', '')]).png()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert not {'torch', 'cellpose', 'anywidget'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -- images --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_train", "n_test", "n", "expected"),
    [
        (8, 3, 6, ["train_0", "train_1", "train_2", "train_3", "test_0", "test_1"]),
        (1, 9, 4, ["train_0", "test_0", "test_1", "test_2"]),
        (2, 0, 6, ["train_0", "train_1"]),
        (0, 2, 1, ["test_0"]),
    ],
    ids=["both", "few to train", "no test", "no train"],
)
def test_data_at_a_glance_shows_both_parts(n_train, n_test, n, expected):
    picture = style.data_at_a_glance(folder(n_train, n_test), n=n)
    said = texts(picture)
    shown = [axes.get_title() for axes in picture.axes if axes.get_title()]
    assert [title.split("\n")[0].split(": ")[1] for title in shown] == expected
    assert f"{SIZE + 16} × {SIZE} pixels, 2 objects" in said
    assert f"{len(expected)} of {n_train + n_test} images of cells" in said


def test_data_at_a_glance_without_masks():
    assert "no masks" in texts(style.data_at_a_glance(folder(1, 0, with_masks=False)))
    with pytest.raises(BadInput, match="no images to show"):
        style.data_at_a_glance(folder(0, 0))


def test_masks_beside_truth(store):
    run = add_run(store, [(1.0, three(squares(second=False)))])
    picture = style.masks_beside_truth(store, run.repeats[0], n=2)
    assert len(picture.axes) == 2 * 3
    said = texts(picture)
    assert "img_a" in said
    assert "ground truth: 2 objects" in said
    assert "found: 1 object, AP@0.5 0.500" in said
    assert "2 of 3 images" in said


def test_masks_without_truth_have_two_columns(store):
    run = add_run(store, [(1.0, three())], truth=False)
    picture = style.masks_beside_truth(store, run.repeats[0], names=["img_c"])
    assert len(picture.axes) == 2
    assert "AP@0.5" not in texts(picture)


def test_masks_of_an_unknown_image(store):
    run = add_run(store, [(1.0, three())])
    with pytest.raises(BadInput, match=r"no masks of \['img_z'\]; it holds those of \['img_a'"):
        style.masks_beside_truth(store, run.repeats[0], names=["img_z"])


def test_difference_paints_what_differs():
    a, b = squares(), squares(grown=30, second=False)
    picture = style.difference(None, a, b, name_a="one", name_b="two")
    said = texts(picture)
    assert "46 of 2 304 pixels differ; objects lost 1, gained 0" in said
    assert "where they differ: 19 965 ppm" in said
    assert "only one" in said
    map_ = picture.axes[2].images[0].get_array()
    scale = (map_.shape[0] / SIZE) ** 2
    assert n_painted(map_, style.COLOURS["only_a"], 0.85) == 16 * scale
    assert n_painted(map_, style.COLOURS["only_b"], 0.85) == 30 * scale


def test_a_single_pixel_in_a_large_image_is_seen():
    a = np.zeros((1200, 1200), np.uint16)
    a[100:400, 100:400] = 1
    b = a.copy()
    b[400, 200] = 1
    picture = style.difference(None, a, b, name_a="A", name_b="B")
    map_ = picture.axes[2].images[0].get_array()
    assert n_painted(map_, style.COLOURS["only_b"], 0.85) == style._SPOT**2
    assert len(picture.axes[2].patches) == 1  # a ring points at it
    assert "1 of 1 440 000 pixels differ" in texts(picture)


def test_no_difference_is_said():
    picture = style.difference(None, squares(), squares(numbers=(9, 4)))
    assert "The two outline the same objects" in texts(picture)


def test_difference_with_truth_has_a_second_row():
    image = np.random.default_rng(0).random((SIZE, SIZE, 2))
    b = squares(second=False)
    picture = style.difference(image, squares(), b, name_a="A", name_b="B", truth=TRUTH)
    assert len(picture.axes) == 6
    said = texts(picture)
    assert "A\nagainst the truth: AP@0.5 1.000" in said
    assert "B\nagainst the truth: AP@0.5 0.500" in said


@pytest.mark.parametrize(
    "image",
    [
        np.full((4, 4), 7, np.uint8),
        np.array([[np.nan, 1.0], [np.inf, 2.0]]),
        np.zeros((4, 4, 3), bool),
    ],
    ids=["flat", "not finite", "of bool"],
)
def test_odd_images_become_grey(image):
    grey = style.grey_image(image)
    assert grey.dtype == np.uint8
    assert grey.shape == image.shape[:2]


# -- training ------------------------------------------------------------------------------


def test_equal_curves_share_a_line(store):
    run = add_run(store, [(1.0, three()), (1.0, three()), (1.5, three())])
    picture = style.training_curves(run.repeats, labels=["zero", "one", "two"])
    said = texts(picture)
    assert "3 repeats, 2 different curves" in said
    assert "zero = one" in said
    loss, rate = picture.axes
    widths = [line.get_linewidth() for line in loss.lines if line.get_linestyle() != "None"]
    assert len(widths) == 2
    assert widths[0] > 1.5 * widths[1]
    markers = [line for line in loss.lines if line.get_linestyle() == "None"]
    assert [list(line.get_xdata()) for line in markers] == [[1], [1]]
    assert len(rate.lines) == 2


def test_one_curve_is_said_to_be_one(store):
    run = add_run(store, [(1.0, three()), (1.0, three())])
    said = texts(style.training_curves(run.repeats))
    assert "all 2 repeats follow one curve, to the last digit" in said
    assert f"{run.key[:8]}/0 = {run.key[:8]}/1" in said


def test_many_curves_can_be_drawn(store):
    run = add_run(store, [(1.0 + i, three()) for i in range(15)])
    assert "and 3 more curves" in texts(style.training_curves(run.repeats))


def test_curves_of_runs_that_trained_nothing(store):
    run = add_run(store, [(None, three())], task="segment")
    with pytest.raises(BadInput, match="none of the 1 repeats trained"):
        style.training_curves(run.repeats)
    with pytest.raises(BadInput, match="2 labels were given for 1 repeats"):
        style.training_curves(run.repeats, labels=["a", "b"])


# -- verdicts and scores -------------------------------------------------------------------


def test_verdict_matrix_says_words_and_signs():
    picture = style.verdict_matrix(
        [
            ("seed 0", "cpu", "identical", "2 repeats"),
            ("seed 0", "gpu", "different", "masks differ"),
            ("seed 1", "cpu", "vacuous", ""),
            ("seed 1", "cpu", "failed", "no memory"),
        ]
    )
    said = texts(picture)
    for expected in (
        "= identical\n2 repeats",
        "≠ different\nmasks differ",
        "∅ vacuous",
        "× failed",
    ):
        assert expected in said
    assert len(picture.axes[0].patches) == 4


@pytest.mark.parametrize(
    ("rows", "message"),
    [([("a", "b", "same", "")], r"\['same'\] are no verdicts"), ([], "no verdict was given")],
    ids=["unknown word", "nothing"],
)
def test_verdict_matrix_refuses(rows, message):
    with pytest.raises(BadInput, match=message):
        style.verdict_matrix(rows)


def test_scores_count_what_falls_together():
    rows = [("seed 0", "cpu", 0.75), ("seed 0", "cpu", 0.75), ("seed 0", "gpu", 0.5)]
    picture = style.scores(rows)
    said = texts(picture)
    assert "0.750 (2×)" in said
    assert "0.500" in said
    low, high = picture.axes[0].get_xlim()
    assert high - low >= 0.1


def test_scores_of_one_line_share_a_note_and_keep_their_points():
    rows = [("seed 0", "cpu", 0.75), ("seed 0", "gpu", 0.75), ("seed 1", "gpu", 0.75)]
    picture = style.scores(rows)
    said = texts(picture).split("\n")
    assert said.count("0.750 (2×)") == 1
    assert said.count("0.750") == 1
    points = {
        tuple(line.get_xydata()[0])
        for line in picture.axes[0].get_lines()
        if line.get_marker() in "os"
    }
    assert len(points) == 3


def test_a_short_logarithmic_axis_has_more_than_one_number():
    axes = style.Picture().subplots()
    axes.set_xlim(2e-3, 2e-2)
    style.logarithmic(axes, "x")
    written = {text.get_text() for text in axes.get_xticklabels()}
    assert {"2·10⁻³", "5·10⁻³", "10⁻²", "2·10⁻²"} <= written


def test_scores_never_suggest_less_than_nothing():
    picture = style.scores([("a", "b", 0.0)])
    assert picture.axes[0].get_xlim()[0] > -0.01


# -- weights -------------------------------------------------------------------------------


def test_similarity_writes_numbers():
    matrix = np.array([[0, 0.25, np.nan], [0.25, 0, 4], [np.nan, 4, 0]])
    picture = style.similarity(matrix, ["a", "b", "c"], title="L2 distance", log=True)
    said = texts(picture).split("\n")
    assert said.count("0.25") == 2
    assert said.count("0") >= 3
    assert said.count("–") == 2
    assert "L2 distance" in said


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize(
    "matrix", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.ones((1, 1)), np.eye(30)]
)
def test_similarity_of_odd_matrices(matrix, log):
    labels = [f"network {i}" for i in range(len(matrix))]
    texts(style.similarity(matrix, labels, title="t", log=log, columns=labels))


def test_similarity_refuses_another_number_of_labels():
    with pytest.raises(BadInput, match=r"shape \(2, 2\), and there are 3 labels"):
        style.similarity(np.zeros((2, 2)), ["a", "b", "c"], title="t")


def test_weight_distributions_use_common_intervals(tmp_path):
    generator = np.random.default_rng(0)
    for name, scale in (("narrow", 1), ("wide", 4)):
        values = (scale * generator.random(1000)).astype(np.float32)
        save_file({"out.weight": values}, tmp_path / f"{name}.safetensors")
    paths = {name: tmp_path / f"{name}.safetensors" for name in ("narrow", "wide")}
    picture = style.weight_distributions(paths)
    said = texts(picture)
    assert "out (1 000)" in said
    assert "Weights of 2 networks" in said
    first, second = (step.get_data() for step in picture.axes[0].patches)
    np.testing.assert_array_equal(first.edges, second.edges)
    assert first.edges[-1] == pytest.approx(4, rel=0.01)
    assert first.values.max() > 3 * second.values.max()
    with pytest.raises(BadInput, match="no weights file was given"):
        style.weight_distributions({})


def test_parameter_differences_are_sorted(tmp_path):
    a = {"small": np.ones(4, np.float32), "large": np.ones(4, np.float32), "same": np.ones(4)}
    b = {"small": np.float32(1.01) * a["small"], "large": 2 * a["large"], "same": a["same"]}
    save_file(a, tmp_path / "a.safetensors")
    save_file(b, tmp_path / "b.safetensors")
    picture = style.parameter_differences(
        compare_weights(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    )
    said = texts(picture)
    assert [tick.get_text() for tick in picture.axes[0].get_yticklabels()] == ["large", "small"]
    assert "2 of 2 differing tensors (3 in all)" in said
    assert "100 % of 4" in said


def test_parameter_differences_of_equal_and_of_other_networks(tmp_path):
    for name, tensors in (
        ("a", {"x": np.ones(4, np.float32)}),
        ("b", {"x": np.ones(5, np.float32)}),
        ("c", {"y": np.ones(4, np.float32)}),
    ):
        save_file(tensors, tmp_path / f"{name}.safetensors")
    a, b, c = (tmp_path / f"{name}.safetensors" for name in "abc")
    equal = style.parameter_differences(compare_weights(a, a))
    assert "no parameter of the 1 tensors differs" in texts(equal)
    assert "other shape" in texts(style.parameter_differences(compare_weights(a, b)))
    alone = style.parameter_differences(compare_weights(a, c))
    assert "2 tensors on one side only" in texts(alone)


# -- time ----------------------------------------------------------------------------------


def test_times_add_up():
    picture = style.times([("a", {"segment": 1.0, "train": 2.5}), ("b", {"segment": 0.5})])
    said = texts(picture)
    assert "3.5" in said
    assert "0.5" in said
    assert [t.get_text() for t in picture.legends[0].get_texts()] == ["train", "segment"]
    with pytest.raises(BadInput, match="no times"):
        style.times([])


def test_inference_times(store):
    run = add_run(store, [(None, three()), (None, three())], task="segment")
    said = texts(style.inference_times(run.repeats, labels=["zero", "one"]))
    assert "2 repeats, 6 images in all" in said
    assert "zero" in said


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["a $x^$ b", r"\frac{1}", "_hidden", "x" * 300, "two\nlines", "", "<b>&"],
    ids=["mathematics", "backslash", "underscore", "long", "lines", "empty", "markup"],
)
def test_any_name_can_be_drawn(store, name):
    run = add_run(store, [(1.0, {"img": squares()}), (2.0, {"img": NOTHING})])
    paths = {name: run.repeats[0].weights, "other": run.repeats[1].weights}
    for picture in (
        style.training_curves(run.repeats, labels=[name, "other"]),
        style.difference(None, squares(), NOTHING, name_a=name, name_b=name, truth=TRUTH),
        style.verdict_matrix([(name, name, "identical", name)]),
        style.scores([(name, name, 0.5), ("other", "group", 0.5)]),
        style.similarity(np.ones((2, 2)), [name, "other"], title=name),
        style.weight_distributions(paths),
        style.times([(name, {"train": 1.0})]),
        style.inference_times(run.repeats, labels=[name, "other"]),
    ):
        texts(picture)
