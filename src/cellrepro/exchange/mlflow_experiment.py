"""An experiment of MLflow: the runs in it, and what is logged into them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import BUNDLE_ENDING, bundle_text
from cellrepro.exchange.tracked_record import KNOWN_BY, PASSPORT_TAG, Upload, tracked_record
from cellrepro.extras import absent, needs
from cellrepro.progress_count import Progress

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun


Item = TypeVar("Item")
USUAL_EXPERIMENT = "cellrepro"
_EXPERIMENT_VARIABLE = "MLFLOW_EXPERIMENT_NAME"
_ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"
_FINISHED = "FINISHED"
_MOST_METRICS = 1000
"""Limit of MLflow for metrics in one call."""
_MOST_TEXTS = 100
"""Limit of MLflow for parameters and tags in one call."""
PASSPORT = f"passport{BUNDLE_ENDING}"
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


@dataclass(frozen=True)
class Experiment:
    """An experiment of an MLflow server that answers."""

    client: MlflowClient
    address: str
    experiment: str
    experiment_id: str

    @classmethod
    def reached(cls, tracking_uri: str | None, experiment: str | None) -> Experiment:
        """Find the experiment, or make it."""
        if absent(["mlflow"]):
            raise needs(["mlflow"], what="`cellrepro track`")
        from mlflow import MlflowClient

        name = experiment or os.environ.get(_EXPERIMENT_VARIABLE) or USUAL_EXPERIMENT
        address = tracking_uri or os.environ.get(_ADDRESS_VARIABLE) or ""
        with refusals(address):
            client = MlflowClient(tracking_uri=tracking_uri)
            address = client.tracking_uri
        with refusals(address):
            return cls(client, without_password(address), name, _experiment_id(client, name))

    def bring(self, upload: Upload, bar: Progress) -> TrackedRun:
        """Log a repeat, or what is still missing of it."""
        with refusals(self.address):
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

    def _find(self, upload: Upload) -> MlflowRun | None:
        """The run of this repeat from an earlier call, if there is one; a finished one first."""
        wanted = f"tags.`{KNOWN_BY}` = '{upload.tags[KNOWN_BY]}'"
        runs = self.client.search_runs([self.experiment_id], filter_string=wanted)
        finished = [run for run in runs if run.info.status == _FINISHED]
        return next(iter([*finished, *runs]), None)

    def _log(self, unfinished: MlflowRun | None, upload: Upload) -> str:
        """Log everything, into the unfinished run of an interrupted call if there is one."""
        from mlflow.entities import Metric, Param, RunTag

        repeat = upload.repeat
        record = tracked_record(repeat.spec, repeat.manifest)
        if unfinished is None:
            known_by = {KNOWN_BY: upload.tags[KNOWN_BY]}
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

    def _complete(self, run: MlflowRun, upload: Upload) -> tuple[str, ...]:
        """Update tags that have changed, such as the verdict, and add new files."""
        from mlflow.entities import RunTag

        run_id = run.info.run_id
        changed = {
            name: value for name, value in upload.tags.items() if run.data.tags.get(name) != value
        }
        if PASSPORT_TAG in changed:
            self._log_passport(run_id, upload)
        if changed:
            self.client.log_batch(run_id, tags=[RunTag(*item) for item in changed.items()])
        there = {artifact.path for artifact in self.client.list_artifacts(run_id)}
        missing = [path for path in upload.files if path.name not in there]
        for path in missing:
            self.client.log_artifact(run_id, str(path))
        return (*changed, *(path.name for path in missing))

    def _log_passport(self, run_id: str, upload: Upload) -> None:
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


def _pieces(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    remaining = iter(items)
    while piece := list(islice(remaining, most)):
        yield piece


# -- the client of MLflow ------------------------------------------------------------------

_TELEMETRY_VARIABLES = ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")
_MOST_LETTERS = 300
"""Limit of what is shown of an error of MLflow."""
_NAME_AND_PASSWORD = re.compile("://[^/]*@")


@contextmanager
def refusals(address: str) -> Iterator[None]:
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
