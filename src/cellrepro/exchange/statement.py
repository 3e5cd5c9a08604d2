"""Statements of in-toto, version 1, and attestations: a statement with the signatures over it.

Passports, receipts and statements about models are statements with predicates of their own. Fields
that the specification does not know are ignored, as it asks for.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, ValidationError

from cellrepro.exchange.json_records import (
    CamelCaseRecord,
    JsonObject,
    as_json,
    read_record,
    why_not_read,
)
from cellrepro.exchange.signed.envelope import Envelope, Signature, signed
from cellrepro.exchange.signed.signer import Signer
from cellrepro.exchange.strict_json import read_json
from samebits.errors import BadInput

STATEMENT: Final = "https://in-toto.io/Statement/v1"
MOST_BYTES = 2**22
"""Limit of a statement from outside; those of cellrepro stay below 1 MB."""

Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
"""64 digits of lower-case hex."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", re.ASCII)
"""A time of RFC 3339, in UTC."""
TIME_EXAMPLE = "2026-11-01T12:00:00Z"


@dataclass(frozen=True)
class ResourceDescriptor(CamelCaseRecord):
    """A file, package or result that a statement is about, by name or URI and by digest."""

    name: str | None = None
    uri: str | None = None
    digest: dict[str, str] = field(default_factory=dict)
    annotations: JsonObject = field(default_factory=dict)

    @property
    def sha256(self) -> str | None:
        """Its SHA-256, if it has one."""
        return self.digest.get("sha256")


@dataclass(frozen=True)
class Statement(CamelCaseRecord):
    """A claim, the predicate, about subjects that are identified by their digests."""

    subject: tuple[ResourceDescriptor, ...]
    predicate_type: str
    predicate: JsonObject = field(default_factory=dict)
    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = STATEMENT

    def payload(self) -> bytes:
        """The bytes that are signed and digested: canonical JSON."""
        return canonical_json({**as_json(self), "_type": STATEMENT})


def canonical_json(document: object) -> bytes:
    """JSON in UTF-8 with sorted keys and no spaces: equal documents are equal bytes."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def utc_time(moment: datetime) -> str:
    """A time as `TIME_EXAMPLE`: RFC 3339, in UTC, to the second."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- attestations --------------------------------------------------------------------------------


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

    @property
    def signatures(self) -> frozenset[Signature]:
        """Its signatures, of which an unsigned one has none."""
        return frozenset(() if self.envelope is None else self.envelope.signatures)

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
