"""The report: one page over everything a store holds, for people.

It answers in the order in which a reviewer asks: is it the same, where does it differ, does it
matter, which operations could not repeat, what did it cost. The modules ``section_…`` beside this
one find the numbers, the templates hold the words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from cyclopts import Parameter

from cellrepro.conclusions.readouts import chosen_readouts
from cellrepro.show.pages.page_file import PAGE_ENDINGS, PageTarget, write_page
from cellrepro.show.report.summary import (
    Chapter,
    JudgedSpec,
    damaged_repeats,
    summarise,
)
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.store.manifest import mean_score
from cellrepro.store.store import Store, StoreOrFolder
from cellrepro.store.whole_files import refuse_existing
from cellrepro.terminal import FileName, Words
from samebits.errors import BadInput
from samebits.results import Result, Row


class ReportedSpec(TypedDict):
    """A spec on one machine and how its repeats came out, in plain values."""

    key: str
    machine: str
    start: bool
    """Whether other networks were trained from it."""
    spec: dict[str, object]
    repeats: list[int]
    """Their numbers."""
    verdict: str | None
    """Over its repeats; None of one repeat."""
    weights: str | None
    """The verdict over their weights."""
    masks: str | None
    """The verdict over their masks."""
    reasons: list[str]
    """Why there is no verdict, or what limits it."""
    images: int
    """How many were segmented."""
    ap50: float | None
    """Mean average precision at IoU 0.5 over the test images."""
    ap50_train: float | None
    """The same over training images."""


@dataclass(frozen=True, repr=False)
class Report(Result):
    """The page that was written, and its contents in plain values."""

    html: Path
    """The page."""
    runs: list[ReportedSpec]
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


def write_report(
    store: StoreOrFolder = defaults.STORE,
    *,
    html: Annotated[FileName | None, Parameter(name="--output")] = None,
    overwrite: bool = False,
    groups: FileName | None = None,
    readout: Words = defaults.READOUTS,
    control: str | None = None,
    margin: float = defaults.MARGIN,
) -> Report:
    """Write one page about all runs in the store, across devices and machines.

    Parameters
    ----------
    store : Store, str or Path
        Folder of finished runs; only read, but for the report's own folder.
    html : str or Path, optional
        Where to write: a file whose name ends in ``.html``, or a folder, which gets an
        ``index.html``; ``report/index.html`` in the store by default, which is replaced. Folders
        that are not there are made. It appears whole or not at all. A page inside its store links
        to the runs; one elsewhere does not say where they are.
    overwrite : bool
        Whether a file that is there becomes the page.
    groups : str or Path, optional
        A CSV file with the columns ``image`` and ``group``, as of ``compare``: the page then says
        in how many runs the conclusion of the experiment stands.
    readout : str or sequence of str
        What is compared between the groups, as of ``compare``.
    control : str, optional
        The group with which the others are compared, as of ``compare``.
    margin : float
        Effects that differ by less than this share of the control's mean are the same.

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

    In how many runs does the conclusion of my experiment stand?

    ``cellrepro report --groups groups.csv --readout count,mean_intensity``
    """
    if html is None:
        refuse_idle(("overwrite",), "without --output")
    if groups is None:
        refuse_idle(("readout", "control", "margin"), "without --groups")
    store = store if isinstance(store, Store) else Store(store)
    own_page = store.root / "report" / "index.html"
    path = own_page if html is None else _named_file(Path(html))
    replaces = overwrite or path.resolve() == own_page.resolve()
    if not replaces:
        refuse_existing(path, can_be_asked_for=True)
    # With matplotlib, which help and the core do without.
    from cellrepro.show.report.page import report_page
    from cellrepro.show.report.section_conclusion import Experiment

    experiment = None
    if groups is not None:
        experiment = Experiment(Path(groups), chosen_readouts(readout), control, margin)
    folder = _runs_folder(path, store)
    try:
        summary = summarise(store, {})
        page = report_page(store, summary, folder, experiment)
    except BadInput:
        # A file that has the digest of its manifest can still be another one than this says of it.
        damaged = damaged_repeats(store)
        if not damaged:
            raise
        summary = summarise(store, damaged)
        page = report_page(store, summary, folder, experiment)
    target = PageTarget(
        path, overwrite=replaces, noun="report", expected="a .html file or a folder"
    )
    write_page(target, page)
    return Report(
        html=path,
        runs=[
            _reported_spec(chapter, judged)
            for chapter in summary.chapters
            for judged in chapter.judged
        ],
        groups=[group for chapter in summary.chapters for group in _groups(chapter)],
        headline=summary.sentence,
        left_out=summary.left_out,
    )


def _named_file(path: Path) -> Path:
    """The file of the page that a path names: itself, or ``index.html`` in a folder."""
    if path.is_dir():
        return path / "index.html"
    if path.suffix.lower() in PAGE_ENDINGS:
        return path
    if path.exists():
        raise BadInput(
            f"the report cannot be written to {path}: that is a file and no page, and nothing is "
            "overwritten; name a .html file or a folder"
        )
    return path / "index.html"


def _runs_folder(page: Path, store: Store) -> str | None:
    """Get the relative path from the page's folder to the store's folder ``runs``.

    None for a page outside of its store, which must not say where that is.
    """
    folder = page.resolve().parent
    root = store.root.resolve()
    if not folder.is_relative_to(root):
        return None
    return "../" * len(folder.relative_to(root).parts) + "runs"


# -- in plain values -----------------------------------------------------------------------


def _reported_spec(chapter: Chapter, judged: JudgedSpec) -> ReportedSpec:
    judgement = judged.judgement
    return {
        "key": judged.spec.key,
        "machine": judged.repeats[0].machine,
        "start": chapter.names.is_start(judged.place),
        "spec": judged.spec.model_dump(mode="json"),
        "repeats": [repeat.index for repeat in judged.repeats],
        "verdict": judgement.overall,
        "weights": judgement.weights,
        "masks": judgement.masks,
        "reasons": list(judgement.reasons),
        "images": judgement.n_images,
        "ap50": judged.ap50,
        "ap50_train": mean_score(repeat.manifest.ap50_train for repeat in judged.repeats),
    }


def _groups(chapter: Chapter) -> list[dict[str, object]]:
    """The bit-equal results of a chapter, by weights, then by masks."""
    names_by_weights: dict[str, list[str]] = defaultdict(list)
    names_by_masks: dict[tuple[str, int], list[str]] = defaultdict(list)
    for repeat in chapter.repeats:
        manifest = repeat.manifest
        if manifest.weights is not None:
            names_by_weights[manifest.weights.digest].append(repeat.name)
        names_by_masks[manifest.masks_digest, manifest.n_objects].append(repeat.name)
    groups: list[dict[str, object]] = []
    for digest, names in names_by_weights.items():
        groups.append({"weights": digest, "members": names})
    for (digest, n_objects), names in names_by_masks.items():
        groups.append({"masks": digest, "members": names, "n_objects": n_objects})
    return groups
