"""The scheduler of one machine: which cores and GPUs each job occupies, and which begins next.

Cores are counted in whole thousandths: sums of floats drift, and a job that needs every core would
wait for ever for the last 1e-14 of one.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psutil

from cellrepro.errors import whole
from cellrepro.grid.job import Job
from cellrepro.model.encoders import SMALL
from cellrepro.store import hardware

CORE = 1000
"""Thousandths of a core."""
_BYTES_SMALL_NETWORK = 2_000_000_000
_BYTES_LARGE_NETWORK = 14_000_000_000
"""Bytes that a training on the processor may need, of a small network and of Cellpose's own."""


@dataclass(frozen=True)
class Need:
    """The slots that a job occupies while it runs."""

    slots: tuple[str, ...]
    """Names of the slots to choose from; jobs with the same choice wait in one queue."""
    n_slots: int
    """Number of slots that it takes."""
    amount: int
    """Amount of each slot: thousandths of a core of the processor, or 1 of a GPU. It is 0 of the
    processor where only the number of jobs is limited."""


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

    def by_cores(self) -> Slots:
        """Make slots for one job on each GPU, and for as many as cores and memory allow."""
        return Slots(self, jobs_of_each_gpu=1)

    def by_number(self, n_jobs: int) -> Slots:
        """Make slots for so many jobs, whatever each needs, spread evenly over the GPUs."""
        whole("workers", n_jobs, least=1)
        of_each_gpu = math.ceil(n_jobs / max(1, len(self.gpus)))
        return Slots(self, jobs_of_each_gpu=of_each_gpu, most_jobs=n_jobs)


class Slots:
    """The slots of a machine, and how much of each is free."""

    def __init__(
        self, machine: Machine, *, jobs_of_each_gpu: int, most_jobs: int | None = None
    ) -> None:
        self._machine = machine
        self._most_jobs = most_jobs
        self._n_at_work = 0
        self._cores = CORE * machine.n_cores
        gpus = ("mps", "cuda", *machine.gpus)
        self._free = {"cpu": self._cores, **dict.fromkeys(gpus, jobs_of_each_gpu)}

    def need(self, job: Job) -> Need:
        """The need of a job; never more than there is, so that a job alone always fits."""
        profile = job.point.plan.profile
        if profile.kind == "mps":
            return Need(("mps",), n_slots=1, amount=1)
        if profile.kind == "cpu":
            return Need(("cpu",), n_slots=1, amount=self._cores_of(job))
        slots = self._gpus_for(job) or ("cuda",)
        n_ranks = job.point.plan.spec.ranks  # each rank has a GPU of its own
        return Need(slots, n_slots=min(len(slots), n_ranks), amount=1)

    def _gpus_for(self, job: Job) -> tuple[str, ...]:
        """The GPUs to choose from: the one that the profile numbers, the job's own, or all."""
        _, _, number = job.point.plan.profile.device.partition(":")
        if number:
            return self._machine.gpus[int(number) :][:1]
        return (job.gpu,) if job.gpu else self._machine.gpus

    def _cores_of(self, job: Job) -> int:
        """Thousandths of a core, by the threads of the profile or the share of the memory."""
        if self._most_jobs is not None:
            return 0
        plan = job.point.plan
        is_small = plan.request.model.architecture in SMALL
        memory = _BYTES_SMALL_NETWORK if is_small else _BYTES_LARGE_NETWORK
        by_memory = self._cores * memory // self._machine.memory
        by_threads = CORE * (plan.profile.threads or self._machine.n_cores)
        return min(max(by_threads, by_memory) * plan.spec.ranks, self._cores)

    def take(self, need: Need) -> tuple[str, ...] | None:
        """Occupy slots for a job; gives their names, or None while too few are free."""
        if self._n_at_work == self._most_jobs:
            return None
        free = [name for name in need.slots if self._free[name] >= need.amount]
        if len(free) < need.n_slots:
            return None
        taken = tuple(free[: need.n_slots])
        for name in taken:
            self._free[name] -= need.amount
        self._n_at_work += 1
        return taken

    def give_back(self, taken: Sequence[str], need: Need) -> None:
        """Free the slots of a job that has ended."""
        for name in taken:
            self._free[name] += need.amount
        self._n_at_work -= 1


class Queues:
    """Jobs that wait for slots, by number: one queue for each choice of slots.

    So no device waits for the jobs of another one, and a large job is not overtaken for ever by
    small ones behind it.
    """

    def __init__(self, slots: Slots, needs: Mapping[int, Need]) -> None:
        self._slots = slots
        self.needs = needs
        self._queues: dict[tuple[str, ...], deque[int]] = {}
        for number, need in needs.items():
            self._queues.setdefault(need.slots, deque()).append(number)
        self._at_work: dict[int, tuple[str, ...]] = {}

    def begin(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Begin the jobs that have room now, in their order."""
        first = {choice: waiting[0] for choice, waiting in self._queues.items() if waiting}
        while first:
            choice = min(first, key=lambda slots: first[slots])
            number = first.pop(choice)
            taken = self._slots.take(self.needs[number])
            if taken is None:
                continue
            waiting = self._queues[choice]
            waiting.popleft()
            if waiting:
                first[choice] = waiting[0]
            self._at_work[number] = taken
            yield number, taken

    def ended(self, number: int) -> None:
        """Give back the slots of a job that has ended."""
        self._slots.give_back(self._at_work.pop(number), self.needs[number])

    def waiting(self) -> list[int]:
        """List the jobs that have not begun, in their order."""
        return sorted(number for queue in self._queues.values() for number in queue)
