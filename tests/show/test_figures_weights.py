"""Figures of networks and of spread: what is drawn is what was measured."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from cellrepro.comparison.seed_spread import measure_spread
from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.comparison.weight_distributions import difference_distributions
from cellrepro.comparison.weight_similarity import layers_by_distance, similarity
from cellrepro.show.figures import weights
from cellrepro.show.figures.beside_seeds import beside_seeds
from cellrepro.show.figures.spread import spread_axis, spread_rows
from cellrepro.store.store import Store
from drawn import texts
from samebits.errors import BadInput
from stores import add_run, squares, three


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Three networks: ``a`` changes with the factor, ``b`` a hundredth of it, ``c`` never."""
    folder = tmp_path_factory.mktemp("networks")
    values = np.linspace(1, 2, 64, dtype=np.float32)
    paths = [folder / f"{i}.safetensors" for i in range(3)]
    for path, factor in zip(paths, (1.0, 1.5, 3.0), strict=True):
        save_file({"a.w": values * factor, "b.w": values * (1 + factor / 100), "c.w": values}, path)
    return paths


def test_layers_are_drawn_from_the_least_to_the_most(networks):
    table = similarity(networks)
    picture = weights.layer_distances(table, labels=["one", "two", "three"])
    assert "The greatest distance is 2, in a.w, between one and three." in picture.caption
    assert "(c.w)" in picture.caption  # equal in every pair, so that there is nothing to draw
    axes = picture.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a.w", "b.w"]
    for i, row in enumerate(layers_by_distance(table)[:2]):
        drawn = [line for line in axes.lines if set(line.get_ydata()) == {i}]
        here = {line.get_marker(): line.get_xdata() for line in drawn}
        assert sorted(here["|"]) == sorted(row.relative_l2)
        assert here["o"] == [row.median]


def test_shares_of_differences_are_those_counted(networks):
    found = difference_distributions(networks)
    picture = weights.difference_histograms(found)
    for layer, panel in enumerate(picture.axes[:2]):
        steps = [patch for patch in panel.patches if hasattr(patch, "get_data")]
        for patch, counts in zip(steps, found.counts[:, layer], strict=True):
            values = np.asarray(patch.get_data().values)
            np.testing.assert_allclose(values[counts > 0], counts[counts > 0] / 64)
    assert "2 of 3 parts; 1 equal throughout" in texts(picture)


def test_weights_are_counted_over_common_intervals(networks):
    picture = weights.weight_histograms({"narrow": networks[0], "wide": networks[2]})
    first, second = (step.get_data() for step in picture.axes[0].patches)
    np.testing.assert_array_equal(first.edges, second.edges)
    with pytest.raises(BadInput, match="no weights file was given"):
        weights.weight_histograms({})


def test_tensors_that_differ_most_come_first(networks):
    picture = weights.parameter_differences(compare_weights(networks[0], networks[2]))
    assert picture.axes[0].patches[0].get_width() == pytest.approx(2)


def test_equal_networks_are_said(networks):
    pair = [networks[0], networks[0]]
    found = difference_distributions(pair)
    assert "of equal value" in texts(weights.difference_histograms(found))
    assert "no two of these networks differ" in texts(weights.layer_distances(similarity(pair)))


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
    places = [
        tuple(point)
        for line in axes.lines
        if line.get_gid() == "pairs"
        for point in line.get_xydata()
    ]
    assert len({*places}) == 7  # none hides another
    left = band(picture).get_x()
    assert (left, left + band(picture).get_width()) == pytest.approx((1 / 11, 1 / 5), rel=0.1)
    assert band(picture).get_facecolor()[3] == 1
    assert written.count("= the same outlines") == 2  # what is equal is not called different
    beside = beside_seeds(spread, 0.9)  # more than any pair: the axis reaches as far
    assert "A and B: 90 %" in texts(beside)
    assert beside.axes[0].get_xlim()[1] > 0.9
    assert spread.beside_two(0.0).startswith("no, every cell")
    in_these_runs = "another random seed does, in these runs:"
    assert spread.beside_two(0.05).startswith(f"less than {in_these_runs} 5 % of the cells")
    assert spread.beside_two(0.2).startswith(f"as much as {in_these_runs} 20 % of the cells")
    assert spread.beside_two(0.2).endswith("13 % on average and at most 20 % (3 seeds, 3 images)")
    assert spread.beside_two(0.9).startswith("yes, more than any two seeds did: 90 % of the cells")
    first, second, *_ = (run.repeats[0] for run in store.runs() if run.spec.seed)
    assert spread.beside_two(0.2, pair=(first, second)).endswith(
        "the cells of A and B have no match; between any two seeds of the store it is 9.1 % to 20 %"
    )
    add_run(store, [(1.0, three()), (3.0, three(LESS))], loose="index_put")  # made to show it
    assert measure_spread(store.runs()).rows() == spread.rows()
    shares = [row["cells without a match"] for row in spread_rows(spread) if row["axis"] == "seed"]
    assert sorted(shares) == pytest.approx([1 / 11, 1 / 9, 2 / 10])


@pytest.mark.parametrize(("n_images", "is_more"), [(2, False), (3, True)])
def test_more_than_seeds_is_more_than_any_two_of_them(tmp_path, n_images, is_more):
    """A single pair above their mean is not: seeds lose 1 of 11, 1 of 9 and 2 of 10."""
    store = Store(tmp_path)
    for seed, masks in enumerate((three(), three(LESS), three(LESS, img_b=LESS))):
        add_run(store, [(float(seed), masks)], seed=seed)
    apart = dict.fromkeys(["img_a", "img_b", "img_c"][:n_images], LESS)
    add_run(store, [(1.5, three()), (1.75, three() | apart)], mode="fast")
    shown = texts(spread_axis(measure_spread(store.runs())))
    assert ("≠ more than between any two seeds" in shown) is is_more


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
