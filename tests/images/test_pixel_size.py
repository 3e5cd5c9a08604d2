"""The size of a pixel: as files say it, and never guessed."""

import json

import numpy as np
import pytest
import tifffile

from cellrepro.images.pixel_size import pixel_size_in

IMAGE = np.zeros((32, 32), np.uint16)


def of_ome(**sizes):
    return {
        "metadata": {"axes": "YX", **{f"PhysicalSize{key}": value for key, value in sizes.items()}}
    }


def of_imagej(unit, *resolution):
    return {"imagej": True, "resolution": resolution, "metadata": {"unit": unit}}


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        ("x.ome.tif", of_ome(X=0.25, Y=0.25), 0.25),
        ("x.ome.tif", of_ome(X=250, Y=250, XUnit="nm", YUnit="nm"), 0.25),
        ("x.tif", of_imagej("um", 4, 4), 0.25),
        ("x.tif", of_imagej("\\u00B5m", 4, 4), 0.25),
        ("x.tif", of_imagej("micron", 4, 4), 0.25),
        ("x.ome.tif", of_ome(X=0.25, Y=0.5), None),
        ("x.ome.tif", of_ome(X=250, Y=0.25, XUnit="nm"), None),
        ("x.ome.tif", of_ome(X=1, Y=1, XUnit="pixel", YUnit="pixel"), None),
        ("x.ome.tif", of_ome(X=0, Y=0), None),
        ("x.ome.tif", of_ome(X="1e999", Y="1e999"), None),
        ("x.ome.tif", of_ome(X="nan", Y="nan"), None),
        ("x.tif", of_imagej("um", 4, 2), None),
        ("x.tif", of_imagej("inch", 72, 72), None),
        ("x.tif", {"resolution": (72, 72), "resolutionunit": 2}, None),
        ("x.tif", {}, None),
    ],
)
def test_of_a_tiff(tmp_path, name, written, expected):
    tifffile.imwrite(tmp_path / name, IMAGE, **written)
    assert pixel_size_in(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("<OME><Pixels PhysicalSizeX='2' PhysicalSizeY='2'/></OME>", 2),
        ("<!DOCTYPE x [<!ENTITY e '2'>]><OME><Pixels PhysicalSizeX='&e;'/></OME>", None),
        ("<OME><Pixels PhysicalSizeX='2' PhysicalSizeY='2'></OME>", None),
        ("<OME></OME>", None),
        ("ImageJ=1.11a\nunit=furlong\n", None),
    ],
    ids=["whole", "entity", "torn", "empty", "no unit of length"],
)
def test_of_a_description_by_anybody(tmp_path, description, expected):
    tifffile.imwrite(tmp_path / "x.tif", IMAGE, description=description, metadata=None)
    assert pixel_size_in(tmp_path / "x.tif") == expected


@pytest.mark.parametrize(
    ("scale", "unit", "expected"),
    [
        ([1, 0.5, 0.5], "micrometer", 0.5),
        ([1, 0.5, 0.5], "", None),
        ([0.5], "micrometer", None),
        ("x", "micrometer", None),
    ],
)
def test_of_ome_zarr(tmp_path, scale, unit, expected):
    axes = [{"name": name, "type": "space", "unit": unit} for name in "zyx"]
    transformations = [{"type": "scale", "scale": scale}]
    level = {"path": "0", "coordinateTransformations": transformations}
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / ".zattrs").write_text(
        json.dumps({"multiscales": [{"axes": axes, "datasets": [level]}]})
    )
    assert pixel_size_in(tmp_path) == expected


def test_what_cannot_be_read_has_none(tmp_path):
    (tmp_path / "x.tif").write_bytes(b"II*\0")
    for name in ("x.tif", "x.png", "nothing.tif"):
        assert pixel_size_in(tmp_path / name) is None
