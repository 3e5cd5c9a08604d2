"""What a fresh clone is set up from says one thing, and what is built from it is whole."""

import hashlib
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import cellrepro
from cellrepro.process.locked_environment import FolderTaken, LockedEnvironment

PROJECT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text_of(name):
    return (PROJECT / name).read_text(encoding="utf-8")


def test_every_requirement_is_locked_with_hashes():
    blocks = re.split(r"^(?=[a-zA-Z0-9_.-]+==)", text_of("requirements.lock"), flags=re.MULTILINE)
    pinned = {block.partition("==")[0].lower() for block in blocks[1:]}
    extras = SETTINGS["optional-dependencies"]
    asked = SETTINGS["dependencies"] + extras["dev"] + extras["docs"]
    own = [re.fullmatch(r"cellrepro\[(\w+)\]", line) for line in asked]
    of_own = [line for match in own if match for line in extras[match[1]]]
    wanted = [line for line in [*asked, *of_own] if not line.startswith("cellrepro[")]
    names = [re.split(r"[<>=!~\[; ]", line)[0].lower() for line in wanted]
    assert {re.sub(r"[._]", "-", name) for name in names} <= pinned
    assert [block for block in blocks[1:] if "--hash=sha256:" not in block] == []


def test_no_address_of_a_registry():
    lab = "src/cellrepro/process/lab.lock"
    for name in ("requirements.lock", lab, "environment.yml", "Dockerfile", "Makefile", ".ci/run"):
        assert not re.search(r"https?:|index-url|find-links", text_of(name)), name


def test_other_files_say_the_same():
    """Conda takes the same pins, CI and README name real targets, and the version is one."""
    *_, pip = yaml.safe_load(text_of("environment.yml"))["dependencies"]
    assert pip["pip"] == ["--require-hashes", "-r requirements.lock"]
    assert "make test" in text_of(".ci/run")
    for target in re.findall(r"^make ([a-z]+)", text_of("README.md"), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", text_of("Makefile"), flags=re.MULTILINE), target
    cited = yaml.safe_load(text_of("CITATION.cff"))["version"]
    assert SETTINGS["version"] == cellrepro.__version__ == cited


def run(command, *, code=0, **options):
    """What it says, once it ended as expected."""
    options = {"capture_output": True, "text": True, "timeout": 120} | options
    done = subprocess.run(list(map(str, command)), **options)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    return said


@pytest.mark.slow
def test_an_installed_package_brings_notebooks_and_grids(tmp_path):
    """A wheel built from the source archive, without a checkout; copies are never overwritten."""
    project, target = tmp_path / "project", tmp_path / "site"
    clean = shutil.ignore_patterns("*.egg-info", "__pycache__", ".ipynb_checkpoints")
    for name in ("src", "notebooks", "grids"):
        shutil.copytree(PROJECT / name, project / name, ignore=clean)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, project)
    build = "import setuptools.build_meta as b; b.build_sdist('.')"
    run([sys.executable, "-c", build], cwd=project)
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", target]
    archive = next(project.glob("*.tar.gz"))
    run([sys.executable, "-m", "pip", "install", *options, archive])

    def lab(*arguments, code=0):
        start = (
            f"import cellrepro; assert cellrepro.__file__.startswith({str(target)!r}); "
            "from cellrepro.cli import main; main()"
        )
        command = [sys.executable, "-c", start, *arguments]
        return run(command, code=code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(target)})

    brought = set(lab("notebooks", "lab").splitlines())
    expected = [*PROJECT.glob("notebooks/[!.]*.ipynb"), *PROJECT.glob("grids/*.yaml")]
    assert len(expected) >= 11
    for path in expected:
        copy = Path("lab") / path.relative_to(PROJECT)
        assert str(copy) in brought
        assert (tmp_path / copy).read_bytes() == path.read_bytes()
    lab("data", "synthetic", "--into", "data")
    assert lab("grid", "grids/demo.yaml", "--dry-run").count("  planned  ") == 6
    lab("notebooks", "lab")  # again: they are all there
    changed = tmp_path / "lab" / "notebooks" / "07_explorer.ipynb"
    changed.write_text("mine")
    said = lab("notebooks", "lab", code=2)
    assert "lab holds notebooks/07_explorer.ipynb, which is yours or has been changed" in said
    assert changed.read_text() == "mine"


@pytest.mark.slow
def test_the_lowest_versions_that_are_declared_do():
    """On the oldest Python that is here."""
    run([sys.executable, PROJECT / "scripts" / "check_wheel.py", "--lowest"], timeout=600)


def repack(name, folder):
    """The wheel of an installed distribution, made of its files; returns its line of a lock."""
    found = importlib.metadata.distribution(name)
    path = folder / f"{found.name}-{found.version}-py3-none-any.whl"
    not_packed = ("RECORD", "INSTALLER", "REQUESTED")
    files = [f for f in found.files if f.suffix != ".pyc" and f.name not in not_packed]
    record = "".join(f"{file.as_posix()},,\n" for file in files)
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            archive.write(file.locate(), file.as_posix())
        archive.writestr(f"{found.name}-{found.version}.dist-info/RECORD", record)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}=={found.version} \\\n    --hash=sha256:{digest}\n    # via the test\n"


@pytest.fixture
def clone(tmp_path):
    """A project with the real Makefile and set-up; no registry is asked."""
    project, wheels = tmp_path / "clone", tmp_path / "wheels"
    for folder in (wheels, project / "scripts", project / "src" / "cellrepro"):
        folder.mkdir(parents=True)
    making = "src/cellrepro/process/locked_environment.py"
    (project / making).parent.mkdir()
    for name in ("Makefile", "scripts/set_up.py", making):
        shutil.copy(PROJECT / name, project / name)
    (project / "src" / "cellrepro" / "__init__.py").write_text("import iniconfig\n")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "cellrepro"\nversion = "0"\n'
    )
    lines = [repack(name, wheels) for name in ("iniconfig", "setuptools")]
    (project / "requirements.lock").write_text("".join(lines))
    foreign = ("PIP_", "UV_", "MAKE", "MFLAGS", "PYTHONPATH")
    environment = {
        **{name: v for name, v in os.environ.items() if not name.startswith(foreign)},
        **dict.fromkeys(("UV_NO_INDEX", "UV_NO_CACHE", "UV_NO_CONFIG"), "1"),
        "UV_FIND_LINKS": str(wheels),
    }
    return SimpleNamespace(
        path=project,
        venv=project / ".venv",
        options={"cwd": project, "env": environment},
        make=["make", f"PYTHON={sys.executable}", "setup"],
    )


@pytest.mark.slow
def test_an_interrupted_set_up_is_begun_anew(clone):
    """Killed in the middle."""
    making = subprocess.Popen(clone.make, start_new_session=True, **clone.options)
    while making.poll() is None and not [*clone.venv.glob("lib/python*/site-packages/iniconfig*")]:
        time.sleep(0.01)
    os.killpg(making.pid, signal.SIGKILL)
    making.wait()
    said = run(clone.make, **clone.options)
    assert ".venv was not finished: removing it and starting anew" in said
    question = "import cellrepro; print(cellrepro.iniconfig.__file__, cellrepro.__file__)"
    answer = run([clone.venv / "bin" / "python", "-c", question], **clone.options).split()
    assert answer[0].startswith(str(clone.venv))
    assert answer[1].startswith(str(clone.path / "src"))
    assert "starting anew" not in run(clone.make, **clone.options)  # finished, it is left alone


@pytest.mark.slow
def test_another_digest_is_refused(clone):
    lock = clone.path / "requirements.lock"
    lock.write_text(re.sub("sha256:.{8}", "sha256:00000000", lock.read_text(), count=1))
    assert "Hash mismatch for `iniconfig" in run(clone.make, code=2, **clone.options)


def test_set_up_removes_nothing_of_the_users(clone, tmp_path):
    """A .venv may lead to an environment that other projects use."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "pyvenv.cfg").write_text("mine")
    clone.venv.symlink_to(tmp_path / "shared")
    said = run(clone.make, code=2, **clone.options)
    assert ".venv is no virtual environment that this set-up has begun, but a link to" in said
    assert (tmp_path / "shared" / "pyvenv.cfg").read_text() == "mine"


def test_setting_up_removes_no_environment_of_a_users(tmp_path):
    """One that an interrupted set-up left is made anew; a finished one of before is known."""
    (tmp_path / ".venv").mkdir()
    for name in ("pyvenv.cfg", "notes.txt"):
        (tmp_path / ".venv" / name).write_text("mine")
    lock = tmp_path / "requirements.lock"
    lock.write_text("")
    environment = LockedEnvironment(
        tmp_path / ".venv", lock, mark=".cellrepro-setup", again="make setup"
    )
    with pytest.raises(FolderTaken, match="Move it away"):
        environment.make(sys.executable)
    assert (tmp_path / ".venv" / "notes.txt").read_text() == "mine"
    environment.ready.touch()
    environment.begin_again()
    environment.make(sys.executable)
    assert not (tmp_path / ".venv" / "notes.txt").exists()
    assert environment.python.exists()
