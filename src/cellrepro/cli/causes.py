"""Verbs that look for causes: what is not reproducible here, what flips, where two runs part."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import (
    INTERRUPTED,
    INTERRUPTED_CODE,
    Reply,
    complain,
    is_given,
    refuse_idle,
    verb,
)
from cellrepro.cli.shared_options import (
    MODEL_HELP,
    BatchSizeOption,
    DataArgument,
    DataSeedOption,
    ImagesPerEpochOption,
    ModelOption,
    ModeOption,
    OtherArgument,
    ProfileOption,
    SeedOption,
    SettingsOption,
    StoreOption,
    one_of,
    overrides,
)
from cellrepro.errors import whole

if TYPE_CHECKING:
    from cellrepro.audits.training import TrainingAudit


@verb()
def doctor(
    context: typer.Context,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    seed: SeedOption = None,
    warning: Annotated[str | None, Option(help="explain a pasted warning of PyTorch")] = None,
    portable: Annotated[
        bool,
        Option("--portable", help="does this computer get the reference bits of mode portable?"),
    ] = False,
    model: ModelOption = defaults.MODEL,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Say what is not reproducible on this computer, and what to do about it."""
    if portable:
        refuse_idle(
            context,
            ("mode", "seed", "warning", "model", "store"),
            "beside --portable, which always carries out the same computation",
        )
        return Reply(cellrepro.witness(profile=profile))
    if warning is not None:
        from cellrepro.audits.doctor import diagnose_warning

        refuse_idle(context, ("seed",), "beside --warning")
        chosen = profile if is_given(context, "profile") else None
        explained = diagnose_warning(warning, profile=chosen, mode=mode, model=model, store=store)
        return Reply(explained)
    refuse_idle(
        context,
        ("model", "store"),
        "without --warning: they name the network for which a warning is explained",
    )
    return Reply(cellrepro.diagnose(profile=profile, mode=mode, seed=seed))


@verb()
def audit(
    context: typer.Context,
    data: DataArgument,
    model: Annotated[
        str | None,
        Option(help=f"{MODEL_HELP}; default tiny, to segment Cellpose's own"),
    ] = None,
    seed: SeedOption = None,
    data_seed: DataSeedOption = defaults.DATA_SEED,
    batch_size: BatchSizeOption = defaults.BATCH_SIZE,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = "fast",
    steps: Annotated[
        int, Option(help="how many are audited; with --task segment, images")
    ] = defaults.AUDITED_STEPS,
    replays: Annotated[int, Option(help="how often each operation is repeated")] = defaults.REPLAYS,
    suspects: Annotated[
        int, Option(help="how often one that is known to vary is repeated")
    ] = defaults.SUSPECT_REPLAYS,
    threads: Annotated[
        int | None, Option(help="number of threads, in place of the profile's")
    ] = None,
    effect: Annotated[
        int,
        Option(help="trainings that show what each operation that varies changes; 0: none"),
    ] = 0,
    epochs: Annotated[int, Option(help="of the trainings of --effect")] = defaults.EPOCHS,
    images_per_epoch: ImagesPerEpochOption = None,
    task: Annotated[str, one_of(("train", "segment"), help="what is audited")] = "train",
    settings: SettingsOption = None,
    function: Annotated[
        str | None, Option(help="MODULE:FUNCTION, segments in the place of Cellpose")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Repeat every operation of a training or segmentation; list those that give different bits."""
    _refuse_idle_options(context, task, function, effect)
    if function is not None:
        of_function = cellrepro.audit_function(
            function,
            data,
            mode=mode,
            seed=seed,
            profile=profile,
            steps=steps,
            replays=replays,
            suspects=suspects,
            threads=threads,
            store=store,
        )
        return Reply(of_function)
    if task == "segment":
        of_segmentation = cellrepro.audit_segmentation(
            data,
            model=model,
            mode=mode,
            seed=seed,
            profile=profile,
            settings=overrides(settings),
            steps=steps,
            replays=replays,
            suspects=suspects,
            threads=threads,
            store=store,
        )
        return Reply(of_segmentation)
    if effect:
        whole("effect", effect, least=2)
    trained_model = model or defaults.MODEL
    of_training = cellrepro.audit_training(
        data,
        model=trained_model,
        mode=mode,
        seed=seed,
        data_seed=data_seed,
        batch_size=batch_size,
        profile=profile,
        steps=steps,
        replays=replays,
        suspects=suspects,
        threads=threads,
        store=store,
    )
    if not effect:
        return Reply(of_training)

    def measure(on_effect: Callable[[TrainingAudit], None]) -> None:
        from cellrepro.run.options import TrainingOptions

        options = TrainingOptions(
            data=data,
            epochs=epochs,
            images_per_epoch=images_per_epoch,
            model=trained_model,
            profile=profile,
            store=store,
        )
        cellrepro.measure_effects(of_training, options, repeats=effect, on_effect=on_effect)

    return _reply_with_effects(of_training, measure)


def _reply_with_effects(
    audit: TrainingAudit,
    measure: Callable[[Callable[[TrainingAudit], None]], None],
) -> Reply:
    """Reply with the audit of a training and the effects of its operations, as far as measured."""
    sys.stderr.write(f"{audit.sentence()}\n")
    code = None
    audits = [audit]  # each with one effect more than the one before
    try:
        measure(audits.append)
    except KeyboardInterrupt:  # the effects that are measured are shown
        code = complain(INTERRUPTED, INTERRUPTED_CODE)
    return Reply(audits[-1], code)


_OF_EFFECTS = ("epochs", "images_per_epoch")
"""Options of `audit` for the trainings of ``--effect``."""

_OF_TRAINING = ("data_seed", "batch_size", "effect", *_OF_EFFECTS)
"""Options of `audit` that only the audit of a training has."""


def _refuse_idle_options(
    context: typer.Context, task: str, function: str | None, effect: int
) -> None:
    """Refuse options of `audit` that would do nothing for what is audited."""
    if function is not None:
        _refuse_beside_function(context)
    elif task == "segment":
        why = "with --task segment, whose batch size is --set batch_size=4"
        refuse_idle(context, _OF_TRAINING, why)
    else:
        idle_without_effect = () if effect else _OF_EFFECTS
        why = (
            "where a training is audited: --set is of --task segment, --epochs and "
            "--images-per-epoch of the trainings of --effect"
        )
        refuse_idle(context, ("settings", *idle_without_effect), why)


def _refuse_beside_function(context: typer.Context) -> None:
    why = "beside --function, which segments in the place of Cellpose"
    refuse_idle(context, (*_OF_TRAINING, "model", "settings"), why)


@verb()
def diverge(
    a: Annotated[str, Argument(help="KEY or KEY/REPEAT of the store")],
    b: OtherArgument,
    data: Annotated[str | None, Option(help="the images, if they have moved")] = None,
    again: Annotated[bool, Option(help="execute the step that differs again")] = True,
    repetitions: Annotated[int, Option(help="how often that step is executed again")] = 20,
    suspects: Annotated[
        int, Option(help="the same of operations that are known to vary")
    ] = defaults.SUSPECT_REPLAYS,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Find the first place where two runs differ: stage, step, operation and line of code."""
    divergence = cellrepro.diverge(
        a,
        b,
        data=data,
        again=again,
        repetitions=repetitions,
        suspects=suspects,
        store=store,
    )
    return Reply(divergence)


@verb()
def growth(
    a: Annotated[str, Argument(help="KEY or KEY/REPEAT, trained with --keep-checkpoints")],
    b: OtherArgument,
    masks: Annotated[
        int, Option(help="at how many epochs images are segmented")
    ] = defaults.MASKS_ON_THE_WAY,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Show how two trainings grow apart: weights, pixels, cells and scores by epoch."""
    return Reply(cellrepro.growth(a, b, n_masks=masks, store=store))
