"""The lab in an environment of its own: made from a lock, remembered, and handed commands."""

import os
import subprocess
import sys
import threading
import zipfile
from importlib import metadata
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import set_up

import cellrepro
from cellrepro import extras
from cellrepro.lab_elsewhere import carried_out, handed_to
from cellrepro.model.cellpose_generation import known_version
from cellrepro.process import lab as labs
from cellrepro.process.lab import LAB_VARIABLE, Lab, known_lab, make_lab
from cellrepro.process.lab_setup import LabMade
from cellrepro.process.locked_environment import LockedEnvironment
from cellrepro.process.own_wheel import write_own_wheel
from samebits.errors import BadInput, NotPossibleHere
from test_setup_files import repack

# A Python that does not find some modules, as where they were never installed.
_CORE = """\
import importlib.machinery, sys
absent = {"torch", "torchvision", "cellpose", "pyarrow", "pandas", "papermill", "rich"} - {*KEPT}
finder = importlib.machinery.PathFinder
find = finder.find_spec
def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in absent else find(name, path, target)
finder.find_spec = classmethod(find_spec)
from cellrepro.cli import main
main()
"""


def core(*words, kept=(), variables=None):
    """What the command line says in an environment with the core alone, and what is kept."""
    code = _CORE.replace("KEPT", repr(kept))
    environment = {**os.environ, **(variables or {})}
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@pytest.fixture
def own_config(tmp_path, monkeypatch):
    """A user's folder of settings that nothing was written to."""
    for name in ("XDG_CONFIG_HOME", "HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "config"))
    monkeypatch.delenv(LAB_VARIABLE, raising=False)


@pytest.fixture
def small_lock(tmp_path, monkeypatch):
    """A lock of one small package, which lies beside it; no registry is asked."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    lock = wheels / "needed.lock"
    lock.write_text(repack("iniconfig", wheels))
    for variable in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(variable, str(wheels))
    for variable in ("PIP_NO_INDEX", "UV_NO_INDEX", "UV_NO_CACHE"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(labs, "LOCK", lock)
    return lock


@pytest.fixture
def speaking_lab(tmp_path):
    """A lab whose command line repeats its words and ends with 7."""
    folder = tmp_path / "lab"
    program = Lab(folder, "0").command
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$CELLREPRO_LAB" "$@"\nexit 7\n')
    program.chmod(0o755)
    (folder / ".ready").write_text('{"version": "0.0.1"}')
    return Lab(folder, "0.0.1")


@pytest.mark.slow
def test_a_lab_is_made_found_and_left_alone(tmp_path, small_lock, own_config):
    """With this very code in it; made again only when lock or code have changed."""
    assert known_lab() is None
    lab = make_lab(tmp_path / "lab")
    assert known_lab() == lab
    question = "import importlib.metadata as m; print(*map(m.version, ('cellrepro', 'iniconfig')))"
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(
        [lab.python, "-c", question], capture_output=True, text=True, check=True, env=environment
    )
    versions = [cellrepro.__version__, metadata.version("iniconfig")]
    assert answer.stdout.split() == versions
    assert lab.command.is_file()
    ready = lab.folder / ".ready"
    before = ready.stat().st_mtime_ns
    make_lab(tmp_path / "lab")
    assert ready.stat().st_mtime_ns == before
    small_lock.write_text(small_lock.read_text() + "# a later version\n")
    make_lab(tmp_path / "lab")
    assert ready.stat().st_mtime_ns > before


def test_what_a_lab_is_not_made_in(tmp_path, small_lock, own_config, monkeypatch):
    """An environment of the user's stays as it is; a Python or Mac without PyTorch is refused."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "pyvenv.cfg").write_text("mine")
    with pytest.raises(BadInput, match="nothing was removed"):
        make_lab(theirs)
    assert [item.name for item in theirs.iterdir()] == ["pyvenv.cfg"]
    with pytest.raises(BadInput, match="is the environment that runs this"):
        make_lab(sys.prefix)
    with pytest.raises(BadInput, match="no Python that runs"):
        make_lab(tmp_path / "lab", python="/nowhere/python")
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho 3 9\n")
    old.chmod(0o755)
    with pytest.raises(NotPossibleHere, match=r"3\.10 to 3\.13, and .*python is 3\.9"):
        make_lab(tmp_path / "lab", python=str(old))
    monkeypatch.setattr(labs.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(labs.platform, "machine", lambda: "x86_64")
    with pytest.raises(NotPossibleHere, match="nothing for Intel Macs"):
        make_lab(tmp_path / "lab")
    assert not (tmp_path / "lab").exists()
    assert known_lab() is None


@pytest.mark.slow
def test_another_digest_makes_no_lab(tmp_path, small_lock, own_config):
    """What was begun is begun anew by the next attempt."""
    lock = small_lock.read_text()
    digest = lock.partition("sha256:")[2].split()[0]
    small_lock.write_text(lock.replace(digest, "0" * 64))
    with pytest.raises(NotPossibleHere, match=r"set-up failed at: .* begins it anew"):
        make_lab(tmp_path / "lab")
    assert known_lab() is None
    small_lock.write_text(lock)
    assert make_lab(tmp_path / "lab") == known_lab()


def test_the_wheel_is_this_package(tmp_path):
    """Notebooks, grids, the lock and the command are in it, and no bytecode."""
    wheel = write_own_wheel(tmp_path)
    first = wheel.read_bytes()
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("grids/demo.yaml", "notebooks/00_setup.ipynb", "process/lab.lock", "py.typed"):
        assert f"cellrepro/{name}" in names
    assert not [name for name in names if "__pycache__" in name or "/." in name]
    assert write_own_wheel(tmp_path).read_bytes() == first


@pytest.mark.parametrize("words", [["train", "DATA"], ["audit", "DATA"]])
def test_the_core_says_how_the_lab_is_had(words, own_config, tmp_path):
    done = core(*words, "--store", tmp_path / "outputs")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"`cellrepro {words[0]}` needs" in done.stderr
    assert 'pip install "cellrepro[lab]"' in done.stderr
    assert "`cellrepro setup FOLDER`" in done.stderr
    assert not (tmp_path / "outputs").exists()


def test_the_core_hands_over_what_it_lacks(speaking_lab, own_config):
    """Words, streams and exit code are the lab's; what needs no lab runs here."""
    variables = {LAB_VARIABLE: str(speaking_lab.folder)}
    done = core("train", "my data", "--seed", "1", variables=variables)
    assert done.stdout == f"{speaking_lab.folder} train my data --seed 1\n"
    assert done.returncode == 7
    assert f"carried out by the lab in {speaking_lab.folder}" in done.stderr
    assert "the lab has cellrepro 0.0.1" in done.stderr
    assert core("data", variables=variables).returncode == 0


def test_their_cellpose_is_not_swapped(speaking_lab, own_config):
    """Where they have one that lacks a small module only, that module is named."""
    variables = {LAB_VARIABLE: str(speaking_lab.folder)}
    done = core("segment", "DATA", kept=("torch", "torchvision", "cellpose"), variables=variables)
    assert (done.returncode, done.stdout) == (3, "")
    version = metadata.version("cellpose")
    assert "needs pyarrow" in done.stderr
    assert f"Then Cellpose {version} of this environment is used" in done.stderr
    done = core("train", "DATA", kept=("torch", "torchvision", "cellpose"), variables=variables)
    assert done.stdout == f"{speaking_lab.folder} train DATA\n"


@pytest.mark.parametrize(("version", "is_replaced"), [("2.3.2", True), ("3.1.1.2", False)])
def test_pip_is_not_advised_in_silence_where_it_would_replace_cellpose(
    version, is_replaced, monkeypatch
):
    monkeypatch.setattr(metadata, "version", lambda _: version)
    said = str(extras.needs(["pyarrow"], what="this"))
    assert said.index("cellrepro setup FOLDER") < said.index("pip install")
    assert (f"replaces Cellpose {version}" in said) is is_replaced


def test_a_cellpose_that_is_only_on_the_path_has_no_version(speaking_lab, own_config, monkeypatch):
    """As a clone beside a script: it can be imported, and no distribution says which it is."""

    def lacks_pyarrow():
        raise extras.needs(["pyarrow"], what="this")

    monkeypatch.setattr(metadata, "version", Mock(side_effect=metadata.PackageNotFoundError))
    monkeypatch.setenv(LAB_VARIABLE, str(speaking_lab.folder))
    expected = "needs pyarrow.* Then the Cellpose of this environment is used"
    with pytest.raises(extras.NeedsExtra, match=expected):
        carried_out("segment", {}, work=lacks_pyarrow)
    made = LabMade(speaking_lab.python, speaking_lab.command, "0", speaking_lab)
    assert "keep to the Cellpose of this environment" in "\n".join(made.lines())
    with pytest.raises(NotPossibleHere, match=r"pip install -e FOLDER"):
        known_version()


def test_where_no_process_takes_the_place_of_another(speaking_lab, tmp_path, monkeypatch):
    """As on Windows: this one waits, and ends with the same code."""
    monkeypatch.setenv("PYTHONHOME", "elsewhere")
    out = tmp_path / "out"
    program = speaking_lab.command
    program.write_text(f'#!/bin/sh\necho "$PYTHONHOME" "$@" > "{out}"\nexit 5\n')
    assert handed_to(speaking_lab, ["train", "a b"], replaces=False) == 5
    assert out.read_text() == " train a b\n"


def test_windows_has_programs_elsewhere():
    folder = PureWindowsPath(r"C:\Users\me\lab")
    there = LockedEnvironment(folder, folder / "lock", mark="x", again="setup", windows=True)
    assert str(there.python) == r"C:\Users\me\lab\Scripts\python.exe"
    assert str(there.program("cellrepro")) == r"C:\Users\me\lab\Scripts\cellrepro.exe"


def test_two_set_ups_wait_for_each_other(tmp_path, monkeypatch):
    """On POSIX by flock; on Windows by a byte beyond the end, asked for until it is had."""
    lock = tmp_path / "requirements.lock"
    lock.write_text("content")
    entered = []

    def second():
        with set_up.held(lock) as file:
            entered.append(file.read())

    with set_up.held(lock):
        other = threading.Thread(target=second)
        other.start()
        other.join(0.2)
        assert entered == []
    other.join()
    assert entered == [b"content"]

    asked = []

    def locking(file_number, kind, n_bytes):
        asked.append((os.lseek(file_number, 0, os.SEEK_CUR), n_bytes))
        if len(asked) == 1:
            raise OSError("deadlock avoided")

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_LOCK=1, locking=locking))
    with lock.open("rb") as file:
        set_up.hold_on_windows(file)
        assert file.read() == b"content"
    assert asked == [(1 << 30, 1)] * 2


def test_the_lab_has_the_versions_of_development():
    """One version of everything that both locks have for Python 3.11 and later."""
    root = Path(__file__).parents[2]

    def pins(path):
        lines = path.read_text(encoding="utf-8").splitlines()
        return {line.split(" ")[0] for line in lines if "==" in line and not line.startswith(" ")}

    of_lab = pins(labs.LOCK)
    of_development = pins(root / "requirements.lock")
    for name in ("torch", "torchvision", "cellpose", "jupyterlab", "pyarrow", "uv"):
        (pin,) = [line for line in of_development if line.startswith(f"{name}==")]
        assert pin in of_lab
