"""A measured tolerance in words, for the terminal and the documentation of a package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bioimageio.measured_tolerance import MeasuredTolerance, Place
from cellrepro.exchange.bioimageio.tolerance import HiddenObjects, Tolerance
from samebits.words import amount, joined, with_verb


def tolerance_text(tolerance: Tolerance) -> str:
    """The three numbers of a tolerance.

    >>> tolerance_text(Tolerance(5.3e-06, 5.2e-05, 0))
    'relative 5.3e-06, absolute 5.2e-05, no element may differ by more'
    """
    share = "no element may differ by more"
    if tolerance.mismatched_elements_per_million:
        n_elements = tolerance.mismatched_elements_per_million
        share = f"{n_elements} elements per million may differ by more"
    relative = f"relative {tolerance.relative_tolerance:.2g}"
    return f"{relative}, absolute {tolerance.absolute_tolerance:.2g}, {share}"


def machine_text(measured: MeasuredTolerance) -> str:
    """On what a tolerance was measured, as the end of a sentence."""
    by_device: dict[str, list[Place]] = {}
    for place in measured.places:
        by_device.setdefault(_device_text(place), []).append(place)
    described = [
        f"{device}; profiles {joined([_profile_text(place) for place in places])}"
        for device, places in by_device.items()
    ]
    has_gpu = any(place.outputs[0].machine.cuda for place in measured.places)
    without = "" if has_gpu else "; no NVIDIA GPU was among them"
    return (
        f"taken from {amount(measured.n_outputs, 'measurement')}, each in a process of its own, on "
        f"one machine, {measured.places[0].outputs[0].machine.label} "
        f"({'; '.join(described)}){without}"
    )


def _device_text(place: Place) -> str:
    """A device and its version of PyTorch."""
    machine = place.outputs[0].machine
    cuda = "" if machine.cuda is None else f", CUDA {machine.cuda}"
    return f"{machine.device}, PyTorch {machine.versions.get('torch', 'unknown')}{cuda}"


def _profile_text(place: Place) -> str:
    threads = max(measured.threads for measured in place.outputs)
    return f"{place.profile} with {amount(threads, 'thread')}"


def hiding_text(hidden: HiddenObjects) -> str:
    """What could hide in a tolerance, compared with the smallest object of the run."""
    if hidden.n_pixels == 0:
        by_count = "No element may be wrong, so no object can be missing altogether."
    else:
        by_count = (
            f"An object of up to {amount(hidden.n_pixels, 'pixel')} could be missing altogether "
            f"(a disk of {hidden.diameter:.0f} pixels in diameter): each takes one wrong element."
        )
    pixels = with_verb(
        hidden.n_uncertain_pixels, "pixel", "of the test output lies", "of the test output lie"
    )
    them = "it" if hidden.n_uncertain_pixels == 1 else "them"
    objects = with_verb(hidden.n_uncertain_objects, "object", "consists", "consist")
    uncertain = (
        f"{pixels} so near to the threshold of the probability that the tolerance may move {them} "
        f"across it, and {objects} of such pixels alone."
    )
    if hidden.smallest_object is None:
        smallest = "The run has found no object to hold that against."
    else:
        size = amount(hidden.smallest_object, "pixel")
        smallest = f"The smallest object that the run has found has {size}."
    return f"{by_count} {uncertain} {smallest}"


def objects_text(measured: MeasuredTolerance) -> str:
    """Whether all outputs give the same objects."""
    n_objects = int(measured.masks.max())
    words = {
        Verdict.IDENTICAL: f"the same {amount(n_objects, 'object')}, in every pixel and number",
        Verdict.SAME_OBJECTS: f"the same {amount(n_objects, 'object')} under other numbers",
        Verdict.VACUOUS: "no object at all, which proves nothing",
    }
    return words.get(measured.verdict, "masks that differ")


def factor_text(measured: MeasuredTolerance) -> str:
    """The factor that would also have held a place had it not been measured."""
    needed = measured.factor_needed
    if needed is None:
        return "Too few places differ to say how far another one may lie."
    return (
        "Had any one of the places not been measured, what the others say would have to be "
        f"multiplied by at most {needed:.1f} to hold it."
    )


def default_text(measured: MeasuredTolerance) -> str:
    """Whether the default of the specification would hold the outputs, too."""
    holds = "holds them, too" if measured.default_holds else "does not hold them"
    return f"What counts where a package says nothing (0.001, 0.001, 100 per million) {holds}."


def not_measured(not_possible: Mapping[str, str]) -> list[str]:
    """The profiles that this machine lacks, in a sentence; none if it has all."""
    if not not_possible:
        return []
    return [f"Not to be had where the package was made: {joined(list(not_possible))}."]


def place_lines(places: Sequence[Place]) -> list[str]:
    """A line for each place."""
    return [
        f"  {place.profile} on {place.machine}: largest difference "
        f"{place.largest_difference:.1e}, masks {place.masks}"
        for place in places
    ]


def place_rows(places: Sequence[Place]) -> list[dict[str, object]]:
    """A row for each place, for a table."""
    return [
        {
            "machine": place.machine,
            "profile": place.profile,
            "threads": place.threads,
            "processes": place.processes,
            "distinct outputs": place.distinct_outputs,
            "largest difference": f"{place.largest_difference:.1e}",
            "masks": str(place.masks),
        }
        for place in places
    ]
