"""A run computed again where it was not made, and the honest step of the ladder."""

import dataclasses
import json
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from safetensors.numpy import load_file, save_file

import cellrepro
from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.passport_comparison import DigestComparison
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.receipt import EnvironmentDifference
from cellrepro.exchange.replay import Replay
from cellrepro.exchange.replay_comparison import compared
from cellrepro.exchange.signed.signer import AGENT_VARIABLE
from cellrepro.exchange.target_replay import choose_repeat
from cellrepro.exchange.verified import VerifiedRepeat
from cellrepro.store.store import Store
from conftest import SMALL
from samebits.errors import BadInput
from stores import add_run, squares, three


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


def test_a_replay_says_what_it_is_over_and_what_is_not_the_same(store):
    run = add_run(store, [(1.0, three()), (2.0, three(squares(grown=3)))])
    original, again = (passport_of(repeat) for repeat in run.repeats)
    replay = Replay(
        verdict=Verdict.DIFFERENT,
        environment={"threads": EnvironmentDifference(16, None)},
        reasons=("the run itself is not in the store",),
        passport=original,
        _repeat=run.repeats[1],
        _digests=DigestComparison.of(original, again),
        _comparison=None,
    )
    document = json.loads(replay.as_json())
    assert (document["original"], document["repeat"]) == (original.name, again.name)
    assert (document["verdict"], document["weights_equal"]) == ("different", False)
    assert (document["images"], document["equal_labels"]) == (3, replay.equal_labels)
    assert document["changed_objects"] is document["first"] is None
    assert document["environment"] == {"threads": {"theirs": 16, "here": None}}
    assert replay.exit_code == 1
    first, *others = replay.as_text().splitlines()
    assert first == f"different: {original.name} was computed again as {again.name}"
    assert others == [
        "  the weights differ",
        "  equal masks in 2 of 3 images, equal outlines in 2",
        "  not the same there and here:",
        "    number of threads: 16 there, nothing here",
        "  the run itself is not in the store",
    ]


def test_no_cell_where_there_were_some_is_a_difference(store):
    """Nothing found on both sides proves nothing; nothing found on one side is what was asked."""
    nothing = dict.fromkeys(three(), 0 * squares())
    found, empty = add_run(store, [(1.0, three()), (1.0, nothing)]).repeats
    again = add_run(store, [(1.0, nothing)], seed=1).repeats[0]
    plan = SimpleNamespace(spec=empty.spec)
    for original, verdict in ((found, "different"), (empty, "vacuous")):
        made = compared(passport_of(original), again, plan, stored=None, store=store, quiet=True)
        assert made.verdict == verdict


def verified(passport):
    return VerifiedRepeat.of(passport, (), (), is_here=False)


def test_the_current_passport_is_answered(store):
    """The one over most repeats, wherever it stands: receipts of older ones came with it."""
    run = add_run(store, [(1.0, three())] * 2)
    repeat = run.repeats[0]
    older = verified(passport_of(repeat))
    current = verified(passport_of(repeat, run=run))
    assert older.passport != current.passport
    for order in ((current, older), (older, current)):
        chosen, notes = choose_repeat(order, None)
        assert (chosen.digest, notes) == (current.passport, [])


def test_the_first_repeat_is_the_one_of_the_least_number(store):
    passport = passport_of(add_run(store, [(1.0, three())]).repeats[0])
    repeats = [verified(dataclasses.replace(passport, repeat=n)) for n in (10, 2, 11)]
    chosen, notes = choose_repeat(repeats, None)
    assert chosen.repeat == 2
    assert notes == [f"of 3 repeats {chosen.name} was computed again"]
    with pytest.raises(BadInput, match=r"expected one of \S+/2, \S+/10, \S+/11$"):
        choose_repeat([*repeats, *repeats], "ffff")


# -- computed again ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sent(tmp_path_factory, small_data):
    """A training made in a folder that is gone afterwards; its file, and a signer."""
    folder = tmp_path_factory.mktemp("sent")
    images = shutil.copytree(small_data, folder / "nuclei")
    outcome = cellrepro.train(images, repeats=1, store=folder / "theirs", quiet=True, **SMALL)
    file = folder / "run.cellrepro.zip"
    options = {"store": folder / "theirs", "quiet": True}
    cellrepro.export_runs(outcome.key, file, weights=True, images=True, **options)
    passport = folder / "run.intoto.jsonl"
    cellrepro.export_passports(outcome.key, passport, store=folder / "theirs")
    shutil.rmtree(folder / "theirs")
    shutil.rmtree(images)
    return SimpleNamespace(key=outcome.key, file=file, passport=passport)


@pytest.mark.slow
def test_a_run_that_was_sent_is_computed_again(sent, tmp_path, monkeypatch):
    """Without the folder in which it was made: identical, with a signed receipt."""
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k"], check=True
    )
    receipt = tmp_path / "ours.intoto.jsonl"
    found = cellrepro.verify(
        sent.file,
        replay=True,
        receipt=receipt,
        sign=tmp_path / "k.pub",
        store=tmp_path / "ours",
        quiet=True,
    )
    assert found.verdict == "identical"
    assert found.replay.repeat.endswith("/1")  # a new one, whatever came
    assert found.replay.environment == {}
    listed = cellrepro.verify(receipt, store=tmp_path / "ours", quiet=True)
    ((got,),) = [one.receipts for one in listed.repeats]
    assert (got.verdict, got.signature.state) == ("identical", "unknown")
    kept = cellrepro.verify(sent.key, store=tmp_path / "ours", quiet=True)
    assert [len(one.receipts) for one in kept.repeats] == [1, 0]
    assert cellrepro.check_store(tmp_path / "ours").problems == []


@pytest.mark.slow
def test_a_different_profile_gives_the_honest_step(sent, tmp_path):
    """With the place where the two part, and what of the environment differs."""
    found = cellrepro.verify(
        sent.file, replay=True, profile="cpu-avx2", store=tmp_path / "ours", quiet=True
    )
    replay = found.replay
    if replay.verdict == Verdict.IDENTICAL:
        pytest.skip("this processor computes the same bits under both profiles")
    assert found.verdict == "different"
    first = replay.first
    assert first.stage in ("forward", "backward", "update")
    assert first.op.startswith("aten.")
    assert "variables.ATEN_CPU_CAPABILITY" in replay.environment
    assert "cpu-avx2" in replay.reasons[0]


@pytest.mark.slow
def test_a_passport_alone_is_computed_again(sent, small_data, tmp_path):
    """The images are given; the verdict is that of the digests."""
    found = cellrepro.verify(
        sent.passport, replay=True, data=small_data, store=tmp_path / "ours", quiet=True
    )
    assert (found.verdict, found.replay.repeat[-2:]) == ("identical", "/0")


@pytest.mark.slow
def test_a_changed_bit_of_the_weights_is_found(sent, tmp_path):
    """And nothing is computed again to be compared with them."""
    store = Store(tmp_path / "ours")
    cellrepro.import_runs(sent.file, store=store.root, quiet=True)
    repeat = store.run(sent.key).repeats[0]
    path = repeat.folder / "weights.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    tensors[name] = tensors[name].copy()
    tensors[name].flat[0] += 1
    path.unlink()
    save_file(tensors, path)
    found = cellrepro.verify(sent.key, replay=True, store=store.root, quiet=True)
    assert (found.verdict, found.replay) == ("different", None)
    assert [one.where for one in found.problems] == [f"runs/{repeat.name}/weights.safetensors"]


@pytest.mark.slow
def test_only_a_replay_tells_a_made_up_passport(sent, small_data, tmp_path):
    """One that contradicts nothing, and says what never came out."""
    passport = tmp_path / "forged.intoto.jsonl"
    document = json.loads(sent.passport.read_text())
    document["subject"][0]["digest"]["sha256"] = "1" * 64
    passport.write_text(json.dumps(document) + "\n")
    options = {"store": tmp_path / "ours", "quiet": True}
    assert cellrepro.verify(passport, **options).verdict == "vacuous"
    found = cellrepro.verify(passport, replay=True, data=small_data, **options)
    assert (found.verdict, found.replay.weights_equal) == ("different", False)
    assert "only its passport" in " ".join(found.replay.reasons)
    document["subject"] = document["subject"][1:]  # of a training, and it names no weights
    passport.write_text(json.dumps(document) + "\n")
    options["store"] = tmp_path / "new"
    found = cellrepro.verify(passport, replay=True, data=small_data, **options)
    assert (found.verdict, found.replay.weights_equal) == ("different", False)
