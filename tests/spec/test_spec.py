"""A spec says everything that was asked for; its key names it."""

import shutil

import pytest
from pydantic import ValidationError

from cellrepro.profiles.profiles import Profile
from cellrepro.run.options import TrainingOptions
from cellrepro.run.planning import plan_training
from cellrepro.spec.new_spec import make_spec
from cellrepro.spec.segmentation_settings import Normalize, Settings
from cellrepro.spec.spec import Spec
from samebits.errors import BadInput

FIELDS = dict(
    **{"task": "train", "data": "nuclei", "data_digest": "d" * 64, "model": "tiny"},
    **{"model_digest": None, "seed": 0, "data_seed": "cellpose", "epochs": 12, "batch_size": 1},
    **{"learning_rate": 0.001, "images_per_epoch": 48, "profile": "cpu", "mode": "strict"},
    profile_settings={"device": "cpu", "threads": 2},
)

_OF_TRAINING = ("epochs", "learning_rate", "images_per_epoch")
SEGMENTED = {n: value for n, value in FIELDS.items() if n not in _OF_TRAINING} | {"task": "segment"}


def test_the_key_is_pinned():
    """Stores of different machines and versions are united by their keys."""
    assert Spec(**FIELDS).key == "f92accf3dfc183fe"  # stored by the first versions
    assert make_spec(**FIELDS).key == "7e4c5e0abe2c649f"
    names = {"data": "renamed", "profile": "mine"}
    names["profile_settings"] = FIELDS["profile_settings"] | {"name": "mine"}
    assert make_spec(**FIELDS | names).key == make_spec(**FIELDS).key


def test_everything_asked_for_changes_the_key():
    others = {
        **{"task": "segment", "data": "other", "data_digest": "e" * 64, "model": "cpsam"},
        **{"model_digest": "f" * 64, "seed": 1, "data_seed": 0, "epochs": 13, "batch_size": 2},
        **{"learning_rate": 0.002, "images_per_epoch": None, "profile": "lab", "mode": "warn"},
        **{"profile_settings": {"device": "cpu", "threads": 1}, "ledger": "steps"},
        **{"weight_decay": 0.2, "min_train_masks": 0, "rescale": True, "scale_range": 1},
        **{"normalize": False, "train_probs": {"a": 2}, "augmentation": False},
        **{"nimg_test_per_epoch": 2, "settings": {"batch_size": 1}, "continued_from": "a/b/0"},
        **{"ranks": 2, "cellpose": "4.0.9", "program": ("segment", "{image}", "{masks}")},
        "key_from": "contents",
    }
    fixed = {"loose", "SGD", "bsize", "class_weights", "optimizer", "schedule"}
    assert others.keys() == Spec.model_fields.keys() - fixed
    keys = {Spec(**{**FIELDS, field: value}).key for field, value in others.items()}
    assert len(keys | {Spec(**FIELDS).key}) == len(others) + 1


@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        ("segment", {"epochs": 5}, "epochs is 5, an option of train that does nothing in segment"),
        ("segment", {"learning_rate": 1.0}, "learning_rate is 1.0"),
        ("segment", {"data_seed": 3}, "data_seed is 3"),
        ("segment", {"weight_decay": 0.5}, "weight_decay is 0.5"),
        ("segment", {"ranks": 2}, "ranks is 2"),
        ("segment", {"batch_size": 2}, "give settings.batch_size"),
        ("train", {"settings": {"diameter": 60}}, r"settings is {'diameter': 60.0}, .* of segment"),
        ("train", {"cellpose": "4.0.9"}, "trains with the version that is installed"),
        ("train", {"program": ("rm",)}, "program is .*, an option of wrap"),
        ("wrap", {"settings": {"diameter": 60}}, "does nothing in wrap: leave it out"),
    ],
)
def test_an_option_of_another_task_is_refused_and_what_was_stored_with_one_is_read(
    task, given, expected
):
    """It would give one and the same work a second key."""
    asked = (FIELDS if task == "train" else SEGMENTED) | {"task": task}
    with pytest.raises(BadInput, match=expected):
        make_spec(**asked | given)
    stored = Spec(**asked | given)
    assert Spec.model_validate_json(stored.model_dump_json()).key == stored.key
    make_spec(**asked)


def test_a_segmentation_is_named_by_its_own_batch_size_and_by_nothing_of_a_training():
    asked = SEGMENTED
    usual, small = make_spec(**asked), make_spec(**asked, settings={"batch_size": 2})
    assert Spec(**FIELDS | {"task": "segment"}).key == "aef78baed1d07de9"  # stored by others
    assert (usual.parameters()["batch_size"], small.parameters()["batch_size"]) == (8, 2)
    assert usual.shown_parameters() == ["model", "seed", "batch_size", "profile", "mode", "ledger"]
    assert small.label == f"{usual.label}, batch size 2"
    with pytest.raises(BadInput, match=r"settings\.batch_size is 0; expected"):
        make_spec(**asked, settings={"batch_size": 0})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"SGD": True}, "SGD is True: Cellpose 4 takes SGD and ignores it"),
        ({"bsize": 384}, "crops of 256 pixels only"),
        ({"class_weights": [1, 2]}, "has one class"),
        ({"augmentation": False, "rescale": True}, "rescale and scale_range are part of it"),
        ({"normalize": {"sharpen_radius": 4}}, "ignores every one of them"),
        ({"train_probs": {"a": -1}}, "train_probs"),
    ],
)
def test_what_cellpose_ignores_or_cannot_do_is_refused(given, expected):
    with pytest.raises(BadInput, match=expected):
        make_spec(**FIELDS, **given)
    assert make_spec(**FIELDS, SGD=False, bsize=256).key == make_spec(**FIELDS).key


def test_mode_off_has_no_seed():
    """Where none is given a different mode has 0; YAML reads ``off`` as false."""
    without = {name: value for name, value in FIELDS.items() if name != "seed"}
    off = make_spec(**without | {"mode": False})
    assert (off.seed, off.mode) == (None, "off")
    assert "no seed" in off.label
    assert Spec.model_validate_json(off.model_dump_json()).key == off.key
    assert make_spec(**without, seed=None).seed == 0
    for given in ({"seed": 0}, {"data_seed": 1}):
        with pytest.raises(BadInput, match=r"mode off seeds nothing, and .*seed [01] is given"):
            make_spec(**without | {"mode": "off"} | given)


def test_mode_portable_has_float32_only():
    portable = FIELDS | {"mode": "portable"}
    assert make_spec(**portable).mode == "portable"
    with pytest.raises(
        BadInput, match=r"mode portable .*profile in bfloat16.*use a profile in float32"
    ):
        make_spec(**portable | {"profile_settings": {"device": "cpu", "dtype": "bfloat16"}})


def test_a_switch_that_a_profile_sets_is_part_of_the_key_and_must_suit_the_mode():
    usual = FIELDS["profile_settings"]
    benchmark = {**usual, "switches": {"cudnn_benchmark": True}}
    found = make_spec(**FIELDS | {"profile_settings": benchmark, "mode": "fast"})
    assert found.key != make_spec(**FIELDS | {"mode": "fast"}).key
    with pytest.raises(BadInput, match="sets cudnn_benchmark True, with which mode 'strict'"):
        make_spec(**FIELDS | {"profile_settings": benchmark, "mode": "strict"})
    assert "switches" not in Profile(**usual, name="x").model_dump()
    with pytest.raises(ValidationError, match="cudnn_benchmark"):
        Profile(name="x", switches={"cudnn_benchmrk": True})


def test_a_field_that_comes_later_leaves_the_keys_of_finished_grids():
    """It enters the key where it differs from its default, in specs and in profiles."""

    class LaterSpec(Spec):
        later: float = 0.1

    assert LaterSpec(**FIELDS, later=0.1).key == Spec(**FIELDS).key
    assert LaterSpec(**FIELDS, later=0.2).key != Spec(**FIELDS).key


def test_the_key_holds_content_and_no_reference():
    """The same weights under any name, and the same kind of device under any index, are one."""

    def key(model, device):
        settings = {"device": device, "threads": 2}
        given = FIELDS | {"model": model, "model_digest": "f" * 64, "profile_settings": settings}
        return make_spec(**given).key

    uuid = "GPU-8f6c3a52-7f2e-4b0a-9a51-0d8f0a6b1c2d"
    assert key("KEY/laptop-0a1b2c3d/0", "cuda:1") == key("nuclei.pth", uuid) == key("x", "cuda")
    assert key("x", "cuda") != key("x", "cpu")


def test_an_operation_left_loose_is_another_spec_and_all_others_are_fixed():
    assert make_spec(**FIELDS, loose="index_put").key != make_spec(**FIELDS).key
    with pytest.raises(BadInput, match="expected mode 'strict', not 'fast'"):
        make_spec(**{**FIELDS, "mode": "fast"}, loose="index_put")


def test_refuses_every_wrong_field_at_once():
    wrong = {
        **{"seed": 2**32, "data_seed": -1, "epochs": 2.5, "learning_rate": float("inf")},
        **{"mode": "Strict", "ledger": "everything", "data_digest": "abc", "colour": "red"},
    }
    with pytest.raises(BadInput) as caught:
        make_spec(**{**FIELDS, **wrong})
    for field, value in wrong.items():
        assert f"{field} is {value!r}" in str(caught.value)


def test_what_is_in_the_data_matters_and_not_its_name_or_place(small_data, tmp_path):
    other = tmp_path / "deep" / "renamed"
    shutil.copytree(small_data, other)
    assert (
        plan_training(TrainingOptions(data=other)).spec.key
        == plan_training(TrainingOptions(data=small_data)).spec.key
    )
    first, second = sorted((other / "train").glob("*[0-9].tif"))[:2]
    first.write_bytes(second.read_bytes())
    assert (
        plan_training(TrainingOptions(data=other)).spec.key
        != plan_training(TrainingOptions(data=small_data)).spec.key
    )


@pytest.mark.parametrize("area", ["runs", "unfinished"])
def test_what_the_first_versions_made_is_found(small_data, tmp_path, area):
    options = TrainingOptions(data=small_data, store=str(tmp_path))
    asked = plan_training(options).spec
    first = asked.as_in_first_versions
    assert first.key != asked.key
    (tmp_path / area / first.key).mkdir(parents=True)
    assert plan_training(options).spec == first
    (tmp_path / "runs" / asked.key).mkdir(parents=True)
    assert plan_training(options).spec == asked


def test_what_a_profile_says_counts_and_how_it_is_described_does_not(small_data, tmp_path):
    keys = []
    for text in ("threads: 2", "threads: 2\ndescription: the same", "threads: 3"):
        (tmp_path / "lab.yaml").write_text(text)
        keys.append(
            plan_training(
                TrainingOptions(data=small_data, profile=str(tmp_path / "lab.yaml"))
            ).spec.key
        )
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(("name", "value"), [("epochs", 0), ("profile", 3)])
def test_refuses_what_a_plan_cannot_have(small_data, name, value):
    """A grid file may hold any plain value at any place."""
    with pytest.raises(BadInput, match=rf"{name}.*{value}"):
        plan_training(TrainingOptions(data=small_data, **{name: value}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"diametr": 30}, "diametr: no such setting; do you mean diameter?"),
        ({"normalize.sharpn": 4}, r"normalize.*sharpn: no such setting; do you mean sharpen\?"),
        ({"rescale": 2}, "overwrites it by 30 / diameter: give diameter"),
        ({"channels": [0]}, "settings.channels"),
        ({"use_bfloat16": True}, "precision belongs to the profile"),
        ({"diameter": 0}, "settings.diameter is 0; expected a number above 0"),
        ({"tile_overlap": 0.6}, "settings.tile_overlap is 0.6"),
        ({"normalize.percentile": [99, 1]}, "low < high <= 100"),
        ({"normalize.lowhigh": []}, r"lowhigh is \[\]; expected a low and a higher value"),
        ({"normalize.lowhigh": [9, 1]}, "expected a low and a higher value"),
        ({"normalize.lowhigh": [1, 9], "normalize.sharpen": 2}, "ignores sharpen where lowhigh"),
        ({"normalize": False, "normalize.percentile": [1, 9]}, "ignores percentile where norm"),
        ({"do_3D": True, "stitch_threshold": 0.5}, "ignores stitch_threshold where do_3D is on"),
        ({"anisotropy": 2.0}, "ignores anisotropy where do_3D is off"),
        ({"augment": True, "tile_overlap": 0.3}, "ignores tile_overlap where augment is on"),
    ],
)
def test_a_setting_that_cellpose_has_not_or_ignores_is_refused(given, message):
    with pytest.raises(BadInput, match=message):
        make_spec(**SEGMENTED, settings=given)


def test_settings_written_in_several_ways_are_one_spec():
    def key(**settings):
        return make_spec(**SEGMENTED, settings=settings).key

    assert key(diameter=30, batch_size=8) == key(**{"diameter": 30.0})
    nested = key(normalize={"sharpen": 4, "percentile": None})
    assert nested == key(**{"normalize.sharpen": 4}) == key(normalize={"sharpen_radius": 4.0})
    assert key(normalize=False) == key(**{"normalize.normalize": False})
    assert len({key(), nested, key(normalize=False), key(diameter=30)}) == 4


def test_messages_are_short_and_propose_a_name(made_up):
    """A missing field is not shown with the whole document; of many wrong ones some are named."""
    with pytest.raises(
        BadInput, match=r"^data is missing; model is missing; .*data_digest is missing;"
    ):
        make_spec(seed=0)
    with pytest.raises(BadInput, match=r"and \d+ more like these") as caught:
        make_spec(
            **made_up.spec().model_dump()
            | {"train_probs": dict.fromkeys(map(str, range(5000)), -1.0)}
        )
    assert len(str(caught.value)) < 3000
    with pytest.raises(BadInput, match=r"lerning_rate is 0.1: there is no such field; do you mean"):
        make_spec(**made_up.spec().model_dump(), lerning_rate=0.1)


def test_normalize_given_whole_and_by_field_loses_nothing():
    whole = Normalize(percentile=(2, 98))
    both = Settings.model_validate({"normalize": whole, "normalize.sharpen": 4})
    expected = {"normalize.percentile": (2.0, 98.0), "normalize.sharpen": 4.0}
    assert both.not_default() == expected
    assert (
        Settings(normalize=whole).replaced(normalize=Normalize(sharpen=4)).not_default() == expected
    )
    assert both.replaced(normalize={"sharpen_radius": 5}).not_default() == expected | {
        "normalize.sharpen": 5.0
    }
    twice = {"normalize": {"sharpen": 3}, "normalize.sharpen": 4}
    with pytest.raises(BadInput, match="sharpen is 4, and 3 in normalize as a whole: give it once"):
        Settings().replaced(**twice)


@pytest.mark.parametrize("numbers", [(1, 4), (4, 1)])
def test_one_field_by_two_of_its_names_is_given_once(numbers):
    named = dict(zip(("sharpen", "sharpen_radius"), numbers, strict=True))
    with pytest.raises(ValidationError, match="give it once"):
        Settings(normalize=named)
    with pytest.raises(BadInput, match="give it once"):
        Settings().replaced(normalize=named)
    with pytest.raises(BadInput, match="give it once"):
        Settings().replaced(**{"normalize": named, "normalize.invert": True})
    assert Settings(normalize={"sharpen": 4, "sharpen_radius": 4}).normalize.sharpen == 4


@pytest.mark.parametrize("name", ["diameter", "niter", "normalize.sharpen"])
def test_yes_is_no_number(name):
    """YAML reads ``on`` and ``yes`` so; as a number it would be 1."""
    with pytest.raises(BadInput, match="is True: expected a number, not yes or no"):
        Settings().replaced(**{name: True})


def test_a_label_shows_what_is_not_at_its_default():
    label = make_spec(**FIELDS | {"data_seed": 3, "batch_size": 2}, loose="index_put").label
    assert "strict, index_put loose" in label
    assert label.endswith("data seed 3, batch size 2")
    assert make_spec(**FIELDS).label.endswith("seed 0, profile cpu, mode strict")


def test_a_label_compares_the_settings_with_their_defaults_once(made_up, monkeypatch):
    """A list of ten thousand runs makes ten thousand labels."""
    comparisons = []
    not_default = Settings.not_default

    def counted(settings):
        comparisons.append(settings)
        return not_default(settings)

    monkeypatch.setattr(Settings, "not_default", counted)
    label = made_up.spec(task="segment", settings={"diameter": 60}).label
    assert "diameter 60" in label
    assert len(comparisons) <= 3


def test_a_field_of_a_setting_that_has_none_is_refused():
    with pytest.raises(ValueError, match="has no fields"):
        Settings.model_validate({"diameter": 30, "diameter.x": 5})
