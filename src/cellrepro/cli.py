"""The command line: every verb calls what a notebook could call.

Progress and messages go to standard error; with ``--json`` standard output is one JSON document.
"""

from __future__ import annotations

import errno
import functools
import inspect
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.errors import BadInput, CellreproError, NotPossibleHere, whole
from cellrepro.lab import defaults
from cellrepro.show import answers

if TYPE_CHECKING:
    from cellrepro.lab.run import Outcome

Told = tuple[answers.Answer, int]
"""An answer, and the exit code."""

_INTERRUPTED = ("interrupted; what was finished is kept", 130)  # as shells report Ctrl-C
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


def _verb(name: str | None = None) -> Callable[[Callable[..., Told]], Callable[..., None]]:
    """A command with ``--json``; a function returns its answer and exit code, or refuses."""

    def decorate(function: Callable[..., Told]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*, as_json: bool, **given: Any) -> None:
            try:
                (document, lines), code = function(**given)
                sys.stdout.write(answers.as_text(document) if as_json else "\n".join(lines) + "\n")
                sys.stdout.flush()
            except CellreproError as error:
                code = _complain(str(error), error.exit_code)
            except BrokenPipeError:
                raise  # whoever read our output has enough; typer ends quietly
            except OSError as error:  # a path that the system refuses, or a full disk
                kind = NotPossibleHere if error.errno in _SHORT else BadInput
                code = _complain(f"{error}; name another path or make room", kind.exit_code)
            except MemoryError as error:
                code = _complain(f"memory is short: {error}", NotPossibleHere.exit_code)
            except KeyboardInterrupt:
                code = _complain(*_INTERRUPTED)
            raise typer.Exit(code)

        own = inspect.signature(function, eval_str=True)
        option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)
        parameters = [*own.parameters.values(), option.replace(annotation=JsonOption)]
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        app.command(name)(command)
        return command

    return decorate


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"cellrepro: {message}\n")
    return code


# -- options -------------------------------------------------------------------------------

DataArgument = Annotated[str, Argument(help="folder of images in Cellpose's convention")]
StoreOption = Annotated[str, Option("--store", help="folder of finished runs")]
OtherArgument = Annotated[str, Argument(help="the other one; of one KEY two repeats")]
JsonOption = Annotated[bool, Option("--json", help="one JSON document on standard output")]
_MODELS = "tiny, tiny-4, tiny-8, tiny-12, vit-l, a Cellpose name, a weights file, or KEY/REPEAT"
ModelOption = Annotated[str, Option(help=_MODELS)]
SeedOption = Annotated[
    int | None, Option(help="for Python, NumPy, PyTorch and initial weights; default 0")
]
ProfileOption = Annotated[str, Option(help="a profile's name, or a .yaml file")]
ModeOption = Annotated[str, Option(help="off (plain Cellpose, no seed), fast, warn or strict")]
DataSeedOption = Annotated[str, Option(help="of image order and augmentation; or cellpose")]
LedgerOption = Annotated[str, Option(help="digests of every step: steps; operation: ops; off")]
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


def _steps(text: str) -> list[int]:
    """Numbers and ranges: ``0,17`` or ``0-9``."""
    steps: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            steps += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        raise BadInput(f"--operation-steps is {text!r}; expected steps: 0,17 or 0-9") from None
    return steps


def _yaml(option: str, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise BadInput(f"{option} is {text!r}; expected a value in YAML") from None


def _overrides(pairs: list[str], option: str = "--set") -> dict[str, Any]:
    chosen = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{option} is {pair!r}; expected NAME=VALUE, with a value in YAML")
        chosen[name] = _yaml(f"{option} {name}", value)
    return chosen


# -- verbs ---------------------------------------------------------------------------------


@_verb()
def doctor(
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    seed: SeedOption = defaults.SEED,
    warning: Annotated[str | None, Option(help="explain a pasted warning of PyTorch")] = None,
    model: ModelOption = defaults.MODEL,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Say what of this host, process and profile is not reproducible, and the remedy."""
    if warning is None:
        found = cellrepro.diagnose(profile=profile, mode=mode, seed=seed)
        return answers.diagnosis(found), found.exit_code
    from cellrepro.determinism import profiles
    from cellrepro.lab.doctor import Finding, explain_warning
    from cellrepro.store import platform

    explained = explain_warning(warning, profile=profile, mode=mode, model=model, store=store)
    ok = explained.affects is False
    document = {
        "host": platform.host(),
        "profile": {**profiles.load(profile).model_dump(mode="json"), "mode": mode},
        "findings": [Finding("info" if ok else "warning", explained.meaning, explained.remedy)],
        "ok": ok,
        "warning": explained,
    }
    return (document, [explained.sentence()]), 0


@_verb()
def audit(
    data: DataArgument,
    model: ModelOption = defaults.MODEL,
    seed: SeedOption = defaults.SEED,
    data_seed: DataSeedOption = defaults.DATA_SEED,
    batch_size: BatchSizeOption = defaults.BATCH_SIZE,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = "fast",
    steps: Annotated[int | None, Option(help="to audit; default 3")] = None,
    replays: Annotated[int | None, Option(help="of each operation; default 8")] = None,
    suspects: Annotated[int | None, Option(help="of those known to race; default 200")] = None,
    threads: Annotated[int | None, Option(help="instead of the profile's")] = None,
    effect: Annotated[int, Option(help="trainings with each flipping operation left loose")] = 0,
    epochs: Annotated[int, Option(help="of these trainings")] = defaults.EPOCHS,
    images_per_epoch: ImagesPerEpochOption = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Replay every operation of training steps on equal inputs; report those that flip."""
    given: dict[str, Any] = dict(locals())
    of_training = {name: given.pop(name) for name in ("epochs", "images_per_epoch")}
    if given.pop("effect"):
        whole("effect", effect, least=2)
    found = cellrepro.audit_training(**given)
    code = 1 if found.ops or not found.n_replays else 0
    if not effect:
        return answers.audit(found), code
    sys.stderr.write(f"{found.sentence}\n")
    of_training |= {"model": model, "profile": profile, "store": store}
    try:
        for latest in cellrepro.with_effects(found, data, repeats=effect, **of_training):
            found = latest
    except KeyboardInterrupt:  # what was found is told
        code = _complain(*_INTERRUPTED)
    document, lines = answers.audit(found)
    return (document, [*lines, *answers.effects(found)]), code


@_verb()
def train(
    context: typer.Context,
    data: DataArgument,
    model: ModelOption = defaults.MODEL,
    seed: SeedOption = None,
    data_seed: DataSeedOption = defaults.DATA_SEED,
    epochs: Annotated[int, Option(help="2 or more; 1 trains nothing")] = defaults.EPOCHS,
    batch_size: BatchSizeOption = defaults.BATCH_SIZE,
    learning_rate: Annotated[
        float | None, Option(help="default 1e-3 for small networks, else 1e-5")
    ] = None,
    images_per_epoch: ImagesPerEpochOption = None,
    weight_decay: Annotated[float | None, Option(help="default 0.1")] = None,
    min_train_masks: Annotated[int | None, Option(help="else an image is left out; 5")] = None,
    rescale: Annotated[bool | None, Option(help="images to the usual size of cells")] = None,
    scale_range: Annotated[float | None, Option(help="of sizes shown; default 0.5")] = None,
    normalize: Annotated[bool | None, Option(help="off: images as they are stored")] = None,
    train_probs: Annotated[str | None, Option(help="by image, else 1: '{NAME: 3}'")] = None,
    nimg_test_per_epoch: Annotated[int | None, Option(help="drawn for the test loss")] = None,
    augmentation: Annotated[bool | None, Option(help="off: images as they are")] = None,
    ranks: Annotated[int | None, Option(help="processes that share each batch; 1")] = None,
    sgd: Annotated[bool | None, Option("--SGD", help="refused, as Cellpose ignores it")] = None,
    bsize: Annotated[int | None, Option(help="refused, but for 256 pixels")] = None,
    class_weights: Annotated[str | None, Option(help="refused, as there is one class")] = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    repeats: RepeatsOption = defaults.TRAININGS,
    ledger: LedgerOption = defaults.LEDGER,
    loose: Annotated[str | None, Option(help="left as it is in mode strict: index_put")] = None,
    resume: Annotated[bool, Option("--resume", help="go on where it was killed")] = False,
    checkpoint_every: Annotated[
        int | None, Option(help="epochs apart; 0: none; small networks: 1")
    ] = None,
    keep_checkpoints: Annotated[
        str, Option(metavar="[none|last|all]", help="in the store; without a word all")
    ] = "none",
    continued_from: Annotated[
        str | None, Option("--continue", help="KEY/REPEAT that kept its last checkpoint")
    ] = None,
    operation_steps: Annotated[str | None, Option(help="for --ledger ops: 0,17 or 0-9")] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Train one spec several times and say whether the repeats came out the same."""
    given = {n: value for n, value in locals().items() if value is not None and n != "context"}
    if continued_from is not None:  # what is not given is as it was
        source = context.get_parameter_source
        given = {n: v for n, v in given.items() if getattr(source(n), "name", "") != "DEFAULT"}
        if "repeats" in given:
            raise BadInput("--continue adds one repeat; leave --repeats out")
    if operation_steps is not None:
        given["operation_steps"] = _steps(operation_steps)
    if sgd is not None:
        given["SGD"] = given.pop("sgd")
    for name in {"train_probs", "class_weights"} & given.keys():
        given[name] = _yaml(f"--{name.replace('_', '-')}", given[name])
    return _told(cellrepro.train(**given))


@_verb()
def segment(
    data: DataArgument,
    model: ModelOption = defaults.MODEL,
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    settings: SettingsOption = None,
    batch_size: Annotated[int | None, Option(help="tiles at once; 8, as Cellpose's")] = None,
    cellpose: Annotated[str | None, Option(help="another version, in its own environment")] = None,
    repeats: RepeatsOption = defaults.SEGMENTATIONS,
    ledger: LedgerOption = defaults.LEDGER,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Segment the same images several times and say whether every mask is the same."""
    given = {name: value for name, value in locals().items() if value is not None}
    return _told(cellrepro.segment(**given | {"settings": _overrides(settings or [])}))


def _told(outcome: Outcome) -> Told:
    return answers.outcome(outcome), int(outcome.judgement.overall not in (None, "identical"))


@_verb()
def compare(
    a: Annotated[str, Argument(help="KEY, KEY/REPEAT, masks, a folder, weights")],
    b: OtherArgument,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Compare two runs, masks, folders of masks or weights files."""
    from cellrepro.lab import compare_results

    found = compare_results.compare(a, b, store=store)
    code = 0 if found.verdict == "identical" and not found.differs else 1
    return answers.comparison(found), code


@_verb()
def diverge(
    a: Annotated[str, Argument(help="KEY or KEY/REPEAT of the store")],
    b: OtherArgument,
    data: Annotated[str | None, Option(help="the images, if they have moved")] = None,
    again: Annotated[bool, Option(help="re-execute the diverging step")] = True,
    repetitions: Annotated[int, Option(help="of the diverging step")] = 20,
    suspects: Annotated[int, Option(help="of operations known to race")] = 200,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Name the first place where two runs diverge: stage, step, operation and line."""
    found = cellrepro.diverge(**locals())
    code = 0 if found.first is None and found.verdict != "vacuous" else 1
    return answers.divergence(found), code


@_verb()
def growth(
    a: Annotated[str, Argument(help="KEY or KEY/REPEAT, trained with --keep-checkpoints")],
    b: OtherArgument,
    masks: Annotated[int, Option(help="at how many epochs")] = defaults.MASKS_ON_THE_WAY,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Follow two runs with checkpoints: weights, pixels, cells and scores by epoch."""
    names = (repeat.name for repeat in cellrepro.Store(store).find_two(a, b))
    return answers.growth(cellrepro.growth(a, b, n_masks=masks, store=store), *names), 0


@_verb()
def grid(
    file: Annotated[str, Argument(help="a grid of specs, YAML")],
    workers: Annotated[
        int | None, Option(help="at once; default one per GPU, or as the cores allow")
    ] = None,
    scheduler: Annotated[str | None, Option(help="of Dask: tcp://HOST:PORT")] = None,
    slurm: Annotated[str | None, Option(help="YAML with options of Slurm jobs")] = None,
    time_limit: Annotated[float | None, Option(help="minutes that a repeat may take")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="say what would run")] = False,
    override: Annotated[list[str] | None, Option("--set", help="NAME=VALUE, NAME=[A, B]")] = None,
    repeats: Annotated[int | None, Option(help="of every spec; default as in the file")] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Carry out a grid of specs through papermill; finished ones are not run again."""
    from cellrepro.lab.grid.estimate import with_estimates
    from cellrepro.lab.grid.file import read_grid
    from cellrepro.lab.grid.point import BADLY
    from cellrepro.lab.grid.pool import planned, run_grid
    from cellrepro.show.live_table import live_table

    given = _overrides(override or [])
    checked = read_grid(file, store=store, overrides=given, repeats=repeats)
    if dry_run:
        return answers.grid_runs(with_estimates(checked, planned(checked))), 0
    where: dict[str, Any] = {"workers": workers, "scheduler": scheduler, "slurm": slurm}
    with live_table(store) as watched:
        runs = run_grid(checked, minutes=time_limit, quiet=watched, **where)
    return answers.grid_runs(runs), int(any(run.status in BADLY for run in runs))


@_verb()
def watch(store: StoreOption = defaults.STORE) -> Told:
    """Show how the grids of a store stand; in a terminal until they end."""
    from cellrepro.show.live_table import as_lines, follow

    statuses = follow(store)
    return ({"grids": statuses}, as_lines(statuses, store)), 0


@_verb()
def report(store: StoreOption = defaults.STORE) -> Told:
    """Write the cross-device report over everything in the store."""
    written = cellrepro.write_report(store)
    document = {"html": written.html, "runs": written.runs, "groups": written.groups}
    return (document, [written.sentence, f"report: {written.html}"]), 0


@_verb("list")
def list_runs(
    where: Annotated[list[str] | None, Option(help="NAME=VALUE: only runs that have it")] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """List what the store holds: all of it, or what has certain values."""
    wanted = _overrides(where or [], "--where")
    return answers.stored(cellrepro.Store(store).runs(), wanted), 0


@_verb()
def data(
    name: Annotated[str, Argument(help="synthetic, or a public set; none lists them")] = "",
    folder: Annotated[str, Option("--into", help="where data sets are kept")] = "data",
    mirror: Annotated[str | None, Option(help="URL of a folder with the archives")] = None,
    images: Annotated[int | None, Option(help="synthetic: how many, for a benchmark")] = None,
    size: Annotated[int | None, Option(help="synthetic: pixels along an edge")] = None,
    cells: Annotated[int | None, Option(help="synthetic: how many in each image")] = None,
) -> Told:
    """Make the synthetic images, or fetch a named public set, under data/."""
    from cellrepro.images import public_sets

    if (images, size, cells) != (None, None, None):
        if name != public_sets.SYNTHETIC or mirror is not None:
            raise BadInput(f"--images, --size and --cells are of synthetic images, not of {name!r}")
        path = public_sets.write_benchmark(Path(folder), images=images, size=size, cells=cells)
        return ({"folder": path}, [str(path)]), 0
    if not name:
        known = public_sets.describe_all()
        return ({"sets": known}, (f"{key}: {text}" for key, text in known.items())), 0
    path = public_sets.provide(name, data_dir=Path(folder), mirror=mirror)
    return ({"folder": path}, [str(path)]), 0


@_verb()
def notebooks(folder: FolderArgument) -> Told:
    """Copy out the notebooks and grids that the package brings."""
    from cellrepro.lab.notebook_process import copy_brought

    files = copy_brought(Path(folder))
    return ({"files": files}, map(str, files)), 0


@_verb()
def demo(
    data: DataArgument = "data/synthetic",
    model: ModelOption = defaults.MODEL,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Do everything once: a network, the demo grid over it, every notebook, the report."""
    from cellrepro.demo import run_demo

    made = run_demo(data, store=store, model=model)
    document = {**vars(made), "base": made.base.key, "report": made.report.html}
    return (document, [made.report.sentence, f"report: {made.report.html}"]), 0


def main() -> None:
    """Run the command line; the contract's exit codes, and no traceback for a user's mistake."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, io.StringIO())
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # where there is no dash: \u2013
    app()
