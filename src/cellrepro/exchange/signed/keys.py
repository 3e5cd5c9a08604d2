"""Public keys of OpenSSH, and the files that hold them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import no_such_file
from cellrepro.extras import absent, needs
from samebits.errors import BadInput

ED25519 = "ssh-ed25519"
"""OpenSSH's name of the only kind of key that is supported here."""
OTHER_KINDS = re.compile(r"(sk-)?(ssh|ecdsa)-[\w@.-]+")
"""Names of kinds of keys that OpenSSH has beside it."""
_MOST_BYTES = 2**20  # of a key file or a list of signers
_BEFORE_THE_KEY = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
"""The kind and the length of a key before its 32 bytes, as OpenSSH writes them (RFC 8709)."""
_PUBLIC_KEY = "a public key of OpenSSH, as `ssh-keygen -t ed25519` makes one"


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 key of OpenSSH."""

    raw: bytes
    """Its 32 bytes."""
    comment: str = ""
    """The last word of its line, usually ``USER@HOST``."""

    @classmethod
    def from_base64(cls, encoded: str, *, comment: str = "") -> PublicKey:
        """Read the second word of its line."""
        try:
            blob = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"no base64: {error}") from error
        raw = blob.removeprefix(_BEFORE_THE_KEY)
        if raw == blob or len(raw) != 32:
            raise ValueError("no 32 bytes of an Ed25519 key")
        return cls(raw, comment)

    @property
    def blob(self) -> bytes:
        """The bytes that OpenSSH writes in base64."""
        return _BEFORE_THE_KEY + self.raw

    @property
    def fingerprint(self) -> str:
        """``SHA256:…``, as ``ssh-keygen -l`` prints it."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """Its line in a ``.pub`` file, without the line feed."""
        return f"{ED25519} {base64.b64encode(self.blob).decode()} {self.comment}".rstrip()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the private key of this one made a signature over a message."""
        refuse_without_cryptography()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


def refuse_without_cryptography() -> None:
    """Refuse where the library that makes and checks signatures is not installed."""
    missing = absent(["cryptography"])
    if missing:
        raise needs(missing, what="signing, or checking a signature,")


def read_public_key(path: Path) -> PublicKey:
    """Read a ``.pub`` file of OpenSSH."""
    kind, _, rest = small_text(path, expected=_PUBLIC_KEY).strip().partition(" ")
    encoded, _, comment = rest.partition(" ")
    if kind != ED25519:
        raise not_ed25519(path, kind if OTHER_KINDS.fullmatch(kind) else None)
    try:
        return PublicKey.from_base64(encoded, comment=comment.strip())
    except ValueError as error:
        raise BadInput(
            f"{path} is a damaged public key ({error}); make it anew with "
            f"`ssh-keygen -y -f {path.with_suffix('')}`"
        ) from error


def not_ed25519(path: Path, kind: str | None) -> BadInput:
    """The error for a file with a key of another kind, or without a key."""
    if kind is None:
        finding = f"{path} is no key of OpenSSH"
    elif kind.startswith("sk-"):
        finding = (
            f"{path} is a key of a security key ({kind}), whose signatures hold more than the "
            "message and are not plain Ed25519"
        )
    else:
        finding = f"{path} is a key of the kind {kind}"
    return BadInput(
        f"{finding}; expected an Ed25519 key: `ssh-keygen -t ed25519` makes one, and --sign takes "
        "its .pub"
    )


def small_text(path: Path, *, expected: str) -> str:
    """Read a text file of bounded size, such as a key."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise no_such_file(path, expected=expected) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error}); expected {expected}") from error
    if len(content) > _MOST_BYTES:
        raise BadInput(f"{path} is larger than {_MOST_BYTES} bytes; expected {expected}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no text ({error}); expected {expected}") from error
