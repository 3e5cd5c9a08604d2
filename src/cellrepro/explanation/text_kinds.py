"""Kinds of files that are told by the text in them: its beginning, or the keys of JSON."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cellrepro.explanation.file_kinds import AS_LABELS, NOT_USED, FileKind
from cellrepro.explanation.run_log import FIRST
from cellrepro.images.outline_files import GEOJSON_ENDING, TEXT_ENDING
from samebits.words import amount, some

_LARGEST_JSON = 2**26
_MOST_NAMES = 4
_MOST_LINES = 100_000


def kind_of_text(path: Path, beginning: bytes) -> FileKind | None:
    """Tell what a text is; None for a file that is none."""
    if b"\0" in beginning:
        return None
    text = beginning.decode("utf-8", errors="ignore").lstrip("\ufeff \t\r\n")
    if text.startswith(("{", "[")):
        return _kind_of_json(path, text)
    for pattern, name, next_step in _TEXTS:
        if re.search(pattern, text[:4096], re.MULTILINE):
            return FileKind(name, next_step)
    n_outlines = _n_outlines(path)
    if n_outlines:
        return FileKind(
            f"outlines of {amount(n_outlines, 'cell')}, as Cellpose writes them",
            f"give it a name that ends with {TEXT_ENDING}",
        )
    if not text.isprintable() and not all(c.isprintable() or c.isspace() for c in text):
        return None
    first_line = text.partition("\n")[0]
    if {"image", "group"} <= {name.strip().lower() for name in first_line.split(",")}:
        return FileKind(
            "a table of images and their groups",
            "`--groups {path}` of `cellrepro compare` takes it, with --image and --readout",
        )
    for separator, name in ((",", "commas"), ("\t", "tabs"), (";", "semicolons")):
        if separator in first_line:
            return FileKind(f"a table, or a text with {name}", NOT_USED)
    return FileKind("a text", NOT_USED)


_TEXTS: Sequence[tuple[str, str, str]] = (
    (r"\A<\?xml[\s\S]*<OME\b|\A<OME\b", "metadata in OME-XML", "give the image that it is of"),
    (r"\A(<\?xml[\s\S]*)?<svg\b", "a drawing in SVG", AS_LABELS),
    (
        r'(?i)\A\s*<(!doctype )?html[\s\S]*<meta name="generator" content="cellrepro\b',
        "a page that cellrepro wrote",
        "open it in a browser",
    ),
    (r"(?i)\A\s*<(!doctype )?html", "a page in HTML", "open it in a browser"),
    (r"\A<\?xml", "a text in XML", NOT_USED),
    (
        r"^format_version:[\s\S]*^type: *model|^type: *model[\s\S]*^format_version:",
        "the description of a package of bioimage.io (rdf.yaml)",
        "give the weights beside it",
    ),
    (r"^(notebook|vary|fixed):", "a grid of specs", "`cellrepro grid {path} --dry-run` reads it"),
    (
        rf"^.*{FIRST}",
        "Cellpose's run.log",
        "it says how masks were made and holds none: `cellrepro explain A B --log-a {path}`",
    ),
    (r"\Aversion https://git-lfs", "a pointer of Git LFS", "fetch the file itself: `git lfs pull`"),
    (r"\A#!|^(import|from) \w+", "a script", NOT_USED),
    (r"\Assh-(ed25519|rsa) ", "a public key", "`--allowed-signers` of `cellrepro verify` takes it"),
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


def _kind_of_json(path: Path, text: str) -> FileKind:
    """The kind of JSON, by its keys; also of JSON lines, by the first of them."""
    if path.stat().st_size > _LARGEST_JSON:
        return FileKind("a large text that begins as JSON", NOT_USED)
    whole = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        content = json.loads(whole)
    except (ValueError, RecursionError):
        try:
            content = json.loads(whole.strip().partition("\n")[0])  # a document a line
        except (ValueError, RecursionError):
            return FileKind("a text that begins as JSON", NOT_USED)
    if isinstance(content, list) and content and all(map(_is_feature, content)):
        content = {"type": "FeatureCollection", "features": content}
    if not isinstance(content, dict):
        return FileKind("a list in JSON", NOT_USED)
    if content.get("type") in ("FeatureCollection", "Feature"):
        return _geojson(content)
    for is_kind, kind in _JSONS:
        if is_kind(content):
            return kind
    fields = some([str(key) for key in content], _MOST_NAMES) or "empty"
    return FileKind(f"a record in JSON ({fields})", NOT_USED)


def _is_statement(content: Mapping[str, object]) -> bool:
    return "payloadType" in content or "in-toto" in str(content.get("_type"))


def _is_of_the_lab(content: Mapping[str, object]) -> bool:
    """Whether a statement, or the envelope of one, is of cellrepro."""
    inner = b""
    with contextlib.suppress(ValueError):
        inner = base64.b64decode(str(content.get("payload", "")))
    return b"cellrepro" in inner or "cellrepro" in json.dumps(content)


def _is_feature(item: object) -> bool:
    """Whether an item is a GeoJSON shape, which QuPath before 0.3 wrote as a bare list."""
    return isinstance(item, dict) and item.get("type") == "Feature"


def _geojson(content: Mapping[str, object]) -> FileKind:
    features = content.get("features")
    n = len(features) if isinstance(features, list) else 0
    return FileKind(
        f"GeoJSON with {amount(n, 'shape')}, as QuPath exports cells",
        f"give it the ending {GEOJSON_ENDING}",
    )


_JSONS: Sequence[tuple[Callable[[dict[str, object]], bool], FileKind]] = (
    (
        lambda content: "@graph" in content and "@context" in content,
        FileKind("the metadata of an RO-Crate", NOT_USED),
    ),
    (
        lambda content: "sigstore" in str(content.get("mediaType")),
        FileKind(
            "a signature of Sigstore",
            "`cosign verify-blob` checks it",
        ),
    ),
    (
        lambda content: _is_statement(content) and _is_of_the_lab(content),
        FileKind(
            "a passport or a receipt", "`cellrepro verify {path}` says what is in it and checks it"
        ),
    ),
    (
        lambda content: _is_statement(content),
        FileKind(
            "a statement of in-toto, and no passport of cellrepro",
            NOT_USED,
            may_be_passports=False,
        ),
    ),
    (
        lambda content: "shapes" in content and "imagePath" in content,
        FileKind("shapes drawn in LabelMe", AS_LABELS),
    ),
    (
        lambda content: "annotations" in content and "images" in content,
        FileKind("annotations in the format of COCO", AS_LABELS),
    ),
    (
        lambda content: "nbformat" in content,
        FileKind("a Jupyter notebook", "open it in JupyterLab"),
    ),
    (
        lambda content: isinstance(content.get("settings"), dict),
        FileKind(
            "a record of settings",
            "give the masks beside it, NAME_masks.tif of NAME_masks.json",
            is_record=True,
        ),
    ),
)
"""A test of the content, and the kind of what passes it."""
