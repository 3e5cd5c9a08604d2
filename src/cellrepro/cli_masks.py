"""Verbs of the command line about masks: settings, causes, tiles, and other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.command import (
    MODELS,
    DataArgument,
    ModelOption,
    ModeOption,
    OtherArgument,
    ProfileOption,
    RepeatsOption,
    SeedOption,
    SettingsOption,
    StoreOption,
    Told,
    overrides,
    refuse_idle,
    told,
    verb,
)
from cellrepro.errors import BadInput
from cellrepro.show.answers.explanation import explanation_answer
from cellrepro.show.answers.sensitivity import sensitivity_answer
from cellrepro.show.answers.tiles import cuts_answer, tiles_answer


@verb()
def sensitivity(
    data: DataArgument,
    model: ModelOption = defaults.MODEL,
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    settings: SettingsOption = None,
    vary: Annotated[
        list[str] | None, Option(help="NAME=[A, B]: these settings and values alone")
    ] = None,
    figures: Annotated[str | None, Option(help="a folder for a picture of each setting")] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Vary each setting of a segmentation by itself: how many cells does it change?"""
    from cellrepro.show.figures.settings import setting_figures

    result = cellrepro.sensitivity(
        data,
        model=model,
        seed=seed,
        profile=profile,
        mode=mode,
        settings=overrides(settings or []),
        vary=overrides(vary or [], "--vary") or None,
        store=store,
    )
    files = setting_figures(result, Path(figures)) if figures else {}
    return sensitivity_answer(result, files), 0


@verb()
def explain(
    a: Annotated[str, Argument(help="a _seg.npy, a label image, or KEY/REPEAT of the store")],
    b: OtherArgument,
    image: Annotated[str, Option(help="the image that both are of")],
    model: Annotated[str | None, Option(help=f"{MODELS}; default as the sides record")] = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    seed: SeedOption = None,
    store: StoreOption = defaults.STORE,
    minutes: Annotated[
        float, Option(help="after which the search of what nobody recorded ends")
    ] = defaults.SEARCH_MINUTES,
) -> Told:
    """Say why two results of one image differ: replayed one change at a time."""
    explanation = cellrepro.explain(
        a,
        b,
        image=image,
        model=model,
        profile=profile,
        mode=mode,
        seed=seed,
        store=store,
        minutes=minutes,
    )
    return explanation_answer(explanation), int(explanation.differs or explanation.vacuous)


@verb()
def wrap(
    data: DataArgument,
    command: Annotated[list[str], Argument(help="after --, with {image} and {masks} in it")],
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: Annotated[str, Option(help="fast (hands the seed over) or off")] = "fast",
    repeats: RepeatsOption = defaults.SEGMENTATIONS,
    timeout: Annotated[float | None, Option(help="seconds that an image may take")] = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Run any program that segments several times; say whether every mask is the same."""
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
    return told(outcome)


@verb("wrap-python")
def wrap_python(
    function: Annotated[str, Argument(help="MODULE:FUNCTION or FILE.py:FUNCTION, image to masks")],
    data: DataArgument,
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    repeats: RepeatsOption = defaults.SEGMENTATIONS,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Call a function that segments several times; say whether every mask is the same."""
    outcome = cellrepro.wrap_python(
        function,
        data,
        seed=seed,
        profile=profile,
        mode=mode,
        repeats=repeats,
        store=store,
    )
    return told(outcome)


_OF_A_SEGMENTATION = ("model", "seed", "profile", "mode", "settings")
"""Options of `tiles` that do something where a folder of images is segmented."""


@verb()
def tiles(
    context: typer.Context,
    data: Annotated[str | None, Argument(help="folder of images")] = None,
    masks: Annotated[str | None, Option(help="a label image instead: straight cuts alone")] = None,
    model: ModelOption = defaults.MODEL,
    seed: SeedOption = None,
    profile: ProfileOption = defaults.PROFILE,
    mode: ModeOption = defaults.MODE,
    settings: SettingsOption = None,
    store: StoreOption = defaults.STORE,
) -> Told:
    """Say which cells depend on where tiles lie, and find straight cuts in any masks."""
    if (data is None) == (masks is None):
        raise BadInput("give a folder of images, or --masks with a label image")
    if masks is not None:
        refuse_idle(context, _OF_A_SEGMENTATION, "beside --masks, of which nothing is segmented")
        from cellrepro.images.image_file import read_labels
        from cellrepro.same.labels import canonical
        from cellrepro.same.straight_borders import straight_borders

        labels = read_labels(masks)
        cuts = straight_borders(labels)
        n_objects = int(canonical(labels).max(initial=0))
        return cuts_answer(masks, cuts, n_objects=n_objects), int(bool(cuts) or not n_objects)
    dependence = cellrepro.tiles(
        str(data),
        model=model,
        seed=seed,
        profile=profile,
        mode=mode,
        settings=overrides(settings or []),
        store=store,
    )
    changed = dependence.cause != "none" or any(image.cuts for image in dependence.images)
    return tiles_answer(dependence), int(changed or dependence.vacuous)
