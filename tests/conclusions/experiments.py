"""Planted experiments on tiny label images: what is true is known, and what each side shows."""

from dataclasses import dataclass

import numpy as np

_PITCH = 8
_SIDE = 80
SLOTS = [(y, x) for y in range(0, _SIDE, _PITCH) for x in range(0, _SIDE, _PITCH)]


def drawn(sizes):
    """A label image with a square for each size in pixels of its side, in scattered slots."""
    labels = np.zeros((_SIDE, _SIDE), np.uint16)
    for number, (slot, size) in enumerate(sizes.items(), start=1):
        y, x = SLOTS[slot]
        labels[y : y + size, x : x + size] = number
    return labels


def some_cells(generator, n, *, size=6):
    """Cells of one size in scattered slots."""
    return dict.fromkeys(generator.permutation(len(SLOTS))[:n].tolist(), size)


@dataclass(frozen=True)
class Experiment:
    """Masks of both sides, the groups, and the word that is right for the number of cells."""

    a: dict
    b: dict
    groups: dict
    word: str


def planted(kind, seed):
    """One experiment; every seed has another number of images, effect and loss."""
    generator = np.random.default_rng([48, KINDS.index(kind), seed])
    n_images = 8 + seed
    a, b, groups = {}, {}, {}
    for group in ("treated", "control"):
        for index in range(n_images):
            name = f"{group}_{index}"
            n_more = 10 + seed if group == "treated" else 0
            cells = some_cells(generator, 25 + generator.poisson(4))
            free = [int(slot) for slot in generator.permutation(len(SLOTS)) if slot not in cells]
            if kind == "effect":
                cells.update(dict.fromkeys(free[:n_more], 6))
            elif kind == "lost subgroup":
                cells.update(dict.fromkeys(free[:n_more], 3))
            kept = {slot: size for slot, size in cells.items() if generator.random() > 0.02}
            if kind == "lost subgroup":
                kept = {slot: size for slot, size in kept.items() if size > 3}
            labels = drawn(kept)
            if kind == "made by the segmentation" and group == "treated":
                _split(labels, 8 + seed)
            a[name] = drawn(cells)
            b[name] = labels
            groups[name] = group
    word = "stands" if kind in ("effect", "none") else "changes"
    return Experiment(a, b, groups, word)


def _split(labels, n_cells):
    """Cut the first cells in two halves."""
    for number in range(1, n_cells + 1):
        rows, _ = np.nonzero(labels == number)
        half = (labels == number) & (np.arange(_SIDE)[:, None] > rows.mean())
        labels[half] = 1000 + number


KINDS = ("effect", "none", "made by the segmentation", "lost subgroup")
