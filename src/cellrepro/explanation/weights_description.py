"""Describe a file of weights, a checkpoint, or another file of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.comparison.file_content import PARTS, FileContent
from cellrepro.comparison.generator_reading import GeneratorState
from cellrepro.comparison.state_comparison import plain_text, shown
from cellrepro.comparison.weight_reading import open_file
from cellrepro.comparison.weight_tensors import Tensor, pieces, values
from cellrepro.explanation.description import Description
from cellrepro.model.known_weights import OFFICIAL_NAMES, recognise
from cellrepro.store import checkpoints
from cellrepro.torch_files import is_saved_by_torch
from samebits.digests import file_digest
from samebits.shown_text import short
from samebits.words import amount, grouped, joined, some

_PARAMETERS_AT_A_TIME = 2**18
_MOST_NAMES = 4


def described_weights(path: Path) -> Description:
    """Describe a file of tensors: a network, a checkpoint with one, or one without a network."""
    content = open_file(path)
    beside_network = dict(_beside_network(content))
    if not content.network:
        return Description(
            "tensors", digest=_digest_of(path), details=beside_network, note=content.why_no_network
        )
    tensors = content.network
    saved_by_torch = is_saved_by_torch(path)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    network = recognise(shapes, saved_by_torch=saved_by_torch)
    details: dict[str, Any] = {
        "format": "PyTorch" if saved_by_torch else "safetensors",
        "network": network.network,
        **_diameters(tensors),
    }
    under = content.under
    if under:
        details |= {"found_under": under, **beside_network}
    loads_as = network.loads_as
    note = network.note
    obstacle = _obstacle(tensors.values(), under, loads_as)
    if obstacle is not None:
        loads_as = None
        note = obstacle
    note = "; ".join(filter(None, (_not_finite(tensors.values()), note)))
    digest = _digest_of(path)
    return Description(
        "weights",
        generation=network.generation,
        dtype=", ".join(sorted({tensor.dtype for tensor in tensors.values()})),
        n_parameters=sum(tensor.n for tensor in tensors.values()),
        digest=digest,
        loads_as=loads_as,
        official_name=OFFICIAL_NAMES.get(digest),
        details=details,
        note=note,
    )


def _diameters(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The mean diameters that a network carries: of its training cells, and its own."""
    diameters = {}
    for name, of in (("diam_labels", "training_cells"), ("diam_mean", "network")):
        tensor = tensors.get(name)
        if tensor is not None and tensor.n == 1:
            (diameter,) = values(tensor.read(0, 1), tensor.dtype).tolist()
            diameters[f"mean_diameter_of_the_{of}"] = f"{diameter:g} pixels ({name})"
    return diameters


def _not_finite(tensors: Iterable[Tensor]) -> str:
    """Say how many parameters are NaN or infinite; empty where none is."""
    n_all = n_nan = n_infinite = 0
    for tensor in tensors:
        n_all += tensor.n
        if not tensor.is_real:
            continue
        for (bits,) in pieces([tensor], _PARAMETERS_AT_A_TIME):
            numbers = values(bits, tensor.dtype)
            n_nan += int(np.count_nonzero(np.isnan(numbers)))
            n_infinite += int(np.count_nonzero(np.isinf(numbers)))
    parts = [f"{grouped(n)} {what}" for n, what in ((n_nan, "NaN"), (n_infinite, "infinite")) if n]
    if not parts:
        return ""
    return (
        f"of {amount(n_all, 'parameter')} {joined(parts)}: its training has diverged, and "
        "it finds nothing that means anything; train with a lower learning rate"
    )


def _digest_of(path: Path) -> str:
    """SHA-256 of a file; for a checkpoint of the lab, of the tensors in it."""
    return file_digest(path / checkpoints.STATE if path.is_dir() else path)


def _obstacle(tensors: Iterable[Tensor], under: str, loads_as: str | None) -> str | None:
    """Say why Cellpose refuses a file whose network it would load; None where it takes it."""
    if under:
        return (
            f"a checkpoint of a training, with its network under {under!r}; Cellpose takes a "
            "network by itself: save what is under that key with torch.save"
        )
    if loads_as and any(tensor.stored_as.startswith("module.") for tensor in tensors):
        return (
            "its names begin with `module.`; Cellpose 4.2.1.1 looks for W2 before it takes that "
            "off, and refuses the file; save it again under the names without it"
        )
    return None


# -- beside the network ----------------------------------------------------------------------


def _beside_network(content: FileContent) -> Iterator[tuple[str, str]]:
    """Say what lies beside the network of a checkpoint."""
    for part in PARTS:
        clauses = []
        tensors = content.tensors.get(part, {})
        if tensors:
            n = sum(tensor.n for tensor in tensors.values())
            kinds = dict.fromkeys(name.rpartition(".")[2] for name in tensors)
            names = some([short(kind) for kind in kinds], _MOST_NAMES)
            clauses.append(f"{amount(len(tensors), 'tensor')} ({names}), {amount(n, 'number')}")
        values = content.values.get(part, {})
        if values:
            texts = [f"{short(name)} {plain_text(shown(value))}" for name, value in values.items()]
            clauses.append(some(texts, _MOST_NAMES))
        if clauses:
            yield part, "; ".join(clauses)
    if content.generators:
        states = [_generator_in_words(state) for state in content.generators.values()]
        yield "generators", some(states, 2 * _MOST_NAMES)


def _generator_in_words(state: GeneratorState) -> str:
    """A generator, with its seed where that shows, and whether anything was drawn since."""
    seed = "" if state.seed is None else f"seed {state.seed}"
    detail = state.freshness or seed
    return f"{state.kind} ({detail})" if detail else state.kind
