"""The profile ``auto``: the device and precision that Cellpose would take on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from cellrepro.progress import print_note
from samebits.libraries import has_library

AUTO = "auto"
"""In a spec stands the profile that it was resolved to, never this word."""


@dataclass(frozen=True)
class UsableDevices:
    """The devices on which the installed PyTorch can compute beside the processor."""

    cuda: bool
    """The first NVIDIA GPU, or one of AMD's through ROCm."""
    mps: bool
    """Apple's GPU."""

    @classmethod
    def here(cls) -> UsableDevices:
        """Ask PyTorch; a GPU of CUDA counts if it takes a tensor, as Cellpose tries it."""
        if not has_library("torch"):
            return cls(cuda=False, mps=False)
        import torch

        return cls(cuda=_computes_on_cuda(), mps=torch.backends.mps.is_available())

    @property
    def profile(self) -> str:
        """The name of the profile of the device that Cellpose takes with ``gpu=True``.

        >>> UsableDevices(cuda=True, mps=False).profile
        'cellpose-default-cuda'
        """
        if self.mps:  # before CUDA, as in `cellpose.core.assign_device` (4.2.1.1)
            return "cellpose-default-mps"
        return "cellpose-default-cuda" if self.cuda else "cellpose-default"

    def sentence(self) -> str:
        """Say what ``auto`` stands for, and why."""
        if self.mps:
            why = "Apple's GPU"
        elif self.cuda:
            why = "the first GPU, with TF32"
        else:
            why = "the processor, as PyTorch finds no GPU that it can use"
        return (
            f"profile auto is {self.profile} here: {why}, in bfloat16, as Cellpose 4 segments "
            "unless told otherwise (training is in float32)"
        )


def _computes_on_cuda() -> bool:
    """Whether a tensor can be put onto the first GPU, which is how Cellpose asks."""
    import torch

    if not torch.cuda.is_available():
        return False
    try:
        torch.zeros((1, 1)).to("cuda:0")
    except (AssertionError, RuntimeError):  # no kernels for it, or no memory
        return False
    return True


@cache
def automatic_profile() -> str:
    """The profile that ``auto`` stands for here; the first call also says it on standard error."""
    devices = UsableDevices.here()
    print_note(devices.sentence())
    return devices.profile
