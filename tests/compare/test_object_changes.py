"""What became of every object: cases drawn by hand, and the definition spelled out."""

import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from test_metrics import HUGE, LABELS, PROPERTY, image_pairs, objects_of, renumbered

from cellrepro.compare import compare_masks

KINDS = ("kept", "moved", "lost", "gained", "split", "merged")
SWAPPED = {"lost": "gained", "gained": "lost", "split": "merged", "merged": "split"}


def canvas(*boxes, shape=(12, 20)):
    """An image of boxes (label, y, x, height, width)."""
    image = np.zeros(shape, np.int64)
    for label, y, x, height, width in boxes:
        image[y : y + height, x : x + width] = label
    return image


def only(a, b):
    """The one change between two images."""
    (change,) = compare_masks(a, b).objects
    return change


def kinds(a, b):
    """(kind, labels of a, labels of b), in the order given."""
    return [(c.kind, c.labels_a, c.labels_b) for c in compare_masks(a, b).objects]


def fields(change):
    return {
        "kind": str(change.kind),
        "labels_a": tuple(sorted(change.labels_a)),
        "labels_b": tuple(sorted(change.labels_b)),
        "iou": pytest.approx(change.iou),
        "position": pytest.approx(change.position),
        "position_b": None if change.position_b is None else pytest.approx(change.position_b),
        "area_a": change.area_a,
        "area_b": change.area_b,
        "displacement": pytest.approx(change.displacement, abs=1e-9, nan_ok=True),
        "renumbered": change.renumbered,
    }


# The definition, spelled out in whole numbers and fractions


def centre(pixels):
    """Exact centroid, or None of nothing."""
    if not pixels:
        return None
    return tuple(Fraction(sum(axis), len(pixels)) for axis in zip(*pixels, strict=True))


def squared_distance(p, q):
    return sum((x - y) ** 2 for x, y in zip(centre(p), centre(q), strict=True))


def splits(objects_a, objects_b):
    """(shared pixels, parts, whole, labels of the parts) of every object cut to pieces."""
    found = []
    for label, whole in objects_a.items():
        shared = {j: len(whole & part) for j, part in objects_b.items()}
        parts = [
            j
            for j, part in objects_b.items()
            if 2 * shared[j] >= len(part) and 10 * shared[j] >= len(whole)
        ]
        together = sum(shared[j] for j in parts)
        if len(parts) >= 2 and 2 * together >= len(whole):
            found.append((together, len(parts), label, tuple(parts)))
    return found


def events(objects_a, objects_b):
    """(kind, labels of a, labels of b), without those that lose an object to a larger one."""
    found = [
        (size, n, "split", (whole,), parts)
        for size, n, whole, parts in splits(objects_a, objects_b)
    ]
    found += [
        (size, n, "merged", parts, (whole,))
        for size, n, whole, parts in splits(objects_b, objects_a)
    ]

    def meet(one, other):
        return bool(set(one[3]) & set(other[3]) or set(one[4]) & set(other[4]))

    chosen = []
    for rank in sorted({event[:2] for event in found}, reverse=True):
        equals = [e for e in found if e[:2] == rank and not any(meet(e, c) for c in chosen)]
        chosen += [e for e in equals if not any(meet(e, o) for o in equals if o is not e)]
    return [event[2:] for event in chosen]


def best_assignments(eligible):
    """Every set of one-to-one pairs with the largest total, of {(i, j): pixels}."""
    best, found = 0, []

    def extend(pairs, taken, total):
        nonlocal best, found
        if total > best:
            best, found = total, []
        if total == best:
            found.append(taken)
        for k, (i, j) in enumerate(pairs):
            if all(i != x and j != y for x, y in taken):
                extend(pairs[k + 1 :], taken | {(i, j)}, total + eligible[i, j])

    extend(list(eligible), frozenset(), 0)
    return found


def expected_outcomes(a, b):
    """The sets of (kind, labels of a, labels of b) that the definition allows.

    More than one only where several assignments overlap equally.
    """
    objects_a, objects_b = objects_of(a), objects_of(b)
    fixed = events(objects_a, objects_b)
    gone_a = {label for _, labels, _ in fixed for label in labels}
    gone_b = {label for _, _, labels in fixed for label in labels}
    rest_a = {label: p for label, p in objects_a.items() if label not in gone_a}
    rest_b = {label: p for label, p in objects_b.items() if label not in gone_b}
    eligible = {
        (i, j): len(p & q)
        for i, p in rest_a.items()
        for j, q in rest_b.items()
        if p & q and 10 * len(p & q) >= len(p | q)
    }
    outcomes = []
    for pairs in best_assignments(eligible):
        outcome = {(kind, frozenset(x), frozenset(y)) for kind, x, y in fixed}
        for i, j in pairs:
            p, q = rest_a[i], rest_b[j]
            kept = 2 * len(p & q) >= len(p | q) and squared_distance(p, q) < 1
            outcome.add(("kept" if kept else "moved", frozenset([i]), frozenset([j])))
        for i in set(rest_a) - {i for i, _ in pairs}:
            outcome.add(("lost", frozenset([i]), frozenset()))
        for j in set(rest_b) - {j for _, j in pairs}:
            outcome.add(("gained", frozenset(), frozenset([j])))
        outcomes.append(outcome)
    return outcomes


# Each kind by hand. A box (label, y, x, height, width) has its centroid at
# (y + (height - 1) / 2, x + (width - 1) / 2).


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (
            # the same 3 x 3 box but for one corner: 8 of 9 pixels. The sums of y over the box
            # are 9 * 3 = 27, minus the corner's 2: 25 / 8; the same for x
            canvas((1, 2, 2, 3, 3)),
            canvas((1, 2, 2, 3, 3), (0, 2, 2, 1, 1)),
            {
                "kind": "kept",
                "labels_a": (1,),
                "labels_b": (1,),
                "iou": 8 / 9,
                "position": (3, 3),
                "position_b": (25 / 8, 25 / 8),
                "area_a": 9,
                "area_b": 8,
                "displacement": math.sqrt(2) / 8,
                "renumbered": False,
            },
        ),
        (
            canvas((1, 2, 2, 3, 4)),
            canvas((9, 2, 2, 3, 4)),
            {
                "kind": "kept",
                "labels_a": (1,),
                "labels_b": (9,),
                "iou": 1,
                "position": (3, 3.5),
                "position_b": (3, 3.5),
                "area_a": 12,
                "area_b": 12,
                "displacement": 0,
                "renumbered": True,
            },
        ),
        (
            # 4 x 4, two to the right and one down: 3 * 2 = 6 shared, 32 - 6 = 26 together
            canvas((3, 1, 1, 4, 4)),
            canvas((3, 2, 3, 4, 4)),
            {
                "kind": "moved",
                "labels_a": (3,),
                "labels_b": (3,),
                "iou": 6 / 26,
                "position": (2.5, 2.5),
                "position_b": (3.5, 4.5),
                "area_a": 16,
                "area_b": 16,
                "displacement": math.sqrt(5),
                "renumbered": False,
            },
        ),
        (
            canvas((5, 4, 6, 2, 3)),
            canvas(),
            {
                "kind": "lost",
                "labels_a": (5,),
                "labels_b": (),
                "iou": 0,
                "position": (4.5, 7),
                "position_b": None,
                "area_a": 6,
                "area_b": 0,
                "displacement": math.nan,
                "renumbered": False,
            },
        ),
        (
            canvas(),
            canvas((5, 4, 6, 2, 3)),
            {
                "kind": "gained",
                "labels_a": (),
                "labels_b": (5,),
                "iou": 0,
                "position": (4.5, 7),
                "position_b": (4.5, 7),
                "area_a": 0,
                "area_b": 6,
                "displacement": math.nan,
                "renumbered": False,
            },
        ),
        (
            # 4 x 9 into 4 x 3 and 4 x 5, a column of 4 between them lost: 32 of 36 pixels.
            # x of the parts: (12 * 3 + 20 * 8) / 32 = 6.125, of the whole 6
            canvas((1, 2, 2, 4, 9)),
            canvas((1, 2, 2, 4, 3), (4, 2, 6, 4, 5)),
            {
                "kind": "split",
                "labels_a": (1,),
                "labels_b": (1, 4),
                "iou": 32 / 36,
                "position": (3.5, 6),
                "position_b": (3.5, 6.125),
                "area_a": 36,
                "area_b": 32,
                "displacement": 0.125,
                "renumbered": False,
            },
        ),
        (
            # three in a row, and one object over all of them and 3 rows of 6 more below
            canvas((1, 2, 2, 3, 2), (2, 2, 4, 3, 2), (7, 2, 6, 3, 2)),
            canvas((7, 2, 2, 6, 6)),
            {
                "kind": "merged",
                "labels_a": (1, 2, 7),
                "labels_b": (7,),
                "iou": 18 / 36,
                "position": (3, 4.5),
                "position_b": (4.5, 4.5),
                "area_a": 18,
                "area_b": 36,
                "displacement": 1.5,
                "renumbered": False,
            },
        ),
    ],
    ids=["kept", "kept, renumbered", "moved", "lost", "gained", "split", "merged"],
)
def test_one_object_of_each_kind(a, b, expected):
    change = only(a, b)
    assert expected == fields(change)
    actual = compare_masks(a, b)
    for kind in KINDS:
        assert getattr(actual, f"n_{kind}") == (kind == expected["kind"]), kind
    assert actual.n_renumbered == expected["renumbered"]
    assert actual.lost == (expected["labels_a"] if expected["kind"] == "lost" else ())
    assert actual.gained == (expected["labels_b"] if expected["kind"] == "gained" else ())


def test_one_image_with_every_kind():
    """In the order of each change's first pixel: a's, or b's where a has nothing."""
    a = canvas(
        (1, 0, 0, 3, 3),  # stays
        (2, 0, 5, 3, 3),  # stays under another number
        (3, 0, 10, 3, 3),  # goes one to the right
        (4, 5, 0, 2, 2),  # goes
        (5, 5, 5, 4, 8),  # falls into halves
        (6, 10, 0, 2, 4),  # becomes one with 7
        (7, 10, 4, 2, 4),
    )
    b = canvas(
        (1, 0, 0, 3, 3),
        (8, 0, 5, 3, 3),
        (3, 0, 11, 3, 3),
        (9, 4, 17, 2, 2),  # comes, one row above 4
        (5, 5, 5, 4, 4),
        (2, 5, 9, 4, 4),
        (6, 10, 0, 2, 8),
    )
    actual = compare_masks(a, b)
    assert kinds(a, b) == [
        ("kept", (1,), (1,)),
        ("kept", (2,), (8,)),
        ("moved", (3,), (3,)),
        ("gained", (), (9,)),
        ("lost", (4,), ()),
        ("split", (5,), (5, 2)),
        ("merged", (6, 7), (6,)),
    ]
    assert (actual.n_kept, actual.n_moved, actual.n_lost, actual.n_gained) == (2, 1, 1, 1)
    assert (actual.n_split, actual.n_merged, actual.n_renumbered) == (1, 1, 1)
    assert (actual.lost, actual.gained) == ((4,), (9,))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # 10 x 2 in b against 5 x 2 of it: IoU exactly one half, centroids 2.5 apart
        (canvas((1, 0, 0, 10, 2)), canvas((1, 0, 0, 5, 2)), ["moved"]),
        # 6 x 6 against three of its columns: 18 of 36, half a pixel
        (canvas((1, 0, 0, 6, 6)), canvas((1, 0, 1, 6, 3)), ["kept"]),
        # and without one of these pixels
        (canvas((1, 0, 0, 6, 6)), canvas((1, 0, 1, 6, 3), (0, 0, 3, 1, 1)), ["moved"]),
        # 3 x 3 one to the right: 6 of 12, exactly one pixel away
        (canvas((1, 0, 0, 3, 3)), canvas((1, 0, 1, 3, 3)), ["moved"]),
        # 1 x 3 against 1 x 4: 3 of 4, half a pixel
        (canvas((1, 0, 0, 1, 3)), canvas((1, 0, 0, 1, 4)), ["kept"]),
        # 7 of 70 pixels: exactly one tenth
        (canvas((1, 0, 0, 7, 10)), canvas((1, 0, 0, 1, 7)), ["moved"]),
        # 6 of 70
        (canvas((1, 0, 0, 7, 10)), canvas((1, 0, 0, 1, 6)), ["lost", "gained"]),
        # touching only
        (canvas((1, 0, 0, 3, 3)), canvas((1, 0, 3, 3, 3)), ["lost", "gained"]),
    ],
    ids=[
        "IoU 1/2, far",
        "IoU 1/2, half a pixel",
        "IoU 17/36, near",
        "IoU 1/2, one pixel",
        "IoU 3/4, half a pixel",
        "IoU 1/10",
        "IoU 6/70",
        "no overlap",
    ],
)
def test_counterparts_at_the_limits(a, b, expected):
    assert sorted(c.kind for c in compare_masks(a, b).objects) == sorted(expected)


def test_one_pixel_is_one_pixel_wherever_the_object_lies():
    """Seven pixels have a centroid that no float holds; one step further is still moved."""
    for y, x in np.ndindex(5, 12):
        a = canvas((1, y, x, 1, 4), (1, y + 1, x, 1, 3))
        b = canvas((1, y, x + 1, 1, 4), (1, y + 1, x + 1, 1, 3))  # 5 of 9 pixels
        assert kinds(a, b) == [("moved", (1,), (1,))], (y, x)
        assert only(a, b).displacement == pytest.approx(1)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # the whole: 7 rows of 10
        ([(1, 0, 0, 7, 5), (2, 0, 5, 7, 5)], "split"),
        # 7 of 70 is exactly one tenth of the whole; 35 of 70 exactly half of it
        ([(1, 0, 0, 4, 7), (2, 4, 0, 1, 7)], "split"),
        ([(1, 0, 0, 4, 7), (2, 4, 0, 1, 6)], "moved"),  # 6: too small to be a piece
        ([(1, 0, 0, 1, 10), (2, 1, 0, 1, 10), (3, 2, 0, 1, 10)], "moved"),  # 30 of 70
        ([(1, 0, 0, 1, 10), (2, 1, 0, 1, 10), (3, 2, 0, 1, 10), (4, 3, 0, 1, 7)], "split"),
        # 7 x 3 and 7 x 8, of which 4 columns lie inside: exactly half of it, 49 of 70 in all
        ([(1, 0, 0, 7, 3), (2, 0, 6, 7, 8)], "split"),
        # 7 x 9, of which 4 lie inside: it is no piece; its IoU is 28/105, that of the other 21/70
        ([(1, 0, 0, 7, 3), (2, 0, 6, 7, 9)], "moved"),
    ],
    ids=[
        "halves",
        "one tenth, and half in all",
        "less than one tenth",
        "three, less than half in all",
        "four",
        "half outside",
        "more than half outside",
    ],
)
def test_what_makes_a_split(parts, expected):
    whole, cut = canvas((1, 0, 0, 7, 10)), canvas(*parts)
    change = compare_masks(whole, cut).objects[0]
    assert change.kind == expected
    if expected == "split":
        assert sorted(change.labels_b) == [part[0] for part in parts]
    back = compare_masks(cut, whole).objects
    assert [c.kind for c in back if c.labels_a == change.labels_b] == [
        {"split": "merged"}.get(expected, expected)
    ]


def test_a_piece_outside_the_event_finds_its_own_fate():
    """1 splits into 1 and 2; 3 covers 6 of its 70 pixels, too few for a piece: it is gained."""
    a = canvas((1, 0, 0, 7, 10))
    b = canvas((1, 0, 0, 6, 5), (2, 0, 5, 6, 5), (3, 6, 0, 1, 6))
    assert kinds(a, b) == [("split", (1,), (1, 2)), ("gained", (), (3,))]


def test_of_two_events_over_one_object_the_one_with_more_shared_pixels_stays():
    """1 (2 x 10) falls into 1 and 2; but most of b's 1 is a's 1 and 5 together.

    Split of 1: b's 1 shares 2 x 7 and 2 shares 2 x 3: 20 pixels. Merge into b's 1, which is
    2 x 7 and 1 x 4 below it: 14 of a's 1 and 4 of a's 5: 18. The split stays, and of the merge
    5 is left without a counterpart.
    """
    a = canvas((1, 0, 0, 2, 10), (5, 2, 0, 1, 4))
    b = canvas((1, 0, 0, 2, 7), (1, 2, 0, 1, 4), (2, 0, 7, 2, 3))
    assert kinds(a, b) == [("split", (1,), (1, 2)), ("lost", (5,), ())]
    # 5 grows to 1 x 7: 21 against 20
    a[2, 4:7], b[2, 4:7] = 5, 1
    assert kinds(a, b) == [("merged", (1, 5), (1,)), ("gained", (), (2,))]


def test_of_events_with_equal_pixels_the_one_with_more_parts_stays():
    """Split of 1 into 1, 2 and 3: 14 + 3 + 3 pixels; merge of 1 and 5 into 1: 14 + 6."""
    a = canvas((1, 0, 0, 2, 10), (5, 2, 0, 1, 6))
    b = canvas((1, 0, 0, 2, 7), (1, 2, 0, 1, 6), (2, 0, 7, 1, 3), (3, 1, 7, 1, 3))
    assert kinds(a, b) == [("split", (1,), (1, 2, 3)), ("lost", (5,), ())]
    back = kinds(b, a)
    assert back == [("merged", (1, 2, 3), (1,)), ("gained", (), (5,))]


def test_of_events_equal_in_all_none_stays():
    """Split of 1 into 1 and 2 and merge of 1 and 5 into 1, 14 + 6 pixels and 2 parts each.

    What is left: 1 and 1 share 14 of 20 + 20 - 14 = 26. Their centroids: a's at x 4.5, y 0.5;
    b's at ((14 * 3 + 6 * 2.5) / 20, (14 * 0.5 + 6 * 2) / 20) = (2.85, 0.95): moved.
    """
    a = canvas((1, 0, 0, 2, 10), (5, 2, 0, 1, 6))
    b = canvas((1, 0, 0, 2, 7), (1, 2, 0, 1, 6), (2, 0, 7, 2, 3))
    assert kinds(a, b) == [("moved", (1,), (1,)), ("gained", (), (2,)), ("lost", (5,), ())]
    assert compare_masks(a, b).objects[0].displacement == pytest.approx(math.hypot(1.65, 0.45))


def test_the_assignment_is_the_best_in_all_not_the_best_first():
    """1 shares 5 with 7 and 4 with 8, 2 shares 4 with 7: together 8 beats 5."""
    a = [[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0]]
    b = [[8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0]]
    # 8 lies inside 1 and 2 inside 7, so 1 would split and 7 would merge: each with 9 pixels and
    # 2 parts, which leaves out both
    assert kinds(a, b) == [("moved", (1,), (8,)), ("moved", (2,), (7,))]
    assert [c.renumbered for c in compare_masks(a, b).objects] == [True, True]


def test_what_is_no_counterpart_takes_none_away():
    """8 shares 3 pixels with 5, but those are 3 of 104: what counts is 6, with 1 of 4."""
    a = canvas((5, 0, 0, 1, 4))
    b = canvas((6, 0, 0, 1, 1), (8, 0, 1, 1, 3), (8, 1, 0, 10, 10))
    assert kinds(a, b) == [("moved", (5,), (6,)), ("gained", (), (8,))]


def test_three_dimensions():
    """A 4 x 4 x 2 block falls into two, another goes one plane up."""
    a = np.zeros((4, 9, 9), np.uint8)
    a[1:3, 0:4, 0:4] = 1
    a[1:3, 5:9, 5:9] = 2
    b = np.zeros_like(a)
    b[1, 0:4, 0:4] = 1
    b[2, 0:4, 0:4] = 3
    b[2:4, 5:9, 5:9] = 2
    split, moved = compare_masks(a, b).objects
    assert (split.kind, split.labels_b, split.position) == ("split", (1, 3), (1.5, 1.5, 1.5))
    assert (moved.kind, moved.iou, moved.displacement) == ("moved", pytest.approx(1 / 3), 1)
    assert (moved.position, moved.position_b) == ((1.5, 6.5, 6.5), (2.5, 6.5, 6.5))


@pytest.mark.parametrize("shape", [(0, 3), (4, 4), (2, 0, 3)], ids=str)
def test_without_objects_nothing_became_of_them(shape):
    actual = compare_masks(np.zeros(shape, int), np.zeros(shape, int))
    assert actual.objects == actual.lost == actual.gained == ()
    assert not any(getattr(actual, f"n_{kind}") for kind in (*KINDS, "renumbered"))


def test_an_object_over_the_whole_image():
    a = np.full((3, 3), HUGE)
    change = only(a, np.ones_like(a))
    assert (change.kind, change.renumbered, change.labels_a) == ("kept", True, (HUGE,))
    b = np.array([[1, 1, 1], [1, 1, 1], [2, 2, 2]])
    assert kinds(a, b) == [("split", (HUGE,), (1, 2))]


def test_what_a_change_holds_can_be_written_as_json():
    a = canvas((1, 0, 0, 3, 3), (2, 0, 5, 3, 3), (5, 5, 5, 4, 8)).astype(np.uint32)
    b = canvas((4, 0, 1, 3, 3), (5, 5, 5, 4, 4), (6, 5, 9, 4, 4)).astype(np.uint32)
    changes = compare_masks(a, b).objects
    assert len(changes) == 3
    for change in changes:
        json.dumps({name: getattr(change, name) for name in fields(change)})
        assert type(change.iou) is float
        assert type(change.displacement) is float
        assert all(type(p) is float for p in (*change.position, *(change.position_b or ())))


# Properties


@settings(PROPERTY, max_examples=200)
@given(image_pairs())
def test_the_outcome_is_one_that_the_definition_allows(pair):
    a, b = pair
    outcome = {
        (str(c.kind), frozenset(c.labels_a), frozenset(c.labels_b))
        for c in compare_masks(a, b).objects
    }
    assert outcome in expected_outcomes(a, b)


@PROPERTY
@given(image_pairs())
def test_each_object_is_in_one_change_and_the_counts_add_up(pair):
    a, b = pair
    actual = compare_masks(a, b)
    objects_a, objects_b = objects_of(a), objects_of(b)
    assert Counter(x for c in actual.objects for x in c.labels_a) == Counter(objects_a.keys())
    assert Counter(x for c in actual.objects for x in c.labels_b) == Counter(objects_b.keys())
    count = Counter(c.kind for c in actual.objects)
    assert [getattr(actual, f"n_{kind}") for kind in KINDS] == [count[kind] for kind in KINDS]
    assert actual.n_renumbered == sum(c.renumbered for c in actual.objects)
    for name in ("lost", "gained"):
        side = "labels_a" if name == "lost" else "labels_b"
        expected = tuple(x for c in actual.objects if c.kind == name for x in getattr(c, side))
        assert getattr(actual, name) == expected


@PROPERTY
@given(image_pairs())
def test_every_field_follows_from_the_labels(pair):
    a, b = pair
    objects_a, objects_b = objects_of(a), objects_of(b)
    for change in compare_masks(a, b).objects:
        p = set().union(*(objects_a[x] for x in change.labels_a))
        q = set().union(*(objects_b[x] for x in change.labels_b))
        assert change.area_a == len(p)
        assert change.area_b == len(q)
        assert change.iou == pytest.approx(len(p & q) / len(p | q) if p and q else 0, rel=1e-12)
        expected = centre(p or q)
        assert change.position == pytest.approx([float(x) for x in expected])
        expected = centre(q)
        if expected is None:
            assert change.position_b is None
        else:
            assert change.position_b == pytest.approx([float(x) for x in expected])
        if p and q:
            expected = math.sqrt(squared_distance(p, q))
            assert change.displacement == pytest.approx(expected, abs=1e-9)
        else:
            assert math.isnan(change.displacement)
        pair_of_one = change.kind in ("kept", "moved")
        assert change.renumbered == (pair_of_one and change.labels_a != change.labels_b)


@PROPERTY
@given(image_pairs())
def test_changes_come_in_raster_order(pair):
    a, b = pair
    objects_a, objects_b = objects_of(a), objects_of(b)
    firsts = [
        min(pixel for side, x in zip(sides, labels, strict=True) for pixel in side[x])
        for c in compare_masks(a, b).objects
        for sides, labels in [
            ([objects_a] * len(c.labels_a), c.labels_a)
            if c.labels_a
            else ([objects_b] * len(c.labels_b), c.labels_b)
        ]
    ]
    assert firsts == sorted(firsts)


@PROPERTY
@given(image_pairs())
def test_swapping_the_sides_swaps_the_kinds(pair):
    a, b = pair
    there = {
        (SWAPPED.get(c.kind, str(c.kind)), frozenset(c.labels_b), frozenset(c.labels_a), c.iou)
        for c in compare_masks(a, b).objects
    }
    back = {
        (str(c.kind), frozenset(c.labels_a), frozenset(c.labels_b), c.iou)
        for c in compare_masks(b, a).objects
    }
    assert there == back


@PROPERTY
@given(image_pairs())
def test_an_image_against_itself_is_kept(pair):
    a, _ = pair
    actual = compare_masks(a, a.copy())
    assert actual.n_kept == actual.n_objects_a == len(actual.objects)
    assert actual.n_renumbered == 0
    assert all(c.iou == 1 and c.displacement == 0 for c in actual.objects)


@PROPERTY
@given(image_pairs())
def test_numbers_change_no_kind(pair):
    """Where several assignments are equally good, outlines decide, never numbers."""
    a, b = pair
    order_a, order_b = LABELS[::-1], LABELS[3:] + LABELS[:3]
    table_a, table_b = (
        dict(zip(LABELS, order_a, strict=True)),
        dict(zip(LABELS, order_b, strict=True)),
    )
    expected = [
        (c.kind, tuple(table_a[x] for x in c.labels_a), tuple(table_b[x] for x in c.labels_b))
        for c in compare_masks(a, b).objects
    ]
    assert kinds(renumbered(a, order_a), renumbered(b, order_b)) == expected


def test_the_random_images_hold_every_kind():
    """Otherwise the properties above would prove little."""
    seen = Counter()

    @PROPERTY
    @given(image_pairs())
    def look(pair):
        a, b = pair
        seen.update(str(c.kind) for c in compare_masks(a, b).objects)
        found = objects_of(a), objects_of(b)
        seen["conflict"] += len(splits(*found)) + len(splits(*found[::-1])) > len(events(*found))
        seen["choice"] += len(expected_outcomes(a, b)) > 1

    look()
    assert all(seen[kind] >= 5 for kind in (*KINDS, "conflict", "choice")), seen
