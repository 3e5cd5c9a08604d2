"""Profiles: read, refused, handed to a child process, checked inside it."""

import os

import pytest

from cellrepro.control.profiles import NUMERIC_VARIABLES, Profile, load, names
from cellrepro.errors import BadInput, NotPossibleHere


def test_the_ones_that_come_with_it():
    expected = {"cpu", "cpu-1thread", "cpu-avx2", "cpu-baseline", "cuda", "mps"}
    assert expected <= set(names())
    assert names() == sorted(names())


@pytest.mark.parametrize("name", names())
def test_each_of_them_loads(name):
    profile = load(name)
    assert profile.name == name
    assert profile.description
    # Numbers depend on the thread count, so a CPU profile that left it open would fix nothing.
    assert profile.device != "cpu" or profile.threads


def test_a_users_own_file(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text("threads: 3\nenvironment: {MKL_CBWR: COMPATIBLE}\n")
    profile = load(path)
    assert (profile.name, profile.device, profile.threads) == ("lab", "cpu", 3)
    assert profile.variables()["MKL_CBWR"] == "COMPATIBLE"
    assert profile.variables()["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("name", ["CPU", "gpu", "", "cpu.yml.bak", "no-such"])
def test_unknown_name(name):
    with pytest.raises(BadInput, match=r"unknown profile .*; expected one of cpu, cpu-1thread"):
        load(name)


def test_missing_file(tmp_path):
    with pytest.raises(BadInput, match=r"no profile file .*absent.yaml"):
        load(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"threads: [", "while parsing"),
        (b"- cpu\n", "mapping"),
        (b"just words", "mapping"),
        (b"thread: 2", "thread: Extra inputs"),
        (b"threads: 0", "threads: Input should be greater than or equal to 1"),
        (b"threads: many", "threads: Input should be a valid integer"),
        (b"device: gpu", "device: Input should be 'cpu', 'cuda' or 'mps'"),
        (b"environment: {OMP_NUM_THREADS: 2}", r"environment.OMP_NUM_THREADS: .*valid string"),
        (b"name: other", "name"),
        (b"\xff\xfe\x00binary", "text"),
    ],
    ids=[
        "not YAML",
        "list",
        "words",
        "unknown field",
        "no thread",
        "threads in words",
        "unknown device",
        "variable that is a number",
        "a name of its own",
        "binary",
    ],
)
def test_bad_file(tmp_path, content, expected):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=rf"(?s)mine.yaml is not a profile: .*{expected}"):
        load(path)


def test_a_child_gets_the_profile_and_not_the_callers_numbers(monkeypatch):
    for name in NUMERIC_VARIABLES:
        monkeypatch.setenv(name, "the caller's")
    monkeypatch.setenv("KEPT", "yes")
    profile = Profile(name="mine", threads=3, environment={"MKL_CBWR": "COMPATIBLE"})
    child = profile.child_environment({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    assert "the caller's" not in child.values()
    assert child["KEPT"] == "yes"
    assert child["PATH"] == os.environ["PATH"]
    assert child["OMP_NUM_THREADS"] == child["MKL_NUM_THREADS"] == "3"
    assert child["MKL_CBWR"] == "COMPATIBLE"
    assert child["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert child["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize(
    "name",
    [
        "OMP_THREAD_LIMIT",
        "OMP_DYNAMIC",
        "MKL_DYNAMIC",
        "MKL_DOMAIN_NUM_THREADS",
        "ONEDNN_DEFAULT_FPMATH_MODE",
        "DNNL_DEFAULT_FPMATH_MODE",
        "OPENBLAS_CORETYPE",
    ],
)
def test_nor_the_less_known_ones(monkeypatch, name):
    """Each of them changes how many threads share a sum, or in which precision it is made."""
    monkeypatch.setenv(name, "1")
    assert name not in load("cpu").child_environment()


def test_a_profile_without_threads_leaves_them_to_the_machine(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OMP_NUM_THREADS" not in Profile(name="open").child_environment()


# -- inside the process --------------------------------------------------------------------


@pytest.fixture
def started_as(monkeypatch, one_thread):
    """Pretend that this process was started with a profile's variables."""

    def pretend(profile):
        for name, value in profile.variables().items():
            monkeypatch.setenv(name, value)
        return profile

    return pretend


def test_enters(started_as):
    import torch

    device = started_as(Profile(name="three", threads=3)).enter()
    assert device == torch.device("cpu")
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("value", [None, "5"], ids=["absent", "another"])
def test_refuses_a_process_started_otherwise(started_as, monkeypatch, value):
    import torch

    profile = started_as(load("cpu"))
    if value is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    with pytest.raises(BadInput, match=rf"before the process starts.*OMP_NUM_THREADS is {value!r}"):
        profile.enter()
    assert torch.get_num_threads() == 1


def test_refuses_a_missing_device(started_as):
    import torch

    missing = next(
        name
        for name, there in [
            ("cuda", torch.cuda.is_available()),
            ("mps", torch.backends.mps.is_available()),
        ]
        if not there
    )
    with pytest.raises(NotPossibleHere, match=rf"'{missing}'.*choose .* cpu, cpu-1thread"):
        started_as(load(missing)).enter()


def test_refuses_another_instruction_set(started_as):
    profile = started_as(Profile(name="old", cpu_capability="Z80"))
    with pytest.raises(NotPossibleHere, match=r"'old' needs the instruction set Z80, but PyTorch"):
        profile.enter()
