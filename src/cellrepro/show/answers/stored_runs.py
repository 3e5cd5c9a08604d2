"""What `list` answers: the runs of a store, each machine by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cellrepro.errors import BadInput
from cellrepro.show.answers.answer import Answer
from cellrepro.store.wanted import has_values
from cellrepro.words import amount

if TYPE_CHECKING:
    from cellrepro.same.verdicts import Groups
    from cellrepro.store.manifest import ResultSummary
    from cellrepro.store.store import Repeat, Run, Store
    from cellrepro.store.unchanged import Reading

MOST_READ = 10**9
"""Bytes that are read in search of damage: about a second."""


@dataclass(frozen=True)
class StoredRunDocument:
    """The repeats of one spec on one machine."""

    key: str
    """What names it, what tells it from the other runs in words, and where it was computed."""
    label: str
    """What names it, what tells it from the other runs in words, and where it was computed."""
    machine: str
    """What names it, what tells it from the other runs in words, and where it was computed."""
    spec: Mapping[str, object]
    """Everything that was asked for."""
    repeats: Sequence[int]
    """Their indices."""
    verdict: str | None
    """``damaged`` where a file is not what was stored."""
    agreement: Mapping[str, Groups | None]
    """Groups of equal repeats: by ``weights``, by ``masks`` and by ``outlines``."""
    detail: str
    """Of the verdict: weights and masks each by themselves."""
    damage: Sequence[str]
    """A message for each repeat whose files are not what was stored."""


@dataclass(frozen=True)
class StoredRunsDocument:
    """What ``cellrepro list --json`` prints."""

    runs: Sequence[StoredRunDocument]
    """One for each spec and machine."""
    unread: int
    """Files that were not read in search of damage, so that the list comes at once."""
    passed_over: Sequence[str]
    """Why folders of the store are no runs."""


def stored_runs_answer(
    store: Store, wanted: Mapping[str, object] | None = None
) -> Answer[StoredRunsDocument]:
    """Answer with what a store holds, or what of it has certain values."""
    from cellrepro.store.unchanged import Reading

    reading = Reading(MOST_READ)
    rows = []
    for run in store.runs():
        rows += _rows_of(run, wanted or {}, reading)
    lines = []
    for row in rows:
        lines.append(_row_line(row))
        lines += [f"  {message}" for message in row.damage]
    if reading.n_files_unread:
        files = amount(reading.n_files_unread, "file")
        lines.append(
            f"{files} of weights and masks unread, so that this list comes at once: what is said "
            "of them is what was recorded; `cellrepro report` and `cellrepro compare` read them"
        )
    if not lines:
        lines.append("no such runs" if wanted else "no runs yet")
    document = StoredRunsDocument(
        runs=rows,
        unread=reading.n_files_unread,
        passed_over=list(store.passed_over.values()),
    )
    return Answer(document, lines)


def _rows_of(run: Run, wanted: Mapping[str, object], reading: Reading) -> list[StoredRunDocument]:
    """A row for each machine of a run that has the wanted values."""
    from cellrepro.same.verdicts import judge

    label = run.spec.label  # once: it costs more than all else of a row
    spec = run.spec.model_dump(mode="json")
    rows = []
    for machine, repeats in run.machines.items():
        if not has_values(run, machine, wanted):
            continue
        damage = _damage(repeats.values(), reading)
        judgement = judge(_outcomes(repeats.values()))
        row = StoredRunDocument(
            key=run.key,
            label=label,
            machine=machine,
            spec=spec,
            repeats=list(repeats),
            verdict="damaged" if damage else judgement.overall,
            agreement=asdict(judgement.agreement),
            detail=judgement.detail(),
            damage=damage,
        )
        rows.append(row)
    return rows


def _row_line(row: StoredRunDocument) -> str:
    verdict = str(row.verdict or "no verdict")
    if row.verdict == "different":
        verdict += f" ({row.detail})"
    n_repeats = amount(len(row.repeats), "repeat")
    return f"{row.key}  {row.label}: {n_repeats} on {row.machine}, {verdict}"


def _outcomes(repeats: Iterable[Repeat]) -> list[ResultSummary]:
    """What came of those repeats whose manifest can be read."""
    outcomes = []
    for repeat in repeats:
        with suppress(BadInput):
            outcomes.append(repeat.outcome)
    return outcomes


def _damage(repeats: Iterable[Repeat], reading: Reading) -> list[str]:
    """A message for every repeat whose manifest, weights or masks are not what was stored."""
    messages = []
    for repeat in repeats:
        try:
            repeat.refuse_damage(reading=reading)
        except BadInput as error:
            messages.append(str(error))
    return messages
