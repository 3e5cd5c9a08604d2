"""What must be set before a process starts is refused afterwards, with the way to do it."""

import os
import subprocess
import sys
import tempfile

import pytest

from cellrepro.determinism import profiles
from cellrepro.determinism.profiles import (
    load,
    require_at_startup,
    startup_variables,
    variables_at_start,
)
from cellrepro.errors import BadInput

linux = pytest.mark.skipif(
    not profiles._INITIAL.exists(), reason="only Linux keeps the environment of the start"
)


# -- what to set -----------------------------------------------------------------------------


def test_names_the_variables():
    assert startup_variables(7) == {"PYTHONHASHSEED": "0", "TCNN_SEED": "7"}
    assert startup_variables(7, mode="strict", threads=2) == {
        "PYTHONHASHSEED": "0",
        "TCNN_SEED": "7",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "NUMEXPR_NUM_THREADS": "2",
    }


def test_agrees_with_the_profiles():
    own, given = startup_variables(3, threads=2), load("cpu").variables()
    assert {name: own[name] for name in own.keys() & given.keys()} == {
        name: given[name] for name in own.keys() & given.keys()
    }
    assert {*profiles._THREADS, "PYTHONHASHSEED"} <= given.keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed is -1; expected a whole number"),
        ({"seed": 1, "mode": "slow"}, "unknown mode 'slow'"),
        ({"seed": 1, "threads": 0}, "threads is 0; expected a whole number from 1, or None"),
        ({"seed": 1, "threads": True}, "threads is True"),
        ({"seed": 1, "threads": "2"}, "threads is '2'"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(BadInput, match=message):
        startup_variables(**arguments)


# -- whether it was set ----------------------------------------------------------------------

_ASK = """
import os
{late}
from cellrepro.determinism.profiles import require_at_startup, startup_variables
from cellrepro.errors import BadInput
try:
    require_at_startup(startup_variables(3, mode="warn", threads=1), what="the test")
except BadInput as error:
    print(error)
else:
    print("started right")
"""

RIGHT = startup_variables(3, mode="warn", threads=1)


def ask(*flags, late="", **changes):
    """What a process says that was started with the right variables, but for the changes."""
    variables = {**os.environ, **RIGHT, **changes}
    return subprocess.run(
        [sys.executable, *flags, "-c", _ASK.format(late=late)],
        env={name: value for name, value in variables.items() if value is not None},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_accepts_a_process_started_right():
    assert ask() == "started right"


def test_refuses_one_started_otherwise_and_says_how():
    said = ask(OMP_NUM_THREADS="4", CUBLAS_WORKSPACE_CONFIG=None)
    assert said.startswith("the test needs variables that must be set before the process starts")
    assert "OMP_NUM_THREADS is '4', expected '1'" in said
    assert "CUBLAS_WORKSPACE_CONFIG is not set, expected ':4096:8'" in said
    assert "TCNN_SEED is" not in said
    command = " ".join(f"{name}={value}" for name, value in RIGHT.items())
    assert f"start it again as `{command} python ...`" in said
    assert "`cellrepro train`" in said


@linux
def test_the_way_it_says_works():
    said = ask(OMP_NUM_THREADS="4")
    command = said.partition("start it again as `")[2].partition(" python ...`")[0]
    done = subprocess.run(
        f"{command} {sys.executable} -c '{_ASK.format(late='')}'",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "started right"


@linux
def test_refuses_what_was_set_too_late():
    said = ask(late="os.environ['TCNN_SEED'] = '3'", TCNN_SEED=None)
    assert "TCNN_SEED was not set at the start and took '3' too late" in said
    said = ask(late="os.environ['OMP_NUM_THREADS'] = '1'", OMP_NUM_THREADS="8")
    assert "OMP_NUM_THREADS was '8' at the start and took '1' too late" in said


@linux
@pytest.mark.parametrize(
    ("late", "then"),
    [("os.environ['TCNN_SEED'] = '4'", "changed to '4'"), ("del os.environ['TCNN_SEED']", "rem")],
    ids=["changed", "removed"],
)
def test_refuses_what_was_changed_since(late, then):
    """Libraries loaded later, and child processes, would read the other value."""
    assert f"TCNN_SEED was '3' at the start and has since been {then}" in ask(late=late)


def test_knows_that_python_ignored_its_seed():
    said = ask("-E")
    assert "PYTHONHASHSEED was not set at the start and took '0' too late, or was ignored" in said
    assert "TCNN_SEED was" not in said


@pytest.mark.parametrize(("flags", "expected"), [([], "7"), (["-E"], "None")])
def test_a_hash_seed_counts_only_where_python_took_it(flags, expected):
    code = "from cellrepro.determinism import profiles as s; v = s.variables_at_start()"
    done = subprocess.run(
        [sys.executable, *flags, "-c", f"{code}; print(v.get('PYTHONHASHSEED'))"],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected


@pytest.mark.parametrize("seed", ["7", "random", None])
def test_refuses_another_hash_seed(seed):
    said = ask(PYTHONHASHSEED=seed)
    is_ = "not set" if seed is None else repr(seed)
    assert f"PYTHONHASHSEED is {is_}, expected '0'" in said


def test_knows_of_a_late_hash_seed_everywhere():
    """Not only where the kernel keeps the environment: sys.flags tells."""
    late = (
        "os.environ['PYTHONHASHSEED'] = '0'\n"
        "from pathlib import Path\n"
        "from cellrepro.determinism import profiles\n"
        "profiles._INITIAL = Path('/nowhere')"
    )
    said = ask(late=late, PYTHONHASHSEED="7")
    assert "PYTHONHASHSEED was not set at the start and took '0' too late" in said


# -- where it is known from ------------------------------------------------------------------


@pytest.fixture
def kept_by_the_kernel(monkeypatch, tmp_path):
    """Pretend that the kernel keeps these bytes."""

    def keep(content):
        path = tmp_path / "environ"
        if content is not None:
            path.write_bytes(content)
        monkeypatch.setattr(profiles, "_INITIAL", path)

    return keep


def test_reads_what_the_kernel_keeps(kept_by_the_kernel):
    kept_by_the_kernel(b"A=1\0B=two=2\0C=\0D=a\nb\0E=\xff\0A=9\0")
    found = variables_at_start()
    found.pop("PYTHONHASHSEED", None)
    assert found == {"A": "1", "B": "two=2", "C": "", "D": "a\nb", "E": os.fsdecode(b"\xff")}


@pytest.mark.parametrize(
    "content",
    [None, b"", b"\0\0\0", b"dask worker [tcp://]\0\0", b"A=1\0a title of its own\0"],
    ids=["absent", "empty", "blank", "overwritten", "half overwritten"],
)
def test_falls_back_to_the_environment_as_it_is(kept_by_the_kernel, monkeypatch, content):
    kept_by_the_kernel(content)
    monkeypatch.setenv("SOMETHING", "now")
    found = variables_at_start()
    assert found["SOMETHING"] == "now"
    assert "A" not in found
    found["SOMETHING"] = "changed"
    assert os.environ["SOMETHING"] == "now"


@linux
def test_does_not_believe_the_environment_where_it_knows_better(monkeypatch):
    monkeypatch.setenv("SOMETHING_LATE", "1")
    assert "SOMETHING_LATE" not in variables_at_start()
    with pytest.raises(BadInput, match=r"this needs .*SOMETHING_LATE was not set .* too late"):
        require_at_startup({"SOMETHING_LATE": "1"})


@pytest.mark.parametrize("variables", [None, "A=1", ["A"], {"A": 1}, {"A": None}, {3: "A"}])
def test_refuses_what_are_no_variables(variables):
    with pytest.raises(BadInput, match="expected names with values, both text"):
        require_at_startup(variables)


def test_quotes_for_the_shell():
    with pytest.raises(BadInput, match=r"`A='b c' python \.\.\.`"):
        require_at_startup({"A": "b c"})
