"""How files begin that ``torch.save`` writes: their magic numbers."""

from __future__ import annotations

from pathlib import Path

ZIP = b"PK\x03\x04"
"""Of PyTorch 1.6 and later; a safetensors header has no such length."""
PICKLE = b"\x80\x02\x8a\nl\xfc\x9cF"
"""Of earlier versions."""


def is_saved_by_torch(path: Path) -> bool:
    """Whether a file begins as one of ``torch.save``; no folder does."""
    if path.is_dir():
        return False
    with path.open("rb") as stream:
        return stream.read(len(PICKLE)).startswith((ZIP, PICKLE))
