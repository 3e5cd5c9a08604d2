"""Explain why two results of one image differ: from files alone, or by segmenting again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cellrepro.comparison.mask_totals import image_weight
from cellrepro.errors import no_such_file
from cellrepro.explanation.causes import Replayed
from cellrepro.explanation.commands import Commands
from cellrepro.explanation.compare_repeats import compare_masks_of, why_of_repeats
from cellrepro.explanation.condition_commands import LabSetup, commands_for
from cellrepro.explanation.conditions import IMAGE_CROP, MODEL, PRECISION, Condition
from cellrepro.explanation.crops import cut_out
from cellrepro.explanation.explanation import Explanation
from cellrepro.explanation.fit import Fit, Reproduced
from cellrepro.explanation.hand_edits import EffectOfHand
from cellrepro.explanation.recorded_network import OtherNetwork
from cellrepro.explanation.recorded_settings import NOT_RECORDED
from cellrepro.explanation.references import file_or_run, refuse_to_segment
from cellrepro.explanation.replay import ReplayedImage
from cellrepro.explanation.replay_call import replay_window, replayed
from cellrepro.explanation.side_pair import MasksInCommon, SidePair
from cellrepro.explanation.sides import Side, networks, with_usual_networks
from cellrepro.explanation.why import Why
from cellrepro.images.image_file import image_in, refuse_labels_as_image
from cellrepro.images.image_names import image_name
from cellrepro.model.weight_sources import ModelSource
from cellrepro.process.setup import Setup
from cellrepro.profiles import profiles
from cellrepro.progress import print_note
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command
from cellrepro.stated import refuse_idle
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.terminal import FileName, Place, Quiet
from samebits.errors import BadInput
from samebits.mode_names import Mode
from samebits.seeds import seed_of

_INTERRUPTED = (
    "the replay was interrupted: what the files record is above, and no cause was tried to its "
    "end; a first Ctrl-C alone ends the search with what it has found"
)
_CUT_NOT_REPLAYED = (
    "nothing was segmented: no setting makes cells of the cropped image that were cut out of masks "
    "of the whole one"
)
_STACKS_NOT_REPLAYED = (
    "stacks are not replayed, so what nobody recorded is not searched; `cellrepro segment` "
    "with the settings of one side, and one of the other's, and `compare` say what it does"
)


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
        The second one, of the same kinds.
    image : str or Path, optional
        The image's file; its name is that of the image in stored runs. Without it only what the
        files record is compared, and nothing is segmented.
    model : str, optional
        As for `segment`; default that which the sides record, else the one that Cellpose
        takes by itself.
    log_a : str or Path, optional
        Cellpose's ``run.log`` of the run that made A.
    log_b : str or Path, optional
        The same of B.
    profile : str
        Numeric environment: threads, instructions, precision. A side that records its precision
        keeps it.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    store : str or Path
        Folder of finished runs.
    minutes : float
        How long settings that no file records are searched, at most: half of it for A, and for B
        what that left.
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
    if not (Path(a).exists() or Path(b).exists()):
        a, b = (repeat.name for repeat in opened_store.find_two(a, b))
    if image is None:
        refuse_to_segment(None, {"model": model, "crop": crop})
        return _from_files(a, b, opened_store, log_a=log_a, log_b=log_b)
    sides = SidePair.read(a, b, image=Path(image).stem, store=opened_store)
    sides = sides.with_logs(log_a, log_b).each(Side.with_cellpose_provided)
    if not sides.are_planes:
        return _of_stacks(sides, opened_store, image)
    checked = image_in(Path(image))
    pixels = checked.pixels
    refuse_labels_as_image(image, pixels, a=sides.a.masks, b=sides.b.masks)
    sides = sides.each(lambda side: side.with_reading_of(pixels)).with_crops(pixels.shape[:2])
    shown = sides.compared()
    note = ""
    if model is None:
        sides, note = _with_networks(sides, opened_store)
    sources = networks((sides.a, sides.b), model, opened_store)
    if model is not None:
        (named,) = sources.values()
        note = named.remark
    profile_settings = profiles.load(profile)
    unlike_given = _networks_unlike(sides, sources, opened_store) if model is not None else ()
    by_hand = sides.by_hand()
    window = None
    made_again = None
    interrupted = False
    why_not_replayed = None
    cut = cut_out(sides.a, sides.b, shown.result)
    if cut is not None and shown.result.n_differing:
        why_not_replayed = _CUT_NOT_REPLAYED
    elif _is_to_be_replayed(sides, shown, by_hand):
        if crop is not None and shown.result.n_differing:
            window = replay_window(crop, sides)
        setup = Setup(profile_settings, mode, seed_of(mode, seed))
        if note and not quiet:
            print_note(note)
        replayed_image = ReplayedImage(pixels, sources, window)
        try:
            made_again = replayed(
                sides,
                replayed_image,
                setup,
                minutes=minutes,
                unlike_given=unlike_given,
                command=_command(a, b, image, model, opened_store),
                quiet=quiet,
            )
        except KeyboardInterrupt:
            interrupted = True
            why_not_replayed = _INTERRUPTED
    if made_again is not None:
        sides = sides.with_crops_made(made_again.a, made_again.b)
        shown = sides.compared()
    lab_setup = LabSetup(profile, profile_settings.dtype, mode, seed)
    return Explanation(
        a=sides.a,
        b=sides.b,
        result=shown.result,
        replayed=made_again,
        settings=sides.settings,
        commands=_commands_for_both(sides, made_again, image, sources, lab_setup),
        part=sides.part,
        not_replayed=why_not_replayed,
        window=window,
        notes=(
            *(f"about the image: {remark}" for remark in checked.remarks),
            *shown.notes,
            *([note] if note else []),
            *by_hand.notes,
        ),
        by_hand=by_hand,
        store_folder=opened_store.root,
        networks_unlike_given=unlike_given,
        without_model=_without_model(sides, image, opened_store) if unlike_given else "",
        from_record=_why_recorded(sides, shown, opened_store),
        interrupted=interrupted or (made_again is not None and made_again.cut_short),
    )


def _is_to_be_replayed(sides: SidePair, shown: MasksInCommon, by_hand: EffectOfHand) -> bool:
    """Whether segmenting again can tell why masks differ, or which record of equal ones is true."""
    if shown.result.n_differing:
        return not by_hand.explains_all
    return sides.part is None and sides.may_have_untrue_record


def _why_recorded(sides: SidePair, shown: MasksInCommon | None, store: Store) -> Why | None:
    """Say what the records tell, of two runs just as `compare` says it."""
    a, b = sides.a.run, sides.b.run
    is_same = shown is not None and not shown.result.n_differing
    if a is None or b is None or is_same:
        return sides.why_from_files(shown)
    return why_of_repeats(a, b, store=store)


def _with_networks(sides: SidePair, store: Store) -> tuple[SidePair, str]:
    """Add the networks that the files record, or else the usual ones, with a sentence on these."""
    recorded = sides.each(lambda side: side.with_recorded_network(store))
    a, b, note = with_usual_networks(recorded.a, recorded.b)
    return SidePair(a, b), note


def _networks_unlike(
    sides: SidePair, sources: Mapping[str, ModelSource], store: Store
) -> tuple[OtherNetwork, ...]:
    """Find the sides that record another network than the given one."""
    given = next(iter(sources.values()))
    of_sides = [
        side.network_unlike(given, store, letter)
        for letter, side in (("A", sides.a), ("B", sides.b))
    ]
    return tuple(each for each in of_sides if each is not None)


def _without_model(sides: SidePair, image: str | Path, store: Store) -> str:
    """Write the command that takes the network of each side; empty where one is not here."""
    recorded = sides.each(lambda side: side.with_recorded_network(store))
    if recorded.a.model is None or recorded.b.model is None:
        return ""
    return _command(sides.a.name, sides.b.name, image, None, store)


def _command(a: str, b: str, image: str | Path, model: str | None, store: Store) -> str:
    of_model = [] if model is None else ["--model", model]
    return lab_command("explain", a, b, "--image", image, *of_model, store=store.root)


def _commands_for_both(
    sides: SidePair,
    made_again: Replayed | None,
    image: str | Path,
    sources: Mapping[str, ModelSource],
    setup: LabSetup,
) -> dict[str, Commands | None]:
    fit_a = None if made_again is None else made_again.a
    fit_b = None if made_again is None else made_again.b
    return {
        "a": _commands(sides.a, fit_a, image, sources, replace(setup, side="a")),
        "b": _commands(sides.b, fit_b, image, sources, replace(setup, side="b")),
    }


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


# -- without a replay ------------------------------------------------------------------------


def _from_files(
    a: str, b: str, store: Store, *, log_a: str | Path | None, log_b: str | Path | None
) -> Explanation:
    """Explain by files alone; nothing is segmented."""
    files = [Path(reference) for reference in (a, b) if Path(reference).exists()]
    image = image_name(files[0].stem) if len(files) == 1 else None
    chosen = ""
    if not files:
        image, chosen = _most_different(store.find(a), store.find(b))
    sides = SidePair.read(a, b, image=image, store=store, with_network=False)
    sides = sides.with_logs(log_a, log_b)
    why_not_compared = None
    shown = None
    try:
        sides = sides.laid_on_each_other()
        shown = sides.compared()
    except BadInput as error:
        why_not_compared = str(error)
    by_hand = sides.by_hand()
    return Explanation(
        a=sides.a,
        b=sides.b,
        result=None if shown is None else shown.result,
        replayed=None,
        settings=sides.settings,
        commands=sides.recorded_commands(store, image=None),
        part=sides.part,
        scaled=sides.scaled,
        not_replayed=why_not_compared,
        from_files=True,
        notes=(
            *([chosen] if chosen else []),
            *(() if shown is None else shown.notes),
            *by_hand.notes,
        ),
        by_hand=by_hand,
        store_folder=store.root,
        from_record=_why_recorded(sides, shown, store),
    )


def _most_different(a: Repeat, b: Repeat) -> tuple[str | None, str]:
    """Choose of the images of two runs the one that differs most, and say so."""
    results = compare_masks_of(a, b).masks
    if len(results) < 2:
        return next(iter(results), None), ""
    name = max(results, key=lambda name: image_weight(results[name]))
    reason = ", on which most differs" if image_weight(results[name]) else ""
    return name, (
        f"of the {len(results)} images of both runs, {name} is explained{reason}; "
        "--image FILE takes another"
    )


def _of_stacks(sides: SidePair, store: Store, image: str | Path) -> Explanation:
    """Explain two stacks by files alone: they are not replayed."""
    if sides.a.masks.shape != sides.b.masks.shape:
        raise sides.of_other_shapes()
    if not Path(image).is_file():
        raise no_such_file(image, expected="the image that both are of")
    shown = sides.compared()
    return Explanation(
        a=sides.a,
        b=sides.b,
        result=shown.result,
        notes=shown.notes,
        replayed=None,
        settings=sides.settings,
        commands=sides.recorded_commands(store, image=str(image)),
        not_replayed=_STACKS_NOT_REPLAYED,
        store_folder=store.root,
        from_record=_why_recorded(sides, shown, store),
    )
