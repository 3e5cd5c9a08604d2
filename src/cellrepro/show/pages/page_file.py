"""A page made of a template, and the file that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.show.figures.style import VERDICT_COLOURS, VERDICT_SIGNS
from cellrepro.show.report.page import unbroken
from cellrepro.store.whole_files import refuse_existing, write_whole
from cellrepro.words import grouped, ppm_text, share_text

_TEMPLATES = Path(__file__).with_name("templates")
_OF_THE_REPORT = Path(__file__).parents[1] / "report" / "templates"
_ENDINGS = (".html", ".htm")


@dataclass(frozen=True)
class PageTarget:
    """The file of a page, and whether one that is there may be replaced."""

    path: Path
    overwrite: bool


def page_target(html: str | Path, *, overwrite: bool) -> PageTarget:
    """Give the file that a page is to be written to, before anything takes time."""
    target = Path(html)
    if target.suffix.lower() not in _ENDINGS or target.is_dir():
        raise BadInput(
            f"the page cannot be written to {target}: expected the name of a file that ends in "
            f".html, such as {target / 'page.html' if target.is_dir() else 'page.html'}"
        )
    if not overwrite:
        refuse_existing(target, can_be_asked_for=True)
    return PageTarget(target, overwrite)


def write_page(target: PageTarget, template: str, **values: object) -> None:
    """Write a page as one file, whole or not at all."""
    page = _rendered(template, values)
    path = target.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, page, replace=target.overwrite)
    except OSError as error:
        raise BadInput(
            f"the page cannot be written to {path} ({error.strerror or error}); name a .html "
            "file in a folder in which you may write"
        ) from error


def _rendered(template: str, values: dict[str, object]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from cellrepro.version import __version__

    environment = Environment(
        loader=FileSystemLoader([_TEMPLATES, _OF_THE_REPORT]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=unbroken,
    )
    environment.filters |= {"ppm": ppm_text, "share": share_text, "grouped": grouped}
    return environment.get_template(template).render(
        written=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        signs=VERDICT_SIGNS,
        colours=VERDICT_COLOURS,
        **values,
    )
