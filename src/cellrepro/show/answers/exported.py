"""What `export` answers: the file, its digest, and which runs are in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.words import amount

if TYPE_CHECKING:
    from cellrepro.exchange.export import Exported
    from cellrepro.exchange.passport_export import ExportedPassports


@dataclass(frozen=True)
class ExportedPassportsDocument:
    """What ``cellrepro export RUN NAME.intoto.jsonl --json`` prints."""

    file: str | Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: Sequence[str]
    """KEY/MACHINE/REPEAT of each repeat whose passport is in it."""
    passports: Mapping[str, str]
    """Digest of the current passport of each of them."""
    receipts: int
    """Receipts that are in it, too."""
    signed_by: str | None
    """Fingerprint of the key that signed; null where none was given."""


@dataclass(frozen=True)
class ExportedRunsDocument:
    """What ``cellrepro export RUNS NAME.cellrepro.zip --json`` prints."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: Sequence[str]
    """KEY/MACHINE/REPEAT of each repeat that is in it."""
    bytes: int
    """Its size."""
    notes: Sequence[str]
    """What is not in it though it might be expected, a sentence each."""
    signed_by: str | None
    """Fingerprint of the key that signed the passports in it; null where none was given."""


def exported_runs_answer(exported: Exported) -> Answer[ExportedRunsDocument]:
    """Answer with what is in a new file of runs, and what is not."""
    document = ExportedRunsDocument(
        file=exported.file,
        digest=exported.digest,
        runs=exported.runs,
        bytes=exported.n_bytes,
        notes=exported.notes,
        signed_by=exported.signed_by,
    )
    lines = [
        f"  {name}  {label}" for name, label in zip(exported.runs, exported.labels, strict=True)
    ]
    notes = [f"note: {note}" for note in exported.notes]
    return Answer(document, [exported.held(), *lines, *notes])


def exported_passports_answer(
    exported: ExportedPassports,
) -> Answer[ExportedPassportsDocument]:
    """Answer with what is in a new file of passports."""
    digests: dict[str, str] = {}
    for passport in exported.passports:
        digests.setdefault(passport.name, passport.digest)
    document = ExportedPassportsDocument(
        file=exported.file,
        digest=exported.digest,
        runs=[*digests],
        passports=digests,
        receipts=len(exported.bundle.receipts),
        signed_by=exported.signed_by,
    )
    lines = [exported.sentence()]
    for passport in exported.passports:
        verdict = "a single repeat" if passport.verdict is None else str(passport.verdict)
        over = f" over {amount(passport.n_repeats, 'repeat')}" if passport.verdict else ""
        lines.append(f"  {passport.name}: {verdict}{over}, passport {passport.digest[:12]}…")
    if exported.signed_by is None:
        lines.append("anyone could have written it: --sign KEY.pub says that you did")
    return Answer(document, lines)
