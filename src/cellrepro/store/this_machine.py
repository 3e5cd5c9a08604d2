"""What the machine and its libraries are, and which bits they compute."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.bits.digests import array_digest, value_digest
from cellrepro.errors import BadInput
from cellrepro.store.manifest import MachineRecord

MACHINE_VARIABLE = "CELLREPRO_MACHINE"
"""Names this machine; needed where several containers were made from one image."""

_COMPUTING = (
    *("cellpose", "torch", "torchvision", "segment-anything", "numpy", "scipy"),
    *("opencv-python-headless", "fastremap", "fill-voids", "tifffile", "imagecodecs"),
)
PACKAGES = ("cellrepro", *_COMPUTING, "safetensors", "papermill")
"""Packages whose version can change a result, or how it is stored."""


# -- libraries -----------------------------------------------------------------------------


@functools.cache
def distributions() -> dict[str, str]:
    """Version of every installed distribution, by name, sorted."""
    found = ((one.metadata["Name"], one.version) for one in metadata.distributions())
    return dict(sorted((name, version) for name, version in found if name))


def versions() -> dict[str, str]:
    """Installed version of Python and of each of `PACKAGES`; absent ones are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _numeric_versions() -> dict[str, str]:
    """Versions of what computes, without the build (``+cpu``, ``+cu130``), as the device tells."""
    found = ((name, version) for name, version in versions().items() if name in _COMPUTING)
    return {name: re.sub(r"\+(cpu|cu\d+)$", "", version) for name, version in found}


def cuda() -> dict[str, str | None]:
    """Versions of NVIDIA's driver and of PyTorch's CUDA runtime and cuDNN; null where absent."""
    import torch

    cudnn = torch.backends.cudnn.version()
    found = {"driver": _driver(), "runtime": torch.version.cuda}
    return found | {"cudnn": None if cudnn is None else str(cudnn)}


def numeric_libraries() -> list[dict[str, Any]]:
    """The BLAS and OpenMP libraries loaded in this process, with their thread counts, in order."""
    from threadpoolctl import threadpool_info

    keys = ("user_api", "internal_api", "version", "num_threads", "architecture")
    pools = [{key: pool[key] for key in keys if key in pool} for pool in threadpool_info()]
    return sorted(pools, key=lambda pool: [str(pool.get(key)) for key in keys])  # not as they load


# -- the machine ---------------------------------------------------------------------------


def machine(device: Any, numeric_class: str) -> MachineRecord:
    """This machine, as one device of it (a ``torch.device``) computes in this process."""
    import torch

    fields: dict[str, Any] = {"device": _processor()[0] or platform.machine()}
    gpu = ""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gpu = str(getattr(properties, "uuid", ""))
        found = cuda()
        fields = {"device": properties.name, "cuda": found.pop("runtime"), **found}
    return MachineRecord(
        label=_given_name() or _slug(fields["device"]),
        identity=identity(gpu),
        numeric_class=numeric_class,
        versions=_numeric_versions(),
        **fields,
    )


def is_here(record: MachineRecord) -> bool:
    """Whether a machine may be this one, as far as can be told without PyTorch or a profile."""
    if record.versions != _numeric_versions() or record.driver not in (None, _driver()):
        return False
    return record.identity in [identity(gpu) for gpu in ("", *(gpu["uuid"] for gpu in _gpus()))]


def is_anonymous() -> bool:
    """Whether only its GPU, if any, tells it from others: a container without a machine-id."""
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
    """What tells this machine, or one of its GPUs by UUID, from others; no name it is known by."""
    known = gpu.removeprefix("GPU-").lower() or _machine_id()
    if gpu.isdecimal():  # not known by more than its number here
        known = f"{_machine_id()} {gpu}"
    # Salted: a published store need not tell what other software knows this machine by.
    salted = f"cellrepro machine {known}".encode()
    return _given_name() or hashlib.sha256(salted).hexdigest()[:16]


def _machine_id() -> str:
    """What stays the same on this installation of a system; empty where nothing does."""
    for path in map(Path, ("/etc/machine-id", "/var/lib/dbus/machine-id")):
        found = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
        if re.fullmatch("[0-9a-f]{32}", found):
            return found
    node = uuid.getnode() if sys.platform != "linux" else 1 << 40
    return "" if node >> 40 & 1 else f"{node:012x}"  # that bit: drawn at random, or a container's


def _slug(device: str) -> str:
    """A device's name for a folder: ``intel-xeon``, ``amd-epyc-7b13``."""
    bare = re.sub(r"\((r|tm|c)\)|\b(cpu|processor|\d+-core)\b|@.*", " ", device.lower())
    return "-".join(re.findall("[a-z0-9]+", bare))[:32].strip("-") or "machine"


def host() -> dict[str, Any]:
    """Processor, cores, memory (bytes), system and GPUs; PyTorch need not be imported."""
    import psutil

    processor, flags = _processor()
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "processor": processor,
        "architecture": platform.machine(),
        "instructions": [name for name in ("avx2", "avx512f", "amx_bf16") if name in flags],
        "cores": os.cpu_count() if affinity is None else len(affinity(0)),
        "memory": psutil.virtual_memory().total,
        "system": platform.platform(terse=True),
        "gpus": [{name: gpu[name] for name in ("name", "memory", "driver")} for gpu in _gpus()],
    }


def _processor() -> tuple[str, set[str]]:
    """Name and instruction flags of the processor."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():  # py-cpuinfo reads this too, and takes a second for other sources
        first = listing.read_text(encoding="utf-8").split("\n\n")[0]
        fields = dict(re.findall(r"^(model name|flags)\s*: (.*)$", first, re.MULTILINE))
        if len(fields) == 2:
            return fields["model name"].strip(), set(fields["flags"].split())
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return info.get("brand_raw", platform.processor()), set(info.get("flags", ()))


def _gpus() -> list[dict[str, Any]]:
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
    """What ``CUDA_VISIBLE_DEVICES`` can name of the NVIDIA GPUs that it leaves: their UUIDs, or its
    own words where NVIDIA's library does not know them."""
    known = {str(index): gpu["uuid"] for index, gpu in enumerate(_gpus())}
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = [*known] if chosen is None else chosen.split(",")
    return [known.get(word, word) for word in words if word not in ("", "-1", "NoDevFiles")]


def n_killed_for_memory() -> int:
    """How many processes the system has ended because memory was short; 0 if it is unknown."""
    files = map(Path, ("/sys/fs/cgroup/memory.events", "/proc/vmstat"))
    texts = (path.read_text(encoding="utf-8") for path in files if path.is_file())
    return sum(map(int, re.findall(r"^oom_kill (\d+)$", "".join(texts), re.MULTILINE)))


def _driver() -> str | None:
    return next((gpu["driver"] for gpu in _gpus()), None)


def peak_memory() -> dict[str, int | None]:
    """The most bytes held at a time by this process, and by PyTorch on the GPU.

    Returns
    -------
    dict
        ``process`` as `peak_memory_of_process` says it; ``gpu`` is None where none is used.
    """
    import torch

    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "process": peak_memory_of_process(),
        "gpu": torch.cuda.max_memory_allocated() if used else None,
    }


def peak_memory_of_process() -> int | None:
    """The most bytes of memory that this process itself held at a time; None if nothing says it."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not `getrusage`: on Linux its maximum goes on counting in a program that is started, so
        # it is that of a notebook's kernel where the kernel is larger than the worker it started.
        found = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text("utf-8"), re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def forget_peak_memory() -> None:
    """Let `peak_memory` begin anew: on a GPU, and on Linux also of the process."""
    import torch

    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


# -- the numeric class: processes of one class agree on a fixed set of small operations ----

DTYPES = ("float32", "bfloat16")
"""In both of them every probe runs: Cellpose trains in the first and segments in the second."""


def numeric_class(device: str = "cpu") -> dict[str, Any]:
    """The SHA-256 of each probe's results, by ``OPERATION/DTYPE``, and a name made of them.

    What makes a difference is the profile: threads, instruction sets, oneDNN, TF32; no mode does.
    """
    import torch

    cudnn, kind = torch.backends.cudnn, device.partition(":")[0]
    before = cudnn.deterministic, cudnn.benchmark
    autocast_off = torch.autocast(kind, enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), autocast_off:
        try:
            # No algorithm that adds in varying order.
            cudnn.deterministic, cudnn.benchmark = True, False
            probes = {
                f"{name}/{dtype}": _digest(probe(Numbers(device, dtype)))
                for dtype in DTYPES
                for name, probe in PROBES.items()
            }
        finally:
            cudnn.deterministic, cudnn.benchmark = before
    return {"name": value_digest(probes)[:12], "probes": probes}


def differing_probes(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """The probes in which two classes differ, sorted; a probe of only one of them is one."""
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


class Numbers:
    """Inputs of the probes, the same on every machine to the bit; no global generator moves."""

    def __init__(self, device: Any, dtype: str):
        self._bits = np.random.PCG64(20261101)
        self._device, self._dtype = device, dtype

    def __call__(self, *shape: int, gradient: bool = False) -> Any:
        """Uniform numbers in [-1, 1): shifts and a division by a power of two are exact."""
        import torch

        raw = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(40)
        values = (raw.astype(np.float32) / np.float32(2**23) - np.float32(1)).reshape(shape)
        # A copy that PyTorch allocates: MKL's bits depend on how memory is aligned.
        dtype = getattr(torch, self._dtype)
        tensor = torch.from_numpy(values).to(device=self._device, dtype=dtype, copy=True)
        return tensor.requires_grad_(gradient)


def _digest(results: tuple[Any, ...]) -> str:
    import torch

    found = (tensor.detach().cpu().contiguous() for tensor in results)
    # NumPy has no bfloat16; its bits are digested.
    bits = (one.view(torch.int16) if one.dtype == torch.bfloat16 else one for one in found)
    return value_digest([array_digest(one.numpy()) for one in bits])


Probe = Callable[[Numbers], tuple[Any, ...]]


def _probe(compute: Callable[..., Any], *shapes: tuple[int, ...]) -> Probe:
    """An operation's output and the gradients of its inputs, or the outputs of several."""

    def probe(numbers: Numbers) -> tuple[Any, ...]:
        import torch

        inputs = [numbers(*shape, gradient=True) for shape in shapes]
        output = compute(torch.nn.functional, *inputs)
        if isinstance(output, tuple):
            return output
        # Times one is exact, so these are the gradients for the incoming numbers; handing those to
        # `grad` itself makes PyTorch import half a second's worth of other modules.
        loss = (output * numbers(*output.shape)).sum()
        return (output, *torch.autograd.grad(loss, inputs))

    return probe


# Sizes are odd, so that what is left over by a vector or a block shows, and large enough that
# two threads share the work. Nothing here adds in an order that varies: no scatter, no gather's
# backward, and interpolation forward only, whose backward is atomic on CUDA (torch 2.15).
PROBES: Mapping[str, Probe] = {
    "conv": _probe(lambda F, x, w: F.conv2d(x, w, padding=1), (2, 24, 61, 67), (40, 24, 3, 3)),
    "conv-patches": _probe(
        lambda F, x, w: F.conv2d(x, w, stride=8), (2, 3, 128, 128), (96, 3, 8, 8)
    ),
    "conv-transposed": _probe(
        lambda F, x, w: F.conv_transpose2d(x, w, stride=8), (2, 64, 16, 16), (64, 3, 8, 8)
    ),
    "matmul": _probe(lambda F, a, b: a @ b, (257, 1031), (1031, 131)),
    "linear": _probe(lambda F, x, w, b: F.linear(x, w, b), (4, 97, 512), (129, 512), (129,)),
    "attention": _probe(
        lambda F, queries, keys, values: (queries @ keys.transpose(1, 2)).softmax(-1) @ values,
        *((8, 196, 67),) * 3,
    ),
    "softmax": _probe(lambda F, rows: (rows * 8).softmax(-1), (96, 1037)),
    "layer-norm": _probe(
        lambda F, x, w, b: F.layer_norm(x, (389,), w, b), (601, 389), (389,), (389,)
    ),
    "gelu": _probe(lambda F, rows: F.gelu(rows * 4), (130, 1037)),
    "interpolation": _probe(
        lambda F, images, lines, grid: (
            F.interpolate(images, size=(128, 150), mode="bilinear"),
            F.interpolate(images, size=(128, 150), mode="bicubic"),
            F.interpolate(lines, size=27, mode="linear"),
            F.grid_sample(images, grid, mode="bilinear", align_corners=False),
        ),
        *((1, 3, 61, 67), (1, 64, 63), (1, 90, 91, 2)),
    ),
    "sum": _probe(lambda F, x: (x.sum(), x.sum(0), x.sum(1), x.mean()), (300, 1031)),
    "variance": _probe(lambda F, x: (x.var(), x.var(1), x.norm()), (300, 1031)),
    "loss": _probe(
        lambda F, a, b: (F.mse_loss(a, b), F.binary_cross_entropy_with_logits(a, b.abs())),
        *((300, 1031), (300, 1031)),
    ),
    "elementwise": _probe(
        lambda F, x: ((y := x * 8).exp(), y.sigmoid(), y.tanh(), y.abs().log(), y.sin()),
        (130, 1031),
    ),
    # MKL refines the processor's own approximation of a reciprocal square root in these, whatever
    # MKL_CBWR says: one value in six is not the nearest, and processors differ in which.
    "sqrt": _probe(lambda F, x: (x.abs().sqrt(), x.asin(), x.atan()), (130, 1031)),
}
"""The operations; a changed one renames every class, so add and replace with care."""
