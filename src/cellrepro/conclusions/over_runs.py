"""One experiment under many results, as of seeds or devices: every effect, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.conclusions.conclusion import (
    IN_WORDS,
    Conclusion,
    Word,
    compared_text,
    conclude,
    estimate_text,
)
from cellrepro.conclusions.groups import GroupNames, read_groups
from cellrepro.conclusions.measuring import ImageReader, PixelReaders, measured_pairs
from cellrepro.conclusions.readouts import ChosenReadout
from cellrepro.spec import defaults
from samebits.errors import BadInput
from samebits.results import Result, Row, derived
from samebits.words import amount, joined, some


@dataclass(frozen=True)
class RunConclusions:
    """What one run says, beside the reference."""

    run: str
    """Its name."""
    conclusions: tuple[Conclusion, ...]
    """The reference is A, the run is B."""


@dataclass(frozen=True)
class ShareOfRuns:
    """In how many runs the conclusion of one readout stands."""

    readout: str
    treated: str
    """The group that is compared with the control."""
    n_runs: int
    """Runs in which it stands."""
    share: float
    """The same as a share of the runs beside the reference, from 0 to 1."""


@dataclass(frozen=True, repr=False)
class ConclusionsOverRuns(Result):
    """What an experiment says under the masks of every run."""

    reference: str
    """The run with which the others are compared."""
    runs: tuple[RunConclusions, ...]
    """The others."""
    notes: tuple[str, ...]
    """Which group is the control, and what was left out, a sentence each."""

    @derived
    def stands(self) -> tuple[ShareOfRuns, ...]:
        """In how many runs the conclusion stands, by readout and group."""
        shares = []
        for position, first in enumerate(self.runs[0].conclusions):
            n_runs = [run.conclusions[position].word for run in self.runs].count("stands")
            share = n_runs / len(self.runs)
            shares.append(ShareOfRuns(first.readout, first.treated, n_runs, share))
        return tuple(shares)

    def sentence(self) -> str:
        """Say in how many runs the conclusion stands, changes, or cannot be decided."""
        words = [f"stands for {joined(self._counts('stands', least=0))}"]
        for word in ("changes", "undecidable"):
            counts = self._counts(word, least=1)
            if counts:
                words.append(f"{IN_WORDS[word]} for {joined(counts)}")
        n_results = amount(len(self.runs), "other result")
        return (
            f"{compared_text(self.runs[0].conclusions)}: of {n_results}, the conclusion of "
            f"{self.reference} {', '.join(words)}"
        )

    def _counts(self, word: Word, *, least: int) -> list[str]:
        """In how many runs each readout has a word, from so many on."""
        firsts = self.runs[0].conclusions
        counts = []
        for position, first in enumerate(firsts):
            of_readout = [run.conclusions[position] for run in self.runs]
            having = [one for one in of_readout if one.word == word]
            if len(having) >= least:
                of_none = " (no effect shown)" if any(one.is_of_none for one in having) else ""
                n_of_estimate = sum(one.is_of_estimate for one in having)
                if n_of_estimate:
                    of_none = f" (in {n_of_estimate} only the size of the effect)"
                counts.append(f"{first.readout_of(firsts)} in {len(having)}{of_none}")
        return counts

    def rows(self) -> list[Row]:
        """Give the effect of each readout in each run, the reference first."""
        rows: list[Row] = []
        for position, first in enumerate(self.runs[0].conclusions):
            kind = {"readout": first.readout, "group": first.treated}
            reference = estimate_text(first.a)
            rows.append({**kind, "run": self.reference, "effect": reference, "conclusion": "–"})
            for run in self.runs:
                one = run.conclusions[position]
                of_run = {"effect": estimate_text(one.b), "conclusion": one.word_text}
                rows.append({**kind, "run": run.run, **of_run})
        return rows

    def lines(self) -> list[str]:
        """Give the sentence, the table and the notes."""
        return [*super().lines(), *(f"  note: {note}" for note in self.notes)]


def conclusions_over(
    results: Mapping[str, PixelReaders],
    *,
    groups: GroupNames | str | Path,
    readouts: Sequence[ChosenReadout],
    reference: str | None = None,
    control: str | None = None,
    margin: float = defaults.MARGIN,
    read_image: ImageReader | None = None,
) -> ConclusionsOverRuns:
    """Measure each result beside the reference, and draw the conclusions of each."""
    if len(results) < 2:
        raise BadInput(f"there is {amount(len(results), 'run')}; expected two or more to compare")
    first = next(iter(results)) if reference is None else reference
    if first not in results:
        raise BadInput(
            f"the reference is {first!r}, which is none of the runs; expected one of "
            f"{some(list(results))}"
        )
    in_all = [name for name in results[first] if all(name in masks for masks in results.values())]
    found = read_groups(groups, in_all, control=control)
    runs = tuple(
        RunConclusions(
            run=name,
            conclusions=conclude(
                measured_pairs(results[first], masks, found.of, readouts, read_image=read_image),
                found,
                readouts,
                margin=margin,
            ),
        )
        for name, masks in results.items()
        if name != first
    )
    return ConclusionsOverRuns(first, runs, found.notes)
