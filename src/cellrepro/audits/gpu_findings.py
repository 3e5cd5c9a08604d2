"""Findings of `doctor` about GPUs: whether the installed PyTorch can use them."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cellrepro.audits.findings import Finding
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.profiles.automatic_profile import UsableDevices
from cellrepro.store import hardware
from samebits.libraries import version_of
from samebits.words import joined

_HOW_TO_ASK = "gpu=True in Python, --use_gpu on its command line; without it the processor computes"
_WHICH_BUILD = (
    "install the build of PyTorch that suits this card and driver, with the command that PyTorch's "
    "page 'Get Started' names; docs/pytorch.md says which"
)


@dataclass(frozen=True)
class TorchBuild:
    """The installed PyTorch: the devices it was built for, and those it can compute on here."""

    version: str
    cuda: str | None
    """The version of CUDA that it was built with."""
    architectures: tuple[str, ...]
    """The architectures that it has kernels for, ``sm_90`` for example."""
    capabilities: tuple[str, ...]
    """The architectures of the GPUs that it sees."""
    usable: UsableDevices

    def has_kernels_for(self, capability: str) -> bool:
        """Whether it has kernels for a GPU: of its own kind, or of an older one of its family.

        >>> build = TorchBuild("2", "13.0", ("sm_75", "sm_80"), (), UsableDevices(False, False))
        >>> build.has_kernels_for("sm_86"), build.has_kernels_for("sm_61")
        (True, False)
        """
        family, number = capability[:-1], capability[-1]
        return any(
            known[:-1] == family and known[-1] <= number
            for known in self.architectures
            if known.startswith("sm_")
        )


def gpu_findings() -> Iterator[Finding]:
    """Look for GPUs; PyTorch is asked, in a process of its own, only where there is one."""
    gpus = hardware.gpus()
    is_mac = platform.system() == "Darwin"
    build = None
    if gpus or is_mac:
        build = in_child(look_at_torch, None, label="asking PyTorch for GPUs")
    yield from judged(gpus, build, is_mac=is_mac)


def look_at_torch(child: Child) -> TorchBuild:
    """Ask PyTorch, in the child, what it can compute on."""
    import torch

    capabilities = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(index)
            capabilities.append(f"sm_{major}{minor}")
    return TorchBuild(
        version=torch.__version__,
        cuda=torch.version.cuda,
        architectures=tuple(torch.cuda.get_arch_list()),
        capabilities=tuple(capabilities),
        usable=UsableDevices.here(),
    )


def judged(
    gpus: Sequence[Mapping[str, object]], build: TorchBuild | None, *, is_mac: bool
) -> Iterator[Finding]:
    """Judge of each GPU whether it would be used, and if not, why."""
    if build is None:
        yield Finding(
            level="info",
            what="no GPU of NVIDIA is seen here: Cellpose computes on the processor, also with "
            "gpu=True, and says so only in its log",
            remedy="nothing, unless there is one: then its driver is missing (nvidia-smi lists "
            "what the driver sees)",
        )
        return
    if is_mac and not gpus:
        yield _of_apple(build)
    version = version_of("cellpose")
    cellpose = "Cellpose" if version is None else f"Cellpose {version}"
    for gpu in gpus:
        memory = gpu["memory"]
        size = "" if memory is None else f"{float(str(memory)) / 1e9:.0f} GB, "
        name = f"{gpu['name']} ({size}driver {gpu['driver']})"
        if build.usable.cuda:
            yield Finding(
                level="info",
                what=f"{name}: PyTorch {build.version} can use it, and {cellpose} would, "
                "if asked to",
                remedy=f"{_HOW_TO_ASK}; here: --profile auto",
            )
        else:
            yield Finding(
                level="warning",
                what=f"{name} is here and cannot be used: {_why_not(build)}; {cellpose} "
                "then computes on the processor, also with gpu=True",
                remedy=_WHICH_BUILD,
            )


def _of_apple(build: TorchBuild) -> Finding:
    if build.usable.mps:
        return Finding(
            level="info",
            what=f"Apple's GPU: PyTorch {build.version} can use it, and Cellpose would, if asked "
            "to",
            remedy=f"{_HOW_TO_ASK}; here: --profile auto, which is untried on a Mac",
        )
    return Finding(
        level="info",
        what=f"PyTorch {build.version} cannot use a GPU of this Mac: Cellpose computes on the "
        "processor, also with gpu=True",
        remedy="with Apple's processor: macOS 14 or newer, and a Python for arm64",
    )


def _why_not(build: TorchBuild) -> str:
    """Why PyTorch cannot compute on an NVIDIA GPU that the driver sees."""
    if build.cuda is None:
        return f"PyTorch {build.version} is a build without CUDA"
    unknown = [name for name in build.capabilities if not build.has_kernels_for(name)]
    if unknown:
        return (
            f"PyTorch {build.version} has kernels for {joined(build.architectures)}, and the card "
            f"is {joined(unknown)}"
        )
    return (
        f"PyTorch {build.version} was built with CUDA {build.cuda}, and finds no GPU with it: the "
        "driver is too old for that, or CUDA_VISIBLE_DEVICES hides the card"
    )
