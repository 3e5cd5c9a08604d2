"""The table of runs: whole without JavaScript, and what a reader does with it in a browser."""

import itertools
import json
import re

import pytest
from playwright.sync_api import expect

from cellrepro import show
from cellrepro.explanation.compare_repeats import compare_repeats
from cellrepro.explanation.setting_meanings import field_in_words
from cellrepro.show.report import run_table
from cellrepro.store.store import Store
from lab_server import browsing
from samebits.errors import BadInput
from stores import add_run, planted, squares, three


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "store"
    planted(root)
    return Store(root)


@pytest.fixture(scope="module")
def output(store):
    return show.table_of_runs(store, store.runs())


def facts(output):
    return json.loads(output.table.data)


def differing(facts, section, a, b):
    """The fields that the page shows of two rows, as its JavaScript finds them."""
    named = facts[section]
    sides = [named["values"][named["of_row"][row]] for row in (a, b)]
    return {
        name
        for name, x, y in zip(named["names"], *sides, strict=True)
        if None not in (x, y) and x != y
    }


def in_words(name):
    return field_in_words(name.removeprefix("settings."))


def test_two_rows_differ_in_what_compare_says(store, output):
    """Of every two runs, a segmentation among them, which has no field of a training."""
    add_run(store, [(None, three())], task="segment", data_digest="e" * 64)
    listed = show.table_of_runs(store, store.runs())
    told = facts(listed)
    repeats = [(number, store.find(row.name)) for number, row in enumerate(listed.table.rows)]
    first_of_each = [(number, repeat) for number, repeat in repeats if repeat.index == 0]
    for (a, first), (b, second) in itertools.combinations(first_of_each, 2):
        compared = compare_repeats(first, second)
        expected = {*compared.spec} - {"profile_settings"}
        if "profile_settings" in compared.spec:
            expected.add("profile_settings.threads")
        assert differing(told, "spec", a, b) == {*map(in_words, expected)}, (a, b)
        environment = {*map(in_words, compared.environment)}
        assert differing(told, "environment", a, b) == environment, (a, b)


def test_images_without_room_for_a_picture_are_compared_all_the_same(store, output, monkeypatch):
    monkeypatch.setattr(run_table, "_MOST_BYTES_IN_NOTEBOOK", 1)
    pairs = facts(show.table_of_runs(store, store.runs()))["pairs"]
    assert {pair["view"] for pair in pairs} == {None}
    with_picture = facts(output)["pairs"]
    assert [pair | {"view": None} for pair in with_picture] == pairs


def test_letters_are_shared_by_equal_results_and_pairs_are_in_the_explorer(output):
    told = facts(output)
    rows = output.table.rows
    by_letter = {}
    for row, result in zip(rows, told["result"], strict=True):
        by_letter.setdefault(row.result.split()[0], set()).add(result)
    assert all(len(results) == 1 for results in by_letter.values())
    kinds = dict(zip(told["kinds"], range(6), strict=True))
    lost = [pair for pair in told["pairs"] if pair["kinds"][kinds["lost"]] == 1]
    assert {pair["image"] for pair in lost} == {"img_a"}
    assert "<script>" in output._repr_html_()


def test_without_runs_it_says_so(store):
    with pytest.raises(BadInput, match=r"there are no runs of .* to list"):
        show.table_of_runs(store, [])


@pytest.mark.browser
def test_a_reader_sorts_filters_and_ticks_two(tmp_path, output, browser):
    path = tmp_path / "runs.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{output._repr_html_()}", encoding="utf-8")
    url = path.as_uri()
    with browsing(browser, viewport={"width": 1280, "height": 800}) as page:
        page.goto(url)
        table = page.locator(".run-table")
        cells = table.get_by_role("columnheader", name="cells")
        cells.get_by_role("button").focus()
        page.keyboard.press("Enter")
        assert cells.get_attribute("aria-sort") == "ascending"
        names = table.locator("thead th").all_inner_texts()
        at = next(number for number, name in enumerate(names) if "cells" in name)
        numbers = [
            int(row.locator("td, th").nth(at).inner_text())
            for row in table.locator("tbody tr").all()
        ]
        assert numbers == sorted(numbers)
        table.get_by_label("mode").select_option("fast")
        assert "4 of 10 repeats" in table.locator(".said").inner_text()
        table.get_by_label("only rows with").fill("different 1.0")
        shown = table.locator("tbody tr:not([hidden])")
        assert 0 < shown.count() < 4
        table.get_by_label("only rows with").fill("")
        for name in ("cpu, fast, seed 0, repeat 0", "cpu, fast, seed 0, repeat 1"):
            table.get_by_label(re.compile(f"compare {name}")).check()
        said = "".join(table.locator(".two").all_inner_texts())
        assert "The weights differ; the masks differ." in said
        assert said.count("The same in every field.") == 2  # left to chance
        assert "The outlines differ in 1 of 3 images: img_b." in said
        expect(page.locator(".cre-counts")).to_contain_text(
            "8 of 2\N{NO-BREAK SPACE}304 pixels differ"
        )
        assert not table.locator(".listed").is_visible()
        table.get_by_role("button", name="← all repeats").click()
        assert table.locator(".listed").is_visible()
    with browsing(browser, viewport={"width": 390, "height": 800}) as page:
        page.goto(url)
        table = page.locator(".run-table")
        table.get_by_label("sort by").select_option("cells")
        listed = table.locator(".listed")
        assert listed.evaluate("(box) => box.scrollWidth - box.clientWidth") == 0
        boxes = table.locator("tbody input")
        boxes.nth(boxes.count() - 2).check()
        boxes.nth(boxes.count() - 1).check()
        page.wait_for_timeout(300)
        assert 0 <= table.locator(".two").first.bounding_box()["y"] < 200  # its head is in view
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    with browsing(browser, java_script_enabled=False) as page:
        page.goto(url)
        assert page.locator(".run-table tbody tr").count() == 10


@pytest.mark.browser
def test_the_explorer_shows_the_two_that_are_ticked_and_no_others(tmp_path, browser):
    """Of equal results it names the one that was ticked; of images it has those of both."""
    store = Store(tmp_path / "store")
    for seed in range(3):
        found = {"img_a": squares(grown=seed), "img_b": squares(grown=seed)}
        if seed == 0:
            del found["img_b"]
        repeats = [(None, found)] * (2 if seed == 0 else 1)
        add_run(store, repeats, task="segment", settings={"diameter": 10.0 + seed})
    path = tmp_path / "runs.html"
    html = show.table_of_runs(store, store.runs())._repr_html_()
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{html}", encoding="utf-8")
    with browsing(browser, viewport={"width": 1280, "height": 800}) as page:
        page.goto(path.as_uri())

        def sides():
            above = [page.locator(f".sides .{side} b").inner_text()[3:] for side in "ab"]
            for side, name in zip("ab", above, strict=True):
                chosen = page.locator(f".cre-select-{side} option:checked")
                expect(chosen).to_have_text(re.compile(re.escape(name) + r"( \(|$)"))
            return above

        boxes = page.locator("tbody input")
        boxes.nth(1).check()
        boxes.nth(3).check()
        images = page.locator(".cre-select-view option:not([hidden])")
        expect(images).to_have_text(["img_a"])
        page.locator("canvas").first.press(".")  # to the next image, of which there is none
        ticked = sides()
        assert ticked[0].endswith("repeat 1")
        page.get_by_role("button", name="exchange A and B").last.click()
        page.locator(".sides .a b", has_text=ticked[1]).wait_for(timeout=5000)
        assert sides() == ticked[::-1]
        page.get_by_role("button", name="← all repeats").click()
        boxes.nth(2).check()
        boxes.nth(3).check()
        expect(images).to_have_text(["img_a", "img_b"])
