"""What a fresh clone is set up from says one thing, and what is built from it is whole."""

import functools
import hashlib
import http.server
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest
import yaml

PROJECT = Path(__file__).parents[1]
LOCK = (PROJECT / "requirements.lock").read_text(encoding="utf-8")
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _names(requirements):
    return {re.split(r"[<>=!~\[; ]", line, maxsplit=1)[0].lower() for line in requirements}


def test_every_requirement_is_locked_with_hashes():
    pinned = re.findall(r"^([a-z0-9_.-]+)==", LOCK, flags=re.MULTILINE | re.IGNORECASE)
    wanted = _names(SETTINGS["dependencies"]) | _names(SETTINGS["optional-dependencies"]["dev"])
    assert wanted <= {name.lower() for name in pinned}
    blocks = re.split(r"^(?=[a-zA-Z0-9_.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert blocks
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_no_address_of_a_registry():
    for name in ("requirements.lock", "environment.yml", "Dockerfile", "Makefile", ".ci/run"):
        text = (PROJECT / name).read_text(encoding="utf-8")
        assert not re.search(r"https?:|index-url|find-links", text), name


def test_conda_takes_the_same_pins():
    environment = yaml.safe_load((PROJECT / "environment.yml").read_text(encoding="utf-8"))
    *_, pip = environment["dependencies"]
    assert pip["pip"] == ["--require-hashes", "-r requirements.lock"]


def test_continuous_integration_runs_what_the_readme_names():
    assert "make test" in (PROJECT / ".ci" / "run").read_text(encoding="utf-8")
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make ([a-z]+)", readme, flags=re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_version_is_said_once_for_all():
    import cellrepro

    assert SETTINGS["version"] == cellrepro.__version__
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == cellrepro.__version__


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package as `pip install` gives it, out of the source archive, and nothing beside it."""
    place = tmp_path_factory.mktemp("install")
    project, target = place / "project", place / "site" / "packages"
    project.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, project)
    for name in ("src", "notebooks", "grids"):
        clean = shutil.ignore_patterns("*.egg-info", "__pycache__", ".ipynb_checkpoints")
        shutil.copytree(PROJECT / name, project / name, ignore=clean)
    (project / "notebooks" / "._00_setup.ipynb").write_text("left by a desktop")
    build = "import setuptools.build_meta as b; print(b.build_sdist('dist'))"
    archive = run([sys.executable, "-c", build], cwd=project).splitlines()[-1]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    run([*pip, "wheel", *offline, "-w", "wheels", f"dist/{archive}"], cwd=project)
    (wheel,) = (project / "wheels").glob("*.whl")
    run([*pip, "install", "--no-deps", "--no-index", "--target", target, wheel], cwd=place)
    return target


def run(command, *, code=0, **options):
    """Its standard output, once it ended as expected."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def lab(installed, tmp_path):
    """Run the installed ``cellrepro`` in a folder without a checkout."""

    def call(*arguments, code=0):
        start = (
            "import sys, cellrepro; from pathlib import Path; "
            f"assert Path(cellrepro.__file__).is_relative_to({str(installed)!r}); "
            "from cellrepro.cli import main; main()"
        )
        environment = {**os.environ, "PYTHONPATH": str(installed)}
        command = [sys.executable, "-c", start, *arguments]
        return run(command, code=code, cwd=tmp_path, env=environment)

    return call


@pytest.mark.slow
def test_an_installed_package_brings_notebooks_and_grids(lab, tmp_path):
    """A wheel that was built from the source archive, used where there is no checkout."""
    files = json.loads(lab("notebooks", "lab", "--json"))["files"]
    expected = [
        path
        for folder in ("notebooks", "grids")
        for path in sorted((PROJECT / folder).glob("[!.]*.*"))
        if path.suffix in (".ipynb", ".json", ".yaml")
    ]
    assert files == [f"lab/{path.relative_to(PROJECT).as_posix()}" for path in expected]
    assert len(files) >= 12
    for path in expected:
        copy = tmp_path / "lab" / path.relative_to(PROJECT)
        assert copy.read_bytes() == path.read_bytes()
    lab("data", "synthetic", "--into", "data")
    found = {}
    for file in ("grids/demo.yaml", "lab/grids/demo.yaml"):  # the package's own, and the copy
        found[file] = json.loads(lab("grid", file, "--dry-run", "--json"))["runs"]
        assert {point["status"] for point in found[file]} == {"planned"}
    assert found["grids/demo.yaml"] == found["lab/grids/demo.yaml"]
    assert len(found["grids/demo.yaml"]) == 10
    said = lab("grid", "grids/other.yaml", "--dry-run", code=2)
    assert "the grid file grids/other.yaml cannot be read" in said


@pytest.mark.slow
def test_notebooks_of_the_users_are_never_overwritten(lab, tmp_path):
    lab("notebooks", "lab")
    (tmp_path / "lab" / "notebooks" / ".DS_Store").write_text("left by a desktop")
    lab("notebooks", "lab")  # again: they are all there
    changed = tmp_path / "lab" / "notebooks" / "07_explorer.ipynb"
    changed.write_text("mine")
    (tmp_path / "lab" / "grids" / "demo.yaml").unlink()
    said = lab("notebooks", "lab", code=2)
    assert "lab holds notebooks/07_explorer.ipynb, which is yours or has been changed" in said
    assert changed.read_text() == "mine"
    assert not (tmp_path / "lab" / "grids" / "demo.yaml").exists()


# -- make setup, with the real pip and uv, from wheels that a server here holds ------------------

SET_UP_SECONDS = 120


def repack(name, folder):
    """The wheel of an installed distribution, made of its files; returns its line of a lock."""
    found = importlib.metadata.distribution(name)
    files = {}
    for file in found.files:
        if file.suffix == ".pyc" or file.name in ("RECORD", "INSTALLER", "REQUESTED"):
            continue
        place = file.as_posix()
        if file.parts[0] == "..":
            place = f"{found.name}-{found.version}.data/scripts/{file.name}"
        files[place] = Path(file.locate()).read_bytes()
    return write_wheel(folder, found.name, found.version, files)


def write_wheel(folder, name, version, files):
    information = f"{name}-{version}.dist-info"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        **files,
        f"{information}/WHEEL": tags,
    }
    record = "".join(f"{place},,\n" for place in [*files, f"{information}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, content in {**files, f"{information}/RECORD": record}.items():
            info = zipfile.ZipInfo(place)
            info.external_attr = (0o100755 if "/scripts/" in place else 0o100644) << 16
            archive.writestr(info, content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}=={version} \\\n    --hash=sha256:{digest}\n    # via the test\n"


class Wheels(http.server.SimpleHTTPRequestHandler):
    """Serves wheels; where the server is told to, one of them comes by half and then no more."""

    def do_GET(self):
        if self.path.endswith(".whl") and self.path.lstrip("/").startswith(self.server.stalls):
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"PK")
            self.server.reached.set()
            self.server.released.wait(SET_UP_SECONDS)
            self.close_connection = True
            return
        super().do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture
def clone(tmp_path):
    """A project with the real Makefile and set-up, whose lock holds uv, setuptools and `late`."""
    project, wheels = tmp_path / "clone", tmp_path / "wheels"
    for folder in (wheels, project / "scripts", project / "src" / "cellrepro"):
        folder.mkdir(parents=True)
    shutil.copy(PROJECT / "Makefile", project)
    shutil.copy(PROJECT / "scripts" / "set_up.py", project / "scripts")
    (project / "src" / "cellrepro" / "__init__.py").write_text("import late\n")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "cellrepro"\nversion = "0"\n'
    )
    lines = [repack(name, wheels) for name in ("setuptools", "uv")]
    late = write_wheel(wheels, "late", "1.0", {"late.py": "ANSWER = 42\n"})
    (project / "requirements.lock").write_text("".join([late, *lines]))

    handler = functools.partial(Wheels, directory=str(wheels))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.stalls, server.reached, server.released = ("nothing",), Event(), Event()
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        foreign = ("PIP_", "UV_", "MAKE", "MFLAGS")
        own = {name: v for name, v in os.environ.items() if not name.startswith(foreign)}
        environment = {
            **own,
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "*"),
            **dict.fromkeys(("PIP_NO_INDEX", "PIP_NO_CACHE_DIR", "UV_NO_INDEX"), "1"),
            **dict.fromkeys(("PIP_FIND_LINKS", "UV_FIND_LINKS"), url),
            "PIP_CONFIG_FILE": os.devnull,
            "UV_NO_CONFIG": "1",
            "UV_CACHE_DIR": str(tmp_path / "cache"),
        }
        yield SimpleNamespace(
            path=project,
            venv=project / ".venv",
            wheels=wheels,
            server=server,
            options={"cwd": project, "env": environment},
            make=["make", f"PYTHON={sys.executable}", "setup"],
        )
        server.released.set()
        server.shutdown()
        thread.join()


def set_up(clone, *, code=0):
    done = subprocess.run(
        clone.make, capture_output=True, text=True, timeout=SET_UP_SECONDS, **clone.options
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def works(clone):
    question = "import cellrepro, late; print(late.ANSWER, cellrepro.__file__)"
    answer = run([clone.venv / "bin" / "python", "-c", question], **clone.options).split()
    return answer == ["42", str(clone.path / "src" / "cellrepro" / "__init__.py")]


@pytest.mark.slow
def test_an_interrupted_set_up_is_begun_anew(clone):
    """Killed in the middle of a download, and with metadata that another one left half-written."""
    clone.server.stalls = ("late",)
    making = subprocess.Popen(clone.make, start_new_session=True, **clone.options)
    assert clone.server.reached.wait(SET_UP_SECONDS)
    os.killpg(making.pid, signal.SIGKILL)
    making.wait()
    (packages,) = clone.venv.glob("lib/python*/site-packages")
    assert list(packages.glob("uv-*.dist-info"))  # it was in the middle, and uv's turn
    for name in ("late-1.0", "setuptools-1.0"):
        (packages / f"{name}.dist-info").mkdir()
    clone.server.stalls = ("nothing",)
    clone.server.released.set()
    said = set_up(clone)
    assert ".venv was not finished: removing it and starting anew" in said
    assert "Traceback" not in said
    assert "uv cannot" not in said
    assert works(clone)
    assert not (packages / "setuptools-1.0.dist-info").exists()

    # Finished, it is left alone; a newer lock is installed over it, and is unfinished until done.
    (clone.venv / "mine").touch()
    assert "starting anew" not in set_up(clone)
    os.utime(clone.path / "requirements.lock")
    (clone.path / "pyproject.toml").write_text("no project")
    assert "the next make begins it anew" in set_up(clone, code=2)
    assert (clone.venv / "mine").exists()
    assert not (clone.venv / ".ready").exists()


@pytest.mark.slow
def test_without_uv_pip_installs_the_lock(clone):
    """Not every platform has a wheel of uv; a digest that is wrong is refused all the same."""
    (uv,) = clone.wheels.glob("uv-*.whl")
    uv.unlink()
    said = set_up(clone)
    assert "uv cannot install here, so pip does" in said
    assert works(clone)
    shutil.rmtree(clone.venv)
    lock = clone.path / "requirements.lock"
    lock.write_text(re.sub("sha256:.{8}", "sha256:00000000", lock.read_text(), count=1))
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in set_up(clone, code=2)


@pytest.mark.parametrize("linked", [False, True], ids=["a folder", "a link"])
def test_set_up_removes_nothing_of_the_users(clone, tmp_path, linked):
    """A .venv may lead to an environment that other projects use, or be none at all."""
    place = tmp_path / "shared" if linked else clone.venv
    place.mkdir()
    (place / "precious.txt").write_text("mine")
    if linked:
        (place / "pyvenv.cfg").write_text("home = /usr\n")
        clone.venv.symlink_to(place)
    said = set_up(clone, code=2)
    assert ".venv is no virtual environment that this set-up has begun" in said
    assert "nothing was removed" in said
    assert (place / "precious.txt").read_text() == "mine"
