"""What one sees of the package: signatures, documentation and results of every exported name."""

import ast
import enum
import inspect
import re
import sys
import textwrap
import typing

import numpydoc.validate
import pytest

import cellrepro
from cellrepro.cli import runs
from cellrepro.grid.notebook_execution import find_notebook, notebook_parameters
from cellrepro.run.options import SegmentationOptions, TrainingOptions

EXPORTED = {name: getattr(cellrepro, name) for name in cellrepro.__all__}
FUNCTIONS = {name: thing for name, thing in EXPORTED.items() if inspect.isfunction(thing)}
CLASSES = {name: thing for name, thing in EXPORTED.items() if inspect.isclass(thing)}

WRONG = {
    "GL06": "a section that NumPy does not know",
    "GL07": "sections in a different order than NumPy's",
    "GL08": "no docstring",
    "PR01": "a parameter without a description",
    "PR02": "a parameter that the function has not",
    "PR03": "parameters in a different order",
    "PR04": "a parameter without a type",
    "PR07": "a parameter without words",
    "RT01": "no section Returns",
    "RT03": "what is returned is not described",
    "YD01": "no section Yields",
}
"""What numpydoc's validator may not find, by its codes."""


def problems_of(name):
    """What numpydoc's validator finds in the docstring of an exported name, of the above."""
    thing = EXPORTED[name]
    path = f"{thing.__module__}.{thing.__qualname__}"
    found = numpydoc.validate.validate(path)["errors"]
    members = inspect.isclass(thing) and issubclass(thing, enum.Enum)  # it is never called
    return [
        f"{code}: {text}"
        for code, text in found
        if code in WRONG and not (members and code.startswith("PR"))
    ]


def words_of(annotation):
    return re.findall(r"[\w.]+", str(annotation))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_signature_shows_every_parameter_with_its_type(name):
    signature = inspect.signature(FUNCTIONS[name])
    for parameter in signature.parameters.values():
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD, f"**{parameter.name}"
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name
        assert parameter.annotation not in ("Any", "dict"), parameter.name
    assert signature.return_annotation not in (inspect.Signature.empty, "Any", "dict")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_at_most_two_parameters_are_by_position(name):
    by_position = [
        parameter.name
        for parameter in inspect.signature(FUNCTIONS[name]).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    assert len(by_position) <= 3, by_position


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_its_docstring_has_the_sections_of_numpy(name):
    assert problems_of(name) == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_it_raises_is_said_with_the_cause(name):
    """Of what stands in its own body; what it calls may raise more, which it says, too."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(FUNCTIONS[name])))
    if any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree)):
        assert re.search(r"\n *Raises\n *------\n", FUNCTIONS[name].__doc__), name


def class_named(name, function):
    """A class of the package by its name in a function's annotation, also an imported type."""
    if name in function.__globals__:
        return function.__globals__[name]
    modules = [module for path, module in sys.modules.items() if path.startswith("cellrepro.")]
    return next((vars(module)[name] for module in modules if name in vars(module)), None)


def results():
    """The classes of the package that exported functions return."""
    for name, function in FUNCTIONS.items():
        for word in words_of(inspect.signature(function).return_annotation):
            kind = class_named(word, function)
            if typing.is_typeddict(kind):
                continue  # a plain dictionary, for a different library
            if inspect.isclass(kind) and kind.__module__.startswith("cellrepro."):
                yield pytest.param(kind, id=f"{name}-{kind.__name__}")


@pytest.mark.parametrize("kind", list(results()))
def test_a_result_says_itself(kind):
    if hasattr(kind, "_repr_mimebundle_"):  # a widget, which Jupyter shows
        return
    assert kind.__str__ is not object.__str__
    assert callable(kind.sentence)
    assert callable(kind._repr_html_)


def test_the_validator_would_notice():
    """A docstring without sections is found."""

    def bad(a: int) -> int:
        """Give it back."""
        return a

    EXPORTED["bad"] = bad
    bad.__module__ = __name__
    bad.__qualname__ = "bad"
    globals()["bad"] = bad
    try:
        assert {text[:4] for text in problems_of("bad")} >= {"PR01", "RT01"}
    finally:
        del EXPORTED["bad"]
        del globals()["bad"]


def defaults_of(signature):
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


COMMANDS = {"train": runs.train, "segment": runs.segment}
OPTIONS = {"train": TrainingOptions, "segment": SegmentationOptions}
NOTEBOOKS = {"train": "01_seeded_training"}
OTHER_WORDS = {"sgd": "SGD"}
"""What the command line calls otherwise."""


@pytest.mark.parametrize("name", COMMANDS)
def test_signature_options_command_and_notebook_have_the_same_parameters(name):
    shown = defaults_of(inspect.signature(EXPORTED[name]))
    record = defaults_of(inspect.signature(OPTIONS[name]))
    of_a_function_alone = {"repeats", "quiet"}
    of_the_record_alone = {"stated", "goal"}
    assert shown.keys() - of_a_function_alone == record.keys() - of_the_record_alone
    command = defaults_of(inspect.signature(COMMANDS[name]))
    command = {OTHER_WORDS.get(option, option): value for option, value in command.items()}
    notebook = notebook_parameters(find_notebook(NOTEBOOKS[name])) if name in NOTEBOOKS else {}
    for parameter, default in shown.items():
        if parameter in record:
            assert record[parameter] == default, parameter
        if parameter in notebook and parameter != "store":  # relative to the notebook there
            assert notebook[parameter] == default, parameter
        if parameter not in ("quiet", "loose"):
            assert command[parameter] == default, parameter
