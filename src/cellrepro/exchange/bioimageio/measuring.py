"""Running the network of a package on its test input: under several profiles, in new processes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.machine_here import numeric_class
from cellrepro.process.setup import Setup
from cellrepro.profiles import profiles
from cellrepro.profiles.profile_names import profile_names
from cellrepro.profiles.profiles import Profile
from cellrepro.progress import progress
from cellrepro.store import machine_identity
from cellrepro.store.environment_record import MachineRecord
from samebits.errors import BadInput, NotPossibleHere, whole
from samebits.words import joined

USUAL_REPEATS = 2
"""Processes that measure under each profile."""
REFERENCE_PROFILE = "cpu"
"""The profile of the test output."""


@dataclass(frozen=True)
class MeasuredOutput:
    """One output of the network, which a process of its own has computed."""

    machine: MachineRecord
    profile: str
    """Name of the profile."""
    threads: int
    """Threads of PyTorch on the processor."""
    output: NDArray[np.float32]
    """Flows in y and x, and the logit of being cell."""


@dataclass(frozen=True)
class Architecture:
    """The arguments of `cellrepro.model.packaged_network.packaged_network`."""

    patch: int
    """Edge of a token in pixels."""
    encoder: Mapping[str, float | Sequence[int]] | None = None
    """Sizes of the encoder; None for Cellpose's own."""

    def arguments(self) -> dict[str, object]:
        """The arguments by name, without defaults."""
        encoder = {} if self.encoder is None else {"encoder": dict(self.encoder)}
        return {"patch": self.patch, **encoder}


@dataclass(frozen=True)
class PackagedTest:
    """A network with its test input."""

    weights: Path
    """A safetensors file."""
    architecture: Architecture
    scaled: NDArray[np.float32]
    """The test input after preprocessing."""


@dataclass(frozen=True)
class Measurements:
    """All outputs of this machine."""

    outputs: tuple[MeasuredOutput, ...]
    """The first one is the test output."""
    not_possible: Mapping[str, str]
    """Profiles that this machine does not have, and why."""


def usual_profiles() -> list[str]:
    """The profiles in float32, as packages compute; the one of the test output is first."""
    names = [name for name in profile_names() if _is_of_packages(profiles.load(name))]
    return sorted(names, key=lambda name: (name != REFERENCE_PROFILE, name))


def _is_of_packages(profile: Profile) -> bool:
    return profile.dtype == "float32"


def measure(
    test: PackagedTest, names: Sequence[str], *, repeats: int, quiet: bool = False
) -> Measurements:
    """Run a network on its test input under each profile, each time in a process of its own."""
    chosen = [profiles.load(name) for name in names]
    for profile in chosen:
        if not _is_of_packages(profile):
            raise BadInput(
                f"profile {profile.name!r} computes in {profile.dtype}, and packages of "
                f"bioimage.io compute in float32; expected {joined(usual_profiles())}"
            )
    n_processes = whole("repeats", repeats, 1)
    outputs = []
    not_possible = {}
    with progress(len(chosen), "measure the tolerance", quiet=quiet) as bar:
        for profile in chosen:
            try:
                profile.check_device()
                outputs += [_measured(test, profile) for _ in range(n_processes)]
            except NotPossibleHere as error:
                not_possible[profile.name] = str(error)
            bar.advance(profile.name)
    if not outputs:
        raise NotPossibleHere("; ".join(not_possible.values()))
    return Measurements(tuple(outputs), not_possible)


def _measured(test: PackagedTest, profile: Profile) -> MeasuredOutput:
    return in_child(
        functools.partial(output_of, test=test),
        Setup(profile, mode="fast", seed=0),
        label=f"running the network of the package under profile {profile.name!r}",
    )


def output_of(child: Child, *, test: PackagedTest) -> MeasuredOutput:
    """Runs in a child process: run the network as ``bioimageio.core`` does."""
    import torch
    from safetensors.torch import load_file

    profile = child.setup.profile
    with child.prepared() as device:
        from cellrepro.model.packaged_network import packaged_network

        sizes = test.architecture
        network = packaged_network(patch=sizes.patch, encoder=sizes.encoder)
        network.load_state_dict(load_file(test.weights), strict=True)
        network.to(device).eval()
        with torch.no_grad():
            output = network(torch.from_numpy(test.scaled).to(device)).cpu().numpy()
        return MeasuredOutput(
            machine=machine_identity.machine(device, numeric_class(profile, device)["name"]),
            profile=profile.name,
            threads=torch.get_num_threads(),
            output=output,
        )
