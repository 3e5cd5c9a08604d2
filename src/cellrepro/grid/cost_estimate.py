"""Estimates of the time and disk space of a grid, by similar runs in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cellrepro.grid.grid_runs import Estimate, GridRun, GridRuns
from cellrepro.grid.points import Grid
from cellrepro.run.plan import Plan
from cellrepro.run.stored_costs import MOST_READ, most_similar, pixels_segmented
from cellrepro.spec.spec import Spec
from cellrepro.store.checkpoints import CHECKPOINTS
from cellrepro.store.stored_run import Repeat


def with_estimates(grid: Grid, runs: GridRuns) -> GridRuns:
    """Add an estimate to each planned run that has a similar one in the store."""
    past = [run.repeats[0] for run in grid.store.runs()[:MOST_READ]]
    plans = {point.plan.spec.key: point.plan for point in grid.points}
    return GridRuns(tuple(_with_estimate(run, plans[run.key], grid, past) for run in runs))


def _with_estimate(run: GridRun, plan: Plan, grid: Grid, past: Sequence[Repeat]) -> GridRun:
    """Add an estimate to a run, if it is planned and a similar one is stored."""
    if run.status != "planned":
        return run
    similar = most_similar(past, plan.spec, plan.request.model.architecture)
    n_pixels = None if similar is None else pixels_segmented(similar)
    if similar is None or n_pixels is None:
        return run
    stored = [grid.store.repeat(run.key, run.machine, index) for index in range(grid.repeats)]
    n_missing = stored.count(None)
    return replace(run, estimate=_scaled(similar, n_pixels, plan, n_missing))


def _scaled(similar: Repeat, n_pixels: int, plan: Plan, n_repeats: int) -> Estimate:
    """Scale a similar repeat: training by epochs and draws, segmenting by pixels.

    Of its files only checkpoints grow, with the training.
    """
    training = _times_longer(similar.spec, plan.spec)
    segmenting = plan.n_pixels / max(1, n_pixels)
    growth = {"train": training, "segment": segmenting}
    seconds = sum(spent * growth.get(part, 1.0) for part, spent in similar.manifest.seconds.items())
    n_bytes = 0.0
    for name in similar.manifest.files:
        path = similar.folder / name
        size = path.stat().st_size if path.is_file() else 0  # of a run that was sent, not all came
        n_bytes += size * training if name.startswith(f"{CHECKPOINTS}/") else size
    return Estimate(
        seconds=round(seconds * n_repeats, 1),
        bytes=round(n_bytes * n_repeats),
        from_run=similar.name,
    )


def _times_longer(past: Spec, spec: Spec) -> float:
    """Ratio of the lengths of two trainings."""
    times = spec.epochs / max(1, past.epochs)
    if spec.images_per_epoch and past.images_per_epoch:
        times *= spec.images_per_epoch / past.images_per_epoch
    return times
