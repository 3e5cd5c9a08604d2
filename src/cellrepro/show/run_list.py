"""The runs of a store, each machine by itself, with the verdict over its repeats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellrepro.comparison.judgement import EqualRepeats, judge
from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import Damaged
from cellrepro.explanation.settings_of_both import setting_text
from cellrepro.spec import defaults
from cellrepro.store.manifest import ResultSummary
from cellrepro.store.references import has_values, n_telling_digits, values_of
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat, Run
from cellrepro.store.unchanged import ReadingBudget
from cellrepro.terminal import FileName
from cellrepro.terminal_values import Conditions
from samebits.errors import BadInput
from samebits.results import Result, Row, table_lines
from samebits.words import amount, joined, some

MOST_BYTES = 10**9
"""Of weights and masks that are read in search of damage, which takes about a second."""
MOST_FILES = 2000
"""Files that are opened for it."""
_MOST_VALUES = 8
_STORED = re.compile(r"\b([0-9a-f]{16})/[\w.-]+/(\d+)\b")
"""``KEY/MACHINE/REPEAT``, as a spec names a network."""


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

    @property
    def verdict_in_words(self) -> str:
        """The verdict, and in what repeats differ."""
        if self.verdict is None:
            return "no verdict: one repeat" if len(self.repeats) == 1 else "no verdict"
        if self.verdict != Verdict.DIFFERENT:
            return str(self.verdict)
        groups = {"weights": self.agreement.weights, "masks": self.agreement.masks}
        return f"different {joined([name for name, each in groups.items() if len(each or ()) > 1])}"


@dataclass(frozen=True, repr=False)
class StoredRuns(Result):
    """The runs that a store holds: all of them, or those that have certain values."""

    runs: tuple[StoredRun, ...]
    """One for each spec and machine."""
    unread: int
    """Files that were not read in search of damage, so that the list comes at once."""
    passed_over: tuple[str, ...]
    """Why folders of the store are no runs."""
    _store: str
    """The folder of the store."""
    _values_there: Mapping[str, tuple[str, ...]]
    """Where no run has the wanted values: those that runs of the store have in these fields."""
    _one_computer: tuple[str, ...]
    """Of each computer that counts as several machines, why it does."""
    _keys: tuple[str, ...]
    """Of all runs of the store."""

    @property
    def exit_code(self) -> int:
        """The exit code of damage where a file is not what was stored, else 0."""
        return Damaged.exit_code if any(run.damage for run in self.runs) else 0

    def sentence(self) -> str:
        """Say how many runs there are, what is damaged, and what was not read."""
        if not self.runs:
            there = [
                f"{name} is {some(values, _MOST_VALUES)}"
                for name, values in self._values_there.items()
                if values
            ]
            where = f"in the store {self._store}"
            if not Path(self._store).exists():
                where += ", which is not there"
            n_runs = f"no runs yet {where}; --store names another folder"
            if there:
                n_runs = f"no such runs; in the store {self._store} {joined(there)}"
        else:
            n_runs = amount(len(self.runs), "run")
            if self._machine_of_all:
                n_runs += f", all on {self._machine_of_all}"
        return "\n".join([n_runs, *self._remarks()])

    def rows(self) -> list[Row]:
        """Give each run under the first digits of its key, which name it."""
        n_digits = n_telling_digits(self._keys)

        def with_short_keys(label: str) -> str:
            return _STORED.sub(lambda name: f"{name[1][:n_digits]}/{name[2]}", label)

        return [
            {
                "run": run.key[:n_digits],
                "verdict": run.verdict_in_words,
                "repeats": len(run.repeats),
                "machine": "" if self._machine_of_all else run.machine,
                "what was computed": with_short_keys(run.label),
            }
            for run in self.runs
        ]

    def lines(self) -> list[str]:
        """Give all runs as a table, then what is damaged or was not read."""
        if not self.runs:
            return self.sentence().splitlines()
        rows = self.rows()
        return [
            *table_lines(rows, indent=0, most=len(rows)),
            *self.sentence().splitlines(),
            f"in every command {rows[0]['run']} is that run, {rows[0]['run']}/0 its repeat 0",
        ]

    @property
    def _machine_of_all(self) -> str:
        """The one machine of several runs; empty where there are more."""
        machines = {run.machine for run in self.runs}
        return machines.pop() if len(machines) == 1 and len(self.runs) > 1 else ""

    def _remarks(self) -> Iterator[str]:
        yield from self._one_computer
        for run in self.runs:
            yield from run.damage
        if self.unread:
            files = amount(self.unread, "file")
            yield (
                f"{files} of weights and masks unread, so that this list comes at once: what is "
                "said of them is what was recorded; `cellrepro report` and `cellrepro compare` "
                "read them"
            )


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
    keys: list[str] = []
    for run in store.runs():
        keys.append(run.key)
        runs += _by_machine(run, wanted or {}, reading)
    return StoredRuns(
        runs=tuple(runs),
        unread=reading.n_files_unread,
        passed_over=tuple(store.passed_over.values()),
        _store=str(store.root),
        _values_there=_values_there(store, wanted) if wanted and not runs else {},
        _one_computer=tuple(_one_computer(store, {run.machine: run.key for run in runs})),
        _keys=tuple(keys),
    )


def _values_there(store: Store, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The values that runs of a store have in some fields, each once."""
    there: dict[str, set[str]] = {name: set() for name in names}
    for run in store.runs():
        for machine in run.machines:
            for name, value in values_of(run, machine, there).items():
                there[name].add(setting_text(value))
    return {name: tuple(sorted(values)) for name, values in there.items()}


def _one_computer(store: Store, keys: Mapping[str, str]) -> Iterator[str]:
    """Say which machines, each with the key of one of its runs, are the same computer."""
    by_computer: dict[str, dict[str, int]] = {}
    for machine, key in keys.items():
        run = store.run(key)
        repeat = next(iter(run.machines[machine].values())) if run is not None else None
        if repeat is None or repeat.why_unreadable is not None:
            continue
        manifest = repeat.manifest
        by_computer.setdefault(manifest.machine.identity, {})[machine] = manifest.threads
    for machines in by_computer.values():
        if len(machines) > 1:
            named = [f"{name} ({amount(n, 'thread')})" for name, n in machines.items()]
            yield (f"one computer under {amount(len(named), 'name')}: {joined(named)}")


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
