"""Export of a run as a package of bioimage.io."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.exchange.archive.writing import Outgoing, write_zip
from cellrepro.exchange.bioimageio import measured_words
from cellrepro.exchange.bioimageio.credits import Credits
from cellrepro.exchange.bioimageio.measured_tolerance import MeasuredTolerance, Place, judge_outputs
from cellrepro.exchange.bioimageio.measuring import USUAL_REPEATS
from cellrepro.exchange.bioimageio.package_files import Package
from cellrepro.exchange.bioimageio.packaged_run import packaged_run, refuse_without_libraries
from cellrepro.exchange.bioimageio.resource_description import refuse_unknown_license
from cellrepro.exchange.bioimageio.tolerance import USUAL_FACTOR, HiddenObjects, Tolerance
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.store.whole_files import new_file
from samebits.errors import BadInput
from samebits.results import Result, Row, derived

PACKAGE_ENDING = ".bioimageio.zip"


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
        """The tolerance, as the package says it."""
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
        """Say the tolerance, on what it was measured, and what it could hide."""
        return (
            f"{self.file.name}: {measured_words.tolerance_text(self.tolerance)}; "
            f"{measured_words.machine_text(self._judged)}. "
            f"{measured_words.hiding_text(self.hidden)}"
        )

    def rows(self) -> Sequence[Row]:
        """Give one row for each machine and profile."""
        return measured_words.place_rows(self.measured)

    def lines(self) -> Sequence[str]:
        """Give the tolerance with all that it rests on, and what is missing."""
        (run,) = self.runs
        judged = self._judged
        machines = measured_words.machine_text(judged)
        return [
            f"{self.file}: network of {run}",
            f"tolerance: {measured_words.tolerance_text(self.tolerance)}",
            f"  {self.factor:g} times the largest difference, {machines}",
            *measured_words.place_lines(self.measured),
            f"  from all of these outputs Cellpose makes {measured_words.objects_text(judged)}",
            f"  {measured_words.factor_text(judged)}",
            f"  {measured_words.default_text(judged)}",
            measured_words.hiding_text(self.hidden),
            *measured_words.not_measured(self.not_possible),
            *self.missing,
        ]


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
    refuse_without_libraries()
    if credits.license is not None:
        refuse_unknown_license(credits.license)
    opened_store = Store(store)
    repeat = opened_store.find(run)
    title = _checked_name(name or _usual_name(repeat))
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as scratch:
        subject = packaged_run(repeat, opened_store, image=image, scratch=Path(scratch))
        measurements = subject.measured(profiles, repeats=repeats, quiet=quiet)
        judged = judge_outputs(
            measurements.outputs,
            repeat.spec.settings,
            factor=factor,
            smallest_object=subject.smallest_object(),
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
