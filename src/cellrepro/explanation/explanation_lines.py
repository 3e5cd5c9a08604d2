"""The lines in which a terminal shows why two results differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cellrepro.comparison.changed_cells import cell_rows, listed_cells, shift_note
from cellrepro.comparison.mask_totals import totals_over
from cellrepro.comparison.object_changes import KEPT_IOU
from cellrepro.explanation.conditions import (
    IMAGE_CHANNELS,
    IMAGE_DEPTH,
    MODEL,
    PRECISION,
    VERSION,
)
from cellrepro.explanation.fit import Fit, Reproduced
from cellrepro.explanation.label_notes import no_cell_note
from cellrepro.explanation.recorded_lines import (
    lines_without_effect,
    next_command_lines,
    recorded_lines,
)
from cellrepro.explanation.recorded_settings import MODEL_DIGEST, NOT_RECORDED
from cellrepro.explanation.search import DECIDING
from cellrepro.explanation.setting_meanings import recorded_in_words
from cellrepro.explanation.settings_of_both import is_usual_value, setting_in_words, value_text
from cellrepro.explanation.why import find_out_lines
from cellrepro.spec.lab_command import lab_command
from cellrepro.words import share_text, that_differ
from samebits.results import MOST_LINES, table_lines
from samebits.shown_text import short
from samebits.words import amount, grouped, joined, some, verb_of, with_verb

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.explanation.causes import Change
    from cellrepro.explanation.crops import Part
    from cellrepro.explanation.explanation import Explanation
    from cellrepro.explanation.sides import Side


_MOST_UNKNOWN = 6


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Say the cause, what differs, what each side records, how to make each again."""
    result = explanation.result
    if explanation.why is not None:
        yield from explanation.why.said_lines()
        if explanation.replayed is not None and explanation.why.find_out:
            yield from find_out_lines(explanation.why.find_out)
    elif explanation.vacuous:
        yield from vacuous_lines(explanation)
    elif not explanation.differs:
        yield explanation.sentence()
    if explanation.from_files:
        yield from next_command_lines(explanation)
    for letter, side in explanation.sides:
        written_by = f", written by {side.record.written_by}" if side.record.written_by else ""
        n_cells = f", {amount(side.n_cells, 'cell')}" if result is None else ""
        yield f"{letter}: {side.name} ({side.kind}{written_by}{n_cells})"
    if explanation.part is not None:
        yield from _part_lines(explanation, explanation.part)
    if explanation.scaled is not None:
        yield explanation.scaled.compared_text
    if result is not None and result.n_differing and explanation.is_in_place:
        yield totals_over([result]).sentence()
        if explanation.why is None or not explanation.why.is_found:
            yield from _empty_lines(result)
        cells = listed_cells({"": result})
        if explanation.scaled is not None or explanation.part is not None:
            rows = cell_rows(cells, a="A", b="B", n_images=1, most=MOST_LINES)
            yield from table_lines(rows, indent=2, n_rows=len(cells))
            if note := shift_note(cell.change for cell in cells[:MOST_LINES]):
                yield f"  {note}"
        elif cells:
            names = (explanation.a.name, explanation.b.name)
            command = lab_command("compare", *names, store=explanation.store_folder)
            yield f"  each of these cells: {command}"
    elif _differs_in_numbers_alone(explanation):
        yield explanation.sentence()
    words = "" if explanation.cause is None else explanation.cause.words
    yield from (note for note in explanation.notes if not (words and note.endswith(words)))
    if explanation.from_files:
        yield from recorded_lines(explanation)
        return
    if result is not None and result.n_differing:
        yield from _recorded_lines(explanation)
    yield from replay_lines(explanation)


def _differs_in_numbers_alone(explanation: Explanation) -> bool:
    is_one_size = explanation.part is None and explanation.scaled is None
    is_whole = explanation.result is not None and is_one_size
    return is_whole and explanation.differs and not explanation.vacuous


def replay_lines(explanation: Explanation) -> Iterator[str]:
    """Say what segmenting again has shown, and how to make each side again."""
    if explanation.result is not None and explanation.result.n_differing:
        yield from cause_lines(explanation)
    elif explanation.replayed is not None:
        fits = [fit for _, fit in explanation.replayed.fits]
        if any(fit.found == Reproduced.MADE for fit in fits):
            yield from made_again_lines(explanation)
    yield from _command_lines(explanation)


def _empty_lines(result: MaskComparison) -> Iterator[str]:
    """Say of a side without a cell what usually makes it so."""
    for letter, n_objects in (("A", result.n_objects_a), ("B", result.n_objects_b)):
        if not n_objects:
            yield no_cell_note(letter)


def _part_lines(explanation: Explanation, part: Part) -> Iterator[str]:
    """Say where one side shows a part of the image."""
    cropped = part.cropped
    whole = part.whole
    result = explanation.result
    if result is not None and not explanation.is_in_place:
        yield (
            f"{cropped} is smaller than {whole}, and where it lies in it is not known: its cells "
            f"overlap most in {part.place}, where {result.n_matched or 'none'} of {whole}'s cells "
            f"{verb_of(result.n_matched, 'has', 'have')} a match (IoU of 0.5 or "
            "more)"
        )
        return
    about = "" if explanation.is_place_exact else "about "
    yield (
        f"{cropped} shows {share_text(part.share)} of the image: {about}{part.place} of {whole}. "
        f"{part.cells_left_out(whole)}"
    )
    n_cells = 0 if result is None else result.n_objects_a
    if result is None or result.n_differing:
        yield (
            "what follows is about the part that both show; y and x count from its upper left "
            f"corner, which is y {part.rows[0]}, x {part.columns[0]} of {whole}:"
        )
    elif n_cells:
        yield (
            f"in the part that both show, {amount(n_cells, 'cell')} or pieces of cells, every "
            "pixel is the same"
        )


def _recorded_lines(explanation: Explanation) -> Iterator[str]:
    """Say what the two record, and of what they record nothing."""
    for letter, side in explanation.sides:
        for remark in side.record.remarks:
            yield f"{letter}: {remark}"
    causes = {cause.name for cause in explanation.causes}  # whose values are said with them
    for setting in explanation.settings:
        told = setting.is_recorded_by_both and setting.differs and setting.may_change_cells
        if told and setting.name not in causes:
            a, b = (setting_in_words(setting.name, value) for value in (setting.a, setting.b))
            yield f"recorded: {recorded_in_words(setting.name)} {a} and {b}"
    yield from lines_without_effect(explanation)
    unknown_of = {
        "A": [each for each in explanation.settings if each.a == NOT_RECORDED],
        "B": [each for each in explanation.settings if each.b == NOT_RECORDED],
    }
    for letter, unknown in unknown_of.items():
        if unknown:
            names = [recorded_in_words(each.name) for each in unknown]
            yield f"nobody recorded of {letter}: {some(names, _MOST_UNKNOWN)}"


def _command_lines(explanation: Explanation) -> Iterator[str]:
    """Say how to make each side again: on the command line, in Python, and with this lab."""
    tried = explanation.replayed is not None
    made = "again" if tried else "as recorded, which was not tried"
    for side, commands in explanation.commands.items():
        if commands is not None:
            first, *others = "\n".join(commands.texts()).splitlines()
            yield f"{side.upper()} {made}: {first}"
            yield from (f"         {line}" for line in others)


# -- of causes -----------------------------------------------------------------------------

_MOST_EMPTY = 8


def cause_lines(explanation: Explanation) -> Iterator[str]:
    """Say which side was not made again, the causes and what they leave, or why none was sought."""
    replayed = explanation.replayed
    if replayed is None:
        if explanation.by_hand.explains_all:
            yield "but for what was done by hand, the two are the same in every pixel"
        if explanation.not_replayed:
            yield explanation.not_replayed
        return
    if explanation.window is not None:
        n_cells = replayed.a.n_target + replayed.b.n_target
        yield (
            f"replayed: {explanation.window.in_words} alone, and what follows holds for the "
            f"{amount(n_cells, 'cell')} of both sides that lie wholly there"
        )
    if explanation.interrupted:
        yield "cut short: you ended the search, and what follows is what it had found until then"
    yield from made_again_lines(explanation)
    yield from (_cause_line(explanation, cause) for cause in replayed.causes)
    if replayed.causes and explanation.result is not None and explanation.result.kinds["moved"]:
        yield (
            f"  (a match: IoU of {KEPT_IOU} or more. Shifted and reshaped cells may have one, and "
            "are among the changed cells above)"
        )


def made_again_lines(explanation: Explanation) -> Iterator[str]:
    """Say whether each side was made again, or how near the search came to it."""
    replayed = explanation.replayed
    if replayed is None:
        return
    for letter, fit in replayed.fits:
        if fit.found == Reproduced.MADE:
            yield _made_line(letter, fit, explanation)
        elif fit.found != Reproduced.VACUOUS:
            if fit.network_doubt:
                yield _other_network_line(letter, fit, explanation)
            else:
                yield _not_made_line(letter, fit, explanation)
    recorded = {*explanation.a.recorded, *explanation.b.recorded}
    if explanation.networks_unlike_given:  # which can be, without --model
        recorded -= {MODEL, MODEL_DIGEST}
    others = {
        recorded_in_words(setting.name)
        for setting in explanation.settings
        if setting.is_recorded_by_both
        and setting.differs
        and setting.may_change_cells
        and setting.name in recorded
    }
    if others and explanation.unexplained:
        yield f"what differs and cannot be varied here: {', '.join(sorted(others))}"


def _made_line(letter: str, fit: Fit, explanation: Explanation) -> str:
    """Say that a side was made again, and with what."""
    side = explanation.a if letter == "A" else explanation.b
    exactly = f"but for {amount(fit.pixels_left, 'pixel')}" if fit.pixels_left else "exactly"
    not_recorded = [
        f"{recorded_in_words(name)} {setting_in_words(name, value)}"
        for name, value in fit.nearest.items()
        if name not in side.known and not _is_usual_here(name, value)
    ]
    against_record = [
        f"{recorded_in_words(name)} {setting_in_words(name, value)}"
        for name, value in fit.nearest.items()
        if side.against_record(name, value)
    ]
    if against_record:
        how = f"with {joined(against_record)}, where its file records something else"
    elif not_recorded:
        how = f"with {joined(not_recorded)}, which its file does not record"
    else:
        how = "as recorded" if side.record.tells_settings else "with the usual settings"
    return f"{letter} was made again {exactly}, {how}"


def _is_usual_here(name: str, value: object) -> bool:
    """Whether a search takes a value by itself, or without it reads the image as it is."""
    is_as_it_is = value is None and name in (IMAGE_DEPTH, IMAGE_CHANNELS)
    of_process = name in (MODEL, VERSION) or (name, value) == (PRECISION, "float32")
    return is_as_it_is or of_process or is_usual_value(name, value)


def _other_network_line(letter: str, fit: Fit, explanation: Explanation) -> str:
    """Say that a side was probably made with a different network, or not searched for that."""
    if fit.network_doubt == "not searched":
        return (
            f"how {letter} was made was not searched, as the network is probably not the one that "
            "made the two"
        )
    made = f"at most {fit.exact}" if fit.exact else "none"
    unmade = (
        f"{made} of its {amount(fit.n_target, 'cell')} {verb_of(fit.exact, 'is', 'are')} made "
        "again pixel for pixel"
    )
    other = next(
        (each for each in explanation.networks_unlike_given if each.letter == letter), None
    )
    if other is not None:
        return (
            f"{letter} records another network than --model gives: with {short(other.given)} "
            f"{unmade}. One --model serves both sides"
        )
    side = explanation.a if letter == "A" else explanation.b
    recorded = side.record.values.get("model")
    named = f" (its file names {recorded.value})" if recorded is not None else ""
    values = ""
    if fit.n_values_tried:
        values = f", and with {_values_text(fit)} of what it does not record,"
    return (
        f"{letter} was probably made with a different network{named}: it records "
        f"{joined(DECIDING)}, which change most cells. With these{values} {unmade}. If you know "
        "its network, give that with --model; or its file records other settings than those it was "
        "made with, as where they were changed before it was saved"
    )


def _values_text(fit: Fit) -> str:
    """Say how many values were tried one by one, of how many.

    >>> from cellrepro.explanation.trials import Gap
    >>> of_fit = {"nearest": {}, "start": {}, "gap": Gap(9, 99), "of_cells": 9, "n_target": 4}
    >>> _values_text(Fit(**of_fit, exact=0, n_pixels=50, tried=13, n_values=78, n_values_left=66))
    '12 of 78 values'
    """
    tried = "each" if not fit.n_values_left else str(fit.n_values_tried)
    return f"{tried} of {amount(fit.n_values, 'value')}"


def _tried_sentence(fit: Fit, *, cut_short: bool) -> str:
    """Say what was tried of a side."""
    if not fit.n_values:
        return "What is recorded was tried"
    verb = "was" if fit.n_values_tried == 1 or not fit.n_values_left else "were"
    tried = f"{_values_text(fit).capitalize()} {verb} tried"
    if not fit.stopped:
        return f"{tried}, then others near the best and combinations"
    if cut_short:
        return f"{tried} before you ended the search"
    return f"{tried} when time was up"


def _not_made_line(letter: str, fit: Fit, explanation: Explanation) -> str:
    """Say how near a search came that did not make a side again."""
    side = explanation.a if letter == "A" else explanation.b
    tried = _tried_sentence(fit, cut_short=explanation.interrupted)
    cells = amount(fit.n_target, "cell")
    if fit.cells_left == fit.of_cells:
        return (
            f"how {letter} was made was not found. {tried}: none makes one of its {cells}, not "
            "even with a different outline"
        )
    if not fit.exact:
        return (
            f"how {letter} was made was not found. {tried}: none makes one of its {cells} pixel "
            "for pixel"
        )
    changes = [
        f"{recorded_in_words(name)} {setting_in_words(name, value)}"
        for name, value in fit.nearest.items()
        if fit.start.get(name) != value
    ]
    unchanged = "what is recorded" if side.record.tells_settings else "the usual settings"
    nearest = joined(changes) or unchanged
    result = f"how {letter} was made was not found"
    if fit.found == Reproduced.IN_PART:
        result = f"{letter} was found in part"
    n_made = fit.of_cells - fit.n_target
    differ = that_differ(fit.pixels_left, "pixel")
    return (
        f"{result}: with {nearest}, {fit.exact} of its {cells} "
        f"{verb_of(fit.exact, 'is', 'are')} made again pixel for pixel. Of the {fit.n_target} in "
        f"{letter} and the {n_made} that were made again, {fit.cells_left or 'none'} "
        f"{verb_of(fit.cells_left, 'has', 'have')} no match among the others; {differ}. {tried}"
    )


def _cause_line(explanation: Explanation, cause: Change) -> str:
    """Say what a change does by itself, and its values where the first line does not."""
    is_said = explanation.why is not None and explanation.why.is_found
    a, b = (value_text(cause.name, value) for value in (cause.a, cause.b))
    values = "" if is_said else f" ({a} in A, {b} in B)"
    return (
        f"changing {recorded_in_words(cause.name)}{values} alone leaves {grouped(cause.cells)} of "
        f"{amount(cause.of_cells, 'cell')} without a match (cells without and with this change, "
        "together)"
    )


def vacuous_lines(explanation: Explanation) -> Iterator[str]:
    """Say why a side without a cell explains nothing."""
    yield from (f"vacuous: {reason}" for reason in vacuous_reasons(explanation))


def vacuous_reasons(explanation: Explanation) -> Iterator[str]:
    """Say of each side without a cell what was tried, and that it explains nothing."""
    if not explanation.a.n_cells and not explanation.b.n_cells:
        yield "neither side has a cell, so there is nothing to explain"
        return
    assert explanation.replayed is not None  # a search alone finds a side without a cell vacuous
    fits = explanation.replayed.fits
    for (letter, side), (_, fit) in zip(explanation.sides, fits, strict=True):
        if fit.found != Reproduced.VACUOUS:
            continue
        if fit.empty_with:
            reason = (
                f"Nothing is found {_emptying_text(side, fit)}: this is no explanation, since "
                "masks without a cell do not tell one from the other"
            )
        else:
            reason = f"{_tried_sentence(fit, cut_short=explanation.interrupted)}: each finds cells"
        n_made = fit.of_cells - fit.n_target
        if side.record.tells_settings and n_made:
            found = with_verb(n_made, "cell", "is", "are")
            reason = f"With what it records, and usual values for the rest, {found} found. {reason}"
        yield f"{letter} has no cell. {reason}"


def _emptying_text(side: Side, fit: Fit) -> str:
    """Name the values with which nothing is found, those that contradict the record last."""

    def named(*, is_recorded: bool) -> str:
        values = [
            f"{recorded_in_words(each.name)} {setting_in_words(each.name, each.value)}"
            for each in fit.empty_with
            if (each.name in side.known) == is_recorded
        ]
        any_of = "any of " if len(values) > 1 else ""
        return f"with {any_of}{some(values, _MOST_EMPTY)}" if values else ""

    beside = named(is_recorded=False)
    against = named(is_recorded=True)
    against = f"against its record {against}" if against else ""
    return ", or ".join(filter(None, [beside, against]))
