"""Explain why two results of one image differ: from files alone, or by segmenting again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.determinism import profiles
from cellrepro.determinism.mode_names import Mode
from cellrepro.determinism.profiles import Profile
from cellrepro.determinism.seeds import seed_of
from cellrepro.errors import BadInput, no_such_file
from cellrepro.explanation.causes import RecordedResult, Replayed, replay
from cellrepro.explanation.commands import Commands, LabSetup, commands_for, recorded_commands
from cellrepro.explanation.conditions import IMAGE_CROP, MODEL, PRECISION, Condition
from cellrepro.explanation.crops import in_common, part_shown, with_crop
from cellrepro.explanation.explanation import Explanation
from cellrepro.explanation.hand_edits import EditedSide, EffectOfHand, effect_of_hand
from cellrepro.explanation.recorded_settings import (
    MODEL_DIGEST,
    NOT_RECORDED,
    SettingOfBoth,
    side_by_side,
)
from cellrepro.explanation.references import file_or_run, image_name
from cellrepro.explanation.run_record import run_commands
from cellrepro.explanation.search import NETWORK_NOTE, Fit, Reproduced
from cellrepro.explanation.search_duration import DURATION_NOTE
from cellrepro.explanation.sides import Side, networks, read_side, with_usual_networks
from cellrepro.explanation.two_results import label_notes
from cellrepro.explanation.window_choice import AUTO, chosen_window, tiles_needed
from cellrepro.images.image_file import read_image
from cellrepro.images.size_factor import factor_text, size_factor
from cellrepro.model.weight_sources import ModelSource
from cellrepro.model.window import Window
from cellrepro.process.calling import in_child
from cellrepro.process.child import Event
from cellrepro.process.interrupts import end_on_request
from cellrepro.process.process_ends import RunError
from cellrepro.process.setup import Setup
from cellrepro.progress import print_note, progress
from cellrepro.progress_count import Progress
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.store import nvidia_gpus
from cellrepro.store.store import Store
from cellrepro.terminal import FileName, Place, Quiet

_INTERRUPTED = (
    "the replay was interrupted: what the files record is above, and no cause was tried to its "
    "end; a first Ctrl-C alone ends the search with what it has found"
)
_WHAT_FOLLOWS_INTERRUPT = (
    "the search ends with what it has found: after the segmentation that is being computed, and a "
    "few more by which causes are named. Ctrl-C again ends it at once, with what the files record"
)
_SAY_SECONDS = 30.0  # between two lines that say how far a search is


def explain(
    a: str,
    b: str,
    /,
    *,
    image: FileName | None = None,
    model: str | None = None,
    log_a: FileName | None = None,
    log_b: FileName | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    seed: int | None = None,
    store: FileName = defaults.STORE,
    minutes: float = defaults.SEARCH_MINUTES,
    crop: Place | None = None,
    quiet: Quiet = False,
) -> Explanation:
    """Say why two results of one image differ: recorded settings; with an image, segmented again.

    Parameters
    ----------
    a : str
        A ``_seg.npy``, a label image (its settings in NAME.json beside it, or unknown), or
        ``KEY/REPEAT`` of the store.
    b : str
        The second one; ``KEY KEY`` means the first two repeats of a run.
    image : str or Path, optional
        The image's file; its name is that of the image in stored runs. Without it only what the
        files record is compared, and nothing is segmented.
    model : str, optional
        As for `cellrepro.segment`; default that which the sides record, else the one that Cellpose
        takes by itself.
    log_a : str or Path, optional
        Cellpose's ``run.log`` of the run that made A.
    log_b : str or Path, optional
        The same of B.
    profile : str
        Numeric environment; its precision is that of sides that record none.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    store : str or Path
        Folder of finished runs.
    minutes : float
        After which the search of what nobody recorded ends, half of them for each side.
    crop : str or sequence of int, optional
        Replay a window of the image alone, which takes as much less time as it needs fewer of
        Cellpose's tiles: ``Y,X`` or ``Y,X,SIZE``, its centre and the pixels along an edge, or
        ``auto``, where most cells changed. What is found holds for the cells wholly in it, which
        are segmented as in the whole image.
    quiet : bool
        Show neither progress nor notices.

    Returns
    -------
    Explanation
        What nobody recorded is searched among usual values; what no change explains is said.

    Raises
    ------
    BadInput
        If a side cannot be read or holds no masks of the image or of a part of it, the recorded
        network is not here, ``model`` or ``crop`` is given without ``image``, ``minutes`` is not
        above 0, or no cell of the window differs.
    CellreproError
        If what a side records cannot be carried out here.

    Notes
    -----
    A version of Cellpose that a side records and that is not here is installed, if it can be had,
    in an environment of its own.

    Examples
    --------
    Which recorded settings differ?

    ``cellrepro explain gui_seg.npy script_masks.tif``

    Segment again, one change at a time: which change explains it?

    ``cellrepro explain gui_seg.npy script_masks.tif --image cells.tif``
    """
    if image is None:
        refuse_idle(
            ("model", "profile", "mode", "seed", "minutes", "crop"),
            "without --image, as nothing is segmented",
            instead="give --image IMAGE, or leave it out",
        )
    if not minutes > 0:
        raise BadInput(f"minutes is {minutes}; expected how long a search may take, above 0")
    file_or_run(a, name="a")
    file_or_run(b, name="b")
    opened_store = Store(store)
    if image is None:
        _refuse_without_image({"model": model, "crop": crop})
        return _from_files(a, b, opened_store, log_a=log_a, log_b=log_b)
    name = Path(image).stem
    side_a = read_side(a, image=name, store=opened_store).with_log(log_a).with_cellpose_provided()
    side_b = read_side(b, image=name, store=opened_store).with_log(log_b).with_cellpose_provided()
    if side_a.masks.ndim != 2 or side_b.masks.ndim != 2:
        return _of_stacks(side_a, side_b, image)
    pixels = read_image(image)
    side_a, side_b = _with_crops(
        side_a.with_reading_of(pixels), side_b.with_reading_of(pixels), pixels.shape[:2]
    )
    shown = _compared(side_a, side_b)
    notes: tuple[str, ...] = ()
    if model is None:
        side_a = side_a.with_recorded_network(opened_store)
        side_b = side_b.with_recorded_network(opened_store)
        side_a, side_b, note = with_usual_networks(side_a, side_b)
        notes = (note,) if note else ()
    sources = networks((side_a, side_b), model, opened_store)
    profile_settings = profiles.load(profile)
    window = None
    replayed = None
    interrupted = False
    by_hand = _by_hand(side_a, side_b)
    if shown.result.n_differing and not by_hand.explains_all:
        if crop is not None:
            window = _window(crop, side_a, side_b)
        setup = Setup(profile_settings, mode, seed_of(mode, seed))
        if not quiet:
            for note in notes:
                print_note(note)
        try:
            replayed = _replayed(
                side_a,
                side_b,
                pixels,
                sources,
                setup,
                window=window,
                minutes=minutes,
                quiet=quiet,
            )
        except KeyboardInterrupt:
            interrupted = True
    if replayed is not None:
        interrupted = replayed.cut_short
    lab_setup = LabSetup(profile, profile_settings.dtype, mode, seed)
    fit_a = None if replayed is None else replayed.a
    fit_b = None if replayed is None else replayed.b
    return Explanation(
        a=side_a,
        b=side_b,
        result=shown.result,
        replayed=replayed,
        settings=_settings(side_a, side_b),
        commands={
            "a": _commands(side_a, fit_a, image, sources, lab_setup),
            "b": _commands(side_b, fit_b, image, sources, lab_setup),
        },
        part=part_shown(side_a, side_b),
        not_replayed=_INTERRUPTED if interrupted and replayed is None else None,
        window=window,
        notes=(*shown.notes, *notes, *by_hand.notes),
        by_hand=by_hand,
        interrupted=interrupted,
    )


def _refuse_without_image(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise BadInput(
                f"{name} is {value!r} and there is no image: nothing is segmented without one; "
                f"give --image with the file that both are of, or leave --{name} out"
            )


def _window(crop: str | Sequence[int], a: Side, b: Side) -> Window:
    for side in (a, b):
        if IMAGE_CROP in side.known:
            raise BadInput(
                f"{side.name} shows a part of the image, where its cells are replayed; crop is for "
                "two results of the whole image: leave it out"
            )
    return chosen_window(crop, a.masks, b.masks)


def _from_files(
    a: str, b: str, store: Store, *, log_a: str | Path | None, log_b: str | Path | None
) -> Explanation:
    """Explain by files alone; nothing is segmented."""
    files = [Path(reference) for reference in (a, b) if Path(reference).exists()]
    image = image_name(files[0].stem) if len(files) == 1 else None
    side_a = read_side(a, image=image, store=store, with_network=False).with_log(log_a)
    side_b = read_side(b, image=image, store=store, with_network=False).with_log(log_b)
    why_not_compared = None
    shown = None
    try:
        side_a, side_b = _laid_on_each_other(side_a, side_b)
        shown = _compared(side_a, side_b)
    except BadInput as error:
        why_not_compared = str(error)
    by_hand = _by_hand(side_a, side_b)
    return Explanation(
        a=side_a,
        b=side_b,
        result=None if shown is None else shown.result,
        replayed=None,
        settings=_settings(side_a, side_b),
        commands={
            "a": _recorded_commands(side_a, image=None),
            "b": _recorded_commands(side_b, image=None),
        },
        part=part_shown(side_a, side_b),
        not_replayed=why_not_compared,
        from_files=True,
        notes=(*(() if shown is None else shown.notes), *by_hand.notes),
        by_hand=by_hand,
    )


class _MasksInCommon(NamedTuple):
    """The comparison of what both sides show, and how the masks were read."""

    result: MaskComparison
    notes: tuple[str, ...]


def _compared(a: Side, b: Side) -> _MasksInCommon:
    masks_a = in_common(a, b)
    masks_b = in_common(b, a)
    result = compare_masks(masks_a, masks_b)
    return _MasksInCommon(result, tuple(label_notes(masks_a, masks_b, result)))


def _by_hand(a: Side, b: Side) -> EffectOfHand:
    return effect_of_hand(EditedSide("A", a.masks, a.edits), EditedSide("B", b.masks, b.edits))


def _laid_on_each_other(a: Side, b: Side) -> tuple[Side, Side]:
    """Both sides, the smaller with its crop in the larger, if they differ in shape."""
    if a.masks.shape == b.masks.shape:
        return a, b
    if a.masks.ndim != 2 or b.masks.ndim != 2:
        raise BadInput(_of_other_shapes(a, b))
    shape = max(a.masks.shape, b.masks.shape, key=np.prod)
    try:
        return _with_crops(a, b, shape)
    except BadInput as error:
        raise BadInput(_not_of_one_image(a, b)) from error


def _with_crops(a: Side, b: Side, shape: tuple[int, ...]) -> tuple[Side, Side]:
    return with_crop(a, b, shape), with_crop(b, a, shape)


def _not_of_one_image(a: Side, b: Side) -> str:
    """Say why two planes of different sizes are not compared."""
    if size_factor(a.masks.shape, b.masks.shape) is not None:
        factor = factor_text("A", a.masks.shape, "B", b.masks.shape)
        return f"A has masks of shape {a.masks.shape}, and B of {b.masks.shape}{factor}"
    return (
        f"{a.name} has masks of shape {a.masks.shape}, and {b.name} of {b.masks.shape}: neither "
        "shows a part of the other, so no cell is compared"
    )


def _of_other_shapes(a: Side, b: Side) -> str:
    return (
        f"{a.name} has masks of shape {a.masks.shape}, {b.name} of {b.masks.shape}; expected two "
        "planes (Y, X), or two stacks (Z, Y, X) of one shape"
    )


def _of_stacks(a: Side, b: Side, image: str | Path) -> Explanation:
    """Explain two stacks by files alone: they are not replayed."""
    if a.masks.shape != b.masks.shape:
        raise BadInput(_of_other_shapes(a, b))
    if not Path(image).is_file():
        raise no_such_file(image, expected="the image that both are of")
    shown = _compared(a, b)
    return Explanation(
        a=a,
        b=b,
        result=shown.result,
        notes=shown.notes,
        replayed=None,
        settings=_settings(a, b),
        commands={
            "a": _recorded_commands(a, image=str(image)),
            "b": _recorded_commands(b, image=str(image)),
        },
        not_replayed=(
            "stacks are not replayed, so what nobody recorded is not searched; `cellrepro segment` "
            "with the settings of one side, and one of the other's, and `compare` say what it does"
        ),
    )


def _replayed(
    a: Side,
    b: Side,
    image: np.ndarray,
    sources: Mapping[str, ModelSource],
    setup: Setup,
    *,
    window: Window | None,
    minutes: float,
    quiet: bool,
) -> Replayed:
    results = [
        RecordedResult(
            side.condition(sources),
            side.masks if window is None else window.cells_of(side.masks),
            _is_network_certain(side, sources),
        )
        for side in (a, b)
    ]
    with (
        progress(3, "replays", quiet=quiet, even=False) as bar,
        end_on_request(_WHAT_FOLLOWS_INTERRUPT, quiet=quiet) as end_request,
    ):
        task = partial(
            replay,
            sources=sources,
            image=image,
            sides=results,
            search_minutes=minutes,
            end_request=end_request,
            shorter=_what_makes_it_shorter(a, b, setup.profile, window),
            window=window,
        )
        try:
            return in_child(task, setup, label="replays", on_event=_SearchListener(bar))
        except RunError as error:
            if end_request.is_made:  # it came before the process could take it as a request
                raise KeyboardInterrupt from error
            raise


def _is_network_certain(side: Side, sources: Mapping[str, ModelSource]) -> bool:
    """Whether a network at hand has the digest of the one that made a side."""
    of_run = side.model.digest if side.run is not None and side.model is not None else None
    recorded = {side.record.value(MODEL_DIGEST), of_run} - {None, NOT_RECORDED}
    return bool(recorded & {source.digest for source in sources.values()})


def _what_makes_it_shorter(a: Side, b: Side, profile: Profile, window: Window | None) -> str:
    """What a user can do about a search that takes too long."""
    ways = ["Ctrl-C ends it with what it has found"]
    with suppress(BadInput):  # where no window shows the difference
        if window is None:
            needed = tiles_needed(_window(AUTO, a, b), a.masks.shape)
            if needed.n < needed.of:
                ways.append(
                    f"--crop auto replays a window around changed cells, on {needed.n} of the "
                    f"image's {needed.of} tiles"
                )
    if profile.kind == "cpu":
        ways += [f"--profile auto computes on {gpu['name']}" for gpu in nvidia_gpus.gpus()[:1]]
    return "; ".join(ways)


class _SearchListener:
    """Shows the events of the process that searches in a progress bar."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._said_at = time.monotonic()

    def __call__(self, event: Event) -> None:
        if event.kind == "done":
            self._bar.advance(event.text)
        elif event.kind == "note" and event.text.startswith((DURATION_NOTE, NETWORK_NOTE)):
            self._bar.say(event.text)
        elif event.kind == "note":
            self._bar.note(event.text)
            if time.monotonic() - self._said_at > _SAY_SECONDS:
                self._said_at = time.monotonic()
                self._bar.say(event.text)


def _recorded_commands(side: Side, *, image: str | None) -> Commands | None:
    if side.run is not None:
        return run_commands(side.run, image=image)
    return recorded_commands(side.record, image=image, is_stack=side.masks.ndim > 2)


def _settings(a: Side, b: Side) -> tuple[SettingOfBoth, ...]:
    return side_by_side({**a.recorded, **a.known}, {**b.recorded, **b.known})


def _commands(
    side: Side,
    fit: Fit | None,
    image: str | Path,
    sources: Mapping[str, ModelSource],
    setup: LabSetup,
) -> Commands | None:
    """How to make a side again; None where neither a record nor the search tells."""
    condition = side.known
    if fit is not None:
        if fit.found != Reproduced.MADE:
            return None
        condition = fit.nearest
    elif not side.known or IMAGE_CROP in side.known:
        return None  # nobody recorded how it was made
    usual: Condition = {PRECISION: setup.dtype, MODEL: next(iter(sources), NOT_RECORDED)}
    return commands_for(str(image), {**usual, **condition}, sources, setup)
