"""This package as a wheel, to install it in an environment of its own, also from a checkout."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib import metadata
from pathlib import Path

_NAME = "cellrepro"
_OF_A_CHECKOUT = ("notebooks", "grids")
"""Folders that are inside of an installed package, and beside ``src/`` in a checkout."""
_NO_DATE = (1980, 1, 1, 0, 0, 0)
_METADATA = ("METADATA", "entry_points.txt")
_WHEEL = "Wheel-Version: 1.0\nGenerator: cellrepro\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_own_wheel(folder: Path) -> Path:
    """Write a wheel of this package; equal files give equal bytes."""
    distribution = metadata.distribution(_NAME)
    of_metadata = f"{_NAME}-{distribution.version}.dist-info"
    wheel = folder / f"{_NAME}-{distribution.version}-py3-none-any.whl"
    contents = {name: file.read_bytes() for name, file in _package_files().items()}
    for name in _METADATA:
        contents[f"{of_metadata}/{name}"] = (distribution.read_text(name) or "").encode()
    contents[f"{of_metadata}/WHEEL"] = _WHEEL.encode()
    record = f"{of_metadata}/RECORD"
    lines = [f"{name},{_digest(content)},{len(content)}\n" for name, content in contents.items()]
    contents[record] = "".join([*lines, f"{record},,\n"]).encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, date_time=_NO_DATE)  # equal files give an equal wheel
            archive.writestr(entry, content, compress_type=zipfile.ZIP_DEFLATED)
    return wheel


def _package_files() -> dict[str, Path]:
    """The files of the package by their names in a wheel."""
    package = Path(__file__).resolve().parents[1]
    files = {f"{_NAME}/{file.relative_to(package).as_posix()}": file for file in _below(package)}
    for name in _OF_A_CHECKOUT:
        beside = package.parents[1] / name
        if not (package / name).is_dir() and beside.is_dir():
            for file in _below(beside):
                files[f"{_NAME}/{name}/{file.relative_to(beside).as_posix()}"] = file
    return files


def _below(folder: Path) -> list[Path]:
    """The files below a folder, without bytecode and the checkpoints of Jupyter."""
    return [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and not any(
            part == "__pycache__" or part.startswith(".") for part in file.relative_to(folder).parts
        )
    ]


def _digest(content: bytes) -> str:
    """SHA-256 as RECORD has it: base64 without padding."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"
