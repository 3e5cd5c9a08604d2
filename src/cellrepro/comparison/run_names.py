"""What runs are called, wherever several are shown: by what differs among them, and nothing else.

A network that others were trained from is no result beside theirs; it is called what it is.

Notes
-----
A *place* is a spec on a machine, ``KEY/MACHINE``: what repeats have in common. Every place has
values of the same fields, and its name is made of those that tell it from the other places.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cellrepro.determinism.mode_names import MODES
from cellrepro.digests.digests import value_digest
from cellrepro.spec.field_words import setting_in_words
from cellrepro.spec.spec import PARAMETERS, Spec

if TYPE_CHECKING:
    from cellrepro.store.environment_record import MachineRecord
    from cellrepro.store.stored_run import Repeat

START = "starting network"
"""What a run is called that others were trained from."""

_BARE = ("task", "data", "machine", "version", "place", "profile", "mode")
"""Fields whose values speak for themselves; they come first, and are named wherever they differ."""
_FIELDS = tuple(dict.fromkeys((*_BARE, "seed", *PARAMETERS)))
_COLUMN_FIELDS = ("profile", "mode")
_USUAL_SHARE = 2 / 3
"""Of the places; a value that more of them have is the usual one."""

Values = dict[str, Any]
"""The value of every field of a place; "" where it is not known or does not apply."""


def place_of(repeat: Repeat) -> str:
    """Give spec and machine of a repeat, ``KEY/MACHINE``; its repeats have this in common."""
    return repeat.name.rpartition("/")[0]


class Names:
    """The names of repeats that are shown together, and of specs that failed.

    There is one name of a spec (`of_spec`), and one of a repeat (`of_repeat`). `without` leaves
    fields out of the name of a spec, where a heading says them already; `parts` gives its fields
    one by one.
    """

    def __init__(self, repeats: Iterable[Repeat], failed: Mapping[str, Spec] | None = None):
        repeats = list(repeats)
        specs = dict(failed or {})
        specs.update({place_of(repeat): repeat.spec for repeat in repeats})
        machines = {place_of(repeat): repeat.manifest.machine for repeat in repeats}
        starts = _starting_places(repeats)
        if len(starts) == len(specs):  # nothing else is there to be shown
            starts = set()
        self._n_repeats = Counter(place_of(repeat) for repeat in repeats)
        self._starts = [place for place in specs if place in starts]
        self.values = _values_by_place(specs, machines)
        self.shown = [place for place in specs if place not in starts]
        self.varying = self._varying_fields(self.shown)
        self._fields = self._telling_fields(self.shown)
        self._row_fields = [field for field in self._fields if field not in _COLUMN_FIELDS]

    def _varying_fields(self, places: Sequence[str]) -> list[str]:
        """Give the fields with more than one known value."""
        varying = []
        for field in _FIELDS:
            known = {self.values[place][field] for place in places} - {""}
            if len(known) > 1:
                varying.append(field)
        return varying

    def _telling_fields(self, places: Sequence[str]) -> list[str]:
        """Give the fields that names need: none that follows from the others."""

        def n_names(fields: Sequence[str]) -> int:
            return len({tuple(self.values[place][field] for field in fields) for place in places})

        varying = self._varying_fields(places)
        needed = [field for field in varying if field in (*_BARE, "seed")]
        for field in varying:
            if n_names([*needed, field]) > n_names(needed):
                needed.append(field)
        return needed

    @cached_property
    def usual(self) -> Values:
        """Values that most places share, by field; the name of a spec does not mention them."""
        usual = {}
        for field in self._fields:
            if field in ("seed", *_BARE):
                continue
            counts = Counter(self.values[place][field] for place in self.shown)
            value, n = counts.most_common(1)[0]
            if n > _USUAL_SHARE * len(self.shown):
                usual[field] = value
        return usual

    def is_start(self, place: str) -> bool:
        """Tell whether others were trained from the runs of a place."""
        return place in self._starts

    def order(self, place: str) -> tuple:
        """Give what sorts places as tables show them."""
        fields = (*self._row_fields, *_COLUMN_FIELDS)
        values = (sort_key(field, self.values[place][field]) for field in fields)
        return self.is_start(place), *values, place

    def row(self, place: str) -> str:
        """Give the name of the row of a place in the matrix of verdicts."""
        return ", ".join(self._in_words(place, self._row_fields or ["seed"]))

    def column(self, place: str) -> tuple[str, str]:
        """Give the column of a place in the matrix of verdicts."""
        return self.values[place]["profile"], self.values[place]["mode"]

    def of_spec(self, place: str) -> str:
        """Give the name of a spec on a machine; never empty."""
        name = self.without(place)
        if name:
            return name
        return place[:8] if len(self.shown) == 1 else "the usual spec"

    def of_repeat(self, repeat: Repeat) -> str:
        """Give the name of a repeat, with its number where several of its place are shown."""
        place = place_of(repeat)
        if self._n_repeats[place] < 2:
            return self.of_spec(place)
        spec_name = self.without(place) if len(self.shown) == 1 else self.of_spec(place)
        number = f"repeat {repeat.index}"
        return f"{spec_name}, {number}" if spec_name else number

    def parts(self, place: str, but: Collection[str] = ()) -> tuple[str, ...]:
        """Give what tells a place from the others, field by field."""
        fields = self._telling_fields(self._starts) if self.is_start(place) else self._fields
        return self._in_words(place, [field for field in fields if field not in but])

    def without(self, place: str, fields: Collection[str] = ()) -> str:
        """Give the name of a spec without some fields; empty where nothing is left."""
        if self.is_start(place):
            return ", ".join([START, *self.parts(place)])
        usual = [f for f, value in self.usual.items() if self.values[place][f] == value]
        return ", ".join(self.parts(place, {*fields, *usual}))

    def _in_words(self, place: str, fields: Iterable[str]) -> tuple[str, ...]:
        """Give its values of some fields in words, those that apply."""
        words = (value_in_words(field, self.values[place][field]) for field in fields)
        return tuple(filter(None, words))


def _starting_places(repeats: Sequence[Repeat]) -> set[str]:
    """Give the places of runs that others of them were trained from, on the same images."""
    used = {
        (repeat.spec.data_digest, repeat.spec.model_digest)
        for repeat in repeats
        if repeat.spec.task == "train" and repeat.spec.model_digest is not None
    }
    keys = set()
    for repeat in repeats:
        trained = repeat.manifest.weights
        # One that ends as it began is no other network than the one it was trained from.
        if trained is None or trained.digest == repeat.spec.model_digest:
            continue
        if (repeat.spec.data_digest, trained.digest) in used:
            keys.add(repeat.manifest.key)
    return {place_of(repeat) for repeat in repeats if repeat.manifest.key in keys}


# -- the values of fields ------------------------------------------------------------------


@dataclass(frozen=True)
class _Named:
    """A name, and the content that it stands for."""

    name: str
    content: Any


def _values_by_place(
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
    values_by_place: dict[str, Values] = {}
    for place, spec in specs.items():
        values: Values = {"task": spec.task}
        values.update(spec.parameters())
        values["mode"] = spec.mode_in_words
        for field, by_place in unambiguous.items():
            values[field] = by_place.get(place, "")
        values_by_place[place] = values
    _add_places(values_by_place)
    return values_by_place


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
    if field in _BARE:
        return str(value)
    return setting_in_words(field, value)
