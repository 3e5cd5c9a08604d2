"""The pages say what the commands print, lead to pages that exist, and are found by words."""

import functools
import http.server
import json
import random
import re
import shlex
import subprocess
import sys
import threading

import browser
import page_outputs
import page_pictures
import pytest
import reference
import website
from pages import DOCS, pages

from command_line import commands

PAGES = pages()
SHORT = [
    pytest.param(block, id=f"{block.page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(page_outputs.blocks(page))
    if not block.is_long
]


def run_here(command, folder, monkeypatch, capsys):
    """As a terminal would, without the second that a process needs to start."""
    from cellrepro.cli import main

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit):
        main()
    captured = capsys.readouterr()
    return captured.err + captured.out


@pytest.mark.parametrize("block", SHORT)
def test_a_page_shows_what_its_command_prints(block, monkeypatch, capsys):
    """Else: `make site`, and read what changed on the page."""
    monkeypatch.setenv("COLUMNS", str(page_outputs.N_COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    run = functools.partial(run_here, monkeypatch=monkeypatch, capsys=capsys)
    assert page_outputs.run_block(block, run) == block.body


GUIDES = {"model_to_bioimageio", "model_to_cellpose"}
"""Pages about no symptom, whose commands need a network of Cellpose's size."""


def test_every_symptom_shows_a_command_and_its_output():
    for page in sorted((DOCS / "how").glob("*.md")):
        if page.stem in GUIDES:
            continue
        text = page.read_text(encoding="utf-8")
        for part in ("**What you ", "**What to do.**", "cellrepro "):
            assert part in text or page.stem == "methods_sentence", f"{page.name}: {part}"
        assert page_outputs.blocks(page) or page.stem == "finetuning_versions", page.name


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_begins_with_its_question_in_words(page):
    """Not with a command or a table: a reader has to know what the page answers."""
    title, first, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ")
    assert re.match(r"`?\w|\*", first), first
    assert "?" in page.read_text(encoding="utf-8").partition("\n## ")[0]


def test_commands_page_is_that_of_this_version():
    """Else: `make site`."""
    assert (DOCS / "commands.md").read_text(encoding="utf-8") == reference.commands_page()


@pytest.mark.parametrize("name", reference.TEMPLATES)
def test_reference_pages_are_those_of_this_code(name):
    """Else: `make site`."""
    assert (DOCS / name).read_text(encoding="utf-8") == reference.page(name)


def test_every_command_of_a_page_exists_with_its_options():
    every = {command.words: command for command in commands()}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        inside = "\n".join(re.findall(r"^```(?:console)?\n(.*?)^```", text, re.S | re.M))
        for line in re.findall(r"^(?:\$ )?cellrepro ([a-z][^#\n]*)", inside, re.M):
            verb, *words = line.split(" -- ")[0].split()
            command = every.get((verb,)) or every.get((verb, *words[:1]))
            assert command is not None, f"{page.name}: cellrepro {line}"
            known = {name for one in command.parameters for name in one.options} | {"--json"}
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options <= known | {"--help"}, f"{page.name}: cellrepro {line}"


def test_pictures_of_pages_are_of_the_files_beside_them():
    """Else: `make pictures`."""
    kept = json.loads(page_pictures.SOURCES.read_text(encoding="utf-8"))
    assert kept == page_pictures.source_digests()
    for name in (*page_pictures.DRAWN, *page_pictures.PHOTOGRAPHED):
        assert (page_pictures.PICTURES / f"{name}.png").exists()


def test_no_link_leads_nowhere_and_every_page_is_led_to():
    assert [*website.broken_links(), *website.lonely_pages()] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("# One two\n\n[a](#one-two) [b](gone.md) [c](#three) `[d](code)`\n")
    monkeypatch.setattr(website, "PROJECT", tmp_path)
    monkeypatch.setattr(website, "pages", lambda: [page])
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).write_text("")
    assert list(website.broken_links()) == [
        "page.md: gone.md: there is no such file",
        "page.md: #three: that page has no such heading",
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("$ ls a\nb\n$ ls c\n", "ls a\nls c"),
        (">>> for n in 1, 2:\n...     n\n1\n2\n>>> n\n2\n", "for n in 1, 2:\n    n\n\nn"),
        ("# which\nls a   # one\nls b\n", "ls a\nls b"),
    ],
    ids=["terminal", "Python", "commands"],
)
def test_only_what_is_typed_is_copied(body, expected):
    assert website.typed(body) == expected


@pytest.mark.slow
@pytest.mark.browser
def test_search_of_the_built_site_finds_what_users_type():
    pytest.importorskip("zensical")
    subprocess.run([sys.executable, website.__file__], check=True, timeout=120)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=website.SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found, lefts = found_on(f"http://127.0.0.1:{server.server_port}/index.html")
        server.shutdown()
    assert lefts == [16, 16]
    assert found["GUI"].endswith("/how/gui_and_script.html")
    assert found["straight cuts"].endswith("/how/straight_cuts.html")
    assert found["diameter"].endswith("/how/which_setting.html")
    assert found["tile seams"].endswith("/how/straight_cuts.html")
    assert found["Fiji"].endswith("/how/plugin_and_cellpose.html")
    assert found["kept"].endswith("/words.html")
    assert found["learning rate"].endswith("/settings.html")


def left_of_heading(page, address):
    """Where the heading begins on a phone, in pixels from the edge of the screen."""
    page.goto(address)
    return page.locator("h1").bounding_box()["x"]


def found_on(address):
    """Where one lands who types words into the search, and the margins of two of the pages."""
    from playwright.sync_api import sync_playwright

    found = {}
    state = random.getstate()  # Playwright draws from it
    with sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path=browser.find_chromium(), args=list(browser.FLAGS)
        )
        page = chromium.new_page()
        page.on("request", lambda request: asked.add(request.url))
        asked = set()
        typed = ("GUI", "diameter", "Fiji", "straight cuts", "tile seams", "kept", "learning rate")
        for words in typed:
            page.goto(address)
            page.wait_for_load_state("networkidle")
            page.keyboard.press("/")
            page.wait_for_timeout(500)
            page.keyboard.type(words, delay=30)
            page.wait_for_timeout(1500)
            page.keyboard.press("Enter")
            page.wait_for_url(lambda url: not url.endswith("/index.html"), timeout=15_000)
            found[words] = page.url.partition("?")[0].partition("#")[0]
        page.set_viewport_size({"width": 390, "height": 800})
        with_list_of_headings = found["learning rate"]
        lefts = [left_of_heading(page, url) for url in (address, with_list_of_headings)]
        chromium.close()
    random.setstate(state)
    origin = address.removesuffix("index.html")
    assert [url for url in asked if not url.startswith(origin)] == []
    return found, lefts
