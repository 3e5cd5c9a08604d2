"""The device of a process in which PyTorch is not installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Processor:
    """The processor, with what the lab asks of a ``torch.device``."""

    type: ClassVar[str] = "cpu"
    index: ClassVar[None] = None

    def __str__(self) -> str:
        return self.type
