"""The command line as tests see it: every command with its arguments and options, and a call."""

import inspect
import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache

from docstring_parser import parse

from cellrepro.cli import app, run


@dataclass(frozen=True)
class Parameter:
    """Something that a command takes: by its place, or by a name."""

    name: str
    """In Python."""
    options: tuple[str, ...]
    is_argument: bool
    help: str


@dataclass(frozen=True)
class Command:
    """A command, under the words that follow the name of the program."""

    words: tuple[str, ...]
    function: Callable
    parameters: tuple[Parameter, ...]

    @property
    def arguments(self):
        return [one for one in self.parameters if one.is_argument]

    @property
    def options(self):
        return [one for one in self.parameters if not one.is_argument]

    def read(self, words):
        """What the command would be called with, by name; what a user would read is raised."""
        given = [*self.words, *map(str, words)]
        _, bound, _ = app.parse_args(given, exit_on_error=False, print_error=False)
        defaults = {
            one.name: one.default
            for one in inspect.signature(self.function).parameters.values()
            if one.default is not one.empty
        }
        return {**defaults, **bound.arguments}


def commands(group=app, words=()):
    """Every command, those of a group one after the other."""
    for name in group:
        if name.startswith("-"):
            continue
        part = group[name]
        if part.default_command is None:
            yield from commands(part, (*words, name))
        else:
            yield Command((*words, name), part.default_command, tuple(_parameters(part)))


@cache
def command_named(*words):
    return next(command for command in commands() if command.words == words)


def _parameters(part):
    entries = parse(part.default_command.__doc__).params
    helps = {one.arg_name.lstrip("*"): one.description for one in entries}
    for one in part.assemble_argument_collection():
        if one.parameter.parse is False:
            continue
        name = one.field_info.name
        kind = one.field_info.kind
        is_argument = kind is not inspect.Parameter.KEYWORD_ONLY and (
            kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD
            or one.field_info.default is inspect.Parameter.empty
        )
        words = helps.get(name) or ""
        # The last of these words is another thing than the others.
        for own_name in ("runs", "file") if name == "runs_and_file" else (name,):
            yield Parameter(own_name, tuple(one.names), is_argument, words)


def carried_out(*words):
    """The exit code of a command in this process, and what it said on both streams."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(word) for word in words])
    said = out.getvalue() + err.getvalue()
    strange = strange_options([str(word) for word in words], said)
    assert not strange, f"{words[0]} has no {strange}, and names them: {said}"
    return code, out.getvalue(), err.getvalue()


_WHOLE_COMMAND = re.compile(
    r"""`?\b(?:cellrepro|samebits|python[\d.]*|pip|cellpose|uv) (?:'[^']*'|"[^"]*"|[^`\n'"])*"""
)
"""A command as a user types it, in backticks or to the end of its line, which quotes may span."""
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_SHARE_ADVICE = frozenset({"compare", "explain"})
"""Commands that print each other's sentences, and so name each other's options."""
_OF_EVERY_COMMAND = frozenset({"--json", "--help", "--version"})


def strange_options(words, said):
    """The options that a command names in what it says and does not have, whole commands apart."""
    if not words or words[0] not in _SHARE_ADVICE or "--json" in words:
        return []
    names = {name for one in command_named(words[0]).options for name in one.options}
    given = {word.partition("=")[0] for word in words}
    plain = _WHOLE_COMMAND.sub("", said)
    return sorted({*_OPTION.findall(plain)} - names - given - _OF_EVERY_COMMAND)
