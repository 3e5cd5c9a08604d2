"""What the studies share: evidence, runs compared line by line, numbers and words as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

import nbformat
import numpy as np
import pandas as pd
from IPython.display import Markdown
from matplotlib.axis import Axis as Scale
from numpy.typing import ArrayLike

from cellrepro import BadInput, Store, Verdict, measure_spread
from cellrepro.comparison.measured_axis import Axis, Distribution
from cellrepro.comparison.seed_spread import Spread
from cellrepro.show.figures.spread import spread_rows
from cellrepro.store.stored_run import Repeat, Run
from cellrepro.words import share_text
from samebits.mode_names import Mode

# -- evidence ------------------------------------------------------------------------------


class Evidence:
    """A store, whose runs need no weights, and tables of what takes long to measure beside them."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.runs = Store(folder).runs()

    @property
    def repeats(self) -> list[Repeat]:
        """Of all runs."""
        return [repeat for run in self.runs for repeat in run.repeats]

    def trainings(self, images: str, epochs: int, model: str = "tiny") -> list[Run]:
        """Those of a network over one set of images; an error if no network was trained so."""
        runs = [
            run
            for run in self.runs
            if run.spec.task == "train" and run.spec.data == images and run.spec.epochs == epochs
        ]
        if not runs:
            raise BadInput(
                f"{self.folder} holds no training on {images!r} of {epochs} epochs; expected a "
                "store in which the grids of this study were run"
            )
        return [run for run in runs if run.spec.model == model]

    def table(self, name: str) -> pd.DataFrame:
        """A table beside the runs."""
        return pd.read_csv(self.folder / name)

    def repeated(self, name: str, runs: Sequence[Run]) -> pd.DataFrame:
        """Rows of a table of pairs, of two repeats of one of these runs."""
        rows = self.table(name)
        keys = keys_of(rows.a)
        return rows[keys.isin([run.key for run in runs]) & (keys == keys_of(rows.b))].copy()


def keys_of(names: pd.Series) -> pd.Series:
    """The keys of specs, of names of repeats (``KEY/MACHINE/REPEAT``)."""
    return names.str.split("/").str[0]


def networks_of(repeats: Sequence[Repeat]) -> set[str]:
    """The digests of what repeats trained."""
    return {repeat.manifest.weights.digest for repeat in repeats if repeat.manifest.weights}


def keep_rows(path: str, rows: pd.DataFrame | Sequence[Mapping[str, object]]) -> None:
    """Write the rows behind a figure or a table as CSV."""
    pd.DataFrame(rows).to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


# -- numbers and tables as text ------------------------------------------------------------


def prose(text: str) -> Markdown:
    """Show paragraphs, whose lines may end anywhere."""
    return Markdown(re.sub(r"(?<!\n)\n(?!\n)", " ", text.strip()))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Markdown:
    """Show a table."""
    lines = [head, ["---"] * len(head), *rows]
    return Markdown("\n".join(f"| {' | '.join(map(str, line))} |" for line in lines))


class Span(NamedTuple):
    """Median, least and most of some values, as they are read."""

    median: str
    least: str
    most: str

    @property
    def range(self) -> str:
        """From the least to the most."""
        return self.least if self.least == self.most else f"{self.least} to {self.most}"


def span_of(values: ArrayLike, form: str = "g") -> Span:
    """Median, least and most of finite numbers, each written in a form of Python's ``format``."""
    numbers = np.asarray(values, float)
    ends = (np.median(numbers), numbers.min(), numbers.max())
    return Span(*(format(float(number), form) for number in ends))


def with_interval(distribution: Distribution) -> str:
    """A mean share with its 95 % interval, where there is one over several pairs."""
    interval = distribution.interval
    if interval is None or len(distribution.values) < 2:
        return share_text(distribution.mean)
    ends = f"{share_text(interval.low)} to {share_text(interval.high)}"
    return f"{share_text(distribution.mean)} ({ends})"


def score_range(runs: Sequence[Run], digits: int = 2) -> str:
    """AP at IoU 0.5 of all repeats, from the least to the most."""
    scores = [repeat.manifest.ap50 for run in runs for repeat in run.repeats]
    return f"{min(scores):.{digits}f} to {max(scores):.{digits}f}"


# -- comparisons, a line for each ----------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """What was compared, and how far it was apart: a row of a table and of a figure."""

    label: str
    axis: Axis

    @property
    def changed(self) -> Distribution:
        """Share of the cells that changed, pair by pair."""
        return self.axis.distribution()

    @property
    def share(self) -> str:
        """Of the cells that changed, on average."""
        return share_text(self.changed.mean)

    @property
    def pixels(self) -> str:
        """Share of the pixels that differ, on average."""
        return share_text(self.axis.distribution("ppm").mean / 1e6)

    @property
    def n_pairs(self) -> int:
        """Pairs that prove something."""
        return len(self.axis.evidence)

    @property
    def n_identical(self) -> int:
        """Pairs with equal masks, and equal weights where some were trained."""
        return sum(
            pair.verdict == Verdict.IDENTICAL and pair.weights_equal is not False
            for pair in self.axis.evidence
        )


def compared(
    runs: Sequence[Run],
    rows_file: str,
    labels: Mapping[str, str],
    repeats_by: Sequence[str] = ("mode",),
) -> dict[str, Line]:
    """Compare runs, and keep the rows of all pairs.

    First repeats, a line for each value of some fields of the spec (``repeats_by``, by whose
    values its line is found), then the axes that have labels, by name.
    """
    spread = measure_spread(runs)
    keep_rows(rows_file, spread_rows(spread))
    return _lines_of_repeats(spread, repeats_by) | {
        name: Line(label, axis) for name, label in labels.items() if (axis := spread.axis(name))
    }


def _lines_of_repeats(spread: Spread, fields: Sequence[str]) -> dict[str, Line]:
    repeats = spread.axis("repeats")
    pairs_of: dict[tuple[str, ...], list] = {}
    for pair in repeats.pairs if repeats else []:
        values = tuple(getattr(pair.a.spec, name) for name in fields)
        pairs_of.setdefault(values, []).append(pair)
    modes = get_args(Mode)
    return {
        " ".join(values): Line(f"repeats, mode {', '.join(values)}", Axis("repeats", pairs))
        for values, pairs in sorted(
            pairs_of.items(),
            key=lambda item: ([modes.index(each) for each in item[0] if each in modes], item[0]),
        )
    }


def line_table(lines: Mapping[str, Line]) -> Markdown:
    """A table of comparisons."""
    head = ["compared", "pairs of runs", "bit-identical", "cells changed", "pixels"]
    rows = [
        [line.label, line.n_pairs, line.n_identical, with_interval(line.changed), line.pixels]
        for line in lines.values()
    ]
    return table(head, rows)


def left_of_zero(values: Sequence[float]) -> float:
    """Where a logarithmic axis begins, so that 0 is not at its edge."""
    return -0.3 * min([value for value in values if value > 0] or [0.01])


def percent_axis(axis: Scale) -> None:
    """Write shares as percentages."""
    axis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")


# -- what the other studies say ------------------------------------------------------------


def answers(answers_by_question: Mapping[str, str]) -> Markdown:
    """Show answers to questions."""
    return table(["question", "answer"], [*answers_by_question.items()])


def said_by_studies(tag: str) -> Iterator[tuple[str, str, str]]:
    """What the executed studies of this folder say in their cell with a tag: file, title, text."""
    for path in sorted(Path().glob("[1-9]_*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        title = cells[0].source.splitlines()[0].removeprefix("# ")
        (cell,) = (cell for cell in cells if tag in cell.metadata.get("tags", []))
        yield path.name, title, cell.outputs[0].data["text/markdown"]
