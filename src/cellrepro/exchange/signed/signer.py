"""Signing with an OpenSSH key: by ssh-agent if it holds the key, otherwise with the key file."""

from __future__ import annotations

from pathlib import Path
from typing import overload

from cellrepro.errors import BadInput
from cellrepro.exchange.signed.agent import AgentSigner, agent_holding
from cellrepro.exchange.signed.key_file import KeyFileSigner, PrivateFile, file_signer
from cellrepro.exchange.signed.keys import read_public_key

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
    is_public = path.suffix == ".pub"
    private_path = path.with_suffix("") if is_public else path
    public_key = read_public_key(path) if is_public else PrivateFile.read(path).public_key
    agent = agent_holding(public_key)
    if agent.signer is not None:
        return agent.signer
    if not private_path.exists():
        raise BadInput(
            f"no private key for {path} ({public_key.fingerprint}): {agent.why_not}, and there is "
            f"no file {private_path}; expected one of the two: `ssh-add` where the key is, or sign "
            "on that machine"
        )
    return file_signer(private_path, public_key, why_no_agent=agent.why_not)


def fingerprint_of(signer: Signer | None) -> str | None:
    """The fingerprint of a signer's key; None if nothing is signed."""
    return None if signer is None else signer.public_key.fingerprint
