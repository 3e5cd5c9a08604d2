"""Receipts that others send: kept beside the run that they are of, and beside no other."""

import json
from types import SimpleNamespace

import pytest

from cellrepro.cli import main
from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bundle import bundle_text, read_bundle
from cellrepro.exchange.kept_passports import keep_attestations, kept_bundle, kept_path
from cellrepro.exchange.model_statement import model_statement
from cellrepro.exchange.passport_files import import_passports
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.provenance import Builder
from cellrepro.exchange.receipt import Receipt, receipt_statement
from cellrepro.exchange.signed.envelope import IN_TOTO, Envelope, Signature
from cellrepro.exchange.statement import Attestation, ResourceDescriptor
from cellrepro.exchange.target_replay import _add_receipt
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run, three


def receipt_of(machine, passport):
    """A receipt as a machine of this name would give it."""
    return Receipt(
        verdict=Verdict.IDENTICAL,
        passport=passport.digest,
        run=passport.name,
        machine=f"{machine}-00c0ffee",
        repeat=0,
        time="2026-11-26T12:00:00Z",
        packages={"python": "3.11.7"},
        weights_equal=True,
    )


def receipt_from(machine, passport):
    return Attestation.of(receipt_statement(receipt_of(machine, passport), passport))


@pytest.fixture
def sent(tmp_path):
    """A store, its only repeat and its passport."""
    store = Store(tmp_path / "store")
    (repeat,) = add_run(store, [(1.0, three())]).repeats
    return store, repeat, passport_of(repeat)


def written(path, *attestations):
    path.write_text(bundle_text(attestations) + "\n", encoding="utf-8")
    return path


def with_signatures(attestation, signatures):
    envelope = Envelope(attestation.payload, IN_TOTO, tuple(signatures))
    return Attestation(attestation.statement, attestation.payload, envelope)


def machines_kept(store, name):
    return [each.receipt.machine for each in kept_bundle(store, name).receipts]


def test_receipts_of_several_machines_gather(sent, tmp_path, monkeypatch, capsys):
    """Also in a store that does not hold the run; and no receipt twice."""
    store, repeat, passport = sent
    basel, kyoto = (receipt_from(name, passport) for name in ("basel", "kyoto"))
    first = written(tmp_path / "basel.intoto.jsonl", passport.attestation, basel)
    alone = written(tmp_path / "kyoto.intoto.jsonl", kyoto)
    assert "runs that are here: 1" in str(import_passports(first, store=store.root))
    assert import_passports(alone, store=store.root).new_receipts == 1
    assert import_passports(alone, store=store.root).new_receipts == 0
    assert machines_kept(store, repeat.name) == ["basel-00c0ffee", "kyoto-00c0ffee"]

    both = written(tmp_path / "both.intoto.jsonl", passport.attestation, basel, kyoto)
    other = tmp_path / "other"
    arguments = ["cellrepro", "import", str(both), "--store", str(other), "--json"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] == [repeat.name]
    assert document["receipts"] == document["new_receipts"] == 2
    assert machines_kept(Store(other), repeat.name) == ["basel-00c0ffee", "kyoto-00c0ffee"]


def test_a_receipt_of_an_unknown_passport_is_refused(sent, tmp_path):
    _, _, passport = sent
    alone = written(tmp_path / "kyoto.intoto.jsonl", receipt_from("kyoto", passport))
    with pytest.raises(BadInput, match="without its passport"):
        import_passports(alone, store=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_passport_of_another_run_of_the_same_name_is_refused(sent, tmp_path):
    """Somebody else's run with other weights: nothing is kept of it."""
    _, repeat, passport = sent
    other = Store(tmp_path / "other")
    add_run(other, [(2.0, three())])
    file = written(tmp_path / "run.intoto.jsonl", passport.attestation)
    with pytest.raises(BadInput, match="is not that of the run of this name"):
        import_passports(file, store=other.root)
    assert machines_kept(other, repeat.name) == []
    assert not (other.root / "passports").exists()


def test_more_signatures_than_are_read_are_refused(sent, tmp_path):
    """What the store keeps can still be read."""
    store, repeat, passport = sent
    ours = with_signatures(passport.attestation, [Signature("ours", bytes(64))])
    keep_attestations(store, repeat.name, [ours])
    before = kept_path(store, repeat.name).read_bytes()
    junk = [Signature(f"{number}", bytes([number] * 64)) for number in range(64)]
    file = written(tmp_path / "junk.intoto.jsonl", with_signatures(passport.attestation, junk))
    with pytest.raises(BadInput, match="would have 65 signatures"):
        import_passports(file, store=store.root)
    assert kept_path(store, repeat.name).read_bytes() == before
    assert kept_bundle(store, repeat.name).attestations == (ours,)


def test_more_receipts_than_are_read_are_refused(sent, tmp_path, monkeypatch):
    store, repeat, passport = sent
    monkeypatch.setattr("cellrepro.exchange.bundle._MOST_LINES", 4)
    for name in ("basel", "kyoto"):
        receipt = receipt_from(name, passport)
        file = written(tmp_path / f"{name}.intoto.jsonl", passport.attestation, receipt)
        import_passports(file, store=store.root)
    receipt = receipt_from("lima", passport)
    file = written(tmp_path / "lima.intoto.jsonl", passport.attestation, receipt)
    with pytest.raises(BadInput, match="more than 4 lines"):
        import_passports(file, store=store.root)
    assert machines_kept(store, repeat.name) == ["basel-00c0ffee", "kyoto-00c0ffee"]


def test_a_receipt_is_added_below_what_other_programs_wrote(sent, tmp_path):
    store, repeat, passport = sent
    file = written(tmp_path / "ours.intoto.jsonl", passport.attestation)
    theirs = b'{"payload": "e30=", "payloadType": "text/x-other", "signatures": []}'
    before = file.read_bytes() + theirs  # without a line feed at its end
    file.write_bytes(before)
    receipt = receipt_of("kyoto", passport)
    replay = SimpleNamespace(passport=passport, original=repeat.name, receipt=lambda: receipt)
    for _ in range(2):
        _add_receipt(replay, file, signer=None, store=store)
        assert file.read_bytes().startswith(before + b"\n")
        assert file.read_bytes().count(b"\n") == 3
    assert read_bundle(file).n_passed_over == 1
    assert machines_kept(store, repeat.name) == ["kyoto-00c0ffee"]


def test_what_is_attested_of_a_network_alone_is_refused(tmp_path):
    """A store keeps passports of runs."""
    statement = model_statement(
        ResourceDescriptor(name="mine.pth", digest={"sha256": "0" * 64}),
        parameters={},
        dependencies=(),
        builder=Builder(id="urn:x", version={}),
        byproducts=(),
    )
    file = written(tmp_path / "network.intoto.jsonl", Attestation.of(statement))
    with pytest.raises(BadInput, match=r"no passport of a run.*cellrepro verify"):
        import_passports(file, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()
