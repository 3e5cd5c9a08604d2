"""Passports, receipts and statements about models with the outcome of checking their signatures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bundle import BundledReceipt
from cellrepro.exchange.model_statement import ModelStatement
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.signed.allowed_signers import AllowedSigner
from cellrepro.exchange.signed.signature_check import SignatureCheck, check_signature

_WORST_FIRST = ("bad", "unknown", "unsigned", "good")


@dataclass(frozen=True)
class VerifiedReceipt:
    """A receipt of somebody's replay."""

    machine: str
    """Machine of the replay."""
    repeat: int
    """Number of the replay on that machine."""
    verdict: Verdict
    """Verdict of the comparison with the original."""
    time: str
    """Time of the comparison, as the receipt says."""
    signature: SignatureCheck
    """Who signed the receipt."""

    @classmethod
    def of(cls, bundled: BundledReceipt, allowed: Sequence[AllowedSigner]) -> VerifiedReceipt:
        """Check who signed a receipt."""
        receipt = bundled.receipt
        return cls(
            machine=receipt.machine,
            repeat=receipt.repeat,
            verdict=receipt.verdict,
            time=receipt.time,
            signature=check_signature(bundled.attestation, allowed),
        )


@dataclass(frozen=True)
class VerifiedRepeat:
    """One repeat with its passport and receipts."""

    name: str
    """``KEY/MACHINE/REPEAT``."""
    passport: str
    """SHA-256 of the passport."""
    signature: SignatureCheck
    """Who signed the passport."""
    receipts: tuple[VerifiedReceipt, ...]
    """Receipts of its replays."""
    is_here: bool
    """Whether its files were looked at, or only what the passport says of them."""
    not_here: tuple[str, ...]
    """What the passport lists and is not here."""
    original: Passport = field(repr=False)
    """The passport itself, as it was sent or made from the stored repeat."""
    has_images: bool = field(default=False, repr=False)
    """Whether the folder of images was sent, too."""

    @classmethod
    def of(
        cls,
        passport: Passport,
        receipts: Iterable[BundledReceipt],
        allowed: Sequence[AllowedSigner],
        *,
        is_here: bool,
        not_here: Iterable[str] = (),
        has_images: bool = False,
    ) -> VerifiedRepeat:
        """Check the signatures of a passport and of its receipts."""
        return cls(
            name=passport.name,
            passport=passport.digest,
            signature=check_signature(passport.attestation, allowed),
            receipts=tuple(VerifiedReceipt.of(each, allowed) for each in receipts),
            is_here=is_here,
            not_here=tuple(not_here),
            original=passport,
            has_images=has_images,
        )

    def bad_signatures(self, where: str) -> Iterator[Problem]:
        """A problem for each signature that is not by the key that it claims."""
        yield from bad_signature(f"the passport of {self.name}", self.signature, where)
        for each in self.receipts:
            yield from bad_signature(f"the receipt of {each.machine}", each.signature, where)


@dataclass(frozen=True)
class VerifiedModel:
    """A file with a network, about which there is a statement."""

    file: str
    """Name of the file."""
    build_type: str
    """How it was written: of a run."""
    sha256: str
    """SHA-256 of the file in the statement."""
    tensors: str | None
    """Digest over the tensors in it."""
    signature: SignatureCheck
    """Who signed the statement."""
    is_here: bool
    """Whether the file lies beside, and so was looked at."""
    _is_meant: bool
    """Whether that file is the one that is meant, by its digest."""

    @classmethod
    def of(
        cls, model: ModelStatement, signature: SignatureCheck, *, is_here: bool, is_meant: bool
    ) -> VerifiedModel:
        """Combine a statement with the outcome of its checks."""
        return cls(
            file=model.file,
            build_type=model.build_type,
            sha256=model.sha256,
            tensors=model.tensors,
            signature=signature,
            is_here=is_here,
            _is_meant=is_meant,
        )

    @property
    def note(self) -> str:
        """What is known of the file, in a sentence."""
        seen = f"{self.file} is not beside it"
        if self.is_here:
            seen = f"{self.file} is {'the' if self._is_meant else 'not the'} file that is meant"
        return f"{seen}; its network was loaded back through Cellpose when it was written"


def bad_signature(what: str, signature: SignatureCheck, where: str) -> Iterator[Problem]:
    """A problem if a signature is not by the key that it claims."""
    if signature.state == "bad":
        remedy = "ask its sender for it once more, and by which key it was signed"
        yield Problem("signature", f"{what} has a {signature}", where, remedy)


def worst_signature(signed: Iterable[VerifiedRepeat | VerifiedModel]) -> SignatureCheck:
    """The signature that promises least; ``unsigned`` without any."""
    signatures = [one.signature for one in signed]
    if not signatures:
        return SignatureCheck("unsigned")
    return min(signatures, key=lambda signature: _WORST_FIRST.index(signature.state))
