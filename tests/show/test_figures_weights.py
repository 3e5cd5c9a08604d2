"""Pictures of where networks part: what is drawn is what was measured."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from cellrepro.compare.weight_histograms import difference_distributions
from cellrepro.compare.weight_similarity import layers_by_distance, similarity
from cellrepro.errors import BadInput
from cellrepro.show.figures import style, weights

EDGE = 0.02  # of the axis, where what is equal stands


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Three networks: ``a`` moves with the factor, ``b`` a hundredth of it, ``c`` never."""
    folder = tmp_path_factory.mktemp("networks")
    values = np.linspace(1, 2, 64, dtype=np.float64)
    paths = []
    for i, factor in enumerate((1.0, 1.5, 3.0)):
        paths.append(folder / f"{i}.safetensors")
        tensors = {"a.w": values * factor, "b.w": values * (1 + factor / 100), "c.w": values}
        save_file({name: value.astype(np.float32) for name, value in tensors.items()}, paths[-1])
    return paths


def texts(picture) -> list[str]:
    import matplotlib.text

    assert picture.png(dpi=40).startswith(b"\x89PNG")
    found = picture.findobj(matplotlib.text.Text)
    return [text.get_text() for text in found if text.get_visible() and text.get_text()]


def test_layers_are_drawn_from_the_least_to_the_most(networks):
    table = similarity(networks)
    axes = weights.layers_parting(table).axes[0]
    rows = layers_by_distance(table)
    drawn = [text.get_text() for text in axes.get_yticklabels()]
    assert drawn == [row.layer for row in rows] == ["a.w", "b.w", "c.w"]
    for i, row in enumerate(rows[:2]):
        here = [line for line in axes.get_lines() if set(line.get_ydata()) == {i}]
        (whole,) = [line.get_xdata() for line in here if line.get_linewidth() == 5]
        assert tuple(whole) == (row.least, row.most)
        (median,) = [line.get_xdata()[0] for line in here if line.get_marker() == "o"]
        assert median == row.median
        (ticks,) = [line.get_xdata() for line in here if line.get_marker() == "|"]
        assert sorted(ticks) == sorted(row.relative_l2)
    assert rows[0].most == pytest.approx(2.0)  # 3 - 1, in lengths of the first


def test_equal_layers_stand_apart(networks):
    picture = weights.layers_parting(similarity(networks))
    axes = picture.axes[0]
    (diamond,) = [line for line in axes.get_lines() if line.get_marker() == "D"]
    assert diamond.get_ydata()[0] == 2
    low, high = axes.get_xlim()
    assert np.log(diamond.get_xdata()[0] / low) == pytest.approx(EDGE * np.log(high / low))
    said = texts(picture)
    assert "equal" in said
    assert "equal in a pair" in said


def test_the_furthest_pair_is_named(networks):
    said = texts(weights.layers_parting(similarity(networks), labels=["one", "two", "three"]))
    (title,) = [text for text in said if text.startswith("furthest apart in a.w (")]
    assert {"one", "three"} <= set(title.split())
    assert "Layers that part most: 3 layers, 3 pairs of networks" in said


def test_only_the_first_layers_are_shown(networks):
    picture = weights.layers_parting(similarity(networks), n=1)
    assert [text.get_text() for text in picture.axes[0].get_yticklabels()] == ["a.w"]
    assert "1 of 3 layers" in " ".join(texts(picture))


def test_shares_of_differences_are_those_counted(networks):
    found = difference_distributions(networks)
    picture = weights.difference_distributions(found)
    shown = {panel.get_title().split()[0]: panel for panel in picture.axes if panel.get_title()}
    assert set(shown) == {"a.w", "b.w"}  # c is equal throughout
    for name, panel in shown.items():
        layer = found.layers.index(name)
        steps = [patch for patch in panel.patches if hasattr(patch, "get_data")]
        assert len(steps) == len(found.pairs) == 2
        for patch, counts in zip(steps, found.counts[:, layer], strict=True):
            values, edges, _ = patch.get_data()
            assert len(edges) == len(found.edges)
            np.testing.assert_allclose(values[counts > 0], counts[counts > 0] / 64)
            floor = panel.get_ylim()[0]
            assert (np.asarray(values)[counts == 0] < floor).all()  # below the axis: not seen
    assert "1 more is equal throughout" in " ".join(texts(picture))


def test_no_line_hides_another(networks):
    """Later ones are thinner and dashed, so two that are equal are both seen."""
    picture = weights.difference_distributions(difference_distributions(networks))
    steps = [patch for patch in picture.axes[0].patches if hasattr(patch, "get_data")]
    first, second = [(patch.get_linewidth(), patch.get_linestyle()) for patch in steps]
    assert first[0] > second[0]
    assert first[1] != second[1]
    assert steps[0].get_edgecolor() != steps[1].get_edgecolor()


def test_equal_networks(networks):
    pair = [networks[0], networks[0]]
    found = difference_distributions(pair)
    assert "all parameters are of equal value" in " ".join(
        texts(weights.difference_distributions(found))
    )
    assert "no two of these networks differ" in " ".join(
        texts(weights.layers_parting(similarity(pair)))
    )


@pytest.mark.parametrize(
    ("draw", "measured"),
    [
        (weights.layers_parting, similarity),
        (weights.difference_distributions, difference_distributions),
    ],
    ids=["layers", "differences"],
)
def test_labels_are_counted(networks, draw, measured):
    with pytest.raises(BadInput, match="2 labels were given for 3 networks"):
        draw(measured(networks), labels=["a", "b"])


def test_a_picture_that_shows_itself(networks):
    assert isinstance(weights.layers_parting(similarity(networks)), style.Picture)
