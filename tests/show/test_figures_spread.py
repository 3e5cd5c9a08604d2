"""The figure of spread: every dot, mean and band stands where its number says."""

import pytest

from cellrepro.compare.seed_spread import measure_spread
from cellrepro.errors import BadInput
from cellrepro.show.figures.spread import spread_axis, spread_rows
from cellrepro.store.store import Store
from cellrepro.text import share_text
from drawn import texts
from stores import NOTHING, add_run, squares, three

LESS = squares(second=False)


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    """Three seeds, two profiles and repeats over three images of two cells each."""
    store = Store(tmp_path_factory.mktemp("spread"))
    add_run(store, [(1.0, three())] * 3)
    add_run(store, [(1.25, three())], profile="cpu-1thread")
    add_run(store, [(1.5, three(LESS))], seed=1)  # 1 of 6 cells is lost
    add_run(store, [(1.75, three(LESS, img_b=LESS))], seed=2)  # 2 of 6 cells are lost
    return measure_spread(store.runs())


def band(picture):
    (found,) = [patch for patch in picture.axes[0].patches if patch.get_gid() == "seeds"]
    return found


def test_every_pair_is_a_dot_at_its_share(spread):
    """Lost cells over all cells of both runs: 1 of 11, 2 of 10 and 1 of 9."""
    axes = spread_axis(spread).axes[0]
    rows = [text.get_text() for text in axes.get_yticklabels()]
    assert rows == ["repeats of one spec", "threads and instruction sets", "seeds"]
    repeats, threads, seeds = (line.get_xdata() for line in axes.lines if line.get_gid() == "pairs")
    assert sorted(seeds) == pytest.approx([1 / 11, 1 / 9, 2 / 10])
    assert (repeats.tolist(), threads.tolist()) == ([0, 0, 0], [0])
    means = [line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "D"]
    expected = [axis.distribution().mean for axis in spread.axes if axis.name != "seed"]
    assert means == pytest.approx([*expected, spread.seeds.distribution().mean])


def test_the_band_is_what_seeds_do(spread):
    picture = spread_axis(spread)
    left = band(picture).get_x()
    assert left == pytest.approx(1 / 11, rel=0.1)
    assert left + band(picture).get_width() == pytest.approx(1 / 5, rel=0.1)
    assert band(picture).get_facecolor()[3] == 1


def test_two_seeds_are_no_baseline(tmp_path):
    store = Store(tmp_path)
    for seed, found in enumerate((three(), three(LESS))):
        add_run(store, [(1.0, found)], seed=seed)
    picture = spread_axis(measure_spread(store.runs()))
    assert band(picture).get_facecolor()[3] == 0  # only outlined
    assert "2 seeds: no baseline" in texts(picture)


def test_it_is_said_in_words_and_in_rows(spread):
    picture = spread_axis(spread)
    written = texts(picture)
    for answer in ("3 pairs, 3 images, 3 at 0", "3 pairs of 3 seeds, 3 images, 0 at 0"):
        assert answer in written, answer
    assert written.count("= the same outlines") == 2  # what is equal is not called different
    assert f"seeds {share_text(spread.seeds.distribution().mean)}" in picture.alt
    assert "Over 6 runs and 3 images;" in picture.caption
    rows = spread_rows(spread)
    shares = sorted(row["cells changed"] for row in rows if row["axis"] == "seed")
    assert shares == pytest.approx([1 / 11, 1 / 9, 2 / 10])


def test_nothing_to_show(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, dict.fromkeys(three(), NOTHING))] * 2, truth=False)
    with pytest.raises(BadInput, match="no two runs that found cells"):
        spread_axis(measure_spread(store.runs()))
