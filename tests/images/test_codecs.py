"""Without imagecodecs images are read to the same pixels, or refused with what to install."""

import io
import struct
import zlib
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from cellrepro.errors import CellreproError
from cellrepro.images import codecs
from cellrepro.images.decoding import decode
from samebits.errors import BadInput

PIXELS = np.random.default_rng(0).integers(0, 256, (37, 41, 4), np.uint8)
GREY = Image.fromarray(PIXELS[..., 0])
COLOURS = Image.fromarray(PIXELS[..., :3].copy())
BLOCKS = Image.fromarray(np.kron(PIXELS[:20, :20, :3], np.ones((8, 8, 1), np.uint8)))


@pytest.fixture
def without_imagecodecs(monkeypatch):
    monkeypatch.setattr(codecs, "_has_imagecodecs", lambda: False)


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def grey_png_of(depth):
    """A grey PNG of few bits a sample, which Pillow does not write."""

    def chunk(name, content):
        checksum = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + checksum

    rows = [b"\0" + PIXELS[i].tobytes()[: -(-13 * depth // 8)] for i in range(9)]
    header = struct.pack(">IIBBBBB", 13, 9, depth, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"".join(rows)))
        + chunk(b"IEND", b"")
    )


PNGS = {
    "grey": encoded(GREY, "PNG"),
    "grey and alpha": encoded(Image.fromarray(PIXELS[..., :2].copy(), "LA"), "PNG"),
    "colours": encoded(COLOURS, "PNG"),
    "colours and alpha": encoded(Image.fromarray(PIXELS), "PNG"),
    "black and white": encoded(GREY.point(lambda value: 255 * (value > 99), "1"), "PNG"),
    "palette": encoded(COLOURS.quantize(200), "PNG"),
    "palette of 4 bits": encoded(COLOURS.quantize(16), "PNG", bits=4),
    "palette with a transparent colour": encoded(COLOURS.quantize(200), "PNG", transparency=5),
    "one grey transparent": encoded(GREY, "PNG", transparency=7),
    "one colour transparent": encoded(COLOURS, "PNG", transparency=(1, 2, 3)),
    "16 bits": imagecodecs.png_encode(257 * PIXELS[..., 0].astype(np.uint16) + 3),
    **{f"grey of {depth} bits": grey_png_of(depth) for depth in (1, 2, 4)},
}


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
@pytest.mark.parametrize("kind", PNGS)
def test_pillow_reads_the_same_pixels_of_a_png(kind, without_imagecodecs):
    pixels = codecs.png_pixels(Path("a.png"), PNGS[kind])
    expected = imagecodecs.png_decode(PNGS[kind])
    assert pixels.dtype == expected.dtype
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("image", [GREY, COLOURS, BLOCKS], ids=["grey", "noise", "blocks"])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_pillow_reads_the_same_pixels_of_a_jpeg(
    image, subsampling, progressive, without_imagecodecs
):
    data = encoded(image, "JPEG", quality=85, subsampling=subsampling, progressive=progressive)
    np.testing.assert_array_equal(
        codecs.jpeg_pixels(Path("a.jpg"), data), imagecodecs.jpeg_decode(data)
    )


@pytest.mark.parametrize("damage", ["a byte changed", "checksum changed", "cut"])
def test_a_damaged_png_is_refused_without_imagecodecs_too(damage, without_imagecodecs):
    data = bytearray(PNGS["grey"])
    if damage == "a byte changed":
        data[100] ^= 1
    elif damage == "checksum changed":
        data[-13] ^= 1  # of the pixels' chunk; the last chunk has 12 bytes
    else:
        del data[-40:]
    with pytest.raises(BadInput, match="damaged or incomplete"):
        decode(Path("a.png"), bytes(data))


def test_what_only_imagecodecs_reads_is_refused_with_its_command(without_imagecodecs):
    colours = imagecodecs.png_encode(257 * PIXELS[..., :3].astype(np.uint16))
    with pytest.raises(CellreproError, match=r"16 bits.*pip install \"cellrepro\[formats\]\""):
        decode(Path("a.png"), colours)
    for compression, name in (("lzw", "LZW"), ("jpeg", "JPEG")):
        stream = io.BytesIO()
        tifffile.imwrite(stream, PIXELS[..., 0], compression=compression)
        with pytest.raises(CellreproError, match=rf"{name}.*pip install \"cellrepro\[formats\]\""):
            decode(Path("a.tif"), stream.getvalue())
    stream = io.BytesIO()
    tifffile.imwrite(stream, PIXELS[..., 0], compression="zlib", predictor=True)
    np.testing.assert_array_equal(decode(Path("a.tif"), stream.getvalue()).pixels, PIXELS[..., 0])
