"""How a repeat is named: ``KEY``, ``KEY/REPEAT`` or ``KEY/MACHINE/REPEAT``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.errors import BadInput
from cellrepro.store import this_machine

if TYPE_CHECKING:
    from cellrepro.store.stored_run import Repeat, Run

_MACHINE_AND_INDEX = re.compile(r"(?P<machine>[^/]*[^/\d][^/]*)?/?(?P<index>\d+)?")


@dataclass(frozen=True)
class Reference:
    """What a text names, as far as it names it."""

    key: str
    """Whole."""
    machine: str
    """First letters of its name; empty where none is named."""
    index: int | None
    """Of the repeat; None where none is named."""

    @classmethod
    def parse(cls, text: str, run: Run) -> Reference:
        """Read a text that begins with the key of a run, or its first digits.

        ``0a1b``, ``0a1b/1``, ``0a1b/laptop/1``, ``0a1b/laptop``
        """
        _, _, rest = text.partition("/")
        parts = _MACHINE_AND_INDEX.fullmatch(rest)
        if parts is None:
            raise BadInput(
                f"{text!r} names no repeat of {run.key}; expected KEY, KEY/REPEAT or "
                f"KEY/MACHINE/REPEAT of {run.listed()}"
            )
        index = parts["index"]
        return cls(run.key, parts["machine"] or "", None if index is None else int(index))


def repeats_of_one_machine(run: Run, machine: str, indices: Sequence[int]) -> list[Repeat]:
    """Some repeats of a run, of the only machine that has them all, else of this one."""
    candidates = [
        [repeats[index] for index in indices]
        for name, repeats in run.machines.items()
        if name.startswith(machine) and repeats.keys() >= {*indices}
    ]
    if len(candidates) > 1:
        candidates = [c for c in candidates if _is_of_here(c[0])] or candidates
    if len(candidates) == 1:
        return candidates[0]
    numbers = " and ".join(map(str, indices))
    raise BadInput(
        f"repeat {numbers} of {run.key} on {machine or 'a machine'} was found {len(candidates)} "
        f"times; expected KEY/MACHINE/REPEAT, one of {run.listed()} (--repeats 2 trains two)"
    )


def _is_of_here(repeat: Repeat) -> bool:
    return this_machine.is_here(repeat.manifest.machine)
