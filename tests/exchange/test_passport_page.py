"""What docs/passport.md says one can do without cellrepro, done as it stands there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cellrepro.exchange.bundle import read_bundle
from cellrepro.exchange.passport import BUILD_TYPES
from cellrepro.exchange.passport_files import export_passports
from cellrepro.store.store import Store
from stores import add_run, three

PAGE = Path(__file__).parents[2] / "docs" / "passport.md"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL and OpenSSH")
def test_the_commands_for_public_tools_work(tmp_path):
    store = Store(tmp_path / "store")
    run = add_run(store, [(1.0, three())])
    key = tmp_path / "key"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada@lab", "-f", key]
    subprocess.run(make, check=True)
    file = tmp_path / "run.intoto.jsonl"
    export_passports(run.key, file, sign=key.with_suffix(".pub"), store=store.root)
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    def said():
        command = ["sh", "-c", script]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    bundle = read_bundle(file)
    assert "Signature Verified Successfully" in said()
    assert bundle.passports[0].attestation.envelope.signatures[0].keyid in said()
    assert (tmp_path / "statement.json").read_bytes() == bundle.passports[0].attestation.payload
    line = file.read_text()
    at = line.index('"payload":"') + 400
    file.write_text(line[:at] + ("A" if line[at] != "A" else "B") + line[at + 1 :])
    assert "Signature Verified Successfully" not in said()
    assert "Signature Verification Failure" in said()


def test_the_page_names_every_kind_of_run():
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{address}`" in text for address in BUILD_TYPES.values())
