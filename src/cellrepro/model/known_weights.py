"""The network in a file of weights, known by the names and shapes of its parameters alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from cellrepro.model.cellpose_generation import generation_of
from cellrepro.model.encoders import ENCODERS
from cellrepro.model.network import parameter_shapes
from cellrepro.model.pretrained import NOT_DRAWN
from samebits.libraries import has_library
from samebits.words import amount

OFFICIAL_NAMES = {
    "e1440429eb384f95afe32bcba6510f90d518eaedc917ede549bed6804004abe2": "cpsam",
    "0f1cc3f7ecdd8a037a57c6c48d9d8921391be4cbce3fa9f13c3e3a2e1253c667": "cpsam_v2",
}
"""Cellpose's own networks by the SHA-256 of their files as published in 2025 and 2026."""
AS_IT_IS = "itself"
"""As what a network is loaded that Cellpose takes as it is."""
_SHIPPED = "vit-l"
"""The encoder of Cellpose's own networks."""
_PATCHES = "encoder.patch_embed.proj.weight"
_NEEDS_CELLPOSE_3 = (
    "Cellpose 4 refuses networks of Cellpose 2 and 3; segment with the version that made it: "
    "cellrepro segment FOLDER --model FILE --cellpose 3.1.1.2"
)
_NEEDS_CELLPOSE_4 = "Cellpose 3 refuses networks of Cellpose 4; run it in Cellpose 4"


@dataclass(frozen=True)
class Recognised:
    """A network, and how the installed Cellpose loads it."""

    generation: str | None
    """Generation of Cellpose, in words; None if the network is none of Cellpose's."""
    network: str | None
    """The kind of network and its encoder."""
    loads_as: str | None
    """``itself``, or what else Cellpose makes of it; None where it does not load."""
    note: str = ""
    """Why it does not load, or what is lost when it does."""


def _refused(generation: str | None, network: str | None, why: str) -> Recognised:
    return Recognised(generation, network, loads_as=None, note=why)


@dataclass(frozen=True)
class _Weights:
    """The header of a weights file."""

    shapes: Mapping[str, tuple[int, ...]]
    """Shapes by the names of the parameters."""
    saved_by_torch: bool
    """Whether ``torch.save`` wrote it, and not safetensors."""

    @property
    def patch_shape(self) -> tuple[int, ...]:
        """Shape of the patch embedding's weights: (numbers in a token, channels, Y, X)."""
        return self.shapes.get(_PATCHES, (0,))

    def has_prefix(self, prefix: str) -> bool:
        """Whether a parameter's name begins with a prefix."""
        return any(name.startswith(prefix) for name in self.shapes)

    def loaded(self, generation: str, network: str, note: str = "") -> Recognised:
        """A network that loads as itself where Cellpose can read the file."""
        if not self.saved_by_torch:
            why = "Cellpose reads what torch.save wrote; cellrepro loads this one"
            return _refused(generation, network, why)
        return Recognised(generation, network, AS_IT_IS, note)


def recognise(shapes: Mapping[str, tuple[int, ...]], *, saved_by_torch: bool) -> Recognised:
    """The network that parameters belong to: what the first rule says that fits them.

    >>> recognise({"downsample.down.0.weight": (32, 2, 3, 3)}, saved_by_torch=True).generation
    '2 or 3'
    """
    weights = _Weights(shapes, saved_by_torch)
    answers = (rule(weights) for rule in _RULES)
    return next(answer for answer in answers if answer is not None)


def _cpnet(weights: _Weights) -> Recognised | None:
    """The convolutional network of Cellpose 2 and 3."""
    if not weights.has_prefix("downsample."):
        return None
    if _is_cellpose_3():
        return weights.loaded("2 or 3", "CPnet")
    return _refused("2 or 3", "CPnet", _NEEDS_CELLPOSE_3)


def _older_transformer(weights: _Weights) -> Recognised | None:
    """The transformer that Cellpose 3 had beside it."""
    if "diam_mean" not in weights.shapes or not weights.has_prefix("net.encoder."):
        return None
    why = _NEEDS_CELLPOSE_3
    if _is_cellpose_3():
        why = (
            'Cellpose 3 takes it with backbone="transformer" alone, and the lab asks for its usual '
            "network"
        )
    return _refused("3", "transformer", why)


def _newer_than_installed(weights: _Weights) -> Recognised | None:
    """A network of Cellpose 4, where Cellpose 3 is installed."""
    if not _is_cellpose_3() or _other_program(weights) is not None:
        return None
    if "encoder.cls_token" in weights.shapes:
        return _refused("4 (DINO)", "CPDINO", _NEEDS_CELLPOSE_4)
    return _refused("4 (SAM)", _sam_name(weights), _NEEDS_CELLPOSE_4)


def _is_cellpose_3() -> bool:
    """Whether the installed Cellpose lacks the classes of Cellpose 4."""
    return not generation_of().builds_own_networks


def _dino(weights: _Weights) -> Recognised | None:
    """Cellpose 4 around an encoder of DINO's, which needs a package of its own."""
    if "encoder.cls_token" not in weights.shapes:
        return None
    encoder = {1024: "ViT-L", 768: "ViT-B"}.get(weights.patch_shape[0])
    network = f"CPDINO ({encoder or 'unknown encoder'})"
    if encoder is None or not find_spec("dinov3"):
        why = "Cellpose needs the package dinov3 for it, and one of the encoders ViT-L, ViT-B"
        return _refused("4 (DINO)", network, why)
    return weights.loaded("4 (DINO)", network)


def _other_program(weights: _Weights) -> Recognised | None:
    """A file without the head of Cellpose 4 or without a patch embedding."""
    if "W2" in weights.shapes and len(weights.patch_shape) == 4:
        return None
    return _refused(None, None, "no network of Cellpose 2, 3 or 4")


def _sam_without_cellpose(weights: _Weights) -> Recognised | None:
    """A network of Cellpose 4 where no Cellpose is installed that could load it."""
    if has_library("torch") and has_library("cellpose"):
        return None
    why = "no Cellpose is installed here, so nothing is said of how it loads the file"
    return _refused("4 (SAM)", _sam_name(weights), why)


def _sam_of_another_size(weights: _Weights) -> Recognised | None:
    """Cellpose 4 around an encoder of SAM's that is not the one it ships."""
    expected = parameter_shapes(_SHIPPED)
    others = [
        name
        for name, shape in weights.shapes.items()
        if name in expected and shape != expected[name]
    ]
    if not others:
        return None
    first = others[0]
    why = (
        f"Cellpose builds networks as large as its own ({_SHIPPED}) only, and this one is of "
        f"another size ({first} has the shape {weights.shapes[first]}, there {expected[first]}); "
        "to use it: cellrepro segment FOLDER --model FILE"
    )
    return _refused("4 (SAM)", _sam_name(weights), why)


def _incomplete_sam(weights: _Weights) -> Recognised | None:
    """Cellpose's own network without some of its parameters, in a file that Cellpose reads."""
    missing = parameter_shapes(_SHIPPED).keys() - weights.shapes.keys() - NOT_DRAWN
    if missing and weights.saved_by_torch:
        why = f"{amount(len(missing), 'parameter')} missing, which Cellpose draws at random"
        return Recognised("4 (SAM)", _sam_name(weights), "a partly random network", why)
    return None


def _sam(weights: _Weights) -> Recognised:
    """Cellpose's own network, perhaps with parameters that it does not know."""
    expected = parameter_shapes(_SHIPPED)
    ignored = [name for name in weights.shapes if name not in expected]
    note = ""
    if ignored:
        note = f"Cellpose ignores {amount(len(ignored), 'parameter')}, {ignored[0]} first"
    return weights.loaded("4 (SAM)", _sam_name(weights), note)


def _sam_name(weights: _Weights) -> str:
    """``CPSAM`` and the name of its encoder, by the encoder's sizes."""
    width, *_, patch = weights.patch_shape
    blocks = {name.split(".")[2] for name in weights.shapes if name.startswith("encoder.blocks.")}
    for name, encoder in ENCODERS.items():
        if (encoder.width, encoder.depth, encoder.patch) == (width, len(blocks), patch):
            return f"CPSAM ({name})"
    return "CPSAM (unknown encoder)"


_RULES: tuple[Callable[[_Weights], Recognised | None], ...] = (
    _cpnet,
    _older_transformer,
    _newer_than_installed,
    _dino,
    _other_program,
    _sam_without_cellpose,
    _sam_of_another_size,
    _incomplete_sam,
    _sam,
)
"""Rules in order of precedence; the last fits every network."""
