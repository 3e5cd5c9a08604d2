"""The options that a user wrote on the command line, so that idle ones can be refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from samebits.errors import BadInput

STATED: ContextVar[frozenset[str]] = ContextVar("STATED", default=frozenset())
"""Parameters that the user named on this command line; empty for a call in Python."""

SPELT: ContextVar[Sequence[str]] = ContextVar("SPELT", default=())
"""The words of this command line, without the name of the program."""


@contextmanager
def carrying_out(words: Sequence[str], named: Collection[str]) -> Iterator[None]:
    """Set both for one command: the words of its line, and the parameters that they name."""
    spelt = SPELT.set(tuple(words))
    stated = STATED.set(frozenset(named))
    try:
        yield
    finally:
        STATED.reset(stated)
        SPELT.reset(spelt)


def stated_among(names: Collection[str]) -> frozenset[str]:
    """Those of some parameters that the user named."""
    return STATED.get() & frozenset(names)


def refuse_idle(names: Sequence[str], why: str, *, instead: str = "leave it out") -> None:
    """Refuse options that the user named and that would do nothing.

    ``why`` ends the sentence "--OPTION would do nothing", ``instead`` says what to do.
    """
    idle = [name for name in names if name in STATED.get()]
    if idle:
        listed = ", ".join(map(_option_of, idle))
        raise BadInput(f"{listed} would do nothing {why}; {instead}")


def _option_of(name: str) -> str:
    """The option of a parameter, as the user wrote it where it can be negated."""
    if name == "settings":
        return "--set"
    word = name.replace("_", "-")
    negated = f"--no-{word}"
    return negated if negated in SPELT.get() else f"--{word}"
