"""The same short training in two processes: does this machine repeat it, and with what?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cellrepro.audits.findings import Finding
from cellrepro.model.cellpose_generation import refuse_training
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.progress import progress
from cellrepro.store import installed_versions
from cellrepro.store.numeric_class import measure_numeric_class

if TYPE_CHECKING:
    import torch
    from torch import nn

    from cellrepro.model.training_loop import TrainingLoop
    from cellrepro.model.weight_sources import ModelSource

N_STEPS = 6
"""Training steps in two epochs, with one image a step."""

_N_EPOCHS = 2
_LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class ShortRun:
    """The short training in one process."""

    weights_before: str
    """Digest of all weights before the first step."""
    weights: str
    """Digest of all weights after the last step."""
    numeric_class: str
    """The numeric class of its device."""
    libraries: Sequence[Mapping[str, Any]]
    """BLAS and OpenMP, as `cellrepro.store.installed_versions.numeric_libraries` lists them."""


@dataclass(frozen=True)
class DoubleRun:
    """The same short training in two processes; both should end in equal weights."""

    first: ShortRun
    second: ShortRun

    def findings(self) -> Iterator[Finding]:
        """Judge the two.

        An error if the weights differ or did not change; a warning of several OpenMP libraries.
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
    with progress(2 * N_STEPS, "double run", quiet=quiet) as bar:
        first = in_child(train_briefly, setup, label="first run", on_event=counting(bar))
        second = in_child(train_briefly, setup, label="second run", on_event=counting(bar))
    return DoubleRun(first, second)


def train_briefly(child: Child) -> ShortRun:
    """Train `tiny` on synthetic images, in the child."""
    from cellrepro.model.encoders import TINY
    from cellrepro.model.weight_sources import ModelSource
    from samebits.tensor_digests import tensors_digest

    with child.prepared() as device:
        child.setup.seed_all()
        loop, network = small_training(ModelSource(TINY, TINY), device, seed=child.setup.seed)
        weights_before = tensors_digest(network.state_dict())
        child.phase("flows")
        while not loop.finished:
            loop.step()
            child.tell("done", f"step {loop.training.n_steps}")
    return ShortRun(
        weights_before=weights_before,
        weights=tensors_digest(network.state_dict()),
        numeric_class=measure_numeric_class(str(device))["name"],
        libraries=installed_versions.numeric_libraries(),
    )


def small_training(
    source: ModelSource, device: torch.device, *, seed: int | None
) -> tuple[TrainingLoop, nn.Module]:
    """Prepare two short epochs of a network on synthetic images."""
    from cellrepro.images.synthetic_sets import labelled_nuclei
    from cellrepro.model.network import build
    from cellrepro.model.training_loop import TrainingLoop

    network = build(source, seed=seed, device=device, dtype="float32")
    loop = TrainingLoop(
        network,
        labelled_nuclei(2),
        (),
        learning_rate=_LEARNING_RATE,
        n_epochs=_N_EPOCHS,
        images_per_epoch=N_STEPS // _N_EPOCHS,
    )
    return loop, network
