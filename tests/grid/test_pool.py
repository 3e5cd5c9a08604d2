"""A grid on one machine: devices, endings, and kills at any moment."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import psutil
import pytest
import yaml

from cellrepro.grid import local_pool, repeat_by_notebook
from cellrepro.grid.grid import run_grid
from cellrepro.grid.job import Job
from cellrepro.grid.job_run import how_it_ended
from cellrepro.grid.local_pool import CORE, LocalPool, Machine, Share
from cellrepro.grid.points import read_grid
from cellrepro.grid.status import Board, board_of, standing
from cellrepro.process.calling import Children, in_child
from cellrepro.process.machine_here import look
from cellrepro.process.process_ends import RunError, ended_with
from cellrepro.process.setup import Setup
from cellrepro.profiles.profiles import load
from cellrepro.progress import progress
from cellrepro.progress_count import Progress
from cellrepro.store import hardware
from cellrepro.store.store import Store
from conftest import MAIN, SMALL, run_command


@pytest.fixture
def write(tmp_path, notebook, small_data):
    def to_file(*, fixed=(), **fields):
        fixed = {"data": str(small_data), **SMALL, **dict(fixed)}
        content = {"notebook": str(notebook), "fixed": fixed, **fields}
        path = tmp_path / "grid.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return to_file


@pytest.fixture
def store(tmp_path):
    return tmp_path / "outputs"


def start(*arguments, **popen):
    command = [sys.executable, "-P", "-c", MAIN, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Where the tests run in the background, a shell has made their children deaf to Ctrl-C.
    hear = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, **pipes, **popen, preexec_fn=hear)


def digests(store):
    """Of every repeat: weights and masks, by name."""
    return {
        repeat.name: (repeat.manifest.weights.digest, repeat.manifest.masks_digest)
        for run in Store(store).runs()
        for repeat in run.repeats
    }


# -- devices -------------------------------------------------------------------------------


@pytest.fixture
def at_work(monkeypatch):
    """Jobs that last until they are let go, in the place of real ones; and two GPUs."""
    begun, go = [], threading.Event()

    def run_job(job, reporter):
        begun.append((job.key, job.gpu, time.monotonic()))
        go.wait(40)
        return job.grid_run("done")

    monkeypatch.setattr(local_pool, "run_job", run_job)
    monkeypatch.setattr(hardware, "visible_gpus", lambda: ["GPU-one", "GPU-two"])
    monkeypatch.setattr(local_pool.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    return begun, go


@pytest.mark.parametrize(
    ("vary", "workers", "at_once"),
    [
        ({"seed": [0, 1, 2]}, None, [None, None]),  # 4 cores, 2 threads each
        ({"seed": [0, 1, 2]}, 3, [None] * 3),
        ({"seed": [0, 1, 2, 3, 4], "profile": ["cpu-1thread"]}, None, [None] * 4),
        ({"seed": [0, 1, 2], "profile": ["cuda"]}, None, ["GPU-one", "GPU-two"]),
        ({"seed": [0, 1, 2], "profile": ["cuda"]}, 1, ["GPU-one"]),
        ({"seed": [0, 1], "profile": ["cuda"], "ranks": [2]}, None, ["GPU-one,GPU-two"]),
        (
            {"seed": [0, 1, 2], "profile": ["cuda", "cpu"]},
            None,
            ["GPU-one", "GPU-two", None, None],
        ),
    ],
)
def test_a_job_has_its_gpus_or_its_share_of_cores(write, store, at_work, vary, workers, at_once):
    begun, go = at_work
    several = {"notebook": "01_seeded_training", "fixed": {"batch_size": 2}}
    grid = read_grid(write(vary=vary, **(several if "ranks" in vary else {})), store=store)
    running = threading.Thread(target=run_grid, args=(grid,), kwargs={"workers": workers})
    running.start()
    latest = time.monotonic() + 30
    while len(begun) < len(at_once) and time.monotonic() < latest:
        time.sleep(0.05)
    time.sleep(0.3)  # in which one too many would begin
    found = list(begun)
    go.set()
    running.join()
    keys = [point.plan.spec.key for point in grid.points]
    assert [gpu for _, gpu, _ in found] == at_once
    assert len(begun) == len(keys)
    if len(set(at_once)) == 1:
        assert [key for key, _, _ in found] == keys[: len(found)]  # the order is fixed


def test_what_never_began_is_not_waited_for(write, store, at_work, monkeypatch):
    """Ctrl-C, or a system without a free thread, between taking a job and starting its thread."""
    start = threading.Thread.start

    def interrupted(thread):
        if "ThreadPoolExecutor" in thread.name:
            raise KeyboardInterrupt
        start(thread)

    grid = read_grid(write(vary={"seed": [0, 1]}), store=store)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_grid(grid)


def test_every_job_of_every_grid_begins(small_data, store):
    """Of 200 mixed grids on machines of 2 to 64 cores; jobs end in any order."""
    draw = random.Random(20261124)
    names = {"model": ["tiny", "vit-l"], "ranks": [1, 2], "seed": [0]}
    profiles = {"profile": ["cpu", "cellpose-default", "cpu-1thread", "cuda"]}
    fixed = {"data": str(small_data), "batch_size": 2}
    path = store.with_name("grid.yaml")
    content = {"notebook": "01_seeded_training", "fixed": fixed, "vary": {**names, **profiles}}
    path.write_text(yaml.safe_dump(content))
    kinds = [Job(grid, one) for grid in [read_grid(path)] for one in grid.points]
    for _ in range(200):
        gpus = tuple(f"GPU-{i}" for i in range(draw.randrange(4)))
        memory = round(draw.uniform(1e9, 400e9))
        machine = Machine(draw.randrange(2, 65), memory, gpus)
        pool = LocalPool(None if draw.random() < 0.8 else 3, machine)
        shares = [pool.share(draw.choice(kinds)) for _ in range(draw.randrange(1, 60))]
        devices = pool.devices(shares)
        begun, at_work = [], []
        while len(begun) < len(shares):
            started = [number for number, _ in devices.begin()]
            begun += started
            at_work += started
            assert at_work, f"{[*set(range(len(shares))) - {*begun}]} wait for ever on {machine}"
            for _ in range(draw.randint(1, len(at_work))):
                devices.give_back(at_work.pop(draw.randrange(len(at_work))))
        for choice in {share.devices for share in shares}:
            of_one_choice = [number for number in begun if shares[number].devices == choice]
            assert of_one_choice == sorted(of_one_choice)


def test_no_device_waits_for_another_ones_jobs():
    processor = Share(("cpu",), amount=2 * CORE)
    gpu = Share(("GPU-one",))
    pool = LocalPool(None, Machine(2, 10**12, ("GPU-one",)))
    devices = pool.devices([processor, processor, gpu, gpu])
    assert list(devices.begin()) == [(0, ("cpu",)), (2, ("GPU-one",))]
    devices.give_back(2)
    assert list(devices.begin()) == [(3, ("GPU-one",))]
    devices.give_back(0)
    assert list(devices.begin()) == [(1, ("cpu",))]


def test_small_jobs_do_not_overtake_a_large_one_for_ever():
    """Two GPUs of which the second job needs both: the third, of any, waits behind it."""
    pool = LocalPool(None, Machine(2, 10**12, ("GPU-one", "GPU-two")))
    either = Share(pool._machine.gpus)
    devices = pool.devices([either, Share(either.devices, n_devices=2), either])
    assert list(devices.begin()) == [(0, ("GPU-one",))]
    assert list(devices.begin()) == []
    devices.give_back(0)
    assert list(devices.begin()) == [(1, ("GPU-one", "GPU-two"))]
    devices.give_back(1)
    assert list(devices.begin()) == [(2, ("GPU-one",))]


@pytest.mark.usefixtures("at_work")
def test_all_gpus_or_the_first_that_is_free(write, store, monkeypatch):
    of_one_gpu = read_grid(write(vary={"seed": [0], "profile": ["cuda"]}), store=store)
    (job,) = LocalPool().jobs(of_one_gpu, None)
    assert job.gpu is None, "none has begun it, so whichever is free first takes it"
    path = write(vary={"seed": [0], "profile": ["cuda"]}, on="all")
    jobs = LocalPool().jobs(read_grid(path, store=store), None)
    assert [(job.gpu, job.machine_label) for job in jobs] == [
        ("GPU-one", "GPU 0"),
        ("GPU-two", "GPU 1"),
    ]
    monkeypatch.setattr(hardware, "visible_gpus", lambda: [])
    (job,) = LocalPool().jobs(read_grid(path, store=store), None)
    assert job.gpu is None


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize(("ranks", "gpu"), [(1, "GPU-one"), (2, None)])
def test_a_point_goes_on_where_it_began_unless_each_rank_needs_a_gpu(
    write, store, monkeypatch, ranks, gpu
):
    monkeypatch.setattr(local_pool, "_gpu_that_began", lambda job, gpus: "GPU-one")
    path = write(
        notebook="01_seeded_training", fixed={"profile": "cuda", "ranks": ranks, "batch_size": 2}
    )
    (job,) = LocalPool().jobs(read_grid(path, store=store), None)
    assert job.gpu == gpu


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RunError("time-limit", "5 minutes", label="x"), "time-limit"),
        (ended_with("OutOfMemoryError('CUDA out of memory')", label="x"), "out-of-memory"),
        (ended_with("OSError: [Errno 28] No space left on device", label="x"), "disk-full"),
        (ended_with("ValueError('x')", label="x"), "failed"),
        (ended_with("exit code -9", label="x", code=-9), "failed"),
    ],
)
def test_endings(error, expected):
    assert how_it_ended(error) == expected


# -- endings -------------------------------------------------------------------------------


def test_what_is_ended_here_is_interrupted_and_not_killed_by_the_system():
    children = Children()
    threading.Timer(0.3, children.end).start()
    with pytest.raises(RunError, match="a look: interrupted") as ended:
        in_child(look, Setup(load("cpu")), label="a look", children=children)
    assert ended.value.status == "interrupted"


def test_a_grid_is_seen_from_its_first_moment(write, store):
    """Before anybody knows which machine this is, which takes seconds."""
    grid = read_grid(write(), store=store)
    jobs = LocalPool().jobs(grid, None)
    with progress(1, "grid", quiet=True) as bar, board_of(jobs, bar):
        until = time.monotonic() + 10
        while not standing(grid.store) and time.monotonic() < until:
            time.sleep(0.05)
        (status,) = standing(grid.store)
        assert (status.n("waiting"), status.lost) == (1, False)


@pytest.mark.slow
def test_what_was_stored_before_is_not_counted_as_made_now(write, store):
    """A job that was not begun, as all of its repeats are stored: it took no time."""
    grid = read_grid(write(vary={"seed": [0, 1]}, repeats=2), store=store)
    jobs = LocalPool().jobs(grid, minutes=None)
    bar = Progress(4, "grid")
    board = Board(jobs, bar, dashboard="")
    board.ended(0, jobs[0].grid_run("present"))
    assert (bar.done, bar.n_earlier) == (2, 2)
    assert "left" not in bar.summary()
    row = board.status.rows[0]
    assert (row.n_made, row.n_left) == (0, 0)


def test_a_time_limit_ends_a_repeat_which_then_goes_on(write, store, wholeness):
    path = write(fixed={"epochs": 400})
    answer = run_command("grid", path, "--store", store, "--time-limit", 0.1, "--json")
    (run,) = answer.json["runs"]
    assert (answer.code, run["status"]) == (1, "time-limit")
    assert "took more than 0.1 minutes" in run["reason"]
    assert wholeness(store) == []
    (status,) = [json.loads(path.read_text()) for path in store.glob(".grids/*.json")]
    assert (status["ended"], status["rows"][0]["status"]) == (True, "time-limit")


def test_a_job_is_as_large_in_a_large_grid(write, store):
    """As a worker of a cluster is sent it."""

    def n_bytes(n_seeds):
        grid = read_grid(write(vary={"seed": [*range(n_seeds)]}), store=store)
        return len(pickle.dumps(Job(grid, grid.points[0]).to_send()))

    assert n_bytes(20) == n_bytes(2)


def test_an_error_that_nobody_foresaw_ends_its_point_alone(write, store, monkeypatch):
    """And neither the others nor the table."""
    errors = [OSError(28, "No space left on device"), ValueError("half a line"), SystemExit(3)]

    def execute(notebook, output, parameters, **options):
        raise errors[parameters["seed"]]

    monkeypatch.setattr(repeat_by_notebook, "execute", execute)
    runs = run_grid(read_grid(write(vary={"seed": [0, 1, 2]}), store=store), quiet=True)
    assert [run.status for run in runs] == ["disk-full", "failed", "failed"]
    assert "no space is left on the disk" in runs[0].reason
    assert runs[1].reason == "repeat 0 failed: ValueError('half a line')"
    assert "SystemExit(3)" in runs[2].reason
    kept = [json.loads((run.folder / "failure.json").read_text()) for run in runs[:2]]
    assert [record["reason"] for record in kept] == [run.reason for run in runs[:2]]


@pytest.mark.slow
def test_ctrl_c(write, store, small_store):
    grid = write(vary={"seed": [0, 1]})
    process = start("grid", grid, "--store", store, start_new_session=True)
    until = time.monotonic() + 60
    while not list(store.glob("unfinished/*/*/*/epoch-*")) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process hears it
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "interrupted; what was finished is kept" in err) == (130, True)
    assert "signal 9" not in err
    assert "again    " not in err, "as if a process had been lost"
    (status,) = [json.loads(path.read_text()) for path in store.glob(".grids/*.json")]
    assert [row["status"] for row in status["rows"]] == ["interrupted", "waiting"]
    assert not (store / "failed").exists()
    answer = run_command("grid", write(), "--store", store, "--json")
    assert answer.json["runs"][0]["status"] == "done"
    assert Store(store).runs()[0].repeats[0].manifest.training.resumed_at


@pytest.mark.slow
def test_a_second_ctrl_c_waits_for_nothing(write, store):
    process = start("grid", write(vary={"seed": [0, 1]}), "--store", store, start_new_session=True)
    family = []
    until = time.monotonic() + 60
    while not family and time.monotonic() < until:
        time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=5)
    assert psutil.wait_procs(family, timeout=5)[1] == [], "a child went on by itself"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "status", "says"),
    [
        ('ulimit -v 12000000; exec "$@"', "out-of-memory", "take a smaller batch_size"),
        (
            'mount -t tmpfs -o size=4m none {store} && exec "$@"',
            "disk-full",
            "no space is left on the disk; free some",
        ),
    ],
    ids=["memory", "disk"],
)
def test_what_is_short_is_said(write, store, shell, status, says):
    store.mkdir()
    before = ["unshare", "--mount", "sh", "-c", shell.format(store=store), "sh"]
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root can make a small disk")
    large = {"batch_size": 1024, "images_per_epoch": 1024, "explain_files": False}
    path = write(fixed=large, notebook="01_seeded_training") if "ulimit" in shell else write()
    command = [sys.executable, "-P", "-c", MAIN, "grid", str(path), "--store", str(store)]
    done = subprocess.run(
        [*before, *command, "--json"], capture_output=True, text=True, check=False
    )
    (run,) = json.loads(done.stdout)["runs"]
    assert (done.returncode, run["status"]) == (1, status), done.stderr
    assert says in run["reason"]


# -- kills and rivals ----------------------------------------------------------------------


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_workers(write, tmp_path):
    path = write(vary={"seed": [0, 1], "mode": ["fast", "strict"]}, fixed={"epochs": 3})
    found = []
    for workers in (1, 2, 4):
        place = tmp_path / str(workers)
        answer = run_command("grid", path, "--store", place, "--workers", workers, "--json")
        assert answer.code == 0, answer.err
        assert len(digests(place)) == 4
        fixed = [run["key"] for run in answer.json["runs"] if run["varied"]["mode"] == "strict"]
        found.append({n: d for n, d in digests(place).items() if n.split("/")[0] in fixed})
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_eight_processes_store_one_spec_once(small_data, small_store, tmp_path, wholeness):
    store, rivals = tmp_path / "outputs", 8
    few = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    command = ("train", small_data, "--store", store, "--repeats", 1, "--json", *few)
    with ThreadPoolExecutor(rivals) as threads:
        answers = list(threads.map(lambda _: run_command(*command), range(rivals)))
    assert {answer.code for answer in answers} == {0}, [answer.err for answer in answers]
    assert wholeness(store) == [f"{small_store.key}/0"]
    started = {answer.json["repeats"][0]["weights"] for answer in answers}
    assert started == {small_store.answer.json["repeats"][0]["weights"]}
    waited = ["another process is at repeat 0" in answer.err for answer in answers]
    assert sum(waited) == rivals - 1  # one made it, the others found it


N_KILLS = 30


@pytest.mark.slow
def test_thirty_kills_at_random(write, store, small_store, wholeness):
    """Of random processes of a grid at random moments; each time the same command goes on."""
    path, draw = write(vary={"seed": [0, 1, 2]}, repeats=2), random.Random(20261123)
    known, n_killed, kinds = {}, 0, set()
    while n_killed < N_KILLS:
        process = start("grid", path, "--store", store, "--workers", 2)
        time.sleep(draw.uniform(0.5, 14))
        with suppress(psutil.Error):
            family = [psutil.Process(process.pid)]
            family += family[0].children(recursive=True)
            victim = draw.choice(family)
            kinds.add("driver" if victim.pid == process.pid else "child")
            victim.kill()
            n_killed += 1
        if victim.pid != process.pid and draw.random() < 0.5:
            process.kill()
        process.communicate(timeout=300)
        psutil.wait_procs(family, timeout=15)
        assert len(wholeness(store)) == len(digests(store))  # nothing partial
        now = {
            repeat.name: (repeat.manifest.started, repeat.manifest.weights.digest)
            for run in Store(store).runs()
            for repeat in run.repeats
        }
        assert {name: now[name] for name in known} == known  # nothing lost, nothing made again
        known = now
        if len(known) == 6:  # all is done: from the beginning, in a store of its own
            assert (
                digests(store)[f"{small_store.key}/{small_store.machine}/0"][0]
                == (small_store.answer.json["repeats"][0]["weights"])
            )
            store, known = store.with_name(f"{store.name}-"), {}
    assert kinds == {"driver", "child"}
    answer = run_command("grid", path, "--store", store, "--json")
    assert answer.code == 0, answer.err
    assert len(wholeness(store)) == 6
    assert {item.name for item in store.iterdir()} == {"runs", "data"}
