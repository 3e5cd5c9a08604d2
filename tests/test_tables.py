"""Tables say what the store holds."""

import pytest

from cellrepro import comparison
from cellrepro.control import profiles
from cellrepro.record.manifest import PlaceRecord, WarningRecord
from cellrepro.record.store import Store
from cellrepro.show import tables
from stores import add_run, planted, three


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return planted(tmp_path_factory.mktemp("store"))


def test_repeats_that_differ_have_other_digests(runs):
    same = tables.repeat_table(runs["identical"].repeats)
    assert same["masks"].nunique() == same["weights"].nunique() == 1
    other = tables.repeat_table(runs["different"].repeats)
    assert other["masks"].nunique() == 2


def test_every_repeat_of_every_run_is_listed(runs):
    listed = tables.run_table(list(runs.values()))
    assert len(listed) == sum(len(run.repeats) for run in runs.values())


def test_warnings_are_told_apart(runs):
    repeats = [repeat for run in runs.values() for repeat in run.repeats]
    listed = tables.warning_table(repeats)
    assert (listed["about determinism"] == "yes").all()
    assert listed["raised at"].str.contains("functional.py:7").all()
    assert (listed["operation"] == "-").all()  # only mode warn watches operations
    assert tables.warning_table(runs["identical"].repeats[:0]).columns.equals(listed.columns)


def test_a_warning_has_its_place(tmp_path):
    place = PlaceRecord(
        op="aten.put_.default", module=None, source="mine.py:3 in f", phase="forward"
    )
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
        ("Deterministic behavior was enabled with either ...", True),
        ("Sparse invariant checks are implicitly disabled", False),
    ],
)
def test_what_is_about_determinism(message, expected):
    assert tables.is_about_determinism(message) is expected


def test_masks_of_two_repeats(runs):
    run = runs["different"]
    result = comparison.compare_repeats(*[(run, repeat) for repeat in run.repeats[:2]])
    listed = tables.mask_table(result.masks)
    assert listed["verdict"].tolist().count("different") == 1
    assert listed["ppm"].max() > 0


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
