"""Label images side by side: drawn by hand, at the edges, and random ones."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linear_sum_assignment

from cellrepro.comparison.category_map import categories
from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.scores import average_precision
from samebits.errors import BadInput

# derandomize: the same examples everywhere and no example database left behind
PROPERTY = settings(derandomize=True, deadline=None, max_examples=60)
HUGE = 2**32 - 1
LABELS = [1, 2, 3, 7, 300, HUGE]
PIXELS = ("n_agree", "n_only_a", "n_only_b", "n_other_object")


@st.composite
def image_pairs(draw):
    """Noise, in which ties abound, or boxes after some were shifted, cut, lost or added."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(1, 7), (3, 3), (4, 5), (2, 2, 3)]))
        images = hnp.arrays(np.int64, shape, elements=st.sampled_from([0, *LABELS]))
        return draw(images), draw(images)
    shape = ((10, 12), (3, 7, 8))[generator.integers(2)]
    a = np.zeros(shape, np.int64)

    def box(side):
        corner, extent = generator.integers(0, shape), generator.integers(1, side, len(shape))
        return tuple(slice(c, c + n) for c, n in zip(corner, extent, strict=True))

    for label in LABELS:
        a[box(6)] = label
    b = np.roll(a, generator.integers(-1, 2), axis=generator.integers(len(shape)))
    for _ in range(generator.integers(0, 4)):
        b[box(5)] = generator.choice([*LABELS, 9, 11])
    b[b == generator.choice(LABELS)] = generator.choice([0, *LABELS])
    return a, b


def renumbered(masks, order=(300, 1, HUGE, 3, 2, 7)):
    """The image with the objects' labels permuted; 0 stays."""
    table = {**dict(zip(LABELS, order, strict=True)), 0: 0, 9: 9, 11: 11}
    return np.vectorize(table.__getitem__, otypes=[np.int64])(masks)


SQUARE = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]]


@pytest.mark.parametrize(
    ("b", "verdict", "pixels", "n_matched"),
    [
        (SQUARE, "identical", (8, 0, 0, 0), 2),
        ([[9, 9, 0, 0], [9, 9, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]], "same-objects", (8, 0, 0, 0), 2),
        ([[1, 1, 0, 0], [3, 3, 0, 0], [0, 0, 2, 2], [0, 0, 2, 2]], "different", (6, 0, 0, 2), 2),
        ([[7, 7, 0, 0], [7, 7, 0, 0], [0, 0, 7, 7], [0, 0, 7, 7]], "different", (8, 0, 0, 0), 2),
        ([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], "different", (4, 4, 0, 0), 1),
        (np.zeros((4, 4), int), "different", (0, 8, 0, 0), 0),
    ],
    ids=["identical", "renumbered", "exact halves match once", "one number for two", "lost",
         "nothing found"],
)  # fmt: skip
def test_verdict_and_pixels(b, verdict, pixels, n_matched):
    found = compare_masks(SQUARE, b)
    assert found.verdict == verdict
    assert tuple(getattr(found, name) for name in PIXELS) == pixels
    assert found.n_matched == n_matched
    assert found.n_differing == sum(pixels[1:])
    assert found.ppm == found.n_differing * 62500


# 1 keeps three of its four pixels as 4, 2 is lost, and b finds two more: 5 and 6. Nothing is equal
# from both sides, so nothing can be the wrong way round unseen.
A = [[1, 1, 0, 2, 0, 0], [1, 1, 0, 2, 0, 0]]
B = [[4, 4, 0, 0, 0, 5], [4, 0, 0, 0, 6, 5]]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, ">i8"])
def test_labels_of_any_type_up_to_the_largest(dtype):
    largest = min(np.iinfo(dtype).max, HUGE)
    table = np.array([0, largest, 1, 0, 3, largest - 1, 7], dtype)
    found, expected = compare_masks(table[A], table[B]), compare_masks(A, B)
    assert found.n_differing == expected.n_differing
    assert found.aji == expected.aji
    assert [change.labels_a for change in found.objects if change.kind == "lost"] == [(1,)]
    assert canonical(table[A]).tolist() == A
    assert canonical(table[A]).dtype == np.uint32
    assert compare_masks(np.array(A, np.uint8), np.array(A)).verdict == "identical"


@pytest.mark.parametrize("shape", [(11, 12), (7, 3, 8)], ids=["2-D", "3-D"])
def test_images_read_in_several_blocks(monkeypatch, shape):
    """Large images are read some rows at a time; here, so are small ones."""
    a, b = np.random.default_rng(0).choice([0, 0, 0, 4, 5, 6, 300, HUGE], (2, *shape))
    a[2:5, 1:], b[1:5, :2] = 9, 9  # two that overlap over the border of two blocks
    expected, expected_map = compare_masks(a, b), categories(a, b)
    monkeypatch.setattr("cellrepro.images.image_blocks._PIXELS", 25)
    found = compare_masks(a, b)
    np.testing.assert_equal(found.figures(), expected.figures())
    assert found.objects == expected.objects
    np.testing.assert_array_equal(categories(a, b), expected_map)


def test_only_the_last_block_is_renumbered(monkeypatch):
    monkeypatch.setattr("cellrepro.images.image_blocks._PIXELS", 25)
    a = np.repeat(np.arange(1, 5), 10).reshape(8, 5)
    b = np.where(a == 4, 9, a)
    assert compare_masks(a, a.copy()).verdict == "identical"
    assert compare_masks(a, b).verdict == "same-objects"


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (np.ones((2, 2)), "a has dtype float64"),
        (np.array([[0, 2**32]]), "a holds labels .* to 4294967296"),
        (np.ones((2, 3), int), r"a has \(2, 3\), b has \(3, 2\); check that both belong"),
    ],
    ids=["float", "too large", "other shape"],
)
@pytest.mark.parametrize("function", [compare_masks, categories])
def test_what_cannot_be_compared(function, masks, message):
    """Cellpose 4.2.1.1 compares sizes, not shapes, and gives the last of these a score of 1."""
    with pytest.raises(BadInput, match=message):
        function(masks, np.ones((3, 2), int))


@PROPERTY
@given(image_pairs())
def test_sides_and_numbers(pair):
    """Exchanging the sides exchanges the result, and different numbers change nothing."""
    a, b = pair
    other = renumbered(a)
    there, back = compare_masks(a, b).figures(), compare_masks(b, a).figures()
    swapped = {"n_only_a": "n_only_b", "precision50": "recall50", "vi_split": "vi_merge"}
    swapped |= {"n_lost": "n_gained", "n_split": "n_merged", "n_objects_a": "n_objects_b"}
    assert there["verdict"] == back["verdict"]
    same = ("n_agree", "n_other_object", "ap", "dice", "pq", "boundary_f1", "n_kept")
    for one, opposite in [*swapped.items(), *((name, name) for name in same)]:
        np.testing.assert_allclose(there[one], back[opposite], 1e-12, 1e-12, err_msg=one)
    found = compare_masks(other, b).figures()
    for name in there.keys() - {"verdict", "n_renumbered"}:
        np.testing.assert_equal(found[name], there[name], err_msg=name)
    np.testing.assert_array_equal(categories(other, b), categories(a, b))
    assert compare_masks(a, other).verdict in ("identical", "same-objects", "vacuous")
    np.testing.assert_array_equal(canonical(other), canonical(a))


@PROPERTY
@given(image_pairs(), st.sampled_from([0.25, 0.5, 0.6]))
def test_pixels_and_matches_are_those_of_a_dense_assignment(pair, threshold):
    a, b = pair
    found = compare_masks(a, b)
    assume(not (found.by_plane or found.n_shared_a or found.n_shared_b))  # one number, one object
    counts = np.bincount(categories(a, b).ravel(), minlength=5)
    assert tuple(counts[1:]) == tuple(getattr(found, name) for name in PIXELS)
    assert counts[0] == found.n_background
    assert (found.n_differing == 0) == np.array_equal(canonical(a), canonical(b))
    labels_a, labels_b = (np.unique(x[x > 0]) for x in (a, b))
    shared = np.array([[np.sum((a == i) & (b == j)) for j in labels_b] for i in labels_a], float)
    shared = shared.reshape(len(labels_a), len(labels_b))
    areas_a = np.array([np.sum(a == i) for i in labels_a]).reshape(-1, 1)
    areas_b = np.array([np.sum(b == j) for j in labels_b]).reshape(1, -1)
    iou = shared / (areas_a + areas_b - shared)
    assert found.n_agree == shared[linear_sum_assignment(shared, True)].sum()
    n_matched = (iou >= threshold)[linear_sum_assignment(iou >= threshold, True)].sum()
    n_either = sum(iou.shape) - n_matched
    expected = n_matched / n_either if n_either else math.nan
    np.testing.assert_array_equal(average_precision(a, b, [threshold]), [expected])
    with pytest.raises(BadInput, match="not all above 0 and at most 1"):
        average_precision(a, b, (threshold, 1.01))
