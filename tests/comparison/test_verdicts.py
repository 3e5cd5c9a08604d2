"""The one verdict over many comparisons, and over the repeats of one spec."""

import itertools

import pytest

from cellrepro.comparison.judgement import judge
from cellrepro.comparison.verdicts import Verdict, combine


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "vacuous"),
        (["identical", "same-objects"], "same-objects"),
        (["same-objects", "vacuous", "identical"], "vacuous"),
        (["within-spread", "different", "vacuous"], "different"),
    ],
)
def test_combine(verdicts, expected):
    for order in itertools.permutations(verdicts):
        assert str(combine(Verdict(word) for word in order)) == expected


FOUND = {"cell": ("b", "c", 3)}
RENUMBERED = {"cell": ("d", "c", 3)}
OTHER = {"cell": ("d", "e", 3)}
NOTHING = {"cell": ("b", "c", 0)}


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [
        ([{}, {}, {}], ("identical", "identical", "identical")),
        ([{}, {}, {"weights": "f"}], ("different", "identical", "different")),
        ([{}, {"masks": RENUMBERED}], ("identical", "same-objects", "same-objects")),
        ([{}, {"masks": OTHER}], ("identical", "different", "different")),
        ([{"n_changed": 0}, {"n_changed": 0}], ("vacuous", "identical", "vacuous")),
        ([{"masks": NOTHING}, {"masks": NOTHING}], ("identical", "vacuous", "vacuous")),
        ([{"weights": None}, {"weights": None, "masks": OTHER}], (None, "different", "different")),
        ([{}], (None, None, None)),
    ],
    ids=["equal", "the third has different weights", "renumbered", "other masks", "untrained",
         "nothing found", "segmented only", "alone"],
)  # fmt: skip
def test_repeats_are_judged_by_their_digests(made_up, repeats, expected):
    found = judge([made_up.manifest(repeat=index, **each) for index, each in enumerate(repeats)])
    assert (found.weights, found.masks, found.overall) == expected
    assert found.n_repeats == len(repeats)


def test_images_are_told_apart_by_name(made_up):
    a = made_up.manifest(masks={"x": ("1", "2", 1), "y": ("3", "4", 1)})
    swapped = made_up.manifest(masks={"x": ("3", "4", 1), "y": ("1", "2", 1)})
    assert judge([a, swapped]).masks is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("weights", "masks", "groups", "said"),
    [
        ("aba", [FOUND] * 3, ([[0, 2], [1]], [[0, 1, 2]], [[0, 1, 2]]), "different: 2 of 3 equal"),
        (
            "aaaa",
            [{"cell": ("f", "e", 3)}, FOUND, FOUND, RENUMBERED],
            ([[0, 1, 2, 3]], [[1, 2], [0], [3]], [[1, 2, 3], [0]]),
            "masks different: 2 of 4 equal and 3 of 4 with the same objects",
        ),
    ],
    ids=["two of three", "outlines"],
)
def test_which_repeats_agree(made_up, weights, masks, groups, said):
    found = judge(
        [
            made_up.manifest(repeat=i, weights=letter, masks=each)
            for i, (letter, each) in enumerate(zip(weights, masks, strict=True))
        ]
    )
    names = ("weights", "masks", "outlines")
    agreement = {name: [list(group) for group in getattr(found.agreement, name)] for name in names}
    assert agreement == dict(zip(names, groups, strict=True))
    assert said in found.sentence()


def test_reasons_are_given_once(made_up):
    """A switch that changed is a reason, and the bits are compared all the same."""
    switched = made_up.manifest(repeat=1, moved={"deterministic_algorithms": False})
    found = judge([made_up.manifest(), switched])
    assert found.overall is Verdict.IDENTICAL
    assert "deterministic_algorithms" in found.reasons[0]
