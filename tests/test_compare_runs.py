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
