"""What two results record of how they were made, in lines of words: a table, and commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cellrepro.words import some

if TYPE_CHECKING:
    from cellrepro.changes.commands import Commands
    from cellrepro.changes.explain import Explanation
    from cellrepro.changes.recorded_settings import RecordedSettings, SettingOfBoth

_MOST_UNKNOWN = 8
_WIDEST = 40  # characters of a value
_NOT_RECORDED = "not recorded"


def recorded_lines(explanation: Explanation) -> Iterator[str]:
    """Say what each side records, what differs first, and how Cellpose is called with it."""
    if explanation.why_not_replayed:
        yield explanation.why_not_replayed
    recorded = [setting for setting in explanation.settings if setting.is_recorded]
    if not recorded:
        yield "neither file records how it was made"
    yield from _table(recorded)
    unknown = [setting.name for setting in explanation.settings if not setting.is_recorded]
    if recorded and unknown:
        yield f"recorded of neither: {some(unknown, _MOST_UNKNOWN)}"
    for letter, side in (("A", explanation.a), ("B", explanation.b)):
        for remark in side.record.remarks:
            yield f"note on {letter}: {remark}"
        yield from _command_lines(letter, side.record, explanation.commands[letter.lower()])
    if explanation.differs:
        yield (
            "which of these differences changes cells, and how many: cellrepro explain A B "
            "--image IMAGE --model MODEL"
        )


def _table(settings: Sequence[SettingOfBoth]) -> Iterator[str]:
    rows = [("", "", "A", "B")]
    rows += [
        (_how(setting), setting.name, _shown(setting.a), _shown(setting.b)) for setting in settings
    ]
    if len(rows) == 1:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _how(setting: SettingOfBoth) -> str:
    if setting.differs:
        return "differs"
    if setting.is_recorded_of_both:
        return "same"
    return "only A" if _shown(setting.b) == _NOT_RECORDED else "only B"


def _shown(value: object) -> str:
    """A value in a table, in words; "?" stands for what no file records."""
    if isinstance(value, str) and value == "?":
        return _NOT_RECORDED
    text = "none" if value is None else str(value)
    return text if len(text) <= _WIDEST else f"...{text[3 - _WIDEST :]}"


def _command_lines(
    letter: str, record: RecordedSettings, commands: Commands | None
) -> Iterator[str]:
    yield f"{letter} as recorded, on the command line and in Python:"
    yield from command_lines(record, commands)


def command_lines(record: RecordedSettings | None, commands: Commands | None) -> Iterator[str]:
    """Say how Cellpose is called with what is recorded, or why nobody can say it."""
    if commands is None:
        is_known = record is not None and bool(record.known)
        why = "nothing is recorded of how it was made"
        if is_known:
            why = "its files do not say which generation of Cellpose it was"
        yield f"    no command: {why}"
        return
    shell, *notes = commands.shell.split("   # ")
    yield f"    {shell}"
    yield f"    {commands.python}"
    yield from (f"    # {note}" for note in notes)
