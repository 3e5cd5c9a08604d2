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
    values = np.linspace(1, 2, 64, dtype=np.float32)
    paths = [folder / f"{i}.safetensors" for i in range(3)]
    for path, factor in zip(paths, (1.0, 1.5, 3.0), strict=True):
        save_file({"a.w": values * factor, "b.w": values * (1 + factor / 100), "c.w": values}, path)
    return paths


def test_layers_are_drawn_from_the_least_to_the_most(networks):
    table = similarity(networks)
    picture = weights.layer_distances(table, labels=["one", "two", "three"])
    assert "furthest apart in a.w (" in texts(picture)
    axes = picture.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a.w", "b.w", "c.w"]
    for i, row in enumerate(layers_by_distance(table)[:2]):
        drawn = [line for line in axes.lines if set(line.get_ydata()) == {i}]
        here = {line.get_marker(): line.get_xdata() for line in drawn}
        assert sorted(here["|"]) == sorted(row.relative_l2)
        assert here["o"] == [row.median]


def test_shares_of_differences_are_those_counted(networks):
    found = difference_distributions(networks)
    picture = weights.difference_distributions(found)
    for layer, panel in enumerate(picture.axes[:2]):
        steps = [patch for patch in panel.patches if hasattr(patch, "get_data")]
        for patch, counts in zip(steps, found.counts[:, layer], strict=True):
            values = np.asarray(patch.get_data().values)
            np.testing.assert_allclose(values[counts > 0], counts[counts > 0] / 64)
    assert "2 of 3 parts; 1 equal throughout" in texts(picture)


def test_weights_are_counted_over_common_intervals(networks):
    picture = weights.weight_distributions({"narrow": networks[0], "wide": networks[2]})
    first, second = (step.get_data() for step in picture.axes[0].patches)
    np.testing.assert_array_equal(first.edges, second.edges)
    with pytest.raises(BadInput, match="no weights file was given"):
        weights.weight_distributions({})


def test_tensors_that_differ_most_come_first(networks):
    picture = weights.parameter_differences(compare_weights(networks[0], networks[2]))
    (axes,) = picture.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a.w", "b.w"]
    assert axes.patches[0].get_width() == pytest.approx(2)


def test_equal_networks_are_said(networks):
    pair = [networks[0], networks[0]]
    found = difference_distributions(pair)
    assert "of equal value" in texts(weights.difference_distributions(found))
    assert "no two of these networks differ" in texts(weights.layer_distances(similarity(pair)))
    assert "no tensor" in texts(weights.parameter_differences(compare_weights(*pair)))
