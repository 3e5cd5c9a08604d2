"""The fields by which runs are told apart: their values, in order and in words.

A *place* is a spec on a machine, ``KEY/MACHINE``: what repeats have in common. Every place has
values of the same fields.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cellrepro.spec.field_words import setting_in_words
from cellrepro.spec.spec import PARAMETERS, Spec
from samebits.digests import value_digest
from samebits.mode_names import MODES

if TYPE_CHECKING:
    from cellrepro.store.environment_record import MachineRecord
    from cellrepro.store.stored_run import Repeat

BARE = ("task", "data", "machine", "version", "place", "profile", "mode")
"""Fields whose values speak for themselves; they come first, and are named wherever they differ."""
FIELDS = tuple(dict.fromkeys((*BARE, "seed", *PARAMETERS)))

Values = dict[str, Any]
"""The value of every field of a place; "" where it is not known or does not apply."""


def place_of(repeat: Repeat) -> str:
    """Give spec and machine of a repeat, ``KEY/MACHINE``; its repeats have this in common."""
    return repeat.name.rpartition("/")[0]


@dataclass(frozen=True)
class _Named:
    """A name, and the content that it stands for."""

    name: str
    content: Any


def values_by_place(
    specs: Mapping[str, Spec], machines: Mapping[str, MachineRecord]
) -> dict[str, Values]:
    """Give the value of every field of each place."""
    data = {place: _Named(spec.data, spec.data_digest) for place, spec in specs.items()}
    profiles = {place: _Named(spec.profile, spec.profile_settings) for place, spec in specs.items()}
    models = {place: _Named(_short(spec.model), spec.model_digest) for place, spec in specs.items()}
    labels = {place: _Named(machine.label, machine.identity) for place, machine in machines.items()}
    unambiguous = {
        "data": _unambiguous(data),
        "profile": _unambiguous(profiles),
        "model": _unambiguous(models),
        "machine": _unambiguous(labels),
        "version": _versions_by_place(machines),
    }
    values_of: dict[str, Values] = {}
    for place, spec in specs.items():
        values: Values = {"task": spec.task}
        values.update(spec.parameters())
        values["mode"] = spec.mode_in_words
        for field, by_place in unambiguous.items():
            values[field] = by_place.get(place, "")
        values_of[place] = values
    _add_places(values_of)
    return values_of


def _add_places(values_by_place: Mapping[str, Values]) -> None:
    """Add the field ``place``: a piece of key or machine, where all other values are equal."""
    alike: dict[tuple, list[str]] = defaultdict(list)
    for place, values in values_by_place.items():
        alike[tuple(values.values())].append(place)
    for places in alike.values():
        is_one_spec = len({place.partition("/")[0] for place in places}) == 1
        for place in places:
            piece = place[-8:] if is_one_spec else place[:8]
            values_by_place[place]["place"] = piece if len(places) > 1 else ""


def _unambiguous(named: Mapping[str, _Named]) -> dict[str, str]:
    """Give names by place, with a piece of a digest where one name stands for two contents."""
    digests = {place: value_digest(label.content) for place, label in named.items()}
    digests_of_name: dict[str, set[str]] = defaultdict(set)
    for place, label in named.items():
        digests_of_name[label.name].add(digests[place])
    names = {}
    for place, label in named.items():
        stands_for_one = len(digests_of_name[label.name]) == 1
        names[place] = label.name if stands_for_one else f"{label.name} ({digests[place][:6]})"
    return names


def _versions_by_place(machines: Mapping[str, MachineRecord]) -> dict[str, str]:
    """Give the libraries in which a device differs from itself; two devices differ in more."""
    by_device: dict[tuple[str, str], dict[str, MachineRecord]] = defaultdict(dict)
    for place, machine in machines.items():
        by_device[machine.identity, machine.device][place] = machine
    versions: dict[str, str] = {}
    for of_device in by_device.values():
        changed = changed_versions(list(of_device.values()))
        versions.update(zip(of_device, changed, strict=True))
    return versions


def versions_of(machine: MachineRecord) -> dict[str, str]:
    """Give the versions of what computes on a machine."""
    gpu = {"driver": machine.driver, "CUDA": machine.cuda, "cuDNN": machine.cudnn}
    return machine.versions | {name: version for name, version in gpu.items() if version}


def changed_versions(machines: Sequence[MachineRecord]) -> list[str]:
    """Give what each machine has of the libraries that are not of one version in all of them.

    One for each machine, such as ``torch 2.8.0, CUDA absent``; empty where nothing changed.
    """
    sides = [versions_of(machine) for machine in machines]
    libraries = dict.fromkeys(name for versions in sides for name in versions)
    changed = [name for name in libraries if len({versions.get(name) for versions in sides}) > 1]
    return [", ".join(f"{name} {side.get(name, 'absent')}" for name in changed) for side in sides]


def _short(model: str) -> str:
    """Give what a network was trained from: ``KEY/MACHINE/REPEAT`` as ``KEY/REPEAT``, cut short."""
    key, *rest = model.split("/")
    return f"{key[:8]}/{rest[-1]}" if rest and len(key) >= 16 else model


def sort_key(field: str, value: Any) -> tuple:
    """Give what sorts the values of a field as people expect them."""
    if field == "mode":
        return MODES.index(value.partition(",")[0]), value
    return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))


def value_in_words(field: str, value: Any) -> str:
    """Give a field's value in words; profiles, modes and machines speak for themselves.

    >>> value_in_words("task", "segment"), value_in_words("mode", "strict")
    ('only segmented', 'strict')
    """
    if value == "":  # does not apply
        return ""
    if field == "task":
        return {"train": "trained", "segment": "only segmented", "wrap": "wrapped"}[value]
    if field in BARE:
        return str(value)
    return setting_in_words(field, value)
