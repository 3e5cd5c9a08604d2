"""What is not reproducible on this computer, why, and the remedy, with a double run as a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.audits.double_run import N_STEPS, DoubleRun, run_twice
from cellrepro.audits.findings import LEVELS, Finding, Level, setup_findings, version_findings
from cellrepro.audits.gpu_findings import gpu_findings
from cellrepro.audits.network_findings import network_findings
from cellrepro.audits.portable_witness import PortableWitness, witness
from cellrepro.audits.torch_warning import WarningMeaning, explain_warning
from cellrepro.errors import CellreproError
from cellrepro.model.cellpose_generation import why_no_training
from cellrepro.process.setup import Setup
from cellrepro.profiles import profiles
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle, stated_among
from cellrepro.store import hardware, installed_versions
from cellrepro.terminal import FileName
from samebits import modes
from samebits.errors import NotPossibleHere
from samebits.mode_names import Mode
from samebits.results import Result, Row, derived
from samebits.seeds import seed_of


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """What `diagnose` found."""

    host: Mapping[str, object]
    """The machine, its libraries and its numeric class."""
    profile: Mapping[str, object]
    """The profile, with mode and seed."""
    findings: tuple[Finding, ...]
    """Errors first, then warnings."""
    _possible_here: bool = True
    """Whether this machine can run the profile."""

    @derived
    def ok(self) -> bool:
        """Whether nothing is wrong and the double run was bit-identical."""
        return all(finding.level != "error" for finding in self.findings)

    @property
    def differs(self) -> bool:
        """Whether something is wrong."""
        return not self.ok

    @property
    def exit_code(self) -> int:
        """3 where this machine cannot run the profile, 1 where something is wrong, else 0."""
        return super().exit_code if self._possible_here else NotPossibleHere.exit_code

    def sentence(self) -> str:
        """Say whether this machine repeats a training, and if not, what is wrong."""
        asked = f"profile {self.profile['name']}, mode {self.profile['mode']}"
        if self.ok:
            return (
                f"looks good: {N_STEPS} training steps in two processes of {asked}, ended in the "
                "same bits"
            )
        errors = "; ".join(item.what for item in self.findings if item.level == "error")
        if self.host["numeric_class"] is None:
            return f"not tried with {asked}: {errors}"
        return f"not reproducible with {asked}: {errors}"

    def rows(self) -> Sequence[Row]:
        """Give one row for each finding."""
        return [
            {"level": item.level, "what was found": item.what, "remedy": item.remedy}
            for item in self.findings
        ]

    def lines(self) -> list[str]:
        """Give each finding above its remedy, then the sentence over all."""
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.level:8} {finding.what}")
            lines.append(f"         -> {finding.remedy}")
        return [*lines, self.sentence()]


@dataclass(frozen=True, repr=False)
class ExplainedWarning(Result):
    """What `diagnose_warning` found."""

    host: Mapping[str, object]
    """The machine."""
    profile: Mapping[str, object]
    """The profile, with the mode."""
    findings: tuple[Finding, ...]
    """The meaning of the warning, and the remedy."""
    ok: bool
    """Whether the warning is of nothing that the training does."""
    warning: WarningMeaning
    """Its meaning."""

    def sentence(self) -> str:
        """Say what the warning means, in four lines."""
        return self.warning.sentence()


def diagnose_warning(
    text: str,
    *,
    profile: str | Path | None = None,
    mode: Mode = defaults.MODE,
    model: str = defaults.MODEL,
    store: str | Path = defaults.STORE,
) -> ExplainedWarning:
    """Explain a warning as `explain_warning` does, beside the machine and the profile."""
    meaning = explain_warning(text, profile=profile, mode=mode, model=model, store=store)
    is_harmless = meaning.affects is False
    level: Level = "info" if is_harmless else "warning"
    settings = profiles.load(profile or meaning.profile).model_dump(mode="json")
    return ExplainedWarning(
        host=hardware.host(),
        profile={**settings, "mode": mode},
        findings=(Finding(level, meaning.meaning, meaning.remedy),),
        ok=is_harmless,
        warning=meaning,
    )


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
    profile : str or Path
        The numeric environment: a name, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to deterministic operations.
    seed : int, optional
        By default 0, and none in mode ``off``.
    quiet : bool
        Show no progress.

    Returns
    -------
    Diagnosis
        Its ``str`` says whether this machine repeats a training; in a notebook it shows a table of
        the findings, too. What went wrong in the double run is one of them.

    Raises
    ------
    BadInput
        If profile or mode is unknown, or the mode takes no seed.

    Notes
    -----
    The double run proves that this machine, with this profile, repeats `tiny`; not that another
    machine gives the same bits, nor that every network does: `cellrepro audit` looks at yours.
    """
    modes.check_mode(mode)
    setup = Setup(profiles.load(profile), mode, seed_of(mode, seed))
    findings = [
        *version_findings(setup.profile),
        *gpu_findings(),
        *network_findings(),
        *setup_findings(setup),
    ]
    double_run = None
    possible_here = True
    no_training = why_no_training()
    try:
        double_run = run_twice(setup, quiet=quiet)
        findings += double_run.findings()
    except CellreproError as refusal:
        possible_here = refusal.exit_code != NotPossibleHere.exit_code
        remedy = "choose a different profile or mode, see the message"
        if no_training is not None:
            remedy = "repeat a segmentation instead: cellrepro segment FOLDER --repeats 2"
        findings.append(
            Finding(
                level="error",
                what=f"the double run could not run: {refusal}",
                remedy=remedy,
            )
        )
    return Diagnosis(
        host=_host(double_run),
        profile={
            **setup.profile.model_dump(mode="json"),
            "mode": setup.mode,
            "seed": setup.seed,
        },
        findings=tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level))),
        _possible_here=possible_here,
    )


def _host(double_run: DoubleRun | None) -> dict[str, object]:
    """The machine, its packages, and what the double run computed with."""
    return {
        **hardware.host(),
        "versions": installed_versions.versions(),
        "numeric_class": double_run.first.numeric_class if double_run else None,
        "libraries": double_run.first.libraries if double_run else [],
    }


def doctor(
    *,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    seed: int | None = None,
    warning: str | None = None,
    portable: bool = False,
    model: str = defaults.MODEL,
    store: FileName = defaults.STORE,
) -> Diagnosis | ExplainedWarning | PortableWitness:
    """Say what is not reproducible on this computer, and what to do about it.

    Parameters
    ----------
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    warning : str, optional
        A pasted warning of PyTorch, which is explained instead.
    portable : bool
        Does this computer get the reference bits of mode ``portable``?
    model : str
        The network for which a warning is explained.
    store : str or Path
        Folder of finished runs, where that network may lie.

    Returns
    -------
    Diagnosis, ExplainedWarning or PortableWitness
        What was found, what the warning means, or whether the bits are those of the reference.

    Raises
    ------
    BadInput
        If profile or mode is unknown, or the text is no warning about determinism.

    Examples
    --------
    What is not reproducible on this computer?

    ``cellrepro doctor``

    What does a warning of PyTorch mean for my results?

    ``cellrepro doctor --warning "cumsum_cuda_kernel does not have ..."``

    Does this computer get the same bits as all others in mode portable?

    ``cellrepro doctor --portable``
    """
    if portable:
        refuse_idle(
            ("mode", "seed", "warning", "model", "store"),
            "beside --portable, which always carries out the same computation",
        )
        return witness(profile=profile)
    if warning is not None:
        refuse_idle(("seed",), "beside --warning")
        chosen = profile if stated_among(("profile",)) else None
        return diagnose_warning(warning, profile=chosen, mode=mode, model=model, store=store)
    refuse_idle(
        ("model", "store"),
        "without --warning: they name the network for which a warning is explained",
    )
    return diagnose(profile=profile, mode=mode, seed=seed)
