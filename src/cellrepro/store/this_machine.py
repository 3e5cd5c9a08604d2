"""What the machine and its libraries are, and what tells it from others."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import platform
import re
import subprocess
import sys
import uuid
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from cellrepro.errors import BadInput
from cellrepro.libraries import has_library
from cellrepro.store.manifest import MachineRecord

MACHINE_VARIABLE = "CELLREPRO_MACHINE"
"""Names this machine; needed where several containers were made from one image."""

_COMPUTING = (
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
)
"""Packages whose code computes a result."""

PACKAGES = ("cellrepro", *_COMPUTING, "safetensors", "papermill")
"""Packages whose version can change a result or its files."""


# -- libraries -----------------------------------------------------------------------------


@functools.cache
def distributions() -> dict[str, str]:
    """Version of every installed distribution, by name, sorted."""
    installed = [(each.metadata["Name"], each.version) for each in metadata.distributions()]
    return dict(sorted((name, version) for name, version in installed if name))


def versions() -> dict[str, str]:
    """Installed version of Python and of each of `PACKAGES`; absent ones are left out."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def _numeric_versions() -> dict[str, str]:
    """Versions of `_COMPUTING`, without the build (``+cpu``, ``+cu130``): the device says that."""
    return {
        name: re.sub(r"\+(cpu|cu\d+)$", "", version)
        for name, version in versions().items()
        if name in _COMPUTING
    }


def cuda() -> dict[str, str | None]:
    """Versions of NVIDIA's driver and of PyTorch's CUDA runtime and cuDNN; null where absent."""
    if not has_library("torch"):
        return {"driver": _driver(), "runtime": None, "cudnn": None}
    import torch

    cudnn = torch.backends.cudnn.version()
    return {
        "driver": _driver(),
        "runtime": torch.version.cuda,
        "cudnn": None if cudnn is None else str(cudnn),
    }


def numeric_libraries() -> list[dict[str, Any]]:
    """The BLAS and OpenMP libraries loaded in this process, with their thread counts, in order."""
    from threadpoolctl import threadpool_info

    keys = ("user_api", "internal_api", "version", "num_threads", "architecture")
    pools = [{key: pool[key] for key in keys if key in pool} for pool in threadpool_info()]
    return sorted(pools, key=lambda pool: [str(pool.get(key)) for key in keys])  # not as they load


# -- the machine ---------------------------------------------------------------------------


def machine(device: Any, numeric_class: str) -> MachineRecord:
    """Identify this machine, as one of its devices computes in this process."""
    if device.type != "cuda":
        processor = _processor().name or platform.machine()
        return MachineRecord(
            label=_given_name() or _slug(processor),
            identity=identity(""),
            device=processor,
            numeric_class=numeric_class,
            versions=_numeric_versions(),
        )
    import torch

    properties = torch.cuda.get_device_properties(device)
    installed = cuda()
    return MachineRecord(
        label=_given_name() or _slug(properties.name),
        identity=identity(str(getattr(properties, "uuid", ""))),
        device=properties.name,
        driver=installed["driver"],
        cuda=installed["runtime"],
        cudnn=installed["cudnn"],
        numeric_class=numeric_class,
        versions=_numeric_versions(),
    )


def is_here(record: MachineRecord) -> bool:
    """Whether a record may be of this machine, as far as is known without PyTorch or a profile."""
    if record.versions != _numeric_versions() or record.driver not in (None, _driver()):
        return False
    uuids = [gpu["uuid"] for gpu in gpus()]
    return record.identity in [identity(uuid_of_gpu) for uuid_of_gpu in ("", *uuids)]


def is_anonymous() -> bool:
    """Whether nothing but a GPU identifies this machine: a container without a machine-id."""
    return _given_name() is None and not _machine_id()


def _given_name() -> str | None:
    name = os.environ.get(MACHINE_VARIABLE)
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise BadInput(
            f"{MACHINE_VARIABLE} is {name!r}; expected up to 64 letters, digits, '.', '_' and '-', "
            "the first a letter or digit; unset it, or give this machine a name of that kind"
        )
    return name


def identity(gpu: str) -> str:
    """A salted digest that identifies this machine, or one of its GPUs; or its given name."""
    known_by = gpu.removeprefix("GPU-").lower() or _machine_id()
    if gpu.isdecimal():
        known_by = f"{_machine_id()} {gpu}"
    # Salted: a published store need not tell what other software knows this machine by.
    salted = f"cellrepro machine {known_by}".encode()
    return _given_name() or hashlib.sha256(salted).hexdigest()[:16]


def _machine_id() -> str:
    """An id that lasts as long as the installed system; empty where there is none."""
    if sys.platform == "linux":
        return _id_of_linux()
    return _id_of_system() or lasting_address(uuid.getnode())


def _id_of_linux() -> str:
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        machine_id = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
        if re.fullmatch("[0-9a-f]{32}", machine_id):
            return machine_id
    return ""


@functools.cache
def _id_of_system() -> str:
    """The computer's UUID on macOS, the installation's on Windows; empty where neither is known."""
    if sys.platform == "darwin":
        command = ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"]
        with suppress(OSError, subprocess.SubprocessError):
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            uuid_of_mac = re.search('"IOPlatformUUID" = "([^"]+)"', answer.stdout)
            return "" if uuid_of_mac is None else uuid_of_mac[1].lower()
    if sys.platform == "win32":
        import winreg

        key_name = r"SOFTWARE\Microsoft\Cryptography"
        access = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
        with (
            suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key_name, access=access) as key,
        ):
            return str(winreg.QueryValueEx(key, "MachineGuid")[0]).lower()
    return ""


def lasting_address(number: int) -> str:
    """A MAC address as hex; empty for one that was drawn at random or set by software."""
    is_multicast = number >> 40 & 1  # as `uuid.getnode` marks what it has drawn
    is_given_by_software = number >> 41 & 1  # as of containers, VPNs and private Wi-Fi
    return "" if is_multicast or is_given_by_software else f"{number:012x}"


def _slug(device: str) -> str:
    """A device's name for a folder: ``intel-xeon``, ``amd-epyc-7b13``."""
    bare = re.sub(r"\((r|tm|c)\)|\b(cpu|processor|\d+-core)\b|@.*", " ", device.lower())
    return "-".join(re.findall("[a-z0-9]+", bare))[:32].strip("-") or "machine"


def host() -> dict[str, Any]:
    """Processor, cores, memory (bytes), system and GPUs; PyTorch need not be imported."""
    import psutil

    processor = _processor()
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "processor": processor.name,
        "architecture": platform.machine(),
        "instructions": [
            name for name in ("avx2", "avx512f", "amx_bf16") if name in processor.flags
        ],
        "cores": os.cpu_count() if affinity is None else len(affinity(0)),
        "memory": psutil.virtual_memory().total,
        "system": platform.platform(terse=True),
        "gpus": [{name: gpu[name] for name in ("name", "memory", "driver")} for gpu in gpus()],
    }


class _Processor(NamedTuple):
    name: str
    flags: set[str]  # instructions that it has, as the system calls them


@functools.cache
def _processor() -> _Processor:
    listing = Path("/proc/cpuinfo")
    if listing.exists():  # py-cpuinfo reads this too, and takes a second for other sources
        first = listing.read_text(encoding="utf-8").split("\n\n")[0]
        fields = dict(re.findall(r"^(model name|flags)\s*: (.*)$", first, re.MULTILINE))
        if len(fields) == 2:
            return _Processor(fields["model name"].strip(), set(fields["flags"].split()))
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return _Processor(info.get("brand_raw", platform.processor()), set(info.get("flags", ())))


def gpus() -> list[dict[str, Any]]:
    """The NVIDIA GPUs, by NVIDIA's own library: name, memory (bytes), driver, UUID."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [
            {
                "name": pynvml.nvmlDeviceGetName(gpu),
                "memory": pynvml.nvmlDeviceGetMemoryInfo(gpu).total,
                "driver": pynvml.nvmlSystemGetDriverVersion(),
                "uuid": pynvml.nvmlDeviceGetUUID(gpu),
            }
            for gpu in handles
        ]
    except pynvml.NVMLError:
        return []


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that ``CUDA_VISIBLE_DEVICES`` leaves: UUIDs, or the variable's own words.

    Words stay where NVIDIA's library does not know the GPU.
    """
    present = gpus()
    known = {str(index): gpu["uuid"] for index, gpu in enumerate(present)}
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [*known.values()]
    words = [word.strip() for word in chosen.split(",")]
    # CUDA ends its list at the first word that names no GPU.
    words = list(itertools.takewhile(lambda word: word not in ("", "-1", "NoDevFiles"), words))
    is_counted = any(word in known for word in words)
    has_other_kinds = len({gpu["name"] for gpu in present}) > 1
    by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if is_counted and has_other_kinds and not by_bus:
        raise BadInput(
            f"CUDA_VISIBLE_DEVICES is {chosen!r}, and this machine has GPUs of several kinds, "
            "which CUDA counts by their speed and NVIDIA's library by their bus: set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID (nvidia-smi -L)"
        )
    return [known.get(word, word) for word in words]


def _driver() -> str | None:
    return next((gpu["driver"] for gpu in gpus()), None)
