"""The explorer: what it counts, refuses and sends, and what a browser really paints."""

import base64
import io
import re
from contextlib import contextmanager
from pathlib import Path

import nbformat
import numpy as np
import pytest
import tifffile
from PIL import Image

from cellrepro.errors import BadInput
from cellrepro.show.explorer import widget
from cellrepro.show.explorer.widget import (
    COLOURS,
    DASHES,
    View,
    agreement_colours,
    explore,
    explore_views,
)
from cellrepro.show.figures.masks import DARKER, DIMMED, category_picture, hatched
from cellrepro.show.figures.masks import painted as paint
from cellrepro.store.store import Store
from lab_server import CHROMIUM_FLAGS, chromium_path, jupyterlab, voila
from stores import SIZE as STORED_SIZE
from stores import add_run, squares, three

ROOT = Path(__file__).resolve().parents[2]

SIZE = 64
# One screen pixel per CSS pixel and a picture of 512: each image pixel is a square of 8.
SCALE = 8
# The objects of A, two of 128 by 128 screen pixels and one of 128 by 64, with a line of 2.
LINES_OF_A = 2 * (128 * 128 - 124 * 124) + (128 * 64 - 124 * 60)


def square(labels: np.ndarray, label: int, y: int, x: int, height: int, width: int) -> None:
    labels[y : y + height, x : x + width] = label


def drawn_by_hand() -> dict[str, np.ndarray]:
    """Two runs that differ in known places: 128 pixels only A, 256 only B, 96 other object."""
    a, b, truth, categories = (np.zeros((SIZE, SIZE), dtype=np.int32) for _ in range(4))
    square(a, 1, 8, 8, 16, 16)  # the same object, under another number
    square(b, 5, 8, 8, 16, 16)
    square(categories, 1, 8, 8, 16, 16)
    square(a, 2, 32, 8, 16, 8)  # missing in B
    square(categories, 2, 32, 8, 16, 8)
    square(b, 70_000, 40, 40, 16, 16)  # missing in A
    square(categories, 3, 40, 40, 16, 16)
    square(a, 3, 8, 36, 16, 16)  # B cuts a piece off
    square(b, 9, 8, 36, 16, 10)
    square(b, 10, 8, 46, 16, 6)
    square(categories, 1, 8, 36, 16, 10)
    square(categories, 4, 8, 46, 16, 6)
    square(truth, 4, 30, 6, 20, 20)
    y, x = np.mgrid[:SIZE, :SIZE]
    return {
        "image": (1000 + 40 * y + x).astype(np.uint16),
        "masks_a": a,
        "masks_b": b,
        "truth": truth,
        "categories": categories.astype(np.uint8),
    }


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    return drawn_by_hand()


def sent(shown: widget.Explorer, key: str) -> dict:
    """A plane of what is shown, as it travels."""
    return shown.planes[shown.scene["planes"][key]]


def three_runs() -> widget.Explorer:
    """The drawing as runs A and B; C is B without the cell that only B has.

    On a second image, smaller than the first, C has no masks; nor on a third, a stack.
    """
    drawn = drawn_by_hand()
    c = np.where(drawn["masks_b"] == 70_000, 0, drawn["masks_b"])
    first = View("large", [drawn["masks_a"], drawn["masks_b"], c], drawn["image"], drawn["truth"])
    a = np.zeros((64, 96), int)
    square(a, 1, 4, 4, 8, 8)
    b = a.copy()
    square(b, 2, 24, 40, 4, 4)
    second = View("small one", [a, b, None], np.arange(64 * 96).reshape(64, 96))
    a, b = np.zeros((2, 3, 64, 64), int)
    square(a[0], 1, 8, 8, 16, 16)
    b[:2] = a[0]  # one plane deeper: half of it is shared
    square(a[2], 2, 40, 24, 8, 8)
    third = View("stack", [a, b, None], np.arange(3 * 64 * 64).reshape(3, 64, 64))
    return explore_views([first, second, third], ["A", "B", "C"], title="three runs")


# ---- counts ------------------------------------------------------------------------------------


def test_counts(arrays):
    """The counts are those of the drawing; 480 of 4096 pixels are 117187.5 in a million."""
    assert explore(**arrays).counts == {
        "background": 4096 - 416 - 480,
        "agree": 416,
        "only_a": 128,
        "only_b": 256,
        "other_object": 96,
        "differ": 480,
        "pixels": 4096,
        "ppm": 117_187.5,
    }


@pytest.mark.parametrize(
    ("differ", "pixels", "expected"),
    [
        (0, 4, "0 pixels differ = 0 ppm (only A: 0, only B: 0, other object: 0) of 4"),
        (1, 2048**2, "1 pixel differs = 0.24 ppm (only A: 1, "),
        (100, 2048**2, "100 pixels differ = 23.8 ppm"),
        (1234, 65_536, "1 234 pixels differ = 18 829 ppm (only A: 1 234,"),
    ],
    ids=["none", "one in four million", "a hundred", "thousands"],
)
def test_counts_line(differ, pixels, expected):
    """A single differing pixel is never rounded away."""
    categories = np.zeros(pixels, dtype=np.uint8)
    categories[:differ] = 2
    line = widget.counts_line(widget.count(categories))
    assert line.startswith(expected)


def test_counts_line_names_the_runs(arrays):
    line = explore(**arrays, name_a="CPU", name_b="GPU").line
    assert "only CPU: 128, only GPU: 256" in line


# ---- what is sent ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(0, "uint8"), (255, "uint8"), (256, "uint16"), (65_535, "uint16"), (65_536, "uint32")],
)
def test_packed_round_trip(largest, dtype):
    """Labels arrive unchanged, in the narrowest dtype that holds them."""
    labels = np.array([[0, 0, largest], [largest // 2, 0, 1 if largest else 0]], dtype=np.int64)
    plane = widget.packed(labels)
    assert plane["dtype"] == dtype
    assert isinstance(plane["data"], bytes)
    np.testing.assert_array_equal(widget.unpacked(plane), labels)


@pytest.mark.parametrize("order", ["C", "F"])
def test_planes_hold_what_was_given(arrays, order):
    shown = explore(**{name: np.asarray(a, order=order) for name, a in arrays.items()})
    for plane, name in [("a", "masks_a"), ("b", "masks_b"), ("truth", "truth")]:
        np.testing.assert_array_equal(shown.plane(plane), arrays[name])
    np.testing.assert_array_equal(shown.plane("categories"), arrays["categories"])


def test_no_truth_no_plane(arrays):
    del arrays["truth"]
    assert set(explore(**arrays).scene["planes"]) == {"image", "a", "b", "categories", "story"}


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.uint8, np.int16, np.uint16, np.int32, np.int64], ids=str
)
def test_integer_images_arrive_exactly(arrays, dtype):
    """The read-out may show these values as they are: offset + what was stored."""
    image = np.arange(SIZE * SIZE).reshape(SIZE, SIZE).astype(dtype)
    plane = sent(explore(**arrays | {"image": image}), "image")
    assert plane["exact"]
    np.testing.assert_array_equal(plane["offset"] + widget.unpacked(plane)[..., 0], image)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint32], ids=str)
def test_other_images_arrive_closely(arrays, dtype):
    """Half a step of 1/65535 of the span is the largest error."""
    generator = np.random.default_rng(0)
    image = (generator.random((SIZE, SIZE, 3)) * 3e6 - (dtype != np.uint32) * 1e6).astype(dtype)
    plane = sent(explore(**arrays | {"image": image}), "image")
    assert not plane["exact"]
    error = np.abs(plane["offset"] + plane["step"] * widget.unpacked(plane) - image)
    assert error.max() <= 0.51 * np.ptp(image.astype(float)) / 65_535


def test_grey_is_stretched_from_first_to_last_percentile(arrays):
    image = np.arange(SIZE * SIZE).reshape(SIZE, SIZE)
    values = widget.grey(sent(explore(**arrays | {"image": image}), "image"))
    low, high = np.percentile(image, (1, 99))
    expected = np.floor(np.clip((image - low) / (high - low), 0, 1) * 255 + 0.5)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("value", [0, 7, 0.5])
def test_flat_images_are_black(arrays, value):
    """No contrast, no division by zero."""
    plane = sent(explore(**arrays | {"image": np.full((SIZE, SIZE), value)}), "image")
    assert not widget.grey(plane).any()


def test_few_bright_pixels_are_seen(arrays):
    """More than 99 % background must not make the image flat."""
    image = np.zeros((SIZE, SIZE))
    image[5, 5] = 10
    assert widget.grey(sent(explore(**arrays | {"image": image}), "image"))[5, 5] == 255


def test_channels_are_stretched_apart_and_averaged(arrays):
    """A dim channel counts as much as a bright one."""
    ramp = np.linspace(0, 1, SIZE * SIZE).reshape(SIZE, SIZE)
    image = np.stack([ramp, 1000 * ramp, 0 * ramp], axis=-1)
    values = widget.grey(sent(explore(**arrays | {"image": image}), "image"))
    assert values.max() == 170  # two of three channels at full
    assert values.min() == 0


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"masks_a": np.zeros((64, 63), int)},
            r"masks_a has shape \(64, 63\); expected \(64, 64\)",
        ),
        ({"masks_b": np.zeros((2, 64, 64), int)}, r"masks_b has shape \(2, 64, 64\).*one plane"),
        ({"truth": np.zeros((32, 32), int)}, r"truth has shape \(32, 32\); expected \(64, 64\)"),
        ({"masks_a": np.zeros((64, 64))}, r"masks_a has dtype float64.*masks_a\.astype"),
        ({"masks_b": np.full((64, 64), -1)}, r"masks_b has labels from -1 to -1.*Renumber"),
        ({"image": np.zeros((2, 64, 64))}, r"image has shape \(2, 64, 64\).*moveaxis"),
        ({"image": np.zeros((0, 64))}, r"no pixels; there is nothing to compare"),
        ({"image": np.full((64, 64), np.nan)}, r"image has 4096 values that are NaN.*nan_to_num"),
        ({"image": np.zeros((64, 64), complex)}, r"image has dtype complex128; expected real"),
    ],
    ids=[
        "narrower",
        "stack",
        "small truth",
        "float labels",
        "negative labels",
        "channels first",
        "empty",
        "nan",
        "complex",
    ],
)
def test_refused(arrays, changes, message):
    """The message says what was given, what was expected and what to do."""
    with pytest.raises(BadInput, match=re.compile(message, re.DOTALL)):
        explore(**arrays | changes)


def test_categories_that_contradict_the_masks_are_refused(arrays):
    arrays["categories"][41, 42] = 2
    with pytest.raises(BadInput, match=r"at 1 pixels, first at \(y, x\) = \(41, 42\): category 2"):
        explore(**arrays)


# ---- outlines ----------------------------------------------------------------------------------


def test_outlined_touching_and_at_the_edge():
    """Each object has its own closed line, also against a neighbour and the image's edge."""
    labels = np.array(
        [
            [1, 1, 1, 2, 2, 2],
            [1, 1, 1, 2, 2, 2],
            [1, 1, 1, 2, 2, 2],
            [0, 0, 0, 0, 0, 0],
        ]
    )
    expected = np.array(
        [
            [1, 1, 1, 1, 1, 1],
            [1, 0, 1, 1, 0, 1],
            [1, 1, 1, 1, 1, 1],
            [0, 0, 0, 0, 0, 0],
        ],
        dtype=bool,
    )
    np.testing.assert_array_equal(widget.outlined(labels, thickness=1), expected)


def test_outlined_dashes_have_gaps_on_every_side():
    """Two on, one off: along x above and below, along y at the sides."""
    labels = np.ones((6, 6), dtype=int)
    expected = np.array(
        [
            [1, 1, 0, 1, 1, 1],
            [1, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 1],
            [1, 0, 0, 0, 0, 1],
            [0, 1, 0, 1, 1, 0],
        ],
        dtype=bool,
    )
    np.testing.assert_array_equal(widget.outlined(labels, thickness=1, dash=(2, 1)), expected)


# ---- the static picture ------------------------------------------------------------------------


def colour_count(picture: np.ndarray, colour: str) -> int:
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((picture[..., :3] == rgb).all(axis=-1).sum())


def test_static_picture(arrays, tmp_path):
    """The whole outlines of A in A's colour, as many pixels as they have; also stored."""
    target = tmp_path / "comparison.png"
    content = explore(**arrays, title="cost: $5 and $6").to_png(target, panel=512)
    assert target.read_bytes() == content
    picture = np.asarray(Image.open(io.BytesIO(content)))
    assert colour_count(picture, COLOURS["a"]) > 500
    assert colour_count(picture, COLOURS["b"]) > 500
    assert colour_count(picture, COLOURS["truth"]) > 100


def test_static_picture_keeps_a_single_pixel(arrays):
    """One differing pixel of 600² is still seen in a panel of 100²."""
    shape = (600, 600)
    categories = np.zeros(shape, dtype=np.uint8)
    categories[301, 17] = 2
    drawn = category_picture(np.zeros(shape, np.uint8), categories, side=100)[1]
    assert drawn[50, 2] == 2


def test_static_picture_of_many_runs():
    """A fourth panel, below, tells how many runs call a pixel cell, in colours of its own."""
    two = explore(**drawn_by_hand()).to_png()
    picture, flatter = (np.asarray(Image.open(io.BytesIO(c))) for c in (three_runs().to_png(), two))
    assert picture.shape[0] > 1.4 * flatter.shape[0]

    def in_colour(part):
        return int((np.ptp(part[..., :3].astype(int), axis=2) > 60).sum())

    lower = picture[picture.shape[0] // 2 : -120]
    right = lower[:, lower.shape[1] // 2 :]
    assert in_colour(right) > 1000


def test_shows_itself_as_a_widget(arrays):
    """The notebook gets a live widget, and a picture and text where there is no kernel."""
    shown = explore(**arrays)
    bundle, *_ = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert base64.b64decode(bundle["image/png"]) == shown.to_png()
    assert bundle["text/plain"] == shown.line


def test_categories_are_computed_when_not_given(arrays):
    """The drawing's own categories are what `cellrepro.compare.metrics` says of its masks."""
    by_hand = arrays.pop("categories")
    actual = explore(**arrays).plane("categories")
    np.testing.assert_array_equal(actual, by_hand)


# ---- any two of several runs on any image ------------------------------------------------------


def test_choosing_runs_and_images():
    """By name or position, as the selectors do; what is not named stays."""
    shown = three_runs()
    assert (shown.image_name, shown.name_a, shown.name_b) == ("large", "A", "B")
    shown.show(b="C")
    assert (shown.name_a, shown.name_b) == ("A", "C")
    assert shown.counts["differ"] == 128 + 96
    shown.show(a=1)
    assert (shown.name_a, shown.name_b) == ("B", "C")
    assert shown.counts == shown.counts | {"only_a": 256, "differ": 256}


def test_a_run_without_masks_of_an_image_gives_way():
    """C has none of the second image, so another run stands in, and cannot agree."""
    shown = three_runs()
    shown.show(a="C", b="A")
    shown.show("small one")
    assert {shown.name_a, shown.name_b} == {"A", "B"}
    assert shown.scene["having"] == [0, 1]
    assert "cells" not in shown.scene["planes"]


def test_agreement_counts_runs():
    """A and B alone have one cell each; everything else is cell in all three runs."""
    shown = three_runs()
    expected = np.zeros((SIZE, SIZE), int)
    square(expected, 3, 8, 8, 16, 16)
    square(expected, 1, 32, 8, 16, 8)
    square(expected, 1, 40, 40, 16, 16)
    square(expected, 3, 8, 36, 16, 16)
    np.testing.assert_array_equal(shown.plane("cells"), expected)


def test_story_tells_every_cell():
    story = three_runs().plane("story")
    found = {
        (kind, *a, "to", *b): (iou, area_a, area_b, runs)
        for kind, a, b, iou, area_a, area_b, runs in zip(
            *(
                story[k]
                for k in ("kind", "labels_a", "labels_b", "iou", "area_a", "area_b", "runs")
            ),
            strict=True,
        )
    }
    assert found[("kept", 1, "to", 5)] == (1, 256, 256, 3)
    assert found[("lost", 2, "to")] == (0, 128, 0, 1)
    assert found[("gained", "to", 70_000)] == (0, 0, 256, 1)
    assert story["n_runs"] == 3


def test_equal_masks_travel_once():
    """Runs with the same masks share one plane, whatever numbers their files have."""
    masks = [squares(), squares(), squares(second=False)]
    shown = explore_views([View("image", masks)], ["A", "B", "C"])
    assert shown.scene["planes"]["a"] == shown.scene["planes"]["b"]
    shown.show(b="C")
    assert shown.scene["planes"]["a"] != shown.scene["planes"]["b"]


def test_masks_are_read_when_they_are_looked_at():
    read = []

    def reading(name):
        return lambda: read.append(name) or squares()

    views = [
        View(image, [reading(f"{image} of {run}") for run in "AB"], digests=["1", "2"])
        for image in ("first", "second")
    ]
    shown = explore_views(views, ["A", "B"])
    assert {name.split()[0] for name in read} == {"first"}
    shown.show("second")
    assert {name.split()[0] for name in read} == {"first", "second"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"image": "larger"},
            r"there is no image 'larger'; expected one of 3: large, small one, stack",
        ),
        ({"a": "D"}, r"there is no run 'D'; expected one of 3: A, B, C"),
        ({"b": 3}, r"there is no run 3; expected one of 3"),
    ],
    ids=["image", "run", "position"],
)
def test_choosing_what_is_not_there(asked, message):
    shown = three_runs()
    with pytest.raises(BadInput, match=message):
        shown.show(**asked)
    assert shown.name_b == "B"


def test_what_the_browser_cannot_have_is_said():
    """Masks of another shape are found out when they are chosen; what was shown stays."""
    wrong = View("cut", [squares(), np.zeros((3, 3), int)])
    shown = explore_views([View("whole", [squares()] * 2), wrong], ["A", "B"])
    shown.choice = shown.choice | {"view": 1}
    assert re.search(r"masks_b has shape \(3, 3\); expected \(48, 48\)", shown.problem)
    assert shown.image_name == "whole"


def test_masks_that_cannot_agree_are_refused():
    with pytest.raises(BadInput, match=r"^the mask of C on one has shape \(3, 3\); expected"):
        explore_views([View("one", [squares(), squares(), np.zeros((3, 3), int)])], list("ABC"))


@pytest.mark.parametrize(
    ("views", "runs", "message"),
    [
        ([], ["A", "B"], "no image was given"),
        ([View("image", [squares()])], ["A"], "1 runs were given; the explorer compares two"),
        (
            [View("one", [squares(), squares()])],
            ["A", "B", "C"],
            "image one has 2 masks for 3 runs",
        ),
        (
            [View("one", [squares(), None])],
            ["A", "B"],
            "fewer than two runs have masks of image one",
        ),
    ],
    ids=["no image", "one run", "a mask too few", "one run's masks"],
)
def test_views_that_cannot_be_compared(views, runs, message):
    with pytest.raises(BadInput, match=message):
        explore_views(views, runs)


# ---- files -------------------------------------------------------------------------------------


def test_saved_masks_are_the_masks(arrays, tmp_path):
    """Labels that fit are uint16, as Cellpose writes them; larger ones uint32."""
    paths = explore(**arrays, title="a cell").save_masks(tmp_path / "new")
    found = {path.name: tifffile.imread(path) for path in paths}
    assert {name: array.dtype.name for name, array in found.items()} == {
        "a_cell_a_masks.tif": "uint16",
        "a_cell_b_masks.tif": "uint32",
        "a_cell_difference.tif": "uint8",
        "a_cell_truth_masks.tif": "uint16",
    }
    for name, key in [("a_masks", "masks_a"), ("b_masks", "masks_b"), ("difference", "categories")]:
        np.testing.assert_array_equal(found[f"a_cell_{name}.tif"], arrays[key])


def test_masks_are_not_saved_over_a_file(arrays, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(BadInput, match="taken is a file; expected a folder"):
        explore(**arrays).save_masks(tmp_path / "taken")


# ---- in JupyterLab -----------------------------------------------------------------------------

CANVAS = "canvas.cre-canvas"
READY = '.cellrepro-explorer[data-ready="1"]'
# Every frame is painted late, so that a test that does not wait for it fails each time, not once.
LATE_FRAMES = """
const soon = requestAnimationFrame;
requestAnimationFrame = (paint) => soon(() => setTimeout(() => paint(performance.now()), 50));
"""


@pytest.fixture(scope="module")
def browser():
    executable = chromium_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@contextmanager
def browsing(browser):
    """A page that remembers what it asked for and which errors it met."""
    page = browser.new_page(viewport={"width": 1400, "height": 1200}, device_scale_factor=1)
    page.set_default_timeout(10_000)
    page.add_init_script(LATE_FRAMES)
    page.asked, page.errors = [], []
    page.on("request", lambda request: page.asked.append(request))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    yield page
    page.close()


def asked_elsewhere(page) -> list[str]:
    """Requests to other servers; what the browser itself refuses to send is none."""
    own = r"(http://127\.0\.0\.1:|data:|blob:)"
    return [r.url for r in page.asked if not re.match(own, r.url) and r.failure != "csp"]


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """A JupyterLab page on which one cell has just shown the explorer of `three_runs`."""
    folder = tmp_path_factory.mktemp("lab")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from test_explorer import three_runs\n"
        "three_runs()"
    )
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, folder / "compare.ipynb")
    with jupyterlab(folder) as address, browsing(browser) as page:
        try:
            page.goto(address.format(notebook="compare.ipynb"))
            # Earlier, a cell that is run asks which kernel it should have.
            page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=30_000)
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            page.locator(READY).wait_for(timeout=30_000)
            yield page
        finally:
            page.screenshot(path=folder / "last.png")  # what a failed test looked at


@pytest.fixture
def shown(page):
    """The explorer as it first appears, whatever the test before did to it."""
    # By way of C, as no run can be chosen against itself.
    for key, name in [("view", "large"), ("b", "C"), ("a", "A"), ("b", "B")]:
        if key == "b" and name == "C" and state(page, "a") == "C":
            continue
        page.locator(f".cre-select-{key}").select_option(name)
        wait_for(page, **{"image" if key == "view" else key: name}, loading="0")
    for key in ("image", "patterns", "truth"):
        page.locator(f'[data-show="{key}"]').set_checked(key != "truth")
    for mode, opacity in [("categories", 90), ("agreement", 85), ("outlines", 100)]:
        choose(page, mode, opacity=opacity)
    page.locator(CANVAS).focus()
    page.keyboard.press("0")
    page.keyboard.press("Escape")
    wait_for(page, zoom="1.0000", mode="outlines", opacity="1.00", shows="a b image", chosen="")
    return page


@pytest.fixture(scope="module")
def background():
    """The grey picture on the canvas at zoom 1, uint8 of shape (Y, X, 3)."""
    picture = enlarged(widget.grey(sent(three_runs(), "image")))
    return np.repeat(picture[..., np.newaxis], 3, axis=2)


def wait_for(page, **state: str) -> None:
    """Return once the explorer reports this state, each time after it has painted it."""
    attributes = "".join(f'[data-{key}="{value}"]' for key, value in state.items())
    page.locator(f".cellrepro-explorer{attributes}").wait_for(timeout=5_000)


def state(page, key: str) -> str:
    return page.locator(".cellrepro-explorer").get_attribute(f"data-{key}")


def choose(page, mode: str, *, opacity: int) -> None:
    page.locator(f'[data-choose="{mode}"]').click()
    wait_for(page, mode=mode)
    page.locator("input.cre-opacity").fill(str(opacity))
    wait_for(page, mode=mode, opacity=f"{opacity / 100:.2f}")


def painted(page) -> np.ndarray:
    """The pixels of the canvas, uint8 of shape (Y, X, 3)."""
    address = page.locator(CANVAS).evaluate("canvas => canvas.toDataURL()")
    return decoded(base64.b64decode(address.partition(",")[2]))


def decoded(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def enlarged(array: np.ndarray) -> np.ndarray:
    return array.repeat(SCALE, axis=0).repeat(SCALE, axis=1)


def coloured(picture: np.ndarray, colour: str) -> np.ndarray:
    """Where a picture has exactly this colour."""
    return (picture == [int(colour[i : i + 2], 16) for i in (1, 3, 5)]).all(axis=-1)


def with_outlines(background, arrays, *names: str) -> np.ndarray:
    """What the canvas must hold at zoom 1, pixel for pixel, from the arrays alone."""
    picture = background.copy()
    for name in names:
        labels = enlarged(arrays["truth" if name == "truth" else f"masks_{name}"])
        lines = widget.outlined(labels, thickness=2, dash=DASHES[name])
        paint(picture, lines, COLOURS[name])
    return picture


def to_pixel(page, y: float, x: float) -> None:
    """Put the mouse on the middle of an image pixel, at zoom 1."""
    to_point(page, (y + 0.5) * SCALE, (x + 0.5) * SCALE)


def to_point(page, y: float, x: float) -> None:
    """Put the mouse on that point of the canvas, in screen pixels."""
    box = page.locator(CANVAS).bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)


def click(page, y: float, x: float) -> None:
    to_pixel(page, y, x)
    page.mouse.down()
    page.mouse.up()


def story(page) -> str:
    text = page.locator(".cre-story").inner_text().replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(r"\s+", " ", text)


def rows(page) -> list[list[str]]:
    """The list of cells as it stands on the page."""
    found = page.locator(".cre-row").all()
    texts = [row.inner_text().replace("\N{NO-BREAK SPACE}", " ") for row in found]
    return [re.split(r"\s*\n\s*", text.strip()) for text in texts]


@pytest.mark.browser
def test_page_tells_the_counts(shown):
    line = shown.locator("[data-line]").inner_text().replace("\N{NO-BREAK SPACE}", " ")
    assert line == (
        "480 pixels differ = 117 188 ppm (only A: 128, only B: 256, other object: 96) of 4 096"
    )
    assert state(shown, "scale") == f"{SCALE:.4f}"


@pytest.mark.browser
def test_outlines_are_painted_to_the_pixel(shown, arrays, background):
    """A solid below, B dashed above, on the stretched image: equal to the rule in Python."""
    expected = with_outlines(background, arrays, "a", "b")
    np.testing.assert_array_equal(painted(shown), expected)


@pytest.mark.browser
def test_boxes_show_and_hide(shown, arrays, background):
    shown.locator('[data-show="b"]').uncheck()
    wait_for(shown, shows="a image")
    assert coloured(painted(shown), COLOURS["a"]).sum() == LINES_OF_A
    assert not coloured(painted(shown), COLOURS["b"]).any()

    shown.locator('[data-show="truth"]').check()
    wait_for(shown, shows="a image truth")
    expected = with_outlines(background, arrays, "truth", "a")
    np.testing.assert_array_equal(painted(shown), expected)

    shown.locator('[data-show="a"]').uncheck()
    shown.locator('[data-show="image"]').uncheck()
    wait_for(shown, shows="truth")
    assert coloured(painted(shown), "#000000").sum() > 0.9 * 512**2


@pytest.mark.browser
def test_differences_are_painted_to_the_pixel(shown, arrays):
    """Each image pixel that differs is 64 screen pixels; darker on lines that tell its kind."""
    choose(shown, "categories", opacity=100)
    wait_for(shown, shows="image only_a only_b other_object")
    with_patterns = painted(shown)
    shown.locator(CANVAS).press("h")
    wait_for(shown, patterns="0")
    without = painted(shown)
    for value, name in [(2, "only_a"), (3, "only_b"), (4, "other_object")]:
        here = enlarged(arrays["categories"] == value)
        np.testing.assert_array_equal(coloured(without, COLOURS[name]), here)
        rgb = [int(COLOURS[name][i : i + 2], 16) for i in (1, 3, 5)]
        darker = "#{:02X}{:02X}{:02X}".format(*(int(DARKER * value + 0.5) for value in rgb))
        lines = here & hatched(value, here.shape)
        assert 0.2 < lines.sum() / here.sum() < 0.3
        np.testing.assert_array_equal(coloured(with_patterns, darker), lines)
        np.testing.assert_array_equal(coloured(with_patterns, COLOURS[name]), here & ~lines)


@pytest.mark.browser
def test_opacity_by_arrow_keys_blends_with_the_image(shown, background):
    """The slider's keys reach the slider, not JupyterLab, whose arrows choose another cell."""
    choose(shown, "categories", opacity=51)
    shown.locator(CANVAS).press("h")
    shown.locator("input.cre-opacity").press("ArrowLeft")
    wait_for(shown, opacity="0.50", patterns="0")
    y, x = 32 * SCALE + 4, 8 * SCALE + 4
    blue = np.array([0x56, 0xB4, 0xE9])
    expected = (blue + DIMMED * background[y, x]) / 2
    np.testing.assert_allclose(painted(shown)[y, x], expected, atol=1.5)


@pytest.mark.browser
def test_agreement_is_painted_by_the_number_of_runs(shown):
    """One run's cells in the first colour of three, whole; no other pixel has it."""
    choose(shown, "agreement", opacity=100)
    expected = enlarged(three_runs().plane("cells") == 1)
    actual = coloured(painted(shown), agreement_colours(3)[0])
    np.testing.assert_array_equal(actual, expected)
    to_pixel(shown, 33, 9)
    wait_for(shown, readout="33, 9 | 2329 | cell 2 | background | cell 4 | 1 of 3 | only A")

    shown.locator(".cre-vote").select_option("objects")
    wait_for(shown, loading="0")
    to_pixel(shown, 10, 50)  # cell 3 of A, of which B and C have made another one
    expected = three_runs().plane("objects")[10, 50]
    wait_for(
        shown,
        readout=f"10, 50 | 1450 | cell 3 | cell 10 | background | {expected} of 3 | "
        "cell in both, but another object",
    )
    shown.locator(".cre-vote").select_option("cells")


@pytest.mark.browser
def test_blink_by_keys_shows_one_run_at_a_time(shown, arrays, background):
    seen = {}
    for _ in range(2):
        shown.keyboard.press("Space")
        wait_for(shown, mode="blink", playing="0")
        side = "a" if "b" in seen else ("b" if seen else state(shown, "blink"))
        wait_for(shown, blink=side)
        seen[side] = painted(shown)
        if len(seen) == 1 and side == "a":
            shown.keyboard.press("Space")
            wait_for(shown, blink="b")
            seen["b"] = painted(shown)
            break
    for side, picture in seen.items():
        np.testing.assert_array_equal(picture, with_outlines(background, arrays, side))
    assert set(seen) == {"a", "b"}


@pytest.mark.browser
@pytest.mark.parametrize(
    ("y", "x", "expected"),
    [
        (8, 8, "1328 | cell 1 | cell 5 | background | same object"),
        (23, 45, "1965 | cell 3 | cell 9 | background | same object"),
        (23, 46, "1966 | cell 3 | cell 10 | background | cell in both, but another object"),
        (32, 15, "2295 | cell 2 | background | cell 4 | only A"),
        (32, 16, "2296 | background | background | cell 4 | background in both"),
        (55, 40, "3240 | background | cell 70000 | background | only B"),
        (0, 63, "1063 | background | background | background | background in both"),
    ],
    ids=["agree", "larger piece", "smaller piece", "only a", "beside it", "only b", "corner"],
)
def test_readout(shown, y, x, expected):
    """Corners of the squares, so that a shift by one pixel would be told."""
    to_pixel(shown, y, x)
    wait_for(shown, readout=f"{y}, {x} | {expected}")


@pytest.mark.browser
def test_reading_and_picking_by_keys(shown):
    """Shift and arrows read pixel by pixel from the middle; enter tells that cell's story."""
    shown.keyboard.press("Shift+ArrowRight")  # appears in the middle
    wait_for(
        shown, readout="32, 32 | 2312 | background | background | background | background in both"
    )
    for _ in range(8):
        shown.keyboard.press("Shift+ArrowRight")
        shown.keyboard.press("Shift+ArrowDown")
    wait_for(shown, readout="40, 40 | 2640 | background | cell 70000 | background | only B")
    shown.keyboard.press("Enter")
    wait_for(shown, chosen="gained 70000")
    shown.keyboard.press("Shift+ArrowUp")
    wait_for(
        shown, readout="39, 40 | 2600 | background | background | background | background in both"
    )
    shown.keyboard.press("Escape")
    wait_for(shown, chosen="")


@pytest.mark.browser
def test_click_tells_the_story_and_marks_the_cell(shown):
    shown.locator('[data-show="image"]').uncheck()
    click(shown, 40, 12)
    wait_for(shown, chosen="lost 2", shows="a b")
    assert "only A has it" in story(shown)
    assert "in A cell 2, 128 px" in story(shown)
    assert "stable in 1 of 3 runs (33 %)" in story(shown)
    marked = coloured(painted(shown), "#FFFFFF")
    assert marked.sum() == 128 * 64 - 124 * 60  # its own line, two pixels wide
    assert marked[32 * SCALE, 8 * SCALE : 16 * SCALE].all()

    click(shown, 10, 10)
    wait_for(shown, chosen="kept 1")
    assert "in A cell 1, 256 px in B cell 5, 256 px area ±0 px" in story(shown)
    assert "IoU 1.000" in story(shown)

    click(shown, 2, 2)
    wait_for(shown, chosen="")
    assert not coloured(painted(shown), "#FFFFFF").any()


@pytest.mark.browser
def test_list_of_changed_cells_sorts_and_jumps(shown):
    listed = rows(shown)
    assert {row[1] for row in listed} >= {"lost", "gained"}
    assert "kept" not in {row[1] for row in listed}
    shown.locator('[data-sort="area"]').click()
    shown.locator('[data-sort="area"]').click()
    areas = [int(row[4].split()[0]) for row in rows(shown)]
    assert areas == sorted(areas, reverse=True)
    assert len(set(areas)) > 1

    shown.locator('.cre-row[data-kind="gained"]').click()
    wait_for(shown, chosen="gained 70000")
    # Its centre is at (47.5, 47.5), seen in the middle unless the image ends before.
    scale = float(state(shown, "scale"))
    middle = 48 * scale + float(state(shown, "offset-x"))
    assert middle == pytest.approx(256, abs=1) or float(state(shown, "zoom")) == 1
    shown.locator('[data-sort="kind"]').click()
    shown.locator('.cre-chip[data-kind="kept"]').click()
    assert "kept" in {row[1] for row in rows(shown)}
    shown.locator('.cre-chip[data-kind="kept"]').click()

    shown.locator(".cre-window").press("Home")
    wait_for(shown, chosen="lost 2")
    shown.locator(".cre-window").press("ArrowDown")
    wait_for(shown, chosen="gained 70000")
    shown.locator(CANVAS).press("p")
    wait_for(shown, chosen="lost 2")


@pytest.mark.browser
def test_small_cells_are_brought_near_and_into_the_middle(shown):
    """16 pixels of 64 by 96 are small: the view zooms in, the cell's centre is the canvas's."""
    shown.locator(".cre-select-view").select_option("small one")
    wait_for(shown, image="small one", loading="0")
    assert shown.locator('[data-choose="agreement"]').is_disabled()
    shown.locator(CANVAS).press("n")
    wait_for(shown, chosen="gained 2")
    scale, zoom = (float(state(shown, key)) for key in ("scale", "zoom"))
    assert zoom > 1
    canvas = painted(shown)
    for key, size, centre in [("offset-y", canvas.shape[0], 26), ("offset-x", canvas.shape[1], 42)]:
        assert centre * scale + float(state(shown, key)) == pytest.approx(size / 2, abs=1)


@pytest.mark.browser
def test_runs_are_chosen_and_exchanged(shown):
    """C has what B has but one cell, so nothing is only in C; exchanged, nothing only in A."""
    shown.locator(".cre-select-b").select_option("C")
    wait_for(shown, b="C", loading="0")
    choose(shown, "categories", opacity=100)
    shown.locator(CANVAS).press("h")
    wait_for(shown, patterns="0")
    picture = painted(shown)
    assert coloured(picture, COLOURS["only_a"]).sum() == 128 * SCALE**2
    assert not coloured(picture, COLOURS["only_b"]).any()

    shown.locator(CANVAS).press("x")
    wait_for(shown, a="C", b="A", loading="0")
    picture = painted(shown)
    assert coloured(picture, COLOURS["only_b"]).sum() == 128 * SCALE**2
    assert not coloured(picture, COLOURS["only_a"]).any()

    shown.locator(CANVAS).press(".")  # of the next image C has no masks
    wait_for(shown, image="small one", loading="0")
    assert {state(shown, "a"), state(shown, "b")} == {"A", "B"}
    scale = float(state(shown, "scale"))
    only_a, only_b = (coloured(painted(shown), COLOURS[key]) for key in ("only_a", "only_b"))
    assert only_a.sum() + only_b.sum() == pytest.approx(16 * scale**2, rel=0.1)
    shown.locator(CANVAS).press(",")
    wait_for(shown, image="large", loading="0")


@pytest.mark.browser
def test_keys_that_outrun_the_kernel_all_count(shown):
    """Both presses arrive before the first is answered: exchanged twice, two images on."""
    canvas = shown.locator(CANVAS)
    for _ in range(2):
        twice(canvas, "x")
        wait_for(shown, a="A", b="B", loading="0")
    twice(canvas, ".")
    wait_for(shown, image="stack", loading="0")
    twice(canvas, ",")
    wait_for(shown, image="large", loading="0")


def twice(canvas, key: str) -> None:
    """Press a key two times within one turn of the browser's loop."""
    canvas.evaluate(
        """(canvas, key) => {
            for (let i = 0; i < 2; i++)
                canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        }""",
        key,
    )


@pytest.mark.browser
def test_stacks_are_seen_plane_by_plane(shown):
    """The cell of both is one plane deeper in B; the list leads to the plane of A's other cell."""
    shown.locator(".cre-select-view").select_option("stack")
    wait_for(shown, image="stack", z="0", loading="0")
    choose(shown, "categories", opacity=100)
    shown.locator(CANVAS).press("h")
    wait_for(shown, patterns="0")
    scale = float(state(shown, "scale"))

    def sizes() -> list[int]:
        picture = painted(shown)
        return [coloured(picture, COLOURS[key]).sum() for key in ("only_a", "only_b")]

    assert sizes() == [0, 0]
    planes = shown.locator("input.cre-z")
    planes.fill("1")
    wait_for(shown, z="1", loading="0")
    assert sizes() == [0, pytest.approx(256 * scale**2, rel=0.05)]
    planes.press("ArrowLeft")
    wait_for(shown, z="0", loading="0")
    shown.locator(CANVAS).press("n")
    wait_for(shown, z="2", chosen="lost 2", loading="0")
    assert "cell 2, 64 voxels" in story(shown)
    assert "2.0, 43.5, 27.5" in story(shown)
    shown.locator(CANVAS).press("Escape")  # the white mark lies over its edges
    wait_for(shown, chosen="")
    assert sizes() == [pytest.approx(64 * float(state(shown, "scale")) ** 2, rel=0.05), 0]
    shown.locator('.cre-chip[data-kind="kept"]').click()
    shown.locator(CANVAS).press("p")  # the last of the list
    wait_for(shown, z="0", chosen="kept 1", loading="0")
    assert "0.500" in story(shown)
    shown.locator('.cre-chip[data-kind="kept"]').click()


@pytest.mark.browser
def test_curtain_by_mouse_and_keys(shown, arrays, background):
    """Left of the handle A, right of it B; the slider's arrow keys reach it, not JupyterLab."""
    choose(shown, "curtain", opacity=100)
    slider = shown.locator("input.cre-curtain")
    slider.fill("500")
    wait_for(shown, curtain="0.500")
    left, right = (with_outlines(background, arrays, name) for name in "ab")
    expected = np.where(np.arange(512)[:, np.newaxis] < 256, left, right)
    np.testing.assert_array_equal(painted(shown), expected)

    slider.press("ArrowRight")
    wait_for(shown, curtain="0.505")
    shown.keyboard.press("ArrowLeft")
    shown.keyboard.press("ArrowLeft")
    wait_for(shown, curtain="0.495")
    shown.keyboard.press("Home")
    wait_for(shown, curtain="0.000")
    np.testing.assert_array_equal(painted(shown), right)

    box = slider.bounding_box()
    shown.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    wait_for(shown, curtain="1.000")
    np.testing.assert_array_equal(painted(shown), left)

    slider.fill("500")
    wait_for(shown, curtain="0.500")
    to_point(shown, 100, 256)  # the handle on the picture
    shown.mouse.down()
    to_point(shown, 100, 128)
    shown.mouse.up()
    wait_for(shown, curtain="0.250")


@pytest.mark.browser
def test_wheel_zooms_around_the_pointer(shown):
    """The pixel under the pointer stays there, whatever the scale."""
    choose(shown, "categories", opacity=100)
    shown.locator(CANVAS).press("h")
    wait_for(shown, patterns="0")
    to_pixel(shown, 48, 48)
    shown.mouse.wheel(0, -100)
    wait_for(shown, zoom="1.2500")
    shown.mouse.wheel(0, -100)
    wait_for(shown, zoom="1.5625")
    # The browser reports whole pixels, the canvas may begin between two.
    assert float(state(shown, "offset-x")) == pytest.approx(-218.25, abs=1)
    assert float(state(shown, "offset-y")) == pytest.approx(-218.25, abs=1)
    assert state(shown, "readout").startswith("48, 48 | 2968 | background | cell 70000")
    assert coloured(painted(shown), COLOURS["only_b"]).sum() == (16 * SCALE * 1.25**2) ** 2

    shown.locator(CANVAS).dblclick()
    wait_for(shown, zoom="1.0000", **{"offset-x": "0.00", "offset-y": "0.00"})
    assert coloured(painted(shown), COLOURS["only_b"]).sum() == (16 * SCALE) ** 2


@pytest.mark.browser
def test_drag_and_keys_move_the_view(shown):
    shown.keyboard.press("+")
    wait_for(shown, zoom="1.2500")
    shown.keyboard.press("=")
    wait_for(shown, zoom="1.5625")
    shown.keyboard.press("-")
    wait_for(shown, zoom="1.2500", **{"offset-x": "-64.00", "offset-y": "-64.00"})
    shown.keyboard.press("ArrowRight")
    wait_for(shown, **{"offset-x": "-115.20"})
    shown.keyboard.press("ArrowUp")
    wait_for(shown, **{"offset-y": "-12.80"})
    to_point(shown, 200, 200)
    shown.mouse.down()
    to_point(shown, 230, 190)
    shown.mouse.up()
    wait_for(shown, **{"offset-x": "-125.20", "offset-y": "0.00"})  # not beyond the edge


@pytest.mark.browser
def test_keys_never_reach_jupyterlab(shown):
    """There, x cuts the cell, h asks for help, 1 makes a heading, 0 0 restarts the kernel."""
    shown.locator(CANVAS).focus()
    shown.keyboard.press("x")
    wait_for(shown, a="B", b="A", loading="0")
    shown.keyboard.press("x")
    for key in ["h", "h", "1", "0", "0", "n", "p", "i", "i", "t", "t", "Enter", "Escape"]:
        shown.keyboard.press(key)
    shown.locator("input.cre-zoom").focus()
    for key in ["ArrowRight", "ArrowLeft", "x", "0", "0"]:
        shown.keyboard.press(key)
    shown.locator(".cre-window").focus()
    for key in ["ArrowDown", "ArrowUp", "x", "h"]:
        shown.keyboard.press(key)
    wait_for(shown, a="A", b="B", loading="0")
    assert shown.locator(".jp-Dialog").count() == 0
    assert shown.locator(".jp-Notebook .jp-CodeCell").count() == 1
    assert shown.locator(".jp-Notebook .jp-MarkdownCell").count() == 0


@pytest.mark.browser
def test_picture_is_downloaded_as_it_is_seen(shown, tmp_path):
    with shown.expect_download() as download:
        shown.locator('[data-export="png"]').click()
    assert download.value.suggested_filename == "large_A_B_outlines.png"
    np.testing.assert_array_equal(decoded(download.value.path().read_bytes()), painted(shown))


@pytest.mark.browser
@pytest.mark.parametrize(
    ("key", "name", "of", "dtype"),
    [
        ("a", "large_A_masks.tif", "masks_a", np.uint16),
        ("b", "large_B_masks.tif", "masks_b", np.uint32),
        ("categories", "large_A_B_difference.tif", "categories", np.uint8),
    ],
)
def test_masks_are_downloaded_as_label_images(shown, arrays, key, name, of, dtype):
    with shown.expect_download() as download:
        shown.locator(f'[data-export="{key}"]').click()
    assert download.value.suggested_filename == name
    actual = tifffile.imread(download.value.path())
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, arrays[of])


@pytest.mark.browser
def test_page_asks_no_server_but_its_own(page):
    """Notebooks of patients' images are shown offline; nothing else was asked, nothing failed."""
    assert asked_elsewhere(page) == []
    assert page.errors == []


# ---- in Voila ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(browser, tmp_path_factory):
    """Notebook 07 alone, as `make explore` serves it, over three runs of which one lost a cell."""
    folder = tmp_path_factory.mktemp("voila")
    store = Store(folder / "store")
    add_run(store, [(1.0, three())], seed=0)
    add_run(store, [(2.0, three(squares(second=False)))], seed=1)
    add_run(store, [(3.0, three())], seed=2)
    notebook = ROOT / "notebooks/07_explorer.ipynb"
    with voila(folder, notebook, store.root) as address, browsing(browser) as page:
        page.goto(address)
        page.locator(READY).wait_for(timeout=60_000)
        yield page


@pytest.mark.browser
def test_voila_shows_what_a_run_lost(served):
    """First an image and two runs that differ; the lost cell has 16 pixels, and no other one."""
    assert state(served, "image") == "img_a"
    assert served.locator("[data-line]").inner_text().startswith("16 pixels differ")
    choose(served, "categories", opacity=100)
    served.locator(CANVAS).press("h")
    wait_for(served, patterns="0")
    scale = float(state(served, "scale"))
    picture = painted(served)
    assert picture.shape[0] == round(STORED_SIZE * scale)
    only_a, only_b = (coloured(picture, COLOURS[key]) for key in ("only_a", "only_b"))
    y, x = np.nonzero(only_a | only_b)
    assert len(y) == pytest.approx(16 * scale**2, rel=0.05)
    for axis in (y, x):
        assert axis.min() / scale == pytest.approx(30, abs=0.2)
        assert (axis.max() + 1) / scale == pytest.approx(34, abs=0.2)

    served.locator(CANVAS).press("n")
    wait_for(served, chosen="lost 2" if only_a.any() else "gained 2")
    assert "stable in 2 of 3 runs (67 %)" in story(served)


@pytest.mark.browser
def test_voila_shows_the_other_image_and_its_own_agreement(served):
    """On the next image all three runs have the same two cells."""
    served.locator(CANVAS).press(".")
    wait_for(served, image="img_b", loading="0")
    assert served.locator("[data-line]").inner_text().startswith("0 pixels differ")
    choose(served, "agreement", opacity=100)
    served.locator(".cre-window").wait_for()
    to_point(served, 32 * float(state(served, "scale")), 32 * float(state(served, "scale")))
    assert "3 of 3 | same object" in state(served, "readout")


@pytest.mark.browser
def test_voila_asks_no_server_but_its_own(served):
    assert asked_elsewhere(served) == []
    assert served.errors == []
    assert served.locator(".jp-CodeCell .jp-InputArea").count() == 0  # no code is shown
