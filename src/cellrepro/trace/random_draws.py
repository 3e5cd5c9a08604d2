"""A ledger of generator use: who drew how many numbers, from which generator, at which line.

One draw more than in another run gives every later draw another value. Here each draw from a
global generator of Python, NumPy or PyTorch is written down with its source line, so that the one
which only one of two runs made can be named.

A draw is counted in numbers of 32 bits that the generator produced, which is not how many values
the caller got: a double takes two, ``np.random.shuffle`` redraws what it cannot use, PyTorch's
dropout on a CPU takes two for every element.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Self

import numpy as np
import torch

from cellrepro.errors import BadInput
from cellrepro.trace import observer
from cellrepro.trace.observer import Call, Observer, short_path
from cellrepro.trace.reexecution import Plan

# -- counting ------------------------------------------------------------------------------

_N = 624  # numbers that a Mersenne Twister makes at once
_MOST_BLOCKS = 256  # made at once while searching, of 5 kB each

_TORCH_STATE = np.dtype(
    [
        ("seed", "<u8"),
        ("left", "<i4"),  # numbers of this block still to be given, and one
        ("seeded", "<i4"),
        ("next", "<u8"),
        ("state", "<u8", _N),
        ("normals", "<f8", 3),
        ("has_normals", "<i4"),
        ("unused", "V4"),
        ("float_normal", "<f4"),
        ("has_float_normal", "u1"),
        ("unused_too", "V3"),
    ]
)
"""PyTorch's CPU generator as `torch.get_rng_state` gives it, 5056 bytes (torch 2.6 to 2.15)."""

_PHILOX_STATE = np.dtype([("seed", "<u8"), ("offset", "<i8")])


@dataclass(frozen=True)
class _Twister:
    """A Mersenne Twister between two draws."""

    kind: str
    key: np.ndarray
    """uint32, shape (624,): the block of numbers being given, before tempering."""
    position: int
    """How many of the block have been given."""
    normals: tuple[Any, ...]
    """Normal numbers made and not yet given, each None where there is none."""
    seed: int = 0
    """With which it says it was seeded; PyTorch's remembers."""


@dataclass(frozen=True)
class _Philox:
    kind: str
    seed: int
    offset: int


@dataclass(frozen=True)
class _Uncounted:
    """A bit generator that somebody put in the place of NumPy's Mersenne Twister."""

    kind: str
    text: str


def n_drawn(before: Any, after: Any, *, most: int = 50_000_000) -> int | None:
    """How many numbers of 32 bits a generator produced from one state to another.

    Parameters
    ----------
    before, after : state
        Of one generator: what `random.getstate` gives, ``np.random.get_state(legacy=False)``,
        or `torch.get_rng_state` (ByteTensor of 5056 bytes), or `torch.cuda.get_rng_state`
        (ByteTensor of 16 bytes).
    most : int
        How far to search, in numbers. Searching 50 million takes some tenths of a second.

    Returns
    -------
    int or None
        0 if they are equal. None if ``after`` is not reached within ``most`` numbers: the
        generator was reseeded or put back, is farther on than that, or NumPy's bit generator is
        no Mersenne Twister.

    Raises
    ------
    BadInput
        If one is no such state, they are of two kinds, or ``most`` is no whole number from 0.

    Notes
    -----
    Normal numbers are made in pairs, and generators keep the second for the next call. To give
    it away costs no number: it counts 0, though the states differ. A kept normal that appears
    without a number being produced was put there, which gives None.

    On a GPU the count is how far Philox's offset moved: numbers for each thread, in steps of 4,
    not for all threads together.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.RandomState(3)
    >>> before = generator.get_state(legacy=False)
    >>> values = generator.rand(5)  # doubles, of two numbers each
    >>> n_drawn(before, generator.get_state(legacy=False))
    10
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise BadInput(f"most is {most!r}; expected a whole number from 0")
    a, b = _parsed(before, "before"), _parsed(after, "after")
    if a.kind != b.kind:
        raise BadInput(f"before is a state of {a.kind} and after of {b.kind}; expected one kind")
    if isinstance(a, _Twister) and isinstance(b, _Twister):
        return _n_twister(a, b, most)
    if isinstance(a, _Philox) and isinstance(b, _Philox):
        moved = b.offset - a.offset
        return moved if a.seed == b.seed and 0 <= moved <= most else None
    return 0 if a == b else None


def _n_twister(a: _Twister, b: _Twister, most: int) -> int | None:
    if a.seed != b.seed:
        return None
    n_blocks = _blocks_between(a, b, most)
    if n_blocks is None:
        return None
    n = n_blocks * _N + b.position - a.position
    if not 0 <= n <= most:
        return None
    kept = zip(a.normals, b.normals, strict=True)
    if n == 0 and any(now not in (None, then) for then, now in kept):
        return None
    return n


def _blocks_between(a: _Twister, b: _Twister, most: int) -> int | None:
    """How many blocks on ``b`` is; the numbers of its block are looked for in ``a``'s stream."""
    if np.array_equal(a.key, b.key):
        return 0
    farthest = (most + a.position - b.position) // _N
    if farthest < 1:
        return None
    engine = np.random.MT19937(0)
    engine.state = {"bit_generator": "MT19937", "state": {"key": a.key, "pos": _N}}
    wanted = _tempered(b.key)
    seen, size = 0, 1
    while seen < farthest:
        size = min(size, farthest - seen)
        blocks = engine.random_raw(size * _N).reshape(size, _N)
        for index in np.flatnonzero(blocks[:, 0] == wanted[0]):
            if np.array_equal(blocks[index], wanted):
                return seen + int(index) + 1
        seen += size
        size = min(2 * size, _MOST_BLOCKS)
    return None


def _tempered(key: np.ndarray) -> np.ndarray:
    """A block of numbers as they are given away (Matsumoto and Nishimura 1998)."""
    y = key.astype(np.uint64)
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    return y ^ (y >> 18)


def _parsed(state: Any, where: str) -> _Twister | _Philox | _Uncounted:
    try:
        if isinstance(state, torch.Tensor):
            return _of_torch(_raw_bytes(state), where)
        if isinstance(state, Mapping):
            return _of_numpy(state)
        version, words, normal = state
        if version != 3:
            raise ValueError(version)
        key = np.array(words[:-1], dtype=np.uint32)
        return _twister("Python", key, words[-1], (normal,))
    except BadInput:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        text = repr(state)
        raise BadInput(
            f"{where} is {text if len(text) <= 60 else text[:57] + '...'}; expected what "
            "random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state() or "
            "torch.cuda.get_rng_state() gives"
        ) from error


def _of_numpy(state: Mapping[str, Any]) -> _Twister | _Uncounted:
    if state["bit_generator"] != "MT19937":
        return _Uncounted("NumPy", repr(sorted(state.items())))
    words = state["state"]
    normal = state["gauss"] if state.get("has_gauss") else None
    return _twister("NumPy", np.asarray(words["key"]), words["pos"], (normal,))


def _of_torch(raw: bytes, where: str) -> _Twister | _Philox:
    if len(raw) == _PHILOX_STATE.itemsize:
        philox = np.frombuffer(raw, _PHILOX_STATE)[0]
        return _Philox("PyTorch on a GPU", int(philox["seed"]), int(philox["offset"]))
    if len(raw) != _TORCH_STATE.itemsize:
        raise BadInput(
            f"{where} has {len(raw)} bytes; expected {_TORCH_STATE.itemsize} of PyTorch's CPU "
            f"generator, or {_PHILOX_STATE.itemsize} of a GPU's"
        )
    held = np.frombuffer(raw, _TORCH_STATE)[0]
    normals = (
        held["normals"].tobytes() if held["has_normals"] else None,
        held["float_normal"].tobytes() if held["has_float_normal"] else None,
    )
    # A generator just seeded has 1 left, as one whose block is used up.
    position = _N + 1 - int(held["left"])
    return _twister("PyTorch", held["state"], position, normals, int(held["seed"]))


def _twister(
    kind: str, key: np.ndarray, position: Any, normals: tuple[Any, ...], seed: int = 0
) -> _Twister:
    position = operator.index(position)
    if key.shape != (_N,) or not 0 <= position <= _N:
        raise ValueError(f"{key.shape} numbers, of which {position} are used")
    return _Twister(kind, key.astype(np.uint32), position, normals, seed)


def _raw_bytes(state: torch.Tensor) -> bytes:
    """Its bytes, without an operation: none may be seen by who watches operations."""
    if state.device.type != "cpu" or not state.is_contiguous():
        state = state.cpu().contiguous()
    return ctypes.string_at(state.data_ptr(), state.nbytes)


# -- watching ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draw:
    """One use of a global generator.

    Attributes
    ----------
    index : int
        Which draw it is in its list, from 0.
    generator : str
        ``python``, ``numpy``, ``torch`` (on the CPU), ``cuda:0``.
    n : int or None
        Numbers of 32 bits it produced, see `n_drawn`; 0 if only a kept normal was taken. None if
        the generator was put somewhere else, by a seed or a state, or farther than that looks.
    what : str
        The function or operation that was called: ``np.random.rand``, ``random.seed``,
        ``aten.rand.default``; ``unseen`` if the generator moved and no call was seen.
    source : str or None
        ``FILE:LINE in FUNCTION`` of who called; ``between PLACE and PLACE`` if it was unseen,
        with the last place where the generator had not moved and the first where it had.
    module, phase : str or None
        As in `cellrepro.store.manifest.Place`; None if it was unseen.
    """

    index: int
    generator: str
    n: int | None
    what: str
    source: str | None
    module: str | None
    phase: str | None


@dataclass(frozen=True)
class _Caller:
    """A call being watched."""

    what: str
    source: str | None
    module: str | None
    phase: str | None


class _Within(threading.local):
    """The watched calls that one thread is in."""

    def __init__(self) -> None:
        self.callers: list[_Caller] = []


class DrawLog(Observer):
    """Writes down every draw from a global generator while its block runs.

    NumPy's and Python's functions are replaced in ``numpy.random`` and ``random`` for the time
    of the block. What draws otherwise is found by the generator having moved and is called
    ``unseen``: a function imported by name before the block, `torch.manual_seed`, a library that
    holds NumPy's global ``RandomState`` itself, another thread's PyTorch operations.

    Looking moves no generator and changes no result. Only global generators are watched, not
    those that somebody made; of GPUs those of CUDA, once CUDA has started.

    Parameters
    ----------
    model : torch.nn.Module, optional
        Names modules by their path in it.

    Attributes
    ----------
    draws : list of Draw
        In order. What several threads draw at once may be given to each other's lines.

    Notes
    -----
    An `Auditor` goes around it, not into it: what it asks again would be written down, too. Code
    that compares functions by identity, as `torch.compile` does, sees the replaced ones.

    Examples
    --------
    >>> import numpy as np
    >>> with DrawLog() as log:
    ...     state = np.random.get_state()
    ...     values = np.random.rand(5)
    ...     np.random.set_state(state)
    >>> [(draw.what, draw.n) for draw in log.draws]
    [('np.random.rand', 10), ('np.random.set_state', None)]
    """

    _open: DrawLog | None = None

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        super().__init__(model)
        self.draws: list[Draw] = []
        self._lock = threading.RLock()
        self._within = _Within()
        self._last: dict[str, _Seen] = {}
        self._last_place = ""
        self._may_draw: dict[Any, bool] = {}
        self._replaced: list[tuple[ModuleType, str, Any, Any]] = []

    def __enter__(self) -> Self:
        """Start watching, with an empty list.

        Raises
        ------
        BadInput
            If a log is open already.
        """
        if DrawLog._open is not None:
            raise BadInput("a DrawLog is open already; close it first, or use that one's draws")
        with ExitStack() as undo:
            super().__enter__()
            undo.callback(super().__exit__, None, None, None)
            self.draws = []
            self._last, self._last_place = _seen_now(), _source() or "the start of the block"
            undo.callback(self._put_back)
            for module, name, generator, reseeds in _global_functions():
                self._replace(module, name, generator, reseeds)
            undo.pop_all()
        DrawLog._open = self
        return self

    def __exit__(self, *exception: Any) -> None:
        """Look a last time and put everything back."""
        try:
            self._look("the end of the block")
        finally:
            DrawLog._open = None
            self._put_back()
            self._last = {}
            super().__exit__(*exception)

    def observe(self, call: Call) -> Any:
        """Carry out one operation and see what it drew."""
        may_draw = self._may_draw.get(call.func)
        if may_draw is None:
            # Of an operation that takes functions nothing is known.
            known = getattr(call.func, "_schema", None) is not None
            may_draw = self._may_draw[call.func] = not known or Plan.of(call.func).draws
        if not may_draw:
            return call.run()
        place = call.place
        caller = _Caller(place.op, place.source, place.module, place.phase)
        return self._watch(caller, call.run)

    def _watch(self, caller: _Caller, run: Callable[[], Any], reseeded: str | None = None) -> Any:
        """Carry out a call; what moved before it is not its doing."""
        callers = self._within.callers
        place = caller.source or caller.what
        self._look(place, callers[-1] if callers else None)
        callers.append(caller)
        try:
            result = run()
        except BaseException:
            reseeded = None  # it refused its seed; whatever it drew before is seen all the same
            raise
        finally:
            callers.pop()
            self._look(place, caller, reseeded)
        return result

    def _look(self, place: str, caller: _Caller | None = None, reseeded: str | None = None) -> None:
        """Write down every generator that moved since the last look."""
        with self._lock:
            now = _seen_now()
            for generator, seen in now.items():
                last = self._last.get(generator) or seen.as_started()
                if generator == reseeded:
                    n = None
                elif seen.mark == last.mark:
                    continue
                else:
                    n = n_drawn(last.state, seen.state)
                self._add(generator, n, caller, f"between {self._last_place} and {place}")
            self._last.update(now)
            self._last_place = place

    def _add(self, generator: str, n: int | None, caller: _Caller | None, between: str) -> None:
        caller = caller or _Caller(_UNSEEN, between, None, None)
        self.draws.append(
            Draw(
                len(self.draws),
                generator,
                n,
                caller.what,
                caller.source,
                caller.module,
                caller.phase,
            )
        )

    # -- Python's and NumPy's functions ----------------------------------------------------

    def _replace(self, module: ModuleType, name: str, generator: str, reseeds: bool) -> None:
        original = getattr(module, name)
        # Another's replacement, undone after an earlier log was closed, brought that log's back.
        original = getattr(original, "_cellrepro_original", original)
        what = f"{'np.random' if module is np.random else module.__name__}.{name}"

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if DrawLog._open is not self:  # a copy of it that somebody kept
                return original(*args, **kwargs)
            caller = self._python_caller(what)
            run = functools.partial(original, *args, **kwargs)
            return self._watch(caller, run, generator if reseeds else None)

        watched._cellrepro_original = original  # type: ignore[attr-defined]
        self._replaced.append((module, name, original, watched))
        setattr(module, name, watched)

    def _put_back(self) -> None:
        """Undo the replacements, but for what somebody else has replaced since."""
        for module, name, original, watched in self._replaced:
            if getattr(module, name, None) is watched:
                setattr(module, name, original)
        self._replaced = []

    def _python_caller(self, what: str) -> _Caller:
        here = self._here
        node = torch._C._current_autograd_node()
        if node is not None:
            module, phase = self._of_node(node, here)[0], "backward"
        else:
            module, phase = here.stack[-1][1] if here.stack else None, "forward"
        return _Caller(what, _source(), module, "update" if here.n_updates else phase)


_UNSEEN = "unseen"


@dataclass(frozen=True)
class _Seen:
    """A generator's state, and what of it is compared at every look."""

    mark: Any
    state: Any

    def as_started(self) -> _Seen:
        """Where a generator seen for the first time started: CUDA's, at offset 0."""
        if not isinstance(self.mark, bytes) or len(self.mark) != _PHILOX_STATE.itemsize:
            return self
        raw = np.frombuffer(self.mark, _PHILOX_STATE).copy()
        raw["offset"] = 0
        state = torch.frombuffer(bytearray(raw.tobytes()), dtype=torch.uint8)
        return _Seen(raw.tobytes(), state)


def _seen_now() -> dict[str, _Seen]:
    """Every global generator, read from where no replaced function is in the way."""
    python = random._inst.getstate()
    numpy = np.random.mtrand._rand.get_state(legacy=False)
    found = {"python": _Seen(python, python), "numpy": _Seen(_numpy_mark(numpy), numpy)}
    states = {"torch": torch.default_generator.get_state(), **_cuda_states()}
    found |= {name: _Seen(_raw_bytes(state), state) for name, state in states.items()}
    return found


def _numpy_mark(state: dict[str, Any]) -> Any:
    if state["bit_generator"] != "MT19937":
        return repr(sorted(state.items()))
    words = state["state"]
    return words["key"].tobytes(), words["pos"], state["has_gauss"], state["gauss"]


def _cuda_states() -> dict[str, torch.Tensor]:
    # A generator cannot be read while its device records a graph; it is at the next look.
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return {}
    generators = enumerate(torch.cuda.default_generators)
    return {f"cuda:{index}": generator.get_state() for index, generator in generators}


_GETTERS = frozenset({"getstate", "get_state"})
_SEEDERS = frozenset({"seed", "setstate", "set_state", "set_bit_generator"})
_NO_METHODS = ("ranf", "sample", "set_bit_generator")
"""Functions of NumPy's global generator that are none of its methods (NumPy 2.4)."""


def _global_functions() -> Iterator[tuple[ModuleType, str, str, bool]]:
    """Module and name of whatever moves a global generator, which one, and whether it seeds.

    By the names of the generator's methods: a function may be replaced by somebody already.
    """
    for module, methods, generator in (
        (np.random, np.random.RandomState, "numpy"),
        (random, random.Random, "python"),
    ):
        names = [name for name in module.__all__ if hasattr(methods, name)]
        if module is np.random:
            names += _NO_METHODS
        for name in sorted({*names} - _GETTERS):
            if hasattr(module, name):
                yield module, name, generator, name in _SEEDERS


_NUMPY = str(Path(np.__file__).parent) + os.sep
_RECORD = Path(__file__).parent
_PLUMBING = {
    __file__,
    random.__file__,
    str(_RECORD.with_name("determinism") / "seeding.py"),  # it seeds for who calls it
}


def _source() -> str | None:
    """The innermost Python line outside the libraries and what of this package stands between."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _is_plumbing(code.co_filename):
            return f"{short_path(code.co_filename)}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return None


@functools.cache
def _is_plumbing(file: str) -> bool:
    return file in _PLUMBING or file.startswith(_NUMPY) or observer._is_plumbing(file)


# -- comparing -----------------------------------------------------------------------------

_WINDOW = 256  # draws of each side that are aligned at once
_GAP = 1000  # costs of aligning: a draw that only one side made
_OTHER_NUMBER = 900  # one that drew another number of numbers
_OTHER_NUMBER_AGAIN = 200  # one whose line draws now this number, now that, as shuffling does
_OTHER_SITE = 500  # one that another line of the same function made


@dataclass(frozen=True)
class DrawDifference:
    """The first draw in which two runs differ.

    Attributes
    ----------
    side : str
        ``a`` or ``b``, the only one that made it; ``both`` if both drew, but not the same.
    draw : Draw
        The draw; of a if both drew.
    other : Draw or None
        What b drew in its place, if both drew.
    """

    side: str
    draw: Draw
    other: Draw | None

    def sentence(self) -> str:
        """In plain English.

        Examples
        --------
        >>> draw = Draw(3, "numpy", 2, "np.random.rand", "train.py:12 in step", None, "forward")
        >>> DrawDifference("b", draw, None).sentence()
        "b drew 2 numbers more from numpy's generator: np.random.rand at train.py:12 in step"
        """
        draw, other = self.draw, self.other
        owner = f"{draw.generator}'s generator"
        if other is None:
            if draw.n is None:
                return f"{self.side} set {owner} once more: {_at(draw)}"
            if draw.n == 0:
                return f"{self.side} took a kept normal more from {owner}: {_at(draw)}"
            return f"{self.side} drew {_numbers(draw.n)} more from {owner}: {_at(draw)}"
        if _family(draw) != _family(other):
            return f"a and b drew otherwise: {_drew('a', draw)}; {_drew('b', other)}"
        where = _at(draw)
        if other.source != draw.source:
            where += f" (in b {_place(other)})"
        if draw.n is None or other.n is None:
            # One of them cannot be counted: it was set.
            told = [
                f"{side} set {owner}" if n is None else f"{side} drew {_numbers(n)} from it"
                for side, n in (("a", draw.n), ("b", other.n))
            ]
            return f"{' and '.join(told)}: {where}"
        return f"a drew {_numbers(draw.n)} from {owner} and b {other.n}: {where}"


def _numbers(n: int) -> str:
    return "1 number" if n == 1 else f"{n} numbers"


def _place(draw: Draw) -> str:
    if draw.source is None:
        return f"in {draw.module}" if draw.module else "at no known line"
    return draw.source if draw.what == _UNSEEN else f"at {draw.source}"


def _at(draw: Draw) -> str:
    return f"{draw.what} {_place(draw)}"


def _drew(side: str, draw: Draw) -> str:
    verb = "set" if draw.n is None else f"drew {_numbers(draw.n)} from"
    return f"{side} {verb} {draw.generator}'s generator ({_at(draw)})"


def first_extra_draw(a: Sequence[Draw], b: Sequence[Draw]) -> DrawDifference | None:
    """The first draw that only one of two runs made, or that drew another number of numbers.

    Parameters
    ----------
    a, b : sequence of Draw
        Of two runs, each in order.

    Returns
    -------
    DrawDifference or None
        None if both drew alike. To which values a seed set a generator is not part of a draw.

    Notes
    -----
    Draws of one operation in one function of one file can be each other's. Lines only decide
    which, so an edited file that shifted them all is no difference: the lines of a function
    that call the same are matched in order, and where one side has more of them, so that counts
    and lines agree best.
    """
    sites_a, sites_b = _sites(a, b)
    prices = _prices_of_numbers(a, b)
    tokens_a = [(site, d.n, prices[site[0]]) for site, d in zip(sites_a, a, strict=True)]
    tokens_b = [(site, d.n, prices[site[0]]) for site, d in zip(sites_b, b, strict=True)]
    i = j = 0
    while True:
        while i < len(a) and j < len(b) and tokens_a[i] == tokens_b[j]:
            i, j = i + 1, j + 1
        if i == len(a) and j == len(b):
            return None
        path = _aligned(
            tokens_a[i : i + _WINDOW],
            tokens_b[j : j + _WINDOW],
            a_goes_on=i + _WINDOW < len(a),
            b_goes_on=j + _WINDOW < len(b),
        )
        for paired, steps in groupby(path, key=lambda step: None not in step):
            stretch = list(steps)
            if not paired:
                only_a = [a[i + x] for x, _ in stretch if x is not None]
                only_b = [b[j + y] for _, y in stretch if y is not None]
                if only_a and only_b:
                    return DrawDifference("both", only_a[0], only_b[0])
                return DrawDifference("a" if only_a else "b", (only_a or only_b)[0], None)
            for x, y in stretch:
                if a[i + x].n != b[j + y].n:
                    return DrawDifference("both", a[i + x], b[j + y])
        i, j = i + len(path), j + len(path)


_Site = tuple[tuple[str, str, str], Any]
"""Draws of one family at lines that match each other in both runs."""


def _family(draw: Draw) -> tuple[str, str, str]:
    """Generator, operation, and the place without its line."""
    if draw.what == _UNSEEN:
        return draw.generator, _UNSEEN, ""  # its place is only an interval
    return draw.generator, draw.what, _LINE.sub("", draw.source or "", count=1)


_LINE = re.compile(r":(\d+)(?= in |$)")


def _line_of(draw: Draw) -> int:
    found = None if draw.what == _UNSEEN else _LINE.search(draw.source or "")
    return int(found[1]) if found else 0


def _sites(a: Sequence[Draw], b: Sequence[Draw]) -> tuple[list[_Site], list[_Site]]:
    """For each draw its family and which line of the family it is, named by a's line."""
    lines_a, lines_b = _lines(a), _lines(b)
    names_b: dict[tuple[Any, int], Any] = {}
    for family, of_b in lines_b.items():
        matched = _matched_lines(lines_a.get(family, {}), of_b)
        for line in of_b:
            names_b[family, line] = matched.get(line, ("only b", line))
    return (
        [(_family(draw), _line_of(draw)) for draw in a],
        [(_family(draw), names_b[_family(draw), _line_of(draw)]) for draw in b],
    )


def _lines(draws: Sequence[Draw]) -> dict[tuple[str, str, str], dict[int, Counter[int | None]]]:
    found: dict[tuple[str, str, str], dict[int, Counter[int | None]]] = {}
    for draw in draws:
        lines = found.setdefault(_family(draw), {})
        lines.setdefault(_line_of(draw), Counter())[draw.n] += 1
    return found


def _matched_lines(
    a: dict[int, Counter[int | None]], b: dict[int, Counter[int | None]]
) -> dict[int, int]:
    """For the lines of b those of a, in order, where one family draws in both."""
    if a.keys() <= b.keys() or b.keys() <= a.keys():
        return {line: line for line in a.keys() & b.keys()}
    in_a, in_b = sorted(a), sorted(b)

    def apart(x: int, y: int) -> float:
        one, two = a[x], b[y]
        unlike = ((one - two) + (two - one)).total()
        return abs(one.total() - two.total()) + unlike / 4 + (x != y) / 10

    # Cheapest matching of what follows, filled from the end; a line left alone costs its draws.
    cost = np.zeros((len(in_a) + 1, len(in_b) + 1))
    for i in range(len(in_a), -1, -1):
        for j in range(len(in_b), -1, -1):
            ways = []
            if i < len(in_a):
                ways.append(cost[i + 1, j] + a[in_a[i]].total())
            if j < len(in_b):
                ways.append(cost[i, j + 1] + b[in_b[j]].total())
            if i < len(in_a) and j < len(in_b):
                ways.append(cost[i + 1, j + 1] + apart(in_a[i], in_b[j]))
            cost[i, j] = min(ways, default=0.0)
    matched, i, j = {}, 0, 0
    while i < len(in_a) and j < len(in_b):
        if cost[i, j] == cost[i + 1, j + 1] + apart(in_a[i], in_b[j]):
            matched[in_b[j]] = in_a[i]
            i, j = i + 1, j + 1
        elif cost[i, j] == cost[i + 1, j] + a[in_a[i]].total():
            i += 1
        else:
            j += 1
    return matched


_Token = tuple[_Site, int | None, int]
"""Of a draw: where, how many, and what it costs to take it for one of another number."""


def _prices_of_numbers(a: Sequence[Draw], b: Sequence[Draw]) -> dict[Any, int]:
    """By family: where one line draws various numbers, another number says little."""
    prices: dict[Any, int] = {}
    for families in (_lines(a), _lines(b)):
        for family, lines in families.items():
            varied = any(len(numbers) > 1 for numbers in lines.values())
            price = _OTHER_NUMBER_AGAIN if varied else _OTHER_NUMBER
            prices[family] = min(price, prices.get(family, price))
    return prices


def _aligned(
    a: list[_Token], b: list[_Token], *, a_goes_on: bool, b_goes_on: bool
) -> list[tuple[Any, Any]]:
    """The cheapest alignment: pairs of positions, None for a draw that only one side made.

    Where a side goes on after its window, what the other has left over is its later draws'.
    """
    n, m = len(a), len(b)
    over_a, over_b = 0 if b_goes_on else _GAP, 0 if a_goes_on else _GAP
    cost = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        cost[i][m] = (n - i) * over_a
    for j in range(m - 1, -1, -1):
        cost[n][j] = (m - j) * over_b
    for i in range(n - 1, -1, -1):
        row, below, one = cost[i], cost[i + 1], a[i]
        for j in range(m - 1, -1, -1):
            best = min(below[j], row[j + 1]) + _GAP
            pair = _pairing(one, b[j])
            if pair is not None:
                best = min(best, below[j + 1] + pair)
            row[j] = best
    path: list[tuple[Any, Any]] = []
    i = j = 0
    while i < n and j < m:
        pair = _pairing(a[i], b[j])
        if pair is not None and cost[i][j] == cost[i + 1][j + 1] + pair:
            path.append((i, j))
            i, j = i + 1, j + 1
        elif cost[i][j] == cost[i + 1][j] + _GAP:
            path.append((i, None))
            i += 1
        else:
            path.append((None, j))
            j += 1
    if over_a:
        path += [(x, None) for x in range(i, n)]
    if over_b:
        path += [(None, y) for y in range(j, m)]
    return path


def _pairing(one: _Token, two: _Token) -> int | None:
    """What it costs to take two draws for each other; None if they cannot be."""
    (site, n, price), (other_site, other_n, _) = one, two
    if site[0] != other_site[0]:
        return None
    return _OTHER_SITE * (site != other_site) + price * (n != other_n)


# -- as plain values -----------------------------------------------------------------------


def to_rows(draws: Sequence[Draw]) -> list[dict[str, Any]]:
    """Draws as dictionaries of texts, whole numbers and None, for JSON.

    Examples
    --------
    >>> draw = Draw(0, "torch", 7, "aten.rand.default", "train.py:3 in step", None, "forward")
    >>> from_rows(to_rows([draw])) == [draw]
    True
    """
    return [asdict(draw) for draw in draws]


_TYPES: dict[str, tuple[type, ...]] = {
    "index": (int,),
    "generator": (str,),
    "n": (int, type(None)),
    "what": (str,),
    "source": (str, type(None)),
    "module": (str, type(None)),
    "phase": (str, type(None)),
}


def from_rows(rows: Sequence[Mapping[str, Any]]) -> list[Draw]:
    """The draws of which `to_rows` made plain values.

    Raises
    ------
    BadInput
        If a row lacks a field, has one more, or one holds a value of another type.
    """
    names = {field.name for field in fields(Draw)}
    draws = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or set(row) != names:
            given = sorted(map(str, row)) if isinstance(row, Mapping) else repr(row)
            raise BadInput(f"row {number} has {given}; expected the fields {sorted(names)}")
        for name, value in row.items():
            if isinstance(value, bool) or not isinstance(value, _TYPES[name]):
                wanted = " or ".join(kind.__name__ for kind in _TYPES[name])
                raise BadInput(f"row {number} has {name} {value!r}; expected {wanted}")
        draws.append(Draw(**row))
    return draws
