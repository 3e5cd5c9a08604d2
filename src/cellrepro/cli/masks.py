"""Verbs about results that are there: compared, described, explained, held to a baseline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import (
    INTERRUPTED,
    INTERRUPTED_CODE,
    Reply,
    baseline,
    complain,
    refuse_idle,
    verb,
)
from cellrepro.cli.shared_options import (
    MODEL_HELP,
    DataArgument,
    ModeOption,
    NetworkOption,
    OtherArgument,
    OverwriteOption,
    ProfileOption,
    SeedOption,
    SettingsOption,
    StoreOption,
    overrides,
)
from cellrepro.errors import BadInput
from cellrepro.exchange.endings import PASSPORTS


@verb()
def compare(
    context: typer.Context,
    a: Annotated[str, Argument(help="KEY, KEY/REPEAT, masks, _seg.npy, folder, baseline, weights")],
    b: OtherArgument,
    image: Annotated[str | None, Option(help="the image, on which the page shows masks")] = None,
    html: Annotated[
        str | None, Option(help="a page with the picture and every changed cell, one file")
    ] = None,
    overwrite: OverwriteOption = False,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Compare two runs, masks, folders of masks, baselines or weights files."""
    if html is None:
        refuse_idle(context, ("overwrite",), "without --html")
    return Reply(cellrepro.compare(a, b, image=image, html=html, overwrite=overwrite, store=store))


@verb()
def explore(
    context: typer.Context,
    image: Annotated[str, Argument(help="the image: TIFF, PNG or JPEG")],
    a: Annotated[str, Argument(help="masks of it: TIFF, PNG, .npy or _seg.npy")],
    b: Annotated[str, Argument(help="different masks of it")],
    truth: Annotated[str | None, Option(help="annotated masks of it")] = None,
    html: Annotated[
        str | None, Option(help="write the page to this file instead of opening it")
    ] = None,
    overwrite: OverwriteOption = False,
) -> Reply:
    """Look at two masks of an image in the browser: zoom, curtain, blink, every changed cell."""
    from cellrepro.show.pages.explorer_page import explorer_page

    if html is None:
        refuse_idle(context, ("overwrite",), "without --html")
    page = explorer_page(image, a, b, truth=truth, html=html, overwrite=overwrite)
    return Reply(replace(page, opened=html is None and page.open()))


@verb()
def describe(
    context: typer.Context,
    file: Annotated[str, Argument(help="a file, KEY, KEY/REPEAT, or a model's name")],
    log: Annotated[
        str | None, Option(help="Cellpose's run.log of the run that made the masks")
    ] = None,
    command: Annotated[
        bool, Option("--command", help="how Cellpose is called with what the file records")
    ] = False,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Say what a file is (weights, masks, baseline, passport …), and how Cellpose loads it."""
    from cellrepro.changes.file_kinds import holds_passports

    if file.endswith(PASSPORTS) and holds_passports(Path(file)):
        from cellrepro.exchange.passport_file import describe_passports
        from cellrepro.exchange.signed.keys import read_allowed_signers

        refuse_idle(context, ("log", "command"), "for a file of passports")
        return Reply(describe_passports(cellrepro.read_bundle(file), read_allowed_signers()))
    description = cellrepro.describe(file, log=log, store=store)
    return Reply(replace(description, says_commands=command))


@verb()
def explain(
    context: typer.Context,
    a: Annotated[str, Argument(help="a _seg.npy, a label image, or KEY/REPEAT of the store")],
    b: OtherArgument,
    image: Annotated[
        str | None,
        Option(help="the image that both are of; without it only what the files record"),
    ] = None,
    model: Annotated[
        str | None,
        Option(help=f"{MODEL_HELP}; default what A and B record, else Cellpose's own"),
    ] = None,
    log_a: Annotated[str | None, Option(help="Cellpose's run.log of the run that made A")] = None,
    log_b: Annotated[str | None, Option(help="the same of B")] = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    seed: SeedOption = None,
    store: StoreOption = defaults.STORE,
    minutes: Annotated[
        float, Option(help="how long settings that nobody recorded are searched")
    ] = defaults.SEARCH_MINUTES,
    crop: Annotated[
        str | None,
        Option(
            metavar="Y,X[,SIZE]",
            help="replay this window of SIZE pixels alone, with --image; auto: where most changed",
        ),
    ] = None,
) -> Reply:
    """Say why two results of one image differ: recorded settings; with --image, segmented again."""
    if image is None:
        of_a_replay = ("model", "profile", "mode", "seed", "minutes", "crop")
        refuse_idle(
            context,
            of_a_replay,
            "without --image, as nothing is segmented",
            instead="give --image IMAGE, or leave it out",
        )
    explanation = cellrepro.explain(
        a,
        b,
        image=image,
        model=model,
        log_a=log_a,
        log_b=log_b,
        profile=profile,
        mode=mode,
        seed=seed,
        store=store,
        minutes=minutes,
        crop=crop,
    )
    if explanation.interrupted:
        return Reply(explanation, complain(INTERRUPTED, INTERRUPTED_CODE))
    return Reply(explanation)


@verb()
def sensitivity(
    data: DataArgument,
    model: NetworkOption = None,
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    settings: SettingsOption = None,
    vary: Annotated[
        list[str] | None, Option(help="NAME=[A, B]: these settings and values alone")
    ] = None,
    figures: Annotated[str | None, Option(help="a folder for a picture of each setting")] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Vary each setting of a segmentation by itself: how many cells does it change?"""
    from cellrepro.show.figures.settings import refuse_figures, setting_figures

    if figures is not None:
        refuse_figures(Path(figures))
    result = cellrepro.sensitivity(
        data,
        model=model,
        seed=seed,
        profile=profile,
        mode=mode,
        settings=overrides(settings),
        vary=overrides(vary, "--vary") or None,
        store=store,
    )
    if figures is not None:
        result = replace(result, figures=setting_figures(result, Path(figures)))
    return Reply(result)


@verb()
def tiles(
    context: typer.Context,
    data: Annotated[str | None, Argument(help="folder of images")] = None,
    masks: Annotated[str | None, Option(help="a label image instead: straight cuts alone")] = None,
    model: NetworkOption = None,
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    settings: SettingsOption = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Say which cells depend on the position of tiles; find straight cuts in any masks."""
    if (data is None) == (masks is None):
        raise BadInput("give a folder of images, or --masks with a label image")
    if masks is not None:
        of_a_network = ("model", "seed", "profile", "mode", "settings", "store")
        refuse_idle(context, of_a_network, "beside --masks, where nothing is segmented")
        from cellrepro.changes.straight_cuts import straight_cuts

        return Reply(straight_cuts(masks))
    result = cellrepro.tiles(
        str(data),
        model=model,
        seed=seed,
        profile=profile,
        mode=mode,
        settings=overrides(settings),
        store=store,
    )
    return Reply(result)


@verb("save", group=baseline)
def save_baseline(
    run: Annotated[str, Argument(help="KEY, KEY/REPEAT, masks or a folder")],
    file: Annotated[str, Argument(help="a new file")],
    propose: Annotated[
        str | None, Option(help="limits from stored spread: repeats, seed, machine …")
    ] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Save masks, settings and digests as one small file."""
    return Reply(cellrepro.save_baseline(run, file, propose=propose, store=store))


@verb("check", group=baseline)
def check_baseline(
    file: Annotated[str, Argument(help="a file that baseline save wrote")],
    masks: Annotated[str, Argument(help="masks, a folder, KEY or KEY/REPEAT")],
    max_ppm: Annotated[
        float | None, Option(help="differing pixels per million, in any image")
    ] = None,
    max_changed: Annotated[
        str | None, Option(metavar="SHARE", help="share of cells without a match: 0.05 or 5%")
    ] = None,
    max_lost: Annotated[int | None, Option(help="cells of the baseline that are gone")] = None,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Check masks against a baseline; without a limit, the baseline's own limits count."""
    check = cellrepro.check_baseline(
        file,
        masks,
        max_ppm=max_ppm,
        max_changed=max_changed,
        max_lost=max_lost,
        store=store,
    )
    return Reply(check)
