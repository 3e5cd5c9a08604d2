"""What here is not reproducible, why, and the remedy; checked by training `tiny` twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.asked import defaults
from cellrepro.audits.double_run import DoubleRun, run_twice
from cellrepro.audits.finding import LEVELS, Finding
from cellrepro.audits.gpu_findings import gpu_findings
from cellrepro.audits.network_findings import network_findings
from cellrepro.audits.setup_findings import setup_findings
from cellrepro.audits.small_training import N_STEPS
from cellrepro.audits.version_findings import version_findings
from cellrepro.determinism import modes, profiles
from cellrepro.determinism.choices import Mode
from cellrepro.determinism.seeds import seed_of
from cellrepro.errors import CellreproError, NotPossibleHere
from cellrepro.model.cellpose_generation import why_no_training
from cellrepro.process.setup import Setup
from cellrepro.results import Result, Row
from cellrepro.store import this_machine


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """What `diagnose` found."""

    setup: Setup
    """The profile, with mode and seed."""
    hardware: Mapping[str, object]
    """The machine, as `cellrepro.store.this_machine.host` describes it."""
    versions: Mapping[str, str]
    """Of the packages that decide bits, by name."""
    double_run: DoubleRun | None
    """None if it could not run."""
    findings: tuple[Finding, ...]
    """Errors first, then warnings."""
    exit_code: int
    """0 if nothing is wrong and the double run was bit-identical, 1 if not, 3 if this machine
    cannot run the profile."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and the double run was bit-identical."""
        return self.exit_code == 0

    def sentence(self) -> str:
        """Say whether this machine repeats a training, and if not, what is wrong."""
        name = self.setup.profile.name
        mode = self.setup.mode
        if self.ok and self.double_run is not None:
            return (
                f"looks good: {N_STEPS} training steps in two processes of profile {name}, mode "
                f"{mode}, ended in the same bits "
                f"(numeric class {self.double_run.first.numeric_class})"
            )
        errors = "; ".join(item.what for item in self.findings if item.level == "error")
        if self.double_run is None:
            return f"not tried with profile {name}, mode {mode}: {errors}"
        return f"not reproducible with profile {name}, mode {mode}: {errors}"

    def rows(self) -> Sequence[Row]:
        """Give one row for each finding."""
        return [
            {"level": item.level, "what was found": item.what, "remedy": item.remedy}
            for item in self.findings
        ]


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
        setup=setup,
        hardware=this_machine.host(),
        versions=this_machine.versions(),
        double_run=double_run,
        findings=tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level))),
        exit_code=_exit_code(findings, possible_here=possible_here),
    )


def _exit_code(findings: Sequence[Finding], *, possible_here: bool) -> int:
    """3 where this machine cannot run the profile, 1 where an error was found, else 0."""
    if not possible_here:
        return NotPossibleHere.exit_code
    return int(any(finding.level == "error" for finding in findings))
