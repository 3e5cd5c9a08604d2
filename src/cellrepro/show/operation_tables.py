"""Tables of operations: those of which PyTorch warns, those that flip, and where runs diverge."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cellrepro.determinism.known_operations import alert_in, base_name
from cellrepro.show.tables import frame, readable
from cellrepro.words import grouped, ppm_text

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler

    from cellrepro.audits.training import Effect, TrainingAudit
    from cellrepro.divergence.result import Divergence, Place
    from cellrepro.store.store import Repeat
    from cellrepro.trace.nondeterministic_operation import NondeterministicOperation

_SEEN = {
    "how": "how it was looked at",
    "n_repetitions": "repetitions of the step",
    "n_replays": "operations repeated",
    "n_asked": "replays of this operation",
    "flips": "of these, with other bits",
    "arrival": "state before the step",
    "ends_as": "the repeated step ended in the bits of",
    "alignment": "operations that correspond",
    "parting": "where operations diverge",
    "round_off": "round-off",
    "draws": "random numbers",
    "elimination": "why it may be no fault",
}
"""The fields of `cellrepro.divergence.result.Evidence`, as questions."""


def warning_table(repeats: Sequence[Repeat]) -> pd.DataFrame:
    """Every kind of warning of some repeats: what, where, when, how often.

    Operation, pass, module and line are known of repeats in mode ``warn``, which watches every
    operation; elsewhere they are dashes.
    """
    rows = [
        {
            "run": repeat.name,
            "phase": record.phase,
            "times": record.count,
            "about determinism": "no" if alert_in(record.message) is None else "yes",
            "operation": record.place.op if record.place else "-",
            "pass": record.place.phase if record.place else "-",
            "module": (record.place and record.place.module) or "-",
            "source line": (record.place and record.place.source) or "-",
            "message": record.message.split(". ")[0],
            "raised at": f"{'/'.join(record.file.split('/')[-2:])}:{record.line}",
        }
        for repeat in repeats
        for record in repeat.manifest.warnings
    ]
    columns = ("run", "phase", "times", "about determinism", "operation", "pass", "module")
    return frame(rows, "run", columns=(*columns, "source line", "message", "raised at"))


def operation_table(audit: TrainingAudit) -> Styler:
    """A row for each operation and line of code: flips, warning, effect, what holds it.

    Bars: share of the replays that gave other bits, and of the weights that differ between repeats
    in which this operation alone was left loose. ppm: pixels per million. From
    `cellrepro.audit_training`.
    """
    groups: dict[tuple, list[NondeterministicOperation]] = defaultdict(list)
    for one in (*audit.ops, *audit.warnings, *audit.suspects):
        groups[one.op, one.source, one.phase].append(one)
    rows = [_operation_row(members, audit) for members in groups.values()]
    bars = ["other bits, %", "weights differ, %"]
    columns = ["operation", "where", bars[0], "replays", "PyTorch warns", bars[1], "pixels"]
    columns += ["cells unmatched", "what holds it", "so it is"]
    table = frame(rows, "operation", columns=columns).sort_values(
        bars[0], ascending=False, kind="stable"
    )
    bar = {"color": "#F6D896", "vmin": 0, "vmax": 100, "width": 90, "height": 60}
    return readable(table, decimals=1).bar(subset=bars, **bar)


def _operation_row(
    members: Sequence[NondeterministicOperation], audit: TrainingAudit
) -> dict[str, Any]:
    one = members[0]
    modules = list(dict.fromkeys(row.module for row in members if row.module))
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    module = f" of {modules[0]}{more}" if modules else ""
    flips, replays = (sum(getattr(row, name) for row in members) for name in ("flips", "replays"))
    if not replays:  # what did not flip is counted by kind
        name = base_name(one.op)
        replays = sum(n for op, n in audit.replays.items() if base_name(op) == name)
    effect: Effect | None = next((row.effect for row in members if row.effect is not None), None)
    why = next((row.no_effect_because for row in members if row.no_effect_because), None)
    warned = any(row.warned for row in members)
    row = {
        "operation": base_name(one.op),
        "where": f"{one.phase or 'not observed'}{module}; {one.source or 'no line of Python'}",
        "other bits, %": 100 * flips / replays if replays else 0.0,
        "replays": f"{grouped(flips)} of {grouped(replays)}" if replays else "not replayed",
        "PyTorch warns": "yes" if warned else "no",
        "weights differ, %": math.nan,
        "pixels": "-",
        "cells unmatched": "-",
        "what holds it": one.substitute or one.remedy or "nothing known",
        "so it is": _verdict(warned, effect, why),
    }
    if effect is not None and effect.fixed_identical:
        row["weights differ, %"] = 100 * effect.weights_differing
        no_cell = effect.n_masks == 1 and any("no object" in why for why in effect.vacuous)
        row["pixels"] = "no cell found" if no_cell else ppm_text(effect.ppm)
        row["cells unmatched"] = "-" if no_cell else str(effect.n_objects)
    return row


def _verdict(warned: bool, effect: Effect | None, why: str | None) -> str:
    """Warning and effect beside each other, in a few words."""
    warning = "a warning" if warned else "no warning"
    if effect is None:
        return f"? {warning}, effect {why or 'not measured'}"
    if not effect.fixed_identical:
        return f"? {warning}, effect cannot be known: something else differs, too"
    if effect.n_weights > 1 or effect.n_masks > 1:
        return f"≠ {warning}, an effect"
    if effect.vacuous:
        return f"? {warning}, effect cannot be known: {'; '.join(effect.vacuous)}"
    return f"= {warning}, no effect"


def evidence_table(divergence: Divergence) -> pd.DataFrame:
    """What a `cellrepro.diverge` knows of where two runs diverge, and how: one question a row.

    Always the same questions; ``-`` where there is no answer.
    """
    from cellrepro.divergence.result import JUDGEMENTS
    from cellrepro.show.figures.divergence import differs

    def place_text(place: Place | None) -> str:
        if place is None:
            return ""
        return ("" if place.step is None else f"step {grouped(place.step)}, ") + differs(place)

    first, computed = divergence.first, divergence.computed
    named = next((place for place in (computed, first) if place is not None and place.op), None)
    answers: dict[str, Any] = {
        "runs": f"A: {divergence.a}, B: {divergence.b}",
        "entries compared": divergence.n_compared,
        "they diverge at": place_text(first),
        "judgement": JUDGEMENTS.get(divergence.judgement or ""),
        "it first shows in": place_text(computed),
        "operation": named and named.op,
        "line": named and named.source,
        "module": named and named.module,
        "pass": named and named.phase,
        "its inputs": named and named.inputs,
        "largest difference": named and named.max_abs and f"{named.max_abs:.2g}",
        "how they differ": named and named.apart,
        "numbers that differ": named and named.n_elements,
        **{name: getattr(divergence.evidence, field, None) for field, name in _SEEN.items()},
        "not looked at": divergence.notes,
    }
    rows = []
    for question, answer in answers.items():
        text = "; ".join(answer) if isinstance(answer, tuple) else answer
        text = grouped(text) if isinstance(text, int) else text
        rows.append({"question": question, "what was found": text or "-"})
    return frame(rows, "question")
