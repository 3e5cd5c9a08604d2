"""Tables of operations: those of which PyTorch warns, and those that flip."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from cellrepro.show.tables.frames import frame, readable
from cellrepro.words import percent_text
from samebits.heard_warning import HeardWarning
from samebits.known_operations import base_name
from samebits.torch_alerts import alert_in

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

    from cellrepro.audits.effect import Effect
    from cellrepro.audits.training import TrainingAudit
    from cellrepro.store.stored_run import Repeat
    from samebits import NondeterministicOperation

Value = TypeVar("Value")


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


def _warning_row(run: str, record: HeardWarning) -> dict[str, object]:
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


_OTHER_BITS = "different bits"
_WEIGHTS_DIFFER = "weights differ"


def operation_table(audit: TrainingAudit) -> Styler:
    """List operations by line of code: flips, effect, what holds it, and whether it warned.

    Bars: share of the replays that differ in bits, and of the weights that differ between repeats
    in which this operation alone was left loose. ppm: parts per million.

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
        _WEIGHTS_DIFFER,
        "pixels",
        "cells unmatched",
        "remedy",
        "warning, effect",
    ]
    table = frame(rows, "operation", columns=columns)
    table = table.sort_values(_OTHER_BITS, ascending=False, kind="stable")
    shares = [_OTHER_BITS, _WEIGHTS_DIFFER]
    shown = readable(table).format(lambda percent: percent_text(percent / 100), subset=shares)
    return shown.bar(
        subset=shares,
        color="#F6D896",
        vmin=0,
        vmax=100,
        width=60,  # the number stands beside it
        height=60,
    )


def _operation_row(
    members: Sequence[NondeterministicOperation], audit: TrainingAudit
) -> dict[str, object]:
    """Make the row of one operation at one line of code, in one or more modules."""
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
        _OTHER_BITS: 100 * flips / replays if replays else math.nan,
        _WEIGHTS_DIFFER: math.nan,
        "pixels": "-",
        "cells unmatched": "-",
        "remedy": operation.substitute or operation.remedy or "nothing known",
        "warning, effect": _verdict(warned, effect, no_effect_because),
    }
    if effect is not None and effect.fixed_identical:
        no_cell = effect.n_masks == 1 and any("no object" in reason for reason in effect.vacuous)
        row[_WEIGHTS_DIFFER] = 100 * effect.weights_differing
        row["pixels"] = "no cell found" if no_cell else percent_text(effect.ppm / 1e6)
        row["cells unmatched"] = "-" if no_cell else str(effect.n_objects)
    return row


def _first(values: Iterable[Value | None]) -> Value | None:
    """Get the first value that is not empty."""
    return next((value for value in values if value), None)


def _where(members: Sequence[NondeterministicOperation]) -> str:
    """Say pass, module, file and line, and how many more modules there are."""
    operation = members[0]
    modules = list(dict.fromkeys(member.module for member in members if member.module))
    module = f" of {modules[0]}" if modules else ""
    if len(modules) > 1:
        module += f" and {len(modules) - 1} more"
    phase = operation.phase or "not observed"
    line = (operation.source or "no line of Python").rpartition("/")[2]
    return f"{phase}{module}; {line}"


def _verdict(warned: bool, effect: Effect | None, no_effect_because: str | None) -> str:
    """Put warning and effect beside each other in a few words."""
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
