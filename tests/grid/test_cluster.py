"""A grid on Dask workers: real processes, killed in the middle of a training."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml

from cellrepro.store.store import Store
from conftest import MAIN, SMALL, run_command

pytest.importorskip("distributed", reason="the extra `cluster` is not installed")

SECONDS = 120


class Dask:
    """A scheduler and its workers, each a process of its own; gone after the block."""

    def __init__(self, folder):
        self.folder, self.started = folder, {}
        self.start_scheduler()

    def _start(self, name, *arguments, before=(), **variables):
        command = [*before, sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
        with (self.folder / f"{name}.log").open("w") as log:
            self.started[name] = subprocess.Popen(
                command, cwd=self.folder, env={**os.environ, **variables}, stdout=log, stderr=log
            )

    def start_scheduler(self):
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        place = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self._start("scheduler", "dask_scheduler", *place, "--scheduler-file", str(file))
        wait_until(lambda: file.exists() and file.read_text().endswith("}"), "a scheduler")
        self.address = json.loads(file.read_text())["address"]

    def start_worker(self, name, *options, **more):
        usual = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name)
        self._start(name, "dask_worker", self.address, *usual, *options, **more)

    def kill(self, name):
        """Kill -9 one process alone, and wait until what it had started has ended, too."""
        process = self.started.pop(name)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        assert psutil.wait_procs(children, timeout=15)[1] == [], "a child went on by itself"
        return children

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for name in tuple(self.started):
            self.kill(name)


def wait_until(condition, what):
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, f"{what} was waited for in vain"
        time.sleep(0.05)


@pytest.fixture
def dask(tmp_path):
    (tmp_path / "dask").mkdir()
    with Dask(tmp_path / "dask") as cluster:
        yield cluster


@pytest.fixture
def store(tmp_path):
    return tmp_path / "outputs"


@pytest.fixture
def write(tmp_path, notebook, small_data):
    """A grid of two trainings, the first of which `small_store` has made without a grid."""

    def to_file(**fields):
        fixed = {"data": str(small_data), **SMALL}
        content = {"notebook": str(notebook), "fixed": fixed, "vary": {"seed": [0, 1]}, **fields}
        path = tmp_path / "grid.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return to_file


def start_grid(path, cluster, store):
    command = ["grid", path, "--scheduler", cluster.address, "--store", store, "--json"]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", MAIN, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def grid(path, cluster, store):
    return run_command("grid", path, "--scheduler", cluster.address, "--store", store, "--json")


def training(store):
    """Whether a training has left its first checkpoint."""
    return bool(list(store.glob("unfinished/*/*/*/epoch-*")))


def equal_to(small_store, store):
    """The run of seed 0 has the bits that the train command gave it."""
    made = Store(store).run(small_store.key).repeats[0].manifest
    wanted = small_store.answer.json["repeats"][0]
    return (made.weights.digest, {n: m.digest for n, m in made.masks.items()}) == (
        *(wanted["weights"], wanted["masks"]),
    )


@pytest.mark.slow
def test_a_killed_worker(write, dask, store, small_store, wholeness):
    for name in "ab":
        dask.start_worker(name)
    process = start_grid(write(), dask, store)
    wait_until(lambda: training(store), "a checkpoint")
    assert dask.kill("a"), "it was not at work; the test would prove nothing"
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert [run["status"] for run in json.loads(out)["runs"]] == ["done", "done"]
    assert len(wholeness(store)) == 2
    assert equal_to(small_store, store)
    assert {item.name for item in store.iterdir()} == {"runs", "data"}


@pytest.mark.slow
def test_a_grid_that_is_stopped_ends_its_own_repeats_alone(write, dask, tmp_path):
    """Two people at one scheduler: Ctrl-C of the one costs the other nothing."""
    for name in "ab":
        dask.start_worker(name)
    path = write(vary={"seed": [0]})
    stores = [tmp_path / name for name in ("stopped", "goes-on")]
    stopped, goes_on = (start_grid(path, dask, store) for store in stores)
    wait_until(lambda: all(training(store) for store in stores), "a checkpoint of both")
    stopped.send_signal(signal.SIGINT)
    stopped.communicate(timeout=SECONDS)
    out, err = goes_on.communicate(timeout=SECONDS)
    assert stopped.returncode != 0
    assert (goes_on.returncode, "again" in err) == (0, False), err
    assert [run["status"] for run in json.loads(out)["runs"]] == ["done"]
    assert list(stores[0].glob("runs/*/*/*")) == []


@pytest.mark.slow
def test_a_killed_scheduler_and_a_killed_driver(write, dask, store, small_store, listing):
    """The same command then makes the rest and nothing that is stored."""
    dask.start_worker("a")
    path = write(repeats=2)
    process = start_grid(path, dask, store)
    wait_until(lambda: training(store), "a checkpoint")
    dask.kill("scheduler")
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 3
    assert "the Dask scheduler is lost; start it and its workers again" in err

    dask.started.pop("a").wait(SECONDS)  # a worker ends with its scheduler
    dask.start_scheduler()
    dask.start_worker("a")
    process = start_grid(path, dask, store)
    wait_until(lambda: list(store.glob("runs/*/*/0")), "a repeat")
    before = {path: state for path, state in listing(store / "runs").items() if path.is_file()}
    process.kill()
    process.communicate()
    answer = grid(path, dask, store)
    assert answer.code == 0, answer.err
    after = listing(store / "runs")
    assert {path: after[path] for path in before} == before
    assert [run["status"] for run in answer.json["runs"]] in (["done", "done"], ["present", "done"])
    assert equal_to(small_store, store)
    again = grid(path, dask, store)
    assert [run["status"] for run in again.json["runs"]] == ["present", "present"]


@pytest.mark.slow
def test_each_point_on_one_machine_or_on_all(write, dask, store):
    for name, machine in (("a", "alpha"), ("b", "beta"), ("c", "beta")):
        dask.start_worker(name, CELLREPRO_MACHINE=machine)
    answer = grid(write(vary={"seed": [0, 1, 2]}, repeats=2), dask, store)
    assert answer.code == 0, answer.err
    assert [len(run.machines) for run in Store(store).runs()] == [1, 1, 1]
    (key,) = {run["key"] for run in answer.json["runs"][:1]}
    on_all = grid(write(vary={"seed": [0]}, repeats=2, on="all"), dask, store)
    assert on_all.code == 0, on_all.err
    assert sorted(run["status"] for run in on_all.json["runs"]) == ["done", "present"]
    run = Store(store).run(key)
    assert sorted(name.split("-")[0] for name in run.machines) == ["alpha", "beta"]
    assert {len(repeats) for repeats in run.machines.values()} == {2}
    # By name; and the machine that has begun a point goes on with it.
    named = grid(write(vary={"seed": [0]}, repeats=3, on=["c"]), dask, store)
    assert [one["machine"].split("-")[0] for one in named.json["runs"]] == ["beta"]
    assert len(Store(store).run(key).repeats) == 5
    wrong = grid(write(on=["d"]), dask, store)
    assert wrong.code == 2
    assert "no worker of that name; expected all, or some of a, b, c" in wrong.err


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["store", "images"])
def test_a_worker_without_the_store_is_refused(write, dask, store, small_data, hidden):
    """Or without the images, as on a machine without a common file system."""
    store.mkdir()
    folder = {"store": store, "images": small_data.parent}[hidden]
    hide = f'mount -t tmpfs none {folder} && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", hide, "sh")
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root can hide a folder from a process")
    dask.start_worker("a", before=before)
    dask.start_worker("b")
    answer = grid(write(), dask, store)
    assert (answer.code, answer.out) == (2, "")
    missing = {"store": store, "images": small_data}[hidden]
    assert f"the worker a does not see {missing}; expected store, images" in answer.err
    bring = "runs.cellrepro.zip --weights --images` there, then `cellrepro import"
    assert f"`cellrepro export FILE.yaml {bring}" in answer.err
    assert not list(store.glob("runs/*"))


@pytest.mark.slow
def test_no_scheduler(write, store):
    answer = run_command("grid", write(), "--scheduler", "tcp://127.0.0.1:9", "--store", store)
    assert answer.code == 2
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in answer.err
    assert not store.exists()


def test_one_place_at_a_time_and_only_with_dask(write, store, invoke, monkeypatch):
    both = invoke("grid", write(), "--scheduler", "x", "--slurm", "y", "--store", store)
    assert (both.code, store.exists()) == (2, False)
    for name in ("clusters", "dask_pool", "dask_worker"):
        monkeypatch.delitem(sys.modules, f"cellrepro.grid.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    without = invoke("grid", write(), "--scheduler", "x", "--store", store)
    assert without.code == 3
    assert 'pip install "cellrepro[cluster]"' in without.err


def test_a_scheduler_that_does_not_answer_does_not_fail_what_has_ended():
    """Dask's class of a time limit is not the builtin one by Python 3.10."""
    from distributed import TimeoutError as DaskTimeout

    from cellrepro.grid.dask_pool import DaskPool

    class Silent:
        status = "running"

        def unregister_worker_plugin(self, name):
            raise DaskTimeout(name)

    pool = object.__new__(DaskPool)
    pool._client = Silent()
    pool._topic = "cellrepro-x"
    pool.close()
