"""No verb and no function writes over what a user has, and one file of the package writes files."""

import ast
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import tifffile

import cellrepro
from cellrepro.errors import CellreproError
from cellrepro.process.machine_here import machine_here
from cellrepro.profiles.profiles import load
from cellrepro.store.store import Store
from command_line import commands
from samebits.digests import file_digest
from stores import add_run, squares, three

SOURCE = Path(cellrepro.__file__).parent

# -- one way to write a file -----------------------------------------------------------------

WRITE = {
    *("write_text", "write_bytes", "imwrite", "savefig", "savez", "save", "save_file"),
    *("copy", "copy2", "copyfile", "copytree", "move", "rename", "hardlink_to", "symlink_to"),
}
IN_FOLDERS_OF_THE_LAB = {
    # Rooms that are given a folder of the store or for temporary files to write in.
    *("store", "run", "process", "model"),
    # Files of a temporary folder, or of the store.
    *("divergence/step_again.py", "exchange/bioimageio"),
    *("show/pages/open_page.py", "show/pages/dropped_files.py"),
    *("exchange/importing.py", "exchange/import_staging.py", "exchange/cellpose_check.py"),
    *(
        "grid/dask_worker.py",
        "grid/repeat_by_notebook.py",
        "grid/sending.py",
        "images/public_sets.py",
        "images/set_layouts.py",
        "comparison/saved_copies.py",
    ),
}


def written(call):
    """The file that a call writes, as its source says; none of a call that writes none."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    words = [*call.args, *(keyword.value for keyword in call.keywords)]
    modes = [word.value for word in words if isinstance(word, ast.Constant)]
    if name == "copy" and not ast.unparse(call.func).startswith("shutil."):
        return None  # of an array
    opens = name == "open" and any(
        isinstance(m, str) and re.fullmatch("[rwaxbt+]*[wax+][rwaxbt+]*", m) for m in modes
    )
    renames = name == "replace" and len(call.args) == 1 and not call.keywords
    if not (opens or renames or name in WRITE):
        return None
    return ast.unparse(call)


def test_files_are_written_through_the_one_function():
    """It gives a name ``scratch``, or memory is written to (``buffer``, ``content``)."""
    others = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if any(name == own or name.startswith(f"{own}/") for own in IN_FOLDERS_OF_THE_LAB):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = written(node) if isinstance(node, ast.Call) else None
            if text and not any(word in text for word in ("scratch", "buffer", "stdout")):
                others.append(f"{name}:{node.lineno}: {text}")
    assert others == []


# -- nothing of a user's is overwritten --------------------------------------------------------

FILES = ["mine.html", "mine.cellrepro.zip", "mine.bioimageio.zip", "mine.intoto.jsonl"]
FILES += ["mine.pth"]
FOLDER = ["index.html", "cell_masks.tif", "cell_masks.json", "diameter.png", "pyvenv.cfg"]
FOLDER += ["notebooks/00_setup.ipynb", "synthetic/train/synth_000.tif"]
VALUES = [*FILES, "folder", "images"]


class ComputingBegan(BaseException):
    """A process would now be started."""


def _no_process(*_, **__):
    raise ComputingBegan


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A user's folder with images, results, a store, and something precious at every name."""
    folder = tmp_path_factory.mktemp("user")
    for name in ("a", "b"):
        tifffile.imwrite(folder / f"{name}_masks.tif", squares(second=name == "a"))
    for name in ("images", "tmp"):
        (folder / name).mkdir()
    tifffile.imwrite(folder / "images" / "cell.tif", squares().astype("uint16"))
    tifffile.imwrite(folder / "images" / "cell_masks.tif", squares())
    add_run(Store(folder / "outputs"), [(1.0, three())] * 2)
    for name in [*FILES, *(f"folder/{name}" for name in FOLDER), "folder.lock"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("by hand")
    machine_here(load("cpu"))
    return folder


@pytest.fixture
def at_the_place(place, monkeypatch):
    """Where no process can be started: what is long does not begin."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(subprocess, "Popen", _no_process)
    monkeypatch.setattr(tempfile, "tempdir", str(place / "tmp"))
    return place


def precious(folder):
    """Every file of a user's with its digest; store and temporary files apart."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {
        path: file_digest(folder / path)
        for path in paths
        if path.parts[0] not in ("outputs", "tmp")
    }


_looked_at = set()
_blocks = []
"""Those that are open: an audit hook stays for the whole process, and other tests follow."""


def _note(event, arguments):
    if not _blocks or event not in ("open", "os.listdir", "os.scandir"):
        return
    if isinstance(arguments[0], str | Path):
        _looked_at.add(Path(arguments[0]).resolve())


sys.addaudithook(_note)


@contextmanager
def unharmed(folder, value, what):
    """What was there stays in the block; computing may only begin once the value was looked at."""
    before = precious(folder)
    _looked_at.clear()
    _blocks.append(what)
    try:
        yield
    except ComputingBegan:
        given = (folder / value).resolve()
        assert any(path == given or given in path.parents for path in _looked_at), what
    except CellreproError:
        pass
    finally:
        _blocks.pop()
    assert precious(folder).items() >= before.items(), what


GIVEN = {"a": "a_masks.tif", "b": "b_masks.tif", "image": "images/cell.tif", "data": "images"}
GIVEN |= {"target": "KEY", "run": "KEY", "runs": "KEY", "masks": "a_masks.tif", "name": "synthetic"}
GIVEN |= {"command": "{image}{masks}", "function": "x.py:y", "file": "new.html", "folder": "new"}
"""What arguments get while another one is tried."""
READ = {*GIVEN} - {"file", "folder"} | {
    "model",
    "profile",
    "truth",
    "log",
    "log_a",
    "log_b",
    "like",
}
READ |= {
    "sign",
    "allowed_signers",
    "slurm",
    "measured",
    "warning",
    "cellpose",
    "python",
    "override",
}
READ |= {"crop", "where", "author", "cite", "scheduler"}
"""Arguments and options that are read and never written; what is new is tried."""
WITH = {"verify": ["--replay", "--data", "images"], "segment": ["--model", "tiny"]}
WITH |= {verb: ["--model", "tiny"] for verb in ("sensitivity", "tiles", "forecast")}
OF_THE_LAB = {"store", "into"}
"""A folder in which the lab only adds, and which it opens when it has something to add."""


def names_a_file(option):
    words = ("file", "folder", "page", "NAME.", "KEY.pub", "network", "environment")
    return any(word in (option.help or "") for word in words)


@pytest.mark.parametrize("command", [*commands()], ids=lambda command: " ".join(command.words))
def test_no_verb_overwrites_what_a_user_has(at_the_place, invoke, command):
    """Each argument and option that names a file, with everything that may be there already."""
    (run,) = Store("outputs").runs()
    words = command.words
    arguments = command.arguments
    options = command.options
    tried = [*arguments, *(one for one in options if names_a_file(one))]
    for one in (one for one in tried if one.name not in READ | OF_THE_LAB):
        for value in VALUES:
            texts = [value if other is one else GIVEN[other.name] for other in arguments]
            line = [*words, *(run.key if text == "KEY" else text for text in texts)]
            if one in options:
                line += [one.options[0], value]
            with_it = WITH.get(words[0], ())
            line += [] if {*one.options} & {*with_it} else with_it
            with unharmed(at_the_place, value, line):
                assert invoke(*line).code is not None
