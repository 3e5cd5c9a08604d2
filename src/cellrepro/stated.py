"""Which options a user wrote on the command line: those that would do nothing are refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from cellrepro.errors import BadInput

STATED: ContextVar[frozenset[str]] = ContextVar("STATED", default=frozenset())
"""The parameters of the command that is carried out which its user named; empty in Python, where a
call names what it means."""

SPELT: ContextVar[Sequence[str]] = ContextVar("SPELT", default=())
"""The words of this command line, without the name of the program."""


@contextmanager
def carrying_out(words: Sequence[str], named: Collection[str]) -> Iterator[None]:
    """For one command: the words of its line, and the parameters that these name."""
    spelt = SPELT.set(tuple(words))
    stated = STATED.set(frozenset(named))
    try:
        yield
    finally:
        STATED.reset(stated)
        SPELT.reset(spelt)


def stated_among(names: Collection[str]) -> frozenset[str]:
    """Those of some parameters that were named."""
    return STATED.get() & frozenset(names)


def refuse_idle(names: Sequence[str], why: str, *, instead: str = "leave it out") -> None:
    """Refuse those of some options that are named, as they would do nothing.

    ``why`` ends the sentence "--OPTION would do nothing", ``instead`` says what to do.
    """
    idle = [name for name in names if name in STATED.get()]
    if idle:
        options = ["--set" if name == "settings" else f"--{name}" for name in idle]
        listed = ", ".join(option.replace("_", "-") for option in options)
        raise BadInput(f"{listed} would do nothing {why}; {instead}")
