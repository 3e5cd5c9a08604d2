"""The figure of spread: every dot, mean and band stands where its number says."""

import pytest

from cellrepro.compare.seed_spread import measure_spread
from cellrepro.errors import BadInput
from cellrepro.show.figures.spread import spread_axis, spread_rows
from cellrepro.store.store import Store
from drawn import texts
from stores import add_run, squares, three

LESS = squares(second=False)


def band(picture):
    (found,) = [patch for patch in picture.axes[0].patches if patch.get_gid() == "seeds"]
    return found


def test_every_pair_is_a_dot_at_its_share(tmp_path):
    """Lost cells over all cells of both runs: 1 of 11, 2 of 10 and 1 of 9."""
    store = Store(tmp_path)
    add_run(store, [(1.0, three())] * 3)
    add_run(store, [(1.25, three())], profile="cpu-1thread")
    add_run(store, [(1.5, three(LESS))], seed=1)  # 1 of 6 cells is lost
    add_run(store, [(1.75, three(LESS, img_b=LESS))], seed=2)  # 2 of 6 cells are lost
    spread = measure_spread(store.runs())
    picture = spread_axis(spread)
    axes, written = picture.axes[0], texts(picture)
    repeats, threads, seeds = (line.get_xdata() for line in axes.lines if line.get_gid() == "pairs")
    assert sorted(seeds) == pytest.approx([1 / 11, 1 / 9, 2 / 10])
    assert (repeats.tolist(), threads.tolist()) == ([0, 0, 0], [0])
    left = band(picture).get_x()
    assert (left, left + band(picture).get_width()) == pytest.approx((1 / 11, 1 / 5), rel=0.1)
    assert band(picture).get_facecolor()[3] == 1
    assert written.count("= the same outlines") == 2  # what is equal is not called different
    shares = [row["cells changed"] for row in spread_rows(spread) if row["axis"] == "seed"]
    assert sorted(shares) == pytest.approx([1 / 11, 1 / 9, 2 / 10])


def test_two_seeds_are_no_baseline(tmp_path):
    store = Store(tmp_path)
    for seed, found in enumerate((three(), three(LESS))):
        add_run(store, [(1.0, found)], seed=seed)
    runs = list(store.runs())
    picture = spread_axis(measure_spread(runs))
    assert band(picture).get_facecolor()[3] == 0  # only outlined
    assert "2 seeds: no baseline" in texts(picture)
    with pytest.raises(BadInput, match="no two runs that found cells"):
        spread_axis(measure_spread(runs[:1]))
