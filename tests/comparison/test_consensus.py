"""Many runs: votes drawn by hand, a slow second opinion, and what no order or number may change."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cellrepro.comparison.consensus import agree
from cellrepro.comparison.label_numbers import canonical
from samebits.errors import BadInput

PROPERTY = settings(derandomize=True, deadline=None, max_examples=40)
HUGE = 2**32 - 1


def row(text):
    """A label image of one row: a letter per pixel, dots are background."""
    return np.array([[0 if letter == "." else ord(letter) for letter in text]], np.uint16)


def brief(agreement):
    """Label, runs and mean IoU of every object, in order."""
    return [(item.label, item.runs, round(item.mean_iou, 3)) for item in agreement.objects]


def test_votes_of_four_runs():
    """One object shrinks, one is missing in half of the runs, one is in a single run."""
    runs = [row("aaaa.bb.."), row("aaaa....."), row("aa...bb.."), row("aaaa....c")]
    agreement = agree(runs)
    assert agreement.cell_share.tolist() == [[1, 1, 0.75, 0.75, 0, 0.5, 0.5, 0, 0.25]]
    assert np.array_equal(agreement.same_object_share, agreement.cell_share)
    assert agreement.consensus.tolist() == [[1, 1, 1, 1, 0, 2, 2, 0, 0]]
    assert brief(agreement) == [(0, (3,), 1), (2, (0, 2), 1), (1, (0, 1, 2, 3), 0.875)]
    last = agreement.objects[-1]
    assert (last.position, last.area, last.n_runs_with, last.share) == ((0, 1.5), 4, 4, 1)
    assert agreement.objects[0].share == 0.25
    assert (agreement.n_runs, agreement.n_distinct) == (4, 4)
    assert (agreement.n_stable, agreement.n_disputed, agreement.vacuous) == (1, 5, False)
    assert agreement.cell_share.dtype == agreement.same_object_share.dtype == np.float32
    assert agreement.consensus.dtype == np.uint32


@pytest.mark.parametrize(
    ("runs", "consensus", "expected"),
    [
        (["aabb.", "zzaa.", "bbzz."], "aabb.", [(1, (0, 1, 2), 1), (2, (0, 1, 2), 1)]),
        (["a..", "..."], "a..", [(1, (0,), 1)]),
        (["aaaa", "aabb"], "aabb", [(2, (1,), 1), (1, (0, 1), 0.75)]),
        (["aaa..", "..aaa"], "aaabb", [(2, (1,), 0.667), (1, (0,), 1)]),
        (["aaab", "aabb"], "aabb", [(2, (0, 1), 0.75), (1, (0, 1), 0.833)]),
        (
            ["aaaaaaaa", "aabb.ccc"],
            "aabb.ccc",
            [(1, (1,), 1), (2, (1,), 1), (0, (0,), 1), (3, (1,), 1)],
        ),
    ],
    ids=["renumbered is equal", "exactly half have it", "half cut it in two",
         "too little overlap to be the same", "a border moves in half", "no sliver stays"],
)  # fmt: skip
def test_consensus_and_stability(runs, consensus, expected):
    agreement = agree([row(text) for text in runs])
    assert agreement.consensus.tolist() == canonical(row(consensus)).tolist()
    assert brief(agreement) == expected


def test_the_typical_result_is_the_one_nearest_to_all():
    """Not the most frequent one."""
    runs = ["a.......", "a.......", "aaaa....", "aaaab...", "aaaabb..", "aaaaaa.."]
    assert agree([row(text) for text in runs]).results[0] == (3,)


@pytest.mark.parametrize("shape", [(2, 3, 4), (0, 4)], ids=["3-D", "no pixels"])
def test_no_objects_at_all_is_said(shape):
    agreement = agree([np.zeros(shape, np.int64)] * 2)
    assert (agreement.vacuous, agreement.objects) == (True, ())
    assert agreement.consensus.shape == agreement.cell_share.shape == shape


def test_only_new_digests_are_read():
    images, read = [row(text) for text in ("aab.", "aab.", "aa..", "ccd.")], []

    def reader(run):
        return lambda: read.append(run) or images[run]

    agreement = agree([reader(run) for run in range(4)], digests=["x", "x", "y", "z"])
    assert read == [0, 2, 3]
    assert sorted(agreement.results) == [(0, 1, 3), (2,)]  # different digests, but equal objects
    assert brief(agreement) == brief(agree(images))
    with pytest.raises(BadInput, match="no run 4; expected one of 0 to 3"):
        agreement.objects_of(4)


@pytest.mark.parametrize(
    ("runs", "digests", "message"),
    [
        ([], None, "no masks were given"),
        ([[[1]], [[2]]], ["x"], "1 digest was given for the masks of 2 runs"),
        ([[[1]], [[7]], [[1, 2]]], None, r"run 0 has \(1, 1\), run 2 has \(1, 2\)"),
        ([[[1]], lambda: [[-1]]], ["x", "y"], "run 1 holds labels from -1"),
    ],
    ids=["none", "digests", "shapes", "negative"],
)
def test_refusals(runs, digests, message):
    with pytest.raises(BadInput, match=message):
        agree(runs, digests=digests)


@st.composite
def some_runs(draw):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=4))
    labels = st.sampled_from([0, 1, 1, 2, 2, 3, HUGE])
    first = draw(hnp.arrays(np.int64, shape, elements=labels))
    runs = [first]
    for _ in range(draw(st.integers(0, 5))):
        near = draw(st.sampled_from(runs)).copy()
        for pixel in draw(st.lists(st.integers(0, first.size - 1), max_size=3)):
            near.flat[pixel] = draw(labels)
        runs.append(near)
    return runs


def facts(agreement, number_of=lambda run: run):
    """What is said, with runs under the numbers of a different order."""
    objects = [
        (i.label, i.position, i.area, i.share, sorted(map(number_of, i.runs)), i.mean_iou)
        for i in agreement.objects
    ]
    results = [sorted(map(number_of, runs)) for runs in agreement.results]
    return objects, results, agreement.consensus.tolist()


@given(some_runs(), st.randoms(use_true_random=False))
@PROPERTY
def test_order_and_numbers_do_not_matter(runs, random):
    order = list(range(len(runs)))
    random.shuffle(order)
    numbers = [1, 2, 3, HUGE]
    random.shuffle(numbers)
    table = dict(zip([1, 2, 3, HUGE], numbers, strict=True)) | {0: 0}
    other = [np.vectorize(table.get, otypes=[np.int64])(runs[i]) for i in order]
    assert facts(agree(runs)) == facts(agree(other), lambda run: order[run])


@given(some_runs())
@example([row(text) for text in ("aabbb", "abcdd", "abb.d", "abbbb")])  # three bid for a pixel
@example([row(text) for text in ("aaaaaa", "...bdd", "aaaabc")])  # and two of them bid the same
@PROPERTY
def test_everything_by_counting(runs):
    """Shares, outlines and the consensus, pixel by pixel and object by object."""
    agreement = agree(runs)
    votes = np.zeros((len(agreement.objects), *runs[0].shape))
    place = {id(item): i for i, item in enumerate(agreement.objects)}
    own = {}  # pixels of each object in each run that has it
    for run, masks in enumerate(runs):
        of_run = agreement.objects_of(run)
        assert len(of_run) == canonical(masks).max(initial=0)
        for number, item in enumerate(of_run, 1):
            assert run in item.runs
            own[run, place[id(item)]] = canonical(masks) == number
            votes[place[id(item)]] += own[run, place[id(item)]]
    expected = votes.max(0, initial=0) / len(runs)
    assert np.array_equal(agreement.same_object_share, expected.astype(np.float32))
    cells = np.mean([run > 0 for run in runs], 0, dtype=np.float32)
    assert np.array_equal(agreement.cell_share, cells)
    majorities = {}
    for i, item in enumerate(agreement.objects):
        majority = (2 * votes[i] >= item.n_runs_with) & (votes[i] > 0)
        outline = agreement.consensus == item.label if item.label else majority
        assert item.area == outline.sum()
        assert not np.any(outline & ~majority)
        ious = [(own[run, i] & outline).sum() / (own[run, i] | outline).sum() for run in item.runs]
        assert item.mean_iou == pytest.approx(np.mean(ious))
        if item.label:
            majorities[i] = majority
    # each pixel of the consensus goes to the best of the objects that are in it
    for pixel in np.ndindex(runs[0].shape):
        bids = [
            (-votes[i][pixel], agreement.objects[i].n_runs_with, outline.sum(), first, i)
            for i, outline in majorities.items()
            if outline[pixel]
            for first in [np.flatnonzero(outline)[0]]
        ]
        winner = agreement.objects[min(bids)[-1]].label if bids else 0
        assert agreement.consensus[pixel] == winner


def test_more_runs_than_a_small_counter_holds():
    agreement = agree([*[row("aab.")] * 255, row("aa..")])
    assert agreement.cell_share[0, 0] == agreement.same_object_share[0, 0] == 1
    assert agreement.objects[0].n_runs_with == 255


def test_the_table_has_what_not_all_runs_have():
    """Least stable first; of a cell that one run has nothing says how well its outlines agree."""
    both = [[1, 1, 0, 2]]
    lone, shifted = agree([both, [[1, 1, 1, 0]], [[1, 1, 0, 0]]]).rows()
    assert lone["runs with it"] == "1 of 3"
    assert (lone["mean IoU"], lone["area (px)"], lone["in the consensus"]) == ("–", 1, "no")
    assert (shifted["runs with it"], shifted["in the consensus"]) == ("3 of 3", "yes, as 1")
    assert agree([both, both]).rows() == []
