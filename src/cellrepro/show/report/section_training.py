"""The section on how networks were trained: loss, learning rate and score by epoch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from cellrepro.show.figures import training
from cellrepro.show.pages.parts import Figure, figure, table_file
from cellrepro.show.report.summary import Chapter
from cellrepro.store.stored_run import Repeat

_MOST_CURVES = 6


@dataclass(frozen=True)
class TrainingSection:
    """The curves of some runs."""

    n_runs: int
    figure: Figure


def training_section(chapter: Chapter) -> TrainingSection:
    """Draw the runs of at most `_MOST_CURVES` different courses."""
    courses: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.training is not None:
            courses[repeat.manifest.training.model_dump_json()].append(repeat)
    shown = list(courses.values())[:_MOST_CURVES]
    drawn_runs = [repeat for course in shown for repeat in course]
    rows = [row for repeat in drawn_runs for row in _rows_of_training(repeat)]
    names = [chapter.names.of_repeat(repeat) for repeat in drawn_runs]
    drawn = training.training_curves(drawn_runs, labels=names)
    return TrainingSection(
        len(drawn_runs), figure(drawn, table_file(f"training-{chapter.data}", rows))
    )


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
