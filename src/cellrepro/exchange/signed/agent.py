"""Signing with a key that ssh-agent holds."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cellrepro.errors import BadInput
from cellrepro.exchange.signed.keys import ED25519, PublicKey
from cellrepro.exchange.signed.wire import WireReader, wire_string

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
class AgentSigner:
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
class AgentSearch:
    """The outcome of asking ssh-agent for a key."""

    signer: AgentSigner | None
    why_not: str = ""
    """Why there is no signer."""


def agent_holding(public_key: PublicKey) -> AgentSearch:
    """Ask the ssh-agent, if one runs, for a signer with this key."""
    address = os.environ.get(AGENT_VARIABLE)
    if not address:
        return AgentSearch(None, f"no ssh-agent runs ({AGENT_VARIABLE} is not set)")
    if not hasattr(socket, "AF_UNIX"):
        return AgentSearch(None, "this Python cannot speak with an ssh-agent")
    try:
        blobs = _keys_of_agent(address)
    except (OSError, ValueError) as error:
        return AgentSearch(None, f"the ssh-agent at {address} does not answer ({error})")
    if public_key.blob not in blobs:
        return AgentSearch(None, "the ssh-agent does not hold it (`ssh-add -l` lists its keys)")
    return AgentSearch(AgentSigner(public_key, address))


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
