"""This machine under a profile: which one it is, and the environment that goes on record."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from cellrepro.process.calling import Children, in_child, in_this_process
from cellrepro.process.cellpose_versions import cache_folder
from cellrepro.process.child import Child
from cellrepro.process.grid_handover import handover_folder
from cellrepro.process.setup import Setup, only_gpu
from cellrepro.profiles.numeric_variables import NUMERIC_VARIABLES
from cellrepro.profiles.process_start import require_at_startup
from cellrepro.profiles.profiles import Profile, cpu_capability
from cellrepro.store import hardware, installed_versions, machine_identity
from cellrepro.store.environment_record import EnvironmentRecord, MachineRecord
from cellrepro.store.numeric_class import measure_numeric_class
from cellrepro.store.whole_files import write_whole
from samebits.digests import value_digest
from samebits.errors import BadInput
from samebits.libraries import has_library

if TYPE_CHECKING:
    import torch


def machine_here(
    profile: Profile,
    gpu: str | None = None,
    cellpose: str | None = None,
    *,
    children: Children | None = None,
) -> MachineRecord:
    """Find out which machine a repeat would be of here; the answer is cached.

    It takes a child process, which ends with the other ``children``.
    """
    can_answer_here = (
        handover_folder() is not None and cellpose is None and _was_started_for(profile)
    )
    question = _Question(
        profile_settings=profile.model_dump_json(exclude={"description"}),
        given_name=os.environ.get(machine_identity.MACHINE_VARIABLE),
        in_this_process=can_answer_here,
        gpu=gpu,
        cellpose=cellpose,
    )
    if question not in _ANSWERS:
        _ANSWERS[question] = _answered(question, children)
    return _ANSWERS[question]


def _was_started_for(profile: Profile) -> bool:
    """Whether this process has the variables of a profile; a grid's notebook may name another."""
    try:
        require_at_startup(profile.variables())
    except BadInput:
        return False
    return True


@dataclass(frozen=True)
class _Question:
    """All that `machine_here` depends on: the key of its cache."""

    profile_settings: str
    """The profile as JSON."""
    given_name: str | None
    """The user's name for the machine."""
    in_this_process: bool
    gpu: str | None
    cellpose: str | None


_ANSWERS: dict[_Question, MachineRecord] = {}


def _answered(question: _Question, children: Children | None = None) -> MachineRecord:
    """Look at the machine, unless that was done since it started with the same PyTorch."""
    if question.cellpose is not None:  # in another environment, which may have another PyTorch
        return _looked(question, children)
    file = _answer_file(question)
    with suppress(OSError, ValueError):
        return MachineRecord.model_validate_json(file.read_bytes())
    machine = _looked(question, children)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, machine.model_dump_json(), replace=True)
    return machine


def _answer_file(question: _Question) -> Path:
    """The file in which an answer is cached; its name is a digest of all that it depends on."""
    torch = find_spec("torch")
    origin = "" if torch is None else str(torch.origin)
    facts = {
        "question": asdict(question),
        "identity": machine_identity.identity(""),
        "host": hardware.host(),
        "started": psutil.boot_time(),
        "gpus": [gpu["uuid"] for gpu in hardware.gpus()],
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "versions": installed_versions.versions(),
        "torch": origin and [origin, Path(origin).stat().st_mtime_ns],
    }
    return cache_folder() / "machines" / f"{value_digest(facts)[:16]}.json"


def _looked(question: _Question, children: Children | None) -> MachineRecord:
    profile = Profile.model_validate_json(question.profile_settings)
    setup = Setup(profile, cellpose=question.cellpose)
    label = f"looking at this machine under profile {profile.name!r}"
    if question.in_this_process:
        return in_this_process(look, setup, label=label)
    variables = only_gpu(question.gpu)
    return in_child(look, setup, label=label, variables=variables, children=children)


def look(child: Child) -> MachineRecord:
    """Identify the machine from inside a child; Cellpose, slow to import, is not needed."""
    profile = child.setup.profile
    device = profile.enter()
    return machine_identity.machine(device, numeric_class(profile, device)["name"])


def numeric_class(profile: Profile, device: torch.device) -> dict[str, Any]:
    """Measure the numeric class under a profile, whatever mode is in force."""
    from samebits.modes import mode_in_force

    with mode_in_force("fast", tf32=profile.tf32, device=profile.kind):
        return measure_numeric_class(str(device))


# -- inside the process that computes ------------------------------------------------------


def environment_here(profile: Profile, device: torch.device) -> EnvironmentRecord:
    """The environment of this process, once its mode is in force."""
    of_class = numeric_class(profile, device)
    return EnvironmentRecord(
        machine=machine_identity.machine(device, of_class["name"]),
        host=hardware.host(),
        versions=installed_versions.versions(),
        distributions=installed_versions.distributions(),
        cuda=installed_versions.cuda(),
        device=_name_of(device),
        threads=_n_threads(profile),
        cpu_capability=cpu_capability(),
        numeric_libraries=installed_versions.numeric_libraries(),
        numeric_class=of_class,
        variables={name: os.environ[name] for name in NUMERIC_VARIABLES if name in os.environ},
    )


def _name_of(device: torch.device) -> str:
    if device.type != "cuda":
        return device.type
    import torch

    return torch.cuda.get_device_name()


def _n_threads(profile: Profile) -> int:
    """Threads that PyTorch computes with; without it, those that the profile allows libraries."""
    if not has_library("torch"):
        return profile.threads or os.cpu_count() or 1
    import torch

    return torch.get_num_threads()
