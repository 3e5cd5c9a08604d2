"""How files begin that ``torch.save`` writes."""

from __future__ import annotations

from pathlib import Path

ZIP = b"PK\x03\x04"
"""How files begin that PyTorch saves since version 1.6; no length of a safetensors header."""
PICKLE = b"\x80\x02\x8a\nl\xfc\x9cF"
"""How those begin that it saved before."""


def is_saved_by_torch(path: Path) -> bool:
    """Whether a file begins as one of ``torch.save``; no folder does."""
    if path.is_dir():
        return False
    with path.open("rb") as stream:
        return stream.read(len(PICKLE)).startswith((ZIP, PICKLE))
