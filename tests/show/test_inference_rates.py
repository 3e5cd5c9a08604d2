"""Rates of planted segmentations, and what tables and figures say of them."""

from dataclasses import replace

import pytest

from cellrepro.show import rate_table, rates_by_size
from cellrepro.show.inference_rates import inference_rates
from cellrepro.show.made_on_demand import segment_sizes
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run, three

MEGAPIXELS = 48 * 48 / 1e6


@pytest.fixture
def rates(tmp_path):
    """Of three images the second takes half the time in one repeat; the first is slow in both."""
    store, masks = Store(tmp_path), three()
    trained = add_run(store, [(1.0, masks)])
    asked = {"task": "segment", "learning_rate": 0.0, "epochs": 0, "mode": "fast"}
    runs = [
        add_run(store, [(None, masks)] * 2, settings={"batch_size": n}, **asked) for n in (4, 8)
    ]
    for repeat in runs[0].repeats:
        repeat.manifest.masks["img_a"].seconds = 60
    runs[0].repeats[1].manifest.masks["img_b"].seconds = 0.125
    return inference_rates([trained, *runs])


def spread(rate):
    return (rate.median, rate.lowest, rate.highest)


def test_rates_are_medians_over_repeats_without_the_first_image(rates):
    quick, usual = rates
    assert (quick.n_tiles_at_once, quick.size, quick.edge) == (4, "48 × 48", 48)
    assert (quick.n_repeats, quick.n_timed, quick.verdict) == (2, 2, "identical")
    images = spread(quick.images_per_second)
    assert images == pytest.approx((14 / 3, 4, 16 / 3))
    assert spread(quick.megapixels_per_second) == pytest.approx([n * MEGAPIXELS for n in images])
    assert spread(quick.cells_per_second) == pytest.approx([n * 2 for n in images])
    assert (quick.first_image_seconds, usual.first_image_seconds) == (60, 0.25)
    assert (usual.n_tiles_at_once, spread(usual.images_per_second)) == (8, (4, 4, 4))


def test_in_mode_strict_the_network_sees_one_tile_whatever_the_batch_size(tmp_path):
    asked = {"task": "segment", "learning_rate": 0.0, "epochs": 0, "mode": "strict"}
    run = add_run(Store(tmp_path), [(None, three())] * 2, settings={"batch_size": 4}, **asked)
    (speed,) = inference_rates([run])
    assert speed.n_tiles_at_once == 1


def test_a_table_and_a_figure_say_how_fast(rates):
    table = rate_table(rates)
    assert table["images/s"].tolist() == ["4.67 (4 to 5.33)", "4"]
    assert "setting" not in table
    assert rate_table([replace(rates[0], setting="fast")])["setting"].tolist() == ["fast"]
    pixels, images = rates_by_size(rates).axes
    assert images.get_legend_handles_labels()[1] == ["4 tiles at once", "8 tiles at once"]
    made_up = replace(rates[1], images="made up")
    _, beside_own = rates_by_size([*rates, made_up], own=rates[0].images).axes
    _, labels = beside_own.get_legend_handles_labels()
    assert labels[1:] == ["images of cells, 8 tiles at once", "made-up images, 8 tiles at once"]
    ((low, high),) = images.containers[0].lines[2][0].get_segments()
    assert (low.tolist(), high.tolist()) == ([48, 4], [48, pytest.approx(16 / 3)])
    assert (pixels.get_ylabel(), images.get_ylabel()) == ("megapixels/s", "images/s")
    # No marker is cut off at the upper edge.
    highest = max(rate.megapixels_per_second.highest for rate in rates)
    assert pixels.get_ylim()[1] > 1.05 * highest
    assert images.get_ylim()[1] > 1.05 * max(rate.images_per_second.highest for rate in rates)


def test_no_speed_is_no_figure():
    with pytest.raises(BadInput, match="no speeds to draw; give those of runs that only segmented"):
        rates_by_size([])


@pytest.mark.slow
def test_sizes_and_batch_sizes_of_a_trained_network(small_store, tmp_path):
    (outcome,) = segment_sizes(
        [300],
        [1],
        n_images=2,
        model=str(small_store.weights),
        repeats=1,
        ledger="off",
        store=tmp_path,
        quiet=True,
    )
    assert outcome.plan.spec.parameters()["batch_size"] == 1
    (speed,) = inference_rates(outcome.store.runs())
    assert (speed.size, speed.n_timed, speed.verdict) == ("300 × 300", 1, None)
    seconds = outcome.repeats[0].manifest.masks["synth_001"].seconds
    assert spread(speed.images_per_second) == (1 / seconds,) * 3
    assert speed.cells_per_second.median > 0
