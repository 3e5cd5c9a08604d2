"""Signing with an OpenSSH key: by ssh-agent if it holds the key, otherwise with the key file."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, overload

from cellrepro.exchange.signed.keys import (
    PublicKey,
    not_ed25519,
    read_public_key,
    refuse_without_cryptography,
    small_text,
)
from samebits.errors import BadInput, without_number

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

AGENT_VARIABLE = "SSH_AUTH_SOCK"
"""Environment variable with the path of ssh-agent's socket."""
_SECONDS_TO_ANSWER = 120.0  # an agent may ask its user first (ssh-add -c)
_MOST_BYTES = 2**20  # of an answer
# Message numbers of ssh-agent, https://datatracker.ietf.org/doc/draft-ietf-sshm-ssh-agent/
_REQUEST_IDENTITIES = 11
_IDENTITIES_ANSWER = 12
_SIGN_REQUEST = 13
_SIGN_RESPONSE = 14


@dataclass(frozen=True)
class KeyFileSigner:
    """Signs with a private key from its file."""

    public_key: PublicKey
    private_key: Ed25519PrivateKey = field(repr=False)

    def sign(self, message: bytes) -> bytes:
        """Sign in this process."""
        return self.private_key.sign(message)


@dataclass(frozen=True)
class AgentSigner:
    """Signs through ssh-agent, which may hold a key with a passphrase."""

    public_key: PublicKey
    address: str
    """Path of its socket."""

    def sign(self, message: bytes) -> bytes:
        """Ask ssh-agent for a signature, which may ask its user first."""
        flags = bytes(4)
        request = _string(self.public_key.blob) + _string(message) + flags
        try:
            answer = _ask_agent(self.address, _SIGN_REQUEST, request, expected=_SIGN_RESPONSE)
        except (OSError, ValueError) as error:
            raise BadInput(
                f"the ssh-agent did not sign with {self.public_key.fingerprint} ({error}); it may "
                "have asked and been refused: try again, or unset SSH_AUTH_SOCK to use the key file"
            ) from error
        signature = answer[-64:]  # before it stand only its kind and lengths
        if not self.public_key.verifies(signature, message):
            raise BadInput(
                f"what the ssh-agent gave is no signature of {self.public_key.fingerprint}; unset "
                "SSH_AUTH_SOCK to use the key file"
            )
        return signature


Signer = AgentSigner | KeyFileSigner
"""Signs with one Ed25519 key; both have its ``public_key``, and ``sign`` a message."""


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
    private_path = path.with_suffix("") if path.suffix == ".pub" else path
    public_key = read_public_key(path) if path.suffix == ".pub" else _public_half(path)
    address, why_not = _agent_holding(public_key)
    if address is not None:
        return AgentSigner(public_key, address)
    if not private_path.exists():
        raise BadInput(
            f"no private key for {path} ({public_key.fingerprint}): {why_not}, and there is no "
            f"file {private_path}; expected one of the two: `ssh-add` where the key is, or sign on "
            "that machine"
        )
    signer = _file_signer(private_path)
    if signer is None:
        raise BadInput(
            f"{private_path} has a passphrase, and {why_not}; the agent takes it: `ssh-add "
            f"{private_path}`, then the same command again (`eval $(ssh-agent)` starts an agent)"
        )
    if signer.public_key.raw != public_key.raw:
        raise BadInput(
            f"{private_path} is the private key of {signer.public_key.fingerprint}, and {path} is "
            f"{public_key.fingerprint}; expected a pair: `ssh-keygen -y -f {private_path}` prints "
            "the public key of the private one"
        )
    return KeyFileSigner(public_key, signer.private_key)


def fingerprint_of(signer: Signer | None) -> str | None:
    """The fingerprint of a signer's key; None if nothing is signed."""
    return None if signer is None else signer.public_key.fingerprint


# -- the key file ----------------------------------------------------------------------------------


def _public_half(path: Path) -> PublicKey:
    """The public key of a private one, from the file beside it if that has a passphrase."""
    signer = _file_signer(path)
    if signer is None:
        return read_public_key(path.with_name(f"{path.name}.pub"))
    return signer.public_key


def _file_signer(path: Path) -> KeyFileSigner | None:
    """The signer with the private key in a file; None if that has a passphrase."""
    refuse_without_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_ssh_private_key,
    )

    text = small_text(path, expected="a key of OpenSSH, KEY.pub")
    try:
        private_key = load_ssh_private_key(text.encode(), password=None)
    except TypeError:
        return None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInput(
            f"{path} is no key of OpenSSH, or damaged ({error}); expected an Ed25519 key that "
            f"`ssh-keygen -y -f {path}` can read"
        ) from error
    public_line = private_key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    kind, _, encoded = public_line.decode().partition(" ")
    if not isinstance(private_key, Ed25519PrivateKey):
        raise not_ed25519(path, kind)
    return KeyFileSigner(PublicKey.from_base64(encoded), private_key)


# -- ssh-agent -------------------------------------------------------------------------------------


def _agent_holding(public_key: PublicKey) -> tuple[str | None, str]:
    """The address of the ssh-agent if it holds a key; otherwise None, and why not."""
    address = os.environ.get(AGENT_VARIABLE)
    if not address:
        return None, f"no ssh-agent runs ({AGENT_VARIABLE} is not set)"
    if not hasattr(socket, "AF_UNIX"):
        return None, "this Python cannot speak with an ssh-agent"
    try:
        keys = _ask_agent(address, _REQUEST_IDENTITIES, b"", expected=_IDENTITIES_ANSWER)
    except (OSError, ValueError) as error:
        return None, f"the ssh-agent at {address} does not answer ({without_number(error)})"
    if _string(public_key.blob) not in keys:
        return None, "the ssh-agent does not hold it (`ssh-add -l` lists its keys)"
    return address, ""


def _ask_agent(address: str, kind: int, content: bytes, *, expected: int) -> bytes:
    """Send one request to ssh-agent; the answer without its message number."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SECONDS_TO_ANSWER)
        connection.connect(address)
        connection.sendall(_string(bytes([kind]) + content))
        with connection.makefile("rb") as stream:
            n_bytes = int.from_bytes(stream.read(4), "big")
            if n_bytes > _MOST_BYTES:
                raise ValueError(f"an answer of {n_bytes} bytes")
            answer = stream.read(n_bytes)
    if not answer or len(answer) < n_bytes:
        raise ValueError("it closed the connection")
    if answer[0] != expected:
        raise ValueError("it refused")
    return answer[1:]


def _string(content: bytes) -> bytes:
    """Bytes with their length before them, as OpenSSH writes them (RFC 4251, section 5)."""
    return len(content).to_bytes(4, "big") + content
