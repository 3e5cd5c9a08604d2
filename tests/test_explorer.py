"""The explorer: what it counts, refuses and sends, and what a browser really paints."""

import base64
import io
import re

import nbformat
import numpy as np
import pytest
from PIL import Image

from cellrepro.errors import BadInput
from cellrepro.show import explorer
from cellrepro.show.explorer import COLOURS, DASHES, explore
from lab_server import CHROMIUM_FLAGS, chromium_path, jupyterlab

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
    line = explorer.counts_line(explorer.count(categories))
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
    plane = explorer.packed(labels)
    assert plane["dtype"] == dtype
    assert isinstance(plane["data"], bytes)
    np.testing.assert_array_equal(explorer.unpacked(plane), labels)


@pytest.mark.parametrize("order", ["C", "F"])
def test_planes_hold_what_was_given(arrays, order):
    planes = explore(**{name: np.asarray(a, order=order) for name, a in arrays.items()}).planes
    for plane, name in [("a", "masks_a"), ("b", "masks_b"), ("truth", "truth")]:
        np.testing.assert_array_equal(explorer.unpacked(planes[plane]), arrays[name])
    np.testing.assert_array_equal(explorer.unpacked(planes["categories"]), arrays["categories"])


def test_no_truth_no_plane(arrays):
    del arrays["truth"]
    assert set(explore(**arrays).planes) == {"image", "a", "b", "categories"}


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.uint8, np.int16, np.uint16, np.int32, np.int64], ids=str
)
def test_integer_images_arrive_exactly(arrays, dtype):
    """The read-out may show these values as they are: offset + what was stored."""
    image = np.arange(SIZE * SIZE).reshape(SIZE, SIZE).astype(dtype)
    plane = explore(**arrays | {"image": image}).planes["image"]
    assert plane["exact"]
    np.testing.assert_array_equal(plane["offset"] + explorer.unpacked(plane)[..., 0], image)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint32], ids=str)
def test_other_images_arrive_closely(arrays, dtype):
    """Half a step of 1/65535 of the span is the largest error."""
    generator = np.random.default_rng(0)
    image = (generator.random((SIZE, SIZE, 3)) * 3e6 - (dtype != np.uint32) * 1e6).astype(dtype)
    plane = explore(**arrays | {"image": image}).planes["image"]
    assert not plane["exact"]
    error = np.abs(plane["offset"] + plane["step"] * explorer.unpacked(plane) - image)
    assert error.max() <= 0.51 * np.ptp(image.astype(float)) / 65_535


def test_grey_is_stretched_from_first_to_last_percentile(arrays):
    image = np.arange(SIZE * SIZE).reshape(SIZE, SIZE)
    values = explorer.grey(explore(**arrays | {"image": image}).planes["image"])
    low, high = np.percentile(image, (1, 99))
    expected = np.floor(np.clip((image - low) / (high - low), 0, 1) * 255 + 0.5)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("value", [0, 7, 0.5])
def test_flat_images_are_black(arrays, value):
    """No contrast, no division by zero."""
    plane = explore(**arrays | {"image": np.full((SIZE, SIZE), value)}).planes["image"]
    assert not explorer.grey(plane).any()


def test_few_bright_pixels_are_seen(arrays):
    """More than 99 % background must not make the image flat."""
    image = np.zeros((SIZE, SIZE))
    image[5, 5] = 10
    assert explorer.grey(explore(**arrays | {"image": image}).planes["image"])[5, 5] == 255


def test_channels_are_stretched_apart_and_averaged(arrays):
    """A dim channel counts as much as a bright one."""
    ramp = np.linspace(0, 1, SIZE * SIZE).reshape(SIZE, SIZE)
    image = np.stack([ramp, 1000 * ramp, 0 * ramp], axis=-1)
    values = explorer.grey(explore(**arrays | {"image": image}).planes["image"])
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
    np.testing.assert_array_equal(explorer.outlined(labels, thickness=1), expected)


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
    np.testing.assert_array_equal(explorer.outlined(labels, thickness=1, dash=(2, 1)), expected)


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
    in_legend = colour_count(picture, COLOURS["a"]) - LINES_OF_A
    assert 0 < in_legend < 1000
    assert colour_count(picture, COLOURS["b"]) > 500
    assert colour_count(picture, COLOURS["truth"]) > 100


def test_static_picture_keeps_a_single_pixel(arrays):
    """One differing pixel of 600² is still seen in a panel of 100²."""
    shape = (600, 600)
    a = np.zeros(shape, dtype=int)
    categories = np.zeros(shape, dtype=np.uint8)
    a[301, 17] = 1
    categories[301, 17] = 2
    panel = explorer._enlarged_categories(categories, (100, 100))
    assert np.argwhere(panel).tolist() == [[50, 2]]


def test_shows_itself_as_a_widget(arrays):
    """The notebook gets a live widget, and text where there is no kernel."""
    bundle, *_ = explore(**arrays)._repr_mimebundle_()
    assert {"application/vnd.jupyter.widget-view+json", "text/plain"} <= set(bundle)


def test_categories_are_computed_when_not_given(arrays):
    """The drawing's own categories are what `cellrepro.compare.masks` says of its masks."""
    by_hand = arrays.pop("categories")
    actual = explorer.unpacked(explore(**arrays).planes["categories"])
    np.testing.assert_array_equal(actual, by_hand)


# ---- in JupyterLab -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A JupyterLab page on which one cell has just shown an explorer of `drawn_by_hand`."""
    executable = chromium_path()
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("lab")
    np.savez(folder / "arrays.npz", **drawn_by_hand())
    code = (
        "import numpy as np\n"
        "from cellrepro.show.explorer import explore\n"
        "explore(**np.load('arrays.npz'), title='two repeats')"
    )
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, folder / "compare.ipynb")
    with jupyterlab(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1100}, device_scale_factor=1)
        page.asked, page.errors = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        try:
            page.goto(address.format(notebook="compare.ipynb"))
            # Earlier, a cell that is run asks which kernel it should have.
            page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=30_000)
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=30_000)
            yield page
        finally:
            page.screenshot(path=folder / "last.png")  # what a failed test looked at
            browser.close()


@pytest.fixture
def shown(page):
    """The explorer as it first appears, whatever the test before did to it."""
    for key in ("image", "truth"):
        page.locator(f'[data-show="{key}"]').set_checked(key == "image")
    choose(page, "outlines", opacity=100)
    page.locator("canvas.cre-canvas").focus()
    page.keyboard.press("0")
    wait_for(page, zoom="1.0000", mode="outlines", opacity="1.00", shows="a b image")
    return page


def wait_for(page, **state: str) -> None:
    """Return once the explorer reports this state, each time after it has painted it."""
    attributes = "".join(f'[data-{key}="{value}"]' for key, value in state.items())
    page.locator(f".cellrepro-explorer{attributes}").wait_for(timeout=5_000)


def state(page, key: str) -> str:
    return page.locator(".cellrepro-explorer").get_attribute(f"data-{key}")


def choose(page, mode: str, *, opacity: int) -> None:
    page.locator(f'[data-choose="{mode}"]').click()
    page.locator("input.cre-opacity").fill(str(opacity))
    wait_for(page, mode=mode, opacity=f"{opacity / 100:.2f}")


def painted(page) -> np.ndarray:
    """The pixels of the canvas, uint8 of shape (Y, X, 3)."""
    address = page.locator("canvas.cre-canvas").evaluate("canvas => canvas.toDataURL()")
    content = base64.b64decode(address.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def enlarged(array: np.ndarray) -> np.ndarray:
    return array.repeat(SCALE, axis=0).repeat(SCALE, axis=1)


def expected_outlines(arrays, *names: str) -> np.ndarray:
    """What the canvas must hold at zoom 1, pixel for pixel, from the arrays alone."""
    picture = enlarged(explorer.grey(explore(**arrays).planes["image"]))
    picture = np.repeat(picture[..., np.newaxis], 3, axis=2)
    for name in names:
        labels = enlarged(arrays["truth" if name == "truth" else f"masks_{name}"])
        lines = explorer.outlined(labels, thickness=2, dash=DASHES[name])
        explorer._painted(picture, lines, COLOURS[name])
    return picture


def move_to(page, y: float, x: float) -> None:
    """Put the mouse on that point of the canvas, in screen pixels."""
    box = page.locator("canvas.cre-canvas").bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)


def readout(page) -> dict[str, str]:
    cells = page.locator("[data-cell]").all()
    return {cell.get_attribute("data-cell"): cell.inner_text() for cell in cells}


@pytest.mark.browser
def test_page_tells_the_counts(shown):
    line = shown.locator("[data-line]").inner_text().replace("\N{NO-BREAK SPACE}", " ")
    assert line == (
        "480 pixels differ = 117 188 ppm (only A: 128, only B: 256, other object: 96) of 4 096"
    )
    assert state(shown, "scale") == f"{SCALE:.4f}"


@pytest.mark.browser
def test_page_asks_no_server_but_its_own(shown):
    """Notebooks of patients' images are shown offline; nothing else may be asked, nothing fails."""
    elsewhere = [a for a in shown.asked if not re.match(r"(http://127\.0\.0\.1:|data:|blob:)", a)]
    assert elsewhere == []
    assert shown.errors == []


@pytest.mark.browser
def test_outlines_are_painted_to_the_pixel(shown, arrays):
    """A solid below, B dashed above, on the stretched image: equal to the rule in Python."""
    np.testing.assert_array_equal(painted(shown), expected_outlines(arrays, "a", "b"))


@pytest.mark.browser
def test_boxes_show_and_hide(shown, arrays):
    shown.locator('[data-show="b"]').uncheck()
    wait_for(shown, shows="a image")
    assert colour_count(painted(shown), COLOURS["a"]) == LINES_OF_A
    assert colour_count(painted(shown), COLOURS["b"]) == 0

    shown.locator('[data-show="truth"]').check()
    wait_for(shown, shows="a image truth")
    np.testing.assert_array_equal(painted(shown), expected_outlines(arrays, "truth", "a"))

    shown.locator('[data-show="a"]').uncheck()
    shown.locator('[data-show="image"]').uncheck()
    wait_for(shown, shows="truth")
    assert colour_count(painted(shown), "#000000") > 0.9 * 512**2


@pytest.mark.browser
def test_categories_are_painted_to_the_pixel(shown, arrays):
    """At full opacity, each image pixel that differs is 64 screen pixels of its colour."""
    choose(shown, "categories", opacity=100)
    wait_for(shown, shows="agree image only_a only_b other_object")
    picture = painted(shown)
    for value, name in [(2, "only_a"), (3, "only_b"), (4, "other_object")]:
        rgb = [int(COLOURS[name][i : i + 2], 16) for i in (1, 3, 5)]
        actual = (picture == rgb).all(axis=-1)
        np.testing.assert_array_equal(actual, enlarged(arrays["categories"] == value))


@pytest.mark.browser
def test_opacity_blends_with_the_image(shown, arrays):
    choose(shown, "categories", opacity=50)
    grey_value = explorer.DIMMED * explorer.grey(explore(**arrays).planes["image"])[32, 8]
    actual = painted(shown)[32 * SCALE + 4, 8 * SCALE + 4]
    blue = np.array([0x56, 0xB4, 0xE9])
    np.testing.assert_allclose(actual, (blue + grey_value) / 2, atol=1.5)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("y", "x", "expected"),
    [
        (8, 8, ["1328", "cell 1", "cell 5", "background", "same object"]),
        (23, 45, ["1965", "cell 3", "cell 9", "background", "same object"]),
        (23, 46, ["1966", "cell 3", "cell 10", "background", "cell in both, but another object"]),
        (32, 15, ["2295", "cell 2", "background", "cell 4", "only A"]),
        (32, 16, ["2296", "background", "background", "cell 4", "background in both"]),
        (55, 40, ["3240", "background", "cell 70000", "background", "only B"]),
        (0, 63, ["1063", "background", "background", "background", "background in both"]),
    ],
    ids=["agree", "larger piece", "smaller piece", "only a", "beside it", "only b", "corner"],
)
def test_readout(shown, y, x, expected):
    """Corners of the squares, so that a shift by one pixel would be told."""
    move_to(shown, (y + 0.5) * SCALE, (x + 0.5) * SCALE)
    wait_for(shown, readout=" | ".join([f"{y}, {x}", *expected]))
    assert readout(shown) == dict(
        zip(
            ("pixel", "value", "a", "b", "truth", "category"), [f"{y}, {x}", *expected], strict=True
        )
    )


@pytest.mark.browser
def test_curtain_by_mouse_and_keys(shown, arrays):
    """Left of the handle A, right of it B; the slider's arrow keys reach it, not JupyterLab."""
    choose(shown, "curtain", opacity=100)
    slider = shown.locator("input.cre-curtain")
    slider.fill("500")
    wait_for(shown, curtain="0.500")
    left, right = expected_outlines(arrays, "a"), expected_outlines(arrays, "b")
    expected = np.where(np.arange(512)[:, np.newaxis] < 256, left, right)
    np.testing.assert_array_equal(painted(shown), expected)

    shown.keyboard.press("ArrowRight")
    wait_for(shown, curtain="0.505")
    shown.keyboard.press("ArrowLeft")
    shown.keyboard.press("ArrowLeft")
    wait_for(shown, curtain="0.495")
    shown.keyboard.press("Home")
    wait_for(shown, curtain="0.000")
    np.testing.assert_array_equal(painted(shown), right)

    box = slider.bounding_box()
    shown.mouse.click(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
    wait_for(shown, curtain="1.000")
    np.testing.assert_array_equal(painted(shown), left)


@pytest.mark.browser
def test_curtain_handle_on_the_picture(shown):
    """The handle can be dragged where it is seen; moving the slider chooses the mode."""
    shown.locator("input.cre-curtain").fill("500")
    wait_for(shown, mode="curtain", curtain="0.500")
    move_to(shown, 100, 256)
    shown.mouse.down()
    move_to(shown, 100, 128)
    shown.mouse.up()
    wait_for(shown, curtain="0.250")


@pytest.mark.browser
def test_wheel_zooms_around_the_pointer(shown):
    """The pixel under the pointer stays there, whatever the scale."""
    choose(shown, "categories", opacity=100)
    move_to(shown, 48.5 * SCALE, 48.5 * SCALE)
    shown.mouse.wheel(0, -100)
    wait_for(shown, zoom="1.2500")
    shown.mouse.wheel(0, -100)
    wait_for(shown, zoom="1.5625")
    # The browser reports whole pixels, the canvas may begin between two.
    assert float(state(shown, "offset-x")) == pytest.approx(-218.25, abs=1)
    assert float(state(shown, "offset-y")) == pytest.approx(-218.25, abs=1)
    assert state(shown, "readout").startswith("48, 48 | 2968 | background | cell 70000")
    assert colour_count(painted(shown), COLOURS["only_b"]) == (16 * SCALE * 1.25**2) ** 2

    shown.locator("canvas.cre-canvas").focus()
    shown.keyboard.press("0")
    wait_for(shown, zoom="1.0000")
    shown.mouse.wheel(0, -100)
    wait_for(shown, zoom="1.2500")
    shown.locator("canvas.cre-canvas").dblclick()
    wait_for(shown, zoom="1.0000", **{"offset-x": "0.00", "offset-y": "0.00"})
    assert colour_count(painted(shown), COLOURS["only_b"]) == (16 * SCALE) ** 2


@pytest.mark.browser
def test_drag_and_keys_move_the_view(shown):
    """Keys on the picture are its own: JupyterLab neither leaves the cell nor asks to restart."""
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
    move_to(shown, 200, 200)
    shown.mouse.down()
    move_to(shown, 230, 190)
    shown.mouse.up()
    wait_for(shown, **{"offset-x": "-125.20", "offset-y": "0.00"})  # not beyond the image's edge
    shown.keyboard.press("0")
    shown.keyboard.press("0")
    wait_for(shown, zoom="1.0000")
    assert shown.locator(".jp-Dialog").count() == 0
