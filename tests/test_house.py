"""How the house is built: rooms in order, Cellpose in one of them, light imports, small files."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cellrepro

SOURCE = Path(cellrepro.__file__).parent
ROOMS = ["determinism", "store", "trace", "images", "model", "compare", "lab", "show"]
"""In the order in which they may build on each other; the command line and the demo on all."""
GROUND = ["errors", "text", "progress", "__init__"]

MODULES = {
    ".".join(["cellrepro", *path.relative_to(SOURCE).with_suffix("").parts]): path
    for path in sorted(SOURCE.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def rank(module):
    """0 for what everything may use, then the rooms, then the doors."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in GROUND:
        return 0
    return 1 + ROOMS.index(parts[1]) if parts[1] in ROOMS else 1 + len(ROOMS)


def imports(module, *, anywhere=True):
    """Every module that a file names in an import statement, also inside its functions."""
    tree = TREES[module]
    for node in ast.walk(tree) if anywhere else at_import(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
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


def test_rooms_import_upwards_only():
    assert set(ROOMS) <= {path.name for path in SOURCE.iterdir()}
    wrong = [
        f"{module} must not know of {name}"
        for module in MODULES
        if module != "cellrepro.__init__"
        for name in imports(module)
        if name.split(".")[0] == "cellrepro" and rank(name) > rank(module)
    ]
    assert wrong == []


def test_no_circles():
    edges = {
        module: {name for name in imports(module, anywhere=False) if name in MODULES}
        for module in MODULES
    }
    while leaves := [module for module, needed in edges.items() if not needed & edges.keys()]:
        for module in leaves:
            del edges[module]
    assert not edges


CELLPOSE = re.compile(r"(cellpose|segment_anything)(\.[a-z_]+)+")
BY_STRING = {"cellrepro.determinism.substitutes"}
"""One of them takes the place of a method there, once Cellpose was imported."""


def test_only_model_knows_cellpose():
    """In an import, or by a string that names one of its modules."""
    found = set()
    for module, tree in TREES.items():
        named = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        starts = {name.split(".")[0] for name in imports(module)}
        by_string = any(text == "cellpose." or CELLPOSE.fullmatch(text) for text in named)
        if starts & {"cellpose", "segment_anything"} or by_string:
            found.add(module)
    elsewhere = {name for name in found if not name.startswith("cellrepro.model.")}
    assert found - elsewhere
    assert elsewhere == BY_STRING


def test_no_private_name_is_imported_across_files():
    private = [
        f"{module} imports {alias.name} from {node.module}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("cellrepro")
        for alias in node.names
        if re.match("_(?!_)", alias.name)
    ]
    assert private == []


# -- sizes ---------------------------------------------------------------------------------

MOST_LINES, MOST_OF_A_FUNCTION, MOST_OF_ALL = 500, 60, 22_600
LONG_FILES = {"images/synthetic.py": 512}  # drawing, whose bytes are pinned
LONG_FUNCTIONS: set[str] = set()  # may only shrink


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_no_file_is_too_long():
    sizes = {path.relative_to(SOURCE).as_posix(): len(lines(path)) for path in SOURCE.rglob("*.py")}
    assert sum(sizes.values()) <= MOST_OF_ALL
    most = {name: LONG_FILES.get(name, MOST_LINES) for name in sizes}
    assert {name: n for name, n in sizes.items() if n > most[name]} == {}


def test_a_long_function_says_why():
    """By a comment that begins with ``Long``; docstrings do not count."""
    found = set()
    for module, tree in TREES.items():
        name = MODULES[module].relative_to(SOURCE).as_posix()
        text = lines(MODULES[module])
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                has_docstring = ast.get_docstring(node) is not None
                start = node.body[0].end_lineno if has_docstring else node.lineno
                body = text[start : node.end_lineno]
                told = any(line.lstrip().startswith("# Long") for line in body)
                if len(body) > MOST_OF_A_FUNCTION and not told:
                    found.add(f"{name}:{node.name}")
    assert found <= LONG_FUNCTIONS


# -- importing -----------------------------------------------------------------------------


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
        (
            "import cellrepro; dir(cellrepro); cellrepro.BadInput; import cellrepro.cli",
            HEAVY | {"pydantic", "papermill", "ipywidgets", "anywidget"},
        ),
        (
            "from cellrepro import train, segment, read_grid, run_grid\n"
            "import cellrepro.lab.worker, cellrepro.lab.notebook_process, cellrepro.show.answers",
            {"torch", "cellpose", "papermill", "matplotlib"},
        ),
        (
            "import cellrepro.determinism.modes, cellrepro.determinism.profiles\n"
            "import cellrepro.determinism.seeding, cellrepro.store.digests\n"
            "import cellrepro.store.platform, cellrepro.store.store\n"
            "import cellrepro.compare.seed_spread, cellrepro.compare.weight_similarity",
            {"torch", "cellpose"},
        ),
    ],
    ids=["the command line", "runs and grids", "determinism, store and compare"],
)
def test_importing_is_light(code, heavy):
    assert not loaded_by(code) & heavy


def test_every_public_name_can_be_had():
    for name in cellrepro.__all__:
        assert getattr(cellrepro, name).__doc__, name
    assert set(cellrepro.__all__) <= set(dir(cellrepro))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = cellrepro.trian
