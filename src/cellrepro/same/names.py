"""What runs are called, wherever several are shown: by what differs among them, and nothing else.

A network that others were trained from is no result beside theirs; it is called what it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from cellrepro.asked.spec import PARAMETERS, Spec
from cellrepro.bits.digests import value_digest
from cellrepro.determinism.modes import MODES
from cellrepro.store.manifest import MachineRecord
from cellrepro.store.store import Repeat
from cellrepro.words import setting_in_words

START = "starting network"
"""What a run is called that others were trained from."""

_BARE = ("task", "data", "machine", "version", "place", "profile", "mode")
"""Fields whose values speak for themselves; said first, and wherever they differ."""
_FIELDS = tuple(dict.fromkeys((*_BARE, "seed", *PARAMETERS)))
_COLUMN = ("profile", "mode")


def place_of(repeat: Repeat) -> str:
    """Spec and machine of a repeat, ``KEY/MACHINE``; its repeats have this in common."""
    return repeat.name.rpartition("/")[0]


class Names:
    """What repeats that are shown together are called, and specs that failed, by place."""

    def __init__(self, repeats: Iterable[Repeat], failed: Mapping[str, Spec] | None = None):
        repeats = list(repeats)
        specs = {**(failed or {}), **{place_of(repeat): repeat.spec for repeat in repeats}}
        machines = {place_of(repeat): repeat.manifest.machine for repeat in repeats}
        self._n_repeats = Counter(map(place_of, repeats))
        starts = _starting(repeats)
        self._starts = [place for place in specs if place in starts and len(starts) < len(specs)]
        self.facts = _facts(specs, machines)
        """Every field of each, told apart where one name stands for two contents."""
        self.shown = [place for place in specs if place not in self._starts]
        self.varying = self._varying(self.shown)
        """Fields with more than one value among those that are no start."""
        self._fields = self._telling(self.shown)
        self._row = [name for name in self._fields if name not in _COLUMN]

    def _varying(self, places: Sequence[str]) -> list[str]:
        values = {name: {self.facts[place][name] for place in places} for name in _FIELDS}
        return [name for name in _FIELDS if len(values[name] - {""}) > 1]  # "" is not known

    def _telling(self, places: Sequence[str]) -> list[str]:
        """Fields that names need; one that follows from the others would only lengthen them."""

        def n_told(fields: Sequence[str]) -> int:
            return len({tuple(self.facts[place][name] for name in fields) for place in places})

        varying = self._varying(places)
        kept = [name for name in varying if name in (*_BARE, "seed")]
        for name in varying:
            if n_told([*kept, name]) > n_told(kept):
                kept.append(name)
        return kept

    @cached_property
    def usual(self) -> dict[str, Any]:
        """Values that most share, by field; a short name does not mention them."""
        found = {
            name: Counter(self.facts[place][name] for place in self.shown).most_common(1)[0]
            for name in self._fields
            if name not in ("seed", *_BARE)
        }
        return {name: value for name, (value, n) in found.items() if n > 2 * len(self.shown) / 3}

    def is_start(self, place: str) -> bool:
        """Whether others were trained from it."""
        return place in self._starts

    def order(self, place: str) -> tuple:
        """Sorts as tables show them: by rows, then columns, starts last."""
        values = (sort_key(name, self.facts[place][name]) for name in (*self._row, *_COLUMN))
        return self.is_start(place), *values, place

    def row(self, place: str) -> str:
        """Of the matrix of verdicts."""
        words = (said(name, self.facts[place][name]) for name in self._row or ["seed"])
        return ", ".join(filter(None, words))

    def column(self, place: str) -> tuple[str, str]:
        """Profile and mode."""
        return self.facts[place]["profile"], self.facts[place]["mode"]

    def short(self, place: str) -> str:
        """A spec in a few words."""
        alone = place[:8] if len(self.shown) == 1 else "the usual spec"
        return self.context(place) or alone

    def label(self, repeat: Repeat) -> str:
        """A repeat in a few words; which one it is where several of its spec are shown."""
        place = place_of(repeat)
        if self._n_repeats[place] < 2:
            return self.short(place)
        name = self.context(place) if len(self.shown) == 1 else self.short(place)
        return f"{name}{', ' if name else ''}repeat {repeat.index}"

    def words(self, place: str, but: Collection[str] = ()) -> tuple[str, ...]:
        """What it is among the others, field by field, some excepted."""
        fields = self._telling(self._starts) if self.is_start(place) else self._fields
        words = (said(name, self.facts[place][name]) for name in fields if name not in but)
        return tuple(filter(None, words))

    def context(self, place: str, but: Collection[str] = ()) -> str:
        """A spec in a few words, some fields and what is usual excepted."""
        if self.is_start(place):
            return ", ".join([START, *self.words(place)])
        usual = [n for n, value in self.usual.items() if self.facts[place][n] == value]
        return ", ".join(self.words(place, {*but, *usual}))


def _starting(repeats: Sequence[Repeat]) -> set[str]:
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


def _facts(
    specs: Mapping[str, Spec], machines: Mapping[str, MachineRecord]
) -> dict[str, dict[str, Any]]:
    told_apart = {
        "data": _told_apart({place: (s.data, s.data_digest) for place, s in specs.items()}),
        "profile": _told_apart({p: (s.profile, s.profile_settings) for p, s in specs.items()}),
        "model": _told_apart({p: (_short(s.model), s.model_digest) for p, s in specs.items()}),
        "machine": _told_apart({p: (one.label, one.identity) for p, one in machines.items()}),
        "version": _versions(machines),
    }
    facts = {
        place: {
            **{"task": spec.task, **spec.parameters()},
            "mode": spec.mode_in_words,
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
    digests = {place: value_digest(content) for place, (_, content) in named.items()}
    contents: dict[str, set[str]] = defaultdict(set)
    for place, (name, _) in named.items():
        contents[name].add(digests[place])
    return {
        place: name if len(contents[name]) == 1 else f"{name} ({digests[place][:6]})"
        for place, (name, _) in named.items()
    }


def _versions(machines: Mapping[str, MachineRecord]) -> dict[str, str]:
    """The libraries in which a device differs from itself; two devices differ in more."""
    of_device: dict[tuple[str, str], dict[str, MachineRecord]] = defaultdict(dict)
    for place, one in machines.items():
        of_device[one.identity, one.device][place] = one
    told = ((same, changed_versions([*same.values()])) for same in of_device.values())
    return {place: text for same, texts in told for place, text in zip(same, texts, strict=True)}


def versions_of(machine: MachineRecord) -> dict[str, str]:
    """Of the numeric libraries, and of driver, CUDA and cuDNN where a GPU computed."""
    gpu = {"driver": machine.driver, "CUDA": machine.cuda, "cuDNN": machine.cudnn}
    return machine.versions | {name: version for name, version in gpu.items() if version}


def changed_versions(machines: Sequence[MachineRecord]) -> list[str]:
    """What each has of the libraries that are not of one version in all of some machines."""
    sides = [versions_of(machine) for machine in machines]
    every = dict.fromkeys(name for versions in sides for name in versions)
    changed = [name for name in every if len({versions.get(name) for versions in sides}) > 1]
    return [", ".join(f"{name} {side.get(name, 'absent')}" for name in changed) for side in sides]


def _short(model: str) -> str:
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
    if value == "":  # does not apply
        return ""
    if name == "task":
        return {"train": "trained", "segment": "only segmented", "wrap": "wrapped"}[value]
    if name in _BARE:
        return str(value)
    return setting_in_words(name, value)
