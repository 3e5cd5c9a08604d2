"""Whatever comes from outside can do no harm: each input here was made to.

Every one meets the door at which a user would bring it in. Refused means: one message in one line,
exit code 2, nothing written, nothing executed, and neither memory nor time taken that the file's
own size does not explain.
"""

import os
import re
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import hostile_zips as zips
from cellrepro.store.store import Store
from conftest import listing
from hostile_stores import STORES
from stores import add_run, three

MOST_SECONDS = 20
MOST_BYTES = 2**29
"""Of memory beyond what this process had before."""
_PEAK = Path("/proc/self/clear_refs")


class Canary:
    """Executes something when it is unpickled: a file appears."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def memory(field):
    """Bytes of this process: VmRSS now, VmHWM at most since the peak was forgotten."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(rf"{field}:\s+(\d+) kB", status)[1])


@pytest.fixture(autouse=True)
def no_waiting():
    """Fail what waits for a pipe, or reads without end, instead of waiting with it."""

    def stop(*_):
        raise AssertionError(f"it took more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def forget_peak():
    """Bytes of memory now; from here on the most of them is watched, where the system does that."""
    if not _PEAK.exists():
        return None
    _PEAK.write_text("5", encoding="ascii")
    return memory("VmRSS")


def assert_bounded(had):
    """No more memory was taken than what is read here explains."""
    assert had is None or memory("VmHWM") - had < MOST_BYTES


@pytest.fixture
def ground(tmp_path):
    """Where an attack takes place: all that lies here is looked at before and after."""
    (tmp_path / "in").mkdir()
    return SimpleNamespace(
        root=tmp_path, given=tmp_path / "in", ours=tmp_path / "ours", canary=tmp_path / "canary"
    )


@pytest.fixture
def attacked(ground, invoke, monkeypatch):
    """Run a command on something hostile; give its answer once nothing was harmed by it."""
    monkeypatch.chdir(ground.given)
    monkeypatch.setenv("CELLREPRO_ALLOWED_SIGNERS", str(ground.root / "nobody"))
    (ground.root / "nobody").touch()

    def call(*command):
        before = listing(ground.root)
        had = forget_peak()
        started = time.monotonic()
        answer = invoke(*command)
        seconds = time.monotonic() - started
        assert not ground.canary.exists(), "something was executed"
        assert listing(ground.root) == before, "something was written"
        assert seconds < MOST_SECONDS
        assert_bounded(had)
        return answer

    return call


def assert_visible(text):
    """Nothing in it moves a cursor, or hides."""
    assert text.replace("\n", "").replace("\t", "").isprintable(), repr(text)


def assert_one_message(err):
    """One line that says what, where and what to do, with nothing that moves a cursor."""
    assert err.startswith("cellrepro: ")
    assert err.endswith("\n")
    assert err[:-1].isprintable(), repr(err)
    assert "Traceback" not in err
    assert len(err) < 2000


@pytest.fixture
def refused(attacked):
    """Run a command on something hostile, which must be refused; give the message."""

    def call(*command, message):
        answer = attacked(*command)
        assert answer.code == 2, (answer.code, answer.out[:500], answer.err[:500])
        assert answer.out == ""
        assert_one_message(answer.err)
        assert re.search(message, answer.err), answer.err
        return answer.err

    return call


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """A good exported file of two repeats, with weights and images."""
    import cellrepro

    root = tmp_path_factory.mktemp("sent")
    store = Store(root / "theirs")
    run = add_run(store, [(1.0, three())] * 2)
    file = root / "good.cellrepro.zip"
    cellrepro.export_runs([run.key], file, store=store.root, weights=True, images=True, quiet=True)
    passports = root / "good.intoto.jsonl"
    cellrepro.export_passports([run.key], passports, store=store.root)
    machine = run.repeats[0].machine
    return SimpleNamespace(
        whole=file.read_bytes(),
        store=store.root,
        key=run.key,
        repeat=f"runs/{run.key}/{machine}/0",
        passports=passports.read_bytes(),
    )


# -- the form of an exported file ------------------------------------------------------------------


@pytest.mark.parametrize(("make", "message"), zips.ARCHIVES.values(), ids=zips.ARCHIVES)
def test_archives(ground, refused, sent, make, message):
    file = ground.given / "hostile.cellrepro.zip"
    file.write_bytes(make(sent.whole))
    said = refused("import", file, "--store", ground.ours, message=message)
    assert str(file) in said
    assert "ask its sender" in said


def test_a_good_archive_passes(ground, invoke, sent):
    """So that what is refused above is refused for what was done to it."""
    file = ground.given / "good.cellrepro.zip"
    file.write_bytes(zips.packed(zips.contents_of(sent.whole)))
    assert file.read_bytes() == sent.whole
    assert invoke("import", file, "--store", ground.ours).code == 0


# -- stores that came by copying -------------------------------------------------------------------


@pytest.mark.parametrize("make", STORES.values(), ids=STORES)
def test_stores(ground, invoke, sent, make):
    """Nothing outside of a store is touched by what is said, put right or added in it."""
    store, outside = ground.root / "store", ground.root / "outside"
    shutil.copytree(sent.store, store)
    for path in store.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (outside / "0").mkdir(parents=True)
    (outside / "letter.txt").write_text("dear reader")
    (outside / "poetry.lock").write_text("")
    make(store, outside)
    file = ground.given / "good.cellrepro.zip"
    file.write_bytes(sent.whole)
    before = listing(outside)
    started = time.monotonic()
    had = forget_peak()
    for command in (
        ["list"],
        ["fsck"],
        ["fsck", "--repair"],
        ["import", file],
        ["export", sent.key, ground.root / "out.intoto.jsonl"],
    ):
        answer = invoke(*command, "--store", store)
        assert answer.code in (0, 1, 2)
        if answer.code == 2 and not answer.out:  # `list` names damage in its list
            assert_one_message(answer.err.splitlines(keepends=True)[-1])
        assert_visible(answer.out + answer.err)
        assert listing(outside) == before, command
    assert time.monotonic() - started < MOST_SECONDS
    assert_bounded(had)
