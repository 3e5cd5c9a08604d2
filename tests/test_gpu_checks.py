"""The script for a GPU: it measures rightly, keeps what it has, and runs whole on a CPU."""

import importlib.util
import json
import math
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "gpu_checks.py"


def load_script():
    spec = importlib.util.spec_from_file_location("gpu_checks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_checks"] = module  # where dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["gpu_checks"]
    return module


gpu_checks = load_script()


# -- how far a result is from its reference ------------------------------------------------

EPS = 2.0**-23
INF = math.inf
NAN = math.nan


@pytest.mark.parametrize(
    ("actual", "dtype", "reference", "expected"),
    [
        ([1.0, -2.0], "float32", [1.0, -2.0], (0, 0)),
        ([1.0 + EPS], "float32", [1.0], (1, 1)),
        ([1.0 - EPS], "float32", [1.0], (1, 1)),
        ([4.0 + 4 * EPS, 1.0], "float32", [4.0, 1.0], (1, 1)),
        ([4.0, 1.0 + 4 * EPS], "float32", [4.0, 1.0], (4, 1)),
        ([1.5], "float32", [1.5 + EPS / 4], (0.25, 0.25 / 1.5)),
        ([1.0 + 2.0**-7], "bfloat16", [1.0], (1, 1)),
        ([1.0 + 2.0**-52], "float64", [1.0], (1, 1)),
        ([0.0], "float32", [0.0], (0, 0)),
        ([1e-3], "float32", [0.0], (INF, INF)),
        ([0.0], "float32", [1e-39], (0.1, INF)),
        ([NAN, 1.0], "float32", [NAN, 1.0], (0, 0)),
        ([INF], "float32", [INF], (0, 0)),
        ([INF], "float32", [-INF], (INF, INF)),
        ([NAN], "float32", [1.0], (INF, INF)),
        ([1.0], "float32", [NAN], (INF, INF)),
        ([INF], "float32", [1e39], (INF, INF)),
        ([1.0, 1.0], "float32", [1.0], (INF, INF)),
        ([3, 4], "int64", [3, 4], (0, 0)),
        ([3, 4], "int64", [3, 5], (INF, INF)),
        ([True], "bool", [False], (INF, INF)),
        ([], "float32", [], (0, 0)),
    ],
    ids=str,
)
def test_error_of_known_values(actual, dtype, reference, expected):
    import torch

    wide = torch.float64 if dtype.startswith(("float", "bfloat")) else getattr(torch, dtype)
    ulps, eps = gpu_checks.error_of(
        torch.tensor(actual, dtype=getattr(torch, dtype)), torch.tensor(reference, dtype=wide)
    )
    if reference == [0.0] and actual != [0.0]:
        assert ulps > 1e30
    elif reference == [1e-39]:
        assert 0 < ulps < 1  # flushed to zero: not an error, though nothing of the number is left
        assert eps == pytest.approx(2.0**23)
    else:
        assert (ulps, eps) == pytest.approx(expected)


@given(st.floats(1e-30, 1e30), st.integers(1, 50))
def test_ulps_count_floats(number, n):
    """Rounding costs half an ulp at most; each float further away is one more."""
    import numpy as np
    import torch

    def ulps(value):
        return gpu_checks.error_of(torch.tensor([value]), torch.tensor([number]).double())[0]

    number = float(number)
    rounded = np.float32(number)
    reference = torch.tensor([number], dtype=torch.float64)
    assert gpu_checks.error_of(torch.tensor([rounded]), reference)[0] <= 0.5
    moved = rounded
    for _ in range(n):
        moved = np.nextafter(moved, np.float32(np.inf))
    assert gpu_checks.error_of(torch.tensor([moved]), reference)[0] >= (n - 0.5) * 0.5


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("aten.copy_.default", "rounded"),
        ("aten._foreach_add_.List", "elementary"),
        ("aten._softmax.default", "sum"),
        ("aten.index.Tensor", "exact"),
        ("aten.index_put.default", "sum"),
        ("aten.upsample_linear1d_backward.default", "interpolated"),
    ],
)
def test_classes(op, expected):
    assert gpu_checks.class_of(gpu_checks.name_of(op)) == expected


# -- operation by operation ----------------------------------------------------------------


def replayed(step, network=None, **options):
    import torch

    replay = gpu_checks.make_replay(
        network or torch.nn.Identity(), deadline=options.pop("deadline", INF), **options
    )
    with replay:
        step()
    return replay, {row["op"]: row for row in replay.rows()}


@pytest.mark.usefixtures("generators_free")
def test_a_training_step_is_within_its_classes():
    import torch

    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
    optimiser = torch.optim.AdamW(layer.parameters(), foreach=True)
    batch = torch.randn(16, 64)

    def step():
        (layer(batch) - batch).square().mean().backward()
        optimiser.step()

    replay, rows = replayed(step, layer)
    assert not [row for row in rows.values() if row["exceeds"]]
    assert {"aten.addmm.default", "aten.gelu.default", "aten._foreach_lerp_.Scalar"} <= set(rows)
    assert 0 < rows["aten.addmm.default"]["eps"] < 64
    assert rows["aten.addmm.default"]["where"].startswith("forward of 0")
    assert rows["aten.addmm.default"]["reference"] == "float64"
    assert not replay.cut_short


@pytest.fixture(scope="module")
def planted():
    """An operation whose float32 is off by a ten-thousandth, and one without float64."""
    import torch

    library = torch.library.Library("gpu_checks_test", "DEF")

    def off(x):
        return x * (1.0001 if x.dtype == torch.float32 else 1)

    def only_float32(x):
        if x.dtype != torch.float32:
            raise NotImplementedError("not for Double")
        return x * 1

    def never_twice(x):
        never_twice.calls += 1
        if never_twice.calls > 1:
            raise RuntimeError("only once")
        return x * 1

    never_twice.calls = 0
    for function in (off, only_float32, never_twice):
        library.define(f"{function.__name__}(Tensor x) -> Tensor")
        library.impl(function.__name__, function, "CPU")
    yield torch.ops.gpu_checks_test
    library._destroy()


def test_an_operation_that_is_off_is_found(planted):
    import torch

    _, rows = replayed(lambda: planted.off(torch.ones(3)))
    assert rows["gpu_checks_test.off.default"]["exceeds"]
    assert rows["gpu_checks_test.off.default"]["eps"] == pytest.approx(1e-4 / EPS, rel=1e-2)


def test_without_float64_the_reference_is_float32(planted):
    import torch

    _, rows = replayed(lambda: planted.only_float32(torch.ones(3)))
    row = rows["gpu_checks_test.only_float32.default"]
    assert (row["reference"], row["ulps"], row["exceeds"]) == ("float32", 0, False)


@pytest.mark.usefixtures("generators_free")
def test_what_cannot_be_compared_is_said(planted):
    import torch

    replay, rows = replayed(lambda: (planted.never_twice(torch.ones(3)), torch.rand(2)))
    assert rows.keys().isdisjoint({"gpu_checks_test.never_twice.default", "aten.rand.default"})
    why = replay.not_compared
    assert why["gpu_checks_test.never_twice.default"] == "float64: only once; float32: only once"
    assert "random numbers" in why["aten.rand.default"]


def test_what_an_operation_overwrites_is_kept_for_the_reference():
    import torch

    x = torch.tensor([1.0, 3.0])
    _, rows = replayed(lambda: (x.div_(3.0), x.add_(x)))
    assert x.tolist() == pytest.approx([2 / 3, 2.0])
    assert 0 < rows["aten.div_.Tensor"]["ulps"] <= 0.5
    assert rows["aten.add_.Tensor"]["ulps"] == 0


def test_lists_are_compared_in_part(monkeypatch):
    import torch

    monkeypatch.setattr(gpu_checks, "_MOST_ELEMENTS", 5)
    tensors = [torch.full((n,), 2.0) for n in (4, 3, 2)]
    _, rows = replayed(lambda: torch._foreach_div_(tensors, [3.0, 5.0, 7.0]))
    assert [tensor[0].item() for tensor in tensors] == pytest.approx([2 / 3, 2 / 5, 2 / 7])
    row = rows["aten._foreach_div_.ScalarList"]
    assert (row["n_compared"], row["exceeds"]) == (1, False)
    assert 0 < row["ulps"] < 1


def test_calls_that_look_alike_are_compared_twice():
    import torch

    _, rows = replayed(lambda: [torch.ones(3) / 3 for _ in range(5)])
    assert (rows["aten.div.Tensor"]["n_calls"], rows["aten.div.Tensor"]["n_compared"]) == (5, 2)


def test_when_time_is_up_the_step_goes_on():
    import torch

    done = []
    replay, rows = replayed(lambda: done.append(torch.ones(3) / 3), deadline=-INF)
    assert len(done) == 1
    assert rows == {}
    assert replay.cut_short


# -- carrying out --------------------------------------------------------------------------


def some_lab(**changes):
    fields = {
        **{"device": "cpu", "encoder": "tiny", "steps": 3, "rounds": 1, "cost_steps": 1},
        **{"replays": 1, "seed": 0, "threads": 2, "deadline": INF},
    }
    return gpu_checks.Lab(**{**fields, **changes})


def some_checks(**functions):
    return {name: gpu_checks.Check(run, lambda lab: 1) for name, run in functions.items()}


def test_results_are_written_after_every_check(tmp_path, monkeypatch, capsys):
    out = tmp_path / "new" / "out.json"
    seen = []

    def look(lab):
        seen.append(json.loads(out.read_text()))
        return {"status": "seen"}

    def breaks(lab):
        raise ValueError("of its own")

    def leaves_out(lab):
        raise gpu_checks.Skipped("no screws here")

    checks = some_checks(
        first=lambda lab: {"status": "passed", "value": INF, "sentence": "fine"},
        second=look,
        third=leaves_out,
        fourth=breaks,
        fifth=look,
    )
    monkeypatch.setattr(gpu_checks, "CHECKS", checks)
    assert gpu_checks.carry_out(some_lab(), list(checks), out) == 1
    assert list(seen[0]["checks"]) == ["first"]
    assert seen[0]["checks"]["first"]["value"] == "inf"
    assert (seen[0]["ok"], seen[0]["complete"]) == (True, False)
    assert list(seen[1]["checks"]) == ["first", "second", "third", "fourth"]
    last = json.loads(out.read_text())
    assert (last["ok"], last["complete"]) == (False, True)
    assert last["checks"]["third"]["reason"] == "no screws here"
    assert last["checks"]["fourth"]["status"] == "error"
    assert last["checks"]["fourth"]["reason"] == "ValueError: of its own"
    assert last["settings"]["encoder"] == "tiny"
    assert [item.name for item in out.parent.iterdir()] == ["out.json"]
    assert "first            passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "code"), [("passed", 0), ("seen", 1), ("failed", 1), ("skipped", 1)]
)
def test_exit_code(status, code, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_checks, "CHECKS", some_checks(one=lambda lab: {"status": status}))
    assert gpu_checks.carry_out(some_lab(), ["one"], tmp_path / "out.json") == code


def test_a_check_that_would_take_too_long_is_not_begun(tmp_path, monkeypatch):
    checks = some_checks(one=lambda lab: pytest.fail("begun"))
    monkeypatch.setattr(gpu_checks, "CHECKS", checks)
    gpu_checks.carry_out(some_lab(deadline=-INF), ["one"], tmp_path / "out.json")
    outcome = json.loads((tmp_path / "out.json").read_text())["checks"]["one"]
    assert outcome["status"] == "skipped"
    assert outcome["reason"] == "0 s of the time are left, and it takes about 1"


def test_what_is_not_installed_is_no_error(monkeypatch, tmp_path):
    checks = some_checks(
        one=lambda lab: gpu_checks.needs("json", "no_such_module"),
        two=lambda lab: {"status": "passed"},
    )
    monkeypatch.setattr(gpu_checks, "CHECKS", checks)
    assert gpu_checks.carry_out(some_lab(), ["one", "two"], tmp_path / "out.json") == 0
    outcome = json.loads((tmp_path / "out.json").read_text())["checks"]["one"]
    assert outcome["reason"] == "no_such_module is not installed here, which this check needs"


# -- two trainings -------------------------------------------------------------------------


@pytest.fixture
def trainings(monkeypatch):
    """Sets what the two trainings here and the one in another process end with."""

    def end_with(*ends, other_process=None):
        def answer(digest, n_changed=5, loss=1.0):
            return {"digest": digest, "n_changed": n_changed, "losses": [loss.hex()]}

        answers = [answer(*end) for end in ends]

        def run(command, **options):
            if other_process is not None:
                raise other_process
            return types.SimpleNamespace(stdout=f"noise\n{json.dumps(answers.pop(0))}\n")

        monkeypatch.setattr(gpu_checks, "training_digest", lambda lab: answers.pop(0))
        monkeypatch.setattr(gpu_checks.subprocess, "run", run)
        network = types.SimpleNamespace(parameters=list)
        return gpu_checks.strict_repeats(some_lab(_network=network))

    return end_with


@pytest.mark.parametrize(
    ("ends", "status", "words"),
    [
        ([("a",)] * 3, "passed", "3 trainings of 3 strict steps ended in the same bits"),
        ([("a",), ("b",), ("a",)], "failed", "DIFFER"),
        ([("a",), ("a",), ("b",)], "failed", "DIFFER"),
        ([("a",), ("a", 5, 2.0), ("a",)], "failed", "DIFFER"),
        ([("a", 0)] * 3, "failed", "vacuous: the training changed no weight"),
    ],
    ids=["same", "here", "elsewhere", "loss", "vacuous"],
)
def test_strict_repeats(trainings, ends, status, words):
    outcome = trainings(*ends)
    assert outcome["status"] == status
    assert words in outcome["sentence"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (subprocess.TimeoutExpired("x", 1), "did not end within"),
        (subprocess.CalledProcessError(9, "x", stderr="killed"), "ended with 9: killed"),
    ],
    ids=["too slow", "killed"],
)
def test_the_other_process_has_to_end_well(trainings, error, words):
    outcome = trainings(("a",), ("a",), other_process=error)
    assert outcome["status"] == "failed"
    assert words in outcome["sentence"]


# -- the command ---------------------------------------------------------------------------


def test_variables_are_set_before_anything_is_loaded(monkeypatch):
    started = []
    monkeypatch.setattr(gpu_checks.os, "execve", lambda *arguments: started.append(arguments))
    gpu_checks.start_with_variables(3)
    ((_, _, variables),) = started
    assert variables["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert variables["PYTHONHASHSEED"] == "0"
    assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == "3"
    monkeypatch.setattr(gpu_checks.os, "environ", variables)
    gpu_checks.start_with_variables(3)
    assert len(started) == 1


@pytest.mark.parametrize("words", [["--steps", "0"], ["--only", "nothing"], ["--device", "tpu"]])
def test_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as error:
        gpu_checks.parse(words)
    assert error.value.code == 2
    assert words[1] in capsys.readouterr().err


def run_script(*words, **variables):
    source = str(SCRIPT.parents[1] / "src")
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, words)],
        env={**os.environ, "PYTHONPATH": source, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_a_device_that_is_missing():
    done = run_script("--device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3
    assert "finds no CUDA device here; take --device cpu --encoder tiny" in done.stderr


@pytest.mark.slow
def test_the_script_on_a_cpu(tmp_path):
    """Everything but the segmentation, which takes a while; with as few steps as prove it."""
    out = tmp_path / "out.json"
    names = [name for name in gpu_checks.CHECKS if name != "segmentation"]
    done = run_script(
        *("--device", "cpu", "--encoder", "tiny", "--steps", 2, "--rounds", 1, "--cost-steps", 1),
        *("--replays", 1, "--threads", 2, "--minutes", 5, "--out", out, "--only", *names),
    )
    results = json.loads(out.read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert (results["ok"], results["complete"]) == (True, True)
    checks = results["checks"]
    assert list(checks) == names
    for name in ("numeric-class", "strict-quiet", "audit-strict", "strict-repeats", "operations"):
        assert checks[name]["status"] == "passed", checks[name]
    assert checks["environment"]["variables"]["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert checks["environment"]["torch"]["threads"] == 2
    assert len(set(checks["strict-repeats"]["digests"].values())) == 1
    assert len(checks["strict-repeats"]["digests"]) == 3
    assert checks["strict-repeats"]["n_changed"] > 1_000_000
    assert checks["strict-quiet"]["switches"]["substitutes"]
    assert [row["name"] for row in checks["cost"]["rows"]] == [
        *("plain", "fast", "warn", "strict", "others")
    ]
    ops = {row["op"]: row for row in checks["operations"]["ops"]}
    assert len(ops) > 40
    assert 0 < ops["aten.addmm.default"]["eps"] < 64
    assert ops["aten.index_put.default"]["where"].startswith("backward of encoder.blocks")
    assert checks["fast-repeats"]["n_parameters"] == 2277186
    assert checks["audit-fast"]["n_replays"] > 100
    assert checks["warnings"]["warnings"] == []
