"""Tables say what the store holds."""

import re

import numpy as np
import pytest

from cellrepro import show
from cellrepro.comparison.five_steps import open_questions, protocol
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.mask_totals import totals_over
from cellrepro.comparison.seed_spread import measure_spread
from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.store.store import Store
from samebits.call_site import Site
from samebits.heard_warning import HeardWarning
from stores import add_run, planted, squares, three


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return planted(tmp_path_factory.mktemp("store"))


@pytest.fixture
def masks():
    """One image with a cell lost, one grown from 100 to 108 pixels, and an equal one."""
    other = three(squares(second=False), img_b=squares(grown=8))
    return {name: compare_masks(labels, other[name]) for name, labels in three().items()}


def test_a_warning_has_its_place(tmp_path):
    warned = {
        "message": "put_ does not have a deterministic implementation, but. And more.",
        **{"category": "UserWarning", "file": "/home/me/mine.py", "line": 3},
        **{"phase": "train", "count": 4},
    }
    place = Site(op="aten.put_.default", module=None, source="mine.py:3 in f", phase="forward")
    known = HeardWarning(**warned, place=place)
    other = HeardWarning(**warned | {"message": "images are read in a deterministic order"})
    run = add_run(Store(tmp_path), [(1.0, three())], manifest={"warnings": [known, other]})
    listed = show.warning_table(run.repeats)
    assert listed["about determinism"].tolist() == ["yes", "no"]
    assert listed["operation"].tolist() == ["aten.put_.default", "-"]
    assert listed["source line"].tolist() == ["mine.py:3 in f", "-"]


def test_steps_say_what_is_missing(runs):
    spread = measure_spread([runs["identical"], runs["different"], runs["other profile"]])
    # No seeds were compared, and one of the different repeats is not the identical ones.
    for row in spread.rows():
        assert "these runs have one seed only: not enough" in row["compared with other seeds"]
    steps = protocol(spread)
    assert 2 in show.protocol_table(steps).index
    missing = open_questions(steps)
    assert steps[1].question not in missing
    assert "3 seeds" in missing


def test_what_became_of_the_cells(masks):
    listed = show.kind_table(masks)
    assert listed.loc["img_a", ["cells A", "cells B", "kept", "lost"]].tolist() == [2, 1, 1, 1]
    assert listed.loc["all", "pixels that differ"] == "0.35 %"  # 16 + 8 of three times 48 x 48


def test_an_image_may_be_called_as_the_row_over_all(masks):
    listed = show.kind_table({"all": masks["img_a"], "b": masks["img_b"]})
    assert listed.loc["all"].equals(show.kind_table(masks).loc["img_a"])
    assert listed.loc["(all)", "cells A"] == 4


def test_the_sentence_about_masks(masks):
    said = totals_over(masks.values()).sentence(a="the truth", b="B")
    assert said.startswith("6 cells in the truth, 5 in B, over 3 images: 5 kept, 1 lost")

    def sentence(a, b):
        return compare_masks(a, b).sentence()

    assert sentence(squares(), squares()).endswith("same 2 cells, pixel for pixel.")
    assert "nothing can be compared" in sentence(*np.zeros((2, 4, 4), int))


def test_scores_side_by_side(masks):
    listed = show.score_table({"B against A": list(masks.values()), "no truth": []})
    scores = listed["B against A"]
    assert scores["AP at IoU 0.5"] == scores["recall"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    assert (scores["precision"], scores["cells more"]) == (1, -1)
    assert listed["no truth"].isna().all()


def test_distances_of_networks(runs):
    first = runs["identical"].repeats[0].weights
    other = runs["different"].repeats[0].weights
    listed = show.statistics_table({"one": first, "other": other})
    assert listed.loc["other", "file, bytes"] == other.stat().st_size
    by_layer = show.statistics_table({"one": first}, by_layer=True)
    assert by_layer["parameters"].sum() == listed.loc["one", "parameters"]
    pairs = {"equal": compare_weights(first, first), "other": compare_weights(first, other)}
    listed = show.weights_table(pairs)
    assert listed.loc["parameters that differ"].tolist()[:2] == ["0 %", "76 %"]  # 64 of 84
    assert listed.loc["in"].tolist()[:2] == ["–", "encoder.blocks.0.attn.weight"]
    matrix = np.array([[0, 0.25, np.nan], [0.25, 0, 4], [np.nan, 4, 0]])
    html = show.distance_matrix(matrix, ["a", "b", "<i>"]).to_html()
    assert (html.count(">0.25<"), html.count(">–<"), html.count("3: &lt;i&gt;")) == (2, 2, 1)


def test_names_from_outside_are_no_html(masks):
    """A file name can hold a script, and Voila shows tables and sentences without asking."""
    name = "<img src=x onerror=alert(1)>"
    listed = show.kind_table(dict.fromkeys([name, "b"], masks["img_a"]))
    listed[name] = 1
    html = show.readable(listed).to_html()
    assert "<img" not in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") == 2  # as a row and as a column
    assert "<img" not in show.markdown(name).data
    assert "[" not in show.markdown("[b](javascript:alert(1))").data


def test_readable_tables_share_no_styles(masks):
    listed = show.score_table({"B against A": list(masks.values()), "no truth": []})
    html = show.readable(listed).to_html()
    other = show.readable(show.kind_table(masks)).to_html()
    ids = [set(re.findall(r'id="([^"]+)"', page)) for page in (html, other)]
    assert ids[0].isdisjoint(ids[1])  # or a page would style one as the other
    assert "nan" not in html


def test_machine_identity():
    assert {"python", "torch", "cellpose", "processor"} <= set(show.host_table().index)
    assert show.profile_table().loc["cpu", "runs here"] == "yes"
    row = show.switch_table().loc["deterministic_algorithms"]
    assert (row["fast"], row["warn"], row["strict"]) == ("no", "yes", "yes")
