"""This machine: its record in manifests, and its hardware."""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path
from typing import Any, NamedTuple

from cellrepro.store.environment_record import MachineRecord
from cellrepro.store.installed_versions import cuda, numeric_versions
from cellrepro.store.machine_identity import given_name, identity
from cellrepro.store.nvidia_gpus import driver, gpus


def machine(device: Any, numeric_class: str) -> MachineRecord:
    """Identify this machine, as one of its devices computes in this process."""
    if device.type != "cuda":
        processor = _processor().name or platform.machine()
        return MachineRecord(
            label=given_name() or _slug(processor),
            identity=identity(""),
            device=processor,
            numeric_class=numeric_class,
            versions=numeric_versions(),
        )
    import torch

    properties = torch.cuda.get_device_properties(device)
    installed = cuda()
    return MachineRecord(
        label=given_name() or _slug(properties.name),
        identity=identity(str(getattr(properties, "uuid", ""))),
        device=properties.name,
        driver=installed["driver"],
        cuda=installed["runtime"],
        cudnn=installed["cudnn"],
        numeric_class=numeric_class,
        versions=numeric_versions(),
    )


def is_here(record: MachineRecord) -> bool:
    """Whether a record may be of this machine, as far as is known without PyTorch or a profile."""
    if record.versions != numeric_versions() or record.driver not in (None, driver()):
        return False
    uuids = [gpu["uuid"] for gpu in gpus()]
    return record.identity in [identity(uuid_of_gpu) for uuid_of_gpu in ("", *uuids)]


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
    flags: set[str]
    """The instructions that it has, as the system calls them."""


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
