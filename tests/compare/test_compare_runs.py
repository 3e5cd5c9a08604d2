"""The verdict over the repeats of one spec, from made-up manifests with known answers."""

import pytest

from cellrepro.compare.runs import judge
from cellrepro.compare.verdicts import Verdict


def spoken(judgement):
    return tuple(
        verdict and str(verdict)
        for verdict in (judgement.weights, judgement.masks, judgement.overall)
    )


FOUND = {"cell": ("b", "c", 3)}
RENUMBERED = {"cell": ("d", "c", 3)}
MOVED = {"cell": ("d", "e", 3)}
NOTHING = {"cell": ("b", "c", 0)}
OTHER_NOTHING = {"cell": ("d", "e", 0)}


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [
        ([{}, {}], ("identical", "identical", "identical")),
        ([{}, {}, {}], ("identical", "identical", "identical")),
        ([{}, {"weights": "f"}], ("different", "identical", "different")),
        ([{}, {}, {"weights": "f"}], ("different", "identical", "different")),
        ([{}, {"masks": RENUMBERED}], ("identical", "same-objects", "same-objects")),
        ([{}, {"masks": MOVED}], ("identical", "different", "different")),
        (
            [{}, {"masks": NOTHING | {"cell": ("d", "e", 0)}}],
            ("identical", "different", "different"),
        ),
        ([{"n_changed": 0}, {"n_changed": 0}], ("vacuous", "identical", "vacuous")),
        ([{"masks": NOTHING}, {"masks": NOTHING}], ("identical", "vacuous", "vacuous")),
        ([{"n_changed": 0}, {"weights": "f"}], ("different", "identical", "different")),
        (
            [{"weights": "f", "masks": NOTHING}, {"masks": NOTHING}],
            ("different", "vacuous", "different"),
        ),
        ([{"weights": None}, {"weights": None}], (None, "identical", "identical")),
        ([{"weights": None}, {"weights": None, "masks": MOVED}], (None, "different", "different")),
        (
            [{"weights": None, "masks": NOTHING}, {"weights": None, "masks": NOTHING}],
            (None, "vacuous", "vacuous"),
        ),
        ([{}], (None, None, None)),
        ([], (None, None, None)),
    ],
    ids=[
        "two equal",
        "three equal",
        "other weights",
        "third repeat alone has other weights",
        "renumbered masks",
        "other masks",
        "one found nothing",
        "untrained",
        "nothing found",
        "one untrained, and other weights",
        "other weights, nothing found",
        "segmented only",
        "segmented only, other masks",
        "segmented only, nothing found",
        "a single repeat",
        "no repeat",
    ],
)
def test_verdict(made_up, repeats, expected):
    manifests = [made_up.manifest(repeat=index, **each) for index, each in enumerate(repeats)]
    judgement = judge(manifests)
    assert spoken(judgement) == expected
    assert judgement.n_repeats == len(repeats)


def test_several_images_are_one_answer(made_up):
    a = made_up.manifest(masks={"x": ("1", "2", 1), "y": ("3", "4", 1)})
    turned = made_up.manifest(masks={"y": ("3", "4", 1), "x": ("1", "2", 1)})
    swapped = made_up.manifest(masks={"x": ("3", "4", 1), "y": ("1", "2", 1)})
    assert judge([a, turned]).masks is Verdict.IDENTICAL
    assert judge([a, swapped]).masks is Verdict.DIFFERENT
    assert judge([a, turned]).n_images == 2


def test_empty_images_among_others_do_not_matter(made_up):
    masks = {"x": ("1", "2", 1), "empty": ("3", "4", 0)}
    assert judge([made_up.manifest(masks=masks)] * 2).masks is Verdict.IDENTICAL


@pytest.mark.parametrize(
    ("weights", "masks", "groups", "said"),
    [
        ("aba", [FOUND] * 3, ([[0, 2], [1]], [[0, 1, 2]], [[0, 1, 2]]), "different: 2 of 3 equal"),
        ("abc", [FOUND] * 3, ([[0], [1], [2]], [[0, 1, 2]], [[0, 1, 2]]), "no two of 3 equal"),
        ("abba", [FOUND] * 4, ([[0, 3], [1, 2]], [[0, 1, 2, 3]], [[0, 1, 2, 3]]), "2 and 2 of 4"),
        (
            "aaaa",
            [{"cell": ("f", "e", 3)}, FOUND, FOUND, RENUMBERED],
            ([[0, 1, 2, 3]], [[1, 2], [0], [3]], [[1, 2, 3], [0]]),
            "masks different: 2 of 4 equal and 3 of 4 with the same objects",
        ),
        (
            "aaa",
            [FOUND, RENUMBERED, FOUND],
            ([[0, 1, 2]], [[0, 2], [1]], [[0, 1, 2]]),
            "masks same-objects: 2 of 3 equal)",
        ),
        ("ab", [FOUND, MOVED], ([[0], [1]], [[0], [1]], [[0], [1]]), "different, masks different)"),
    ],
    ids=["two of three", "none", "two pairs", "outlines", "renumbered", "only two"],
)
def test_what_agrees_is_said(made_up, weights, masks, groups, said):
    judgement = judge(
        [
            made_up.manifest(repeat=i, weights=letter, masks=found)
            for i, (letter, found) in enumerate(zip(weights, masks, strict=True))
        ]
    )
    names = ("weights", "masks", "outlines")
    found = {name: [list(group) for group in judgement.agreement[name]] for name in names}
    assert found == dict(zip(names, groups, strict=True))
    assert said in judgement.sentence()


def test_a_switch_that_moved_is_a_reason(made_up):
    """The bits are compared all the same; what was asked for did not hold."""
    whole = made_up.manifest()
    moved = made_up.manifest(repeat=1, moved={"deterministic_algorithms": False})
    judgement = judge([whole, moved])
    assert judgement.overall is Verdict.IDENTICAL
    assert judgement.reasons == (
        "the switch deterministic_algorithms moved from True to False during repeat 1, so what was "
        "asked for did not hold to its end",
    )


def test_says_why_once(made_up):
    manifests = [made_up.manifest(n_changed=0, vacuous=["1 epoch trains nothing"])] * 2
    judgement = judge(manifests)
    assert judgement.reasons == ("1 epoch trains nothing",)
    assert judgement.sentence() == (
        "vacuous (weights vacuous, masks identical) over 2 repeats, 1 images: "
        "1 epoch trains nothing"
    )


def test_sentences(made_up):
    two = [made_up.manifest(), made_up.manifest()]
    assert judge(two).sentence() == (
        "identical (weights identical, masks identical) over 2 repeats, 1 images"
    )
    segmented = [made_up.manifest(weights=None)] * 2
    assert judge(segmented).sentence() == "identical (masks identical) over 2 repeats, 1 images"
    assert judge(two[:1]).sentence() == (
        "no verdict over 1 repeats, 1 images: a single repeat has nothing to be compared with"
    )
