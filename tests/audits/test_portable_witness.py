"""This machine computes the reference bits, and one that does not is told from which stage."""

import json
from dataclasses import replace

import pytest

from cellrepro.audits import portable_witness
from cellrepro.audits.portable_witness import StageDigest, witness
from samebits.errors import BadInput
from samebits.results import json_text


@pytest.fixture(scope="module")
def found():
    return witness(quiet=True)


def test_machine_identity_computes_the_reference_bits(found):
    assert [stage.name for stage in found.stages] == list(portable_witness.reference_digests())
    assert found.ok, found.lines()
    assert "the same as on every machine that was tried" in str(found)
    document = json.loads(json_text(found))["portable"]
    assert (document["ok"], {*document["stages"][0]}) == (True, {"name", "digest", "expected"})


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["cpu-1thread", "cpu-baseline", "cpu-noonednn"])
def test_so_does_every_numeric_class_of_it(profile, found):
    assert witness(profile=profile, quiet=True).stages == found.stages


def test_the_first_stage_that_differs_is_named(found):
    stages = list(found.stages)
    stages[3] = StageDigest(stages[3].name, "0" * 64, stages[3].expected)
    other = replace(found, stages=tuple(stages))
    assert not other.ok
    assert f"is '{stages[3].name}', after 3 equal ones" in str(other)
    assert other.first_difference == stages[3].name
    same = [line.split()[-1] for line in other.lines()[2:]]
    assert same == ["yes" if i != 3 else "no" for i in range(len(stages))]


def test_half_precision_is_refused():
    with pytest.raises(BadInput, match="cpu-bfloat16 computes in bfloat16"):
        witness(profile="cpu-bfloat16")


def test_a_stage_that_is_not_shown_is_no_proof(monkeypatch):
    *shown, missing = reference = portable_witness.reference_digests()
    digests = {stage: reference[stage] for stage in shown}
    monkeypatch.setattr(portable_witness, "in_child", lambda *task, **options: digests)
    found = witness(quiet=True)
    assert (found.ok, found.first_difference) == (False, missing)
