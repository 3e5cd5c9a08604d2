"""Images and arrays, as an attacker would write them: small files that promise or hide much."""

import io
import lzma
import pickle
import struct
import zipfile
import zlib

import numpy as np
import tifffile
from PIL import Image

_SHORT, _LONG = 3, 4


def tiff(width, height, *, data=b"", offset=None, compression=1, bits=8, loop=False, more=()):
    """A TIFF of one strip, every number of which may lie."""
    n_tags = 9 + len(more)
    start = 8 + 2 + 12 * n_tags + 4
    tags = [
        (256, _LONG, 1, width),
        (257, _LONG, 1, height),
        (258, _SHORT, 1, bits),
        (259, _SHORT, 1, compression),
        (262, _SHORT, 1, 1),
        (273, _LONG, 1, start if offset is None else offset),
        (277, _SHORT, 1, 1),
        (278, _LONG, 1, height),
        (279, _LONG, 1, len(data)),
        *more,
    ]
    directory = struct.pack("<H", n_tags)
    directory += b"".join(struct.pack("<2H2L", *tag) for tag in sorted(tags))
    directory += struct.pack("<L", 8 if loop else 0)
    return b"II*\0" + struct.pack("<L", 8) + directory + data


def deflated(n_bytes):
    """Zeros, packed as far as that goes, a mebibyte again and again; without the sum at its end."""
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + again * (n_bytes // 2**20 - 1)


def good_tiff(labels=None, **options):
    """A label image as anybody writes it."""
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, np.eye(8, dtype=np.uint16) if labels is None else labels, **options)
    return buffer.getvalue()


def png(width, height, *, data=None, depth=8, colour=0):
    """A PNG whose header may lie."""

    def chunk(kind, content):
        crc = zlib.crc32(kind + content)
        return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", crc)

    header = struct.pack(">2L5B", width, height, depth, colour, 0, 0, 0)
    packed = zlib.compress(bytes(99)) if data is None else data
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    )


def npy(shape, *, dtype="<u2", data=b"", header=None):
    """An array as numpy.save writes it, whose header may lie."""
    text = header or f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"
    content = text.encode("latin1") + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<L", len(content)) + content + data


def npy_of_objects(payload):
    """An array of one object, whose pickle executes something."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([payload], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def seg(content, *, protocol=2):
    """A ``_seg.npy``: an array of one object, which is a dictionary or anything else."""
    header = npy("()", dtype="|O")
    pickled = content if isinstance(content, bytes) else pickle.dumps(content, protocol)
    return header + pickled


def baseline(record, masks=(), *, method=zipfile.ZIP_DEFLATED):
    """A baseline, whose record and masks may be anything."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("baseline.json", record)
        for name, content in masks:
            archive.writestr(name, content)
    return buffer.getvalue()


# -- bombs: small files that become large ----------------------------------------------------------


def jpeg(height, width, *, frame=None):
    """A JPEG of one grey block whose header says another size."""
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(buffer, "JPEG")
    data = bytearray(buffer.getvalue())
    at = data.index(b"\xff\xc0" if frame is None else frame)
    struct.pack_into(">HH", data, at + 5, height, width)
    return bytes(data)


def tiff_around(content, *, compression, side=64, bits=8, tile=False):
    """A TIFF of a small image around the bytes of a format that has a size of its own."""
    if not tile:
        return tiff(side, side, data=content, compression=compression, bits=bits)
    start = 8 + 2 + 12 * 13 + 4
    more = [(322, _LONG, 1, side), (323, _LONG, 1, side), (324, _LONG, 1, start)]
    more += [(325, _LONG, 1, len(content))]
    return tiff(side, side, data=content, compression=compression, bits=bits, more=more)


def ome_tiff(*, n_pages=1, elements="<TiffData/>", order="XYCZT", **sizes):
    """An OME-TIFF whose description may count anything."""
    counted = {"SizeX": 8, "SizeY": 8, "SizeC": 1, "SizeZ": 1, "SizeT": 1, **sizes}
    attributes = " ".join(f'{name}="{size}"' for name, size in counted.items())
    text = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        f'<Image ID="Image:0"><Pixels DimensionOrder="{order}" Type="uint8" {attributes}>'
        f"{elements}</Pixels></Image></OME>"
    )
    pixels = np.zeros((n_pages, 8, 8), np.uint8)
    return good_tiff(pixels, description=text, metadata=None, photometric="minisblack")


def described_tiff(text, *, software=None):
    """A TIFF of one plane whose description may say anything."""
    return good_tiff(np.zeros((8, 8), np.uint8), description=text, metadata=None, software=software)


def many_pages(n):
    """A TIFF of pages without a tag."""
    tables = b"".join(struct.pack("<HI", 0, 8 + 6 * (i + 1)) for i in range(n - 1))
    return b"II*\0\x08\0\0\0" + tables + struct.pack("<HI", 0, 0)


def small_pages(n):
    """A stack of many pages of 4 x 4 pixels, all of which share their strip."""
    start = 8 + 16
    places = [256, 257, 258, 259, 262, 273, 277, 278, 279]
    page = zip(places, [4, 4, 8, 1, 1, 8, 1, 4, 16], strict=True)
    table = struct.pack("<H", 9)
    table += b"".join(struct.pack("<2H2L", number, _LONG, 1, value) for number, value in page)
    n_bytes = len(table) + 4
    tables = b"".join(table + struct.pack("<L", start + n_bytes * i) for i in range(1, n))
    header = b"II*\0" + struct.pack("<L", start) + bytes(range(16))
    return header + tables + table + bytes(4)


def tiff_of_jpeg_strips(height):
    """A TIFF of 96 x 64 pixels in three strips of JPEG, whose own headers give a height."""
    pixels = np.add.outer(np.arange(96), np.arange(64)).astype(np.uint8)
    data = bytearray(good_tiff(pixels, compression="jpeg", rowsperstrip=32, metadata=None))
    at = data.find(b"\xff\xc0")
    while at >= 0:
        struct.pack_into(">H", data, at + 5, height)
        at = data.find(b"\xff\xc0", at + 2)
    return bytes(data)


def lzma_bomb(n_bytes):
    """Zeros, packed as far as LZMA goes: one stream after the other."""
    return lzma.compress(bytes(2**26)) * (n_bytes // 2**26)


def packbits_bomb(n_bytes):
    """Zeros, packed as far as PackBits goes."""
    return b"\x81\0" * (n_bytes // 128)


def jpeg2000(side):
    """A JPEG 2000 stream whose header says another size than its 64 x 64 pixels."""
    import imagecodecs

    data = bytearray(imagecodecs.jpeg2k_encode(np.zeros((64, 64), np.uint8), codecformat="j2k"))
    at = data.index(b"\xff\x51")
    struct.pack_into(">4L", data, at + 6, side, side, 0, 0)
    struct.pack_into(">2L", data, at + 22, side, side)
    return bytes(data)


def jpegxl(side):
    """A JPEG XL of a large image of nothing."""
    import imagecodecs

    return bytes(imagecodecs.jpegxl_encode(np.zeros((side, side), np.uint8), effort=1))


def webp(side):
    """A WebP of a large image of nothing."""
    import imagecodecs

    return bytes(imagecodecs.webp_encode(np.zeros((side, side, 3), np.uint8), lossless=True))


def seg_of_one_array(n):
    """A ``_seg.npy`` in which one array stands many times."""
    flow = np.zeros((64, 64), np.float32)
    return seg({"masks": np.eye(64, dtype=np.uint16), "flows": [flow] * n}, protocol=4)
