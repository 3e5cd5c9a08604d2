"""Signing with an OpenSSH key: by ssh-agent if it holds the key, otherwise with the key file."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import socket
import struct
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, overload

from cellrepro.errors import BadInput
from cellrepro.exchange.signed.keys import (
    ED25519,
    PublicKey,
    WireReader,
    not_ed25519,
    read_public_key,
    small_text,
    wire_string,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

AGENT_VARIABLE = "SSH_AUTH_SOCK"
"""Environment variable with the path of ssh-agent's socket."""
_SECONDS_TO_ANSWER = 120.0  # an agent may ask its user first (ssh-add -c)
_MOST_BYTES = 2**20  # of an answer
_PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----"
_PRIVATE_END = "-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"

# Message numbers of ssh-agent, https://datatracker.ietf.org/doc/draft-ietf-sshm-ssh-agent/
_REQUEST_IDENTITIES = 11
_IDENTITIES_ANSWER = 12
_SIGN_REQUEST = 13
_SIGN_RESPONSE = 14


class Signer:
    """Signs with one Ed25519 key."""

    public_key: PublicKey

    @abstractmethod
    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of a signature over a message."""


@dataclass(frozen=True)
class AgentSigner(Signer):
    """Signs through ssh-agent, which may hold a key with a passphrase."""

    public_key: PublicKey
    address: str
    """Path of its socket."""

    def sign(self, message: bytes) -> bytes:
        """Ask ssh-agent for a signature, which may ask its user first."""
        request = wire_string(self.public_key.blob) + wire_string(message) + struct.pack(">I", 0)
        try:
            answer = _ask(self.address, _SIGN_REQUEST, request, expected=_SIGN_RESPONSE)
            reader = WireReader(WireReader(answer).string())
            kind = reader.string()
            signature = reader.string()
        except (OSError, ValueError) as error:
            raise BadInput(
                f"the ssh-agent did not sign with {self.public_key.fingerprint} ({error}); it may "
                "have asked and been refused: try again, or unset SSH_AUTH_SOCK to use the key file"
            ) from error
        if kind != ED25519.encode() or not self.public_key.verifies(signature, message):
            raise BadInput(
                f"what the ssh-agent gave is no signature of {self.public_key.fingerprint}; unset "
                "SSH_AUTH_SOCK to use the key file"
            )
        return signature


@dataclass(frozen=True)
class KeyFileSigner(Signer):
    """Signs with a private key from its file."""

    public_key: PublicKey
    private_key: Ed25519PrivateKey = field(repr=False)

    def sign(self, message: bytes) -> bytes:
        """Sign in this process."""
        return self.private_key.sign(message)


@overload
def find_signer(key: str | Path) -> Signer: ...
@overload
def find_signer(key: str | Path | None) -> Signer | None: ...
def find_signer(key: str | Path | None) -> Signer | None:
    """The signer for a key or its ``.pub`` file: ssh-agent if it holds it, otherwise the key file.

    None for None: nothing is to be signed.
    """
    if key is None:
        return None
    path = Path(key).expanduser()
    is_public = path.suffix == ".pub"
    private_path = path.with_suffix("") if is_public else path
    public_key = read_public_key(path) if is_public else _PrivateFile.read(path).public_key
    agent = _agent_holding(public_key)
    if agent.signer is not None:
        return agent.signer
    if not private_path.exists():
        raise BadInput(
            f"no private key for {path} ({public_key.fingerprint}): {agent.why_not}, and there is "
            f"no file {private_path}; expected one of the two: `ssh-add` where the key is, or sign "
            "on that machine"
        )
    return _file_signer(private_path, public_key, why_no_agent=agent.why_not)


def fingerprint_of(signer: Signer | None) -> str | None:
    """The fingerprint of a signer's key; None if nothing is signed."""
    return None if signer is None else signer.public_key.fingerprint


# -- ssh-agent -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _AgentSearch:
    """The outcome of asking ssh-agent for a key."""

    signer: AgentSigner | None
    why_not: str = ""
    """Why there is no signer."""


def _agent_holding(public_key: PublicKey) -> _AgentSearch:
    address = os.environ.get(AGENT_VARIABLE)
    if not address:
        return _AgentSearch(None, f"no ssh-agent runs ({AGENT_VARIABLE} is not set)")
    if not hasattr(socket, "AF_UNIX"):
        return _AgentSearch(None, "this Python cannot speak with an ssh-agent")
    try:
        blobs = _keys_of_agent(address)
    except (OSError, ValueError) as error:
        return _AgentSearch(None, f"the ssh-agent at {address} does not answer ({error})")
    if public_key.blob not in blobs:
        return _AgentSearch(None, "the ssh-agent does not hold it (`ssh-add -l` lists its keys)")
    return _AgentSearch(AgentSigner(public_key, address))


def _keys_of_agent(address: str) -> Sequence[bytes]:
    reader = WireReader(_ask(address, _REQUEST_IDENTITIES, b"", expected=_IDENTITIES_ANSWER))
    blobs = []
    for _ in range(reader.number()):
        blobs.append(reader.string())
        reader.string()  # its comment
    return blobs


def _ask(address: str, kind: int, content: bytes, *, expected: int) -> bytes:
    """Send one request to ssh-agent; the answer without its message number."""
    with _connected(address) as connection:
        connection.sendall(wire_string(bytes([kind]) + content))
        (n_bytes,) = struct.unpack(">I", _received(connection, 4))
        if not 0 < n_bytes <= _MOST_BYTES:
            raise ValueError(f"an answer of {n_bytes} bytes")
        answer = _received(connection, n_bytes)
    if answer[0] != expected:
        raise ValueError("it refused")
    return answer[1:]


@contextmanager
def _connected(address: str) -> Iterator[socket.socket]:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(_SECONDS_TO_ANSWER)
        connection.connect(address)
        yield connection


def _received(connection: socket.socket, n_bytes: int) -> bytes:
    content = b""
    while len(content) < n_bytes:
        part = connection.recv(n_bytes - len(content))
        if not part:
            raise ValueError("it closed the connection")
        content += part
    return content


# -- the key file --------------------------------------------------------------------------


@dataclass(frozen=True)
class _PrivateFile:
    """The unencrypted part of a private key file of OpenSSH."""

    path: Path
    text: str
    public_key: PublicKey
    is_encrypted: bool

    @classmethod
    def read(cls, path: Path) -> _PrivateFile:
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


def _file_signer(path: Path, public_key: PublicKey, *, why_no_agent: str) -> KeyFileSigner:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    file = _PrivateFile.read(path)
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
