"""Draw the pictures of README and docs from docs/files.

    python scripts/page_pictures.py

``docs/images/how/sources.json`` keeps a digest of every file that a picture is drawn from, by
which `tests/test_website.py` notices that a picture is old.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import browser
from fates_picture import fates_picture
from pages import DOCS, FILES, PROJECT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = DOCS / "images" / "how"
SOURCES = PICTURES / "sources.json"


@dataclass(frozen=True)
class Drawn:
    """Two label images of docs/files that a page shows side by side, and their names there."""

    a: str
    b: str
    name_a: str
    name_b: str
    image: str | None = "cells.tif"


DRAWN = {
    "gui_and_script": Drawn("cells_seg.npy", "script_masks.tif", "GUI", "script"),
    "straight_cuts": Drawn("script_masks.tif", "blocks_masks.tif", "in one piece", "in blocks"),
    "crop_and_whole": Drawn(
        "whole_masks.tif",
        "percentile_masks.tif",
        "percentile 99",
        "percentile 96",
        image="debris.tif",
    ),
    "gpu_and_laptop": Drawn("script_masks.tif", "bfloat16_masks.tif", "float32", "bfloat16"),
    "website_and_local": Drawn(
        "script_masks.tif", "website_masks.tif", "full size", "shrunk by half"
    ),
    "plugin_and_cellpose": Drawn(
        "script_masks.tif", "filtered_masks.tif", "Cellpose", "blurred first"
    ),
    "plane_in_stack": Drawn(
        "plane_alone_masks.tif", "plane_in_stack_masks.tif", "alone", "in the stack", image=None
    ),
    "cell_numbers": Drawn("script_masks.tif", "renumbered_masks.tif", "before", "reloaded"),
}
"""The picture of a page of docs/how, by the page's name."""


@dataclass(frozen=True)
class Photographed:
    """The explorer as a reader has it, after some keys were pressed."""

    image: str
    a: str
    b: str
    keys: str
    part: str
    width: int = browser.WIDTH


PHOTOGRAPHED = {
    "explorer_channels": Photographed(
        "two_channels.ome.tif", "script_masks.tif", "filtered_masks.tif", "n", ".cre-body"
    ),
    "explorer_sides": Photographed(
        "two_channels.ome.tif",
        "script_masks.tif",
        "filtered_masks.tif",
        "5n",
        ".cre-frame",
        width=1000,
    ),
}
"""The pictures of docs/explorer.md."""
TEMPLATES = [
    PROJECT / "src" / "cellrepro" / "show" / "pages" / "templates" / name
    for name in (
        "open.html.j2",
        "open.js",
        "comparison.html.j2",
        "comparison.css",
        "conclusion_part.html.j2",
        "conclusion_part.css",
    )
]
"""What decides how the pages of ``cellrepro open`` and ``compare --html`` look."""
DROPPED = ("cells.tif", "cells_seg.npy", "script_masks.tif")
EXPERIMENT = ("min_size_15", "min_size_80", "images", "groups.csv")


def main() -> None:
    """Draw every picture, and keep what it was drawn from."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, drawn in DRAWN.items():
        draw(name, drawn)
    (PICTURES / "fates.png").write_bytes(fates_picture().png(dpi=200))
    photograph()
    SOURCES.write_text(json.dumps(source_digests(), indent=1) + "\n", encoding="utf-8")


def draw(name: str, drawn: Drawn) -> None:
    from cellrepro.images.image_file import read_image, read_labels
    from cellrepro.show.figures.masks import difference

    picture = difference(
        read_image(FILES / drawn.image) if drawn.image else None,
        read_labels(FILES / drawn.a),
        read_labels(FILES / drawn.b),
        name_a=drawn.name_a,
        name_b=drawn.name_b,
    )
    picture.savefig(PICTURES / f"{name}.png", dpi=90)


def photograph() -> None:
    """Photograph the explorer, and the pages of two results, in Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        window = playwright.chromium.launch(
            executable_path=browser.find_chromium(), args=[*browser.FLAGS]
        )
        photograph_explorer(window)
        photograph_open_page(window)
        photograph_comparison(window)
        window.close()


def photograph_explorer(window: Browser) -> None:
    from cellrepro.show.pages.explorer_page import explorer_page

    with TemporaryDirectory() as folder:
        for name, one in PHOTOGRAPHED.items():
            files = (FILES / one.image, FILES / one.a, FILES / one.b)
            shown = explorer_page(*files, html=Path(folder, f"{name}.html"))
            page = browser.opened(window, width=one.width)
            page.goto(shown.html.as_uri())
            page.locator('.cellrepro-explorer[data-ready="1"]').wait_for()
            page.locator("canvas.cre-canvas").press_sequentially(one.keys)
            page.wait_for_timeout(1_000)
            browser.photograph(page, PICTURES / f"{name}.png", one.part)


def photograph_open_page(window: Browser) -> None:
    """Photograph it with an image and two results on it."""
    from cellrepro.show.local_server import LocalServer
    from cellrepro.show.pages.dropped_files import temporary_folder
    from cellrepro.show.pages.open_page import Desks, routes_of

    with temporary_folder() as folder, LocalServer(routes_of(Desks(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.opened(window)
        page.goto(server.address)
        page.set_input_files("#pick", [FILES / name for name in DROPPED])
        page.locator("#compare:enabled").wait_for()
        browser.photograph(page, PICTURES / "open.png", "#form")
        server.shutdown()


def photograph_comparison(window: Browser) -> None:
    """Photograph the head of the page that ``compare --html`` writes, and a conclusion on it."""
    import cellrepro

    image, a, b = DROPPED
    two_files = partial(cellrepro.compare, a, b, image=image)
    photograph_page(window, "compare", two_files, "header", "#picture")
    a, b, images, groups = (f"experiment/{name}" for name in EXPERIMENT)
    experiment = partial(cellrepro.compare, a, b, image=images, groups=groups)
    photograph_page(window, "conclusion", experiment, "#conclusion h2", ".conclusions")


def photograph_page(
    window: Browser, name: str, compare: Callable[..., object], *parts: str
) -> None:
    """Photograph parts of the page that a comparison writes."""
    with TemporaryDirectory() as folder:
        html = Path(folder, "page.html")
        with chdir(FILES):  # the page names its files as they were given
            compare(html=html)
        page = browser.opened(window)
        page.goto(html.as_uri())
        page.wait_for_timeout(1_000)
        browser.photograph(page, PICTURES / f"{name}.png", *parts)


def source_digests() -> dict[str, str]:
    """A digest of every file that a picture is drawn from."""
    pictures = [*DRAWN.values(), *PHOTOGRAPHED.values()]
    used = {name for one in pictures for name in (one.image, one.a, one.b) if name}
    files = [*(FILES / name for name in sorted(used.union(DROPPED))), *TEMPLATES]
    return {path.name: sha256(path.read_bytes()).hexdigest()[:16] for path in files}


if __name__ == "__main__":
    main()
