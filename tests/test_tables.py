"""Tables say what the store holds."""

import pytest

from cellrepro import comparison
from cellrepro.control import profiles
from cellrepro.record.store import Store
from cellrepro.show import tables
from stores import planted


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
    assert len(tables.warning_table(runs["identical"].repeats[:0])) == 0


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
