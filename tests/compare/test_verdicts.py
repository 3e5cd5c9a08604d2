"""The one verdict over many, and what the comparison room may depend on."""

import itertools
import json
import subprocess
import sys

import pytest

from cellrepro.compare import Verdict, combine
from cellrepro.errors import BadInput


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "vacuous"),
        (["identical", "identical"], "identical"),
        (["identical", "same-objects"], "same-objects"),
        (["same-objects", "vacuous", "identical"], "vacuous"),
        (["vacuous", "within-spread"], "within-spread"),
        (["within-spread", "different", "vacuous"], "different"),
    ],
    ids=[
        "nothing to combine",
        "all identical",
        "one renumbered",
        "one proved nothing",
        "a measured difference beats no evidence",
        "a difference is never hidden",
    ],
)
def test_combine(verdicts, expected):
    assert combine(Verdict(word) for word in verdicts) == expected


@pytest.mark.parametrize("verdict", Verdict)
def test_combine_one_gives_it_back(verdict):
    assert combine([verdict]) is verdict


def test_combine_depends_on_neither_order_nor_grouping():
    for triple in itertools.product(Verdict, repeat=3):
        whole = combine(triple)
        assert all(combine(order) is whole for order in itertools.permutations(triple))
        assert combine([combine(triple[:2]), triple[2]]) is whole


def test_combine_takes_words():
    assert combine(["identical", "different"]) is Verdict.DIFFERENT


@pytest.mark.parametrize("wrong", [["equal"], "identical", [None]], ids=["word", "bare", "none"])
def test_combine_refuses_what_is_no_verdict(wrong):
    with pytest.raises(BadInput, match=r"is no verdict; give an iterable of \['identical'"):
        combine(wrong)


def test_verdicts_write_themselves_to_json():
    expected = '["identical", "same-objects", "within-spread", "different", "vacuous"]'
    assert json.dumps(list(Verdict)) == expected


def test_the_room_imports_lightly_and_knows_nothing_of_cellpose():
    code = "import sys, cellrepro.compare; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    rooms = {f"cellrepro.{room}" for room in ("cells", "run", "show")}
    assert not loaded & ({"torch", "scipy", "cellpose", "pandas", "matplotlib"} | rooms)
