"""The report: its headline, groups and page against planted facts; it trains nothing."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cellrepro.errors import BadInput
from cellrepro.record.manifest import Manifest, WarningRecord
from cellrepro.record.store import Repeat, Store
from cellrepro.show import plots, report
from cellrepro.show.report import write_report
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

VOID = {"meta", "img", "br", "hr", "link", "input"}


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


def assert_self_contained(html: str) -> Page:
    parsed = Page(html)
    names = {tag for tag, _ in parsed.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in parsed.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "data", "action"):
                assert (value or "").startswith(("#", "data:image/png;base64,")), (tag, name)
    style = re.search(r"<style>(.*?)</style>", html, re.S)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    ids = {attributes["id"] for _, attributes in parsed.tags if "id" in attributes}
    assert {(a["href"] or "")[1:] for a in parsed.all("a")} <= ids
    assert parsed.all("img")
    assert all(image.get("alt") for image in parsed.all("img"))
    return parsed


# -- planted facts -------------------------------------------------------------------------


def test_headline(page):
    _, written, html = page
    assert written.sentence == (
        "5 specs were trained twice each: 2 came out bit-identical, 1 found the same objects under "
        "other numbers, 1 came out different (the weights and the masks differ), 1 proves nothing "
        "(no object was found in any of the 3 images); between the 2 profiles the masks differ in "
        "1 of 2 comparisons, by up to 2 315 ppm; mean AP@0.5 against the ground truth is 0.77 "
        "(0.00–1.00). 1 repeat failed."
    )
    assert written.sentence in html


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
    key = {name: run.key for name, run in runs.items()}

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
    _, _, html = page
    parsed = assert_self_contained(html)
    for said in (
        "≠ different 2 repeats, 3 images weights different, masks different",
        "≅ same-objects 2 repeats, 3 images",
        "∅ vacuous",
        "× failed 1 repeat failed",
        "no object was found in any of the 3 images : cpu, strict, seed 1",
        "memory is <short>",
        "Between repeats of one spec",
        "3 472 ppm of its pixels differ",  # 8 of 48 x 48
        "Between profiles",
        "with up to 1 object lost and 0 gained",
        "UserWarning : no deterministic <implementation> torch/nn/functional.py, line 7 8 train",
        "processor Abacus 9",
        "AP@0.5 average precision",
        "10 repeats ended in 5 different networks of 84 parameters each",
    ):
        assert said in parsed.text, said
    assert "/home/me" not in html
    assert "/elsewhere" not in html


def test_what_differs_in_the_surroundings_is_marked(page):
    _, _, html = page
    assert re.search(r'<th scope="row">threads</th><td class="value">2</td>.*<mark>1</mark>', html)
    assert "deterministic_algorithms" in html


def test_captions_count_images_and_repeats(page):
    _, _, html = page
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html, re.S)
    assert len(captions) == html.count("<figure>")
    assert "AP@0.5 of 10 repeats of 5 specs, each the mean over 3 images with ground truth." in (
        captions
    )


# -- stores of other kinds -----------------------------------------------------------------


def test_empty_store(tmp_path):
    with pytest.raises(BadInput, match=r"holds no finished run, .*cellrepro train"):
        write_report(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_only_failures(tmp_path):
    store = Store(tmp_path / "store")
    run = add_run(Store(tmp_path / "other"), [(1.0, three())])
    store.keep_failure(tmp_path, run.spec, repeat=0, reason="the lamp went out")
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
    parsed = assert_self_contained(written.html.read_text(encoding="utf-8"))
    assert "? no verdict 1 repeat, 3 images" in parsed.text
    assert "there is nothing to compare it with" in parsed.text


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
    parsed = assert_self_contained(written.html.read_text(encoding="utf-8"))
    assert "so there are no new weights to compare" in parsed.text
    assert "There is no ground truth for these images" in parsed.text
    assert "Seconds to segment each of 3 images, in 3 repeats." in parsed.text


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


@pytest.mark.usefixtures("undrawn")
def test_seeds_are_the_yardstick(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, three())])
    add_run(store, [(1.1, three(squares(grown=8)))], seed=1)
    add_run(store, [(1.2, three(squares(grown=1)))], mode="fast")
    add_run(store, [(1.3, dict.fromkeys(three(), NOTHING))], seed=2)  # finds nothing: no yardstick
    parsed = Page(write_report(tmp_path).html.read_text(encoding="utf-8"))
    assert (
        "Another seed changes up to 1 157 ppm of the pixels; another mode 145 ppm." in parsed.text
    )


def test_images_that_were_not_kept(tmp_path):
    import shutil

    store = Store(tmp_path)
    add_run(store, [(1.0, three()), (1.5, three(squares(second=False)))])
    shutil.rmtree(tmp_path / "data")
    parsed = assert_self_contained(write_report(tmp_path).html.read_text(encoding="utf-8"))
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
    html = write_report(tmp_path).html.read_text(encoding="utf-8")
    parsed = assert_self_contained(html)
    assert "<b " not in html
    assert "<i>" not in html
    assert evil in parsed.text
    assert "<script>alert(1)</script>" in parsed.text


def test_names_that_the_font_lacks(tmp_path):
    add_run(Store(tmp_path), [(1.0, {"细胞 $1": squares()})] * 2)
    assert "细胞 $1" in write_report(tmp_path).html.read_text(encoding="utf-8")


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
    assert len(report._chosen_networks(groups, 84)) == 24
    chosen = report._chosen_networks(groups, 300_000_000)
    assert len(chosen) == 3
    assert chosen == ["digest 0", "digest 2", "digest 4"]  # one of each spec first


def test_every_word_of_the_verdicts_has_a_sign_and_a_colour():
    assert plots.VERDICT_SIGNS.keys() == plots.VERDICT_COLOURS.keys()
    assert len(set(plots.VERDICT_SIGNS.values())) == len(plots.VERDICT_SIGNS)
