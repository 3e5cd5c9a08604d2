"""The report: its headline, groups, figures and page against planted facts; it trains nothing.

A browser opens it as a reader does: offline, on a phone, in the dark and on paper.
"""

import base64
import csv
import io
import json
import re
import shutil
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from cellrepro.errors import BadInput
from cellrepro.show.figures import style as plots
from cellrepro.show.report import section_weights
from cellrepro.show.report.build import write_report
from cellrepro.show.report.page import table_file
from cellrepro.store.manifest import Manifest, WarningRecord
from cellrepro.store.store import Repeat, Store
from stores import NOTHING, add_run, planted, squares, three

TINY_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c6360000000020001e221bc330000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report over the planted store: runs, what was returned, the text of the page."""
    root = tmp_path_factory.mktemp("planted") / "store"
    runs = planted(root)
    written = write_report(root)
    return runs, written, written.html.read_text(encoding="utf-8")


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made but not drawn, which takes most of the time."""
    monkeypatch.setattr(plots.Picture, "png", lambda self, **_: TINY_PNG)


# -- reading the page ----------------------------------------------------------------------

VOID = {"meta", "img", "br", "hr", "link", "input", "image", "circle", "rect"}
SECTIONS = [
    "worst", "equal", "spread", "protocol", "cells", "weights", "warnings", "cost", "environment",
    "runs", "words",
]  # fmt: skip


class Page(HTMLParser):
    """Collects tags and text, and complains of what is not balanced."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs))
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def figures(html: str) -> list[Page]:
    found = [Page(part) for part in re.findall(r"<figure>(.*?)</figure>", html, re.S)]
    assert len(found) == html.count("<figure")
    return found


def caption_of(figure: str) -> str:
    """Below a drawing, or above a table that is one."""
    (text,) = re.findall(r"<(figcaption|caption)>(.*?)</\1>", figure, re.S)
    return " ".join(Page(text[1]).text.split())


def files(page: Page) -> dict[str, list[dict[str, str]]]:
    """The rows of every CSV file inside a page or a figure, by the name it is saved under."""
    found = {}
    for link in page.all("a"):
        if "download" in link:
            kind, content = (link["href"] or "").split(",", 1)
            assert kind == "data:text/csv;charset=utf-8;base64"
            text = base64.b64decode(content, validate=True).decode("utf-8")
            rows = list(csv.DictReader(io.StringIO(text), strict=True))
            assert rows
            assert all(None not in row and None not in row.values() for row in rows)
            found[link["download"]] = rows
    return found


def assert_self_contained(html: str, *, beside: Path | None = None) -> Page:
    """Nothing is asked for but what is inside; links lead into the page or to files beside it."""
    parsed = Page(html)
    names = {tag for tag, _ in parsed.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in parsed.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "srcset", "data", "action") or (name, tag) == ("href", "image"):
                assert (value or "").startswith("data:image/png;base64,"), (tag, name)
    style = re.search(r"<style>(.*?)</style>", html, re.S)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    ids = {attributes["id"] for _, attributes in parsed.tags if "id" in attributes}
    for link in parsed.all("a"):
        address = link["href"] or ""
        if address.startswith("#"):
            assert address[1:] in ids
        elif "download" in link:
            assert address.startswith("data:text/csv;charset=utf-8;base64,")
        else:
            assert beside is not None, address
            assert address.startswith("../runs/")
            assert (beside / address).exists(), address
    pictures = parsed.all("img")
    assert all(picture.get("alt") for picture in pictures)
    assert all(drawing.get("aria-label") for drawing in parsed.all("svg"))
    return parsed


def places(runs) -> dict[str, str]:
    """``KEY/MACHINE`` of each run."""
    return {name: run.repeats[0].name.removesuffix("/0") for name, run in runs.items()}


# -- planted facts -------------------------------------------------------------------------


def test_no_cell_of_a_csv_file_is_a_formula():
    """Spreadsheets run them when a file is opened, and names of images come from outside."""
    names = ("=cmd|' /C calc'!A0", "+1+1", "-a", "@SUM(A1)", "\t=1", "＝1", "a=1")
    rows = [{"image": name, "=head": -2.5, "text": "-2.5", "none": None} for name in names]
    link = table_file("cells", [*rows, {"image": "last"}])
    text = base64.b64decode(link.href.split(",", 1)[1]).decode("utf-8")
    head, *cells = csv.reader(io.StringIO(text), strict=True)
    assert head == ["image", "'=head", "text", "none"]
    assert [row[0] for row in cells] == [f"'{name}" for name in names[:-1]] + ["a=1", "last"]
    assert cells[0][1:] == ["-2.5", "-2.5", ""]  # numbers stay numbers
    assert cells[-1][1:] == ["", "", ""]


def test_headline(page):
    _, written, html = page
    assert written.sentence == (
        "5 specs were trained twice each: 2 came out bit-identical, 1 found the same objects under "
        "other numbers, 1 came out different (the weights and the masks differ), 1 proves nothing "
        "(no object was found in any of the 3 images); between threads and instruction sets the "
        "masks differ in 1 of 2 comparisons, by up to 2 315 ppm; mean AP@0.5 against the ground "
        "truth is 0.77 (0.00–1.00). 1 repeat failed."
    )
    parsed = Page(html)
    verdict, _, more = written.sentence.partition("; ")
    (headline,) = re.findall(r"<h1[^>]*>(.*?)</h1>", html)
    assert headline.replace("\u00a0", " ") == f"{verdict}."
    assert "Does it matter? Repeating the same spec " in parsed.text
    assert more[:1].upper() + more[1:] in parsed.text


def test_runs_are_plain_and_carry_the_verdicts(page):
    runs, written, _ = page
    assert json.loads(json.dumps(written.runs, allow_nan=False)) == written.runs
    by_key = {entry["key"]: entry for entry in written.runs}
    actual = {
        name: (by_key[run.key]["verdict"], by_key[run.key]["weights"], by_key[run.key]["masks"])
        for name, run in runs.items()
    }
    assert actual == {
        "identical": ("identical", "identical", "identical"),
        "other profile": ("identical", "identical", "identical"),
        "different": ("different", "different", "different"),
        "same objects": ("same-objects", "identical", "same-objects"),
        "vacuous": ("vacuous", "identical", "vacuous"),
    }
    entry = by_key[runs["other profile"].key]
    assert entry["spec"]["profile"] == "cpu-1thread"
    assert entry["repeats"] == [0, 1]
    assert entry["images"] == 3
    assert entry["ap50"] == pytest.approx((0.5 + 1 + 1) / 3)


def test_groups_hold_bit_equal_results(page):
    runs, written, _ = page
    assert json.loads(json.dumps(written.groups)) == written.groups
    key = places(runs)

    def both(name: str) -> set[str]:
        return {f"{key[name]}/0", f"{key[name]}/1"}

    weights = [set(group["members"]) for group in written.groups if "weights" in group]
    assert sorted(weights, key=sorted) == sorted(
        [
            both("identical") | both("vacuous"),
            both("other profile"),
            {f"{key['different']}/0"},
            {f"{key['different']}/1"},
            both("same objects"),
        ],
        key=sorted,
    )
    masks = {tuple(sorted(g["members"])): g["n_objects"] for g in written.groups if "masks" in g}
    right = both("identical") | {f"{key['different']}/0", f"{key['same objects']}/0"}
    assert masks == {
        tuple(sorted(right)): 6,
        tuple(sorted(both("other profile"))): 5,
        (f"{key['different']}/1",): 6,
        (f"{key['same objects']}/1",): 6,
        tuple(sorted(both("vacuous"))): 0,
    }


def test_page_is_self_contained_and_says_everything(page):
    runs, written, html = page
    parsed = assert_self_contained(html, beside=written.html.parent)
    assert [tag["id"] for tag in parsed.all("section")] == SECTIONS
    for said in (
        "On img_a, cpu and cpu-1thread differ in 33 % of the cells: 1 kept and 1 lost.",
        "10 runs of 5 specs came to 5 different networks and 4 different results in cells.",
        "A 1 B 2 ≠ different 2 repeats weights different, masks different",
        "A 4 ≅ same-objects 2 repeats",
        "D 3 ∅ vacuous",
        "× failed 1 repeat failed",
        "no object was found in any of the 3 images : cpu, strict, seed 1",
        "numbered differently between some runs of A; the outlines are equal",
        "memory is <short>",
        "3 of 5 steps have an answer.",
        "No other device was compared. On one device: Yes: changing threads",
        "Between repeats of one spec",
        "3 472 ppm of its pixels differ",  # 8 of 48 x 48
        "Between threads and instruction sets",
        "cpu and cpu-1thread ≠ different 0 of 2 1 of 2 2 315 ppm 9.1 % 0 1 0 0 0 0.17",
        "UserWarning : no deterministic <implementation> torch/nn/functional.py, line 7 8 train",
        "processor Abacus 9",
        "AP@0.5 average precision",
        "10 runs ended in 5 different networks of 84 parameters each",
        runs["identical"].repeats[0].name,
    ):
        assert said in parsed.text, said
    assert "/home/me" not in html
    assert "/elsewhere" not in html


def test_what_differs_in_the_surroundings_is_marked(page):
    _, _, html = page
    assert re.search(r'<th scope="row">threads</th><td class="value">2</td>.*<mark>1</mark>', html)
    assert "deterministic_algorithms" in html


def test_every_run_is_linked(page):
    runs, _, html = page
    linked = {link["href"] for link in Page(html).all("a")}
    for run in runs.values():
        for repeat in run.repeats:
            assert f"../runs/{repeat.name}/manifest.json" in linked


# -- figures and their data ----------------------------------------------------------------


def test_every_figure_says_what_it_shows_and_over_how_much(page):
    _, _, html = page
    parts = re.findall(r"<figure>(.*?)</figure>", html, re.S)
    assert len(parts) > 12
    for part, figure in zip(parts, figures(html), strict=True):
        caption = caption_of(part)
        over = r"\d+ (different )?(runs?|repeats?|comparisons?|networks?|results?|images?|specs?)\b"
        assert re.search(over, caption), caption
        pictures = [one.get("alt") for one in figure.all("img")]
        pictures += [one.get("aria-label") for one in figure.all("svg") + figure.all("table")]
        assert pictures
        assert all(pictures), caption
        assert files(figure), caption


def test_files_hold_as_many_rows_as_the_page_says(page):
    _, _, html = page
    links = re.findall(r'<a download="([^"]+)".*?</a> <span class="soft">\((\d+) row', html)
    found = [(name, len(rows)) for name, rows in files(Page(html)).items()]
    assert set(found) == {(name, int(n)) for name, n in links}
    assert len(found) > 20


def test_files_agree_with_the_page(page):
    runs, written, html = page
    data = files(Page(html))
    text = Page(html).text
    lost = [row for row in data["cells-img_a.csv"] if row["what"] == "lost"]
    assert [(row["y"], row["x"], row["area_a"]) for row in lost] == [("31.5", "31.5", "16")]

    letters = {row["run"]: row["masks"] + row["network"] for row in data["equal-results-cells.csv"]}
    key = places(runs)
    assert [letters[f"{key['different']}/{i}"] for i in (0, 1)] == ["A1", "B2"]
    assert [letters[f"{key['identical']}/{i}"] for i in (0, 1)] == ["A3", "A3"]
    assert [letters[f"{key['vacuous']}/{i}"] for i in (0, 1)] == ["D3", "D3"]

    changed = [
        float(row["cells changed"]) for row in data["spread-cells.csv"] if row["axis"] == "threads"
    ]
    assert sorted(changed) == pytest.approx([0, 1 / 11])  # 1 of 6 + 5 cells
    assert "instruction set moved 4.5 % of the cells (2 pairs, 3 images; 9.1 % for strict)" in text

    scores = [float(row["ap50"]) for row in data["scores-cells.csv"]]
    assert len(scores) == 30
    assert f"is {np.mean(scores):.2f} (0.00–1.00)" in written.sentence

    matrix = data["l2-distance-cells.csv"]
    step = float(np.linalg.norm(np.linspace(-1, 1, 64, dtype=np.float32)))
    expected = np.abs(np.subtract.outer([1.5, 1.75, 1, 2, 1.25], [1.5, 1.75, 1, 2, 1.25])) * step
    actual = [[float(row[str(i)]) for i in range(1, 6)] for row in matrix]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-12)
    assert f"{expected.max():.3g}" in text

    assert {row["status"] for row in data["protocol-cells.csv"]} == {"answered", "not enough runs"}
    assert [row["times"] if "times" in row else row["ratio"] for row in
            data["strict-beside-fast-cells.csv"]] == ["1.0", "1.0"]  # fmt: skip
    assert {row["train"] for row in data["seconds-cells.csv"]} == {"5.0"}
    threads = {row["run"]: row["threads"] for row in data["surroundings.csv"]}
    assert threads[f"{key['other profile']}/0"] == "1"


def test_the_worst_image_is_the_one_whose_cells_change(tmp_path):
    """Eight more pixels of a cell are fewer than a cell of four that is gone, to a biologist."""
    small = squares(second=False)
    small[40:42, 40:42] = 3
    add_run(
        Store(tmp_path),
        [
            (1.0, {"img_a": squares(), "img_b": small}),
            (1.0, {"img_a": squares(grown=8), "img_b": squares(second=False)}),
        ],
        truth=False,
    )
    text = Page(write_report(tmp_path).html.read_text(encoding="utf-8")).text
    assert "On img_b, repeat 0 and repeat 1 differ in 33 % of the cells" in text


# -- stores of other kinds -----------------------------------------------------------------


def test_empty_store(tmp_path):
    with pytest.raises(BadInput, match=r"holds no finished run, .*cellrepro train"):
        write_report(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_only_failures(tmp_path):
    store = Store(tmp_path / "store")
    run = add_run(Store(tmp_path / "other"), [(1.0, three())])
    store.keep_failure(tmp_path, run.spec, machine="abacus", repeat=0, reason="the lamp went out")
    with pytest.raises(BadInput, match="1 repeat failed; the first: the lamp went out"):
        write_report(store)


@pytest.mark.usefixtures("undrawn")
def test_one_run_of_one_repeat(tmp_path):
    add_run(Store(tmp_path), [(1.0, three())])
    written = write_report(tmp_path)
    assert written.sentence == (
        "1 spec was trained once, so it has no second repeat to be compared with; mean AP@0.5 "
        "against the ground truth is 1.00."
    )
    assert written.runs[0]["verdict"] is None
    parsed = assert_self_contained(
        written.html.read_text(encoding="utf-8"), beside=written.html.parent
    )
    assert "A 1 ? no verdict 1 repeat" in parsed.text
    assert "there is nothing to compare it with" in parsed.text
    assert "0 of 5 steps have an answer." in parsed.text
    assert "worst" not in [tag["id"] for tag in parsed.all("section")]
    assert len(files(parsed)) > 5


@pytest.mark.usefixtures("undrawn")
def test_one_vacuous_repeat_says_why(tmp_path):
    add_run(Store(tmp_path), [(1.0, dict.fromkeys(three(), NOTHING))], truth=False)
    assert write_report(tmp_path).sentence == (
        "1 spec was trained once, so it has no second repeat to be compared with (no object was "
        "found in any of the 3 images)."
    )


@pytest.mark.usefixtures("undrawn")
def test_one_run_whose_repeats_differ(tmp_path):
    add_run(Store(tmp_path), [(1.0, three()), (2.0, three()), (1.0, three())], truth=False)
    assert write_report(tmp_path).sentence == (
        "1 spec was trained 3 times: it came out different (the weights differ, the masks are "
        "identical)."
    )


@pytest.mark.usefixtures("undrawn")
def test_only_segmented(tmp_path):
    add_run(Store(tmp_path), [(None, three())] * 3, task="segment", truth=False)
    written = write_report(tmp_path)
    assert written.sentence == "1 spec was segmented 3 times: it came out bit-identical."
    assert not any("weights" in group for group in written.groups)
    parsed = assert_self_contained(
        written.html.read_text(encoding="utf-8"), beside=written.html.parent
    )
    assert "These runs trained nothing, so there are no new weights to compare." in parsed.text
    assert "There is no ground truth for these images" in parsed.text
    assert "1 spec, 3 runs." in parsed.text
    assert "NaN" not in parsed.text
    assert not [name for name in files(parsed) if name.startswith(("l2-", "scores-"))]


@pytest.mark.usefixtures("undrawn")
def test_data_sets_are_not_compared_with_each_other(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 2)
    add_run(store, [(1.5, three(squares(second=False)))] * 2, data="nuclei", data_digest="a" * 64)
    add_run(store, [(None, three())] * 2, task="segment")
    written = write_report(tmp_path)
    assert written.sentence.startswith("cells: 1 spec was trained twice: it came out bit-identical")
    assert "nuclei: 1 spec was trained twice" in written.sentence
    assert "cells: 1 spec was segmented twice" in written.sentence
    parsed = Page(written.html.read_text(encoding="utf-8"))
    assert "nuclei: trained" in parsed.text
    assert "cells: only segmented" in parsed.text
    assert "ppm of its pixels differ" not in parsed.text
    assert (
        parsed.text.count("0 of 5 steps have an answer")
        + parsed.text.count("1 of 5 steps have an answer")
        == 1 + 2 * 2
    )  # once in the open chapter, twice where the steps are folded


@pytest.mark.usefixtures("undrawn")
def test_seeds_are_the_yardstick(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())])
    add_run(store, [(1.1, three(squares(grown=8)))], seed=1)
    add_run(store, [(1.2, three(squares(grown=1)))], mode="fast")
    add_run(store, [(1.3, dict.fromkeys(three(), NOTHING))], seed=2)  # finds nothing: no yardstick
    parsed = Page(write_report(tmp_path).html.read_text(encoding="utf-8"))
    assert (
        "Changing the mode moved 0 % of the cells (1 pair, 3 images); changing the seed moves 0 % "
        "(1 pair of 2 seeds, 3 images); only 2 seeds: not enough to say what is less than that."
    ) in parsed.text
    assert "With only 2 seeds there is no band, only its outline." in parsed.text
    seeds = [row for row in files(parsed)["spread-cells.csv"] if row["axis"] == "seed"]
    (told,) = [row for row in seeds if row["evidence"] == "True"]
    assert (told["a"], told["b"]) == ("seed 0", "seed 1")
    assert float(told["ppm"]) == pytest.approx(1e6 * 8 / (3 * 48 * 48))


def test_images_that_were_not_kept(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three()), (1.5, three(squares(second=False)))])
    shutil.rmtree(tmp_path / "data")
    written = write_report(tmp_path)
    parsed = assert_self_contained(
        written.html.read_text(encoding="utf-8"), beside=written.html.parent
    )
    assert "6 944 ppm of its pixels differ" in parsed.text


@pytest.mark.usefixtures("undrawn")
def test_hostile_names_are_text(tmp_path):
    evil = "<b onload='x'>\"&$^_"
    spoken = WarningRecord(
        message="<script>alert(1)</script>",
        category="UserWarning",
        file="x.py",
        line=1,
        phase="train",
        count=1,
    )
    masks = {"<i>\"quoted'": squares(), "img $x^": squares(second=False)}
    other = {"<i>\"quoted'": squares(second=False), "img $x^": squares()}
    for profile, found in (("cpu", masks), (evil, other)):
        add_run(
            Store(tmp_path),
            [(1.0, found)] * 2,
            data=evil,
            model=evil,
            profile=profile,
            manifest={"warnings": [spoken]},
        )
    written = write_report(tmp_path)
    html = written.html.read_text(encoding="utf-8")
    parsed = assert_self_contained(html, beside=written.html.parent)
    assert "<b onload" not in html
    assert "<i>" not in html
    assert evil in parsed.text
    assert "<script>alert(1)</script>" in parsed.text


def test_names_that_the_font_lacks(tmp_path):
    add_run(Store(tmp_path), [(1.0, {"细胞 $1": squares()})] * 2)
    assert "细胞 $1" in write_report(tmp_path).html.read_text(encoding="utf-8")


# -- several machines, and networks that others were trained from ---------------------------


def machine(label: str, **changes) -> dict:
    versions = {"torch": "2.6"}
    fields = {"identity": label, "device": "Abacus 9", "numeric_class": "0a", "versions": versions}
    return {"machine": {"label": label, **fields, **changes}}


def mirrored(tmp_path, *, names=("laptop", "a100", "rtx")) -> Store:
    """A spec on three machines, three repeats each: two of them agree, one found a cell less."""
    store = Store(tmp_path)
    for name in names:
        lost = name == "rtx"
        found = three(squares(second=False)) if lost else three()
        seconds = {"train": 90.0 if lost else 5.0, "segment": 1.0}
        add_run(store, [(1.5 if lost else 1.0, found)] * 3, manifest=machine(name))
        fast = machine(name) | {"seconds": seconds}
        if name != "laptop":
            add_run(store, [(1.0, found)], manifest=fast, mode="fast")
    return store


@pytest.mark.usefixtures("undrawn")
def test_every_machine_is_judged_by_itself(tmp_path):
    written = write_report(mirrored(tmp_path))
    parsed = Page(written.html.read_text(encoding="utf-8"))
    told = (
        "a100 3 of 3 equal; laptop 3 of 3 equal; rtx 3 of 3 equal; a100 and laptop agree; a100 and "
        "rtx differ : strict"
    )
    assert told in parsed.text
    assert written.sentence.startswith(
        "2 specs were trained 1 to 3 times each, judged machine by machine (5 in all): 3 came out "
        "bit-identical, 2 ran once, so there is nothing to compare; between machines the masks "
        "differ in 3 of 4 comparisons"
    )
    rows = {(row["machine"].partition("-")[0], row["spec"]["mode"]): row for row in written.runs}
    assert len(rows) == len(written.runs) == 5
    for name in ("laptop", "a100", "rtx"):
        assert rows[name, "strict"]["repeats"] == [0, 1, 2]
        assert rows[name, "strict"]["verdict"] == "identical"


@pytest.mark.usefixtures("undrawn")
def test_machines_that_share_some_results_do_not_simply_differ(tmp_path):
    """One came to a result of its own once, and otherwise to that of the other."""
    store = Store(tmp_path)
    for name, weights in {"laptop": (1, 1, 2), "a100": (1, 1, 1), "rtx": (3, 3, 3)}.items():
        add_run(store, [(weight, three()) for weight in weights], manifest=machine(name))
    parsed = Page(write_report(store).html.read_text(encoding="utf-8"))
    told = (
        "a100 3 of 3 equal; laptop 2 of 3 equal; rtx 3 of 3 equal; a100 and laptop agree in part; "
        "a100 and rtx differ; laptop and rtx differ"
    )
    assert told in parsed.text


@pytest.mark.usefixtures("undrawn")
def test_times_of_two_machines_are_never_divided(tmp_path):
    parsed = Page(write_report(mirrored(tmp_path)).html.read_text(encoding="utf-8"))
    rows = files(parsed)["strict-beside-fast-cells.csv"]
    assert {row["name"]: float(row["ratio"]) for row in rows} == {
        "a100": 1.0,
        "rtx": pytest.approx(5 / 90),
    }


@pytest.mark.usefixtures("undrawn")
def test_a_network_that_others_start_from_is_no_result(tmp_path):
    """It is farthest from all, found fewest cells, and stands among no results."""
    store = Store(tmp_path)
    base = add_run(store, [(9.0, three(squares(second=False)))], epochs=12, batch_size=4)
    start = {"model": base.repeats[0].name}
    start["model_digest"] = base.repeats[0].manifest.weights.digest
    for seed in range(3):
        add_run(store, [(1.0 + seed, three(squares(grown=seed)))] * 2, seed=seed, **start)
    written = write_report(store)
    parsed = Page(written.html.read_text(encoding="utf-8"))
    assert written.sentence.startswith("3 specs were trained twice each: all 3 came out bit-ident")
    assert "6 runs of 3 specs came to 3 different networks and 3 different" in parsed.text
    told = f"Not among these results: the starting network, run {base.repeats[0].name} (model tiny"
    assert told in parsed.text
    assert "3 specs were trained from it." in parsed.text
    assert [row["network"] for row in files(parsed)["l2-distance-cells.csv"]] == [
        "1: seed 0", "2: seed 1", "3: seed 2",
    ]  # fmt: skip
    assert "are in all 6 runs" in parsed.text
    assert "by seed 0, repeat 0, AP@0.5" in parsed.text
    assert [row["key"] for row in written.runs if row["start"]] == [base.key]
    assert f"{base.repeats[0].name} starting network" in parsed.text  # in the list of all runs
    assert {row["spec"] for row in files(parsed)["seconds-cells.csv"]} >= {"starting network"}


@pytest.mark.usefixtures("undrawn")
def test_networks_that_were_not_trained_further_are_no_starts(tmp_path):
    """Trained at a learning rate of 0, each ends as it began: as what the others start from."""
    store = Store(tmp_path)
    base = add_run(store, [(1.0, three())], epochs=12)
    start = {"model_digest": base.repeats[0].manifest.weights.digest}
    for seed in range(3):
        add_run(store, [(1.0, three())] * 2, seed=seed, **start)
    assert write_report(store).sentence.startswith("3 specs were trained twice each")


def test_same_objects_are_not_called_identical(tmp_path):
    from cellrepro.compare.seed_spread import measure
    from cellrepro.show.report.section_spread import _row

    store = Store(tmp_path)
    add_run(store, [(1.0, three()), (1.0, three(squares(numbers=(2, 1))))])
    spread = measure(store.runs())
    (axis,) = spread.axes
    assert _row(spread, axis)["verdict"] == "same-objects"


@pytest.mark.usefixtures("undrawn")
def test_sentence_and_table_leave_out_the_same_pairs(tmp_path):
    """Networks that were never trained prove nothing, though their cells differ."""
    store = Store(tmp_path)
    for mode, found in (("strict", three()), ("fast", three(squares(second=False)))):
        run = add_run(store, [(1.0, found)], mode=mode)
        path = run.repeats[0].folder / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["weights"]["n_changed"] = 0
        path.chmod(0o644)
        path.write_text(json.dumps(manifest))
    text = Page(write_report(store).html.read_text(encoding="utf-8")).text
    assert "1 found no objects or trained nothing, and prove nothing." in text
    assert "fast and strict ∅ vacuous" in text
    assert "fast strict = identical ∅ vacuous" in text
    assert "masks differ in" not in text


def test_how_many_runs_is_said_of_every_image(tmp_path, monkeypatch):
    from cellrepro.show.report import findings, section_cells

    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 2)
    lost = squares(second=False)
    add_run(store, [(1.5, {"img_a": lost}), (1.5, {"img_a": lost, "img_b": lost})], seed=1)
    (chapter,) = findings.find(store).chapters
    said = section_cells.agreement_view(chapter)["sentence"]
    assert said.startswith("2 of 4 cells (50 %) are in all runs that segmented their image (3 to 4")
    assert "further" not in said
    monkeypatch.setattr(section_cells, "_MOST_PIXELS", 1)
    said = section_cells.agreement_view(chapter)["sentence"]
    assert "are in all 4 runs, over 1 image on which runs differ. 1 further image" in said


# -- files ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_only_the_report_is_written(tmp_path):
    add_run(Store(tmp_path), [(1.0, three())] * 2)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    first = write_report(tmp_path)
    second = write_report(Store(tmp_path))
    assert first.html == second.html == tmp_path / "report" / "index.html"
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert after.pop(first.html)
    assert after == before


@pytest.mark.usefixtures("undrawn")
def test_another_place(tmp_path):
    add_run(Store(tmp_path / "store"), [(1.0, three())])
    target = tmp_path / "deep" / "page.html"
    assert write_report(tmp_path / "store", html=target).html == target
    assert not (tmp_path / "store" / "report").exists()
    html = target.read_text(encoding="utf-8")
    assert_self_contained(html)
    assert str(tmp_path) not in html  # nor where the store is
    assert "lies outside of its store" in Page(html).text


@pytest.mark.usefixtures("undrawn")
def test_a_place_that_cannot_be_written(tmp_path):
    add_run(Store(tmp_path / "store"), [(1.0, three())])
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(BadInput, match="cannot be written"):
        write_report(tmp_path / "store", html=tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "store"]


@pytest.mark.usefixtures("undrawn")
def test_missing_masks_are_named_and_the_old_page_stays(tmp_path):
    run = add_run(Store(tmp_path), [(1.0, three()), (1.0, three(squares(second=False)))])
    old = write_report(tmp_path).html.read_bytes()
    (run.repeats[1].folder / "masks" / "img_a.tif").unlink()
    with pytest.raises(BadInput, match=r"masks .*img_a\.tif cannot be read"):
        write_report(tmp_path)
    assert (tmp_path / "report" / "index.html").read_bytes() == old


# -- limits --------------------------------------------------------------------------------


def test_large_networks_are_compared_in_small_numbers():
    repeats = [Repeat(Path("nowhere")) for _ in range(30)]
    for i, repeat in enumerate(repeats):
        key = f"{i // 2:016d}"
        repeat.__dict__["manifest"] = Manifest.model_construct(key=key)
    groups = {f"digest {i}": [repeat] for i, repeat in enumerate(repeats)}
    chosen = section_weights._chosen_networks(groups, 84)
    assert len(chosen) == 12
    assert set(chosen) <= {f"digest {i}" for i in range(0, 30, 2)}  # one of each spec first
    few = section_weights._chosen_networks(groups, 300_000_000)
    assert few == ["digest 0", "digest 14", "digest 28"]  # from the first spec to the last


def test_every_word_of_the_verdicts_has_a_sign_and_a_colour():
    assert plots.VERDICT_SIGNS.keys() == plots.VERDICT_COLOURS.keys()
    assert len(set(plots.VERDICT_SIGNS.values())) == len(plots.VERDICT_SIGNS)


# -- in a browser --------------------------------------------------------------------------

LONG = "a-name-without-any-space-" * 6

# Every text that a reader sees: its contrast to what lies behind it, as WCAG 2.2 counts it.
CONTRASTS = """() => {
  const parse = text => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return {r, g, b, a};
  };
  const light = ({r, g, b}) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.a === 1) return colour;
      if (colour.a > 0) throw new Error("half transparent: " + at.outerHTML.slice(0, 80));
    }
    throw new Error("nothing behind");
  };
  const found = [];
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const node of document.querySelectorAll("body *:not(svg *):not(.skip)")) {
    const said = [...node.childNodes].filter(c => c.nodeType === 3 && c.data.trim());
    if (!said.length || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const [low, high] = [light(parse(style.color)), light(behind(node))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    found.push({
      ratio: (high + 0.05) / (low + 0.05),
      least: size >= 24 || (bold && size >= 18.66) ? 3 : 4.5,
      text: said[0].data.trim().slice(0, 60),
    });
  }
  return found;
}"""


@pytest.fixture
def opened(browser, page):
    """Opens the planted report, or another, and keeps what was asked for on the way."""
    contexts = []

    def open_page(html=None, **settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        shown = context.new_page()
        shown.asked, shown.errors = [], []
        shown.on("request", lambda request: shown.asked.append(request.url))
        shown.on("pageerror", lambda error: shown.errors.append(str(error)))
        shown.on("console", lambda message: shown.errors.append(message.text))
        shown.goto((html or page[1].html).as_uri())
        return shown

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.browser
def test_nothing_is_asked_for(opened, page):
    shown = opened()
    address = page[1].html.as_uri()
    assert shown.asked[0] == address
    assert [asked for asked in shown.asked[1:] if not asked.startswith("data:image/png")] == []
    assert shown.errors == []
    broken = "images => images.filter(i => !i.naturalWidth).length"
    assert shown.eval_on_selector_all("img", broken) == 0
    assert shown.eval_on_selector_all("img", "images => images.length") > 12


@pytest.mark.browser
def test_a_file_is_saved_as_its_rows(opened, page, tmp_path):
    shown = opened()
    with shown.expect_download() as saving:
        shown.get_by_role("link", name="Every run with its letter, number and settings").click()
    assert saving.value.suggested_filename == "equal-results-cells.csv"
    saving.value.save_as(tmp_path / "saved.csv")
    with (tmp_path / "saved.csv").open(encoding="utf-8", newline="") as saved:
        rows = list(csv.DictReader(saved))
    assert rows == files(Page(page[2]))["equal-results-cells.csv"]


@pytest.mark.browser
def test_the_first_screen_answers(opened, page):
    shown = opened(viewport={"width": 1280, "height": 800})
    box = shown.locator("h1").bounding_box()
    assert box["y"] + box["height"] < 400
    assert shown.locator("#worst figure").bounding_box()["y"] < 800


@pytest.fixture(scope="module")
def long_names(tmp_path_factory):
    """A report in which every name is longer than a phone is wide."""
    root = tmp_path_factory.mktemp("long")
    masks = [{LONG[:100]: squares()}, {LONG[:100]: squares(second=False)}]
    for profile in ("cpu", LONG):
        add_run(
            Store(root), [(1.0, masks[0]), (1.5, masks[1])], data=LONG, model=LONG, profile=profile
        )
    return write_report(root).html


@pytest.mark.browser
@pytest.mark.parametrize("names", ["short", "long"])
def test_a_phone_never_scrolls_sideways(opened, names, long_names):
    shown = opened(
        long_names if names == "long" else None,
        viewport={"width": 390, "height": 844},
        is_mobile=True,
        has_touch=True,
    )
    for fold in (False, True):
        shown.eval_on_selector_all(
            "details", "(all, open) => { for (const one of all) one.open = open; }", fold
        )
        assert shown.evaluate("document.documentElement.scrollWidth") == 390
    # Drawings are not shrunk until their letters cannot be read: they scroll in their own box.
    drawing = shown.locator(".drawing img").first
    assert drawing.bounding_box()["width"] > 500


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(opened, scheme):
    shown = opened(color_scheme=scheme)
    paper = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (scheme == "light")
    found = shown.evaluate(CONTRASTS)
    assert len(found) > 300
    assert [one for one in found if one["ratio"] < one["least"]] == []


def told_by_pdf(content: bytes) -> bytes:
    """What a PDF file holds, unpacked."""
    parts = [content]
    for found in re.finditer(rb"stream\r?\n", content):
        try:
            parts.append(zlib.decompressobj().decompress(content[found.end() :]))
        except zlib.error:  # another packing: a picture
            continue
    return b"\n".join(parts)


@pytest.mark.browser
def test_every_section_is_printed(opened, page):
    shown = opened()
    shown.emulate_media(media="print")
    hidden = """all => all.filter(one => !one.checkVisibility({contentVisibilityAuto: true})
        || !one.getBoundingClientRect().height).map(one => one.outerHTML.slice(0, 60))"""
    assert shown.eval_on_selector_all("details table, details figure, dl", hidden) == []
    content = shown.pdf(format="A4", outline=True, tagged=True)
    unpacked = told_by_pdf(content)
    titles = re.findall(r"<h2>(.*?)</h2>", page[2])
    assert len(titles) == len(SECTIONS)
    for title in titles:
        written = [title.encode("ascii", "ignore"), title.encode("utf-16-be").hex().encode()]
        assert any(one in unpacked or one.upper() in unpacked for one in written), title
    # Nothing is wider than the paper: A4 without its margins, at 96 pixels per inch.
    n_pages = len(re.findall(rb"/Type\s*/Page\b", unpacked))
    assert 3 < n_pages < 40
