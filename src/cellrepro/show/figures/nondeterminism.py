"""A figure of what fixed seeds do not fix: the places whose operations flip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.show.figures import style
from cellrepro.show.figures.style import EDGE, SERIES, Picture
from samebits.known_operations import base_name
from samebits.words import amount, grouped

if TYPE_CHECKING:
    from cellrepro.audits.training import TrainingAudit
    from samebits import NondeterministicOperation

_MOST_PLACES = 10


def flips_by_place(audit: TrainingAudit) -> Picture:
    """Draw a bar for each place of an audit whose bits flipped; below, what became of the rest.

    Parameters
    ----------
    audit : TrainingAudit
        From `cellrepro.audit_training`.

    Returns
    -------
    Picture
    """
    replayed = audit.operations
    shown = audit.ops[:_MOST_PLACES]
    shares = [100 * row.flips / max(1, row.replays) for row in shown]
    n_other_kinds = len(replayed.kinds.keys() - {row.op for row in audit.ops})
    n_other_replays = replayed.n_replays - sum(
        row.replays for row in audit.ops if row.read_by is None
    )
    names = [
        *(f"{base_name(row.op)}, {row.phase}: {row.module or 'no module'}" for row in shown),
        f"everything else, {amount(n_other_kinds, 'kind')} of operation",
    ]
    texts = [*(_flips_text(row) for row in shown), f"0 of {grouped(n_other_replays)}"]
    figure = Picture(height=0.95 + 0.45 * len(names))
    axes = figure.subplots()
    bars = axes.barh(
        range(len(names)),
        [*shares, 0],
        color=SERIES[1],
        hatch="//",
        height=0.6,
        edgecolor=EDGE,
    )
    style.rows(axes, names, size=9)
    style.texts_beside(axes, bars, texts, [*shares, 0])
    if max(shares, default=0) > 75:
        axes.set_xticks(range(0, 101, 20))
    style.label_axes(axes, x="replays on equal inputs that gave different bits (%)")
    operations = ", ".join(dict.fromkeys(base_name(row.op) for row in audit.ops))
    text = f"Equal inputs, different bits: {operations or 'in no operation'}"
    caption = (
        f"Every operation of {amount(replayed.n_steps, 'training step')} in mode {audit.spec.mode} "
        f"was run again on equal inputs, {grouped(replayed.n_replays)} times in all, at "
        f"{amount(replayed.threads, 'thread')}. Bars: how often the answer had different bits, in "
        f"{len(shown)} of {amount(len(audit.ops), 'place')}."
    )
    return figure.described(text, caption, f"Bar chart. {audit.sentence()}.")


def _flips_text(operation: NondeterministicOperation) -> str:
    if operation.read_by:
        reason = "read though nobody wrote it"
    elif operation.warned:
        reason = "PyTorch warns"
    else:
        reason = "PyTorch is silent"
    return f"{grouped(operation.flips)} of {grouped(operation.replays)}, {reason}"
