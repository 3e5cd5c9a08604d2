"""The command that runs a file of this package as a script."""

from __future__ import annotations

import sys
from pathlib import Path

# Neither the current folder nor that of the script is on the import path, as with Python's option
# -P, which came with version 3.11.
_RUN = (
    "import runpy, sys; sys.path.pop(0); sys.argv.pop(0); "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def script_command(script: str | Path, *arguments: str) -> list[str]:
    """Give the words that run a script by this Python."""
    return [sys.executable, "-c", _RUN, str(script), *arguments]
