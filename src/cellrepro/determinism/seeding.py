"""Every generator a training draws from: seed them, keep them, store them, give them back.

Cellpose 4.2.1.1 draws image order and augmentation from NumPy's global generator, which
``cellpose.train.train_seg`` reseeds at every epoch, and layer dropping from PyTorch's
generator of the training device. Around it, a DataLoader's workers draw in processes of their
own, and several devices need different draws from the same data.

What must be set before a process starts (``PYTHONHASHSEED`` and the like) is in `startup`.
"""

from __future__ import annotations

import base64
import binascii
import math
import operator
import random
import sys
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from cellrepro.errors import BadInput, NotPossibleHere

FORMAT = "cellrepro generators 1"
"""What `capture` writes and `restore` reads."""


def check_seed(seed: int, *, name: str = "seed") -> int:
    """Return ``seed`` if every generator accepts it.

    Parameters
    ----------
    seed : int
        In [0, 2**32), the range of NumPy's global generator.
    name : str
        The parameter's name, for the message.

    Raises
    ------
    BadInput
        If it is not a whole number in that range.

    Examples
    --------
    >>> check_seed(7)
    7
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise BadInput(f"{name} is {seed!r}; expected a whole number from 0 to {2**32 - 1}")
    return seed


# -- one process ---------------------------------------------------------------------------


def seed_everything(seed: int) -> np.random.Generator:
    """Seed Python, NumPy's global generator and PyTorch on every device.

    TensorFlow and CuPy (its current device) are seeded where they are already imported, and
    never imported for it.

    Parameters
    ----------
    seed : int
        In [0, 2**32).

    Returns
    -------
    numpy.random.Generator
        ``numpy.random.default_rng(seed)``, to be handed on. ``default_rng`` has no global state
        to seed: without an argument it stays random, except inside `seeded` and in a worker
        seeded by `seed_worker`.

    Raises
    ------
    BadInput
        If the seed is out of range.
    """
    import torch

    check_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # CPU, every CUDA device and MPS; CUDA at its start if that is to come
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.random.set_seed(seed)
    if cupy := _cupy():
        cupy.random.seed(seed)
    return np.random.default_rng(seed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put every generator back after the block, also when it raises.

    For whatever only looks: evaluation, saving, plotting. Blocks may be nested. TensorFlow's and
    CuPy's generators are not part of it: their state cannot be read.
    """
    import torch

    states = _read(torch)
    try:
        yield
    finally:
        _write(torch, states)


@contextmanager
def seeded(seed: int) -> Iterator[np.random.Generator]:
    """Seed Python, NumPy and PyTorch for one block, then restore them.

    Inside the block ``numpy.random.default_rng()`` without an argument is reproducible too: it
    takes its seed from NumPy's global generator. Code that has fetched the function earlier
    (``from numpy.random import default_rng``) is not reached and stays random.

    Parameters
    ----------
    seed : int
        In [0, 2**32).

    Yields
    ------
    numpy.random.Generator
        As `seed_everything` returns it.

    Raises
    ------
    BadInput
        If the seed is out of range; nothing has moved then.

    Notes
    -----
    CuPy goes on after the block where it was. TensorFlow does not: its state cannot be read, so
    where it is imported it stays seeded.

    Examples
    --------
    >>> with seeded(3) as generator:
    ...     first = np.random.rand(), np.random.default_rng().random(), generator.random()
    >>> with seeded(3) as generator:
    ...     first == (np.random.rand(), np.random.default_rng().random(), generator.random())
    True
    """
    check_seed(seed)
    with generators_kept(), _cupy_kept(seed), _default_rng_follows():
        yield seed_everything(seed)


@contextmanager
def _default_rng_follows() -> Iterator[None]:
    before = np.random.default_rng
    np.random.default_rng = _default_rng_from_global
    try:
        yield
    finally:
        np.random.default_rng = before


_DEFAULT_RNG = np.random.default_rng


def _default_rng_from_global(seed: Any = None) -> np.random.Generator:
    """Stand in for ``numpy.random.default_rng``; without a seed it follows the global generator.

    So it needs no state of its own to keep and restore, and differs between forked workers.
    """
    if seed is None:
        seed = np.random.randint(0, 2**32, size=4, dtype=np.uint32)
    return _DEFAULT_RNG(seed)


def _cupy() -> Any:
    """CuPy if it is imported and finds a device."""
    cupy = sys.modules.get("cupy")
    return cupy if cupy is not None and cupy.cuda.is_available() else None


@contextmanager
def _cupy_kept(seed: int) -> Iterator[None]:
    """Lend CuPy another generator: the state of its own cannot be read."""
    cupy = _cupy()
    if cupy is None:
        yield
        return
    device, before = cupy.cuda.Device(), cupy.random.get_random_state()
    cupy.random.set_random_state(cupy.random.RandomState(seed))
    try:
        yield
    finally:
        with device:
            cupy.random.set_random_state(before)


def _read(torch: Any) -> dict[str, Any]:
    """The states as the libraries give them; quick, for every epoch and every image."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.random.get_rng_state(),
        # Asking an uninitialised CUDA runtime for its state would initialise it.
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None,
        "mps": torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
    }


def _write(torch: Any, states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    seeded_with = torch.initial_seed()
    torch.random.set_rng_state(states["torch"])
    if states["cuda"] is not None:
        torch.cuda.set_rng_state_all(states["cuda"])
    elif torch.cuda.is_initialized() or torch.initial_seed() != seeded_with:
        # CUDA had not started: it is where it starts, or will be once it does.
        torch.cuda.manual_seed_all(torch.initial_seed())
    if states["mps"] is not None:
        torch.mps.set_rng_state(states["mps"])


# -- states as plain data ------------------------------------------------------------------


def capture(generators: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The state of every generator as plain data, for JSON; no pickle.

    Parameters
    ----------
    generators : mapping of str to generator, optional
        Generators of your own, by name: ``numpy.random.Generator`` or ``RandomState``,
        ``torch.Generator``, ``random.Random``.

    Returns
    -------
    dict
        Of texts, whole numbers, lists, dictionaries and None. ``cuda`` has one state for every
        device, or is None while CUDA has not started (it is not started for this). ``left_out``
        names imported libraries whose state cannot be read.

    Raises
    ------
    BadInput
        If one of ``generators`` is none of these kinds.

    Notes
    -----
    How often a NumPy generator was asked to ``spawn`` is not part of its state.

    Examples
    --------
    >>> state = capture()
    >>> first = random.gauss(), np.random.randn()
    >>> restore(state)
    >>> first == (random.gauss(), np.random.randn())
    True
    """
    import torch

    states = _read(torch)
    cuda, mps = states["cuda"], states["mps"]
    return {
        "format": FORMAT,
        "python": _encoded(_python_as_numpy(states["python"])),
        "numpy": _encoded(states["numpy"]),
        "torch": _encoded(states["torch"].numpy()),
        "cuda": None if cuda is None else [_encoded(state.numpy()) for state in cuda],
        "mps": None if mps is None else _encoded(mps.numpy()),
        "generators": {
            name: {"kind": _kind(name, generator), **_state_of(generator)}
            for name, generator in _named(generators).items()
        },
        "left_out": [name for name in ("cupy", "tensorflow") if name in sys.modules],
    }


def restore(state: Mapping[str, Any], generators: Mapping[str, Any] | None = None) -> None:
    """Put every generator exactly where `capture` found it, or change nothing.

    Parameters
    ----------
    state : mapping
        What `capture` returned, also after a round trip through JSON.
    generators : mapping of str to generator, optional
        The generators captured by name; they are set in place.

    Raises
    ------
    BadInput
        If the state has another format, something in it has the wrong shape or is out of range,
        or the generators are not those it names; the message says where.
    NotPossibleHere
        If a device whose state it holds is missing.

    Notes
    -----
    Where the state was captured before CUDA had started, CUDA is seeded with PyTorch's seed of
    that moment, which is where it would have started.
    """
    import torch

    generators = _named(generators)
    states = _decoded_states(torch, state)
    own = _decoded_generators(state["generators"], generators)
    if states["cuda"] is not None:
        torch.cuda.init()
    before = _read(torch)
    own_before = {name: _raw(generator) for name, generator in generators.items()}
    where = "the global generators"
    try:
        _write(torch, states)
        for name, generator in generators.items():
            where = f"generators.{name}"
            _set_raw(generator, own[name])
    except (RuntimeError, TypeError, ValueError) as error:
        _write(torch, before)
        for name, generator in generators.items():
            _set_raw(generator, own_before[name])
        raise BadInput(
            f"the state of {where} is not accepted: {error}; expected what cellrepro's capture "
            "returned; nothing was restored"
        ) from error


_KEYS = ("format", "python", "numpy", "torch", "cuda", "mps", "generators", "left_out")

_MOST = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1, "uinteger": 2**32 - 1}
"""Largest values; NumPy 2.4 checks none of them and reads past its buffers with larger ones."""


def _decoded_states(torch: Any, state: Any) -> dict[str, Any]:
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        given = state.get("format") if isinstance(state, Mapping) else state
        raise BadInput(
            f"the generators' state has the format {_short(given)}; expected {FORMAT!r}, as "
            "cellrepro's capture returns it"
        )
    if set(state) != set(_KEYS):
        raise BadInput(
            f"the generators' state has the keys {sorted(state, key=str)}; expected {sorted(_KEYS)}"
        )
    _same_devices(torch, state)
    cpu = len(torch.random.get_rng_state())
    return {
        "python": _numpy_as_python(
            _decoded(np.random.RandomState(0).get_state(legacy=False), state["python"], "python")
        ),
        "numpy": _decoded(_numpy_template(state["numpy"], "numpy"), state["numpy"], "numpy"),
        "torch": _tensor(torch, state["torch"], cpu, "torch"),
        "cuda": None
        if state["cuda"] is None
        else [
            _tensor(torch, device, None, f"cuda[{index}]")
            for index, device in enumerate(state["cuda"])
        ],
        "mps": None if state["mps"] is None else _tensor(torch, state["mps"], None, "mps"),
    }


def _same_devices(torch: Any, state: Mapping[str, Any]) -> None:
    cuda = state["cuda"]
    if cuda is not None:
        if not isinstance(cuda, list):
            raise BadInput(f"the state of cuda is {_short(cuda)}; expected a list or None")
        here = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if here != len(cuda):
            raise NotPossibleHere(
                f"the state holds the generators of {len(cuda)} CUDA devices, and PyTorch finds "
                f"{here}; restore it where CUDA_VISIBLE_DEVICES shows {len(cuda)}"
            )
    if state["mps"] is not None and not torch.backends.mps.is_available():
        raise NotPossibleHere(
            "the state holds the generator of an MPS device, and PyTorch finds none; restore it "
            "on a machine with one"
        )


def _decoded_generators(plain: Any, generators: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(plain, Mapping) or set(plain) != set(generators):
        names = sorted(plain) if isinstance(plain, Mapping) else _short(plain)
        raise BadInput(
            f"the state holds the generators {names}, but {sorted(generators)} were given; "
            "give those that were captured, by the same names"
        )
    states = {}
    for name, generator in generators.items():
        where, kind = f"generators.{name}", _kind(name, generator)
        given = plain[name]
        if not isinstance(given, Mapping) or set(given) != {"kind", "state"}:
            raise BadInput(f"the state of {where} is {_short(given)}; expected kind and state")
        if given["kind"] != kind:
            raise BadInput(
                f"the state of {where} is of kind {_short(given['kind'])}, but the generator "
                f"given is {kind!r}"
            )
        states[name] = _own_state(generator, given["state"], where)
    return states


def _own_state(generator: Any, plain: Any, where: str) -> Any:
    current = _raw(generator)
    if isinstance(generator, random.Random):
        return _numpy_as_python(_decoded(_python_as_numpy(current), plain, where))
    if isinstance(generator, np.random.Generator | np.random.RandomState):
        return _decoded(current, plain, where)
    import torch

    return _tensor(torch, plain, len(current), where)


def _named(generators: Mapping[str, Any] | None) -> dict[str, Any]:
    if generators is None:
        return {}
    if not isinstance(generators, Mapping) or not all(isinstance(name, str) for name in generators):
        raise BadInput(f"generators is {generators!r}; expected generators by name, in a mapping")
    for name, generator in generators.items():
        _kind(name, generator)
    return dict(generators)


def _kind(name: str, generator: Any) -> str:
    """How a kind of generator is called in a captured state."""
    if isinstance(generator, np.random.Generator):
        return "numpy.random.Generator"
    if isinstance(generator, np.random.RandomState):
        return "numpy.random.RandomState"
    if isinstance(generator, random.Random) and not isinstance(generator, random.SystemRandom):
        return "random.Random"
    import torch

    if isinstance(generator, torch.Generator):
        return f"torch.Generator on {generator.device.type}"
    raise BadInput(
        f"the generator {name!r} is a {type(generator).__name__}; expected a "
        "numpy.random.Generator or RandomState, a torch.Generator or a random.Random"
    )


def _raw(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _set_raw(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _state_of(generator: Any) -> dict[str, Any]:
    raw = _raw(generator)
    if isinstance(generator, random.Random):
        raw = _python_as_numpy(raw)
    return {"state": _encoded(raw if isinstance(raw, dict) else raw.numpy())}


def _python_as_numpy(state: tuple[Any, ...]) -> dict[str, Any]:
    """Python's Mersenne Twister in NumPy's words; both are the same machine."""
    _, words, gauss = state
    return {
        "bit_generator": "MT19937",
        "state": {"key": np.array(words[:-1], dtype=np.uint32), "pos": words[-1]},
        "has_gauss": int(gauss is not None),
        "gauss": gauss or 0.0,
    }


def _numpy_as_python(state: dict[str, Any]) -> tuple[Any, ...]:
    words = (*state["state"]["key"].tolist(), state["state"]["pos"])
    return random.Random.VERSION, words, state["gauss"] if state["has_gauss"] else None


def _numpy_template(plain: Any, where: str) -> Any:
    """A state of NumPy's global generator, whose bit generator a user may have replaced."""
    current = np.random.get_state(legacy=False)
    given = plain.get("bit_generator") if isinstance(plain, Mapping) else plain
    if given != current["bit_generator"]:
        raise BadInput(
            f"the state of {where} is of {_short(given)}, but NumPy's global generator is "
            f"{current['bit_generator']!r} here"
        )
    return current


def _encoded(state: Any) -> Any:
    """Plain data for a state: numbers beyond 2**53 and floats as hexadecimal text, words as base64.

    JSON readers other than Python's round large whole numbers and may round floats.
    """
    if isinstance(state, dict):
        return {name: _encoded(value) for name, value in state.items()}
    if isinstance(state, np.ndarray):
        words = state.astype(state.dtype.newbyteorder("<"), copy=False)
        return base64.b64encode(words.tobytes()).decode("ascii")
    if isinstance(state, float):
        return state.hex()
    if isinstance(state, str):
        return state
    number = operator.index(state)
    return number if number <= 2**53 else hex(number)


def _decoded(template: Any, plain: Any, where: str) -> Any:
    """The state that `_encoded` made plain, held against a state of the same generator."""
    if isinstance(template, dict):
        if not isinstance(plain, Mapping) or set(plain) != set(template):
            raise BadInput(
                f"the state of {where} is {_short(plain)}; expected the fields {sorted(template)}"
            )
        return {
            name: _decoded(value, plain[name], f"{where}.{name}")
            for name, value in template.items()
        }
    if isinstance(template, np.ndarray):
        words = np.frombuffer(
            _bytes(plain, template.nbytes, where), template.dtype.newbyteorder("<")
        )
        return words.astype(template.dtype).reshape(template.shape)
    if isinstance(template, float):
        number = _number(float.fromhex, plain, where)
        if not math.isfinite(number):
            raise BadInput(f"the state of {where} is {plain}; expected a finite number")
        return number
    if isinstance(template, str):
        if plain != template:
            raise BadInput(f"the state of {where} is {_short(plain)}; expected {template!r}")
        return template
    if isinstance(plain, bool) or not isinstance(plain, int):
        plain = _number(partial(int, base=16), plain, where)
    most = _MOST.get(where.rpartition(".")[2], 2**128 - 1)
    if not 0 <= plain <= most:
        raise BadInput(f"the state of {where} is {plain}; expected a number from 0 to {most}")
    return plain


def _number(read: Any, plain: Any, where: str) -> Any:
    try:
        return read(plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            f"the state of {where} is {_short(plain)}; expected a number, in hexadecimal text"
        ) from error


def _tensor(torch: Any, plain: Any, size: int | None, where: str) -> Any:
    """A ByteTensor on the CPU, whatever the default device is."""
    return torch.from_numpy(np.frombuffer(_bytes(plain, size, where), np.uint8).copy())


def _bytes(plain: Any, size: int | None, where: str) -> bytes:
    try:
        raw = base64.b64decode(plain, validate=True)
    except (TypeError, binascii.Error, ValueError) as error:
        raise BadInput(f"the state of {where} is {_short(plain)}; expected base64 text") from error
    if size is not None and len(raw) != size:
        raise BadInput(f"the state of {where} has {len(raw)} bytes; expected {size}")
    return raw


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- loading data --------------------------------------------------------------------------


def torch_generator(seed: int, device: Any = "cpu") -> Any:
    """A generator of PyTorch's own, seeded, that nothing else draws from.

    Parameters
    ----------
    seed : int
        In [0, 2**32).
    device : str or torch.device
        Where its numbers are drawn; equal seeds differ between devices.

    Returns
    -------
    torch.Generator

    Raises
    ------
    BadInput
        If the seed is out of range, or there is no such kind of device.
    NotPossibleHere
        If this machine lacks the device.

    Examples
    --------
    >>> torch_generator(3).initial_seed()
    3
    """
    import torch

    check_seed(seed)
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise BadInput(f"device is {device!r}; expected one like 'cpu', 'cuda:0', 'mps'") from error
    try:
        return torch.Generator(device=wanted).manual_seed(seed)
    except RuntimeError as error:
        raise NotPossibleHere(
            f"PyTorch {torch.__version__} has no generator on the device {str(wanted)!r} of this "
            f"machine: {str(error).splitlines()[0]}; choose another, such as 'cpu'"
        ) from error


def seed_worker(worker_id: int, *, rank: int = 0) -> None:
    """Seed a DataLoader's worker: Python, NumPy, PyTorch; for ``worker_init_fn``.

    PyTorch gives every worker a seed, drawn from the loader's generator, but where several
    processes share that generator's seed to see the data in one order, their workers would
    augment alike. Here the rank goes in as well. In the worker, ``numpy.random.default_rng()``
    without an argument follows the global generator, as inside `seeded`.

    Parameters
    ----------
    worker_id : int
        As the loader passes it.
    rank : int
        Of this process among those that train together; bind it with `functools.partial`, or
        use `loader_arguments`.

    Raises
    ------
    BadInput
        Outside a worker, where it would reseed the training, or if the rank is no whole number
        from 0.
    """
    import torch.utils.data

    _check_count("rank", rank)
    worker = torch.utils.data.get_worker_info()
    if worker is None:
        raise BadInput(
            f"seed_worker({worker_id!r}) was called outside a DataLoader's worker; pass it as "
            "worker_init_fn, and seed this process with seed_everything"
        )
    # worker.seed is torch.initial_seed() as the worker began: the loader's draw + the worker's id.
    words = np.random.SeedSequence(worker.seed, spawn_key=(rank,)).generate_state(10)
    random.seed(int.from_bytes(words[:4].astype("<u4").tobytes(), "little"))
    np.random.seed(words[4:8])
    torch.manual_seed((int(words[8]) << 32) | int(words[9]))
    np.random.default_rng = _default_rng_from_global  # for the worker's life; nothing else is here


def loader_arguments(seed: int, *, rank: int = 0) -> dict[str, Any]:
    """The keyword arguments with which a DataLoader is reproducible.

    Order and worker seeds come from a generator of the loader's own, so that no other draw moves
    them. The order is the same for every number of workers. Augmentation drawn from global
    generators is not: which worker loads an image depends on their number, and with none it is
    the training's own generators that are drawn from. `item_generator` does not depend on it.

    Parameters
    ----------
    seed : int
        In [0, 2**32); the same on every rank, see `rank_seeds`.
    rank : int
        Of this process among those that train together.

    Returns
    -------
    dict
        ``generator`` and ``worker_init_fn``.

    Raises
    ------
    BadInput
        If the seed is out of range, or the rank is no whole number from 0.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> loader = DataLoader(range(6), shuffle=True, **loader_arguments(3))
    >>> again = DataLoader(range(6), shuffle=True, **loader_arguments(3))
    >>> [batch.item() for batch in loader] == [batch.item() for batch in again]
    True
    """
    return {
        "generator": torch_generator(seed),
        "worker_init_fn": partial(seed_worker, rank=_check_count("rank", rank)),
    }


def item_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """A generator for one image in one epoch, whoever loads it and whatever came before.

    Parameters
    ----------
    seed : int
        In [0, 2**32).
    epoch, index : int
        From 0.

    Raises
    ------
    BadInput
        If the seed is out of range, or a count is no whole number from 0.

    Examples
    --------
    >>> draws = [item_generator(3, epoch=0, index=5).random() for _ in range(2)]
    >>> draws[0] == draws[1]
    True
    """
    key = (_check_count("epoch", epoch), _check_count("index", index))
    sequence = np.random.SeedSequence(check_seed(seed), spawn_key=key)
    return np.random.Generator(np.random.PCG64(sequence))


def split(
    n: int,
    fractions: Sequence[float],
    seed: int,
    *,
    groups: Sequence[Hashable] | None = None,
) -> tuple[np.ndarray, ...]:
    """Divide ``n`` items at random, the same way on every platform and version of NumPy.

    Parameters
    ----------
    n : int
        Number of items, at least 1.
    fractions : sequence of float
        One for every part, each above 0, together 1.
    seed : int
        In [0, 2**32).
    groups : sequence of n hashable labels, optional
        Items of one group stay together, such as the fields of one slide. Parts then have only
        about their share.

    Returns
    -------
    tuple of ndarray of int64, shape (items,)
        For every part its items, counted from 0 and in ascending order; every item is in
        exactly one.

    Raises
    ------
    BadInput
        If an argument is not as said, or a part would be empty.

    Notes
    -----
    The items are sorted by the 64 raw bits that PCG64 gives each of them. NumPy promises the raw
    stream, and not that of ``Generator.permutation`` (NEP 19). Item or group is in the part in
    which its middle falls.

    Examples
    --------
    >>> split(10, [0.7, 0.3], seed=3)
    (array([0, 1, 4, 5, 6, 7, 9]), array([2, 3, 8]))
    >>> split(4, [0.5, 0.5], seed=0, groups=["slide 1", "slide 2", "slide 1", "slide 2"])
    (array([1, 3]), array([0, 2]))
    """
    n = _check_count("n", n)
    exact = _fractions(fractions)
    # Twice the item at which each part ends, as a group's middle may be half an item.
    edges = [math.ceil(2 * n * edge) for edge in accumulate(exact)]
    members = _members(n, groups)
    keys = np.random.PCG64(np.random.SeedSequence(check_seed(seed))).random_raw(len(members))
    parts: list[list[int]] = [[] for _ in edges]
    placed = 0
    for group in np.argsort(keys, kind="stable"):
        parts[bisect_right(edges, 2 * placed + len(members[group]))] += members[group]
        placed += len(members[group])
    empty = [index for index, part in enumerate(parts) if not part]
    if empty:
        of = "" if groups is None else f" in {len(members)} groups"
        raise BadInput(
            f"part {empty[0]} of {fractions!r} would be empty with {n} items{of}; give it a "
            "larger fraction, or more items"
        )
    return tuple(np.array(sorted(part), dtype=np.int64) for part in parts)


def _fractions(fractions: Sequence[float]) -> list[Fraction]:
    """As exact numbers, so that 0.7 of 10 is 7 and three thirds are 1, float32 included."""
    try:
        exact = [Fraction(float(fraction)).limit_denominator(10**6) for fraction in fractions]
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"fractions is {fractions!r}; expected numbers such as 0.8, 0.2") from error
    if not exact or min(exact) <= 0 or sum(exact) != 1:
        raise BadInput(
            f"fractions is {fractions!r}, together {float(sum(exact))}; expected numbers above 0 "
            "that are 1 together"
        )
    return exact


def _members(n: int, groups: Sequence[Hashable] | None) -> list[list[int]]:
    """The items of every group, groups in the order in which they first appear."""
    if groups is None:
        if n < 1:
            raise BadInput("n is 0; expected at least 1 item")
        return [[index] for index in range(n)]
    labels = list(groups)
    if len(labels) != n or n < 1:
        raise BadInput(f"groups has {len(labels)} labels for {n} items; expected one for each item")
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        if label != label:
            raise BadInput(f"groups[{index}] is {label!r}, which equals nothing; expected a label")
        members.setdefault(label, []).append(index)
    return list(members.values())


# -- several devices -----------------------------------------------------------------------


@dataclass(frozen=True)
class RankSeeds:
    """The seeds of one process among several that train together."""

    rank: int
    model: int
    """For `seed_everything`: differs between ranks, so that each drops other layers."""
    data: int
    """For splits and `loader_arguments`: the same on every rank, so that all divide one order."""


def rank_seeds(base: int, rank: int, n_ranks: int, *, data_seed: int | None = None) -> RankSeeds:
    """The seeds of one process among several: base + rank for its draws, one seed for the data.

    Parameters
    ----------
    base : int
        In [0, 2**32 - n_ranks]. Runs to be compared as repeats should have bases at least
        ``n_ranks`` apart: rank 1 of base 0 draws as rank 0 of base 1.
    rank : int
        From 0 to ``n_ranks - 1``.
    n_ranks : int
        How many processes train together.
    data_seed : int, optional
        In [0, 2**32); by default ``base``.

    Raises
    ------
    BadInput
        If a seed is out of range on any rank, so that all ranks refuse and none waits for the
        others; or there is no such rank.

    Examples
    --------
    >>> rank_seeds(40, rank=1, n_ranks=2)
    RankSeeds(rank=1, model=41, data=40)
    """
    check_seed(base, name="base")
    if _check_count("n_ranks", n_ranks) < 1 or _check_count("rank", rank) >= n_ranks:
        raise BadInput(f"rank is {rank} of {n_ranks} ranks; expected one from 0 to n_ranks - 1")
    if base + n_ranks > 2**32:
        raise BadInput(
            f"base is {base}, and the last of {n_ranks} ranks would be seeded with "
            f"{base + n_ranks - 1}; expected a base of at most {2**32 - n_ranks}"
        )
    data = base if data_seed is None else check_seed(data_seed, name="data_seed")
    return RankSeeds(rank=rank, model=base + rank, data=data)


def _check_count(name: str, value: Any) -> int:
    """A whole number from 0, also NumPy's, as a Python int."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool | np.bool_) or number < 0:
        raise BadInput(f"{name} is {value!r}; expected a whole number from 0")
    return number
