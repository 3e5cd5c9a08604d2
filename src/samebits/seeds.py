"""Every generator that a training draws from, seeded with one number."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.errors import BadInput, NotPossibleHere, whole, whole_number
from samebits.generator_states import generators_kept
from samebits.libraries import has_library
from samebits.replaced_functions import GivenBack
from samebits.words import joined

if TYPE_CHECKING:
    import torch

    from samebits.mode_names import Mode


def check_seed(seed: int, *, name: str = "seed") -> int:
    """Return ``seed`` if every generator accepts it: NumPy's global one takes [0, 2**32).

    >>> check_seed(7)
    7
    """
    number = whole_number(seed)
    if number is None or not 0 <= number < 2**32:
        raise BadInput(f"{name} is {seed!r}; expected a whole number from 0 to {2**32 - 1}")
    return number


def seed_of(mode: Mode, seed: int | None) -> int | None:
    """The seed that a process begins with: 0 where none is given, and none in mode ``off``.

    For `seed_everything`; None seeds nothing.
    """
    if mode != "off":
        return 0 if seed is None else check_seed(seed)
    if seed is not None:
        raise BadInput(
            f"mode off seeds nothing, and seed {seed} is given: leave it out, or use mode fast, "
            "which seeds and fixes nothing else"
        )
    return None


def seed_everything(seed: int, *, quiet: bool = False) -> np.random.Generator:
    """Seed Python, NumPy's global generator and, if installed, PyTorch on every device.

    TensorFlow and CuPy are seeded where they are already imported.

    Parameters
    ----------
    seed : int
        In [0, 2**32).
    quiet : bool
        Do not print to standard error what was seeded and what no seed reaches.

    Returns
    -------
    numpy.random.Generator
        ``numpy.random.default_rng(seed)``, to be handed on: it has no global state to seed.

    Raises
    ------
    BadInput
        If it is no seed.

    Examples
    --------
    >>> with generators_kept():
    ...     first = seed_everything(0, quiet=True).random()
    ...     print(first == seed_everything(0, quiet=True).random())
    True
    """
    seed = check_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    seeded_libraries = ["Python", "NumPy"]
    if has_library("torch"):
        import torch

        torch.manual_seed(seed)  # CPU, every CUDA device and MPS; a CUDA that is yet to start, too
        seeded_libraries.append("PyTorch on every device")
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow:
        tensorflow.random.set_seed(seed)
        seeded_libraries.append("TensorFlow")
    cupy = sys.modules.get("cupy")
    if cupy and cupy.cuda.is_available():
        cupy.random.seed(seed)
        seeded_libraries.append("CuPy")
    if not quiet:
        hash_seed = os.environ.get("PYTHONHASHSEED", "not set")
        print(
            f"seeded with {seed}: {joined(seeded_libraries)}; not reached: generators made before, "
            f"and the order of sets of text (PYTHONHASHSEED, {hash_seed}, is read when Python "
            "starts)",
            file=sys.stderr,
        )
    return np.random.default_rng(seed)


def generator(seed: int, device: str | torch.device = "cpu") -> torch.Generator:
    """Make a generator of PyTorch's from which nothing else draws.

    Parameters
    ----------
    seed : int
        In [0, 2**32).
    device : str or torch.device
        Where it draws: CPU and CUDA draw different numbers from one seed.

    Returns
    -------
    torch.Generator
        At the beginning of the stream of its seed.

    Raises
    ------
    BadInput
        If it is no seed.
    """
    import torch

    return torch.Generator(device).manual_seed(check_seed(seed))


@contextmanager
def seeded(seed: int) -> Iterator[np.random.Generator]:
    """Seed Python, NumPy and PyTorch for one block, then restore them, also when it raises.

    Inside the block ``numpy.random.default_rng()`` without an argument is reproducible too, but
    not where it was fetched earlier (``from numpy.random import default_rng``). TensorFlow and
    CuPy stay seeded after the block.

    Parameters
    ----------
    seed : int
        In [0, 2**32).

    Yields
    ------
    numpy.random.Generator
        What `seed_everything` returns.

    Raises
    ------
    BadInput
        If it is no seed.
    NotPossibleHere
        If a seeded block of another thread or task lasts: both would draw from one generator.

    Examples
    --------
    >>> with seeded(3):
    ...     first = random.random()
    >>> with seeded(3):
    ...     print(random.random() == first)
    True
    """
    seed = check_seed(seed)
    with _SEEDED.after_block(), generators_kept():
        if _SEEDED.has_others():
            raise NotPossibleHere(
                f"seeded({seed}) begins while a seeded block of another thread or task lasts; "
                "generators belong to the whole process, so the numbers of both would depend on "
                "which draws first: let that block end before, or draw from a generator of each "
                "one's own (samebits.generator)"
            )
        np.random.default_rng = default_rng_from_global
        yield seed_everything(seed, quiet=True)


def _set_default_rng(function: Callable[..., np.random.Generator]) -> None:
    np.random.default_rng = function


_DEFAULT_RNG = np.random.default_rng
_SEEDED = GivenBack(lambda: np.random.default_rng, _set_default_rng)


def default_rng_from_global(seed: Any = None) -> np.random.Generator:
    """Replace ``numpy.random.default_rng``; a missing seed is drawn from the global generator."""
    if seed is None:
        seed = np.random.randint(0, 2**32, size=4, dtype=np.uint32)
    return _DEFAULT_RNG(seed)


def rank_seed(base: int, rank: int, n_ranks: int) -> int:
    """Derive the seed for `seed_everything` in one of several processes that train together.

    All divide one order of the data, with ``base`` for `split` and `loader_arguments`.

    Parameters
    ----------
    base : int
        The seed of the training, in [0, 2**32).
    rank : int
        Which process it is, from 0.
    n_ranks : int
        How many there are; the seed of a rank does not depend on it.

    Returns
    -------
    int
        ``base`` itself for rank 0; for the others NumPy's ``SeedSequence`` of base and rank, so
        that neighbouring bases share no seed: any two are equal with a chance of 1 in 2**32.

    Raises
    ------
    BadInput
        If ``rank`` is not below ``n_ranks``, or ``base`` is no seed.

    Examples
    --------
    >>> rank_seed(5, 0, 2)
    5
    """
    rank = whole("rank", rank, 0)
    if rank >= whole("n_ranks", n_ranks, 1):
        raise BadInput(f"rank is {rank} of {n_ranks} ranks; expected one from 0 to n_ranks - 1")
    base = check_seed(base, name="base")
    if rank == 0:
        return base
    return int(np.random.SeedSequence(base, spawn_key=(rank,)).generate_state(1)[0])
