"""In how many trainings a cell was found, and what of it may decide that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.ndimage import binary_dilation

from cellrepro import Store, agree
from cellrepro.comparison.consensus import Agreement, Stability
from cellrepro.comparison.label_numbers import canonical
from cellrepro.store.stored_run import Repeat, Run
from evidence_tables.table import Row, StoreOfRuns, Table

CELLS = Table("cells", known_by=("images", "runs", "image", "cell"))

RING = 5
"""Pixels around a cell that it is compared with."""


def cells(store: StoreOfRuns) -> None:
    """Every cell of nuclei that any training found: in how many, and what it looks like.

    Those are short trainings of several seeds and without one, and long ones of several seeds.
    """
    measure_cells(store, epochs=40, seeded_mode="strict", with_mode_off=True)
    measure_cells(store, epochs=200, seeded_mode="fast", with_mode_off=False)


def measure_cells(store: Store, *, epochs: int, seeded_mode: str, with_mode_off: bool) -> None:
    """Describe the cells of trainings of one length, if there are three seeds of these."""
    runs = [run for run in store.runs() if is_of_nuclei(run) and run.spec.epochs == epochs]
    repeats = [run.repeats[0] for run in runs if run.spec.mode == seeded_mode]
    if len(repeats) < 3:
        return
    if with_mode_off:
        repeats += [repeat for run in runs if run.spec.mode == "off" for repeat in run.repeats]
    for image in repeats[0].manifest.masks:
        CELLS.keep(*cells_of(image, f"{epochs} epochs", repeats, store))


def is_of_nuclei(run: Run) -> bool:
    """Whether a run is one of the trainings on nuclei."""
    spec = run.spec
    return (
        spec.task == "train"
        and spec.data == "nuclei"
        and spec.model == "tiny"
        and spec.profile == "cpu"
    )


def cells_of(image: str, runs: str, repeats: Sequence[Repeat], store: Store) -> Iterator[Row]:
    """The cells of one image, in the masks of some repeats."""
    spec = repeats[0].spec
    masks = [repeat.masks(image) for repeat in repeats]
    agreement = agree(masks)
    pixels = store.image(spec.data_digest, image)
    grey = (pixels if pixels.ndim == 2 else pixels.mean(-1)).astype(float)
    truth = store.truth(spec.data_digest, image)
    for number, cell in enumerate(agreement.objects):
        outline = outline_of(cell, masks, agreement)
        ring = binary_dilation(outline, iterations=RING) & ~outline
        is_other_cell = ring & (agreement.consensus > 0)
        ground = ring & ~is_other_cell
        brighter = grey[outline].mean() - grey[ground if ground.any() else ring].mean()
        y, x = cell.position
        yield {
            "images": spec.data,
            "runs": runs,
            "image": image,
            "cell": number,
            "y": round(y, 1),
            "x": round(x, 1),
            "area": cell.area,
            "n_runs": len(repeats),
            "n_runs_with": cell.n_runs_with,
            "contrast": brighter / grey.std(),
            "crowding": is_other_cell.sum() / ring.sum(),
            "at_edge": touches_edge(outline),
            "true": None if truth is None else matches_true_cell(outline, truth),
        }


def outline_of(cell: Stability, masks: Sequence[np.ndarray], agreement: Agreement) -> np.ndarray:
    """Where a cell is: in the consensus, else in the first run that has it."""
    if cell.label:
        return agreement.consensus == cell.label
    run = cell.runs[0]
    return canonical(masks[run]) == agreement.objects_of(run).index(cell) + 1


def touches_edge(outline: np.ndarray) -> bool:
    """Whether a cell reaches the edge of its image."""
    inner = outline[1:-1, 1:-1]
    return bool(outline.sum() > inner.sum())


def matches_true_cell(outline: np.ndarray, truth: np.ndarray) -> bool:
    """Whether a true cell overlaps by an IoU of at least 0.5."""
    labels, counts = np.unique(truth[outline], return_counts=True)
    return any(
        label and n_shared / (outline | (truth == label)).sum() >= 0.5
        for label, n_shared in zip(labels, counts, strict=True)
    )
