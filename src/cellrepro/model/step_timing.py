"""Seconds of single training steps, of Cellpose's own ``train_seg`` and the lab's loop in turns.

Both fetch every batch by Cellpose's ``_get_batch``. Wrapping that function gives the time from one
step's start to the next one's, without preparing images and flows or writing the weights.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cellrepro.images.folder import LabelledImage
from cellrepro.model.patching import replaced
from cellrepro.model.prepared_images import USUAL, training_labels, with_flows
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.store.peak_memory import forget_peak_memory, peak_memory
from samebits.errors import BadInput
from samebits.generator_states import generators_kept
from samebits.modes import mode_in_force
from samebits.seeds import seed_everything

if TYPE_CHECKING:
    from cellrepro.model.encoders import CellposeNetwork


@dataclass(frozen=True)
class Variant:
    """A way of training that is timed."""

    in_words: str
    loop: Literal["cellpose", "lab"]
    mode: Literal["fast", "warn", "strict"] = "fast"
    tf32: bool = True
    """Whether products on CUDA are rounded to TF32."""
    algorithms: bool = False
    """PyTorch's ``use_deterministic_algorithms`` beside the mode, with ``warn_only``, since it
    would stop at operations without a deterministic implementation."""
    fills_memory: bool = False
    """PyTorch's ``fill_uninitialized_memory``, with ``algorithms``."""
    cudnn: bool = False
    """PyTorch's ``cudnn.deterministic`` beside the mode."""


VARIANTS = {
    "plain": Variant("cellpose.train.train_seg as it is", "cellpose"),
    "fast": Variant("the lab's loop, mode fast", "lab"),
    "warn": Variant("the lab's loop, mode warn", "lab", mode="warn"),
    "strict": Variant("the lab's loop, mode strict", "lab", mode="strict"),
    # What PyTorch's page on reproducibility says, and nothing else.
    "others": Variant(
        "train_seg with PyTorch's switches all on, memory filled, no substitutes",
        "cellpose",
        algorithms=True,
        fills_memory=True,
        cudnn=True,
    ),
    "algorithms": Variant(
        "train_seg with use_deterministic_algorithms alone, memory not filled",
        "cellpose",
        algorithms=True,
    ),
    "cudnn": Variant("train_seg with cudnn.deterministic alone", "cellpose", cudnn=True),
    "strict-float32": Variant(
        "the lab's loop, mode strict, products of float32 not rounded to TF32",
        "lab",
        mode="strict",
        tf32=False,
    ),
}
"""All but the last one round products on CUDA to TF32, because importing Cellpose 4.2.1.1 allows
that: precision has a price of its own."""

CUDA_ONLY = ("cudnn", "strict-float32")
"""Variants that a processor computes as another one."""

_N_EPOCHS = 2
_BATCH_SIZE = 1
_LEARNING_RATE = 1e-5  # time does not depend on it


def check_variants(variants: Sequence[str]) -> None:
    """Refuse unknown or repeated variants, and any without ``plain``."""
    chosen = set(variants)
    if not {"plain"} <= chosen <= VARIANTS.keys() or len(chosen) != len(variants):
        raise BadInput(
            f"variants is {variants!r}; expected names out of {', '.join(VARIANTS)}, each once, "
            "and plain among them: the others are compared with it"
        )


class SideBySide:
    """The same steps of one network by several variants, from the same weights and generators."""

    def __init__(
        self,
        network: CellposeNetwork,
        images: Sequence[LabelledImage],
        *,
        steps: int,
        variants: Sequence[str],
        seed: int = 0,
    ) -> None:
        self._network = network
        self._images = with_flows(images, network.device)
        self._variants = tuple(variants)
        self._seed = seed
        # The first is not timed, and the start of one more ends the last that is.
        self._n_batches = steps + 2
        self._images_per_epoch = -(-self._n_batches // _N_EPOCHS)
        self._start = {
            name: tensor.detach().clone() for name, tensor in network.state_dict().items()
        }
        self._n_rounds = 0
        self.peaks: dict[str, list[int]] = {name: [] for name in variants}

    def round(self) -> dict[str, list[float]]:
        """Seconds of each timed step, by variant; each round begins with another variant."""
        if self._n_rounds == 0:
            self._run("plain")  # kernels are chosen and libraries loaded once in a process
        first = self._n_rounds % len(self._variants)
        self._n_rounds += 1
        order = self._variants[first:] + self._variants[:first]
        seconds = {name: self._run(name) for name in order}
        return {name: seconds[name] for name in self._variants}

    def _run(self, name: str) -> list[float]:
        """Train by one variant; gives the seconds of each timed step."""
        variant = VARIANTS[name]
        train = self._train_by_cellpose if variant.loop == "cellpose" else self._train_by_lab
        forget_peak_memory()
        with generators_kept(), _switches(variant, self._network.device.type):
            seed_everything(self._seed, quiet=True)
            with _batches_timed(self._n_batches) as times:
                train()
        peak = peak_memory()
        self.peaks[name].append(peak["gpu"] or peak["process"] or 0)
        self._network.load_state_dict(self._start)
        self._network.zero_grad()
        return [end - start for start, end in itertools.pairwise(times[1:])]

    def _train_by_lab(self) -> None:
        loop = TrainingLoop(
            self._network,
            self._images,
            (),
            n_epochs=_N_EPOCHS,
            learning_rate=_LEARNING_RATE,
            batch_size=_BATCH_SIZE,
            images_per_epoch=self._images_per_epoch,
        )
        loop.run()

    def _train_by_cellpose(self) -> None:
        from cellpose.train import train_seg

        with tempfile.TemporaryDirectory() as scratch:
            train_seg(
                self._network,
                train_data=[image.image for image in self._images],
                train_labels=[training_labels(image) for image in self._images],
                channel_axis=-1,
                n_epochs=_N_EPOCHS,
                learning_rate=_LEARNING_RATE,
                batch_size=_BATCH_SIZE,
                nimg_per_epoch=self._images_per_epoch,
                weight_decay=USUAL.weight_decay,
                save_path=scratch,
                model_name="timed",
            )


@contextmanager
def _switches(variant: Variant, device: str) -> Iterator[None]:
    """Set a variant's mode and switches of PyTorch for one block."""
    import torch
    import torch.utils.deterministic as memory

    # Leaving the mode restores every switch, those that are set beside it too.
    with mode_in_force(variant.mode, tf32=variant.tf32, device=device):
        if variant.algorithms:
            torch.use_deterministic_algorithms(True, warn_only=True)
            memory.fill_uninitialized_memory = variant.fills_memory  # type: ignore[attr-defined]  # not in PyTorch's stubs
        if variant.cudnn:
            torch.backends.cudnn.deterministic = True
        yield


class _Enough(Exception):
    """Ends a training after the last timed step."""


@contextmanager
def _batches_timed(n_batches: int) -> Iterator[list[float]]:
    """Note the time at which each batch is fetched; the last one ends the block."""
    import torch
    from cellpose import train

    original = train._get_batch
    times: list[float] = []

    # Parameters and result are those of Cellpose's function.
    def get_batch(*arguments: Any, **options: Any) -> Any:
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        times.append(time.perf_counter())
        if len(times) == n_batches:
            raise _Enough
        return original(*arguments, **options)

    with suppress(_Enough), replaced(train, "_get_batch", get_batch):
        yield times
