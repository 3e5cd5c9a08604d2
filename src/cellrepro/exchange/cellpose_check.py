"""Whether Cellpose loads from a file the network that was written into it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.comparison.weight_reading import open_weights
from cellrepro.comparison.weight_tensors import Tensor
from cellrepro.errors import Damaged
from cellrepro.images.folder import LabelledImage
from cellrepro.model.evaluator import loaded_by_cellpose
from cellrepro.store.peak_memory import peak_memory_of_process
from cellrepro.words import that_differ
from samebits.digests import array_digest
from samebits.words import some

if TYPE_CHECKING:
    import torch

    from cellrepro.model.encoders import CellposeNetwork
    from cellrepro.model.evaluator import EvalOutput
    from cellrepro.model.weight_sources import ModelSource
    from cellrepro.process.child import Child

STEPS = ("written", "loaded back", "segmented with both")
_N_AT_ONCE = 2**22  # parameters that are compared at a time


@dataclass(frozen=True)
class CellposeCheck:
    """The outcome of loading a file back through Cellpose."""

    n_tensors: int
    """Tensors of the network: each has the bits of the run's; none is missing, none was added."""
    n_parameters: int
    """Numbers in these tensors."""
    image: str
    """The image that both networks segmented."""
    masks: str
    """Digest of the masks, which are equal."""
    n_cells: int
    """Cells in these masks; without one their equality proves little."""
    dtype: str
    """Precision of the computation."""
    peak_memory: int
    """Peak memory of the process in bytes."""


def write_torch_file(weights: Path, file: Path) -> None:
    """Write a safetensors file as a state dict of PyTorch; the same weights give the same bytes."""
    import torch
    from safetensors.torch import load_file

    tensors = dict(sorted(load_file(weights).items()))
    with file.open("wb") as stream:  # given a path, torch.save (2.15) writes its name into the file
        torch.save(tensors, stream)


def written_and_checked(
    child: Child, *, source: ModelSource, weights: Path, file: Path, image: LabelledImage
) -> CellposeCheck:
    """Runs in a child process: write the file, load it through Cellpose, and compare."""
    with child.prepared() as device:
        write_torch_file(weights, file)
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
    """Load a file through Cellpose, and compare tensors and masks with the weights of the run."""
    from cellrepro.model.evaluator import evaluator
    from cellrepro.model.network import build

    loaded = loaded_by_cellpose(file, device=device, dtype="float32")
    tensors = open_weights(weights)
    _refuse_other_tensors(loaded.model.net, tensors, file)
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
        n_tensors=len(tensors),
        n_parameters=sum(tensor.n for tensor in tensors.values()),
        image=image.name,
        masks=array_digest(masks.astype(np.uint32)),
        n_cells=int(masks.max(initial=0)),
        dtype=dtype,
        peak_memory=peak_memory_of_process(),
    )


def _refuse_other_tensors(
    network: CellposeNetwork, expected: Mapping[str, Tensor], file: Path
) -> None:
    """Compare every tensor bit by bit.

    Cellpose 4.2.1.1 loads with ``strict=False``: it silently leaves missing tensors at random
    values and drops unknown ones.
    """
    actual = network.state_dict()
    missing = sorted(actual.keys() - expected.keys())
    more = sorted(expected.keys() - actual.keys())
    what = []
    if missing:
        what.append(f"the run's lacks {some(missing)}")
    if more:
        what.append(f"Cellpose's lacks {some(more)}")
    if what:
        raise _other_network(file, ", and ".join(what))
    wrong = [name for name, tensor in expected.items() if not _holds(actual[name], tensor)]
    if wrong:
        raise _other_network(file, f"{that_differ(len(wrong), 'tensor')}: {some(wrong)}")


def _holds(actual: torch.Tensor, expected: Tensor) -> bool:
    """Whether a tensor of a network has the shape, the precision and the bits of one in a file."""
    numbers = actual.detach().cpu().contiguous().reshape(-1).numpy()
    n_bytes = numbers.dtype.itemsize
    if (n_bytes, tuple(actual.shape)) != (expected.read(0, 1).dtype.itemsize, expected.shape):
        return False
    bits = numbers.view(f"<u{n_bytes}")
    return all(
        np.array_equal(expected.read(start, start + _N_AT_ONCE), bits[start : start + _N_AT_ONCE])
        for start in range(0, expected.n, _N_AT_ONCE)
    )


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
