"""What other runs of a store say of why two runs differ: their masks decide between settings.

A run that differs from one of the two in a single setting shows what that setting does by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellrepro.spec.spec import Spec
    from cellrepro.store.stored_run import Repeat, Run

FieldsOfSpecs = Callable[["Spec", "Spec"], Mapping[str, tuple[object, object]]]
"""Gives the fields in which two specs differ, each with its two values, but for names."""

_PLACED_BY = ("profile", "profile_settings")
"""Fields that change the machine, too: its name holds threads and device."""
_DIGITS = 8  # of a key: enough to name the run in a command


@dataclass(frozen=True)
class StoreEvidence:
    """What the store shows of the settings in which two runs differ."""

    ruled_out: Mapping[str, str] = field(default_factory=dict)
    """By setting, the run that shows that it changes no pixel."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """By setting, the run that shows that it alone makes the difference, or a part of it."""
    unsteady: tuple[str, ...] = ()
    """The sides whose repeats have different masks among themselves: chance plays a part."""


def evidence_of_store(
    a: Repeat, b: Repeat, runs: Collection[Run], *, differing: FieldsOfSpecs
) -> StoreEvidence:
    """Look for runs that differ from a or b in one setting alone, and compare their masks."""
    fields = differing(a.spec, b.spec)
    ruled_out: dict[str, str] = {}
    shown: dict[str, str] = {}
    unsteady = []
    for run in runs:
        for side, own, other in (("A", a, b), ("B", b, a)):
            if run.key == own.spec.key:
                if len(set(map(_masks_of, _of_machine(run, own)))) > 1:
                    unsteady.append(side)
                continue
            changed = differing(own.spec, run.spec)
            if len(fields) < 2 or len(changed) != 1:
                continue
            ((name, values),) = changed.items()
            wanted = fields.get(name, (None, None))[1 if side == "A" else 0]
            if name not in fields or values[1] != wanted:
                continue
            masks = {_masks_of(each) for each in _comparable(run, own, other, name)}
            if len(masks) != 1:
                continue
            beside = f"run {run.key[:_DIGITS]} differs from {side} in {name} alone, and has"
            if masks == {_masks_of(own)}:
                ruled_out.setdefault(name, f"{beside} the same masks")
            elif masks == {_masks_of(other)}:
                shown[name] = f"{beside} the masks of {'B' if side == 'A' else 'A'}"
            else:
                shown.setdefault(name, f"{beside} other masks, too")
    return StoreEvidence(ruled_out, shown, tuple(dict.fromkeys(unsteady)))


def _of_machine(run: Run, repeat: Repeat) -> list[Repeat]:
    return [each for each in run.repeats if each.folder.parent.name == repeat.folder.parent.name]


def _comparable(run: Run, own: Repeat, other: Repeat, name: str) -> list[Repeat]:
    """The repeats whose machine is no further difference."""
    found = _of_machine(run, own)
    if name in _PLACED_BY and own.folder.parent.name != other.folder.parent.name:
        found = _of_machine(run, other)
    return found


def _masks_of(repeat: Repeat) -> frozenset[tuple[str, str]]:
    """The outlines of all images, whatever their numbers."""
    masks = repeat.manifest.masks
    return frozenset((image, record.canonical_digest) for image, record in masks.items())
