"""Whatever comes from outside can do no harm: each input here was made to.

Every one meets the door at which a user would bring it in. Refused means: one message in one line,
exit code 2, nothing written, nothing executed, and neither memory nor time taken that the file's
own size does not explain.
"""

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import hostile_zips as zips
from cellrepro.store.store import Store
from conftest import listing
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
        if _PEAK.exists():
            _PEAK.write_text("5", encoding="ascii")
            had = memory("VmRSS")
        started = time.monotonic()
        answer = invoke(*command)
        seconds = time.monotonic() - started
        assert not ground.canary.exists(), "something was executed"
        assert listing(ground.root) == before, "something was written"
        assert seconds < MOST_SECONDS
        if _PEAK.exists():
            assert memory("VmHWM") - had < MOST_BYTES
        return answer

    return call


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
