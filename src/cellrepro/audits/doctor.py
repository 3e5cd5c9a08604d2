"""What here is not reproducible, why, and the remedy; checked by training `tiny` twice."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cellrepro.asked import defaults
from cellrepro.audits.small_training import N_STEPS, small_training
from cellrepro.determinism import known_operations, modes, profiles
from cellrepro.determinism.modes import Mode
from cellrepro.determinism.seeds import seed_of
from cellrepro.errors import CellreproError, NotPossibleHere
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.progress import progress
from cellrepro.results import Result
from cellrepro.store import this_machine
from cellrepro.store.numeric_class import measure_numeric_class
from cellrepro.words import joined

TESTED = {"cellpose": "4.2.1.1", "segment-anything": "1.0", "torch": "2.15.0"}
"""Versions whose behaviour the lab's claims about Cellpose were checked against."""

_LEVELS = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that a result depends on, or that changes it."""

    level: Literal["error", "warning", "info"]
    """``warning``: reproducible here, but something else than the spec decides the result."""
    what: str
    remedy: str


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """What `diagnose` found."""

    host: dict[str, Any]
    """The machine, its libraries and its numeric class."""
    profile: dict[str, Any]
    """The profile's fields, with mode and seed."""
    findings: tuple[Finding, ...]
    """Errors first, then warnings."""
    ok: bool
    """Nothing is wrong and the double run was bit-identical."""
    exit_code: int
    """0 if ok, 1 if not, 3 if this machine cannot run the profile."""

    def sentence(self) -> str:
        """Say whether this machine repeats a training, and if not, what is wrong."""
        name = self.profile["name"]
        mode = self.profile["mode"]
        if self.ok:
            return (
                f"looks good: {N_STEPS} training steps in two processes of profile {name}, mode "
                f"{mode}, ended in the same bits (numeric class {self.host['numeric_class']})"
            )
        errors = "; ".join(item.what for item in self.findings if item.level == "error")
        return f"not reproducible with profile {name}, mode {mode}: {errors}"


def diagnose(
    *,
    profile: str | Path = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    seed: int | None = None,
    quiet: bool = False,
) -> Diagnosis:
    """Say what of this host, process and profile is not reproducible, why, and the remedy.

    Parameters
    ----------
    profile, mode, seed, quiet
        As for `cellrepro.train`.

    Notes
    -----
    The double run proves that this machine, with this profile, repeats `tiny`; not that another
    machine gives the same bits, nor that every network does: `cellrepro audit` looks at yours.
    """
    modes.check_mode(mode)
    setup = Setup(profiles.load(profile), mode, seed_of(mode, seed))
    findings = [*_of_versions(), *_of_settings(setup)]
    exit_code = 0
    seen: dict[str, Any] = {"numeric_class": None, "libraries": []}
    try:
        with progress(2 * (N_STEPS + 2), "double run", quiet=quiet) as bar:
            first, second = (
                in_child(few_steps, setup, label=f"{which} run", on_event=counting(bar))
                for which in ("first", "second")
            )
        findings += _of_double_run(first, second)
        seen = {name: first[name] for name in seen}
    except CellreproError as refused:
        remedy = "choose another profile or mode, see the message"
        findings.append(Finding("error", f"the double run could not run: {refused}", remedy))
        exit_code = 3 if refused.exit_code == NotPossibleHere.exit_code else 1
    exit_code = exit_code or int(any(finding.level == "error" for finding in findings))
    return Diagnosis(
        host={**this_machine.host(), "versions": this_machine.versions(), **seen},
        profile={**setup.profile.model_dump(mode="json"), "mode": mode, "seed": setup.seed},
        findings=tuple(sorted(findings, key=lambda finding: _LEVELS.index(finding.level))),
        ok=exit_code == 0,
        exit_code=exit_code,
    )


# -- what it looks at ----------------------------------------------------------------------


def _of_versions() -> Iterator[Finding]:
    here = {name: version.partition("+")[0] for name, version in this_machine.versions().items()}
    for package, tested in TESTED.items():
        version = here.get(package, "not installed")
        if version != tested:
            listed = package != "torch" or version in known_operations.releases()
            gap = "" if listed else ", and its operations are not among those the lab knows"
            yield Finding(
                "warning",
                f"{package} is {version}; the lab was checked with {tested}, and other versions "
                f"give other bits{gap}",
                f"install {package}=={tested}, or run `make test` to see what still holds",
            )


def _of_settings(setup: Setup) -> Iterator[Finding]:
    profile = setup.profile
    mode = setup.mode
    if profile.kind != "cuda" and this_machine.is_anonymous():
        yield Finding(
            "warning",
            "nothing tells this machine from another of its kind, as in a container without a "
            "machine-id",
            f"give each a name: {this_machine.MACHINE_VARIABLE}=NAME",
        )
    if profile.kind == "cpu" and profile.threads is None:
        yield Finding(
            "warning",
            f"profile {profile.name} leaves the number of threads to the machine: sums are split "
            "by it, so another machine gives other bits",
            "set `threads` in the profile; cpu has 2",
        )
    race = known_operations.may_race(mode, device=profile.device, threads=profile.threads)
    if race is not None:
        least = "fast" if mode == "off" else mode  # what the audit can do
        yield Finding(
            "error" if mode in modes.FREE else "info",
            f"{race}, such as index_put in the backward of Cellpose's attention: bits may differ "
            "from run to run, and repeats then agree by chance",
            f"use --mode strict; `cellrepro audit DATA --mode {least}` names the operations",
        )
    if profile.environment.get("MKL_CBWR") != "COMPATIBLE":
        yield Finding(
            "info",
            f"profile {profile.name} uses what this processor or GPU has: its bits hold on "
            "machines of the same numeric class only",
            "use profile cpu-portable for bits meant to be equal on any x86-64 machine, and "
            "compare masks, not bits, across devices",
        )
    if profile.tf32 or profile.kind == "cuda":
        yield Finding(
            "warning" if profile.tf32 else "info",
            f"profile {profile.name} {'allows' if profile.tf32 else 'forbids'} TF32 (10 bits of "
            "the fraction); importing Cellpose allows it, whatever was set before",
            "set `tf32: false` in the profile, and in scripts of your own "
            "torch.backends.cuda.matmul.allow_tf32 = False after importing Cellpose",
        )
    yield Finding(
        "info",
        "Cellpose reseeds NumPy at every epoch: two seeds see the same images in the same order",
        "pass --data-seed to make them follow a seed",
    )
    wanted = profile.started_with(setup.variables())
    for text in profile.replaced(wanted):
        yield Finding("info", text, "nothing, unless the value was meant")
    yield from _of_variables(wanted)


def _of_variables(wanted: Mapping[str, str]) -> Iterator[Finding]:
    """What a script that is started as this process was has not, or has otherwise."""
    now = profiles.variables_at_start()
    differing = {name: value for name, value in sorted(wanted.items()) if now.get(name) != value}
    if not differing:
        return
    unset = [name for name in differing if name not in now]
    others = [f"{name}={now[name]}" for name in differing if name in now]
    parts = [f"without {joined(unset)}"] if unset else []
    parts += [f"with {joined(others)}"] if others else []
    values = " ".join(f"{name}={shlex.quote(value)}" for name, value in differing.items())
    yield Finding(
        "info",
        f"this process was started {joined(parts)}, and what the lab runs is started otherwise",
        f"start your own scripts with `{values} python …`",
    )


# -- the double run ------------------------------------------------------------------------


def _of_double_run(first: dict[str, Any], second: dict[str, Any]) -> Iterator[Finding]:
    if first["weights"] == first["before"]:
        yield Finding("error", "the double run changed no weight and proves nothing", "report it")
    if first["weights"] != second["weights"]:
        yield Finding(
            "error",
            f"the double run was not bit-identical: {N_STEPS} training steps ended in other "
            "weights",
            "use --mode strict; in it `cellrepro audit DATA` names the operation, please report it",
        )
    libraries = first["libraries"]
    openmp = {library["internal_api"] for library in libraries if library["user_api"] == "openmp"}
    if len(openmp) > 1:
        yield Finding(
            "warning",
            f"several OpenMP libraries are loaded ({', '.join(sorted(openmp))}): which one shares "
            "a sum among threads depends on the order of imports",
            "install all packages from one source, conda or pip",
        )


def few_steps(child: Child) -> dict[str, Any]:
    """Inside the child: train `tiny` on synthetic images, and say what came of it, and where."""
    from cellrepro.bits.digests import tensors_digest
    from cellrepro.model.encoders import TINY
    from cellrepro.model.weight_sources import ModelSource

    with child.prepared() as device:
        child.setup.seed_all()
        loop, network = small_training(ModelSource(TINY, TINY), device, seed=child.setup.seed)
        before = tensors_digest(network.state_dict())
        child.phase("flows")
        while not loop.finished:
            loop.step()
            child.phase(f"step {loop.training.n_steps}")
    return {
        "before": before,
        "weights": tensors_digest(network.state_dict()),
        "numeric_class": measure_numeric_class(str(device))["name"],
        "libraries": this_machine.numeric_libraries(),
    }
