"""Tell what a file or folder is that holds neither masks nor weights."""

from __future__ import annotations

import re
from pathlib import Path

from cellrepro.command_lines import quoted
from cellrepro.explanation.binary_kinds import (
    N_OF_HEADER,
    kind_by_first_bytes,
    kind_in_gzip,
    kind_of_archive,
)
from cellrepro.explanation.file_kinds import NOT_USED, FileKind
from cellrepro.explanation.text_kinds import kind_of_text
from cellrepro.spec.lab_command import lab_command
from cellrepro.torch_files import PICKLE, ZIP

_N_BYTES = 2**16  # of the beginning, enough to tell what a text is


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
        beginning = stream.read(N_OF_HEADER)
    return beginning.startswith((ZIP, PICKLE)) or _is_safetensors(beginning)


def _is_safetensors(beginning: bytes) -> bool:
    """Whether a plausible length stands first, and then JSON."""
    return beginning[8:9] == b"{" and 0 < int.from_bytes(beginning[:8], "little") < 2**30


def holds_passports(path: Path) -> bool:
    """Whether a file named as one of passports may be one: it is known to be nothing else."""
    kind = recognised(path)
    return kind is None or kind.may_be_passports


def _folder(path: Path) -> FileKind | None:
    if (path / "ro-crate-metadata.json").is_file():
        return FileKind("a folder described as an RO-Crate", "give one file of it")
    if (path / "saved_model.pb").is_file():
        return FileKind("a network of TensorFlow (StarDist keeps its own so)", NOT_USED)
    if (path / "runs").is_dir():
        return FileKind(
            "a store of the lab", "`cellrepro list --store {path}` says which runs it holds"
        )
    if path.resolve().name == "runs" and any(path.glob("*/spec.json")):
        return FileKind(
            "the runs of a store of the lab",
            f"`{lab_command('list', '--store', path.parent, store=None)}` lists them",
        )
    return None


def _file(path: Path) -> FileKind | None:
    with path.open("rb") as stream:
        beginning = stream.read(_N_BYTES)
    if beginning.startswith(PICKLE) or _is_safetensors(beginning):
        return None
    if not beginning:
        return FileKind(
            "an empty file", "copy or download it again, or take it away", may_be_passports=False
        )
    if beginning.startswith(ZIP):
        return kind_of_archive(path)
    if beginning.startswith(b"\x1f\x8b"):
        return kind_in_gzip(beginning)
    known = kind_by_first_bytes(beginning)
    if known is not None:
        return known
    if re.match(rb"\x80[\x03-\x05]", beginning):
        return FileKind(
            "a pickle of Python, which is not opened, as it could run anything",
            "save what it holds as .npy, TIFF or a state_dict where it was made",
        )
    if re.match(rb"\x08[\x01-\x20]\x12[\x01-\x40][\w .+-]", beginning):
        return FileKind("a network in ONNX", NOT_USED)
    return kind_of_text(path, beginning)
