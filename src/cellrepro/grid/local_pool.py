"""The pool of this machine: a thread for each job at work, as far as there are cores and GPUs."""

from __future__ import annotations

import math
import os
import queue
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import psutil

from cellrepro.grid.grid_runs import GridRun
from cellrepro.grid.job import Job
from cellrepro.grid.job_run import run_job
from cellrepro.grid.point import Point
from cellrepro.grid.points import Grid
from cellrepro.grid.status import Board
from cellrepro.model.encoders import SMALL
from cellrepro.store import hardware, machine_identity
from samebits.errors import BadInput

CORE = 1000
"""Thousandths of a core: sums of floats drift, and a job that needs every core would wait for ever
for the last 1e-14 of one."""
_BYTES_SMALL_NETWORK = 2_000_000_000
_BYTES_LARGE_NETWORK = 14_000_000_000
"""Bytes that a training on the processor may need, of a small network and of Cellpose's own."""
_LOOK_SECONDS = 1.0
"""Seconds after which Ctrl-C is heard where nothing else happens, as Windows needs it."""


@dataclass(frozen=True)
class Machine:
    """A computer with its cores, memory and GPUs."""

    n_cores: int
    """Cores that may be used."""
    memory: int
    """Bytes in all."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs."""

    @classmethod
    def here(cls) -> Machine:
        """This computer: the cores that this process may use, and the GPUs that it sees."""
        if hasattr(os, "sched_getaffinity"):
            n_cores = len(os.sched_getaffinity(0))
        else:
            n_cores = os.cpu_count() or 1
        return cls(
            n_cores=max(1, n_cores),
            memory=psutil.virtual_memory().total,
            gpus=tuple(hardware.visible_gpus()),
        )


@dataclass(frozen=True)
class Share:
    """What a job occupies of a machine while it runs."""

    devices: tuple[str, ...]
    """Names of the devices to choose from: the processor, or GPUs."""
    n_devices: int = 1
    """Number of devices that it takes."""
    amount: int = 1
    """Amount of each device: thousandths of a core of the processor, or 1 of a GPU. It is 0 of the
    processor where only the number of jobs is limited."""


class LocalPool:
    """The cores and GPUs of this machine, for the jobs of a grid."""

    dashboard = ""

    def __init__(self, workers: int | None = None, machine: Machine | None = None) -> None:
        self._machine = machine or Machine.here()
        self._workers = workers

    def jobs(self, grid: Grid, minutes: float | None) -> list[Job]:
        """Make a job for each point; with ``on: all``, for each point on each GPU."""
        if isinstance(grid.on, tuple):
            raise BadInput(
                f"on names workers, {', '.join(grid.on)}, and there is only this machine: give "
                "--scheduler or --slurm, or `on: all`"
            )
        return [job for point in grid.points for job in self._jobs_of(point, grid, minutes)]

    def _jobs_of(self, point: Point, grid: Grid, minutes: float | None) -> list[Job]:
        job = Job(grid, point, minutes=minutes)
        gpus = self._machine.gpus
        has_choice = point.plan.profile.device == "cuda" and len(gpus) > 1
        if not has_choice:
            return [job]
        if grid.on == "all":
            return [
                replace(job, gpu=gpu, machine_label=f"GPU {number}")
                for number, gpu in enumerate(gpus)
            ]
        if point.plan.spec.ranks > 1:  # each rank takes one of them
            return [job]
        return [replace(job, gpu=_gpu_that_began(job, gpus))]

    def run(self, jobs: Sequence[Job], board: Board) -> list[GridRun]:
        """Run the jobs, each in a thread that mostly waits for its child; gives how each ended.

        Where this is left early (Ctrl-C), all children are killed.
        """
        shares = [self.share(job) for job in jobs]
        devices = self.devices(shares)
        runs: dict[int, GridRun] = {}
        at_work: dict[Future[GridRun], int] = {}
        ended: queue.SimpleQueue[Future[GridRun]] = queue.SimpleQueue()
        threads = ThreadPoolExecutor(len(jobs))
        try:
            while len(runs) < len(jobs):
                for number, taken in devices.begin():
                    job = jobs[number]
                    if len(shares[number].devices) > 1:
                        job = replace(job, gpu=",".join(taken))
                    future = threads.submit(run_job, job, board.reporter(number))
                    at_work[future] = number
                    future.add_done_callback(ended.put)
                for future in _next_of(ended):
                    number = at_work.pop(future)
                    devices.give_back(number)
                    runs[number] = future.result()
                    board.ended(number, runs[number])
        except BaseException:
            board.children.end()
            threads.shutdown(cancel_futures=True)  # a second Ctrl-C does not wait for it
            for future, number in at_work.items():
                if not future.cancelled():
                    board.ended(number, future.result())
            raise
        threads.shutdown()
        return [runs[number] for number in range(len(jobs))]

    def devices(self, shares: Sequence[Share]) -> Devices:
        """Share the devices of this machine out."""
        machine = self._machine
        # With a given number of workers they are spread evenly over the GPUs.
        of_each_gpu = math.ceil((self._workers or 1) / max(1, len(machine.gpus)))
        free = dict.fromkeys(("mps", "cuda", *machine.gpus), of_each_gpu)
        return Devices({"cpu": CORE * machine.n_cores, **free}, shares, most_jobs=self._workers)

    def share(self, job: Job) -> Share:
        """The share of a job; never more than there is, so that a job alone always fits."""
        profile = job.point.plan.profile
        if profile.kind == "mps":
            return Share(("mps",))
        if profile.kind == "cpu":
            return Share(("cpu",), amount=self._cores_of(job))
        gpus = self._gpus_for(job) or ("cuda",)
        n_ranks = job.point.plan.spec.ranks  # each rank has a GPU of its own
        return Share(gpus, n_devices=min(len(gpus), n_ranks))

    def _gpus_for(self, job: Job) -> tuple[str, ...]:
        """The GPUs to choose from: the one that the profile numbers, the job's own, or all."""
        _, _, number = job.point.plan.profile.device.partition(":")
        if number:
            return self._machine.gpus[int(number) :][:1]
        return (job.gpu,) if job.gpu else self._machine.gpus

    def _cores_of(self, job: Job) -> int:
        """Thousandths of a core, by the threads of the profile or the share of the memory."""
        if self._workers is not None:
            return 0
        plan = job.point.plan
        cores = CORE * self._machine.n_cores
        is_small = plan.request.model.architecture in SMALL
        memory = _BYTES_SMALL_NETWORK if is_small else _BYTES_LARGE_NETWORK
        by_memory = cores * memory // self._machine.memory
        by_threads = CORE * (plan.profile.threads or self._machine.n_cores)
        return min(max(by_threads, by_memory) * plan.spec.ranks, cores)


class Devices:
    """What is free of the devices of a machine, and the jobs that wait for it, by number."""

    def __init__(
        self, free: dict[str, int], shares: Sequence[Share], *, most_jobs: int | None = None
    ) -> None:
        self._free = free
        self._shares = shares
        self._most_jobs = most_jobs
        self._waiting = list(range(len(shares)))
        self._taken: dict[int, tuple[str, ...]] = {}

    def begin(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Give each job that has room now, in their order, with the devices that it takes.

        A device that a job waits for is not given to a later one, so a large job is not overtaken
        for ever by small ones; jobs for a different device do not wait for it.
        """
        blocked: set[str] = set()
        for number in tuple(self._waiting):
            if len(self._taken) == self._most_jobs or len(blocked) == len(self._free):
                return
            share = self._shares[number]
            fit = [
                device
                for device in share.devices
                if device not in blocked and self._free[device] >= share.amount
            ]
            if len(fit) < share.n_devices:
                blocked.update(share.devices)
                continue
            taken = tuple(fit[: share.n_devices])
            for device in taken:
                self._free[device] -= share.amount
            self._waiting.remove(number)
            self._taken[number] = taken
            yield number, taken

    def give_back(self, number: int) -> None:
        """Free the devices of a job that has ended."""
        for device in self._taken.pop(number):
            self._free[device] += self._shares[number].amount


def _next_of(ended: queue.SimpleQueue[Future[GridRun]]) -> Iterator[Future[GridRun]]:
    """Wait for the next job that ends; gives all that have."""
    while True:
        try:
            yield ended.get(timeout=_LOOK_SECONDS)
            break
        except queue.Empty:
            continue
    while not ended.empty():
        yield ended.get()


def _gpu_that_began(job: Job, gpus: Sequence[str]) -> str | None:
    """The GPU on which most repeats of a point were made, if any."""
    run = job.grid.store.run(job.key)
    if run is None:
        return None
    n_made = Counter(repeat.manifest.machine.identity for repeat in run.repeats)
    n_by_gpu = {gpu: n_made[machine_identity.identity(gpu)] for gpu in gpus}
    first = max(gpus, key=lambda gpu: n_by_gpu[gpu])
    return first if n_by_gpu[first] else None
