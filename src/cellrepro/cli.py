"""The command line: every verb calls what a notebook could call.

Progress and messages go to standard error; with ``--json`` standard output is one JSON document.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

import cellrepro
import cellrepro.cli_masks
from cellrepro.asked import defaults
from cellrepro.command import (
    INTERRUPTED,
    BatchSizeOption,
    DataArgument,
    DataSeedOption,
    FolderArgument,
    ImagesPerEpochOption,
    LedgerOption,
    ModelOption,
    ModeOption,
    OtherArgument,
    ProfileOption,
    RepeatsOption,
    SeedOption,
    SettingsOption,
    StoreOption,
    Told,
    app,
    baseline,
    complain,
    in_yaml,
    is_given,
    overrides,
    refuse_idle,
    steps_in,
    told,
    verb,
)
from cellrepro.errors import BadInput, Damaged, whole
from cellrepro.show.answers.answer import Answer
from cellrepro.show.answers.audit import (
    effect_lines,
    segmentation_audit_answer,
    training_audit_answer,
)
from cellrepro.show.answers.baseline import baseline_check_answer, saved_baseline_answer
from cellrepro.show.answers.comparison import comparison_answer
from cellrepro.show.answers.description import description_answer
from cellrepro.show.answers.divergence import divergence_answer
from cellrepro.show.answers.doctor import diagnosis_answer
from cellrepro.show.answers.grid import grid_answer
from cellrepro.show.answers.growth import growth_answer
from cellrepro.show.answers.stored_runs import stored_runs_answer


@verb()
def doctor(
    context: typer.Context,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    seed: SeedOption = None,
    warning: Annotated[str | None, Option(help="explain a pasted warning of PyTorch")] = None,
    model: ModelOption = defaults.MODEL,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Say what of this host, process and profile is not reproducible, and the remedy."""
    if warning is None:
        refuse_idle(context, ["model"], "without --warning")
        found = cellrepro.diagnose(profile=profile, mode=mode, seed=seed)
        return diagnosis_answer(found), found.exit_code
    from cellrepro.audits.doctor import Finding
    from cellrepro.determinism import profiles
    from cellrepro.store import this_machine

    explained = cellrepro.explain_warning(
        warning, profile=profile, mode=mode, model=model, store=store
    )
    ok = explained.affects is False
    document = {
        "host": this_machine.host(),
        "profile": {**profiles.load(profile).model_dump(mode="json"), "mode": mode},
        "findings": [Finding("info" if ok else "warning", explained.meaning, explained.remedy)],
        "ok": ok,
        "warning": explained,
    }
    return Answer(document, [explained.sentence()]), 0


@verb()
def audit(
    context: typer.Context,
    data: DataArgument,
    model: ModelOption = defaults.MODEL,
    seed: SeedOption = None,
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
    task: Annotated[str, Option(metavar="[train|segment]", help="what is audited")] = "train",
    settings: SettingsOption = None,
    function: Annotated[
        str | None, Option(help="MODULE:FUNCTION, segments in the place of Cellpose")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Replay every operation of training steps, or of a segmentation; report those that flip."""
    given: dict[str, Any] = dict(locals())
    del given["context"]
    asked, task, wrapped = (given.pop(name) for name in ("settings", "task", "function"))
    _refuse_what_is_not_audited(context, task, wrapped, effect)
    if task == "segment" or wrapped:
        for name in ("data_seed", "batch_size", "effect", "epochs", "images_per_epoch"):
            del given[name]
        if wrapped:
            del given["model"]
            seen = cellrepro.audit_function(wrapped, **given)
        else:
            seen = cellrepro.audit_segmentation(**given, settings=overrides(asked or []))
        flips = bool(seen.ops) or not seen.n_replays or seen.depends_on_batch
        return segmentation_audit_answer(seen), int(flips)
    of_training = {name: given.pop(name) for name in ("epochs", "images_per_epoch")}
    if given.pop("effect"):
        whole("effect", effect, least=2)
    found = cellrepro.audit_training(**given)
    code = 1 if found.ops or not found.n_replays else 0
    if not effect:
        return training_audit_answer(found), code
    sys.stderr.write(f"{found.sentence}\n")
    of_training |= {"model": model, "profile": profile, "store": store}
    try:
        for latest in cellrepro.with_effects(found, data, repeats=effect, **of_training):
            found = latest
    except KeyboardInterrupt:  # what was found is told
        code = complain(*INTERRUPTED)
    answer = training_audit_answer(found)
    return Answer(answer.document, [*answer.lines, *effect_lines(found)]), code


_OF_AUDITED_TRAINING = ("data_seed", "batch_size", "effect", "epochs", "images_per_epoch")
"""Options of `audit` that do something where a training is audited alone."""


def _refuse_what_is_not_audited(
    context: typer.Context, task: str, function: str | None, effect: int
) -> None:
    """Refuse options of `audit` that would do nothing beside the others that are given."""
    if task not in ("train", "segment"):
        raise BadInput(f"--task is {task!r}; expected train or segment")
    if function is not None:
        idle: tuple[str, ...] = (*_OF_AUDITED_TRAINING, "model", "settings")
        why = "beside --function, which segments in the place of Cellpose"
    elif task == "segment":
        idle = _OF_AUDITED_TRAINING
        why = "with --task segment, whose batch size is --set batch_size=4"
    else:
        idle = ("settings",) if effect else ("settings", "epochs", "images_per_epoch")
        why = "where a training is audited: --set is of --task segment, --epochs and "
        why += "--images-per-epoch of the trainings of --effect"
    refuse_idle(context, idle, why)


@verb()
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
    operation_steps: Annotated[
        str | None, Option(help="for --ledger ops: 0,17 or 0-9; their operations are judged, too")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Train one spec several times and say whether the repeats came out the same."""
    given = {n: value for n, value in locals().items() if value is not None and n != "context"}
    if continued_from is not None:  # what is not given is as it was
        given = {name: value for name, value in given.items() if is_given(context, name)}
        if "repeats" in given:
            raise BadInput("--continue adds one repeat; leave --repeats out")
        given["stated"] = frozenset(given)
    if operation_steps is not None:
        given["operation_steps"] = steps_in(operation_steps)
    if sgd is not None:
        given["SGD"] = given.pop("sgd")
    for name in {"train_probs", "class_weights"} & given.keys():
        given[name] = in_yaml(f"--{name.replace('_', '-')}", given[name])
    if continued_from is not None:
        from cellrepro.run.options import TrainingOptions
        from cellrepro.run.train import train_with

        return told(train_with(TrainingOptions(**given)))
    return told(cellrepro.train(**given))


@verb()
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
    masks_into: Annotated[
        str | None, Option(help="a folder for NAME_masks.tif, and NAME_masks.json: how made")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Segment the same images several times and say whether every mask is the same."""
    given = {name: value for name, value in locals().items() if value is not None}
    given.pop("masks_into", None)
    outcome = cellrepro.segment(**given | {"settings": overrides(settings or [])})
    if masks_into is not None:
        from cellrepro.changes.settings_file import write_masks

        write_masks(outcome.repeats[0], Path(masks_into))
    return told(outcome)


@verb()
def compare(
    a: Annotated[str, Argument(help="KEY, KEY/REPEAT, masks, _seg.npy, folder, baseline, weights")],
    b: OtherArgument,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Compare two runs, masks, folders of masks, baselines or weights files."""
    found = cellrepro.compare(a, b, store=store)
    code = 0 if found.verdict == "identical" and not found.differs else 1
    return comparison_answer(found), code


@verb()
def describe(
    file: Annotated[str, Argument(help="a file, KEY, KEY/REPEAT, or a model's name")],
    store: StoreOption = defaults.STORE,
) -> Told:
    """Say what a file is (weights, masks, _seg.npy, baseline), and how Cellpose loads it."""
    return description_answer(cellrepro.describe(file, store=store)), 0


@verb("save", of=baseline)
def save_baseline(
    run: Annotated[str, Argument(help="KEY, KEY/REPEAT, masks or a folder")],
    file: Annotated[str, Argument(help="a new file")],
    propose: Annotated[
        str | None, Option(help="limits from stored spread: repeats, seed, machine …")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Save masks, settings and digests as one small file."""
    record = cellrepro.save_baseline(run, file, propose=propose, store=store)
    return saved_baseline_answer(record, file), 0


@verb("check", of=baseline)
def check_baseline(
    file: Annotated[str, Argument(help="of cellrepro baseline save")],
    masks: Annotated[str, Argument(help="masks, a folder, KEY or KEY/REPEAT")],
    max_ppm: Annotated[float | None, Option(help="differing pixels of an image")] = None,
    max_changed: Annotated[float | None, Option(help="share of the cells")] = None,
    max_lost: Annotated[int | None, Option(help="cells of the baseline")] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Hold masks to a baseline; without any limit to the baseline's own."""
    found = cellrepro.check_baseline(
        file,
        masks,
        max_ppm=max_ppm,
        max_changed=max_changed,
        max_lost=max_lost,
        store=store,
    )
    return baseline_check_answer(found), int(not found.ok)


@verb()
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
    found = cellrepro.diverge(
        a,
        b,
        data=data,
        again=again,
        repetitions=repetitions,
        suspects=suspects,
        store=store,
    )
    code = 0 if found.first is None and found.verdict != "vacuous" else 1
    return divergence_answer(found), code


@verb()
def growth(
    a: Annotated[str, Argument(help="KEY or KEY/REPEAT, trained with --keep-checkpoints")],
    b: OtherArgument,
    masks: Annotated[int, Option(help="at how many epochs")] = defaults.MASKS_ON_THE_WAY,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Follow two runs with checkpoints: weights, pixels, cells and scores by epoch."""
    names = (repeat.name for repeat in cellrepro.Store(store).find_two(a, b))
    return growth_answer(cellrepro.growth(a, b, n_masks=masks, store=store), *names), 0


@verb()
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
    from cellrepro.grid.estimate import with_estimates
    from cellrepro.grid.file import read_grid
    from cellrepro.grid.point import BADLY
    from cellrepro.grid.pool import planned, run_grid
    from cellrepro.show.live import live_table

    given = overrides(override or [])
    checked = read_grid(file, store=store, overrides=given, repeats=repeats)
    if dry_run:
        return grid_answer(with_estimates(checked, planned(checked))), 0
    where: dict[str, Any] = {"workers": workers, "scheduler": scheduler, "slurm": slurm}
    with live_table(store) as watched:
        runs = run_grid(checked, minutes=time_limit, quiet=watched, **where)
    return grid_answer(runs), int(any(run.status in BADLY for run in runs))


@verb()
def watch(store: StoreOption = defaults.STORE) -> Told:
    """Show how the grids of a store stand; in a terminal until they end."""
    from cellrepro.show.live import as_lines, follow

    statuses = follow(store)
    return Answer({"grids": statuses}, as_lines(statuses, store)), 0


@verb()
def report(
    output: Annotated[
        str | None, Option(help="a .html file or a folder; default STORE/report/index.html")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Write the cross-device report over everything in the store."""
    written = cellrepro.write_report(store, html=output)
    document = {"html": written.html, "runs": written.runs, "groups": written.groups}
    return Answer(document, [written.sentence, f"report: {written.html}"]), 0


@verb("list")
def list_runs(
    where: Annotated[list[str] | None, Option(help="NAME=VALUE: only runs that have it")] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """List what the store holds: all of it, or what has certain values."""
    wanted = overrides(where or [], "--where")
    answer = stored_runs_answer(cellrepro.Store(store), wanted)
    is_damaged = any(run.damage for run in answer.document.runs)
    return answer, Damaged.exit_code if is_damaged else 0


@verb()
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
            if not name:
                raise BadInput(
                    "--images, --size and --cells are of synthetic images, and no set is named; "
                    f"write cellrepro data {public_sets.SYNTHETIC}"
                )
            raise BadInput(f"--images, --size and --cells are of synthetic images, not of {name!r}")
        path = public_sets.write_benchmark(Path(folder), images=images, size=size, cells=cells)
        return Answer({"folder": path}, [str(path)]), 0
    if not name:
        known = public_sets.describe_all()
        return Answer({"sets": known}, [f"{key}: {text}" for key, text in known.items()]), 0
    path = cellrepro.provide_data(name, data_dir=Path(folder), mirror=mirror)
    return Answer({"folder": path}, [str(path)]), 0


@verb()
def notebooks(folder: FolderArgument) -> Told:
    """Copy out the notebooks and grids that the package brings."""
    from cellrepro.grid.notebooks import copy_brought

    files = copy_brought(Path(folder))
    return Answer({"files": files}, [str(file) for file in files]), 0


@verb()
def demo(
    data: DataArgument = "data/synthetic",
    model: ModelOption = defaults.MODEL,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Do everything once: a network, the demo grid over it, every notebook, the report."""
    from cellrepro.demo import run_demo

    made = run_demo(data, store=store, model=model)
    document = {**vars(made), "base": made.base.key, "report": made.report.html}
    return Answer(document, [made.report.sentence, f"report: {made.report.html}"]), 0


def main() -> None:
    """Run the command line; the contract's exit codes, and no traceback for a user's mistake."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, io.StringIO())
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # where there is no dash: \u2013
    app()
