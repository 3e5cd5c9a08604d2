"""In a process of its own: a network written as Cellpose loads it, loaded back, and compared."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.weight_reading import open_weights
from cellrepro.digests.digests import array_digest
from cellrepro.errors import Damaged
from cellrepro.images.folder import LabelledImage
from cellrepro.model.inference import loaded_by_cellpose
from cellrepro.store.peak_memory import peak_memory_of_process
from cellrepro.words import some, that_differ

if TYPE_CHECKING:
    import torch

    from cellrepro.model.encoders import CellposeNetwork
    from cellrepro.model.inference import EvalOutput
    from cellrepro.model.weight_sources import ModelSource
    from cellrepro.process.child import Child

STEPS = ("written", "loaded back", "segmented with both")
_PIECE = 2**22  # parameters that are compared at a time


@dataclass(frozen=True)
class CellposeCheck:
    """What came of loading a file back through Cellpose."""

    n_tensors: int
    """Of the network: each has every bit of the run's, none is missing and none is more."""
    n_parameters: int
    """Numbers in them."""
    image: str
    """What both networks segmented."""
    masks: str
    """Digest of the masks, which are the same of both."""
    n_cells: int
    """In these masks; where there is none, their equality proves little."""
    dtype: str
    """In which both computed."""
    peak_memory: int
    """Bytes that the process held at most."""


def write_cellpose_file(weights: Path, file: Path) -> None:
    """Write a network as ``torch.save`` writes it: what Cellpose loads."""
    import torch
    from safetensors.torch import load_file

    tensors = dict(sorted(load_file(weights).items()))
    with file.open("wb") as stream:
        torch.save(tensors, stream)


def written_and_checked(
    child: Child, *, source: ModelSource, weights: Path, file: Path, image: LabelledImage
) -> CellposeCheck:
    """Inside the child: write the file, load it through Cellpose, and compare."""
    with child.prepared() as device:
        write_cellpose_file(weights, file)
        child.tell("done", STEPS[0])
        return check_cellpose_file(
            file,
            source=source,
            weights=weights,
            image=image,
            device=device,
            dtype=child.setup.profile.dtype,
            tell=lambda step: child.tell("done", step),
        )


def check_cellpose_file(
    file: Path,
    *,
    source: ModelSource,
    weights: Path,
    image: LabelledImage,
    device: torch.device,
    dtype: str = "float32",
    tell: Callable[[str], object] = str,
) -> CellposeCheck:
    """Load a file through Cellpose and hold it to the weights that it was made of."""
    from cellrepro.model.inference import evaluator
    from cellrepro.model.network import build

    loaded = loaded_by_cellpose(file, device=device, dtype="float32")
    counts = _refuse_other_tensors(loaded.model.net, weights, file)
    if dtype != "float32":
        del loaded
        gc.collect()
        loaded = loaded_by_cellpose(file, device=device, dtype=dtype)
    tell(STEPS[1])
    of_file = loaded(image.image)
    del loaded
    gc.collect()
    own = evaluator(build(source, seed=0, device=device, dtype=dtype), tile_by_tile=False)
    of_run = own(image.image)
    _refuse_other_masks(of_file, of_run, file, image.name)
    tell(STEPS[2])
    masks = np.asarray(of_file.masks)
    return CellposeCheck(
        n_tensors=counts[0],
        n_parameters=counts[1],
        image=image.name,
        masks=array_digest(masks.astype(np.uint32)),
        n_cells=int(masks.max(initial=0)),
        dtype=dtype,
        peak_memory=peak_memory_of_process(),
    )


def _refuse_other_tensors(network: CellposeNetwork, weights: Path, file: Path) -> tuple[int, int]:
    """Compare every tensor bit by bit; how many there are, and how many numbers in them.

    Cellpose loads with ``strict=False`` (4.2.1.1): what is missing it leaves at random, and what
    is more it drops, both without a word.
    """
    expected = open_weights(weights)
    actual = network.state_dict()
    missing = sorted(actual.keys() - expected.keys())
    more = sorted(expected.keys() - actual.keys())
    if missing or more:
        raise _other_network(file, f"it lacks {some(missing) or 'none'}, and drops {some(more)}")
    wrong = []
    for name, tensor in expected.items():
        held = actual[name].detach().cpu().contiguous().reshape(-1).numpy()
        is_same = (held.dtype.itemsize, tuple(actual[name].shape)) == (
            tensor.read(0, 1).dtype.itemsize,
            tensor.shape,
        )
        bits = held.view(f"<u{held.dtype.itemsize}")
        pieces = range(0, tensor.n, _PIECE)
        if not is_same or not all(
            np.array_equal(tensor.read(start, start + _PIECE), bits[start : start + _PIECE])
            for start in pieces
        ):
            wrong.append(name)
    if wrong:
        raise _other_network(file, f"{that_differ(len(wrong), 'tensor')}: {some(wrong)}")
    return len(expected), sum(tensor.n for tensor in expected.values())


def _refuse_other_masks(a: EvalOutput, b: EvalOutput, file: Path, image: str) -> None:
    for name, of_file, of_run in (
        ("masks", a.masks, b.masks),
        ("flows", a.flows, b.flows),
        ("probabilities", a.probability, b.probability),
    ):
        if of_file.dtype != of_run.dtype or of_file.tobytes() != of_run.tobytes():
            raise _other_network(file, f"the {name} of {image} differ")


def _other_network(file: Path, why: str) -> Damaged:
    return Damaged(
        f"Cellpose makes a different network of {file.name} than that of the run ({why}); the file "
        "was not kept. `cellrepro segment FOLDER --model KEY` uses the network itself"
    )
