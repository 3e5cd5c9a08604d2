"""What `doctor` answers: what of a host, a process and a profile is not reproducible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer

if TYPE_CHECKING:
    from cellrepro.audits.doctor import Diagnosis
    from cellrepro.audits.finding import Finding


@dataclass(frozen=True)
class DiagnosisDocument:
    """What ``cellrepro doctor --json`` prints."""

    host: Mapping[str, object]
    """The machine, its libraries and its numeric class."""
    profile: Mapping[str, object]
    """With mode and seed."""
    findings: Sequence[Finding]
    """Errors first."""
    ok: bool
    """Whether nothing is wrong and a double run was bit-identical."""


def diagnosis_answer(diagnosis: Diagnosis) -> Answer[DiagnosisDocument]:
    """Answer with each finding and its remedy, then with the sentence over all."""
    setup = diagnosis.setup
    document = DiagnosisDocument(
        host=_host(diagnosis),
        profile={
            **setup.profile.model_dump(mode="json"),
            "mode": setup.mode,
            "seed": setup.seed,
        },
        findings=diagnosis.findings,
        ok=diagnosis.ok,
    )
    lines = []
    for finding in diagnosis.findings:
        lines.append(f"{finding.level:8} {finding.what}")
        lines.append(f"         -> {finding.remedy}")
    lines.append(diagnosis.sentence())
    return Answer(document, lines)


def _host(diagnosis: Diagnosis) -> dict[str, object]:
    """The machine, its packages, and what the double run met there."""
    double_run = diagnosis.double_run
    return {
        **diagnosis.hardware,
        "versions": diagnosis.versions,
        "numeric_class": double_run.first.numeric_class if double_run else None,
        "libraries": double_run.first.libraries if double_run else [],
    }
