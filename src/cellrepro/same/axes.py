"""Stored repeats that differ along one axis only, and what differs between their masks.

The axes are those of docs/spread.md. Of two devices, threads and instruction set count only where
both profiles set them. Two profiles that differ in several of device, threads and precision are a
pair along ``profile`` only, where no third profile lies between them.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellrepro.bits.digests import value_digest
from cellrepro.same.image_differences import ImageDifference
from cellrepro.same.names import Names, changed_versions, place_of, said, sort_key, versions_of
from cellrepro.same.over_images import kinds_over, verdict_over
from cellrepro.same.verdicts import Verdict
from cellrepro.store.store import Repeat

_OF_PROFILE = ("device", "threads", "precision")
AXES = (
    "repeats",
    "seed",
    "data_seed",
    "mode",
    "ranks",
    *_OF_PROFILE,
    "profile",
    "machine",
    "version",
)
"""All that makes results vary although the recipe is the same; ``threads`` is threads and
instruction set, ``profile`` several of what a profile sets at once."""

RANKS_DIFFER = (
    "another number of ranks gives other bits by design: gradients are summed in other groups, and "
    "each rank draws its own augmentation and dropped layers; equal numbers of ranks repeat"
)
"""Why runs of other numbers of ranks differ, however deterministic each is."""

MEASURES = ("changed", "ppm", "ap", "ap50")
"""Share of cells without a counterpart; differing pixels per million; 1 - AP, mean over IoU 0.5
to 0.95; 1 - AP at 0.5."""

DRAWN = ("seed", "data_seed")
"""Axes whose values are draws from many, not chosen ones."""

_PRECISION = (
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
"""Variables of a profile that round, and neither share work nor choose instructions."""

_DEPTH = 5
"""Pairs in one surrounding that show five values of an axis, each twice."""

# What may differ along an axis beside its own value. The numeric class follows from profile,
# machine and versions; alone it would be a machine's.
_FREED = {
    "device": ("threads", "profile", "machine", "version", "class"),
    "threads": ("profile", "class"),
    "precision": ("profile", "class"),
    "profile": (*_OF_PROFILE, "machine", "version", "class"),
    "machine": ("version", "class"),
    "version": ("class",),
    "cellpose": ("version", "class"),
}

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sample:
    """A stored repeat, and everything in which it could differ from another."""

    repeat: Repeat

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Every axis but repeats, every other field of the spec, and the numeric class.

        The ledger is none of them: observing a run changes none of its bits.
        """
        spec, machine = self.repeat.spec, self.repeat.manifest.machine
        by_profile = _set_by_profile(spec.profile_settings)
        asked = {name: value for name, value in spec.asked.items() if name != "ledger"}
        return {
            **asked,
            **by_profile,
            # One name may stand for two contents, and a content may have two names.
            "profile": tuple(by_profile.values()),
            "model": spec.model_digest or spec.model,
            "mode": spec.held,
            "machine": (machine.identity, machine.device),
            "version": tuple(sorted(versions_of(machine).items())),
            "class": machine.numeric_class,
        }

    def beside(self, other: Sample) -> bool:
        """Whether two devices are in one computer, as far as the manifests show."""
        one, two = (sample.repeat.manifest for sample in (self, other))
        same = (one.host.get(n) == two.host.get(n) for n in ("processor", "memory", "gpus"))
        return one.machine.identity == two.machine.identity or all(same)

    def but(self, *axes: str) -> tuple:
        """Everything, some axes excepted."""
        return tuple(value for name, value in self.facts.items() if name not in axes)

    def differs(self, other: Sample) -> set[str]:
        """In which facts two differ; threads of two devices, only where both set them."""
        found = {name for name in self.facts if self.facts[name] != other.facts[name]}
        unset = _set_by_profile({})["threads"]
        if "device" in found and unset in (self.facts["threads"], other.facts["threads"]):
            found.discard("threads")
        return found


def _set_by_profile(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Device; threads and instruction set; precision, as a profile sets them."""
    variables = sorted(settings.get("environment", {}).items())
    rounding = tuple(item for item in variables if item[0] in _PRECISION)
    sharing = tuple(item for item in variables if item[0] not in _PRECISION)
    processor = (settings.get(name) for name in ("threads", "cpu_capability"))
    return {
        "device": settings.get("device", "cpu"),
        "threads": (*processor, settings.get("onednn", True), sharing),
        "precision": (settings.get("dtype", "float32"), settings.get("tf32", False), rounding),
    }


@dataclass(frozen=True, eq=False)
class Pair:
    """Two repeats that differ along one axis only."""

    axis: str
    context: str  # in which context it differs, where this varies
    name_a: str  # what each side has on the axis
    name_b: str
    a: Repeat
    b: Repeat
    units: tuple[str, str]  # what a and b are on the axis, as the bootstrap draws it
    surroundings: str = ""  # the same for pairs that are alike in all but the axis
    settings: str = ""  # the same for pairs that are alike in all but the axis and `DRAWN`
    setting: str = ""  # what of these settings varies among the runs, in words
    images: Mapping[str, ImageDifference] = field(default_factory=dict)  # once they were compared

    @property
    def contrast(self) -> tuple:
        """The same for pairs that differ from each other in draws only."""
        drawn = self.axis in (*DRAWN, "repeats")
        return (self.settings, () if drawn else tuple(sorted(self.units)))

    @cached_property
    def verdict(self) -> Verdict:
        """Of the masks; images without any object do not count beside others."""
        return verdict_over(self.images.values())

    @property
    def n_images(self) -> int:
        """That both sides segmented."""
        return len(self.images)

    @property
    def kinds(self) -> dict[str, int]:
        """Objects kept, moved, lost, gained, split and merged over all images."""
        return kinds_over(self.images.values())

    def mean(self, measure: str) -> float:
        """One of `MEASURES` over all images; NaN over nothing."""
        return mean_of([self], measure, list(self.images))

    @property
    def changed(self) -> float:
        """Share of the cells of both sides without a counterpart at IoU 0.5; NaN over none."""
        return self.mean("changed")

    @property
    def ppm(self) -> float:
        """Differing pixels per million over all images; 0 over nothing."""
        return self.mean("ppm") if self.images else 0.0

    @cached_property
    def vacuous(self) -> bool:
        """Whether it proves nothing: neither side found an object, or nothing was trained."""
        if self.verdict == Verdict.VACUOUS:
            return True
        trained = [one.weights for one in self._manifests if one.weights is not None]
        return bool(trained) and not any(weights.n_changed for weights in trained)

    @property
    def one_sided(self) -> bool:
        """Whether only one side found any object."""
        return not self.vacuous and not all(manifest.n_objects for manifest in self._manifests)

    @property
    def weights_equal(self) -> bool | None:
        """Whether both ended in the same weights; None where none were trained."""
        first, second = (manifest.weights for manifest in self._manifests)
        return None if first is None or second is None else first.digest == second.digest

    @property
    def _manifests(self) -> tuple[Any, Any]:
        return self.a.manifest, self.b.manifest


# -- which repeats are a pair ----------------------------------------------------------------


def choose(samples: Sequence[Sample], axis: str, most: int, names: Names) -> tuple[list[Pair], int]:
    """Pairs along an axis, not compared yet, all surroundings in turn; and how many there are."""
    if axis != "repeats":  # one of several that differ in nothing: more would count twice
        samples = list({sample.but(): sample for sample in reversed(samples)}.values())[::-1]
    freed = (axis, *_FREED.get(axis, ()))
    groups: dict[tuple, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[(place_of(sample.repeat),) if axis == "repeats" else sample.but(*freed)].append(
            sample
        )
    for members in groups.values():
        members.sort(key=lambda sample: _order(axis, sample, names))
    found = [(members, _pairs_among(members, axis)) for members in groups.values()]
    n_pairs = sum(len(stream) for _, stream in found)
    streams = [stream for _, stream in _afforded(found, freed, most)]
    in_turn = (each for row in itertools.zip_longest(*streams) for each in row if each is not None)
    pairs = [_pair(axis, names, a, b) for a, b in itertools.islice(in_turn, most)]
    return pairs, n_pairs


_Pairs = list[tuple[Sample, Sample]]
_Stream = tuple[list[Sample], _Pairs]


def _afforded(streams: list[_Stream], freed: Sequence[str], most: int) -> list[_Stream]:
    """All surroundings; or, where one pair of each were all there is time for, fewer of them, each
    with several values of the axis: three seeds of one setting say what two of many never do.

    They are drawn by a digest of their settings, so that other axes take the same settings.
    """
    streams = [one for one in streams if one[1]]
    deepest = max((min(_DEPTH, len(a), len(pairs)) for a, pairs in streams), default=1)
    if len(streams) * deepest <= most:
        return streams

    def drawn(one: _Stream) -> tuple[str, str]:
        settings, all_else = (*AXES, *freed, "class"), one[0][0].but(*freed)
        return value_digest(str(one[0][0].but(*settings))), value_digest(str(all_else))

    return sorted(streams, key=drawn)[: max(1, most // deepest)]


def _pair(axis: str, names: Names, a: Sample, b: Sample) -> Pair:
    differs = {axis, "class", *a.differs(b)}
    if differs & {*_OF_PROFILE, "profile"}:
        differs |= {*_OF_PROFILE, "profile"}
    name_a, name_b = _sides(axis, a, b, names)
    place, of_spec = place_of(a.repeat), axis == "repeats"
    return Pair(
        axis=axis,
        context=names.short(place) if of_spec else names.context(place, differs),
        name_a=name_a,
        name_b=name_b,
        a=a.repeat,
        b=b.repeat,
        units=(_unit(axis, a), _unit(axis, b)),
        surroundings=str(a.but(*differs)),
        settings=str(a.but(*differs, *DRAWN)),
        setting=", ".join(names.words(place, {*differs, *DRAWN})),
    )


def _unit(axis: str, sample: Sample) -> str:
    if axis == "repeats":
        return sample.repeat.name
    facts = {
        **dict.fromkeys((*_OF_PROFILE, "profile"), ("profile", "machine", "version")),
        "machine": ("machine", "class"),
    }.get(axis, (axis,))
    return str([sample.facts[name] for name in facts])


def _named(axis: str) -> str:
    """The field under which the values of an axis are named."""
    return "profile" if axis in _OF_PROFILE else axis


def _order(axis: str, sample: Sample, names: Names) -> tuple:
    if axis == "repeats":
        return (sample.repeat.index,)
    value = names.facts[place_of(sample.repeat)].get(_named(axis), "")
    return sort_key(_named(axis), value), str(sample.facts[axis]), sample.repeat.name


def _sides(axis: str, a: Sample, b: Sample, names: Names) -> list[str]:
    """What two sides are called by the axis alone."""
    both = (a, b)
    if axis == "repeats":
        return [f"repeat {side.repeat.index}" for side in both]
    if axis == "version":
        return changed_versions([side.repeat.manifest.machine for side in both])
    facts = [names.facts[place_of(side.repeat)] for side in both]
    sides = [said(_named(axis), of_side[_named(axis)]) for of_side in facts]
    if _named(axis) == "profile" and not a.beside(b):
        sides = [f"{name} on {f['machine']}" for name, f in zip(sides, facts, strict=True)]
    return sides


def _pairs_among(members: Sequence[Sample], axis: str) -> _Pairs:
    """Those in one surrounding; any first part of them shows each member about equally often."""
    n = len(members)
    steps = [(i, k) for k in range(1, n // 2 + 1) for i in range(n // 2 if 2 * k == n else n)]
    circle = (sorted([i, (i + k) % n]) for i, k in steps)  # each with its k-th neighbour
    pairs = [(members[i], members[j]) for i, j in circle]
    if axis in _FREED:
        pairs = [(a, b) for a, b in pairs if _is_pair(axis, a, b)]
    if axis == "profile":
        pairs = [(a, b) for a, b in pairs if not any(_between(a, b, one) for one in members)]
    return _on_one_computer(pairs) if axis in ("device", "profile") else pairs


def _is_pair(axis: str, a: Sample, b: Sample) -> bool:
    """Whether two that are alike in all but what an axis frees differ along it, and only there."""
    differs = a.differs(b)
    of_profile = differs & {*_OF_PROFILE}
    libraries_alike = a.repeat.manifest.machine.versions == b.repeat.manifest.machine.versions
    if axis == "machine":  # its driver and CUDA go with it, its libraries do not
        other = axis in differs or ("class" in differs and "version" not in differs)
        return other and libraries_alike
    if axis in ("version", "cellpose"):
        return axis in differs
    # Each device has a driver of its own, or none.
    same = libraries_alike if "device" in differs else not differs & {"machine", "version"}
    return same and (len(of_profile) > 1 if axis == "profile" else of_profile == {axis})


def _between(a: Sample, b: Sample, third: Sample) -> bool:
    """Whether a third differs from each of two in one of what a profile sets."""
    return all(len(third.differs(side) & {*_OF_PROFILE}) == 1 for side in (a, b))


def _on_one_computer(pairs: _Pairs) -> _Pairs:
    """Devices are compared inside one computer; across two where none has both."""
    by_profiles: dict[Any, _Pairs] = defaultdict(list)
    for a, b in pairs:
        by_profiles[a.facts["profile"], b.facts["profile"]].append((a, b))
    beside = ([p for p in some if p[0].beside(p[1])] or some for some in by_profiles.values())
    return list(itertools.chain.from_iterable(beside))


def parts_of(pairs: Sequence[Pair], measure: str, images: Sequence[str]) -> tuple[Values, Values]:
    """Numerators and denominators of a measure, shape (P, I); 0 for an image a pair has not."""
    nothing = (0.0, 0.0)
    parts = [
        [pair.images[image].part(measure) if image in pair.images else nothing for image in images]
        for pair in pairs
    ]
    both = np.array(parts, np.float64).reshape(len(pairs), len(images), 2)
    return both[..., 0], both[..., 1]


def images_of(pairs: Iterable[Pair]) -> list[str]:
    """Every image of some pairs, once."""
    return list(dict.fromkeys(image for pair in pairs for image in pair.images))


def mean_of(pairs: Sequence[Pair], measure: str, images: Sequence[str]) -> float:
    """The mean over pairs of a measure over images; NaN over nothing."""
    if not pairs or not images:
        return math.nan
    over, under = parts_of(pairs, measure, images)
    with np.errstate(invalid="ignore"):
        return float(np.mean(over.sum(1) / under.sum(1)))
