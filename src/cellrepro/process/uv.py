"""uv, which makes environments, as it is found here."""

from __future__ import annotations

import shutil
import sys
from importlib import util


def uv_command() -> list[str]:
    """The words that start uv; none where it is not installed."""
    if util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    program = shutil.which("uv")
    return [] if program is None else [program]
