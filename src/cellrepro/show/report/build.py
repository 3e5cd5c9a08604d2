"""The report: one page over everything a store holds, for people.

The page shows what `cellrepro.show.report.summary` has to say about the store, with figures, in
the order in which a reviewer asks: is it the same, where does it differ, does it matter, what was
in the way, what did it cost. The modules ``section_…`` beside this one make its sections.
"""

from __future__ import annotations

import errno
import re
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.show.figures.style import VERDICT_COLOURS, VERDICT_SIGNS
from cellrepro.show.report.page import runs_folder
from cellrepro.show.report.protocol import GRID, Status
from cellrepro.show.report.section_cells import cells_view, worst_figure, worst_of_all
from cellrepro.show.report.section_circumstances import cost_view, environment_view, warnings_view
from cellrepro.show.report.section_equality import (
    GROUP_COLOURS,
    Results,
    equality_view,
    runs_view,
)
from cellrepro.show.report.section_spread import RULE, protocol_view, spread_view
from cellrepro.show.report.section_weights import weights_view
from cellrepro.show.report.summary import (
    Summary,
    clauses,
    group_documents,
    run_documents,
    summarise,
)
from cellrepro.store.store import Store
from cellrepro.text import amount

GLOSSARY = (
    ("spec", "what was asked for: data, model, seed, epochs, profile, mode"),
    ("run", "one time that a spec was carried out, in a process of its own"),
    ("repeat", "the same spec carried out again: repeats of a spec are runs"),
    ("machine", "where a run was computed; an upgraded library or driver makes another one"),
    ("profile", "what a run was given: device; threads and instruction set; precision"),
    ("starting network", "a run that others were trained from; it is no result beside theirs"),
    ("fast", "the mode that fixes nothing but the seeds"),
    ("warn", "the mode that asks for deterministic operations and warns where there is none"),
    ("strict", "the mode that allows deterministic operations only"),
    ("bit-identical", "equal to the last binary digit; written “identical” in the tables"),
    ("same-objects", "the same outlines under other object numbers"),
    ("within-spread", "different, by less than seeds make runs differ"),
    ("different", "at least one pixel or one parameter differs"),
    ("vacuous", "nothing was trained or found, so equality would prove nothing"),
    ("ppm", "parts per million: differing pixels among a million pixels"),
    ("kept, moved", "a cell with a counterpart in the other masks: less than 1 pixel away and "
     "overlapping by half of the union or more, or farther"),
    ("lost, gained", "cells of the first masks without a counterpart in the second, and the "
     "reverse"),
    ("split, merged", "one cell in the first masks and several in its place in the second, and "
     "the reverse"),
    ("AP@0.5", "average precision: objects found right, divided by all objects, found or true; "
     "right means that found and true overlap by half of their union or more"),
    ("L2 distance", "length of the difference between all weights of two networks"),
    ("digest", "a fingerprint of a file; equal digests mean equal content"),
)  # fmt: skip
"""Every word of the page that a biologist may not know, in one line each."""

_NUMBER_GAP = re.compile(r"(?<=\d) (?=\d{3}(?!\d)|%|ppm\b)")
_LONGEST_TEXT = 10_000  # letters; anything longer is the content of a file


@dataclass(frozen=True)
class Report:
    """The page that was written, and what it says in plain types.

    Attributes
    ----------
    html : Path
        The page.
    runs : list of dict
        Per spec and machine ``key``, ``machine``, ``start`` (whether others were trained from it),
        ``spec``, ``repeats`` (indices), ``verdict`` (None for one repeat),
        ``weights`` and ``masks`` (their verdicts), ``reasons``, ``images`` and ``ap50`` (mean
        average precision at IoU 0.5, or None).
    groups : list of dict
        Bit-equal results: ``{"weights": digest, "members": ["KEY/REPEAT", ...]}``, then the same
        with ``masks`` (one digest over all images, as numbered by Cellpose) and ``n_objects``.
    sentence : str
        The headline.
    """

    html: Path
    runs: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    sentence: str


def write_report(store: Store | str | Path, *, html: str | Path | None = None) -> Report:
    """Write the report over everything in a store as one self-contained HTML file.

    Parameters
    ----------
    store : Store, str or Path
        Only read, but for the report's own folder.
    html : str or Path, optional
        Where to write; ``report/index.html`` in the store by default. It appears whole or not
        at all. A page inside its store links to the runs; one elsewhere does not say where they
        are.

    Returns
    -------
    Report

    Raises
    ------
    BadInput
        If the store holds no finished run, one of its files is missing or damaged, or the page
        cannot be written.
    NotPossibleHere
        If the disk is full.
    """
    store = store if isinstance(store, Store) else Store(store)
    found = summarise(store)
    target = Path(html) if html is not None else store.root / "report" / "index.html"
    _write_whole(target, _page(found, runs_folder(target, store)))
    groups = [group for chapter in found.chapters for group in group_documents(chapter)]
    return Report(target, run_documents(found.chapters), groups, found.sentence)


def _page(found: Summary, folder: str | None) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from cellrepro import __version__

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.finalize = _unbroken
    chapters = found.chapters
    same = [Results(chapter) for chapter in chapters]
    worst = worst_of_all(chapters)
    return environment.get_template("report.html.j2").render(
        head=_headline(found),
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        n_compared=sum(len(chapter.repeats) for chapter in chapters),
        alone=len(chapters) == 1,
        glossary=GLOSSARY,
        signs=VERDICT_SIGNS,
        colours=VERDICT_COLOURS,
        group_colours=GROUP_COLOURS,
        answered=Status.ANSWERED,
        grid=GRID,
        rule=RULE,
        worst=worst,
        worst_figure=worst and worst_figure(worst),
        equality=[equality_view(*each) for each in zip(chapters, same, strict=True)],
        spreads=[view for chapter in chapters if (view := spread_view(chapter))],
        protocols=[protocol_view(chapter) for chapter in chapters],
        cells=[cells_view(chapter, shown=worst) for chapter in chapters],
        weights=[weights_view(*each) for each in zip(chapters, same, strict=True)],
        warnings=warnings_view(chapters),
        costs=[cost_view(chapter) for chapter in chapters],
        environment=environment_view(chapters),
        runs=runs_view(found, same, folder),
        chapters=chapters,
    )


def _unbroken(value: Any) -> Any:
    """A number stays on one line with its digits and its unit."""
    if type(value) is not str or len(value) > _LONGEST_TEXT:  # markup and pictures stay as they are
        return value
    return _NUMBER_GAP.sub("\u00a0", value)


def _headline(found: Summary) -> dict[str, Any]:
    """The verdict in one sentence, over what most runs are about; then what else there is to it."""
    main = max(found.chapters, key=lambda chapter: len(chapter.repeats))
    verdict, *more = clauses(main)
    others = [
        f"{chapter.title}: {'; '.join(clauses(chapter))}."
        for chapter in found.chapters
        if chapter is not main
    ]
    if found.failures:
        others.append(f"{amount(len(found.failures), 'repeat')} failed.")
    data = f"{main.data}: " if len(found.chapters) > 1 else ""
    rest = "; ".join(more)
    return {
        "verdict": f"{data}{verdict}.",
        "matters": main.spread.sentence() if main.spread.axes else "",
        "more": f"{rest[0].upper()}{rest[1:]}." if rest else "",
        "others": others,
    }


def _write_whole(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".report-") as scratch:
            part = Path(scratch, "index.html")
            part.write_text(text, encoding="utf-8")
            part.replace(target)  # same file system, so whole or absent
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NotPossibleHere(
                f"no space left for the report {target}: {error}; free some"
            ) from error
        raise BadInput(
            f"the report {target} cannot be written: {error}; expected a file in a folder you may "
            "write to"
        ) from error
