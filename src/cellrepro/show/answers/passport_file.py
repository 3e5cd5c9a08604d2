"""What `describe` answers of a file of passports: whose runs, signed by whom, replayed by whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cellrepro.show.answers.answer import Answer
from cellrepro.show.answers.verification import ReceiptDocument, SignatureDocument
from cellrepro.words import amount

if TYPE_CHECKING:
    from cellrepro.exchange.bundle import Bundle
    from cellrepro.exchange.signed.keys import AllowedSigner
    from cellrepro.exchange.verified import VerifiedReceipt, VerifiedRepeat
    from cellrepro.same.verdicts import Verdict


@dataclass(frozen=True)
class DescribedPassport:
    """One passport of a file."""

    run: str
    """KEY/MACHINE/REPEAT."""
    digest: str
    """Of the passport, by which receipts name it."""
    label: str
    """What was asked for, in words."""
    verdict: Verdict | None
    """Over the repeats of its machine; null of a single one."""
    n_repeats: int
    """Repeats that the verdict is over."""
    vacuous: Sequence[str]
    """Why equality would prove nothing."""
    signature: SignatureDocument
    """Who signed it."""
    receipts: Sequence[ReceiptDocument]
    """What replays of it gave."""

    @classmethod
    def of(cls, repeat: VerifiedRepeat) -> DescribedPassport:
        """The same as JSON has it."""
        passport = repeat.passport
        return cls(
            run=passport.name,
            digest=passport.digest,
            label=passport.spec.label,
            verdict=passport.verdict,
            n_repeats=passport.n_repeats,
            vacuous=passport.vacuous,
            signature=SignatureDocument.of(repeat.signature),
            receipts=[ReceiptDocument.of(receipt) for receipt in repeat.receipts],
        )


@dataclass(frozen=True)
class PassportFileDocument:
    """What ``cellrepro describe NAME.intoto.jsonl --json`` prints."""

    kind: Literal["passport"]
    """Of the file."""
    passports: Sequence[DescribedPassport]
    """In their order."""
    other_receipts: int
    """Receipts of passports that are not in the file."""
    other_lines: int
    """Lines of other kinds, which were passed over."""


def passport_file_answer(
    bundle: Bundle, allowed: Sequence[AllowedSigner]
) -> Answer[PassportFileDocument]:
    """Answer with a few lines for each passport of a file."""
    from cellrepro.exchange.verified import VerifiedRepeat

    repeats = [
        VerifiedRepeat.of(passport, bundle.receipts_of(passport), allowed, is_here=False)
        for passport in bundle.passports
    ]
    document = PassportFileDocument(
        kind="passport",
        passports=[DescribedPassport.of(repeat) for repeat in repeats],
        other_receipts=len(bundle.receipts_without_passport),
        other_lines=bundle.n_passed_over,
    )
    return Answer(document, [*_lines(bundle, repeats)])


def _lines(bundle: Bundle, repeats: Sequence[VerifiedRepeat]) -> Iterator[str]:
    yield bundle.sentence()
    for repeat in repeats:
        yield from _passport_lines(repeat)
    n_others = len(bundle.receipts_without_passport)
    if n_others:
        yield f"note: {amount(n_others, 'receipt')} of passports that are not in this file"
    yield "only read so far: cellrepro verify checks it, with --replay without trust in the sender"


def _passport_lines(repeat: VerifiedRepeat) -> Iterator[str]:
    passport = repeat.passport
    yield f"  {passport.name}: {passport.spec.label}"
    if passport.verdict is not None:
        yield f"    {passport.verdict} over {amount(passport.n_repeats, 'repeat')}"
    yield from (f"    vacuous: {reason}" for reason in passport.vacuous)
    yield f"    {repeat.signature}"
    yield from (_receipt_line(receipt) for receipt in repeat.receipts)


def _receipt_line(verified: VerifiedReceipt) -> str:
    receipt = verified.receipt
    where = f"{receipt.machine}, repeat {receipt.repeat}"
    return f"    replayed on {where}: {receipt.verdict}, {receipt.time}; {verified.signature}"
