"""The description of an exported file for other programs, held to the validator of its profile."""

import json
import subprocess
import sys
import zipfile

import pytest

import cellrepro
from cellrepro.store.store import Store
from stores import add_run, three

_VALIDATE = """
import json, sys
from importlib.resources import files
from types import SimpleNamespace

import rocrate_validator.utils.document_loader as loader
from rocrate_validator import services
from rocrate_validator.models import Severity, ValidationSettings
from rocrate_validator.utils.http import HttpRequester

# No network: the context is the one that rocrate brings.
context = json.loads(files("rocrate").joinpath("data/ro-crate.jsonld").read_text("utf-8"))

def get(self, url, **options):
    assert "w3id.org/ro/" in url or "researchobject.org" in url, url
    text = json.dumps(context)
    return SimpleNamespace(
        status_code=200,
        text=text,
        content=text.encode(),
        json=lambda: context,
        headers={"Content-Type": "application/ld+json"},
    )

HttpRequester.get = get
loader._fetch_json_ld = lambda url: context
result = services.validate(
    ValidationSettings(
        rocrate_uri=sys.argv[1],
        profile_identifier="process-run-crate-0.5",
        requirement_severity=Severity.REQUIRED,
        disable_check_for_duplicates=True,
    )
)
for issue in result.get_issues():
    print(issue.severity, issue.check.identifier, issue.message)
print("passed" if result.passed() else "failed")
"""


@pytest.fixture
def unpacked(tmp_path):
    """An exported file of two runs, one with everything, as a folder."""
    store = Store(tmp_path / "store")
    add_run(store, [(1.0, three())] * 2)
    add_run(store, [(None, three())], task="wrap", program=("segment",), epochs=0, seed=1)
    file = tmp_path / "runs.zip"
    where = {"mode": "strict"}
    cellrepro.export_runs(
        [], file, where=where, weights=True, images=True, store=store.root, quiet=True
    )
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "crate")
    return tmp_path / "crate"


def validated(folder):
    command = [sys.executable, "-c", _VALIDATE, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_validator_accepts_it(unpacked):
    assert validated(unpacked) == ["passed"]


@pytest.mark.slow
def test_the_validator_would_notice(unpacked):
    path = unpacked / "ro-crate-metadata.json"
    document = json.loads(path.read_bytes())
    for entity in document["@graph"]:
        entity.pop("instrument", None)
    path.write_text(json.dumps(document))
    *issues, end = validated(unpacked)
    assert end == "failed"
    assert any("instrument" in issue for issue in issues)


def test_each_run_names_the_cellpose_that_it_used(tmp_path):
    store = Store(tmp_path / "store")
    for seed, version in enumerate(("3.1.1.2", "4.0.8")):
        versions = {"cellrepro": "0.1.0+local", "cellpose": version, "torch": "2.6"}
        add_run(store, [(1.0, three())], seed=seed, manifest={"versions": versions})
    file = tmp_path / "runs.zip"
    where = {"mode": "strict"}
    cellrepro.export_runs([], file, where=where, store=store.root, quiet=True)
    with zipfile.ZipFile(file) as archive:
        document = json.loads(archive.read("ro-crate-metadata.json"))
    by_id = {entity["@id"]: entity for entity in document["@graph"]}
    used = {
        action["name"].partition(" seed ")[2][:1]: [part["@id"] for part in action["instrument"]]
        for action in by_id.values()
        if action["@type"] == "CreateAction"
    }
    own = "pkg:pypi/cellrepro@0.1.0%2Blocal"
    assert used == {
        "0": [own, "pkg:pypi/cellpose@3.1.1.2"],
        "1": [own, "pkg:pypi/cellpose@4.0.8"],
    }
    assert by_id[own]["version"] == "0.1.0+local"


def test_what_it_says(unpacked):
    document = json.loads((unpacked / "ro-crate-metadata.json").read_bytes())
    by_id = {entity["@id"]: entity for entity in document["@graph"]}
    actions = [entity for entity in by_id.values() if entity["@type"] == "CreateAction"]
    assert len(actions) == 3
    training = next(action for action in actions if action["name"].startswith("train"))
    assert training["startTime"] == "2026-11-01T12:00:00+00:00"
    assert training["endTime"] == "2026-11-01T12:00:08+00:00"
    assert "agent" not in training  # nobody said who it was
    assert by_id["./"]["datePublished"] == training["endTime"]
    files = [entity for entity in by_id.values() if entity["@type"] == "File"]
    for entity in files:
        path = unpacked / entity["@id"]
        assert str(path.stat().st_size) == entity["contentSize"]
    for action in actions:
        for part in [*action["object"], *action["result"]]:
            assert part["@id"] in by_id
