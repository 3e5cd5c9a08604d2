"""The same short training in two processes: does this machine repeat it, and with what?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cellrepro.audits.finding import Finding
from cellrepro.audits.small_training import N_STEPS, small_training
from cellrepro.model.cellpose_generation import refuse_training
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.progress import progress
from cellrepro.store import this_machine
from cellrepro.store.numeric_class import measure_numeric_class


@dataclass(frozen=True)
class ShortRun:
    """What one process made of the short training."""

    weights_before: str
    """Digests of all weights, before the first step and after the last."""
    weights: str
    """Digests of all weights, before the first step and after the last."""
    numeric_class: str
    """Of the device that it computed on."""
    libraries: Sequence[Mapping[str, Any]]
    """BLAS and OpenMP, as `cellrepro.store.this_machine.numeric_libraries` lists them."""


@dataclass(frozen=True)
class DoubleRun:
    """The same short training in two processes; both should end in equal weights."""

    first: ShortRun
    """In the order in which they ran."""
    second: ShortRun
    """In the order in which they ran."""

    def findings(self) -> Iterator[Finding]:
        """Say what the two show.

        An error if the weights differ or were not changed; a warning for several OpenMP libraries.
        """
        if self.first.weights == self.first.weights_before:
            yield Finding(
                level="error",
                what="the double run changed no weight and proves nothing",
                remedy="report it",
            )
        if self.first.weights != self.second.weights:
            yield Finding(
                level="error",
                what=f"the double run was not bit-identical: {N_STEPS} training steps ended in "
                "different weights",
                remedy="use --mode strict; in it `cellrepro audit DATA` names the operation, "
                "please report it",
            )
        openmp = {
            library["internal_api"]
            for library in self.first.libraries
            if library["user_api"] == "openmp"
        }
        if len(openmp) > 1:
            yield Finding(
                level="warning",
                what=f"several OpenMP libraries are loaded ({', '.join(sorted(openmp))}): which "
                "one shares a sum among threads depends on the order of imports",
                remedy="install all packages from one source, conda or pip",
            )


def run_twice(setup: Setup, *, quiet: bool) -> DoubleRun:
    """Train `tiny` on synthetic images in two processes, one after the other."""
    refuse_training()
    with progress(2 * (N_STEPS + 2), "double run", quiet=quiet) as bar:
        first = in_child(train_briefly, setup, label="first run", on_event=counting(bar))
        second = in_child(train_briefly, setup, label="second run", on_event=counting(bar))
    return DoubleRun(first, second)


def train_briefly(child: Child) -> ShortRun:
    """Inside the child: train `tiny` on synthetic images."""
    from cellrepro.digests.tensor_digests import tensors_digest
    from cellrepro.model.encoders import TINY
    from cellrepro.model.weight_sources import ModelSource

    with child.prepared() as device:
        child.setup.seed_all()
        loop, network = small_training(ModelSource(TINY, TINY), device, seed=child.setup.seed)
        weights_before = tensors_digest(network.state_dict())
        child.phase("flows")
        while not loop.finished:
            loop.step()
            child.phase(f"step {loop.training.n_steps}")
    return ShortRun(
        weights_before=weights_before,
        weights=tensors_digest(network.state_dict()),
        numeric_class=measure_numeric_class(str(device))["name"],
        libraries=this_machine.numeric_libraries(),
    )
