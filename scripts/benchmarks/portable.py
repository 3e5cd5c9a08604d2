"""Mode portable beside plain float32: a network's pass, a training step, and dynamics."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measuring import (
    ROUNDS,
    Extent,
    Figure,
    in_turns,
    larger_networks,
    ratio_of,
    small_networks,
)

if TYPE_CHECKING:
    import torch
    from torch import nn


def portable(extent: Extent) -> Iterator[Figure]:
    """Times and memory of what mode portable computes otherwise, in turns with plain float32."""
    n_rounds = extent.of(1, 5)
    yield from _passes("tiny", n_tiles=4, n_rounds=n_rounds, most="<= 3")
    for encoder in extent.of((), ("vit-b",), ("vit-b", "vit-l")):
        yield from _passes(encoder, n_tiles=1, n_rounds=extent.of(1, 3), most="<= 4")
    yield _training_step(n_rounds=n_rounds)
    yield _dynamics(size=extent.of(256, 1024, 2048), n_cells=extent.of(80, 1250, 5000))
    yield from _networks(n_rounds=extent.of(1, 5), with_larger=extent.name == "all")


def _passes(encoder: str, *, n_tiles: int, n_rounds: int, most: str) -> Iterator[Figure]:
    """The network alone, over tiles of 256²."""
    import torch

    from cellrepro.model.network import seeded_network

    network = seeded_network(encoder, seed=0).eval()
    tiles = torch.rand(n_tiles, 3, 256, 256)
    functions = _in_both(lambda: _one_pass(network, tiles), _arithmetic_of_cellpose)
    seconds = in_turns(functions, n_rounds)
    how = f"{n_tiles} tiles of 256², {torch.get_num_threads()} threads, {n_rounds} rounds"
    yield ratio_of(f"{encoder}: portable / plain pass", seconds, "portable", "plain", most, how)
    ratio = _peak_memory(encoder, n_tiles, "portable") / _peak_memory(encoder, n_tiles, "plain")
    how = "of a process for each, the network and PyTorch included"
    yield Figure(f"{encoder}: portable / plain peak memory", ratio, "<= 1.5", how)


def _peak_memory(encoder: str, n_tiles: int, arithmetic: str) -> int:
    """Bytes that a process of its own held at most during one pass."""
    lines = (
        "from benchmarks.portable import print_peak_memory",
        f"print_peak_memory({encoder!r}, {n_tiles}, {arithmetic!r})",
    )
    folder = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", "; ".join(lines)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return int(done.stdout)


def print_peak_memory(encoder: str, n_tiles: int, arithmetic: str) -> None:
    """Make one pass, and print the most memory that this process held."""
    import torch

    from cellrepro.model.network import seeded_network
    from cellrepro.store.peak_memory import peak_memory_of_process

    network = seeded_network(encoder, seed=0).eval()
    tiles = torch.rand(n_tiles, 3, 256, 256)
    with _arithmetic_of_cellpose() if arithmetic == "portable" else nullcontext():
        _one_pass(network, tiles)
    print(peak_memory_of_process())


def _one_pass(network: nn.Module, tiles: torch.Tensor) -> None:
    import torch

    with torch.no_grad():
        network(tiles)


def _training_step(*, n_rounds: int) -> Figure:
    """One step of `tiny`: augmentation, forward, loss, backward, update."""
    from benchmarks.measuring import warm_loop

    n_steps = 2 * n_rounds + 2
    _network, loop = warm_loop("tiny", n_steps)
    seconds = in_turns(_in_both(loop.step, _everything), n_rounds)
    how = f"one image, {n_rounds} rounds of one step"
    return ratio_of("tiny: portable / plain step", seconds, "portable", "plain", "<= 3", how)


def _dynamics(*, size: int, n_cells: int) -> Figure:
    """From flows to masks, as Cellpose computes them from the flows of drawn nuclei."""
    import numpy as np
    import torch
    from cellpose import dynamics

    from cellrepro.images.synthetic_sets import labelled_nuclei

    (image,) = labelled_nuclei(1, shape=(size, size), n_nuclei=n_cells, diameter=17.0)
    labels = image.masks
    flows = dynamics.masks_to_flows_gpu(labels, device=torch.device("cpu"))[0]
    flows = (5 * flows).astype(np.float32)
    probability = np.where(labels > 0, 5, -5).astype(np.float32)

    def compute() -> None:
        dynamics.compute_masks(flows, probability, niter=200, device=torch.device("cpu"))

    seconds = in_turns(_in_both(compute, _everything), 1, warm_up=False)
    how = f"{size}², {labels.max()} cells, one round"
    name = "dynamics: portable / Cellpose's"
    return ratio_of(name, seconds, "portable", "plain", "<= 2", how)


def _networks(*, n_rounds: int, with_larger: bool) -> Iterator[Figure]:
    """A step of each network that the tests of `samebits` train; also of a size of use."""
    larger = larger_networks() if with_larger else {}
    for name, make in small_networks().items():
        step = make().step
        seconds = in_turns(_in_both(step, _arithmetic) | {"seen": _seen(step)}, n_rounds)
        most = "<= 8" if name.startswith(("LSTM", "GRU", "RNN")) else "<= 4"
        parts = _parts_of_step(step)
        how = f"{n_rounds} rounds of one step"
        yield ratio_of(f"{name}: portable / plain step", seconds, "portable", "plain", most, how)
        yield ratio_of(f"{name}: only seen / plain step", seconds, "seen", "plain", "", how)
        yield Figure(f"{name}: operations of a step", parts.n_operations, "", "one step")
        how = "of a portable step, outside of operations: PyTorch's dispatch, autograd and Python"
        yield Figure(f"{name}: share that is dispatch", parts.share_outside, "", how)
        if name in larger:
            seconds = in_turns(_in_both(larger[name]().step, _arithmetic), n_rounds)
            how = (
                f"{n_rounds} rounds of one step; {statistics.median(seconds['plain']):.3f} s plain"
            )
            title = f"{name}, larger: portable / plain step"
            yield ratio_of(title, seconds, "portable", "plain", most, how)


def _seen(step: Callable[[], object]) -> Callable[[], object]:
    """A step whose operations come to Python and are carried out as they are."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    def seen() -> object:
        with Seeing():
            return step()

    return seen


class _Parts(NamedTuple):
    n_operations: int
    share_outside: float
    """Of the time of a portable step, what is not spent in operations."""


def _parts_of_step(step: Callable[[], object]) -> _Parts:
    """Count the operations of a portable step and the time in them; the median of five steps."""
    from samebits.arithmetic.kernels import recurrent
    from samebits.arithmetic.portable_mode import PortableArithmetic
    from samebits.trace.observer import Call

    class Timed(PortableArithmetic):
        n_operations = 0
        seconds = 0.0

        def observe(self, call: Call) -> Any:
            return self.timed(super().observe)(call)

        def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any) -> Any:
                started = time.perf_counter()
                try:
                    return function(*arguments)
                finally:
                    self.seconds += time.perf_counter() - started
                    self.n_operations += 1

            return called

    def parts() -> _Parts:
        started = time.perf_counter()
        with Timed() as timed, ExitStack() as way_back:
            for name in ("forward", "backward"):  # a layer is one operation, which no mode sees
                original = getattr(recurrent._Direction, name)
                way_back.callback(setattr, recurrent._Direction, name, staticmethod(original))
                setattr(recurrent._Direction, name, staticmethod(timed.timed(original)))
            step()
        return _Parts(timed.n_operations, 1 - timed.seconds / (time.perf_counter() - started))

    parts()
    of_steps = sorted((parts() for _ in range(ROUNDS)), key=lambda each: each.share_outside)
    return of_steps[len(of_steps) // 2]


def _in_both(
    function: Callable[[], object], computing: Callable[[], AbstractContextManager[object]]
) -> dict[str, Callable[[], object]]:
    """A function in plain and in portable arithmetic."""

    def within(context: Callable[[], AbstractContextManager[object]]) -> Callable[[], object]:
        def call() -> object:
            with context():
                return function()

        return call

    return {"plain": within(nullcontext), "portable": within(computing)}


def _arithmetic() -> AbstractContextManager[object]:
    from samebits.arithmetic.portable_mode import PortableArithmetic

    return PortableArithmetic()


@contextmanager
def _arithmetic_of_cellpose() -> Iterator[None]:
    """As mode portable computes for Cellpose: products in one slice."""
    from samebits import one_slice

    with _arithmetic(), one_slice():
        yield


@contextmanager
def _everything() -> Iterator[None]:
    from cellrepro.model.portable_cellpose import portable_cellpose
    from cellrepro.model.portable_training import portable_training
    from samebits import substitutes

    with ExitStack() as stack:
        stack.enter_context(substitutes.applied())
        stack.enter_context(portable_cellpose())
        stack.enter_context(portable_training())
        stack.enter_context(_arithmetic())
        yield
