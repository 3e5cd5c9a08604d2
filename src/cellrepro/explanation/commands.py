"""How to make a result again: the commands of Cellpose and of this lab, and their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from cellrepro.explanation.cellpose_call import words_to_replace
from cellrepro.explanation.recorded_settings import RUNSTRING, TRAINING, RecordedSettings


@dataclass(frozen=True)
class ShellLine:
    """A command line, and what it cannot say; in JSON and as text the notes follow as comments."""

    command: str = ""
    """Empty where none can be given."""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.command)

    def __str__(self) -> str:
        return "   # ".join([self.command, *self.notes, *self.put_in])

    @property
    def put_in(self) -> list[str]:
        """What to put in place of words in capitals, as a further note."""
        said = words_to_replace(self.command)
        return [said] if said else []

    @property
    def json_record(self) -> str:
        """Its text."""
        return str(self)


@dataclass(frozen=True)
class Commands:
    """How to make a result again; a line that is empty cannot be given."""

    export: str = ""
    """This lab's command that first writes the network as a file that Cellpose loads; empty where
    Cellpose has it."""
    shell: ShellLine = ShellLine()
    """Cellpose's command line; after it, what that cannot say."""
    python: str = ""
    """The lines of Python that read the image and call Cellpose."""
    lab: ShellLine = ShellLine()
    """This lab's command line, which takes every network and every setting; empty where the two are
    written from files alone."""
    not_recorded: tuple[str, ...] = ()
    """What the result depends on and no file records; in the commands, words in capitals stand for
    it."""

    def asks_for(self, placeholder: str) -> bool:
        """Whether a word in capitals stands for something that nobody recorded."""
        return placeholder in [*self.shell.command.split(), *self.lab.command.split()]

    def texts(self) -> list[str]:
        """Give those that can be given, each in a line with its notes."""
        return [str(line) for line in (self.export, self.shell, self.python, self.lab) if line]


def command_lines(record: RecordedSettings | None, commands: Commands | None) -> Iterator[str]:
    """Say how Cellpose is called with what is recorded, or why nobody can say it."""
    if commands is None:
        yield from _lines_without_command(record)
        return
    if commands.export:
        yield f"    {commands.export}"
    if commands.shell:
        yield f"    {commands.shell.command}"
    if commands.python:
        yield from (f"    {line}" for line in commands.python.splitlines())
    if commands.lab:
        yield f"    {commands.lab.command}"
    lines = (commands.shell, commands.lab)
    notes = [*(line.notes for line in lines), *(line.put_in for line in lines)]
    yield from (f"    # {note}" for note in dict.fromkeys(chain.from_iterable(notes)))


def _lines_without_command(record: RecordedSettings | None) -> Iterator[str]:
    if record is not None and RUNSTRING in record.values:
        yield "    Omnipose's own call, as its file has it; no command of Cellpose makes it:"
        yield from (f"    {line}" for line in str(record.value(RUNSTRING)).splitlines())
    elif record is not None and TRAINING in record.values:
        yield "    no command: it records a training, and no masks"
    elif record is not None and record.known:
        yield "    no command: its files do not say which generation of Cellpose it was"
    else:
        yield "    no command: nothing is recorded of how it was made"
