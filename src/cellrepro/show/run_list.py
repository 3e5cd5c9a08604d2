"""The runs of a store, each machine by itself, with the verdict over its repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from cellrepro.comparison.judgement import EqualRepeats, judge
from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import BadInput, Damaged
from cellrepro.results import Result
from cellrepro.spec import defaults
from cellrepro.store.manifest import ResultSummary
from cellrepro.store.references import has_values
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat, Run
from cellrepro.store.unchanged import ReadingBudget
from cellrepro.terminal import FileName
from cellrepro.terminal_values import Conditions
from cellrepro.words import amount

MOST_BYTES = 10**9
"""Of weights and masks that are read in search of damage, which takes about a second."""
MOST_FILES = 2000
"""Files that are opened for it."""


@dataclass(frozen=True)
class StoredRun:
    """The repeats of one spec on one machine."""

    key: str
    """The key that names it."""
    label: str
    """Words that tell it from the other runs."""
    machine: str
    """The machine that computed it."""
    spec: Mapping[str, object]
    """Everything that was asked for."""
    repeats: tuple[int, ...]
    """Their indices."""
    verdict: Verdict | Literal["damaged"] | None
    """``damaged`` where a file is not what was stored."""
    agreement: EqualRepeats
    """Groups of equal repeats."""
    detail: str
    """The verdict on weights and masks, each by themselves."""
    damage: tuple[str, ...]
    """A message for each repeat whose files are not what was stored."""


@dataclass(frozen=True, repr=False)
class StoredRuns(Result):
    """The runs that a store holds: all of them, or those that have certain values."""

    runs: tuple[StoredRun, ...]
    """One for each spec and machine."""
    unread: int
    """Files that were not read in search of damage, so that the list comes at once."""
    passed_over: tuple[str, ...]
    """Why folders of the store are no runs."""
    _of_values: bool
    """Whether only runs of certain values were asked for."""

    @property
    def exit_code(self) -> int:
        """The exit code of damage where a file is not what was stored, else 0."""
        return Damaged.exit_code if any(run.damage for run in self.runs) else 0

    def sentence(self) -> str:
        """Give a line for each run, and its damage below it."""
        lines = []
        for run in self.runs:
            lines.append(_line(run))
            lines += [f"  {message}" for message in run.damage]
        if self.unread:
            files = amount(self.unread, "file")
            lines.append(
                f"{files} of weights and masks unread, so that this list comes at once: what is "
                "said of them is what was recorded; `cellrepro report` and `cellrepro compare` "
                "read them"
            )
        if not lines:
            lines.append("no such runs" if self._of_values else "no runs yet")
        return "\n".join(lines)


def list_runs(*, where: Conditions | None = None, store: FileName = defaults.STORE) -> StoredRuns:
    """List what a store holds: all of it, or what has certain values.

    Parameters
    ----------
    where : mapping, optional
        ``NAME=VALUE``: only runs that have it.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    StoredRuns
        The repeats of each spec on each machine, with the verdict over them.

    Raises
    ------
    BadInput
        If no run has a field of such a name.

    Examples
    --------
    Which runs were made with this profile?

    ``cellrepro list --where profile=cpu``
    """
    return stored_runs(Store(store), where)


def stored_runs(store: Store, wanted: Mapping[str, object] | None = None) -> StoredRuns:
    """List what a store holds, or what of it has certain values."""
    reading = ReadingBudget(MOST_BYTES, MOST_FILES)
    runs: list[StoredRun] = []
    for run in store.runs():
        runs += _by_machine(run, wanted or {}, reading)
    return StoredRuns(
        runs=tuple(runs),
        unread=reading.n_files_unread,
        passed_over=tuple(store.passed_over.values()),
        _of_values=bool(wanted),
    )


def _by_machine(run: Run, wanted: Mapping[str, object], reading: ReadingBudget) -> list[StoredRun]:
    """The repeats of a run by machine, of those machines that have the wanted values."""
    label = run.spec.label  # once: it costs more than all else of a row
    spec = run.spec.model_dump(mode="json")
    stored_runs = []
    for machine, repeats in run.machines.items():
        if not has_values(run, machine, wanted):
            continue
        damage = _damage(repeats.values(), reading)
        judgement = judge(_outcomes(repeats.values()))
        stored = StoredRun(
            key=run.key,
            label=label,
            machine=machine,
            spec=spec,
            repeats=tuple(repeats),
            verdict="damaged" if damage else judgement.overall,
            agreement=judgement.agreement,
            detail=judgement.detail(),
            damage=damage,
        )
        stored_runs.append(stored)
    return stored_runs


def _line(run: StoredRun) -> str:
    verdict = str(run.verdict or "no verdict")
    if run.verdict == "different":
        verdict += f" ({run.detail})"
    n_repeats = amount(len(run.repeats), "repeat")
    return f"{run.key}  {run.label}: {n_repeats} on {run.machine}, {verdict}"


def _outcomes(repeats: Iterable[Repeat]) -> list[ResultSummary]:
    """Collect the outcomes of those repeats whose manifest can be read."""
    outcomes = []
    for repeat in repeats:
        with suppress(BadInput):
            outcomes.append(repeat.outcome)
    return outcomes


def _damage(repeats: Iterable[Repeat], reading: ReadingBudget) -> tuple[str, ...]:
    """A message for every repeat whose manifest, weights or masks are not as they were stored."""
    messages = []
    for repeat in repeats:
        try:
            repeat.refuse_damage(reading=reading)
        except BadInput as error:
            messages.append(str(error))
    return tuple(messages)
