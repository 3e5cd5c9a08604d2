"""Kinds of files that hold neither masks nor weights, told by their first bytes, and what to do.

Signatures are those of the formats' own descriptions; nothing is executed or decompressed whole.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cellrepro.digests.torch_files import PICKLE, ZIP
from cellrepro.explanation.cellpose_call import quoted
from cellrepro.words import amount, some

_N_BYTES = 2**16  # of the beginning, enough to tell what a text is
_N_OF_HEADER = 64
_LARGEST_JSON = 2**26
_MOST_NAMES = 4
_MOST_LINES = 100_000


class FileKind(NamedTuple):
    """What a file is."""

    name: str
    """"ROIs of ImageJ, 30 of them"."""
    next_step: str
    """What takes it, or what to do to compare it here."""


_AS_LABELS = (
    "cells are compared as label images: give the NAME_masks.tif, or the NAME_seg.npy, that "
    "Cellpose writes of the same cells (--save_tif), or draw them as one"
)
_AS_TIFF = "save labels as a TIFF of whole numbers, 0 for background; `cellrepro compare` takes it"
_CONVERT = "open it with the program that wrote it, and save the image or the labels as TIFF"
_EMPTY = "an empty file"
_FOREIGN = "a statement of in-toto"
_UNPACK = "unpack it, and give one of its files"
_NOT_USED = "no command of the lab takes it"
_AS_STATE = (
    "load it in Python and save its numbers alone, `torch.save(network.state_dict(), "
    '"weights.pth")`; describe and compare take that'
)
_VERIFY = "`cellrepro verify {path}` says what is in it and checks it"
_IMPORT = (
    "`cellrepro verify {path}` says what is in it and checks it, and `cellrepro import {path}` "
    "puts it into a store, where KEY/REPEAT names each of its runs"
)

_BY_FIRST_BYTES: Sequence[tuple[int, bytes, str, str]] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (ilastik, Keras, Imaris, .h5ad)", _CONVERT),
    (0, b"MATLAB ", "a MAT file of MATLAB", _CONVERT),
    (0, b"Iout", "a ROI of ImageJ", _AS_LABELS),
    (0, b"\x93NUMPY", "an array of NumPy", "give it the ending .npy"),
    (0, b"II*\0", "a TIFF", "give it the ending .tif"),
    (0, b"MM\0*", "a TIFF", "give it the ending .tif"),
    (0, b"II+\0", "a TIFF", "give it the ending .tif"),
    (0, b"MM\0+", "a TIFF", "give it the ending .tif"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture", "give it the ending .png"),
    (0, b"\xff\xd8\xff", "a JPEG picture, whose numbers are not exact", _AS_TIFF),
    (0, b"GIF8", "a GIF picture", _AS_TIFF),
    (0, b"BM", "a BMP picture", _AS_TIFF),
    (0, b"\0\0\0\x0cjP  ", "a JPEG 2000 picture", _AS_TIFF),
    (8, b"WEBP", "a WebP picture", _AS_TIFF),
    (8, b"AVI ", "a video (AVI)", "save its frames as TIFF"),
    (8, b"WAVE", "a sound (WAV)", _NOT_USED),
    (4, b"ftyp", "a video (MP4)", "save its frames as TIFF"),
    (0, b"\x1a\x45\xdf\xa3", "a video (Matroska, WebM)", "save its frames as TIFF"),
    (0, b"ZISRAWFILE", "an image of Zeiss (CZI)", _CONVERT),
    (0, b"\xda\xce\xbe\n", "an image of Nikon (ND2)", _CONVERT),
    (0, b"p\0\0\0", "an image of Leica (LIF)", _CONVERT),
    (
        0,
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an old Office file, or an Olympus OIB",
        _CONVERT,
    ),
    (128, b"DICM", "an image in DICOM", _CONVERT),
    (344, b"n+1\0", "an image in NIfTI", _CONVERT),
    (344, b"ni1\0", "an image in NIfTI", _CONVERT),
    (4, b"n+2\0", "an image in NIfTI", _CONVERT),
    (0, b"SIMPLE  =", "an image in FITS", _CONVERT),
    (0, b"CDF\x01", "a NetCDF file", _CONVERT),
    (0, b"NRRD", "an image in NRRD", _CONVERT),
    (0, b"PAR1", "a Parquet table", _NOT_USED),
    (0, b"ARROW1", "an Arrow table", _NOT_USED),
    (0, b"SQLite format 3\0", "a SQLite database", _NOT_USED),
    (0, b"%PDF", "a PDF document", _NOT_USED),
    (0, b"{\\rtf", "an RTF document", _NOT_USED),
    (0, b"TFL3", "a network for TensorFlow Lite", _NOT_USED),
    (4, b"TFL3", "a network for TensorFlow Lite", _NOT_USED),
    (0, b"GGUF", "a network in GGUF", _NOT_USED),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (0, b"Rar!", "a RAR archive", _UNPACK),
    (0, b"BZh", "a file compressed by bzip2", _UNPACK),
    (0, b"\xfd7zXZ\0", "a file compressed by xz", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a file compressed by Zstandard", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"\x7fELF", "a program", _NOT_USED),
    (0, b"MZ", "a program for Windows", _NOT_USED),
    (0, b"PK\x05\x06", "an empty zip archive", _NOT_USED),
)
"""Offset, signature, name of the kind, next step."""


def recognised(path: Path) -> FileKind | None:
    """Tell the kind of a file or folder; None for one that may hold weights, or is not known."""
    if path.is_dir():
        kind = _folder(path)
    elif path.is_file():
        kind = _file(path)
    else:
        return None
    if kind is None:
        return None
    return kind._replace(next_step=kind.next_step.replace("{path}", quoted(str(path))))


def unknown(path: Path) -> FileKind:
    """Give the kind of a file that nothing tells."""
    with path.open("rb") as stream:
        beginning = stream.read(16)
    return FileKind(
        f"not known: it begins with {beginning!r}",
        "what is known: masks, weights and checkpoints, records of Cellpose, what the lab writes",
    )


def may_hold_weights(path: Path) -> bool:
    """Whether a file, be it damaged, begins or is named as weights are."""
    if path.suffix.lower() in (".safetensors", ".pth", ".pt", ".ckpt"):
        return True
    with path.open("rb") as stream:
        beginning = stream.read(_N_OF_HEADER)
    return beginning.startswith((ZIP, PICKLE)) or _is_safetensors(beginning)


def _is_safetensors(beginning: bytes) -> bool:
    """Whether a plausible length stands first, and then JSON."""
    return beginning[8:9] == b"{" and 0 < int.from_bytes(beginning[:8], "little") < 2**30


# -- folders ---------------------------------------------------------------------------------


def _folder(path: Path) -> FileKind | None:
    if any((path / name).is_file() for name in (".zarray", ".zgroup", "zarr.json", ".zattrs")):
        return FileKind("a Zarr array or group", _CONVERT)
    if (path / "ro-crate-metadata.json").is_file():
        return FileKind("a folder described as an RO-Crate", "give one file of it")
    if (path / "saved_model.pb").is_file():
        return FileKind("a network of TensorFlow (StarDist keeps its own so)", _NOT_USED)
    if (path / "runs").is_dir():
        return FileKind(
            "a store of the lab", "`cellrepro list --store {path}` says which runs it holds"
        )
    return None


# -- files -----------------------------------------------------------------------------------


def _file(path: Path) -> FileKind | None:
    with path.open("rb") as stream:
        beginning = stream.read(_N_BYTES)
    if beginning.startswith(PICKLE) or _is_safetensors(beginning):
        return None
    if not beginning:
        return FileKind(_EMPTY, "copy or download it again, or take it away")
    if beginning.startswith(ZIP):
        return _archive(path)
    if beginning.startswith(b"\x1f\x8b"):
        return _compressed(beginning)
    known = _by_first_bytes(beginning)
    if known is not None:
        return known
    if beginning[0] == 0x80 and beginning[1] in (3, 4, 5):
        return FileKind(
            "a pickle of Python, which is not opened, as it could run anything",
            "save what it holds as .npy, TIFF or a state_dict where it was made",
        )
    if re.match(rb"\x08[\x01-\x20]\x12[\x01-\x40][\w .+-]", beginning):
        return FileKind("a network in ONNX", _NOT_USED)
    return _text(path, beginning)


def _by_first_bytes(beginning: bytes) -> FileKind | None:
    is_binary = b"\0" in beginning[:_N_OF_HEADER]
    for start, signature, name, next_step in _BY_FIRST_BYTES:
        if len(signature) < 3 and not is_binary:  # two letters begin many a text
            continue
        if beginning[start : start + len(signature)] == signature:
            return FileKind(name, next_step)
    return None


def _compressed(beginning: bytes) -> FileKind:
    """The kind inside gzip, as far as its beginning tells."""
    try:
        inner = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(beginning, 1024)
    except zlib.error:
        inner = b""
    known = _by_first_bytes(inner)
    if known is None:
        is_nifti = inner[:4] in (b"\x5c\x01\0\0", b"\0\0\x01\x5c")  # 348, the length of its header
        name = "an image in NIfTI" if is_nifti else "a file"
        known = FileKind(name, _CONVERT if is_nifti else _UNPACK)
    return FileKind(f"{known.name}, compressed by gzip", known.next_step)


def _archive(path: Path) -> FileKind | None:
    """The kind of a zip archive; None for PyTorch's weights, a baseline, or a damaged one."""
    try:
        with zipfile.ZipFile(path) as archive:
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
        return FileKind(f"ROIs of ImageJ, {len(rois)} of them", _AS_LABELS)
    if names and all(name.endswith(".npy") for name in lower):
        arrays = some([name.removesuffix(".npy") for name in names], _MOST_NAMES)
        return FileKind(
            f"{amount(len(names), 'array')} of NumPy ({arrays})",
            'save the labels by themselves, `np.save("labels.npy", archive[NAME])`',
        )
    by_part: dict[str, FileKind] = {
        "[content_types].xml": FileKind("an Office document", _NOT_USED),
        "meta-inf/manifest.mf": FileKind("a Java archive", _NOT_USED),
        "ro-crate-metadata.json": FileKind("an RO-Crate", _UNPACK),
        "config.json": FileKind("a network of Keras, or an archive with a configuration", _UNPACK),
    }
    for part, kind in by_part.items():
        if part in lower:
            return kind
    if any(".zarray" in name or "zarr.json" in name for name in names):
        return FileKind("a Zarr array in a zip archive", _CONVERT)
    return FileKind(
        f"a zip archive of {amount(len(names), 'file')} ({some(names, _MOST_NAMES)})", _UNPACK
    )


# -- text ------------------------------------------------------------------------------------


def _text(path: Path, beginning: bytes) -> FileKind | None:
    if b"\0" in beginning:
        return None
    text = beginning.decode("utf-8", errors="ignore").lstrip("\ufeff \t\r\n")
    if text.startswith(("{", "[")):
        return _json(path, text)
    for pattern, name, next_step in _TEXTS:
        if re.search(pattern, text[:4096], re.MULTILINE):
            return FileKind(name, next_step)
    n_outlines = _n_outlines(path)
    if n_outlines:
        return FileKind(
            f"outlines of {amount(n_outlines, 'cell')}, as Cellpose writes them", _AS_LABELS
        )
    if not text.isprintable() and not all(c.isprintable() or c.isspace() for c in text):
        return None
    first_line = text.partition("\n")[0]
    for separator, name in ((",", "commas"), ("\t", "tabs"), (";", "semicolons")):
        if separator in first_line:
            return FileKind(f"a table, or a text with {name}", _NOT_USED)
    return FileKind("a text", _NOT_USED)


_TEXTS: Sequence[tuple[str, str, str]] = (
    (r"\A<\?xml[\s\S]*<OME\b|\A<OME\b", "metadata in OME-XML", "give the image that it is of"),
    (r"\A(<\?xml[\s\S]*)?<svg\b", "a drawing in SVG", _AS_LABELS),
    (r"\A\s*<(!doctype )?html", "a page in HTML", "open it in a browser"),
    (r"\A<\?xml", "a text in XML", _NOT_USED),
    (
        r"^format_version:[\s\S]*^type: *model|^type: *model[\s\S]*^format_version:",
        "the description of a package of bioimage.io (rdf.yaml)",
        "give the weights beside it",
    ),
    (r"^(notebook|vary|fixed):", "a grid of specs", "`cellrepro grid {path} --dry-run` reads it"),
    (r"\Aversion https://git-lfs", "a pointer of Git LFS", "fetch the file itself: `git lfs pull`"),
    (r"\A#!|^(import|from) \w+", "a script", _NOT_USED),
    (r"\Assh-(ed25519|rsa) ", "a public key", "`--allowed-signers` of `cellrepro verify` takes it"),
    (r"\A\{\\rtf", "an RTF document", _NOT_USED),
)
"""Pattern in the beginning of a text, name of the kind, next step."""


def _n_outlines(path: Path) -> int:
    """Count the outlines in a text, one a line: x,y,x,y …; 0 for any other text."""
    n_lines = 0
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if not line.strip():
                continue
            numbers = line.strip().split(",")
            if len(numbers) < 6 or len(numbers) % 2 or not all(map(_is_whole, numbers)):
                return 0
            n_lines += 1
            if n_lines >= _MOST_LINES:
                break
    return n_lines


def _is_whole(text: str) -> bool:
    return re.fullmatch(r" *\d+ *", text) is not None


def _json(path: Path, text: str) -> FileKind:
    """The kind of JSON, by its keys; also of JSON lines, by the first of them."""
    if path.stat().st_size > _LARGEST_JSON:
        return FileKind("a large text that begins as JSON", _NOT_USED)
    whole = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        content = json.loads(whole)
    except (ValueError, RecursionError):
        try:
            content = json.loads(whole.strip().partition("\n")[0])  # a document a line
        except (ValueError, RecursionError):
            return FileKind("a text that begins as JSON", _NOT_USED)
    if isinstance(content, list) and content and all(map(_is_feature, content)):
        content = {"type": "FeatureCollection", "features": content}
    if not isinstance(content, dict):
        return FileKind("a list in JSON", _NOT_USED)
    for is_kind, name, next_step in _JSONS:
        if is_kind(content):
            return FileKind(name(content), next_step)
    return FileKind(
        f"a record in JSON ({some([str(key) for key in content], _MOST_NAMES)})", _NOT_USED
    )


def _is_statement(content: Mapping[str, object]) -> bool:
    return "payloadType" in content or "in-toto" in str(content.get("_type"))


def _is_of_the_lab(content: Mapping[str, object]) -> bool:
    """Whether a statement, or the envelope of one, is of cellrepro."""
    inner = b""
    with contextlib.suppress(ValueError):
        inner = base64.b64decode(str(content.get("payload", "")))
    return b"cellrepro" in inner or "cellrepro" in json.dumps(content)


def holds_passports(path: Path) -> bool:
    """Whether a file named as one of passports may be one: it is known to be nothing else."""
    kind = recognised(path)
    return kind is None or not kind.name.startswith((_EMPTY, _FOREIGN))


def _is_feature(item: object) -> bool:
    """Whether an item is a GeoJSON shape, which QuPath before 0.3 wrote as a bare list."""
    return isinstance(item, dict) and item.get("type") == "Feature"


def _n_features(content: dict[str, object]) -> str:
    features = content.get("features")
    n = len(features) if isinstance(features, list) else 0
    return f"GeoJSON with {amount(n, 'shape')}, as QuPath exports cells"


_JSONS: Sequence[
    tuple[Callable[[dict[str, object]], bool], Callable[[dict[str, object]], str], str]
] = (
    (lambda c: c.get("type") in ("FeatureCollection", "Feature"), _n_features, _AS_LABELS),
    (
        lambda c: "@graph" in c and "@context" in c,
        lambda _: "the metadata of an RO-Crate",
        _NOT_USED,
    ),
    (
        lambda c: "sigstore" in str(c.get("mediaType")),
        lambda _: "a signature of Sigstore",
        "`cosign verify-blob` checks it; no command of the lab takes it",
    ),
    (
        lambda c: _is_statement(c) and _is_of_the_lab(c),
        lambda _: "a passport or a receipt",
        _VERIFY,
    ),
    (
        _is_statement,
        lambda _: f"{_FOREIGN}, and no passport of cellrepro",
        _NOT_USED,
    ),
    (
        lambda c: "shapes" in c and "imagePath" in c,
        lambda _: "shapes drawn in LabelMe",
        _AS_LABELS,
    ),
    (
        lambda c: "annotations" in c and "images" in c,
        lambda _: "annotations in the format of COCO",
        _AS_LABELS,
    ),
    (
        lambda c: "nbformat" in c,
        lambda _: "a Jupyter notebook",
        "open it in JupyterLab",
    ),
    (
        lambda c: isinstance(c.get("settings"), dict),
        lambda _: "a record of settings",
        "give the masks beside it, NAME_masks.tif of NAME_masks.json",
    ),
)
"""Test of the content, name of the kind, next step."""
