"""Whose network a file of weights holds, by the names and shapes in it, and what Cellpose makes of
it. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from cellrepro.model.network import ENCODERS, parameter_shapes
from cellrepro.words import amount

OFFICIAL_NAMES = {  # SHA-256 of the files as they were published in 2025 and 2026
    "e1440429eb384f95afe32bcba6510f90d518eaedc917ede549bed6804004abe2": "cpsam",
    "0f1cc3f7ecdd8a037a57c6c48d9d8921391be4cbce3fa9f13c3e3a2e1253c667": "cpsam_v2",
}
DEFAULT = "cpsam_v2"
"""What Cellpose 4.2 takes for a name that it does not know; only its log says so."""
_SHIPPED = "vit-l"  # the encoder of Cellpose's own network
_NOT_DRAWN = {"diam_labels", "diam_mean"}  # the same in every network
OF_SEVERAL_GPUS = (
    "its names begin with `module.`; Cellpose 4.2.1.1 looks for W2 before it takes that off, and "
    "refuses the file; save it again under the names without it"
)
CHECKPOINT = (
    "a checkpoint of a training, with its network under {key!r}; Cellpose takes a network by "
    "itself: save what is under that key with torch.save"
)
_TORCH_ONLY = "Cellpose reads what torch.save wrote; cellrepro loads this one"


@dataclass(frozen=True)
class Recognised:
    """What a network is, and what becomes of it in the Cellpose that is installed."""

    generation: str | None  # None: none of Cellpose's
    network: str | None
    loads_as: str | None  # ``itself``, or None where it does not load
    note: str = ""


def recognise(shapes: Mapping[str, tuple[int, ...]], *, saved_by_torch: bool) -> Recognised:
    """What a network with parameters of these names and shapes is."""
    patch = shapes.get("encoder.patch_embed.proj.weight", (0,))
    why = "Cellpose 4 refuses networks of Cellpose 2 and 3; run it in Cellpose 3"
    if any(name.startswith("downsample.") for name in shapes):
        return Recognised("2 or 3", "CPnet", None, why)
    if "diam_mean" in shapes and any(name.startswith("net.encoder.") for name in shapes):
        return Recognised("3", "transformer", None, why)
    if "encoder.cls_token" in shapes:
        known = {1024: "ViT-L", 768: "ViT-B"}.get(patch[0])
        network = f"CPDINO ({known or 'unknown encoder'})"
        if known is None or not find_spec("dinov3"):
            why = "Cellpose needs the package dinov3 for it, and one of the encoders ViT-L, ViT-B"
            return Recognised("4 (DINO)", network, None, why)
        return Recognised("4 (DINO)", network, *_loads(saved_by_torch))
    if "W2" not in shapes or len(patch) != 4:
        return Recognised(None, None, None, "no network of Cellpose 2, 3 or 4")
    n_blocks = len({name.split(".")[2] for name in shapes if name.startswith("encoder.blocks.")})
    sizes = patch[0], n_blocks, patch[-1]
    encoder = next((n for n, e in ENCODERS.items() if (e.width, e.depth, e.patch) == sizes), None)
    network = f"CPSAM ({encoder or 'unknown encoder'})"
    expected = parameter_shapes(_SHIPPED)
    others = [name for name in shapes if shapes[name] != expected.get(name, shapes[name])]
    if others:
        why = f"Cellpose loads the sizes of {_SHIPPED} only, and {others[0]} is {shapes[others[0]]}"
        return Recognised("4 (SAM)", network, None, f"{why}; cellrepro loads its own encoders")
    missing = expected.keys() - shapes.keys() - _NOT_DRAWN
    if missing and saved_by_torch:
        why = f"{amount(len(missing), 'parameter')} missing, which Cellpose draws at random"
        return Recognised("4 (SAM)", network, "a partly random network", why)
    ignored = [name for name in shapes if name not in expected]
    loads_as, note = _loads(saved_by_torch)
    if ignored and saved_by_torch:
        note = f"Cellpose ignores {amount(len(ignored), 'parameter')}, {ignored[0]} first"
    return Recognised("4 (SAM)", network, loads_as, note)


def _loads(saved_by_torch: bool) -> tuple[str | None, str]:
    return ("itself", "") if saved_by_torch else (None, _TORCH_ONLY)


def known_to_cellpose(name: str) -> bool:
    """Whether Cellpose has a model of that name, or the user gave it one."""
    from cellpose import models

    return name in {*models.MODEL_NAMES, *models.get_user_models()}
