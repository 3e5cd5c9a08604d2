"""A page made of a template, and the file that it becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cellrepro.show.figures.colours import COLOURS, RESULTS
from cellrepro.show.shown_verdicts import VERDICT_COLOURS, VERDICT_SIGNS, VERDICT_WORDS
from cellrepro.store.whole_files import refuse_existing, write_whole
from cellrepro.version import __version__
from cellrepro.words import pixels_text, share_text, unbroken
from samebits.errors import BadInput
from samebits.words import grouped

PAGE_ENDINGS = (".html", ".htm")
TEMPLATES = Path(__file__).with_name("templates")
"""Macros and the style sheet of all pages, and the templates of those in this folder."""


@dataclass(frozen=True)
class PageTarget:
    """The file of a page, and whether one that is there may be replaced."""

    path: Path
    overwrite: bool
    noun: str = "page"
    """What an error calls the page."""
    expected: str = "a .html file in a folder"
    """What an error advises to name."""


def page_target(html: str | Path, *, overwrite: bool) -> PageTarget:
    """Give the file that a page is to be written to, before anything takes time."""
    path = Path(html)
    if path.suffix.lower() not in PAGE_ENDINGS or path.is_dir():
        raise BadInput(
            f"the page cannot be written to {path}: expected the name of a file that ends in "
            f".html, such as {path / 'page.html' if path.is_dir() else 'page.html'}"
        )
    if not overwrite:
        refuse_existing(path, can_be_asked_for=True)
    return PageTarget(path, overwrite)


def write_page(target: PageTarget, page: str) -> None:
    """Write a page as one file, whole or not at all."""
    path = target.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, page, replace=target.overwrite)
    except OSError as error:
        raise BadInput(
            f"the {target.noun} cannot be written to {path} ({error.strerror or error}); name "
            f"{target.expected} in which you may write"
        ) from error


def rendered(template: str, *folders: Path, **values: object) -> str:
    """Fill a template of this folder, or of others; all values are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_unbroken,
    )
    environment.filters |= {"pixels": pixels_text, "share": share_text, "grouped": grouped}
    page = environment.get_template(template).render(
        written=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        signs=VERDICT_SIGNS,
        verdict_words=VERDICT_WORDS,
        colours=VERDICT_COLOURS,
        mask_colours=COLOURS,
        result_colours=RESULTS,
        **values,
    )
    return _with_options_unbroken(page)


_MARKUP = re.compile(r"(<(script|style|pre|title|textarea)\b.*?</\2>|<[^>]*>)", re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def _with_options_unbroken(page: str) -> str:
    """Keep a line from ending inside the name of an option, wherever text names one."""
    pieces = _MARKUP.split(page)  # text, markup, the name in that markup, text, and so on
    pieces[2::3] = [""] * len(pieces[2::3])
    pieces[::3] = [_OPTION.sub(r'<span class="option">\g<0></span>', text) for text in pieces[::3]]
    return "".join(pieces)


def _unbroken(value: object) -> object:
    """Text with its numbers unbroken; markup stays as it is."""
    return unbroken(value) if type(value) is str else value
