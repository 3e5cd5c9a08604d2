"""Verbs that carry a spec out: training, segmenting, programs and functions of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.asked.choices import STORED_CHECKPOINTS, StoredCheckpoints
from cellrepro.cli.command import Reply, given_options, verb
from cellrepro.cli.shared_options import (
    BatchSizeOption,
    DataArgument,
    DataSeedOption,
    ImagesPerEpochOption,
    LedgerOption,
    ModelOption,
    ModeOption,
    NetworkOption,
    ProfileOption,
    RepeatsOption,
    SeedOption,
    SettingsOption,
    StoreOption,
    in_yaml,
    one_of,
    overrides,
    steps_in,
)
from cellrepro.errors import BadInput


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
    weight_decay: Annotated[float, Option(help="of the optimizer")] = defaults.WEIGHT_DECAY,
    min_train_masks: Annotated[
        int, Option(help="an image with fewer cells is left out")
    ] = defaults.MIN_TRAIN_MASKS,
    rescale: Annotated[
        bool, Option(help="resize images so that their cells have Cellpose's usual size")
    ] = False,
    scale_range: Annotated[
        float, Option(help="random resizing: 0.5 is 0.75 to 1.25 times")
    ] = defaults.SCALE_RANGE,
    normalize: Annotated[
        bool, Option(help="--no-normalize: intensities as they are stored")
    ] = True,
    train_probs: Annotated[
        str | None, Option(help="how often images are drawn, else 1: '{NAME: 3}'")
    ] = None,
    nimg_test_per_epoch: Annotated[
        int | None, Option(help="test images drawn for the test loss")
    ] = None,
    augmentation: Annotated[bool, Option(help="--no-augmentation: images as they are")] = True,
    ranks: Annotated[int, Option(help="processes that share each batch")] = defaults.RANKS,
    sgd: Annotated[bool, Option("--SGD", help="refused, as Cellpose ignores it")] = False,
    bsize: Annotated[int, Option(help="refused, but for 256 pixels")] = defaults.CROP_SIZE,
    class_weights: Annotated[str | None, Option(help="refused, as there is one class")] = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    repeats: RepeatsOption = defaults.TRAININGS,
    ledger: LedgerOption = defaults.LEDGER,
    loose: Annotated[
        str | None, Option(help="operation that mode strict does not replace: index_put")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="continue a training that was stopped")
    ] = False,
    checkpoint_every: Annotated[
        int | None, Option(help="number of epochs between two; 0: none; small networks: 1")
    ] = None,
    keep_checkpoints: Annotated[
        StoredCheckpoints,
        one_of(STORED_CHECKPOINTS, help="which ones stay in the store; without a value all"),
    ] = "none",
    continued_from: Annotated[
        str | None, Option("--continue", help="KEY/REPEAT that kept its last checkpoint")
    ] = None,
    operation_steps: Annotated[
        str | None, Option(help="steps of which --ledger ops records operations: 0,17 or 0-9")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Train one network several times with the same settings; say if the results are equal."""
    from cellrepro.run.options import TrainingOptions
    from cellrepro.run.train import train_with

    is_continued = continued_from is not None
    stated = given_options(context) if is_continued else frozenset()
    if "repeats" in stated:
        raise BadInput("--continue adds one repeat; leave --repeats out")
    as_python_has_them = {
        "train_probs": None if train_probs is None else in_yaml("--train-probs", train_probs),
        "SGD": sgd,
        "class_weights": None
        if class_weights is None
        else in_yaml("--class-weights", class_weights),
        "operation_steps": None if operation_steps is None else steps_in(operation_steps),
    }
    options = TrainingOptions.among({**locals(), **as_python_has_them})
    return Reply(train_with(options, repeats=repeats))


@verb()
def segment(
    data: Annotated[
        str, Argument(help="folder of images, named as Cellpose expects, or one image")
    ],
    model: NetworkOption = None,
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    settings: SettingsOption = None,
    batch_size: Annotated[int | None, Option(help="tiles at once; 8, as Cellpose's")] = None,
    cellpose: Annotated[
        str | None, Option(help="a different version, in its own environment")
    ] = None,
    repeats: RepeatsOption = defaults.SEGMENTATIONS,
    ledger: LedgerOption = defaults.LEDGER,
    masks_into: Annotated[
        str | None, Option(help="a folder for NAME_masks.tif, and NAME_masks.json: how made")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Segment the same images several times; say whether every mask is the same."""
    from cellrepro.changes.settings_file import refuse_masks, write_masks

    if masks_into is not None:
        refuse_masks(Path(masks_into), Path(data))
    outcome = cellrepro.segment(
        data,
        model=model,
        seed=seed,
        profile=profile,
        mode=mode,
        settings=overrides(settings),
        batch_size=batch_size,
        cellpose=cellpose,
        repeats=repeats,
        ledger=ledger,
        store=store,
    )
    if masks_into is not None:
        write_masks(outcome.repeats[0], Path(masks_into))
    return Reply(outcome)


@verb()
def wrap(
    data: DataArgument,
    command: Annotated[list[str], Argument(help="after --, with {image} and {masks} in it")],
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: Annotated[
        Literal["fast", "off"], one_of(("fast", "off"), help="fast hands the seed over")
    ] = "fast",
    repeats: RepeatsOption = defaults.SEGMENTATIONS,
    timeout: Annotated[float | None, Option(help="seconds that an image may take")] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Segment several times with a program of your own; say whether every mask is the same."""
    outcome = cellrepro.wrap(
        data,
        command,
        seed=seed,
        profile=profile,
        mode=mode,
        repeats=repeats,
        timeout=timeout,
        store=store,
    )
    return Reply(outcome)


@verb("wrap-python")
def wrap_python(
    function: Annotated[str, Argument(help="MODULE:FUNCTION or FILE.py:FUNCTION, image to masks")],
    data: DataArgument,
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    repeats: RepeatsOption = defaults.SEGMENTATIONS,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Segment several times with a function of your own; say whether every mask is the same."""
    outcome = cellrepro.wrap_python(
        function, data, seed=seed, profile=profile, mode=mode, repeats=repeats, store=store
    )
    return Reply(outcome)
