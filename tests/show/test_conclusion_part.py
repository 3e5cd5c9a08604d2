"""Conclusions where users meet them: the command, its JSON and page, many runs, the report."""

import itertools
import json
import re
from functools import partial
from html import unescape

import numpy as np
import pytest
import tifffile

import cellrepro
from cellrepro import show
from cellrepro.cli import run
from cellrepro.conclusions.conclusion import conclusion_lines
from cellrepro.show.pages.conclusion_part import conclusion_part
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run

BRIGHT = 200


def row_of(n_cells):
    """A label image of cells that are 6 pixels wide."""
    labels = np.zeros((16, 160), np.uint16)
    for number in range(n_cells):
        labels[4:10, 8 * number : 8 * number + 6] = number + 1
    return labels


MASKS = {
    f"{group}_{index}": row_of(n + index)
    for group, n in (("<b>drug</b>", 12), ("ctrl", 5))
    for index in range(5)
}
NAMES = {name: name.replace("<b>drug</b>", "drug") for name in MASKS}
"""Of the files; a group may be called what no file can."""
FEWER = {name: np.where(labels > 7, 0, labels) for name, labels in MASKS.items()}


@pytest.fixture
def folders(tmp_path):
    """Masks of A, of B without the cells that the drug brings, images, and the groups."""
    lines = ["image,group"]
    for folder in ("a", "b", "images"):
        (tmp_path / folder).mkdir()
    for name, file in NAMES.items():
        tifffile.imwrite(tmp_path / "a" / f"{file}_masks.tif", MASKS[name])
        tifffile.imwrite(tmp_path / "b" / f"{file}_masks.tif", FEWER[name])
        image = np.stack([BRIGHT * (MASKS[name] > 0), MASKS[name]]).astype(np.uint8)
        tifffile.imwrite(tmp_path / "images" / f"{file}.tif", image, metadata={"axes": "CYX"})
        lines.append(f"{file}.tif,{name.partition('_')[0]}")
    (tmp_path / "groups.csv").write_text("\n".join(lines))
    return tmp_path


def test_the_command_says_whether_it_stands(folders, capsys, monkeypatch):
    monkeypatch.chdir(folders)
    command = ["compare", "a", "b", "--groups", "groups.csv", "--image", "images"]
    readouts = ["--readout", "count,mean_intensity,mean_intensity:1"]
    assert run([*command, *readouts, "--html", "page.html"]) == 1
    said = capsys.readouterr().out
    assert "the conclusion changes for count and mean_intensity:1; " in said
    assert re.search(r"\n +count \(cells\) +changes +\+7\.00 \(", said), said
    assert "ctrl is taken for the control group, by its name" in said

    page = (folders / "page.html").read_text()
    section = page[page.index('<section id="conclusion">') :].partition("</section>")[0]
    assert "<b>drug</b>" not in section
    assert "Under A it is higher in <b>drug</b> than in ctrl" in unescape(section)
    means = "Mean: ctrl 7.0 under A, 6.4 under B; <b>drug</b> 14.0 under A, 7.0 under B."
    assert means in unescape(section)
    assert "+7.00" in section
    axes = re.findall(r"<svg.*?</svg>", section, flags=re.DOTALL)
    assert len(axes) == 3
    assert all('class="effect-difference"' in axis and 'class="margin"' in axis for axis in axes)
    assert all(len(re.findall(r'class="tick"', axis)) >= 2 for axis in axes)
    badges = re.findall(r'class="word word-(\w+)"><b>.</b> (.*?)</span>', section)
    assert ("changes", "changes") in badges
    assert "undecidable" not in [said for _, said in badges]

    assert run([*command, *readouts, "--json"]) == 1
    count, bright, _ = json.loads(capsys.readouterr().out)["conclusions"]
    assert (count["readout"], count["word"], count["a"]["effect"]) == ("count", "changes", 7)
    assert count["difference"]["high"] < -4
    assert (bright["word"], bright["a"]["control"]) == ("stands", BRIGHT)


def test_an_effect_that_grows_less_is_said_with_its_unit_and_margin():
    """Where both sides show it, the word alone reads as if nothing had changed."""
    sizes = {"ctrl": (5, 5), "drug": (15, 8)}
    a, b = (
        {f"{g}_{i}": row_of(n[side]) for g, n in sizes.items() for i in range(4)} for side in (0, 1)
    )
    of_both = {name: name.partition("_")[0] for name in a}
    concluded = cellrepro.conclusion(a, b, groups=of_both, readouts="count").conclusions
    reason = "the effect is 7 cells smaller under B, more than the margin of 0.5"
    part = conclusion_part(concluded)
    assert part is not None
    for text in (
        concluded[0].sentence(),
        concluded[0].reading,
        "\n".join(conclusion_lines(concluded)),
    ):
        assert reason in text
    assert "0.500" not in concluded[0].reading
    assert not part.has_intervals
    assert concluded[0].rows()[0]["B minus A"] == "\N{MINUS SIGN}7.00 (no spread)"


def test_an_estimate_that_moves_is_no_other_answer():
    """Without an effect on either side a reader concludes the same; only the estimate differs."""
    sizes = {"ctrl": ((9, 2, 5, 12), 0), "drug": ((3, 11, 8, 6), 4)}
    a = {f"{g}_{i}": row_of(n) for g, (counts, _) in sizes.items() for i, n in enumerate(counts)}
    b = {
        f"{g}_{i}": row_of(n + more)
        for g, (counts, more) in sizes.items()
        for i, n in enumerate(counts)
    }
    of_both = {name: name.partition("_")[0] for name in a}
    concluded = cellrepro.conclusion(a, b, groups=of_both, readouts="count").conclusions
    part = conclusion_part(concluded)
    assert part is not None
    (shown,) = part.shown
    assert concluded[0].word == "changes"
    assert "conclusion changes" not in part.headline
    assert "no effect is shown under either" in part.headline
    assert shown.word != "changes"
    assert "margin" in shown.conclusion.rule
    assert shown.difference.point > shown.margin[1] > shown.zero > shown.margin[0]


def test_outlines_under_other_names_are_measured_in_the_size_of_the_masks(folders, capsys):
    """They have no size of their own, in which a share of the image would be another."""
    outlines = folders / "outlines"
    outlines.mkdir()
    for name, file in NAMES.items():
        lines = []
        for number in range(1, MASKS[name].max() + 1):
            y, x = np.nonzero(MASKS[name] == number)
            left, right, top, bottom = x.min(), x.max(), y.min(), y.max()
            around = [(left, top), (left, bottom), (right, bottom), (right, top)]
            corners = [*around, around[0]]
            points = [
                (a + k * np.sign(c - a), b + k * np.sign(d - b))
                for (a, b), (c, d) in itertools.pairwise(corners)
                for k in range(max(abs(c - a), abs(d - b)))
            ]
            lines.append(",".join(f"{a},{b}" for a, b in points))
        (outlines / f"roi {file}_cp_outlines.txt").write_text("\n".join(lines))
    asked = ["--groups", folders / "groups.csv", "--readout", "area_fraction,count", "--json"]
    for file in NAMES.values():  # so that names alone would not pair them
        (folders / "a" / f"{file}_masks.tif").rename(folders / "a" / f"{file}.tif")
    pairs = ["--pairs", "{image}.tif=roi {image}_cp_outlines.txt"]
    assert run(["compare", *map(str, [folders / "a", outlines, *asked, *pairs])]) == 0
    for conclusion in json.loads(capsys.readouterr().out)["conclusions"]:
        assert conclusion["word"] == "stands"
        assert conclusion["a"]["treated"] == conclusion["b"]["treated"] > 0


def test_no_image_is_needed_to_count(folders, capsys, monkeypatch):
    monkeypatch.chdir(folders)
    assert run(["compare", "a", "a", "--groups", "groups.csv", "--control", "ctrl"]) == 0
    assert "the conclusion stands for count and area" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--readout", "count"], "--readout would do nothing without --groups"),
        (["--groups", "groups.csv", "--readout", "volume"], "expected one of count"),
        (["--groups", "groups.csv", "--readout", "total_intensity"], "give their folder"),
        (["--groups", "none.csv"], "no such file"),
        (["--groups", "groups.csv", "--margin", "-1"], "share of the control's mean"),
        (["--groups", "groups.csv", "--image", "a"], "holds no image"),
    ],
)
def test_the_command_refuses(folders, capsys, monkeypatch, words, said):
    monkeypatch.chdir(folders)
    (folders / "a" / "drug_0.tif").write_bytes((folders / "images" / "drug_0.tif").read_bytes())
    words = [*words, "--readout", "mean_intensity"] if "--image" in words else words
    assert run(["compare", "a", "b", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


GROUPS = {file: name.partition("_")[0] for name, file in NAMES.items()}


@pytest.fixture
def seeds(tmp_path):
    """A store with the runs of three seeds, the last without the cells that the drug brings."""
    store = Store(tmp_path / "store")
    for seed, masks in enumerate((MASKS, MASKS, FEWER)):
        named = {NAMES[name]: labels for name, labels in masks.items()}
        add_run(store, [(float(seed), named)], truth=False, seed=seed)
    return store


def test_over_the_runs_of_a_store(seeds):
    """The reference is the first, the share that of the rest."""
    concluded = cellrepro.conclusion_over_runs(groups=GROUPS, store=seeds.root, readouts="count")
    assert concluded.reference == "seed 0"
    assert [(one.run, one.conclusions[0].word) for one in concluded.runs] == [
        ("seed 1", "stands"),
        ("seed 2", "changes"),
    ]
    (share,) = concluded.stands
    assert (share.n_runs, share.share) == (1, 0.5)
    assert "of 2 other results, the conclusion of seed 0 stands for count in 1" in str(concluded)
    picture = show.effects_of_runs(concluded)
    assert len(picture.axes) == 1
    assert len(picture.axes[0].get_lines()) == 1 + 2 * 3
    two = cellrepro.conclusion(
        *(run.repeats[0].name for run in seeds.runs()[:2]), groups=GROUPS, store=seeds.root
    )
    assert two.conclusions


@pytest.mark.slow
def test_the_report_says_in_how_many_runs(seeds):
    table = seeds.root / "groups.csv"
    table.write_text("image,group\n" + "\n".join(f"{n},{g}" for n, g in GROUPS.items()))
    report = cellrepro.write_report(seeds, groups=table, readout="count")
    page = unescape(report.html.read_text(encoding="utf-8"))
    assert "the conclusion of seed 0 stands for count in 1" in page
    table.write_text("image,group\nother,a\n")
    with pytest.raises(BadInput, match="no row is of an image with masks"):
        cellrepro.write_report(seeds, groups=table)


def test_over_results_of_ones_own():
    """By name, with a reference that is chosen; one alone is refused."""
    results = {"small cells": MASKS, "none": FEWER}
    over = partial(
        cellrepro.conclusion_over_runs,
        groups={name: name.partition("_")[0] for name in MASKS},
        readouts="count",
    )
    concluded = over(results, reference="none")
    assert (concluded.reference, concluded.runs[0].run) == ("none", "small cells")
    with pytest.raises(BadInput, match="there is 1 run; expected two"):
        over({"none": FEWER})
    with pytest.raises(BadInput, match="the reference is 'other'"):
        over(results, reference="other")
