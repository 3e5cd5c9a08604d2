"""Profiles: read, refused, handed to a child process, checked inside it."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellrepro.determinism import profiles
from cellrepro.determinism.modes import MODES
from cellrepro.determinism.profiles import NUMERIC_VARIABLES, Profile, load, names
from cellrepro.errors import BadInput, NotPossibleHere


def test_the_ones_that_come_with_it():
    expected = {"cpu", "cpu-1thread", "cpu-avx2", "cpu-baseline", "cpu-portable", "cuda", "mps"}
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


def test_the_portable_one_limits_every_library_and_the_threads():
    portable = load("cpu-portable")
    assert {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR"} <= set(portable.variables())
    assert portable.variables()["MKL_CBWR"] == "COMPATIBLE"
    assert portable.variables()["OMP_NUM_THREADS"] == "2"
    assert portable.onednn


def test_a_users_own_variable_is_handed_on(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text('environment: {MY_LIBRARYS_SWITCH: "on"}\n')
    assert load(path).child_environment()["MY_LIBRARYS_SWITCH"] == "on"
    assert load(path).warnings() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("yes", True), ("on", True), ("True", True), ("false", False), ("off", False)],
)
def test_yes_and_no_as_yaml_spells_them(tmp_path, text, expected):
    path = tmp_path / "mine.yaml"
    path.write_text(f"tf32: {text}\nonednn: {text}\n")
    assert (load(path).tf32, load(path).onednn) == (expected, expected)


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
        (b"device: gpu", "device: .*expected cpu, mps, cuda, cuda:N or a GPU's UUID.*, not 'gpu'"),
        (
            b"environment: {OMP_NUM_THREADS: 2}",
            r'environment.OMP_NUM_THREADS: .*valid string, not 2 \(in quotes: OMP_NUM_THREADS: "2"',
        ),
        (
            b"environment: {NVIDIA_TF32_OVERRIDE: false}",
            r'valid string, not False \(in quotes: NVIDIA_TF32_OVERRIDE: "false"',
        ),
        (b"environment: OMP_NUM_THREADS=2", r"environment: .*dictionary, not 'OMP_NUM_THREADS=2'"),
        (b"tf32: maybe", r"tf32: Input should be a valid boolean.*, not 'maybe'"),
        (b"tf32: 2", r"tf32: Input should be a valid boolean.*, not 2"),
        (b"onednn:", r"onednn: Input should be a valid boolean, not None"),
        (b"TF32: true", "TF32: Extra inputs"),
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
        "variable that is no text",
        "variables in words",
        "neither yes nor no",
        "a number for yes",
        "no word at all",
        "capitals",
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


@pytest.mark.parametrize("mode", MODES)
def test_a_profiles_cublas_workspace_holds_in_every_mode(mode, monkeypatch):
    """Both values that cuBLAS repeats itself with are the user's to choose."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2")
    smaller = Profile(name="small", environment={"CUBLAS_WORKSPACE_CONFIG": ":16:8"})
    wanted = profiles.startup_variables(0, mode=mode)
    assert smaller.child_environment(wanted)["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    (text,) = smaller.replaced(wanted)
    assert "CUBLAS_WORKSPACE_CONFIG=:4096:2 (:16:8 instead)" in text
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    assert smaller.replaced(wanted) == []


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


# -- as part of a spec ---------------------------------------------------------------------


def as_in_a_spec(profile):
    return profile.model_dump(mode="json", exclude={"description"})


def test_what_specs_of_before_hold():
    """Every stored run's key is a digest of these settings: a field added later leaves no trace."""
    assert as_in_a_spec(load("cpu")) == {
        "name": "cpu",
        "device": "cpu",
        "threads": 2,
        "dtype": "float32",
        "tf32": False,
        "environment": {},
        "cpu_capability": None,
    }
    assert as_in_a_spec(Profile(name="x", onednn=False))["onednn"] is False
    assert as_in_a_spec(Profile(name="x", onednn=True)) == as_in_a_spec(Profile(name="x"))


_variables = st.dictionaries(
    st.sampled_from(NUMERIC_VARIABLES), st.text("aA1:", max_size=4), max_size=3
)


@settings(deadline=None)  # other processes may be busy
@given(
    st.builds(
        Profile,
        name=st.text("ab-", min_size=1, max_size=4),
        description=st.just(""),
        device=st.sampled_from(["cpu", "cuda", "mps"]),
        threads=st.none() | st.integers(1, 1024),
        dtype=st.sampled_from(["float32", "bfloat16"]),
        tf32=st.booleans(),
        onednn=st.booleans(),
        environment=_variables,
        cpu_capability=st.none() | st.sampled_from(["DEFAULT", "AVX2"]),
    )
)
def test_a_spec_gives_the_profile_back(profile):
    assert Profile(**as_in_a_spec(profile)) == profile
    assert Profile.model_validate_json(profile.model_dump_json()) == profile


# -- what it would not get -----------------------------------------------------------------


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("vendor", ["GenuineIntel", "AuthenticAMD", ""])
def test_the_ones_that_come_with_it_promise_nothing_in_vain(monkeypatch, name, vendor):
    monkeypatch.setattr(profiles, "_processor_vendor", lambda: vendor)
    assert load(name).warnings() == []


@pytest.mark.parametrize(
    ("value", "vendor", "expected"),
    [
        ("AVX2", "AuthenticAMD", 1),
        ("avx512,strict", "AuthenticAMD", 1),
        ("BRANCH=AVX2", "", 1),
        ("AVX2", "GenuineIntel", 0),
        ("COMPATIBLE", "AuthenticAMD", 0),
        ("branch=compatible", "AuthenticAMD", 0),
        ("AUTO", "AuthenticAMD", 0),
    ],
)
def test_mkl_limits_nothing_on_other_processors_than_intels(monkeypatch, value, vendor, expected):
    monkeypatch.setattr(profiles, "_processor_vendor", lambda: vendor)
    found = Profile(name="mine", environment={"MKL_CBWR": value}).warnings()
    assert len(found) == expected
    for text in found:
        assert value in text
        assert "AUTO" in text
        assert (vendor or "unknown make") in text
        assert "COMPATIBLE" in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(value, 0) for value in ("SSE41", "avx2", "AVX512_CORE_AMX", "AVX10_1_512", "default")],
        *[(value, 1) for value in ("AVX22", "SSE4.1", "AVX-512", "", "AVX512")],
    ],
)
def test_a_limit_that_onednn_does_not_know(value, expected):
    found = Profile(name="mine", environment={"ONEDNN_MAX_CPU_ISA": value}).warnings()
    assert [repr(value) in text and "takes for no limit" in text for text in found] == (
        [True] * expected
    )


def test_a_limit_for_what_is_turned_off():
    found = Profile(name="x", onednn=False, environment={"ONEDNN_MAX_CPU_ISA": "AVX2"}).warnings()
    assert found == ["ONEDNN_MAX_CPU_ISA limits nothing, since the profile turns oneDNN off"]


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t: 6\n", "GenuineIntel"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", ""),
        (None, ""),
    ],
    ids=["x86-64", "Arm", "not Linux"],
)
def test_the_processors_maker(monkeypatch, tmp_path, listing, expected):
    path = tmp_path / "cpuinfo"
    if listing is not None:
        path.write_text(listing)
    monkeypatch.setattr(profiles, "_CPUINFO", path)
    assert profiles._processor_vendor() == expected


# -- inside the process --------------------------------------------------------------------


@pytest.fixture
def onednn_kept():
    """Whether PyTorch may use oneDNN is put back."""
    import torch

    before = torch.backends.mkldnn.enabled
    yield
    torch.backends.mkldnn.enabled = before


@pytest.fixture
def started_as(monkeypatch, one_thread, onednn_kept):
    """Pretend that this process was started with a profile's variables."""
    monkeypatch.setattr(profiles, "variables_at_start", lambda: dict(os.environ))

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


@pytest.mark.parametrize(
    ("value", "told"), [(None, "not set"), ("5", "'5'")], ids=["absent", "another"]
)
def test_refuses_a_process_started_otherwise(started_as, monkeypatch, value, told):
    import torch

    profile = started_as(load("cpu"))
    if value is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    with pytest.raises(BadInput, match=rf"before the process starts.*OMP_NUM_THREADS is {told}"):
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


@pytest.mark.parametrize("wanted", [False, True])
def test_turns_onednn_on_or_off(started_as, wanted):
    import torch

    torch.backends.mkldnn.enabled = not wanted
    started_as(Profile(name="mine", onednn=wanted)).enter()
    assert torch.backends.mkldnn.enabled is wanted


def test_onednn_that_cannot_be_turned_off(started_as, monkeypatch):
    import torch

    stuck = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(type(torch.backends.mkldnn), "enabled", stuck)
    profile = started_as(Profile(name="mine", onednn=False))
    with pytest.raises(NotPossibleHere, match=r"'mine' says onednn: false, .* reads back True"):
        profile.enter()
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["cpu-portable", "cpu-noonednn"])
def test_a_process_of_a_profile_enters_it(name):
    profile = load(name)
    script = (
        "from cellrepro.determinism.profiles import cpu_capability, load; import sys, torch\n"
        "load(sys.argv[1]).enter()\n"
        "print(cpu_capability(), torch.backends.mkldnn.enabled)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, name],
        env=profile.child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    capability, onednn = done.stdout.split()
    assert capability == (profile.cpu_capability or capability)
    assert onednn == str(profile.onednn)
