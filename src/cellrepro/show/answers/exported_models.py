"""What `export` answers of networks: the file for Cellpose, or what can be known of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.words import short_digest

if TYPE_CHECKING:
    from cellrepro.exchange.cellpose_check import CellposeCheck
    from cellrepro.exchange.cellpose_file import ExportedModel
    from cellrepro.exchange.model_passport import ModelPassport


@dataclass(frozen=True)
class ExportedModelDocument:
    """What ``cellrepro export KEY NAME.pth --json`` prints."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: Sequence[str]
    """The run whose network it holds."""
    passport: Path
    """The file of its passport."""
    tensors: str
    """Digest over the tensors, the same for the run's own weights."""
    check: CellposeCheck
    """What came of loading the file back through Cellpose: ``n_tensors`` and ``n_parameters`` that
    are equal in every bit, the ``image`` that both networks segmented, the digest of the
    ``masks``, ``n_cells`` in them, the ``dtype`` of the computation, ``peak_memory`` in bytes."""
    signed_by: str | None
    """Fingerprint of the key that signed; null where none was given."""


def exported_model_answer(exported: ExportedModel) -> Answer[ExportedModelDocument]:
    """Answer with the file for Cellpose, and what was compared."""
    document = ExportedModelDocument(
        file=exported.file,
        digest=exported.digest,
        runs=[exported.run],
        passport=exported.passport_file,
        tensors=exported.tensors,
        check=exported.check,
        signed_by=exported.signed_by,
    )
    lines = [
        exported.sentence(),
        f"  SHA-256 {short_digest(exported.digest)}, passport {exported.passport_file}",
        f"  in Cellpose: CellposeModel(pretrained_model={str(exported.file)!r}"
        + (", use_bfloat16=False)" if exported.check.dtype == "float32" else ")"),
    ]
    return Answer(document, lines)


@dataclass(frozen=True)
class ModelPassportDocument:
    """What ``cellrepro export MODEL.pth NAME.intoto.jsonl --json`` prints."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: Sequence[str]
    """None: nobody knows of which run the network is."""
    model: Path
    """The file with the network."""
    tensors: str
    """Digest over the tensors, the same in any other kind of file."""
    known: Mapping[str, object]
    """What the file itself shows."""
    unknown: Sequence[str]
    """What it does not."""
    signed_by: str | None
    """Fingerprint of the key that signed; null where none was given."""


def model_passport_answer(passport: ModelPassport) -> Answer[ModelPassportDocument]:
    """Answer with what can be known of a network from elsewhere, and what cannot."""
    document = ModelPassportDocument(
        file=passport.file,
        digest=passport.digest,
        runs=[],
        model=passport.model,
        tensors=passport.tensors,
        known=passport.known,
        unknown=passport.unknown,
        signed_by=passport.signed_by,
    )
    lines = [f"{passport.file}: what can be known of {passport.model}"]
    for name, value in passport.known.items():
        if value is not None:
            lines.append(f"  {name}: {value}")
    lines.append(f"  unknown: {', '.join(passport.unknown)}")
    return Answer(document, lines)
