"""Every generator a training draws from: seed them, keep them, store them, give them back.

Cellpose 4.2.1.1 draws image order and augmentation from NumPy's global generator, which
``cellpose.train.train_seg`` reseeds at every epoch, and layer dropping from PyTorch's generator
of the training device.
"""

from __future__ import annotations

import base64
import math
import os
import pickle
import random
import sys
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.errors import BadInput, NotPossibleHere, whole, whole_number
from cellrepro.words import joined

_FORMAT, _FIRST_FORMAT = "cellrepro generators 2", "cellrepro generators 1"
_PARTS = ("python", "numpy", "torch", "cuda", "mps")
"""What every state holds; none where a machine lacks the device."""
ENTRY = "cellrepro generators"
"""Under which name `add_seed_to` puts the generators into a checkpoint."""


def check_seed(seed: int, *, name: str = "seed") -> int:
    """Return ``seed`` if every generator accepts it: NumPy's global one takes [0, 2**32)."""
    number = whole_number(seed)
    if number is None or not 0 <= number < 2**32:
        raise BadInput(f"{name} is {seed!r}; expected a whole number from 0 to {2**32 - 1}")
    return number


def seed_of(mode: str, seed: int | None) -> int | None:
    """The seed that a process begins with: 0 where none is given, and none in mode ``off``.

    Parameters
    ----------
    mode : str
        Of determinism; ``off`` seeds nothing.
    seed : int or None
        As it was asked for, in [0, 2**32).

    Raises
    ------
    BadInput
        If a seed is given in mode ``off``, or is none.
    """
    if mode != "off":
        return 0 if seed is None else check_seed(seed)
    if seed is not None:
        raise BadInput(
            f"mode off seeds nothing, and seed {seed} is given: leave it out, or use mode fast, "
            "which seeds and fixes nothing else"
        )
    return None


# -- one process ---------------------------------------------------------------------------


def seed_everything(seed: int, *, quiet: bool = False) -> np.random.Generator:
    """Seed Python, NumPy's global generator and PyTorch on every device, with one in [0, 2**32).

    TensorFlow and CuPy are seeded where they are already imported. Unless ``quiet``, what was
    seeded and what no seed reaches is printed to standard error. Returns
    ``numpy.random.default_rng(seed)``, to be handed on: it has no global state to seed.
    """
    import torch

    seed = check_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # CPU, every CUDA device and MPS; CUDA at its start if that is to come
    reached = ["Python", "NumPy", "PyTorch on every device"]
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.random.set_seed(seed)
        reached.append("TensorFlow")
    if (cupy := sys.modules.get("cupy")) and cupy.cuda.is_available():
        cupy.random.seed(seed)
        reached.append("CuPy")
    if not quiet:
        hash_seed = os.environ.get("PYTHONHASHSEED", "not set")
        print(
            f"seeded with {seed}: {joined(reached)}; not reached: generators made before, and the "
            f"order of sets of text (PYTHONHASHSEED, {hash_seed}, is read when Python starts)",
            file=sys.stderr,
        )
    return np.random.default_rng(seed)


def generator(seed: int, device: Any = "cpu") -> Any:
    """Give a `torch.Generator` from which nothing else draws, with a seed in [0, 2**32).

    ``device`` is where it draws: CPU and CUDA draw other numbers from one seed.
    """
    import torch

    return torch.Generator(device).manual_seed(check_seed(seed))


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put every generator back after the block; TensorFlow's and CuPy's cannot be read."""
    states = _read()
    try:
        yield
    finally:
        _write(states)


@contextmanager
def seeded(seed: int) -> Iterator[np.random.Generator]:
    """Seed Python, NumPy and PyTorch for one block, then restore them, also when it raises.

    Inside the block ``numpy.random.default_rng()`` without an argument is reproducible too, but
    not where it was fetched earlier (``from numpy.random import default_rng``). TensorFlow and
    CuPy stay seeded after the block. Yields what `seed_everything` returns.
    """
    seed = check_seed(seed)
    before = np.random.default_rng
    with generators_kept():
        np.random.default_rng = _default_rng_from_global
        try:
            yield seed_everything(seed, quiet=True)
        finally:
            np.random.default_rng = before


_DEFAULT_RNG = np.random.default_rng


def _default_rng_from_global(seed: Any = None) -> np.random.Generator:
    """Stand in for ``numpy.random.default_rng``; without a seed it follows the global generator."""
    if seed is None:
        seed = np.random.randint(0, 2**32, size=4, dtype=np.uint32)
    return _DEFAULT_RNG(seed)


def _read() -> dict[str, Any]:
    """The states as the libraries give them; quick, for every epoch and every image."""
    import torch

    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.random.get_rng_state(),
        # Asking an uninitialised CUDA runtime for its state would initialise it.
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None,
        "mps": torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
    }


def _write(states: Mapping[str, Any]) -> None:
    import torch

    # On the CPU, whatever the default device is.
    octets = partial(torch.as_tensor, dtype=torch.uint8, device="cpu")
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(states["numpy"])
    seeded_with = torch.initial_seed()
    torch.random.set_rng_state(octets(states["torch"]))
    if states["cuda"] is not None:
        torch.cuda.set_rng_state_all([*map(octets, states["cuda"])])
    elif torch.cuda.is_initialized() or torch.initial_seed() != seeded_with:
        # CUDA had not started: it is where it starts, or will be once it does.
        torch.cuda.manual_seed_all(torch.initial_seed())
    if states["mps"] is not None:
        torch.mps.set_rng_state(octets(states["mps"]))


# -- states to store -----------------------------------------------------------------------


def capture() -> dict[str, Any]:
    """The state of every generator as plain numbers, for JSON."""
    return _plain({"format": _FORMAT, **_read(), "generators": {}})


def restore(checkpoint: Mapping[str, Any]) -> None:
    """Put every generator exactly where `add_seed_to` found it, or change nothing.

    ``checkpoint`` is the dict that ``torch.load`` gave, or its entry alone; one without it is
    refused with `BadInput`, one of another number of CUDA devices with `NotPossibleHere`. Where
    CUDA had not started, it is seeded with PyTorch's seed then, which is where it would have begun.
    """
    import torch

    states = in_todays_format(checkpoint)
    n_held = len(states["cuda"] or ())
    n_here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if n_held not in (0, n_here):
        raise NotPossibleHere(
            f"the state holds the generators of {n_held} CUDA devices, and PyTorch finds {n_here}; "
            f"restore it where CUDA_VISIBLE_DEVICES shows {n_held}"
        )
    if states["cuda"] is not None:
        torch.cuda.init()
    before = _read()
    try:
        if states["numpy"]["state"].get("pos", 0) not in range(625):
            raise ValueError("pos is out of range")  # NumPy 2.4 would read past its words
        _write(states)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        _write(before)
        raise BadInput(
            f"a generator does not accept its state ({error}); expected what cellrepro's capture "
            "returned; nothing was restored"
        ) from error


def in_todays_format(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What `capture` would give for a state, or a checkpoint with it, maybe of the first format."""
    if isinstance(state, Mapping):
        state = state.get(ENTRY, state)
    found = state.get("format") if isinstance(state, Mapping) else state
    if found == _FORMAT:
        missing = [name for name in _PARTS if name not in state]
        if missing:
            raise BadInput(
                f"the generators' state has no {joined(missing)}; expected what "
                "cellrepro.add_seed_to(checkpoint) leaves in it; nothing was restored"
            )
        return state
    if found != _FIRST_FORMAT:
        raise BadInput(
            f"the generators' state has the format {str(found)[:60]!r}; expected {_FORMAT!r}, as "
            "cellrepro.add_seed_to(checkpoint) leaves it"
        )

    def twister(held: dict[str, Any]) -> dict[str, Any]:
        words = np.frombuffer(base64.b64decode(held["state"]["key"]), "<u4").tolist()
        place = {"key": words, "pos": held["state"]["pos"]}
        return held | {"state": place, "gauss": float.fromhex(held["gauss"])}

    python = twister(state["python"])
    words = [*python["state"]["key"], python["state"]["pos"]]
    return {
        "python": [3, words, python["gauss"] if python["has_gauss"] else None],
        "numpy": twister(state["numpy"]),
        "torch": list(base64.b64decode(state["torch"])),
        "cuda": state["cuda"] and [list(base64.b64decode(text)) for text in state["cuda"]],
        "mps": state["mps"] and list(base64.b64decode(state["mps"])),
    }


def other_seeds(state: Mapping[str, Any], seed: int) -> list[str]:
    """A sentence for each of PyTorch's generators in a state that does not follow from a seed.

    Python's and NumPy's generators do not say how they were seeded.
    """
    held = in_todays_format(state)
    states = {"torch": held["torch"]}
    states |= {f"cuda:{index}": octets for index, octets in enumerate(held["cuda"] or ())}
    # PyTorch's hold the seed that they began with.
    seeds = {name: int.from_bytes(bytes(octets[:8]), "little") for name, octets in states.items()}
    return [f"{name}'s generator has seed {n}" for name, n in seeds.items() if n != seed]


def add_seed_to(checkpoint: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put seed and state of every generator into a dict that ``torch.save`` will write; returns it.

    The new entry holds plain numbers, which ``torch.load(weights_only=True)`` reads. `BadInput` if
    PyTorch was not seeded with `seed_everything`, and for a network's bare state dict.
    """
    import torch

    seeded_with = torch.initial_seed()
    if seeded_with >= 2**32:  # drawn by PyTorch as it started, as long as nobody sets one
        raise BadInput(
            f"PyTorch's generator has the seed {seeded_with}, which no seed of cellrepro is: call "
            "cellrepro.seed_everything(seed) before the training begins"
        )
    if checkpoint and all(isinstance(value, torch.Tensor) for value in checkpoint.values()):
        raise BadInput(
            "the checkpoint holds tensors alone, as a network's state dict, which would not load "
            "with another entry; expected {'model': network.state_dict(), ...}"
        )
    checkpoint[ENTRY] = capture()
    return checkpoint


def check_seed_of(checkpoint: Mapping[str, Any] | str | Path, seed: int) -> bool:
    """Whether a checkpoint says that it is of a seed; `BadInput` if it is of another.

    ``checkpoint`` is a dict or the path of a file that ``torch.save`` wrote, ``seed`` that of
    `seed_everything` in the process that saved it. One that was saved without `add_seed_to` gives
    False and a warning that says what is unknown.
    """
    import torch

    name, held = "the checkpoint", checkpoint
    if isinstance(checkpoint, str | Path):
        name = str(checkpoint)
        try:
            held = torch.load(checkpoint, weights_only=True, map_location="cpu")
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            if isinstance(error, EOFError):
                why = "it ends too soon, as on a disk that was full"
            raise BadInput(
                f"{name} cannot be read ({why}); expected a file that "
                "torch.save wrote, or the dict that you loaded from it"
            ) from error
    if not isinstance(held, Mapping) or ENTRY not in held:
        warnings.warn(
            f"{name} holds no seed: which one it was trained with, and where its generators "
            "stood, is unknown, so a training that goes on from it may end in other bits; call "
            "cellrepro.add_seed_to(checkpoint) before torch.save",
            stacklevel=2,
        )
        return False
    if problems := other_seeds(held, check_seed(seed)):
        raise BadInput(
            f"{name} is not of seed {seed}: {'; '.join(problems)}; give the checkpoint of seed "
            f"{seed}, or go on with the seed that it was begun with"
        )
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


# -- loading data --------------------------------------------------------------------------


def seed_worker(worker_id: int, *, rank: int = 0) -> None:
    """Seed a DataLoader's worker; for ``worker_init_fn``.

    PyTorch seeds it from the loader's generator, which is the same in processes that train
    together, so that their workers would augment alike. Here the rank goes in as well.
    """
    import torch.utils.data

    worker: Any = torch.utils.data.get_worker_info()  # none outside a worker
    # worker.seed is torch.initial_seed() as the worker began: the loader's draw + the worker's id.
    words = np.random.SeedSequence(worker.seed, spawn_key=(rank,)).generate_state(10)
    random.seed(int.from_bytes(words[:4].astype("<u4").tobytes(), "little"))
    np.random.seed(words[4:8])
    torch.manual_seed((int(words[8]) << 32) | int(words[9]))
    np.random.default_rng = _default_rng_from_global  # for the worker's life; nothing else is here


def loader_arguments(seed: int, *, rank: int = 0) -> dict[str, Any]:
    """The arguments with which a DataLoader of one number of workers is reproducible.

    The order is the same for every number of workers; augmentation from global generators is not,
    while that from `item_generator` is. The seed is the same on all ranks that train together.
    The order goes on from epoch to epoch: to resume, keep ``loader.generator.get_state()``.
    Where ``persistent_workers`` stood in their generators cannot be kept.
    """
    return {
        "generator": generator(seed),
        "worker_init_fn": partial(seed_worker, rank=whole("rank", rank, 0)),
    }


def item_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """A generator of NumPy's for one item in one epoch, whoever loads it, whatever came before."""
    key = (whole("epoch", epoch, 0), whole("index", index, 0))
    sequence = np.random.SeedSequence(check_seed(seed), spawn_key=key)
    return np.random.Generator(np.random.PCG64(sequence))


def split(
    items: int | Sequence[str],
    fractions: Sequence[float],
    seed: int,
    *,
    groups: Sequence[Hashable] | None = None,
) -> tuple[np.ndarray, ...]:
    """Divide items at random, the same way on every platform and version of NumPy.

    ``items`` is their number or their names, ``fractions`` are numbers above 0, together 1, or how
    many items each part gets, ``groups`` a label for each item: those of one label stay together.
    Gives for every part the indices of its items, ascending: arrays of int, shape (n_of_part,).

    Depends on these and the seed alone; of names, on the set of them, not on the order in which a
    directory lists them. One more item makes another division. Items are sorted by the 64 raw bits
    that PCG64 gives each: NumPy promises these, and not the order of ``Generator.permutation``
    (NEP 19). Item or group is in the part in which its middle falls.
    """
    if isinstance(items, str | bytes):
        raise BadInput(f"items is {items!r}, one text; expected a number of items, or their names")
    names = list(map(str, items)) if isinstance(items, Iterable) else None
    n = whole("items", items, 1) if names is None else len(names)
    if names is not None and len(set(names)) < n:
        raise BadInput(f"{n - len(set(names))} of {n} names occur before; expected a name for each")
    order_of = range(n) if names is None else sorted(range(n), key=names.__getitem__)
    labels = range(n) if groups is None else list(groups)
    if len(labels) != n:
        raise BadInput(f"groups has {len(labels)} labels for {n} items; expected one for each item")
    # Exact numbers, so that 0.7 of 10 is 7 and three thirds are 1, float32 included.
    exact = [Fraction(float(fraction)).limit_denominator(10**6) for fraction in fractions]
    exact = [part / n for part in exact] if n > 1 and sum(exact) == n else exact
    if not exact or min(exact) <= 0 or sum(exact) != 1:
        raise BadInput(
            f"fractions is {fractions!r}; expected numbers above 0, together 1, or {n} items"
        )
    in_order = dict.fromkeys(labels[index] for index in order_of)
    numbers = {label: index for index, label in enumerate(in_order)}
    group_of = np.array([numbers[label] for label in labels])
    keys = np.random.PCG64(np.random.SeedSequence(check_seed(seed))).random_raw(len(numbers))
    order = np.argsort(keys, kind="stable")
    sizes = np.bincount(group_of)[order]
    # Twice the item at which each part ends, as a group's middle may be half an item.
    edges = [math.ceil(2 * n * edge) for edge in accumulate(exact)]
    part_of = np.empty(len(numbers), int)
    part_of[order] = np.searchsorted(edges, 2 * np.cumsum(sizes) - sizes, side="right")
    parts = tuple(np.flatnonzero(part_of[group_of] == part) for part in range(len(edges)))
    if not all(map(len, parts)):
        raise BadInput(
            f"one part of {fractions!r} would be empty with {n} items in {len(numbers)} groups; "
            "give it a larger fraction, or more items"
        )
    return parts


def rank_seed(base: int, rank: int, n_ranks: int) -> int:
    """For `seed_everything` in one of several processes that train together.

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
    """
    rank = whole("rank", rank, 0)
    if rank >= whole("n_ranks", n_ranks, 1):
        raise BadInput(f"rank is {rank} of {n_ranks} ranks; expected one from 0 to n_ranks - 1")
    base = check_seed(base, name="base")
    if rank == 0:
        return base
    return int(np.random.SeedSequence(base, spawn_key=(rank,)).generate_state(1)[0])
