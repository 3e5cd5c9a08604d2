"""What a tracker of experiments gets of a finished repeat."""

import math

import pytest

from cellrepro.exchange.tracked_record import tracked_record
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.store.store import Store
from stores import add_run, some_manifest, some_spec, three


def curve(record, name):
    return {point.epoch: point.value for point in record.points if point.name == name}


def test_curves_stand_at_the_epochs_that_they_are_of():
    manifest = some_manifest(weights="a")
    manifest.training.ap50_after = {1: 0.25, 3: 0.5}
    manifest.masks["cell"].ap50 = 0.75
    record = tracked_record(some_spec(), manifest)
    assert curve(record, "learning_rate") == {0: 0.0, 1: 0.5, 2: 1.0}
    assert curve(record, "train_loss") == {0: 2.0, 1: 1.5, 2: 1.0}
    assert curve(record, "test_loss") == {0: 1.9}
    assert curve(record, "ap50") == {0: 0.25, 2: 0.75}  # after one epoch, and of the run
    assert curve(record, "seconds.train") == {2: 5.0}
    assert record.ended - record.started == 8200


def test_a_loss_of_a_training_that_diverged_stays_what_it_is():
    manifest = some_manifest()
    manifest.training.train_losses[1] = math.nan
    losses = curve(tracked_record(some_spec(), manifest), "train_loss")
    assert math.isnan(losses[1])


def test_every_parameter_is_a_text_under_a_name_of_its_own():
    spec = some_spec(train_probs={"img_a": 3.0}, images_per_epoch=None)
    parameters = tracked_record(spec, some_manifest(spec)).parameters
    assert parameters["learning_rate"] == "0.01"
    assert parameters["profile_settings.threads"] == "2"
    assert parameters["images_per_epoch"] == "none"
    assert parameters["train_probs"] == '[["img_a", 3.0]]'
    assert not any(name.startswith("settings") for name in parameters)
    assert {*map(type, parameters.values())} == {str}


def test_a_segmentation_has_its_settings_and_nothing_of_training():
    spec = some_spec(task="segment", epochs=0, learning_rate=0.0, settings=Settings(diameter=60))
    record = tracked_record(spec, some_manifest(spec, weights=None, training=None))
    assert record.parameters["settings.diameter"] == "60.0"
    assert record.parameters["settings.batch_size"] == "8"
    assert not {"epochs", "learning_rate", "batch_size", "program"} & record.parameters.keys()
    assert curve(record, "train_loss") == {}
    assert curve(record, "n_objects") == {0: 3}


def test_no_path_of_the_machine_is_handed_on(tmp_path):
    run = add_run(Store(tmp_path), [(1.0, three())])
    record = tracked_record(run.spec, run.repeats[0].manifest)
    assert "/somewhere" not in str(record)


@pytest.mark.parametrize("started", ["2026-11-01T12:00:00+00:00", "2026-11-01T13:00:00+01:00"])
def test_the_time_is_that_of_the_world(started):
    record = tracked_record(some_spec(), some_manifest(started=started))
    assert record.started == 1_793_534_400_000
