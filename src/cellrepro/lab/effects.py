"""What one loose operation does to weights and cells, everything else held fixed.

Answers the fourth question for one operation: does it matter. Trainings in mode ``strict`` with
this operation alone left as it is are compared with each other, and with as many that leave
nothing loose, which have to be identical for the comparison to mean anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from cellrepro.compare.weights import compare_weights
from cellrepro.errors import BadInput
from cellrepro.lab.compare_results import agreement
from cellrepro.lab.run import Outcome, train
from cellrepro.store.store import Repeat
from cellrepro.text import amount, ppm_text

_NO_OBJECT = "no object was found"


@dataclass(frozen=True)
class Effect:
    """What a loose operation does, over all pairs of its repeats.

    Attributes
    ----------
    op : str
        The operation left loose.
    key, fixed_key : str
        Runs in the store: with it loose, and with nothing loose.
    repeats : int
        Of each.
    fixed_identical : bool
        Whether the repeats with nothing loose were bit-identical.
    n_weights : int
        Different weights files among the loose repeats; 1 means that all are equal.
    weights_differing : float
        Largest share of weights that differ between two of them.
    relative_l2 : float
        Largest distance between two of them, relative to the norm of the weights.
    n_masks : int
        Different sets of masks among the loose repeats.
    ppm : float
        Most differing pixels between two of them, per million.
    n_objects : int
        Most objects without a match at IoU 0.5 in the other of two.
    vacuous : tuple of str
        Why equality would prove nothing.
    """

    op: str
    key: str
    fixed_key: str
    repeats: int
    fixed_identical: bool
    n_weights: int
    weights_differing: float
    relative_l2: float
    n_masks: int
    ppm: float
    n_objects: int
    vacuous: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Whether it matters, over how much."""
        over = f"over {amount(self.repeats, 'repeat')} with it alone loose"
        if not self.fixed_identical:
            return (
                f"{self.op}: cannot be told, because repeats with nothing loose differ too: "
                "something else moves; audit in mode strict"
            )
        no_cells = [why for why in self.vacuous if why.startswith(_NO_OBJECT)]
        if self.n_weights == 1:
            if len(no_cells) < len(self.vacuous):
                return f"{self.op}: cannot be told, {'; '.join(self.vacuous)}"
            return (
                f"{self.op}: no effect {over}: weights and masks are bit-identical; a race may "
                "need more steps or more repeats to show"
            )
        weights = (
            f"{self.n_weights} different weights, up to {100 * self.weights_differing:.0f} % of "
            f"them moved (relative distance {self.relative_l2:.1e})"
        )
        if no_cells:
            return f"{self.op}: {weights} {over}; of cells nothing can be told, {no_cells[0]}"
        if self.n_masks == 1:
            return f"{self.op}: {weights} {over}, but every mask is the same"
        return (
            f"{self.op}: {weights} {over}; up to {ppm_text(self.ppm)} of the pixels differ, "
            f"{amount(self.n_objects, 'object')} without a match"
        )


def effect(
    data: str | Path,
    op: str,
    *,
    repeats: int = 3,
    epochs: int = 12,
    **parameters: Any,
) -> Effect:
    """Train with one operation left loose, several times, and say what comes of it.

    Parameters
    ----------
    data : str or Path
        Folder of images with masks.
    op : str
        As the audit names it: ``aten.index_put.default``, or ``index_put``.
    repeats : int
        2 or more; each is a training in a process of its own, kept in the store.
    epochs : int
    parameters
        As for `cellrepro.train`; the mode is ``strict``.

    Returns
    -------
    Effect

    Raises
    ------
    BadInput
        If ``repeats`` is less than 2, or the operation is none that mode ``strict`` holds.
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 2:
        raise BadInput(f"repeats is {repeats!r}; expected 2 or more: an effect is a difference")
    if "mode" in parameters:
        raise BadInput("an effect is measured in mode strict; leave the mode out")
    common = {"repeats": repeats, "epochs": epochs, "mode": "strict", **parameters}
    loose = train(data, loose=op, **common)
    fixed = train(data, **common)
    return between(op, fixed, loose)


def between(op: str, fixed: Outcome, loose: Outcome) -> Effect:
    """The effect shown by two outcomes: nothing loose, and one operation loose."""
    different = _different_weights(loose.repeats)
    pairs = [
        compare_weights(a.weights, b.weights)
        for a, b in combinations(different, 2)
        if a.weights is not None and b.weights is not None
    ]
    masks = {repeat.manifest.masks_digest: repeat for repeat in loose.repeats}
    agreed = agreement(list(masks.values()))
    return Effect(
        op=op,
        key=loose.key,
        fixed_key=fixed.key,
        repeats=len(loose.repeats),
        fixed_identical=len(_different_weights(fixed.repeats)) == 1
        and len({repeat.manifest.masks_digest for repeat in fixed.repeats}) == 1,
        n_weights=len(different),
        weights_differing=max(
            (pair.n_differing / pair.n_parameters for pair in pairs), default=0.0
        ),
        relative_l2=max((pair.relative_l2 for pair in pairs), default=0.0),
        n_masks=len(masks),
        ppm=float(agreed.ppm.max(initial=0)),
        n_objects=int(agreed.n_unmatched.max(initial=0)),
        vacuous=_in_all([repeat.manifest.vacuous for repeat in loose.repeats]),
    )


def _in_all(reasons: list[list[str]]) -> tuple[str, ...]:
    """The reasons that hold for every repeat: cells in one and none in another are an effect."""
    return tuple(why for why in reasons[0] if all(why in others for others in reasons))


def _different_weights(repeats: tuple[Repeat, ...]) -> list[Repeat]:
    """One repeat for each different weights file."""
    seen: dict[str, Repeat] = {}
    for repeat in repeats:
        if repeat.manifest.weights is not None:
            seen.setdefault(repeat.manifest.weights.digest, repeat)
    return list(seen.values())
