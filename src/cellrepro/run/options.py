"""Which options each function of the lab takes, and what is said of a name that it does not."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from cellrepro.asked.spec import LEAVE_OUT, OF_SEGMENTATION, OF_TRAINING, OF_WRAPPING
from cellrepro.errors import BadInput

PROCESS = ("seed", "profile", "mode", "store")
"""What every run has, whatever is done in it."""

NETWORK = ("model", *PROCESS)
"""What every use of a network of Cellpose has."""

TRAINING = (
    *NETWORK,
    *("batch_size", "ledger", "loose", *OF_TRAINING),
    *("resume", "checkpoint_every", "keep_checkpoints", "operation_steps"),
)
"""Those of `cellrepro.train`."""

SEGMENTATION = (*NETWORK, "batch_size", "ledger", "loose", *OF_SEGMENTATION)
"""Those of `cellrepro.segment`."""

_ELSEWHERE = (("train", TRAINING), ("segment", SEGMENTATION), ("wrap", OF_WRAPPING))
"""Where a name belongs that a function does not take; the first that has it is named."""

Function = TypeVar("Function", bound=Callable[..., Any])


def takes(*options: str) -> Callable[[Function], Function]:
    """Refuse any other name at a function's door, before it reads anything.

    For functions that pass their keywords on, so that Python cannot see which it takes.

    Parameters
    ----------
    *options : str
        Names that the function passes on, beside those that its signature shows.

    Returns
    -------
    callable
        The decorator; the function then raises `BadInput` for a name that it does not take, with
        the near one that it does, or with the function to which it belongs.
    """

    def decorate(function: Function) -> Function:
        kinds = inspect.signature(function).parameters.values()
        own = [one.name for one in kinds if one.kind is not inspect.Parameter.VAR_KEYWORD]
        known = [*own, *options]

        @functools.wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            refuse_unknown(function.__name__, given, known)
            return function(*arguments, **given)

        return cast(Function, checked)

    return decorate


def refuse_unknown(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise `BadInput` with a sentence for each name that a function does not take.

    >>> refuse_unknown("train", ["epochs", "epoch"], ["epochs", "seed"])
    Traceback (most recent call last):
        ...
    cellrepro.errors.BadInput: train has no option epoch; do you mean epochs?
    """
    known = list(known)
    problems = [_of_unknown(function, name, known) for name in given if name not in known]
    if problems:
        raise BadInput("; ".join(problems))


def _of_unknown(function: str, name: str, known: list[str]) -> str:
    has_none = f"{function} has no option {name}"
    for other, options in _ELSEWHERE:
        if name in options:
            advice = LEAVE_OUT.get(name, "leave it out") if function == "train" else "leave it out"
            return f"{has_none}, which is one of {other}: {advice}"
    near = get_close_matches(name, known, n=2, cutoff=0.75)
    if near:
        return f"{has_none}; do you mean {' or '.join(near)}?"
    return f"{has_none}; expected {', '.join(known)}"
