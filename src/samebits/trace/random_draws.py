"""Every draw of random numbers: from which generator, at which line, in which module.

One draw more than in another run gives every later draw another value. Here each draw from a
global generator of Python, NumPy or PyTorch is written down with its source line, so that the one
which only one of two runs made can be named.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from samebits.call_site import Site
from samebits.errors import BadInput
from samebits.trace.generator_positions import GeneratorPosition, positions_now
from samebits.trace.observer import Call, Observer
from samebits.trace.replay_plan import plan_of
from samebits.trace.source_lines import source_line

if TYPE_CHECKING:
    from typing_extensions import Self

UNSEEN = "unseen"


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
    """How many numbers of 32 bits the generator's position moved by, for a Mersenne Twister modulo
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
        self._last: dict[str, GeneratorPosition] = {}
        self._last_place = ""
        self._replaced: list[tuple[ModuleType, str, Any, Any]] = []

    def __enter__(self) -> Self:
        if DrawLog._open is not None:
            raise BadInput("a DrawLog is open already; close it first, or use that one's draws")
        return super().__enter__()

    def _begin(self, way_back: ExitStack) -> None:
        self._last = positions_now()
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
            generators = positions_now()
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
                        what=UNSEEN if caller is None else caller.op,
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
