"""Measurements of a network for a package that is made on another machine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.digests.digests import file_digest
from cellrepro.exchange.bioimageio import measured_words
from cellrepro.exchange.bioimageio.measured_file import (
    MEASUREMENTS_ENDING,
    MeasuredSubject,
    write_measured,
)
from cellrepro.exchange.bioimageio.measuring import USUAL_REPEATS
from cellrepro.exchange.bioimageio.packaged_run import packaged_run, refuse_without_libraries
from cellrepro.results import Result
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.store.whole_files import new_file
from cellrepro.words import amount


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
    refuse_without_libraries(with_specification=False)
    opened_store = Store(store)
    repeat = opened_store.find(run)
    with tempfile.TemporaryDirectory(prefix="cellrepro-") as scratch:
        subject = packaged_run(repeat, opened_store, image=image, scratch=Path(scratch))
        measurements = subject.measured(profiles, repeats=repeats, quiet=quiet)
        write_measured(target, measurements.outputs, MeasuredSubject.of(subject.test))
    return MeasuredElsewhere(
        file=target,
        digest=file_digest(target),
        runs=(repeat.name,),
        n_outputs=len(measurements.outputs),
        not_possible=measurements.not_possible,
    )
