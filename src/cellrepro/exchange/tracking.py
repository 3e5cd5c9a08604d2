"""Logging finished repeats in MLflow.

A repeat is logged from the store, after it has finished, so a training never waits for a server.
Logging is idempotent: a run of MLflow is identified by the digest of the repeat's manifest, and is
complete once its status is finished; an incomplete one is continued.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cellrepro.exchange.bundle import BUNDLE_ENDING, bundle_text
from cellrepro.exchange.selection import select_repeats
from cellrepro.exchange.tracked_record import KNOWN_BY, PASSPORT_TAG, Upload, tracked_record
from cellrepro.extras import absent, needs
from cellrepro.progress import print_note, progress
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.store.stored_run import NOTEBOOK, WEIGHTS
from cellrepro.terminal import FileName
from cellrepro.terminal_values import Conditions
from samebits.errors import BadInput
from samebits.results import Result, Row, derived
from samebits.words import amount

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

_USUAL_EXPERIMENT = "cellrepro"
_FINISHED = "FINISHED"
_MOST_METRICS = 1000
"""Limit of MLflow for metrics in one call."""
_MOST_TEXTS = 100
"""Limit of MLflow for parameters and tags in one call."""
_PASSPORT = f"passport{BUNDLE_ENDING}"
"""Artifact of a run in MLflow: its passport with all receipts."""

Logged = Literal["logged", "completed", "already there"]


@dataclass(frozen=True)
class TrackedRun:
    """One repeat in MLflow."""

    run: str
    """MLflow's own name of it, the run's ID."""
    repeat: str
    """``KEY/MACHINE/REPEAT``."""
    how: Logged
    """Whether this call made it, added to it, or found it."""
    added: tuple[str, ...]
    """Names of tags and files that were added to an earlier run."""
    url: str | None
    """Address of its page; null if the tracker is no server."""


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
        tracker = _reached(tracking_uri, experiment)
        tracked = []
        with progress(len(uploads), "track") as bar:
            for upload in uploads:
                tracked.append(tracker.bring(upload))
                bar.advance(f"{upload.repeat.name} {tracked[-1].how}")
    return Tracking(tracker.address, tracker.name, tuple(tracked))


def _reached(tracking_uri: str | None, experiment: str | None) -> _Experiment:
    """Find the experiment of a server that answers, or make it."""
    if absent(["mlflow"]):
        raise needs(["mlflow"], what="`cellrepro track`")
    from mlflow import MlflowClient

    name = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or _USUAL_EXPERIMENT
    address = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
    with _refusals(address):
        client = MlflowClient(tracking_uri=tracking_uri)
        address = client.tracking_uri
    with _refusals(address):
        known = client.get_experiment_by_name(name)
        if known is not None and known.lifecycle_stage != "active":
            raise BadInput(
                f"the experiment {name} was deleted in MLflow; restore it there, or name another "
                "one with --experiment"
            )
        experiment_id = client.create_experiment(name) if known is None else known.experiment_id
    return _Experiment(client, without_password(address), name, experiment_id)


@dataclass(frozen=True)
class _Experiment:
    """An experiment of an MLflow server that answers."""

    client: MlflowClient
    address: str
    name: str
    experiment_id: str

    def bring(self, upload: Upload) -> TrackedRun:
        """Log a repeat, or what is still missing of it."""
        with _refusals(self.address):
            run = self._found(upload)
            is_whole = run is not None and run.info.status == _FINISHED
            run_id = self._begun(upload) if run is None else run.info.run_id
            tags_there = {} if run is None else run.data.tags
            if not is_whole:
                self._log_numbers(run_id, upload)
            added = self._add_files_and_tags(run_id, upload, tags_there)
            if is_whole:
                how: Logged = "completed" if added else "already there"
                return TrackedRun(run_id, upload.repeat.name, how, added, self._url(run_id))
            ended = tracked_record(upload.repeat.spec, upload.repeat.manifest).ended
            self.client.set_terminated(run_id, status=_FINISHED, end_time=ended)
        return TrackedRun(run_id, upload.repeat.name, "logged", (), self._url(run_id))

    def _found(self, upload: Upload) -> MlflowRun | None:
        """The run of this repeat from an earlier call, if there is one; a finished one first."""
        wanted = f"tags.`{KNOWN_BY}` = '{upload.tags[KNOWN_BY]}'"
        runs = self.client.search_runs([self.experiment_id], filter_string=wanted)
        finished = [run for run in runs if run.info.status == _FINISHED]
        return next(iter([*finished, *runs]), None)

    def _begun(self, upload: Upload) -> str:
        """A new run, which a later call finds if this one is interrupted."""
        repeat = upload.repeat
        run = self.client.create_run(
            self.experiment_id,
            start_time=tracked_record(repeat.spec, repeat.manifest).started,
            tags={KNOWN_BY: upload.tags[KNOWN_BY]},
            run_name=f"{repeat.spec.label}, repeat {repeat.index}",
        )
        run_id: str = run.info.run_id
        return run_id

    def _log_numbers(self, run_id: str, upload: Upload) -> None:
        """Log parameters and curves; what an interrupted call has logged replaces itself."""
        from mlflow.entities import Metric, Param

        record = tracked_record(upload.repeat.spec, upload.repeat.manifest)
        parameters = [Param(name, text) for name, text in record.parameters.items()]
        for start in range(0, len(parameters), _MOST_TEXTS):
            self.client.log_batch(run_id, params=parameters[start : start + _MOST_TEXTS])
        points = record.points
        metrics = [Metric(p.name, p.value, record.ended, p.epoch) for p in points]
        for start in range(0, len(metrics), _MOST_METRICS):
            self.client.log_batch(run_id, metrics=metrics[start : start + _MOST_METRICS])

    def _add_files_and_tags(
        self, run_id: str, upload: Upload, tags_there: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Update tags that have changed, such as the verdict, and add new files."""
        from mlflow.entities import RunTag

        changed = {
            name: value for name, value in upload.tags.items() if tags_there.get(name) != value
        }
        if PASSPORT_TAG in changed:
            text = f"{bundle_text(upload.passports.attestations)}\n"
            self.client.log_text(run_id, text, _PASSPORT)
        there = {artifact.path for artifact in self.client.list_artifacts(run_id)}
        missing = [path for path in upload.files if path.name not in there]
        for path in missing:
            self.client.log_artifact(run_id, str(path))
        if changed:
            self.client.log_batch(run_id, tags=[RunTag(*item) for item in changed.items()])
        return (*changed, *(path.name for path in missing))

    def _url(self, run_id: str) -> str | None:
        if not self.address.startswith(("http://", "https://")):
            return None
        page = f"#/experiments/{self.experiment_id}/runs/{run_id}"
        return f"{self.address.rstrip('/')}/{page}"


# -- the client of MLflow ------------------------------------------------------------------

_TELEMETRY_VARIABLES = ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")
_MOST_LETTERS = 300
"""Limit of what is shown of an error of MLflow."""
_NAME_AND_PASSWORD = re.compile("://[^/]*@")


@contextmanager
def _refusals(address: str) -> Iterator[None]:
    """Raise errors of MLflow as `BadInput`, with what a user can do."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:  # errors of requests are OSError
        reason = str(error).strip().partition("\n")[0]
        if len(reason) > _MOST_LETTERS:
            reason = f"{reason[:_MOST_LETTERS]}…"
        raise BadInput(
            f"{without_password(address) or 'MLflow'} did not take the runs; MLflow says: "
            f"{without_password(reason)}; expected the address of a server that answers, such as "
            "--tracking-uri http://127.0.0.1:5000 after `mlflow server`. The command can be "
            "repeated: what is logged already is not logged twice"
        ) from error


@contextmanager
def variables_of_the_client() -> Iterator[None]:
    """Set environment variables of MLflow for the block, except those that the user has set.

    By default MLflow 3.17 sends telemetry, tries for four minutes to reach a server, and prints
    addresses to standard output.
    """
    ours = {
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }
    if not any(name in os.environ for name in _TELEMETRY_VARIABLES):
        ours["MLFLOW_DISABLE_TELEMETRY"] = "true"
    added = {name: value for name, value in ours.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def without_password(address: str) -> str:
    """An address without user name and password.

    >>> without_password("https://me:secret@mlflow.example.org/a"), without_password("sqlite:///a")
    ('https://mlflow.example.org/a', 'sqlite:///a')
    """
    return _NAME_AND_PASSWORD.sub("://", address)
