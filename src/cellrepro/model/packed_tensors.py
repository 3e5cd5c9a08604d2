"""Tensors that a network of Cellpose 3 packs for oneDNN, and a block without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cellrepro.model.patching import replaced

if TYPE_CHECKING:
    from cellrepro.model.encoders import CellposeNetwork


@contextmanager
def in_plain_layout(network: CellposeNetwork) -> Iterator[None]:
    """Have a network compute on plain tensors for one block.

    On a processor a network of Cellpose 3 packs its tensors for oneDNN (``mkldnn``). Packed tensors
    have no address and no parts, so that their operations cannot be executed again one by one. The
    last bits of the output differ from those of packed tensors; networks of Cellpose 4 pack none.
    """
    if not packs_tensors(network):
        yield
        return
    with replaced(network, "mkldnn", False):
        yield


def packs_tensors(network: CellposeNetwork) -> bool:
    """Whether a network packs its tensors for oneDNN."""
    return bool(getattr(network, "mkldnn", False))
