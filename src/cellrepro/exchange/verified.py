"""What a check without trust finds of one repeat: its passport, who signed it, its receipts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cellrepro.exchange.bundle import BundledReceipt
from cellrepro.exchange.model_statement import AFTER_THE_FACT, ModelStatement
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.receipt import Receipt
from cellrepro.exchange.signed.envelope import SignatureCheck, check_signature
from cellrepro.exchange.signed.keys import AllowedSigner

_WORST_FIRST = ("bad", "unknown", "unsigned", "good")


@dataclass(frozen=True)
class VerifiedReceipt:
    """A receipt, and who signed it."""

    receipt: Receipt
    signature: SignatureCheck


@dataclass(frozen=True)
class VerifiedRepeat:
    """One repeat, as far as it was sent."""

    passport: Passport
    """As it came, else made of the stored repeat."""
    signature: SignatureCheck
    """Of the passport."""
    receipts: tuple[VerifiedReceipt, ...] = ()
    """Of this passport."""
    is_here: bool = True
    """Whether its files were looked at, or only what the passport says of them."""
    not_here: tuple[str, ...] = ()
    """Of what the passport speaks and what is not here, a few words each."""
    has_images: bool = False
    """Whether the folder of images came with it."""

    @property
    def name(self) -> str:
        """``KEY/MACHINE/REPEAT``."""
        return self.passport.name

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
            passport=passport,
            signature=check_signature(passport.attestation, allowed),
            receipts=tuple(
                VerifiedReceipt(each.receipt, check_signature(each.attestation, allowed))
                for each in receipts
            ),
            is_here=is_here,
            not_here=tuple(not_here),
            has_images=has_images,
        )

    def bad_signatures(self, where: str) -> Iterator[Problem]:
        """A problem for each signature that is not by the key that it names."""
        remedy = "ask its sender for it once more, and by which key it was signed"
        if self.signature.state == "bad":
            what = f"the passport of {self.name} has a {self.signature}"
            yield Problem("signature", what, where, remedy)
        for each in self.receipts:
            if each.signature.state == "bad":
                what = f"the receipt of {each.receipt.machine} has a {each.signature}"
                yield Problem("signature", what, where, remedy)


@dataclass(frozen=True)
class VerifiedModel:
    """A file with a network, as far as it was sent."""

    model: ModelStatement
    """What is attested of it."""
    signature: SignatureCheck
    """Of that."""
    is_here: bool
    """Whether the file lies beside what is attested of it, and so was looked at."""
    is_meant: bool
    """Whether it is the one that is meant, by its digest."""

    @property
    def note(self) -> str:
        """What a reader has to know of it."""
        file = self.model.file
        seen = f"{file} is not beside it"
        if self.is_here:
            seen = f"{file} is {'the' if self.is_meant else 'not the'} file that is meant"
        if self.model.build_type == AFTER_THE_FACT:
            return f"{seen}; how its network was trained is unknown, only what lies in it is said"
        return f"{seen}; its network was loaded back through Cellpose when it was written"


def worst_signature(signed: Iterable[VerifiedRepeat | VerifiedModel]) -> SignatureCheck:
    """The signature of several passports that promises least.

    ``unsigned`` where there is none.
    """
    found = sorted((one.signature for one in signed), key=lambda s: _WORST_FIRST.index(s.state))
    return found[0] if found else SignatureCheck("unsigned")
