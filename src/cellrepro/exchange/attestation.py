"""One line of a bundle: a statement, signed or not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from cellrepro.errors import BadInput
from cellrepro.exchange.records import read_record, why_not_read
from cellrepro.exchange.signed.envelope import IN_TOTO, Envelope, signed
from cellrepro.exchange.signed.signer import Signer
from cellrepro.exchange.statement import Statement
from cellrepro.exchange.strict_json import read_json

MOST_BYTES = 2**22
"""Of one statement from outside; those of cellrepro stay below 1 MB."""


@dataclass(frozen=True)
class Attestation:
    """A statement as it came or was made, and who signed it."""

    statement: Statement
    """What it says."""
    payload: bytes
    """The same as bytes, which are what a signature is over; never written anew."""
    envelope: Envelope | None = None
    """With the signatures; None where there is none."""

    @classmethod
    def of(cls, statement: Statement, *, signer: Signer | None = None) -> Attestation:
        """Make one of a statement, signed where there is a signer."""
        payload = statement.payload()
        envelope = None if signer is None else signed(payload, signer)
        return cls(statement, payload, envelope)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the payload, signed or not: by it a receipt names its passport."""
        return hashlib.sha256(self.payload).hexdigest()

    def line(self) -> str:
        """Its line in a bundle, without the line feed: the envelope, else the statement itself."""
        if self.envelope is None:
            return self.payload.decode("utf-8")
        return self.envelope.line()

    def signed_by(self, signer: Signer) -> Attestation:
        """The same with one more signature."""
        more = signed(self.payload, signer)
        kept = more if self.envelope is None else self.envelope.with_signatures(more.signatures)
        return Attestation(self.statement, self.payload, kept)

    def together_with(self, other: Attestation) -> Attestation:
        """This attestation with all signatures of two over the same payload."""
        if self.envelope is None or other.envelope is None:
            return self if other.envelope is None else other
        both = self.envelope.with_signatures(other.envelope.signatures)
        return Attestation(self.statement, self.payload, both)


def read_payload(payload: bytes, *, where: str, envelope: Envelope | None = None) -> Attestation:
    """Read a statement from its bytes."""
    document = read_json(payload, where=where, most_bytes=MOST_BYTES, is_shown=True)
    try:
        statement = read_record(Statement, document)
    except ValidationError as error:
        raise BadInput(
            f"{where}: no in-toto Statement v1 ({why_not_read(error)}); ask the sender for the "
            "file as it was exported"
        ) from error
    return Attestation(statement, payload, envelope)


def is_in_toto(envelope: Envelope) -> bool:
    """Whether an envelope holds a statement of in-toto."""
    return envelope.payload_type == IN_TOTO
