"""What every verb of the command line shares: answers, exit codes, and options."""

from __future__ import annotations

import errno
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.show.answers.answer import Answer
from cellrepro.show.answers.runs import run_answer

if TYPE_CHECKING:
    from cellrepro.run.outcome import Outcome

Told = tuple[Answer[Any], int]
"""An answer, and the exit code."""

INTERRUPTED = ("interrupted; what was finished is kept", 130)  # as shells report Ctrl-C
_SHORT = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)


class _Commands(typer.core.TyperGroup):
    """Its ``--keep-checkpoints`` alone means ``all``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        bare, words = "--keep-checkpoints", ("none", "last", "all")
        following = [*args[1:], ""]
        given = [
            f"{one}=all" if one == bare and after not in words else one
            for one, after in zip(args, following, strict=True)
        ]
        return super().parse_args(ctx, given)


app = typer.Typer(
    cls=_Commands,
    help="The reproducibility lab for Cellpose: is it the same, where does it differ, does it "
    "matter, how is it pinned.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


baseline = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(baseline, name="baseline", help="Hold later results to a small file.")


def verb(
    name: str | None = None, *, of: typer.Typer = app
) -> Callable[[Callable[..., Told]], Callable[..., None]]:
    """A command with ``--json``; a function returns its answer and exit code, or refuses."""

    def decorate(function: Callable[..., Told]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*, as_json: bool, **given: Any) -> None:
            try:
                answer, code = function(**given)
                sys.stdout.write(answer.as_json() if as_json else answer.as_text())
                sys.stdout.flush()
            except CellreproError as error:
                code = complain(str(error), error.exit_code)
            except BrokenPipeError:
                raise  # whoever read our output has enough; typer ends quietly
            except OSError as error:  # a path that the system refuses, or a full disk
                kind = NotPossibleHere if error.errno in _SHORT else BadInput
                code = complain(f"{error}; name another path or make room", kind.exit_code)
            except MemoryError as error:
                code = complain(f"memory is short: {error}", NotPossibleHere.exit_code)
            except KeyboardInterrupt:
                code = complain(*INTERRUPTED)
            raise typer.Exit(code)

        own = inspect.signature(function, eval_str=True)
        option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)
        parameters = [*own.parameters.values(), option.replace(annotation=JsonOption)]
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        of.command(name)(command)
        return command

    return decorate


def complain(message: str, code: int) -> int:
    """Say it on standard error; the exit code."""
    sys.stderr.write(f"cellrepro: {message}\n")
    return code


def told(outcome: Outcome) -> Told:
    """An outcome, and whether its repeats differ."""
    return run_answer(outcome), int(outcome.judgement.overall not in (None, "identical"))


# -- options -------------------------------------------------------------------------------

DataArgument = Annotated[str, Argument(help="folder of images in Cellpose's convention")]
StoreOption = Annotated[str, Option("--store", help="folder of finished runs")]
OtherArgument = Annotated[str, Argument(help="the other one; of one KEY two repeats")]
JsonOption = Annotated[bool, Option("--json", help="one JSON document on standard output")]
MODELS = (
    "tiny, tiny-4, tiny-8, tiny-12, vit-b, vit-l, a Cellpose name, a weights file, or KEY/REPEAT"
)
ModelOption = Annotated[str, Option(help=MODELS)]
SeedOption = Annotated[
    int | None,
    Option(help="for Python, NumPy, PyTorch and initial weights; default 0, none in mode off"),
]
PROFILES = (
    "cpu, cpu-1thread, cpu-avx2, cpu-baseline, cpu-bfloat16, cpu-noonednn, cpu-portable, cuda, "
    "mps, cellpose-default, cellpose-default-cuda"
)
"""Those of `cellrepro.determinism.profiles.names`, which is not imported to show a help text."""
ProfileOption = Annotated[str, Option(help=f"{PROFILES}, or a .yaml file")]
ModeOption = Annotated[
    str,
    Option(
        metavar="[off|fast|warn|strict]",
        help="off: plain Cellpose, no seed; fast: seeds alone; warn; strict: nothing may race",
    ),
]
DataSeedOption = Annotated[str, Option(help="of image order and augmentation; or cellpose")]
LedgerOption = Annotated[
    str, Option(metavar="[off|steps|ops]", help="digests of no, every step, or every operation")
]
BatchSizeOption = Annotated[int, Option(help="images a step")]
RepeatsOption = Annotated[int, Option(help="how often; 2 or more give a verdict")]
ImagesPerEpochOption = Annotated[
    int | None, Option(help="drawn; default all, small networks at least 48")
]
SettingsOption = Annotated[
    list[str] | None,
    Option("--set", help="a setting of CellposeModel.eval: diameter=60, normalize.sharpen=4"),
]
FolderArgument = Annotated[str, Argument(help="a new folder, which gets notebooks/ and grids/")]


def refuse_idle(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Refuse options that a user wrote where they would do nothing.

    Parameters
    ----------
    context : typer.Context
        Of the verb.
    names : sequence of str
        Parameters of the verb that do nothing here.
    why : str
        Ends the sentence "--model would do nothing …".

    Raises
    ------
    BadInput
        If one of them was written.
    """
    written = [name for name in names if is_given(context, name)]
    if written:
        options = ["--set" if name == "settings" else f"--{name}" for name in written]
        listed = ", ".join(option.replace("_", "-") for option in options)
        raise BadInput(f"{listed} would do nothing {why}; leave it out")


def is_given(context: typer.Context, name: str) -> bool:
    """Whether a user wrote an option, rather than that it has its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def steps_in(text: str) -> list[int]:
    """Numbers and ranges: ``0,17`` or ``0-9``."""
    steps: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            steps += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        raise BadInput(f"--operation-steps is {text!r}; expected steps: 0,17 or 0-9") from None
    return steps


def in_yaml(option: str, text: str) -> Any:
    """The value of an option, written in YAML."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise BadInput(f"{option} is {text!r}; expected a value in YAML") from None


def overrides(pairs: list[str], option: str = "--set") -> dict[str, Any]:
    """``NAME=VALUE`` pairs, the values in YAML."""
    chosen = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{option} is {pair!r}; expected NAME=VALUE, with a value in YAML")
        chosen[name] = in_yaml(f"{option} {name}", value)
    return chosen
