"""What a store keeps of passports: added to, never taken from."""

import subprocess

import pytest

from cellrepro.exchange.kept_passports import (
    attestations_of,
    keep_attestations,
    kept_bundle,
    kept_path,
)
from cellrepro.exchange.signed.signer import find_signer
from cellrepro.exchange.store_check import check_store
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run, three


def test_a_passport_is_kept_as_it_came(tmp_path):
    store = Store(tmp_path)
    first, second = add_run(store, [(1.0, three())] * 2).repeats
    assert kept_bundle(store, first.name).attestations == ()
    made = attestations_of(store, first)
    assert not kept_path(store, first.name).exists()
    path = keep_attestations(store, first.name, made)
    before = path.read_bytes()
    assert keep_attestations(store, first.name, made) == path
    assert path.read_bytes() == before
    assert kept_bundle(store, first.name).attestations == attestations_of(store, first) == made
    path.rename(kept_path(store, second.name))
    with pytest.raises(BadInput, match=f"holds the passport of {first.name}"):
        kept_bundle(store, second.name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"n_test":3', b'"n_test":7'),
        (b'"dtype":"float32"', b'"dtypf":"float32"'),
        (b'"weights.safetensors"', b'"weights.safetensorr"'),
    ],
    ids=["a number that nobody reads", "a name that nobody reads", "what is read"],
)
def test_fsck_finds_what_changed_in_a_passport(tmp_path, old, new):
    """What only people and other programs read of it is held to the run, too."""
    store = Store(tmp_path)
    (repeat,) = add_run(store, [(1.0, three())]).repeats
    path = keep_attestations(store, repeat.name, attestations_of(store, repeat))
    assert check_store(store).problems == []
    content = path.read_bytes()
    assert old in content
    path.unlink()
    path.write_bytes(content.replace(old, new, 1))
    (problem, *_) = check_store(store).problems
    assert repeat.name in problem.where


def test_fsck_finds_a_signature_that_is_none(tmp_path, monkeypatch):
    """A bit of what was signed, or of the signature, by a key that the reader knows."""
    key = tmp_path / "key"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(command, check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"ada {key.with_suffix('.pub').read_text()}")
    monkeypatch.setenv("CELLREPRO_ALLOWED_SIGNERS", str(signers))
    store = Store(tmp_path / "store")
    (repeat,) = add_run(store, [(1.0, three())]).repeats
    signer = find_signer(key.with_suffix(".pub"))
    path = keep_attestations(store, repeat.name, attestations_of(store, repeat, signer=signer))
    assert check_store(store).problems == []
    before, sign, after = path.read_bytes().partition(b'"sig":"')
    other = b"A" if after[5:6] != b"A" else b"B"
    path.unlink()
    path.write_bytes(before + sign + after[:5] + other + after[6:])
    assert [problem.kind for problem in check_store(store).problems] == ["signature"]
