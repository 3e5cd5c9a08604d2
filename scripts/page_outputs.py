"""Run the commands that the pages show, and write what they print into the pages.

    python scripts/page_outputs.py [--long] [PAGE ...]    # every page, if none is named

Commands of a page stand in blocks of the kind ``console``, after a ``$``; what follows is their
output. They run in a copy of docs/files. A block after the comment ``<!-- long -->`` needs
PyTorch, Cellpose and the network of website_files.py; its output is renewed with ``--long``. After
``<!-- first 4 lines -->`` each output ends there, with an ellipsis.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pages import DOCS, FILES, pages

BLOCK = re.compile(
    r"(?P<note><!-- (?:(?P<long>long)|first (?P<most>\d+) lines) -->\n)?"
    r"```console\n(?P<body>.*?)```\n",
    re.DOTALL,
)
PROGRESS = re.compile(r"[\w ]+: \d+/\d+ in ")
"""How a line begins that says how far a command is."""
N_COLUMNS = 100
"""Of the terminal in which the commands run."""

Run = Callable[[str, Path], str]
"""Runs a command in a folder and gives what it prints."""


@dataclass(frozen=True)
class Block:
    """Commands of a page with what they print."""

    page: Path
    body: str
    """As it stands in the page, between the lines of the fence."""
    is_long: bool
    most_lines: int | None = None
    """Of the output of a command; None for all."""

    @property
    def commands(self) -> list[str]:
        """Its commands without the ``$``."""
        return [line[2:] for line in self.body.splitlines() if line.startswith("$ ")]


def main() -> None:
    """Renew the output in the pages that are named, or in all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="long commands, too")
    parser.add_argument("pages", nargs="*", type=Path, help="these pages alone")
    arguments = parser.parse_args()
    for page in arguments.pages or [*pages(), *DOCS.rglob("*.j2")]:
        write_outputs(page, with_long=arguments.long)


def write_outputs(page: Path, *, with_long: bool) -> None:
    """Run the commands of a page and write what they print into it."""

    def renewed(match: re.Match[str]) -> str:
        block = block_of(match, page)
        if block.is_long and not with_long:
            return match[0]
        return f"{match['note'] or ''}```console\n{run_block(block, run_in_process)}```\n"

    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(renewed, text), encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    """The commands of a page that are run."""
    text = page.read_text(encoding="utf-8")
    return [block_of(match, page) for match in BLOCK.finditer(text)]


def block_of(match: re.Match[str], page: Path) -> Block:
    most_lines = int(match["most"]) if match["most"] else None
    return Block(page, match["body"], is_long=match["long"] is not None, most_lines=most_lines)


def run_block(block: Block, run: Run) -> str:
    """What the block should hold: its commands, each with what it prints now."""
    parts = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "files")
        shutil.copytree(FILES, folder)
        if block.is_long:
            add_network(folder)
        for command in block.commands:
            lines = [line.rstrip() for line in run(command, folder).strip().splitlines()]
            parts += [f"$ {command}", *shortened(lines, block.most_lines)]
    return "".join(f"{line}\n" for line in parts)


def shortened(lines: list[str], most: int | None) -> list[str]:
    """The first lines of an output, with an ellipsis where that is not all."""
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], "  …"]


def add_network(folder: Path) -> None:
    """Add what long commands need: the network, and a folder with the image alone."""
    from website_files import trained_network

    shutil.copy(trained_network().weights, folder / "network.safetensors")
    (folder / "images").mkdir()
    shutil.copy(folder / "cells.tif", folder / "images")


def run_in_process(command: str, folder: Path) -> str:
    """Run a command of a page as a user's terminal would; messages first, without progress."""
    words = shlex.split(command, comments=True)
    if words[0] == "cellrepro":
        words[:1] = [sys.executable, "-m", "cellrepro"]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "COLUMNS": str(N_COLUMNS), "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=False,
    )
    messages = [line for line in done.stderr.splitlines() if not PROGRESS.match(line)]
    return "\n".join([*messages, done.stdout])


if __name__ == "__main__":
    main()
