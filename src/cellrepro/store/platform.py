"""What the machine and its libraries are."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import sys
import uuid
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput
from cellrepro.store.manifest import MachineRecord

MACHINE_VARIABLE = "CELLREPRO_MACHINE"
"""Names this machine for people and tells it from others; needed where several computers or
containers were made from one image, and so have one machine-id."""

PACKAGES = (
    "cellrepro",
    "cellpose",
    "torch",
    "torchvision",
    "segment-anything",
    "numpy",
    "scipy",
    "opencv-python-headless",
    "fastremap",
    "fill-voids",
    "tifffile",
    "imagecodecs",
    "safetensors",
    "papermill",
)
"""Packages whose version can change a result, or how it is stored."""


def versions() -> dict[str, str]:
    """Installed version of each of `PACKAGES`, and of Python; absent ones are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


_NO_NUMBERS = ("cellrepro", "safetensors", "papermill")


def numeric_versions() -> dict[str, str]:
    """Version of each installed library that computes, without its build.

    Which build is installed (``+cpu``, ``+cu130``) follows from the device, which is told apart
    by itself.
    """
    found = {name: version for name, version in versions().items() if name in PACKAGES}
    return {
        name: re.sub(r"\+(cpu|cu\d+)$", "", version)
        for name, version in found.items()
        if name not in _NO_NUMBERS
    }


@functools.cache
def distributions() -> dict[str, str]:
    """Version of every installed distribution, by name, sorted."""
    found = ((one.metadata["Name"], one.version) for one in metadata.distributions())
    return dict(sorted((name, version) for name, version in found if name))


def machine(device: Any, numeric_class: str) -> MachineRecord:
    """This machine, as one device of it computes in this process.

    Parameters
    ----------
    device : torch.device
    numeric_class : str
        Name of the class of this process on the device.

    Raises
    ------
    BadInput
        If ``CELLREPRO_MACHINE`` is no name.
    """
    import torch

    fields: dict[str, Any] = {"device": _processor()[0] or platform.machine()}
    gpu = None
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gpu = str(getattr(properties, "uuid", ""))
        found = cuda()
        fields = {"device": properties.name, "cuda": found.pop("runtime"), **found}
    return MachineRecord(
        label=_machine_variable() or _slug(fields["device"]),
        identity=_identity(gpu),
        numeric_class=numeric_class,
        versions=numeric_versions(),
        **fields,
    )


def is_here(record: MachineRecord) -> bool:
    """Whether a machine may be this one, as far as can be told without PyTorch: whatever profile
    it computed under."""
    if record.versions != numeric_versions() or record.driver not in (None, _driver()):
        return False
    return record.identity in [_identity(gpu) for gpu in (None, *_gpu_uuids())]


def is_anonymous() -> bool:
    """Whether nothing tells this machine from another one of its kind but its GPU, if it has one.

    So it is in a container whose image has no machine-id.
    """
    return _machine_variable() is None and not _machine_id()


def _machine_variable() -> str | None:
    name = os.environ.get(MACHINE_VARIABLE)
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise BadInput(
            f"{MACHINE_VARIABLE} is {name!r}; expected up to 64 letters, digits, '.', '_' and '-', "
            "the first a letter or digit; unset it, or give this machine a name of that kind"
        )
    return name


def _identity(gpu: str | None) -> str:
    named = _machine_variable()
    if named is not None:
        return named
    # Salted: a published store need not tell what other software knows this machine by.
    known = (gpu or "").removeprefix("GPU-").lower() or _machine_id()
    return hashlib.sha256(f"cellrepro machine {known}".encode()).hexdigest()[:16]


def _machine_id() -> str:
    """What stays the same on this installation of a system; empty where nothing does."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            found = Path(path).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if re.fullmatch("[0-9a-f]{32}", found):
            return found
    node = uuid.getnode() if sys.platform != "linux" else 1 << 40
    return "" if node >> 40 & 1 else f"{node:012x}"  # that bit: drawn at random, or a container's


def _slug(device: str) -> str:
    """A device's name for a folder.

    Examples
    --------
    >>> _slug("Intel(R) Xeon(R) CPU @ 2.20GHz"), _slug("AMD EPYC 7B13 64-Core Processor")
    ('intel-xeon', 'amd-epyc-7b13')
    """
    bare = re.sub(r"\((r|tm|c)\)|\b(cpu|processor|\d+-core)\b|@.*", " ", device.lower())
    return "-".join(re.findall("[a-z0-9]+", bare))[:32].strip("-") or "machine"


def peak_memory() -> dict[str, int | None]:
    """The most memory held at a time, bytes: by this process, and by PyTorch on the GPU."""
    import torch

    if sys.platform == "win32":
        import psutil

        process = psutil.Process().memory_info().peak_wset
    else:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {"process": process, "gpu": torch.cuda.max_memory_allocated() if used else None}


def host() -> dict[str, Any]:
    """Name the machine: processor, cores, memory (bytes), system, GPUs.

    GPUs are asked of NVIDIA's own library, so PyTorch need not be imported.
    """
    import psutil

    processor, flags = _processor()
    return {
        "processor": processor,
        "architecture": platform.machine(),
        "instructions": [name for name in ("avx2", "avx512f", "amx_bf16") if name in flags],
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "system": platform.platform(terse=True),
        "gpus": gpus(),
    }


def _processor() -> tuple[str, set[str]]:
    """Name and instruction flags of the processor."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():  # py-cpuinfo reads this too, and takes a second for other sources
        first = listing.read_text(encoding="utf-8").split("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        if "model name" in fields and "flags" in fields:
            return fields["model name"], set(fields["flags"].split())
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return info.get("brand_raw", platform.processor()), set(info.get("flags", ()))


def gpus() -> list[dict[str, Any]]:
    """The NVIDIA GPUs of this machine: name, memory (bytes), driver; empty without any."""
    import pynvml

    return _of_each_gpu(
        lambda gpu: {
            "name": pynvml.nvmlDeviceGetName(gpu),
            "memory": pynvml.nvmlDeviceGetMemoryInfo(gpu).total,
            "driver": pynvml.nvmlSystemGetDriverVersion(),
        }
    )


def cuda() -> dict[str, str | None]:
    """Versions of the NVIDIA driver and of PyTorch's CUDA runtime and cuDNN; null where absent."""
    import torch

    cudnn = torch.backends.cudnn.version()
    return {
        "driver": _driver(),
        "runtime": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
    }


def _driver() -> str | None:
    import pynvml

    return next(iter(_of_each_gpu(lambda gpu: pynvml.nvmlSystemGetDriverVersion())), None)


def _gpu_uuids() -> list[str]:
    import pynvml

    return _of_each_gpu(pynvml.nvmlDeviceGetUUID)


def _of_each_gpu(ask: Callable[[Any], Any]) -> list[Any]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = range(pynvml.nvmlDeviceGetCount())
        return [ask(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in count]
    finally:
        pynvml.nvmlShutdown()


def numeric_libraries() -> list[dict[str, Any]]:
    """The BLAS and OpenMP libraries loaded in this process, with their thread counts, in order."""
    from threadpoolctl import threadpool_info

    keys = ("user_api", "internal_api", "version", "num_threads", "architecture")
    pools = [{key: pool[key] for key in keys if key in pool} for pool in threadpool_info()]
    return sorted(pools, key=lambda pool: [str(pool.get(key)) for key in keys])  # not as they load
