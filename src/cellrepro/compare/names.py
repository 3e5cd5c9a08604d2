"""What runs are called, wherever several are shown: by what differs among them, and nothing else.

A network that others were trained from is no result beside theirs; it is called what it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from cellrepro.determinism.modes import MODES
from cellrepro.store.digests import value_digest
from cellrepro.store.manifest import MachineRecord
from cellrepro.store.spec import PARAMETERS, Spec
from cellrepro.store.store import Repeat

START = "starting network"
"""What a run is called that others were trained from."""

_BARE = ("task", "data", "machine", "version", "place", "profile", "mode")
"""Fields whose values speak for themselves; said first, and wherever they differ."""
_FIELDS = tuple(dict.fromkeys((*_BARE, "seed", *PARAMETERS)))


def place_of(repeat: Repeat) -> str:
    """Spec and machine of a repeat, ``KEY/MACHINE``; its repeats have this in common."""
    return repeat.name.rpartition("/")[0]


def starting(repeats: Sequence[Repeat]) -> set[str]:
    """The places of those runs that others of them were trained from, on the same images."""
    used = {
        (one.spec.data_digest, one.spec.model_digest)
        for one in repeats
        if one.spec.task == "train" and one.spec.model_digest is not None
    }
    keys = {
        one.manifest.key
        for one in repeats
        for trained in [one.manifest.weights]
        # One that ends as it began is no other network than the one it was trained from.
        if trained is not None and trained.digest != one.spec.model_digest
        if (one.spec.data_digest, trained.digest) in used
    }
    return {place_of(one) for one in repeats if one.manifest.key in keys}


class Names:
    """What specs, each on its machine, are called.

    Parameters
    ----------
    specs : mapping of str to Spec
        By any name of their own, such as `place_of` gives.
    machines : mapping of str to MachineRecord
        Where these were carried out, as far as that is known.
    repeats : mapping of str to int
        How many repeats of each are shown.
    starts : collection of str
        Which of them others were trained from.

    Attributes
    ----------
    facts : dict of str to dict
        Every field of each, told apart where one name stands for two contents.
    varying : list of str
        Fields with more than one value among those that are no start.
    row_fields : list of str
        Fields beside profile and mode that names need; one that follows from the others would
        only lengthen them.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        machines: Mapping[str, MachineRecord] | None = None,
        *,
        repeats: Mapping[str, int] | None = None,
        starts: Collection[str] = (),
    ):
        self._repeats = repeats or {}
        self._starts: Names | None = None
        self.facts = _facts(specs, machines or {})
        starts = [place for place in specs if place in starts]
        if 0 < len(starts) < len(specs):
            self._starts = Names({place: specs[place] for place in starts}, machines)
        self.shown = [place for place in specs if not self.is_start(place)]
        self.varying = [name for name in _FIELDS if len(self.values(name)) > 1]
        self.row_fields = self._row_fields()

    @classmethod
    def of(cls, repeats: Iterable[Repeat], failed: Mapping[str, Spec] | None = None) -> Names:
        """Of repeats that are shown together, and of specs without any, by place."""
        repeats = list(repeats)
        return cls(
            {**(failed or {}), **{place_of(repeat): repeat.spec for repeat in repeats}},
            {place_of(repeat): repeat.manifest.machine for repeat in repeats},
            repeats=Counter(map(place_of, repeats)),
            starts=starting(repeats),
        )

    def is_start(self, place: str) -> bool:
        """Whether others were trained from it."""
        return self._starts is not None and place in self._starts.facts

    def values(self, name: str) -> list[Any]:
        """The different values of a field, in the order in which people expect them."""
        found = {self.facts[place][name] for place in self.shown} - {""}  # not known, or not told
        return sorted(found, key=lambda value: sort_key(name, value))

    def _row_fields(self) -> list[str]:
        kept = [name for name in (*_BARE, "seed") if name in self.varying]
        for name in self.varying:
            if name in kept:
                continue
            seen: dict[tuple, set] = defaultdict(set)
            for place in self.shown:
                facts = self.facts[place]
                seen[tuple(facts[field] for field in kept)].add(facts[name])
            if any(len(values) > 1 for values in seen.values()):
                kept.append(name)
        return [name for name in kept if name not in ("profile", "mode")]

    def order(self, place: str) -> tuple:
        """Sorts as tables show them: by rows, then columns, starts last."""
        facts, fields = self.facts[place], (*self.row_fields, "profile", "mode")
        return self.is_start(place), *(sort_key(name, facts[name]) for name in fields), place

    def row(self, place: str) -> str:
        """Of the matrix of verdicts."""
        facts = self.facts[place]
        words = (said(name, facts[name]) for name in self.row_fields or ["seed"])
        return ", ".join(filter(None, words))

    def column(self, place: str) -> tuple[str, str]:
        """Profile and mode."""
        return self.facts[place]["profile"], self.facts[place]["mode"]

    @cached_property
    def usual(self) -> dict[str, Any]:
        """Values that most share, by field; a short name does not mention them."""
        found = {}
        for name in self.row_fields:
            counts = Counter(self.facts[place][name] for place in self.shown)
            value, n = counts.most_common(1)[0]
            if name not in ("seed", *_BARE) and n > 2 * len(self.shown) / 3:
                found[name] = value
        return found

    def short(self, place: str) -> str:
        """A spec in a few words."""
        if self._starts is not None and place in self._starts.facts:
            return ", ".join([START, *self._starts.words(place)])
        alone = place[:8] if len(self.shown) == 1 else "the usual spec"
        return self.context(place) or alone

    def label(self, repeat: Repeat) -> str:
        """A repeat in a few words; which one it is where several of its spec are shown."""
        place = place_of(repeat)
        if self._repeats.get(place, 1) < 2:
            return self.short(place)
        name = self.context(place) if len(self.shown) == 1 else self.short(place)
        return f"{name}{', ' if name else ''}repeat {repeat.index}"

    def words(self, place: str, but: Collection[str] = ()) -> tuple[str, ...]:
        """What it is among the others, field by field, some excepted."""
        facts, others = self.facts[place], self.row_fields
        first = [name for name in others if name in _BARE]
        fields = [*first, *(n for n in ("profile", "mode") if n in self.varying)]
        fields += [name for name in others if name not in first]
        words = (said(name, facts[name]) for name in fields if name not in but)
        return tuple(filter(None, words))

    def context(self, place: str, but: Collection[str] = ()) -> str:
        """A spec in a few words, some fields and what is usual excepted."""
        if self.is_start(place):
            return self.short(place)
        facts = self.facts[place]
        usual = [name for name, value in self.usual.items() if facts[name] == value]
        return ", ".join(self.words(place, {*but, *usual}))

    def without(self, place: str, *but: str) -> tuple:
        """Everything that was asked for, and where, some fields excepted."""
        return tuple(value for name, value in self.facts[place].items() if name not in but)


def _facts(
    specs: Mapping[str, Spec], machines: Mapping[str, MachineRecord]
) -> dict[str, dict[str, Any]]:
    told_apart = {
        "data": _told_apart({place: (s.data, s.data_digest) for place, s in specs.items()}),
        "profile": _told_apart({p: (s.profile, s.profile_settings) for p, s in specs.items()}),
        "model": _told_apart(
            {place: (short_model(s.model), s.model_digest) for place, s in specs.items()}
        ),
        "machine": _machines(machines),
        "version": _versions(machines),
    }
    facts = {
        place: {
            **{name: getattr(spec, name) for name in ("task", *PARAMETERS)},
            "mode": spec.held,
            **{name: found.get(place, "") for name, found in told_apart.items()},
        }
        for place, spec in specs.items()
    }
    alike: dict[tuple, list[str]] = defaultdict(list)
    for place, values in facts.items():
        alike[tuple(values.values())].append(place)
    for places in alike.values():
        one_spec = len({place.partition("/")[0] for place in places}) == 1
        for place in places:
            told = place[-8:] if one_spec else place[:8]
            facts[place]["place"] = told if len(places) > 1 else ""
    return facts


def _told_apart(named: Mapping[str, tuple[str, Any]]) -> dict[str, str]:
    """Names by place, with a piece of a digest where one name stands for two contents."""
    contents: dict[str, set[str]] = defaultdict(set)
    for name, content in named.values():
        contents[name].add(value_digest(content))
    return {
        place: name if len(contents[name]) == 1 else f"{name} ({value_digest(content)[:6]})"
        for place, (name, content) in named.items()
    }


def _machines(machines: Mapping[str, MachineRecord]) -> dict[str, str]:
    """Their labels, with the device where one of them has several."""
    labels = _told_apart({place: (one.label, one.identity) for place, one in machines.items()})
    devices: dict[str, set[str]] = defaultdict(set)
    for place, one in machines.items():
        devices[labels[place]].add(one.device)
    return {
        place: labels[place] + (f", {one.device}" if len(devices[labels[place]]) > 1 else "")
        for place, one in machines.items()
    }


def _versions(machines: Mapping[str, MachineRecord]) -> dict[str, str]:
    """The libraries in which a device differs from itself; two devices differ in more."""
    of_device: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    for place, one in machines.items():
        of_device[one.identity, one.device][place] = versions_of(one)
    found: dict[str, str] = {}
    for members in of_device.values():
        moved = changed_versions(members.values())
        for place, versions in members.items():
            found[place] = ", ".join(f"{name} {versions.get(name, 'absent')}" for name in moved)
    return found


def versions_of(machine: MachineRecord) -> dict[str, str]:
    """Of the numeric libraries, and of driver, CUDA and cuDNN where a GPU computed."""
    gpu = {"driver": machine.driver, "CUDA": machine.cuda, "cuDNN": machine.cudnn}
    return machine.versions | {name: version for name, version in gpu.items() if version}


def changed_versions(machines: Collection[Mapping[str, str]]) -> list[str]:
    """What is not of one version in all of some machines."""
    every = dict.fromkeys(name for versions in machines for name in versions)
    return [name for name in every if len({versions.get(name) for versions in machines}) > 1]


def short_model(model: str) -> str:
    """What a network was trained from: ``KEY/MACHINE/REPEAT`` as ``KEY/REPEAT``, cut short."""
    key, *rest = model.split("/")
    return f"{key[:8]}/{rest[-1]}" if rest and len(key) >= 16 else model


def sort_key(name: str, value: Any) -> tuple:
    """Sorts the values of a field as people expect them."""
    if name == "mode":
        return MODES.index(value.partition(",")[0]), value
    return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))


def said(name: str, value: Any) -> str:
    """A field's value in words; profiles, modes and machines speak for themselves."""
    if name == "task":
        return {"train": "trained", "segment": "only segmented"}[value]
    if name in _BARE:
        return str(value)
    return f"{name.replace('_', ' ')} {'default' if value is None else value}"
