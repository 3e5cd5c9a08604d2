"""What of handing on works without the extra ``exchange``, and what names it."""

import shutil
import subprocess
import sys

import pytest

from cellrepro import extras
from cellrepro.exchange.export import export_runs
from cellrepro.exchange.passport_files import export_passports, import_passports
from cellrepro.exchange.store_check import check_store
from cellrepro.exchange.verification import verify
from cellrepro.extras import NeedsExtra
from cellrepro.store.store import Store
from stores import add_run, three

MISSING = ("cryptography", "rocrate")
SAID = r'not installed here: pip install "cellrepro\[exchange\]"'


def take_away(monkeypatch):
    usual = extras.has_library
    monkeypatch.setattr(extras, "has_library", lambda name: name not in MISSING and usual(name))
    for name in MISSING:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "outputs")
    add_run(store, [(1.0, three())])
    return store


def test_what_is_not_signed_needs_no_library(store, tmp_path, monkeypatch):
    (run,) = store.runs()
    sent = tmp_path / "runs.cellrepro.zip"
    export_runs(run.key, sent, weights=True, store=store.root, quiet=True)
    take_away(monkeypatch)
    passport = tmp_path / "run.intoto.jsonl"
    export_passports(run.key, passport, store=store.root)
    for target in (run.key, sent, passport, store.root):
        assert verify(target, store=store.root, quiet=True).problems == ()
    assert import_passports(passport, store=tmp_path / "other").runs == [run.repeats[0].name]
    assert check_store(store).problems == []


def test_a_file_of_runs_names_the_extra_and_writes_nothing(store, tmp_path, monkeypatch):
    take_away(monkeypatch)
    (run,) = store.runs()
    with pytest.raises(NeedsExtra, match=f"an exported file of runs needs rocrate, {SAID}"):
        export_runs(run.key, tmp_path / "runs.cellrepro.zip", store=store.root, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH")
def test_a_signature_names_the_extra(store, tmp_path, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (run,) = store.runs()
    passport = tmp_path / "run.intoto.jsonl"
    export_passports(run.key, passport, sign=f"{key}.pub", store=store.root)
    signers = tmp_path / "signers"
    signers.write_text(f"ada {key.with_suffix('.pub').read_text()}")
    take_away(monkeypatch)
    said = f"signing, or checking a signature, needs cryptography, {SAID}"
    with pytest.raises(NeedsExtra, match=said):
        export_passports(run.key, tmp_path / "b.intoto.jsonl", sign=f"{key}.pub", store=store.root)
    assert verify(passport, store=store.root).signature.state == "unknown"
    with pytest.raises(NeedsExtra, match=said):
        verify(passport, allowed_signers=signers, store=store.root)
