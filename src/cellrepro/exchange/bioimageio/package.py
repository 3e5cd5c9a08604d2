"""Export of a run as a package of bioimage.io, and the measurements for one made elsewhere."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cellrepro.digests.digests import file_digest
from cellrepro.errors import BadInput
from cellrepro.exchange.archive.writing import Outgoing, write_zip
from cellrepro.exchange.bioimageio import measured_words
from cellrepro.exchange.bioimageio.credits import Credits
from cellrepro.exchange.bioimageio.input_tile import Scaling, choose_tile
from cellrepro.exchange.bioimageio.measured_file import (
    MEASUREMENTS_ENDING,
    MeasuredSubject,
    read_measured,
    write_measured,
)
from cellrepro.exchange.bioimageio.measured_tolerance import MeasuredTolerance, Place, judge_outputs
from cellrepro.exchange.bioimageio.package_files import Package, PackagedRun
from cellrepro.exchange.bioimageio.packaged_weights import packaged_weights
from cellrepro.exchange.bioimageio.resource_description import refuse_unknown_license
from cellrepro.exchange.bioimageio.tolerance import USUAL_FACTOR, HiddenObjects, Tolerance
from cellrepro.extras import absent, needs
from cellrepro.results import Result, Row, derived
from cellrepro.spec import defaults
from cellrepro.store.new_files import new_file
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import amount

PACKAGE_ENDING = ".bioimageio.zip"
USUAL_REPEATS = 2
"""Processes that measure under each profile."""


@dataclass(frozen=True, repr=False)
class BioimageioPackage(Result):
    """A package of bioimage.io that was written, and the tolerance in it."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: tuple[str, ...]
    """KEY/MACHINE/REPEAT of the repeat whose network is in it."""
    not_possible: Mapping[str, str]
    """Profiles that this machine does not have, and why."""
    missing: tuple[str, ...]
    """What the collection of bioimage.io asks for beyond its specification: authors, a licence."""
    _judged: MeasuredTolerance
    """The tolerance, and what it rests on."""

    @derived
    def tolerance(self) -> Tolerance:
        """As the package says it."""
        return self._judged.tolerance

    @derived
    def factor(self) -> float:
        """Safety factor on the largest measured difference."""
        return self._judged.factor

    @derived
    def factor_needed(self) -> float | None:
        """Had one of the places not been measured, by how much the differences of the others would
        have to be multiplied to hold it; null where too few differ."""
        return self._judged.factor_needed

    @derived
    def default_holds(self) -> bool:
        """Whether all outputs keep the tolerance that counts where a package says nothing."""
        return self._judged.default_holds

    @derived
    def measured(self) -> tuple[Place, ...]:
        """Every machine and profile; that of the test output first."""
        return self._judged.places

    @derived
    def hidden(self) -> HiddenObjects:
        """What the tolerance could hide."""
        return self._judged.hidden

    def sentence(self) -> str:
        """Say the tolerance, on which machines it was measured, and what it could hide."""
        return (
            f"{self.file.name}: {measured_words.tolerance_text(self.tolerance)}; "
            f"{measured_words.machines_text(self._judged)}. "
            f"{measured_words.hiding_text(self.hidden)}"
        )

    def rows(self) -> Sequence[Row]:
        """Give one row for each machine and profile."""
        return measured_words.place_rows(self.measured)

    def lines(self) -> Sequence[str]:
        """Give the tolerance with all that it rests on, and what is missing."""
        (run,) = self.runs
        judged = self._judged
        machines = measured_words.machines_text(judged)
        return [
            f"{self.file}: network of {run}",
            f"tolerance: {measured_words.tolerance_text(self.tolerance)}",
            f"  {self.factor:g} times the largest difference, {machines}",
            *measured_words.place_lines(self.measured),
            f"  from all of these outputs Cellpose makes {measured_words.objects_text(judged)}",
            f"  {measured_words.factor_text(judged)}",
            f"  {measured_words.default_text(judged)}",
            measured_words.hiding_text(self.hidden),
            *measured_words.measure_there(self.not_possible),
            *self.missing,
        ]


@dataclass(frozen=True, repr=False)
class MeasuredElsewhere(Result):
    """A file of measurements that was written for a package that is made on another machine."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: tuple[str, ...]
    """KEY/MACHINE/REPEAT of the repeat whose network was run."""
    n_outputs: int
    """Measurements in it."""
    not_possible: Mapping[str, str]
    """Profiles that this machine does not have, and why."""

    def sentence(self) -> str:
        """Say how many measurements there are, and what to do with the file."""
        (run,) = self.runs
        return (
            f"{self.file.name}: {amount(self.n_outputs, 'output')} of the network of {run}; "
            f"where the package is made, give --measured {self.file.name}"
        )

    def lines(self) -> Sequence[str]:
        """Give the sentence, and what else could be measured."""
        return [self.sentence(), *measured_words.measure_there(self.not_possible)]


def export_bioimageio(
    run: str,
    file: str | Path,
    *,
    authors: Sequence[str] = (),
    license: str | None = None,
    cite: Sequence[str] = (),
    name: str | None = None,
    image: str | None = None,
    profiles: Sequence[str] | None = None,
    repeats: int = USUAL_REPEATS,
    measured: Sequence[str | Path] = (),
    factor: float = USUAL_FACTOR,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> BioimageioPackage:
    """Write the network of a run as a package of bioimage.io, with a tolerance that was measured.

    Parameters
    ----------
    run : str
        ``KEY``, ``KEY/REPEAT`` or ``KEY/MACHINE/REPEAT``.
    file : str or Path
        ``NAME.bioimageio.zip``, not there yet.
    authors : sequence of str
        Each ``NAME`` or ``NAME (GITHUB_USER)``; the specification does without, the collection of
        bioimage.io does not.
    license : str, optional
        An identifier of SPDX's list, as ``CC-BY-4.0``; likewise.
    cite : sequence of str
        What to cite beside the papers of Cellpose: words that end with a DOI or an address.
    name : str, optional
        Of the network: letters, digits, spaces and ``_+-()``; by default made from its images.
    image : str, optional
        Name of the image of which a part becomes the test input; by default that with most objects.
    profiles : sequence of str, optional
        Under which the network is measured, the one of the test output first; by default all in
        float32 that this machine has.
    repeats : int
        Processes under each profile.
    measured : sequence of str or Path
        Files that `measure_bioimageio` has written on other machines.
    factor : float
        By which the largest measured difference is multiplied; at least 1.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    BioimageioPackage
        The file, its tolerance, on what that rests and what it could hide.

    Raises
    ------
    BadInput
        If something that was given cannot be used, or the specification does not accept the
        package; nothing is written then.
    NotPossibleHere
        If a library is not installed, or this machine has none of the profiles.
    """
    target = new_file(file, ending=Path(PACKAGE_ENDING).suffix, holds="a package of bioimage.io")
    credits = Credits.parse(authors, license, cite)
    _refuse_without_libraries()
    if credits.license is not None:
        refuse_unknown_license(credits.license)
    opened_store = Store(store)
    repeat = opened_store.find(run)
    title = _checked_name(name or _usual_name(repeat))
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as scratch:
        subject = _subject(repeat, opened_store, image=image, scratch=Path(scratch))
        measurements = subject.measured(profiles, repeats=repeats, quiet=quiet)
        identity = MeasuredSubject.of(subject.test)
        shape = measurements.outputs[0].output.shape
        elsewhere = [
            output
            for path in measured
            for output in read_measured(Path(path), identity, shape=shape)
        ]
        judged = judge_outputs(
            [*measurements.outputs, *elsewhere],
            repeat.spec.settings,
            factor=factor,
            smallest_object=_smallest_object(repeat),
        )
        package = Package(
            subject=subject,
            store=opened_store,
            title=title,
            credits=credits,
            judged=judged,
            not_possible=measurements.not_possible,
        )
        content_folder = Path(scratch) / "package"
        content_folder.mkdir()
        package.write_files(content_folder)
        files = [Outgoing.of_file(path) for path in sorted(content_folder.iterdir())]
        digest = write_zip(target, files, label="write the package", quiet=True)
    return BioimageioPackage(
        file=target,
        digest=digest,
        runs=(repeat.name,),
        not_possible=measurements.not_possible,
        missing=credits.missing,
        _judged=judged,
    )


def measure_bioimageio(
    run: str,
    file: str | Path,
    *,
    image: str | None = None,
    profiles: Sequence[str] | None = None,
    repeats: int = USUAL_REPEATS,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> MeasuredElsewhere:
    """Measure the network of a run on this machine, for a package that is made on another one.

    Parameters
    ----------
    run : str
        ``KEY``, ``KEY/REPEAT`` or ``KEY/MACHINE/REPEAT``.
    file : str or Path
        ``NAME.measured.safetensors``, not there yet.
    image : str, optional
        As it is given where the package is made.
    profiles : sequence of str, optional
        Under which the network is measured; by default all in float32 that this machine has.
    repeats : int
        Processes under each profile.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    MeasuredElsewhere
        The file, and how many outputs are in it.

    Raises
    ------
    BadInput
        If something that was given cannot be used.
    NotPossibleHere
        If a library is not installed, or this machine has none of the profiles.
    """
    target = new_file(file, ending=MEASUREMENTS_ENDING, holds="measurements")
    _refuse_without_libraries(with_specification=False)
    opened_store = Store(store)
    repeat = opened_store.find(run)
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as scratch:
        subject = _subject(repeat, opened_store, image=image, scratch=Path(scratch))
        measurements = subject.measured(profiles, repeats=repeats, quiet=quiet)
        write_measured(target, measurements.outputs, MeasuredSubject.of(subject.test))
    return MeasuredElsewhere(
        file=target,
        digest=file_digest(target),
        runs=(repeat.name,),
        n_outputs=len(measurements.outputs),
        not_possible=measurements.not_possible,
    )


# -- arguments -----------------------------------------------------------------------------


def _refuse_without_libraries(*, with_specification: bool = True) -> None:
    needed = ("torch", "cellpose", *(("bioimageio",) if with_specification else ()))
    missing = absent(needed)
    if missing:
        raise needs(missing, what="a package of bioimage.io")


def _subject(repeat: Repeat, store: Store, *, image: str | None, scratch: Path) -> PackagedRun:
    if repeat.spec.task == "wrap":
        raise BadInput(
            f"{repeat.name} is a run of another program, of whose network nothing is known; "
            "expected a run of `cellrepro train` or `cellrepro segment`"
        )
    return PackagedRun(
        repeat=repeat,
        scaling=Scaling.of(repeat.spec.settings.normalize),
        tile=choose_tile(repeat, store, image=image),
        weights=packaged_weights(repeat, store, scratch),
    )


def _smallest_object(repeat: Repeat) -> int | None:
    """Pixels of the smallest object in the masks of a repeat; None without objects."""
    areas = [np.bincount(repeat.masks(image).ravel())[1:] for image in repeat.manifest.masks]
    sizes = [int(area[area > 0].min()) for area in areas if area.any()]
    return min(sizes, default=None)


_NAME = re.compile(r"[A-Za-z0-9_+\- ()]{5,128}")


def _usual_name(repeat: Repeat) -> str:
    plain = re.sub(r"[^A-Za-z0-9_+-]+", "-", repeat.spec.data)[:40].strip("-")
    return f"Cellpose {plain} {repeat.spec.key[:8]}"


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise BadInput(
            f"--name {name!r} is no name of a package; expected 5 to 128 letters, digits, spaces "
            "and _+-(), without accents"
        )
    return name
