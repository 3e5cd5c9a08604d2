"""Cellpose's network: small ones that train on any laptop, its own size, and any pretrained one.

``tiny`` is Cellpose's own ``CPSAM`` class around a small encoder of SAM's own class, so that every
operation is the real one. NumPy draws its initial weights: the same bytes on every machine, which
PyTorch's own are not (they depend on the vector instructions, torch 2.15).
"""

from __future__ import annotations

import functools
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cellrepro.bits.digests import file_digest
from cellrepro.determinism.generator_states import generators_kept
from cellrepro.determinism.seeds import check_seed
from cellrepro.errors import BadInput
from cellrepro.model.initial_weights import draw_weights
from cellrepro.model.pretrained import load_pretrained
from cellrepro.store.unchanged import digest_once

if TYPE_CHECKING:
    import torch

    from cellrepro.store.store import Repeat, Store

CellposeNetwork: TypeAlias = Any
"""A ``cellpose.vit.CPSAM``, a `torch.nn.Module` with a device and a dtype; Cellpose has no types.
"""

TINY = "tiny"
CELLPOSE_NAMES = ("cpsam_v2", "cpsam")
"""Pretrained networks of Cellpose 4.2 that need nothing beyond Cellpose. Its DINO networks
(``cpdino``, ``cpdino-vitb``) need a package that is not on PyPI."""


@dataclass(frozen=True)
class Encoder:
    """Sizes of an image encoder of SAM's class.

    Attributes
    ----------
    width : int
        Numbers in a token.
    depth : int
        Blocks.
    heads : int
        Of attention.
    mlp_ratio : float
        Hidden width of a block's perceptron, in widths.
    global_blocks : tuple of int
        The blocks whose tables of relative positions have 127 rows; the others' have 27, as their
        attention was windowed before Cellpose made every block global.
    patch : int
        Pixels along a token's edge.
    learning_rate : float
        Where nobody asks for another: small networks start from noise, Cellpose fine-tunes.
    is_small : bool
        Whether it learns from noise on any laptop.
    """

    width: int
    depth: int
    heads: int
    mlp_ratio: float
    global_blocks: tuple[int, ...]
    patch: int
    learning_rate: float = 1e-5
    is_small: bool = False


def _small(depth: int) -> Encoder:
    """`tiny` and its deeper relatives."""
    return Encoder(
        width=192,
        depth=depth,
        heads=1,
        mlp_ratio=2.0,
        global_blocks=(depth - 1,),
        patch=16,  # 8, Cellpose's own, makes four times the tokens, for no better masks here
        learning_rate=1e-3,
        is_small=True,
    )


ENCODERS = {
    TINY: _small(depth=2),
    "tiny-4": _small(depth=4),
    "tiny-8": _small(depth=8),
    "tiny-12": _small(depth=12),
    # As segment-anything 1.0 builds them (build_sam.py); Cellpose's own network is the second.
    "vit-b": Encoder(
        width=768,
        depth=12,
        heads=12,
        mlp_ratio=4.0,
        global_blocks=(2, 5, 8, 11),
        patch=8,
    ),
    "vit-l": Encoder(
        width=1024,
        depth=24,
        heads=16,
        mlp_ratio=4.0,
        global_blocks=(5, 11, 17, 23),
        patch=8,
    ),
}
"""The encoders that `seeded_network` builds, by name; the number is that of blocks."""

PRETRAINED = "cellpose"
"""The architecture of what Cellpose loads by itself."""

ARCHITECTURES = frozenset({*ENCODERS, PRETRAINED})
"""What a file of weights may say that it is for."""

SMALL = frozenset(name for name, encoder in ENCODERS.items() if encoder.is_small)
"""Those that learn from noise on any laptop."""

LEARNING_RATES = {name: encoder.learning_rate for name, encoder in ENCODERS.items()}
LEARNING_RATES[PRETRAINED] = 1e-5
"""Default learning rates, by architecture."""

SMALL_DRAWS_PER_EPOCH = 48
"""Default draws per epoch for those: twelve epochs of `tiny` over a dozen images find cells."""


@dataclass(frozen=True)
class ModelSource:
    """Where a network's weights come from.

    Attributes
    ----------
    label : str
        As it stands in the spec.
    architecture : str
        One of `ARCHITECTURES`.
    path : Path or None
        The file; none for weights from the seed and for Cellpose's names.
    digest : str or None
        SHA-256 of that file.
    """

    label: str
    architecture: str
    path: Path | None = None
    digest: str | None = None

    @property
    def untrained(self) -> bool:
        """Its weights come from the seed."""
        return self.path is None and self.architecture in ENCODERS


def find_model(reference: str, store: Store) -> ModelSource:
    """Find what a model reference means; PyTorch is not imported.

    Parameters
    ----------
    reference : str
        A name of `ENCODERS` or of `CELLPOSE_NAMES`, the path of a weights file, or ``KEY`` or
        ``KEY/REPEAT`` of a run.
    store : Store
        Where runs are looked up.

    Raises
    ------
    BadInput
        If it means none of these, or a run without weights, or a file that is not whole.
    """
    if reference in ENCODERS:
        return ModelSource(reference, reference)
    if reference in CELLPOSE_NAMES:
        return ModelSource(reference, PRETRAINED)
    path = Path(reference)
    if path.is_file():
        return ModelSource(path.name, _architecture(path), path, file_digest(path))
    try:
        repeat = store.find(reference)
    except BadInput as error:
        names = ", ".join(map(repr, (*ENCODERS, *CELLPOSE_NAMES)))
        raise BadInput(
            f"unknown model {reference!r}; expected {names}, the path of a weights file, or "
            f"KEY/REPEAT of a run in the store {store.root}"
        ) from error
    if repeat.weights is None:
        raise BadInput(f"run {repeat.name} only segmented; it holds no weights to start from")
    return ModelSource(
        label=repeat.name,
        architecture=_architecture(repeat.weights),
        path=repeat.weights,
        digest=digest_once(repeat.weights),
    )


def _architecture(path: Path) -> str:
    """Whose network a weights file is for, by its header."""
    if zipfile.is_zipfile(path):
        return PRETRAINED  # torch.save's format, Cellpose's own
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            described = (file.metadata() or {}).get("cellrepro", '{"architecture": "cellpose"}')
            architecture = json.loads(described)["architecture"]
            if architecture not in ARCHITECTURES:
                raise ValueError(f"its architecture {architecture!r} is unknown")
            return architecture
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path} is not a whole weights file ({error}); expected a file saved by Cellpose or "
            "by cellrepro; copy it again, it may be truncated"
        ) from error


def import_cellpose() -> None:
    """Import Cellpose: its network module changes a switch (TF32), so before a mode is set."""
    import cellpose.models  # noqa: F401


def started_from(repeat: Repeat, store: Store) -> ModelSource:
    """Find the weights that a run started from: by their name, or where they were.

    Parameters
    ----------
    repeat : Repeat
        The run.
    store : Store
        Where it lies.

    Raises
    ------
    BadInput
        If they are no longer there as they were.
    """
    spec = repeat.spec
    for reference in filter(None, (spec.model, repeat.manifest.model.path)):
        with suppress(BadInput):
            source = find_model(reference, store)
            if source.digest == spec.model_digest:
                return replace(source, label=spec.model)
    raise BadInput(
        f"the model {spec.model} that {spec.key} started from is not to be found as it was; put "
        "the file back"
    )


def build(
    source: ModelSource, *, seed: int | None, device: torch.device, dtype: str
) -> CellposeNetwork:
    """Build Cellpose's ``CPSAM`` with its weights; no generator of the process is moved.

    Parameters
    ----------
    source : ModelSource
        Where the weights come from.
    seed : int or None
        Draws them where there are none to load.
    device : torch.device
        Where the network is put.
    dtype : str
        In which it computes: ``float32`` or ``bfloat16``.

    Raises
    ------
    BadInput
        If the weights do not fit, are not whole, or have a name that this Cellpose does not know.
    NotPossibleHere
        If they would have to be downloaded, and cannot be.
    """
    import torch

    with generators_kept():
        if source.architecture in ENCODERS:
            network = seeded_network(source.architecture, seed=seed)
            if source.path is not None:
                _load_into(network, source.path, source.architecture)
        else:
            network = load_pretrained(source)
        network.to(device)
        network.dtype = getattr(torch, dtype)
    return network


def seeded_network(
    encoder: str, *, seed: int | None, device: torch.device | str = "cpu"
) -> CellposeNetwork:
    """Build Cellpose's ``CPSAM`` in float32, with weights that a seed draws.

    Parameters
    ----------
    encoder : str
        A name of `ENCODERS`.
    seed : int or None
        Draws the same bytes on every machine; without one they are others every time.
    device : torch.device or str
        Where the network is put.
    """
    if seed is not None:
        check_seed(seed)
    sizes = ENCODERS[encoder]
    with generators_kept():
        with encoder_in_place(sizes):
            network = _network_class()(ps=sizes.patch)
        draw_weights(network, np.random.default_rng(seed), sizes)
    return network.to(device)


@functools.cache
def parameter_shapes(encoder: str) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter around one of `ENCODERS`, by name; without numbers."""
    import torch

    sizes = ENCODERS[encoder]
    with generators_kept(), torch.device("meta"), encoder_in_place(sizes):
        parameters = _network_class()(ps=sizes.patch).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in parameters.items()}


def _network_class() -> Any:
    """Cellpose's ``CPSAM``; before 4.2 it is a ``Transformer`` of another module."""
    try:
        from cellpose.vit import CPSAM
    except ImportError:
        from cellpose.vit_sam import Transformer

        return Transformer
    return CPSAM


@contextmanager
def encoder_in_place(sizes: Encoder) -> Iterator[None]:
    """Let ``CPSAM()`` find an encoder of these sizes where it looks SAM's ViT-L up."""
    import torch
    from segment_anything import sam_model_registry
    from segment_anything.modeling import ImageEncoderViT

    def build_encoder(checkpoint: None = None) -> SimpleNamespace:
        encoder = ImageEncoderViT(
            norm_layer=functools.partial(torch.nn.LayerNorm, eps=1e-6),
            use_rel_pos=True,
            window_size=14,
            global_attn_indexes=sizes.global_blocks,
            embed_dim=sizes.width,
            depth=sizes.depth,
            num_heads=sizes.heads,
            mlp_ratio=sizes.mlp_ratio,
        )
        return SimpleNamespace(image_encoder=encoder)

    builder = sam_model_registry["vit_l"]
    sam_model_registry["vit_l"] = build_encoder
    try:
        yield
    finally:
        sam_model_registry["vit_l"] = builder


def _load_into(network: CellposeNetwork, path: Path, encoder: str) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        network.load_state_dict(load_file(path), strict=True)
    except (SafetensorError, RuntimeError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise BadInput(f"{path} does not fit the network {encoder!r}: {first_line}") from error


def save_weights(network: CellposeNetwork, path: Path, *, architecture: str) -> str:
    """Write every parameter as float32 safetensors, so that equal parameters give equal files.

    Parameters
    ----------
    network : CellposeNetwork
        Whose parameters and buffers are written, without their device.
    path : Path
        The file.
    architecture : str
        One of `ARCHITECTURES`, written into the file.

    Returns
    -------
    str
        SHA-256 of the file.
    """
    import torch
    from safetensors.torch import save_file

    tensors = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in sorted(network.state_dict().items())
    }
    save_file(tensors, path, metadata={"cellrepro": json.dumps({"architecture": architecture})})
    return file_digest(path)
