"""This machine, as it computes under a profile: seen by a process that has its environment."""

from __future__ import annotations

import functools
import os

from cellrepro.determinism.profiles import Profile
from cellrepro.lab.process import Child, Setup, call
from cellrepro.store import platform
from cellrepro.store.manifest import MachineRecord

HOLD_VARIABLE = "CELLREPRO_HOLD"
"""Names a folder in which to leave the finished repeat instead of storing it; the grid sets it,
adds the notebook it executed, and stores both together. A process that has it was started with
the profile's environment."""


def machine_here(profile: Profile) -> MachineRecord:
    """The machine on which this computer would carry out a repeat under a profile now."""
    settings = profile.model_dump_json(exclude={"description"})
    return _seen(settings, os.environ.get(platform.MACHINE_VARIABLE), HOLD_VARIABLE in os.environ)


@functools.cache
def _seen(settings: str, named: str | None, inside: bool) -> MachineRecord:
    """Found out once for each profile and name of the machine."""
    profile = Profile.model_validate_json(settings)
    label = f"looking at this machine under profile {profile.name!r}"
    return call("cellrepro.lab.machine:look", Setup(profile), label=label, here=inside)


def look(child: Child) -> MachineRecord:
    """What this process computes with; Cellpose, which takes seconds to import, is not needed."""
    from cellrepro.determinism.modes import mode_in_force

    profile = child.setup.profile
    device = profile.enter()
    with mode_in_force("fast", tf32=profile.tf32, device=profile.kind):
        return platform.machine(device, platform.numeric_class(str(device))["name"])
