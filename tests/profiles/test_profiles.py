"""Profiles: read, refused, handed to a child process, checked inside it."""

import os
import subprocess
import sys

import pytest
import torch

from cellrepro.profiles import process_start
from cellrepro.profiles.automatic_profile import UsableDevices, automatic_profile
from cellrepro.profiles.numeric_variables import NUMERIC_VARIABLES
from cellrepro.profiles.process_start import startup_variables, variables_at_start
from cellrepro.profiles.profile_names import profile_names
from cellrepro.profiles.profiles import Profile, load
from samebits.errors import BadInput, NotPossibleHere


def test_those_that_come_with_it_and_a_users_own_file(tmp_path):
    """Numbers depend on the thread count: a CPU profile that left it open would fix nothing."""
    for name in profile_names():
        profile = load(name)
        assert (profile.name, bool(profile.description)) == (name, True)
        assert profile.device != "cpu" or profile.threads or name == "cellpose-default"
    path = tmp_path / "lab.yaml"
    path.write_text("threads: 3\ntf32: on\nenvironment: {MY_LIBRARYS_SWITCH: on}\n")
    profile = load(path)
    assert (profile.name, profile.device, profile.tf32) == ("lab", "cpu", True)
    child = profile.child_environment()
    assert (child["MY_LIBRARYS_SWITCH"], child["OMP_NUM_THREADS"]) == ("on", "3")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"thread: 2", r"thread is 2: there is no such field; do you mean threads\?"),
        (b"device: gpu", "device is 'gpu'; expected cpu, mps, cuda, or one GPU by its number"),
        (b"environment: {ONEDNN_MAX_CPU_ISA: AVX512}", "oneDNN takes for no limit at all"),
        (b"\xff\xfe\x00binary", "decode"),
    ],
)
def test_bad_file(tmp_path, content, expected):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=rf"mine.yaml is not a profile: .*{expected}"):
        load(path)
    with pytest.raises(
        BadInput, match="unknown profile 'mine'; expected one of cellpose-default, "
    ):
        load("mine")


@pytest.mark.parametrize(
    ("devices", "expected", "said"),
    [
        (UsableDevices(cuda=False, mps=False), "cellpose-default", "PyTorch finds no GPU"),
        (UsableDevices(cuda=True, mps=False), "cellpose-default-cuda", "the first GPU"),
        (UsableDevices(cuda=False, mps=True), "cellpose-default-mps", "Apple's GPU"),
    ],
)
def test_auto_is_what_cellpose_would_take(devices, expected, said, monkeypatch, capsys):
    """It is said once, and the profile has its own name: keys stay what they are."""
    monkeypatch.setattr(UsableDevices, "here", lambda: devices)
    automatic_profile.cache_clear()
    try:
        assert load("auto") == load(expected)
        assert load("auto+MKL_CBWR=COMPATIBLE").name == f"{expected}+MKL_CBWR=COMPATIBLE"
    finally:
        automatic_profile.cache_clear()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"note: profile auto is {expected} here: ")
    assert said in line


def test_auto_agrees_with_cellpose_here():
    from cellpose.core import assign_device

    device, _ = assign_device(gpu=True)
    assert load(UsableDevices.here().profile).kind == device.type


def test_a_child_gets_the_profile_and_not_the_callers_numbers(monkeypatch):
    for name in NUMERIC_VARIABLES:
        monkeypatch.setenv(name, "the caller's")
    monkeypatch.setenv("KEPT", "yes")
    profile = Profile(name="mine", threads=3, environment={"MKL_CBWR": "COMPATIBLE"})
    child = profile.child_environment(startup_variables(7, mode="strict"))
    assert "the caller's" not in child.values()
    expected = {
        "KEPT": "yes",
        "PATH": os.environ["PATH"],
        "OMP_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",
        "MKL_CBWR": "COMPATIBLE",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONHASHSEED": "0",
        "TCNN_SEED": "7",
    }
    assert {name: child[name] for name in expected} == expected
    assert "OMP_NUM_THREADS" not in Profile(name="open").child_environment()
    (text,) = profile.replaced({})
    assert "OMP_DYNAMIC=the caller's (unset instead)" in text


def test_what_specs_of_before_hold():
    """Every stored run's key is a digest of these settings: a field added later leaves no trace."""

    first = {"name": "cpu", "device": "cpu", "threads": 2, "dtype": "float32", "tf32": False}
    first |= {"environment": {}, "cpu_capability": None}
    assert load("cpu").model_dump(mode="json", exclude={"description"}) == first
    newer = Profile(name="x", onednn=False)
    assert newer.model_dump()["onednn"] is False
    assert Profile(**newer.model_dump()) == newer


@pytest.fixture
def started_as(monkeypatch, one_thread):
    """Pretend that this process was started with a profile's variables."""
    monkeypatch.setattr(process_start, "variables_at_start", lambda: dict(os.environ))

    def pretend(profile):
        for name, value in profile.variables().items():
            monkeypatch.setenv(name, value)
        return profile

    return pretend


def test_enters(started_as, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    device = started_as(Profile(name="three", threads=3, onednn=False)).enter()
    assert (device, torch.get_num_threads()) == (torch.device("cpu"), 3)
    assert not torch.backends.mkldnn.enabled


def test_refuses_a_process_started_otherwise_and_another_machine(started_as, monkeypatch):
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(NotPossibleHere, match=rf"'{missing}'.*choose .*cpu, cpu-1thread"):
        started_as(load(missing)).enter()
    with pytest.raises(NotPossibleHere, match=r"'old' needs the instruction set Z80, but PyTorch"):
        started_as(Profile(name="old", cpu_capability="Z80")).enter()
    profile = started_as(load("cpu"))
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with pytest.raises(BadInput, match=r"OMP_NUM_THREADS was 5 at .*, expected 2"):
        profile.enter()
    assert torch.get_num_threads() == 1


def test_a_gpu_by_its_number(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Profile(name="x", device="cuda:1").check_device() == torch.device("cuda:1")
    with pytest.raises(NotPossibleHere, match="'cuda:2', and PyTorch finds 2 GPUs on this machi"):
        Profile(name="x", device="cuda:2").check_device()


ASK = """
import os
from cellrepro.profiles.process_start import require_at_startup, startup_variables
from samebits.errors import BadInput
os.environ.update({late!r})
try:
    require_at_startup({{**startup_variables(3, mode="warn"), "A": "b c"}}, what="the test")
except BadInput as error:
    print(error)
else:
    print("started right")
"""


def ask(late=(), **changes):
    """What a process says that was started with the right variables, but for the changes."""
    started = {**os.environ, **startup_variables(3, mode="warn"), "A": "b c", **changes}
    command = [sys.executable, "-c", ASK.format(late=dict(late))]
    return subprocess.check_output(command, env=started, text=True).strip()


def test_says_how_to_start_a_process_right():
    assert ask() == "started right"
    command = "PYTHONHASHSEED=0 TCNN_SEED=3 CUBLAS_WORKSPACE_CONFIG=:4096:8 A='b c'"
    assert f"start it again as `{command} python ...`" in ask(TCNN_SEED="4")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the environment")
@pytest.mark.parametrize(("then", "now"), [("8", "3"), ("3", "8")], ids=["too late", "since"])
def test_refuses_what_was_set_too_late_or_changed_since(then, now):
    """Libraries loaded later, and child processes, would read the other value."""
    said = ask(late={"TCNN_SEED": now}, TCNN_SEED=then)
    assert f"TCNN_SEED was {then} at the start and is {now} now, expected 3" in said


def test_reads_what_the_kernel_keeps(tmp_path, monkeypatch):
    path = tmp_path / "environ"
    path.write_bytes(b"A=1\0B=two=2\0C=\0D=a\nb\0E=\xff\0")
    expected = {"A": "1", "B": "two=2", "C": "", "D": "a\nb", "E": os.fsdecode(b"\xff")}
    assert variables_at_start(path) == expected
    path.write_bytes(b"A=1\0a title of its own\0")
    for unreadable in (path, tmp_path / "nowhere"):
        assert variables_at_start(unreadable) == dict(os.environ)


@pytest.mark.parametrize("text", ["- cpu\n- cuda\n", "environment: [A]\n", "cpu\n"])
def test_a_file_without_fields_is_refused_also_with_a_variable(tmp_path, text):
    path = tmp_path / "list.yaml"
    path.write_text(text)
    for name in (f"{path}", f"{path}+A=B"):
        with pytest.raises(BadInput, match=r"is not a profile: .*; expected the fields desc"):
            load(name)
