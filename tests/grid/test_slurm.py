"""A grid on Slurm: a real one, started and stopped here."""

import subprocess
import threading
import time

import pytest
import yaml

from cellrepro.store.store import Store
from conftest import ROOT, SMALL, run_command
from slurm import slurm

pytest.importorskip("dask_jobqueue", reason="the extra `cluster` is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm(tmp_path_factory.mktemp("cluster") / "slurm") as environment:
        yield environment


def said(command, cluster):
    return subprocess.run(
        command, env=cluster, capture_output=True, text=True, check=True
    ).stdout.split()


def test_jobs_have_a_gpu_each(cluster, tmp_path):
    for number in range(2):
        script = ["--gres=gpu:1", f"--output={tmp_path / str(number)}", "--wait"]
        wrap = ["--wrap", "sleep 1; echo $CUDA_VISIBLE_DEVICES"]
        said(["sbatch", *script[: 2 + number], *wrap], cluster)  # the last one is waited for
    until = time.monotonic() + 20
    while said(["squeue", "--noheader"], cluster) and time.monotonic() < until:
        time.sleep(0.2)
    assert {(tmp_path / str(number)).read_text().strip() for number in range(2)} == {"0", "1"}


def test_a_grid_on_slurm_with_a_job_that_is_lost(
    cluster, notebook, small_data, small_store, tmp_path, monkeypatch, wholeness
):
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    store, options = tmp_path / "outputs", yaml.safe_load((ROOT / "grids/slurm.yaml").read_text())
    options |= {"job_cpu": 1, "memory": "2GB", "interface": "lo", "log_directory": str(tmp_path)}
    (tmp_path / "slurm.yaml").write_text(yaml.safe_dump(options))
    content = {"notebook": str(notebook), "fixed": {"data": str(small_data), **SMALL}}
    content |= {"vary": {"seed": [0, 1]}, "repeats": 2}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
    command = ("grid", tmp_path / "grid.yaml", "--store", store, "--json")

    def lose_one():
        until = time.monotonic() + 120
        while not list(store.glob("unfinished/*/*/*/epoch-*")) and time.monotonic() < until:
            time.sleep(0.05)
        (job, *_) = said(["squeue", "--noheader", "--format=%i"], cluster)
        said(["scancel", "--signal=KILL", "--full", job], cluster)

    losing = threading.Thread(target=lose_one)
    losing.start()
    answer = run_command(*command, "--slurm", tmp_path / "slurm.yaml")
    losing.join()
    assert answer.code == 0, answer.err
    assert [run["status"] for run in answer.json["runs"]] == ["done", "done"]
    assert len(wholeness(store)) == 4
    made = Store(store).run(small_store.key).repeats
    wanted = small_store.answer.json["repeats"]
    assert [one.manifest.weights.digest for one in made] == [one["weights"] for one in wanted]
    until = time.monotonic() + 20
    while said(["squeue", "--noheader"], cluster) and time.monotonic() < until:
        time.sleep(0.2)
    assert said(["squeue", "--noheader"], cluster) == [], "jobs were left behind"
