"""References to stored runs and repeats: ``KEY/MACHINE/REPEAT``, or values of their fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches

from yaml import YAMLError

from cellrepro.store import machine_identity
from cellrepro.store.stored_run import Repeat, Run
from cellrepro.yaml_values import read_yaml
from samebits.errors import BadInput

_MOST_ASKED = ("task", "data", "model", "seed", "profile", "mode", "epochs", "machine", "key")
"""Fields that are proposed where no name is near."""
_FEWEST_DIGITS = 4
TYPED_DIGITS = 8
"""Of a key, in commands and names for people."""
_MACHINE_AND_INDEX = re.compile(r"(?P<machine>[^/]*[^/\d][^/]*)?/?(?P<index>\d+)?")


@dataclass(frozen=True)
class Reference:
    """A parsed reference; what the text leaves out is empty or None."""

    key: str
    """Whole key of the run."""
    machine: str
    """First letters of the machine's name; empty where none is named."""
    index: int | None
    """Number of the repeat; None where none is named."""

    @classmethod
    def parse(cls, text: str, run: Run) -> Reference:
        """Parse ``0a1b``, ``0a1b/1``, ``0a1b/laptop`` or ``0a1b/laptop/1`` for the run of 0a1b…"""
        _, _, rest = text.partition("/")
        parts = _MACHINE_AND_INDEX.fullmatch(rest)
        if parts is None:
            raise BadInput(
                f"{text!r} names no repeat of {run.key}; expected KEY, KEY/REPEAT or "
                f"KEY/MACHINE/REPEAT of {run.listed()}"
            )
        index = parts["index"]
        return cls(run.key, parts["machine"] or "", None if index is None else int(index))


def n_telling_digits(keys: Collection[str]) -> int:
    """How many first digits tell keys apart.

    >>> n_telling_digits(["0d86e7fd", "0d86aaaa", "26cd939d"]), n_telling_digits(["0d86e7fd"])
    (5, 4)
    """
    n = _FEWEST_DIGITS
    while len({key[:n] for key in keys}) < len({*keys}):
        n += 1
    return n


def short_reference(repeat: Repeat) -> str:
    """The name of a stored repeat that people type: of its key the first digits, and its machine
    only where its run was computed on several."""
    run_folder = repeat.folder.parents[1]
    machines = [path for path in run_folder.iterdir() if path.is_dir()]
    place = [] if len(machines) == 1 else [repeat.machine]
    return "/".join([run_folder.name[:TYPED_DIGITS], *place, str(repeat.index)])


def repeats_of_one_machine(run: Run, machine: str, indices: Sequence[int]) -> list[Repeat]:
    """Find repeats of a run by number: of the only machine that has them all, else of this one."""
    candidates = [
        [repeats[index] for index in indices]
        for name, repeats in run.machines.items()
        if name.startswith(machine) and repeats.keys() >= {*indices}
    ]
    if len(candidates) > 1:
        is_here = machine_identity.is_here
        candidates = [c for c in candidates if is_here(c[0].manifest.machine)] or candidates
    if len(candidates) == 1:
        return candidates[0]
    numbers = " and ".join(map(str, indices))
    which = f"repeat {numbers} of {run.key}"
    if candidates:
        found = f"{which} was computed on {len(candidates)} machines; name one of them"
    else:
        found = f"no machine{f' named {machine}' if machine else ''} has {which}"
    raise BadInput(
        f"{found}; expected KEY/MACHINE/REPEAT, one of {run.listed()} (--repeats 2 computes two)"
    )


# -- by values -----------------------------------------------------------------------------


def has_values(run: Run, machine: str, wanted: Mapping[str, object]) -> bool:
    """Whether the repeats of a run on one machine have certain values."""
    if not wanted:
        return True
    values = values_of(run, machine, wanted)
    return all(_is_equal(values[name], value) for name, value in wanted.items())


def values_of(run: Run, machine: str, names: Iterable[str]) -> dict[str, object]:
    """The values that the repeats of a run on one machine have in these fields."""
    fields = {
        "key": run.key,
        "label": run.spec.label,
        **run.spec.model_dump(mode="json"),
        **run.spec.parameters(),
        "machine": machine,
    }
    return {name: _field(fields, name) for name in names}


def _is_equal(value: object, wanted: object) -> bool:
    if isinstance(wanted, str) and not isinstance(value, str):
        with suppress(YAMLError):
            return value == read_yaml(wanted)
    return value == wanted


def _field(fields: Mapping[str, object], name: str) -> object:
    """The value of a field, or of a field of one with dots between."""
    value: object = fields
    path = [name] if name in fields else name.split(".")
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            names = list(value) if isinstance(value, Mapping) else []
            known = get_close_matches(part, names, 3) or [n for n in _MOST_ASKED if n in names]
            raise BadInput(
                f"--where names {name!r}, which no run has; expected "
                f"{', '.join(known or names) or 'a name without a dot'}, or another name under "
                "`spec` of `cellrepro list --json`"
            )
        value = value[part]
    return value
