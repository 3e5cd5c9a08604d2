"""OME-Zarr of every version is read as a TIFF of the same pixels; what runs code is refused."""

import gzip
import json
import pickle

import numpy as np
import pytest
import tifffile
import zarr

from cellrepro.images.image_file import image_in, read_labels
from samebits.errors import BadInput, NotPossibleHere


def squares():
    masks = np.zeros((48, 64), np.uint32)
    masks[4:12, 4:12] = 1
    masks[20:30, 30:44] = 70_000
    return masks


def write(folder, pixels, axes=None, version="0.4"):
    """A plain array, or an image of OME-Zarr of some version, with a smaller copy of it."""
    formats = {"zarr_format": 3 if version == "0.5" else 2}
    chunks = tuple(min(n, 32) for n in pixels.shape)
    if axes is None:
        zarr.create_array(str(folder), data=pixels, chunks=chunks, **formats)
        return folder
    group = zarr.open_group(str(folder), mode="w", **formats)
    for level, array in (("full", pixels), ("half", pixels[..., ::2, ::2])):
        group.create_array(level, data=array, chunks=chunks)
    named = {"0.1": None, "0.3": list(axes)}.get(version, [{"name": axis} for axis in axes])
    image = {"datasets": [{"path": "full"}, {"path": "half"}], "version": version}
    described = {"multiscales": [image | ({} if named is None else {"axes": named})]}
    group.attrs.update({"ome": described} if version == "0.5" else described)
    return folder


@pytest.mark.parametrize("version", ["0.1", "0.3", "0.4", "0.5"])
def test_labels_of_every_version(tmp_path, version):
    axes = {"0.1": "tczyx", "0.3": "zyx"}.get(version, "czyx")
    labels = write(tmp_path / "a.zarr", squares().reshape(*[1] * (len(axes) - 2), 48, 64), axes)
    assert np.array_equal(read_labels(labels), squares())


def test_stacks_plain_arrays_and_pictures(tmp_path):
    stack = np.stack([squares(), np.zeros_like(squares()), squares()])
    assert np.array_equal(read_labels(write(tmp_path / "z.zarr", stack)), stack)
    assert np.array_equal(read_labels(write(tmp_path / "o.zarr", stack, "zyx", "0.5")), stack)
    picture = np.random.default_rng(0).integers(0, 4096, (2, 48, 64), np.uint16)
    read = image_in(write(tmp_path / "p.ome.zarr", picture, "cyx")).pixels
    assert np.array_equal(read, np.moveaxis(picture, 0, -1))
    with pytest.raises(BadInput, match="no label image"):
        read_labels(write(tmp_path / "q.zarr", picture[0]))


def test_compared_as_any_file(tmp_path, invoke):
    """With a TIFF of the same labels, in folders, and beside the image that they lie in."""
    tifffile.imwrite(tmp_path / "a_masks.tif", squares())
    picture = np.random.default_rng(0).integers(0, 4096, (48, 64), np.uint16)
    image = write(tmp_path / "a.zarr", picture, "yx")
    labels = write(image / "labels" / "cells", squares(), "yx")
    answer = invoke("compare", labels, tmp_path / "a_masks.tif", "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "identical")
    page = tmp_path / "a.html"
    answer = invoke("compare", labels, labels, "--image", image, "--html", page)
    assert (answer.code, page.is_file()) == (0, True)
    for name in "AB":
        write(tmp_path / name / "one_masks.zarr", squares())
    answer = invoke("compare", tmp_path / "A", tmp_path / "B", "--json")
    assert list(answer.json["masks"]) == ["one"], answer.json.keys()
    assert invoke("describe", labels, "--json").json["details"]["n_objects"] == 2


class _Runs:
    def __reduce__(self):
        return print, ("it ran",)


def test_a_codec_that_runs_code_is_refused(tmp_path, capsys):
    folder = write(tmp_path / "a.zarr", squares())
    metadata = json.loads((folder / ".zarray").read_text())
    metadata |= {"filters": [{"id": "pickle"}], "compressor": None}
    (folder / ".zarray").write_text(json.dumps(metadata))
    for chunk in folder.glob("[0-9]*"):
        chunk.write_bytes(pickle.dumps(_Runs()))
    with pytest.raises(BadInput, match="packed by pickle, which is not used"):
        read_labels(folder)
    assert "it ran" not in capsys.readouterr().out


def test_metadata_beside_that_of_the_array_are_not_used(tmp_path, capsys):
    """A group may hold copies of its arrays' metadata, which name other codecs."""
    image = write(tmp_path / "a.zarr", squares(), "yx")
    zarr.consolidate_metadata(str(image), zarr_format=2)
    text = (image / ".zmetadata").read_text()
    metadata = json.loads(text)
    metadata["metadata"]["full/.zarray"] |= {"filters": [{"id": "pickle"}], "compressor": None}
    (image / ".zmetadata").write_text(json.dumps(metadata))
    assert np.array_equal(read_labels(image), squares())
    padded = write(tmp_path / "b.zarr", squares())
    text = (padded / ".zarray").read_text()
    (padded / ".zarray").write_text(text + " " * 2**24)
    with pytest.raises(BadInput, match="too large for metadata of Zarr"):
        read_labels(padded)
    two_names = write(tmp_path / "c.zarr", squares())
    metadata = json.loads((two_names / ".zarray").read_text())
    metadata |= {"compressor": {"id": "zlib", "name": "pickle"}}
    (two_names / ".zarray").write_text(json.dumps(metadata))
    with pytest.raises(BadInput, match="packed by pickle"):
        read_labels(two_names)


def test_what_cannot_be_read_is_said(tmp_path):
    huge = write(tmp_path / "huge.zarr", squares())
    metadata = json.loads((huge / ".zarray").read_text())
    (huge / ".zarray").write_text(json.dumps(metadata | {"shape": [2**20, 2**20]}))
    with pytest.raises(NotPossibleHere, match=r"its 4398046511104 bytes of pixels are"):
        read_labels(huge)
    torn = write(tmp_path / "torn.zarr", squares())
    for chunk in torn.glob("[0-9]*"):
        chunk.write_bytes(chunk.read_bytes()[:20])
    with pytest.raises(BadInput, match="cannot be read as Zarr"):
        read_labels(torn)
    group = zarr.open_group(str(tmp_path / "group.zarr"), mode="w", zarr_format=2)
    group.create_array("cells", data=squares())
    with pytest.raises(BadInput, match="without an image of OME-Zarr, it holds cells"):
        read_labels(tmp_path / "group.zarr")
    outside = write(tmp_path / "outside.zarr", squares(), "yx")
    text = (outside / ".zattrs").read_text()
    (outside / ".zattrs").write_text(text.replace('"full"', '"../torn.zarr"'))
    with pytest.raises(BadInput, match="expected a path inside of it"):
        read_labels(outside)
    with pytest.raises(BadInput, match="expected a name for each axis"):
        read_labels(write(tmp_path / "axes.zarr", squares(), "zyx"))


def test_a_chunk_that_bursts_takes_no_more_memory_than_its_array(tmp_path):
    """Four megabytes become four gigabytes; only the codec knows, and only afterwards."""
    folder = write(tmp_path / "a.zarr", squares())
    metadata = json.loads((folder / ".zarray").read_text())
    metadata |= {"compressor": {"id": "gzip", "level": 1}, "filters": None}
    (folder / ".zarray").write_text(json.dumps(metadata))
    packed = gzip.compress(bytes(2**24), 1) * 256  # members of one file, one after the other
    for chunk in folder.glob("[0-9]*"):
        chunk.write_bytes(packed)
    with pytest.raises(BadInput, match="asks for more memory"):
        read_labels(folder)


def test_an_axis_of_another_name_is_what_it_is_in_a_tiff(tmp_path):
    picture = np.stack([squares()] * 2)
    read = image_in(write(tmp_path / "a.zarr", picture, ["angle", "y", "x"])).pixels
    tifffile.imwrite(tmp_path / "a.tif", picture, metadata={"axes": "QYX"})
    assert np.array_equal(read, image_in(tmp_path / "a.tif").pixels)
