"""The doctor: what is not reproducible here, a real double run, and pasted warnings."""

import inspect
import os
from dataclasses import replace

import pytest
import torch

from cellrepro.audits import double_run
from cellrepro.audits.doctor import diagnose
from cellrepro.audits.double_run import ShortRun, small_training
from cellrepro.audits.gpu_findings import TorchBuild, judged, look_at_torch
from cellrepro.audits.network_findings import network_findings
from cellrepro.audits.torch_warning import (
    called_by_cellpose,
    device_of,
    effect_on_training,
    explain_warning,
)
from cellrepro.model.weight_sources import find_model
from cellrepro.profiles import numeric_variables, process_start, profiles
from cellrepro.profiles.automatic_profile import UsableDevices
from cellrepro.store import installed_versions, machine_identity
from cellrepro.store.store import Store
from samebits import known_operations, torch_alerts
from samebits.errors import BadInput, NotPossibleHere
from samebits.trace.operation_ledger import OperationLedger

RUN = ShortRun(
    weights_before="b" * 64,
    weights="a" * 64,
    numeric_class="c" * 12,
    libraries=[{"user_api": "openmp", "internal_api": "openmp"}],
)
TWO_OPENMP = [{"user_api": "openmp", "internal_api": name} for name in ("openmp", "libiomp5")]


@pytest.fixture
def ends(monkeypatch):
    """Make the two processes end as told instead of starting them."""

    def end_with(second=None, **both):
        first = replace(RUN, **both)
        runs = iter([first, replace(first, **(second or {}))])
        monkeypatch.setattr(double_run, "in_child", lambda *_, **__: next(runs))

    return end_with


def said(found, level):
    return " ".join(finding.what for finding in found.findings if finding.level == level)


def test_the_network_of_cellpose_itself_is_looked_at(tmp_path, monkeypatch):
    """Absent, cut off on its way, and a different network under its name."""
    monkeypatch.setenv("CELLPOSE_LOCAL_MODELS_PATH", str(tmp_path))
    (absent,) = network_findings()
    assert (absent.level, "downloaded" in absent.what) == ("info", True)
    file = tmp_path / "cpsam_v2"
    file.write_bytes(b"PK\x03\x04 and no more")
    (damaged,) = network_findings()
    assert (damaged.level, "cannot be read" in damaged.what) == ("warning", True)
    torch.save({"downsample.down.0.weight": torch.zeros(32, 2, 3, 3)}, file)
    (older,) = network_findings()
    assert older.level == "warning"
    assert "not one that Cellpose loads as it is: Cellpose 4 refuses networks of" in older.what


@pytest.mark.slow  # notebook 00 shows it, too
def test_a_real_double_run_looks_good(command):
    """Strict on this machine, through the front door, in two processes."""
    answer = command("doctor", "--json")
    assert answer.code == 0, answer.err
    document = answer.json
    assert document["ok"] is True
    assert document["profile"]["name"] == "cpu"
    assert document["host"]["numeric_class"]
    assert all({"level", "what", "remedy"} <= finding.keys() for finding in document["findings"])


@pytest.mark.parametrize(
    ("run", "second", "level", "expected"),
    [
        ({}, {"weights": "c" * 64}, "error", "ended in different weights"),
        ({"weights_before": "a" * 64}, {}, "error", "proves nothing"),
        ({"libraries": TWO_OPENMP}, {}, "warning", "several OpenMP libraries are loaded"),
    ],
    ids=["different weights", "nothing trained", "two OpenMP"],
)
def test_what_the_double_run_saw(ends, run, second, level, expected):
    ends(second, **run)
    found = diagnose(quiet=True)
    assert expected in said(found, level)
    assert (found.ok, found.exit_code) == ((False, 1) if level == "error" else (True, 0))
    assert found.sentence().startswith("looks good") is found.ok


def test_fast_is_good_only_where_nothing_can_race(ends):
    """At two threads an agreement of two runs is chance."""
    ends()
    assert "by chance" in said(diagnose(mode="fast", quiet=True), "error")
    ends()
    assert diagnose(mode="fast", profile="cpu-1thread", quiet=True).ok


def test_profile_versions_and_process_that_bits_depend_on(ends, monkeypatch, tmp_path, invoke):
    path = tmp_path / "mine.yaml"
    path.write_text("device: cpu\ntf32: true\n", encoding="utf-8")
    versions = {"cellpose": "9.9", "segment-anything": "1.0", "torch": "2.99.0+cpu"}
    monkeypatch.setattr(installed_versions, "versions", lambda: versions)
    monkeypatch.setattr(machine_identity, "is_anonymous", lambda: True)
    for name in numeric_variables.NUMERIC_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setattr(process_start, "variables_at_start", dict)
    ends()
    answer = invoke("doctor", "--profile", path)
    assert answer.code == 0
    for expected in (
        "nothing tells this machine from another",
        "cellpose is 9.9",
        "torch is 2.99.0; the lab was checked with 2.15.0",
        "not among those the lab knows",
        "leaves the number of threads to the machine",
        "allows TF32",
        "bits hold on machines of the same numeric class",
        "ATEN_CPU_CAPABILITY=avx2 (unset instead)",
        "started without",
    ):
        assert expected in answer.out
    assert "segment-anything is" not in answer.out
    assert answer.out.splitlines()[-1].startswith("looks good: 6 training steps in two processes")


def test_variables_are_said_to_be_set_otherwise_or_not_set_never_both(ends, monkeypatch):
    for name in (*numeric_variables.NUMERIC_VARIABLES, *profiles.load("cpu").variables()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("TCNN_SEED", "5")
    monkeypatch.setattr(process_start, "variables_at_start", lambda: dict(os.environ))
    ends()
    texts = [finding.what for finding in diagnose(quiet=True).findings]
    (replaced,) = [text for text in texts if text.startswith("set in your environment")]
    assert "OMP_NUM_THREADS=8 (2 instead), TCNN_SEED=5 (0 instead)" in replaced
    (started,) = [text for text in texts if text.startswith("this process was started")]
    without, _, otherwise = started.partition(" and with ")
    assert "MKL_NUM_THREADS" in without
    assert "TCNN_SEED" not in without
    assert otherwise == (
        "OMP_NUM_THREADS=8 and TCNN_SEED=5, and what the lab runs is started otherwise"
    )


def test_a_machine_without_the_device(monkeypatch):
    def refuse(*_, **__):
        raise NotPossibleHere("no device 'cuda' on this machine")

    monkeypatch.setattr(double_run, "in_child", refuse)
    found = diagnose(profile="cuda", quiet=True)
    assert (found.ok, found.exit_code) == (False, 3)
    assert "no device 'cuda'" in said(found, "error")


# -- a pasted warning ----------------------------------------------------------------------

PUT = """2026-11-22 07:32:11 /home/me/my model.py:12: UserWarning: put_ does not have a determin
istic implementation, but you set 'torch.use_deterministic_algorithms(True, warn_only=True)'."""


def test_a_pasted_warning_is_explained_and_held_against_a_real_step(command):
    """Cellpose's training calls no put_."""
    answer = command("doctor", "--mode", "warn", "--warning", PUT, "--json")
    document = answer.json
    assert {"host", "profile", "findings", "ok", "warning"} <= document.keys()
    explained = document["warning"]
    assert (explained["op"], explained["affects"], document["ok"]) == ("put_", False, True)
    assert explained["why"] == "a training step of tiny calls none of: put."
    assert "index_put" in explained["remedy"]


@pytest.mark.parametrize(
    ("changes", "mode", "affects", "why"),
    [
        ({}, "fast", True, "mode fast does not fix it"),
        ({}, "strict", True, "mode strict stops at it"),
        ({"ops": ("index_put",)}, "strict", False, "puts a substitute there (rel-pos-gather"),
        ({"kind": "switched"}, "strict", False, "selects its deterministic way"),
        ({}, "portable", False, "mode portable computes it in a form of its own"),
        ({"ops": ("cos",)}, "fast", False, "calls none of: cos"),
        ({"ops": ()}, "fast", None, "does not say which operations"),
    ],
    ids=["fast", "stopped", "substituted", "switched", "portable", "not called", "nameless"],
)
def test_whether_a_warning_can_change_a_training(changes, mode, affects, why):
    entry = replace(torch_alerts.lookup("put_"), **changes)
    calls = {"put": "a.py:3", "index_put": "a.py:4"}
    effect = effect_on_training(entry, calls, mode=mode, model="tiny")
    assert effect.affects is affects
    assert why in effect.why


def test_a_warning_of_a_different_device_or_of_none():
    found = explain_warning("scatter_add_cuda_kernel", profile="cpu")
    expected = "it concerns cuda, and profile cpu computes on cpu."
    assert (found.affects, found.why) == (False, expected)
    assert (
        "It cannot change the lab's training of Cellpose (tiny, profile cpu on cpu, mode strict): "
        "it concerns cuda"
    ) in found.sentence()
    assert (
        "For any other training: where a training of yours, in Cellpose or any other framework of "
        "PyTorch, calls it on cuda, its bits may change from run to run"
    ) in found.sentence()
    found = explain_warning("new_op does not have a deterministic implementation, but")
    assert (found.op, found.affects) == ("new_op", None)
    with pytest.raises(BadInput, match="is no warning of PyTorch about determinism"):
        explain_warning("images are read in a deterministic order")


@pytest.mark.parametrize(
    ("text", "device"),
    [
        (
            "upsample_bilinear2d_backward_out_cuda does not have a deterministic implementation",
            "cuda",
        ),
        ("max_pool3d_with_indices_backward_cuda does not have a deterministic impl", "cuda"),
        (
            "Deterministic behavior was enabled but this operation uses CuBLAS and you have CUDA",
            "cuda",
        ),
        ("put_ does not have a deterministic implementation", "cpu"),
        ("index_put (Triggered internally at native/mps/operations/Indexing.mm:1)", "mps"),
    ],
)
def test_a_warning_is_explained_for_the_device_that_it_names(text, device):
    assert device_of(text, torch_alerts.lookup(text)) == device


def test_a_warning_of_the_gpu_is_not_answered_for_the_processor():
    """Also where no GPU is: what a step calls is known; another framework's is said to be one."""
    found = explain_warning(
        "upsample_linear1d_backward_out_cuda does not have a deterministic "
        "implementation, but you set",
        mode="warn",
    )
    assert (found.profile, found.affects) == ("cuda", True)
    assert "profile cuda on cuda" in found.training
    if not UsableDevices.here().cuda:
        assert "those of a step on the processor" in found.why
    with pytest.raises(BadInput, match=r"is of TensorFlow, and .*: TensorFlow.s own switch is tf"):
        explain_warning("tensorflow/core/kernels: a deterministic GPU implementation of scatter")


NO_FORM = "does not have a deterministic implementation"


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("cumsum_cuda_kernel does not have ...", "PyTorch before 2.6", "PyTorch 2.6 or newer"),
        ("cumsum_cuda_kernel", "PyTorch before 2.6", "PyTorch 2.6 or newer"),
        ("my_op_cuda does not have a deterministic", "no deterministic", "a newer one"),
        ("my_op_cuda does not have a determ…", "no deterministic", "a newer one"),
        ("Deterministic behavior was enabled with either", "cuBLAS", "CUBLAS_WORKSPACE_CONFIG"),
        (f"index_add_cuda_ {NO_FORM}", "PyTorch before 2.6", "from 1.9 on"),
        (f"a.py:3: index_put_ with accumulate=False {NO_FORM}", "PyTorch before 2.6", "from 1.8"),
        (f"compute_grad_weight {NO_FORM}", "PyTorch before 2.6", "2.6 or newer"),
        (f"scatter_reduce_two_cuda {NO_FORM}", "PyTorch before 2.6", "index_add"),
        (f"roi_align_backward_kernel {NO_FORM}", "torchvision gives", "on the CPU"),
        (f"my_new_op_cuda {NO_FORM}", "no deterministic implementation", "a newer one"),
        (f"upsample_trilinear3d_backward_out_cuda {NO_FORM}", "added", "PyTorch 2.9 or newer"),
        (f"upsample_bilinear2d_backward_out_cuda {NO_FORM}", "added", "from PyTorch 2.1 on"),
        (f"max_pool3d_with_indices_backward_cuda {NO_FORM}", "added", "PyTorch 2.13 or newer"),
        (f"replication_pad1d_backward_cuda {NO_FORM}", "add", "PyTorch 2.8 or newer"),
        (f"replication_pad3d_backward_cuda {NO_FORM}", "add", "PyTorch 2.8 or newer"),
    ],
)
def test_a_warning_says_of_which_version_it_is_and_from_which_its_remedy_holds(
    text, said, remedy, tmp_path
):
    found = explain_warning(text, store=tmp_path)
    assert said in found.meaning
    assert remedy in found.remedy
    assert "newer than the lab's list" not in found.sentence()


@pytest.mark.skipif(torch.__version__.split("+")[0] != "2.15.0", reason="the page that was read")
def test_the_remedies_name_what_this_pytorch_has():
    """Where a form is said to come with a version, this one's code has it."""
    source = inspect.getsource(torch.nn.functional)
    for name in ("_upsample_linear_vec", "_replication_pad"):
        assert name in source


@pytest.mark.slow
def test_what_a_step_of_cellpose_calls_is_as_it_is_listed(tmp_path, generators_free):
    source = find_model("tiny", Store(tmp_path))
    loop, network = small_training(source, torch.device("cpu"), seed=0)
    with OperationLedger(network, norms=False) as ledger:
        loop.step()
    called = {known_operations.base_name(row.op) for row in ledger.rows}
    listed = {op for entry in known_operations.entries() for op in entry.ops}
    assert called & listed == called_by_cellpose().keys()


CARD = {"name": "NVIDIA Quadro P2000", "memory": 5_000_000_000, "driver": "470.82"}
BUILD = TorchBuild(
    version="2.15.0",
    cuda="13.0",
    architectures=("sm_75", "sm_80", "sm_90"),
    capabilities=("sm_90",),
    usable=UsableDevices(cuda=True, mps=False),
)
NO_GPU = UsableDevices(cuda=False, mps=False)


@pytest.mark.parametrize(
    ("build", "level", "expected"),
    [
        (BUILD, "info", "PyTorch 2.15.0 can use it, and Cellpose"),
        (replace(BUILD, usable=NO_GPU, cuda=None), "warning", "is a build without CUDA"),
        (
            replace(BUILD, usable=NO_GPU, capabilities=("sm_61",)),
            "warning",
            "has kernels for sm_75, sm_80 and sm_90, and the card is sm_61",
        ),
        (
            replace(BUILD, usable=NO_GPU, capabilities=()),
            "warning",
            "was built with CUDA 13.0, and finds no GPU with it: the driver is too old",
        ),
    ],
    ids=["usable", "no CUDA", "an old card", "an old driver"],
)
def test_every_gpu_is_said_to_be_used_or_why_not(build, level, expected):
    (finding,) = judged([CARD], build, is_mac=False)
    assert finding.level == level
    assert finding.what.startswith("NVIDIA Quadro P2000 (5 GB, driver 470.82)")
    assert expected in finding.what


def test_a_gpu_whose_memory_is_not_known_is_judged_too():
    (finding,) = judged([{**CARD, "memory": None}], BUILD, is_mac=False)
    assert finding.what.startswith("NVIDIA Quadro P2000 (driver 470.82): PyTorch")


def test_gpus_of_this_machine_and_of_a_mac():
    """What PyTorch says here is what Cellpose would find."""
    from cellpose.core import use_gpu

    assert look_at_torch(None).usable.cuda == use_gpu()
    (none,) = judged([], None, is_mac=False)
    assert "computes on the processor, also with gpu=True" in none.what
    (apple,) = judged([], replace(BUILD, usable=UsableDevices(False, True)), is_mac=True)
    assert "Apple's GPU: PyTorch 2.15.0 can use it" in apple.what
