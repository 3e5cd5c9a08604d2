"""Cellpose's network: small ones that train on any laptop, its own size, and any pretrained one.

``tiny`` is Cellpose's own ``CPSAM`` class around a small encoder of SAM's own class, so that every
operation is the real one. NumPy draws its initial weights: the same bytes on every machine, which
PyTorch's own are not (they depend on the vector instructions, torch 2.15).
"""

from __future__ import annotations

import functools
import http.client
import inspect
import json
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cellrepro.bits.digests import file_digest
from cellrepro.determinism.seeds import check_seed, generators_kept
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.store.unchanged import digest_once
from cellrepro.words import some

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
    """Sizes of an image encoder of SAM's class."""

    width: int  # numbers in a token
    depth: int  # blocks
    heads: int
    mlp_ratio: float  # hidden width of a block's perceptron, in widths
    # The blocks whose tables of relative positions have 127 rows; the others' have 27, as their
    # attention was windowed before Cellpose made every block global.
    global_blocks: tuple[int, ...]
    patch: int  # pixels along a token's edge


ENCODERS = {
    # A patch of 8, Cellpose's own, makes four times the tokens, for no better masks here.
    TINY: Encoder(192, 2, 1, 2.0, (1,), patch=16),
    **{f"tiny-{n}": Encoder(192, n, 1, 2.0, (n - 1,), patch=16) for n in (4, 8, 12)},
    # As segment-anything 1.0 builds them (build_sam.py); Cellpose's own network is the second.
    "vit-b": Encoder(768, 12, 12, 4.0, (2, 5, 8, 11), patch=8),
    "vit-l": Encoder(1024, 24, 16, 4.0, (5, 11, 17, 23), patch=8),
}
"""The encoders that `seeded_network` builds, by name; the number is that of blocks."""

SMALL = frozenset(name for name in ENCODERS if name.startswith(TINY))
"""Those that learn from noise on any laptop."""

LEARNING_RATES = {name: 1e-3 if name in SMALL else 1e-5 for name in (*ENCODERS, "cellpose")}
"""Default learning rates: small networks start from noise, Cellpose fine-tunes with 1e-5."""

SMALL_DRAWS_PER_EPOCH = 48
"""Default draws per epoch for those: twelve epochs of `tiny` over a dozen images find cells."""


@dataclass(frozen=True)
class ModelSource:
    """Where a network's weights come from."""

    label: str  # as it stands in the spec
    architecture: str  # a name of `ENCODERS`, or ``cellpose``
    path: Path | None = None  # none for weights from the seed and for Cellpose's names
    digest: str | None = None  # SHA-256 of that file

    @property
    def untrained(self) -> bool:
        """Its weights come from the seed."""
        return self.path is None and self.architecture in ENCODERS


def find_model(reference: str, store: Store) -> ModelSource:
    """What a model reference means: an encoder's name, one of Cellpose's, a weights file, ``KEY``
    or ``KEY/REPEAT``. PyTorch is not imported."""
    if reference in ENCODERS:
        return ModelSource(reference, reference)
    if reference in CELLPOSE_NAMES:
        return ModelSource(reference, "cellpose")
    if (path := Path(reference)).is_file():
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
    path = repeat.weights
    return ModelSource(repeat.name, _architecture(path), path, digest_once(path))


def _architecture(path: Path) -> str:
    """Whose network a weights file is for, by its header."""
    if zipfile.is_zipfile(path):
        return "cellpose"  # torch.save's format, Cellpose's own
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            described = (file.metadata() or {}).get("cellrepro", '{"architecture": "cellpose"}')
            architecture = json.loads(described)["architecture"]
            if architecture not in LEARNING_RATES:
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
    """The weights that a run started from: by their name, or where they were."""
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


def build(source: ModelSource, *, seed: int | None, device: torch.device, dtype: str) -> Any:
    """Cellpose's ``CPSAM`` with its weights, drawn from the seed where there are none to load; no
    generator of the process is moved."""
    import torch

    with generators_kept():
        if source.architecture in ENCODERS:
            network = seeded_network(source.architecture, seed=seed)
            if source.path is not None:
                _load_into(network, source.path, source.architecture)
        else:
            network = _pretrained(source)
        network.to(device)
        network.dtype = getattr(torch, dtype)
    return network


def seeded_network(encoder: str, *, seed: int | None, device: torch.device | str = "cpu") -> Any:
    """Cellpose's ``CPSAM`` in float32 around one of `ENCODERS`, with weights that a seed draws, the
    same bytes on every machine; without one they are others every time."""
    if seed is not None:
        check_seed(seed)
    sizes = ENCODERS[encoder]
    with generators_kept():
        with encoder_in_place(sizes):
            network = _network_class()(ps=sizes.patch)
        _draw_weights(network, np.random.default_rng(seed), sizes)
    return network.to(device)


@functools.cache
def parameter_shapes(encoder: str) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter around one of `ENCODERS`, by name; without numbers."""
    import torch

    sizes = ENCODERS[encoder]
    with generators_kept(), torch.device("meta"), encoder_in_place(sizes):
        held = _network_class()(ps=sizes.patch).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in held.items()}


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


def _draw_weights(network: Any, generator: np.random.Generator, sizes: Encoder) -> None:
    """Initialise like PyTorch, uniform in ±1/sqrt(fan-in), but with the same bytes everywhere."""
    import torch

    # Half the memory and time for 300 million numbers; tiny's draws are pinned in float64.
    dtype = np.float64 if sizes.width == ENCODERS[TINY].width else np.float32
    for module in network.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
            fan_in = dtype(np.sqrt(module.weight[0].numel()))
            for parameter in module.parameters(recurse=False):
                drawn = (2 * generator.random(tuple(parameter.shape), dtype) - 1) / fan_in
                parameter.data = torch.from_numpy(drawn.astype(np.float32, copy=False))
    if sizes.patch**2 < sizes.width:
        return  # fewer patterns than numbers in a token: its patches stay as drawn
    # CPSAM.forward reads the patch embedding's data, so it is never trained (4.2.1.1): noise
    # would stay noise. An orthogonal basis keeps what is in the patch.
    patch = network.encoder.patch_embed.proj
    patch.weight.data = torch.from_numpy(_walsh_patches(sizes.width, sizes.patch))
    patch.bias.data.zero_()


def _walsh_patches(n_patterns: int, size: int) -> np.ndarray:
    """Walsh functions of a patch, the smoothest first: exact in binary, so equal everywhere. The
    same for each of Cellpose's three channels, of which grey images fill one."""
    from scipy.linalg import hadamard

    rows = hadamard(size)
    by_sequency = rows[np.argsort((np.diff(rows, axis=1) != 0).sum(axis=1))]
    order = sorted(((i, j) for i in range(size) for j in range(size)), key=lambda ij: (sum(ij), ij))
    # Weighted by sequency, as a whitening filter: images hold most power in smooth patterns, and
    # the layer norm behind the embedding would drown texture in brightness.
    patterns = np.stack(
        [(1 + i + j) * np.outer(by_sequency[i], by_sequency[j]) for i, j in order[:n_patterns]]
    )
    return np.repeat(patterns[:, None], 3, axis=1).astype(np.float32) / (2 * size)


def _load_into(network: Any, path: Path, encoder: str) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        network.load_state_dict(load_file(path), strict=True)
    except (SafetensorError, RuntimeError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise BadInput(f"{path} does not fit the network {encoder!r}: {first_line}") from error


def _pretrained(source: ModelSource) -> Any:
    """Load through Cellpose, which downloads its named networks on first use."""
    import torch
    from cellpose import models
    from safetensors.torch import load_file

    path, wanted = source.path, str(source.path or source.label)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            if path is not None and not zipfile.is_zipfile(path):  # into the format Cellpose reads
                path = Path(scratch, "weights.pth")
                torch.save(load_file(wanted), path)
            if path is None and wanted not in models.MODEL_NAMES:  # it would take another one
                raise BadInput(
                    f"this Cellpose knows no model {wanted!r}; expected {some(models.MODEL_NAMES)}"
                )
            options: dict[str, Any] = {"device": torch.device("cpu")}
            if "use_bfloat16" in inspect.signature(models.CellposeModel).parameters:
                options["use_bfloat16"] = False
            model = models.CellposeModel(pretrained_model=str(path or wanted), **options)
            if not options.keys() & {"use_bfloat16"}:  # Cellpose 3: another network, another `eval`
                model.net.loaded_by = model
            _refuse_incomplete(model.net, model.pretrained_model, wanted)
    except BadInput:
        raise
    except Exception as error:  # what unpickling another file ends in can be nearly any
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        if source.path is None and isinstance(error, OSError | http.client.HTTPException):
            raise NotPossibleHere(
                f"the weights of {wanted!r} are not on this machine and cannot be downloaded "
                f"({reason}); download them elsewhere and put them into Cellpose's folder of "
                "models, or name the file"
            ) from error
        cached = models.MODEL_DIR / source.label
        remedy = f"; remove {cached} to have it downloaded again" if source.path is None else ""
        raise BadInput(
            f"Cellpose cannot load {wanted!r}: {reason}; expected weights of a Cellpose 4 "
            f"network, whole{remedy}"
        ) from error
    return model.net


def _refuse_incomplete(network: Any, path: str, wanted: str) -> None:
    """Refuse weights that lack a parameter: Cellpose leaves it at random (4.2.1.1, ``vit.py``)."""
    import torch

    held = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    names = {name.removeprefix("module.") for name in held}
    fixed = {"diam_labels", "diam_mean"}  # not drawn; training sets the first
    missing = [name for name in network.state_dict() if name not in names | fixed]
    if missing:
        raise BadInput(
            f"{wanted!r} lacks {len(missing)} parameters of Cellpose's network, among them "
            f"{missing[0]}, which Cellpose would fill with random numbers; expected weights of a "
            "Cellpose 4 network, whole"
        )


def save_weights(network: Any, path: Path, *, architecture: str) -> str:
    """Write every parameter as float32 safetensors and return the file's SHA-256: no device and no
    time is in it, so that equal parameters give equal files."""
    import torch
    from safetensors.torch import save_file

    tensors = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in sorted(network.state_dict().items())
    }
    save_file(tensors, path, metadata={"cellrepro": json.dumps({"architecture": architecture})})
    return file_digest(path)
