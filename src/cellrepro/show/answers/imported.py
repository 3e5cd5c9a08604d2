"""What `import` answers: which runs came, and which were there before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer

if TYPE_CHECKING:
    from cellrepro.exchange.importing import Imported, ImportedRepeat
    from cellrepro.exchange.passport_import import ImportedPassports


@dataclass(frozen=True)
class ImportedRepeatDocument:
    """One repeat of an exported file."""

    name: str
    """``KEY/MACHINE/REPEAT``, as other commands take it."""
    label: str
    """What was asked for, in words."""
    new: bool
    """Whether the store did not hold it before."""
    completed: Sequence[str]
    """Files that came for a repeat that was there without them."""
    missing: Sequence[str]
    """Files of which its manifest speaks and that are not in the store."""


@dataclass(frozen=True)
class ImportedDocument:
    """What ``cellrepro import --json`` prints."""

    runs: Sequence[ImportedRepeatDocument]
    """Every repeat of the file."""
    folder: Path
    """The store."""
    images: Sequence[Path]
    """Folders of images that came with the runs."""


@dataclass(frozen=True)
class ImportedPassportsDocument:
    """What ``cellrepro import NAME.intoto.jsonl --json`` prints."""

    runs: Sequence[str]
    """KEY/MACHINE/REPEAT of each run whose passport came."""
    folder: Path
    """The store."""
    receipts: int
    """Receipts that came."""
    new_receipts: int
    """Those of them that the store did not keep before."""


def imported_passports_answer(imported: ImportedPassports) -> Answer[ImportedPassportsDocument]:
    """Answer with a line for each receipt, and how many there are."""
    bundle = imported.bundle
    document = ImportedPassportsDocument(
        runs=list(dict.fromkeys(passport.name for passport in bundle.passports)),
        folder=imported.folder,
        receipts=len(bundle.receipts),
        new_receipts=imported.n_new_receipts,
    )
    receipts = [each.receipt for each in bundle.receipts]
    lines = [f"{receipt.run} on {receipt.machine}: {receipt.verdict}" for receipt in receipts]
    return Answer(document, [*lines, imported.sentence()])


def imported_answer(imported: Imported) -> Answer[ImportedDocument]:
    """Answer with a line for each repeat, and how many of them are new."""
    document = ImportedDocument(
        runs=[_document(repeat) for repeat in imported.repeats],
        folder=imported.folder,
        images=imported.image_folders,
    )
    lines = [_line(repeat) for repeat in imported.repeats]
    return Answer(document, [*lines, imported.sentence()])


def _document(repeat: ImportedRepeat) -> ImportedRepeatDocument:
    return ImportedRepeatDocument(
        name=repeat.name,
        label=repeat.label,
        new=repeat.is_new,
        completed=repeat.completed,
        missing=repeat.missing,
    )


def _line(repeat: ImportedRepeat) -> str:
    state = "new  " if repeat.is_new else "there"
    return f"{state} {repeat.name}  {repeat.label}"
