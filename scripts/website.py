"""The documentation as a site: commands run, pictures drawn, links checked, pages built.

    python scripts/website.py            # builds site/, strictly, from docs/ as it is
    python scripts/website.py outputs    # runs the commands of the pages, writes their output
    python scripts/website.py commands   # writes docs/commands.md from --help, and the pages
                                         # that scripts/reference.py makes from the code
    python scripts/website.py pictures   # draws docs/images/how anew from docs/files

Commands of a page stand in blocks of the kind ``console``, after a ``$``; what follows is their
output. They run in a copy of docs/files. A block after the comment ``<!-- long -->`` needs
PyTorch, Cellpose and the network of website_files.py; its output is renewed with ``--long``.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

import reference
from cyclopts import App

PROJECT = Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"
FILES = DOCS / "files"
COMMANDS = DOCS / "commands.md"
PICTURES = DOCS / "images" / "how"
PICTURE_SOURCES = PICTURES / "sources.json"
SITE = PROJECT / "site"
SERVE = "python3 -m http.server --bind 127.0.0.1 --directory site 8000"
STAGED = PROJECT / "outputs" / "website" / "docs"
"""The pages as the site generator reads them."""

BLOCK = re.compile(r"(?P<long><!-- long -->\n)?```console\n(?P<body>.*?)```\n", re.DOTALL)
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\s]+)\)")
ANY_LINK = re.compile(r"!?\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`(?!\])")
"""Code in a line, but that which is the whole text of a link."""
PROGRESS = re.compile(r"[\w ]+: \d+/\d+ in ")
"""How a line begins that says how far a command is."""
N_COLUMNS = 100
"""Of the terminal in which commands of a page run."""


@dataclass(frozen=True)
class Block:
    """Commands of a page with what they print.

    Attributes
    ----------
    page : Path
    commands : tuple of str
        Without the ``$``.
    text : str
        As it stands in the page, between the lines of the fence.
    is_long : bool
        Needs PyTorch, Cellpose and the network of website_files.py.
    """

    page: Path
    commands: tuple[str, ...]
    text: str
    is_long: bool


Run = Callable[[str, Path], str]
"""Runs a command in a folder and gives what it prints."""


@dataclass(frozen=True)
class Drawn:
    """Two label images of docs/files that a page shows side by side.

    Attributes
    ----------
    image, a, b : str
        Files; ``image`` may be empty.
    name_a, name_b : str
        What the picture calls them.
    """

    image: str
    a: str
    b: str
    name_a: str
    name_b: str


DRAWN = {
    "gui_and_script": Drawn("cells.tif", "cells_seg.npy", "script_masks.tif", "GUI", "script"),
    "straight_cuts": Drawn(
        "cells.tif", "script_masks.tif", "blocks_masks.tif", "in one piece", "in blocks"
    ),
    "crop_and_whole": Drawn(
        "debris.tif", "whole_masks.tif", "percentile_masks.tif", "percentile 99", "percentile 96"
    ),
    "gpu_and_laptop": Drawn(
        "cells.tif", "script_masks.tif", "bfloat16_masks.tif", "float32", "bfloat16"
    ),
    "website_and_local": Drawn(
        "cells.tif", "script_masks.tif", "website_masks.tif", "full size", "shrunk by half"
    ),
    "plugin_and_cellpose": Drawn(
        "cells.tif", "script_masks.tif", "filtered_masks.tif", "Cellpose", "blurred first"
    ),
    "plane_in_stack": Drawn(
        "", "plane_alone_masks.tif", "plane_in_stack_masks.tif", "alone", "in the stack"
    ),
    "cell_numbers": Drawn(
        "cells.tif", "script_masks.tif", "renumbered_masks.tif", "before", "reloaded"
    ),
}
"""The picture of a page of docs/how, by the page's name."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what",
        nargs="?",
        default="build",
        choices=("build", "outputs", "commands", "pictures"),
    )
    parser.add_argument("--long", action="store_true", help="outputs: long commands, too")
    parser.add_argument("pages", nargs="*", help="outputs: of these pages alone")
    arguments = parser.parse_args()
    if arguments.what == "commands":
        COMMANDS.write_text(commands_page(), encoding="utf-8")
        reference.write_pages()
    elif arguments.what == "pictures":
        draw_pictures()
    elif arguments.what == "outputs":
        chosen = [Path(page).resolve() for page in arguments.pages]
        for page in chosen or pages():
            write_outputs(page, with_long=arguments.long)
    else:
        problems = [*broken_links()]
        if problems:
            print(*problems, sep="\n", file=sys.stderr)
            return 1
        return build()
    return 0


def pages() -> list[Path]:
    """README and every page of docs/."""
    return [PROJECT / "README.md", *sorted(DOCS.rglob("*.md"))]


# -- commands and what they print --------------------------------------------------------------


def blocks(page: Path) -> list[Block]:
    """The commands of a page that are run."""
    text = page.read_text(encoding="utf-8")
    return [_block(page, match) for match in BLOCK.finditer(text)]


def _block(page: Path, match: re.Match[str]) -> Block:
    lines = match["body"].splitlines()
    return Block(
        page=page,
        commands=tuple(line[2:] for line in lines if line.startswith("$ ")),
        text=match["body"],
        is_long=match["long"] is not None,
    )


def run_block(block: Block, run: Run) -> str:
    """What the block should hold: its commands, each with what it prints now.

    Parameters
    ----------
    block : Block
    run : callable
        Gets a command and the folder in which it stands.

    Returns
    -------
    str
    """
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "files")
        shutil.copytree(FILES, place)
        if block.is_long:
            add_network(place)
        for command in block.commands:
            said = "\n".join(line.rstrip() for line in run(command, place).splitlines())
            parts.append(f"$ {command}\n" + (f"{said.strip()}\n" if said.strip() else ""))
    return "".join(parts)


def add_network(place: Path) -> None:
    """Add what long commands need: the network, and a folder with the image alone.

    Parameters
    ----------
    place : Path
        The copy of docs/files.
    """
    import website_files

    shutil.copy(website_files.trained_network().weights, place / "network.safetensors")
    (place / "images").mkdir()
    shutil.copy(place / "cells.tif", place / "images")


def run_in_process(command: str, folder: Path) -> str:
    """Run a command of a page as a user's terminal would; messages first, without progress.

    Parameters
    ----------
    command : str
    folder : Path

    Returns
    -------
    str
    """
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


def write_outputs(page: Path, *, with_long: bool) -> None:
    """Run the commands of a page and write what they print into it."""
    found = iter(blocks(page))

    def renewed(match: re.Match[str]) -> str:
        block = next(found)
        if block.is_long and not with_long:
            return match[0]
        return f"{match['long'] or ''}```console\n{run_block(block, run_in_process)}```\n"

    text = page.read_text(encoding="utf-8")
    page.write_text(BLOCK.sub(renewed, text), encoding="utf-8")


# -- every command, from --help ----------------------------------------------------------------


def commands_page() -> str:
    """Every command with its help, as one page."""
    from cellrepro.cli import app

    names = [*_verbs(app, ())]
    parts = [
        "# Every command",
        "",
        "What `cellrepro COMMAND --help` prints; this page is written by a script, so it is that "
        "of this version. [How do I …](my_masks_changed.md) says which command answers which "
        "question.",
        "",
    ]
    for name in names:
        parts += [f"## {' '.join(name)}", "", "```text", _help_of(name), "```", ""]
    return "\n".join(parts)


def _verbs(command: App, name: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Names of commands, those of a group one after the other."""
    if command.default_command is not None:
        yield name
        return
    for verb in command:
        if not verb.startswith("-"):
            yield from _verbs(command[verb], (*name, verb))


def _help_of(name: tuple[str, ...]) -> str:
    """Of a command, at a width that does not depend on the terminal."""
    from rich.console import Console

    from cellrepro.cli import app, examples, narrow_panels

    printed = io.StringIO()
    app.help_formatter = narrow_panels()
    app.help_print([*name], console=Console(file=printed, width=100))
    lines = f"{printed.getvalue().strip()}\n{examples(name)}".splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()


# -- pictures ----------------------------------------------------------------------------------


def draw_pictures() -> None:
    """Draw what the pages of docs/how show, and keep what it was drawn from."""
    from cellrepro.images.image_file import read_image, read_labels
    from cellrepro.show.figures.masks import difference

    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, drawn in DRAWN.items():
        image = read_image(FILES / drawn.image) if drawn.image else None
        picture = difference(
            image,
            read_labels(FILES / drawn.a),
            read_labels(FILES / drawn.b),
            name_a=drawn.name_a,
            name_b=drawn.name_b,
        )
        picture.savefig(PICTURES / f"{name}.png", dpi=90)
    PICTURE_SOURCES.write_text(json.dumps(picture_sources(), indent=1) + "\n", encoding="utf-8")


def picture_sources() -> dict[str, str]:
    """A digest of every file that a picture is drawn from."""
    used = {name for one in DRAWN.values() for name in (one.image, one.a, one.b) if name}
    return {name: sha256((FILES / name).read_bytes()).hexdigest()[:16] for name in sorted(used)}


# -- links -------------------------------------------------------------------------------------


def broken_links() -> Iterator[str]:
    """Links and pictures of the pages that lead nowhere, each in a line."""
    for page in [*pages(), PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md"]:
        text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
        for match in ANY_LINK.finditer(text):
            problem = _problem_of(match["target"], page)
            if problem:
                yield f"{page.relative_to(PROJECT)}: {match['target']}: {problem}"


def _problem_of(target: str, page: Path) -> str | None:
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = unquote(target).partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return "there is no such file"
    if anchor and path.suffix == ".md" and anchor not in anchors(path):
        return "that page has no such heading"
    return None


def anchors(page: Path) -> set[str]:
    """What may follow ``#`` in a link to the page, as GitHub and the site make it of headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?)\s*$", text, flags=re.MULTILINE)
    return {slug(heading) for heading in headings}


def slug(heading: str) -> str:
    """Of a heading, as GitHub makes it."""
    plain = re.sub(r"[^\w\- ]", "", heading.lower())
    return plain.replace(" ", "-")


# -- the site ----------------------------------------------------------------------------------


def stage(into: Path) -> None:
    """Copy the pages to where the site is built from.

    Links that leave docs/ have no page on the site: there their text stands alone.
    """
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(DOCS, into, ignore=shutil.ignore_patterns("*.j2"))
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(PROJECT / name, into / name.lower())
    for page in into.rglob("*.md"):
        source = DOCS / page.relative_to(into)
        if not source.exists():
            source = PROJECT / f"{page.stem.upper()}.md"
        text = page.read_text(encoding="utf-8")
        on_site = partial(_on_site, source=source)
        page.write_text(LINK.sub(on_site, text), encoding="utf-8")


def _on_site(match: re.Match[str], source: Path) -> str:
    """A link as it is on the site."""
    target = match["target"]
    if re.match(r"[a-z]+:|#", target):
        return match[0]
    path = (source.parent / unquote(target).partition("#")[0]).resolve()
    if path.is_relative_to(DOCS) and path.is_file():
        if source.parent == PROJECT:
            return f"[{match['text']}]({target.removeprefix('docs/')})"
        return match[0]
    if path in {PROJECT / "CONTRIBUTING.md", PROJECT / "CHANGELOG.md"}:
        above = (
            "" if source.parent == PROJECT else "../" * (len(source.relative_to(DOCS).parts) - 1)
        )
        return f"[{match['text']}]({above}{path.name.lower()})"
    return match["text"]


def build() -> int:
    """Build ``site/``; a warning is an error. Browsers run its search from a server only."""
    stage(STAGED)
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    code = subprocess.run([*command, "-f", "mkdocs.yml"], cwd=PROJECT, check=False).returncode
    if code == 0:
        print(f"To read it with its search: {SERVE}, then open http://127.0.0.1:8000")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
