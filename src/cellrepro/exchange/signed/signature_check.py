"""Whether signatures are good, by the reader's list of allowed signers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from cellrepro.exchange.signed.allowed_signers import AllowedSigner
from cellrepro.exchange.signed.envelope import Signature
from samebits.words import joined

if TYPE_CHECKING:
    from cellrepro.exchange.statement import Attestation

SignatureState = Literal["unsigned", "unknown", "good", "bad"]
"""``unsigned``; ``unknown``: signed by nobody whom the reader knows, so nothing can be checked;
``good``: by someone on the reader's list; ``bad``: not by the one that it names, or changed."""


@dataclass(frozen=True)
class SignatureCheck:
    """Whether signatures are good, by the reader's list of allowed signers."""

    state: SignatureState
    """``unknown`` is signed by nobody on your list of allowed signers, so nothing was checked."""
    fingerprint: str | None = None
    """Of the key; if the state is ``unknown``, it is what the file says, unchecked."""
    signer: str | None = None
    """Who holds the key, by your list."""
    reason: str = ""
    """Why a signature of a known key is not good; empty otherwise."""

    def __str__(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        match self.state:
            case "unsigned":
                return "unsigned"
            case "good":
                return f"good signature of {self.signer} ({self.fingerprint})"
            case "bad":
                return f"bad signature of {self.signer} ({self.fingerprint}){because}"
            case "unknown":
                return f"signed by an unknown key, {self.fingerprint}{because}"


def check_signature(
    attestation: Attestation, allowed: Sequence[AllowedSigner], *, now: datetime | None = None
) -> SignatureCheck:
    """Check the signatures of an attestation against the reader's list of signers.

    One wrong signature of a known key makes it ``bad``, otherwise one right signature ``good``.
    """
    envelope = attestation.envelope
    if envelope is None or not envelope.signatures:
        return SignatureCheck("unsigned")
    moment = now or datetime.now(timezone.utc)
    checks = [
        _check_one(signature, envelope.signed_bytes, allowed, moment)
        for signature in envelope.signatures
    ]
    for state in ("bad", "good"):
        of_state = [check for check in checks if check.state == state]
        if of_state:
            return _together(of_state)
    return checks[0]


def _check_one(
    signature: Signature, message: bytes, allowed: Sequence[AllowedSigner], now: datetime
) -> SignatureCheck:
    """Check one signature by trying every key; its ``keyid`` only tells whose it claims to be."""
    signers = [each for each in allowed if each.key.verifies(signature.signature, message)]
    refused = ""
    for each in signers:
        why_not = each.why_not_now(now)
        if why_not is None:
            return SignatureCheck("good", each.key.fingerprint, each.principals)
        refused = why_not
    if signers:
        return SignatureCheck("unknown", signers[0].key.fingerprint, reason=refused)
    claimed = [each for each in allowed if each.key.fingerprint == signature.keyid]
    if claimed:
        return SignatureCheck(
            "bad",
            signature.fingerprint,
            claimed[0].principals,
            "it is no signature of this key over this content, which was changed, or signed by "
            "somebody else",
        )
    return SignatureCheck("unknown", signature.fingerprint)


def _together(checks: Sequence[SignatureCheck]) -> SignatureCheck:
    """Merge several checks of one state."""
    signers = [check.signer for check in checks if check.signer is not None]
    fingerprints = [check.fingerprint for check in checks if check.fingerprint is not None]
    return SignatureCheck(
        checks[0].state,
        joined([*dict.fromkeys(fingerprints)]),
        joined([*dict.fromkeys(signers)]),
        checks[0].reason,
    )
