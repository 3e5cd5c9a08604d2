"""Stored repeats that differ along one axis only, and what differs between their masks.

Everything that makes results vary is an *axis*: repeats of one spec, seed, data seed, mode,
profile, host, version of a library. Two repeats that are alike in all but one of them are a pair.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.compare.masks import MaskComparison, compare_masks
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weights import compare_weights
from cellrepro.record.digests import value_digest
from cellrepro.record.spec import PARAMETERS, Spec
from cellrepro.record.store import Repeat

AXES = ("repeats", "seed", "data_seed", "mode", "profile", "host", "version")
"""All that makes results vary although the recipe is the same."""

MEASURES = ("changed", "ppm", "ap", "ap50")
"""Share of cells without a counterpart; differing pixels per million; 1 - AP, mean over IoU 0.5
to 0.95; 1 - AP at 0.5."""

DRAWN = ("seed", "data_seed")
"""Axes whose values are draws from many, not chosen ones."""

# These only hold the interpreter together, or write files.
_NO_NUMBERS = ("python", "papermill", "safetensors")

Values = NDArray[np.float64]


# -- what is told ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Differences:
    """What differs between two repeats, image by image; I images.

    Attributes
    ----------
    images : tuple of str
    n_objects : ndarray of int64, shape (I,)
        Of both sides together.
    n_unmatched : ndarray of int64, shape (I,)
        Those without a counterpart at IoU 0.5.
    n_pixels, n_differing : ndarray of int64, shape (I,)
    ap, ap50 : ndarray of float64, shape (I,)
        1 - AP, mean over IoU 0.5 to 0.95 and at 0.5; NaN where neither side found an object.
    """

    images: tuple[str, ...]
    n_objects: NDArray[np.int64]
    n_unmatched: NDArray[np.int64]
    n_pixels: NDArray[np.int64]
    n_differing: NDArray[np.int64]
    ap: Values
    ap50: Values

    def parts(self, measure: str, images: Sequence[str]) -> tuple[Values, Values]:
        """Numerators and denominators of a measure; its mean is the ratio of their sums.

        Parameters
        ----------
        measure : str
            One of `MEASURES`.
        images : sequence of str
            In which order; both parts are 0 for an image that is not there.

        Returns
        -------
        numerators, denominators : ndarray of float64, shape (I,)
        """
        at = {image: i for i, image in enumerate(self.images)}
        chosen = [at.get(image, len(at)) for image in images]
        over, under = (np.append(part, 0.0)[chosen] for part in self._columns(measure))
        return over, under

    def _columns(self, measure: str) -> tuple[Values, Values]:
        if measure == "changed":
            return self.n_unmatched.astype(np.float64), self.n_objects.astype(np.float64)
        if measure == "ppm":
            return 1e6 * self.n_differing.astype(np.float64), self.n_pixels.astype(np.float64)
        score = getattr(self, measure)
        return np.nan_to_num(score), np.isfinite(score).astype(np.float64)

    def mean(self, measure: str) -> float:
        """A measure over all images; NaN over nothing."""
        over, under = self.parts(measure, self.images)
        return float(over.sum() / under.sum()) if under.sum() else math.nan


@dataclass(frozen=True, eq=False)
class Pair:
    """Two repeats that differ along one axis only.

    Attributes
    ----------
    axis, context : str
        What differs, and in which surroundings, where these vary.
    surroundings : str
        The same for pairs in the same surroundings, all of them counted.
    name_a, name_b : str
        What each side has on the axis.
    a, b : Repeat
    spec_a, spec_b : Spec
    units : tuple of (str, str)
        What a and b are on the axis, as the bootstrap draws it.
    verdict : Verdict
        Of the masks.
    found : Differences
    kinds : dict of str to int
        Objects kept, moved, lost, gained, split and merged over all images.
    worst : tuple of (str, float)
        The image with most differing pixels per million, and how many.
    settings : str
        The same for pairs in surroundings that differ in `DRAWN` only.
    setting : tuple of str
        What of these settings varies among the runs, in words.
    """

    axis: str
    context: str
    surroundings: str
    name_a: str
    name_b: str
    a: Repeat
    b: Repeat
    spec_a: Spec
    spec_b: Spec
    units: tuple[str, str]
    verdict: Verdict
    found: Differences
    kinds: Mapping[str, int]
    worst: tuple[str, float]
    settings: str = ""
    setting: tuple[str, ...] = ()

    @property
    def contrast(self) -> tuple:
        """The same for pairs that differ from each other in draws only."""
        drawn = self.axis in (*DRAWN, "repeats")
        return (self.settings, () if drawn else tuple(sorted(self.units)))

    @property
    def n_images(self) -> int:
        """That both sides segmented."""
        return len(self.found.images)

    @property
    def n_pixels(self) -> int:
        """Of all images."""
        return int(self.found.n_pixels.sum())

    @property
    def n_differing(self) -> int:
        """Pixels."""
        return int(self.found.n_differing.sum())

    @property
    def n_lost(self) -> int:
        """Objects that only a has."""
        return self.kinds["lost"]

    @property
    def n_gained(self) -> int:
        """Objects that only b has."""
        return self.kinds["gained"]

    @property
    def changed(self) -> float:
        """Share of the cells of both sides without a counterpart at IoU 0.5; NaN over none."""
        return self.found.mean("changed")

    @property
    def ppm(self) -> float:
        """Differing pixels per million over all images; 0 over nothing."""
        return 1e6 * self.n_differing / self.n_pixels if self.n_pixels else 0.0

    @property
    def vacuous(self) -> bool:
        """Whether it proves nothing: neither side found an object, or nothing was trained."""
        if self.verdict == Verdict.VACUOUS:
            return True
        trained = [m.weights.n_changed > 0 for m in self._manifests if m.weights is not None]
        return bool(trained) and not any(trained)

    @property
    def one_sided(self) -> bool:
        """Whether only one side found any object."""
        return not self.vacuous and not all(manifest.n_objects for manifest in self._manifests)

    @property
    def weights_equal(self) -> bool | None:
        """Whether both ended in the same weights; None where none were trained."""
        first, second = (manifest.weights for manifest in self._manifests)
        return None if first is None or second is None else first.digest == second.digest

    @cached_property
    def weight_distance(self) -> float | None:
        """Distance of the weights relative to their length; None where none were trained.

        Reads both files, unless their digests are equal.
        """
        if self.weights_equal is None or self.a.weights is None or self.b.weights is None:
            return None
        return (
            0.0
            if self.weights_equal
            else compare_weights(self.a.weights, self.b.weights).relative_l2
        )

    @property
    def _manifests(self) -> tuple[Any, Any]:
        return self.a.manifest, self.b.manifest


# -- which repeats are a pair ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sample:
    """A stored repeat, and everything in which it could differ from another."""

    spec: Spec
    repeat: Repeat

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Every axis but repeats, every other field of the spec, and the numeric class."""
        spec, manifest = self.spec, self.repeat.manifest
        facts: dict[str, Any] = {name: getattr(spec, name) for name in PARAMETERS}
        # One name may stand for two contents, and a content may have two names.
        facts["profile"] = (spec.profile, value_digest(spec.profile_settings)[:6])
        facts["model"] = (spec.model, spec.model_digest)
        facts["mode"] = spec.held
        facts["host"] = _host(manifest.host)
        facts["version"] = _versions(manifest.versions)
        facts["class"] = (manifest.numeric_class or {}).get("name", "")
        return facts

    def but(self, *axes: str) -> tuple:
        """Everything, some axes excepted."""
        return tuple(value for name, value in self.facts.items() if name not in axes)


def _host(host: Mapping[str, Any]) -> tuple:
    """What of a machine decides its bits; two alike in all this count as one."""
    gpus = [(gpu.get("name"), gpu.get("driver")) for gpu in host.get("gpus", ())]
    return (
        host.get("processor", ""),
        host.get("architecture", ""),
        tuple(host.get("instructions", ())),
        tuple(gpus),
    )


def _versions(versions: Mapping[str, str]) -> tuple:
    """Without builds such as ``+cpu``: which one is installed follows from the device."""
    return tuple(
        (package, version.partition("+")[0])
        for package, version in sorted(versions.items())
        if package not in _NO_NUMBERS
    )


# The numeric class follows from profile, machine and versions; alone it would be a machine's.
_FREED = {
    "repeats": (),
    "profile": ("profile", "class", "host"),
    "host": ("host", "class"),
    "version": ("version", "class"),
}


@dataclass(frozen=True)
class Candidate:
    """Two repeats to be compared; `order` sorts them as people expect them."""

    axis: str
    context: str
    surroundings: str
    a: Sample
    b: Sample
    order: tuple[int, ...] = ()
    settings: str = ""
    setting: tuple[str, ...] = ()


def choose(samples: Sequence[Sample], axis: str, most: int) -> tuple[list[Candidate], int]:
    """Pairs along an axis, and how many there are.

    Parameters
    ----------
    samples : sequence of Sample
        Of one task over the same images.
    axis : str
        One of `AXES`, or another field of a spec.
    most : int
        Where there are more, all surroundings and all runs in them take turns, so that any first
        part of what is returned shows each equally often, or nearly. What is chosen follows from
        the samples alone.

    Returns
    -------
    chosen : list of Candidate
    n_pairs : int
        Also of those not chosen.
    """
    freed = _FREED.get(axis, (axis,))
    contexts: dict[tuple, list[Sample]] = defaultdict(list)
    for sample in samples if axis == "repeats" else _first_of_each(samples):
        contexts[sample.but(*freed)].append(sample)
    varying = _varying(samples)
    streams, n_pairs = [], 0
    for number, members in enumerate(contexts.values()):
        members.sort(key=lambda sample: _sort_key(axis, sample))
        n, turns = _pairs_among(members, axis)
        n_pairs += n
        streams.append(_candidates(axis, members, varying, number, turns))
    return list(itertools.islice(_in_turn(streams), most)), n_pairs


def _candidates(
    axis: str,
    members: Sequence[Sample],
    varying: Sequence[str],
    number: int,
    turns: Iterable[tuple[int, int]],
) -> Iterator[Candidate]:
    freed = _FREED.get(axis, (axis,))
    one = members[0]
    surroundings, settings = (
        value_digest([str(fact) for fact in one.but(*names)]) for names in (freed, freed + DRAWN)
    )
    context, setting = (_told(one, varying, names) for names in (freed, freed + DRAWN))
    for i, j in turns:
        order = (number, i, j)
        yield Candidate(
            axis, ", ".join(context), surroundings, members[i], members[j], order, settings, setting
        )


def _in_turn(streams: Iterable[Iterator[Candidate]]) -> Iterator[Candidate]:
    waiting = list(streams)
    while waiting:
        left = []
        for stream in waiting:
            found = next(stream, None)
            if found is not None:
                yield found
                left.append(stream)
        waiting = left


def _pairs_among(members: Sequence[Sample], axis: str) -> tuple[int, Iterable[tuple[int, int]]]:
    """How many pairs there are in one surrounding, and which, in turns."""
    n = len(members)
    if axis not in ("profile", "version"):
        return n * (n - 1) // 2, _evenly(n)
    # With the class freed, two may be alike on the axis and differ in their machine only.
    facts = [member.facts[axis] for member in members]
    pairs = [(i, j) for i, j in _evenly(n) if facts[i] != facts[j]]
    chosen = _on_one_host(members, pairs) if axis == "profile" else pairs
    return len(chosen), chosen


def _evenly(n: int) -> Iterator[tuple[int, int]]:
    """All pairs of n things, so that any first part of them shows each equally often, or nearly.

    Round k pairs each with its k-th neighbour in a circle.
    """
    for k in range(1, n // 2 + 1):
        for i in range(n // 2 if 2 * k == n else n):
            j = (i + k) % n
            yield min(i, j), max(i, j)


def _first_of_each(samples: Iterable[Sample]) -> list[Sample]:
    """One repeat where several differ in nothing: more would count the same finding twice."""
    first: dict[tuple, Sample] = {}
    for sample in samples:
        first.setdefault(sample.but(), sample)
    return list(first.values())


def _on_one_host(
    members: Sequence[Sample], pairs: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Profiles are compared on one machine; devices that no machine has both, across two."""
    by_profiles: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for i, j in pairs:
        by_profiles[members[i].facts["profile"], members[j].facts["profile"]].append((i, j))
    chosen = []
    for group in by_profiles.values():
        same = [(i, j) for i, j in group if members[i].facts["host"] == members[j].facts["host"]]
        devices = [(device_of(members[i].repeat), device_of(members[j].repeat)) for i, j in group]
        across = [pair for pair, (one, other) in zip(group, devices, strict=True) if one != other]
        chosen += same or across
    return chosen


def device_of(repeat: Repeat) -> str:
    """``cpu``, ``cuda`` or ``mps``."""
    return repeat.manifest.device.partition(":")[0]


def _sort_key(axis: str, sample: Sample) -> tuple:
    value = sample.repeat.index if axis == "repeats" else sample.facts[axis]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, value, "") if number else (1, 0, str(value))


def _varying(samples: Sequence[Sample]) -> list[str]:
    names = samples[0].facts if samples else {}
    return [n for n in names if len({str(sample.facts[n]) for sample in samples}) > 1]


def _told(sample: Sample, varying: Iterable[str], freed: Iterable[str]) -> tuple[str, ...]:
    told = [name for name in varying if name not in freed and name not in ("class", "version")]
    return tuple(_said(name, sample) for name in told)


def _said(name: str, sample: Sample) -> str:
    value = sample.facts[name]
    if name in ("profile", "host"):
        return str(value[0])
    if name == "mode":
        return str(value)
    value = _short_model(value[0]) if name == "model" else value
    return f"{name.replace('_', ' ')} {'default' if value is None else value}"


def _short_model(model: str) -> str:
    key, slash, index = model.partition("/")
    return f"{key[:8]}/{index}" if slash and len(key) >= 16 else model


def _names(axis: str, a: Sample, b: Sample) -> tuple[str, str]:
    """What two sides are called by the axis alone."""
    if axis == "repeats":
        return f"repeat {a.repeat.index}", f"repeat {b.repeat.index}"
    if axis == "version":
        sides = [dict(a.facts["version"]), dict(b.facts["version"])]
        moved = [n for n in {**sides[0], **sides[1]} if sides[0].get(n) != sides[1].get(n)]
        first, second = (", ".join(f"{n} {s.get(n, 'absent')}" for n in moved) for s in sides)
        return first, second
    if axis == "":
        return a.repeat.name, b.repeat.name
    names = _said(axis, a), _said(axis, b)
    if names[0] == names[1]:  # other instructions, another driver, other settings
        digests = [value_digest([str(s.facts[axis]), s.facts["class"]])[:6] for s in (a, b)]
        return f"{names[0]} ({digests[0]})", f"{names[1]} ({digests[1]})"
    return names


def _units(axis: str, a: Sample, b: Sample) -> tuple[str, str]:
    if axis == "repeats":
        return a.repeat.name, b.repeat.name
    names = ("host", "class") if axis == "host" else (axis or "seed",)
    first, second = (str([sample.facts[name] for name in names]) for sample in (a, b))
    return first, second


# -- what differs between two repeats -------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """Of two label images; what a comparison of many needs, without the objects themselves."""

    verdict: Verdict
    n_objects: int
    n_unmatched: int
    n_pixels: int
    n_differing: int
    ap: float
    ap50: float
    kinds: tuple[int, ...]


_MOST_HELD = 2**24  # pixels
_KINDS = ("kept", "moved", "lost", "gained", "split", "merged")
_SWAPPED = (0, 1, 3, 2, 5, 4)


@dataclass
class MaskPairs:
    """Compares the masks of repeats; each different pair of label images is compared once.

    Attributes
    ----------
    n_compared : int
        Pixels so far.
    """

    known: dict[tuple[str, str, str], _Found] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    held: OrderedDict[tuple[str, str], NDArray[np.integer]] = field(default_factory=OrderedDict)
    n_compared: int = 0

    def compare(
        self, candidate: Candidate, results: Mapping[str, MaskComparison] | None = None
    ) -> Pair:
        """What differs between two repeats, over the images that both segmented.

        Parameters
        ----------
        candidate : Candidate
        results : mapping of str to MaskComparison, optional
            By image, a against b, where the files were compared already.
        """
        a, b = candidate.a.repeat, candidate.b.repeat
        images = tuple(name for name in a.manifest.masks if name in b.manifest.masks)
        found = [
            self._found(image, a, b) if results is None else _essence(results[image])
            for image in images
        ]
        ppm = [1e6 * one.n_differing / one.n_pixels if one.n_pixels else 0.0 for one in found]
        worst = max(zip(images, ppm, strict=True), key=lambda e: e[1], default=("", -1.0))
        name_a, name_b = _names(candidate.axis, candidate.a, candidate.b)
        kinds = np.sum([one.kinds for one in found], axis=0) if found else [0] * len(_KINDS)
        return Pair(
            axis=candidate.axis,
            context=candidate.context,
            surroundings=candidate.surroundings,
            name_a=name_a,
            name_b=name_b,
            a=a,
            b=b,
            spec_a=candidate.a.spec,
            spec_b=candidate.b.spec,
            units=_units(candidate.axis, candidate.a, candidate.b),
            verdict=combine(one.verdict for one in found if one.verdict != Verdict.VACUOUS),
            found=_differences(images, found),
            kinds={kind: int(n) for kind, n in zip(_KINDS, kinds, strict=True)},
            worst=worst,
            settings=candidate.settings,
            setting=candidate.setting,
        )

    def _found(self, image: str, a: Repeat, b: Repeat) -> _Found:
        one, other = a.manifest.masks[image], b.manifest.masks[image]
        if one.canonical_digest == other.canonical_digest:
            n = one.n_objects
            equal = Verdict.IDENTICAL if one.digest == other.digest else Verdict.SAME_OBJECTS
            score = 0.0 if n else math.nan
            return _Found(
                equal if n else Verdict.VACUOUS,
                2 * n, 0, self._size(image, a), 0, score, score, (n, 0, 0, 0, 0, 0),
            )  # fmt: skip
        swapped = one.canonical_digest > other.canonical_digest
        first, second = (b, a) if swapped else (a, b)
        low, high = sorted((one.canonical_digest, other.canonical_digest))
        key = (image, low, high)
        if key not in self.known:
            self.known[key] = _essence(
                compare_masks(self._masks(image, first), self._masks(image, second))
            )
            self.n_compared += self.known[key].n_pixels
        found = self.known[key]
        if not swapped:
            return found
        return replace(found, kinds=tuple(found.kinds[i] for i in _SWAPPED))

    def _size(self, image: str, repeat: Repeat) -> int:
        if image not in self.sizes:
            self.sizes[image] = self._masks(image, repeat).size
        return self.sizes[image]

    def _masks(self, image: str, repeat: Repeat) -> NDArray[np.integer]:
        """Read, or still held from the last pairs that needed it."""
        key = (image, repeat.manifest.masks[image].digest)
        if key not in self.held:
            self.held[key] = repeat.masks(image)
            while len(self.held) > 2 and sum(m.size for m in self.held.values()) > _MOST_HELD:
                self.held.popitem(last=False)
        self.held.move_to_end(key)
        return self.held[key]


def _essence(result: MaskComparison) -> _Found:
    return _Found(
        verdict=result.verdict,
        n_objects=result.n_objects_a + result.n_objects_b,
        n_unmatched=result.n_unmatched,
        n_pixels=result.n_pixels,
        n_differing=result.n_differing,
        ap=1 - float(result.ap.mean()),
        ap50=1 - result.ap50,
        kinds=tuple(getattr(result, f"n_{kind}") for kind in _KINDS),
    )


def _differences(images: tuple[str, ...], found: Sequence[_Found]) -> Differences:
    def counts(name: str) -> NDArray[np.int64]:
        return np.array([getattr(one, name) for one in found], np.int64)

    return Differences(
        images=images,
        n_objects=counts("n_objects"),
        n_unmatched=counts("n_unmatched"),
        n_pixels=counts("n_pixels"),
        n_differing=counts("n_differing"),
        ap=np.array([one.ap for one in found], np.float64),
        ap50=np.array([one.ap50 for one in found], np.float64),
    )


# -- many pairs as arrays -------------------------------------------------------------------


def parts_of(pairs: Sequence[Pair], measure: str, images: Sequence[str]) -> tuple[Values, Values]:
    """Numerators and denominators, shape (P, I)."""
    parts = [pair.found.parts(measure, images) for pair in pairs]
    return np.stack([over for over, _ in parts]), np.stack([under for _, under in parts])


def images_of(pairs: Iterable[Pair]) -> list[str]:
    """Every image of some pairs, once."""
    return list(dict.fromkeys(image for pair in pairs for image in pair.found.images))


def n_showing(pairs: Sequence[Pair], images: Sequence[str]) -> int:
    """In how many images some pair shows an object at all."""
    if not pairs or not images:
        return 0
    return int(np.count_nonzero(parts_of(pairs, "changed", images)[1].sum(axis=0)))


def mean_of(pairs: Sequence[Pair], measure: str, images: Sequence[str]) -> float:
    """The mean over pairs of a measure over images; NaN over nothing."""
    if not pairs or not images:
        return math.nan
    over, under = parts_of(pairs, measure, images)
    with np.errstate(invalid="ignore"):
        return float(np.mean(over.sum(1) / under.sum(1)))
