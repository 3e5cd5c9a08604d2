"""Label images too large for memory are mapped from the disk, with the same labels and scores."""

import shutil

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image

from cellrepro.images import image_blocks, mapped
from cellrepro.images.image_file import read_image, read_labels
from cellrepro.images.label_pieces import pieces_that_touch, touching_pieces
from samebits.errors import NotPossibleHere


@pytest.fixture
def all_mapped(monkeypatch):
    monkeypatch.setattr(mapped, "_LEAST_MAPPED", 1)


def is_on_disk(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def some_labels(seed=0, shape=(160, 130)):
    draws = np.random.default_rng(seed)
    small = draws.integers(0, 40, tuple(-(-n // 9) for n in shape), np.uint32)
    every = np.kron(small, np.ones((9,) * len(shape), np.uint32))
    return every[tuple(map(slice, shape))]


WRITERS = {
    "contiguous.tif": lambda path, labels: tifffile.imwrite(path, labels),
    "strips.tif": lambda path, labels: tifffile.imwrite(
        path, labels, compression="zlib", rowsperstrip=16
    ),
    "tiles.tif": lambda path, labels: tifffile.imwrite(
        path, labels, compression="lzw", tile=(32, 32), bigtiff=True
    ),
    "swapped.tif": lambda path, labels: tifffile.imwrite(path, labels, byteorder=">"),
    "a.npy": np.save,
    "a.zarr": lambda path, labels: zarr.create_array(str(path), data=labels, chunks=(50, 60)),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.usefixtures("all_mapped")
def test_labels_are_read_as_any_others(tmp_path, name):
    WRITERS[name](tmp_path / name, some_labels())
    read = read_labels(tmp_path / name)
    assert np.array_equal(read, some_labels())
    assert is_on_disk(read) or name == "swapped.tif"


@pytest.mark.usefixtures("all_mapped")
@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_pictures_are_read_as_any_others(tmp_path, ending):
    Image.fromarray(some_labels().astype(np.uint8)).save(tmp_path / f"a.{ending}")
    assert read_image(tmp_path / f"a.{ending}").shape == (160, 130)


@pytest.mark.usefixtures("all_mapped")
def test_no_room_for_what_is_unpacked(tmp_path, monkeypatch):
    WRITERS["strips.tif"](tmp_path / "a.tif", some_labels())
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(NotPossibleHere, match=r"83200 bytes .* 1000 bytes free; make room"):
        read_labels(tmp_path / "a.tif")


@pytest.mark.parametrize("shape", [(160, 130), (12, 30, 40), (0, 5)])
@pytest.mark.parametrize("only", [None, [1, 2, 39]])
def test_pieces_through_blocks(monkeypatch, shape, only):
    labels = some_labels(0, shape)
    shown = labels if only is None else np.where(np.isin(labels, only), labels, 0)
    numbers = pieces_that_touch(shown)
    areas = np.bincount(numbers.ravel(), minlength=1)[1:]
    values = np.zeros(len(areas) + 1, np.int64)
    values[numbers.ravel()] = shown.ravel()
    expected = sorted(zip(values[1:].tolist(), areas.tolist(), strict=True))
    monkeypatch.setattr(image_blocks, "_PIXELS", 400)
    pieces = touching_pieces(labels, None if only is None else np.array(only))
    assert sorted(zip(pieces.values.tolist(), pieces.areas.tolist(), strict=True)) == expected
