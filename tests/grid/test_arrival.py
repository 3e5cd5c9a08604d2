"""Workers that come late: waited for as long as their jobs are queued, and it is said."""

import threading
from dataclasses import dataclass

import pytest

from cellrepro.grid import arrival
from cellrepro.grid.arrival import Started, wait_for_workers
from samebits.errors import BadInput, NotPossibleHere

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")


@dataclass(frozen=True)
class Queue:
    """As Slurm's while no machine is free."""

    hours: float | None = None

    def n_queued(self):
        return 2

    def advice(self):
        return "look at their logs"


@pytest.fixture
def cluster():
    """A scheduler in this process, which has no worker yet."""
    options = {"n_workers": 0, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, threads_per_worker=1) as made,
        distributed.Client(made) as made.client,
    ):
        yield made


@pytest.fixture
def few_seconds(monkeypatch):
    monkeypatch.setattr(arrival, "START_SECONDS", 0.5)
    monkeypatch.setattr(arrival, "FIRST_REPORT_SECONDS", 0.3)


@pytest.mark.usefixtures("few_seconds")
def test_what_is_queued_is_waited_for(cluster, capsys):
    def n_workers():
        return len(cluster.client.scheduler_info(n_workers=-1)["workers"])

    later = threading.Timer(2, cluster.scale, [1])
    later.start()
    wait_for_workers(n_workers, n_expected=1, queue=Queue())
    later.join()
    said = capsys.readouterr().err
    assert "waiting in the queue for machines: 2 jobs of this grid not begun yet" in said
    assert "0 of 1 workers are here" in said


@pytest.mark.usefixtures("few_seconds")
@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (Started("tcp://lab:8786"), "dask worker tcp://lab:8786 --nthreads 1"),
        (Queue(hours=0.0001), "as long as `wait_hours` in the Slurm file allows"),
    ],
    ids=["nobody starts one", "longer than asked"],
)
def test_what_comes_to_nothing_is_given_up(queue, expected):
    with pytest.raises(NotPossibleHere, match=expected):
        wait_for_workers(lambda: 0, n_expected=1, queue=queue)


def test_a_file_for_slurm_is_read_as_any_other(tmp_path, monkeypatch):
    """Where YAML 1.1 takes a time without quotes for a number of seconds."""
    from cellrepro.grid import clusters

    monkeypatch.setattr(clusters.shutil, "which", lambda program: program)
    path = tmp_path / "slurm.yaml"
    path.write_text("jobs: 2\nwalltime: 04:00:00\n")
    options = clusters.SlurmOptions.read(path)
    assert (options.n_jobs, options.of_each_job) == (2, {"walltime": "04:00:00"})
    path.write_text("jobs: 0\n")
    with pytest.raises(BadInput, match="jobs is 0"):
        clusters.SlurmOptions.read(path)
