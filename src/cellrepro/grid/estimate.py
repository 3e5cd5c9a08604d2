"""What a grid will take in time and on the disk, by what the store has of such runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cellrepro.asked.spec import Spec
from cellrepro.errors import BadInput
from cellrepro.grid.file import Grid
from cellrepro.grid.point import GridRun
from cellrepro.run.checkpointing import CHECKPOINTS
from cellrepro.store.store import Repeat

_MOST_READ = 200
"""Stored runs that are looked at."""


@dataclass(frozen=True)
class Estimate:
    """Of the repeats that are not stored yet."""

    seconds: float  # one after the other
    bytes: int
    from_run: str  # the repeat it follows from


def with_estimates(grid: Grid, runs: list[GridRun]) -> list[GridRun]:
    """The planned runs, each with what it will take, where the store has one like it."""
    past = [run.repeats[0] for run in grid.store.runs()[:_MOST_READ]]
    points = {point.plan.spec.key: point for point in grid.points}
    found = []
    for run in runs:
        if run.status == "planned":
            request, n_images = points[run.key].plan.request, points[run.key].plan.n_images
            stored = (grid.store.repeat(run.key, run.machine, i) for i in range(grid.repeats))
            n_repeats = sum(repeat is None for repeat in stored)
            like = _most_like(past, request.spec, request.model.architecture)
            estimate = like and _scaled(like, request.spec, n_images, n_repeats)
            run = replace(run, estimate=estimate)
        found.append(run)
    return found


def _most_like(past: list[Repeat], spec: Spec, architecture: str) -> Repeat | None:
    """A repeat of the same kind, network and profile; of several, the nearest in epochs."""
    having: list[tuple[int, int, Repeat]] = []
    for index, repeat in enumerate(past):
        try:
            alike = repeat.spec.task == spec.task and repeat.spec.profile == spec.profile
            if alike and repeat.manifest.model.architecture == architecture:
                having.append((abs(repeat.spec.epochs - spec.epochs), index, repeat))
        except BadInput:  # of a damaged one nothing is known
            continue
    return min(having)[2] if having else None


def _scaled(like: Repeat, spec: Spec, n_images: int, n_repeats: int) -> Estimate:
    """Training grows with epochs and draws, segmenting with images, the rest stays."""
    then, manifest = like.spec, like.manifest
    longer = spec.epochs / max(1, then.epochs)
    if spec.images_per_epoch and then.images_per_epoch:
        longer *= spec.images_per_epoch / then.images_per_epoch
    more = {"train": longer, "segment": n_images / max(1, len(manifest.masks))}
    seconds = sum(spent * more.get(what, 1) for what, spent in manifest.seconds.items())
    kept = {name: (like.folder / name).stat().st_size for name in manifest.files}
    checkpoints = {name for name in kept if name.startswith(f"{CHECKPOINTS}/")}
    size = sum(n * (longer if name in checkpoints else 1) for name, n in kept.items())
    return Estimate(round(seconds * n_repeats, 1), round(size * n_repeats), like.name)
