"""Watching a step: audits, digests, ledgers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from benchmarks.measuring import (
    ROUNDS,
    Extent,
    Figure,
    in_turns,
    ratio_of,
    seconds_of,
    small_networks,
    warm_loop,
)

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")

# What watching may cost beside a plain step, by what it cannot do without (docs/benchmarks.md).
OF_AN_AUDIT = "<= 5.5"  # every operation is executed three times, and its results are compared
OF_A_STEP = "<= 1.12"  # 36 MB of weights, gradients and moments are read
# A thousand operations are seen and placed, and 163 MB digested: 1.4 at least.
OF_OPERATIONS = "<= 2.8"


def audit_ratio(extent: Extent) -> Iterator[Figure]:
    """What an audited step takes, beside the same steps unaudited."""
    from samebits.trace.operation_audit import audit

    for encoder, rounds in extent.of([("tiny", 1)], [("tiny", 7)], [("tiny", 7), ("vit-b", 2)]):
        network, training = warm_loop(encoder, 2 * rounds)
        audited = partial(audit, training.step, steps=1, replays=2, suspects=0, model=network)
        seconds = in_turns({"plain": training.step, "audited": audited}, rounds, warm_up=False)
        name = f"{encoder}: audited step, 2 replays / plain step"
        yield ratio_of(
            name, seconds, "audited", "plain", OF_AN_AUDIT, f"{rounds} alternating rounds"
        )


def any_pytorch(extent: Extent) -> Iterator[Figure]:
    """What the checks of any PyTorch step cost, beside the plain step, where that is short.

    In seconds of the processor on one thread: a neighbour's work moves short steps most.
    """
    import torch

    import samebits

    rounds = extent.of(1, 7)
    for name in extent.of(["LSTM, Adam"], ["U-Net, Adam", "ViT, AdamW", "LSTM, Adam"]):
        example = small_networks()[name]()
        step = example.step
        ways = {
            "plain": step,
            "check_repeatable, n=3": partial(samebits.check_repeatable, step),
            "audit, 1 step, 2 replays": partial(samebits.audit, step, steps=1, replays=2),
            "audit, 3 steps, 8 replays": partial(samebits.audit, step),
            "OperationLedger": partial(_within, samebits.OperationLedger, example.network, step),
            "perturbed": partial(_within, samebits.perturbed, 0, step),
        }
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        seconds = in_turns(ways, rounds, clock=time.process_time)
        torch.set_num_threads(n_threads)
        for way in list(ways)[1:]:
            title = f"{name}: {way} / plain step"
            how = f"{rounds} alternating rounds, processor seconds, one thread"
            yield ratio_of(title, seconds, way, "plain", "", how)


def _within(
    block: Callable[[T], AbstractContextManager[object]], what: T, step: Callable[[], object]
) -> None:
    with block(what):
        step()


def digest_speed(extent: Extent) -> Iterator[Figure]:
    """Digesting memory beside reading it."""
    import torch

    from samebits.tensor_digests import tensor_digest

    n = extent.of(2**16, 2**26)
    tensor = torch.from_numpy(np.random.default_rng(0).standard_normal(n, np.float32))
    words = tensor.numpy().view(np.uint64)
    seconds = in_turns(
        {"digest": lambda: tensor_digest(tensor), "read": lambda: np.bitwise_xor.reduce(words)},
        ROUNDS,
    )
    speed = tensor.nbytes / statistics.median(seconds["digest"]) / 1e9
    name = f"digest of {tensor.nbytes / 2**20:g} MB: speed / speed of reading it"
    how = f"{speed:.1f} GB/s; NumPy's xor over the same words; {ROUNDS} rounds"
    yield ratio_of(name, seconds, "read", "digest", ">= 0.5", how)


@dataclass(frozen=True)
class _Loop:
    """A training loop that is watched."""

    encoder: str
    batch_size: int
    """Images a step."""
    rounds: int
    """How often each way of watching is measured."""

    @property
    def name(self) -> str:
        """In the names of figures."""
        return f"{self.encoder}, batch {self.batch_size}"

    @property
    def how(self) -> str:
        """How it was measured."""
        return f"{self.rounds} alternating rounds"


def _loops(extent: Extent) -> Sequence[_Loop]:
    small = (_Loop("tiny", 1, 25), _Loop("tiny", 2, 9))
    return extent.of([_Loop("tiny", 1, 1)], small, [*small, _Loop("vit-b", 1, 3)])


def ledger_ratio(extent: Extent) -> Iterator[Figure]:
    """What a step costs with its ledger, beside the same steps without."""
    from cellrepro.model.watches import StepWatch, Watches
    from cellrepro.store.ledger import Ledger

    for loop in _loops(extent):
        watch = Watches(())
        _, training = warm_loop(
            loop.encoder, 2 * loop.rounds, batch_size=loop.batch_size, watch=watch
        )
        seconds: dict[str, list[float]] = {"plain": [], "ledger": []}
        for _ in range(loop.rounds):
            watch.watches = ()
            seconds["plain"].append(seconds_of(training.step))
            watch.watches = (StepWatch(Ledger()),)
            seconds["ledger"].append(seconds_of(training.step))
        name = f"{loop.name}: step with its ledger / plain step"
        yield ratio_of(name, seconds, "ledger", "plain", OF_A_STEP, loop.how)


def operation_ratio(extent: Extent) -> Iterator[Figure]:
    """What a step costs with every operation written down, beside DebugMode with hashes."""
    for loop in _loops(extent):
        network, training = warm_loop(loop.encoder, 5 * loop.rounds, batch_size=loop.batch_size)
        step = training.step
        ways = {
            "plain": step,
            "ledger": partial(_step_in_ledger, network, step, norms=True),
            "ledger, no norms": partial(_step_in_ledger, network, step, norms=False),
            "hashes": partial(_step_in_debug_mode, step, with_places=False),
            "hashes and places": partial(_step_in_debug_mode, step, with_places=True),
        }
        seconds = in_turns(ways, loop.rounds, warm_up=False)
        for way, title in (
            ("ledger", "operation ledger"),
            ("ledger, no norms", "the same without norms"),
        ):
            name = f"{loop.name}: {title} / plain step"
            yield ratio_of(name, seconds, way, "plain", OF_OPERATIONS, loop.how)
        for way, title, target in (
            ("hashes", "hashes of outputs", "<= 0.85"),
            ("hashes and places", "modules, lines, hashes of inputs and outputs", "<= 0.4"),
        ):
            name = f"{loop.name}: operation ledger / DebugMode, {title}"
            yield ratio_of(name, seconds, "ledger", way, target, loop.how)


def _step_in_ledger(network: nn.Module, step: Callable[[], object], *, norms: bool) -> None:
    from samebits.trace.operation_ledger import OperationLedger

    with OperationLedger(network, norms=norms):
        step()


def _step_in_debug_mode(step: Callable[[], object], *, with_places: bool) -> None:
    """With places it writes down as much as the ledger does."""
    from torch.utils._debug_mode import DebugMode

    hashes = DebugMode.log_tensor_hashes("hash_tensor", hash_inputs=with_places)
    with DebugMode(record_nn_module=with_places, record_stack_trace=with_places), hashes:
        step()
