"""The explorer as a file: in a browser without kernel, server and store."""

import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
import tifffile

from cellrepro.show.explorer.page_part import explorer_part
from cellrepro.show.explorer.view import View
from cellrepro.show.explorer.widget import explore
from cellrepro.show.pages.explorer_page import explorer_page
from lab_server import browsing
from samebits.errors import BadInput

READY = '.cellrepro-explorer[data-ready="1"]'


def cells(*, second: bool = True, size: int = 64) -> np.ndarray:
    labels = np.zeros((size, size), np.uint16)
    labels[8:24, 8:24] = 1
    if second:
        labels[32:48, 32:48] = 2
    return labels


@pytest.fixture
def files(tmp_path):
    """An image with an awkward name, masks of it, masks without the second cell, a stack."""
    made = {
        "x<b>.tif": (np.arange(64 * 64).reshape(64, 64) % 999).astype(np.uint16),
        "a.tif": cells(),
        "b.tif": cells(second=False),
        "twice.tif": np.kron(cells(), np.ones((2, 2), np.uint16)),
    }
    for name, pixels in made.items():
        tifffile.imwrite(tmp_path / name, pixels)
    stack = {"photometric": "minisblack", "metadata": {"axes": "ZYX"}}
    planes = np.arange(3 * 64 * 64, dtype=np.uint16).reshape(3, 64, 64)
    tifffile.imwrite(tmp_path / "stack.tif", planes, **stack)
    tifffile.imwrite(tmp_path / "stack_a.tif", np.stack([cells()] * 3), **stack)
    tifffile.imwrite(
        tmp_path / "stack_b.tif", np.stack([cells(second=False)] * 2 + [cells()]), **stack
    )
    return tmp_path


@pytest.mark.browser
def test_the_page_works_alone(files, browser, invoke):
    """Cells are listed and chosen, A and B exchanged, as with a kernel; nothing is asked for."""
    html = files / "page.html"
    answer = invoke(
        "explore",
        *(files / name for name in ("x<b>.tif", "a.tif", "b.tif")),
        *("--truth", files / "a.tif", "--html", html, "--json"),
    )
    assert answer.code == 0
    assert answer.json["opened"] is False
    with browsing(browser) as page:
        page.goto(html.as_uri())
        page.locator(READY).wait_for()
        assert page.locator("h1").inner_text() == "The two hold different cells."
        assert page.locator("header .sides").inner_text() == "x<b>: a.tif and b.tif"
        (command,) = page.locator("header code").all_inner_texts()
        assert shlex.split(command)[:2] == ["cellrepro", "compare"]
        assert invoke(*shlex.split(command)[1:]).out.startswith("different: masks")
        assert "256 of 4" in page.locator("[data-line]").inner_text()
        page.keyboard.press("n")  # without a click
        page.locator('.cellrepro-explorer[data-chosen^="lost"]').wait_for()
        page.locator("canvas.cre-canvas").press("x")
        page.locator('.cellrepro-explorer[data-a="b.tif"][data-loading="0"]').wait_for()
        assert "only A: 0, only B: 256" in page.locator("[data-line]").inner_text()
        page.locator("select.cre-select-b").select_option("truth")
        page.locator('.cellrepro-explorer[data-b="truth"][data-loading="0"]').wait_for()


# What is seen in part only, each with the text that is shown on hover.
CUT = """() => [...document.querySelectorAll(".cellrepro-explorer *")]
    .filter((each) => getComputedStyle(each).textOverflow === "ellipsis")
    .filter((each) => each.clientWidth > 0 && each.scrollWidth > each.clientWidth)
    .map((each) => [each.textContent, each.closest("[title]")?.title ?? ""])"""


# Pairs of texts that lie on each other beside the picture, as far as they are seen, with seven
# digits for every number of pixels.
OVERLAPS = """() => {
  for (const each of document.querySelectorAll(".cre-amount")) {
    each.textContent = "1\u00a0234\u00a0567";
  }
  const side = document.querySelector(".cre-side");
  const walker = document.createTreeWalker(side, NodeFilter.SHOW_TEXT);
  const seen = [];
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    let { left, right, top, bottom } = range.getBoundingClientRect();
    for (let box = walker.currentNode.parentElement; box; box = box.parentElement) {
      if (getComputedStyle(box).overflow === "visible") continue;
      const inside = box.getBoundingClientRect();
      [left, right] = [Math.max(left, inside.left), Math.min(right, inside.right)];
      [top, bottom] = [Math.max(top, inside.top), Math.min(bottom, inside.bottom)];
    }
    const isSeen = right - left > 1 && bottom - top > 1;
    if (isSeen) seen.push([left, right, top + 2, bottom - 2, walker.currentNode.data]);
  }
  return seen.flatMap((p, i) => seen.slice(i + 1)
    .filter((q) => p[0] < q[1] - 1 && q[0] < p[1] - 1 && p[2] < q[3] && q[2] < p[3])
    .map((q) => [p[4], q[4]]));
}"""


@pytest.mark.browser
def test_what_is_cut_is_whole_on_hover_and_names_keep_what_tells_them_apart(files, browser):
    names = [f"plate07_well_B03_site2_network_v2_{of}_masks.tif" for of in ("laptop", "cluster")]
    paths = (files / name for name in ("stack.tif", "stack_a.tif", "stack_b.tif"))
    shown = explorer_page(*paths, name_a=names[0], name_b=names[1], html=files / "page.html")
    cut = []
    with browsing(browser, viewport={"width": 390, "height": 800}) as page:
        page.goto(shown.html.as_uri())
        page.locator(READY).wait_for()
        page.locator("canvas.cre-canvas").press("n")
        page.locator('.cellrepro-explorer:not([data-chosen=""])').wait_for()
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            page.locator(f'.cellrepro-explorer[data-wide="{int(width > 390)}"]').wait_for()
            cut += page.evaluate(CUT)
            assert page.evaluate(OVERLAPS) == []
        page.locator("canvas.cre-canvas").press("5")  # names lie on the picture
        page.locator('.cellrepro-explorer[data-mode="sides"]').wait_for()
        texts = {text for text, _ in cut + page.evaluate(CUT)}
    assert any(text.startswith("plate07") for text in texts)
    assert not {"laptop", "cluster"} & texts
    assert [text for text, whole in cut if text not in whole] == []


@pytest.mark.browser
def test_planes_of_a_stack_stand_in_the_page(files, browser):
    names = ("stack.tif", "stack_a.tif", "stack_b.tif")
    awkward = "</script><script>throw 1</script>"
    paths = (files / name for name in names)
    shown = explorer_page(*paths, name_a=awkward, html=files / "page.html")
    with browsing(browser) as page:
        page.goto(shown.html.as_uri())
        page.locator(READY).wait_for()
        page.locator("canvas.cre-canvas").press("n")
        page.locator('.cellrepro-explorer[data-z="1"][data-loading="0"]').wait_for()
        assert page.locator(".cellrepro-explorer[data-error]").count() == 0


@pytest.mark.browser
def test_masks_without_their_image_speak_of_no_contrast(files, browser):
    shown = explorer_page(None, files / "a.tif", files / "b.tif", html=files / "page.html")
    with browsing(browser) as page:
        page.goto(shown.html.as_uri())
        page.locator(READY).wait_for()
        assert "256 of 4" in page.locator("[data-line]").inner_text()
        assert not page.get_by_text("contrast").count()
        assert not page.locator(".cre-cell[data-cell=value]").is_visible()


AXES = ("", "ZYX", "TYX", "CYX")


@pytest.mark.parametrize("axes", AXES)
def test_an_image_has_planes_where_its_masks_have_them(tmp_path, axes):
    image = np.random.default_rng(0).integers(0, 200, (3, 64, 64)).astype(np.uint16)
    named = {"metadata": {"axes": axes}} if axes else {"metadata": None}
    tifffile.imwrite(tmp_path / "x.tif", image, photometric="minisblack", **named)
    masks = np.stack([cells(), cells(second=False), cells()])
    shown = explore(tmp_path / "x.tif", masks, masks)
    assert shown.scene["n_planes"] == 3


def test_files_and_arrays_are_the_same_to_a_notebook(files):
    of_files = explore(files / "x<b>.tif", files / "a.tif", files / "b.tif")
    image = tifffile.imread(files / "x<b>.tif")
    of_arrays = explore(image, cells(), cells(second=False))
    assert of_files.scene["line"] == of_arrays.scene["line"]
    assert of_files.scene["names"]["image"] == "x<b>"


def test_what_does_not_belong_together_is_refused_with_the_cause(files, invoke):
    image = np.random.default_rng(0).integers(0, 200, (64, 64)).astype(np.uint8)
    with pytest.raises(BadInput, match=r"masks_a: a picture, .*explore\(image, masks_a, masks_b\)"):
        explore(cells(), image, cells())
    html = files / "page.html"
    sides = (files / "twice.tif", files / "a.tif", "--html", html)
    refused = invoke("explore", files / "x<b>.tif", *sides)
    assert refused.code == 2
    assert "2 times as large as the image" in refused.err
    assert "diameter=15" in refused.err
    assert not html.exists()
    refused = invoke("explore", files / "a.tif", files / "a.tif", files / "a.tif", "--html", files)
    assert refused.code == 2
    assert "expected the name of a file that ends in .html" in refused.err


def test_no_name_ends_the_script():
    view = View("</script><b>", [cells(), cells(second=False)])
    part = explorer_part(view, "</script>", "<!--")
    assert "<" not in part.data
    assert json.loads(part.data)["state"]["images"] == ["</script><b>"]


def test_the_page_says_first_whether_both_hold_the_same_cells(files, invoke, monkeypatch):
    """No browser is opened where none is wanted; equal masks have no cause to look for."""
    monkeypatch.setattr(f"{explorer_page.__module__}.open_in_browser", pytest.fail)
    html = files / "equal.html"
    explorer_page(files / "x<b>.tif", files / "a.tif", files / "a.tif", html=html)
    head, _, _ = html.read_text().partition("</header>")
    assert "The two are identical." in head
    assert "find out why" not in head
    sides = (files / name for name in ("x<b>.tif", "a.tif", "b.tif"))
    assert invoke("explore", *sides, "--no-browser", "--json").json["opened"] is False


def test_equal_pages_are_equal_files(files):
    """Whatever the seed with which Python hashes strings."""
    code = (
        "from cellrepro.show.explorer.page_part import explorer_part\n"
        "from cellrepro.show.explorer.read_view import read_view\n"
        "part = explorer_part(read_view('stack.tif', 'stack_a.tif', 'stack_b.tif'), 'A', 'B')\n"
        "print(part.data)"
    )
    written = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=files,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(written) == 1
