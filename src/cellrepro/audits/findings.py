"""Findings of `doctor`: versions, profile, mode and variables that decide a result."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from cellrepro.command_lines import with_variables
from cellrepro.model.cellpose_generation import generation_of
from cellrepro.process.setup import Setup
from cellrepro.profiles import process_start
from cellrepro.profiles.profiles import Profile
from cellrepro.spec.lab_command import lab_command
from cellrepro.store import installed_versions, machine_identity
from samebits import known_operations, modes
from samebits.words import joined

TESTED = {"cellpose": "4.2.1.1", "segment-anything": "1.0", "torch": "2.15.0"}
"""Versions whose behaviour the lab's claims about Cellpose were checked against."""

Level = Literal["error", "warning", "info"]
"""``warning``: reproducible here, but something else than the spec decides the result."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""The worst first."""


@dataclass(frozen=True)
class Finding:
    """Something that a result depends on, or that changes it."""

    level: Level
    """How bad it is."""
    what: str
    """The finding, in a sentence."""
    remedy: str
    """The remedy."""


def version_findings(profile: Profile) -> Iterator[Finding]:
    """Look at the installed versions and at the machine's name."""
    yield from _of_versions()
    if profile.kind != "cuda" and machine_identity.is_anonymous():
        yield Finding(
            level="warning",
            what="nothing tells this machine from another of its kind, as in a container without "
            "a machine-id",
            remedy=f"give each a name: {machine_identity.MACHINE_VARIABLE}=NAME",
        )


def _of_versions() -> Iterator[Finding]:
    installed = {
        package: version.partition("+")[0]
        for package, version in installed_versions.versions().items()
    }
    for package, tested in TESTED.items():
        if package == "segment-anything" and not generation_of().builds_own_networks:
            continue  # Cellpose 3 has no part of it
        version = installed.get(package, "not installed")
        if version != tested:
            is_listed = package != "torch" or version in known_operations.releases()
            remedy = f"install {package}=={tested}, or run `make test` to see what still holds"
            if package == "cellpose":
                remedy = (
                    "nothing, if your results are made with it: the lab segments with it as it is; "
                    f"`cellrepro setup FOLDER` makes a lab with {tested} beside it"
                )
            gap = "" if is_listed else ", and its operations are not among those the lab knows"
            yield Finding(
                level="warning",
                what=f"{package} is {version}; the lab was checked with {tested}, and other "
                f"versions give different bits{gap}",
                remedy=remedy,
            )


def setup_findings(setup: Setup) -> Iterator[Finding]:
    """Look at the profile, the mode and the variables that a training would have."""
    yield from _of_races(setup)
    if setup.mode != "portable":
        yield from _of_threads(setup.profile)
        yield from _of_instructions(setup.profile)
    yield from _of_tf32(setup.profile)
    yield Finding(
        level="info",
        what="Cellpose reseeds NumPy at every epoch: two seeds see the same images in the same "
        "order",
        remedy="pass --data-seed to make them follow a seed",
    )
    variables = setup.profile.started_with(setup.variables())
    for text in setup.profile.replaced(variables):
        yield Finding(level="info", what=text, remedy="nothing, unless the value was meant")
    yield from _of_variables(variables)


def _of_threads(profile: Profile) -> Iterator[Finding]:
    if profile.kind == "cpu" and profile.threads is None:
        yield Finding(
            level="warning",
            what=f"profile {profile.name} leaves the number of threads to the machine: sums are "
            "split by it, so a different machine gives different bits",
            remedy="set `threads` in the profile; cpu has 2",
        )


def _of_races(setup: Setup) -> Iterator[Finding]:
    profile = setup.profile
    race = modes.may_race(setup.mode, device=profile.device, threads=profile.threads)
    if race is None:
        return
    audited_mode = "fast" if setup.mode == "off" else setup.mode  # what the audit can do
    audit = lab_command("audit", "DATA", "--mode", audited_mode, store=None)
    yield Finding(
        level="error" if setup.mode in modes.FREE else "info",
        what=f"{race}, such as index_put in the backward of Cellpose's attention: bits may differ "
        "from run to run, and repeats then agree by chance",
        remedy=f"use --mode strict; `{audit}` names the operations",
    )


def _of_instructions(profile: Profile) -> Iterator[Finding]:
    if profile.environment.get("MKL_CBWR") != "COMPATIBLE":
        yield Finding(
            level="info",
            what=f"profile {profile.name} uses what this processor or GPU has: its bits hold on "
            "machines of the same numeric class only",
            remedy="use --mode portable for the same bits on every machine (two to four times "
            "slower), or compare masks, not bits, across devices",
        )


def _of_tf32(profile: Profile) -> Iterator[Finding]:
    if profile.tf32 or profile.kind == "cuda":
        yield Finding(
            level="warning" if profile.tf32 else "info",
            what=f"profile {profile.name} {'allows' if profile.tf32 else 'forbids'} TF32 (10 bits "
            "of the fraction); importing Cellpose allows it, whatever was set before",
            remedy="set `tf32: false` in the profile, and in scripts of your own "
            "torch.backends.cuda.matmul.allow_tf32 = False after importing Cellpose",
        )


def _of_variables(variables: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that a script started as this process was lacks, or has with another value."""
    at_start = process_start.variables_at_start()
    differing = {
        name: value for name, value in sorted(variables.items()) if at_start.get(name) != value
    }
    if not differing:
        return
    unset = [name for name in differing if name not in at_start]
    others = [f"{name}={at_start[name]}" for name in differing if name in at_start]
    parts = []
    if unset:
        parts.append(f"without {joined(unset)}")
    if others:
        parts.append(f"with {joined(others)}")
    command = with_variables(differing, "python …", windows=os.name == "nt")
    yield Finding(
        level="info",
        what=f"this process was started {joined(parts)}, and what the lab runs is started "
        "otherwise",
        remedy=f"start your own scripts with `{command}`",
    )
