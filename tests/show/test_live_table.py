"""Grids as they stand: read from the store by whoever looks on."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from cellrepro.lab.grid.status import GridStatus, Row
from cellrepro.show import live_table
from cellrepro.store import disk

NOW = 1_800_000_000.0


def row(label, status, **fields):
    return Row(key="0123456789abcdef", label=label, n_repeats=2, status=status, **fields)


ROWS = [
    row("seed 0", "waiting"),
    row("seed 1", "done", machine="lab-1", repeat=2),
    row("seed 2", "running", machine="lab-1", repeat=1, started=NOW - 60, done=1, total=2,
        text="epoch 6/12, loss 0.41"),
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
    with disk.locked(path):  # as its command holds it
        answer = invoke("watch", "--store", store)
        document = invoke("watch", "--store", store, "--json").json
    first, *rows = answer.out.splitlines()
    assert "grid demo: 4 specs, 1 running, 1 waiting, 1 done, 1 out-of-memory" in first
    # A spec and three quarters took a minute; one and a quarter are to come.
    assert "about 43 s left" in first
    assert rows == [
        "running  seed 2  lab-1  2 of 2  epoch 6/12, loss 0.41  20 s",
        "out-of-memory  seed 3  lab-1  0 of 2  memory is short",
    ]
    assert [one["label"] for one in document["grids"][0]["rows"]] == [one.label for one in ROWS]
    assert "killed: give the same command again" in invoke("watch", "--store", store).out
    nothing = invoke("watch", "--store", store.parent / "none")
    assert nothing.out.startswith("no grid is being carried out in")


def test_a_grid_that_vanishes_has_ended_well(standing, monkeypatch):
    store, path = standing
    monkeypatch.setattr(live_table, "_REFRESH_SECONDS", 0.01)
    with disk.locked(path):
        states = live_table._states(store)
        assert next(states)[0].n("running") == 1
        path.unlink()
        (status,) = next(states)
    assert status.ended
    assert {one.status for one in status.rows} == {"done"}
    assert list(states) == []


def test_in_a_notebook_the_table_follows(standing, tmp_path):
    """Beside other work of the kernel; the saved notebook holds what was seen last."""
    store, path = standing
    code = [
        f"import cellrepro; cellrepro.watch({str(store)!r})",
        f"import time; time.sleep(2); open({str(path)!r}, 'w').write(later); time.sleep(2)",
    ]
    later = GridStatus(name="demo", started=NOW, updated=NOW, ended=True, rows=ROWS[1:2])
    code[1] = f"later = {later.model_dump_json()!r}; {code[1]}"
    notebook = new_notebook(cells=[new_code_cell(one) for one in code])
    with disk.locked(path):
        NotebookClient(notebook, timeout=60).execute()
    (output,) = notebook.cells[0].outputs
    page = output.data["text/html"]
    assert "1 spec, 1 done" in page
    assert "seed 1" in page
    assert nbformat.validate(notebook) is None
