"""The command line: every command is a public function, imported when it is called.

Progress and messages go to standard error; with ``--json`` standard output is one JSON document.
"""

from __future__ import annotations

import errno
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, get_args

from cyclopts import App, Group, Parameter
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from cellrepro.command_lines import shell_line
from cellrepro.commands import BY_WORDS, COMMANDS, OF_BASELINE
from cellrepro.errors import CellreproError, no_such_file
from cellrepro.fitted_lines import fitted
from cellrepro.lab_elsewhere import carried_out
from cellrepro.spec.defaults import STORED_CHECKPOINTS
from cellrepro.stated import carrying_out
from cellrepro.version import __version__
from samebits.errors import BadInput, NotPossibleHere, without_number
from samebits.results import Result
from samebits.shown_text import visible
from samebits.words import some, verb_of

if TYPE_CHECKING:
    from cyclopts.help import DefaultFormatter

app = App(
    name="cellrepro",
    help="The reproducibility lab for Cellpose: are two results the same, where do they differ, "
    "why, and does it matter?",
    version=f"cellrepro {__version__}",
    help_epilogue="With --json every command writes one JSON document instead of text.",
    # Of the list of commands, which is plain: Markdown takes longer to load than all else together.
    help_format="plaintext",
    version_format="plaintext",
    default_parameter=Parameter(negative=()),
    result_action="return_value",
)


baseline = App(name="baseline", help="Hold later masks to earlier ones.")


def _register() -> None:
    """Give every command to the application by its path, which is imported when it is called."""
    for place, (title, commands) in enumerate(COMMANDS.items(), start=1):
        group = Group(title, sort_key=place)
        for name, command in commands.items():
            app.command(
                f"cellrepro.{command.function}",
                name=name,
                group=group,
                help=command.words,
                help_format="markdown",
            )
        if title == "Two files":
            baseline.group = group
            app.command(baseline)
    for name, command in OF_BASELINE.items():
        path = f"cellrepro.{command.function}"
        baseline.command(path, name=name, help=command.words, help_format="markdown")
    app.command(
        "cellrepro.completion:install",
        name="--install-completion",
        help="Install shell completion for this application.",
    )


_register()

_BEGIN = """
Begin with two masks of one image:
    cellrepro compare a_masks.tif b_masks.tif --image cells.tif
or drop them on a page in the browser:
    cellrepro open
"""
_SHORT_OF_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)
_REMEDIES = {
    errno.ENOENT: "check the spelling of the path, and whether the file is still there",
    errno.EACCES: "ask for permission to read and write there, or name a path of your own",
    errno.EPERM: "ask for permission to read and write there, or name a path of your own",
    errno.EROFS: "nothing can be written there: name a path on another disk",
    errno.EISDIR: "a folder is there, and a file was expected: name another path",
    errno.ENOTDIR: "a file is there, and a folder was expected: name another path",
    errno.EEXIST: "something is there already, and nothing is overwritten: name another path",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.EMFILE: "too many files are open: end other programs, or raise the limit (ulimit -n)",
    errno.ENOMEM: "end other programs, or use a machine with more memory",
    errno.ENOSPC: "make room on that disk, or name a path on another one",
    errno.EDQUOT: "make room on that disk, or name a path on another one",
    errno.EIO: "the disk does not answer: look whether it is connected and whole",
    errno.ESTALE: "the network's disk does not answer: connect it again",
}
_FRACTION = re.compile(r"[+-]?\d*\.0*[1-9]\d*")
_ANY_NUMBER = inspect.Parameter.VAR_POSITIONAL
_EXPECTED: dict[object, str] = {int: "a whole number", float: "a number"}
_LEAST_LIKE = 0.7  # of an option to a word, as difflib counts, where it is spelled like that
_MOST_COMMANDS = 6
_INTERRUPTION = "interrupted; what was finished is kept"
_INTERRUPTED = 130  # as shells report Ctrl-C


def main() -> None:
    """Run the command line; the contract's exit codes, and no traceback for a user's mistake."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, io.StringIO())
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # where there is no dash: \u2013
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Carry one command line out, and return its exit code."""
    end = words.index("--") if "--" in words else len(words)
    own = [word for word in words[:end] if word != "--json"]  # the rest is another program's
    as_json = len(own) < end
    own = [_completed(word, after) for word, after in zip_longest(own, own[1:])]
    try:
        try:
            _refuse_fractions(own)
            command, bound, _ = app.parse_args(
                [*own, *words[end:]], exit_on_error=False, print_error=False
            )
        except ImportError as error:  # cyclopts', of a command whose own module lacks the lab
            with carrying_out(words, ()):
                return carried_out(own[0], {}, work=partial(_fail, error.__cause__ or error))
        if isinstance(getattr(command, "__self__", None), App):  # --help, --version
            app.help_formatter = narrow_panels()
            name_optional_places(own)
            command(*bound.args, **bound.kwargs)
            sys.stdout.write(examples(own))
            return 0
        name = " ".join(app.parse_commands(own)[0])
        _refuse_missing_store(name, bound.arguments.get("store"))
        with carrying_out(words, bound.arguments):
            return carried_out(
                name,
                {**_defaults(command), **bound.arguments},
                work=lambda: _say(command(*bound.args, **bound.kwargs), as_json=as_json),
            )
    except UnknownCommandError:  # whose message would import every command
        return complain(_unknown_command(own), BadInput.exit_code)
    except CycloptsError as error:
        return complain(_usage(error), BadInput.exit_code)
    except CellreproError as error:
        return complain(str(error), error.exit_code)
    except BrokenPipeError:  # whoever read our output has enough
        # Python flushes what is left when it ends, and would complain of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a path that the system refuses, or a full disk
        kind = NotPossibleHere if error.errno in _SHORT_OF_ROOM else BadInput
        usual = "look whether the path is there and can be read and written, and try again"
        remedy = usual if error.errno is None else _REMEDIES.get(error.errno, usual)
        return complain(f"{without_number(error)}; {remedy}", kind.exit_code)
    except MemoryError as error:
        return complain(f"memory is short: {error}", NotPossibleHere.exit_code)
    except KeyboardInterrupt:
        return complain(_INTERRUPTION, _INTERRUPTED)


def _refuse_missing_store(command: str, store: str | None) -> None:
    """Refuse a store that was named and is not there, where the whole answer is about it."""
    known = BY_WORDS.get(command)
    if store is None or known is None or not known.is_of_store or os.path.lexists(store):
        return
    raise no_such_file(store, expected="that of a store", noun="folder")


def _fail(error: BaseException) -> int:
    raise error


def narrow_panels() -> DefaultFormatter:
    """The panels of help, without room at their sides."""
    from cyclopts.help import DefaultFormatter, PanelSpec  # with Rich, which only help needs

    return DefaultFormatter(panel_spec=PanelSpec(padding=(0, 0)))


def name_optional_places(words: Sequence[str]) -> None:
    """Let the usage of a command name each argument that may be left out, not ``[ARGS]`` alone."""
    from cyclopts.help import format_usage

    flags = (*app.help_flags, *app.version_flags)
    chain, apps, _ = app.parse_commands([word for word in words if word not in flags])
    if any(one is apps[-1] for one in (app, baseline)):  # which list their commands
        return
    names = [
        argument.field_info.name.upper() + "..." * (argument.field_info.kind == _ANY_NUMBER)
        for argument in apps[-1].assemble_argument_collection()
        if argument.index is not None and not argument.required
    ]
    if names:
        usage = format_usage(app, chain, execution_path=apps).plain.strip()
        apps[-1].usage = re.sub(r"\[ARGS(\.\.\.)?\]", f"[{'] ['.join(names)}]", usage)


def _completed(word: str, after: str | None) -> str:
    """``--keep-checkpoints`` alone means all of them."""
    is_bare = word == "--keep-checkpoints" and after not in STORED_CHECKPOINTS
    return f"{word}=all" if is_bare else word


def _unknown_command(words: Sequence[str]) -> str:
    is_baseline = words[0] == "baseline"
    group = baseline if is_baseline else app
    word = next(word for word in words[is_baseline:] if word not in group)
    if word.startswith("-"):
        command = next((one for one in words if one in group), "COMMAND")
        whole = f"baseline {command}" if is_baseline else command
        return (
            f"{word} stands before the command; options come after it: `cellrepro {whole} {word} …`"
        )
    names = [name for name in group if not name.startswith("-")]
    near = get_close_matches(word, names, 1)
    proposal = f"do you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
    return f"there is no command {word!r}; {proposal}"


def _usage(error: CycloptsError) -> str:
    """Say what is wrong with the words of a command; places have the names of its help."""
    command = " ".join(["cellrepro", *(error.command_chain or ())])
    if isinstance(error, CoercionError):
        # Of a conversion of `terminal` the cause says it all.
        return str(error.__cause__) if isinstance(error.__cause__, BadInput) else _wrong_word(error)
    if isinstance(error, UnusedCliTokensError):
        unused = list(error.unused_tokens or ())
        words = ", ".join(map(repr, unused))
        remedy = f"see `{command} --help`"
        if unused and all("=" in word for word in unused):
            remedy = f"write the option anew before each, as in `--set A=1 --set B=2`; {remedy}"
        elif len(unused) == 1 and _takes_store_alone(error.command_chain):
            given = shell_line([*command.split(), "--store", unused[0]])
            remedy = f"a store is named by an option: `{given}`"
        return f"{words}: more words than `{command}` takes; {remedy}"
    if isinstance(error, UnknownOptionError):
        return _unknown_option(error, command)
    if error.argument is None:
        return str(error)
    is_by_place = error.argument.index is not None
    name = error.argument.field_info.name.upper() if is_by_place else error.argument.name
    if isinstance(error, ValidationError) and error.exception_message:
        return f"{name} is {error.exception_message}"
    if isinstance(error, MissingArgumentError):
        short = command.removeprefix("cellrepro ")  # with which the message begins
        missing = f"{short} needs {name}" if is_by_place else f"{name} needs a value"
        meaning = _meaning_of(error.command_chain or (), name) if is_by_place else ""
        said = f". {name}: {meaning}" if meaning else ""
        return f"{missing}; see `{command} --help`{said}"
    return str(error)


def _takes_store_alone(command: Sequence[str] | None) -> bool:
    """Whether a command has the option ``--store``, and takes no word by its place."""
    _, apps, _ = app.parse_commands(command)
    arguments = apps[-1].assemble_argument_collection()
    has_store = any("--store" in argument.names for argument in arguments)
    return has_store and all(argument.index is None for argument in arguments)


def _unknown_option(error: UnknownOptionError, command: str) -> str:
    """Say which commands have an option, and which one of this command is spelled like it."""
    from cellrepro.command_options import commands_with  # which reads the source of them all
    from cellrepro.spec.segmentation_settings import NAMES

    option = (error.token.keyword or error.token.value).partition("=")[0]
    names = [name for one in error.argument_collection if one.parse for name in one.names]
    by_letters = {name.lstrip("-"): name for name in names}
    word = option.lstrip("-")
    near = [name for name in by_letters if "".join(part[0] for part in name.split("-")) == word]
    near = near or get_close_matches(word, by_letters, 1, _LEAST_LIKE)
    places = [
        argument.field_info.name.upper()
        for argument in error.argument_collection
        if argument.index is not None
    ]
    if word.upper() in places:
        usage = " ".join([command, *places])
        return f"`{command}` takes {word.upper()} without {option}: `{usage}`"
    elsewhere = [f"`cellrepro {name}`" for name in commands_with(option)]
    has_it = f"{some(elsewhere, _MOST_COMMANDS)} {verb_of(len(elsewhere), 'has', 'have')} it"
    told = [has_it] if elsewhere else []
    told += [f"do you mean {by_letters[name]}?" for name in near[:1]]
    setting = word.replace("-", "_")
    if "--set" in names and setting in NAMES:
        told = [f"settings of Cellpose's eval are given as `--set {setting}=VALUE`"]
    return "; ".join([f"`{command}` has no option {option}", *told, f"see `{command} --help`"])


def _wrong_word(error: CoercionError) -> str:
    token = error.token
    choices = get_args(error.target_type)
    expected = _EXPECTED.get(error.target_type)
    if token is None or token.keyword is None or not (choices or expected):
        return str(error)
    if choices:
        near = get_close_matches(token.value, choices, 1)
        proposal = f"; do you mean {near[0]}?" if near else ""
        expected = f"one of {', '.join(map(str, choices))}{proposal}"
    return f"{token.keyword} is {token.value!r}; expected {expected}"


def _refuse_fractions(words: Sequence[str]) -> None:
    """Refuse a fraction as the value of a whole number, which cyclopts 5.5.2 rounds."""
    given = [pair for pair in pairwise(words) if pair[0].startswith("--")]
    given += [(name, value) for name, _, value in (word.partition("=") for word in words)]
    given = [(name, value) for name, value in given if _FRACTION.fullmatch(value)]
    if not given:
        return
    _, apps, _ = app.parse_commands(words)
    whole = {
        name
        for argument in apps[-1].assemble_argument_collection()
        if int in {argument.hint, *get_args(argument.hint)}
        for name in argument.names
    }
    for name, value in given:
        if name in whole:
            raise BadInput(f"{name} is {value!r}; expected {_EXPECTED[int]}")


def _meaning_of(command: Sequence[str], name: str) -> str:
    """What help says of an argument that has no name on the command line."""
    _, apps, _ = app.parse_commands(command)
    arguments = apps[-1].assemble_argument_collection(parse_docstring=True)
    meanings = (str(one.parameter.help or "") for one in arguments if one.name == name)
    return next(meanings, "").replace("``", "`")


def examples(words: Sequence[str]) -> str:
    """The examples of a command, from its docstring, below its help; of none, where to begin."""
    _, apps, _ = app.parse_commands([word for word in words if word not in app.help_flags])
    if apps[-1] is app:
        return _BEGIN
    function = apps[-1].default_command
    _, _, section = (inspect.getdoc(function) or "").partition("\nExamples\n--------\n")
    lines = [line for line in section.splitlines() if line]
    indented = [f"    {line.strip('`')}" if line[0] == "`" else f"  {line}" for line in lines]
    return "".join(f"{line}\n" for line in ("", "Examples:", *indented)) if lines else ""


def _defaults(command: Callable[..., object]) -> dict[str, object]:
    parameters = inspect.signature(command).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _say(answer: object, *, as_json: bool) -> int:
    """Print a result, and return the exit code that it ends with."""
    if answer is None:  # a command of cyclopts, which has said all
        return 0
    assert isinstance(answer, Result), answer
    if as_json:
        sys.stdout.write(answer.as_json())
    else:
        sys.stdout.write(fitted(answer.as_text(), sys.stdout))
    sys.stdout.flush()
    if getattr(answer, "interrupted", False):
        return complain(_INTERRUPTION, _INTERRUPTED)
    return answer.exit_code


def complain(message: str, code: int) -> int:
    """Say a message on standard error, and return the exit code."""
    sys.stderr.write(fitted(f"cellrepro: {visible(message)}\n", sys.stderr))
    return code
