"""What of a profile, a mode and this process's variables decides a result, or leaves it open."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from cellrepro.audits.finding import Finding
from cellrepro.determinism import known_operations, modes, process_start
from cellrepro.determinism.profiles import Profile
from cellrepro.process.setup import Setup
from cellrepro.words import joined, with_variables


def setup_findings(setup: Setup) -> Iterator[Finding]:
    """Look at what a training is asked to compute with."""
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
    race = known_operations.may_race(setup.mode, device=profile.device, threads=profile.threads)
    if race is None:
        return
    audited_mode = "fast" if setup.mode == "off" else setup.mode  # what the audit can do
    yield Finding(
        level="error" if setup.mode in modes.FREE else "info",
        what=f"{race}, such as index_put in the backward of Cellpose's attention: bits may differ "
        "from run to run, and repeats then agree by chance",
        remedy=f"use --mode strict; `cellrepro audit DATA --mode {audited_mode}` names the "
        "operations",
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
    """What a script that is started as this process was has not, or has otherwise."""
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
