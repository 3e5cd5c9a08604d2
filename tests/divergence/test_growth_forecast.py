"""How far a training elsewhere grows apart: as far as it really does, and only by rounding."""

import re
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import cellrepro
from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.divergence import growth_forecast
from cellrepro.divergence.growth_forecast import (
    ForecastMoment,
    GrowthForecast,
    RealTraining,
    growth_forecast_of,
)
from cellrepro.divergence.trained_again import USUAL, ScratchFolder, trained_in_draws
from cellrepro.errors import CellreproError
from cellrepro.explanation.forecast import ForecastCell, ImageForecast
from cellrepro.process.calling import in_this_process
from cellrepro.run import planned_child
from cellrepro.run.options import TrainingOptions
from cellrepro.run.planning import plan_training
from cellrepro.show.figures.growth_band import growth_band
from cellrepro.show.pages.forecast_page import write_forecast_page
from cellrepro.show.pages.page_file import page_target
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from conftest import SMALL, options
from stores import add_run, three

# Cellpose 4.2.1.1 makes a sparse tensor in dynamics.py; PyTorch 2.15 would be asked to check.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")

SHORT = {"epochs": 2, "images_per_epoch": 1, "learning_rate": 0.01, "mode": "fast"}


@pytest.fixture
def recorded(tmp_path):
    """A stored training, whose record alone is read."""
    (repeat,) = add_run(Store(tmp_path / "outputs"), [(1.0, three())]).repeats
    return repeat


@pytest.fixture
def planned(small_data, tmp_path):
    """Plans of two epochs of one step, the first of which changes no weight."""
    store = tmp_path / "outputs"
    return lambda profile: plan_training(
        TrainingOptions(data=small_data, store=store, profile=profile, **SHORT)
    )


def trained(plan, n_draws, folder):
    folder.mkdir()
    scratch = ScratchFolder(folder)
    task = partial(
        trained_in_draws, request=plan.request, n_draws=n_draws, epochs=(2,), scratch=scratch
    )
    return scratch, in_this_process(task, plan.request.setup, label="draws")


def test_draws_are_as_far_apart_as_another_number_of_threads(
    planned, recorded, tmp_path, monkeypatch, one_thread, generators_free
):
    monkeypatch.setattr("cellrepro.profiles.profiles.require_at_startup", Mock())
    monkeypatch.setattr(
        planned_child, "in_child", lambda task, setup, **_: in_this_process(task, setup, label="")
    )
    monkeypatch.setattr(defaults, "MASKS_ON_THE_WAY", 1)
    plan = planned("cpu-1thread")
    found = growth_forecast_of(plan, recorded, draws=2, quiet=True)
    (end,) = found.moments
    assert (end.epoch, found.first_epoch) == (2, 2)  # in the first epoch the learning rate is 0
    assert end.distance.low == min(end.distance_by_draw) > 0
    assert end.distance.high == max(end.distance_by_draw) > end.distance.low
    assert (found.vacuous, found.real) == (True, ())  # one step finds no cell

    scratch, again = trained(plan, 1, tmp_path / "again")
    assert again.distances == ((end.distance_by_draw[0],),)
    elsewhere, _ = trained(planned("cpu"), 0, tmp_path / "elsewhere")
    real = compare_weights(scratch.weights(USUAL, 2), elsewhere.weights(USUAL, 2)).relative_l2
    assert real < 5 * end.distance.high < 500 * max(real, 1e-7)


def test_the_same_training_of_the_store_is_held_to_the_one_here(small_store, tmp_path):
    """Of each repeat what really differs, at the end and where it kept checkpoints."""
    store = Store(small_store.root)
    repeats = store.find_run(small_store.key).repeats
    name, *_ = images = [*repeats[0].manifest.masks]
    plan = plan_training(
        TrainingOptions(data=small_store.data, store=store.root, profile="cpu-1thread", **SMALL)
    )
    scratch = ScratchFolder(tmp_path)
    weights = load_file(small_store.weights)
    for epoch in (3, 4):
        save_file(weights, scratch.weights(USUAL, epoch))
    masks = repeats[0].masks(name)
    np.savez_compressed(scratch.masks(USUAL, 4), np.where(masks == 1, 0, masks))

    def real():
        return [*growth_forecast._real_trainings(plan, (3, 4), images, scratch)]

    assert [one.name for one in real()] == []  # both repeats have the same bits
    first = next(iter(weights))
    save_file(weights | {first: weights[first] + 1}, scratch.weights(USUAL, 4))
    found = real()
    assert [one.name for one in found] == [repeat.name for repeat in repeats]
    assert (found[0].profile, found[0].cells, found[0].pixels) == ("cpu", 1, (masks == 1).sum())
    (epoch_3, on_the_way), (epoch_4, at_end) = found[0].distances
    assert (epoch_3, epoch_4) == (3, 4)
    assert on_the_way > 0 < at_end


FORECAST = GrowthForecast(
    run="0123/amd/0",
    draws=2,
    first_epoch=2,
    moments=(
        ForecastMoment(1, 0, (0.0, 0.0), (0, 0), (0, 0)),
        ForecastMoment(3, 88, (1e-4, 3e-4), (12, 250), (1, 3)),
    ),
    images=(
        ImageForecast("a", 88, (ForecastCell(4, (8.0, 9.0), ("lost",), 2),), (1, 3), (12, 250)),
    ),
    real=(RealTraining("0124/arm/0", "cpu-avx2", "strict", ((2, 1e-5), (3, 2e-4)), 100, 2),),
)


def test_it_is_said_in_words_in_a_figure_and_on_a_page(tmp_path):
    assert FORECAST.sentence() == (
        "other rounding, as other computers have, parts the weights in epoch 2; after 3 epochs "
        "1 to 3 of your 88 cells in 1 image differed, in 2 draws"
    )
    assert "67 % of other computers lie outside by chance" in FORECAST.as_text()
    weights, pixels, cells = growth_band(FORECAST).axes
    assert weights.lines[-1].get_xydata().tolist() == [[2, 1e-5], [3, 2e-4]]
    assert [line.get_ydata().tolist() for line in cells.lines] == [[0, 1], [0, 3], [2]]
    assert pixels.get_ylim()[1] >= 250
    write_forecast_page(page_target(tmp_path / "page.html", overwrite=False), FORECAST)
    page = (tmp_path / "page.html").read_text()
    assert all(words in page for words in ("1 to 3 of 88", "lost", "0124/arm/0", FORECAST.run))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mode": "portable"}, "every computer gives the same bits"),
        ({"mode": "off"}, "nothing of .* was seeded"),
        ({"epochs": 1}, "there is nothing to forecast of .*: 1 epoch trains nothing"),
        ({"ranks": 2, "batch_size": 2}, "trained by 2 processes"),
    ],
    ids=str,
)
def test_where_rounding_alone_makes_no_difference_nothing_is_forecast(
    small_data, recorded, tmp_path, no_child, changes, said
):
    asked = TrainingOptions(data=small_data, store=tmp_path / "other", **{**SHORT, **changes})
    with pytest.raises(CellreproError, match=said):
        growth_forecast_of(plan_training(asked), recorded, draws=2, quiet=True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"profile": "cpu"}, "--profile would do nothing with a stored training"),
        ({}, "the images of .* are not here as they were"),
        ({"html": "page.txt"}, "ends in .html"),
    ],
    ids=str,
)
def test_options_that_a_training_does_not_take_are_refused(
    recorded, invoke, tmp_path, no_child, wrong, said
):
    answer = invoke("forecast", recorded.name, *options(store=tmp_path / "outputs", **wrong))
    assert (answer.code, answer.out) == (2, "")
    assert re.search(said, answer.err)


@pytest.mark.slow
def test_other_threads_and_instruction_sets_lie_near_the_band(small_store, tmp_path):
    """Real trainings beside what is foretold of them, by an order of magnitude."""
    given = {"store": tmp_path / "outputs", "quiet": True, "repeats": 1}
    made = {
        profile: cellrepro.train(small_store.data, profile=profile, **SMALL, **given)
        for profile in ("cpu", "cpu-1thread", "cpu-avx2", "cpu-baseline")
    }
    weights = {profile: one.repeats[0].manifest.weights.digest for profile, one in made.items()}
    page = tmp_path / "page.html"
    found = cellrepro.forecast(made["cpu"].key, store=given["store"], html=page, quiet=True)
    # A processor whose best instructions are AVX2 gives the same bits with cpu-avx2.
    different = {profile for profile, digest in weights.items() if digest != weights["cpu"]}
    assert {real.profile for real in found.real} == different
    assert different >= {"cpu-1thread", "cpu-baseline"}
    for real in found.real:
        _, distance = real.distances[-1]
        assert found.end.distance.low / 10 < distance < 10 * found.end.distance.high
        assert real.cells <= 10 * max(found.end.cells.high, 1)
