"""This machine, as it computes under a profile: ``python -m cellrepro.lab.machine PROFILE.json``.

What a process computes shows in it alone, so another one with the profile's environment looks.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any

from cellrepro.determinism.profiles import Profile
from cellrepro.lab import process
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
    named = os.environ.get(platform.MACHINE_VARIABLE)
    inside = HOLD_VARIABLE in os.environ
    return _seen(profile.model_dump_json(exclude={"description"}), named, inside)


@functools.cache
def _seen(profile: str, named: str | None, inside: bool) -> MachineRecord:
    if inside:
        return MachineRecord(**_look(profile))
    settings = Profile.model_validate_json(profile)
    return MachineRecord(
        **process.call(
            "cellrepro.lab.machine",
            profile,
            environment=settings.child_environment(),
            label=f"looking at this machine under profile {settings.name!r}",
        )
    )


def _look(profile: str, events: process.Events | None = None) -> dict[str, Any]:
    from cellrepro.determinism.modes import mode_in_force
    from cellrepro.store.platform import numeric_class

    settings = Profile(**json.loads(profile))
    device = settings.enter()
    with mode_in_force("fast", tf32=settings.tf32, device=settings.kind):
        name = numeric_class(str(device)).name
    return platform.machine(device, name).model_dump(mode="json")


if __name__ == "__main__":
    sys.exit(process.serve(_look))
