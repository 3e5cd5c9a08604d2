"""The section on the user's experiment: its effect under every run, and in how many it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cellrepro.conclusions.over_runs import ConclusionsOverRuns, conclusions_over
from cellrepro.conclusions.readouts import ChosenReadout
from cellrepro.explanation.conclude_files import stored_images
from cellrepro.show.figures.effects import effect_rows, effects_of_runs
from cellrepro.show.pages.parts import Figure, drawn_twice, figure, table_file
from cellrepro.show.report.summary import Chapter
from samebits.errors import BadInput


@dataclass(frozen=True)
class Experiment:
    """What a user asked to conclude."""

    groups: Path
    readouts: Sequence[ChosenReadout]
    control: str | None
    margin: float


@dataclass(frozen=True)
class ConclusionSection:
    """What the experiment says in a chapter, or why it says nothing there."""

    chapter: Chapter
    said: str
    figure: Figure | None = None
    caption: str = ""
    notes: Sequence[str] = ()


def conclusion_sections(
    chapters: Sequence[Chapter], experiment: Experiment
) -> tuple[ConclusionSection, ...]:
    """Make the section of every chapter; an error where none has two runs and the groups."""
    sections = []
    errors = []
    for chapter in chapters:
        try:
            sections.append(_section(chapter, _concluded(chapter, experiment)))
        except BadInput as error:
            errors.append(error)
            sections.append(ConclusionSection(chapter, f"nothing can be said of these: {error}"))
    if len(errors) == len(chapters):
        raise errors[0]
    return tuple(sections)


def _concluded(chapter: Chapter, experiment: Experiment) -> ConclusionsOverRuns:
    """Conclude under the first repeat of every spec and machine."""
    firsts = {chapter.names.of_spec(each.place): each.repeats[0] for each in chapter.results}
    masks = {
        run: {name: partial(repeat.masks, name) for name in repeat.manifest.masks}
        for run, repeat in firsts.items()
    }
    needs_image = any(readout.needs_image for readout in experiment.readouts)
    return conclusions_over(
        masks,
        groups=experiment.groups,
        readouts=experiment.readouts,
        control=experiment.control,
        margin=experiment.margin,
        read_image=(stored_images(chapter.store, chapter.images_digest) if needs_image else None),
    )


def _section(chapter: Chapter, concluded: ConclusionsOverRuns) -> ConclusionSection:
    drawn = drawn_twice(effects_of_runs, concluded)
    return ConclusionSection(
        chapter=chapter,
        said=concluded.sentence(),
        figure=figure(drawn, table_file(f"conclusions-{chapter.data}", effect_rows(concluded))),
        caption=drawn.wide.caption,
        notes=concluded.notes,
    )
