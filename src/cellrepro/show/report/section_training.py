"""The section on how networks were trained: loss, learning rate and score by epoch."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from cellrepro.comparison.place_fields import place_of
from cellrepro.show.figures import training
from cellrepro.show.figures.training import MOST_CURVES
from cellrepro.show.pages.parts import Figure, drawn_twice, figure, table_file
from cellrepro.show.report.summary import Chapter
from cellrepro.store.stored_run import Repeat


@dataclass(frozen=True)
class TrainingSection:
    """The curves of some runs."""

    n_runs: int
    figure: Figure
    said: str
    """When the courses part, and what is not drawn."""


def training_section(chapter: Chapter) -> TrainingSection:
    """Draw the runs of at most `MOST_CURVES` different courses."""
    drawn_runs, names = drawn_courses(chapter)
    rows = [row for repeat in drawn_runs for row in _rows_of_training(repeat)]
    drawn = drawn_twice(training.training_curves, drawn_runs, labels=names)
    return TrainingSection(
        len(drawn_runs),
        figure(drawn, table_file(f"training-{chapter.data}", rows)),
        drawn.wide.caption,
    )


def drawn_courses(chapter: Chapter) -> tuple[list[Repeat], list[str]]:
    """The runs of some different courses, the first of each spec before others, and their names."""
    courses: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.training is not None:
            courses[repeat.manifest.training.model_dump_json()].append(repeat)
    in_turn = sorted(courses.values(), key=lambda course: course[0].index)
    chosen = in_turn[:MOST_CURVES]
    drawn_runs = [repeat for course in courses.values() if course in chosen for repeat in course]
    n_courses = Counter(place for course in courses.values() for place in {*map(place_of, course)})
    names = [
        chapter.names.of_spec(place_of(repeat))
        if n_courses[place_of(repeat)] == 1
        else chapter.names.of_repeat(repeat)
        for repeat in drawn_runs
    ]
    return drawn_runs, names


def _rows_of_training(repeat: Repeat) -> list[dict[str, object]]:
    """Make the rows of the CSV file, one for every epoch."""
    course = repeat.manifest.training
    if course is None:
        return []
    epochs = zip(course.train_losses, course.learning_rates, strict=False)
    return [
        {
            "run": repeat.name,
            "epoch": epoch,
            "loss": loss,
            "learning_rate": rate,
            "ap50": repeat.manifest.ap50_by_epoch.get(epoch),
        }
        for epoch, (loss, rate) in enumerate(epochs, start=1)
    ]
