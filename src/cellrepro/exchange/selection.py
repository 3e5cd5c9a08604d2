"""Selecting stored repeats for an export: by name, by values of the spec, by a grid file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.spec.lab_command import lab_command
from cellrepro.store.references import Reference, has_values, repeats_of_one_machine
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat, Run
from samebits.errors import BadInput
from samebits.words import amount, some

_GRID_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class Selection:
    """The selected repeats of a store."""

    repeats: tuple[Repeat, ...]
    """Sorted by key, machine and number, without duplicates."""
    notes: tuple[str, ...] = ()
    """What was asked for and is not in the store, a sentence each."""


def select_repeats(
    store: Store,
    references: Sequence[str] = (),
    *,
    where: Mapping[str, object] | None = None,
) -> Selection:
    """Select the repeats that a user named, or all with the wanted values."""
    if not references and not where:
        raise BadInput(
            "no run was named; expected KEY, KEY/REPEAT, KEY/MACHINE/REPEAT, a grid file, or "
            "--where NAME=VALUE: `cellrepro list` shows the runs"
        )
    by_name: dict[str, Repeat] = {}
    notes: list[str] = []
    for reference in references:
        if reference.endswith(_GRID_ENDINGS):
            of_grid = _of_grid(store, reference)
            repeats: Iterable[Repeat] = of_grid.repeats
            notes += of_grid.notes
        else:
            repeats = _repeats_of(reference, store)
        by_name |= {repeat.name: repeat for repeat in repeats}
    if not references:
        by_name = {repeat.name: repeat for run in store.readable_runs() for repeat in run.repeats}
    chosen = _with_values(store, by_name, where or {})
    if not chosen:
        raise BadInput(
            f"the store {store.root} holds no such run; `cellrepro list` shows those that it holds"
        )
    return Selection(tuple(sorted(chosen, key=_order)), tuple(notes))


def _order(repeat: Repeat) -> tuple[str, str, int]:
    return repeat.spec.key, repeat.machine, repeat.index


def _repeats_of(reference: str, store: Store) -> list[Repeat]:
    """The repeats of a reference: of a run, of one machine, or a single one."""
    if Path(reference).is_file():
        raise BadInput(
            f"{reference} is a file; expected a run of the store, KEY, KEY/REPEAT or "
            "KEY/MACHINE/REPEAT, or a grid file: `cellrepro describe` says what is known of a file"
        )
    run = store.find_run(reference)
    named = Reference.parse(reference, run)
    if named.index is not None:
        return repeats_of_one_machine(run, named.machine, [named.index])
    meant = [repeat for repeat in run.repeats if repeat.machine.startswith(named.machine)]
    if not meant:
        raise BadInput(
            f"{reference!r} names no repeat; expected KEY, KEY/MACHINE, KEY/REPEAT or "
            f"KEY/MACHINE/REPEAT of {run.listed()}"
        )
    return meant


def _of_grid(store: Store, file: str) -> Selection:
    """The stored repeats of all specs of a grid, with a note about missing ones."""
    from cellrepro.grid.points import read_grid

    grid = read_grid(file, store=store.root)
    keys = [point.plan.spec.key for point in grid.points]
    runs = {key: store.run(key) for key in keys}
    present: list[Run] = [run for run in runs.values() if run is not None]
    missing = [key for key, run in runs.items() if run is None]
    if not present:
        command = lab_command("grid", Path(file), store=store.root)
        raise BadInput(
            f"none of the {amount(len(keys), 'spec')} of {file} is in the store {store.root}; "
            f"run them first with `{command}`"
        )
    notes = []
    if missing:
        notes.append(
            f"not in the store, and so not in the file: {len(missing)} of the "
            f"{amount(len(keys), 'spec')} of {file} ({some(missing, 4)})"
        )
    return Selection(tuple(repeat for run in present for repeat in run.repeats), tuple(notes))


def _with_values(
    store: Store, repeats: Mapping[str, Repeat], wanted: Mapping[str, object]
) -> list[Repeat]:
    """The repeats whose runs have all wanted values."""
    if not wanted:
        return list(repeats.values())
    chosen = []
    for run in store.readable_runs():
        for machine, by_index in run.machines.items():
            named = [repeat for repeat in by_index.values() if repeat.name in repeats]
            if named and has_values(run, machine, wanted):
                chosen += named
    return chosen
