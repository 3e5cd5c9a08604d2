"""The order in which a training sees its data, and how they are divided, from a seed alone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from samebits.errors import BadInput, whole
from samebits.seeds import check_seed, default_rng_from_global, generator
from samebits.words import amount

if TYPE_CHECKING:
    import torch


# -- loading -------------------------------------------------------------------------------


def seed_worker(worker_id: int, *, rank: int = 0) -> None:
    """Seed a DataLoader's worker; for ``worker_init_fn``.

    PyTorch seeds it from the loader's generator, which is the same in processes that train
    together, so that their workers would augment alike. Here the rank goes in as well.
    """
    import torch
    from torch.utils.data import get_worker_info

    worker = get_worker_info()
    assert worker is not None  # PyTorch calls this in workers alone
    # worker.seed is torch.initial_seed() as the worker began: the loader's draw + the worker's id.
    words = np.random.SeedSequence(worker.seed, spawn_key=(rank,)).generate_state(10)
    random.seed(int.from_bytes(words[:4].astype("<u4").tobytes(), "little"))
    np.random.seed(words[4:8])
    torch.manual_seed((int(words[8]) << 32) | int(words[9]))
    np.random.default_rng = default_rng_from_global  # for the worker's life; nothing else is here


class LoaderArguments(TypedDict):
    """Two arguments of ``torch.utils.data.DataLoader``."""

    generator: torch.Generator
    """The generator from which the order is drawn, and the seeds of the workers."""
    worker_init_fn: Callable[[int], None]
    """`seed_worker` of a rank."""


def loader_arguments(seed: int, *, rank: int = 0) -> LoaderArguments:
    """The arguments with which a DataLoader of one number of workers is reproducible.

    The order is the same for every number of workers; augmentation from global generators is not,
    while that from `item_generator` is. The order goes on from epoch to epoch: to resume, keep
    ``loader.generator.get_state()``. Where ``persistent_workers`` stood in their generators cannot
    be kept.

    Parameters
    ----------
    seed : int
        In [0, 2**32), the same on all ranks that train together.
    rank : int
        Which of them this process is, from 0.

    Returns
    -------
    dict
        ``generator`` and ``worker_init_fn``, for ``DataLoader(images, **loader_arguments(0))``.

    Raises
    ------
    BadInput
        If it is no seed, or the rank no whole number from 0.
    """
    return {
        "generator": generator(seed),
        "worker_init_fn": partial(seed_worker, rank=whole("rank", rank, 0)),
    }


def item_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Make a generator for one item in one epoch, whoever loads it, whatever came before.

    Parameters
    ----------
    seed : int
        In [0, 2**32).
    epoch, index : int
        Which epoch and which item, from 0.

    Returns
    -------
    numpy.random.Generator
        At the beginning of a stream that no other item and no other epoch has.

    Raises
    ------
    BadInput
        If it is no seed, or epoch or index is no whole number from 0.

    Examples
    --------
    >>> item_generator(0, 2, 7).random() == item_generator(0, 2, 7).random()
    True
    >>> item_generator(0, 2, 7).random() == item_generator(0, 3, 7).random()
    False
    """
    key = (whole("epoch", epoch, 0), whole("index", index, 0))
    sequence = np.random.SeedSequence(check_seed(seed), spawn_key=key)
    return np.random.Generator(np.random.PCG64(sequence))


# -- dividing ------------------------------------------------------------------------------


def split(
    items: int | Sequence[str],
    fractions: Sequence[float],
    seed: int,
    *,
    groups: Sequence[Hashable] | None = None,
) -> tuple[np.ndarray, ...]:
    """Divide items at random, the same way on every platform and version of NumPy.

    Depends on the arguments alone; of names, on the set of them, not on the order in which a
    directory lists them. One more item makes another division.

    Parameters
    ----------
    items : int or sequence of str
        Their number, or a name for each.
    fractions : sequence of float
        Of each part: numbers above 0, together 1, or how many items each part gets.
    seed : int
        In [0, 2**32).
    groups : sequence, optional
        A label for each item: those of one label stay together.

    Returns
    -------
    tuple of ndarray of int, shape (n_of_part,)
        For every part the indices of its items, ascending.

    Raises
    ------
    BadInput
        There is not one label for each item, a name comes twice, fractions do not make a whole, or
        a part would be empty.

    Notes
    -----
    Items are sorted by the 64 raw bits that PCG64 gives each: NumPy promises these, and not the
    order of ``Generator.permutation`` (NEP 19). Item or group is in the part in which its middle
    falls.

    Examples
    --------
    >>> train, test = split(10, [0.8, 0.2], seed=0)
    >>> len(train), len(test)
    (8, 2)
    """
    names = _checked_names(items)
    n_items = whole("items", items, 1) if names is None else len(names)
    labels = range(n_items) if groups is None else list(groups)
    if len(labels) != n_items:
        raise BadInput(
            f"groups has {amount(len(labels), 'label')} for {amount(n_items, 'item')}; expected "
            "one for each item"
        )
    shares = _exact_shares(fractions, n_items)
    indices_by_name = (
        range(n_items) if names is None else sorted(range(n_items), key=names.__getitem__)
    )
    labels_by_name = dict.fromkeys(labels[index] for index in indices_by_name)
    number_of_label = {label: number for number, label in enumerate(labels_by_name)}
    group_of_item = np.array([number_of_label[label] for label in labels])
    part_of_group = _parts_of_groups(np.bincount(group_of_item), shares, check_seed(seed))
    part_of_item = part_of_group[group_of_item]
    parts = tuple(np.flatnonzero(part_of_item == part) for part in range(len(shares)))
    if not all(len(part) for part in parts):
        raise BadInput(
            f"one part of {fractions!r} would be empty with {amount(n_items, 'item')} in "
            f"{amount(len(number_of_label), 'group')}; give it a larger fraction, or more items"
        )
    return parts


def _checked_names(items: int | Sequence[str]) -> list[str] | None:
    """The items' names, each once; None where only their number is given."""
    if isinstance(items, str | bytes):
        raise BadInput(f"items is {items!r}, one text; expected a number of items, or their names")
    if not isinstance(items, Iterable):
        return None
    names = [str(item) for item in items]
    n_repeated = len(names) - len(set(names))
    if n_repeated:
        raise BadInput(f"{n_repeated} of {len(names)} names occur before; expected a name for each")
    return names


def _exact_shares(fractions: Sequence[float], n_items: int) -> list[Fraction]:
    """Each part's share of the whole, exact: 0.7 of 10 is 7, three thirds are 1, float32 too."""
    try:
        shares = [Fraction(float(fraction)).limit_denominator(10**6) for fraction in fractions]
    except (ValueError, OverflowError, TypeError):  # NaN, infinity, and what is no number
        shares = []
    if n_items > 1 and sum(shares) == n_items:  # numbers of items
        shares = [share / n_items for share in shares]
    if not shares or min(shares) <= 0 or sum(shares) != 1:
        raise BadInput(
            f"fractions is {fractions!r}; expected numbers above 0, together 1, or {n_items} items"
        )
    return shares


def _parts_of_groups(sizes: np.ndarray, shares: Sequence[Fraction], seed: int) -> np.ndarray:
    """The part that each group falls into: array of int, shape (n_groups,)."""
    n_items = int(sizes.sum())
    sort_keys = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(len(sizes))
    order = np.argsort(sort_keys, kind="stable")
    sizes_in_order = sizes[order]
    # Twice the item at which each part ends, as a group's middle may be half an item.
    part_ends = [math.ceil(2 * n_items * end) for end in accumulate(shares)]
    group_middles = 2 * np.cumsum(sizes_in_order) - sizes_in_order
    parts = np.empty(len(sizes), int)
    parts[order] = np.searchsorted(part_ends, group_middles, side="right")
    return parts
