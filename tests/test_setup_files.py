"""What a fresh clone is set up from says one thing."""

import re
import tomllib
from pathlib import Path

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


@pytest.mark.parametrize(
    "name", ["requirements.lock", "environment.yml", "Dockerfile", "Makefile", ".ci/run"]
)
def test_no_address_of_a_registry(name):
    text = (PROJECT / name).read_text(encoding="utf-8")
    assert not re.search(r"https?:|index-url|find-links", text)


def test_conda_takes_the_same_pins():
    environment = yaml.safe_load((PROJECT / "environment.yml").read_text(encoding="utf-8"))
    python, _, pip = environment["dependencies"]
    assert pip["pip"] == ["--require-hashes", "-r requirements.lock"]
    assert python in ("python=3.11", "python=3.12", "python=3.13")


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
