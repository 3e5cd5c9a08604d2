"""What the lab does with the Cellpose that a user has: versions are planted, none is installed."""

import pytest

from cellrepro.audits import doctor
from cellrepro.explanation.condition_commands import LabSetup, commands_for
from cellrepro.explanation.describe import describe
from cellrepro.explanation.tile_lines import tiles_along
from cellrepro.model import cellpose_generation
from cellrepro.model.cellpose_generation import (
    TRAINED_WITH,
    installed_version,
    refuse_training,
)
from cellrepro.model.tile_layout import TileLayout
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.run.planning import plan_segmentation, plan_training
from cellrepro.spec import defaults
from cellrepro.spec.segmentation_settings import Settings
from samebits.errors import BadInput, NotPossibleHere


@pytest.fixture
def installed(monkeypatch):
    """Plant the version of Cellpose that is installed."""

    def plant(version):
        monkeypatch.setattr(cellpose_generation, "installed_version", lambda: version)

    return plant


def test_this_cellpose_trains():
    assert installed_version() in TRAINED_WITH
    refuse_training()


@pytest.mark.parametrize("version", ["3.1.1.2", "4.0.9", "4.1.1", "4.3.0"])
def test_a_loop_that_no_test_has_compared_is_refused(small_data, tmp_path, installed, version):
    """By name, with the way on, and before anything is written."""
    installed(version)
    message = rf"Cellpose {version} is installed.*4\.2\.1\.1 only.*cellrepro setup FOLDER"
    with pytest.raises(NotPossibleHere, match=message):
        plan_training(TrainingOptions(data=small_data, store=tmp_path / "outputs"))
    diagnosis = doctor.diagnose(profile=defaults.PROFILE, quiet=True)
    assert diagnosis.exit_code == NotPossibleHere.exit_code
    assert "not tried with profile" in str(diagnosis)
    assert f"Cellpose {version} is installed" in str(diagnosis)
    assert list(tmp_path.iterdir()) == []


def test_cellpose_3_segments_with_its_own_networks(small_data, installed):
    installed("3.1.1.2")
    assert plan_segmentation(SegmentationOptions(data=small_data)).spec.model == "cyto3"
    named = plan_segmentation(SegmentationOptions(data=small_data, model="nuclei"))
    assert named.request.model.architecture == "cellpose"
    with pytest.raises(BadInput, match=r"'tiny'.*Cellpose 3\.1\.1\.2.*expected --model with a"):
        plan_segmentation(SegmentationOptions(data=small_data, model="tiny"))
    with pytest.raises(BadInput, match=r"unknown model 'cpsam'; expected 'cyto3', 'nuclei'"):
        plan_segmentation(SegmentationOptions(data=small_data, model="cpsam"))


@pytest.mark.parametrize(
    ("version", "loads_as", "note"),
    [
        ("3.1.1.2", "itself", ""),
        ("4.0.9", None, "Cellpose 4 refuses networks of Cellpose 2 and 3; segment with"),
    ],
)
def test_describe_speaks_of_the_cellpose_that_is_installed(
    tmp_path, installed, version, loads_as, note
):
    import torch

    path = tmp_path / "my_model"
    torch.save({"downsample.down.0.weight": torch.zeros(32, 2, 3, 3)}, path)
    installed(version)
    described = describe(str(path))
    assert (described.generation, described.loads_as) == ("2 or 3", loads_as)
    assert described.note.startswith(note)


def test_channels_are_chosen_in_cellpose_3_alone(small_data, installed):
    options = SegmentationOptions(data=small_data, settings={"channels": [2, 1]})
    with pytest.raises(BadInput, match=r"settings.channels is \[2, 1\]; Cellpose 4 ignores it"):
        plan_segmentation(options)
    installed("3.1.1.2")
    spec = plan_segmentation(options).spec
    assert spec.settings.arguments()["channels"] == [2, 1]
    assert spec.settings.replaced(diameter=20).channels == (2, 1)
    without = plan_segmentation(SegmentationOptions(data=small_data)).spec
    assert spec.key != without.key
    assert "channels" not in without.settings.by_name()


def test_commands_are_those_of_the_version(installed):
    condition = {"model": "cyto3", "precision": "float32", "channels": [2, 1]}
    installed("3.1.1.2")
    commands = commands_for("image.tif", condition, {}, LabSetup())
    expected = "python -m cellpose --image_path image.tif --pretrained_model cyto3"
    assert commands.shell.command == f"{expected} --chan 2 --chan2 1 --diameter 0"
    assert commands.shell.notes
    call = "CellposeModel(model_type='cyto3').eval(image, channels=[2, 1], diameter=None)"
    assert f"models.{call}" in commands.python
    installed("4.0.9")
    del condition["channels"]
    assert "use_bfloat16=False" in commands_for("image.tif", condition, {}, LabSetup()).python


def test_tiles_of_cellpose_3_are_laid_out_in_another_way():
    """224 pixels each, and an image of 200 is padded to 208 and 8 on each side, not to a tile."""
    layout = TileLayout(tile_size=224, network_diameter=30.0, usual_diameter=30.0, fills_tile=False)
    assert tiles_along(200, Settings(), layout) == [(-12, 212)]
    assert len(tiles_along(300, Settings(), layout)) == 2
    halved = TileLayout(224, network_diameter=30.0, usual_diameter=60.0, fills_tile=False)
    assert tiles_along(300, Settings(), halved)[0][1] > 300
