"""The explorer: what it counts, refuses and sends, and what a browser really paints."""

import base64
import io
import json
import re
import sys
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import tifffile
from PIL import Image

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.show.explorer import napari_layers, stored_runs
from cellrepro.show.explorer.stored_runs import explore_runs
from cellrepro.show.explorer.view import View
from cellrepro.show.explorer.widget import Explorer, explore
from cellrepro.show.figures.colours import AGREEMENT, COLOURS, DASHES
from cellrepro.show.figures.pixels import outlined
from cellrepro.show.figures.pixels import painted as paint
from cellrepro.store.removal import remove_folder
from cellrepro.store.store import Store
from conftest import write_notebook
from lab_server import browsing, jupyterlab, show_widget, voila
from samebits.errors import BadInput, NotPossibleHere
from stores import add_run, squares, three

ROOT = Path(__file__).resolve().parents[2]
SIZE = 64
SCALE = 8  # a picture of 512 on a screen of one pixel per CSS pixel


def drawn_by_hand() -> dict[str, np.ndarray]:
    """Two runs that differ in known places: 128 pixels only A, 256 only B, 96 other object."""
    a, b, truth = (np.zeros((SIZE, SIZE), dtype=np.int32) for _ in range(3))
    a[8:24, 8:24], b[8:24, 8:24] = 1, 5  # the same object, under a different number
    a[32:48, 8:16] = 2  # missing in B
    b[40:56, 40:56] = 70_000  # missing in A
    a[8:24, 36:52], b[8:24, 36:46], b[8:24, 46:52] = 3, 9, 10  # B cuts a piece off
    truth[30:50, 6:26] = 4
    y, x = np.mgrid[:SIZE, :SIZE]
    image = (1000 + 40 * y + x).astype(np.uint16)
    return {"image": image, "masks_a": a, "masks_b": b, "truth": truth}


def categories_by_hand() -> np.ndarray:
    a, b = (drawn_by_hand()[name] for name in ("masks_a", "masks_b"))
    return np.select([b == 10, (a > 0) & (b > 0), a > 0, b > 0], [4, 1, 2, 3])


def three_runs() -> Explorer:
    """The drawing as runs A and B; C is B without the cell that only B has, and has no masks of a
    second image and of a stack."""
    drawn = drawn_by_hand()
    c = np.where(drawn["masks_b"] == 70_000, 0, drawn["masks_b"])
    first = View("large", [drawn["masks_a"], drawn["masks_b"], c], drawn["image"], drawn["truth"])
    second = View("small one", [squares(), squares(second=False), None])
    a, b = np.zeros((2, 3, 64, 64), int)
    a[0, 8:24, 8:24] = 1
    b[:2] = a[0]  # one plane deeper: half of it is shared
    a[2, 40:48, 24:32] = 2
    a[:, 48:56, 40:48], b[:2, 48:56, 40:48], b[2, 48:56, 40:48] = 3, 3, 4  # stitched in a only
    third = View("stack", [a, b, None], np.arange(3 * 64 * 64).reshape(3, 64, 64))
    return Explorer([first, second, third], ["A", "B", "C"], title="three runs")


def unpacked(plane: dict):
    """What a plane holds, as the browser has it."""
    content = zlib.decompress(plane["data"])
    if plane["dtype"] == "json":
        return json.loads(content)
    dtype = np.dtype(plane["dtype"]).newbyteorder("<")
    return np.frombuffer(content, dtype).reshape(plane["shape"])


def plane(shown: Explorer, key: str) -> dict:
    """A plane of what is shown, as the browser asks for it."""
    sent = []
    shown.send = lambda content, buffers=(): sent.append({**content, "data": buffers[0]})
    shown._handle_custom_msg({"want": [shown.scene["planes"][key]]}, [])
    return sent[0]


def test_counts_and_planes_are_those_of_the_drawing():
    """480 of 4096 pixels are 117187.5 in a million."""
    arrays = drawn_by_hand()
    shown = explore(**arrays, name_a="CPU", name_b="GPU")
    assert shown.scene["line"] == (
        "1 kept, 3 changed (1 lost, 1 gained, 1 split); "
        "480 of 4 096 pixels differ "
        "(12 %; only A: 128, only B: 256, not the same cell: 96)"
    )
    for key, name in [("a", "masks_a"), ("b", "masks_b"), ("truth", "truth")]:
        np.testing.assert_array_equal(unpacked(plane(shown, key)), arrays[name])
    assert [plane(shown, key)["dtype"] for key in "ab"] == ["uint8", "uint32"]  # 70 000 in b
    np.testing.assert_array_equal(unpacked(plane(shown, "categories")), categories_by_hand())


def test_images_arrive_exactly_or_closely():
    """Integers as they are: offset + what was stored; others within half of 1/65535 of the span."""
    whole = np.arange(SIZE * SIZE).reshape(SIZE, SIZE, 1).astype(np.int16) - 7
    rough = np.random.default_rng(0).random((SIZE, SIZE, 3)) * 3e6 - 1e6
    for image, exact in ((whole, True), (rough, False)):
        sent = plane(explore(**drawn_by_hand() | {"image": image}), "image")
        assert sent["exact"] == exact
        error = np.abs(sent["offset"] + sent["step"] * unpacked(sent).astype(float) - image)
        assert error.max() <= (0 if exact else 0.51 * np.ptp(image) / 65_535)


def test_story_tells_every_cell():
    story = unpacked(plane(three_runs(), "story"))
    keys = ("kind", "labels_a", "labels_b", "iou", "area_a", "area_b", "runs")
    found = list(zip(*(story[key] for key in keys), strict=True))
    assert ("kept", [1], [5], 1, 256, 256, 3) in found
    assert ("lost", [2], [], 0, 128, 0, 1) in found
    assert ("gained", [], [70_000], 0, 0, 256, 1) in found
    votes = unpacked(plane(three_runs(), "cells"))  # A and B alone have one cell each
    assert [votes[y, x] for y, x in ((8, 8), (32, 8), (40, 40), (8, 50))] == [3, 1, 1, 3]


def test_planes_count_by_themselves_where_numbers_of_one_side_begin_anew():
    """As `compare` counts: one side alone cannot say which planes one object goes through."""
    a = np.zeros((3, 64, 64), np.uint16)
    for number in range(1, 5):
        a[:, 16 * number - 12 : 16 * number - 4, 8:16] = number
    b = a.copy()
    b[1][b[1] == 1] = 0
    b[1][b[1] > 0] -= 1  # the second plane has numbers 1 to 3
    shown = explore(np.zeros(a.shape), a, b)
    found = shown.scene
    story = unpacked(plane(shown, "story"))
    (lost,) = (row for row, kind in enumerate(story["kind"]) if kind == "lost")
    assert [story["given"]["a"][label] for label in story["labels_a"][lost]] == [1]
    assert {kind: n for kind, n in found["kinds"].items() if n} == {"kept": 11, "lost": 1}
    assert compare_masks(a, b).kinds == {"kept": 11, "lost": 1}
    assert (found["n_objects"], found["z"]) == ({"a": 12, "b": 11}, 1)


def test_equal_masks_travel_once_and_are_read_when_they_are_looked_at():
    read = []

    def reading(name, **changes):
        return lambda: read.append(name) or squares(**changes)

    masks = {n: [reading(n), reading(n), reading(n, second=False)] for n in ("first", "second")}
    views = [View(name, of_runs, digests="112") for name, of_runs in masks.items()]
    shown = Explorer(views, ["A", "B", "C"])
    assert shown.scene["planes"]["a"] == shown.scene["planes"]["b"]
    shown.choice = {**shown.choice, "b": 2}  # as the browser does
    assert shown.scene["planes"]["a"] != shown.scene["planes"]["b"]
    assert set(read) == {"first"}


def test_what_cannot_be_shown_is_refused():
    """Masks of a different shape are found out when they are chosen; what was shown stays."""
    drawn = drawn_by_hand()
    with pytest.raises(BadInput, match=r"truth has shape \(32, 32\); expected \(64, 64\)"):
        explore(**drawn | {"truth": np.zeros((32, 32), int)})
    with pytest.raises(BadInput, match=r"expected finite real numbers.*np.nan_to_num"):
        explore(**drawn | {"image": np.full((64, 64), np.nan)})
    with pytest.raises(BadInput, match="1 image of 2 runs was given, and masks are missing of a"):
        Explorer([View("a", [squares(), None])], ["A", "B"])
    wrong = View("cut", [squares(), np.zeros((3, 3), int)])
    shown = Explorer([View("whole", [squares()] * 2), wrong], ["A", "B"])
    shown.choice = {**shown.choice, "view": 1}
    assert re.search(r"masks of B has shape \(3, 3\); expected \(48, 48\)", shown.problem)
    assert shown.scene["names"]["image"] == "whole"


def test_shows_itself_as_a_widget_and_as_a_picture_where_there_is_no_kernel():
    shown = explore(**drawn_by_hand(), title="cost: $5 and $6")
    bundle, *_ = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == shown.scene["line"]
    picture = decoded(base64.b64decode(bundle["image/png"]))
    assert np.ptp(picture.astype(int), axis=2).max() > 60  # outlines have colours


class RecordedViewer:
    """The part of napari's viewer that is called, with the names of its arguments (0.9.2)."""

    def __init__(self, *, title):
        self.layers = []
        self.dims = SimpleNamespace(set_point=lambda axis, value: setattr(self, "z", value))

    def add_image(self, data, *, name, colormap, blending, contrast_limits, scale):
        self.layers.append((name, data, scale, (colormap, *contrast_limits)))

    def add_labels(self, data, *, name, scale):
        self.layers.append((name, data, scale, ()))
        return SimpleNamespace()


def test_napari_gets_channels_and_masks_with_their_scale(monkeypatch, tmp_path):
    drawn = drawn_by_hand()
    image = np.stack([drawn["image"], drawn["image"] - 1000], axis=-1)
    masks = [drawn["masks_a"], drawn["masks_b"]]
    view = View("x", masks, image, drawn["truth"], pixel_size=0.5)
    shown = Explorer([view], ["A", "B"])
    monkeypatch.setattr(napari_layers, "has_library", lambda _: False)
    with pytest.raises(NotPossibleHere, match=r"pip install \"napari\[all\]\""):
        shown.to_napari()
    monkeypatch.setattr(napari_layers, "has_library", lambda _: True)
    monkeypatch.setattr(napari_layers, "has_screen", lambda: True)
    viewers = []
    napari = SimpleNamespace(
        Viewer=lambda title: viewers.append(RecordedViewer(title=title)) or viewers[-1],
        run=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "napari", napari)
    assert Explorer([view], ["A", "B"]).has_napari
    first, second, a, b, truth = shown.to_napari().layers
    assert [layer[0] for layer in (first, second, a, b, truth)] == [
        *("channel 0", "channel 1", "A", "B", "truth")
    ]
    np.testing.assert_array_equal(first[1], drawn["image"])
    np.testing.assert_array_equal(b[1], drawn["masks_b"])
    assert {layer[2] for layer in (first, second, a, b, truth)} == {(0.5, 0.5)}
    assert first[3] == ("#00FF00", *np.percentile(drawn["image"], (1, 99)))
    files = [tmp_path / f"it's {name}.tif" for name in ("image", "a", "b")]
    for file, name in zip(files, ("image", "masks_a", "masks_b"), strict=True):
        tifffile.imwrite(file, drawn[name])
    exec(explore(*files).scene["napari_call"], {})
    np.testing.assert_array_equal(viewers[-1].layers[2][1], drawn["masks_b"])
    assert explore(**drawn).scene["napari_call"] == ""


def test_every_channel_of_a_file_can_be_looked_at(tmp_path):
    """Cellpose reads three; the size of a pixel comes with them."""
    image = np.arange(5 * 64 * 64, dtype=np.uint16).reshape(5, 64, 64)
    facts = {"axes": "CYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}
    tifffile.imwrite(tmp_path / "x.ome.tif", image, photometric="minisblack", metadata=facts)
    drawn = drawn_by_hand()
    shown = explore(tmp_path / "x.ome.tif", drawn["masks_a"], drawn["masks_b"])
    assert plane(shown, "image")["shape"] == [64, 64, 5]
    assert shown.scene["pixel_size"] == 0.5


def test_first_are_repeats_that_differ_on_an_image_where_they_do(tmp_path):
    """Repeats of one spec should find equal cells, so they come before seeds, and before pixels.

    Masks far worse than the best are left out.
    """
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 2, seed=0)
    add_run(store, [(2.0, three()), (2.0, three(img_c=squares(second=False)))], seed=1)
    add_run(store, [(3.0, three()), (3.0, three(img_a=squares(grown=8)))], seed=2)
    none_true = np.zeros((48, 48), int)
    none_true[40:44, 40:44] = 1  # differs by more, and is no example
    in_two = none_true + (np.arange(48) > 41) * (none_true > 0)
    add_run(store, [(4.0, three(img_a=none_true)), (4.0, three(img_a=in_two))], seed=3)
    shown = explore_runs(store)
    assert shown.scene["names"]["image"] == "img_c"
    assert all("seed 1" in shown.scene["names"][key] for key in "ab")
    assert "; 16 of 2 304 pixels differ" in shown.scene["line"]
    assert "leaves out 2 results of a score (AP@0.5) below half of the best" in shown.note
    (gone,) = shown.changed_cells()
    assert (gone["cell"], gone["in A"], gone["in B"]) == ("lost", "2", "–")
    poor, *good = sorted(
        (run.key for run in store.runs()), key=lambda key: -store.run(key).spec.seed
    )
    beside = explore_runs(store, [f"{good[0]}/0", f"{poor}/0", *good], image="img_a")
    story = unpacked(plane(beside, "story"))
    assert "seed 3" in beside.scene["names"]["b"]
    assert None in story["runs"], "who has no vote, has no count of votes"
    opened = shown._scenes.open(0)
    assert (opened.view.name, opened.n_runs) == ("img_a", 6)  # votes of the two poor ones left out
    assert shown.runs[8:] == ["truth"]
    assert len(set(shown.runs)) == 9


def test_repeats_with_as_many_other_cells_are_shown_before_seeds(tmp_path):
    store = Store(tmp_path)
    for seed, found in enumerate((three(), three(squares(second=False)))):
        add_run(store, [(1.0, found)], seed=seed, truth=False)
    elsewhere = np.roll(squares(), 20, axis=1)
    add_run(store, [(2.0, three()), (3.0, three(img_b=elsewhere))], mode="fast", truth=False)
    scene = explore_runs(store).scene
    assert scene["names"]["image"] == "img_b"
    assert all("fast" in scene["names"][key] for key in "ab")


def test_of_many_repeats_as_many_as_one_can_choose_from_are_shown(tmp_path, monkeypatch):
    """The pair that differs is among them, before what equals others; what is missing is said."""
    monkeypatch.setattr(stored_runs, "MOST_RUNS", 3)
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 4, seed=0)
    add_run(store, [(2.0, three()), (3.0, three(img_c=squares(grown=8)))], seed=1)
    shown = explore_runs(store)
    assert shown.runs == ["seed 0", "seed 1, repeat 0", "seed 1, repeat 1", "truth"]
    assert [shown.scene["names"][key] for key in "ab"] == shown.runs[1:3]
    assert shown.note.startswith("3 of the 6 repeats can be chosen here")
    named = explore_runs(store, [run.key for run in store.runs()])
    assert (len(named.runs), named.note) == (7, "")
    remove_folder(tmp_path / "data")
    assert "black" in explore_runs(store, [run.key for run in store.runs()]).note


def test_named_runs_come_in_their_order(tmp_path):
    store = Store(tmp_path)
    one = add_run(store, [(1.0, three())], seed=0)
    two = add_run(store, [(2.0, three(img_b=squares(second=False)))], seed=1)
    shown = explore_runs(store, [two.key, f"{one.key}/0"], image="img_b")
    assert shown.scene["n_objects"] == {"a": 1, "b": 2}
    with pytest.raises(BadInput, match=rf"has 1 repeat of {one.key}/0; .* two or more"):
        explore_runs(store, [f"{one.key}/0"])
    with pytest.raises(BadInput, match="there is no image 'img_z'; expected one of img_a"):
        explore_runs(store, image="img_z")
    other = add_run(store, [(1.0, three())], data_digest="b" * 64)  # other images of one name
    with pytest.raises(BadInput, match="no two of the 2 repeats segmented the same image"):
        explore_runs(store, [one.key, other.key])


# -- in a browser --------------------------------------------------------------------------

CANVAS = "canvas.cre-canvas"
READY = '.cellrepro-explorer[data-ready="1"]'


@pytest.fixture
def shown(generators_free, browser):
    """The explorer of `three_runs` in a browser, its kernel in this process."""
    with browsing(browser) as page:
        page.goto("about:blank")
        show_widget(page, three_runs())
        page.locator(READY).wait_for()
        yield page
        assert page.locator(".cellrepro-explorer[data-error]").count() == 0


def wait_for(page, **state: str) -> None:
    """Return once the explorer reports this state, each time after it has painted it."""
    attributes = "".join(f'[data-{key}="{value}"]' for key, value in state.items())
    page.locator(f".cellrepro-explorer{attributes}").wait_for(timeout=5_000)


def state(page, key: str) -> str:
    return page.locator(".cellrepro-explorer").get_attribute(f"data-{key}")


def look(page, mode: str) -> None:
    page.locator(f'[data-choose="{mode}"]').click()
    wait_for(page, mode=mode)  # votes travel first, and opacity is one of the mode that is shown
    page.locator("input.cre-opacity").fill("100")
    page.locator('[data-show="patterns"]').uncheck()
    wait_for(page, mode=mode, opacity="1.00", patterns="0")


def painted(page) -> np.ndarray:
    """The pixels of the canvas, uint8 of shape (Y, X, 3)."""
    address = page.locator(CANVAS).evaluate("canvas => canvas.toDataURL()")
    return decoded(base64.b64decode(address.partition(",")[2]))


def untinted(page) -> np.ndarray:
    """The same without the tint of the pixels that differ."""
    for name in ("only_a", "only_b", "other_object"):
        page.locator(f'[data-show="{name}"]').uncheck()
    shows_none = '[data-shows]:not([data-shows*="only"]):not([data-shows*="other"])'
    page.locator(f".cellrepro-explorer{shows_none}").wait_for(timeout=5_000)
    return painted(page)


def decoded(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def enlarged(array: np.ndarray) -> np.ndarray:
    return array.repeat(SCALE, axis=0).repeat(SCALE, axis=1)


def coloured(picture: np.ndarray, colour: str) -> np.ndarray:
    """Where a picture has exactly this colour."""
    return (picture == [int(colour[i : i + 2], 16) for i in (1, 3, 5)]).all(axis=-1)


def expected_picture(*names: str, b: str = "masks_b") -> np.ndarray:
    """What the canvas must hold at zoom 1, pixel for pixel, from the arrays alone."""
    drawn = drawn_by_hand()
    low, high = np.percentile(drawn["image"], (1, 99))
    stretched = np.clip((drawn["image"] - low) / (high - low), 0, 1)
    picture = enlarged(np.floor(stretched * 255 + 0.5).astype(np.uint8))[..., np.newaxis]
    picture = np.repeat(picture, 3, axis=2)
    keys = {"truth": "truth", "a": "masks_a", "b": b}
    labels = {name: enlarged(drawn[keys[name]]) for name in names}
    for each in labels.values():
        paint(picture, outlined(each, thickness=3), "#000000")
    for name, each in labels.items():
        paint(picture, outlined(each, thickness=2, dash=DASHES[name]), COLOURS[name])
    if {"a", "b"} <= set(names):
        of_a, of_b = (outlined(labels[side], thickness=2) for side in "ab")
        paint(picture, of_a & of_b, COLOURS["agree"])
    return picture


def to_pixel(page, y: float, x: float) -> None:
    """Put the mouse on the middle of an image pixel, at zoom 1."""
    box, scale = page.locator(CANVAS).bounding_box(), float(state(page, "scale"))
    page.mouse.move(box["x"] + (x + 0.5) * scale, box["y"] + (y + 0.5) * scale)


def text(page, selector: str) -> str:
    found = page.locator(selector).inner_text().replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(r"\s+", " ", found)


@pytest.mark.browser
def test_what_was_looked_at_is_dropped_and_sent_again(generators_free, browser):
    """The page holds a bounded part of what it got; what it dropped comes again."""
    with browsing(browser) as page:
        page.goto("about:blank")
        explorer = three_runs()
        asked, make = [], explorer._scenes.plane
        explorer._scenes.plane = lambda name: asked.append(name) or make(name)
        explorer.held_bytes = 4_000
        show_widget(page, explorer)
        page.locator(READY).wait_for()
        first = painted(page)
        for image, key in (("small one", "."), ("stack", "."), ("small one", ","), ("large", ",")):
            page.locator(CANVAS).press(key)
            wait_for(page, image=image, loading="0")
        np.testing.assert_array_equal(painted(page), first)
        n_times = Counter(asked)
        assert max(n_times.values()) == 2, n_times


@pytest.mark.browser
def test_pictures_are_painted_to_the_pixel_and_read_out(shown):
    """Equal to the rules in Python: outlines, truth, differences, votes, curtain."""
    assert "; 480 of 4 096 pixels differ (12 %; only A: 128" in text(shown, "[data-line]")
    tinted = painted(shown)
    outlines = untinted(shown)
    np.testing.assert_array_equal(outlines, expected_picture("a", "b"))
    is_tinted = (tinted != outlines).any(axis=-1)
    differs = enlarged(categories_by_hand() > 1)
    assert not is_tinted[~differs].any()
    assert is_tinted[differs].mean() > 0.5  # the lines are above it
    shown.locator('[data-show="b"]').uncheck()
    shown.locator('[data-show="truth"]').check()
    wait_for(shown, shows="a image truth")
    np.testing.assert_array_equal(painted(shown), expected_picture("truth", "a"))

    look(shown, "curtain")
    shown.locator("input.cre-curtain").fill("250")
    wait_for(shown, curtain="0.250")
    sides = [expected_picture("truth", name) for name in "ab"]
    expected = np.where(np.arange(512)[:, np.newaxis] < 128, *sides)
    np.testing.assert_array_equal(painted(shown), expected)
    shown.locator('[data-show="truth"]').uncheck()

    look(shown, "categories")
    for value, name in [(2, "only_a"), (3, "only_b"), (4, "other_object")]:
        expected = enlarged(categories_by_hand() == value)
        np.testing.assert_array_equal(coloured(painted(shown), COLOURS[name]), expected)

    look(shown, "agreement")
    one_run = enlarged(unpacked(plane(three_runs(), "cells")) == 1)
    np.testing.assert_array_equal(coloured(painted(shown), AGREEMENT[0]), one_run)
    # At corners of the squares, so that a shift by one pixel would be told.
    for y, x, readout in [
        (32, 15, "2295 | cell 2 | background | cell 4 | 1 of 3 | only A"),
        (55, 40, "3240 | background | cell 70000 | background | 1 of 3 | only B"),
    ]:
        to_pixel(shown, y, x)
        wait_for(shown, readout=f"{y}, {x} | {readout}")

    shown.mouse.wheel(0, -100)
    wait_for(shown, zoom="1.2500")
    assert state(shown, "readout").startswith("55, 40 | 3240 | ")  # it stays under the pointer


@pytest.mark.browser
def test_cells_runs_images_and_files_are_chosen(shown):
    shown.locator('[data-show="image"]').uncheck()
    to_pixel(shown, 40, 12)
    shown.mouse.down()
    shown.mouse.up()
    wait_for(shown, chosen="lost 2", shows="a b only_a only_b other_object")
    assert "only in A in A cell 2, 128 px" in text(shown, ".cre-story")
    assert "found in 1 of 3 runs (33 %)" in text(shown, ".cre-story")
    assert "3 \N{RIGHTWARDS ARROW} 9 + 10" in text(shown, ".cre-window")

    with shown.expect_download() as download:
        shown.locator('[data-export="b"]').click()
    assert download.value.suggested_filename == "large_B_masks.tif"
    actual = tifffile.imread(download.value.path())
    np.testing.assert_array_equal(actual, drawn_by_hand()["masks_b"])

    shown.locator(".cre-select-b").select_option("C")
    wait_for(shown, b="C", loading="0")
    look(shown, "categories")
    assert coloured(painted(shown), COLOURS["only_a"]).sum() == 128 * SCALE**2

    # Keys that outrun the kernel all count: two images on. Of these C has no masks.
    shown.locator(CANVAS).press_sequentially("..")
    wait_for(shown, image="stack", loading="0")
    assert {state(shown, "a"), state(shown, "b")} == {"A", "B"}
    assert state(shown, "z") == "1"  # on which most pixels differ, counted from 0
    shown.locator(".cre-window").press("Home")
    wait_for(shown, chosen="split 3", loading="0")
    assert "cut between planes z 1 and 2" in text(shown, ".cre-story")
    shown.locator(".cre-window").press("ArrowDown")  # to the plane of the cell
    wait_for(shown, z="2", loading="0")
    assert "cell 2, 64 voxels" in text(shown, ".cre-story")
    # Planes come before the kernel has said what is in them; steps that outrun it all count.
    shown.locator(CANVAS).press("0")
    for z in ("1", "0"):
        shown.locator("input.cre-z").fill(z)
    shown.locator(CANVAS).press_sequentially(">><")
    wait_for(shown, z="1", loading="0", zoom="1.0000")
    to_pixel(shown, 43, 27)
    wait_for(
        shown,
        readout=f"43, 27 | {64 * 64 + 43 * 64 + 27} | background | background | background in both",
    )
    shown.locator("input.cre-z").fill("2")
    wait_for(shown, z="2", loading="0")
    assert "z 2, y 43.5, x 27.5" in text(shown, ".cre-story")
    assert "z 2 of 0\N{EN DASH}2" in text(shown, ".cre-sliders")
    shown.locator(".cre-strip").click(position={"x": 8, "y": 9})  # the first plane's bar
    wait_for(shown, z="0", loading="0")


@pytest.mark.browser
def test_another_image_of_the_same_size_is_seen_whole(generators_free, browser):
    """The canvas keeps its size, and every pixel of it shows the image."""
    image = np.arange(48 * 48).reshape(48, 48)
    views = [View(str(n), [squares()] * 2, image + n) for n in range(2)]
    with browsing(browser) as page:
        page.goto("about:blank")
        show_widget(page, Explorer(views, ["A", "B"]))
        page.locator(READY).wait_for()
        before = painted(page)
        page.locator(CANVAS).press("+")
        wait_for(page, zoom="1.2500")
        page.locator(CANVAS).press(".")
        wait_for(page, image="1", loading="0", zoom="1.0000")
        np.testing.assert_array_equal(painted(page), before)


@pytest.mark.browser
def test_channels_are_coloured_switched_and_stretched(generators_free, browser):
    image = np.zeros((SIZE, SIZE, 2), np.uint16)
    image[:32, :, 0] = 40
    image[:, :32, 1] = 900
    masks = np.zeros((SIZE, SIZE), int)
    with browsing(browser) as page:
        page.goto("about:blank")
        show_widget(page, explore(image, masks, masks))
        page.locator(READY).wait_for()
        quarters = painted(page)[::511, ::511].tolist()
        assert quarters == [[[255] * 3, [0, 255, 0]], [[255, 0, 255], [0] * 3]]
        assert state(page, "channels") == "green 0 to 40; magenta 0 to 900"
        page.locator('[data-channel="1"]').uncheck()
        page.get_by_label("colour of channel 0").select_option("orange")
        page.get_by_label("channel 0: value that is shown brightest").fill("500")
        page.get_by_label("channel 0: value that is shown black").fill("250")
        wait_for(page, channels="orange 10 to 20; off")
        assert painted(page)[::511, 0].tolist() == [[230, 159, 0], [0] * 3]
        page.get_by_label("channel 0: value that is shown brightest").fill("1000")
        page.get_by_label("Gamma").fill("-100")  # the root
        wait_for(page, channels="orange 10 to 40; off")
        page.locator('[data-limits="auto"]').click()
        wait_for(page, channels="orange 0 to 40; off")
        assert page.locator('[data-limits="auto"]').get_attribute("aria-pressed") == "true"


@pytest.mark.browser
def test_a_and_b_side_by_side_show_the_same_part(shown):
    """Each on a pane of its own, to the pixel; what the pointer reads on one is seen on both."""
    shown.locator(CANVAS).press("5")
    wait_for(shown, mode="sides", panes="beside")
    pictures = painted(shown)
    np.testing.assert_array_equal(pictures[:, :512], expected_picture("a"))
    np.testing.assert_array_equal(pictures[:, -512:], expected_picture("b"))
    box = shown.locator(CANVAS).bounding_box()
    shown.mouse.move(box["x"] + box["width"] - 512 + 40.5 * SCALE, box["y"] + 55.5 * SCALE)
    wait_for(shown, readout="55, 40 | 3240 | background | cell 70000 | background | only B")
    wait_for(shown, pointed="324, 444")
    cross = painted(shown)[55 * SCALE + 4]
    assert (cross[40 * SCALE + 4 - 6] == 255).all()
    assert (cross[-512 + 40 * SCALE + 4 - 6] == 255).all()
    shown.mouse.wheel(0, -100)
    wait_for(shown, zoom="1.2500")
    assert state(shown, "readout").startswith("55, 40 | 3240 | ")
    shown.locator(CANVAS).press_sequentially("01")
    wait_for(shown, mode="outlines", panes="one", zoom="1.0000")
    np.testing.assert_array_equal(untinted(shown), expected_picture("a", "b"))


@pytest.mark.browser
def test_side_by_side_a_cell_is_outlined_on_the_side_that_has_it(shown):
    """On the other one a ring shows where it is missing. Keys act from a button, too."""
    shown.locator('[data-sort="kind"]').click()
    shown.locator('[data-choose="sides"]').click()
    shown.keyboard.press("n")
    shown.locator('[data-chosen="lost 2"]').wait_for(timeout=5_000)
    shown.keyboard.press("0")
    wait_for(shown, mode="sides", zoom="1.0000")
    row = painted(shown)[40 * SCALE + 4]
    outline = slice(8 * SCALE - 2, 8 * SCALE + 3)  # the left edge of the cell
    of_a = row[:512]
    of_b = row[-512:]
    assert coloured(of_a[outline], COLOURS["a"]).any()
    assert not coloured(of_b[outline], COLOURS["a"]).any()
    ring = slice(4 * SCALE, 6 * SCALE)
    assert (of_a[ring] == 255).all(axis=1).any()
    assert (of_b[ring] == 255).all(axis=1).any()


@pytest.mark.browser
def test_a_large_image_has_an_overview_and_a_scale_bar(generators_free, browser):
    """The bar is 200 micrometres long on the screen, too; a click on the overview goes there."""
    a = np.zeros((2000, 2000), np.uint8)
    a[1000:1100, 1500:1600] = 1
    view = View("x", [a, np.zeros_like(a)], np.zeros_like(a), pixel_size=0.5)
    with browsing(browser) as page:
        page.goto("about:blank")
        show_widget(page, Explorer([view], ["A", "B"]))
        page.locator(READY).wait_for()
        wait_for(page, bar="200 µm")
        row = painted(page)[512 - 12 - 2]
        assert (row == 255).all(axis=1).sum() == round(200 / 0.5 * 512 / 2000)
        overview = page.locator(".cre-overview")
        address = overview.evaluate("canvas => canvas.toDataURL()")
        dots = coloured(decoded(base64.b64decode(address.partition(",")[2])), COLOURS["only_a"])
        y, x = (axis.mean() for axis in np.nonzero(dots))
        assert (abs(y / 180 - 1050 / 2000), abs(x / 180 - 1550 / 2000)) < (0.01, 0.01)
        overview.click(position={"x": x, "y": y})
        wait_for(page, scale="1.0000")
        to_middle = [256 - float(state(page, key)) for key in ("offset-y", "offset-x")]
        np.testing.assert_allclose(to_middle, [1050, 1550], atol=12)
        page.locator(CANVAS).press("b")
        wait_for(page, bar="")


@pytest.mark.browser
def test_the_button_for_napari_says_why_it_cannot_open(generators_free, browser, monkeypatch):
    viewer = Mock(side_effect=RuntimeError("no OpenGL"))
    monkeypatch.setitem(sys.modules, "napari", SimpleNamespace(Viewer=viewer))
    for name in ("has_library", "has_screen"):
        monkeypatch.setattr(napari_layers, name, lambda *_: True)
    with browsing(browser) as page:
        page.goto("about:blank")
        show_widget(page, explore(**drawn_by_hand()))
        page.locator(READY).wait_for()
        page.get_by_role("button", name="Open in napari").click()
        page.get_by_text("napari cannot open a window here (RuntimeError: no OpenGL)").wait_for()


@pytest.mark.browser
def test_a_kernel_that_has_ended_is_said_and_asked_again(generators_free, browser):
    with browsing(browser) as page:
        page.goto("about:blank")
        page.clock.install()
        show_widget(page, three_runs())
        page.locator(READY).wait_for()
        page.evaluate(
            "() => { window.alive = kernel; window.kernel = () => new Promise(() => {}); }"
        )
        page.locator(CANVAS).press(".")
        wait_for(page, loading="1", image="large")
        page.clock.fast_forward(20_000)
        wait_for(page, loading="0", image="large")
        assert "kernel has not answered" in text(page, ".cre-message")
        page.evaluate("() => { window.kernel = window.alive; }")
        page.locator(CANVAS).press(".")
        wait_for(page, loading="0", image="small one", problem="")


@pytest.mark.browser
def test_the_truth_is_a_side(shown):
    """What only it has is missed, what only the run has is extra; it is no run among others."""
    shown.locator(".cre-select-b").select_option("truth")
    wait_for(shown, b="truth", loading="0")
    assert "2 extra" in text(shown, "[data-line]")
    assert "; 784 of 4 096 pixels differ (19 %; only A: 512," in text(shown, "[data-line]")
    np.testing.assert_array_equal(untinted(shown), expected_picture("a", "b", b="truth"))
    assert shown.locator('[data-show="truth"]').is_hidden()
    assert text(shown, ".cre-kinds").startswith("listed: − extra 2 + missed 0 1→n split 0")

    shown.locator(CANVAS).press_sequentially("nx")
    wait_for(shown, a="truth", b="A", loading="0", chosen="")
    assert text(shown, ".cre-kinds").startswith("listed: − missed 0 + extra 2")
    shown.locator(".cre-select-b").select_option("C")
    wait_for(shown, b="C", loading="0")
    shown.locator(CANVAS).press("n")
    wait_for(shown, chosen="lost 4")
    assert "missed only in A in A cell 4, 400 px" in text(shown, ".cre-story")
    assert "found in" not in text(shown, ".cre-story")
    shown.locator(CANVAS).press(".")  # an image without a truth
    wait_for(shown, image="small one", a="A", b="B", loading="0")


KEY_WITH_THE_PLANES = """() => {
  const ask = window.kernel;
  let pressed = false;
  window.kernel = async (message) => {
    const answer = await ask(message);
    const press = new KeyboardEvent("keydown", { key: ".", bubbles: true });
    const canvas = document.querySelector("canvas.cre-canvas");
    if (message.content && !pressed) canvas.dispatchEvent(press);
    pressed ||= Boolean(message.content);
    return answer;
  };
}"""
"""Press a key after the kernel has chosen an image, and before its planes are shown."""


@pytest.mark.browser
def test_a_key_counts_while_an_image_is_still_on_its_way(shown):
    shown.evaluate(KEY_WITH_THE_PLANES)
    shown.locator(CANVAS).press(".")
    wait_for(shown, image="stack", loading="0")


@pytest.mark.browser
@pytest.mark.slow
def test_keys_never_reach_jupyterlab(browser, tmp_path):
    """There, x cuts the cell, h asks for help, 1 makes a heading, 0 0 restarts the kernel."""
    paths = [str(ROOT / folder) for folder in ("tests", "tests/show", "scripts")]
    code = f"import sys; sys.path[:0] = {paths}\nimport test_explorer\ntest_explorer.three_runs()"
    write_notebook(tmp_path / "compare.ipynb", parameters="", body=code)
    with jupyterlab(tmp_path) as address, browsing(browser) as page:
        page.goto(address.format(notebook="compare.ipynb"))
        # Earlier, a cell that is run asks which kernel it should have.
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=30_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.locator(READY).wait_for(timeout=30_000)
        page.locator(CANVAS).press("x")
        wait_for(page, a="B", b="A", loading="0")
        for selector in (CANVAS, "input.cre-zoom", ".cre-window"):
            page.locator(selector).focus()
            for key in ["h", "h", "1", "0", "0", "n", "ArrowDown", "i", "i", "x", "x", "Escape"]:
                page.keyboard.press(key)
        wait_for(page, a="B", b="A", loading="0")
        assert page.locator(".jp-Dialog").count() == 0
        assert page.locator(".jp-Notebook .jp-CodeCell").count() == 2
        assert page.locator(".jp-Notebook .jp-MarkdownCell").count() == 0


@pytest.mark.browser
@pytest.mark.slow
def test_a_notebook_that_is_opened_again_has_a_still_picture(browser, tmp_path):
    """JupyterLab has no model of the widget then; beside the live one the picture is hidden."""
    paths = [str(ROOT / folder) for folder in ("tests", "tests/show", "scripts")]
    code = f"import sys; sys.path[:0] = {paths}\nimport test_explorer\ntest_explorer.three_runs()"
    write_notebook(tmp_path / "compare.ipynb", parameters="", body=code)
    still = ".jp-RenderedImage img"
    with jupyterlab(tmp_path) as address, browsing(browser) as page:
        page.goto(address.format(notebook="compare.ipynb"))
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=120_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.locator(READY).wait_for(timeout=120_000)
        page.locator(still).wait_for(state="attached")
        assert not page.locator(still).is_visible()
        with page.expect_response(lambda answer: answer.request.method == "PUT"):
            page.keyboard.press("Control+s")
    with jupyterlab(tmp_path) as address, browsing(browser) as page:
        page.goto(address.format(notebook="compare.ipynb"))
        page.locator(still).wait_for(timeout=120_000)
        page.get_by_text("model not found").wait_for(timeout=120_000)
        assert page.locator(still).is_visible()


@pytest.mark.browser
@pytest.mark.slow
def test_voila_shows_what_a_run_lost(browser, tmp_path):
    """Notebook 07 as `make explore` serves it; the lost cell has 16 pixels."""
    store = Store(tmp_path / "store")
    for seed, found in enumerate((three(), three(squares(second=False)), three())):
        add_run(store, [(1.0 + seed, found)], seed=seed)
    notebook = ROOT / "notebooks/07_explorer.ipynb"
    with voila(tmp_path, notebook, store.root) as address, browsing(browser) as page:
        page.goto(address, timeout=60_000)
        page.locator(READY).wait_for(timeout=60_000)
        assert state(page, "image") == "img_a"
        assert " pixels differ" in text(page, "[data-line]")
        look(page, "categories")
        page.locator(CANVAS).press("n")
        page.locator('.cellrepro-explorer[data-chosen$=" 2"]').wait_for(timeout=5_000)
        assert "found in 2 of 3 repeats (67 %)" in text(page, ".cre-story")
        assert page.locator(".jp-CodeCell .jp-InputArea").count() == 0  # no code is shown
        assert not page.locator(".jp-RenderedImage").is_visible()  # the still picture
