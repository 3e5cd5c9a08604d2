"""DSSE envelopes, version 1: a payload with the signatures over it.

https://github.com/secure-systems-lab/dsse. Bytes are signed, not JSON, so that a signature is
checked before anything is parsed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.exchange.signed.signer import Signer

IN_TOTO = "application/vnd.in-toto+json"
"""Media type of a payload that is an in-toto Statement."""
_MOST_SIGNATURES = 64
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


@dataclass(frozen=True, order=True)
class Signature:
    """One signature of an envelope."""

    keyid: str
    """Fingerprint of the claimed key; only a hint, since it is not signed."""
    signature: bytes
    """64 bytes for Ed25519."""

    @property
    def fingerprint(self) -> str:
        """The ``keyid`` if it has the form of a fingerprint, since it will be printed."""
        return self.keyid if _FINGERPRINT.fullmatch(self.keyid) else "a key without fingerprint"


@dataclass(frozen=True)
class Envelope:
    """A payload with the signatures over it."""

    payload: bytes
    payload_type: str
    """Media type of the payload, which is signed with it."""
    signatures: tuple[Signature, ...]

    @property
    def signed_bytes(self) -> bytes:
        """The message of every signature."""
        return pre_authentication_encoding(self.payload_type, self.payload)

    def line(self) -> str:
        """One line of JSON with sorted keys, without the line feed."""
        signatures = [
            {"keyid": signature.keyid, "sig": _encoded(signature.signature)}
            for signature in self.signatures
        ]
        document = {
            "payload": _encoded(self.payload),
            "payloadType": self.payload_type,
            "signatures": signatures,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    def with_signatures(self, signatures: Iterable[Signature]) -> Envelope:
        """The same payload with further signatures, sorted and without duplicates."""
        every = {*self.signatures, *signatures}
        if len(every) > _MOST_SIGNATURES:
            raise BadInput(
                f"a statement would have {len(every)} signatures, those that are known of it and "
                f"those that come to them; expected {_MOST_SIGNATURES} at most: leave out "
                "those that nobody needs"
            )
        return Envelope(self.payload, self.payload_type, tuple(sorted(every)))


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """The bytes that DSSE signs: type and payload, each with its length.

    >>> pre_authentication_encoding("text", b"hello")
    b'DSSEv1 4 text 5 hello'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def signed(payload: bytes, signer: Signer) -> Envelope:
    """Sign a payload with one key."""
    message = pre_authentication_encoding(IN_TOTO, payload)
    signature = Signature(signer.public_key.fingerprint, signer.sign(message))
    return Envelope(payload, IN_TOTO, (signature,))


def is_envelope(document: object) -> bool:
    """Whether a JSON document has the fields of an envelope."""
    return isinstance(document, dict) and {"payload", "payloadType", "signatures"} <= {*document}


def read_envelope(document: object, *, where: str) -> Envelope:
    """Read an envelope from JSON."""
    if not isinstance(document, dict):
        raise _no_envelope(where, "it is no JSON object")
    payload_type = document.get("payloadType")
    signatures = document.get("signatures")
    if not isinstance(payload_type, str):
        raise _no_envelope(where, "payloadType is no text")
    if not isinstance(signatures, list) or len(signatures) > _MOST_SIGNATURES:
        raise _no_envelope(where, f"signatures is no list of {_MOST_SIGNATURES} at most")
    return Envelope(
        payload=_decoded(document.get("payload"), where=where, name="payload"),
        payload_type=payload_type,
        signatures=tuple(_signature(record, where) for record in signatures),
    )


def _signature(record: object, where: str) -> Signature:
    if not isinstance(record, dict):
        raise _no_envelope(where, "one of its signatures is no JSON object")
    keyid = record.get("keyid", "")  # optional in DSSE
    if not isinstance(keyid, str):
        raise _no_envelope(where, "the keyid of a signature is no text")
    return Signature(keyid, _decoded(record.get("sig"), where=where, name="sig"))


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _decoded(text: object, *, where: str, name: str) -> bytes:
    """Decode standard or URL-safe base64, both of which DSSE allows."""
    if not isinstance(text, str):
        raise _no_envelope(where, f"{name} is no text")
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _no_envelope(where, f"{name} is no base64: {error}") from error


def _no_envelope(where: str, why: str) -> BadInput:
    return BadInput(
        f"{where}: a damaged DSSE envelope ({why}); ask the sender for the file as it was exported"
    )
