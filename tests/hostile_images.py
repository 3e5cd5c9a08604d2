"""Images and arrays, as an attacker would write them: small files that promise or hide much."""

import io
import pickle
import struct
import zipfile
import zlib

import numpy as np
import tifffile

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
    """Zeros, packed as far as that goes."""
    packer = zlib.compressobj(9)
    packed = [packer.compress(bytes(2**20)) for _ in range(n_bytes // 2**20)]
    return b"".join([*packed, packer.flush()])


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
