"""The report: one page over everything a store holds, for people.

It answers in the order in which a reviewer asks: is it the same, where does it differ, does it
matter, what was in the way, what did it cost. The modules ``section_…`` beside this one find the
numbers, the templates hold the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cellrepro.comparison.five_steps import GRID, Step, protocol
from cellrepro.errors import BadInput
from cellrepro.results import Result, Row
from cellrepro.show.figures.pixels import SIGNS
from cellrepro.show.figures.style import VERDICT_COLOURS, VERDICT_SIGNS
from cellrepro.show.report import (
    section_cells,
    section_environment,
    section_equality,
    section_receipts,
    section_spread,
    section_warnings,
    section_weights,
)
from cellrepro.show.report.mask_pictures import CHANGES, counts_text
from cellrepro.show.report.page import MOST_ROWS, links_to, runs_folder, unbroken
from cellrepro.show.report.summary import (
    PLACES,
    Chapter,
    JudgedSpecDocument,
    Summary,
    damaged_repeats,
    group_documents,
    run_documents,
    summarise,
)
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.store.store import Store, StoreOrFolder
from cellrepro.store.whole_files import refuse_existing, write_whole
from cellrepro.terminal import FileName
from cellrepro.words import grouped, ppm_text, share_text


@dataclass(frozen=True, repr=False)
class Report(Result):
    """The page that was written, and what it says in plain types."""

    html: Path
    """The page."""
    runs: list[JudgedSpecDocument]
    """Every spec on every machine."""
    groups: list[dict[str, object]]
    """Bit-equal results: ``{"weights": digest, "members": ["KEY/REPEAT", ...]}``, then the same
    with ``masks`` (one digest over all images, as numbered by Cellpose) and ``n_objects``."""
    left_out: dict[str, str]
    """Why damaged repeats or runs are not in it, by ``KEY/MACHINE/REPEAT`` or ``KEY``."""
    headline: str
    """How the runs came out."""

    def sentence(self) -> str:
        """Give the headline."""
        return self.headline

    def rows(self) -> Sequence[Row]:
        """Give a row for every spec and machine."""
        return [
            {
                "key": run["key"],
                "machine": run["machine"],
                "repeats": len(run["repeats"]),
                "verdict": run["verdict"] or "no verdict",
                "AP@0.5": "–" if run["ap50"] is None else f"{run['ap50']:.3f}",
            }
            for run in self.runs
        ]

    def lines(self) -> list[str]:
        """Give the headline, and where the page is."""
        return [self.sentence(), f"report: {self.html}"]


@dataclass(frozen=True)
class ChapterView:
    """What the templates read of one chapter."""

    chapter: Chapter
    equality: section_equality.Equality
    spread: section_spread.Captioned | None
    steps: Sequence[Step]
    axes: Sequence[section_cells.AxisSection]
    agreement: section_spread.AgreementSection | None
    truth: section_cells.TruthSection | None
    weights: section_weights.WeightsSection | None
    cost: section_environment.CostSection


def _view(chapter: Chapter, worst: section_cells.WorstImage | None) -> ChapterView:
    equality = section_equality.Equality(chapter)
    axes = chapter.spread.axes
    return ChapterView(
        chapter=chapter,
        equality=equality,
        spread=section_spread.spread_figure(chapter),
        steps=protocol(chapter.spread),
        axes=[section_cells.axis_section(chapter, axis, worst) for axis in axes],
        agreement=section_spread.agreement_section(chapter),
        truth=section_cells.truth_section(chapter),
        weights=section_weights.weights_section(chapter, equality),
        cost=section_environment.cost_section(chapter),
    )


def write_report(
    store: StoreOrFolder = defaults.STORE,
    *,
    html: Annotated[FileName | None, Parameter(name="--output")] = None,
    overwrite: bool = False,
) -> Report:
    """Write one page about all runs in the store, across devices and machines.

    Parameters
    ----------
    store : Store, str or Path
        Folder of finished runs; only read, but for the report's own folder.
    html : str or Path, optional
        Where to write: a file whose name ends in ``.html``, or a folder, which gets an
        ``index.html``; ``report/index.html`` in the store by default, which is replaced. Folders
        are made. It appears whole or not at all. A page inside its store links to the runs; one
        elsewhere does not say where they are.
    overwrite : bool
        Whether a file that is there becomes the page.

    Returns
    -------
    Report
        Where the page is, and what its first sentence says.

    Raises
    ------
    BadInput
        If the store holds no finished run that is as it was stored; or the page is there already or
        cannot be written. Damaged repeats are left out and named on the page.

    Examples
    --------
    One page about all runs of a store

    ``cellrepro report --output report.html``
    """
    if html is None:
        refuse_idle(("overwrite",), "without --output")
    store = store if isinstance(store, Store) else Store(store)
    own_page = store.root / "report" / "index.html"
    target = own_page if html is None else _target(Path(html))
    replaces = overwrite or target.resolve() == own_page.resolve()
    if not replaces:
        refuse_existing(target, can_be_asked_for=True)
    receipts = section_receipts.receipts_section(store)
    try:
        summary = summarise(store, {})
        page = _page(summary, receipts, runs_folder(target, store))
    except BadInput:
        # A file that has the digest of its manifest can still be another one than this says of it.
        damaged = damaged_repeats(store)
        if not damaged:
            raise
        summary = summarise(store, damaged)
        page = _page(summary, receipts, runs_folder(target, store))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, page, replace=replaces)
    except OSError as error:
        raise BadInput(
            f"the report cannot be written to {target} ({error.strerror or error}); name a .html "
            "file or a folder in which you may write"
        ) from error
    return Report(
        html=target,
        runs=run_documents(summary.chapters),
        groups=[group for chapter in summary.chapters for group in group_documents(chapter)],
        headline=summary.sentence,
        left_out=summary.left_out,
    )


def _target(path: Path) -> Path:
    """The file of the page that a path names."""
    if path.is_dir():
        return path / "index.html"
    if path.suffix.lower() in (".html", ".htm"):
        return path
    if path.exists():
        raise BadInput(
            f"the report cannot be written to {path}: that is a file and no page, and nothing is "
            "overwritten; name a .html file or a folder"
        )
    return path / "index.html"


def _page(
    summary: Summary, receipts: section_receipts.ReceiptsSection | None, folder: str | None
) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from cellrepro.version import __version__

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=unbroken,
    )
    environment.filters |= {"ppm": ppm_text, "share": share_text, "grouped": grouped}
    axes = [(chapter, axis) for chapter in summary.chapters for axis in chapter.spread.axes]
    worst = section_cells.worst_image(axes)
    return environment.get_template("report.html.j2").render(
        written=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        summary=summary,
        alone=len(summary.chapters) == 1,
        views=[_view(chapter, worst) for chapter in summary.chapters],
        worst=worst,
        receipts=receipts,
        warnings=section_warnings.warnings_section(summary.chapters),
        environment=section_environment.environment_section(summary.chapters),
        rates=section_environment.rates_section(summary.chapters),
        linked=folder is not None,
        links_to=partial(links_to, runs=folder),
        signs=VERDICT_SIGNS,
        colours=VERDICT_COLOURS,
        changes=CHANGES,
        cell_signs=SIGNS,
        counts_text=counts_text,
        axis_verdict=section_spread.axis_verdict,
        places=PLACES,
        grid=GRID,
        most=MOST_ROWS,
    )
