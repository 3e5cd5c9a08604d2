"""Signing with a private key of OpenSSH from its file."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.errors import BadInput
from cellrepro.exchange.signed.keys import ED25519, PublicKey, not_ed25519, small_text
from cellrepro.exchange.signed.wire import WireReader

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----"
_PRIVATE_END = "-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"


@dataclass(frozen=True)
class KeyFileSigner:
    """Signs with a private key from its file."""

    public_key: PublicKey
    private_key: Ed25519PrivateKey = field(repr=False)

    def sign(self, message: bytes) -> bytes:
        """Sign in this process."""
        return self.private_key.sign(message)


@dataclass(frozen=True)
class PrivateFile:
    """The unencrypted part of a private key file of OpenSSH."""

    path: Path
    text: str
    public_key: PublicKey
    is_encrypted: bool

    @classmethod
    def read(cls, path: Path) -> PrivateFile:
        """Read the file; a key with a passphrase shows its public half, too."""
        text = small_text(path, expected="a key of OpenSSH, KEY.pub")
        lines = [line.strip() for line in text.strip().splitlines()]
        if len(lines) < 3 or lines[0] != _PRIVATE or lines[-1] != _PRIVATE_END:
            raise not_ed25519(path, None)
        try:
            content = base64.b64decode("".join(lines[1:-1]), validate=True)
            if not content.startswith(_MAGIC):
                raise ValueError("it does not begin as one")
            reader = WireReader(content[len(_MAGIC) :])
            cipher = reader.string()
            reader.string()  # name of the key derivation function
            reader.string()  # its options
            if reader.number() != 1:
                raise ValueError("it holds several keys")
            blob = reader.string()
            kind = WireReader(blob).string().decode("ascii", "replace")
            public_key = PublicKey.from_blob(blob) if kind == ED25519 else None
        except (binascii.Error, ValueError) as error:
            raise BadInput(
                f"{path} is a damaged private key ({error}); expected one that `ssh-keygen -y -f "
                f"{path}` can read"
            ) from error
        if public_key is None:
            raise not_ed25519(path, kind)
        return cls(path, text, public_key, cipher != b"none")


def file_signer(path: Path, public_key: PublicKey, *, why_no_agent: str) -> KeyFileSigner:
    """Give a signer with the private key in a file, which must be that of a public one."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    file = PrivateFile.read(path)
    if file.public_key != PublicKey(public_key.raw, file.public_key.comment):
        raise BadInput(
            f"{path} is the private key of {file.public_key.fingerprint}, and {path}.pub is "
            f"{public_key.fingerprint}; expected a pair: `ssh-keygen -y -f {path}` prints the "
            "public key of the private one"
        )
    if file.is_encrypted:
        raise BadInput(
            f"{path} has a passphrase, and {why_no_agent}; the agent takes it: `ssh-add {path}`, "
            "then the same command again (`eval $(ssh-agent)` starts an agent)"
        )
    try:
        private_key = load_ssh_private_key(file.text.encode(), password=None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInput(f"{path} cannot be read as a private key ({error})") from error
    if not isinstance(private_key, Ed25519PrivateKey):
        raise not_ed25519(path, None)
    return KeyFileSigner(public_key, private_key)
