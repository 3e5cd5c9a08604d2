"""Masks of images through Cellpose's own ``CellposeModel.eval``, and what Cellpose shares."""

from __future__ import annotations

import copy
import functools
import glob
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.bits.digests import array_digest, value_digest
from cellrepro.determinism.seeds import generators_kept
from cellrepro.errors import BadInput
from cellrepro.images.folder import LabelledImage
from cellrepro.model.segmentation_limits import refuse_impossible
from cellrepro.model.shared_steps import Held, SharedSteps

IMPORTED = ("torchvision", "segment_anything", "cellpose.models")
"""What Cellpose brings in, after NumPy and PyTorch; the last brings in the network module."""


@dataclass(frozen=True)
class Segmentation:
    """The masks of one image."""

    name: str
    # uint32, shape (Y, X) or (Z, Y, X): 0 is background, 1..N as numbered by Cellpose; of planes
    # that were segmented by themselves, each begins where the one before it ends.
    masks: np.ndarray
    seconds: float  # wall time of ``eval`` alone
    # What the network gave for the whole image, float32: ``flows``, shape (2, Y, X), in y and x,
    # and ``probability``, shape (Y, X), of being cell, as a logit.
    flows: dict[str, np.ndarray] = field(default_factory=dict)


def segment(
    network: Any, images: tuple[LabelledImage, ...], **options: Any
) -> Iterator[Segmentation]:
    """Segment images one by one with a ``cellpose.vit.CPSAM``, moving no generator; the options
    are those of ``eval``."""
    evaluated = evaluator(network)
    for image in images:
        with generators_kept():
            started = time.perf_counter()
            masks, flows, probability = evaluated(image.image, stack=image.stack, **options)
            seconds = time.perf_counter() - started
        given = {"flows": flows, "probability": probability}
        yield Segmentation(image.name, masks.astype(np.uint32), seconds, given)


def evaluator(network: Any, *, sharing: bool = False) -> Evaluator:
    """``CellposeModel.eval`` around a network; ``sharing`` makes one pass of the network, and each
    step beside it that takes time, serve all calls that give it the same."""
    from cellpose.models import CellposeModel

    class LoadedModel(CellposeModel):
        """Cellpose 4.2.1.1 builds one only from a file of weights of its own size."""

        def __init__(self) -> None:
            self.net = network
            self.device = network.device
            self.gpu = network.device.type != "cpu"
            self.backbone = getattr(network, "backbone", "vit_l")  # not known before 4.2
            self.pretrained_model = ""

    network.eval()
    model = copy.copy(getattr(network, "loaded_by", None) or LoadedModel())
    model.net, model.device = _TileByTile(network), network.device
    return Evaluator(model, sharing=sharing)


class _TileByTile:
    """A network that in mode ``strict`` sees one tile at a time, whatever the batch: a product of
    another height may add in another order, so that a tile's bits would depend on the others."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __call__(self, tiles: Any) -> Any:
        import torch

        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        strict = torch.are_deterministic_algorithms_enabled() and not warns
        if len(tiles) == 1 or not strict:
            return self._network(tiles)
        outputs = [self._network(tiles[i : i + 1])[:2] for i in range(len(tiles))]
        return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))


class Evaluator:
    """Calls ``CellposeModel.eval``, with the whole of its normalisation each time."""

    def __init__(self, model: Any, *, sharing: bool) -> None:
        self.model = model
        self.n_passes = 0  # of the network, where they are shared
        self._usual = _usual_normalisation()
        self._sharing = sharing
        self._passes = Held()
        self._steps = SharedSteps(Held())
        if sharing:
            self._run = model._run_net
            model._run_net = self._pass

    def __call__(
        self,
        image: np.ndarray,
        *,
        stack: bool = False,
        normalize: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[np.ndarray]:
        """Masks, flows (2, Y, X) and probability (Y, X) of an image and arguments of ``eval``.

        Of a stack, (Z, Y, X) or (Z, Y, X, C), these have a further axis for its planes.
        """
        refuse_impossible(image.shape, {**options, "normalize": normalize}, stack=stack)
        if image.ndim == 2 + stack:
            image = image[..., None]
        together = bool(options.get("do_3D") or options.get("stitch_threshold"))
        if together and not stack:
            raise BadInput("do_3D and stitch_threshold are for stacks, and the image is one plane")
        places: dict[str, Any] = {"channel_axis": image.ndim - 1}
        places |= {"z_axis": 0} if together else {}
        whole = {**self._usual, **(normalize or {})}
        with self._steps.in_force() if self._sharing else nullcontext():
            masks, given, _ = self.model.eval(image, normalize=whole, **places, **options)
        masks = np.asarray(masks)
        if stack and not together:
            masks = _told_apart(masks)
        return [masks, *(np.asarray(part) for part in given[1:3])]

    def _pass(self, x: np.ndarray, **options: Any) -> Any:
        """The network's output for normalised pixels, from memory where it has been made."""
        key = value_digest([array_digest(x), sorted((n, str(v)) for n, v in options.items())])

        def run() -> Any:
            self.n_passes += 1
            return self._run(x, **options)

        return self._passes.get(key, run)


def _told_apart(masks: np.ndarray) -> np.ndarray:
    """Planes with numbers of their own: no object of one is meant to be one of another."""
    before = np.concatenate([[0], np.cumsum(masks.max(axis=(1, 2), initial=0).astype(np.int64))])
    return np.where(masks > 0, masks + before[:-1, None, None], 0)


@functools.cache
def _usual_normalisation() -> dict[str, Any]:
    """As Cellpose has it before the first call: ``eval`` writes into its own defaults, and a call
    that leaves a field out would take what an earlier one has left there."""
    return dict(shared_defaults())


def listed(folder: Path) -> list[Path]:
    """The images of a folder as Cellpose lists them, which knows fewer endings than the lab."""
    from cellpose.io import get_image_files

    try:
        # Its argument is a pattern; brackets in a folder's name are none.
        return [Path(path) for path in get_image_files(glob.escape(str(folder)), "_masks")]
    except ValueError:  # where it finds none
        return []


def shared_defaults() -> dict[str, Any]:
    """The normalisation defaults of the whole process, which ``eval`` reads and writes into."""
    from cellpose import models

    return models.normalize_default
