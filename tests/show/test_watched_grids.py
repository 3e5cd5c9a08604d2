"""Grids as they stand: read from the store by whoever looks on."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from cellrepro.grid.status import GridStatus, JobRow
from cellrepro.show import watched_grids
from cellrepro.store.locks import locked
from conftest import MAIN

NOW = 1_800_000_000.0


def row(label, status, **fields):
    return JobRow(key="0123456789abcdef", label=label, n_repeats=2, status=status, **fields)


ROWS = [
    row("seed 0", "waiting"),
    row("seed 1", "done", machine="lab-1", repeat=2),
    row("seed 2", "running", machine="lab-1", repeat=1, started=NOW - 60, done=1, total=2,
        text="epoch 6/12", losses=[0.9, 0.7, None, 0.41]),
    row("seed 3", "out-of-memory", machine="lab-1", reason="memory is short"),
]  # fmt: skip


@pytest.fixture
def standing(tmp_path):
    """A store in which a grid is half way; returns the store and the file of its status."""
    path = tmp_path / "outputs" / ".grids" / "demo-1.json"
    path.parent.mkdir(parents=True)
    status = GridStatus(name="demo", started=NOW - 60, updated=NOW, rows=ROWS)
    path.write_text(status.model_dump_json())
    return tmp_path / "outputs", path


def test_what_runs_and_what_failed_is_said(standing, invoke):
    store, path = standing
    with locked(path):  # as its command holds it
        answer = invoke("watch", "--store", store)
        document = invoke("watch", "--store", store, "--json").json
    first, *rows = answer.out.splitlines()
    assert "grid demo: 4 specs, 1 running, 1 waiting, 1 done, 1 out-of-memory" in first
    # A spec and three quarters took a minute; one and a quarter are to come.
    assert "about 43 s left" in first
    assert rows == [
        "running  seed 2  lab-1  2 of 2  epoch 6/12  loss 0.410 █▅?▁  20 s",
        "out-of-memory  seed 3  lab-1  0 of 2  memory is short",
    ]
    assert [one["label"] for one in document["grids"][0]["rows"]] == [one.label for one in ROWS]
    assert "killed: give the same command again" in invoke("watch", "--store", store).out
    (store.parent / "none").mkdir()
    nothing = invoke("watch", "--store", store.parent / "none")
    assert nothing.out.startswith("no grid is being carried out in")


def test_the_time_that_is_left_follows_from_what_was_made_since_the_start():
    """Three of four repeats were there before; half of the last is made, and two wait."""
    goes_on = row("seed 0", "running", repeat=3, n_found=3, started=NOW - 10, done=1, total=2)
    rows = [goes_on.model_copy(update={"n_repeats": 4}), row("seed 1", "waiting")]
    status = GridStatus(name="demo", started=NOW - 10, updated=NOW, rows=rows)
    assert status.seconds_left == pytest.approx(10 / 0.5 * 2.5)
    _, line = watched_grids.Standing([status], Path("outputs")).lines()
    assert line.endswith("  4 of 4  10 s")
    at_first = rows[0].model_copy(update={"done": 0})
    assert GridStatus(name="demo", started=NOW, updated=NOW, rows=[at_first]).seconds_left is None


def test_a_grid_that_vanishes_has_ended_well(standing, monkeypatch):
    store, path = standing
    monkeypatch.setattr(watched_grids, "REFRESH_SECONDS", 0.01)
    with locked(path):
        states = watched_grids.states(store)
        assert next(states)[0].n("running") == 1
        path.unlink()
        (status,) = next(states)
    assert status.ended
    assert [one.status for one in status.rows] == ["done", "done", "done", "out-of-memory"]


def test_an_old_failure_gives_way_to_the_next_attempt(standing, monkeypatch):
    """Whoever watches is told of the new attempt, and no failure is called done."""
    store, path = standing
    monkeypatch.setattr(watched_grids, "REFRESH_SECONDS", 0.01)
    other = path.with_name("other-2.json")
    old = GridStatus(name="demo", started=NOW - 900, updated=NOW - 800, ended=True, rows=ROWS[3:])
    new = GridStatus(name="demo", started=NOW, updated=NOW, rows=ROWS[2:3])
    other.write_text(new.model_copy(update={"name": "other"}).model_dump_json())
    path.write_text(old.model_dump_json())
    with locked(path), locked(other):
        states = watched_grids.states(store)
        first = {one.name: one for one in next(states)}
        assert (first["demo"].n("out-of-memory"), first["other"].n("running")) == (1, 1)
        path.write_text(new.model_dump_json())
        again = next(states)
        assert [one.n("running") for one in again] == [1, 1]
    path.write_text(old.model_dump_json())
    assert {one.name: one.n("out-of-memory") for one in next(states)}["demo"] == 1
    path.unlink()
    assert [one.name for one in next(states)] == ["other"]


def test_a_store_that_one_may_only_read_can_be_watched(standing):
    """Also on a file system that refuses to write: a command that is at work is at work."""
    store, path = standing
    bound = f"mount --bind {store} {store} && mount -o remount,bind,ro {store}"
    read_only = ["unshare", "--mount", "sh", "-c", f'{bound} && exec "$@"', "sh"]
    if subprocess.run([*read_only, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root can make a folder read-only for one process")
    watch = [*read_only, sys.executable, "-P", "-c", MAIN, "watch", "--store", str(store)]
    with locked(path):
        alive = subprocess.run(watch, capture_output=True, text=True, check=True).stdout
    path.with_name(f"{path.name}.lock").touch()  # as a killed command leaves it
    killed = subprocess.run(watch, capture_output=True, text=True, check=True).stdout
    assert "about 43 s left" in alive
    assert "its command was killed" in killed


def test_in_a_notebook_the_table_follows(standing, tmp_path):
    """Beside other work of the kernel; the saved notebook holds what was seen last. No thread is
    there without a grid, after a grid, of a cell that was run again, or after stop()."""
    store, path = standing
    later = GridStatus(name="demo", started=NOW, updated=NOW, ended=True, rows=ROWS[1:2])
    watch = f"cellrepro.watch({str(store)!r})"
    n_threads = "print(len([t for t in threading.enumerate() if t.name == 'cellrepro watch']))"
    code = [
        f"import cellrepro, threading, time; {watch}",
        f"cellrepro.watch({str(store.parent / 'none')!r}); {n_threads}",
        f"watching = {watch}; time.sleep(1.5); {n_threads}",
        f"watching.stop(); time.sleep(1.5); {n_threads}",
        watch,
        f"later = {later.model_dump_json()!r}; open({str(path)!r}, 'w').write(later); "
        f"time.sleep(2.5); {n_threads}",
    ]
    notebook = new_notebook(cells=[new_code_cell(one) for one in code])
    with locked(path):
        NotebookClient(notebook, timeout=60).execute()
    printed = [cell.outputs[-1].get("text") for cell in notebook.cells]
    assert printed == [None, "1\n", "1\n", "0\n", None, "0\n"]
    (output,) = notebook.cells[4].outputs
    page = output.data["text/html"]
    assert "1 spec, 1 done" in page
    assert "seed 1" in page
    assert nbformat.validate(notebook) is None
