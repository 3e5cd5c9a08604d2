"""A TIFF whose pages follow each other in a circle: tifffile would read it for ever."""

import struct

import numpy as np
import pytest
import tifffile

from cellrepro.errors import Damaged
from cellrepro.images.image_file import read_masks
from cellrepro.store import tiff_pages
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run, squares


def in_a_circle(path, n_pages, *, big=False):
    """A label image of several pages, the last of which is followed by the first."""
    pixels = np.ones((n_pages, 8, 8), np.uint16)
    tifffile.imwrite(path, pixels, photometric="minisblack", bigtiff=big)
    with tifffile.TiffFile(path) as tiff:
        offsets = [page.offset for page in tiff.pages]
        n_tags = len(tiff.pages[-1].tags)
    count, each, form = (8, 20, "<Q") if big else (2, 12, "<I")
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, offsets[-1] + count + n_tags * each, offsets[0])
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("big", [False, True], ids=["classic", "big"])
@pytest.mark.parametrize("n_pages", [1, 3, 150])
def test_it_is_refused(n_pages, big, tmp_path, monkeypatch):
    monkeypatch.setattr(tifffile, "imread", None)  # it would not return
    path = tmp_path / "a_masks.tif"
    in_a_circle(path, n_pages, big=big)
    with pytest.raises(BadInput, match=rf"page {n_pages} of the TIFF is followed by page 1"):
        read_masks(path)


def test_a_stored_one_is_damage(tmp_path):
    run = add_run(Store(tmp_path), [(1.0, {"img_a": squares()})])
    path = run.repeats[0].folder / "masks" / "img_a.tif"
    in_a_circle(path, 3)
    manifest = run.repeats[0].manifest
    manifest.files.clear()  # as if its digest were that of the file
    with pytest.raises(Damaged, match="page 3 of the TIFF"):
        run.repeats[0].masks("img_a")


def test_whole_files_pass(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((5, 8, 8), np.uint8), photometric="minisblack")
    tiff_pages.check_pages_of_file(path)
    assert tiff_pages.pages_of(path.read_bytes()).n_pages == 5
    for data in (b"", b"II", b"II*\0", b"MM\0+"):
        assert tiff_pages.pages_of(data).n_pages == 0
