"""Tables say what the store holds."""

import re

import numpy as np
import pytest

from cellrepro.compare import agree, compare_masks, compare_weights
from cellrepro.compare.seed_spread import measure
from cellrepro.determinism import profiles
from cellrepro.show import tables
from cellrepro.show.report.protocol import protocol
from cellrepro.store.manifest import Place, WarningRecord
from cellrepro.store.store import Store
from cellrepro.trace.torch_warnings import about_determinism
from stores import TRUTH, add_run, planted, squares, three


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return planted(tmp_path_factory.mktemp("store"))


def test_repeats_that_differ_have_other_digests(runs):
    same = tables.repeat_table(runs["identical"].repeats)
    assert same["masks"].nunique() == same["weights"].nunique() == 1
    other = tables.repeat_table(runs["different"].repeats)
    assert other["masks"].nunique() == 2


def test_equal_results_share_a_row(tmp_path):
    """Same weights and masks: one row; same masks of other weights: one number, two rows."""
    store = Store(tmp_path)
    missing = three(squares(second=False))
    runs = [
        add_run(store, [(1.0, three())] * 2),
        add_run(store, [(1.0, three())], profile="cpu-1thread"),
        add_run(store, [(2.0, three())], seed=1),
        add_run(store, [(2.0, missing)], seed=2),
    ]
    listed = tables.result_table(runs)
    assert listed["repeats"].tolist() == [3, 1, 1]
    assert listed.index.tolist() == ["#1", "#2", "#2"]
    assert listed["masks"].tolist() == ["#1", "#1", "#2"]
    assert listed["cells"].tolist() == [6, 6, 5]
    assert "(2×)" in listed["asked for"].iloc[0]
    assert "cpu-1thread" in listed["asked for"].iloc[0]


def test_results_without_weights_have_a_dash(tmp_path):
    run = add_run(Store(tmp_path), [(None, three())], task="segment")
    assert tables.result_table([run]).index.tolist() == ["–"]


def test_warnings_are_told_apart(runs):
    repeats = [repeat for run in runs.values() for repeat in run.repeats]
    listed = tables.warning_table(repeats)
    assert (listed["about determinism"] == "no").all()  # no words of PyTorch for an alert
    assert listed["raised at"].str.contains("functional.py:7").all()
    assert (listed["operation"] == "-").all()  # only mode warn watches operations
    assert tables.warning_table(runs["identical"].repeats[:0]).columns.equals(listed.columns)


def test_a_warning_has_its_place(tmp_path):
    place = Place(op="aten.put_.default", module=None, source="mine.py:3 in f", phase="forward")
    warned = WarningRecord(
        message="put_ does not have a deterministic implementation, but. And more.",
        category="UserWarning",
        file="/home/me/mine.py",
        line=3,
        phase="train",
        count=4,
        place=place,
    )
    run = add_run(Store(tmp_path), [(1.0, three())], mode="warn", manifest={"warnings": [warned]})
    row = tables.warning_table(run.repeats).iloc[0]
    assert (row["operation"], row["pass"], row["module"]) == ("aten.put_.default", "forward", "-")
    assert (row["source line"], row["times"], row["phase"]) == ("mine.py:3 in f", 4, "train")
    assert row["message"].endswith("implementation, but")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Memory Efficient attention defaults to a non-deterministic algorithm", True),
        ("this operation is not deterministic because it uses CuBLAS and you have CUDA", True),
        ("Sparse invariant checks are implicitly disabled", False),
        ("images are read in a deterministic order", False),
    ],
)
def test_the_table_and_the_report_agree_on_what_is_about_determinism(tmp_path, message, expected):
    """One list once counted words, another alerts, and they told a reader different things."""
    record = WarningRecord(
        message=message, category="UserWarning", file="a.py", line=1, phase="train", count=1
    )
    run = add_run(Store(tmp_path), [(1.0, three())], manifest={"warnings": [record]})
    assert (tables.warning_table(run.repeats).iloc[0]["about determinism"] == "yes") is expected
    assert bool(about_determinism([record])) is expected


@pytest.fixture
def masks():
    """One image with a cell lost, one grown from 100 to 108 pixels, and an equal one."""
    other = three(squares(second=False), img_b=squares(grown=8))
    return {name: compare_masks(labels, other[name]) for name, labels in three().items()}


def test_one_pixel_of_many_is_never_0_ppm():
    a, b = np.ones((1500, 1500), np.uint8), np.ones((1500, 1500), np.uint8)
    b[0, 0] = 0
    listed = tables.kind_table({"x": compare_masks(a, b)})
    assert listed.loc["x", "ppm"] == "0.44"


def test_what_became_of_the_cells(masks):
    listed = tables.kind_table(masks)
    assert listed.loc["img_a", ["cells A", "cells B", "kept", "lost"]].tolist() == [2, 1, 1, 1]
    assert listed.loc["all", ["cells A", "cells B", "kept", "lost"]].tolist() == [6, 5, 5, 1]
    assert listed.loc["all", "ppm"] == "3 472"  # 16 + 8 of three times 48 x 48
    assert "all" not in tables.kind_table({"img_a": masks["img_a"]}).index


def test_changed_cells_with_positions(masks):
    listed = tables.change_table(masks)
    assert listed.index.tolist() == ["img_a"]  # a cell that grew by 8 pixels is kept
    row = listed.iloc[0]
    assert (row["what"], row["position"], row["area A (px)"]) == ("lost", "y 32, x 32", 16)
    assert (row["label A"], row["label B"]) == ("2", "–")
    assert tables.change_table(masks, n=0).empty


def test_cut_cells_come_before_those_that_moved():
    a, b = np.zeros((2, 20, 40), int)
    a[2:8, 2:8], b[4:10, 2:8] = 1, 1
    a[2:12, 20:30] = 2
    b[2:12, 20:25], b[2:12, 25:30] = 2, 3
    assert tables.change_table({"img": compare_masks(a, b)})["what"].tolist() == ["split", "moved"]


def test_the_sentence_about_masks(masks):
    said = tables.comparison_sentence(masks, a="the truth", b="B")
    assert said.startswith("The truth and B differ: 6 cells in the truth, 5 in B, over 3 images")
    assert "(5 kept, 1 lost)" in said
    assert "9.1 % of the cells changed" in said  # 1 of 6 + 5
    same = {"img": compare_masks(squares(), squares())}
    assert tables.comparison_sentence(same).endswith(
        "the same 2 cells, pixel for pixel, on 1 image."
    )
    other = {"img": compare_masks(squares(), squares(numbers=(7, 3)))}
    assert "under other numbers" in tables.comparison_sentence(other)
    nothing = {"img": compare_masks(np.zeros((4, 4), int), np.zeros((4, 4), int))}
    assert "nothing can be compared" in tables.comparison_sentence(nothing)


def test_scores_side_by_side(masks):
    listed = tables.score_table({"B against A": list(masks.values()), "no truth": []})
    assert listed.index.tolist() == [name for name, _ in tables.SCORES.values()]
    scores = listed["B against A"]
    assert scores["AP at IoU 0.5"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    assert scores["recall"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    assert scores["precision"] == 1
    assert scores["cells more"] == -1
    assert listed["no truth"].isna().all()
    assert tables.score_table({}, fields=["aji"]).index.tolist() == ["AJI"]


def test_least_stable_cells_come_first():
    runs = [squares(), squares(second=False), squares(second=False)]
    listed = tables.stability_table(agree(runs))
    assert listed.index.tolist() == ["y 32, x 32"]
    row = listed.iloc[0]
    assert (row["in"], row["area (px)"], row["in the consensus"]) == ("1 of 3 runs", 16, "no")
    assert np.isnan(row["mean IoU"])  # of one run
    assert tables.stability_table(agree([TRUTH, TRUTH])).empty


def test_decisions_and_steps_say_what_is_missing(runs):
    spread = measure([runs["identical"], runs["different"], runs["other profile"]])
    decided = tables.decision_table(spread)
    assert "seeds" not in decided.index
    # No seeds were compared, and what is equal needs none.
    assert set(decided["within spread"]) == {"no answer", "same outlines"}
    same = decided[decided["within spread"] == "same outlines"]
    assert same["cells changed"].tolist() == ["0 %"] * len(same)
    assert same["why"].str.startswith("the outlines are the same in ").all()
    listed = tables.protocol_table(protocol(spread))
    assert listed.index.tolist() == [1, 2, 3, 4, 5]
    assert listed.loc[2, "answer"].startswith("Yes")
    assert listed.loc[2, "what is missing"] == "–"
    assert "3 seeds" in listed.loc[5, "what is missing"]


def test_distances_of_weights(runs):
    first = runs["identical"].repeats[0].weights
    pairs = {
        "equal": compare_weights(first, runs["identical"].repeats[1].weights),
        "other": compare_weights(first, runs["different"].repeats[0].weights),
    }
    listed = tables.weights_table(pairs)
    assert listed.loc["parameters that differ"].tolist()[:2] == ["0 %", "76 %"]  # 64 of 84
    assert listed.loc["L2 distance", "equal"] == "0"
    assert listed.loc["in"].tolist()[:2] == ["–", "encoder.blocks.0.attn.weight"]


def test_names_from_outside_are_no_html(masks):
    """A file name can hold a script, and Voila shows tables and sentences without asking."""
    name = "<img src=x onerror=alert(1)>"
    listed = tables.kind_table(dict.fromkeys([name, "b"], next(iter(masks.values()))))
    listed[name] = 1
    html = tables.readable(listed).to_html()
    assert "<img" not in html
    assert html.count("&lt;img src=x onerror=alert(1)&gt;") == 2  # as a row and as a column
    assert tables.markdown(f"**{name}** & 'b'").data == (
        "**&lt;img src=x onerror=alert(1)&gt;** &amp; 'b'"
    )


def test_readable_tables_are_alike_and_take_rows_of_one_name(masks):
    listed = tables.score_table({"B against A": list(masks.values()), "no truth": []})
    other = tables.kind_table(masks)
    html = tables.readable(listed).to_html()
    assert html == tables.readable(listed).to_html()
    ids = [set(re.findall(r'id="([^"]+)"', t)) for t in (html, tables.readable(other).to_html())]
    assert all(ids)
    assert ids[0].isdisjoint(ids[1])  # or a page would style one as the other
    assert "0.833" in html
    assert "nan" not in html
    twice = tables.change_table({"img": masks["img_a"]}).iloc[[0, 0]]
    assert tables.readable(twice).to_html().count("<td") == 2 * (twice.shape[1] + 1)
    assert "position" in tables.readable(tables.change_table({})).to_html()


def test_profiles_and_whether_they_run_here():
    listed = tables.profile_table()
    assert listed.index.tolist() == profiles.names()
    assert listed.loc["cpu", "runs here"] == "yes"


def test_switches_differ_between_modes():
    listed = tables.switch_table()
    row = listed.loc["deterministic_algorithms"]
    assert (row["fast"], row["warn"], row["strict"]) == ("False", "True", "True")


def test_host_names_the_versions():
    listed = tables.host_table()
    assert {"python", "torch", "cellpose", "processor"} <= set(listed.index)


def test_sides_by_side():
    listed = tables.difference_table({"seed": (0, 1)}, "A", "B")
    assert listed.loc["seed"].tolist() == ["0", "1"]


def test_a_store_without_runs(tmp_path):
    assert Store(tmp_path).runs() == []
