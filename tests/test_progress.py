"""Progress with an estimate: in a terminal, in a notebook, and in a log."""

import io
import sys
from types import SimpleNamespace

import IPython.display
import pytest

from cellrepro import progress as module
from cellrepro.progress import Lines, NotebookBar, TerminalBar, progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.seconds)
    return now


def test_lines_are_few_and_what_stays_is_said_at_once(clock):
    stream = io.StringIO()
    with Lines(100, "train", stream=stream) as bar:
        bar.say("failed abc/0")
        assert stream.getvalue() == "failed abc/0\n"
        for _ in range(100):
            clock.seconds += 1
            bar.advance()
    lines = stream.getvalue().splitlines()[1:]
    assert [line.split()[1] for line in lines] == [f"{n}/100" for n in (20, 40, 60, 80, 100)]
    assert lines[0] == "train: 20/100 in 20 s, about 1:20 min left"


@pytest.mark.parametrize("quiet", [False, True])
def test_standard_output_stays_clean(capsys, quiet):
    with progress(1, "train", quiet=quiet) as bar:
        bar.advance()
    out, err = capsys.readouterr()
    assert (out, "1/1" in err) == ("", not quiet)


def test_a_terminal_gets_a_bar(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(2, "train") as bar:
        assert isinstance(bar, TerminalBar)
        bar.advance("epoch 1/2")
        bar.say("a line that stays")
    for text in ("1/2", "a line that stays\n", "epoch 1/2"):
        assert text in stream.getvalue()


def test_a_notebook_gets_one_output_redrawn_in_place(monkeypatch, clock, capsys):
    """And lines where no person looks at it."""
    shown = []

    def display(bundle, *, raw, display_id):
        shown.append(bundle)
        return SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))

    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=True))
    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.delenv(module.LINES_VARIABLE, raising=False)
    with progress(200, "train <b>") as bar:
        assert isinstance(bar, NotebookBar)
        for _ in range(200):
            clock.seconds += 0.1
            bar.advance("epoch")
    assert len(shown) < 50
    assert shown[-1]["text/plain"].startswith("train <b>: 200/200 in 20 s")
    assert "&lt;b&gt;" in shown[-1]["text/html"]

    shown.clear()
    monkeypatch.setenv(module.LINES_VARIABLE, "lines")
    with progress(1, "train") as bar:
        bar.advance()
    assert "1/1" in capsys.readouterr().out
    assert shown == []
