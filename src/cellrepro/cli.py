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

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere, whole
from cellrepro.lab import defaults

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
    from cellrepro.show.answers import as_text

    sys.stdout.write(as_text(document) if as_json else "\n".join(lines) + "\n")
    sys.stdout.flush()


# -- options -------------------------------------------------------------------------------

DataArgument = Annotated[str, typer.Argument(help="folder of images in Cellpose's convention")]
StoreOption = Annotated[str, typer.Option("--store", help="folder of finished runs")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON document on standard output")]
ModelOption = Annotated[
    str, typer.Option(help="tiny, a Cellpose model name, a weights file, or KEY/REPEAT of a run")
]
SeedOption = Annotated[int, typer.Option(help="for Python, NumPy, PyTorch and initial weights")]
ProfileOption = Annotated[str, typer.Option(help="a profile's name, or a .yaml file")]
ModeOption = Annotated[str, typer.Option(help="fast, warn or strict")]
DataSeedOption = Annotated[
    str, typer.Option(help="for image order and augmentation; `cellpose` is Cellpose's own")
]
LedgerOption = Annotated[
    str, typer.Option(help="steps: digests of every step; ops: of every operation too; off")
]
BatchSizeOption = Annotated[int, typer.Option(help="images a step")]
RepeatsOption = Annotated[int, typer.Option(help="how often; 2 or more give a verdict")]
ImagesPerEpochOption = Annotated[
    int | None, typer.Option(help="draws an epoch; default every image once, tiny at least 48")
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
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise BadInput(f"--operation-steps is {text!r}; expected numbers of steps: 0,17 or 0-9")
        steps += range(int(first), int(last if dash else first) + 1)
    return steps


def _overrides(pairs: list[str]) -> dict[str, Any]:
    import yaml

    chosen = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {pair!r}; expected NAME=VALUE")
        try:
            chosen[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise BadInput(f"--set {pair!r}: the value is not YAML: {error}") from error
    return chosen


# -- verbs ---------------------------------------------------------------------------------


@_verb()
def doctor(
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    seed: SeedOption = defaults.SEED,
    warning: Annotated[
        str | None, typer.Option(help="explain this warning of PyTorch instead, as it was pasted")
    ] = None,
    model: Annotated[
        str, typer.Option(help="with --warning: whose training it came from")
    ] = defaults.MODEL,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Say what of this host, process and profile is not reproducible, and the remedy."""
    from cellrepro.lab.doctor import Finding, diagnose
    from cellrepro.lab.explain_warning import explain_warning
    from cellrepro.show import answers

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
    steps: Annotated[int | None, typer.Option(help="training steps to audit; default 3")] = None,
    replays: Annotated[
        int | None, typer.Option(help="how often each operation is run again; default 8")
    ] = None,
    suspects: Annotated[
        int | None, typer.Option(help="how often those documented to race, if more; default 200")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads, instead of the profile's")
    ] = None,
    effect: Annotated[
        int, typer.Option(help="trainings with each flipping operation alone left loose; 2 or more")
    ] = 0,
    epochs: Annotated[int, typer.Option(help="of these trainings")] = defaults.EPOCHS,
    images_per_epoch: ImagesPerEpochOption = None,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Replay every operation of training steps on equal inputs; report those that flip."""
    from cellrepro.lab.audit_training import audit_training, with_effects
    from cellrepro.show import answers

    if effect:
        whole("effect", effect, least=2)
    common: dict[str, Any] = {"model": model, "profile": profile, "store": store}
    found = audit_training(
        data,
        seed=seed,
        data_seed=_data_seed(data_seed),
        batch_size=batch_size,
        mode=mode,
        steps=steps,
        replays=replays,
        suspects=suspects,
        threads=threads,
        **common,
    )
    if not as_json:
        _answer(False, *answers.audit(found))
    try:
        if effect:
            trained = {"epochs": epochs, "images_per_epoch": images_per_epoch, **common}
            for latest in with_effects(found, data, repeats=effect, **trained):
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
    epochs: Annotated[int, typer.Option(help="2 or more; 1 trains nothing")] = defaults.EPOCHS,
    batch_size: BatchSizeOption = defaults.BATCH_SIZE,
    learning_rate: Annotated[
        float | None, typer.Option(help="peak; default 1e-3 for tiny, 1e-5 otherwise")
    ] = None,
    images_per_epoch: ImagesPerEpochOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    repeats: RepeatsOption = defaults.TRAININGS,
    ledger: LedgerOption = defaults.LEDGER,
    loose: Annotated[
        str | None, typer.Option(help="one operation that mode strict leaves as it is: index_put")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with this training where it was killed")
    ] = False,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="epochs between checkpoints, 0 for none; default 1 for tiny")
    ] = None,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="store all of them with the run")
    ] = False,
    operation_steps: Annotated[
        str | None, typer.Option(help="steps of --ledger ops: 0,17 or 0-9; default all")
    ] = None,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Train one spec several times and say whether the repeats came out the same."""
    given = dict(locals())  # every option has the name of its parameter
    from cellrepro.lab.run import train as run_training

    del given["as_json"]
    given["data_seed"] = _data_seed(data_seed)
    given["operation_steps"] = _steps(operation_steps)
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
    from cellrepro.compare.verdicts import Verdict
    from cellrepro.show import answers

    _answer(as_json, *answers.outcome(outcome))
    return 0 if outcome.judgement.overall in (None, Verdict.IDENTICAL) else 1


@_verb()
def compare(
    a: Annotated[
        str, typer.Argument(help="KEY, KEY/REPEAT, a mask file, a folder, a weights file")
    ],
    b: Annotated[
        str, typer.Argument(help="the other one, of the same kind; the same KEY: its two repeats")
    ],
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Compare two runs, masks, folders of masks or weights files."""
    from cellrepro.compare.verdicts import Verdict
    from cellrepro.lab.compare_results import compare as compare_two
    from cellrepro.show import answers

    found = compare_two(a, b, store=store)
    _answer(as_json, *answers.comparison(found))
    return 0 if found.verdict == Verdict.IDENTICAL and not found.differs else 1


@_verb()
def diverge(
    a: Annotated[str, typer.Argument(help="KEY or KEY/REPEAT of the store")],
    b: Annotated[str, typer.Argument(help="the other one; the same KEY means its two repeats")],
    data: Annotated[
        str | None, typer.Option(help="folder of the images, if it is no longer where it was")
    ] = None,
    again: Annotated[
        bool, typer.Option(help="go through the diverging step again to name the operation")
    ] = True,
    repetitions: Annotated[
        int, typer.Option(help="how often to repeat that step until it diverges from itself")
    ] = 20,
    suspects: Annotated[
        int, typer.Option(help="how often operations known to race are re-executed then")
    ] = 200,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Name the first place where two runs diverge: stage, step, operation and line."""
    given = dict(locals())
    from cellrepro.compare.verdicts import Verdict
    from cellrepro.lab.divergence.find import diverge as diverge_two
    from cellrepro.show import answers

    del given["as_json"]
    found = diverge_two(given.pop("a"), given.pop("b"), **given)
    _answer(as_json, *answers.divergence(found))
    return 0 if found.first is None and found.verdict != Verdict.VACUOUS else 1


@_verb()
def grid(
    file: Annotated[str, typer.Argument(help="a grid of specs, YAML")],
    workers: Annotated[
        int | None, typer.Option(help="specs at the same time; default one per device")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would run")] = False,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="NAME=VALUE replaces a parameter of the file, NAME=[A, B] an axis"
        ),
    ] = None,
    store: StoreOption = defaults.STORE,
    as_json: JsonOption = False,
) -> int:
    """Carry out a grid of specs through papermill; finished ones are not run again."""
    from cellrepro.lab.grid import planned, read_grid, run_grid
    from cellrepro.show import answers

    checked = read_grid(file, store=store, overrides=_overrides(override or []))
    if dry_run:
        runs = planned(checked, store=store)
    else:
        runs = run_grid(checked, store=store, workers=workers)
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
    from cellrepro.show import answers
    from cellrepro.store.store import Store

    _answer(as_json, *answers.stored(Store(store).runs()))
    return 0


@_verb()
def data(
    name: Annotated[str, typer.Argument(help="synthetic, or a public set; none lists them")] = "",
    folder: Annotated[str, typer.Option("--into", help="where data sets are kept")] = "data",
    mirror: Annotated[
        str | None,
        typer.Option(help="URL of a folder with the set's archives, for its publisher's"),
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
    folder: Annotated[str, typer.Argument(help="a new folder, which gets notebooks/ and grids/")],
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
    lines = [] if report is None else [report.sentence, f"report: {report.html}"]
    _answer(as_json, document, lines)
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
