"""A source of difference outside the training step: the experiment, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from samebits.results import Result, Row
from samebits.words import amount

SourceName = Literal[
    "file-order",
    "two-readings",
    "augmentation",
    "loader",
    "import-order",
    "initial-weights",
    "hidden-state",
]


@dataclass(frozen=True)
class Experiment:
    """An experiment on one source of difference."""

    question: str
    """The question that it answers."""
    remedy: str
    """How to pin the source."""


EXPERIMENTS: dict[SourceName, Experiment] = {
    "file-order": Experiment(
        "Does the order in which files are listed change what is trained on?",
        "sort the list of files; names with equally many digits (img_002, img_010) sort alike "
        "in every program",
    ),
    "two-readings": Experiment(
        "Does reading the same folder again give different images, masks or flows?",
        "copy the folder and keep its digest (sha256sum); compute flows once and keep them",
    ),
    "augmentation": Experiment(
        "Does augmentation show the same image otherwise when its generator is not put back?",
        "choose order and augmentation with cellrepro.train(data, data_seed=1); Cellpose seeds "
        "NumPy by the epoch's number, over any seed of yours",
    ),
    "loader": Experiment(
        "Does a loader give a different order or different crops after one more draw or with a "
        "different number of workers?",
        "DataLoader(..., **loader_arguments(seed)) of cellrepro for the order, "
        "and item_generator(seed, epoch, index) for draws that depend on no worker",
    ),
    "import-order": Experiment(
        "Does importing Cellpose undo what was set before, or move a generator?",
        "import Cellpose first, then seed and set switches, as the modes of cellrepro do",
    ),
    "initial-weights": Experiment(
        "Do the initial weights depend on what was drawn before the network was made?",
        "start from one file of weights, or use cellrepro.model.network.seeded_network",
    ),
    "hidden-state": Experiment(
        "Does a call of Cellpose's eval change the result of a later call?",
        "pass every parameter you rely on, 'normalize': True among them, or run each analysis in a "
        "process of its own, as cellrepro does",
    ),
}
"""The experiment on each source of difference."""


@dataclass(frozen=True, repr=False)
class Source(Result):
    """The result of one experiment."""

    name: SourceName
    """A key of `EXPERIMENTS`."""
    moves: bool
    """Whether it changed something here; "no" is no proof for other data."""
    n_compared: int
    """How many digests, images or modules were compared."""
    evidence: tuple[str, ...]
    """Short facts; of digests the first 12 hex digits."""

    @property
    def remedy(self) -> str:
        """How to pin it."""
        return EXPERIMENTS[self.name].remedy

    def sentence(self) -> str:
        """Give question and answer, with the first fact and, if it moves, the remedy."""
        answer = "Yes" if self.moves else "No"
        over = amount(self.n_compared, "comparison")
        pin = f" To pin it: {self.remedy}" if self.moves else ""
        question = EXPERIMENTS[self.name].question
        return f"{question} {answer}, over {over}: {self.evidence[0]}.{pin}"

    def rows(self) -> Sequence[Row]:
        """Give one row for each fact."""
        return [{"evidence": fact} for fact in self.evidence]


def changed_names(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The sorted names whose values differ, or that only one side has."""
    names = sorted({*before, *after})
    return [name for name in names if before.get(name) != after.get(name)]
