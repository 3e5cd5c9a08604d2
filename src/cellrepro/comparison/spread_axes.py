"""The axes along which results may vary although the recipe is the same: rules and words.

docs/spread.md says what each is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

OF_PROFILE = ("device", "threads", "precision")
"""What a profile sets; ``threads`` is threads and instruction set."""

HOW_COMPUTED = ("mode", *OF_PROFILE, "profile", "class")
"""The facts that say how the same was computed, on one machine with one set of libraries."""

OBSERVING = "ledger"
"""The field of a spec that is no axis: observing a run changes none of its bits."""

AXES = (
    "repeats",
    "seed",
    "data_seed",
    "mode",
    "ranks",
    *OF_PROFILE,
    "profile",
    "machine",
    "version",
)
"""Those of which a spread is measured; ``profile`` is several of what a profile sets at once."""

DRAWN = ("seed", "data_seed")
"""Axes whose values are draws from many, not chosen ones."""

RANKS_DIFFER = (
    "outside mode portable a different number of ranks gives different bits: gradients are "
    "summed in other groups, and each rank draws its own augmentation and dropped layers; equal "
    "numbers of ranks repeat"
)
"""Why runs of different numbers of ranks differ, however deterministic each is."""

ROUNDING_VARIABLES = (
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Variables of a profile that round, and neither share work nor choose instructions."""


@dataclass(frozen=True)
class PairingRule:
    """How pairs along one axis are found, and what their sides are called."""

    named_by: str
    """The field under which the values of the axis are named."""
    unit: tuple[str, ...]
    """The facts that make up a value of the axis, as the bootstrap draws it."""
    may_differ: tuple[str, ...] = ()
    """The facts that may differ beside the axis. The numeric class follows from profile, machine
    and versions; alone it would be a machine's."""
    prefers_one_computer: bool = False
    """Whether pairs across two computers count only where none is inside one."""


_DEVICE_IN_A_MACHINE = ("profile", "machine", "version")

_RULES = {
    "device": PairingRule(
        named_by="profile",
        unit=_DEVICE_IN_A_MACHINE,
        may_differ=("threads", "profile", "machine", "version", "class"),
        prefers_one_computer=True,
    ),
    "threads": PairingRule(
        named_by="profile", unit=_DEVICE_IN_A_MACHINE, may_differ=("profile", "class")
    ),
    "precision": PairingRule(
        named_by="profile", unit=_DEVICE_IN_A_MACHINE, may_differ=("profile", "class")
    ),
    "profile": PairingRule(
        named_by="profile",
        unit=_DEVICE_IN_A_MACHINE,
        may_differ=(*OF_PROFILE, "machine", "version", "class"),
        prefers_one_computer=True,
    ),
    "machine": PairingRule(
        named_by="machine", unit=("machine", "class"), may_differ=("version", "class")
    ),
    "version": PairingRule(named_by="version", unit=("version",), may_differ=("class",)),
    "cellpose": PairingRule(
        named_by="cellpose", unit=("cellpose",), may_differ=("version", "class")
    ),
}


def rule_of(axis: str) -> PairingRule:
    """The rule of an axis: along a field without one, pairs differ in that field alone."""
    return _RULES.get(axis) or PairingRule(named_by=axis, unit=(axis,))


# -- what axes are called --------------------------------------------------------------------


ONLY_THREADS = "number of threads"
"""What the axis ``threads`` is called where no pair differs in the instruction set."""


class AxisWords(NamedTuple):
    """The words for an axis."""

    title: str
    """The things that differ along it."""
    doing: str
    """The change that is made."""


_WORDS = {
    "repeats": AxisWords("repeats of one spec", "repeating the same spec"),
    "threads": AxisWords("threads and instruction sets", "changing threads or instruction set"),
    ONLY_THREADS: AxisWords("numbers of threads", "changing the number of threads"),
    "profile": AxisWords(
        "profiles that differ in several settings",
        "changing several settings of the profile at once",
    ),
    "version": AxisWords("versions of libraries", "changing a library's version"),
    "ranks": AxisWords("numbers of ranks", "changing the number of ranks"),
    "cellpose": AxisWords("versions of Cellpose", "changing the version of Cellpose"),
    "epochs": AxisWords("numbers of epochs", "changing the epochs"),
    "images_per_epoch": AxisWords("images per epoch", "changing the images per epoch"),
}
"""Of the axes whose words do not follow from their names."""


def words_of(axis: str) -> AxisWords:
    """Give the words for an axis; those of its field, where nothing else is said here."""
    if axis in _WORDS:
        return _WORDS[axis]
    if axis.startswith("settings."):  # by Cellpose's own name
        setting = axis.removeprefix("settings.")
        return AxisWords(f"values of {setting}", f"changing {setting}")
    words = axis.replace("_", " ")
    return AxisWords(f"{words}s", f"changing the {words}")
