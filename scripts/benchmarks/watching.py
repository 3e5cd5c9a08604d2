"""Watching a step: audits, digests, ledgers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import ROUNDS, Extent, Figure, in_turns, ratio_of, seconds_of, warm_loop

# What watching may cost beside a plain step, by what it cannot do without (docs/benchmarks.md).
OF_AN_AUDIT = "<= 5.5"  # every operation is executed three times, and its results are compared


OF_A_STEP = "<= 1.12"  # 36 MB of weights, gradients and moments are read


# A thousand operations are seen and placed, and 163 MB digested: 1.4 at least.
OF_OPERATIONS = "<= 2.8"


def audit_ratio(extent: Extent) -> Iterator[Figure]:
    """What an audited step takes, beside the same steps unaudited."""
    from cellrepro.trace.operation_audit import audit

    for encoder, rounds in extent.of([("tiny", 1)], [("tiny", 7)], [("tiny", 7), ("vit-b", 2)]):
        network, training = warm_loop(encoder, 2 * rounds)
        audited = partial(audit, training.step, steps=1, replays=2, suspects=0, model=network)
        seconds = in_turns({"plain": training.step, "audited": audited}, rounds, warm_up=False)
        name = f"{encoder}: audited step, 2 replays / plain step"
        yield ratio_of(
            name, seconds, "audited", "plain", OF_AN_AUDIT, f"{rounds} alternating rounds"
        )


def digest_speed(extent: Extent) -> Iterator[Figure]:
    """Digesting memory beside reading it."""
    import torch

    from cellrepro.bits.digests import tensor_digest

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


WATCHED = (("tiny", 1, 25), ("tiny", 2, 9), ("vit-b", 1, 3))
"""Encoder, images a step, rounds."""


def _watched(extent: Extent) -> Iterator[tuple[str, str, int, int]]:
    for encoder, batch_size, rounds in extent.of([("tiny", 1, 1)], WATCHED[:2], WATCHED):
        yield f"{encoder}, batch {batch_size}", encoder, batch_size, rounds


def ledger_ratio(extent: Extent) -> Iterator[Figure]:
    """What a step costs with its ledger, beside the same steps without."""
    from cellrepro.store.ledger import Ledger
    from cellrepro.trace.watches import StepWatch, Watches

    for called, encoder, batch_size, rounds in _watched(extent):
        watch = Watches(())
        _, training = warm_loop(encoder, 2 * rounds, batch_size=batch_size, watch=watch)
        seconds: dict[str, list[float]] = {"plain": [], "ledger": []}
        for _ in range(rounds):
            watch.watches = ()
            seconds["plain"].append(seconds_of(training.step))
            watch.watches = (StepWatch(Ledger()),)
            seconds["ledger"].append(seconds_of(training.step))
        name = f"{called}: step with its ledger / plain step"
        yield ratio_of(name, seconds, "ledger", "plain", OF_A_STEP, f"{rounds} alternating rounds")


def operation_ratio(extent: Extent) -> Iterator[Figure]:
    """What a step costs with every operation written down, beside DebugMode with hashes."""
    from torch.utils._debug_mode import DebugMode

    from cellrepro.trace.operation_ledger import OperationLedger

    for called, encoder, batch_size, rounds in _watched(extent):
        network, training = warm_loop(encoder, 5 * rounds, batch_size=batch_size)

        def ours(network: Any, step: Callable[[], Any], *, norms: bool) -> None:
            with OperationLedger(network, norms=norms):
                step()

        def theirs(step: Callable[[], Any], *, as_much: bool) -> None:
            hashes = DebugMode.log_tensor_hashes("hash_tensor", hash_inputs=as_much)
            with DebugMode(record_nn_module=as_much, record_stack_trace=as_much), hashes:
                step()

        variants = {
            "plain": training.step,
            "ours": partial(ours, network, training.step, norms=True),
            "no norms": partial(ours, network, training.step, norms=False),
            "theirs": partial(theirs, training.step, as_much=False),
            "theirs, as much": partial(theirs, training.step, as_much=True),
        }
        seconds = in_turns(variants, rounds, warm_up=False)
        how = f"{rounds} alternating rounds"
        for name, shown in (("ours", "operation ledger"), ("no norms", "the same without norms")):
            title = f"{called}: {shown} / plain step"
            yield ratio_of(title, seconds, name, "plain", OF_OPERATIONS, how)
        for name, shown, target in (
            ("theirs", "hashes of outputs", "<= 0.85"),
            ("theirs, as much", "modules, lines, hashes of inputs and outputs", "<= 0.4"),
        ):
            title = f"{called}: operation ledger / DebugMode, {shown}"
            yield ratio_of(title, seconds, "ours", name, target, how)
