"""The command line: every verb calls what a notebook could call.

Progress and messages go to standard error; with ``--json`` standard output is one JSON document.
"""

from __future__ import annotations

import errno
import functools
import io
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere

_INTERRUPTED = 130  # as shells report Ctrl-C
_SHORT = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)

if TYPE_CHECKING:
    from cellrepro.compare.metrics import MaskComparison
    from cellrepro.compare.object_changes import ObjectChange
    from cellrepro.compare.weights import WeightsComparison
    from cellrepro.lab.audit_training import TrainingAudit
    from cellrepro.lab.compare_results import Comparison
    from cellrepro.lab.divergence.result import Divergence
    from cellrepro.lab.doctor import Diagnosis
    from cellrepro.lab.grid import GridRun
    from cellrepro.lab.run import Outcome

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


@_verb()
def doctor(
    profile: ProfileOption = "cpu",
    mode: ModeOption = "strict",
    seed: SeedOption = 0,
    warning: Annotated[
        str | None, typer.Option(help="explain this warning of PyTorch instead, as it was pasted")
    ] = None,
    model: Annotated[
        str, typer.Option(help="with --warning: whose training it came from")
    ] = "tiny",
    store: StoreOption = "outputs",
    as_json: JsonOption = False,
) -> int:
    """Say what of this host, process and profile is not reproducible, and the remedy."""
    from cellrepro.determinism import profiles
    from cellrepro.lab.doctor import Finding, diagnose
    from cellrepro.lab.explain_warning import explain_warning
    from cellrepro.store import platform

    if warning is not None:
        explained = explain_warning(warning, profile=profile, mode=mode, model=model, store=store)
        finding = Finding(
            "info" if explained.affects is False else "warning",
            explained.meaning,
            explained.remedy,
        )
        document = {
            "host": platform.host(),
            "profile": {**profiles.load(profile).model_dump(mode="json"), "mode": mode},
            "findings": [asdict(finding)],
            "ok": explained.affects is False,
            "warning": asdict(explained),
        }
        _answer(as_json, document, lambda: [explained.sentence()])
        return 0
    found = diagnose(profile=profile, mode=mode, seed=seed)
    document = asdict(found)
    del document["exit_code"]
    _answer(as_json, document, lambda: _diagnosis_lines(found))
    return found.exit_code


@_verb()
def audit(
    data: DataArgument,
    model: ModelOption = "tiny",
    seed: SeedOption = 0,
    data_seed: DataSeedOption = "cellpose",
    batch_size: BatchSizeOption = 1,
    profile: ProfileOption = "cpu",
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
    epochs: Annotated[int, typer.Option(help="of these trainings")] = 12,
    images_per_epoch: Annotated[
        int | None, typer.Option(help="draws an epoch of these trainings")
    ] = None,
    store: StoreOption = "outputs",
    as_json: JsonOption = False,
) -> int:
    """Replay every operation of training steps on equal inputs; report those that flip."""
    from cellrepro.lab.audit_training import audit_training, check_effect_repeats, with_effects

    check_effect_repeats(effect)
    found = audit_training(
        data,
        model=model,
        seed=seed,
        data_seed=_data_seed(data_seed),
        batch_size=batch_size,
        profile=profile,
        mode=mode,
        steps=steps,
        replays=replays,
        suspects=suspects,
        threads=threads,
        effect_epochs=epochs,
        images_per_epoch=images_per_epoch,
        store=store,
    )
    if not as_json:
        _answer(False, {}, lambda: _audit_lines(found))
        sys.stdout.flush()
    try:
        if effect:
            measured = with_effects(
                found,
                data,
                repeats=effect,
                images_per_epoch=images_per_epoch,
                model=model,
                profile=profile,
                store=store,
            )
            for latest in measured:
                found = latest
    finally:  # also when it is interrupted: what was found is told
        if as_json:
            _answer(True, _audit_document(found), list)
        elif effect:
            _answer(False, {}, lambda: _effect_lines(found))
    return 1 if found.ops or not found.n_replays else 0


@_verb()
def train(
    data: DataArgument,
    model: ModelOption = "tiny",
    seed: SeedOption = 0,
    data_seed: DataSeedOption = "cellpose",
    epochs: Annotated[int, typer.Option(help="2 or more; 1 trains nothing")] = 12,
    batch_size: BatchSizeOption = 1,
    learning_rate: Annotated[
        float | None, typer.Option(help="peak; default 1e-3 for tiny, 1e-5 otherwise")
    ] = None,
    images_per_epoch: Annotated[
        int | None, typer.Option(help="draws an epoch; default every image once, tiny at least 48")
    ] = None,
    profile: ProfileOption = "cpu",
    mode: ModeOption = "strict",
    repeats: Annotated[int, typer.Option(help="how often; 2 or more give a verdict")] = 2,
    ledger: LedgerOption = "steps",
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
    store: StoreOption = "outputs",
    as_json: JsonOption = False,
) -> int:
    """Train one spec several times and say whether the repeats came out the same."""
    from cellrepro.lab.run import train as run_training

    outcome = run_training(
        data,
        model=model,
        seed=seed,
        data_seed=_data_seed(data_seed),
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        images_per_epoch=images_per_epoch,
        profile=profile,
        mode=mode,
        repeats=repeats,
        ledger=ledger,
        loose=loose,
        resume=resume,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        operation_steps=_steps(operation_steps),
        store=store,
    )
    return _report_outcome(outcome, as_json)


@_verb()
def segment(
    data: DataArgument,
    model: ModelOption = "tiny",
    seed: SeedOption = 0,
    profile: ProfileOption = "cpu",
    mode: ModeOption = "strict",
    repeats: Annotated[int, typer.Option(help="how often; 2 or more give a verdict")] = 3,
    ledger: LedgerOption = "steps",
    store: StoreOption = "outputs",
    as_json: JsonOption = False,
) -> int:
    """Segment the same images several times and say whether every mask is the same."""
    from cellrepro.lab.run import segment as run_segmentation

    outcome = run_segmentation(
        data,
        model=model,
        seed=seed,
        profile=profile,
        mode=mode,
        repeats=repeats,
        ledger=ledger,
        store=store,
    )
    return _report_outcome(outcome, as_json)


@_verb()
def compare(
    a: Annotated[
        str, typer.Argument(help="KEY, KEY/REPEAT, a mask file, a folder, a weights file")
    ],
    b: Annotated[
        str, typer.Argument(help="the other one, of the same kind; the same KEY: its two repeats")
    ],
    store: StoreOption = "outputs",
    as_json: JsonOption = False,
) -> int:
    """Compare two runs, masks, folders of masks or weights files."""
    from cellrepro.compare.verdicts import Verdict
    from cellrepro.lab.compare_results import compare as compare_two

    result = compare_two(a, b, store=store)
    _answer(as_json, _comparison_document(result), lambda: _comparison_lines(result))
    return 0 if result.verdict == Verdict.IDENTICAL and not result.differs else 1


@_verb()
def diverge(
    a: Annotated[str, typer.Argument(help="KEY or KEY/REPEAT of the store")],
    b: Annotated[str, typer.Argument(help="the other one; the same KEY means its two repeats")],
    data: Annotated[
        str | None, typer.Option(help="folder of the images, if it is no longer where it was")
    ] = None,
    again: Annotated[
        bool, typer.Option(help="go through the parting step again to name the operation")
    ] = True,
    repetitions: Annotated[
        int, typer.Option(help="how often to repeat that step until it parts from itself")
    ] = 20,
    suspects: Annotated[
        int, typer.Option(help="how often operations known to race are asked again then")
    ] = 200,
    store: StoreOption = "outputs",
    as_json: JsonOption = False,
) -> int:
    """Name the first place where two runs part: stage, step, operation and line."""
    from cellrepro.compare.verdicts import Verdict
    from cellrepro.lab.divergence.find import diverge as diverge_two

    found = diverge_two(
        a,
        b,
        data=data,
        again=again,
        repetitions=repetitions,
        suspects=suspects,
        store=store,
    )
    _answer(as_json, _divergence_document(found), lambda: _divergence_lines(found))
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
    store: StoreOption = "outputs",
    as_json: JsonOption = False,
) -> int:
    """Carry out a grid of specs through papermill; finished ones are not run again."""
    from cellrepro.lab.grid import planned, read_grid, run_grid

    checked = read_grid(file, store=store, overrides=_overrides(override or []))
    if dry_run:
        runs = planned(checked, store=store)
    else:
        runs = run_grid(checked, store=store, workers=workers)
    document = {"runs": [asdict(run) for run in runs]}
    _answer(as_json, document, lambda: [_grid_line(run) for run in runs])
    return 1 if any(run.status == "failed" for run in runs) else 0


@_verb()
def report(store: StoreOption = "outputs", as_json: JsonOption = False) -> int:
    """Write the cross-device report over everything in the store."""
    from cellrepro.show.report.build import write_report

    written = write_report(store)
    document = {"html": str(written.html), "runs": written.runs, "groups": written.groups}
    _answer(as_json, document, lambda: [written.sentence, f"report: {written.html}"])
    return 0


@_verb("list")
def list_runs(store: StoreOption = "outputs", as_json: JsonOption = False) -> int:
    """List what the store holds."""
    from cellrepro.compare.verdicts import judge
    from cellrepro.store.store import Store

    runs = []
    for run in Store(store).runs():
        for machine, repeats in run.machines.items():
            judgement = judge([repeat.manifest for repeat in repeats.values()])
            runs.append(
                {
                    "key": run.key,
                    "label": run.spec.label,
                    "machine": machine,
                    "spec": run.spec.model_dump(mode="json"),
                    "repeats": list(repeats),
                    "verdict": judgement.overall,
                    "agreement": judgement.agreement,
                    "detail": judgement.detail(),
                }
            )
    _answer(as_json, {"runs": runs}, lambda: [_list_line(run) for run in runs] or ["no runs yet"])
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
        document = {"sets": known}
        _answer(as_json, document, lambda: [f"{key}: {text}" for key, text in known.items()])
        return 0
    path = public_sets.provide(name, data_dir=Path(folder), mirror=mirror)
    _answer(as_json, {"folder": str(path)}, lambda: [str(path)])
    return 0


@_verb()
def notebooks(
    folder: Annotated[str, typer.Argument(help="a new folder, which gets notebooks/ and grids/")],
    as_json: JsonOption = False,
) -> int:
    """Copy out the notebooks and grids that the package brings."""
    from cellrepro.lab.notebook_process import copy_brought

    files = copy_brought(Path(folder))
    _answer(as_json, {"files": files}, lambda: [str(path) for path in files])
    return 0


@_verb()
def demo(
    data: DataArgument = "data/synthetic",
    model: ModelOption = "tiny",
    store: StoreOption = "outputs",
    as_json: JsonOption = False,
) -> int:
    """Do everything once: a network, the demo grid over it, every notebook, the report."""
    from cellrepro.demo import run_demo

    made = run_demo(data, store=store, model=model)
    report = made.report
    document = {
        "base": made.base.key,
        "runs": [asdict(run) for run in made.runs],
        "notebooks": [str(path) for path in made.notebooks],
        "report": None if report is None else str(report.html),
        "stopped": made.stopped,
    }
    lines = [] if report is None else [report.sentence, f"report: {report.html}"]
    _answer(as_json, document, lambda: lines)
    return 0 if made.stopped is None else _complain(made.stopped, 1)


# -- answers -------------------------------------------------------------------------------


def _report_outcome(outcome: Outcome, as_json: bool) -> int:
    from cellrepro.compare.verdicts import Verdict

    judgement = outcome.judgement
    document = {
        "key": outcome.key,
        "folder": str(outcome.folder),
        "repeats": [_repeat_document(repeat) for repeat in outcome.repeats],
        "agreement": judgement.agreement,
        "verdict": judgement.overall,
        "verdicts": {"weights": judgement.weights, "masks": judgement.masks},
        "reasons": list(judgement.reasons),
        "compared": {"repeats": judgement.n_repeats, "images": judgement.n_images},
        "notices": list(outcome.plan.notices),
        "learning_rates": _learning_rates(outcome),
    }
    _answer(as_json, document, lambda: _outcome_lines(outcome))
    return 0 if judgement.overall in (None, Verdict.IDENTICAL) else 1


def _repeat_document(repeat: Any) -> dict[str, Any]:
    manifest = repeat.manifest
    return {
        "index": manifest.repeat,
        "machine": repeat.machine,
        "weights": manifest.weights.digest if manifest.weights else None,
        "masks": {name: record.digest for name, record in manifest.masks.items()},
        "objects": {name: record.n_objects for name, record in manifest.masks.items()},
        "ap50": manifest.ap50,
        "seconds": round(sum(manifest.seconds.values()), 3),
    }


def _diagnosis_lines(found: Diagnosis) -> list[str]:
    lines = [
        f"{finding.level:8} {finding.what}\n         -> {finding.remedy}"
        for finding in found.findings
    ]
    return [*lines, found.sentence()]


def _audit_document(found: TrainingAudit) -> dict[str, Any]:
    document = {name: value for name, value in vars(found).items() if name != "spec"}
    document["mode"], document["profile"] = found.spec.mode, found.spec.profile
    rows = {"ops": found.ops, "warnings": found.warnings}
    for name, listed in rows.items():
        document[name] = [
            {
                **asdict(row),
                "seen": row.seen,
                "effect_sentence": row.effect.sentence() if row.effect else None,
            }
            for row in listed
        ]
    return document


def _effect_lines(found: TrainingAudit) -> list[str]:
    told = [
        f"effect: {row.effect.sentence()}"
        if row.effect
        else f"effect of {row.op}: not known, {row.no_effect_because or 'not measured'}"
        for row in found.ops
    ]
    return list(dict.fromkeys(told)) or ["effect: nothing flips, so there is none to measure"]


def _audit_lines(found: TrainingAudit) -> list[str]:
    from cellrepro.text import amount

    lines = []
    for row in found.ops:
        lines.append(f"{row.op}, {row.phase} of {row.module or 'no module'}")
        lines.append(f"    {row.source or 'no line of Python'}")
        lines.append(
            f"    {row.seen}, in up to {amount(row.n_elements, 'element')}; PyTorch "
            + ("warns of it" if row.warned else "does not warn of it")
        )
        lines += [f"    {text}" for text in (row.reason, row.remedy) if text]
        if row.substitute:
            lines.append(f"    mode strict uses the substitute {row.substitute}")
    flipping = {(row.op, row.module) for row in found.ops}
    for row in found.warnings:
        moved = "and flips" if (row.op, row.module) in flipping else "but none of its bits flipped"
        lines.append(
            f"PyTorch warns of {row.op}, {row.phase} of {row.module or 'no module'}, {moved}"
        )
    return [*lines, found.sentence]


def _learning_rates(outcome: Outcome) -> list[float] | None:
    training = outcome.repeats[0].manifest.training
    return training.learning_rates if training is not None else None


def _outcome_lines(outcome: Outcome) -> list[str]:
    lines = [f"run {outcome.key} in {outcome.folder}", f"machine {outcome.plan.machine}"]
    rates = _learning_rates(outcome)
    if rates:
        lines.append(f"learning rate {rates[0]:.2g} to {max(rates):.2g} over {len(rates)} epochs")
    for repeat in outcome.repeats:
        manifest = repeat.manifest
        score = "no ground truth" if manifest.ap50 is None else f"AP@0.5 {manifest.ap50:.3f}"
        weights = f"weights {manifest.weights.digest[:12]}, " if manifest.weights else ""
        lines.append(
            f"  repeat {manifest.repeat}: {weights}{manifest.n_objects} objects in "
            f"{len(manifest.masks)} images, {score}, {sum(manifest.seconds.values()):.1f} s"
        )
    lines.append(outcome.judgement.sentence())
    return lines


def _comparison_document(result: Comparison) -> dict[str, Any]:
    weights = None
    if result.weights is not None:
        weights = asdict(result.weights)
        weights["per_tensor"] = [row for row in weights["per_tensor"] if row["n_differing"]]
    return {
        "verdict": result.verdict,
        "differs": list(result.differs),
        "weights": weights,
        "masks": {name: masks.figures() for name, masks in result.masks.items()},
        "objects": {
            **result.n_objects,
            "changes": [
                {"image": name, **_change_document(change)}
                for name, masks in result.masks.items()
                for change in masks.objects
            ],
        },
        "ppm": result.ppm,
        "environment": dict(result.environment),
        "spec": dict(result.spec),
        "ap50": result.ap50,
        "notes": list(result.notes),
    }


def _change_document(change: ObjectChange) -> dict[str, Any]:
    return {**change._asdict(), "renumbered": change.renumbered}


def _comparison_lines(result: Comparison) -> list[str]:
    from cellrepro.text import amount, ppm_text

    lines = [f"{result.verdict}" + (f": {', '.join(result.differs)}" if result.differs else "")]
    if result.weights is not None:
        lines += _weights_lines(result.weights)
    if result.masks:
        n = result.n_objects
        lines.append(
            f"  masks of {amount(len(result.masks), 'image')}: {ppm_text(result.ppm)} of the "
            f"pixels differ; objects {n['a']} and {n['b']}, {n['matched']} matched at IoU 0.5"
        )
        lines += _change_lines(result.masks)
    if result.ap50 is not None and None not in result.ap50:
        lines.append(f"  ground truth: AP@0.5 {result.ap50[0]:.3f} and {result.ap50[1]:.3f}")
    for title, differing in (("spec", result.spec), ("environment", result.environment)):
        lines += [f"  {title} {name}: {a!r} and {b!r}" for name, (a, b) in differing.items()]
    return lines + [f"  note: {note}" for note in result.notes]


def _weights_lines(w: WeightsComparison) -> list[str]:
    """Distances, or in what the two are not one network."""
    from cellrepro.images.reading import some

    head = f"  weights: {w.n_differing} of {w.n_parameters} parameters differ, "
    if math.isnan(w.l2):
        lines = [f"{head}no distance over all of them"]
    else:
        lines = [
            f"{head}L2 {w.l2:.3g} (relative {w.relative_l2:.3g}), cosine {w.cosine:.6f}, "
            f"largest {w.max_abs:.3g}" + (f" in {w.max_abs_name}" if w.max_abs_name else "")
        ]
    lines += [
        f"    only in {side}: {some(names)}"
        for side, names in (("A", w.only_a), ("B", w.only_b))
        if names
    ]
    for what, row_a, row_b in (("shapes", "shape", "shape_b"), ("types", "dtype", "dtype_b")):
        others = [
            f"{row.name} ({getattr(row, row_a)} and {getattr(row, row_b)})"
            for row in w.per_tensor
            if getattr(row, row_a) != getattr(row, row_b)
        ]
        if others:
            lines.append(f"    other {what}: {some(others)}")
    return lines


_MOST_CHANGES = 12  # objects that are named on a screen; --json names them all


def _change_lines(masks: Mapping[str, MaskComparison]) -> list[str]:
    """How many objects of each kind there are, and those that are not where they were."""
    every = [(name, change) for name, result in masks.items() for change in result.objects]
    counts = Counter(change.kind.value for _, change in every)
    n_renumbered = sum(change.renumbered for _, change in every)
    lines = [
        "  objects: "
        + (", ".join(f"{n} {kind}" for kind, n in counts.most_common()) or "none")
        + (f"; {n_renumbered} under another number" if n_renumbered else "")
    ]
    changed = [(name, change) for name, change in every if change.kind != "kept"]
    for name, change in changed[:_MOST_CHANGES]:
        sides = [", ".join(map(str, labels)) for labels in (change.labels_a, change.labels_b)]
        axes = ("z", "y", "x")[-len(change.position) :]
        place = ", ".join(f"{a} {at:.0f}" for a, at in zip(axes, change.position, strict=True))
        lines.append(
            f"    {change.kind.value:6} {' -> '.join(side or 'nothing' for side in sides)} in "
            f"{name} at {place}, {change.area_a} -> {change.area_b} pixels"
            + (f", IoU {change.iou:.2f}" if change.iou else "")
        )
    if len(changed) > _MOST_CHANGES:
        lines.append(f"    and {len(changed) - _MOST_CHANGES} more; --json names them all")
    return lines


def _divergence_document(found: Divergence) -> dict[str, Any]:
    names = ("a", "b", "first", "computed", "stages", "judgement", "verdict", "evidence", "notes")
    document = {name: getattr(found, name) for name in names}
    document["compared"] = found.n_compared
    document["objects"] = found.comparison.n_objects
    document["ppm"] = found.comparison.ppm
    document["sentence"] = found.sentence()
    return document


def _divergence_lines(found: Divergence) -> list[str]:
    lines = [found.sentence()]
    for stage, names in found.stages.items():
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        lines.append(f"  {stage:12} {', '.join(names[:4])}{more}")
    if found.evidence is not None:
        told = {
            "how": found.evidence.how,
            "repeated": f"{found.evidence.n_repetitions} times the step, "
            f"{found.evidence.n_replays} times single operations",
            "flips": None
            if found.evidence.flips is None
            else f"{found.evidence.flips} of {found.evidence.n_asked} replays",
            "ends as": found.evidence.ends_as,
            "parting": found.evidence.parting,
            "aligned": found.evidence.alignment,
            "round-off": found.evidence.round_off,
            "draws": found.evidence.draws,
            "substitutes": found.evidence.substituted,
            "no verdict": found.evidence.elimination,
        }
        lines += [f"  {name:12} {text}" for name, text in told.items() if text]
        lines += [f"  {'state':12} {text}" for text in found.evidence.arrival]
    return lines + [f"  note: {note}" for note in found.notes]


def _grid_line(run: GridRun) -> str:
    varied = ", ".join(f"{name} {value}" for name, value in run.varied.items())
    on = f" on {run.machine}" if run.machine else ""
    reason = f"  ({run.reason})" if run.reason else ""
    return f"{run.status:8} {run.key}{on}  {varied}{reason}"


def _list_line(run: dict[str, Any]) -> str:
    from cellrepro.text import amount

    return (
        f"{run['key']}  {run['label']}: {amount(len(run['repeats']), 'repeat')} on "
        f"{run['machine']}, {run['verdict'] or 'no verdict'}"
        + (f" ({run['detail']})" if run["verdict"] == "different" else "")
    )


def _answer(as_json: bool, document: dict[str, Any], lines: Callable[[], list[str]]) -> None:
    if as_json:
        sys.stdout.write(json.dumps(_plain(document), indent=1, allow_nan=False) + "\n")
    else:
        sys.stdout.write("\n".join(lines()) + "\n")


def _plain(value: Any) -> Any:
    """JSON types only: NaN and infinities, which JSON lacks, become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# -- options -------------------------------------------------------------------------------


def _data_seed(text: str) -> int | Literal["cellpose"]:
    if text == "cellpose":
        return "cellpose"
    try:
        return int(text)
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


def main() -> None:
    """Run the command line; the contract's exit codes, and no traceback for a user's mistake."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, io.StringIO())
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # where there is no dash: \u2013
    app()
