"""What the numbers depend on beside the spec; and the ledger before the first step."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from cellrepro.determinism import modes
from cellrepro.determinism.profiles import NUMERIC_VARIABLES, Profile, cpu_capability
from cellrepro.digests.digests import value_digest
from cellrepro.digests.nested_values import flattened
from cellrepro.digests.tensor_digests import tensor_digest
from cellrepro.libraries import has_library
from cellrepro.process.machine_here import numeric_class
from cellrepro.run.repeat_work import RepeatWork
from cellrepro.run.training_ledgers import add_spec
from cellrepro.store import this_machine
from cellrepro.store.manifest import ENVIRONMENT_FIELDS, MachineRecord

if TYPE_CHECKING:
    import torch

_IN_THE_LEDGER = (*ENVIRONMENT_FIELDS, "cuda")
"""The rest stands in the manifest alone."""


@dataclass(frozen=True)
class Environment:
    """What the numbers depend on beside the spec; the fields are those of the manifest."""

    machine: MachineRecord
    host: dict[str, Any]
    versions: dict[str, str]
    distributions: dict[str, str]
    cuda: dict[str, str | None]
    device: str
    threads: int
    cpu_capability: str
    numeric_libraries: list[dict[str, Any]]
    numeric_class: dict[str, Any]
    variables: dict[str, str]
    switches: dict[str, Any]

    @classmethod
    def here(cls, profile: Profile, device: torch.device) -> Environment:
        """That of this process, once its mode is in force."""
        of_class = numeric_class(profile, device)
        return cls(
            machine=this_machine.machine(device, of_class["name"]),
            host=this_machine.host(),
            versions=this_machine.versions(),
            distributions=this_machine.distributions(),
            cuda=this_machine.cuda(),
            device=_name_of(device),
            threads=_n_threads(profile),
            cpu_capability=cpu_capability(),
            numeric_libraries=this_machine.numeric_libraries(),
            numeric_class=of_class,
            variables={name: os.environ[name] for name in NUMERIC_VARIABLES if name in os.environ},
            switches=modes.switches(),
        )

    def by_field(self) -> dict[str, Any]:
        """Every field with its value, as the manifest takes them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


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


def write_beginning(work: RepeatWork, environment: Environment) -> None:
    """Write down environment, spec, data as decoded, initial weights and seeded generators."""
    from cellrepro.trace.watches import StepWatch

    ledger = work.recorder.ledger
    for name, value in flattened(environment.by_field()):
        if name.partition(".")[0] in _IN_THE_LEDGER:
            ledger.add("environment", name, value_digest(value), detail=value)
    add_spec(ledger, work.spec)
    for name, digest in work.folder.files.items():
        ledger.add("data", f"file {name}", digest)
    for image in (*work.folder.train, *work.folder.test):
        ledger.add("data", f"{image.name} decoded", tensor_digest(image.image))
        if image.masks is not None:
            ledger.add("data", f"{image.name} masks", tensor_digest(image.masks))
    watch = StepWatch(ledger)
    watch.weights("weights-init", work.network)
    watch.generators("at the start")
