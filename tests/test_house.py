"""Rooms import upwards only, Cellpose stays in one of them, and importing the package is light."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import cellrepro

SOURCE = Path(cellrepro.__file__).parent
ROOMS = ["determinism", "store", "trace", "images", "model", "compare", "lab", "show"]
"""In the order in which they may build on each other; `cli` and `demo` on all."""
GROUND = ["errors", "text", "progress", "__init__"]

MODULES = {
    ".".join(["cellrepro", *path.relative_to(SOURCE).with_suffix("").parts]): path
    for path in sorted(SOURCE.rglob("*.py"))
}


def rank(module):
    """0 for what everything may use, then the rooms, then the doors."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in GROUND:
        return 0
    return 1 + ROOMS.index(parts[1]) if parts[1] in ROOMS else 1 + len(ROOMS)


def imports(path, *, anywhere=True):
    """Every module that a file names in an import statement, also inside its functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if anywhere else at_import(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                yield deeper if deeper in MODULES else node.module


def at_import(tree):
    """The statements that run when the module is imported, type checking apart."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from at_import(node)


def test_there_is_something_to_check():
    assert len(MODULES) > 25
    assert "cellrepro.model.training" in MODULES
    assert set(ROOMS) <= {path.name for path in SOURCE.iterdir()}


@pytest.mark.parametrize("module", [name for name in MODULES if name != "cellrepro.__init__"])
def test_rooms_import_upwards_only(module):
    below = {
        name
        for name in imports(MODULES[module])
        if name.split(".")[0] == "cellrepro" and rank(name) > rank(module)
    }
    assert not below, f"{module} must not know of {sorted(below)}"


def test_no_circles():
    edges = {
        module: {name for name in imports(path, anywhere=False) if name in MODULES}
        for module, path in MODULES.items()
    }
    while leaves := [module for module, needed in edges.items() if not needed & edges.keys()]:
        for module in leaves:
            del edges[module]
    assert not edges


@pytest.mark.parametrize("module", MODULES)
def test_only_cells_knows_cellpose(module):
    foreign = {name.split(".")[0] for name in imports(MODULES[module])}
    if not module.startswith("cellrepro.model."):
        assert not foreign & {"cellpose", "segment_anything"}


def loaded_by(code):
    """What is in ``sys.modules`` after some code, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


HEAVY = {"torch", "cellpose", "segment_anything", "numpy", "scipy", "pandas", "matplotlib", "cv2"}


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import cellrepro", HEAVY | {"pydantic", "papermill", "ipywidgets", "anywidget"}),
        ("import cellrepro; dir(cellrepro); cellrepro.BadInput", HEAVY | {"pydantic"}),
        ("import cellrepro.cli", HEAVY | {"papermill", "ipywidgets", "anywidget"}),
        ("from cellrepro import train, segment", {"torch", "cellpose", "papermill", "matplotlib"}),
        ("from cellrepro import read_grid, run_grid", {"torch", "cellpose"}),
        (
            "import cellrepro.determinism.modes, cellrepro.determinism.profiles\n"
            "import cellrepro.determinism.seeding",
            {"torch", "cellpose"},
        ),
        (
            "import cellrepro.store.digests, cellrepro.store.platform, cellrepro.store.manifest\n"
            "import cellrepro.store.spec, cellrepro.store.store",
            {"torch", "cellpose"},
        ),
        (
            "import cellrepro.compare",
            {"torch", "cellpose"},
        ),
        (
            "import cellrepro.lab.worker, cellrepro.lab.notebook_process",
            {"torch", "cellpose", "papermill"},
        ),
    ],
    ids=[
        "the package",
        "an error",
        "the command line",
        "train",
        "the grid",
        "control",
        "record",
        "compare",
        "the children",
    ],
)
def test_importing_is_light(code, heavy):
    assert not loaded_by(code) & heavy


def test_every_public_name_can_be_had():
    for name in cellrepro.__all__:
        assert getattr(cellrepro, name).__doc__, name
    assert set(cellrepro.__all__) <= set(dir(cellrepro))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = cellrepro.trian
