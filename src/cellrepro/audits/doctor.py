"""What here is not reproducible, why, and the remedy; checked by training `tiny` twice.

A pasted warning is explained, too: what it means, whether it can change the lab's training with the
settings asked for, what it means for any other training, what helps.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from cellrepro.determinism import known_operations, modes, profiles
from cellrepro.determinism.known_operations import alert_in, base_name
from cellrepro.determinism.seeds import seed_of
from cellrepro.determinism.substitutes import SUBSTITUTES
from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.progress import progress
from cellrepro.store import this_machine
from cellrepro.words import joined

TESTED = {"cellpose": "4.2.1.1", "segment-anything": "1.0", "torch": "2.15.0"}
"""Versions whose behaviour the lab's claims about Cellpose were checked against."""

_STEPS = 6
_LEVELS = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that a result depends on, or that changes it."""

    level: Literal["error", "warning", "info"]
    """``warning``: reproducible here, but something else than the spec decides the result."""
    what: str
    remedy: str


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found."""

    host: dict[str, Any]  # the machine, its libraries and its numeric class
    profile: dict[str, Any]  # with mode and seed
    findings: tuple[Finding, ...]  # errors first
    ok: bool  # nothing is wrong and the double run was bit-identical
    exit_code: int  # 0 if ok, 1 if not, 3 if this machine cannot run the profile

    def sentence(self) -> str:
        """The answer."""
        name, mode = self.profile["name"], self.profile["mode"]
        if self.ok:
            return (
                f"looks good: {_STEPS} training steps in two processes of profile {name}, mode "
                f"{mode}, ended in the same bits (numeric class {self.host['numeric_class']})"
            )
        errors = "; ".join(found.what for found in self.findings if found.level == "error")
        return f"not reproducible with profile {name}, mode {mode}: {errors}"


def diagnose(
    *,
    profile: str | Path = "cpu",
    mode: str = "strict",
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
        with progress(2 * (_STEPS + 2), "double run", quiet=quiet) as bar:
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
            f"the double run was not bit-identical: {_STEPS} training steps ended in other weights",
            "use --mode strict; in it `cellrepro audit DATA` names the operation, please report it",
        )
    libraries = first["libraries"]
    openmp = {one["internal_api"] for one in libraries if one["user_api"] == "openmp"}
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
    from cellrepro.model.network import TINY, ModelSource

    with child.prepared() as device:
        child.setup.seed_all()
        loop, network = small_loop(ModelSource(TINY, TINY), device, seed=child.setup.seed)
        before = tensors_digest(network.state_dict())
        child.phase("flows")
        while not loop.finished:
            loop.step()
            child.phase(f"step {loop.training.n_steps}")
    return {
        "before": before,
        "weights": tensors_digest(network.state_dict()),
        "numeric_class": this_machine.numeric_class(str(device))["name"],
        "libraries": this_machine.numeric_libraries(),
    }


def small_loop(source: Any, device: Any, *, seed: int | None) -> tuple[Any, Any]:
    """Two epochs of a network on synthetic images, about to begin, and the network."""
    from cellrepro.images.synthetic_sets import labelled_nuclei
    from cellrepro.model.network import build
    from cellrepro.model.training_loop import TrainingLoop

    network = build(source, seed=seed, device=device, dtype="float32")
    options: dict[str, Any] = {"n_epochs": 2, "images_per_epoch": _STEPS // 2}
    return TrainingLoop(network, labelled_nuclei(2), (), learning_rate=1e-3, **options), network


# -- a pasted warning ----------------------------------------------------------------------


@dataclass(frozen=True)
class Explanation:
    """A warning of PyTorch about determinism."""

    op: str  # as PyTorch calls it
    meaning: str  # why its bits may change from run to run
    training: str  # which one `affects` and `why` are about
    affects: bool | None  # whether it can change that one; none if unknown
    why: str  # how that is known
    elsewhere: str  # what it means for any other training
    remedy: str

    def sentence(self) -> str:
        """All of it."""
        words = {True: "can", False: "cannot", None: "may, for all that is known,"}
        return (
            f"{self.op}: {self.meaning}\n"
            f"It {words[self.affects]} change {self.training}: {self.why}\n"
            f"For any other training: {self.elsewhere}\n"
            f"-> {self.remedy}"
        )


def explain_warning(
    text: str,
    *,
    profile: str | Path = "cpu",
    mode: str = "strict",
    model: str = "tiny",
    store: str | Path = "outputs",
) -> Explanation:
    """Say what a warning, as it was pasted, means for the lab's training with these settings.

    Parameters
    ----------
    text : str
        The warning, with time, file and category before it if they were copied, too; or the name
        of its operation.
    profile, mode, model, store
        As for `cellrepro.train`.

    Raises
    ------
    BadInput
        If the text is no warning of PyTorch about determinism.
    """
    from cellrepro.model.network import find_model
    from cellrepro.store.store import Store

    modes.check_mode(mode)
    settings = profiles.load(profile)
    source = find_model(model, Store(store))
    entry = known_operations.lookup(text)
    alert = alert_in(text)
    if entry is None and alert is None:
        raise BadInput(
            f"{text[:80]!r} is no warning of PyTorch about determinism; expected its text, as in "
            "`put_ does not have a deterministic implementation`, or the operation's name"
        )
    training = (
        f"the lab's training of Cellpose ({model}, profile {settings.name} on {settings.device}, "
        f"mode {mode})"
    )
    if entry is None:
        return Explanation(
            op=alert or "",
            meaning="PyTorch has no deterministic implementation of it on this device.",
            training=training,
            affects=None,
            why="it is newer than the lab's list.",
            elsewhere=f"{_IF_YOURS} gave this warning, its bits may change from run to run.",
            remedy="`cellrepro audit DATA` says whether it flips here; please report the warning.",
        )
    if settings.kind in entry.devices:
        task = partial(calls_of_a_step, source=source)
        with progress(1, "a training step"):
            calls = in_child(task, Setup(settings), label="a training step")
        affects, why = affected(entry, calls, mode, model)
    else:
        affects = False
        why = f"it concerns {_of_devices(entry)}, and profile {settings.name} computes on "
        why += f"{settings.kind}."
    return Explanation(
        op=entry.alert or "",
        meaning=entry.reason,
        training=training,
        affects=affects,
        why=why,
        elsewhere=_elsewhere(entry),
        remedy=entry.remedy,
    )


_IF_YOURS = "where a training of yours, in Cellpose or any other framework of PyTorch,"


def _of_devices(entry: known_operations.Entry) -> str:
    return joined(entry.devices)


def _elsewhere(entry: known_operations.Entry) -> str:
    """What a warning means for a training that is not the lab's."""
    called = f"{_IF_YOURS} calls it on {_of_devices(entry)}, its bits may change from run to run"
    switch = "torch.use_deterministic_algorithms(True)"
    if entry.kind == "switched":
        return f"{called}, unless {switch} selects its deterministic way."
    if entry.kind == "error":
        return f"{called}; {switch} stops there, and with warn_only=True it only warns."
    return f"{called}; PyTorch has no switch for it."


def affected(
    entry: known_operations.Entry, calls: Mapping[str, str], mode: str, model: str
) -> tuple[bool | None, str]:
    """Whether an operation can change a training that makes these calls, and why."""
    if not entry.ops:
        return None, "PyTorch does not say which operations it means."
    called = [calls[op] for op in entry.ops if op in calls]
    if not called:
        return False, f"a training step of {model} calls none of: {', '.join(entry.ops)}."
    where = f"a training step of {model} calls it ({called[0]})"
    if mode in modes.FREE:
        return True, f"{where}, and mode {mode} does not fix it."
    if entry.kind == "switched":
        return False, f"{where}, and mode {mode} selects its deterministic way."
    if mode == "warn":
        return True, f"{where}, and mode warn only warns of it."
    used = [item.name for item in SUBSTITUTES if set(item.replaces) & set(entry.ops)]
    if used:
        return False, f"{where}, and mode strict puts a substitute there ({', '.join(used)})."
    return True, f"{where}, and mode strict stops at it."


def calls_of_a_step(child: Child, *, source: Any) -> dict[str, str]:
    """Inside the child: every operation of a training step, and where it is called first."""
    from cellrepro.trace.operation_ledger import OperationLedger

    with child.prepared() as device:
        loop, network = small_loop(source, device, seed=0)
        with OperationLedger(network, norms=False) as seen:
            loop.step()
    rows = reversed(seen.rows)
    return {base_name(row.op): f"{row.phase} of {row.module}, {row.source}" for row in rows}
