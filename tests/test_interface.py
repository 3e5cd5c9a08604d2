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
from cellrepro.run.options import SegmentationOptions, TrainingOptions, WrapOptions

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


@pytest.mark.parametrize(
    ("name", "options"),
    [("train", TrainingOptions), ("segment", SegmentationOptions), ("wrap_python", WrapOptions)],
)
def test_a_signature_has_the_options_of_its_task(name, options):
    """With the same defaults: a signature is what Jupyter shows, and the model is what is meant."""
    signature = inspect.signature(FUNCTIONS[name]).parameters
    of_the_call = {"function", "repeats", "quiet", "masks_into"}
    of_the_command_line = {"stated"}
    usual = {field: info.default for field, info in options.model_fields.items()}
    assert signature.keys() - of_the_call == usual.keys() - of_the_command_line
    del usual["data"]
    assert {field: signature[field].default for field in usual if field in signature} == {
        field: value for field, value in usual.items() if field in signature
    }
