"""The audit of Cellpose's training on a folder: what flips, where, and what it does."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cellrepro.audits import training_effects
from cellrepro.audits.effect import Effect, effect_between, measure_effect
from cellrepro.audits.training import TrainingAudit, Updates, audit_training
from cellrepro.audits.training_effects import measure_effects
from cellrepro.process import calling
from cellrepro.run.options import TrainingOptions
from cellrepro.store.store import Store
from samebits.errors import BadInput
from samebits.trace.nondeterministic_operation import NondeterministicOperation
from samebits.trace.operation_audit import Audit
from stores import add_run, squares, three

PLACE = "segment_anything/modeling/image_encoder.py"
ROW = NondeterministicOperation(
    op="aten.index_put.default",
    module="encoder.blocks.0.attn",
    source=f"{PLACE}:322 in get_rel_pos",
    phase="backward",
    flips=3,
    replays=24,
)
PUT = replace(ROW, op="aten.put_.default")
UNWRITTEN = replace(ROW, op="aten.empty.memory_format", read_by="aten.add.Tensor, forward of net")
EFFECT = Effect(
    op="index_put",
    key="a" * 16,
    fixed_key="b" * 16,
    repeats=3,
    fixed_identical=True,
    n_weights=3,
    weights_differing=0.9,
    n_masks=2,
    ppm=120.0,
    n_objects=1,
)


@pytest.fixture
def no_child(monkeypatch):
    """Fail if a process is started: a refusal must come before."""
    monkeypatch.setattr(calling.subprocess, "Popen", None)


# -- the real thing ------------------------------------------------------------------------


def test_fast_names_the_gather_of_the_position_table(small_data, tmp_path, command):
    """PyTorch says nothing about it; two threads race in it. The steps really update."""
    answer = command("audit", small_data, "--mode", "fast", "--json", "--store", tmp_path / "none")
    assert not (tmp_path / "none").exists(), "an audit without effect stores nothing"
    assert answer.code == 1, answer.err
    document = answer.json
    assert {row["op"] for row in document["ops"]} == {"aten.index_put.default"}
    for row in document["ops"]:
        assert row["module"] in ("encoder.blocks.0.attn", "encoder.blocks.1.attn")
        assert row["source"].startswith(PLACE)
        assert row["source"].endswith("in get_rel_pos")
        assert (row["phase"], row["warned"]) == ("backward", False)
        assert 0 < row["flips"] <= row["replays"]
        assert row["substitute"] == "rel-pos-gather"
        assert 0 < row["max_abs"] < 1e-3
        assert row["reason"]
        assert row["remedy"]
    assert document["warnings"] == []
    assert (document["mode"], document["threads"], document["n_steps"]) == ("fast", 2, 3)
    said = re.search(
        r"above (\S+) % in what is documented to race \(at least (\d[\d ]*) replays each\) or "
        r"(\S+) % .*\(at least (\d[\d ]*) .* learning rates (\S+) to \S+, "
        r"(\d[\d ]*) weights changed",
        document["sentence"],
    )
    numbers = [float(re.sub(r"\s", "", number)) for number in said.groups()]
    race, n_race, others, n_others, rate, n_changed = numbers
    assert (n_race, n_others) >= (600, 8)
    assert race < 0.5 < others < 32
    # In Cellpose's first epoch the learning rate is 0 and nothing is trained.
    assert rate > 0
    assert n_changed > 100_000
    assert "unwritten memory followed" in document["sentence"]  # Cellpose hands some out


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"mode": "slow"}, "unknown mode 'slow'"),
    ],
    ids=str,
)
def test_refusals(small_data, tmp_path, no_child, parameters, expected):
    with pytest.raises(BadInput, match=expected):
        audit_training(small_data, store=tmp_path / "outputs", **parameters)
    assert list(tmp_path.iterdir()) == []


def test_an_effect_refuses(small_data, tmp_path, no_child, invoke):
    assert invoke("audit", small_data, "--effect", 1).code == 2
    options = TrainingOptions(data=small_data, store=tmp_path / "outputs")
    with pytest.raises(BadInput, match="'relu', which mode strict does not hold"):
        measure_effect(options, "relu", repeats=2)


DATA = TrainingOptions(data="data")


# -- an audit and its effects --------------------------------------------------------------


def audit_of(*rows, warnings=()):
    return TrainingAudit(
        spec=SimpleNamespace(mode="fast", profile="cpu", seed=5, data_seed=1, batch_size=1),
        operations=Audit(
            ops=rows,
            n_steps=3,
            n_replayed=3,
            n_replays=3,
            kinds={},
            replays={},
            not_replayed={},
            n_followed=0,
            least_replays={},
            threads=3,
        ),
        updates=Updates(lowest_rate=1e-4, highest_rate=1e-3, n_weights_changed=84),
        warnings=warnings,
    )


@pytest.fixture
def effects(monkeypatch):
    """What would have been trained, and nothing is; errors by operation."""
    measured = []
    errors = {}

    def effect(options, op, **_):
        assert options.seed == 5
        assert options.mode == "strict"
        measured.append(op)
        if op in errors:
            raise errors[op]
        return replace(EFFECT, op=op)

    monkeypatch.setattr(training_effects, "measure_effect", effect)
    return SimpleNamespace(measured=measured, errors=errors)


def test_a_failed_effect_costs_neither_the_audit_nor_the_others(effects):
    """What was found is kept, each with its effect or the reason why there is none."""
    effects.errors[ROW.op] = KeyError("weights")
    reason = "KeyError: 'weights'"
    before = audit_of(ROW, replace(ROW, module="other"), PUT, UNWRITTEN)
    stages = []
    found = measure_effects(before, DATA, repeats=2, on_effect=stages.append)
    assert [len(audit.effects) for audit in stages] == [0, 1, 2, 3]
    assert stages[-1] == found
    assert effects.measured == [ROW.op, PUT.op]  # once for each operation
    first, second, third, fourth = found.ops
    assert first.no_effect_because == second.no_effect_because == reason
    assert third.effect.n_masks == 2
    assert fourth.no_effect_because.startswith("memory that nobody has written cannot be held")
    expected = {ROW.op: reason, PUT.op: third.effect, UNWRITTEN.op: fourth.no_effect_because}
    assert found.effects == expected
    found = measure_effects(audit_of(PUT, ROW), DATA, repeats=2, most=1)
    assert list(found.effects) == [PUT.op]


@pytest.mark.parametrize(
    ("warnings", "expected"), [((PUT,), [PUT.op]), ((), ["index_put"])], ids=["warned", "none"]
)
def test_where_nothing_flipped_the_suspects_are_measured(effects, warnings, expected):
    """What PyTorch warned of, or the first that the lab has a substitute for."""
    found = measure_effects(audit_of(warnings=warnings), DATA, repeats=2)
    assert effects.measured == expected == list(found.effects)
    assert found.ops == ()


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["in words", "JSON"])
def test_what_was_found_is_told_also_where_an_effect_is_interrupted(
    monkeypatch, invoke, small_data, effects, options
):
    """The audit is printed first; with --json it is printed all the same."""
    warned = replace(PUT, flips=0, replays=0, warned=True)
    found = audit_of(ROW, PUT, warnings=(warned,))
    effects.errors[PUT.op] = KeyboardInterrupt()
    monkeypatch.setattr("cellrepro.audits.audit_data.audit_training", lambda *_, **__: found)
    answer = invoke("audit", small_data, "--effect", 2, *options)
    assert answer.code == 130
    assert ROW.seen in answer.out
    if options:
        first, second = answer.json["ops"]
        assert first["effect"]["n_masks"] == 2
        assert "index_put" in first["effect_sentence"]
        assert "3 different networks" in first["effect_sentence"]
        assert (second["effect"], second["effect_sentence"]) == (None, None)
    else:
        assert "3 different networks" in answer.out
        assert "PyTorch warns of aten.put_.default" in answer.out
        assert "effect of aten.put_.default: not known" in answer.out


def test_an_effect_is_counted_over_the_different_ones(tmp_path):
    """Two equal repeats with it loose: no effect. A cell of 16 pixels lost in one of 3 images: 1.

    A network of 84 weights, of which the 64 that are scaled differ.
    """
    missing = three(squares(second=False))
    fixed = add_run(Store(tmp_path), [(1.0, three())] * 2)
    loose = add_run(Store(tmp_path), [(1.0, three()), (1.5, missing), (1.0, three())], mode="fast")
    found = effect_between("put", fixed, fixed)
    assert (found.n_weights, found.n_masks, found.repeats) == (1, 1, 2)
    assert (found.fixed_identical, found.ppm, found.n_objects) == (True, 0, 0)
    found = effect_between("put", fixed, loose)
    assert (found.n_weights, found.n_masks, found.repeats) == (2, 2, 3)
    assert found.weights_differing == pytest.approx(64 / 84)
    assert (found.n_objects, found.ppm) == (1, pytest.approx(16e6 / (3 * squares().size)))
    assert not effect_between("put", loose, fixed).fixed_identical
