"""The lines in which a terminal shows why two results differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cellrepro.explanation.cause_lines import cause_lines, vacuous_lines
from cellrepro.explanation.label_notes import no_cell_note
from cellrepro.explanation.recorded_lines import recorded_lines
from cellrepro.explanation.recorded_settings import NOT_RECORDED
from cellrepro.explanation.setting_meanings import value_text
from cellrepro.words import amount, pixels_text, share_text, some

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.explanation.crops import Part
    from cellrepro.explanation.explanation import Explanation

_MOST_UNKNOWN = 6


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Say what differs, what each side records, what caused it, how to make each again."""
    result = explanation.result
    for letter, side in explanation.sides:
        written_by = f", written by {side.record.written_by}" if side.record.written_by else ""
        yield f"{letter}: {side.name} ({side.kind}{written_by})"
    if explanation.part is not None:
        yield from _part_lines(explanation, explanation.part)
    if result is not None and result.n_differing:
        n_cells = result.n_objects_a + result.n_objects_b
        yield (
            f"{result.n_unmatched} of {amount(n_cells, 'cell')} of both sides have no counterpart "
            f"in the other ({share_text(result.changed)}), {pixels_text(result.ppm)} differ"
        )
        yield from _empty_lines(result)
    elif result is not None and explanation.part is None and not explanation.vacuous:
        yield explanation.sentence()
    yield from explanation.notes
    if explanation.from_files:
        yield from recorded_lines(explanation)
        return
    if result is not None and result.n_differing:
        yield from _recorded_lines(explanation)
        yield from cause_lines(explanation)
    if explanation.vacuous:
        yield from vacuous_lines(explanation)
    yield from _command_lines(explanation)


def _empty_lines(result: MaskComparison) -> Iterator[str]:
    """Say of a side without a cell what usually makes it so."""
    for letter, n_objects in (("A", result.n_objects_a), ("B", result.n_objects_b)):
        if not n_objects:
            yield no_cell_note(letter)


def _part_lines(explanation: Explanation, part: Part) -> Iterator[str]:
    """Say where one side shows a part of the image."""
    cropped = part.of.upper()
    whole = "B" if part.of == "a" else "A"
    yield (
        f"{cropped} shows {share_text(part.share)} of the image: rows {part.rows[0]} to "
        f"{part.rows[1]} and columns {part.columns[0]} to {part.columns[1]} of {whole}. Of "
        f"{whole}'s {amount(part.n_cells, 'cell')} {part.n_outside} lie outside of it, and "
        f"{part.n_cut} are cut by its border, so that these differ for that alone"
    )
    result = explanation.result
    n_cells = 0 if result is None else result.n_objects_a
    if result is None or result.n_differing:
        yield "what follows is about the part that both show:"
    elif n_cells:
        yield (
            f"in the part that both show, {amount(n_cells, 'cell')} or pieces of cells, every "
            f"pixel is the same: {cropped} is cut out of {whole}'s masks, and nothing else differs"
        )


def _recorded_lines(explanation: Explanation) -> Iterator[str]:
    """Say what the two record, and of what they record nothing."""
    for letter, side in explanation.sides:
        for remark in side.record.remarks:
            yield f"{letter}: {remark}"
    for setting in explanation.settings:
        if setting.a != setting.b and setting.is_recorded_by_both:
            yield f"recorded: {setting.name} {value_text(setting.a)} and {value_text(setting.b)}"
    unknown_of = {
        "A": [each.name for each in explanation.settings if each.a == NOT_RECORDED],
        "B": [each.name for each in explanation.settings if each.b == NOT_RECORDED],
    }
    for letter, unknown in unknown_of.items():
        if unknown:
            yield f"nobody recorded of {letter}: {some(unknown, _MOST_UNKNOWN)}"


def _command_lines(explanation: Explanation) -> Iterator[str]:
    """Say how to make each side again: on the command line, in Python, and with this lab."""
    tried = explanation.replayed is not None
    made = "again" if tried else "as recorded, which was not tried"
    for side, commands in explanation.commands.items():
        if commands is not None:
            first, *others = commands.texts()
            yield f"{side.upper()} {made}: {first}"
            yield from (f"         {line}" for line in others)
