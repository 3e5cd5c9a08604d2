"""Figures of networks: what is drawn is what was measured."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from cellrepro.compare.weight_similarity import (
    difference_distributions,
    layers_by_distance,
    similarity,
)
from cellrepro.compare.weights import compare_weights
from cellrepro.errors import BadInput
from cellrepro.show.figures import weights
from drawn import texts


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Three networks: ``a`` changes with the factor, ``b`` a hundredth of it, ``c`` never."""
    folder = tmp_path_factory.mktemp("networks")
    values = np.linspace(1, 2, 64, dtype=np.float64)
    paths = []
    for i, factor in enumerate((1.0, 1.5, 3.0)):
        paths.append(folder / f"{i}.safetensors")
        tensors = {"a.w": values * factor, "b.w": values * (1 + factor / 100), "c.w": values}
        save_file({name: value.astype(np.float32) for name, value in tensors.items()}, paths[-1])
    return paths


def rows_of(picture):
    return [text.get_text() for text in picture.axes[0].get_yticklabels()]


def test_layers_are_drawn_from_the_least_to_the_most(networks):
    table = similarity(networks)
    picture = weights.layer_distances(table, labels=["one", "two", "three"])
    axes = picture.axes[0]
    measured = layers_by_distance(table)
    assert rows_of(picture) == [row.layer for row in measured] == ["a.w", "b.w", "c.w"]
    for i, row in enumerate(measured[:2]):
        here = {
            line.get_marker(): line.get_xdata()
            for line in axes.lines
            if set(line.get_ydata()) == {i}
        }
        assert sorted(here["|"]) == sorted(row.relative_l2)
        assert here["o"] == [row.median]
    (diamond,) = [line for line in axes.lines if line.get_marker() == "D"]
    assert diamond.get_xydata().tolist() == [[0, 2]]  # equal in c
    assert "furthest apart in a.w (" in texts(picture)
    assert len(rows_of(weights.layer_distances(table, n=1))) == 1


def test_shares_of_differences_are_those_counted(networks):
    found = difference_distributions(networks)
    picture = weights.difference_distributions(found)
    shown = {panel.get_title().split()[0]: panel for panel in picture.axes if panel.get_title()}
    assert set(shown) == {"a.w", "b.w"}  # c is equal throughout
    for name, panel in shown.items():
        layer = found.layers.index(name)
        steps = [patch for patch in panel.patches if hasattr(patch, "get_data")]
        for patch, counts in zip(steps, found.counts[:, layer], strict=True):
            values, _, _ = patch.get_data()
            np.testing.assert_allclose(values[counts > 0], counts[counts > 0] / 64)
            floor = panel.get_ylim()[0]
            assert (np.asarray(values)[counts == 0] < floor).all()  # below the axis: not seen
    assert "2 of 3 parts; 1 equal throughout" in texts(picture)


def test_weights_are_counted_over_common_intervals(networks):
    picture = weights.weight_distributions({"narrow": networks[0], "wide": networks[2]})
    assert "a.w (64)" in texts(picture)
    first, second = (step.get_data() for step in picture.axes[0].patches)
    np.testing.assert_array_equal(first.edges, second.edges)
    assert first.edges[-1] == pytest.approx(6, rel=0.01)
    with pytest.raises(BadInput, match="no weights file was given"):
        weights.weight_distributions({})


def test_tensors_that_differ_most_come_first(networks):
    picture = weights.parameter_differences(compare_weights(networks[0], networks[2]))
    assert rows_of(picture) == ["a.w", "b.w"]
    assert picture.axes[0].patches[0].get_width() == pytest.approx(2)
    assert "100 % of 64" in texts(picture)


def test_equal_networks_are_said(networks):
    pair = [networks[0], networks[0]]
    found = difference_distributions(pair)
    assert "of equal value" in texts(weights.difference_distributions(found))
    assert "no two of these networks differ" in texts(weights.layer_distances(similarity(pair)))
    assert "no tensor" in texts(weights.parameter_differences(compare_weights(*pair)))
