"""Figures of two label images: worked examples, and the definitions spelled out pixel by pixel."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cellrepro.compare import canonical, categories, compare_masks
from cellrepro.errors import BadInput

# derandomize: the same examples everywhere and no example database left behind
PROPERTY = settings(derandomize=True, deadline=None, max_examples=100)
HUGE = 2**32 - 1
LABELS = (1, 2, 3, 4, 5, 7, 9, 300, 70000, HUGE)
LIMITS = (0.2, 0.5, 0.6, 0.75, 0.9, 1.0)
CURVES = ("ap", "precision", "recall", "f1")
BOUNDARY = ("boundary_precision", "boundary_recall", "boundary_f1")
INFORMATION = ("vi_split", "vi_merge", "vi")
RAND = ("rand_precision", "rand_recall", "rand_error")
OBJECTS = ("dice", "aji", "pq", "mean_matched_iou", "ap50", "precision50", "recall50", "changed")
FIGURES = (*OBJECTS, *BOUNDARY, *INFORMATION, *RAND)


# Images


@st.composite
def boxes(draw, shape, max_side=6):
    corner = [draw(st.integers(0, side - 1)) for side in shape]
    return tuple(slice(c, c + draw(st.integers(1, max_side))) for c in corner)


@st.composite
def noise_pairs(draw):
    """Each pixel for itself: objects in scraps, and ties abound."""
    shape = draw(st.sampled_from([(1, 7), (3, 3), (4, 5), (2, 2, 3)]))
    images = hnp.arrays(np.int64, shape, elements=st.sampled_from([0, 1, 2, 7, HUGE]))
    return draw(images), draw(images)


@st.composite
def blob_pairs(draw):
    """Boxes, and the same boxes after some were shifted, cut, joined, lost or added."""
    shape = draw(st.sampled_from([(8, 9), (12, 10), (3, 6, 5)]))
    a = np.zeros(shape, np.int64)
    for label in LABELS[: draw(st.sampled_from([1, 3, 5, 6, 6]))]:
        a[draw(boxes(shape))] = label
    b = a.copy()
    words = st.sampled_from(["cut", "join", "shift", "cut", "add", "lose"])
    for word in draw(st.lists(words, min_size=1, max_size=6)):
        new = draw(st.sampled_from(LABELS[6:]))
        labels = np.unique(b[b > 0]).tolist()
        if word == "add" or not labels:
            b[draw(boxes(shape, 4))] = new
            continue
        label = draw(st.sampled_from(labels))
        pixels = np.argwhere(b == label)
        if word == "cut":
            axis = draw(st.integers(1, len(shape))) - 1
            far = pixels[pixels[:, axis] > pixels[:, axis].mean()]
            b[tuple(far.T)] = new
        elif word == "join":
            b[b == draw(st.sampled_from(labels))] = label
        else:
            b[b == label] = 0
        if word == "shift":
            there = pixels + [draw(st.integers(-2, 2)) for _ in shape]
            inside = ((there >= 0) & (there < shape)).all(axis=1)
            b[tuple(there[inside].T)] = label
    return a, b


@st.composite
def crowded_pairs(draw):
    """Many boxes, scattered evenly, which drawing one by one does not reach."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    shape = ((10, 12), (3, 7, 8))[generator.integers(2)]
    a = np.zeros(shape, np.int64)

    def box(side):
        corner = generator.integers(0, shape)
        return tuple(
            slice(c, c + n)
            for c, n in zip(corner, generator.integers(1, side, len(shape)), strict=True)
        )

    for label in LABELS[:8]:
        a[box(6)] = label
    b = np.roll(a, generator.integers(-1, 2), axis=generator.integers(len(shape)))
    for _ in range(generator.integers(1, 5)):
        b[box(5)] = generator.choice(LABELS)
    for _ in range(generator.integers(0, 3)):
        b[b == generator.choice(LABELS)] = generator.choice([0, *LABELS])
    return a, b


def image_pairs():
    return st.one_of(noise_pairs(), blob_pairs(), crowded_pairs())


def renumbered(image, order):
    """The image with other labels; 0 stays."""
    table = dict(zip(LABELS, order, strict=True)) | {0: 0}
    return np.array([table[int(v)] for v in image.flat], np.int64).reshape(image.shape)


def renumbered_in_order(image):
    numbers = {0: 0} | {label: n for n, label in enumerate(objects_of(image), 1)}
    return np.vectorize(numbers.__getitem__, otypes=[np.uint32])(image)


# The definitions, spelled out


def objects_of(image):
    """Label to set of pixels, in raster order of the first one."""
    found = {}
    for position in np.ndindex(image.shape):
        if image[position]:
            found.setdefault(int(image[position]), set()).add(position)
    return found


def ratio(part, whole):
    return part / whole if whole else math.nan


def most_pairs(partners, taken=frozenset()):
    """Largest number of one-to-one pairs, of a list with the possible partners of each object."""
    if not partners:
        return 0
    best = most_pairs(partners[1:], taken)
    free = [j for j in partners[0] if j not in taken]
    return max([best, *(1 + most_pairs(partners[1:], taken | {j}) for j in free)])


def boundary_pixels(image):
    steps = [step for step in product((-1, 0, 1), repeat=image.ndim) if np.abs(step).sum() == 1]
    found = []
    for position in zip(*np.nonzero(image), strict=True):
        for step in steps:
            there = tuple(int(p + s) for p, s in zip(position, step, strict=True))
            inside = all(0 <= p < side for p, side in zip(there, image.shape, strict=True))
            if inside and image[there] != image[position]:
                found.append(position)
                break
    return np.array(found, float).reshape(-1, image.ndim)


def share_near(points, others, tolerance):
    if not len(points):
        return math.nan
    distances = np.sqrt(((points[:, None] - others[None]) ** 2).sum(axis=-1))
    return float((distances <= tolerance).any(axis=1).mean())


def conditional_entropy(of, given_this):
    """Bits that one value still tells about a pixel once the other is known."""
    both, known = Counter(zip(given_this, of, strict=True)), Counter(given_this)
    n = len(of)
    return (
        -sum(k / n * math.log2(k / known[value]) for (value, _), k in both.items())
        if n
        else math.nan
    )


def expected_figures(a, b, tolerance=2.0):
    objects_a, objects_b = objects_of(a), objects_of(b)
    n_a, n_b = len(objects_a), len(objects_b)
    iou = [[len(i & j) / len(i | j) for j in objects_b.values()] for i in objects_a.values()]
    out = {name: [] for name in CURVES}
    for limit in LIMITS:
        tp = most_pairs([[j for j, v in enumerate(row) if v >= limit] for row in iou])
        out["precision"].append(ratio(tp, n_b))
        out["recall"].append(ratio(tp, n_a))
        out["f1"].append(ratio(2 * tp, n_a + n_b))
        out["ap"].append(ratio(tp, n_a + n_b - tp))
        if limit == 0.5:
            out |= {"n_matched": tp, "n_unmatched": n_a + n_b - 2 * tp}
            out["changed"] = ratio(n_a + n_b - 2 * tp, n_a + n_b)
            out["ap50"], out["precision50"], out["recall50"] = (
                out[name][-1] for name in ("ap", "precision", "recall")
            )
    # At an IoU of one half, objects compete; whichever wins, the IoU of the match is one half.
    above = [v for row in iou for v in row if v > 0.5]
    out["mean_matched_iou"] = ratio(
        sum(above) + 0.5 * (out["n_matched"] - len(above)), out["n_matched"]
    )

    in_a, in_b = set().union(*objects_a.values()), set().union(*objects_b.values())
    out["dice"] = ratio(2 * len(in_a & in_b), len(in_a) + len(in_b))

    shared = union = 0
    taken = set()
    for i in objects_a.values():
        # max keeps the first of equals, and the objects come in raster order
        best = max(
            objects_b,
            key=lambda j: (len(i & objects_b[j]) / len(i | objects_b[j]), len(i & objects_b[j])),
            default=None,
        )
        if best is None or not i & objects_b[best]:
            union += len(i)
            continue
        taken.add(best)
        shared += len(i & objects_b[best])
        union += len(i | objects_b[best])
    union += sum(len(j) for label, j in objects_b.items() if label not in taken)
    out["aji"] = ratio(shared, union)

    # TP + FP / 2 + FN / 2 is half of all objects
    out["pq"] = ratio(sum(above), (n_a + n_b) / 2)
    out["sq"] = ratio(sum(above), len(above))
    out["dq"] = ratio(len(above), (n_a + n_b) / 2)

    edge_a, edge_b = boundary_pixels(a), boundary_pixels(b)
    precision = out["boundary_precision"] = share_near(edge_b, edge_a, tolerance)
    recall = out["boundary_recall"] = share_near(edge_a, edge_b, tolerance)
    if len(edge_a) and len(edge_b):
        both = precision + recall
        out["boundary_f1"] = 2 * precision * recall / both if both else 0.0
    else:
        out["boundary_f1"] = 0.0 if len(edge_a) or len(edge_b) else math.nan

    flat_a, flat_b = a.ravel().tolist(), b.ravel().tolist()
    out["vi_split"] = conditional_entropy(flat_b, flat_a)
    out["vi_merge"] = conditional_entropy(flat_a, flat_b)
    out["vi"] = out["vi_split"] + out["vi_merge"]

    # Pairs of different pixels of one object, counted both ways round
    inside = [(i, j) for i, j in zip(flat_a, flat_b, strict=True) if i]
    joined, joined_a, joined_b = (
        sum(k * (k - 1) for k in Counter(values).values())
        for values in (inside, [i for i, _ in inside], [j for _, j in inside])
    )
    out["rand_recall"] = ratio(joined, joined_a)
    out["rand_precision"] = ratio(joined, joined_b)
    out["rand_error"] = 1 - ratio(2 * joined, joined_a + joined_b)
    return out


def assert_figures(actual, expected):
    for name in expected:
        np.testing.assert_allclose(
            getattr(actual, name), expected[name], rtol=1e-12, atol=1e-12, err_msg=name
        )


# Worked examples

A = [[1, 1, 0, 2, 0, 0], [1, 1, 0, 2, 0, 0]]
B = [[4, 4, 0, 0, 0, 5], [4, 0, 0, 0, 6, 5]]
HALF, THIRD, SIXTH = 1 / 2, math.log2(3) / 3, math.log2(6) / 6  # -p log2 p


def test_a_lopsided_example():
    """1 keeps three of its four pixels as 4, 2 is lost, and b finds two more: 5 and 6.

    Nothing is equal from both sides, so nothing can be the wrong way round unseen.
    """
    actual = compare_masks(A, B, thresholds=(0.5, 0.75, 0.8))
    assert (actual.n_matched, actual.n_unmatched) == (1, 3)  # 2 + 3 - 2 * 1
    expected = {
        "changed": 3 / 5,
        "precision": [1 / 3, 1 / 3, 0],  # of b's three, IoU 3/4
        "recall": [1 / 2, 1 / 2, 0],  # of a's two
        "f1": [2 / 5, 2 / 5, 0],
        "ap": [1 / 4, 1 / 4, 0],
        "dice": 2 * 3 / (6 + 6),
        "aji": 3 / 9,  # 3 of the 4 of 1 and 4 together, 2 of object 2, 3 of objects 5 and 6
        "sq": 3 / 4,
        "dq": 1 / (1 + 2 / 2 + 1 / 2),
        "pq": (3 / 4) / (1 + 2 / 2 + 1 / 2),
        # 1 spreads over 4 (3 of 4 pixels) and 0; a's background over 0, 5 and 6 (3, 2 and 1 of 6)
        "vi_split": 4 / 12 * (3 / 4 * math.log2(4 / 3) + 1 / 4 * 2)
        + 6 / 12 * (HALF + THIRD + SIXTH),
        # b's background spreads over 0, 2 and 1 (3, 2 and 1 of 6), its objects over nothing
        "vi_merge": 6 / 12 * (HALF + THIRD + SIXTH),
        # Inside a's objects: 1 with 4 three times, 1 with 0 once, 2 with 0 twice.
        # 9 + 1 + 4 - 6 = 8 pairs of both; 16 + 4 - 6 = 14 of a; 9 + 9 - 6 = 12 of b
        "rand_precision": 8 / 12,
        "rand_recall": 8 / 14,
        "rand_error": 1 - 2 * 8 / (14 + 12),
    }
    assert_figures(actual, expected)
    assert actual.vi == actual.vi_split + actual.vi_merge


@pytest.mark.parametrize(
    ("tolerance", "precision", "recall", "f1"),
    [
        (0, 1 / 5, 1 / 4, 2 / 9),  # only (0, 1) is in both
        (1, 3 / 5, 3 / 4, 2 / 3),  # (1, 0) and (1, 4) come in; (1, 1) and (1, 3)
        (1.5, 3 / 5, 1, 3 / 4),  # (0, 3) is a diagonal from (1, 4)
        (2, 1, 1, 1),
    ],
)
def test_boundaries_within_a_tolerance(tolerance, precision, recall, f1):
    """a has the boundary pixels (0, 1), (1, 1), (0, 3), (1, 3); b has (0, 1), (1, 0), (0, 5),
    (1, 5), (1, 4). The corners (0, 0) and, in a, (1, 0) touch only their own object and the edge.
    """
    actual = compare_masks(A, B, tolerance=tolerance)
    assert_figures(actual, dict(zip(BOUNDARY, (precision, recall, f1), strict=True)))


def test_boundaries_two_pixels_away_count_by_default():
    assert compare_masks(A, B).boundary_precision == 1
    near, far = np.zeros((2, 1, 9), int)
    near[0, 2], far[0, 5] = 1, 1  # 3 apart
    assert compare_masks(near, far).boundary_f1 == 0
    assert compare_masks(near, far, tolerance=3).boundary_f1 == 1


@pytest.mark.parametrize("step", [(1, 1), (2, 3), (3, 3), (1, 5), (1, 1, 1)], ids=str)
def test_a_tolerance_reaches_exactly_as_far_as_it_says(step):
    """The square of the root of 18, among others, is less than 18 in float64."""
    near, far = np.zeros((2, *(s + 1 for s in step)), int)
    near[(0,) * len(step)] = far[step] = 1
    distance = math.sqrt(sum(s * s for s in step))
    assert compare_masks(near, far, tolerance=distance).boundary_f1 == 1
    assert compare_masks(near, far, tolerance=distance - 1e-9).boundary_f1 == 0


def test_objects_that_touch_have_a_boundary_though_there_is_no_background():
    actual = compare_masks([[1, 1, 1, 2, 2, 2]], [[1, 1, 1, 1, 1, 1]])
    assert math.isnan(actual.boundary_precision)  # b has no boundary: the edge is none
    assert actual.boundary_recall == 0
    assert actual.boundary_f1 == 0


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([[1, 1, 1, 1]], [[3, 3, 4, 4]], 2 / 6),
        ([[3, 3, 4, 4]], [[1, 1, 1, 1]], 4 / 8),
        ([[1, 1, 1, 1, 0, 0, 0, 0]], [[3, 0, 5, 5, 5, 5, 5, 5]], 2 / 9),
        ([[2, 1, 1, 0]], [[7, 7, 8, 8]], 2 / 7),
        ([[0, 1, 1, 2]], [[8, 8, 7, 7]], 2 / 5),
    ],
    ids=[
        "cut in two: half of it is taken, the other half is added to the union",
        "joined: b's object is taken twice, and each time counts whole",
        "equal IoU (1/4 and 2/8): the larger intersection",
        "equal throughout: the first in the image, which 2 takes too, so the other is left over",
        "equal throughout: the first in the image, so nothing is left over",
    ],
)
def test_aggregated_jaccard_index(a, b, expected):
    assert compare_masks(a, b).aji == pytest.approx(expected, rel=1e-15)


def test_panoptic_quality_wants_more_than_half():
    """An IoU of exactly one half is a match at 0.5, but none for panoptic quality."""
    actual = compare_masks([[1, 1, 0]], [[1, 0, 0]])
    assert (actual.n_matched, actual.ap50, actual.pq) == (1, 1, 0)
    assert compare_masks([[1, 1, 1]], [[1, 1, 0]]).pq == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("a", "b", "split", "merge"),
    [
        ([[1, 1, 1, 1]], [[1, 1, 2, 2]], 1, 0),
        ([[1, 1, 2, 2]], [[1, 1, 1, 1]], 0, 1),
        ([[1, 1, 0, 0]], [[1, 0, 1, 0]], 1, 1),
        ([[1, 1, 1, 1, 0, 0, 0, 0]], [[1, 2, 3, 4, 0, 0, 0, 0]], 1, 0),
    ],
    ids=["cut in half", "joined", "independent", "half of the image in quarters"],
)
def test_variation_of_information_in_bits(a, b, split, merge):
    actual = compare_masks(a, b)
    assert (actual.vi_split, actual.vi_merge, actual.vi) == pytest.approx(
        (split, merge, split + merge)
    )


@pytest.mark.parametrize(
    ("a", "b", "precision", "recall"),
    [
        ([[1, 1, 1, 1]], [[1, 1, 2, 2]], 1, 4 / 12),
        ([[1, 1, 2, 2]], [[1, 1, 1, 1]], 4 / 12, 1),
        ([[1, 1, 0, 0]], [[1, 1, 1, 2]], 1, 1),
        ([[1, 1, 2, 2]], [[0, 0, 0, 0]], 4 / 12, 1),
    ],
    ids=[
        "cut: every pair that b joins is right",
        "joined: every pair of a is found",
        "what b has where a has nothing does not count",
        "b's background counts as one segment",
    ],
)
def test_adapted_rand_error(a, b, precision, recall):
    actual = compare_masks(a, b)
    assert (actual.rand_precision, actual.rand_recall) == pytest.approx((precision, recall))
    error = 1 - 2 * precision * recall / (precision + recall)
    assert actual.rand_error == pytest.approx(error)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (np.zeros((3, 3), int), np.zeros((3, 3), int), dict.fromkeys(INFORMATION, 0)),
        (np.zeros((0, 3), int), np.zeros((0, 3), int), {}),
        (
            np.zeros((1, 3), int),
            np.array([[0, 5, 0]]),
            dict.fromkeys(("dice", "aji", "pq", "ap50", "precision50"), 0)
            | {"changed": 1, "boundary_precision": 0, "boundary_f1": 0}
            | {"vi_split": None, "vi_merge": 0, "vi": None},
        ),
        (
            np.array([[0, 5, 5, 0]]),
            np.zeros((1, 4), int),
            dict.fromkeys(("dice", "aji", "pq", "ap50", "recall50"), 0)
            | {"changed": 1, "boundary_recall": 0, "boundary_f1": 0}
            | {"vi_split": 0, "vi_merge": 1, "vi": 1}
            | dict.fromkeys(("rand_precision", "rand_recall"), 1)
            | {"rand_error": 0},
        ),
        (
            np.full((2, 2), 7),
            np.full((2, 2), 7),
            dict.fromkeys((*OBJECTS, "rand_precision", "rand_recall"), 1)
            | dict.fromkeys((*INFORMATION, "rand_error", "changed"), 0),
        ),
        (
            np.array([[0, 5]]),
            np.array([[0, 6]]),
            dict.fromkeys((*OBJECTS, *BOUNDARY), 1) | dict.fromkeys((*INFORMATION, "changed"), 0),
        ),
    ],
    ids=[
        "nothing on both sides",
        "no pixels",
        "only b holds an object",
        "only a holds an object",
        "one object, no background: no boundary",
        "one object of one pixel: no pairs of pixels",
    ],
)
def test_where_there_is_nothing_to_score(a, b, wanted):
    """A figure over nothing is NaN; where one side holds something, it is a plain 0 or 1."""
    actual = compare_masks(a, b)
    for name in FIGURES:
        value = getattr(actual, name)
        if name not in wanted:
            assert math.isnan(value), name
        elif wanted[name] is None:
            assert 0 < value < 2, name
        else:
            assert value == wanted[name], name
    # With at most one object a side, f1 is 0, 1 or undefined together with dice.
    for name, alike in zip(CURVES, ("ap50", "precision50", "recall50", "dice"), strict=True):
        at_half = getattr(actual, name)[actual.thresholds.index(0.5)]
        np.testing.assert_equal(at_half, wanted.get(alike, math.nan), err_msg=name)


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64]
)
def test_labels_of_any_integer_type_up_to_the_largest(dtype):
    """Also with gaps: the figures depend on outlines alone."""
    largest = min(np.iinfo(dtype).max, HUGE)
    table = np.array([0, largest, 1, 0, 3, largest - 1, 7], dtype)
    a, b = table[A], table[B]
    assert_figures(
        compare_masks(a, b, thresholds=LIMITS), expected_figures(np.array(A), np.array(B))
    )


def test_three_dimensions():
    """A bar of 4 voxels through four planes loses one; 6 neighbours make a boundary."""
    a = np.zeros((5, 3, 3), np.uint16)
    a[:4, 1, 1] = 1
    b = a.copy()
    b[3] = 0
    actual = compare_masks(a, b, tolerance=0)
    assert actual.dice == pytest.approx(6 / 7)
    assert actual.aji == actual.mean_matched_iou == actual.pq == 3 / 4
    assert actual.boundary_recall == 3 / 4  # every voxel of the bar is boundary
    cube = np.ones((3, 3, 3), int)
    inside = np.pad(cube, 1)
    hollow = inside.copy()
    hollow[2, 2, 2] = 2  # the centre, whose six neighbours are boundary already
    assert len(boundary_pixels(inside)) == 26
    actual = compare_masks(inside, hollow, tolerance=0)
    assert actual.boundary_precision == pytest.approx(26 / 27)
    assert actual.boundary_recall == 1


@pytest.mark.parametrize("block", [1, 25, 70])
@pytest.mark.parametrize("shape", [(11, 12), (7, 3, 8)], ids=["2-D", "3-D"])
def test_images_read_in_several_blocks(monkeypatch, shape, block):
    """Large images are read some rows at a time; here, so are small ones."""
    generator = np.random.default_rng(block)
    a, b = generator.choice([0, 0, 0, 4, 5, 6, 300, HUGE], (2, *shape))
    a[2:5, 1:], b[1:5, :2] = 9, 9  # two that overlap over the border of two blocks
    expected, expected_map = compare_masks(a, b), categories(a, b)
    for module in ("overlap", "boundaries"):
        monkeypatch.setattr(f"cellrepro.compare.{module}._BLOCK", block)
    actual = compare_masks(a, b)
    for name in (*CURVES, *FIGURES, "verdict", "n_differing", "objects"):
        np.testing.assert_equal(getattr(actual, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(categories(a, b), expected_map)
    np.testing.assert_array_equal(canonical(a), renumbered_in_order(a))


@pytest.mark.parametrize("shape", [(3, 2), (1, 2, 3), (2, 3, 1)], ids=str)
def test_other_shapes_are_refused_by_name(shape):
    with pytest.raises(BadInput) as caught:
        compare_masks(np.ones((2, 3), int), np.ones(shape, int))
    assert "(2, 3)" in str(caught.value)
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize("tolerance", [-1, math.nan, math.inf], ids=str)
def test_a_tolerance_is_a_distance(tolerance):
    with pytest.raises(BadInput, match="tolerance"):
        compare_masks(A, B, tolerance=tolerance)


# Properties


@settings(PROPERTY, max_examples=200)
@given(image_pairs(), st.sampled_from([0, 1, 1.5, 2.0, 3]))
def test_figures_follow_their_definitions(pair, tolerance):
    a, b = pair
    actual = compare_masks(a, b, thresholds=LIMITS, tolerance=tolerance)
    assert_figures(actual, expected_figures(a, b, tolerance))


@PROPERTY
@given(image_pairs())
def test_figures_stay_within_their_bounds(pair):
    a, b = pair
    actual = compare_masks(a, b)
    for name in (*CURVES, *OBJECTS, *BOUNDARY, *RAND):
        values = np.atleast_1d(getattr(actual, name))
        assert np.all(np.isnan(values) | ((values >= 0) & (values <= 1))), name
    for name in INFORMATION:
        assert 0 <= getattr(actual, name) <= 2 * math.log2(max(a.size, 2)), name
    for name in CURVES:  # a higher threshold never matches more
        assert not np.any(np.diff(getattr(actual, name)) > 0), name
    if actual.n_objects_a and actual.n_objects_b:
        assert actual.ap50 <= actual.f1[0]
        assert actual.pq <= actual.f1[0]
        assert actual.aji <= actual.dice / (2 - actual.dice) + 1e-12  # IoU of the foregrounds
    if actual.n_differing:
        assert not (actual.ap[-1] == 1 and actual.mean_matched_iou == 1)
        assert actual.aji < 1
        assert actual.pq < 1


@PROPERTY
@given(image_pairs(), st.permutations(LABELS))
def test_equal_outlines_score_perfectly(pair, order):
    a, _ = pair
    actual = compare_masks(a, renumbered(a, order))
    for name in (*CURVES, *OBJECTS, *BOUNDARY, *RAND):
        perfect = float(name not in ("changed", "rand_error"))
        values = np.atleast_1d(getattr(actual, name))
        if a.any() and name not in (*BOUNDARY, *RAND):
            assert np.all(values == perfect), name
        assert np.all(np.isnan(values) | (values == perfect)), name
    assert (actual.vi_split, actual.vi_merge) == pytest.approx((0, 0), abs=1e-12)


@PROPERTY
@given(image_pairs())
def test_swapping_the_sides_swaps_precision_and_recall(pair):
    a, b = pair
    there, back = compare_masks(a, b, thresholds=LIMITS), compare_masks(b, a, thresholds=LIMITS)
    same = (
        "ap",
        "f1",
        "dice",
        "pq",
        "changed",
        "n_unmatched",
        "boundary_f1",
        "vi",
        "mean_matched_iou",
    )
    swapped = {"vi_split": "vi_merge"}
    swapped |= {f"{kind}precision": f"{kind}recall" for kind in ("", "boundary_")}
    swapped |= {"precision50": "recall50"}
    for one, other in [*((name, name) for name in same), *swapped.items()]:
        np.testing.assert_allclose(
            getattr(there, one), getattr(back, other), rtol=1e-12, atol=1e-12, err_msg=one
        )


@PROPERTY
@given(image_pairs(), st.permutations(LABELS), st.permutations(LABELS))
def test_numbers_change_no_figure(pair, order_a, order_b):
    a, b = pair
    expected = compare_masks(a, b)
    # nor does the order in memory, or the type
    other_a = np.asfortranarray(renumbered(a, order_a))
    other_b = renumbered(b, order_b)[::-1].astype(np.uint64)[::-1]
    actual = compare_masks(other_a, other_b)
    for name in (*CURVES, *FIGURES, "n_matched", "n_unmatched"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name), err_msg=name)


def test_the_images_are_left_as_they_were():
    a, b = np.array(A), np.array(B)
    a.flags.writeable = b.flags.writeable = False
    compare_masks(a, b)
    assert (a.tolist(), b.tolist()) == (A, B)
