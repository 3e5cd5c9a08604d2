"""What files record of how masks were made: read from what each generation's own code wrote."""

from pathlib import Path

import numpy as np
import pytest
import tifffile

from cellrepro.explanation.mask_file_record import label_image_record
from cellrepro.explanation.recorded_settings import RecordedSettings, of_file
from cellrepro.explanation.seg_record import seg_record
from cellrepro.explanation.settings_of_both import side_by_side
from cellrepro.images.seg_file import read_seg
from cellrepro.run.masks_folder import write_sidecar

FILES = Path(__file__).parent / "seg_files"
"""Written by `masks_flows_to_seg` and by the function behind the GUI's save button, each of the
version in the name: two cells in 20 by 30 pixels."""


def record(name):
    path = FILES / f"{name}_seg.npy"
    return seg_record(path.name, read_seg(path))


@pytest.mark.parametrize(
    ("name", "generation", "expected"),
    [
        ("script_2.3.2", "2", {"diameter": 42.4, "channels": [2, 1]}),
        ("script_3.1.1.2", "3", {"diameter": 42.4, "channels": [2, 1], "restore": "denoise_cyto3"}),
        ("script_4.0.9", "4", {}),
        (
            "gui_2.3.2",
            "2",
            {
                "model": "cyto2",
                "channels": [2, 1],
                "flow_threshold": None,
                "cellprob_threshold": -1.5,
            },
        ),
        (
            "gui_3.1.1.2",
            "3",
            {
                "model": "cyto3",
                "channels": [2, 1],
                "diameter": 30.0,
                "restore": "denoise_cyto3",
                "normalize.sharpen": 2.0,
                "normalize.percentile": (1.0, 99.5),
                "flow_threshold": 0.7,
            },
        ),
        ("gui_4.2.1.1", "4", {"model": "cpsam", "diameter": None, "flow_threshold": 0.7}),
    ],
)
def test_every_generation_is_told_by_its_fields(name, generation, expected):
    found = record(name)
    assert found.generation == generation
    assert {key: found.value(key) for key in expected} == expected
    assert found.source("n_drawn_by_hand") == f"{name}_seg.npy"
    assert found.value("n_drawn_by_hand") == (1 if name.startswith("gui") else 0)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("script_4.0.9", ["diameter", "channels", "model"]),
        ("gui_2.3.2", ["diameter"]),
        ("gui_4.2.1.1", ["channels", "min_size", "niter", "device"]),
    ],
)
def test_what_a_generation_does_not_write_is_not_recorded(name, missing):
    """Cellpose 4 writes channels [0, 0] and a diameter of NaN, whatever was used."""
    found = record(name)
    assert [found.value(key) for key in missing] == ["?"] * len(missing)
    assert ("writes no diameter" in " ".join(found.remarks)) == ("diameter" in missing)


def test_masks_take_the_record_of_a_seg_file_only_if_it_holds_the_same(tmp_path):
    seg = FILES / "gui_3.1.1.2_seg.npy"
    (tmp_path / "cells_seg.npy").write_bytes(seg.read_bytes())
    masks = read_seg(seg).masks.astype(np.uint16)
    path = tmp_path / "cells_cp_masks.tif"
    tifffile.imwrite(path, masks, software="Fiji")
    found = label_image_record(path, masks)
    assert (found.value("diameter"), found.source("diameter")) == (30.0, "cells_seg.npy")
    assert (found.value("software"), found.generation) == ("Fiji", "3")
    edited = np.where(masks == 1, 0, masks)
    other = label_image_record(path, edited)
    assert other.value("diameter") == "?"
    assert "different masks: it is not used" in other.remarks[0]
    write_sidecar(path, {"settings": {"diameter": 20}, "versions": {"cellpose": "4.0.9"}})
    beside = label_image_record(path, masks)
    assert (beside.value("diameter"), beside.value("cellpose")) == (20, "4.0.9")


OF_OTHERS = {
    "LabelMe": '{"version": "5.4", "flags": {}, "shapes": [], "imagePath": "a.png"}',
    "Micro-Manager": '{"Summary": {"Frames": 1}, "settings": {"Exposure-ms": 10}}',
    "QuPath": '{"type": "FeatureCollection", "features": []}',
    "a list": "[1]",
    "no JSON": "nothing of that kind",
}


@pytest.mark.parametrize("text", OF_OTHERS.values(), ids=OF_OTHERS)
def test_json_of_other_programs_is_no_record(tmp_path, invoke, text):
    tifffile.imwrite(tmp_path / "nuclei.tif", np.eye(9, dtype=np.uint16))
    (tmp_path / "nuclei.json").write_text(text)
    answer = invoke("describe", tmp_path / "nuclei.tif")
    assert (answer.code, answer.err) == (0, "")
    assert invoke("explain", tmp_path / "nuclei.tif", tmp_path / "nuclei.tif").code == 0


def test_what_differs_comes_first_and_none_is_a_value():
    table = side_by_side(
        {"diameter": 42.4, "flow_threshold": 0.4, "filename": "a.tif", "niter": None},
        {"diameter": 30.0, "flow_threshold": 0.4, "filename": "b.tif", "min_size": 15},
    )
    names = [row.name for row in table if row.is_recorded]
    assert names == ["diameter", "filename", "niter", "min_size", "flow_threshold"]
    niter = next(row for row in table if row.name == "niter")
    assert (niter.a, niter.b, niter.differs) == (None, "?", False)


def test_two_files_that_contradict_each_other_are_a_remark():
    first = RecordedSettings(of_file("a_seg.npy", {"diameter": 30.0}))
    both = first.with_more_of(RecordedSettings(of_file("run.log", {"diameter": 17.0, "niter": 5})))
    assert (both.value("diameter"), both.value("niter")) == (30.0, 5)
    assert both.remarks == (
        "diameter is 30.0 in a_seg.npy, and 17.0 in run.log: the first is taken",
    )


def test_a_list_and_a_tuple_of_the_same_channels_are_one_setting():
    """A run gives them as the one, a ``_seg.npy`` as the other."""
    (channels,) = (
        row
        for row in side_by_side({"channels": (2, 1)}, {"channels": [2, 1]})
        if row.name == "channels"
    )
    assert not channels.differs
