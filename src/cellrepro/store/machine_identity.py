"""The identity of this machine, and its record in manifests.

It is known by a given name, an id of the system, or the UUID of a GPU.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from cellrepro.store.environment_record import MachineRecord
from cellrepro.store.hardware import driver, gpus, processor
from cellrepro.store.installed_versions import cuda, numeric_versions
from samebits.errors import BadInput

MACHINE_VARIABLE = "CELLREPRO_MACHINE"
"""Names this machine; needed where several containers were made from one image."""


def machine(device: Any, numeric_class: str) -> MachineRecord:
    """The record of this machine, as one of its devices computes in this process."""
    if device.type != "cuda":
        device_name = processor().name or platform.machine()
        return MachineRecord(
            label=given_name() or _slug(device_name),
            identity=identity(""),
            device=device_name,
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


# -- what identifies it ------------------------------------------------------------------------


def is_anonymous() -> bool:
    """Whether nothing but a GPU identifies this machine: a container without a machine-id."""
    return given_name() is None and not _machine_id()


def given_name() -> str | None:
    """The name that `MACHINE_VARIABLE` gives this machine."""
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
    return given_name() or hashlib.sha256(salted).hexdigest()[:16]


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
