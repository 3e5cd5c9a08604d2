"""What comes from elsewhere sets numbers, and nothing that runs."""

import pytest

from cellrepro.process.setup import Setup
from cellrepro.profiles.profile_names import profile_names
from cellrepro.profiles.profiles import load
from cellrepro.run.plan import Request
from cellrepro.spec.sent_spec import refused_elsewhere, strange_variables
from samebits.errors import BadInput, NotPossibleHere
from stores import some_spec

COMMANDS = {
    "a browser": ("BROWSER", "/bin/sh -c 'id > PWNED' #%s"),
    "warnings": ("PYTHONWARNINGS", "all:0:antigravity.x:0:0"),
    "a library": ("LD_PRELOAD", "/tmp/evil.so"),
    "a library on macOS": ("DYLD_INSERT_LIBRARIES", "evil.dylib"),
    "modules": ("PYTHONPATH", "inputs/a.zip"),
    "a start file": ("PYTHONSTARTUP", "a.py"),
    "programs": ("PATH", "/tmp"),
    "a home": ("HOME", "/tmp"),
    "an audit file": ("MKL_VERBOSE_OUTPUT_FILE", "/tmp/x"),
    "small letters": ("ld_preload", "evil.so"),
    "a known name with a blank": ("OMP_NUM_THREADS ", "2"),
    "a million threads": ("OMP_NUM_THREADS", "1000000"),
    "no number": ("OMP_NUM_THREADS", "two"),
    "a path": ("MKL_CBWR", "/etc/passwd"),
    "a command": ("OPENBLAS_CORETYPE", "$(id)"),
    "a line": ("MKL_CBWR", "AVX2\nLD_PRELOAD=x"),
    "a text of a megabyte": ("MKL_CBWR", "A" * 2**20),
}


def sent(name, value, **fields):
    settings = {"name": "x", "device": "cpu", "environment": {name: value}}
    return some_spec(profile="x", profile_settings=settings, **fields)


@pytest.mark.parametrize(("name", "value"), COMMANDS.values(), ids=COMMANDS)
def test_other_variables_reach_no_process(monkeypatch, tmp_path, name, value):
    """They are refused by name where a process is started; a reader's own profile may set them."""
    monkeypatch.delenv(name, raising=False)
    spec = sent(name, value)
    with pytest.raises(BadInput, match=name.strip()) as refusal:
        Setup.of(spec)
    assert len(str(refusal.value)) < 1000
    with pytest.raises(BadInput, match=name.strip()):
        _ = Request(spec, tmp_path, None).setup
    in_the_name = some_spec(profile=f"cpu+{name}={value}")
    assert bool(strange_variables(in_the_name)) is name.isidentifier()
    assert [*refused_elsewhere(spec)]
    assert Setup.of(spec, asked_here=True).profile.environment == {name: value}


def test_what_the_reader_has_set_is_his(monkeypatch):
    monkeypatch.setenv("MY_LIBRARYS_SWITCH", "on")
    assert strange_variables(sent("MY_LIBRARYS_SWITCH", "on")) == []
    assert strange_variables(sent("MY_LIBRARYS_SWITCH", "off")) == ["MY_LIBRARYS_SWITCH=off"]


def test_profiles_of_the_package_come_through():
    """All that the lab itself sets is of numbers."""
    for name in profile_names():
        profile = load(name)
        environment = {
            **profile.variables(),
            "TCNN_SEED": "7",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        }
        settings = {**profile.model_dump(mode="json"), "environment": environment}
        assert strange_variables(some_spec(profile=name, profile_settings=settings)) == [], name


@pytest.mark.parametrize(
    ("version", "refusal"),
    [
        ("4.0.9\nevil-package", BadInput),
        ("4.0 @ file:///evil", BadInput),
        ("../../evil", BadInput),
        ("99.0.1", NotPossibleHere),
    ],
)
def test_a_spec_installs_nothing(monkeypatch, tmp_path, no_child, version, refusal):
    """Rules for new specs are not asked of stored ones, so the version may be any text."""
    monkeypatch.setenv("CELLREPRO_CACHE", str(tmp_path))
    spec = some_spec(task="segment").model_copy(update={"cellpose": version})
    with pytest.raises(refusal, match="Cellpose"):
        Setup.of(spec)
    assert not any(tmp_path.iterdir())
