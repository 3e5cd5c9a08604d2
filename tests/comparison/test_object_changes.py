"""What became of every object: cases drawn by hand, and random ones held to the definition."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from test_mask_comparison import PROPERTY, image_pairs

from cellrepro.comparison.mask_comparison import compare_masks

SWAPPED = {"lost": "gained", "gained": "lost", "split": "merged", "merged": "split"}


def canvas(*boxes, shape=(12, 20)):
    """An image of boxes (label, y, x, height, width)."""
    image = np.zeros(shape, np.int64)
    for label, y, x, height, width in boxes:
        image[y : y + height, x : x + width] = label
    return image


def kinds(a, b):
    """(kind, labels of a, labels of b), in the order given."""
    return [(c.kind, c.labels_a, c.labels_b) for c in compare_masks(a, b).objects]


A = canvas(
    (1, 0, 0, 3, 3),  # stays
    (2, 0, 5, 3, 3),  # stays under a different number
    (3, 0, 10, 3, 3),  # goes one to the right
    (4, 5, 0, 2, 2),  # goes
    (5, 5, 5, 4, 8),  # falls into halves
    (6, 10, 0, 2, 4),  # becomes one with 7
    (7, 10, 4, 2, 4),
)
B = canvas(
    (1, 0, 0, 3, 3),
    (8, 0, 5, 3, 3),
    (3, 0, 11, 3, 3),
    (9, 4, 17, 2, 2),  # comes, one row above 4
    (5, 5, 5, 4, 4),
    (2, 5, 9, 4, 4),
    (6, 10, 0, 2, 8),
)


def test_one_image_with_every_kind():
    """In the order of each change's first pixel: a's, or b's where a has nothing."""
    found = compare_masks(A, B)
    assert kinds(A, B) == [
        ("kept", (1,), (1,)),
        ("kept", (2,), (8,)),
        ("moved", (3,), (3,)),
        ("gained", (), (9,)),
        ("lost", (4,), ()),
        ("split", (5,), (5, 2)),
        ("merged", (6, 7), (6,)),
    ]
    assert found.kinds == {"kept": 2, "moved": 1, "lost": 1, "gained": 1, "split": 1, "merged": 1}
    assert found.n_renumbered == 1
    _, renumbered_, moved, gained, lost, split, merged = found.objects
    assert (renumbered_.renumbered, renumbered_.iou, renumbered_.displacement) == (True, 1, 0)
    assert (moved.iou, moved.displacement) == (6 / 12, 1)
    assert (moved.position, moved.position_b) == ((1, 11), (1, 12))
    assert (gained.position, gained.area_a, gained.area_b) == ((4.5, 17.5), 0, 4)
    assert (lost.position, lost.position_b, lost.iou) == ((5.5, 0.5), None, 0)
    assert math.isnan(lost.displacement)
    assert (split.iou, split.position, split.area_b) == (1, (6.5, 8.5), 32)
    assert (merged.position, merged.area_a) == ((10.5, 3.5), 16)
    assert json.dumps([change._asdict() for change in found.objects])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (canvas((1, 0, 0, 6, 6)), canvas((1, 0, 1, 6, 3)), ["kept"]),
        (canvas((1, 0, 0, 6, 6)), canvas((1, 0, 1, 6, 3), (0, 0, 3, 1, 1)), ["moved"]),
        (canvas((1, 0, 0, 7, 10)), canvas((1, 0, 0, 1, 7)), ["moved"]),
        (canvas((1, 0, 0, 7, 10)), canvas((1, 0, 0, 1, 6)), ["lost", "gained"]),
    ],
    ids=["half a pixel", "IoU 17/36, near", "IoU 1/10", "IoU 6/70"],
)
def test_counterparts_at_the_limits(a, b, expected):
    assert sorted(c.kind for c in compare_masks(a, b).objects) == sorted(expected)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # 7 of 70 is exactly one tenth of the whole; 35 of 70 exactly half of it
        ([(1, 0, 0, 4, 7), (2, 4, 0, 1, 7)], "split"),
        ([(1, 0, 0, 4, 7), (2, 4, 0, 1, 6)], "moved"),
        # 7 x 3 and 7 x 8, of which 4 columns lie inside: exactly half of it
        ([(1, 0, 0, 7, 3), (2, 0, 6, 7, 8)], "split"),
        ([(1, 0, 0, 7, 3), (2, 0, 6, 7, 9)], "moved"),
    ],
    ids=["one tenth", "less than one tenth", "half outside", "more than half outside"],
)
def test_what_makes_a_split(parts, expected):
    """Of a whole of 7 rows of 10."""
    whole, cut = canvas((1, 0, 0, 7, 10)), canvas(*parts)
    change = compare_masks(whole, cut).objects[0]
    assert change.kind == expected
    back = compare_masks(cut, whole).objects
    assert SWAPPED.get(expected, expected) in [c.kind for c in back]


def test_small_cells_in_one_too_large_to_be_their_merge_are_said_to_lie_in_it():
    small, large = canvas((3, 0, 0, 2, 2), (4, 4, 8, 2, 2)), canvas((7, 0, 0, 12, 20))
    lost_3, _, lost_4 = compare_masks(small, large).objects
    assert (lost_3.inside, lost_4.inside) == ((7,), (7,))
    assert lost_3.in_words == "lost, inside another cell"
    assert [c.inside for c in compare_masks(large, small).objects] == [(), (7,), (7,)]
    assert [c.inside for c in compare_masks(A, B).objects] == 7 * [()]


@pytest.mark.parametrize(("width", "is_resized"), [(9, True), (10, False), (12, False)])
def test_another_size_is_the_same_both_ways(width, is_resized):
    """Of 13 columns 9 are fewer than three quarters, 10 are not, though 13 is 30 % more."""
    whole, part = canvas((1, 0, 0, 1, 13)), canvas((1, 0, (13 - width) // 2, 1, width))
    for a, b in ((whole, part), (part, whole)):
        (change,) = compare_masks(a, b).objects
        assert (change.kind, change.is_resized) == ("kept", is_resized)


def test_of_two_events_over_one_object_the_one_with_more_shared_pixels_stays():
    """Split of 1: 2 x 7 and 2 x 3, 20 pixels. Merge into b's 1: 14 of a's 1 and 4 of 5, 18."""
    a = canvas((1, 0, 0, 2, 10), (5, 2, 0, 1, 4))
    b = canvas((1, 0, 0, 2, 7), (1, 2, 0, 1, 4), (2, 0, 7, 2, 3))
    assert kinds(a, b) == [("split", (1,), (1, 2)), ("lost", (5,), ())]
    a[2, 4:7], b[2, 4:7] = 5, 1  # 5 grows to 1 x 7: 21 against 20
    assert kinds(a, b) == [("merged", (1, 5), (1,)), ("gained", (), (2,))]
    a[2, 6] = b[2, 6] = 0  # 20 each: nothing says which it was
    assert kinds(a, b) == [("moved", (1,), (1,)), ("gained", (), (2,)), ("lost", (5,), ())]


def test_the_assignment_is_the_best_in_all_not_the_best_first():
    """1 shares 5 with 7 and 4 with 8, 2 shares 4 with 7: together 8 beats 5."""
    a = [[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0]]
    b = [[8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0]]
    assert kinds(a, b) == [("moved", (1,), (8,)), ("moved", (2,), (7,))]


@PROPERTY
@given(image_pairs())
def test_every_field_follows_from_the_labels(pair):
    a, b = pair
    found = compare_masks(a, b)
    assume(not (found.by_plane or found.n_shared_a or found.n_shared_b))  # one number, one object
    changes = found.objects
    for side, image in (("labels_a", a), ("labels_b", b)):
        held = Counter(label for change in changes for label in getattr(change, side))
        assert held == Counter(np.unique(image[image > 0]).tolist())  # each in exactly one
    for change in changes:
        p, q = np.isin(a, change.labels_a), np.isin(b, change.labels_b)
        assert (change.area_a, change.area_b) == (p.sum(), q.sum())
        assert change.iou == pytest.approx((p & q).sum() / (p | q).sum())
        assert change.position == pytest.approx(np.argwhere(p if p.any() else q).mean(0))
        both = change.kind in ("kept", "moved")
        assert change.renumbered == (both and change.labels_a != change.labels_b)
        if both:
            near = change.iou >= 0.5 and change.displacement < 1 - 1e-9
            assert (change.kind == "kept") == near
            assert change.iou >= 0.1
        is_alone = change.kind in ("lost", "gained")
        own, other = (p, b) if p.any() else (q, a)
        labels, n_within = np.unique(other[own & (other > 0)], return_counts=True)
        holders = labels[2 * n_within >= own.sum()].tolist() if is_alone else []
        assert (len(change.inside) > 0) == (len(holders) > 0)
        assert {*change.inside} <= {*holders}


def test_a_cell_cut_between_planes_is_told_from_one_cut_within_them():
    """Four planes: one cell stitched on one side only, one cut along x, one in three parts."""
    whole, cut = np.zeros((2, 6, 8, 30), np.int64)
    whole[:, 1:7, 1:7], cut[:3, 1:7, 1:7], cut[3:, 1:7, 1:7] = 1, 1, 2
    whole[:, 1:7, 11:19], cut[:, 1:7, 11:15], cut[:, 1:7, 15:19] = 2, 3, 4
    whole[:, 1:7, 21:27] = 3
    for label, planes in enumerate([(0, 2), (2, 4), (4, 6)], 5):
        cut[slice(*planes), 1:7, 21:27] = label
    for a, b in [(whole, cut), (cut, whole)]:
        found = {c.position[2]: c.cut_between for c in compare_masks(a, b).objects}
        assert found == {3.5: ((2, 3),), 14.5: (), 23.5: ((1, 2), (3, 4))}
    assert all(c.cut_between == () for c in compare_masks(whole[2], cut[2]).objects)
    assert all(c.cut_between == () for c in compare_masks(cut, cut).objects)
