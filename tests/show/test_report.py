"""The report: its headline, groups, files and page against planted facts; it trains nothing."""

import base64
import csv
import io
import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cellrepro.comparison.five_steps import protocol
from cellrepro.comparison.seed_spread import measure_spread
from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.kept_passports import keep_attestations
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.receipt import (
    EnvironmentDifference,
    FirstDivergence,
    Receipt,
    receipt_statement,
)
from cellrepro.exchange.signed.signer import find_signer
from cellrepro.exchange.statement import Attestation
from cellrepro.show.figures import style
from cellrepro.show.pages.parts import table, table_file
from cellrepro.show.report import page as report_page
from cellrepro.show.report import run_pairs, section_agreement
from cellrepro.show.report.build import write_report
from cellrepro.store.store import Store
from lab_server import browsing, wait_until_sized
from samebits.errors import BadInput
from stores import NOTHING, SIZE, add_run, planted, some_machine, squares, three


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report over the planted store: runs, what was returned, the page."""
    root = tmp_path_factory.mktemp("planted") / "store"
    runs = planted(root)
    written = write_report(root)
    return runs, written, Page(written.html.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Figures are made but not drawn, which takes most of the time; those of `page` are."""
    monkeypatch.setattr(style.Picture, "png", lambda self, **_: b"")


class Page(HTMLParser):
    """Tags and text of a page, in which all is balanced."""

    VOID = ("meta", "img", "image", "circle", "rect", "input", "source", "wbr")

    def __init__(self, html: str):
        super().__init__()
        self.html, self.tags, self.texts, self.open = html, [], [], []
        self.feed(html)
        assert self.open == []
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open += [tag] * (tag not in self.VOID)

    def handle_endtag(self, tag):
        assert tag in self.VOID or self.open.pop() == tag

    def handle_data(self, data):
        self.texts += [data] * (not {"style", "script"} & {*self.open})

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def file(self, name: str) -> list[dict[str, str]]:
        """The rows of a CSV file inside the page."""
        (link,) = (link for link in self.all("a") if link.get("download") == f"{name}.csv")
        return rows_of(base64.b64decode(link["href"].partition(",")[2]))


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode()), strict=True))


def written_page(store: Path, **where) -> Page:
    return Page(write_report(store, **where).html.read_text(encoding="utf-8"))


def assert_self_contained(page: Page, *, beside: Path | None = None) -> None:
    """Nothing is asked for but what is inside; links lead into the page or to files beside it."""
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "base"}
    assert not [script for script in page.all("script") if "src" in script]
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "srcset", "data", "action") or (name, tag) == ("href", "image"):
                assert value.startswith("data:image/png;base64,"), (tag, name)
    assert not re.search(r"<style>.*(url\(|@import).*</style>", page.html, re.S)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    for link in page.all("a"):
        address = link["href"]
        if address.startswith("#"):
            assert address[1:] in ids, address
        elif "download" not in link:
            assert address.startswith("../runs/")
            assert (beside / address).exists(), address
    assert all(picture.get("alt") for picture in page.all("img"))
    assert all(drawing.get("aria-label") for drawing in page.all("svg"))


def test_no_cell_of_a_csv_file_is_a_formula():
    """Spreadsheets run them when a file is opened, and names of images come from outside."""
    names = ("=cmd|' /C calc'!A0", "+1+1", "-a", "@SUM(A1)", "\t=1", "＝1")
    rows = [{"image": name, "=head": -2.5} for name in (*names, "a=1")]
    found = rows_of(base64.b64decode(table_file("cells", rows).href.partition(",")[2]))
    assert [row["image"] for row in found] == [*(f"'{name}" for name in names), "a=1"]
    assert {row["'=head"] for row in found} == {"-2.5"}  # numbers stay numbers


def test_a_value_that_is_missing_is_a_dash():
    """pandas has NaN in place of the None of a column."""
    rows = table([{"ratio": math.nan, "masks": None}, {"ratio": 1.5, "masks": math.nan}], {}).rows
    assert [cell.text for row in rows for cell in row] == ["–", "–", "1.5", "–"]


def test_the_headline_and_what_is_returned(page):
    runs, written, parsed = page
    assert written.sentence() == (
        "cells: 5 specs trained in 10 repeats: the repeats of 2 are bit-identical, the repeats of "
        "1 outline the same cells under different numbers, the repeats of 1 differ (also in the "
        "masks), the repeats of 1 found or trained nothing, which proves nothing; "
        "between numbers of threads the masks differ in 3 of 5 comparisons, at most "
        "by 0.23 % of the pixels over all images; AP@0.5 against the ground truth is 0.767 on "
        "average (0.000 to 1.000). 1 run failed."
    )
    (headline,) = re.findall(r"<h1[^>]*>(.*?)</h1>", parsed.html)
    assert headline == "Not everywhere: the repeats of 1 of 5 specs differ."
    assert json.loads(json.dumps(written.runs, allow_nan=False)) == written.runs
    by_key = {entry["key"]: entry for entry in written.runs}
    verdicts = [by_key[run.key]["verdict"] for run in runs.values()]
    assert verdicts == ["identical", "identical", "different", "same-objects", "vacuous"]
    assert by_key[runs["other profile"].key]["ap50"] == pytest.approx((0.5 + 1 + 1) / 3)
    both = {name: {repeat.name for repeat in run.repeats} for name, run in runs.items()}
    weights = [set(group["members"]) for group in written.groups if "weights" in group]
    assert both["identical"] | both["vacuous"] in weights
    masks = [(set(g["members"]), g["n_objects"]) for g in written.groups if "masks" in g]
    assert (both["other profile"], 5) in masks


def test_page_is_self_contained_and_says_everything(page):
    _, written, parsed = page
    assert_self_contained(parsed, beside=written.html.parent)
    for said in (
        "On img_a, cpu and cpu-1thread leave 1 of the 3 cells of both (33 %) without a match",
        "C 1 D 2 ≠ different 2 repeats weights different, masks different",
        "× failed 1 repeat failed",
        "strict, seed 0 cpu cpu-1thread ≠ different ≠ different 0.23 % 9.1 % 1 0.17",
        "10 repeats ended in 5 different networks of 84 parameters each",
    ):
        assert said in parsed.text, said
    row = r'"row">threads\s*</th>\s*<td class="value"[^>]*>2\s*</td>.*?<mark>1<'
    assert re.search(row, parsed.html, re.S)
    parts = re.findall(r"<figure>(.*?)</figure>", parsed.html, re.S)
    assert len(parts) > 12
    assert all("caption>" in part for part in parts)


def test_files_agree_with_the_page(page):
    runs, _, parsed = page
    lost = [row for row in parsed.file("cells-img_a") if row["what"] == "lost"]
    assert [(row["y"], row["x"], row["area_a"]) for row in lost] == [("31.5", "31.5", "16")]
    letters = {r["run"]: r["masks"] + r["network"] for r in parsed.file("equal-results-cells")}
    named = {name: [letters[repeat.name] for repeat in run.repeats] for name, run in runs.items()}
    assert (named["different"], named["identical"]) == (["C1", "D2"], ["C3", "C3"])
    compared = {row["with"]: row["cells without a match"] for row in parsed.file("threads-cells")}
    assert float(compared["strict, seed 0"]) == pytest.approx(1 / 11)  # 1 of 6 + 5 cells
    # Repeats that came out differently are compared each, and named.
    of_each = [f"repeat {i} of cpu, repeat {j} of cpu-1thread" for i in (0, 1) for j in (0, 1)]
    assert sum(name.endswith(tuple(of_each)) for name in compared) == len(of_each)
    step = float(np.linalg.norm(np.linspace(-1, 1, 64, dtype=np.float32)))
    expected = np.abs(np.subtract.outer(*[[1.5, 1.75, 1, 2, 1.25]] * 2)) * step
    for row, group in zip(parsed.file("networks-cells"), runs["different"].repeats, strict=False):
        assert int(row["file, bytes"]) == group.weights.stat().st_size
        assert int(row["parameters"]) == sum(
            int(layer["parameters"])
            for layer in parsed.file("networks-by-layer-cells")
            if layer["network"] == row["network"]
        )
    rows = parsed.file("l2-distance-cells")
    actual = [[float(row[str(i)]) for i in range(1, 6)] for row in rows]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-12)


def test_a_page_over_many_runs_says_what_it_leaves_out(tmp_path, monkeypatch):
    planted(tmp_path)
    monkeypatch.setattr(report_page, "MOST_ROWS", 1)
    monkeypatch.setattr(report_page, "MOST_LISTED", 1)
    monkeypatch.setattr(run_pairs, "_MOST_RESULTS", 2)
    monkeypatch.setattr(section_agreement, "_MOST_OF_IMAGE", 2 * SIZE**2)
    parsed = written_page(tmp_path)
    assert_self_contained(parsed, beside=tmp_path / "report")
    listed = parsed.html[parsed.html.index('class="run-table"') :].partition("</table>")[0]
    assert listed.count("<tr id=") == 2  # those of the worst image
    for said in (
        "The first 1 of 2 rows; all are in the file below.",
        "The first 1 of 5 specs; all are in the file.",
        "10 repeats, of which 2 are listed: the first of every result before others.",
        "So that this page stays small, its explorer holds 2 of 4 different results.",
        "img_a has too many different results to look at all: 3 repeats of 10 were drawn",
    ):
        assert said in parsed.text, said
    assert len(parsed.file("equal-results-cells")) == 10


def test_the_worst_image_is_the_one_whose_cells_change(tmp_path):
    """Two cells that shifted are fewer than a cell of four pixels that is gone, to a biologist."""
    small = squares(second=False)
    small[40:42, 40:42] = 3
    outcomes = [
        (1.0, {"img_a": squares(), "img_b": small}),
        (1.0, {"img_a": np.roll(squares(), 1), "img_b": squares(second=False)}),
    ]
    add_run(Store(tmp_path), outcomes, truth=False)
    shutil.rmtree(tmp_path / "data")  # the images were not kept
    page = written_page(tmp_path)
    text = page.text
    (told,) = re.findall(r"<script[^>]*run-table-data[^>]*>(.*?)</script>", page.html, re.S)
    assert json.loads(told)["pairs"][0]["image"] == "img_b"  # the explorer opens on it, too
    assert (
        "On img_b, repeat 0 and repeat 1 leave 1 of the 3 cells of both (33 %) without a match"
        in text
    )


def test_one_run_of_one_repeat_outside_of_its_store(tmp_path):
    add_run(Store(tmp_path / "store"), [(1.0, three())])
    parsed = written_page(tmp_path / "store", html=tmp_path / "deep" / "page.html")
    assert_self_contained(parsed)
    assert not (tmp_path / "store" / "report").exists()
    assert str(tmp_path) not in parsed.html  # nor where the store is
    assert "Not known: no spec was run twice" in parsed.text
    assert write_report(tmp_path / "store", html=tmp_path / "deep").html == (
        tmp_path / "deep" / "index.html"
    )
    new_folder = write_report(tmp_path / "store", html=tmp_path / "shown" / "by day")
    assert new_folder.html == tmp_path / "shown" / "by day" / "index.html"
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for target, message in (
        (notes, "that is a file and no page, and nothing is overwritten"),
        (notes / "page.html", "cannot be written to .*page.html"),
    ):
        with pytest.raises(BadInput, match=message):
            write_report(tmp_path / "store", html=target)
    assert notes.read_text() == "mine"


def test_the_command_line_writes_where_it_is_told(tmp_path, invoke, monkeypatch):
    add_run(Store(tmp_path / "store"), [(1, three())])
    monkeypatch.chdir(tmp_path)
    for asked, written in (("here", "here/index.html"), ("here/a.html", "here/a.html")):
        answer = invoke("report", "--store", "store", "--output", asked)
        assert (answer.code, answer.out.splitlines()[-1]) == (0, f"report: {written}")
        assert (tmp_path / written).is_file()
    with pytest.raises(BadInput, match="holds no finished run"):
        write_report(tmp_path / "none")


def test_data_sets_and_tasks_are_not_compared_with_each_other(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three()), (2.0, three())], truth=False)
    add_run(store, [(1.5, three(squares(second=False)))] * 2, data="nuclei", data_digest="a" * 64)
    add_run(store, [(None, three())] * 3, task="segment", truth=False)
    written = write_report(tmp_path)
    assert "1 spec trained in 2 repeats: its repeats differ (not in the masks)" in written.headline
    assert "1 spec segmented in 3 repeats: its repeats are bit-identical" in written.headline
    parsed = Page(written.html.read_text(encoding="utf-8"))
    text = parsed.text
    # One letter and number a result, in all chapters.
    cell = r'class="result ([^"]*)">([^<]*)</b></td><td class="number"[^>]*>(\d+)'
    listed = re.findall(cell, parsed.html)
    assert {(result, cells) for _, result, cells in listed} == {
        ("C 1", "6"), ("C 2", "6"), ("D 3", "5"), ("C", "6"),
    }  # fmt: skip
    assert len({(colour, result[0]) for colour, result, _ in listed}) == 2
    assert "There is no ground truth for these images" in text
    assert not re.search("% of the pixels differ|NaN", text)


def test_runs_that_were_observed_otherwise_are_reported(tmp_path):
    """A ledger is no axis: observing changes no bit."""
    store = Store(tmp_path)
    for ledger in ("steps", "ops"):
        add_run(store, [(1.0, three())], ledger=ledger)
    assert written_page(tmp_path)
    with pytest.raises(BadInput, match="ledger is no axis"):
        measure_spread(store.runs(), axes=["ledger"])


def test_hostile_names_are_text(tmp_path):
    evil = "<b onload='x'>\"&$^_"
    both = [squares(), squares(second=False)]
    for profile, found in (("cpu", both), (evil, both[::-1])):
        masks = dict(zip(("<i>\"quoted'", "细胞 $1"), found, strict=True))
        add_run(Store(tmp_path), [(1.0, masks)] * 2, data=evil, model=evil, profile=profile)
    parsed = written_page(tmp_path)
    assert_self_contained(parsed, beside=tmp_path / "report")
    assert not re.search("<b onload|<i>", parsed.html)
    assert evil in parsed.text
    assert "细胞 $1" in parsed.text


def test_every_machine_is_judged_by_itself(tmp_path):
    """Two of them agree, one found a cell less; their times are never divided by each other."""
    store = Store(tmp_path)
    for name in ("laptop", "a100", "rtx"):
        lost, manifest = name == "rtx", {"machine": some_machine(name, versions={})}
        found = three(squares(second=False)) if lost else three()
        add_run(store, [(1.5 if lost else 1.0, found)] * 3, manifest=manifest)
        if name != "laptop":
            manifest["seconds"] = {"train": 90.0 if lost else 5.0, "segment": 1.0}
            add_run(store, [(1.0, found)], manifest=manifest, mode="fast")
    parsed = written_page(tmp_path)
    told = "a100 3 of 3 equal; laptop 3 of 3 equal; rtx 3 of 3 equal; a100 = laptop ≠ rtx : strict"
    assert told in parsed.text
    assert "a spec counts once on each machine" in parsed.text
    assert "not measured (2 pairs, at least 5 are needed)" in parsed.text
    rows = parsed.file("strict-beside-fast-cells")
    ratios = {row["spec"]: float(row["times as long"]) for row in rows}
    assert ratios == {"a100": 1.0, "rtx": pytest.approx(5 / 90)}


def test_a_network_that_others_start_from_is_no_result(tmp_path):
    """It is farthest from all, found fewest cells, and stands among no results."""
    store = Store(tmp_path)
    base = add_run(store, [(9.0, three(squares(second=False)))] * 2, epochs=12, batch_size=4)
    start = {"model": base.repeats[0].name}
    start["model_digest"] = base.repeats[0].manifest.weights.digest
    for seed in range(3):
        add_run(store, [(1.0 + seed, three(squares(grown=seed)))] * 2, seed=seed, **start)
    parsed = written_page(tmp_path)
    assert "Yes: the repeats of all 3 specs are bit-identical." in parsed.text
    assert "3 specs with 6 repeats, besides 2 repeats of the starting network" in parsed.text
    assert "3 specs: repeats identical" in parsed.text
    assert "Yes: 3 pairs, bit-identical." in parsed.text
    assert "8 repeats, 2 of them of a starting network" in parsed.text
    told = f"Not among these results: the starting network, repeat {base.key[:8]}/0"
    assert told in parsed.text
    names = [row["network"] for row in parsed.file("l2-distance-cells")]
    assert names == ["1: seed 0", "2: seed 1", "3: seed 2"]


def test_a_missing_file_is_named_and_nothing_else_is_written(tmp_path, listing):
    run = add_run(Store(tmp_path), [(1.0, three()), (1.0, three(squares(second=False)))])
    before = listing(tmp_path / "runs")
    write_report(tmp_path)
    assert listing(tmp_path / "runs") == before
    (run.repeats[1].folder / "masks" / "img_a.tif").unlink()
    page = write_report(tmp_path).html.read_text(encoding="utf-8")
    assert "img_a.tif" in page
    assert run.repeats[1].name in page


# -- the five steps ------------------------------------------------------------------------


def cells(*without: int) -> np.ndarray:
    """Sixteen squares of 36 pixels, some of them left out."""
    labels = np.kron(np.arange(1, 17).reshape(4, 4), np.pad(np.ones((6, 6), int), (2, 4)))
    return np.where(np.isin(labels, np.add(without, 1)), 0, labels).astype(np.uint16)


def test_five_steps_with_their_answers(tmp_path):
    """Strict repeats do not differ, fast ones do; a device changes pixels, a seed cells."""
    store, found = Store(tmp_path), {}
    for seed in (2, 1, 0):
        own = (2 * seed, 2 * seed + 1)
        found = {f"img_{i}": cells(*own, *[15 - seed] * (i % 2)) for i in range(6)}
        add_run(store, [(1.0 + seed, found)] * 2, seed=seed, truth=False)
    near = {name: masks.copy() for name, masks in found.items()}
    near["img_0"][8, 26:30] = near["img_0"][7, 26]
    add_run(store, [(1.0, found), (1.1, near)], mode="fast", truth=False)
    cuda = {"profile": "cuda", "profile_settings": {"name": "cuda", "device": "cuda"}}
    add_run(store, [(1.0, near)], truth=False, **cuda, manifest={"device": "cuda:0"})
    spread = measure_spread(Store(tmp_path).runs())
    steps = protocol(spread)
    assert "less than seeds do" in spread.decide("mode").reason  # one fast repeat differs
    assert "less than seeds do" in spread.decide("device").reason
    assert [step.answer.partition(" of the cells")[0] for step in steps] == [
        "No: 1 pair, not bit-identical; every cell has a match.",
        "Yes: 3 pairs, bit-identical.",
        "No: changing the mode left 0 %",
        "No: changing the device left 0 %",
        "Changing the seed leaves 19 %",
    ]
    assert (
        "without a match and changed 0.029 % of the pixels (1 pair); less than" in steps[3].answer
    )
    assert (
        "without a match (12 % to 27 %, 95 % interval over images and seeds). "
        "Less changes between " in steps[4].answer
    )
    assert steps[4].answer.endswith(
        " Of those that differ in the seed, 3 of 3 in mode strict repeat their own results bit "
        "for bit."
    )
    assert {step.outcome for step in steps} == {"answered"}


def test_what_is_missing_is_said(tmp_path):
    """Two seeds, no cell, or an operation left loose are no answers."""
    store = Store(tmp_path)
    add_run(store, [(1.0, {"img": NOTHING})] * 3, mode="fast")
    for seed in range(2):
        found = [(1.0, {"img": cells(seed)}), (1.5, {"img": cells(9)})]
        add_run(store, found, seed=seed, loose="index_put", truth=False)
        add_run(store, found[:1], seed=seed, truth=False)
    steps = protocol(measure_spread(store.runs()))
    assert {steps[i].outcome for i in (0, 1, 4)} == {"no answer yet"}
    assert steps[0].answer == "In 3 pairs one side or both found no cell, which proves nothing."
    assert steps[1].answer == "Nothing was compared."
    assert "Only 2 seeds: not enough to say" in steps[4].answer


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_what_repeats_do_themselves_is_not_laid_to_the_mode(tmp_path, n_seeds):
    store = Store(tmp_path)
    apart = three(squares(second=False))
    add_run(store, [(1.0, three()), (1.5, apart)], mode="fast", truth=False)
    for seed in range(n_seeds):
        masks = three() | dict.fromkeys(["img_b", "img_c"][:seed], squares(second=False))
        add_run(store, [(2.0 + seed, masks)], seed=seed, truth=False)
    third = protocol(measure_spread(store.runs()))[2]
    assert third.question == "Does determinism give different cells, on the same device?"
    assert third.answer.startswith("Perhaps: ")
    assert "but repeats of one spec differ by up to 9.1 % themselves" in third.answer


SILENT = """
[...document.querySelectorAll("main *")]
  .filter((box) => ["auto", "scroll"].includes(getComputedStyle(box).overflowX))
  .filter((box) => box.scrollWidth - box.clientWidth > 8 && !box.dataset.more)
  .filter((box) => !box.closest(".explorer-of-two"))
  .map((box) => box.outerHTML.slice(0, 200))
"""
"""What scrolls sideways without saying so."""


@pytest.mark.browser
def test_it_is_read_offline_and_on_a_phone(page, browser, tmp_path):
    _, written, _ = page
    long = "a-name-without-any-space-" * 6
    for profile in ("cpu", long):
        found = [(1.0, {long[:100]: squares()}), (1.5, {long[:100]: squares(second=False)})]
        add_run(Store(tmp_path), found, data=long, model=long, profile=profile)
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    opened = "(all) => { for (const one of all) one.open = true; }"
    for address in (written.html, write_report(tmp_path).html):
        with browsing(browser, **phone) as shown:
            shown.goto(f"{address.as_uri()}#cost")  # which is folded
            shown.locator("#cost").wait_for()
            shown.eval_on_selector_all("details", opened)
            wait_until_sized(shown)
            assert shown.evaluate("document.documentElement.scrollWidth") == 390
            assert shown.evaluate(SILENT) == []
            assert [r for r in shown.asked[1:] if not r.url.startswith("data:image/png")] == []


def test_receipts_of_others_are_shown_with_who_signed_them(tmp_path, monkeypatch):
    """One signed by a known key, one by nobody; names from outside are text and nothing else."""
    store = Store(tmp_path / "store")
    (repeat,) = add_run(store, [(1.0, three())]).repeats
    assert 'id="receipts"' not in written_page(store.root).html

    passport = passport_of(repeat)
    key = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
    public_key = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    private_key = tmp_path / "key"
    private_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    private_key.with_name("key.pub").write_text(f"{public_key} kyoto\n")
    allowed_signers = tmp_path / "allowed_signers"
    allowed_signers.write_text(f"lab@kyoto.example {public_key}\n")
    monkeypatch.setenv("CELLREPRO_ALLOWED_SIGNERS", str(allowed_signers))
    usual = {
        "passport": passport.digest,
        "run": passport.name,
        "repeat": 0,
        "time": "2026-11-26T12:00:00Z",
        "packages": {"python": "3.11.7"},
        "weights_equal": True,
        "n_images": 3,
    }
    equal = Receipt(
        verdict=Verdict.IDENTICAL, machine="kyoto-00c0ffee", n_equal_outlines=3, **usual
    )
    other = Receipt(
        verdict=Verdict.DIFFERENT,
        machine="laptop-00c0ffee",
        n_equal_outlines=1,
        first_divergence=FirstDivergence(
            stage="forward", step=7, op="aten::mm", module="<b>encoder</b>"
        ),
        environment_differences={"versions.torch": EnvironmentDifference("2.15.0", "2.6.0")},
        **usual,
    )
    signed = Attestation.of(
        receipt_statement(equal, passport), signer=find_signer(private_key.with_name("key.pub"))
    )
    unsigned = Attestation.of(receipt_statement(other, passport))
    keep_attestations(store, repeat.name, [passport.attestation, signed, unsigned])

    page = written_page(store.root)
    assert_self_contained(page, beside=store.root / "report")
    first, second = page.file("receipts")
    assert first["replayed on"] == "kyoto-00c0ffee/0"
    assert first["verdict"] == "identical"
    assert first["signature"].startswith("good signature of lab@kyoto.example (SHA256:")
    assert "good: lab@kyoto.example" in page.text
    assert second["verdict"] == "different"
    assert not second["signature"].startswith("good")
    assert "unsigned" in page.text
    assert second["where they part"] == "forward, step 7, aten::mm, <b>encoder</b>"
    assert second["not the same there"] == "versions, torch"
    assert "2 receipts from 2 machines" in page.text
    assert "<b>encoder" not in page.html


def test_a_damaged_passport_does_not_stop_the_report(tmp_path):
    """The page says which one could not be read."""
    store = Store(tmp_path / "store")
    (repeat,) = add_run(store, [(1.0, three())]).repeats
    kept = keep_attestations(store, repeat.name, [passport_of(repeat).attestation])
    kept.write_text("{")
    page = written_page(store.root)
    assert "1 file of passports and receipts could not be read" in page.text
    assert kept.name in page.text
