"""Receipts that others send: kept beside the run that they are of, and beside no other."""

import json

import pytest

from cellrepro.cli import main
from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import bundle_text
from cellrepro.exchange.kept_passports import kept_bundle
from cellrepro.exchange.model_statement import model_statement
from cellrepro.exchange.passport_files import import_passports
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.provenance import Builder
from cellrepro.exchange.receipt import Receipt, receipt_statement
from cellrepro.exchange.statement import Attestation, ResourceDescriptor
from cellrepro.store.store import Store
from stores import add_run, three


def receipt_from(machine, passport):
    """A receipt as a machine of this name would give it."""
    receipt = Receipt(
        verdict=Verdict.IDENTICAL,
        passport=passport.digest,
        run=passport.name,
        machine=f"{machine}-00c0ffee",
        repeat=0,
        time="2026-11-26T12:00:00Z",
        packages={"python": "3.11.7"},
        weights_equal=True,
    )
    return Attestation.of(receipt_statement(receipt, passport))


@pytest.fixture
def sent(tmp_path):
    """A store, its only repeat and its passport."""
    store = Store(tmp_path / "store")
    (repeat,) = add_run(store, [(1.0, three())]).repeats
    return store, repeat, passport_of(repeat)


def written(path, *attestations):
    path.write_text(bundle_text(attestations) + "\n", encoding="utf-8")
    return path


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
