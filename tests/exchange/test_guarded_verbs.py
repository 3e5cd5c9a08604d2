"""Every verb that reads what was sent runs nothing, connects to nothing, and writes at home only.

The verbs are those that are registered: a new one takes part as soon as it exists, or says below
why what it does is the reader's own doing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import pytest

from cellrepro.exchange.export import export_runs
from cellrepro.exchange.passport_files import export_passports
from cellrepro.store.store import Store
from command_line import commands as every_command
from stores import add_run, three

GUARD = Path(__file__).with_name("guarded.py")
OWN_DOING = {
    "train": "computes what its reader asks for",
    "segment": "the same",
    "audit": "the same",
    "sensitivity": "the same",
    "tiles": "the same",
    "wrap": "runs the reader's own program",
    "wrap-python": "the same",
    "grid": "carries out the reader's own file",
    "demo": "computes the example",
    "data": "makes or fetches images by name",
    "notebooks": "copies those of the package",
    "setup": "installs",
    "doctor": "looks at this machine, which starts its programs",
    "explore": "opens a browser",
    "open": "serves a page",
}
COMMAND = "/bin/sh -c 'touch PWNED' #%s"
ELSEWHERE = "//PWNED/share"


def sent_runs(store, environment):
    """Runs of each task that ask for what a spec must not ask for."""
    settings = {"name": "cpu", "threads": 2, "device": "cpu", "environment": environment}
    asked = {"profile_settings": settings, "manifest": {}}
    trained = add_run(store, [(1.0, three()), (2.0, three())], **asked)
    digest = {"model": f"{ELSEWHERE}/model", "model_digest": "a" * 64}
    add_run(store, [(None, three())], task="segment", cellpose="99.0.1", **digest, **asked)
    program = ("touch", "PWNED", "{image}", "{masks}")
    wrapped = {"task": "wrap", "mode": "fast", "program": program, **digest}
    add_run(store, [(None, three())], **wrapped, **asked)
    return trained


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """A store that was copied from elsewhere, exported files of it, and passports."""
    root = tmp_path_factory.mktemp("guarded")
    evil = {"BROWSER": COMMAND, "LD_PRELOAD": "PWNED.so", "PYTHONPATH": "PWNED"}
    sent_by_name = {}
    runs = []
    for name, environment in (("evil", evil), ("sly", {})):
        store = Store(root / name)
        run = sent_runs(store, environment)
        keys = [one.key for one in store.runs()]
        file = root / f"{name}.cellrepro.zip"
        passports = root / f"{name}.intoto.jsonl"
        export_runs(keys, file, weights=True, store=store.root, quiet=True)
        export_passports(keys, passports, store=store.root)
        sent_by_name[name] = SimpleNamespace(store=store.root, file=file, passports=passports)
        runs += [(store.root, key) for key in keys if name == "sly" or key == run.key]
    mask = next(run.repeats[0].folder.glob("masks/*.tif"))
    return SimpleNamespace(root=root, runs=runs, mask=mask, **sent_by_name)


def registered():
    """Every command with its name and the names of its arguments and options."""
    for command in every_command():
        arguments = [one.name for one in command.arguments]
        yield command.words, arguments, {one.name for one in command.options}


def values_of(argument, verb, sent, key, number):
    """What a stranger may have sent in the place of an argument; nothing for what he may not."""
    named_by = {"evil": sent.evil, "sly": sent.sly}
    files = [one for each in named_by.values() for one in (each.file, each.passports)]
    stores = [each.store for each in named_by.values()]
    if (verb[0], argument) == ("export", "file"):
        return [sent.root / f"out-{number}.cellrepro.zip"]
    if verb == ("baseline", "save") and argument == "file":
        return [sent.root / f"out-{number}.baseline"]
    return {
        "a": [f"{key}/0"],
        "data": [f"{key}/0"],
        "b": [f"{key}/1", sent.mask],
        "file": files,
        "target": [*files, *stores, key],
        "runs": [key],
        "run": [f"{key}/0"],
        "masks": [sent.mask],
        "command": [None],
    }[argument]


def commands(sent, runs):
    """Each verb over each thing that was sent, over the stores of some runs."""
    for verb, arguments, options in registered():
        if verb[0] in OWN_DOING:
            continue
        told = set()
        for number, (store, key) in enumerate(runs):
            lists = [[]]
            for argument in arguments:
                values = values_of(argument, verb, sent, key, number)
                lists = [
                    [*words, *([] if value is None else [str(value)])]
                    for words in lists
                    for value in values
                ]
            for words in lists:
                for more in ([], ["--replay"]) if "replay" in options else ([],):
                    of_store = ["--store", str(store)] if "store" in options else []
                    command = (*verb, *words, *more, *of_store)
                    if command not in told:
                        told.add(command)
                        yield list(command)


@pytest.mark.parametrize(
    "n_runs", [1, pytest.param(None, marks=pytest.mark.slow)], ids=["one run", "all runs"]
)
def test_nothing_runs_or_leaves(sent, n_runs):
    """No process but the lab's own child, without what was sent; no socket; no write elsewhere."""
    work = sent.root / "work"
    work.mkdir(exist_ok=True)
    home = {name: str(sent.root) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    home["MPLCONFIGDIR"] = mpl.get_cachedir()  # else it looks for fonts, by a program
    asked = [*commands(sent, sent.runs[:n_runs])]
    done = subprocess.run(
        [sys.executable, "-B", GUARD, sent.root],
        input=json.dumps(asked),
        env={**os.environ, **home, "CELLREPRO_CACHE": str(sent.root / "cache")},
        cwd=work,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout)
    wrong = [
        one for one in answers if one["did"] or one["traceback"] or one["code"] not in range(4)
    ]
    assert wrong == []
    assert not [*sent.root.rglob("PWNED")]
    replays = [one for one in answers if "--replay" in one["command"]]
    assert len(replays) > 6
    assert {one["code"] for one in replays} <= {1, 2, 3}
    of_evil = [one["said"] for one in replays if "evil.intoto.jsonl" in one["command"][1]]
    assert all("BROWSER" in said for said in of_evil)
