"""A file of passports described: whose runs, signed by whom, replayed by whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bundle import Bundle
from cellrepro.exchange.signed.envelope import SignatureCheck
from cellrepro.exchange.signed.keys import AllowedSigner
from cellrepro.exchange.verified import VerifiedReceipt, VerifiedRepeat
from cellrepro.results import Result, Row
from cellrepro.words import amount


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
    vacuous: tuple[str, ...]
    """Why equality would prove nothing."""
    signature: SignatureCheck
    """Who signed it."""
    receipts: tuple[VerifiedReceipt, ...]
    """What replays of it gave."""

    def lines(self) -> Iterator[str]:
        """A few for each passport."""
        yield f"  {self.run}: {self.label}"
        if self.verdict is not None:
            yield f"    {self.verdict} over {amount(self.n_repeats, 'repeat')}"
        yield from (f"    vacuous: {reason}" for reason in self.vacuous)
        yield f"    {self.signature}"
        for receipt in self.receipts:
            where = f"{receipt.machine}, repeat {receipt.repeat}"
            what = f"{receipt.verdict}, {receipt.time}; {receipt.signature}"
            yield f"    replayed on {where}: {what}"


@dataclass(frozen=True, repr=False)
class PassportFile(Result):
    """What a file of passports holds, as far as reading it shows."""

    kind: Literal["passport"]
    """Of the file."""
    passports: tuple[DescribedPassport, ...]
    """In their order."""
    other_receipts: int
    """Receipts of passports that are not in the file."""
    other_lines: int
    """Lines of other kinds, which were passed over."""
    _held: str
    """What is in it, counted."""

    def sentence(self) -> str:
        """Count passports, receipts and lines of other kinds."""
        return self._held

    def rows(self) -> Sequence[Row]:
        """Give each passport."""
        return [
            {
                "run": one.run,
                "label": one.label,
                "verdict": one.verdict or "a single repeat",
                "repeats": one.n_repeats,
                "signature": str(one.signature),
                "receipts": len(one.receipts),
            }
            for one in self.passports
        ]

    def lines(self) -> Sequence[str]:
        """Give each passport with its receipts below it."""
        lines = [self.sentence()]
        for passport in self.passports:
            lines += passport.lines()
        if self.other_receipts:
            others = amount(self.other_receipts, "receipt")
            lines.append(f"note: {others} of passports that are not in this file")
        lines.append(
            "only read so far: cellrepro verify checks it, with --replay without trust in the "
            "sender"
        )
        return lines


def describe_passports(bundle: Bundle, allowed: Sequence[AllowedSigner]) -> PassportFile:
    """Say what a file of passports holds, and who of your list signed it."""
    return PassportFile(
        kind="passport",
        passports=tuple(_described(repeat) for repeat in _verified(bundle, allowed)),
        other_receipts=len(bundle.receipts_without_passport),
        other_lines=bundle.n_passed_over,
        _held=bundle.sentence(),
    )


def _verified(bundle: Bundle, allowed: Sequence[AllowedSigner]) -> Iterator[VerifiedRepeat]:
    for passport in bundle.passports:
        receipts = bundle.receipts_of(passport)
        yield VerifiedRepeat.of(passport, receipts, allowed, is_here=False)


def _described(repeat: VerifiedRepeat) -> DescribedPassport:
    passport = repeat.original
    return DescribedPassport(
        run=repeat.name,
        digest=repeat.passport,
        label=passport.spec.label,
        verdict=passport.verdict,
        n_repeats=passport.n_repeats,
        vacuous=passport.vacuous,
        signature=repeat.signature,
        receipts=repeat.receipts,
    )
