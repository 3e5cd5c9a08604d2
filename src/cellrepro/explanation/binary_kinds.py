"""Kinds of files that are told by their first bytes, or by the names in an archive.

Signatures are those of the formats' own descriptions; nothing is executed or decompressed whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from cellrepro.explanation.file_kinds import AS_TIFF, CONVERT, NOT_USED, UNPACK, FileKind
from cellrepro.zip_files import opened_zip
from samebits.words import amount, some

N_OF_HEADER = 64
"""Bytes of the beginning among which a binary file has a zero."""
_MOST_NAMES = 4
_AS_STATE = (
    "load it in Python and save its numbers alone, `torch.save(network.state_dict(), "
    '"weights.pth")`; describe and compare take that'
)
_IMPORT = (
    "`cellrepro verify {path}` says what is in it and checks it, and `cellrepro import {path}` "
    "puts it into a store, where KEY/REPEAT names each of its runs"
)

_SIGNATURES: Sequence[tuple[int, bytes, str, str]] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (ilastik, Keras, Imaris, .h5ad)", CONVERT),
    (0, b"MATLAB ", "a MAT file of MATLAB", CONVERT),
    (0, b"Iout", "a ROI of ImageJ", "give it the ending .roi"),
    (0, b"\x93NUMPY", "an array of NumPy", "give it the ending .npy"),
    (0, b"II*\0", "a TIFF", "give it the ending .tif"),
    (0, b"MM\0*", "a TIFF", "give it the ending .tif"),
    (0, b"II+\0", "a TIFF", "give it the ending .tif"),
    (0, b"MM\0+", "a TIFF", "give it the ending .tif"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture", "give it the ending .png"),
    (0, b"\xff\xd8\xff", "a JPEG picture, whose numbers are not exact", AS_TIFF),
    (0, b"GIF8", "a GIF picture", AS_TIFF),
    (0, b"BM", "a BMP picture", AS_TIFF),
    (0, b"\0\0\0\x0cjP  ", "a JPEG 2000 picture", AS_TIFF),
    (8, b"WEBP", "a WebP picture", AS_TIFF),
    (8, b"AVI ", "a video (AVI)", "save its frames as TIFF"),
    (8, b"WAVE", "a sound (WAV)", NOT_USED),
    # The brand behind `ftyp` tells pictures (HEIF: ISO/IEC 23008-12) from sounds and videos.
    *(
        (4, b"ftyp" + brand, "a HEIC or HEIF picture, whose numbers are not exact", AS_TIFF)
        for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
    ),
    (4, b"ftypavif", "an AVIF picture, whose numbers are not exact", AS_TIFF),
    (4, b"ftypavis", "an AVIF picture, whose numbers are not exact", AS_TIFF),
    (4, b"ftypM4A ", "a sound (M4A)", NOT_USED),
    (4, b"ftyp", "a video (MP4)", "save its frames as TIFF"),
    (0, b"\x1a\x45\xdf\xa3", "a video (Matroska, WebM)", "save its frames as TIFF"),
    (0, b"ZISRAWFILE", "an image of Zeiss (CZI)", CONVERT),
    (0, b"\xda\xce\xbe\n", "an image of Nikon (ND2)", CONVERT),
    (0, b"p\0\0\0", "an image of Leica (LIF)", CONVERT),
    (
        0,
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an old Office file, or an Olympus OIB",
        CONVERT,
    ),
    (128, b"DICM", "an image in DICOM", CONVERT),
    (344, b"n+1\0", "an image in NIfTI", CONVERT),
    (344, b"ni1\0", "an image in NIfTI", CONVERT),
    (4, b"n+2\0", "an image in NIfTI", CONVERT),
    (0, b"SIMPLE  =", "an image in FITS", CONVERT),
    (0, b"CDF\x01", "a NetCDF file", CONVERT),
    (0, b"NRRD", "an image in NRRD", CONVERT),
    (0, b"PAR1", "a Parquet table", NOT_USED),
    (0, b"ARROW1", "an Arrow table", NOT_USED),
    (0, b"SQLite format 3\0", "a SQLite database", NOT_USED),
    (0, b"%PDF", "a PDF document", NOT_USED),
    (0, b"{\\rtf", "an RTF document", NOT_USED),
    (0, b"TFL3", "a network for TensorFlow Lite", NOT_USED),
    (4, b"TFL3", "a network for TensorFlow Lite", NOT_USED),
    (0, b"GGUF", "a network in GGUF", NOT_USED),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (0, b"Rar!", "a RAR archive", UNPACK),
    (0, b"BZh", "a file compressed by bzip2", UNPACK),
    (0, b"\xfd7zXZ\0", "a file compressed by xz", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a file compressed by Zstandard", UNPACK),
    (257, b"ustar", "a tar archive", UNPACK),
    (0, b"\x7fELF", "a program", NOT_USED),
    (0, b"MZ", "a program for Windows", NOT_USED),
    (0, b"PK\x05\x06", "an empty zip archive", NOT_USED),
)
"""Offset, signature, name of the kind, next step."""


def kind_by_first_bytes(beginning: bytes) -> FileKind | None:
    """Look for a signature; None where a file begins with none of them."""
    is_binary = b"\0" in beginning[:N_OF_HEADER]
    for start, signature, name, next_step in _SIGNATURES:
        if len(signature) < 3 and not is_binary:  # two letters begin many a text
            continue
        if beginning[start : start + len(signature)] == signature:
            return FileKind(name, next_step)
    return None


def kind_in_gzip(beginning: bytes) -> FileKind:
    """The kind inside gzip, as far as its beginning tells."""
    try:
        inner = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(beginning, 1024)
    except zlib.error:
        inner = b""
    known = kind_by_first_bytes(inner)
    if known is None:
        is_nifti = inner[:4] in (b"\x5c\x01\0\0", b"\0\0\x01\x5c")  # 348, the length of its header
        name = "an image in NIfTI" if is_nifti else "a file"
        known = FileKind(name, CONVERT if is_nifti else UNPACK)
    return FileKind(f"{known.name}, compressed by gzip", known.next_step)


def kind_of_archive(path: Path) -> FileKind | None:
    """The kind of a zip archive; None for PyTorch's weights, a baseline, or a damaged one."""
    try:
        with opened_zip(path) as archive:
            names = archive.namelist()
    except Exception:  # a damaged directory ends in nearly any
        return None
    lower = [name.lower() for name in names]
    last = {name.rpartition("/")[2] for name in names}
    rois = [name for name in lower if name.endswith(".roi")]
    if names and names[0] == "SHA256SUMS":
        return FileKind("a file in which runs are handed on", _IMPORT)
    if {"rdf.yaml", "bioimageio.yaml"} & last:
        return FileKind(
            "a package of bioimage.io",
            "bioimage.io's own `bioimageio test {path}` checks it; unpack it, and describe and "
            "compare take the weights in it",
        )
    if "data.pkl" in last and ({"constants.pkl"} & last or any("/code/" in name for name in names)):
        return FileKind("a network in TorchScript", _AS_STATE)
    if "data.pkl" in last or "baseline.json" in last:
        return None
    if rois:
        return FileKind(f"ROIs of ImageJ, {len(rois)} of them", "give it the ending .zip")
    if names and all(name.endswith(".npy") for name in lower):
        arrays = some([name.removesuffix(".npy") for name in names], _MOST_NAMES)
        return FileKind(
            f"{amount(len(names), 'array')} of NumPy ({arrays})",
            "give it the ending .npz",
        )
    by_part: dict[str, FileKind] = {
        "[content_types].xml": FileKind("an Office document", NOT_USED),
        "meta-inf/manifest.mf": FileKind("a Java archive", NOT_USED),
        "ro-crate-metadata.json": FileKind("an RO-Crate", UNPACK),
        "config.json": FileKind("a network of Keras, or an archive with a configuration", UNPACK),
    }
    for part, kind in by_part.items():
        if part in lower:
            return kind
    if any(".zarray" in name or "zarr.json" in name for name in names):
        return FileKind("a Zarr array in a zip archive", CONVERT)
    return FileKind(
        f"a zip archive of {amount(len(names), 'file')} ({some(names, _MOST_NAMES)})", UNPACK
    )
