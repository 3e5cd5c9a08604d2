"""What `export` answers of a package of bioimage.io: its tolerance, and what that rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer

if TYPE_CHECKING:
    from cellrepro.exchange.bioimageio.measured_tolerance import Place
    from cellrepro.exchange.bioimageio.package import BioimageioPackage, MeasuredElsewhere


@dataclass(frozen=True)
class ToleranceDocument:
    """The ``reproducibility_tolerance`` of a package, in the words of bioimage.io."""

    relative_tolerance: float
    """Part of an element of the test output."""
    absolute_tolerance: float
    """Added to that."""
    mismatched_elements_per_million: int
    """Elements that may differ by more."""


@dataclass(frozen=True)
class PlaceDocument:
    """A machine under a profile, and how far its outputs lay from the test output."""

    machine: str
    """Its name."""
    device: str
    """The processor's or the GPU's name."""
    profile: str
    """Its name."""
    threads: int
    """Of PyTorch on the processor."""
    processes: int
    """Measurements, each in a process of its own."""
    distinct_outputs: int
    """Of these that differ in any bit."""
    largest_difference: float
    """Of any element, over the sum of the largest element and that element."""
    masks: str
    """What became of the objects: ``identical``, ``same-objects``, ``different``, ``vacuous``."""


@dataclass(frozen=True)
class HiddenByToleranceDocument:
    """What a tolerance could hide in the test output."""

    n_pixels: int
    """An object of so many pixels could be missing altogether."""
    diameter: float
    """Of a disk of so many pixels, in pixels."""
    n_uncertain_pixels: int
    """Pixels that the tolerance may move across the threshold of the probability."""
    n_uncertain_objects: int
    """Objects that consist of such pixels alone."""
    smallest_object: int | None
    """Pixels of the smallest object in the masks of the run; null where it found none."""


@dataclass(frozen=True)
class PackageDocument:
    """What ``cellrepro export RUN NAME.bioimageio.zip --json`` prints."""

    file: str | Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: Sequence[str]
    """KEY/MACHINE/REPEAT of the repeat whose network is in it."""
    tolerance: ToleranceDocument
    """As the package says it."""
    factor: float
    """By which the largest measured difference was multiplied."""
    factor_needed: float | None
    """Had one of the places not been measured, by how much the differences of the others would have
    to be multiplied to hold it; null where too few differ."""
    default_holds: bool
    """Whether all outputs keep the tolerance that counts where a package says nothing."""
    measured: Sequence[PlaceDocument]
    """Every machine and profile; that of the test output first."""
    hidden: HiddenByToleranceDocument
    """What the tolerance could hide."""
    not_possible: Mapping[str, str]
    """Profiles that this machine does not have, and why."""
    missing: Sequence[str]
    """What the collection of bioimage.io asks for beyond its specification: authors, a licence."""


@dataclass(frozen=True)
class MeasuredElsewhereDocument:
    """What ``cellrepro export RUN NAME.measured.safetensors --json`` prints."""

    file: str | Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: Sequence[str]
    """KEY/MACHINE/REPEAT of the repeat whose network was run."""
    n_outputs: int
    """Measurements in it."""
    not_possible: Mapping[str, str]
    """Profiles that this machine does not have, and why."""


def package_answer(package: BioimageioPackage) -> Answer[PackageDocument]:
    """Answer with the tolerance of a new package."""
    from cellrepro.exchange.bioimageio.measured_words import (
        default_text,
        factor_text,
        hiding_text,
        machines_text,
        objects_text,
        tolerance_text,
    )

    measured = package.measured
    tolerance = measured.tolerance
    hidden = measured.hidden
    document = PackageDocument(
        file=package.file,
        digest=package.digest,
        runs=[package.run],
        tolerance=ToleranceDocument(
            relative_tolerance=tolerance.relative,
            absolute_tolerance=tolerance.absolute,
            mismatched_elements_per_million=tolerance.per_million,
        ),
        factor=measured.factor,
        factor_needed=measured.factor_needed,
        default_holds=measured.default_holds,
        measured=[_place_document(place) for place in measured.places],
        hidden=HiddenByToleranceDocument(
            n_pixels=hidden.n_pixels,
            diameter=hidden.diameter,
            n_uncertain_pixels=hidden.n_uncertain_pixels,
            n_uncertain_objects=hidden.n_uncertain_objects,
            smallest_object=package.smallest_object,
        ),
        not_possible=package.not_possible,
        missing=package.missing,
    )
    lines = [
        f"{package.file}: network of {package.run}",
        f"tolerance: {tolerance_text(tolerance)}",
        f"  {measured.factor:g} times the largest difference, {machines_text(measured)}",
        *[
            f"  {place.profile} on {place.machine}: largest difference "
            f"{place.largest_difference:.1e}, masks {place.masks}"
            for place in document.measured
        ],
        f"  from all of these outputs Cellpose makes {objects_text(measured)}",
        f"  {factor_text(measured)}",
        f"  {default_text(measured)}",
        hiding_text(measured, smallest_object=package.smallest_object),
        *_not_possible_lines(package.not_possible),
        *package.missing,
    ]
    return Answer(document, lines)


def _place_document(place: Place) -> PlaceDocument:
    circumstances = place.measured[0].circumstances
    return PlaceDocument(
        machine=circumstances.machine.name,
        device=circumstances.machine.device,
        profile=circumstances.profile,
        threads=circumstances.threads,
        processes=len(place.measured),
        distinct_outputs=place.n_distinct,
        largest_difference=place.difference,
        masks=str(place.masks),
    )


def measured_elsewhere_answer(
    measured: MeasuredElsewhere,
) -> Answer[MeasuredElsewhereDocument]:
    """Answer with what is in a new file of measurements."""
    document = MeasuredElsewhereDocument(
        file=measured.file,
        digest=measured.digest,
        runs=[measured.run],
        n_outputs=measured.n_outputs,
        not_possible=measured.not_possible,
    )
    lines = [measured.sentence(), *_not_possible_lines(measured.not_possible)]
    return Answer(document, lines)


def _not_possible_lines(not_possible: Mapping[str, str]) -> list[str]:
    if not not_possible:
        return []
    names = ", ".join(not_possible)
    return [
        f"not to be had on this machine: {names}; measure there with `cellrepro export RUN "
        "NAME.measured.safetensors --bioimageio`, and give the file with --measured"
    ]
