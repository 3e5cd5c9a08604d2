"""Logging finished repeats in MLflow.

A repeat is logged from the store, after it has finished, so a training never waits for a server.
Logging is idempotent: a run of MLflow is identified by the digest of the repeat's manifest, and is
complete once its status is finished; an incomplete one is continued.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from cellrepro.comparison.verdicts import judge
from cellrepro.digests.digests import file_digest
from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import BUNDLE_ENDING, Bundle, bundle_text
from cellrepro.exchange.kept_passports import passports_of
from cellrepro.exchange.selection import select_repeats
from cellrepro.exchange.tracked_record import tracked_record
from cellrepro.extras import absent, needs
from cellrepro.progress import print_note, progress
from cellrepro.progress_count import Progress
from cellrepro.results import Result, Row, derived
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, NOTEBOOK, WEIGHTS, Repeat
from cellrepro.terminal import FileName
from cellrepro.terminal_values import Conditions
from cellrepro.version import __version__
from cellrepro.words import amount

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

Logged = Literal["logged", "completed", "already there"]
Item = TypeVar("Item")

USUAL_EXPERIMENT = "cellrepro"
_EXPERIMENT_VARIABLE = "MLFLOW_EXPERIMENT_NAME"
_ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"
_TELEMETRY_VARIABLES = ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")
_FINISHED = "FINISHED"
_MOST_METRICS = 1000
"""Limit of MLflow for metrics in one call."""
_MOST_TEXTS = 100
"""Limit of MLflow for parameters and tags in one call."""
_KNOWN_BY = "cellrepro.manifest"
_PASSPORT_TAG = "cellrepro.passport"
PASSPORT = f"passport{BUNDLE_ENDING}"
"""Artifact of a run in MLflow: its passport with all receipts."""
_MOST_LETTERS = 300
"""Limit of what is shown of an error of MLflow."""
_NAME_AND_PASSWORD = re.compile("://[^/]*@")


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
    uploads = [_Upload.of(repeat, opened_store, files) for repeat in selection.repeats]
    with variables_of_the_client():
        tracker = _Tracker.reached(tracking_uri, experiment)
        with progress(len(uploads), "track") as bar:
            tracked = [tracker.bring(upload, bar) for upload in uploads]
    return Tracking(tracker.address, tracker.experiment, tuple(tracked))


# -- the upload ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Upload:
    """A repeat that has been checked, with all that is logged of it."""

    repeat: Repeat
    passports: Bundle
    """The current passport is first."""
    tags: Mapping[str, str]
    """May change when the store gets more repeats, unlike all else."""
    files: tuple[Path, ...]
    """Artifacts beside the passport."""

    @classmethod
    def of(cls, repeat: Repeat, store: Store, files: Sequence[str]) -> _Upload:
        repeat.refuse_damage()
        for name in files:
            if not repeat.has(name):
                raise BadInput(
                    f"{repeat.name} has no {name}; leave --{Path(name).stem} out, or name a repeat "
                    "that has one"
                )
        paths = [repeat.folder / MANIFEST, *(repeat.file(name) for name in files)]
        passports = passports_of([repeat], store=store)
        tags = _tags(repeat, store) | {_PASSPORT_TAG: passports.passports[0].digest}
        return cls(repeat, passports, tags, tuple(paths))


def _tags(repeat: Repeat, store: Store) -> dict[str, str]:
    run = store.run(repeat.spec.key)
    machines = {} if run is None else run.machines
    same_machine = machines.get(repeat.folder.parent.name, {}).values()
    verdict = judge([other.outcome for other in same_machine]).overall
    manifest = repeat.manifest
    tags: dict[str, str | None] = {
        _KNOWN_BY: file_digest(repeat.folder / MANIFEST),
        "cellrepro.repeat": repeat.name,
        "cellrepro.key": repeat.spec.key,
        "cellrepro.machine": repeat.machine,
        "cellrepro.verdict": verdict,
        "cellrepro.vacuous": "; ".join(manifest.vacuous) or None,
        "cellrepro.weights": None if manifest.weights is None else manifest.weights.digest,
        "cellrepro.masks": manifest.masks_digest,
        "cellrepro.version": __version__,
    }
    return {name: str(value) for name, value in tags.items() if value is not None}


# -- the tracker ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tracker:
    """An experiment of an MLflow server that answers."""

    client: MlflowClient
    address: str
    experiment: str
    experiment_id: str

    @classmethod
    def reached(cls, tracking_uri: str | None, experiment: str | None) -> _Tracker:
        """Find the experiment, or make it."""
        if absent(["mlflow"]):
            raise needs(["mlflow"], what="`cellrepro track`")
        from mlflow import MlflowClient

        name = experiment or os.environ.get(_EXPERIMENT_VARIABLE) or USUAL_EXPERIMENT
        address = tracking_uri or os.environ.get(_ADDRESS_VARIABLE) or ""
        with _refusals(address):
            client = MlflowClient(tracking_uri=tracking_uri)
            address = client.tracking_uri
        with _refusals(address):
            return cls(client, _without_password(address), name, _experiment_id(client, name))

    def bring(self, upload: _Upload, bar: Progress) -> TrackedRun:
        """Log a repeat, or what is still missing of it."""
        with _refusals(self.address):
            before = self._find(upload)
            is_whole = before is not None and before.info.status == _FINISHED
            if before is not None and is_whole:
                run_id = before.info.run_id
                added = self._complete(before, upload)
            else:
                run_id = self._log(before, upload)
                added = ()
        how: Logged = "logged"
        if is_whole:
            how = "completed" if added else "already there"
        bar.advance(f"{upload.repeat.name} {how}")
        return TrackedRun(run_id, upload.repeat.name, how, added, self._url(run_id))

    def _find(self, upload: _Upload) -> MlflowRun | None:
        """The run of this repeat from an earlier call, if there is one; a finished one first."""
        wanted = f"tags.`{_KNOWN_BY}` = '{upload.tags[_KNOWN_BY]}'"
        runs = self.client.search_runs([self.experiment_id], filter_string=wanted)
        finished = [run for run in runs if run.info.status == _FINISHED]
        return next(iter([*finished, *runs]), None)

    def _log(self, unfinished: MlflowRun | None, upload: _Upload) -> str:
        """Log everything, into the unfinished run of an interrupted call if there is one."""
        from mlflow.entities import Metric, Param, RunTag

        repeat = upload.repeat
        record = tracked_record(repeat.spec, repeat.manifest)
        if unfinished is None:
            known_by = {_KNOWN_BY: upload.tags[_KNOWN_BY]}
            run_name = f"{repeat.spec.label}, repeat {repeat.index}"
            unfinished = self.client.create_run(
                self.experiment_id, start_time=record.started, tags=known_by, run_name=run_name
            )
        run_id: str = unfinished.info.run_id
        for parameters in _pieces(record.parameters.items(), _MOST_TEXTS):
            self.client.log_batch(run_id, params=[Param(*item) for item in parameters])
        for points in _pieces(record.points, _MOST_METRICS):
            # With one timestamp for all, a value that is logged again replaces itself.
            values = [Metric(p.name, p.value, record.ended, p.epoch) for p in points]
            self.client.log_batch(run_id, metrics=values)
        for path in upload.files:
            self.client.log_artifact(run_id, str(path))
        self._log_passport(run_id, upload)
        self.client.log_batch(run_id, tags=[RunTag(*item) for item in upload.tags.items()])
        self.client.set_terminated(run_id, status=_FINISHED, end_time=record.ended)
        return run_id

    def _complete(self, run: MlflowRun, upload: _Upload) -> tuple[str, ...]:
        """Update tags that have changed, such as the verdict, and add new files."""
        from mlflow.entities import RunTag

        run_id = run.info.run_id
        changed = {
            name: value for name, value in upload.tags.items() if run.data.tags.get(name) != value
        }
        if _PASSPORT_TAG in changed:
            self._log_passport(run_id, upload)
        if changed:
            self.client.log_batch(run_id, tags=[RunTag(*item) for item in changed.items()])
        there = {artifact.path for artifact in self.client.list_artifacts(run_id)}
        missing = [path for path in upload.files if path.name not in there]
        for path in missing:
            self.client.log_artifact(run_id, str(path))
        return (*changed, *(path.name for path in missing))

    def _log_passport(self, run_id: str, upload: _Upload) -> None:
        self.client.log_text(run_id, f"{bundle_text(upload.passports.attestations)}\n", PASSPORT)

    def _url(self, run_id: str) -> str | None:
        if not self.address.startswith(("http://", "https://")):
            return None
        page = f"#/experiments/{self.experiment_id}/runs/{run_id}"
        return f"{self.address.rstrip('/')}/{page}"


def _experiment_id(client: MlflowClient, name: str) -> str:
    known = client.get_experiment_by_name(name)
    if known is None:
        made: str = client.create_experiment(name)
        return made
    if known.lifecycle_stage != "active":
        raise BadInput(
            f"the experiment {name} was deleted in MLflow; restore it there, or name another one "
            "with --experiment"
        )
    experiment_id: str = known.experiment_id
    return experiment_id


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
            f"{_without_password(address) or 'MLflow'} did not take the runs; MLflow says: "
            f"{_without_password(reason)}; expected the address of a server that answers, such as "
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


def _without_password(address: str) -> str:
    """An address without user name and password.

    >>> _without_password("https://me:secret@mlflow.example.org/a"), _without_password("sqlite:///a")
    ('https://mlflow.example.org/a', 'sqlite:///a')
    """
    return _NAME_AND_PASSWORD.sub("://", address)


def _pieces(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    remaining = iter(items)
    while piece := list(islice(remaining, most)):
        yield piece
