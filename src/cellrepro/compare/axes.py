"""Stored repeats that differ along one axis only, and what differs between their masks.

Everything that makes results vary is an *axis*: repeats of one spec on one machine, seed, data
seed, mode, what a profile sets (device; threads and instruction set; precision), machine, versions
of libraries. Two repeats that are alike in all but one of them are a pair.

Threads and instruction set are those of the processor: of two devices they count only where both
profiles set them. Two profiles that differ in several of the three are no pair along any of these;
they are one along an axis of its own, ``profile``, where no third profile lies between them.
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

from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.compare.names import Names, changed_versions, place_of, said, sort_key, versions_of
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weights import compare_weights
from cellrepro.store.digests import value_digest
from cellrepro.store.spec import PARAMETERS, Spec
from cellrepro.store.store import Repeat

AXES = (
    *("repeats", "seed", "data_seed", "mode"),
    *("device", "threads", "precision", "profile", "machine", "version"),
)
"""All that makes results vary although the recipe is the same; ``threads`` is threads and
instruction set, ``profile`` several of what a profile sets at once."""

MEASURES = ("changed", "ppm", "ap", "ap50")
"""Share of cells without a counterpart; differing pixels per million; 1 - AP, mean over IoU 0.5
to 0.95; 1 - AP at 0.5."""

DRAWN = ("seed", "data_seed")
"""Axes whose values are draws from many, not chosen ones."""

_OF_PROFILE = ("device", "threads", "precision")
_PRECISION = (
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
"""Variables of a profile that round, and neither share work nor choose instructions."""

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

    @property
    def place(self) -> str:
        """Spec and machine: ``KEY/MACHINE``."""
        return place_of(self.repeat)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Every axis but repeats, every other field of the spec, and the numeric class."""
        spec, machine = self.spec, self.repeat.manifest.machine
        facts: dict[str, Any] = {name: getattr(spec, name) for name in PARAMETERS}
        facts |= _set_by_profile(spec.profile_settings)
        # One name may stand for two contents, and a content may have two names.
        facts["profile"] = tuple(facts[name] for name in _OF_PROFILE)
        facts["model"] = spec.model_digest or spec.model
        facts["mode"] = spec.held
        facts["machine"] = (machine.identity, machine.device)
        facts["version"] = tuple(sorted(versions_of(machine).items()))
        facts["class"] = machine.numeric_class
        return facts

    def beside(self, other: Sample) -> bool:
        """Whether two devices are in one computer, as far as the manifests tell."""
        one, two = (sample.repeat.manifest for sample in (self, other))
        same = (one.host.get(n) == two.host.get(n) for n in ("processor", "memory", "gpus"))
        return one.machine.identity == two.machine.identity or all(same)

    def but(self, *axes: str) -> tuple:
        """Everything, some axes excepted."""
        return tuple(value for name, value in self.facts.items() if name not in axes)

    def apart(self, other: Sample) -> set[str]:
        """In which facts two differ; threads of two devices, only where both set them."""
        found = {name for name in self.facts if self.facts[name] != other.facts[name]}
        unset = _set_by_profile({})["threads"]
        if "device" in found and unset in (self.facts["threads"], other.facts["threads"]):
            found.discard("threads")
        return found


def _set_by_profile(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Device; threads and instruction set; precision, as a profile sets them."""
    variables = settings.get("environment", {})
    rounding = {name: variables[name] for name in _PRECISION if name in variables}
    sharing = {name: value for name, value in variables.items() if name not in rounding}
    return {
        "device": settings.get("device", "cpu"),
        "threads": (
            settings.get("threads"),
            tuple(sorted(sharing.items())),
            settings.get("cpu_capability"),
            settings.get("onednn", True),
        ),
        "precision": (
            settings.get("dtype", "float32"),
            settings.get("tf32", False),
            tuple(sorted(rounding.items())),
        ),
    }


# What may differ along an axis beside its own value. The numeric class follows from profile,
# machine and versions; alone it would be a machine's.
_FREED = {
    "device": ("threads", "profile", "machine", "version", "class"),
    "threads": ("profile", "class"),
    "precision": ("profile", "class"),
    "profile": (*_OF_PROFILE, "machine", "version", "class"),
    "machine": ("version", "class"),
    "version": ("class",),
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
    names: tuple[str, str] = ("", "")


def choose(
    samples: Sequence[Sample], axis: str, most: int, *, names: Names | None = None
) -> tuple[list[Candidate], int]:
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
    names : Names, optional
        Under which the samples are shown; by default of these alone.

    Returns
    -------
    chosen : list of Candidate
    n_pairs : int
        Also of those not chosen.
    """
    names = names or Names.of((sample.spec, sample.repeat) for sample in samples)
    freed = (axis, *_FREED.get(axis, ()))
    contexts: dict[tuple, list[Sample]] = defaultdict(list)
    for sample in samples if axis == "repeats" else _first_of_each(samples):
        contexts[(sample.place,) if axis == "repeats" else sample.but(*freed)].append(sample)
    streams, n_pairs = [], 0
    for number, members in enumerate(contexts.values()):
        members.sort(key=lambda sample: _order(axis, sample, names))
        n, turns = _pairs_among(members, axis)
        n_pairs += n
        streams.append(_candidates(axis, members, names, number, turns))
    return list(itertools.islice(_in_turn(streams), most)), n_pairs


def _candidates(
    axis: str,
    members: Sequence[Sample],
    names: Names,
    number: int,
    turns: Iterable[tuple[int, int]],
) -> Iterator[Candidate]:
    for i, j in turns:
        a, b = members[i], members[j]
        differs = {axis, "class", *a.apart(b)}
        if differs & {*_OF_PROFILE, "profile"}:
            differs |= {*_OF_PROFILE, "profile"}
        surroundings, settings = (
            value_digest([str(fact) for fact in a.but(*but)])
            for but in (differs, {*differs, *DRAWN})
        )
        yield Candidate(
            axis,
            names.short(a.place) if axis == "repeats" else names.context(a.place, differs),
            surroundings,
            a,
            b,
            (number, i, j),
            settings,
            names.words(a.place, {*differs, *DRAWN}),
            _sides(axis, a, b, names),
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
    if axis not in _FREED:
        return n * (n - 1) // 2, _evenly(n)
    pairs = [(i, j) for i, j in _evenly(n) if _is_pair(axis, members[i], members[j])]
    if axis == "profile":
        pairs = [(i, j) for i, j in pairs if not _between(members, i, j)]
    if axis in ("device", "profile"):
        pairs = _on_one_computer(members, pairs)
    return len(pairs), pairs


def _is_pair(axis: str, a: Sample, b: Sample) -> bool:
    """Whether two that are alike in all but what an axis frees differ along it, and only there."""
    apart = a.apart(b)
    of_profile = apart & {*_OF_PROFILE}
    first, second = (sample.repeat.manifest.machine for sample in (a, b))
    libraries_alike = first.versions == second.versions
    if axis == "machine":  # its driver and CUDA go with it, its libraries do not
        moved = axis in apart or ("class" in apart and "version" not in apart)
        return moved and libraries_alike
    if axis == "version":
        return axis in apart
    # Each device has a driver of its own, or none.
    same = libraries_alike if "device" in apart else not apart & {"machine", "version"}
    return same and (len(of_profile) > 1 if axis == "profile" else of_profile == {axis})


def _between(members: Sequence[Sample], i: int, j: int) -> bool:
    """Whether a third differs from each of two in one of what a profile sets."""

    def n_steps(k: int, side: int) -> int:
        return len(members[k].apart(members[side]) & {*_OF_PROFILE})

    return any(n_steps(k, i) == n_steps(k, j) == 1 for k in range(len(members)))


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


def _on_one_computer(
    members: Sequence[Sample], pairs: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Devices are compared inside one computer; across two where none has both."""
    by_profiles: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for i, j in pairs:
        by_profiles[members[i].facts["profile"], members[j].facts["profile"]].append((i, j))
    chosen = []
    for group in by_profiles.values():
        same = [(i, j) for i, j in group if members[i].beside(members[j])]
        chosen += same or group
    return chosen


def _order(axis: str, sample: Sample, names: Names) -> tuple:
    if axis == "repeats":
        return (sample.repeat.index,)
    named = "profile" if axis in _OF_PROFILE else axis
    facts = names.facts[sample.place]
    return sort_key(named, facts.get(named, "")), str(sample.facts[axis]), sample.repeat.name


def _sides(axis: str, a: Sample, b: Sample, names: Names) -> tuple[str, str]:
    """What two sides are called by the axis alone."""
    if axis == "repeats":
        return f"repeat {a.repeat.index}", f"repeat {b.repeat.index}"
    if axis == "version":
        sides = [versions_of(sample.repeat.manifest.machine) for sample in (a, b)]
        moved = changed_versions(sides)
        first, second = (", ".join(f"{n} {s.get(n, 'absent')}" for n in moved) for s in sides)
        return first, second
    named = "profile" if axis in _OF_PROFILE else axis
    first, second = (said(named, names.facts[sample.place][named]) for sample in (a, b))
    if named == "profile" and not a.beside(b):
        first, second = (
            f"{side} on {names.facts[sample.place]['machine']}"
            for side, sample in ((first, a), (second, b))
        )
    if first == second:  # of one name, and yet of other bits
        digests = [value_digest([str(s.facts[axis]), s.facts["class"]])[:6] for s in (a, b)]
        return f"{first} ({digests[0]})", f"{second} ({digests[1]})"
    return first, second


def _units(axis: str, a: Sample, b: Sample) -> tuple[str, str]:
    if axis == "repeats":
        return a.repeat.name, b.repeat.name
    units = {
        **dict.fromkeys((*_OF_PROFILE, "profile"), ("profile", "machine", "version")),
        "machine": ("machine", "class"),
        "": ("seed",),
    }.get(axis, (axis,))
    first, second = (str([sample.facts[name] for name in units]) for sample in (a, b))
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
        name_a, name_b = candidate.names
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
        kinds=tuple(result.kinds[kind] for kind in _KINDS),
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
