"""The page about two results of one image: what stands first, what it shows, what it refuses."""

import base64
import io
import itertools
import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from cellrepro import compare
from cellrepro.comparison.changed_cells import listed_changes
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.images.seg_file import read_seg
from cellrepro.show.figures.colours import COLOURS, rgb
from cellrepro.show.pages import page_file
from cellrepro.show.pages.cell_tiles import cell_tiles
from cellrepro.show.pages.mask_pictures import compared_masks
from cellrepro.store.store import Store
from lab_server import browsing
from samebits.errors import BadInput
from stores import SIZE as SIDE
from stores import add_run

TEMPLATES = Path(page_file.__file__).parent / "templates"
SCRIPT_RECORD = (
    Path(__file__).parents[1] / "explanation" / "script_records" / "cellpose_4.0.8_masks.json"
)
SIZE = 96
A = np.zeros((SIZE, SIZE), np.uint16)
A[4:20, 4:20] = 1  # in both
A[30:50, 8:40] = 2  # cut in B
A[60:66, 60:66] = 3  # lost, small
A[70:92, 10:34] = 4  # lost, large
A[10:30, 60:80] = 5  # moved by 3 pixels
B = np.zeros_like(A)
B[4:20, 4:20] = 1
B[30:50, 8:24] = 2
B[30:50, 24:40] = 6
B[10:30, 63:83] = 5
IMAGE = (np.random.default_rng(0).poisson(20, A.shape) + 200 * (A > 0)).astype(np.uint16)


def write_seg(path, masks, **settings):
    """As Cellpose's GUI writes it."""
    content = {
        "masks": masks,
        "outlines": np.zeros_like(masks),
        "filename": "cells.tif",
        "flows": [],
        "ismanual": np.zeros(int(masks.max()), bool),
        "manual_changes": [],
        "model_path": "/home/me/.cellpose/models/cpsam",
        "flow_threshold": 0.4,
        "cellprob_threshold": 0.0,
        "normalize_params": {"normalize": True, "percentile": [1.0, 99.0]},
        "restore": None,
        "ratio": 1.0,
    }
    np.save(path, content | settings, allow_pickle=True)


@pytest.fixture
def files(tmp_path):
    write_seg(tmp_path / "gui_seg.npy", A, diameter=42.4)
    write_seg(tmp_path / "script_seg.npy", B, diameter=30.0)
    tifffile.imwrite(tmp_path / "cells.tif", IMAGE)
    tifffile.imwrite(tmp_path / "large.tif", np.kron(IMAGE, np.ones((2, 2), np.uint16)))
    return tmp_path


def words_of(html):
    """The text of a page, without scripts, styles and tags."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", html.read_text(encoding="utf-8"), flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", text)))


# -- what stands first -----------------------------------------------------------------------


def many_cells(seed, n_cells=24):
    """Cells of 7 pixels, each somewhere in a field of its own."""
    random = np.random.default_rng(seed)
    masks = np.zeros((96, 144), np.uint16)
    for number in range(n_cells):
        row, column = 24 * np.array(divmod(number, 6)) + random.integers(0, 17, 2)
        masks[row : row + 7, column : column + 7] = number + 1
    return masks


@pytest.mark.parametrize(
    "other",
    [many_cells(1), 25 * (many_cells(0) > 0) - many_cells(0), many_cells(0) + 7],
    ids=["of another image", "renumbered", "7 added"],
)
def test_the_cause_says_more_than_the_headline_as_one_sentence(tmp_path, other):
    tifffile.imwrite(tmp_path / "a.tif", many_cells(0))
    tifffile.imwrite(tmp_path / "b.tif", other.astype(np.uint16))
    html = tmp_path / "page.html"
    compare(tmp_path / "a.tif", tmp_path / "b.tif", html=html)
    page = unescape(html.read_text(encoding="utf-8"))
    headline = re.findall("[a-z]+", re.search(r"<h1[^>]*>(.*?)</h1>", page)[1].lower())
    for cause in re.findall('<p class="why-cause">(.*?)</p>', page):
        assert cause.count(": ") < 2
        said = " ".join(re.findall("[a-z]+", cause.lower()))
        runs = (" ".join(headline[i : i + 3]) for i in range(len(headline) - 2))
        assert not [run for run in runs if run in said]


def test_equal_outlines_are_not_called_different_ones(tmp_path):
    """One number for cells that do not touch: nothing differs but the numbers."""
    tifffile.imwrite(tmp_path / "a.tif", many_cells(0))
    tifffile.imwrite(tmp_path / "b.tif", (many_cells(0) > 0).astype(np.uint8))
    html = tmp_path / "page.html"
    assert compare(tmp_path / "a.tif", tmp_path / "b.tif", html=html).verdict == "different"
    text = words_of(html)
    assert "different outlines" not in text
    assert "What differs: only the numbers of the cells" in text


@pytest.mark.parametrize(
    ("image", "model", "named"),
    [("cells.tif", "cpsma", "'cpsma'"), ("masks.png", None, "holds the masks of A")],
)
def test_what_is_given_is_checked_though_nothing_differs(files, invoke, image, model, named):
    masks = read_seg(files / "gui_seg.npy").masks
    Image.fromarray(masks.astype(np.uint8)).save(files / "masks.png")
    sides = [files / "gui_seg.npy"] * 2
    asked = ("--model", model) if model else ()
    answer = invoke("compare", *sides, "--image", files / image, *asked)
    assert (answer.code, answer.out) == (2, "")
    assert named in answer.err


def test_settings_that_differ_are_said_first(files, invoke):
    """In the terminal, in JSON, and at the top of the page."""
    html = files / "page.html"
    sides = (files / "gui_seg.npy", files / "script_seg.npy")
    answer = invoke("compare", *sides, "--image", files / "cells.tif", "--html", html)
    assert answer.code == 1
    first, second, third, fourth, fifth, *_ = answer.out.splitlines()
    assert first == "different: masks"
    assert second == "  likely: diameter; A records 42.4, B 30"
    assert third.startswith("    to find out: cellrepro compare ")
    assert fourth == "      (Cellpose must be installed)"
    assert fifth.startswith("  masks: ")
    text = words_of(html)
    top = text[: text.index("Where the two differ")]
    assert "The two hold different cells." in top
    assert "Likely cause diameter; A records 42.4, B 30" in top
    assert top.count("by 30 / diameter") == 1
    assert "nothing was segmented" in top
    assert "--model " in top
    assert (
        "5 cells in A, 4 in B: 1 kept, 4 changed (1 shifted or reshaped, 2 lost, 1 split)" in text
    )
    assert text.count("cellrepro compare ") == 1  # one command to find out, and no other
    assert "cellrepro explain" not in text
    found = invoke("compare", *sides, "--json").json
    assert found["settings"][0] == {"name": "diameter", "a": 42.4, "b": 30.0}
    assert found["html"] is None


def test_numbers_that_stand_for_several_cells_are_said_beside_the_count(tmp_path):
    for name, number in (("a", 1), ("b", 2)):
        masks = many_cells(0)
        masks[masks == 24] = number
        tifffile.imwrite(tmp_path / f"{name}.tif", masks)
    html = tmp_path / "page.html"
    compare(tmp_path / "a.tif", tmp_path / "b.tif", html=html)
    top, _, below = words_of(html).partition("Both on the image")
    for side in "AB":
        note = f"1 number stands in {side} for several cells"
        assert (note in top, note in below) == (True, False)


def test_checksums_are_said_in_words(files, invoke):
    """Two records of a script that differ in the pixels that Cellpose received."""
    record = json.loads(SCRIPT_RECORD.read_text(encoding="utf-8"))
    for side, digest in (("monday", 64 * "a"), ("friday", 64 * "b")):
        record["image"]["digest"] = digest
        (files / f"{side}_masks.json").write_text(json.dumps(record), encoding="utf-8")
        tifffile.imwrite(files / f"{side}_masks.tif", A if side == "monday" else B)
    html = files / "page.html"
    answer = invoke(
        "compare", files / "monday_masks.tif", files / "friday_masks.tif", "--html", html
    )
    assert "  likely: pixels of the image; A and B record different pixels\n" in answer.out
    assert "Likely cause pixels of the image; A and B record different pixels" in words_of(html)
    assert 64 * "a" not in words_of(html)


def test_equal_masks_of_two_diameters_are_identical_and_the_setting_is_said(files, invoke):
    write_seg(files / "again_seg.npy", A, diameter=30.0)
    answer = invoke("compare", files / "gui_seg.npy", files / "again_seg.npy")
    assert answer.code == 0
    assert answer.out.startswith("identical\n  setting diameter: 42.4 and 30.0\n")
    same = invoke("compare", files / "gui_seg.npy", files / "gui_seg.npy")
    assert "setting" not in same.out


def test_a_path_that_differs_is_no_setting(files, invoke):
    """Two computers keep the same network in two folders."""
    write_seg(files / "c_seg.npy", A, diameter=42.4, model_path="C:\\Users\\me\\models\\cpsam")
    assert "setting" not in invoke("compare", files / "gui_seg.npy", files / "c_seg.npy").out


# -- what it shows ---------------------------------------------------------------------------


@pytest.mark.browser
def test_the_page_is_whole_in_a_browser(files, browser):
    html = files / "page.html"
    sides = (files / "gui_seg.npy", files / "script_seg.npy")
    compare(*sides, image=files / "cells.tif", html=html)
    with browsing(browser) as page:
        page.goto(html.as_uri())
        page.locator('.cellrepro-explorer[data-ready="1"]').wait_for()
        assert page.locator("#picture .panel").count() == 3
        tiles = page.locator(".tiles .tile-kind").all_inner_texts()
        assert tiles == ["1→n split", "− lost", "− lost", "≈ shifted or reshaped"]
        assert page.locator("#changes tbody tr").count() == 4
        assert page.locator("#changes .scroll").evaluate("e => e.scrollHeight <= e.clientHeight")
        page.locator(".tiles li").nth(2).locator("a").click()
        assert "cell 3, 36 px" in page.locator(".cre-story").inner_text()
        page.locator("#changes tbody tr").first.locator("td").last.click()
        assert "cell 2 + 6, 640 px" in page.locator(".cre-story").inner_text()
        for width in (1400, 700, 390):
            page.set_viewport_size({"width": width, "height": 900})
            # The canvas follows the size of the page a frame later.
            page.wait_for_function(f"document.documentElement.scrollWidth <= {width}", timeout=5000)


def test_the_cells_that_matter_most_come_first_and_are_seen_whole():
    """Cut and lost ones by size, then the moved one."""
    comparison = compare_masks(A, B)
    changes = listed_changes(comparison)
    assert [change.labels_a for change in changes] == [(2,), (4,), (3,), (5,)]
    for tile, change in zip(cell_tiles(changes, IMAGE, A, B), changes, strict=True):
        assert (tile.panel.width, tile.panel.height) == (264, 264)
        assert tile.facts[0].startswith("only in A: ") == (change.kind == "lost")
        assert f"cell {change.labels_a[0]}" in tile.facts[0]


def test_a_kept_cell_of_another_size_is_marked_and_listed_as_changed_ones_are(tmp_path):
    a = np.zeros((60, 60), np.uint16)
    a[10:30, 10:30], a[40:50, 40:50] = 1, 2
    b = np.where(a == 2, a, 0)
    b[12:28, 12:28] = 1
    for name, masks in (("a", a), ("b", b)):
        tifffile.imwrite(tmp_path / f"{name}_masks.tif", masks)
    result = compare(
        tmp_path / "a_masks.tif", tmp_path / "b_masks.tif", html=tmp_path / "page.html"
    )
    (line,) = (line for line in result.lines() if line.strip().startswith("kept"))
    assert " ".join(line.split()) == "kept, 36 % smaller 1 1 y 20, x 20 400 256 0.0 0.640"
    text = words_of(tmp_path / "page.html")
    assert "2 kept (1 of them 36 % smaller), no other change" in text
    assert text.count("= kept, 36 % smaller") == 2  # a card, and a row
    *_, differs = compared_masks("", None, a, b, "cells", closer=False).figure.panels
    assert [(mark.sign, round(60 * mark.y / differs.height)) for mark in differs.marks] == [
        ("=", 20)
    ]


def stack_of_known_changes():
    """Cells of five planes: what became of each, and the plane on which that is seen best."""
    a = np.zeros((5, 40, 120), np.uint16)
    b = a.copy()
    a[:, 5:15, 5:25] = 1  # cut in two, of which the smaller lies on the last plane alone
    b[:, 5:15, 5:25] = 1
    b[4, 5:15, 5:25] = 6
    a[0:4, 5:15, 45:55] = 2  # one of two that are one in B, most of it on the first plane
    a[0, 5:15, 55:65] = 3
    a[1:4, 5:8, 55:65] = 3
    b[0:4, 5:15, 45:65] = np.where(a[0:4, 5:15, 45:65] > 0, 2, 0)
    a[1, 25:37, 85:99] = 4  # lost, most of it on plane 1
    a[2, 28:31, 85:99] = 4
    for side in (a, b):
        side[1:4, 25:35, 5:15] = 5  # in both
    planes = {("split", (1,)): 4, ("merged", (2, 3)): 0, ("lost", (4,)): 1}
    return a, b, planes


def test_a_cell_of_a_stack_is_shown_where_it_differs_most():
    a, b, planes = stack_of_known_changes()
    comparison = compare_masks(a, b)
    changes = listed_changes(comparison)
    shown = {
        (str(change.kind), change.labels_a): tile
        for change, tile in zip(changes, cell_tiles(changes, None, a, b), strict=True)
    }
    assert {what: tile.panel.heading for what, tile in shown.items()} == {
        what: f"plane z {z}" for what, z in planes.items()
    }
    assert any("cut between planes z 3 | 4" in fact for fact in shown["split", (1,)].facts)
    for change in changes:  # from the side each is seen at the same scale, on all of its planes
        tile = shown[str(change.kind), change.labels_a]
        own = np.isin(a, change.labels_a) | np.isin(b, change.labels_b)
        first, *_, last = map(str, np.flatnonzero(own.any(axis=(1, 2))))
        y, top, bottom = map(int, re.findall(r"\d+", tile.section.heading))
        assert own[:, y].any()
        assert top <= int(first) <= int(last) <= bottom
        assert tile.section.width == tile.panel.width
    drawn = compared_masks("stack", None, a, b, "cells", closer=False)
    *_, differs = drawn.figure.panels
    of_legend = {change.kind.sign for change in drawn.changes if change in changes}
    assert {mark.sign for mark in differs.marks} == of_legend < {each.kind.sign for each in changes}
    plane = int(differs.heading.partition("plane z ")[2][0])
    sign_of = {change.kind.sign: change for change in changes}
    assert differs.marks
    for mark in differs.marks:  # of a plane the marks say what became of the cell in the stack
        change = sign_of[mark.sign]
        own = np.isin(a[plane], change.labels_a) | np.isin(b[plane], change.labels_b)
        scale = differs.width / a.shape[2]
        assert own[int(mark.y / scale), int(mark.x / scale)]
    assert all(
        "plane z " in panel.heading for panel in compared_masks("", a, a, b, "").figure.panels
    )


def test_every_one_of_many_changed_cells_has_a_dot():
    """Wherever it lies: the largest, which have signs where they are few, are all at the top."""
    a = np.zeros((1000, 1000), np.uint16)
    for n in range(100):
        y, x = 100 * (n // 10) + 40, 100 * (n % 10) + 40
        a[y : y + (20 if n < 50 else 10), x : x + 10] = n + 1
    figure = compared_masks("many", None, a, np.zeros_like(a), "cells").figure
    drawn = next(panel for panel in figure.panels if panel.heading.startswith("What differs"))
    assert "a dot on each" in drawn.heading
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(drawn.png))).convert("RGB"))
    dots = (pixels == rgb(COLOURS["only_a"])).all(axis=2)
    for row in np.array_split(dots, 10):
        assert all(part.any() for part in np.array_split(row, 10, axis=1))


def test_of_several_images_the_one_is_shown_on_which_most_cells_differ(tmp_path):
    for name, masks in {"few": A, "most": np.where(A == 1, 1, 0).astype(np.uint16)}.items():
        for side, labels in (("a", A), ("b", masks)):
            (tmp_path / side).mkdir(exist_ok=True)
            tifffile.imwrite(tmp_path / side / f"{name}_masks.tif", labels)
    tifffile.imwrite(tmp_path / "few.tif", IMAGE)
    sides = (tmp_path / "a", tmp_path / "b")
    html = tmp_path / "page.html"
    compare(*sides, html=html)
    assert "Two results of 2 images" in words_of(html)
    assert "Pictures, cells and scores below are of most, which has the lowest F1: " in words_of(
        html
    )
    assert "No image was given: masks stand on black" in words_of(html)
    with pytest.raises(BadInput, match="or replace it with --overwrite"):
        compare(*sides, html=html)
    compare(*sides, image=tmp_path / "few.tif", html=html, overwrite=True)
    text = words_of(html)
    assert "The two hold different cells." in text
    assert "below are of few, which was chosen: 5 cells in A, 5 in B: 5 kept, none changed." in text


def test_names_are_text(tmp_path):
    for name, masks in (("<img src=x>_masks.tif", A), ("b_masks.tif", B)):
        tifffile.imwrite(tmp_path / name, masks)
    compare(tmp_path / "<img src=x>_masks.tif", tmp_path / "b_masks.tif", html=tmp_path / "p.html")
    assert "<img src=x>" not in (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "<img src=x>_masks.tif" in words_of(tmp_path / "p.html")


# -- what it refuses, and what not --------------------------------------------------------------


def test_refusals(files, tmp_path):
    sides = (files / "gui_seg.npy", files / "script_seg.npy")
    html = files / "page.html"
    with pytest.raises(
        BadInput, match=r"(?s)large\.tif has shape.*the image is 2 times as large.*diameter=60"
    ):
        compare(*sides, image=files / "large.tif", html=html)
    with pytest.raises(BadInput, match=r"expected the name of a file that ends in \.html"):
        compare(*sides, html=files / "page.pdf")
    with pytest.raises(BadInput, match=r"cells\.tif: a picture, no label image"):
        compare(files / "cells.tif", sides[1], html=html)
    assert not html.exists()


def test_json_of_another_program_hides_no_masks(tmp_path, invoke):
    for name, masks in (("a_masks.tif", A), ("b_masks.tif", B)):
        tifffile.imwrite(tmp_path / name, masks)
    (tmp_path / "a_masks.json").write_text('{"cells": 5}', encoding="utf-8")
    answer = invoke("compare", tmp_path / "a_masks.tif", tmp_path / "b_masks.tif")
    assert answer.code == 1
    assert answer.out.splitlines()[0] == "different: masks"
    assert "note" not in answer.out


def test_a_page_about_two_runs_shows_their_image(tmp_path):
    store = Store(tmp_path / "outputs")
    masks = np.zeros((SIDE, SIDE), np.uint16)
    masks[2:9, 2:9] = 1
    add_run(store, [(1, {"x": masks}), (1, {"x": 0 * masks})])
    key = store.runs()[0].key
    compare(key, key, html=tmp_path / "page.html", store=store.root)
    text = words_of(tmp_path / "page.html")
    assert "1 cell in A, 0 in B: 0 kept, 1 lost" in text
    assert "No image was given" not in text
    assert "In what the two runs differ" in text


def test_the_parts_of_a_page_style_no_class_of_each_other():
    """What all share stands in the style of the page alone."""
    of_part = {}
    for file in TEMPLATES.glob("*.css"):
        selectors = re.findall(r"([^{}]+){", file.read_text(encoding="utf-8"))
        of_part[file.name] = {
            one for each in selectors for one in re.findall(r"\.([a-z][\w-]*)", each)
        }
    assert len(of_part) > 1
    for a, b in itertools.combinations(of_part, 2):
        assert not of_part[a] & of_part[b], (a, b)
