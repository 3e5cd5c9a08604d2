"""What the network of a package gives for its test input: under each profile, in new processes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cellrepro.determinism import profiles
from cellrepro.determinism.choices import profile_names
from cellrepro.determinism.profiles import Profile
from cellrepro.errors import BadInput, NotPossibleHere, whole
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.machine_here import numeric_class
from cellrepro.process.setup import Setup
from cellrepro.progress import progress
from cellrepro.store import this_machine
from cellrepro.store.manifest import MachineRecord
from cellrepro.words import joined

REFERENCE_PROFILE = "cpu"
"""Under which the test output is computed."""


@dataclass(frozen=True)
class Circumstances:
    """Under what an output was computed.

    Attributes
    ----------
    machine : MachineRecord
    profile : str
        Its name.
    repeat : int
        From 0; each in a process of its own.
    threads : int
        Of PyTorch on the processor.
    """

    machine: MachineRecord
    profile: str
    repeat: int
    threads: int


@dataclass(frozen=True)
class MeasuredOutput:
    """What the network gave, and where.

    Attributes
    ----------
    circumstances : Circumstances
    output : ndarray of float32, shape (1, 3, Y, X)
        Flows in y and x, and the logit of being cell.
    """

    circumstances: Circumstances
    output: NDArray[np.float32]


@dataclass(frozen=True)
class Architecture:
    """What `cellrepro.model.packaged_network.packaged_network` is called with.

    Attributes
    ----------
    patch : int
        Pixels along a token's edge.
    encoder : mapping of str to numbers, or None
        Its sizes; None for Cellpose's own.
    """

    patch: int
    encoder: Mapping[str, float | Sequence[int]] | None = None

    def arguments(self) -> dict[str, object]:
        """The same by name, as a package says it."""
        encoder = {} if self.encoder is None else {"encoder": dict(self.encoder)}
        return {"patch": self.patch, **encoder}


@dataclass(frozen=True)
class PackagedTest:
    """A network with what it is tested with.

    Attributes
    ----------
    weights : Path
        A safetensors file.
    architecture : Architecture
    scaled : ndarray of float32, shape (1, C, Y, X)
        The test input after preprocessing.
    """

    weights: Path
    architecture: Architecture
    scaled: NDArray[np.float32]


@dataclass(frozen=True)
class Measurements:
    """All outputs that were measured here.

    Attributes
    ----------
    outputs : tuple of MeasuredOutput
        The first is the one of the reference.
    not_possible : mapping of str to str
        Profiles that this machine does not have, and why.
    """

    outputs: tuple[MeasuredOutput, ...]
    not_possible: Mapping[str, str]


def usual_profiles() -> list[str]:
    """Those in which a package computes: float32, on every device; that of the reference first."""
    names = [name for name in profile_names() if _is_of_packages(profiles.load(name))]
    return sorted(names, key=lambda name: (name != REFERENCE_PROFILE, name))


def _is_of_packages(profile: Profile) -> bool:
    return profile.dtype == "float32"


def measure(
    test: PackagedTest, names: Sequence[str], *, repeats: int, quiet: bool = False
) -> Measurements:
    """Run a network on its test input under several profiles, each time in a process of its own.

    Parameters
    ----------
    test : PackagedTest
    names : sequence of str
        Profiles, that of the reference first.
    repeats : int
        Processes for each.
    quiet : bool
        Show no progress.

    Returns
    -------
    Measurements

    Raises
    ------
    BadInput
        If a profile computes in another precision than packages do.
    NotPossibleHere
        If this machine has none of the profiles.
    """
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
                outputs += [_measured(test, profile, index) for index in range(n_processes)]
            except NotPossibleHere as error:
                not_possible[profile.name] = str(error)
            bar.advance(profile.name)
    if not outputs:
        raise NotPossibleHere("; ".join(not_possible.values()))
    return Measurements(tuple(outputs), not_possible)


def _measured(test: PackagedTest, profile: Profile, repeat: int) -> MeasuredOutput:
    return in_child(
        functools.partial(output_of, test=test, repeat=repeat),
        Setup(profile, mode="fast", seed=0),
        label=f"running the network of the package under profile {profile.name!r}",
    )


def output_of(child: Child, *, test: PackagedTest, repeat: int) -> MeasuredOutput:
    """Run the network as ``bioimageio.core`` does, in this process.

    Parameters
    ----------
    child : Child
    test : PackagedTest
    repeat : int
        Written into the answer.
    """
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
        circumstances = Circumstances(
            machine=this_machine.machine(device, numeric_class(profile, device)["name"]),
            profile=profile.name,
            repeat=repeat,
            threads=torch.get_num_threads(),
        )
    return MeasuredOutput(circumstances, output)
