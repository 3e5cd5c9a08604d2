"""A grid on the workers of a Dask cluster: the same child process a repeat, on other machines.

A worker does one point at a time and says which machine it is as a resource, so that a point
that has to be carried out there waits for one of its workers. A point whose worker is lost is
given to another. Where a worker does not see the store, it is sent what it needs, and sends the
repeats back.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.grid import this_host
from cellrepro.grid.arrival import JobQueue, SlurmQueue, Started, wait_for_workers
from cellrepro.grid.file import Grid
from cellrepro.grid.point import GridRun, Job, Listener, run_job
from cellrepro.grid.sending import Sent, moved, travelling, what_is_needed
from cellrepro.grid.status import Board
from cellrepro.process.calling import Children
from cellrepro.store import this_machine
from cellrepro.version import __version__

try:
    from distributed import Client, get_worker
    from distributed.diagnostics.plugin import WorkerPlugin
except ImportError as error:
    raise NotPossibleHere(
        "grids on several machines need Dask: pip install 'cellrepro[cluster]', here and on every "
        "worker"
    ) from error

_ONE, _GPU = "cellrepro", "GPU"
"""Resources: a worker's one place, and its GPU, which a worker that sees one has by itself."""
_LOST = (
    "the Dask scheduler is lost; start it and its workers again and give the same command: what is "
    "stored is not made again"
)
_GONE_SECONDS = 10
_CHILDREN: dict[str, Children] = {}
"""In a worker: the processes of each grid, whose command ends its own and no other's."""


@contextmanager
def cluster_pool(
    grid: Grid, *, scheduler: str | None, slurm: str | Path | None
) -> Iterator[ClusterPool]:
    """The workers of a Dask scheduler, or of jobs of Slurm, which end with the block."""
    with grid.store.staging() as area:
        if slurm is None:
            try:
                client = Client(scheduler, timeout=10)
            except (OSError, ValueError, TypeError) as error:
                raise BadInput(
                    f"no Dask scheduler answers at {scheduler!r} ({error}); expected its address, "
                    "tcp://HOST:PORT, as `dask scheduler` prints it"
                ) from error
            with client:
                queue: JobQueue = Started(str(scheduler))
                with _introduced(ClusterPool(client, area.resolve(), 1, queue)) as pool:
                    yield pool
            return
        asked = _slurm_options(Path(slurm))
        from dask_jobqueue import SLURMCluster

        try:
            cluster = SLURMCluster(**asked.options)
        except (TypeError, ValueError, OSError) as error:
            raise BadInput(f"{slurm}: {error}; expected options of SLURMCluster") from error
        with cluster, Client(cluster) as client:
            # A job that is lost is asked for anew.
            cluster.adapt(minimum_jobs=asked.n_jobs, maximum_jobs=asked.n_jobs)
            queue = SlurmQueue(
                lambda: {str(job.job_id) for job in tuple(cluster.workers.values())},
                log_folder=str(asked.options.get("log_directory") or Path.cwd()),
                hours=asked.wait_hours,
            )
            n_expected = asked.n_jobs if grid.on else 1
            with _introduced(ClusterPool(client, area.resolve(), n_expected, queue)) as pool:
                yield pool


@contextmanager
def _introduced(pool: ClusterPool) -> Iterator[ClusterPool]:
    """After the block the workers know nothing of the grid any more."""
    try:
        yield pool
    finally:
        pool.leave()


@dataclass(frozen=True)
class SlurmOptions:
    """What a Slurm file says."""

    n_jobs: int
    wait_hours: float | None  # that the jobs may be queued; none for as long as it takes
    options: dict[str, Any]  # of `dask_jobqueue.SLURMCluster`, for each job


def _slurm_options(path: Path) -> SlurmOptions:
    if shutil.which("sbatch") is None:
        raise NotPossibleHere("there is no `sbatch` here; give --slurm on a machine of the cluster")
    try:
        options = yaml.safe_load(path.read_text(encoding="utf-8"))
        n_jobs = int(options.pop("jobs"))
        wait_hours = options.pop("wait_hours", None)
        wait_hours = None if wait_hours is None else float(wait_hours)
    except (OSError, AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise BadInput(
            f"{path} does not say how to ask Slurm for workers ({error!r}); expected YAML with "
            "`jobs`, how many, perhaps `wait_hours`, how long they may be queued, and options of "
            "dask_jobqueue.SLURMCluster: cores, memory, walltime …"
        ) from error
    return SlurmOptions(n_jobs, wait_hours, options)


# -- on a worker ---------------------------------------------------------------------------


class _Introduction(WorkerPlugin):
    """Makes every worker, also one that comes later, say what it is."""

    idempotent = False

    def __init__(self, topic: str, files: dict[str, bytes] | None = None) -> None:
        self.name = topic  # each grid introduces its workers itself, beside other grids
        self.files = files or {}  # sent along, by their place in the worker's own folder

    async def setup(self, worker: Any) -> None:
        known = set(worker.state.total_resources)
        found = {_machine(identity): 1 for identity in identities()}
        found |= {_GPU: 1} if this_host.visible_gpus() and _GPU not in known else {}
        for name, content in self.files.items():
            path = _own_folder(worker, self.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        await worker.set_resources(**{_ONE: 1, **found})

    def teardown(self, worker: Any) -> None:
        """The grid has ended: what was sent for it, and what was sent back, goes."""
        shutil.rmtree(_own_folder(worker, self.name), ignore_errors=True)


def identities() -> list[str]:
    """Which machines this process is: with its processor, and with its first GPU."""
    return [this_machine.identity(gpu) for gpu in ("", *this_host.visible_gpus()[:1])]


def _machine(identity: str) -> str:
    return f"machine {identity}"


def _own_folder(worker: Any, topic: str) -> Path:
    """Of a grid: another one may have another notebook of the same name."""
    return Path(worker.local_directory) / topic


@dataclass(frozen=True)
class Introduced:
    """What a worker says of itself."""

    name: str
    version: str
    identities: tuple[str, ...]
    resources: tuple[str, ...]
    sees_store: bool


def introduce(area: Path, dask_worker: Any) -> Introduced:
    """Called on a worker; ``area`` is a folder in the store that exists as long as the driver."""
    given = (name for name in dask_worker.state.total_resources if not name.startswith("machine "))
    return Introduced(
        name=str(dask_worker.name),
        version=__version__,
        identities=tuple(identities()),
        resources=tuple(given),
        sees_store=area.is_dir(),
    )


class _Far(Listener):
    """Tells the driver, by Dask's events."""

    def __init__(self, topic: str, index: int) -> None:
        super().__init__()
        self.children = _children_of(topic)
        self._topic = topic
        self._index = index
        self._worker = get_worker()

    @property
    def stopped(self) -> bool:  # type: ignore[override]
        return self.children.ended

    def changed(self, **fields: Any) -> None:
        self._worker.log_event(self._topic, {"index": self._index, "fields": fields})

    def say(self, line: str) -> None:
        self._worker.log_event(self._topic, {"line": line})


def carry_out(job: Job, area: Path, topic: str, index: int) -> tuple[GridRun, Sent | None]:
    """Called on a worker: make a point, in the store, or in a folder of its own to be sent."""
    sees_store = area.is_dir()
    if not sees_store:
        job = moved(job, _own_folder(get_worker(), topic))
    run = run_job(job, _Far(topic, index))
    root = job.grid.store.root
    sent = None if sees_store else Sent.of(root, job)
    return replace(run, folder=run.folder.relative_to(root)), sent


def end(topic: str) -> None:
    """Called on a worker: end what it does for a grid, and for no other one."""
    _children_of(topic).end()


def _children_of(topic: str) -> Children:
    return _CHILDREN.setdefault(topic, Children())


# -- the driver ----------------------------------------------------------------------------


class ClusterPool:
    """The workers of a Dask cluster, as `cellrepro.grid.pool.Pool` says."""

    look_seconds = 0.05  # Dask tells its futures' ends to none but those who ask

    def __init__(self, client: Any, area: Path, n_expected: int, queue: JobQueue) -> None:
        self._client = client
        self._area = area
        self._gone_since = 0.0
        self._topic = f"cellrepro-{area.name}"
        self._remote: dict[int, Any] = {}
        self._outcomes: list[Future[GridRun]] = []
        client.register_plugin(_Introduction(self._topic))
        wait_for_workers(
            lambda: len(client.scheduler_info(n_workers=-1)["workers"]),
            n_expected=n_expected,
            queue=queue,
        )
        shown = "dashboard" in client.scheduler_info(n_workers=0)["services"]
        self.dashboard = client.dashboard_link if shown else ""

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """See `Pool`."""
        workers = self._workers()
        if not all(worker.sees_store for worker in workers):
            self._client.register_plugin(_Introduction(self._topic, what_is_needed(grid)))
        found = []
        for point in grid.points:
            job = Job(grid, point, minutes=minutes)
            found += _placed(job, grid.on, workers) if grid.on else [job]
        return found

    def begin(self, jobs: Sequence[Job], board: Board) -> list[Future[GridRun]]:
        """See `Pool`."""
        self._jobs, self._board = jobs, board
        self._outcomes = [Future() for _ in jobs]
        self._client.subscribe_topic(self._topic, self._heard)
        at_hand = {identity for worker in self._workers() for identity in worker.identities}
        for index, job in enumerate(jobs):
            needs = {_ONE: 1.0} | ({_GPU: 1.0} if job.point.plan.profile.kind == "cuda" else {})
            run, identity = job.grid.store.run(job.key), job.identity
            if run is not None and not job.place:
                if whole := [
                    name for name, made in run.machines.items() if len(made) >= job.grid.repeats
                ]:
                    self._over(index, job.ended("present", machine=whole[0]))
                    continue
                made = Counter(one.manifest.machine.identity for one in run.repeats)
                identity = next((name for name, _ in made.most_common() if name in at_hand), "")
            if identity:
                needs[_machine(identity)] = 1.0
            held = (
                frozenset(f"{one.machine}/{one.index}" for one in run.repeats)
                if run
                else frozenset()
            )
            self._remote[index] = self._client.submit(
                carry_out,
                travelling(replace(job, held=held)),
                self._area,
                self._topic,
                index,
                resources=needs,
                pure=False,
                priority=-index,
            )
        return self._outcomes

    def advance(self) -> None:
        """See `Pool`."""
        if self._client.status == "running":
            self._gone_since = 0.0
        else:
            self._gone_since = self._gone_since or time.monotonic()
            if time.monotonic() - self._gone_since > _GONE_SECONDS:
                raise NotPossibleHere(_LOST)
        for index, remote in tuple(self._remote.items()):
            if remote.done():
                del self._remote[index]
                self._over(index, self._result(self._jobs[index], remote))

    def stop(self) -> None:
        """See `Pool`."""
        with suppress(OSError, TimeoutError, ValueError):  # the scheduler may be lost
            self._client.cancel(list(self._remote.values()), force=True)
            self._client.run(end, self._topic, on_error="ignore")

    def leave(self) -> None:
        """Take what the workers were given for the grid from them."""
        if self._client.status != "running":
            return
        with suppress(OSError, TimeoutError, ValueError):  # the scheduler may be lost
            self._client.unregister_worker_plugin(self._topic)

    def _workers(self) -> list[Introduced]:
        found = list(self._client.run(introduce, self._area, on_error="ignore").values())
        if not found or any(worker.version != __version__ for worker in found):
            versions = ", ".join(sorted({worker.version for worker in found})) or "none"
            raise BadInput(
                f"the workers have cellrepro {versions}, expected {__version__} as here: "
                "install the same there"
            )
        return found

    def _result(self, job: Job, remote: Any) -> GridRun:
        try:
            run, sent = remote.result()
        except CancelledError:
            raise NotPossibleHere(_LOST) from None
        except Exception as error:  # of Dask: a worker lost again and again, another version of it
            return job.ended("failed", reason=f"its worker was lost: {error}")
        if sent is not None:
            sent.unpack(job, self._area)
        return replace(run, folder=job.grid.store.root / run.folder)

    def _over(self, index: int, run: GridRun) -> None:
        fields = {"status": run.status, "machine": run.machine, "reason": run.reason}
        self._board.change(index, {**fields, "folder": str(run.folder), "notebook": ""})
        self._outcomes[index].set_result(run)

    def _heard(self, event: tuple[float, dict[str, Any]]) -> None:
        said = event[1]
        if "line" in said:
            self._board.say(said["line"])
        elif not self._outcomes[said["index"]].done():
            self._board.change(said["index"], said["fields"])


def _placed(job: Job, on: Any, workers: Sequence[Introduced]) -> list[Job]:
    """A job for each machine among the workers that ``on`` means."""
    gpu = job.point.plan.profile.kind == "cuda"
    meant = [one for one in workers if on == "all" or {one.name, *one.resources} & {*on}]
    places: dict[str, str] = {}
    for worker in meant:
        for identity in worker.identities[1:] if gpu else worker.identities[:1]:
            places.setdefault(identity, worker.name)
    if not places:
        known = sorted({name for one in workers for name in (one.name, *one.resources)})
        raise BadInput(
            f"on is {on!r}, and no worker of that name{' has a GPU' * gpu}; "
            f"expected all, or some of {', '.join(known)}"
        )
    return [replace(job, place=name, identity=identity) for identity, name in places.items()]
