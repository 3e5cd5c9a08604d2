"""What `explore` answers: where the page is, and how many pixels differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer

if TYPE_CHECKING:
    from pathlib import Path

    from cellrepro.show.pages.explorer_page import ExplorerPage


@dataclass(frozen=True)
class ExplorerDocument:
    """What ``cellrepro explore --json`` prints."""

    html: Path
    """The page."""
    opened: bool
    """Whether a browser was asked to show it."""
    line: str
    """How many pixels differ."""


def explorer_answer(page: ExplorerPage, *, opened: bool) -> Answer[ExplorerDocument]:
    """Answer with how many pixels differ, and where the page is."""
    where = "shown in the browser" if opened else "open it in a browser"
    document = ExplorerDocument(html=page.html, opened=opened, line=page.line)
    return Answer(document, [page.line, f"{page.html}: {where}"])
