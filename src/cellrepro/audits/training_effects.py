"""The effect of each operation that flips: trainings with it alone left loose, and with none.

All of them are in mode ``strict`` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cellrepro.audits.effect import Effect, measure_effect
from cellrepro.audits.training import TrainingAudit
from cellrepro.errors import CellreproError
from cellrepro.run.options import TrainingOptions
from cellrepro.spec import defaults
from samebits import NondeterministicOperation
from samebits.errors import BadInput, whole
from samebits.known_operations import base_name

_AS_AUDITED = ("seed", "data_seed", "batch_size")
"""Options that default to those of the audit."""


def measure_effects(
    audit: TrainingAudit,
    options: TrainingOptions,
    *,
    repeats: int = defaults.TRAININGS,
    most: int | None = None,
    quiet: bool = False,
    on_effect: Callable[[TrainingAudit], None] | None = None,
) -> TrainingAudit:
    """Measure what each operation that flips does when it alone is left loose.

    Where nothing flipped, those that PyTorch warned of are measured; where there are none, the
    first that the lab has a substitute for, because an audit may miss a rare flip.

    Parameters
    ----------
    audit : TrainingAudit
        From `cellrepro.audit_training`.
    options : TrainingOptions
        Of these trainings, in mode ``strict``: the same folder, 2 epochs or more. Seeds and batch
        size are those of the audit where they are not given.
    repeats : int
        Trainings with it loose, and as many with nothing loose; 2 or more.
    most : int, optional
        Operations to measure; all of them by default.
    quiet : bool
        Show neither progress nor notices.
    on_effect : callable, optional
        Is given the audit as far as it is known, at first and after every operation that was
        measured; who is interrupted has what was found so far.

    Returns
    -------
    TrainingAudit
        The audit, with the effect of each operation, or why it has none.

    Raises
    ------
    BadInput
        There are fewer than two repeats.
    """
    whole("repeats", repeats, least=2)
    of_audit = {name: getattr(audit.spec, name) for name in _AS_AUDITED}
    given = {name: value for name, value in options if name in options.model_fields_set}
    meant = {name: value for name, value in given.items() if value is not None}
    strict = TrainingOptions.among({**of_audit, **meant, "mode": "strict"})
    measured = audit if audit.ops else replace(audit, suspects=_suspects(audit))
    _tell(on_effect, measured)
    names = dict.fromkeys(base_name(row.op) for row in _rows(measured))
    for name in list(names)[:most]:  # each once, as one is left loose wherever it is called
        members = [row for row in _rows(measured) if base_name(row.op) == name]
        answer = _effect_of(members, strict, repeats=repeats, quiet=quiet)
        measured = _with_answer(measured, members, answer)
        _tell(on_effect, measured)
    return measured


@dataclass(frozen=True)
class _Answer:
    """The effect of an operation, or why it is not known."""

    effect: Effect | None = None
    no_effect_because: str | None = None


def _suspects(audit: TrainingAudit) -> tuple[NondeterministicOperation, ...]:
    """Operations that may flip though none did."""
    from samebits.substitutes import SUBSTITUTES

    if audit.warnings:
        return audit.warnings
    substitute = SUBSTITUTES[0]
    suspect = NondeterministicOperation(
        op=substitute.replaces[0],
        module=None,
        source=None,
        phase=None,
        substitute=substitute.name,
        reason=substitute.reason,
    )
    return (suspect,)


def _rows(audit: TrainingAudit) -> tuple[NondeterministicOperation, ...]:
    """The operations whose effect is measured."""
    return audit.ops or audit.suspects


def _effect_of(
    members: Sequence[NondeterministicOperation],
    options: TrainingOptions,
    *,
    repeats: int,
    quiet: bool,
) -> _Answer:
    """Measure one operation; ``members`` are its rows, one for each line that calls it."""
    try:
        if any(row.read_by is not None for row in members):
            raise BadInput("memory that nobody has written cannot be held fixed by a mode")
        effect = measure_effect(options, members[0].op, repeats=repeats, quiet=quiet)
    except CellreproError as error:
        return _Answer(no_effect_because=str(error))
    except Exception as error:  # whatever comes of one, the audit and the others stand
        return _Answer(no_effect_because=f"{type(error).__name__}: {error}")
    return _Answer(effect=effect)


def _with_answer(
    audit: TrainingAudit, members: Iterable[NondeterministicOperation], answer: _Answer
) -> TrainingAudit:
    """Add the effect of an operation to each of its rows."""
    rows = tuple(
        replace(row, effect=answer.effect, no_effect_because=answer.no_effect_because)
        if row in members
        else row
        for row in _rows(audit)
    )
    if audit.ops:
        return replace(audit, operations=replace(audit.operations, ops=rows))
    return replace(audit, suspects=rows)


def _tell(on_effect: Callable[[TrainingAudit], None] | None, audit: TrainingAudit) -> None:
    if on_effect is not None:
        on_effect(audit)
