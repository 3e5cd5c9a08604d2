"""The doctor: what is not reproducible here, a real double run, and pasted warnings."""

from dataclasses import replace

import pytest

from cellrepro.determinism import known_operations, profiles
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.lab import doctor, explain_warning
from cellrepro.lab.doctor import FewSteps, diagnose

RUN = FewSteps(
    weights="a" * 64,
    n_changed=1000,
    numeric_class="c" * 12,
    switches={},
    libraries=[{"user_api": "openmp", "internal_api": "openmp"}],
    tf32_at_import=False,
    warned=(),
)
TWO_OPENMP = [{"user_api": "openmp", "internal_api": name} for name in ("openmp", "libiomp5")]


@pytest.fixture
def ends(monkeypatch):
    """Make the two processes end as told instead of starting them."""

    def end_with(second=None, **both):
        first = replace(RUN, **both)
        left = [first, replace(first, **(second or {}))]
        monkeypatch.setattr(doctor, "call", lambda *_, **__: left.pop(0))

    return end_with


def said(found, level):
    return " ".join(finding.what for finding in found.findings if finding.level == level)


def test_a_real_double_run_looks_good(command):
    """Strict on this machine, through the front door, in two processes."""
    answer = command("doctor", "--json")
    assert answer.code == 0, answer.err
    document = answer.json
    assert document["ok"] is True
    assert document["double_run"]["identical"] is True
    assert document["double_run"]["n_changed"] > 1000
    assert document["profile"]["name"] == "cpu"
    assert document["host"]["numeric_class"]
    assert all({"level", "what", "remedy"} <= finding.keys() for finding in document["findings"])
    assert "error" not in {finding["level"] for finding in document["findings"]}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({}, {"weights": "b" * 64}, "ended in other weights"),
        ({"n_changed": 0}, {}, "proves nothing"),
        ({}, {"numeric_class": "d" * 12}, "two numeric classes"),
    ],
    ids=["other weights", "nothing trained", "two classes"],
)
def test_a_double_run_that_is_an_error(ends, first, second, expected):
    ends(second, **first)
    found = diagnose(quiet=True)
    assert (found.ok, found.exit_code) == (False, 1)
    assert found.findings[0].level == "error"
    assert expected in said(found, "error")
    assert found.double_run["identical"] is ("weights" not in second)
    assert "looks good" not in found.sentence()


def test_fast_is_good_only_where_nothing_can_race(ends):
    """At two threads an agreement of two runs is chance."""
    ends()
    assert "by chance" in said(diagnose(mode="fast", quiet=True), "error")
    ends()
    assert diagnose(mode="fast", profile="cpu-1thread", quiet=True).ok


@pytest.mark.parametrize(
    ("run", "level", "expected"),
    [
        ({"tf32_at_import": True}, "info", "importing Cellpose allows TF32"),
        ({"libraries": TWO_OPENMP}, "warning", "several OpenMP libraries are loaded"),
        ({"warned": ("put_",)}, "warning", "PyTorch warns that put_"),
    ],
    ids=["TF32", "two OpenMP", "a warning"],
)
def test_what_the_double_run_saw(ends, run, level, expected):
    ends(**run)
    assert expected in said(diagnose(quiet=True), level)


def test_profile_and_versions_that_bits_depend_on(ends, monkeypatch, tmp_path, invoke):
    path = tmp_path / "mine.yaml"
    path.write_text("device: cpu\ntf32: true\n", encoding="utf-8")
    versions = {"cellpose": "9.9", "torch": "2.15.0+cpu"}
    monkeypatch.setattr(doctor.platform, "versions", lambda: versions)
    monkeypatch.setattr(doctor.platform, "is_anonymous", lambda: True)
    ends()
    answer = invoke("doctor", "--profile", path)
    assert answer.code == 0
    for expected in (
        "nothing tells this machine from another",
        "cellpose is 9.9",
        "segment-anything is not installed",
        "leaves the number of threads to the machine",
        "allows TF32",
        "uses what this processor has",
    ):
        assert expected in answer.out
    assert "torch is" not in answer.out
    assert answer.out.splitlines()[-1].startswith("looks good: 6 training steps in two processes")
    ends()
    assert "uses what" not in said(diagnose(profile="cpu-portable", quiet=True), "info")


def test_this_process_is_looked_at(ends, monkeypatch):
    """What the shell sets in vain, and what was not there when this process started."""
    for name in profiles.NUMERIC_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setattr(doctor.profiles, "variables_at_start", dict)
    ends()
    text = said(diagnose(quiet=True), "info")
    assert "ATEN_CPU_CAPABILITY=avx2 (unset instead)" in text
    assert "started without" in text
    started = {
        **profiles.load("cpu").variables(),
        **doctor.profiles.startup_variables(0, mode="strict"),
    }
    monkeypatch.setattr(doctor.profiles, "variables_at_start", lambda: started)
    ends()
    assert "started without" not in said(diagnose(quiet=True), "info")


def test_a_machine_without_the_device(monkeypatch):
    def refuse(*_, **__):
        raise NotPossibleHere("no device 'cuda' on this machine")

    monkeypatch.setattr(doctor, "call", refuse)
    found = diagnose(profile="cuda", quiet=True)
    assert (found.ok, found.exit_code, found.double_run) == (False, 3, None)
    assert "no device 'cuda'" in said(found, "error")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"profile": "abacus"}, "unknown profile"),
        ({"mode": "slow"}, "unknown mode"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_refusals(monkeypatch, parameters, expected):
    monkeypatch.setattr(doctor, "call", None)  # no process is to be started
    with pytest.raises(BadInput, match=expected):
        diagnose(quiet=True, **parameters)


# -- a pasted warning ----------------------------------------------------------------------

PUT = """2026-11-22 07:32:11 /home/me/my model.py:12: UserWarning: put_ does not have a determin
istic implementation, but you set 'torch.use_deterministic_algorithms(True, warn_only=True)'."""


def test_a_pasted_warning_is_explained_and_held_against_a_real_step(command):
    """Cellpose's training calls no put_."""
    answer = command("doctor", "--mode", "warn", "--warning", PUT, "--json")
    assert answer.code == 0, answer.err
    document = answer.json
    assert {"host", "profile", "findings", "ok", "warning"} <= document.keys()
    explained = document["warning"]
    assert (explained["op"], explained["affects"], document["ok"]) == ("put_", False, True)
    assert explained["why"] == "a training step of tiny calls none of: put."
    assert "index_put" in explained["remedy"]


CALLED = {"put": ["a.py:3"]}


@pytest.mark.parametrize(
    ("changes", "mode", "affects", "why"),
    [
        ({}, "fast", True, "mode fast fixes nothing but the seeds"),
        ({}, "warn", True, "mode warn only warns of it"),
        ({}, "strict", False, "let it through"),
        ({"stopped": "put_"}, "strict", True, "mode strict stops: put_"),
        ({"own": {}}, "strict", False, "puts a substitute in its place"),
        ({"fast": {}}, "fast", False, "calls none of: put"),
        ({"fast": {}, "elsewhere": " on the CPU"}, "fast", None, "calls none of: put"),
    ],
    ids=["fast", "warn", "strict", "stopped", "substituted", "not called", "another device"],
)
def test_whether_a_warning_can_change_a_training(changes, mode, affects, why):
    seen = explain_warning.StepSeen(**{"fast": CALLED, "own": CALLED, **changes})
    found = explain_warning.affected(known_operations.lookup("put_"), seen, mode, "tiny")
    assert found[0] is affects
    assert why in found[1]


def test_warnings_that_need_no_look_at_a_step(monkeypatch, invoke):
    """Of another device; newer than the list; and text that is no such warning."""
    monkeypatch.setattr(explain_warning, "call", None)
    found = explain_warning.explain_warning("scatter_add_cuda_kernel", profile="cpu")
    assert found.affects is False
    assert found.why == "it concerns cuda, and profile cpu computes on cpu."
    new = "new_op does not have a deterministic implementation, but"
    found = explain_warning.explain_warning(new)
    assert (found.op, found.affects) == ("new_op", None)
    answer = invoke("doctor", "--warning", "images are read in a deterministic order")
    assert answer.code == 2
    assert "is no warning of PyTorch about determinism; expected one that says" in answer.err
