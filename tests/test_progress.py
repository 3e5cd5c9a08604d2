"""Progress with an estimate: in a terminal, in a notebook, and in a log."""

import io
import json
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import Mock

import IPython.display
import pytest

from cellrepro import progress_count
from cellrepro.progress import LINES_VARIABLE, progress
from cellrepro.progress_log import FILE_VARIABLE, Lines, followed


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress_count.time, "monotonic", lambda: now.seconds)
    return now


def test_lines_are_few_and_what_stays_is_said_at_once(clock, capsys):
    """On standard error, so that standard output stays clean."""
    with progress(100, "train") as bar:
        bar.say("failed abc/0")
        assert capsys.readouterr().err == "train: 0/100 in 0 s\nfailed abc/0\n"
        for _ in range(100):
            clock.seconds += 1
            bar.advance()
    with progress(1, "train", quiet=True) as bar:
        bar.advance()
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert [line.split()[1] for line in lines] == [f"{n}/100" for n in (20, 40, 60, 80, 100)]
    assert lines[0] == "train: 20/100 in 20 s, about 1:20 min left"
    assert out == ""


def test_what_was_done_before_says_nothing_of_the_time_that_is_left(clock, capsys):
    """A grid that goes on after 4 of 20 repeats."""
    with progress(20, "grid") as bar:
        for _ in range(4):
            bar.advance_earlier()
        for _ in range(4):
            clock.seconds += 10
            bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [
        "grid: 4/20 (4 of them before) in 0 s",
        "grid: 8/20 (4 of them before) in 40 s, about 2:00 min left",
    ]


def test_a_log_is_not_silent_for_more_than_five_minutes(clock, capsys):
    with progress(100, "train") as bar:
        for _ in range(3):
            clock.seconds += 200
            bar.note("step")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["train: 0/100 in 0 s", "train: 0/100 in 6:40 min · step"]


def test_the_file_for_another_process_keeps_up_and_its_last_state_stays(monkeypatch, tmp_path):
    path = tmp_path / "progress.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    with progress(4, "train") as bar:
        bar.advance(loss=0.5)
        bar.advance("two", loss=float("nan"))
        deadline = time.monotonic() + 60  # while the third step takes long
        while '"done": 2' not in path.read_text(encoding="utf-8"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        bar.advance("three")
    last = json.loads(path.read_text(encoding="utf-8"))
    assert last == {"done": 3, "total": 4, "text": "three", "losses": [0.5, None]}


def test_a_thread_that_waited_to_write_the_file_writes_how_far_the_work_is_by_then(
    monkeypatch, tmp_path
):
    path = tmp_path / "progress.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    lines = Lines(4, "train", stream=io.StringIO())

    @contextmanager
    def long_waited_for():
        lines.done = 3
        yield

    lines._one_writer = long_waited_for()
    lines.show()
    assert json.loads(path.read_text(encoding="utf-8"))["done"] == 3


def test_what_changed_in_the_last_moment_is_still_told(tmp_path):
    path = tmp_path / "progress.json"
    told = []
    with followed(path, told.append):
        path.write_text("3 of 3", encoding="utf-8")
    assert told == ["3 of 3"]


def test_a_terminal_gets_a_bar(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(2, "train") as bar:
        bar.advance_earlier("epoch 1/2")
        bar.say("a line that stays")
    for text in ("50%|", "1/2", "a line that stays\n", "epoch 1/2"):
        assert text in stream.getvalue()


def test_a_notebook_gets_one_output_redrawn_in_place(monkeypatch, clock, capsys):
    """And lines where no person looks at it."""
    handle = Mock()
    monkeypatch.setattr(IPython.display, "display", Mock(return_value=handle))
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=True))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.delenv(LINES_VARIABLE, raising=False)
    with progress(200, "train <b>") as bar:
        for _ in range(200):
            clock.seconds += 0.1
            bar.advance("epoch", loss=1 / (1 + bar.done))
    assert handle.update.call_count < 50
    (shown,) = handle.update.call_args.args
    assert shown["text/plain"].startswith("train <b>: 200/200 in 20 s")
    assert shown["text/plain"].endswith("epoch, loss 0.005")
    assert "&lt;b&gt;" in shown["text/html"]
    assert "over 200 epochs, the last is 0.005" in shown["text/html"]  # a line that grows

    monkeypatch.setenv(LINES_VARIABLE, "lines")
    with progress(1, "train") as bar:
        bar.advance()
    assert "1/1" in capsys.readouterr().out
    assert IPython.display.display.call_count == 1
