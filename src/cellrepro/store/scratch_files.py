"""Names of scratch files and private folders, which say which process made them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

import psutil

from cellrepro.digests.digests import value_digest


@dataclass(frozen=True)
class Owner:
    """The process that made a private folder or a scratch file, as the name of that says."""

    host: str
    """Eight hex digits of a digest of the host's name."""
    process: int | None
    """Process id on that host; None where the next process may go on with the same work."""

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(value_digest(platform.node())[:8], os.getpid())

    @classmethod
    def of(cls, name: str) -> Owner | None:
        """Read the owner from a name; None of a different kind of name."""
        parts = _NAME_OF_PRIVATE.fullmatch(name)
        if parts is None:
            return None
        process = parts["process"]
        return cls(parts["host"], None if process is None else int(process))

    def may_be_alive(self, here: Owner) -> bool:
        """Whether somebody may still work in a folder whose lock is free.

        Some file systems lock within one host only: of another host a free lock says nothing.
        """
        if self.host != here.host:
            return True
        if self.process is None or self.process == here.process:
            return False
        return psutil.pid_exists(self.process)

    def new_name(self) -> str:
        """Make a unique name for a private folder or a scratch file."""
        return f"{self.host}-{self.process}-{secrets.token_hex(8)}"


_NAME_OF_PRIVATE = re.compile(r"(?P<host>[0-9a-f]{8})-((?P<process>\d+)-[0-9a-f]{16}|resumable-.+)")


def scratch_beside(path: Path) -> Path:
    """A name beside a file that no other process or thread takes."""
    return path.with_name(f"{_lead(path)}{Owner.here().new_name()}.part")


def _lead(path: Path) -> str:
    """The beginning of the names of a file's scratch files."""
    return f".{path.name[:50]}."  # a name has 255 bytes at most, and a letter of it four


def remove_left_over(path: Path) -> None:
    """Remove what killed processes had written of a file."""
    with contextlib.suppress(OSError):
        for other in path.parent.iterdir():
            parts = _SCRATCH.fullmatch(other.name) if other.name.startswith(_lead(path)) else None
            if parts and parts["owner"] and not is_being_written(other.name):
                other.unlink()


_SCRATCH = re.compile(r"\..+?(\.(?P<owner>[0-9a-f]{8}-\d+-[0-9a-f]{16}))?\.(part|link)")


def is_scratch(name: str) -> bool:
    """Whether a file of this name is being written, or was when its process ended."""
    return _SCRATCH.fullmatch(name) is not None


def is_being_written(name: str) -> bool:
    """Whether a file of this name is the scratch file of a process that may be alive."""
    parts = _SCRATCH.fullmatch(name)
    owner = None if parts is None or parts["owner"] is None else Owner.of(parts["owner"])
    here = Owner.here()
    return owner is not None and (owner == here or owner.may_be_alive(here))
