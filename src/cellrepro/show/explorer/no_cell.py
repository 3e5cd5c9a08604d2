"""Why settings leave no cell, and what to do, in sentences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from cellrepro.explanation.live_segmentation import LiveAnswer
from cellrepro.model.cellpose_generation import NETWORK_DIAMETER
from cellrepro.model.no_cell import NoCell
from cellrepro.model.weight_sources import ModelSource
from cellrepro.spec.segmentation_settings import Settings
from samebits.words import amount, joined


def why_none(source: ModelSource) -> Callable[[LiveAnswer], str]:
    """What says of an answer of a network why it holds no cell, and what to do."""
    if source.untrained:
        untrained = (
            f"The network {source.label} is untrained and has learnt nothing: start again with a "
            "trained one, --model with a run of your store (KEY/REPEAT), a name as cpsam, or the "
            "file of its weights"
        )
        return lambda answer: untrained
    otherwise = (
        f"set diameter to that of your cells, or check that the network {source.label} was "
        "trained on such images"
    )

    def said(answer: LiveAnswer) -> str:
        if answer.no_cell is None:
            return f"Lower cellprob_threshold, {otherwise}"
        return _said(answer.settings, answer.no_cell, otherwise)

    return said


def _said(settings: Settings, no_cell: NoCell, otherwise: str) -> str:
    if no_cell.with_usual:
        name, n_cells = max(no_cell.with_usual, key=lambda each: each[1])
        return _because_of(name, n_cells, settings)
    threshold = settings.cellprob_threshold
    if no_cell.highest_probability <= threshold:
        return (
            f"No pixel is above cellprob_threshold {threshold:g}: the highest value that the "
            f"network gives is {no_cell.highest_probability:.2g}. Lower cellprob_threshold, "
            f"{otherwise}"
        )
    if not no_cell.n_found:
        return f"The network's flows lead to no common place: {otherwise}"
    return _removed(settings, no_cell)


def _because_of(name: str, n_cells: int, settings: Settings) -> str:
    """Of a setting that leaves no cell, while its usual value would."""
    value = settings.by_name()[name]
    usual = Settings().by_name()[name]
    if usual is None:
        todo = f"Leave {name} unset"
    elif value is None or usual > value:
        todo = f"Raise {name}"
    else:
        todo = f"Lower {name}"
    otherwise = "where it is not set" if usual is None else f"with {usual:g}, as usual,"
    return (
        f"{name} {value:g} leaves none; {otherwise} there "
        f"{'is' if n_cells == 1 else 'are'} {amount(n_cells, 'cell')}. {todo}"
    )


def _removed(settings: Settings, no_cell: NoCell) -> str:
    """Of settings that removed all cells, one after the other."""
    left = (no_cell.n_found, no_cell.n_not_too_large, no_cell.n_fitting, 0)
    acts = (("max_size_fraction", "raise"), ("flow_threshold", "raise"), ("min_size", "lower"))
    removed = [
        (name, act, before - after)
        for (name, act), (before, after) in zip(acts, pairwise(left), strict=True)
        if before > after
    ]
    values = settings.by_name()
    todo = joined([f"{act} {name}" for name, act, _ in removed])
    if settings.diameter not in (None, NETWORK_DIAMETER):
        # Cells of a wrong size come out with wrong flows: keeping those would not help.
        todo = f"set diameter, now {settings.diameter:g}, to that of your cells; else {todo}"
    if len(removed) == 1:
        name = removed[0][0]
        every = "the one cell" if no_cell.n_found == 1 else f"all {no_cell.n_found} cells"
        return f"{name} {values[name]:g} removed {every} that the flows give: {todo}"
    each = joined([f"{name} {values[name]:g} removed {n}" for name, _, n in removed])
    return f"Of {amount(no_cell.n_found, 'cell')} that the flows give, {each}: {todo}"
