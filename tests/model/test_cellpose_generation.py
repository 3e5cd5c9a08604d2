"""What the lab does with the Cellpose that a user has: versions are planted, none is installed."""

import pytest

from cellrepro.asked import defaults
from cellrepro.audits import doctor
from cellrepro.changes.describe import describe
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.model import cellpose_generation
from cellrepro.model.cellpose_generation import TRAINED_WITH, installed_version, refuse_training
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.run.planning import plan_segmentation, plan_training


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
        plan_training(TrainingOptions(small_data, store=tmp_path / "outputs"))
    diagnosis = doctor.diagnose(profile=defaults.PROFILE, quiet=True)
    assert diagnosis.exit_code == NotPossibleHere.exit_code
    assert "not tried with profile" in str(diagnosis)
    assert f"Cellpose {version} is installed" in str(diagnosis)
    assert list(tmp_path.iterdir()) == []


def test_cellpose_3_segments_with_its_own_networks(small_data, installed):
    installed("3.1.1.2")
    assert plan_segmentation(SegmentationOptions(small_data)).spec.model == "cyto3"
    named = plan_segmentation(SegmentationOptions(small_data, model="nuclei"))
    assert named.request.model.architecture == "cellpose"
    with pytest.raises(BadInput, match=r"'tiny'.*Cellpose 3\.1\.1\.2.*expected --model with a"):
        plan_segmentation(SegmentationOptions(small_data, model="tiny"))
    with pytest.raises(BadInput, match=r"unknown model 'cpsam'; expected 'cyto3', 'nuclei'"):
        plan_segmentation(SegmentationOptions(small_data, model="cpsam"))


@pytest.mark.parametrize(
    ("version", "loads_as", "note"),
    [
        ("3.1.1.2", "itself", ""),
        ("4.0.9", None, "Cellpose 4 refuses networks of Cellpose 2 and 3; run it in Cellpose 3"),
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
    assert (described.generation, described.loads_as, described.note) == ("2 or 3", loads_as, note)
