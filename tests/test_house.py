"""How the house is built: rooms in order, Cellpose in one of them, light imports."""

import ast
import functools
import gc
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import tifffile

import cellrepro
from cellrepro.commands import BY_NAME
from cellrepro.spec.training_fields import Hyperparameters
from samebits.results import Result

SOURCE = Path(cellrepro.__file__).parents[1]
PACKAGES = ("samebits", "cellrepro")
"""The second may use the public names of the first; the first knows nothing of the second."""
ROOMS = [
    *("profiles", "spec", "store", "images", "model"),
    *("comparison", "conclusions"),
    *("process", "run", "explanation", "grid", "audits", "divergence", "exchange", "show"),
]
"""In the order in which they may build on each other; the command line and the demo on all."""
GROUND = [
    "any_pytorch",
    "command_lines",
    "commands",
    "enums",
    "errors",
    "extras",
    "field_defaults",
    "fitted_lines",
    "loss_lines",
    "median_range",
    "nested_values",
    "own_scripts",
    "pickles",
    "torch_files",
    "words",
    "wrong_fields",
    "yaml_values",
    "zip_files",
    "progress",
    "progress_count",
    "progress_log",
    "record",
    "stated",
    "terminal",
    "terminal_values",
    "version",
    "__init__",
]
FOLDERS_OF_SAMEBITS = ["trace", "arithmetic"]
"""In the order in which they may build on each other; both on the files beside them."""


def name_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts)


MODULES = {
    name_of(path): path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))
}
OF_CELLREPRO = [module for module in MODULES if module.startswith("cellrepro.")]


@functools.cache
def trees():
    """Every module as Python reads it: seconds, so not when tests are collected."""
    read = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
    gc.freeze()  # else each collection goes through a million nodes
    return read


@functools.cache
def nodes_by_kind():
    """What all modules hold, each with its module, by its kind."""
    found = defaultdict(list)
    for module, tree in trees().items():
        for node in ast.walk(tree):
            found[type(node)].append((module, node))
    gc.freeze()
    return found


def nodes(*kinds):
    """What all modules hold of these kinds, each with its module."""
    return [each for kind in kinds for each in nodes_by_kind()[kind]]


def rank(module):
    """0 for what everything of its package may use, then the rooms, then the doors."""
    package, *parts = module.split(".")
    if package == "samebits":
        folder = parts[0] if parts else ""
        is_inside = folder in FOLDERS_OF_SAMEBITS
        return 1 + FOLDERS_OF_SAMEBITS.index(folder) if is_inside else 0
    if not parts or parts[0] in GROUND:
        return 0
    return 1 + ROOMS.index(parts[0]) if parts[0] in ROOMS else 1 + len(ROOMS)


@functools.cache
def imports_of_all():
    """The import statements of every module, also inside its functions."""
    found = defaultdict(list)
    for module, node in nodes(ast.Import, ast.ImportFrom):
        found[module].append(node)
    return found


def imports(module, *, within=None):
    """Every module that a file names in an import statement, also inside its functions."""
    for node in within(trees()[module]) if within else imports_of_all()[module]:
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
        of_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not of_types and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node
            yield from at_import(node)


def test_rooms_import_upwards_only():
    assert set(ROOMS) <= {path.name for path in (SOURCE / "cellrepro").iterdir()}
    wrong = [
        f"{module} must not know of {name}"
        for module in MODULES
        if not module.endswith("__init__")
        for name in imports(module)
        if name.split(".")[0] == module.split(".")[0] and rank(name) > rank(module)
    ]
    assert wrong == []


def test_samebits_knows_nothing_of_cells():
    """It, and its tests, also where a string would import or name the laboratory."""
    tests = sorted((Path(__file__).parent / "samebits").rglob("*.py"))
    named = [
        f"{path.name}: {name}"
        for path in [*(MODULES[name] for name in MODULES if name.startswith("samebits")), *tests]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in [
            *(alias.name for alias in getattr(node, "names", ()) if isinstance(node, ast.Import)),
            *([node.module] if isinstance(node, ast.ImportFrom) else []),
            *re.findall(
                r"import cell\w+|from cell\w+|cellpose\.\w+", str(getattr(node, "value", ""))
            ),
        ]
        if re.search(r"\bcell(repro|pose)\b", name or "")
    ]
    assert named == []


def test_samebits_works_where_the_laboratory_is_not():
    """Its answers, in a process in which no part of the laboratory can be imported."""
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cellrepro", "cellpose"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import samebits, torch
net = torch.nn.Linear(3, 2)
def step():
    net(torch.ones(4, 3)).sum().backward()
print(samebits.check_repeatable(step, net).sentence())
with samebits.portable():
    print(samebits.tensor_digest(torch.ones(2, 3) @ torch.ones(3, 1)))
"""
    said = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert len(said) == 2


def test_cellrepro_uses_the_public_names_of_samebits_alone():
    """What ``__init__.pyi`` exports, and the files beside it; not what lies in its folders."""
    private = [
        f"{module}: {name}"
        for module in OF_CELLREPRO
        for name in imports(module)
        if name.startswith("samebits.") and name.count(".") > 1
    ]
    assert private == []


def but_for_types(tree):
    """Every statement, also inside functions, but what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node
            yield from but_for_types(node)


def test_no_circles():
    """None that an import inside a function hides, either."""
    edges = {module: {*imports(module, within=but_for_types)} for module in MODULES}
    while leaves := [module for module, needed in edges.items() if not needed & edges.keys()]:
        for module in leaves:
            del edges[module]
    assert not edges


def test_no_module_needs_the_package_itself():
    """What every import of the package runs imports nothing of it but its version."""
    users = {module for module in MODULES if module.partition(".")[0] in {*imports(module)}}
    assert not users


CELLPOSE = re.compile(r"(cellpose|segment_anything)(\.[a-z_]+)+")
BY_STRING = {"samebits.substitutes", "cellrepro.process.locked_environment"}
"""One of them takes the place of a method there, once Cellpose was imported, the other compiles."""


def test_only_model_knows_cellpose():
    """In an import, or by a string that names one of its modules."""
    found = {
        module
        for module, node in nodes(ast.Constant)
        if isinstance(node.value, str)
        if node.value == "cellpose." or CELLPOSE.fullmatch(node.value)
    }
    for module in MODULES:
        starts = {name.split(".")[0] for name in imports(module)}
        if starts & {"cellpose", "segment_anything"}:
            found.add(module)
    assert found > BY_STRING
    assert {rank(module) for module in found - BY_STRING} == {rank("cellrepro.model")}


def test_a_command_with_values_is_written_by_the_one_function_that_knows_its_store():
    """No text has a value behind the name of a command: `lab_command` quotes it, and adds the
    store that a run lies in."""
    verbs = "|".join(BY_NAME)
    command = re.compile(rf"cellrepro ({verbs})( [^`]*)?$")
    wrong = []
    for module, text in nodes(ast.JoinedStr):
        before = ""
        for part in text.values:
            if isinstance(part, ast.Constant):
                before += part.value
            elif command.search(before.rpartition("`")[2] if before.count("`") % 2 else before):
                wrong.append(f"{module}, line {part.lineno}: {before}")
    assert wrong == []


def test_no_private_name_is_imported_across_files():
    private = [
        f"{module} imports {alias.name} from {node.module}"
        for module, node in nodes(ast.ImportFrom)
        if node.module.startswith(PACKAGES)
        for alias in node.names
        if re.match("_(?!_)", alias.name)
    ]
    assert private == []


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
            "import cellrepro.run.worker, cellrepro.grid.notebook_execution\n"
            "import cellrepro.explanation.two_results, cellrepro.show.run_list\n"
            "import samebits.modes, cellrepro.comparison.weight_similarity",
            {"torch", "cellpose", "papermill", "matplotlib"},
        ),
    ],
)
def test_importing_is_light(code, heavy):
    asked = f"{code}\nimport sys; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", asked], text=True).split()
    assert not heavy & {*loaded}


def test_two_mask_files_wait_for_numpy_alone(tmp_path):
    """Who holds two masks of one image need not wait for what reads a store or a network."""
    masks = np.kron(np.arange(1, 101).reshape(10, 10), np.pad(np.ones((20, 20), int), 3))
    files = [str(tmp_path / f"{name}_masks.tif") for name in "ab"]
    tifffile.imwrite(files[0], masks.astype(np.uint16))
    tifffile.imwrite(files[1], np.roll(masks, 2, axis=0).astype(np.uint16))
    code = f"from cellrepro.cli import run\nassert run(['compare', *{files}]) == 1\nprint()"
    asked = f"{code}\nimport sys; print(*sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", asked], text=True).splitlines()
    loaded = {*said[-1].split()}
    assert not loaded & (HEAVY - {"numpy"} | {"pydantic", "yaml", "psutil", "rich"})
    assert "cellrepro.store.store" not in loaded


def test_every_public_name_can_be_had():
    for name in cellrepro.__all__:
        assert getattr(cellrepro, name).__doc__, name
    assert set(cellrepro.__all__) <= set(dir(cellrepro))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = cellrepro.trian


def constants(tree):
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in nodes if isinstance(node.value, str)}


SECTION = re.compile(r"^(Parameters|Attributes|Returns|Yields|Raises|Notes|Examples)\n-{3,}$", re.M)
OWN_DOORS = {"cellrepro.record", "cellrepro.pytest_plugin"}
"""Users import them by themselves."""


def exported():
    """The public names, by the module that defines them: those of Python, and the commands."""
    for text in constants(trees()["cellrepro.commands"]):
        room, colon, name = text.partition(":")
        if colon and f"cellrepro.{room}" in MODULES:
            yield f"cellrepro.{room}", name
    for stub in SOURCE.rglob("*.pyi"):
        room = stub.parent.relative_to(SOURCE).parts
        for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                module = ".".join([*room[: len(room) - node.level + 1], node.module])
                yield from ((module, alias.name) for alias in node.names)


def documented(tree, *, outside=""):
    """Every class and function with its whole name: ``Class.method``, ``function.inner``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield f"{outside}{node.name}", node
            yield from documented(node, outside=f"{outside}{node.name}.")
        else:
            yield from documented(node, outside=outside)


def test_sections_are_for_what_is_exported():
    public = {*exported()}
    assert len(public) > 100
    superfluous = [
        f"{module}: {name}"
        for module, tree in trees().items()
        if module not in OWN_DOORS
        for name, node in documented(tree)
        if (module, name.partition(".")[0]) not in public
        if SECTION.search(ast.get_docstring(node) or "")
    ]
    assert superfluous == []


OF_EVERY_RESULT = {"exit_code", "sentence", "rows", "lines", "as_json", "as_text"}
"""Methods and properties of `Result`: a field of that name would take them for its default."""


def test_no_field_of_a_result_hides_what_every_result_has():
    hidden = [
        f"{module}: {node.name}.{field.target.id}"
        for module, node in nodes(ast.ClassDef)
        if {ast.unparse(base) for base in node.bases} & {"Result", "AuditOfRun"}
        for field in node.body
        if isinstance(field, ast.AnnAssign) and field.target.id in OF_EVERY_RESULT
    ]
    assert hidden == []
    assert {*vars(Result)} >= OF_EVERY_RESULT


def test_every_result_can_be_written_as_json():
    """One that is no dataclass says by its ``json_record`` what JSON has of it."""
    mute = [
        f"{module}: {node.name}"
        for module, node in nodes(ast.ClassDef)
        if {ast.unparse(base) for base in node.bases} & {"Result", "AuditOfRun"}
        if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        if not any(getattr(member, "name", "") == "json_record" for member in node.body)
    ]
    assert mute == []


def annotated(node):
    """The fields that a class states."""
    stated = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
    return frozenset(name for name in stated if name != "model_config")


def parameters(node):
    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return frozenset(argument.arg for argument in every)


def test_no_class_has_the_fields_of_another():
    by_fields = defaultdict(list)
    for module, node in nodes(ast.ClassDef):
        if len(annotated(node)) > 2:
            by_fields[annotated(node)].append(f"{module}.{node.name}")
    assert len(by_fields) > 100
    assert [names for names in by_fields.values() if len(names) > 1] == []


STATE_OPTIONS = {"cellrepro.spec.training_fields", "cellrepro.run.train"}


def test_options_stand_in_the_spec_and_in_one_signature():
    training = {*Hyperparameters.model_fields}
    assert len(training) > 8
    stated = []
    named_in = {
        ast.ClassDef: annotated,
        ast.FunctionDef: parameters,
        **dict.fromkeys((ast.Tuple, ast.List, ast.Set, ast.Dict), constants),
    }
    for module, node in nodes(*named_in):
        names = named_in[type(node)](node)
        if module not in STATE_OPTIONS and len(training & names) > 4:
            stated.append(f"{module}:{node.lineno}: {', '.join(sorted(training & names))}")
    assert stated == []
