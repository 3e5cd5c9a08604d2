"""Small files take neither memory nor time, and damage is told, whatever the log is set to."""

import contextlib
import io
import logging
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile

from cellrepro.errors import CellreproError
from cellrepro.images import codecs
from cellrepro.images.decoding import decode
from cellrepro.images.image_file import read_labels
from cellrepro.images.seg_file import read_seg
from hostile_images import (
    deflated,
    described_tiff,
    good_tiff,
    jpeg,
    jpeg2000,
    jpegxl,
    lzma_bomb,
    many_pages,
    ome_tiff,
    packbits_bomb,
    seg_of_one_array,
    small_pages,
    tiff,
    tiff_around,
    tiff_of_jpeg_strips,
    webp,
)
from samebits.errors import BadInput

_TAKEN = 2**29  # bytes, at most


@contextlib.contextmanager
def little_memory():
    """So much memory more than this process has, where one can ask."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + _TAKEN, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


HERE = {
    "a JPEG of 65500 x 65500": ("a.jpg", lambda: jpeg(65500, 65500)),
    "a JPEG of 8000 x 8000": ("a.jpg", lambda: jpeg(8000, 8000)),
    "a JPEG after some rubbish": (
        "a.jpg",
        lambda: jpeg(65500, 65500).replace(b"\xff\xc0", b"ab\xff\xff\xff\xc0"),
    ),
    "a JPEG in a strip": ("a.tif", lambda: tiff_around(jpeg(65500, 65500), compression=7)),
    "a JPEG in a tile": (
        "a.tif",
        lambda: tiff_around(jpeg(65500, 65500), compression=7, tile=True),
    ),
    "SizeT": ("a.tif", lambda: ome_tiff(SizeT=3 * 10**8)),
    "SizeX": ("a.tif", lambda: ome_tiff(SizeX=3 * 10**9)),
    "an axis of its own": ("a.tif", lambda: ome_tiff(order="XYCZTQ", SizeQ=3 * 10**8)),
    "PlaneCount": ("a.tif", lambda: ome_tiff(elements='<TiffData PlaneCount="300000000"/>')),
    "NumPlanes": ("a.tif", lambda: ome_tiff(elements='<TiffData IFD="0" NumPlanes="300000000"/>')),
    "planes again and again": (
        "a.tif",
        lambda: ome_tiff(n_pages=300, SizeT=300, elements="<TiffData/>" * 30_000),
    ),
    "images of ImageJ": ("a.tif", lambda: described_tiff("ImageJ=1.5\nimages=9\nslices=9\n")),
    "a shape of tifffile": ("a.tif", lambda: described_tiff('{"shape": [300000000, 8, 8]}')),
    "a million pages": ("a.tif", lambda: many_pages(10**6)),
    "pages of nothing": ("a.tif", lambda: many_pages(10**5)),
    "strips of JPEG larger than the image": ("a.tif", lambda: tiff_of_jpeg_strips(60_000)),
    "strips that are not there": ("a.tif", lambda: tiff(1, 2**25, data=bytes(8), compression=8)),
}
APART = {
    "a JPEG of the old kind": lambda: tiff_around(jpeg(65500, 65500), compression=6),
    "JPEG 2000": lambda: tiff_around(jpeg2000(20000), compression=34712),
    "JPEG XL": lambda: tiff_around(jpegxl(2000), compression=50002),
    "WebP": lambda: tiff_around(webp(2000), compression=50001),
    "axes of any length": lambda: ome_tiff().replace(b"<OME ", b"<OME Modulo='' "),
}
BY_PYTHON = {
    "deflate": lambda: tiff(64, 64, data=deflated(2**31), compression=8),
    "LZMA": lambda: tiff(64, 64, data=lzma_bomb(2**31), compression=34925),
    "PackBits": lambda: tiff(64, 64, data=packbits_bomb(2**31), compression=32773),
}


@pytest.mark.parametrize(("name", "make"), HERE.values(), ids=HERE)
def test_what_promises_more_than_it_holds_is_refused(name, make):
    data = make()
    with little_memory(), pytest.raises(BadInput):
        decode(Path(name), data)


@pytest.mark.parametrize("make", APART.values(), ids=APART)
def test_unusual_kinds_are_decoded_within_limits(make):
    data = make()
    with little_memory(), contextlib.suppress(BadInput):
        assert decode(Path("a.tif"), data).pixels.size <= 64 * 64


@pytest.mark.slow  # makes gigabytes, a piece at a time
@pytest.mark.parametrize("make", BY_PYTHON.values(), ids=BY_PYTHON)
def test_without_imagecodecs_too(make, tmp_path, monkeypatch):
    (tmp_path / "imagecodecs.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(codecs, "_has_imagecodecs", lambda: False)
    data = make()
    with little_memory(), contextlib.suppress(BadInput):
        assert decode(Path("a.tif"), data).pixels.size <= 64 * 64


def test_usual_kinds_are_decoded_here_and_unusual_ones_to_the_same_pixels(monkeypatch):
    pixels = np.arange(3 * 40 * 50, dtype=np.uint16).reshape(3, 40, 50)
    kinds = [
        {"compression": "zlib"},
        {"compression": "lzw", "tile": (16, 16)},
        {"imagej": True},
        {"ome": True},
        {"metadata": None, "bigtiff": True},
    ]
    plain = {"photometric": "minisblack"}
    for options in kinds:
        with monkeypatch.context() as patch:
            patch.setattr("cellrepro.images.within_limits.arrays_of", None)
            decoded = decode(Path("a.tif"), good_tiff(pixels, **plain, **options)).pixels
        np.testing.assert_array_equal(decoded, pixels, strict=True)
    unusual = good_tiff(pixels, compression="jpeg2000", **plain)
    np.testing.assert_array_equal(decode(Path("a.tif"), unusual).pixels, pixels, strict=True)


# -- honest files ----------------------------------------------------------------------------------


@pytest.mark.slow  # 100,000 tables
def test_a_long_time_series_is_read():
    assert decode(Path("a.tif"), small_pages(100_000)).pixels.shape == (100_000, 4, 4)


def test_strips_of_jpeg_whose_headers_give_the_height_of_the_image_are_read():
    expected = decode(Path("a.tif"), tiff_of_jpeg_strips(32)).pixels
    actual = decode(Path("a.tif"), tiff_of_jpeg_strips(96)).pixels
    np.testing.assert_array_equal(actual, expected, strict=True)


@pytest.mark.slow  # JPEG 2000 takes long
def test_a_blank_slide_is_read():
    pixels = np.zeros((8300, 8300), np.uint8)
    options = {"compression": "jpeg2000", "photometric": "minisblack", "metadata": None}
    data = good_tiff(pixels, rowsperstrip=len(pixels), **options)
    assert len(data) < pixels.size / 32768
    assert decode(Path("a.tif"), data).pixels.shape == pixels.shape


def test_one_array_many_times(tmp_path):
    path = tmp_path / "a_seg.npy"
    path.write_bytes(seg_of_one_array(50_000))
    with little_memory(), pytest.raises(BadInput, match="more arrays than its size allows"):
        read_seg(path)


# -- damage ----------------------------------------------------------------------------------------


def stack():
    """A TIFF of three pages, one after the other, and where their tables begin."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        for number in (1, 2, 3):
            plane = np.full((24, 32), number, np.uint16)
            writer.write(plane, photometric="minisblack", metadata=None, contiguous=False)
    data = bytearray(stream.getvalue())
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        return data, [page.offset for page in file.pages], len(file.pages[0].tags)


def next_page(number, to):
    data, offsets, n_tags = stack()
    struct.pack_into("<I", data, offsets[number] + 2 + 12 * n_tags, to)
    return data


def cut_in_table():
    data, offsets, _ = stack()
    return data[: offsets[-1] + 20]


def tag_elsewhere():
    data, offsets, n_tags = stack()
    for i in range(n_tags):
        at = offsets[1] + 2 + 12 * i
        if struct.unpack_from("<H", data, at)[0] == 282:  # the resolution, 8 bytes elsewhere
            struct.pack_into("<I", data, at + 8, 2**30)
    return data


DAMAGE = {
    "the chain leads out of the file": lambda: next_page(0, 2**31),
    "the chain leads to pixels": lambda: next_page(1, len(stack()[0]) - 8),
    "the chain turns back": lambda: next_page(2, stack()[1][1]),
    "cut in a table": cut_in_table,
    "a tag of a later page out of the file": tag_elsewhere,
    "cut in the pixels": lambda: tiff(24, 32, data=bytes(700)),
}


@pytest.mark.parametrize("silent", [False, True], ids=["heard", "silenced"])
@pytest.mark.parametrize("make", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told_whatever_the_log_is_set_to(make, silent, tmp_path):
    path = tmp_path / "a_masks.tif"
    path.write_bytes(make())
    if silent:
        logging.disable(logging.CRITICAL)
    try:
        with pytest.raises(CellreproError, match="damaged or incomplete"):
            read_labels(path)
    finally:
        logging.disable(logging.NOTSET)


def test_a_whole_stack_is_read(tmp_path):
    path = tmp_path / "a_masks.tif"
    path.write_bytes(stack()[0])
    assert read_labels(path)[:, 0, 0].tolist() == [1, 2, 3]


UNDER_A_HARD_LIMIT = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))
from cellrepro.images.within_limits import hold_memory
for n_bytes in (2**37, 2**38, 2**41):
    hold_memory(n_bytes)
    print(*resource.getrlimit(resource.RLIMIT_AS))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits memory")
def test_memory_is_limited_under_a_hard_limit_too():
    """Within the hard limit, which stays: whoever may not raise it would have no limit at all."""
    command = [sys.executable, "-c", UNDER_A_HARD_LIMIT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    limits = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert limits == [(2**37, 2**40), (2**38, 2**40), (2**40, 2**40)]
