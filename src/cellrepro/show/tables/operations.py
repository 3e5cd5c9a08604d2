"""Tables of operations: those of which PyTorch warns, those that flip, and where runs diverge."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from cellrepro.determinism.known_operations import alert_in, base_name
from cellrepro.show.tables.frames import frame, readable
from cellrepro.words import grouped, ppm_text

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

    from cellrepro.audits.effect import Effect
    from cellrepro.audits.training import TrainingAudit
    from cellrepro.divergence.result import Divergence, FirstDifference
    from cellrepro.store.manifest import WarningRecord
    from cellrepro.store.store import Repeat
    from cellrepro.trace.nondeterministic_operation import NondeterministicOperation

Value = TypeVar("Value")

_QUESTIONS = {
    "how": "how it was looked at",
    "n_repetitions": "repetitions of the step",
    "n_replays": "operations repeated",
    "n_asked": "replays of this operation",
    "flips": "of these, with different bits",
    "arrival": "state before the step",
    "ends_as": "the repeated step ended in the bits of",
    "alignment": "operations that correspond",
    "parting": "where operations diverge",
    "round_off": "round-off",
    "draws": "random numbers",
    "elimination": "why it may be no fault",
}
"""Fields of `cellrepro.divergence.result.Evidence` that the table shows, as questions."""


def warning_table(repeats: Sequence[Repeat]) -> pd.DataFrame:
    """List every kind of warning of some repeats: what, where, when, how often.

    Operation, pass, module and line are known of repeats in mode ``warn``, which watches every
    operation; elsewhere they are dashes.
    """
    rows = [
        _warning_row(repeat.name, record)
        for repeat in repeats
        for record in repeat.manifest.warnings
    ]
    columns = (
        "run",
        "phase",
        "times",
        "about determinism",
        "operation",
        "pass",
        "module",
        "source line",
        "message",
        "raised at",
    )
    return frame(rows, "run", columns=columns)


def _warning_row(run: str, record: WarningRecord) -> dict[str, object]:
    place = record.place
    file = "/".join(record.file.split("/")[-2:])
    return {
        "run": run,
        "phase": record.phase,
        "times": record.count,
        "about determinism": "no" if alert_in(record.message) is None else "yes",
        "operation": place.op if place else "-",
        "pass": place.phase if place else "-",
        "module": (place.module if place else None) or "-",
        "source line": (place.source if place else None) or "-",
        "message": record.message.split(". ")[0],
        "raised at": f"{file}:{record.line}",
    }


_OTHER_BITS = "different bits, %"
_WEIGHTS_DIFFER = "weights differ, %"


def operation_table(audit: TrainingAudit) -> Styler:
    """List operations by line of code: flips, warning, effect, what holds it.

    Bars: share of the replays that differ in bits, and of the weights that differ between repeats
    in which this operation alone was left loose. ppm: pixels per million.

    Parameters
    ----------
    audit : TrainingAudit
        From `cellrepro.audit_training`.

    Returns
    -------
    Styler
        Which shows itself in a notebook.
    """
    groups: dict[tuple[str | None, ...], list[NondeterministicOperation]] = defaultdict(list)
    for operation in (*audit.ops, *audit.warnings, *audit.suspects):
        groups[operation.op, operation.source, operation.phase].append(operation)
    rows = [_operation_row(members, audit) for members in groups.values()]
    columns = [
        "operation",
        "where",
        _OTHER_BITS,
        "replays",
        "PyTorch warns",
        _WEIGHTS_DIFFER,
        "pixels",
        "cells unmatched",
        "what holds it",
        "so it is",
    ]
    table = frame(rows, "operation", columns=columns)
    table = table.sort_values(_OTHER_BITS, ascending=False, kind="stable")
    return readable(table, decimals=1).bar(
        subset=[_OTHER_BITS, _WEIGHTS_DIFFER],
        color="#F6D896",
        vmin=0,
        vmax=100,
        width=90,
        height=60,
    )


def _operation_row(
    members: Sequence[NondeterministicOperation], audit: TrainingAudit
) -> dict[str, object]:
    """Of one operation at one line of code, in one or more modules."""
    from cellrepro.audits.effect import Effect

    operation = members[0]
    flips = sum(member.flips for member in members)
    replays = sum(member.replays for member in members)
    if not replays:  # what did not flip is counted by kind
        name = base_name(operation.op)
        replays = sum(n for op, n in audit.operations.replays.items() if base_name(op) == name)
    effects = (member.effect for member in members)
    effect = next((effect for effect in effects if isinstance(effect, Effect)), None)
    no_effect_because = _first(member.no_effect_because for member in members)
    warned = any(member.warned for member in members)
    row = {
        "operation": base_name(operation.op),
        "where": _where(members),
        _OTHER_BITS: 100 * flips / replays if replays else 0.0,
        "replays": f"{grouped(flips)} of {grouped(replays)}" if replays else "not replayed",
        "PyTorch warns": "yes" if warned else "no",
        _WEIGHTS_DIFFER: math.nan,
        "pixels": "-",
        "cells unmatched": "-",
        "what holds it": operation.substitute or operation.remedy or "nothing known",
        "so it is": _verdict(warned, effect, no_effect_because),
    }
    if effect is not None and effect.fixed_identical:
        no_cell = effect.n_masks == 1 and any("no object" in reason for reason in effect.vacuous)
        row[_WEIGHTS_DIFFER] = 100 * effect.weights_differing
        row["pixels"] = "no cell found" if no_cell else ppm_text(effect.ppm)
        row["cells unmatched"] = "-" if no_cell else str(effect.n_objects)
    return row


def _first(values: Iterable[Value | None]) -> Value | None:
    """The first that is there."""
    return next((value for value in values if value), None)


def _where(members: Sequence[NondeterministicOperation]) -> str:
    """Pass, module and line; where it is in several modules, how many more there are."""
    operation = members[0]
    modules = list(dict.fromkeys(member.module for member in members if member.module))
    module = f" of {modules[0]}" if modules else ""
    if len(modules) > 1:
        module += f" and {len(modules) - 1} more"
    phase = operation.phase or "not observed"
    return f"{phase}{module}; {operation.source or 'no line of Python'}"


def _verdict(warned: bool, effect: Effect | None, no_effect_because: str | None) -> str:
    """Warning and effect beside each other, in a few words."""
    warning = "a warning" if warned else "no warning"
    if effect is None:
        return f"? {warning}, effect {no_effect_because or 'not measured'}"
    if not effect.fixed_identical:
        return f"? {warning}, effect cannot be known: something else differs, too"
    if effect.n_weights > 1 or effect.n_masks > 1:
        return f"≠ {warning}, an effect"
    if effect.vacuous:
        return f"? {warning}, effect cannot be known: {'; '.join(effect.vacuous)}"
    return f"= {warning}, no effect"


def evidence_table(divergence: Divergence) -> pd.DataFrame:
    """Say where two runs diverge, and how that is known: one question a row.

    Always the same questions; ``-`` where there is no answer.

    Parameters
    ----------
    divergence : Divergence
        From `cellrepro.diverge`.

    Returns
    -------
    DataFrame
    """
    from cellrepro.divergence.judgements import JUDGEMENTS

    answers: dict[str, object] = {
        "runs": f"A: {divergence.a}, B: {divergence.b}",
        "entries compared": divergence.compared,
        "they diverge at": _place_text(divergence.first),
        "judgement": JUDGEMENTS[divergence.judgement] if divergence.judgement else None,
        "it first shows in": _place_text(divergence.computed),
        **_operation_answers(divergence.where),
        **{
            question: getattr(divergence.evidence, field, None)
            for field, question in _QUESTIONS.items()
        },
        "not looked at": divergence.notes,
    }
    rows = [
        {"question": question, "what was found": _answer_text(answer)}
        for question, answer in answers.items()
    ]
    return frame(rows, "question")


def _operation_answers(difference: FirstDifference | None) -> dict[str, object]:
    """What is known of the operation that differs first; nothing where none could be named."""
    operation = difference.operation if difference is not None and difference.op else None
    size = difference.size if difference is not None and operation is not None else None
    largest = size.max_abs if size else None
    return {
        "operation": operation.op if operation else None,
        "line": operation.source if operation else None,
        "module": operation.module if operation else None,
        "pass": operation.phase if operation else None,
        "its inputs": operation.inputs if operation else None,
        "largest difference": f"{largest:.2g}" if largest else None,
        "how they differ": size.words if size else None,
        "numbers that differ": size.n_elements if size else None,
    }


def _place_text(place: FirstDifference | None) -> str:
    # Imported here: it needs matplotlib, which few tables do.
    from cellrepro.show.figures.divergence import differs

    if place is None:
        return ""
    step = "" if place.step is None else f"step {grouped(place.step)}, "
    return f"{step}{differs(place)}"


def _answer_text(answer: object) -> str:
    if isinstance(answer, tuple):
        text = "; ".join(answer)
    elif isinstance(answer, int):
        text = grouped(answer)
    else:
        text = str(answer or "")
    return text or "-"
