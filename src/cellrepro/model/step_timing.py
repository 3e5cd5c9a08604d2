"""Seconds of single training steps: Cellpose's own ``train_seg`` and the lab's loop, in turns.

Both fetch every batch through Cellpose's ``_get_batch``. Watching that function gives the time from
one step's start to the next one's, without preparing images and flows or writing the weights.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cellrepro.determinism.modes import mode_in_force
from cellrepro.determinism.seeds import generators_kept, seed_everything
from cellrepro.errors import BadInput
from cellrepro.images.folder import LabelledImage
from cellrepro.model.training_loop import USUAL, train, with_flows
from cellrepro.store import this_machine

VARIANTS = {
    "plain": "cellpose.train.train_seg as it is",
    "fast": "the lab's loop, mode fast",
    "warn": "the lab's loop, mode warn",
    "strict": "the lab's loop, mode strict",
    "others": "train_seg with PyTorch's switches all on, memory filled, no substitutes",
    "algorithms": "train_seg with use_deterministic_algorithms alone, memory not filled",
    "cudnn": "train_seg with cudnn.deterministic alone",
    "strict-float32": "the lab's loop, mode strict, products of float32 not rounded to TF32",
}
"""The ways of training that are timed. All but the last one round products on CUDA to TF32,
because importing Cellpose 4.2.1.1 allows that: precision has a price of its own."""
CUDA_ONLY = ("cudnn", "strict-float32")
_AS_CELLPOSE = ("plain", "others", "algorithms", "cudnn")


def check_variants(variants: Sequence[str]) -> None:
    """Raise `BadInput` unless these are variants, each once, and ``plain`` is one of them."""
    chosen = set(variants)
    if not {"plain"} <= chosen <= VARIANTS.keys() or len(chosen) != len(variants):
        raise BadInput(
            f"variants is {variants!r}; expected names out of {', '.join(VARIANTS)}, each once, "
            "and plain among them: the others are compared with it"
        )


class SideBySide:
    """The same steps of one network in several ways in turns, all from the same weights and
    generators. ``steps`` are timed, after one that sets the optimizer's memory up. ``peaks`` holds
    the most bytes of memory at a time, on the GPU where that computes, of each run by variant."""

    def __init__(
        self,
        network: Any,
        images: Sequence[LabelledImage],
        *,
        steps: int,
        variants: Sequence[str],
        seed: int = 0,
    ) -> None:
        self._network, self._variants, self._seed = network, tuple(variants), seed
        # One untimed, those timed, and the start of one more, which ends the last.
        self._steps = steps + 2
        self._draws = -(-self._steps // 2)  # an epoch
        # Time does not depend on the learning rate.
        self._both = {"batch_size": 1, "learning_rate": 1e-5, "n_epochs": 2}
        self._images = with_flows(images, network.device)
        self._start = {name: t.detach().clone() for name, t in network.state_dict().items()}
        self._rounds_done = 0
        self.peaks: dict[str, list[int]] = {name: [] for name in variants}

    def round(self) -> dict[str, list[float]]:
        """Seconds of each timed step, by variant, each round beginning with the next one."""
        if self._rounds_done == 0:
            self._run("plain")  # kernels are chosen and libraries loaded once in a process
        shift = self._rounds_done % len(self._variants)
        self._rounds_done += 1
        order = self._variants[shift:] + self._variants[:shift]
        seconds = {name: self._run(name) for name in order}
        return {name: seconds[name] for name in self._variants}

    def _run(self, variant: str) -> list[float]:
        this_machine.forget_peak_memory()
        with generators_kept(), self._switches(variant):
            seed_everything(self._seed, quiet=True)
            with _batches_watched(self._steps) as times:
                if variant in _AS_CELLPOSE:
                    self._as_cellpose()
                else:
                    options = {"images_per_epoch": self._draws, **self._both}
                    train(self._network, self._images, (), **options)
        peak = this_machine.peak_memory()
        self.peaks[variant].append(peak["gpu"] or peak["process"] or 0)
        self._network.load_state_dict(self._start)
        self._network.zero_grad()
        return [end - start for start, end in itertools.pairwise(times[1:])]

    def _as_cellpose(self) -> None:
        from cellpose.train import train_seg

        with tempfile.TemporaryDirectory() as scratch:
            train_seg(
                self._network,
                train_data=[image.image for image in self._images],
                train_labels=[image.masks for image in self._images],
                channel_axis=-1,
                nimg_per_epoch=self._draws,
                weight_decay=USUAL.weight_decay,
                save_path=scratch,
                model_name="timed",
                **self._both,
            )

    @contextmanager
    def _switches(self, variant: str) -> Iterator[None]:
        import torch
        import torch.utils.deterministic as memory

        mode = "fast" if variant in _AS_CELLPOSE else variant.removesuffix("-float32")
        tf32 = not variant.endswith("-float32")
        # The mode gives every switch back, those that `others` sets too.
        with mode_in_force(mode, tf32=tf32, device=self._network.device.type):
            # What PyTorch's page on reproducibility says, and nothing else; it only warns, since
            # it would stop at what has no deterministic implementation.
            if variant in ("others", "algorithms"):
                torch.use_deterministic_algorithms(True, warn_only=True)
                filled = variant == "others"
                memory.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
            if variant in ("others", "cudnn"):
                torch.backends.cudnn.deterministic = True
            yield


class _Enough(Exception):
    """The last step has been timed."""


@contextmanager
def _batches_watched(n_batches: int) -> Iterator[list[float]]:
    """The time at which each batch is fetched; the block ends with the last of them."""
    import torch
    from cellpose import train

    original, times = train._get_batch, []

    def get_batch(*arguments: Any, **options: Any) -> Any:
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        times.append(time.perf_counter())
        if len(times) == n_batches:
            raise _Enough
        return original(*arguments, **options)

    train._get_batch = get_batch
    try:
        yield times
    except _Enough:
        pass
    finally:
        train._get_batch = original
