"""The ``describe`` command: what a file is, which may be a file of passports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bundle import BUNDLE_ENDING, Bundle, BundledReceipt, read_bundle
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.signed.allowed_signers import AllowedSigner, read_allowed_signers
from cellrepro.exchange.signed.signature_check import SignatureCheck, check_signature
from cellrepro.exchange.verified import VerifiedReceipt
from cellrepro.explanation import describe as of_other_files
from cellrepro.explanation.description import Description
from cellrepro.explanation.recognition import holds_passports
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName
from samebits.results import Result, Row
from samebits.words import amount


@dataclass(frozen=True)
class DescribedPassport:
    """One passport of a file."""

    run: str
    """KEY/MACHINE/REPEAT."""
    digest: str
    """SHA-256 of the passport, by which receipts name it."""
    label: str
    """What was asked for, in words."""
    verdict: Verdict | None
    """Verdict over the repeats of its machine; null for a single one."""
    n_repeats: int
    """Number of these repeats."""
    vacuous: tuple[str, ...]
    """Why equality would prove nothing."""
    signature: SignatureCheck
    """Who signed it."""
    receipts: tuple[VerifiedReceipt, ...]
    """Receipts of its replays."""

    @classmethod
    def of(
        cls,
        passport: Passport,
        receipts: Iterable[BundledReceipt],
        allowed: Sequence[AllowedSigner],
    ) -> DescribedPassport:
        """Check who signed a passport and its receipts, and nothing else."""
        return cls(
            run=passport.name,
            digest=passport.digest,
            label=passport.spec.label,
            verdict=passport.verdict,
            n_repeats=passport.n_repeats,
            vacuous=passport.vacuous,
            signature=check_signature(passport.attestation, allowed),
            receipts=tuple(VerifiedReceipt.of(each, allowed) for each in receipts),
        )

    def lines(self) -> Iterator[str]:
        """The run, its verdict, who signed, and a line for each receipt."""
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
    """The content of a file of passports, of which only signatures are checked."""

    kind: Literal["passport"]
    """Kind of the file."""
    passports: tuple[DescribedPassport, ...]
    """In the order of the file."""
    other_receipts: int
    """Receipts of passports that are not in the file."""
    other_lines: int
    """Lines of other kinds, which were passed over."""
    _bundle: Bundle

    @classmethod
    def of(cls, bundle: Bundle, allowed: Sequence[AllowedSigner]) -> PassportFile:
        """Describe each passport of a bundle."""
        return cls(
            kind="passport",
            passports=tuple(
                DescribedPassport.of(passport, bundle.receipts_of(passport), allowed)
                for passport in bundle.passports
            ),
            other_receipts=len(bundle.receipts_without_passport),
            other_lines=bundle.n_passed_over,
            _bundle=bundle,
        )

    def sentence(self) -> str:
        """Count passports, receipts and lines of other kinds."""
        return self._bundle.sentence()

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


def describe(
    file: FileName,
    /,
    *,
    log: FileName | None = None,
    command: bool = False,
    store: FileName = defaults.STORE,
) -> Description | PassportFile:
    """Say what a file is (weights, masks, baseline, passport …), and how Cellpose loads it.

    Parameters
    ----------
    file : str or Path
        A weights file, a ``_seg.npy``, a label image, a baseline, passports
        ``NAME.intoto.jsonl``, Cellpose's ``run.log``, or any other file; ``KEY`` or ``KEY/REPEAT``
        of the store; or a name that Cellpose is given for a model.
    log : str or Path, optional
        Cellpose's ``run.log`` of the run that made the masks; what it records is added.
    command : bool
        Say also how Cellpose is called with what the file records.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    Description or PassportFile
        What it is, and as what the installed Cellpose would load it; of passports whose runs they
        are of, and who signed them.

    Raises
    ------
    BadInput
        If it is a folder, a file that is not there or cannot be read, or a repeat that is not
        stored; or if a log is given for what is no masks.

    Examples
    --------
    What is this file of weights, and does Cellpose load it?

    ``cellrepro describe my_model.pth``

    With which settings did the GUI make these masks?

    ``cellrepro describe cells_seg.npy --command``
    """
    if str(file).endswith(BUNDLE_ENDING) and holds_passports(Path(file)):
        refuse_idle(("log", "command"), "for a file of passports")
        return PassportFile.of(read_bundle(file), read_allowed_signers())
    described = of_other_files.describe(str(file), log=log, store=store)
    return replace(described, says_commands=command)
