"""The picture of spread: every dot, mean, interval and band stands where its number says."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from cellrepro.compare.seed_spread import Spread, measure
from cellrepro.errors import BadInput
from cellrepro.show.figures import spread as spread_plots
from cellrepro.store.store import Store
from stores import NOTHING, add_run, squares, three

LESS = squares(second=False)


@pytest.fixture(scope="module")
def spread(tmp_path_factory) -> Spread:
    """Three seeds, two profiles and repeats over three images of two cells each."""
    store = Store(tmp_path_factory.mktemp("spread"))
    add_run(store, [(1.0, three())] * 3)
    add_run(store, [(1.25, three())], profile="cpu-1thread")
    add_run(store, [(1.5, three(LESS))], seed=1)  # 1 of 6 cells is lost
    add_run(store, [(1.75, three(LESS, img_b=LESS))], seed=2)  # 2 of 6 cells are lost
    return measure(store.runs())


def share_at(axes, x: float) -> float:
    """What the axis says of a place: 0 at its first tick, by the logarithm between the others."""
    (zero, *places), (none, *said) = axes.get_xticks(), axes.get_xticklabels()
    assert none.get_text() == "0"
    if np.isclose(x, zero):
        return 0.0
    logs = [np.log10(float(text.get_text().removesuffix(" %")) / 100) for text in said]
    slope = (logs[-1] - logs[0]) / (places[-1] - places[0])
    return float(10 ** (logs[0] + slope * (x - places[0])))


def dots(axes) -> list:
    return [line for line in axes.get_lines() if line.get_gid() == "pair"]


def texts(picture) -> list[str]:
    import matplotlib.text

    assert picture.png(dpi=40).startswith(b"\x89PNG")
    found = picture.findobj(matplotlib.text.Text)
    return [text.get_text() for text in found if text.get_visible() and text.get_text()]


def test_every_pair_is_a_dot_at_its_share(spread):
    """Lost cells over all cells of both runs: 1 of 11, 2 of 10 and 1 of 9."""
    axes = spread_plots.spread_axis(spread).axes[0]
    rows = [text.get_text() for text in axes.get_yticklabels()]
    assert rows == ["repeats of one spec", "threads and instruction sets", "seeds"]
    found = {row: [] for row in rows}
    for dot in dots(axes):
        found[rows[round(dot.get_ydata()[0])]].append(share_at(axes, dot.get_xdata()[0]))
    # Dots of one place are moved aside, by no more than their own width.
    assert sorted(found["seeds"]) == pytest.approx([1 / 11, 1 / 9, 2 / 10], rel=0.05)
    assert found["repeats of one spec"] == [0, 0, 0]
    assert found["threads and instruction sets"] == [0]


def test_means_stand_below_their_dots(spread):
    axes = spread_plots.spread_axis(spread).axes[0]
    diamonds = [line for line in axes.get_lines() if line.get_marker() == "D"]
    means = [share_at(axes, line.get_xdata()[0]) for line in diamonds]
    expected = [axis.distribution().mean for axis in spread.axes if axis.name != "seed"]
    assert means == pytest.approx([*expected, spread.seeds.distribution().mean])
    assert means[:2] == [0, 0]


def test_the_band_is_what_seeds_do(spread):
    axes = spread_plots.spread_axis(spread).axes[0]
    (band,) = [patch for patch in axes.patches if patch.get_gid() == "seeds"]
    left, right = band.get_x(), band.get_x() + band.get_width()
    inside = [dot.get_xdata()[0] for dot in dots(axes) if dot.get_ydata()[0] > 1.5]
    assert left < min(inside) <= max(inside) < right
    assert share_at(axes, left) == pytest.approx(1 / 11, rel=0.1)
    assert share_at(axes, right) == pytest.approx(1 / 5, rel=0.1)
    assert band.get_facecolor()[:3] == to_rgb(spread_plots._BAND)


def test_two_seeds_are_no_yardstick(tmp_path):
    store = Store(tmp_path)
    for seed, found in enumerate((three(), three(LESS))):
        add_run(store, [(1.0, found)], seed=seed)
    spread = measure(store.runs())
    picture = spread_plots.spread_axis(spread)
    (band,) = [patch for patch in picture.axes[0].patches if patch.get_gid() == "seeds"]
    assert band.get_facecolor()[3] == 0  # only outlined
    assert "2 seeds: no yardstick" in texts(picture)
    assert "With only 2 seeds there is no band" in spread_plots.caption(spread)


def test_it_is_said_in_words_and_in_rows(spread):
    said = texts(spread_plots.spread_axis(spread))
    for answer in ("3 pairs, 3 images, 3 at 0", "3 pairs of 3 seeds, 3 images", "what seeds do"):
        assert answer in said, answer
    rows = spread_plots.rows(spread)
    shares = sorted(row["cells changed"] for row in rows if row["axis"] == "seed")
    assert shares == pytest.approx([1 / 11, 1 / 9, 2 / 10])
    mean = spread_plots.share_text(spread.seeds.distribution().mean)
    assert f"seeds {mean}" in spread_plots.alternative(spread)
    assert "Over 6 runs and 3 images." in spread_plots.caption(spread)


def test_what_is_equal_is_not_called_different(spread):
    """Four repeats and two profiles with the same outlines; too few cells to show more."""
    said = texts(spread_plots.spread_axis(spread))
    assert said.count("= the same outlines") == 2
    assert not any(text.startswith("≠") for text in said)


def test_nothing_to_show(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, dict.fromkeys(three(), NOTHING))] * 2, truth=False)
    with pytest.raises(BadInput, match="no two runs that found cells"):
        spread_plots.spread_axis(measure(store.runs()))
