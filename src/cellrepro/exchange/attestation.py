"""One line of a bundle: a statement, signed or not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from cellrepro.errors import BadInput
from cellrepro.exchange.signed.envelope import IN_TOTO, Envelope, signed
from cellrepro.exchange.signed.signer import Signer
from cellrepro.exchange.statement import Statement
from cellrepro.exchange.strict_json import read_json, read_record, why_not_read

MOST_BYTES = 2**22
"""Limit of a statement from outside; those of cellrepro stay below 1 MB."""


@dataclass(frozen=True)
class Attestation:
    """A statement, its bytes, and the signatures over these."""

    statement: Statement
    payload: bytes
    """The statement as it was read: serialised anew, its signatures could be lost."""
    envelope: Envelope | None = None
    """The signatures; None if it was never signed."""

    @classmethod
    def of(cls, statement: Statement, *, signer: Signer | None = None) -> Attestation:
        """Serialise a statement, and sign it if there is a signer."""
        payload = statement.payload()
        envelope = None if signer is None else signed(payload, signer)
        return cls(statement, payload, envelope)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the payload, by which a receipt identifies its passport."""
        return hashlib.sha256(self.payload).hexdigest()

    def line(self) -> str:
        """Its line in a bundle, without the line feed: the envelope, or the bare statement."""
        if self.envelope is None:
            return self.payload.decode("utf-8")
        return self.envelope.line()

    def signed_by(self, signer: Signer) -> Attestation:
        """The same with one more signature."""
        more = signed(self.payload, signer)
        kept = more if self.envelope is None else self.envelope.with_signatures(more.signatures)
        return Attestation(self.statement, self.payload, kept)

    def together_with(self, other: Attestation) -> Attestation:
        """The signatures of two attestations of the same payload."""
        if self.envelope is None or other.envelope is None:
            return self if other.envelope is None else other
        both = self.envelope.with_signatures(other.envelope.signatures)
        return Attestation(self.statement, self.payload, both)


def read_payload(payload: bytes, *, where: str, envelope: Envelope | None = None) -> Attestation:
    """Parse the bytes of a statement."""
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
