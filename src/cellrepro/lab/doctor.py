"""What here is not reproducible, why, and the remedy; checked by doing it twice.

Looks at the machine, the libraries, the process and the profile, and then trains the same few
steps of `tiny` in two processes, one after the other. It looks good only if these two ended in
the same bits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cellrepro.determinism import known_operations, modes, profiles
from cellrepro.determinism.seeding import check_seed
from cellrepro.errors import CellreproError, NotPossibleHere
from cellrepro.lab.process import Child, Setup, call
from cellrepro.progress import progress
from cellrepro.store import platform

Level = Literal["error", "warning", "info"]

TESTED = {"cellpose": "4.2.1.1", "segment-anything": "1.0", "torch": "2.15.0"}
"""Versions whose behaviour the lab's claims about Cellpose were checked against."""

_STEPS = 6


@dataclass(frozen=True)
class Finding:
    """One thing that a result depends on, or that changes it.

    Attributes
    ----------
    level : str
        ``error``: not reproducible here and now; ``warning``: reproducible here, but something
        else than the spec decides the result; ``info``: good to know.
    what : str
        What was found, and why it matters.
    remedy : str
        What to do.
    """

    level: Level
    what: str
    remedy: str


_OF_CELLPOSE = Finding(
    "info",
    "Cellpose reseeds NumPy at every epoch: the seed of a user changes neither image order nor "
    "augmentation, so two seeds see the same images in the same order",
    "pass --data-seed to make them follow a seed",
)


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found.

    Attributes
    ----------
    host : dict
        The machine, its libraries and its numeric class.
    profile : dict
        The profile looked at, with mode and seed.
    findings : tuple of Finding
        Errors first.
    double_run : dict or None
        What the two processes ended with; none if they could not run.
    ok : bool
        Whether nothing is wrong and the double run was bit-identical.
    exit_code : int
        0 if ok, 1 if not, 3 if this machine cannot run the profile.
    """

    host: dict[str, Any]
    profile: dict[str, Any]
    findings: tuple[Finding, ...]
    double_run: dict[str, Any] | None
    ok: bool
    exit_code: int

    def sentence(self) -> str:
        """The answer."""
        name, mode = self.profile["name"], self.profile["mode"]
        if self.ok:
            return (
                f"looks good: {_STEPS} training steps in two processes of profile {name}, mode "
                f"{mode}, ended in the same bits (numeric class {self.host['numeric_class']})"
            )
        errors = [finding for finding in self.findings if finding.level == "error"]
        return f"not reproducible with profile {name}, mode {mode}: " + "; ".join(
            finding.what for finding in errors
        )


def diagnose(
    *,
    profile: str | Path = "cpu",
    mode: str = "strict",
    seed: int = 0,
    quiet: bool = False,
) -> Diagnosis:
    """Say what of this host, process and profile is not reproducible, why, and the remedy.

    Parameters
    ----------
    profile : str or Path
        Name or ``.yaml`` file.
    mode : str
        ``fast``, ``warn`` or ``strict``.
    seed : int
        Of the double run.
    quiet : bool
        Show no progress.

    Notes
    -----
    The double run proves that this machine, with this profile, repeats `tiny`; not that another
    machine gives the same bits, nor that every network does: `cellrepro audit` looks at yours.
    """
    modes.check_mode(mode)
    check_seed(seed)
    settings = profiles.load(profile)
    setup = Setup(settings, mode, seed)
    findings = [
        *_of_versions(),
        *_of_machine(settings),
        *_of_profile(settings, mode),
        *_of_this_process(setup),
        _OF_CELLPOSE,
    ]
    runs: list[FewSteps] = []
    impossible = False
    try:
        runs = _double_run(setup, quiet=quiet)
        findings += _of_double_run(runs, settings, mode)
    except CellreproError as refused:
        impossible = isinstance(refused, NotPossibleHere)
        remedy = "choose another profile or mode, see the message"
        findings.append(Finding("error", f"the double run could not run: {refused}", remedy))
    levels = ("error", "warning", "info")
    ok = not any(finding.level == "error" for finding in findings)
    return Diagnosis(
        host={
            **platform.host(),
            "versions": platform.versions(),
            "numeric_class": runs[0].numeric_class if runs else None,
            "libraries": runs[0].libraries if runs else [],
        },
        profile={**settings.model_dump(mode="json"), "mode": mode, "seed": seed},
        findings=tuple(sorted(findings, key=lambda finding: levels.index(finding.level))),
        double_run=_compared(*runs) if runs else None,
        ok=ok,
        exit_code=0 if ok else NotPossibleHere.exit_code if impossible else 1,
    )


# -- what it looks at ----------------------------------------------------------------------


def _of_versions() -> Iterator[Finding]:
    versions = platform.versions()
    for package, tested in TESTED.items():
        installed = versions.get(package)
        if installed is None or installed.partition("+")[0] != tested:
            yield Finding(
                "warning",
                f"{package} is {installed or 'not installed'}; what the lab says of Cellpose "
                f"was checked with {tested}, and other versions give other bits",
                f"install {package}=={tested} (make setup does), or run `make test` to see "
                "what still holds",
            )
    listed = known_operations.releases()
    torch_version = versions.get("torch", "").partition("+")[0]
    if torch_version and torch_version not in listed:
        yield Finding(
            "warning",
            "the lab's list of nondeterministic operations covers PyTorch "
            f"{', '.join(listed)}, not {torch_version}: what is new in it is not known",
            "`cellrepro audit DATA` says which operations give other bits here",
        )


def _of_machine(profile: profiles.Profile) -> Iterator[Finding]:
    if profile.kind != "cuda" and platform.is_anonymous():
        yield Finding(
            "warning",
            "nothing tells this machine from another of its kind, as in a container without a "
            "machine-id: results of two such machines would be taken for repeats on one",
            f"give each a name: {platform.MACHINE_VARIABLE}=NAME",
        )


def _of_profile(profile: profiles.Profile, mode: str) -> Iterator[Finding]:
    if profile.device == "cpu" and profile.threads is None:
        yield Finding(
            "warning",
            f"profile {profile.name} leaves the number of threads to the machine: sums are "
            "split by it, so another machine gives other bits",
            "set `threads` in the profile; cpu has 2",
        )
    race = known_operations.may_race(mode, device=profile.device, threads=profile.threads)
    if mode == "fast" and race is not None:
        yield Finding(
            "error",
            "mode fast fixes nothing but the seeds: operations that add in the order in which "
            "threads arrive, such as index_put in the backward of Cellpose's attention, give "
            "other bits from run to run, and repeats agree by chance at best",
            "use --mode strict; `cellrepro audit DATA --mode fast` names the operations",
        )
    if mode == "warn":
        yield Finding(
            "info",
            "mode warn holds what PyTorch can hold and warns of the rest; it uses no substitutes",
            "use --mode strict for results to keep",
        )
    if profile.device == "cpu" and profile.environment.get("MKL_CBWR") != "COMPATIBLE":
        yield Finding(
            "info",
            f"profile {profile.name} uses what this processor has: its bits hold on machines "
            "of the same numeric class only",
            "use profile cpu-portable for bits meant to be equal on any x86-64 machine",
        )
    if profile.device != "cpu":
        yield Finding(
            "info",
            f"bits on {profile.device} hold for one GPU model, driver and library build",
            "compare masks across devices with `cellrepro compare`, and expect other bits",
        )
    if profile.tf32:
        yield Finding(
            "warning",
            f"profile {profile.name} allows TF32: products keep 10 bits of their fraction on "
            "GPUs that have it, and 23 elsewhere",
            "set `tf32: false` in the profile",
        )
    for text in profile.warnings():
        yield Finding("warning", text, "correct the profile's environment")


def _of_this_process(setup: Setup) -> Iterator[Finding]:
    """What a training in this very process, outside the lab's own children, would lack."""
    wanted = setup.profile.started_with(setup.variables())
    for text in setup.profile.replaced(wanted):
        yield Finding("info", text, "nothing, unless the value was meant")
    now = profiles.variables_at_start()
    missing = {name: value for name, value in sorted(wanted.items()) if now.get(name) != value}
    if missing:
        variables = " ".join(f"{name}={value}" for name, value in missing.items())
        yield Finding(
            "info",
            f"this process was started without {', '.join(missing)}; the lab sets them for the "
            "processes in which it trains, but code of your own in this one runs without",
            f"start your own scripts with `{variables} python …`",
        )


# -- the double run ------------------------------------------------------------------------


@dataclass(frozen=True)
class FewSteps:
    """What a process ended with that trained a few steps, and what it was."""

    weights: str
    n_changed: int
    numeric_class: str
    switches: dict[str, Any]
    libraries: list[dict[str, Any]]
    tf32_at_import: bool
    warned: tuple[str, ...]


def _double_run(setup: Setup, *, quiet: bool) -> list[FewSteps]:
    with progress(2 * (_STEPS + 2), "double run", quiet=quiet) as bar:

        def run(label: str) -> FewSteps:
            return call(
                "cellrepro.lab.doctor:few_steps",
                setup,
                label=label,
                on_event=lambda event: bar.advance(f"{label}, {event['name']}"),
            )

        return [run("first run"), run("second run")]


def _compared(first: FewSteps, second: FewSteps) -> dict[str, Any]:
    return {
        "identical": first.weights == second.weights,
        "steps": _STEPS,
        "weights": [first.weights, second.weights],
        "n_changed": first.n_changed,
        "switches": first.switches,
    }


def _of_double_run(runs: list[FewSteps], profile: profiles.Profile, mode: str) -> Iterator[Finding]:
    first, second = runs
    if not first.n_changed:
        yield Finding("error", "the double run changed no weight and proves nothing", "report it")
    if first.weights != second.weights:
        yield Finding(
            "error",
            f"the double run was not bit-identical: {_STEPS} training steps from one seed ended "
            "in other weights",
            "use --mode strict"
            if mode == "fast"
            else "`cellrepro audit DATA` names the operation; please report it",
        )
    if first.numeric_class != second.numeric_class:
        yield Finding(
            "error",
            "two processes of one profile are of two numeric classes: "
            f"{first.numeric_class} and {second.numeric_class}",
            "look for what else sets threads or instruction sets between two starts",
        )
    if first.tf32_at_import:
        yield Finding(
            "warning" if profile.device == "cuda" else "info",
            "importing Cellpose allows TF32 products on CUDA for the whole process, whatever "
            "was set before",
            "the lab's modes set it back; in scripts of your own set "
            "torch.backends.cuda.matmul.allow_tf32 = False after importing Cellpose",
        )
    openmp = {one["internal_api"] for one in first.libraries if one["user_api"] == "openmp"}
    if len(openmp) > 1:
        yield Finding(
            "warning",
            f"several OpenMP libraries are loaded ({', '.join(sorted(openmp))}): which one "
            "shares a sum among threads depends on the order of imports",
            "install all packages from one source, conda or pip",
        )
    for alert in first.warned:
        yield Finding(
            "warning",
            f"PyTorch warns that {alert} has no deterministic implementation on this device",
            "use --mode strict, which has substitutes, or stops if there is none",
        )


def few_steps(child: Child) -> FewSteps:
    """Inside the child: a few training steps of `tiny` on synthetic images."""
    import torch

    tf32_before = torch.backends.cuda.matmul.allow_tf32
    from cellrepro.determinism.seeding import seed_everything
    from cellrepro.images.folder import read_folder
    from cellrepro.images.synthetic import write_folder
    from cellrepro.model.network import TINY, ModelSource, build, import_cellpose, save_weights
    from cellrepro.model.training import Loop
    from cellrepro.trace.torch_warnings import WarningLog, about_determinism

    import_cellpose()
    tf32_after = torch.backends.cuda.matmul.allow_tf32
    log = WarningLog()
    with (
        tempfile.TemporaryDirectory() as scratch,
        log.listening(),
        child.prepared() as device,
    ):
        switches = modes.switches()
        write_folder(Path(scratch, "images"), n_train=2, n_test=0)
        images = read_folder(Path(scratch, "images")).train
        network = build(
            ModelSource(TINY, TINY), seed=child.setup.seed, device=device, dtype="float32"
        )
        before = {name: p.detach().clone() for name, p in network.named_parameters()}
        del before["diam_labels"]  # set from the data's diameters, not by training
        seed_everything(child.setup.seed)
        child.phase("flows")
        loop = Loop(
            network, images, (), n_epochs=2, learning_rate=1e-3, images_per_epoch=_STEPS // 2
        )
        while not loop.finished:
            loop.step()
            child.phase(f"step {loop.training.n_steps}")
        weights = save_weights(network, Path(scratch, "weights"), architecture=TINY)
        after = dict(network.named_parameters())
        n_changed = sum(int((after[name] != old).sum()) for name, old in before.items())
    return FewSteps(
        weights=weights,
        n_changed=n_changed,
        numeric_class=platform.numeric_class(device=str(device)).name,
        switches=switches,
        libraries=platform.numeric_libraries(),
        tf32_at_import=tf32_after and not tf32_before,
        warned=tuple(sorted({warning.alert or "" for warning in about_determinism(log.records())})),
    )
