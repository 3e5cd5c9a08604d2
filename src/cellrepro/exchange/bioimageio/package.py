"""A run as a package of bioimage.io: ``NAME.bioimageio.zip``."""

from __future__ import annotations

import functools
import hashlib
import re
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import yaml

from cellrepro.comparison.verdicts import judge
from cellrepro.digests.digests import file_digest
from cellrepro.errors import BadInput
from cellrepro.exchange.archive.form import Entry, local_header, tail
from cellrepro.exchange.archive.writing import BLOCK
from cellrepro.exchange.bioimageio import description, measured_words
from cellrepro.exchange.bioimageio.cover import write_cover
from cellrepro.exchange.bioimageio.credits import Credits
from cellrepro.exchange.bioimageio.description import (
    PackageContent,
    describe_package,
    refuse_invalid,
    refuse_unknown_license,
    write_description,
)
from cellrepro.exchange.bioimageio.input_tile import InputTile, Scaling, choose_tile
from cellrepro.exchange.bioimageio.measured_file import (
    MeasuredSubject,
    read_measured,
    write_measured,
)
from cellrepro.exchange.bioimageio.measured_tolerance import (
    MeasuredTolerance,
    Place,
    judge_outputs,
)
from cellrepro.exchange.bioimageio.measuring import (
    PackagedTest,
    measure,
    usual_profiles,
)
from cellrepro.exchange.bioimageio.packaged_weights import (
    NETWORK_FILE,
    PackagedWeights,
    packaged_weights,
    write_state_dict,
)
from cellrepro.exchange.bioimageio.readme import ReadmeFacts, readme_text
from cellrepro.exchange.bioimageio.tolerance import USUAL_FACTOR, HiddenObjects, Tolerance
from cellrepro.exchange.bundle import bundle_text
from cellrepro.exchange.file_endings import MEASUREMENTS, PACKAGE
from cellrepro.exchange.kept_passports import attestations_of
from cellrepro.extras import absent, needs
from cellrepro.results import Result, Row, derived, json_names, plain
from cellrepro.spec import defaults
from cellrepro.store.store import Repeat, Store
from cellrepro.store.whole_files import new_file, whole_file
from cellrepro.words import amount

USUAL_REPEATS = 2
"""Processes under each profile."""


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
        """By which the largest measured difference was multiplied."""
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


@dataclass(frozen=True)
class _Subject:
    """A repeat that is packaged, with its network and the input that it is tested with."""

    repeat: Repeat
    weights: PackagedWeights
    tile: InputTile
    scaling: Scaling

    @property
    def test(self) -> PackagedTest:
        """What is measured."""
        return PackagedTest(
            weights=self.weights.file,
            architecture=self.weights.sizes,
            scaled=self.scaling.applied(self.tile.pixels),
        )


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
    target = new_file(file, ending=Path(PACKAGE).suffix, holds="a package of bioimage.io")
    credits = Credits.parse(authors, license, cite)
    _refuse_without_libraries()
    if credits.license is not None:
        refuse_unknown_license(credits.license)
    opened_store = Store(store)
    repeat = opened_store.find(run)
    title = _checked_name(name or _usual_name(repeat))
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as scratch:
        subject = _subject(repeat, opened_store, image=image, scratch=Path(scratch))
        test = subject.test
        measurements = measure(test, profiles or usual_profiles(), repeats=repeats, quiet=quiet)
        identity = MeasuredSubject.of(test)
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
        package = _Package(
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
        digest = _write_zip(target, content_folder)
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
    target = new_file(file, ending=MEASUREMENTS, holds="measurements")
    _refuse_without_libraries(with_specification=False)
    opened_store = Store(store)
    repeat = opened_store.find(run)
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as scratch:
        subject = _subject(repeat, opened_store, image=image, scratch=Path(scratch))
        test = subject.test
        measurements = measure(test, profiles or usual_profiles(), repeats=repeats, quiet=quiet)
        write_measured(target, measurements.outputs, MeasuredSubject.of(test))
    return MeasuredElsewhere(
        file=target,
        digest=file_digest(target),
        runs=(repeat.name,),
        n_outputs=len(measurements.outputs),
        not_possible=measurements.not_possible,
    )


# -- what is given -------------------------------------------------------------------------


def _refuse_without_libraries(*, with_specification: bool = True) -> None:
    needed = ("torch", "cellpose", *(("bioimageio",) if with_specification else ()))
    missing = absent(needed)
    if missing:
        raise needs(missing, what="a package of bioimage.io")


def _subject(repeat: Repeat, store: Store, *, image: str | None, scratch: Path) -> _Subject:
    if repeat.spec.task == "wrap":
        raise BadInput(
            f"{repeat.name} is a run of another program, of whose network nothing is known; "
            "expected a run of `cellrepro train` or `cellrepro segment`"
        )
    return _Subject(
        repeat=repeat,
        scaling=Scaling.of(repeat.spec.settings.normalize),
        tile=choose_tile(repeat, store, image=image),
        weights=packaged_weights(repeat, store, scratch),
    )


def _smallest_object(repeat: Repeat) -> int | None:
    """Pixels of the smallest object in the masks of a repeat."""
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


# -- what is written -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Package:
    """All that the files of a package are made from."""

    subject: _Subject
    store: Store
    title: str
    credits: Credits
    judged: MeasuredTolerance
    not_possible: Mapping[str, str]

    @functools.cached_property
    def passport(self) -> bytes:
        """The passport of the repeat and its receipts, as lines."""
        return (bundle_text(attestations_of(self.store, self.subject.repeat)) + "\n").encode()

    @functools.cached_property
    def passport_digest(self) -> str:
        """SHA-256 of the passport's statement, by which receipts name it."""
        first, *_ = attestations_of(self.store, self.subject.repeat)
        return first.digest

    def write_files(self, folder: Path) -> None:
        """Write every file of the package, the description last, which the specification checks."""
        subject = self.subject
        np.save(folder / description.TEST_INPUT, subject.tile.pixels, allow_pickle=False)
        np.save(folder / description.TEST_OUTPUT, self.judged.expected, allow_pickle=False)
        write_cover(subject.tile.pixels, self.judged.masks, folder / description.COVER)
        write_state_dict(subject.weights, folder / description.WEIGHTS)
        (folder / description.PASSPORT).write_bytes(self.passport)
        (folder / description.NETWORK).write_bytes(NETWORK_FILE.read_bytes())
        _write_text(folder / description.ENVIRONMENT, _environment_text(self._versions))
        _write_text(folder / description.README, readme_text(self._readme_facts()))
        values = describe_package(self._content(), folder)
        refuse_invalid(values, folder)
        write_description(values, folder / description.DESCRIPTION)

    @property
    def _versions(self) -> Mapping[str, str]:
        """Of the libraries that computed the test output."""
        return self.judged.places[0].circumstances.machine.versions

    @property
    def _verdict(self) -> str:
        run = self.store.find_run(self.subject.repeat.spec.key)
        return judge([repeat.outcome for repeat in run.repeats]).sentence()

    def _readme_facts(self) -> ReadmeFacts:
        return ReadmeFacts(
            name=self.title,
            repeat=self.subject.repeat,
            tile=self.subject.tile,
            scaling=self.subject.scaling,
            measured=self.judged,
            verdict=self._verdict,
            not_measured=measured_words.not_measured_text(self.not_possible),
            passport=self.passport_digest,
        )

    def _content(self) -> PackageContent:
        subject = self.subject
        return PackageContent(
            name=self.title,
            summary=self._summary(),
            credits=self.credits,
            timestamp=subject.repeat.manifest.started,
            tile=subject.tile,
            scaling=subject.scaling,
            architecture=subject.weights.sizes.arguments(),
            n_parameters=subject.weights.n_parameters,
            pytorch=self._versions["torch"],
            tolerance=self.judged.tolerance,
            ours=self._own_words(),
            attachments=(description.PASSPORT,),
        )

    def _summary(self) -> str:
        return (
            f"Cellpose network of the run {self.subject.repeat.spec.key} of cellrepro. Its "
            "reproducibility tolerance was "
            f"{measured_words.machines_text(self.judged)}"
        )[:1024]

    def _own_words(self) -> dict[str, object]:
        """What ``config.cellrepro`` holds."""
        repeat = self.subject.repeat
        run = self.store.find_run(repeat.spec.key)
        judged = self.judged
        hidden = asdict(judged.hidden)
        smallest_object = hidden.pop("smallest_object")
        weights = repeat.manifest.weights
        verdict = judge([stored.outcome for stored in run.repeats]).overall
        return {
            "run": repeat.name,
            "key": repeat.spec.key,
            "verdict": None if verdict is None else str(verdict),
            "machines": sorted(run.machines),
            "weights": None if weights is None else weights.digest,
            "passport": self.passport_digest,
            "data": repeat.manifest.data.digest,
            "test_image": {
                "name": self.subject.tile.image,
                "y": self.subject.tile.y,
                "x": self.subject.tile.x,
            },
            "tolerance": {
                "sentence": measured_words.machines_text(judged),
                "largest_difference": judged.difference,
                "factor": judged.factor,
                "factor_needed": judged.factor_needed,
                "default_holds": judged.default_holds,
                "masks": str(judged.verdict),
                "hidden": {**hidden, "diameter": judged.hidden.diameter},
                "smallest_object": smallest_object,
                "measured": [_place_record(place) for place in judged.places],
            },
        }


def _place_record(place: Place) -> dict[str, object]:
    machine = place.circumstances.machine
    shown = {name: plain(getattr(place, name)) for name in json_names(Place)}
    return {**shown, "cuda": machine.cuda, "versions": dict(machine.versions)}


def _environment_text(versions: Mapping[str, str]) -> str:
    """The environment in which the test output was computed, as conda reads it."""
    pinned = [
        f"{package}=={versions[name]}"
        for package, name in (("torch", "torch"), ("cellpose", "cellpose"))
        if name in versions
    ]
    environment = {
        "channels": ["conda-forge", "nodefaults"],
        "dependencies": ["python>=3.10", "pip", {"pip": pinned}],
    }
    return yaml.safe_dump(environment, sort_keys=False)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_zip(path: Path, folder: Path) -> str:
    """Write the files of a folder in the form of an exported file; returns its SHA-256."""
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    entries = [_entry(file) for file in files]
    digest = hashlib.sha256()
    with whole_file(path) as scratch, scratch.open("wb") as stream:

        def write(block: bytes) -> None:
            stream.write(block)
            digest.update(block)

        for file, entry in zip(files, entries, strict=True):
            write(local_header(entry))
            _each_block(file, write)
        write(tail(entries))
    return digest.hexdigest()


def _entry(file: Path) -> Entry:
    crc = 0

    def add(block: bytes) -> None:
        nonlocal crc
        crc = zlib.crc32(block, crc)

    _each_block(file, add)
    return Entry(file.name, file.stat().st_size, crc)


def _each_block(file: Path, use: Callable[[bytes], object]) -> None:
    with file.open("rb") as stream:
        while block := stream.read(BLOCK):
            use(block)
