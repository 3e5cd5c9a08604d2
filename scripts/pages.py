"""The pages of the documentation: where they are, and how a heading of one is linked to."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"
FILES = DOCS / "files"
"""What the commands of the pages read, and the pictures are drawn from."""

FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """README and every page of docs/."""
    return [PROJECT / "README.md", *sorted(DOCS.rglob("*.md"))]


def slug(heading: str) -> str:
    """What follows ``#`` in a link to a heading, as GitHub and the site make it.

    >>> slug("Does it cost anything?")
    'does-it-cost-anything'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The slugs of all headings of a page."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return {slug(heading) for heading in re.findall(r"^#+ +(.+?)\s*$", text, flags=re.MULTILINE)}
