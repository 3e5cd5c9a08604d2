"""What every verb of the command line shares: its answer, its exit code, and how it refuses."""

from __future__ import annotations

import errno
import functools
import inspect
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any, TextIO

import typer

from cellrepro.asked.choices import STORED_CHECKPOINTS
from cellrepro.cli.examples import examples_text
from cellrepro.cli.lab import GIVEN, carried_out
from cellrepro.cli.shared_options import JsonOption
from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.results import Result
from cellrepro.show.answers.answer import Answer
from cellrepro.version import __version__
from cellrepro.words import visible, wrapped


@dataclass(frozen=True)
class Reply:
    """What a verb says, and the exit code that it ends with."""

    answer: Answer[Any] | Result
    given_code: int | None = None
    """In place of the one that a result has by itself."""

    @property
    def exit_code(self) -> int:
        """0, `DIFFERS`, or another one of the contract; see `code_for`."""
        if self.given_code is not None:
            return self.given_code
        return self.answer.exit_code if isinstance(self.answer, Result) else 0


DIFFERS = 1
"""Exit code of an answer that a script must notice: things differ, or nothing could be shown."""
INTERRUPTED = "interrupted; what was finished is kept"
INTERRUPTED_CODE = 130  # as shells report Ctrl-C
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


def _remedy(error: OSError) -> str:
    """What to do about an error of the system that no verb has foreseen."""
    usual = "look whether the path is there and can be read and written, and try again"
    return usual if error.errno is None else _REMEDIES.get(error.errno, usual)


def code_for(differs: bool) -> int:
    """Give the exit code of an answer: `DIFFERS` or 0."""
    return DIFFERS if differs else 0


_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Two files": ("compare", "explore", "describe", "baseline"),
    "Segment and train": ("segment", "train", "wrap", "wrap-python", "grid", "watch"),
    "Find the cause": ("explain", "sensitivity", "tiles", "diverge", "growth", "audit", "doctor"),
    "Hand on": ("export", "import", "verify", "track"),
    "The store": ("list", "report", "fsck"),
    "Set up": ("setup", "data", "notebooks", "demo"),
}
"""Commands by what they are for, as ``--help`` lists them."""


class _Commands(typer.core.TyperGroup):
    """Its ``--keep-checkpoints`` alone means ``all``; its help lists commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        in_groups = {name for names in _GROUPS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in in_groups)
        for title, names in {**_GROUPS, "Others": others}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [
                (name, command.get_short_help_str(200)) for name, command in commands if command
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        GIVEN.set(tuple(args))
        bare = "--keep-checkpoints"
        end = args.index("--") if "--" in args else len(args)
        own = args[:end]  # what follows are the words of another program
        completed = [
            f"{word}=all" if word == bare and next_word not in STORED_CHECKPOINTS else word
            for word, next_word in zip_longest(own, own[1:])
        ]
        return super().parse_args(ctx, completed + args[end:])


app = typer.Typer(
    cls=_Commands,
    help="The reproducibility lab for Cellpose: are two results the same, where do they differ, "
    "why, and does it matter?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"cellrepro {__version__}\n")
        raise typer.Exit


@app.callback()
def _before_any_verb(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


baseline = typer.Typer(name="baseline", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(baseline, help="Check later results against a small file.")


def verb(
    name: str | None = None, *, group: typer.Typer = app
) -> Callable[[Callable[..., Reply]], Callable[..., None]]:
    """Make a command with ``--json`` of a function that replies, or refuses."""

    def decorate(function: Callable[..., Reply]) -> Callable[..., None]:
        own_name = name or function.__name__
        full_name = own_name if group is app else f"{group.info.name} {own_name}"

        @functools.wraps(function)
        def command(*, as_json: bool, **options: Any) -> None:  # as Typer passes them
            try:
                code = carried_out(
                    own_name,
                    options,
                    work=lambda: _said(function(**options), as_json=as_json),
                )
            except CellreproError as error:
                code = complain(str(error), error.exit_code)
            except BrokenPipeError:
                raise  # whoever read our output has enough; typer ends quietly
            except OSError as error:  # a path that the system refuses, or a full disk
                kind = NotPossibleHere if error.errno in _SHORT_OF_ROOM else BadInput
                code = complain(f"{error}; {_remedy(error)}", kind.exit_code)
            except MemoryError as error:
                code = complain(f"memory is short: {error}", NotPossibleHere.exit_code)
            except KeyboardInterrupt:
                code = complain(INTERRUPTED, INTERRUPTED_CODE)
            raise typer.Exit(code)

        signature = inspect.signature(function, eval_str=True)
        option = inspect.Parameter(
            "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption
        )
        parameters = [*signature.parameters.values(), option]
        command.__signature__ = signature.replace(  # type: ignore[attr-defined]  # Typer reads it
            parameters=parameters
        )
        group.command(
            name,
            short_help=(function.__doc__ or "").partition("\n")[0],  # whole, where Typer cuts it
            epilog=examples_text(full_name),
        )(command)
        return command

    return decorate


def _said(reply: Reply, *, as_json: bool) -> int:
    """Print a reply, and return the exit code that it ends with."""
    answer = reply.answer
    text = answer.as_json() if as_json else answer.as_text()
    sys.stdout.write(text if as_json else _fitting(text, sys.stdout))
    sys.stdout.flush()
    return reply.exit_code


def complain(message: str, code: int) -> int:
    """Say a message on standard error, and return the exit code."""
    sys.stderr.write(_fitting(f"cellrepro: {visible(message)}\n", sys.stderr))
    return code


def _fitting(text: str, stream: TextIO) -> str:
    """A text that no terminal has to break inside a word; a file gets it as it is."""
    return wrapped(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def is_given(context: typer.Context, name: str) -> bool:
    """Whether a user wrote an option, rather than that it has its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def given_options(context: typer.Context) -> frozenset[str]:
    """The options that a user wrote, by the names of the function's parameters."""
    return frozenset(name for name in context.params if is_given(context, name))


def refuse_idle(
    context: typer.Context, names: Sequence[str], why: str, *, instead: str = "leave it out"
) -> None:
    """Refuse those of some options that are given, as they would do nothing."""
    idle = [name for name in names if is_given(context, name)]
    if idle:
        options = ["--set" if name == "settings" else f"--{name}" for name in idle]
        listed = ", ".join(option.replace("_", "-") for option in options)
        raise BadInput(f"{listed} would do nothing {why}; {instead}")
