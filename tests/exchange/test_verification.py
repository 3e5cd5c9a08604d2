"""`verify`: what was changed, does not fit or is signed by somebody else is found, and no more."""

import dataclasses
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tifffile

import cellrepro
from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bundle import bundle_text
from cellrepro.exchange.kept_passports import keep_attestations, kept_path
from cellrepro.exchange.model_statement import model_statement
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.provenance import Builder
from cellrepro.exchange.receipt import Receipt, receipt_statement
from cellrepro.exchange.signed.signer import AGENT_VARIABLE, find_signer
from cellrepro.exchange.statement import (
    Attestation,
    ResourceDescriptor,
    canonical_json,
    read_payload,
)
from cellrepro.exchange.verification import verify
from cellrepro.store.manifest import Manifest
from cellrepro.store.store import Store
from conftest import listing
from samebits.digests import array_digest, file_digest
from samebits.errors import BadInput
from stores import NOTHING, add_run, planted, reseal, squares, three

WEIGHTS = "weights.safetensors"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


@pytest.fixture
def run(store):
    """Two equal repeats."""
    return add_run(store, [(1.0, three(squares(grown=3)))] * 2)


@pytest.fixture
def file(store, run, tmp_path):
    """The run as one file, with all that can be sent."""
    path = tmp_path / "run.cellrepro.zip"
    cellrepro.export_runs([run.key], path, weights=True, images=False, store=store.root, quiet=True)
    return path


@pytest.fixture
def key(tmp_path, monkeypatch):
    """A key of OpenSSH in a file, whose owner is on the list of allowed signers."""
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)
    if shutil.which("ssh-keygen") is None:
        pytest.skip("needs OpenSSH")
    path = tmp_path / "ada"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada@lab", "-f", path], check=True
    )
    public = path.with_name("ada.pub")
    kind, digits, _ = public.read_text().split()
    (tmp_path / "allowed").write_text(f"ada@lab {kind} {digits}\n")
    return public


def checked(target, store, **options):
    return verify(target, store=store.root, quiet=True, **options)


def kinds(verification):
    return [problem.kind for problem in verification.problems]


def write(path, content):
    path.chmod(0o644)
    path.write_bytes(content)


# -- what is as it was ---------------------------------------------------------------------


def test_what_is_as_it_was_made_is_identical(store, run, file, tmp_path):
    """A run, its passport, its file and its store; also where the store knows nothing of it."""
    passport = tmp_path / "run.intoto.jsonl"
    cellrepro.export_passports(f"{run.key}/0", passport, store=store.root)
    elsewhere = Store(tmp_path / "elsewhere")
    for target, kind in ((run.key, "run"), (passport, "passport"), (file, "file")):
        found = checked(target, store)
        assert (found.verdict, found.kind, found.problems) == ("identical", kind, ())
        assert found.signature.state == "unsigned"
    assert checked(store.root, elsewhere).verdict == "identical"
    assert "of 2 repeats" in str(checked(file, elsewhere))
    alone = checked(passport, elsewhere)
    assert (alone.verdict, alone.files, alone.repeats[0].is_here) == ("vacuous", 0, False)
    assert "no file was compared" in str(alone)
    assert "only what the passport says" in alone.notes[0]
    assert not elsewhere.root.exists()


@pytest.fixture
def network_file(run, tmp_path):
    """A network's file, and beside it the passport of one repeat with what is attested of it."""
    file = tmp_path / "mine.pth"
    file.write_bytes(b"a network")
    statement = model_statement(
        ResourceDescriptor(name=file.name, digest={"sha256": file_digest(file)}),
        parameters={},
        dependencies=(),
        builder=Builder(id="urn:cellrepro:export"),
        byproducts=(),
    )
    attestations = [passport_of(run.repeats[0], run=run).attestation, Attestation.of(statement)]
    bundle = tmp_path / "mine.intoto.jsonl"
    bundle.write_text(bundle_text(attestations) + "\n")
    return bundle


def test_the_file_of_a_network_is_none_of_its_run(store, network_file, tmp_path):
    """Of a run that is not here nothing is proven, though the network's file is as attested."""
    unseen = checked(network_file, Store(tmp_path / "elsewhere"))
    assert (unseen.verdict, unseen.files, unseen.exit_code) == ("vacuous", 1, 1)
    assert f"mine.pth is the file of which {network_file} speaks" in str(unseen)
    assert "none of its runs is here" in str(unseen)
    seen = checked(network_file, store)
    assert (seen.verdict, seen.exit_code) == ("identical", 0)
    over = f"{seen.files - 1} files of 1 repeat and 1 file with a network"
    assert f"intact: {over} in {network_file} are as they were made" in str(seen)


def test_only_repeats_that_are_here_are_called_identical(store, tmp_path):
    """One of two is here; where that one proves nothing, the absent one proves no more."""
    bundle = tmp_path / "both.intoto.jsonl"
    here = add_run(store, [(1.0, three())])
    empty = add_run(store, [(1.0, dict.fromkeys(three(), NOTHING))], seed=1)
    absent = add_run(Store(tmp_path / "theirs"), [(1.0, three())], seed=2)
    for run, verdict in ((here, "identical"), (empty, "vacuous")):
        both = [passport_of(one.repeats[0], run=one).attestation for one in (run, absent)]
        bundle.write_text(bundle_text(both) + "\n")
        found = checked(bundle, store)
        assert found.verdict == verdict
        assert "of 2 repeats" not in str(found)
        assert f"not in the store {store.root}: {absent.key}" in found.as_text()


def test_what_proves_nothing_is_vacuous(store, tmp_path):
    run = add_run(store, [(1.0, dict.fromkeys(three(), NOTHING))])
    passport = tmp_path / "run.intoto.jsonl"
    cellrepro.export_passports(run.key, passport, store=store.root)
    for target in (run.key, passport, store.root):
        found = checked(target, store)
        assert found.verdict == "vacuous"
        assert "no object was found" in found.sentence()
    add_run(store, [(1.0, three())], seed=1)
    assert checked(store.root, store).verdict == "identical"  # one of its runs proves something


def test_what_was_not_sent_is_said(store, run, tmp_path):
    path = tmp_path / "light.zip"
    cellrepro.export_runs([run.key], path, store=store.root, quiet=True)
    found = checked(path, store)
    assert found.verdict == "identical"
    assert found.repeats[0].not_here == (
        WEIGHTS,
        "the folder cells with the training and test images",
    )
    cellrepro.import_runs(path, store=tmp_path / "ours", quiet=True)
    imported = checked(run.key, Store(tmp_path / "ours"))
    assert imported.verdict == "identical"
    assert imported.repeats[0].not_here[0] == WEIGHTS


# -- what is not ---------------------------------------------------------------------------


def test_every_flipped_bit_of_a_run_is_found(store, run):
    folder = run.repeats[0].folder
    files = sorted(path for path in store.root.joinpath("runs").rglob("*") if path.is_file())
    chance = random.Random(36)
    for path in chance.choices(files, k=120):
        content = path.read_bytes()
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        write(path, bytes(changed))
        try:
            verdict = checked(run.key, store).verdict
        except BadInput:  # the spec cannot be read, so there is no such run
            verdict = "refused"
        assert verdict != "identical", path
        write(path, content)
    assert folder.exists()
    assert checked(run.key, store).verdict == "identical"


def test_every_flipped_bit_of_a_file_is_found_or_refused(store, file):
    """1,000 places of the whole file."""
    content = file.read_bytes()
    chance = random.Random(37)
    outcomes = {"different": 0, "refused": 0}
    for _ in range(1000):
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(bytes(changed))
        try:
            verdict = checked(file, store).verdict
        except BadInput:
            verdict = "refused"
        outcomes[verdict] += 1
    assert sum(outcomes.values()) == 1000
    assert min(outcomes.values()) > 50


def forged(run, change):
    """A repeat in which somebody has changed the manifest, and sealed it again."""
    folder = run.repeats[0].folder
    path = folder / "manifest.json"
    manifest = Manifest.model_validate_json(path.read_bytes())
    change(folder, manifest)
    write(path, manifest.model_dump_json(indent=1).encode())
    (folder / "SHA256SUMS").chmod(0o644)
    reseal(folder)


def test_a_manifest_that_lies_about_its_masks_is_found(store, run):
    """Whoever prepares a run can give every file its right digest."""

    def other_outlines(_, manifest):
        manifest.masks["img_a"].canonical_digest = "0" * 64

    forged(run, other_outlines)
    found = checked(f"{run.key}/0", store)
    assert kinds(found) == ["contradiction"]
    assert "outlines" in found.problems[0].what


def test_masks_that_were_replaced_with_their_digest_are_found(store, run):
    def other_masks(folder, manifest):
        path = folder / "masks" / "img_a.tif"
        path.unlink()
        tifffile.imwrite(path, squares(second=False))
        manifest.masks["img_a"].digest = array_digest(squares().astype(np.uint32))

    forged(run, other_masks)
    assert kinds(checked(f"{run.key}/0", store)) == ["contradiction"]


def altered(passport, change):
    """A passport that says something else, in its own words."""
    document = json.loads(passport.attestation.payload)
    change(document)
    return read_payload(canonical_json(document), where="altered")


def weights_changed(document):
    document["subject"][0]["digest"]["sha256"] = "1" * 64


def outlines_changed(document):
    document["subject"][1]["digest"]["cellrepro_outlines"] = "1" * 64


def threads_changed(document):
    document["predicate"]["buildDefinition"]["internalParameters"]["threads"] = 64


def version_changed(document):
    for resource in document["predicate"]["buildDefinition"]["resolvedDependencies"]:
        if resource.get("uri", "").startswith("pkg:pypi/torch@"):
            resource["uri"] = "pkg:pypi/torch@1.0"


def vacuity_hidden(document):
    for resource in document["predicate"]["runDetails"]["byproducts"]:
        if resource["name"] == "result":
            resource["annotations"]["vacuous"] = ["nothing was found"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (weights_changed, "weights"),
        (outlines_changed, "masks of img_a"),
        (threads_changed, "threads"),
        (version_changed, "version of torch"),
        (vacuity_hidden, "vacuity"),
    ],
)
def test_a_passport_that_does_not_fit_its_run_is_found(store, run, tmp_path, change, named):
    repeat = run.repeats[0]
    attestation = altered(passport_of(repeat, run=run), change)
    path = tmp_path / "altered.intoto.jsonl"
    path.write_text(bundle_text([attestation]) + "\n")
    found = checked(path, store)
    assert found.verdict == "different"
    assert any(named in problem.what for problem in found.problems)
    keep_attestations(store, repeat.name, [attestation])
    assert "contradiction" in kinds(checked(f"{run.key}/0", store))
    assert "contradiction" in [one.kind for one in cellrepro.check_store(store).problems]


def test_a_kept_passport_that_was_damaged_is_found(store, run):
    repeat = run.repeats[0]
    keep_attestations(store, repeat.name, [passport_of(repeat, run=run).attestation])
    write(kept_path(store, repeat.name), b"{")
    assert kinds(checked(run.key, store)) == ["damaged"]
    assert [one.kind for one in cellrepro.check_store(store).problems] == ["damaged"]


# -- who says so ---------------------------------------------------------------------------


def test_signatures_are_held_to_the_readers_list(store, run, key, tmp_path):
    path = tmp_path / "signed.intoto.jsonl"
    cellrepro.export_passports(f"{run.key}/0", path, sign=key, store=store.root)
    unknown = checked(path, store)
    assert (unknown.verdict, unknown.signature.state) == ("identical", "unknown")
    good = checked(path, store, allowed_signers=tmp_path / "allowed")
    assert (good.signature.state, good.signature.signer) == ("good", "ada@lab")
    document = json.loads(path.read_text())
    document["signatures"][0]["sig"] = "A" * 86 + "=="
    path.write_text(json.dumps(document) + "\n")
    bad = checked(path, store, allowed_signers=tmp_path / "allowed")
    assert (bad.verdict, bad.signature.state, kinds(bad)) == ("different", "bad", ["signature"])


def receipt_of(passport, **changes):
    """A receipt of an identical replay in Kyoto."""
    usual = Receipt(
        verdict=Verdict.IDENTICAL,
        passport=passport.digest,
        run=passport.name,
        machine="kyoto-01234567",
        repeat=0,
        time="2026-11-20T12:00:00Z",
        packages={"python": "3.11.7"},
    )
    return dataclasses.replace(usual, **changes)


def test_receipts_are_listed_with_who_signed_them(store, run, key, tmp_path):
    """And one that was changed afterwards is a problem."""
    passport = passport_of(run.repeats[0], run=run)
    receipt = receipt_of(passport)
    statement = receipt_statement(receipt, passport)
    signed = Attestation.of(statement, signer=find_signer(key))
    path = tmp_path / "run.intoto.jsonl"
    path.write_text(bundle_text([passport.attestation, signed]) + "\n")
    found = checked(path, store, allowed_signers=tmp_path / "allowed")
    (listed,) = found.repeats[0].receipts
    names = ("machine", "repeat", "verdict", "time")
    assert [getattr(listed, name) for name in names] == [getattr(receipt, name) for name in names]
    assert listed.signature.state == "good"
    changed = receipt_statement(dataclasses.replace(receipt, machine="basel-0"), passport)
    envelope = dataclasses.replace(signed.envelope, payload=changed.payload())
    path.write_text(f"{passport.attestation.line()}\n{envelope.line()}\n")
    bad = checked(path, store, allowed_signers=tmp_path / "allowed")
    assert kinds(bad) == ["signature"]


def badly_signed(attestation, key):
    """The line of an attestation with a signature of a known key that it has not made."""
    document = json.loads(attestation.signed_by(find_signer(key)).line())
    document["signatures"][0]["sig"] = "A" * 86 + "=="
    return json.dumps(document)


def test_an_older_passport_is_checked_like_the_current_one(store, run, key, tmp_path):
    """In a run, a store, an exported file and a bundle: each with the receipts of its own."""
    repeat = run.repeats[0]
    older = passport_of(repeat)
    current = passport_of(repeat, run=run)
    assert older.digest != current.digest
    receipt = Attestation.of(receipt_statement(receipt_of(older), older))
    kept = keep_attestations(store, repeat.name, [current.attestation, receipt])
    lines = [current.attestation.line(), badly_signed(older.attestation, key), receipt.line()]
    write(kept, "".join(f"{line}\n" for line in lines).encode())
    file = tmp_path / "older.zip"
    cellrepro.export_runs([repeat.name], file, store=store.root, quiet=True)
    bundle = shutil.copy(kept, tmp_path / "older.intoto.jsonl")
    in_the_bundle_and_kept = ["signature"] * 2
    one = ["signature"]
    expected = {repeat.name: one, store.root: one, file: one, bundle: in_the_bundle_and_kept}
    for target, problems in expected.items():
        found = checked(target, store, allowed_signers=tmp_path / "allowed")
        assert kinds(found) == problems
        assert f"the passport of {repeat.name} has a bad signature" in found.problems[0].what
        assert {one.passport for one in found.repeats} == {older.digest, current.digest}
        assert [one.passport for one in found.repeats if one.receipts] == [older.digest]


def test_three_machines_in_one_file(tmp_path):
    """As they were recorded, one of them emulated: a later version must still read them so."""
    evidence = Path(__file__).parents[2] / "evidence"
    found = checked(
        evidence / "three_machines.intoto.jsonl",
        Store(tmp_path / "nothing"),
        allowed_signers=evidence / "three_machines.allowed_signers",
    )
    assert [one.signature.signer for one in found.repeats] == ["basel@lab.example"] * 2
    receipts = [receipt for one in found.repeats for receipt in one.receipts]
    signers = [receipt.signature.signer for receipt in receipts]
    assert signers == ["laptop@lab.example", "kyoto@lab.example"] * 2
    assert {receipt.verdict for receipt in receipts} == {"identical"}
    assert not found.problems


# -- the command, and wrong input ----------------------------------------------------------


def test_the_command(store, run, file, invoke):
    answer = invoke("verify", file, "--store", store.root, "--json")
    assert answer.code == 0
    assert {"verdict", "problems", "signature"} <= answer.json.keys()
    assert answer.json["signature"]["state"] == "unsigned"
    write(run.repeats[0].folder / WEIGHTS, b"")
    broken = invoke("verify", run.key, "--store", store.root)
    assert broken.code == 1
    assert "damaged" in broken.out
    again = invoke("verify", run.key, "--store", store.root, "--replay", "--json")
    assert (again.code, again.json["replay"]) == (1, None)
    assert "not computed again" in " ".join(again.json["notes"])


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("nothing.zip", (), "no such file; expected a file that"),
        ("nothing.intoto.jsonl", (), "no such file; expected a passport"),
        ("", (), "an empty name; expected that of a file, a folder or a run"),
        ("0123", (), "names no run"),
        ("folder", (), "is a folder without runs/"),
        ("text.txt", (), "is a file of another kind"),
        ("text.zip", (), "expected a file as `cellrepro export` writes it"),
        ("text.intoto.jsonl", (), "text.intoto.jsonl"),
        ("outputs", ("--replay",), "a whole store is not computed again"),
        ("KEY", ("--receipt", "r.intoto.jsonl"), "receipt would do nothing"),
        ("KEY", ("--profile", "cpu"), "profile would do nothing"),
        ("KEY", ("--replay", "--sign", "k.pub"), "nothing to sign"),
        ("KEY", ("--replay", "--receipt", "r.txt"), r"expected a name that ends with .intoto"),
        ("KEY", ("--replay", "--receipt", "no/r.intoto.jsonl"), "is no folder"),
        ("KEY", ("--replay", "--receipt", "text.intoto.jsonl"), "text.intoto.jsonl"),
        ("KEY", ("--replay", "--run", "ffff"), "--run is 'ffff'"),
        ("KEY", ("--replay",), "the images of .* are not here"),
        ("KEY", ("--replay", "--data", "folder"), "does not hold the images"),
        ("KEY", ("--replay", "--", "python"), "needs none: leave it out"),
        ("KEY", ("--allowed-signers", "nobody"), "no such file"),
    ],
)
def test_wrong_input_is_refused_and_writes_nothing(
    store, run, tmp_path, monkeypatch, invoke, no_child, target, options, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("text.txt", "text.zip", "text.intoto.jsonl"):
        (tmp_path / name).write_text("text")
    before = listing(tmp_path)
    named = run.key if target == "KEY" else target
    words = [*options]
    answer = invoke("verify", named, "--store", "outputs", *words)
    if "--data" in words:  # held to the digest at once, so it is a problem and no refusal
        assert answer.code == 1
        assert message in answer.out.replace("\n", " ")
    else:
        assert (answer.code, answer.out) == (2, "")
        assert re.search(message, answer.err)
    assert listing(tmp_path) == before


def test_several_runs_are_replayed_one_at_a_time(store, tmp_path):
    planted(tmp_path / "many")
    many = Store(tmp_path / "many")
    path = tmp_path / "many.intoto.jsonl"
    keys = [run.key for run in many.runs()]
    cellrepro.export_passports(keys[:2], path, store=many.root)
    with pytest.raises(BadInput, match=r"it holds 2 runs.*--run KEY"):
        checked(path, store, replay=True)
    with pytest.raises(BadInput, match="the images of"):
        checked(path, store, replay=True, run=f"{keys[0]}/1")
