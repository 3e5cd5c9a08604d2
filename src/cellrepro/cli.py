"""The command line: every verb calls what a notebook could call.

Progress and messages go to standard error; with ``--json`` standard output is one JSON document.
"""

from __future__ import annotations

import errno
import functools
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere, whole
from cellrepro.lab import defaults
from cellrepro.show import answers

if TYPE_CHECKING:
    from cellrepro.lab.run import Outcome

_INTERRUPTED = 130  # as shells report Ctrl-C
_SHORT = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)

app = typer.Typer(
    help="The reproducibility lab for Cellpose: is it the same, where does it differ, does it "
    "matter, how is it pinned.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _verb(name: str | None = None) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """A command whose result is its exit code, and whose refusals are one message."""

    def decorate(function: Callable[..., int]) -> Callable[..., None]:
        @app.command(name)
        @functools.wraps(function)
        def command(*args: Any, **kwargs: Any) -> None:
            try:
                code = function(*args, **kwargs)
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
                code = _complain("interrupted; what was finished is kept", _INTERRUPTED)
            raise typer.Exit(code)

        return command

    return decorate


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"cellrepro: {message}\n")
    return code


def _answer(as_json: bool, document: dict[str, Any], lines: Iterable[str]) -> None:
    sys.stdout.write(answers.as_text(document) if as_json else "\n".join(lines) + "\n")
    sys.stdout.flush()


# -- options -------------------------------------------------------------------------------

DataArgument = Annotated[str, Argument(help="folder of images in Cellpose's convention")]
StoreOption = Annotated[str, Option("--store", help="folder of finished runs")]
JsonOption = Annotated[bool, Option("--json", help="one JSON document on standard output")]
ModelOption = Annotated[
    str, Option(help="tiny, a name of Cellpose's, a weights file, or KEY/REPEAT")
]
SeedOption = Annotated[int, Option(help="for Python, NumPy, PyTorch and initial weights")]
ProfileOption = Annotated[str, Option(help="a profile's name, or a .yaml file")]
ModeOption = Annotated[str, Option(help="fast, warn or strict")]
DataSeedOption = Annotated[str, Option(help="of image order and augmentation; or cellpose")]
LedgerOption = Annotated[
    str, Option(help="digests of every step: steps; of every operation: ops; off")
]
BatchSizeOption = Annotated[int, Option(help="images a step")]
RepeatsOption = Annotated[int, Option(help="how often; 2 or more give a verdict")]
ImagesPerEpochOption = Annotated[
    int | None, Option(help="drawn; default all once, tiny at least 48")
]


def _data_seed(text: str) -> Any:
    try:
        return text if text == "cellpose" else int(text)
    except ValueError:
        raise BadInput(f"--data-seed is {text!r}; expected `cellpose` or a whole number") from None


def _steps(text: str | None) -> list[int] | None:
    """Numbers and ranges: ``0,17`` or ``0-9``."""
    if text is None:
        return None
    steps: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            steps += range(int(first), int(last if dash else first) + 1)
        except ValueError:
            raise BadInput(
                f"--operation-steps is {text!r}; expected numbers of steps: 0,17 or 0-9"
            ) from None
    return steps


def _overrides(pairs: list[str]) -> dict[str, Any]:
    import yaml

    chosen = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        try:
            chosen[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise BadInput(f"--set {pair!r}: the value is not YAML: {error}") from error
        if not equals or not name:
            raise BadInput(f"--set {pair!r}; expected NAME=VALUE")
    return chosen


# -- verbs ---------------------------------------------------------------------------------


@_verb()
def doctor(
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    seed: SeedOption = defaults.SEED,
    warning: Annotated[str | None, Option(help="explain a pasted warning of PyTorch")] = None,
    model: Annotated[str, Option(help="with --warning: whose training")] = defaults.MODEL,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Say what of this host, process and profile is not reproducible, and the remedy."""
    from cellrepro.lab.doctor import Finding, diagnose
    from cellrepro.lab.explain_warning import explain_warning

    if warning is None:
        found = diagnose(profile=profile, mode=mode, seed=seed)
        _answer(as_json, *answers.diagnosis(found))
        return found.exit_code
    from cellrepro.determinism import profiles
    from cellrepro.store import platform

    explained = explain_warning(warning, profile=profile, mode=mode, model=model, store=store)
    harmless = explained.affects is False
    level: Any = "info" if harmless else "warning"
    document = {
        "host": platform.host(),
        "profile": {**profiles.load(profile).model_dump(mode="json"), "mode": mode},
        "findings": [Finding(level, explained.meaning, explained.remedy)],
        "ok": harmless,
        "warning": explained,
    }
    _answer(as_json, document, [explained.sentence()])
    return 0


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
    as_json: JsonOption = False,
) -> int:
    """Replay every operation of training steps on equal inputs; report those that flip."""
    given = {**locals(), "data_seed": _data_seed(data_seed)}
    for name in ("effect", "epochs", "images_per_epoch", "as_json"):
        del given[name]
    from cellrepro.lab.audit_training import audit_training, with_effects

    if effect:
        whole("effect", effect, least=2)
    found = audit_training(**given)
    if not as_json:
        _answer(False, *answers.audit(found))
    try:
        if effect:
            trained = {"epochs": epochs, "images_per_epoch": images_per_epoch}
            same: dict[str, Any] = {"model": model, "profile": profile, "store": store}
            for latest in with_effects(found, data, repeats=effect, **trained, **same):
                found = latest
    finally:  # also when it is interrupted: what was found is told
        if as_json:
            _answer(True, *answers.audit(found))
        elif effect:
            _answer(False, {}, answers.effects(found))
    return 1 if found.ops or not found.n_replays else 0


@_verb()
def train(
    data: DataArgument,
    model: ModelOption = defaults.MODEL,
    seed: SeedOption = defaults.SEED,
    data_seed: DataSeedOption = defaults.DATA_SEED,
    epochs: Annotated[int, Option(help="2 or more; 1 trains nothing")] = defaults.EPOCHS,
    batch_size: BatchSizeOption = defaults.BATCH_SIZE,
    learning_rate: Annotated[float | None, Option(help="default 1e-3 for tiny, else 1e-5")] = None,
    images_per_epoch: ImagesPerEpochOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    repeats: RepeatsOption = defaults.TRAININGS,
    ledger: LedgerOption = defaults.LEDGER,
    loose: Annotated[str | None, Option(help="left as it is in mode strict: index_put")] = None,
    resume: Annotated[bool, Option("--resume", help="go on where it was killed")] = False,
    checkpoint_every: Annotated[int | None, Option(help="epochs apart; 0: none; tiny: 1")] = None,
    keep_checkpoints: Annotated[
        bool, Option("--keep-checkpoints", help="in the stored run")
    ] = False,
    operation_steps: Annotated[str | None, Option(help="for --ledger ops: 0,17 or 0-9")] = None,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Train one spec several times and say whether the repeats came out the same."""
    given = dict(locals())  # every option has the name of its parameter
    from cellrepro.lab.run import train as run_training

    del given["as_json"]
    given |= {"data_seed": _data_seed(data_seed), "operation_steps": _steps(operation_steps)}
    return _tell_outcome(run_training(**given), as_json)


@_verb()
def segment(
    data: DataArgument,
    model: ModelOption = defaults.MODEL,
    seed: SeedOption = defaults.SEED,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    repeats: RepeatsOption = defaults.SEGMENTATIONS,
    ledger: LedgerOption = defaults.LEDGER,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Segment the same images several times and say whether every mask is the same."""
    given = dict(locals())
    from cellrepro.lab.run import segment as run_segmentation

    del given["as_json"]
    return _tell_outcome(run_segmentation(**given), as_json)


def _tell_outcome(outcome: Outcome, as_json: bool) -> int:

    _answer(as_json, *answers.outcome(outcome))
    return 0 if outcome.judgement.overall in (None, "identical") else 1


@_verb()
def compare(
    a: Annotated[str, Argument(help="KEY, KEY/REPEAT, masks, a folder, weights")],
    b: Annotated[str, Argument(help="the other one; of one KEY two repeats")],
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Compare two runs, masks, folders of masks or weights files."""
    from cellrepro.lab.compare_results import compare as compare_two

    found = compare_two(a, b, store=store)
    _answer(as_json, *answers.comparison(found))
    return 0 if found.verdict == "identical" and not found.differs else 1


@_verb()
def diverge(
    a: Annotated[str, Argument(help="KEY or KEY/REPEAT of the store")],
    b: Annotated[str, Argument(help="the other one; of one KEY two repeats")],
    data: Annotated[str | None, Option(help="the images, if they have moved")] = None,
    again: Annotated[bool, Option(help="re-execute the diverging step")] = True,
    repetitions: Annotated[int, Option(help="of the diverging step")] = 20,
    suspects: Annotated[int, Option(help="of operations known to race")] = 200,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Name the first place where two runs diverge: stage, step, operation and line."""
    given = dict(locals())
    from cellrepro.lab.divergence.find import diverge as diverge_two

    del given["as_json"]
    found = diverge_two(given.pop("a"), given.pop("b"), **given)
    _answer(as_json, *answers.divergence(found))
    return 0 if found.first is None and found.verdict != "vacuous" else 1


@_verb()
def grid(
    file: Annotated[str, Argument(help="a grid of specs, YAML")],
    workers: Annotated[int | None, Option(help="default one per device")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="say what would run")] = False,
    override: Annotated[
        list[str] | None,
        Option("--set", help="NAME=VALUE, or NAME=[A, B] for an axis"),
    ] = None,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Carry out a grid of specs through papermill; finished ones are not run again."""
    from cellrepro.lab.grid import planned, read_grid, run_grid

    checked = read_grid(file, store=store, overrides=_overrides(override or []))
    runs = planned(checked) if dry_run else run_grid(checked, workers=workers)
    _answer(as_json, {"runs": runs}, map(answers.grid_run, runs))
    return 1 if any(run.status == "failed" for run in runs) else 0


@_verb()
def report(store: StoreOption = defaults.STORE, as_json: JsonOption = False) -> int:
    """Write the cross-device report over everything in the store."""
    from cellrepro.show.report.build import write_report

    written = write_report(store)
    document = {"html": written.html, "runs": written.runs, "groups": written.groups}
    _answer(as_json, document, [written.sentence, f"report: {written.html}"])
    return 0


@_verb("list")
def list_runs(store: StoreOption = defaults.STORE, as_json: JsonOption = False) -> int:
    """List what the store holds."""
    from cellrepro.store.store import Store

    _answer(as_json, *answers.stored(Store(store).runs()))
    return 0


@_verb()
def data(
    name: Annotated[str, Argument(help="synthetic, or a public set; none lists them")] = "",
    folder: Annotated[str, Option("--into", help="where data sets are kept")] = "data",
    mirror: Annotated[
        str | None,
        Option(help="URL of a folder with the archives"),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Make the synthetic images, or fetch a named public set, under data/."""
    from cellrepro.images import public_sets

    if not name:
        known = public_sets.describe_all()
        _answer(as_json, {"sets": known}, (f"{key}: {text}" for key, text in known.items()))
        return 0
    path = public_sets.provide(name, data_dir=Path(folder), mirror=mirror)
    _answer(as_json, {"folder": path}, [str(path)])
    return 0


@_verb()
def notebooks(
    folder: Annotated[str, Argument(help="a new folder, which gets notebooks/ and grids/")],
    as_json: JsonOption = False,
) -> int:
    """Copy out the notebooks and grids that the package brings."""
    from cellrepro.lab.notebook_process import copy_brought

    files = copy_brought(Path(folder))
    _answer(as_json, {"files": files}, map(str, files))
    return 0


@_verb()
def demo(
    data: DataArgument = "data/synthetic",
    model: ModelOption = defaults.MODEL,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Do everything once: a network, the demo grid over it, every notebook, the report."""
    from cellrepro.demo import run_demo

    made = run_demo(data, store=store, model=model)
    report = made.report
    document = {
        "base": made.base.key,
        "runs": made.runs,
        "notebooks": made.notebooks,
        "report": None if report is None else report.html,
        "stopped": made.stopped,
    }
    _answer(
        as_json, document, [] if report is None else [report.sentence, f"report: {report.html}"]
    )
    return 0 if made.stopped is None else _complain(made.stopped, 1)


def main() -> None:
    """Run the command line; the contract's exit codes, and no traceback for a user's mistake."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, io.StringIO())
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # where there is no dash: \u2013
    app()
