"""The doctor: what is not reproducible here, and a real double run."""

import json

import pytest

from cellrepro.determinism import known_operations, profiles
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.lab import doctor, explain_warning, process
from cellrepro.lab.doctor import diagnose

RUN = {
    "weights": "a" * 64,
    "n_changed": 1000,
    "numeric_class": "c" * 12,
    "switches": {},
    "libraries": [{"user_api": "openmp", "internal_api": "openmp"}],
    "tf32_at_import": False,
    "warned": [],
    "pid": 1,
}


@pytest.fixture
def runs(monkeypatch):
    """Make the two processes end as told instead of starting them."""

    def end_with(first, second=None):
        ends = [{**RUN, **first}, {**RUN, **(first if second is None else second)}]
        monkeypatch.setattr(doctor.child, "call", lambda *_, **__: ends.pop(0))

    return end_with


def levels(found):
    return [finding.level for finding in found.findings]


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
    assert document["host"]["cores"] >= 1
    assert all({"level", "what", "remedy"} <= finding.keys() for finding in document["findings"])
    assert "error" not in {finding["level"] for finding in document["findings"]}


def test_a_machine_that_nothing_tells_from_others(runs, monkeypatch):
    runs({})
    monkeypatch.setattr(doctor.host, "_machine_id", lambda: "")
    assert "nothing tells this machine from another" in said(diagnose(), "warning")
    monkeypatch.setenv("CELLREPRO_MACHINE", "bench-2")
    runs({})
    assert "nothing tells" not in said(diagnose(), "warning")
    monkeypatch.setenv("CELLREPRO_MACHINE", "../bench")
    with pytest.raises(BadInput, match=r"CELLREPRO_MACHINE is '../bench'; expected up to 64"):
        diagnose()


def test_in_words(runs, invoke):
    runs({})
    answer = invoke("doctor")
    assert answer.code == 0
    last = answer.out.splitlines()[-1]
    assert last.startswith("looks good: 6 training steps in two processes of profile cpu")
    assert "->" in answer.out


def test_a_double_run_that_parts_is_an_error(runs):
    runs({}, {"weights": "b" * 64})
    found = diagnose(quiet=True)
    assert (found.ok, found.exit_code) == (False, 1)
    assert levels(found)[0] == "error"
    assert "ended in other weights" in said(found, "error")
    assert found.double_run["identical"] is False
    assert "looks good" not in found.sentence()


def test_a_double_run_that_trains_nothing_proves_nothing(runs):
    runs({"n_changed": 0})
    found = diagnose(quiet=True)
    assert not found.ok
    assert "proves nothing" in said(found, "error")


def test_two_numeric_classes_of_one_profile_are_an_error(runs):
    runs({}, {"numeric_class": "d" * 12})
    found = diagnose(quiet=True)
    assert not found.ok
    assert "two numeric classes" in said(found, "error")


def test_fast_at_two_threads_is_not_good_even_if_it_agreed_by_chance(runs):
    runs({})
    found = diagnose(mode="fast", quiet=True)
    assert not found.ok
    assert "by chance" in said(found, "error")


def test_fast_at_one_thread_is_good_if_the_double_run_says_so(runs):
    runs({})
    assert diagnose(mode="fast", profile="cpu-1thread", quiet=True).ok


@pytest.mark.parametrize(
    ("ends", "level", "expected"),
    [
        ({"tf32_at_import": True}, "info", "importing Cellpose allows TF32"),
        (
            {
                "libraries": [
                    {"user_api": "openmp", "internal_api": name} for name in ("openmp", "libiomp5")
                ]
            },
            "warning",
            "several OpenMP libraries are loaded",
        ),
        ({"warned": ["put_"]}, "warning", "PyTorch warns that put_"),
    ],
    ids=["TF32", "two OpenMP", "a warning"],
)
def test_what_the_double_run_saw(runs, ends, level, expected):
    runs(ends)
    assert expected in said(diagnose(quiet=True), level)


def test_other_versions_are_a_warning(runs, monkeypatch):
    runs({})
    monkeypatch.setattr(doctor.host, "versions", lambda: {"cellpose": "9.9", "torch": "2.15.0+cpu"})
    found = diagnose(quiet=True)
    assert "cellpose is 9.9" in said(found, "warning")
    assert "segment-anything is not installed" in said(found, "warning")
    assert "torch is" not in said(found, "warning")


def test_a_profile_that_leaves_the_threads_to_the_machine(runs, tmp_path):
    runs({})
    path = tmp_path / "mine.yaml"
    path.write_text("device: cpu\ntf32: true\nenvironment: {MKL_CBWR: AVX2}\n", encoding="utf-8")
    found = diagnose(profile=path, quiet=True)
    text = said(found, "warning")
    assert "leaves the number of threads to the machine" in text
    assert "allows TF32" in text
    assert diagnosis_is_plain(found)


def diagnosis_is_plain(found):
    from dataclasses import asdict

    return json.loads(json.dumps(asdict(found)))["profile"]["name"] == "mine"


def test_the_portable_profile_is_not_told_to_be_portable(runs):
    runs({})
    runs({})
    text = said(diagnose(quiet=True), "info")
    assert "use what" in text or "uses what this processor has" in text
    runs({})
    assert "uses what this processor has" not in said(
        diagnose(profile="cpu-portable", quiet=True), "info"
    )


def test_what_the_shell_sets_in_vain_is_said(runs, monkeypatch):
    for name in profiles.NUMERIC_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    runs({})
    assert "set in your environment" not in said(diagnose(quiet=True), "info")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    runs({})
    text = said(diagnose(quiet=True), "info")
    assert (
        "ATEN_CPU_CAPABILITY=avx2 (unset instead), CUBLAS_WORKSPACE_CONFIG=:16:8 (:4096:8" in text
    )


def test_this_process_is_looked_at(runs, monkeypatch):
    runs({})
    wanted = profiles.load("cpu").variables()
    monkeypatch.setattr(doctor.profiles, "variables_at_start", lambda: {})
    text = said(diagnose(quiet=True), "info")
    assert "started without" in text
    assert "PYTHONHASHSEED" in text
    started = {**wanted, **doctor.profiles.startup_variables(0, mode="strict")}
    monkeypatch.setattr(doctor.profiles, "variables_at_start", lambda: started)
    runs({})
    assert "started without" not in said(diagnose(quiet=True), "info")


def test_a_machine_without_the_device(monkeypatch):
    def refuse(*_, **__):
        raise NotPossibleHere("no device 'cuda' on this machine")

    monkeypatch.setattr(doctor.child, "call", refuse)
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
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(process.subprocess, "Popen", refuse)
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
    told = document["warning"]
    assert (told["op"], told["affects"], document["ok"]) == ("put_", False, True)
    assert "thread that writes last" in told["meaning"]
    assert told["why"] == "a training step of tiny calls none of: put."
    assert "index_put" in told["remedy"]


@pytest.mark.parametrize(
    ("changes", "mode", "affects", "why"),
    [
        ({}, "fast", True, "mode fast fixes nothing but the seeds"),
        ({}, "warn", True, "mode warn only warns of it"),
        ({}, "strict", False, "it went through"),
        ({"stopped": "put_"}, "strict", True, "mode strict stops: put_"),
        ({"own": {}}, "strict", False, "puts a substitute in its place"),
        ({"fast": {}}, "fast", False, "calls none of: put"),
        ({"fast": {}, "elsewhere": " on the CPU"}, "fast", None, "calls none of: put"),
    ],
    ids=["fast", "warn", "strict", "stopped", "substituted", "not called", "another device"],
)
def test_whether_a_warning_can_change_a_training(changes, mode, affects, why):
    step = {"fast": {"put": ["a.py:3"]}, "own": {"put": ["a.py:3"]}, "stopped": None}
    seen = {**step, "elsewhere": "", **changes}
    found = explain_warning._affects(known_operations.lookup("put_"), seen, mode, "tiny")
    assert found[0] is affects
    assert why in found[1]


def test_a_warning_of_another_device_changes_nothing_here(monkeypatch):
    monkeypatch.setattr(process, "call", None)  # no process is needed to say so
    found = explain_warning.explain_warning("scatter_add_cuda_kernel", profile="cpu")
    assert found.affects is False
    assert found.why == "it concerns cuda, and profile cpu computes on cpu."


def test_a_warning_newer_than_the_list_is_one_all_the_same(monkeypatch):
    monkeypatch.setattr(process, "call", None)
    found = explain_warning.explain_warning(
        "new_op does not have a deterministic implementation, but"
    )
    assert (found.op, found.affects) == ("new_op", None)


def test_text_that_is_no_warning_of_determinism_is_refused(invoke):
    answer = invoke("doctor", "--warning", "images are read in a deterministic order")
    assert answer.code == 2
    assert "is no warning of PyTorch about determinism; expected one that says" in answer.err
