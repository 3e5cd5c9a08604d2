"""The losses of a training so far as a line: in letters, and as a small picture for a notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_LOSSES = 120
"""That are sent to whoever looks on."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_LETTERS = 16
_WIDTH = 420  # of the picture, CSS pixels
_HEIGHT = 150
_LEFT = 62  # around its frame
_RIGHT = 52
_TOP = 26
_BOTTOM = 34

Losses = Sequence[float | None]
"""One for each epoch; None for what is no finite number."""


def finite(loss: float) -> float | None:
    """Give a loss, or None where it is no finite number, which JSON has no word for."""
    return loss if math.isfinite(loss) else None


def thinned(losses: Losses, most: int = MOST_LOSSES) -> list[float | None]:
    """Choose some losses, evenly spaced, the first and the last among them.

    >>> thinned([9.0, 8.0, 7.0, 6.0, 5.0], most=3)
    [9.0, 7.0, 5.0]
    """
    if len(losses) <= most:
        return list(losses)
    last = len(losses) - 1
    return [losses[round(place * last / (most - 1))] for place in range(most)]


def loss_in_letters(losses: Losses) -> str:
    """Give the last loss, and the way to it: the lower a letter, the lower the loss.

    >>> loss_in_letters([0.8, 0.4, 0.1]), loss_in_letters([0.5]), loss_in_letters([])
    ('0.100 █▄▁', '0.500', '')
    >>> loss_in_letters([0.5, None])
    'not a number ▁?'
    """
    if not losses:
        return ""
    last = losses[-1]
    text = "not a number" if last is None else f"{last:.3f}"
    if len(losses) < 2:
        return text
    known = [loss for loss in losses if loss is not None]
    low = min(known, default=0.0)
    span = max(known, default=0.0) - low or 1.0
    shown = thinned(losses, _MOST_LETTERS)
    letters = [
        "?" if loss is None else _BLOCKS[int((loss - low) / span * (len(_BLOCKS) - 1))]
        for loss in shown
    ]
    return f"{text} {''.join(letters)}"


def loss_picture(losses: Losses) -> str:
    """Draw the losses of all epochs as SVG, in the colours of the page; nothing of fewer than two.

    It holds no text but numbers and its own words.
    """
    known = [loss for loss in losses if loss is not None]
    if len(known) < 2:
        return ""
    low = min(known)
    high = max(known)
    span = high - low or 1.0
    right = _WIDTH - _RIGHT
    bottom = _HEIGHT - _BOTTOM
    step = (right - _LEFT) / (len(losses) - 1)
    points = [
        (_LEFT + epoch * step, bottom - (loss - low) / span * (bottom - _TOP))
        for epoch, loss in enumerate(losses)
        if loss is not None
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Training loss over {len(losses)} epochs, the last is {known[-1]:.3f}" '
        'style="display:block;max-width:100%;font:11px system-ui,sans-serif" fill="currentColor">'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" '
        'stroke-opacity=".4"/>'
        f'<polyline points="{line}" fill="none" stroke="#0072B2" stroke-width="2"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#E69F00"/>'
        f'<text x="{_LEFT}" y="13">training loss (no unit)</text>'
        f'<g text-anchor="end"><text x="{_LEFT - 6}" y="{_TOP + 4}">{high:.3f}</text>'
        f'<text x="{_LEFT - 6}" y="{bottom + 3}">{low:.3f}</text></g>'
        f'<text x="{x + 7:.1f}" y="{y + 4:.1f}" font-weight="600">{known[-1]:.3f}</text>'
        f'<g text-anchor="middle"><text x="{_LEFT}" y="{bottom + 14}">1</text>'
        f'<text x="{right}" y="{bottom + 14}">{len(losses)}</text>'
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{bottom + 26}">epoch</text></g></svg>'
    )
