"""Execute the notebooks of studies/, and write docs/findings.md and docs/answers.md from them.

    make findings                               # or: python scripts/findings.py
    python scripts/findings.py --check STORE    # have these runs, made anew, the same digests?

A page holds what the notebooks show: their text, tables and figures without the code. Cells with
the tag ``summary`` are for the overview and the answers, which collect them.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import nbformat
from execute_notebooks import execute
from nbconvert import MarkdownExporter
from pages import DOCS, PROJECT, slug
from traitlets.config import Config

from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.words import amount

STUDIES = sorted((PROJECT / "studies").glob("[1-9]_*.ipynb"))
OVERVIEW = PROJECT / "studies" / "0_overview.ipynb"
ANSWERS = PROJECT / "studies" / "answers.ipynb"

FIGURE = """{% extends 'markdown/index.md.j2' %}
{% block data_png %}
![{{ output.metadata['image/png'].alt }}]({{ output.metadata.filenames['image/png'] }})
{%- endblock %}"""
"""In a page a figure stands with its words, for those who cannot see it."""

AS_PAGE = Config(
    MarkdownExporter={"exclude_input": True},
    TagRemovePreprocessor={"enabled": True, "remove_cell_tags": {"summary"}},
    ExtractOutputPreprocessor={"output_filename_template": "findings/{unique_key}{extension}"},
)
"""A study has one figure, whose file is named after it."""


def main() -> int:
    """Write the pages; or check a store beside evidence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", type=Path, metavar="STORE", help="compare a store's digests")
    store = parser.parse_args().check
    if store is None:
        for path in [*STUDIES, OVERVIEW, ANSWERS]:  # the last two read what the others say
            print(path.name, file=sys.stderr)
            execute(path)
        for name, content in pages().items():
            (DOCS / name).write_bytes(content)
        return 0
    if not (store / "runs").is_dir():
        parser.error(f"{store} holds no run; expected a store with runs of the studies")
    return check(Store(store), Store(PROJECT / "evidence"))


# -- writing -------------------------------------------------------------------------------


def pages() -> dict[str, bytes]:
    """The pages and figures of docs/, by their names, of the notebooks as they were executed."""
    exporter = MarkdownExporter(config=AS_PAGE, raw_template=FIGURE)
    files = {}

    def shown(path: Path) -> str:
        text, resources = exporter.from_filename(str(path), {"unique_key": path.stem})
        files.update(resources["outputs"])
        return text

    sections = [re.sub("^#", "##", shown(path), flags=re.MULTILINE) for path in STUDIES]
    findings = as_page([shown(OVERVIEW), *sections], page="")
    answers = as_page([shown(ANSWERS)], page="findings.md")
    return {"findings.md": findings.encode(), "answers.md": answers.encode(), **files}


def as_page(parts: list[str], *, page: str) -> str:
    """Join parts; a link to a notebook leads to its section of a page."""
    text = re.sub("\n{3,}", "\n\n", "\n\n".join(parts)).strip()
    text = text.replace("](../docs/", "](")
    for path in STUDIES:
        title = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0]
        text = text.replace(f"]({path.name})", f"]({page}#{slug(title.removeprefix('# '))})")
    return f"{text}\n"


# -- checking ------------------------------------------------------------------------------


def check(store: Store, evidence: Store) -> int:
    """Say which of a store's runs in mode strict have the committed digests.

    Runs are compared where their numeric class is the same. Gives 1 if one has other digests, or
    nothing could be compared; else 0.
    """
    n_equal = 0
    others = []
    for run in store.runs():
        committed = evidence.run(run.key)
        if committed is None or run.spec.mode != "strict":
            continue
        for repeat in run.repeats:
            for counterpart in committed.repeats:
                if numeric_class(repeat) != numeric_class(counterpart):
                    continue
                if ending(repeat) == ending(counterpart):
                    n_equal += 1
                else:
                    others.append(f"{repeat.name} is not {counterpart.name}")
    print(f"{amount(n_equal, 'pair')} with equal weights and masks", *others, sep="\n")
    return 1 if others or n_equal == 0 else 0


def numeric_class(repeat: Repeat) -> str:
    return repeat.manifest.machine.numeric_class


def ending(repeat: Repeat) -> tuple[str | None, str]:
    """The digests of its weights and of its masks."""
    weights = repeat.manifest.weights
    return weights.digest if weights else None, repeat.manifest.masks_digest


if __name__ == "__main__":
    sys.exit(main())
