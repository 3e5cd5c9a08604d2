"""Clusters for one grid: the workers of a Dask scheduler, or jobs of Slurm that start workers.

Connections and jobs end with their block.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from distributed import Client
from distributed import TimeoutError as DaskTimeout  # up to Python 3.10 not the builtin

from cellrepro.errors import no_such_file
from cellrepro.grid.arrival import SlurmQueue, Started
from cellrepro.grid.dask_pool import DaskPool
from cellrepro.grid.points import Grid
from cellrepro.yaml_values import read_yaml
from samebits.errors import BadInput, NotPossibleHere

_CONNECT_SECONDS = 10


@contextmanager
def pool_of_scheduler(grid: Grid, address: str) -> Iterator[DaskPool]:
    """Use the workers of a Dask scheduler for one block."""
    with grid.store.staging() as area:
        try:
            client = Client(address, timeout=_CONNECT_SECONDS)
        except (OSError, DaskTimeout, ValueError, TypeError) as error:
            raise BadInput(
                f"no Dask scheduler answers at {address!r} ({error}); expected its address, "
                "tcp://HOST:PORT, as `dask scheduler` prints it"
            ) from error
        with (
            client,
            closing(DaskPool(client, area.resolve(), 1, Started(address))) as pool,
        ):
            yield pool


@contextmanager
def pool_of_slurm(grid: Grid, path: Path) -> Iterator[DaskPool]:
    """Let Slurm start workers for one block."""
    options = SlurmOptions.read(path)
    from dask_jobqueue import SLURMCluster

    with grid.store.staging() as area:
        try:
            cluster = SLURMCluster(**options.of_each_job)
        except (TypeError, ValueError, OSError) as error:
            raise BadInput(f"{path}: {error}; expected options of SLURMCluster") from error

        def job_ids() -> set[str]:
            return {str(job.job_id) for job in tuple(cluster.workers.values())}

        queue = SlurmQueue(
            job_ids,
            log_folder=str(options.of_each_job.get("log_directory") or Path.cwd()),
            hours=options.wait_hours,
        )
        n_expected = options.n_jobs if grid.on else 1
        with cluster, Client(cluster) as client:
            # A job that is lost is submitted again.
            cluster.adapt(minimum_jobs=options.n_jobs, maximum_jobs=options.n_jobs)
            with closing(DaskPool(client, area.resolve(), n_expected, queue)) as pool:
                yield pool


@dataclass(frozen=True)
class SlurmOptions:
    """The content of a Slurm file."""

    n_jobs: int
    """``jobs``: number of jobs, each of which starts workers."""
    wait_hours: float | None
    """Hours that the jobs may be queued; None for as long as it takes."""
    of_each_job: dict[str, Any]
    """All other keys: options of ``dask_jobqueue.SLURMCluster``."""

    @classmethod
    def read(cls, path: Path) -> SlurmOptions:
        """Read a Slurm file."""
        if shutil.which("sbatch") is None:
            raise NotPossibleHere(
                "there is no `sbatch` here; give --slurm on a machine of the cluster"
            )
        try:
            content = read_yaml(path.read_text(encoding="utf-8"))
            n_jobs = int(content.pop("jobs"))
            if n_jobs < 1:
                raise ValueError(f"jobs is {n_jobs}")
            wait_hours = content.pop("wait_hours", None)
            return cls(
                n_jobs=n_jobs,
                wait_hours=None if wait_hours is None else float(wait_hours),
                of_each_job=content,
            )
        except FileNotFoundError as error:
            raise no_such_file(path, expected="options of Slurm (YAML)") from error
        except (OSError, AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
            raise BadInput(
                f"{path} does not say how to ask Slurm for workers ({error!r}); expected YAML with "
                "`jobs`, how many, perhaps `wait_hours`, how long they may be queued, and options "
                "of dask_jobqueue.SLURMCluster: cores, memory, walltime …"
            ) from error
