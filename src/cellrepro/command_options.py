"""The options of every command, read from the source of its function, which is not imported.

To import all commands takes seconds, and some of them need the network.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import get_args

from cyclopts import Parameter

from cellrepro import terminal, terminal_values
from cellrepro.commands import BY_WORDS, Command

_PACKAGE = Path(__file__).parent
_ANNOTATIONS = {**vars(terminal), **vars(terminal_values)}


def commands_with(option: str) -> list[str]:
    """Name the commands that have an option, as ``--html``."""
    return [name for name, command in BY_WORDS.items() if option in options_of(command)]


def options_of(command: Command) -> list[str]:
    """Name the options of a command, those in place of its words left out."""
    return list(_options(_signature(command)))


def _signature(command: Command) -> ast.arguments:
    module, _, function = command.function.partition(":")
    source = _PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return next(
        node.args
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == function
    )


def _options(signature: ast.arguments) -> Iterator[str]:
    n_with_default = min(len(signature.args), len(signature.defaults))
    by_place = signature.args[len(signature.args) - n_with_default :]
    for argument in (*by_place, *signature.kwonlyargs):
        marks = list(_marks(argument.annotation))
        named = chain.from_iterable(mark.name or () for mark in marks)
        if all(mark.parse is not False for mark in marks):
            yield next(named, f"--{argument.arg.replace('_', '-')}")


def _marks(annotation: ast.expr | None) -> Iterator[Parameter]:
    """What the type of a parameter says of how a terminal writes it."""
    for node in ast.walk(annotation or ast.Constant(None)):
        if isinstance(node, ast.Name):
            known = _ANNOTATIONS.get(node.id)
            yield from (mark for mark in (known, *get_args(known)) if isinstance(mark, Parameter))
        elif isinstance(node, ast.Call):  # of Parameter, as it is written there
            for one in node.keywords:
                if one.arg == "name":
                    yield Parameter(name=ast.literal_eval(one.value))
