"""Logging finished repeats in MLflow.

A repeat is logged from the store, after it has finished, so a training never waits for a server.
Logging is idempotent: a run of MLflow is identified by the digest of the repeat's manifest, and is
complete once its status is finished; an incomplete one is continued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cellrepro.exchange.mlflow_experiment import Experiment, TrackedRun, variables_of_the_client
from cellrepro.exchange.selection import select_repeats
from cellrepro.exchange.tracked_record import Upload
from cellrepro.progress import print_note, progress
from cellrepro.results import Result, Row, derived
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.store.stored_run import NOTEBOOK, WEIGHTS
from cellrepro.terminal import FileName
from cellrepro.terminal_values import Conditions
from cellrepro.words import amount


@dataclass(frozen=True, repr=False)
class Tracking(Result):
    """Finished repeats in MLflow."""

    address: str
    """Address of the tracker, without user name and password."""
    experiment: str
    """Name of the experiment."""
    runs: tuple[TrackedRun, ...]
    """Sorted by key, machine and number."""

    @derived
    def run(self) -> str:
        """The first run by its ID in MLflow."""
        return self.runs[0].run

    def sentence(self) -> str:
        """How many runs were logged, and where."""
        parts = []
        for how in ("logged", "completed", "already there"):
            n_runs = sum(run.how == how for run in self.runs)
            if n_runs:
                parts.append(f"{amount(n_runs, 'run')} {how}")
        return f"{', '.join(parts)} in the experiment {self.experiment} of {self.address}"

    def rows(self) -> Sequence[Row]:
        """One row for each run."""
        return [
            {
                "state": run.how,
                "repeat": run.repeat,
                "run of MLflow": run.url or run.run,
                "added": ", ".join(run.added),
            }
            for run in self.runs
        ]


def track(
    *runs: str,
    where: Conditions | None = None,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    weights: bool = False,
    notebook: bool = False,
    store: FileName = defaults.STORE,
) -> Tracking:
    """Log finished repeats in MLflow; one that is there already is not logged twice.

    Parameters
    ----------
    *runs : str
        ``KEY`` for all repeats of a run, ``KEY/MACHINE`` for those of one machine, ``KEY/REPEAT``
        or ``KEY/MACHINE/REPEAT`` for one; a grid file, ``NAME.yaml``, for all its specs. None of
        them, with ``where``, means all runs of the store.
    where : mapping, optional
        ``NAME=VALUE``: only runs that have it, as for ``cellrepro list``.
    tracking_uri : str, optional
        Address of the tracker, as MLflow writes it: ``http://127.0.0.1:5000``. By default that of
        ``MLFLOW_TRACKING_URI``, else what MLflow itself takes.
    experiment : str, optional
        Name of the experiment, which is made where there is none. By default that of
        ``MLFLOW_EXPERIMENT_NAME``, else ``cellrepro``.
    weights : bool
        Upload the trained weights, too.
    notebook : bool
        Upload the executed notebook, too.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    Tracking
        The runs of MLflow.

    Raises
    ------
    BadInput
        If a reference names no repeat, a file was asked for that a repeat has not, or MLflow
        refuses.
    NotPossibleHere
        If MLflow's client is not installed.

    Examples
    --------
    Log two repeats in MLflow, with their weights

    ``cellrepro track KEY/0 KEY/1 --tracking-uri http://127.0.0.1:5000 --weights``
    """
    files = [*([WEIGHTS] if weights else []), *([NOTEBOOK] if notebook else [])]
    opened_store = Store(store)
    selection = select_repeats(opened_store, runs, where=where)
    for note in selection.notes:
        print_note(note)
    uploads = [Upload.of(repeat, opened_store, files) for repeat in selection.repeats]
    with variables_of_the_client():
        tracker = Experiment.reached(tracking_uri, experiment)
        with progress(len(uploads), "track") as bar:
            tracked = [tracker.bring(upload, bar) for upload in uploads]
    return Tracking(tracker.address, tracker.experiment, tuple(tracked))
