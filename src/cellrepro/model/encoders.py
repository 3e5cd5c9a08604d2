"""The sizes of Cellpose's networks, and the learning rate and draws that suit each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

CellposeNetwork: TypeAlias = Any
"""A ``cellpose.vit.CPSAM``, a `torch.nn.Module` with a device and a dtype; Cellpose has no types.
"""

TINY = "tiny"
"""The network that trains on any laptop."""


@dataclass(frozen=True)
class Encoder:
    """Sizes of an image encoder of SAM's class."""

    width: int
    """Numbers in a token."""
    depth: int
    """Number of blocks."""
    heads: int
    """Attention heads of a block."""
    mlp_ratio: float
    """Hidden width of a block's perceptron, divided by ``width``."""
    global_blocks: tuple[int, ...]
    """The blocks whose tables of relative positions have 127 rows; the others' have 27, as their
    attention was windowed before Cellpose made every block global."""
    patch: int
    """Pixels along a token's edge."""
    learning_rate: float = 1e-5
    """The default: small networks start from noise, Cellpose's own is fine-tuned."""
    is_small: bool = False
    """Whether it learns from noise on any laptop."""


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
"""The architectures that the metadata of a weights file may name."""

SMALL = frozenset(name for name, encoder in ENCODERS.items() if encoder.is_small)

LEARNING_RATES = {
    **{name: encoder.learning_rate for name, encoder in ENCODERS.items()},
    PRETRAINED: 1e-5,
}
"""Default learning rates, by architecture."""

SMALL_DRAWS_PER_EPOCH = 48
"""The least default of small networks: twelve epochs of `tiny` over a dozen images find cells."""
