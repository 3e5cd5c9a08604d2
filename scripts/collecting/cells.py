"""Every cell that any run found: in how many it is, and what it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat, Run
from collecting.tables import Table

if TYPE_CHECKING:
    from cellrepro.comparison.consensus import Agreement, Stability

CELLS = Table("cells.csv", ("images", "runs", "image", "cell"))

RING = 5
"""Pixels around a cell that it is compared with."""


@dataclass(frozen=True)
class CellRow:
    """A cell; the fields are the table's columns.

    Attributes
    ----------
    images : str
    runs : str
        Which trainings.
    image : str
    cell : int
        Its number.
    y : float
        Its centre, pixels.
    x : float
    area : int
        Pixels.
    n_runs, n_runs_with : int
    contrast : float
        To the ring, in standard deviations of the image.
    crowding : float
        Share of the ring that is other cells.
    at_edge : bool
    true : bool or None
        Whether a true cell matches it at IoU 0.5; None without a truth.
    """

    images: str
    runs: str
    image: str
    cell: int
    y: float
    x: float
    area: int
    n_runs: int
    n_runs_with: int
    contrast: float
    crowding: float
    at_edge: bool
    true: bool | None


@dataclass(frozen=True)
class Group:
    """Repeats over the same images."""

    name: str
    repeats: list[Repeat]


def collect_cells(store: Store) -> None:
    """Describe every cell of some groups of runs."""
    rows = []
    for group in groups_of_repeats(store):
        for image in group.repeats[0].manifest.masks:
            rows += [asdict(row) for row in cells_of(image, group, store)]
    CELLS.add(rows)


def groups_of_repeats(store: Store) -> Iterator[Group]:
    """Trainings of the nuclei that differ in the seed, or were never seeded.

    Short ones, of which those of mode strict are on one profile, and long ones.
    """
    for epochs, modes in ((40, ("strict", "off")), (200, ("fast",))):
        trainings = [run for run in store.runs() if _is_of_nuclei(run, epochs)]
        runs = [run for run in trainings if run.spec.mode in modes]
        seeded = [run.repeats[0] for run in runs if run.spec.mode != "off"]
        free = [repeat for run in runs if run.spec.mode == "off" for repeat in run.repeats]
        if len(seeded) > 2:
            yield Group(f"{epochs} epochs", [*seeded, *free])


def _is_of_nuclei(run: Run, epochs: int) -> bool:
    spec = run.spec
    return (
        spec.task == "train"
        and spec.data == "nuclei"
        and spec.model == "tiny"
        and spec.epochs == epochs
        and spec.profile == "cpu"
    )


def cells_of(image: str, group: Group, store: Store) -> Iterator[CellRow]:
    """The cells of one image.

    Parameters
    ----------
    image : str
    group : Group
        Whose masks are held beside each other.
    store : Store
        Which has the image.
    """
    from cellrepro.comparison.consensus import agree

    spec = group.repeats[0].spec
    masks = [repeat.masks(image) for repeat in group.repeats]
    agreement = agree(masks)
    pixels = store.image(spec.data_digest, image)
    grey = (pixels if pixels.ndim == 2 else pixels.mean(-1)).astype(float)
    truth = store.truth(spec.data_digest, image)
    for number, cell in enumerate(agreement.objects):
        outline = outline_of(cell, masks, agreement)
        ring = ring_around(outline)
        is_other_cell = ring & (agreement.consensus > 0)
        y, x = cell.position
        yield CellRow(
            images=spec.data,
            runs=group.name,
            image=image,
            cell=number,
            y=round(y, 1),
            x=round(x, 1),
            area=cell.area,
            n_runs=len(group.repeats),
            n_runs_with=cell.n_runs_with,
            contrast=contrast_of(outline, ring, is_other_cell, grey),
            crowding=is_other_cell.sum() / ring.sum(),
            at_edge=touches_edge(outline),
            true=None if truth is None else matches_true_cell(outline, truth),
        )


def outline_of(
    cell: Stability, masks: Sequence[NDArray[np.integer]], agreement: Agreement
) -> NDArray[np.bool_]:
    """Where a cell is: in the consensus, else in the first run that has it.

    Parameters
    ----------
    cell : Stability
        One of the agreement's objects.
    masks : sequence of ndarray of int, shape (Y, X)
        Of all runs.
    agreement : Agreement
        Of these masks.

    Returns
    -------
    ndarray of bool, shape (Y, X)
    """
    from cellrepro.comparison.label_numbers import canonical

    if cell.label:
        return agreement.consensus == cell.label
    run = cell.runs[0]
    number = agreement.objects_of(run).index(cell) + 1
    return canonical(masks[run]) == number


def ring_around(outline: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The pixels around a cell."""
    from scipy.ndimage import binary_dilation

    return binary_dilation(outline, iterations=RING) & ~outline


def contrast_of(
    outline: NDArray[np.bool_],
    ring: NDArray[np.bool_],
    is_other_cell: NDArray[np.bool_],
    grey: NDArray[np.float64],
) -> float:
    """How much brighter a cell is than the ground around it.

    Parameters
    ----------
    outline, ring, is_other_cell : ndarray of bool, shape (Y, X)
        The cell; the pixels around it; and those of them that are of other cells, which count as
        ground only where there is no other.
    grey : ndarray of float, shape (Y, X)
        The image.

    Returns
    -------
    float
        In standard deviations of the image.
    """
    ground = ring & ~is_other_cell
    if not ground.any():
        ground = ring
    return (grey[outline].mean() - grey[ground].mean()) / grey.std()


def touches_edge(outline: NDArray[np.bool_]) -> bool:
    """Whether a cell reaches the edge of the image."""
    is_edge = np.ones(outline.shape, bool)
    is_edge[1:-1, 1:-1] = False
    return bool((outline & is_edge).any())


def matches_true_cell(outline: NDArray[np.bool_], truth: NDArray[np.integer]) -> bool:
    """Whether a true cell overlaps by an IoU of at least 0.5."""
    labels, counts = np.unique(truth[outline], return_counts=True)
    for label, n_shared in zip(labels, counts, strict=True):
        n_of_both = outline.sum() + (truth == label).sum() - n_shared
        if label != 0 and n_shared / n_of_both >= 0.5:
            return True
    return False
