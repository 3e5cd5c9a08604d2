"""What became of every object between two sides of a view, as columns that JSON can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cellrepro.show.explorer.open_view import OpenView


def story_of(view: OpenView, a: int, b: int) -> dict[str, object]:
    """Get what became of every object between two sides.

    Columns are the fields of `ObjectChange`; ``moved`` is the displacement in pixels, None where
    one side lacks the object. With three runs or more there are also ``n_runs``, how many there
    are, and ``runs``, how many of them have each object (None where only the truth does). Where
    numbers begin anew in each plane, ``given`` has the number in the file by side and label.
    """
    changes = view.changes(a, b)
    story: dict[str, object] = {
        "kind": [change.kind for change in changes],
        "labels_a": [change.labels_a for change in changes],
        "labels_b": [change.labels_b for change in changes],
        "area_a": [change.area_a for change in changes],
        "area_b": [change.area_b for change in changes],
        "iou": [change.iou for change in changes],
        "position": [change.position for change in changes],
        "cut_between": [change.cut_between for change in changes],
        "moved": [
            None if np.isnan(change.displacement) else change.displacement for change in changes
        ],
    }
    if view.is_by_plane:
        story["given"] = _given_numbers(view, a, b)
    if view.n_runs > 2:
        story["n_runs"] = view.n_runs
        story["runs"] = _n_runs_with_each(view, a, b)
    return story


def _given_numbers(view: OpenView, a: int, b: int) -> dict[str, object]:
    """The numbers in the files by side and label, of stacks that begin anew in each plane."""
    sides = {"a": a, "b": b}
    if view.truth is not None:
        sides["truth"] = len(view.view.masks)
    return {name: view.by_plane(side).given.tolist() for name, side in sides.items()}


def _n_runs_with_each(view: OpenView, a: int, b: int) -> list[int | None]:
    """Count the runs that have each object of the story; of several objects the fewest."""
    counts_a = _n_runs_with_labels(view, a)
    counts_b = _n_runs_with_labels(view, b)
    n_runs: list[int | None] = []
    for change in view.changes(a, b):
        of_a = [counts_a[label] for label in change.labels_a if counts_a]
        of_b = [counts_b[label] for label in change.labels_b if counts_b]
        n_runs.append(min(of_a or of_b, default=None))
    return n_runs


def _n_runs_with_labels(view: OpenView, side: int) -> dict[int, int]:
    """Count the runs that have each object of a run, by its label; empty for the truth."""
    from pandas import unique

    if view.is_truth(side):
        return {}
    objects = view.agreement.objects_of(view.view.runs_with_masks.index(side))
    labels = unique(view.labels(side).ravel())  # in raster order, as the agreement has them
    return {
        label: stability.n_runs_with
        for label, stability in zip(labels[labels > 0].tolist(), objects, strict=True)
    }
