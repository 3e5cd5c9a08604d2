"""What two results record of how they were made, side by side, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

from cellrepro.explanation.cellpose_call import NETWORK
from cellrepro.explanation.conditions import IMAGE_CROP, MODEL
from cellrepro.explanation.files_at_hand import image_at_hand
from cellrepro.explanation.recorded_cause import IMAGE as TWO_IMAGES
from cellrepro.explanation.recorded_cause import STRONGEST_FIRST
from cellrepro.explanation.recorded_settings import DRAWN, REMOVED, tell_settings
from cellrepro.explanation.setting_meanings import recorded_in_words, setting_meaning
from cellrepro.explanation.settings_of_both import is_missing, value_text
from cellrepro.explanation.why import find_out_lines
from cellrepro.spec.lab_command import lab_command
from cellrepro.words import short_digest
from samebits.results import table_lines
from samebits.words import joined, some

if TYPE_CHECKING:
    from cellrepro.explanation.explanation import Explanation
    from cellrepro.explanation.settings_of_both import SettingOfBoth

_OFTEN_DIFFERS = ("model", "diameter", "cellprob_threshold", "flow_threshold", "min_size", "niter")
_MOST_ALIKE = 8
_MOST_USUAL = 4
_FIRST_ALIKE = ("model", "model_digest", "cellpose", "diameter", "precision", "device", "channels")
_WIDEST = 40  # characters of a value
_NOT_RECORDED_TEXT = "not recorded"


def recorded_lines(explanation: Explanation) -> Iterator[str]:
    """Say what each side records, what differs first, and how Cellpose is called with it."""
    if explanation.not_replayed:
        yield explanation.not_replayed
    recorded = [each for each in explanation.settings if each.is_recorded]
    if explanation.part is not None:  # said above, in words
        recorded = [each for each in recorded if each.name != IMAGE_CROP]
    alike = [each for each in recorded if each.is_recorded_by_both and not each.differs]
    of_one = [each for each in recorded if not each.is_recorded_by_both]
    usual = [each for each in of_one if each.is_usual and each.name not in (DRAWN, REMOVED)]
    follows = _network_that_follows(explanation)
    if follows:  # it stands after what it follows from
        recorded.sort(key=lambda each: each.name == MODEL)
    yield from _table([each for each in recorded if _tells(each)])
    yield from _meaning_lines(recorded, follows=follows)
    yield from _generation_lines(explanation)
    for letter in ("A", "B"):
        values = [
            f"{recorded_in_words(each.name)} {_shown(each.name, each.only_value)}"
            for each in usual
            if each.only_side == letter
        ]
        if values:
            yield f"only {letter}, with Cellpose's usual value: {some(values, _MOST_USUAL)}"
    yield from lines_without_effect(explanation)
    told = [each for each in alike if each.may_change_cells]
    if told:
        told.sort(key=_interest)
        values = [f"{recorded_in_words(each.name)} {_shown(each.name, each.a)}" for each in told]
        yield f"the same in both: {some(values, _MOST_ALIKE)}"
    known = {each.name for each in recorded}
    unknown = [name for name in _OFTEN_DIFFERS if name not in known]
    if unknown and tell_settings(known):
        yield f"neither records, of what often differs: {joined(unknown)}"
    of_both = [
        remark for remark in explanation.a.record.remarks if remark in explanation.b.record.remarks
    ]
    yield from (f"note: {remark}" for remark in of_both)
    for letter, side in explanation.sides:
        for remark in side.record.remarks:
            if remark not in of_both:
                yield f"note on {letter}: {remark}"
        if side.record.tells_settings:
            of_log = [] if side.log is None else ["--log", side.log]
            words = ["describe", side.name, *of_log, "--command"]
            command = lab_command(*words, store=explanation.store_folder)
            yield f"the call that makes {letter} again, as recorded: {command}"
    is_found = explanation.why is not None and explanation.why.is_found
    if explanation.differs and not is_found:
        yield from _ways_on(explanation)


def lines_without_effect(explanation: Explanation) -> Iterator[str]:
    """Name what both record differently and what changes no cell, such as the image's name."""
    names = [
        f"{recorded_in_words(each.name)} ({_shown(each.name, each.a)} and "
        f"{_shown(each.name, each.b)})"
        for each in explanation.settings
        if each.is_recorded_by_both and each.differs and _names_something_else(each)
    ]
    if names:
        yield f"recorded differently, without effect on the cells: {joined(names)}"


def _names_something_else(setting: SettingOfBoth) -> bool:
    """Whether more than the folder of a file differs, or the key of a run, which all runs have."""
    if setting.may_change_cells or setting.name == "run":
        return False
    return len({PureWindowsPath(str(value)).name for value in (setting.a, setting.b)}) == 2


def _tells(setting: SettingOfBoth) -> bool:
    """Whether a row is worth a line: what differs, or one side alone records and is not usual."""
    if setting.differs:
        return setting.may_change_cells
    may_be_cause = setting.name in (*STRONGEST_FIRST, DRAWN, REMOVED)
    return not setting.is_recorded_by_both and may_be_cause and not setting.is_usual


def _generation_lines(explanation: Explanation) -> Iterator[str]:
    """Say that the two are of Cellpose 4 and of one before it, which share no network."""
    a, b = (side.record.generation for side in (explanation.a, explanation.b))
    if a is not None and b is not None and (a == "4") != (b == "4"):
        yield (
            f"A is of Cellpose {a} and B of Cellpose {b}: a network of one does not load in the "
            "other, so they were made with different networks"
        )


def _network_that_follows(explanation: Explanation) -> str:
    """Say of two trainings why their networks have two names; empty for all else."""
    digests = _trained_weights(explanation)
    if not digests:
        return ""
    own = "each run segmented with the network that it trained"
    if len(digests) == 1:
        return f"{own}; both have the same weights"
    return f"{own}; that the two differ follows from what differs in the trainings"


def _trained_weights(explanation: Explanation) -> set[str]:
    """The digests of the weights that two trainings ended with; empty of anything else."""
    digests = set()
    for run in (explanation.a.run, explanation.b.run):
        if run is None or run.spec.task != "train" or run.manifest.weights is None:
            return set()
        digests.add(run.manifest.weights.digest)
    return digests


def _meaning_lines(settings: Sequence[SettingOfBoth], *, follows: str) -> Iterator[str]:
    """Say of the settings that differ what they do."""
    for setting in settings:
        meaning = setting_meaning(setting.name)
        if setting.name == MODEL and follows:
            meaning = follows
        if meaning and setting.differs:
            yield f"  {recorded_in_words(setting.name)}: {meaning}"


def _interest(setting: SettingOfBoth) -> int:
    """Rank among the settings that are the same, what decides most first."""
    names = list(_FIRST_ALIKE)
    return names.index(setting.name) if setting.name in names else len(names)


def next_command_lines(explanation: Explanation) -> Iterator[str]:
    """Give the command that tells which setting changes cells, where the files alone do not."""
    is_found = explanation.why is not None and explanation.why.is_found
    is_one_size = explanation.result is not None and explanation.scaled is None
    is_plane = is_one_size and explanation.a.masks.ndim == 2
    cause = None if explanation.why is None else explanation.why.cause
    is_cut = explanation.is_place_exact and cause is not None and cause.name == IMAGE_CROP
    is_unmade = is_cut or (cause is not None and cause.name == TWO_IMAGES)
    is_of_one_image = explanation.is_in_place and not is_unmade
    if not explanation.differs or is_found or not is_plane or not is_of_one_image:
        return
    if explanation.why is not None and explanation.why.find_out:
        yield from find_out_lines(explanation.why.find_out)
        return
    if len(_trained_weights(explanation)) > 1:  # no setting of a segmentation made the difference
        names = [explanation.a.name, explanation.b.name]
        yield from find_out_lines(lab_command("diverge", *names, store=explanation.store_folder))
        return
    calls = explanation.commands.values()
    is_known = all(call and not call.asks_for(NETWORK) for call in calls)
    names = [explanation.a.name, explanation.b.name]
    image = image_at_hand(explanation.settings, names)
    options = ["--image", image, *([] if is_known else ["--model", NETWORK])]
    command = lab_command("explain", *names, *options, store=explanation.store_folder)
    yield from find_out_lines(command)
    of_whole = "the whole image" if explanation.part is not None else "the image"
    yield f"    (segments {of_whole} again, and says which setting changes how many cells)"


def _ways_on(explanation: Explanation) -> Iterator[str]:
    """Say what the files cannot tell, and how to find it out."""
    silent = [letter for letter, side in explanation.sides if not side.record.tells_settings]
    is_likely = explanation.why is not None and explanation.why.cause is not None
    if len(silent) == 2:
        cannot_say = "what else makes the two differ" if is_likely else "why the two differ"
        yield f"neither file records its settings, so the files cannot say {cannot_say}"
    elif silent:
        cannot_say = "whether that is all" if is_likely else "which of them differ"
        yield f"{silent[0]} records no settings, so the files cannot say {cannot_say}"
    if silent:
        yield "to have the settings of a script recorded next time (cellrepro.record is one file):"
        yield "    from cellrepro.record import recorded"
        yield "    model = recorded(model)"


def _table(settings: Sequence[SettingOfBoth]) -> Iterator[str]:
    rows = [
        {
            "": "differs" if each.differs else f"only {each.only_side}",
            "setting": recorded_in_words(each.name),
            "A": _shown(each.name, each.a),
            "B": _shown(each.name, each.b),
        }
        for each in settings
    ]
    return table_lines(rows, indent=0, most=len(rows))


def _shown(name: str, value: object) -> str:
    """A value in a table, of bounded width."""
    if is_missing(value):
        return _NOT_RECORDED_TEXT
    text = short_digest(value_text(name, value))
    return text if len(text) <= _WIDEST else f"...{text[3 - _WIDEST :]}"
