"""This machine, as it computes under a profile.

What a process computes shows in it alone, so another one with the profile's environment looks.
"""

from __future__ import annotations

import functools
import os

from cellrepro.determinism.profiles import Profile
from cellrepro.lab import process
from cellrepro.lab.process import Child, Setup
from cellrepro.store import platform
from cellrepro.store.manifest import MachineRecord

HOLD_VARIABLE = "CELLREPRO_HOLD"
"""Names a folder in which to leave the finished repeat instead of storing it; the grid sets it,
adds the notebook it executed, and stores both together. A process that has it was started with
the profile's environment."""


def machine_here(profile: Profile) -> MachineRecord:
    """The machine on which this computer would carry out a repeat now.

    Parameters
    ----------
    profile : Profile
        Its device says which GPU.

    Returns
    -------
    MachineRecord

    Raises
    ------
    NotPossibleHere
        If the device or the instruction set is not here.
    BadInput
        If ``CELLREPRO_MACHINE`` is no name.
    """
    # the name is part of what is remembered
    settings = profile.model_dump_json(exclude={"description"})
    return _seen(settings, os.environ.get(platform.MACHINE_VARIABLE), HOLD_VARIABLE in os.environ)


@functools.cache
def _seen(settings: str, named: str | None, inside: bool) -> MachineRecord:
    profile = Profile.model_validate_json(settings)
    label = f"looking at this machine under profile {profile.name!r}"
    return process.call("cellrepro.lab.machine:look", Setup(profile), label=label, here=inside)


def look(child: Child) -> MachineRecord:
    """What this process computes with."""
    from cellrepro.determinism.modes import mode_in_force
    from cellrepro.store.platform import numeric_class

    profile = child.setup.profile
    device = profile.enter()
    with mode_in_force("fast", tf32=profile.tf32, device=profile.kind):
        return platform.machine(device, numeric_class(str(device)).name)
