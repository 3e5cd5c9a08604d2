"""Every draw of random numbers: from which generator, at which line, in which module.

One draw more than in another run gives every later draw another value. Here each draw from a
global generator of Python, NumPy or PyTorch is written down with its source line, so that the one
which only one of two runs made can be named.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
import random
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from cellrepro import torch_internals
from cellrepro.call_site import Site
from cellrepro.errors import BadInput
from cellrepro.trace.observer import Call, Observer, source_line
from cellrepro.trace.replay_plan import plan_of

if TYPE_CHECKING:
    from typing_extensions import Self

_BLOCK = 624  # numbers that a Mersenne Twister makes at once
_UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Draw:
    """One use of a global generator."""

    step: int
    """The step, from 0."""
    index: int
    """Its order within the step, from 0."""
    generator: str
    """``python``, ``numpy``, ``torch`` (on the CPU), ``cuda:0``."""
    n: int | None
    """By how many numbers of 32 bits the generator's position moved, of a Mersenne Twister modulo
    its block; 0 if only a kept normal was taken, none if a seed or state put it somewhere else."""
    what: str
    """``np.random.rand``, ``random.seed``, ``aten.rand.default``; ``unseen`` where no call was."""
    source: str | None
    """``FILE:LINE in FUNCTION``, or ``between LINE and LINE`` if unseen."""
    module: str | None
    """Path of the innermost module, or the class of the network; none if unseen."""
    phase: str | None
    """``forward``, ``backward`` or ``update``; none if unseen."""


class DrawLog(Observer):
    """Writes down every draw from a global generator while its block runs, in ``draws``.

    NumPy's and Python's functions are replaced in ``numpy.random`` and ``random`` meanwhile. What
    draws otherwise is found by the generator having moved and is called ``unseen``: a function
    imported by name before, `torch.manual_seed`, another thread's PyTorch operations. An `Auditor`
    goes around it, not into it: what it replays would be written down, too.
    """

    _open: DrawLog | None = None

    def __init__(self, model: torch.nn.Module | None = None, *, step: int = 0) -> None:
        super().__init__(model)
        self.draws: list[Draw] = []
        self._step = step
        self._lock = threading.Lock()
        self._last: dict[str, _Seen] = {}
        self._last_place = ""
        self._replaced: list[tuple[ModuleType, str, Any, Any]] = []

    def __enter__(self) -> Self:
        if DrawLog._open is not None:
            raise BadInput("a DrawLog is open already; close it first, or use that one's draws")
        return super().__enter__()

    def _begin(self, way_back: ExitStack) -> None:
        self._last = _seen_now()
        self._last_place = source_line() or "the start of the block"
        way_back.callback(self._give_back)
        for name in _names(np.random, np.random.RandomState):
            self._replace(np.random, f"np.random.{name}", "numpy")
        for name in _names(random, random.Random):
            self._replace(random, f"random.{name}", "python")
        DrawLog._open = self
        way_back.callback(self._look, "the end of the block")

    def _give_back(self) -> None:
        """Put Python's and NumPy's functions back."""
        DrawLog._open = None
        while self._replaced:
            module, name, original, watched = self._replaced.pop()
            if getattr(module, name, None) is watched:  # else somebody else's
                setattr(module, name, original)

    def observe(self, call: Call) -> Any:
        """Carry out one operation and see what it drew."""
        if not plan_of(call.func).draws:
            return call.run()
        return self._watch(call.site, call.run)

    def _watch(self, caller: Site, run: Callable[[], Any], reseeded: str | None = None) -> Any:
        """Carry out a call, and look at the generators before and after it."""
        place = caller.source or caller.op
        self._look(place)
        try:
            return run()
        finally:
            self._look(place, caller, reseeded)

    def _look(self, place: str, caller: Site | None = None, reseeded: str | None = None) -> None:
        """Write down a draw for every generator that moved since the last look."""
        between = f"between {self._last_place} and {place}"
        with self._lock:
            generators = _seen_now()
            for generator, seen in generators.items():
                # A generator seen for the first time is one of CUDA's, which start at 0.
                last = self._last.get(generator) or seen._replace(position=0, state=(seen.seed, 0))
                if generator == reseeded or seen.state != last.state:
                    n = None if generator == reseeded else seen.moved_since(last)
                    draw = Draw(
                        step=self._step,
                        index=len(self.draws),
                        generator=generator,
                        n=n,
                        what=_UNSEEN if caller is None else caller.op,
                        source=between if caller is None else caller.source,
                        module=None if caller is None else caller.module,
                        phase=None if caller is None else caller.phase,
                    )
                    self.draws.append(draw)
            self._last.update(generators)
            self._last_place = place

    # -- Python's and NumPy's functions ----------------------------------------------------

    def _replace(self, module: ModuleType, what: str, generator: str) -> None:
        name = what.rpartition(".")[2]
        original = getattr(module, name)
        reseeded = generator if name in _SEEDERS else None

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if DrawLog._open is not self:  # a copy of it that somebody kept
                return original(*args, **kwargs)
            at_work, phase, _ = self.at_work()
            caller = Site(what, at_work, source_line(), phase)
            return self._watch(caller, functools.partial(original, *args, **kwargs), reseeded)

        self._replaced.append((module, name, original, watched))
        setattr(module, name, watched)


_GETTERS = frozenset({"getstate", "get_state"})
_SEEDERS = frozenset({"seed", "setstate", "set_state", "set_bit_generator"})
_NO_METHODS = ("ranf", "sample", "set_bit_generator")  # of NumPy's global generator (NumPy 2.4)


def _names(module: ModuleType, methods: type) -> list[str]:
    """The functions of a module that move its global generator."""
    own = {name for name in module.__all__ if hasattr(methods, name)}
    own |= {name for name in _NO_METHODS if module is np.random and hasattr(module, name)}
    return sorted(own - _GETTERS)


# -- generators ----------------------------------------------------------------------------


class _Seen(NamedTuple):
    """The state of a generator at one look."""

    state: Any
    """The whole state, to be compared."""
    position: int | None
    """How many numbers it has given, within its block where there are blocks, if known."""
    block: int = 0
    """How many numbers it makes at once; 0 where it makes them one by one."""
    seed: bytes = b""
    """Its seed, of PyTorch's generators, whose states hold it."""

    def moved_since(self, last: _Seen) -> int | None:
        """By how many numbers it moved; none if a seed or a state set it."""
        if self.position is None or last.position is None or self.seed != last.seed:
            return None
        moved = self.position - last.position
        if self.block:
            return moved % self.block
        return moved if moved >= 0 else None


def _seen_now() -> dict[str, _Seen]:
    """Every global generator, read from where no replaced function is in the way."""
    python = random.getstate()
    generators = {"python": _Seen(python, python[1][-1], _BLOCK)}
    numpy = torch_internals.numpy_global_state()
    # Another bit generator, put in its place by somebody, has no position.
    generators["numpy"] = _Seen(pickle.dumps(numpy), numpy["state"].get("pos"), _BLOCK)
    raw = _raw_bytes(torch.default_generator)
    # Seed, then how many numbers of the block are left, and one (5056 bytes; torch 2.6 to 2.15).
    left = int.from_bytes(raw[8:12], "little")
    generators["torch"] = _Seen(raw, _BLOCK + 1 - left, _BLOCK, raw[:8])
    # A generator cannot be read while its device records a graph; it is at the next look.
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        for index, generator in enumerate(torch.cuda.default_generators):
            raw = _raw_bytes(generator)  # 16 bytes: seed, and offset in steps of 4
            offset = int.from_bytes(raw[8:16], "little", signed=True)
            generators[f"cuda:{index}"] = _Seen((raw[:8], offset), offset, seed=raw[:8])
    return generators


def _raw_bytes(generator: torch.Generator) -> bytes:
    """Its state, read without an operation that an observer would see."""
    state = generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.nbytes)


# -- comparing -----------------------------------------------------------------------------

_AHEAD = 64  # draws that are searched for where two runs agree again


@dataclass(frozen=True)
class DrawDifference:
    """The first draw in which two runs differ."""

    side: str
    """``a`` or ``b``, the only one that made it; ``both`` if both drew, but not the same."""
    draw: Draw
    """Of a if both drew."""
    other: Draw | None = None
    """What b drew in its place, if both drew."""

    def sentence(self) -> str:
        """Say which run drew, and from where."""
        if self.other is None:
            return f"only {self.side} {_drew(self.draw)}"
        return f"a and b drew otherwise: a {_drew(self.draw)}; b {_drew(self.other)}"


def _drew(draw: Draw) -> str:
    moved = f"set {draw.generator}'s generator"
    if draw.n is not None:
        moved = f"drew from {draw.generator}'s generator, moving it by {draw.n}"
    where = draw.source or draw.module or "no known line"
    return f"{moved} ({draw.what}{'' if draw.what == _UNSEEN else ' at'} {where})"


def first_draw_difference(a: Sequence[Draw], b: Sequence[Draw]) -> DrawDifference | None:
    """The first draw that only one of two runs made, or that drew another amount; none if none.

    Draws of one call in one function of one file can be each other's. Where its lines are others
    in both runs, the file was edited, and lines say nothing. To which values a seed set a generator
    is not part of a draw.
    """
    sites_a, sites_b = _sites(a, b)
    at = 0
    while at < min(len(a), len(b)) and sites_a[at] == sites_b[at]:
        if _amount(a[at]) != _amount(b[at]):
            return DrawDifference("both", a[at], b[at])
        at += 1
    more_in_a = at < len(a)
    more_in_b = at < len(b)
    if more_in_a and more_in_b:
        for ahead in range(at + 1, at + _AHEAD):
            more_in_a = sites_a[ahead : ahead + 1] == [sites_b[at]]
            more_in_b = sites_b[ahead : ahead + 1] == [sites_a[at]]
            if more_in_a or more_in_b:
                break
        if more_in_a == more_in_b:
            return DrawDifference("both", a[at], b[at])
    if more_in_a:
        return DrawDifference("a", a[at])
    return DrawDifference("b", b[at]) if more_in_b else None


def _sites(a: Sequence[Draw], b: Sequence[Draw]) -> list[list[tuple[str, ...]]]:
    """Of each draw its generator, call and function, and its line where that says anything."""
    sites_a = [_site(draw) for draw in a]
    sites_b = [_site(draw) for draw in b]
    only_in_a = {site[:3] for site in set(sites_a) - set(sites_b)}
    only_in_b = {site[:3] for site in set(sites_b) - set(sites_a)}
    edited = only_in_a & only_in_b
    return [
        [site[:3] if site[:3] in edited else site for site in sites] for sites in (sites_a, sites_b)
    ]


def _site(draw: Draw) -> tuple[str, ...]:
    if draw.source is None or draw.what == _UNSEEN:
        return draw.generator, draw.what, "", ""
    function = re.sub(r":\d+(?= in |$)", "", draw.source, count=1)
    return draw.generator, draw.what, function, draw.source


def _amount(draw: Draw) -> int | None:
    """How many numbers it drew; ledgers of earlier versions counted whole blocks, too."""
    if draw.n is None or draw.generator.startswith("cuda"):
        return draw.n
    return draw.n % _BLOCK
