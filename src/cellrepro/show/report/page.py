"""The page of a report: chapters with their sections, in the order of its templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cellrepro.comparison.five_steps import GRID, Step, protocol
from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.show.pages.mask_pictures import counts_text
from cellrepro.show.pages.page_file import rendered
from cellrepro.show.pages.parts import MOST_ROWS
from cellrepro.show.report import (
    section_agreement,
    section_cells,
    section_conclusion,
    section_cost,
    section_environment,
    section_equality,
    section_receipts,
    section_spread,
    section_training,
    section_truth,
    section_warnings,
    section_weights,
    section_worst,
    short_answers,
)
from cellrepro.show.report.run_pairs import run_pairs
from cellrepro.show.report.run_table import (
    MOST_LISTED,
    TEMPLATES,
    RunTable,
    run_table,
)
from cellrepro.show.report.summary import PLACES, Chapter, Summary, short_name
from cellrepro.show.shown_verdicts import SHOWN
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat


@dataclass(frozen=True)
class ChapterView:
    """A chapter with its sections, for the templates."""

    chapter: Chapter
    equality: section_equality.Equality
    spread: section_spread.Captioned | None
    steps: Sequence[Step]
    axes: Sequence[section_cells.AxisSection]
    agreement: section_agreement.AgreementSection | None
    truth: section_truth.TruthSection | None
    weights: section_weights.WeightsSection | None
    training: section_training.TrainingSection | None
    """None where the store has no weights of these runs."""
    cost: section_cost.CostSection

    @classmethod
    def of(
        cls, equality: section_equality.Equality, worst: section_worst.WorstImage | None
    ) -> ChapterView:
        """Make the sections of a chapter; the worst image of the whole page is drawn elsewhere."""
        chapter = equality.chapter
        axes = chapter.spread.axes
        weights = section_weights.weights_section(chapter, equality)
        return cls(
            chapter=chapter,
            equality=equality,
            spread=section_spread.spread_figure(chapter),
            steps=protocol(chapter.spread),
            axes=[section_cells.axis_section(chapter, axis, worst) for axis in axes],
            agreement=section_agreement.agreement_section(chapter),
            truth=section_truth.truth_section(chapter),
            weights=weights,
            training=None if weights is None else section_training.training_section(chapter),
            cost=section_cost.cost_section(chapter),
        )


def report_page(
    store: Store,
    summary: Summary,
    folder: str | None,
    experiment: section_conclusion.Experiment | None = None,
) -> str:
    """Make the page; the runs in it link to a folder, if it is given."""
    conclusions: Sequence[section_conclusion.ConclusionSection] = ()
    if experiment is not None:
        conclusions = section_conclusion.conclusion_sections(summary.chapters, experiment)
    axes = [(chapter, axis) for chapter in summary.chapters for axis in chapter.spread.axes]
    worst = section_worst.worst_image(axes)
    views = [
        ChapterView.of(equality, worst)
        for equality in section_equality.equalities_of(summary.chapters)
    ]
    return rendered(
        "report.html.j2",
        TEMPLATES,
        summary=summary,
        headline=short_answers.headline(summary.chapters),
        answers=short_answers.short_answers(summary.chapters),
        outcomes=summary.outcomes,
        alone=len(summary.chapters) == 1,
        views=views,
        worst=worst,
        conclusions=conclusions,
        receipts=section_receipts.receipts_section(store),
        warnings=section_warnings.warnings_section(summary.chapters),
        environment=section_environment.environment_section(summary.chapters),
        rates=section_cost.rates_section(summary.chapters),
        linked=folder is not None,
        table=_table(views, worst, folder),
        kinds=tuple(ObjectKind),
        counts_text=counts_text,
        axis_verdict=section_spread.axis_verdict,
        verdicts=SHOWN,
        places=PLACES,
        short_name=short_name,
        grid=GRID,
        most=MOST_ROWS,
    )


def _table(
    views: Sequence[ChapterView], worst: section_worst.WorstImage | None, folder: str | None
) -> RunTable:
    """The table of all runs, in whose explorer the worst image is shown first."""
    chapters = [view.chapter for view in views]
    equalities = [view.equality for view in views]
    first = (worst.pair.a.name, worst.pair.b.name) if worst else ()
    pairs = run_pairs(chapters, equalities, first=first, first_image=worst.image if worst else "")
    links = partial(_links_to, runs=folder)
    return run_table(chapters, equalities, pairs, links=links, first=first, most=MOST_LISTED)


def _links_to(repeat: Repeat, runs: str | None) -> dict[str, str]:
    """Get the links to folder, manifest and notebook of a repeat, as far as they exist."""
    if runs is None:
        return {}
    # From the folder, as the manifest may disagree: a store can be put together by hand.
    folder = "/".join([runs, *repeat.folder.parts[-3:], ""])
    files = {"folder": "", "manifest": "manifest.json", "notebook": "notebook.ipynb"}
    return {word: folder + file for word, file in files.items() if (repeat.folder / file).exists()}
