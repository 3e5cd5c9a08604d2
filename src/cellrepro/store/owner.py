"""Whose a private folder or a scratch file is: its name says the host and the process."""

from __future__ import annotations

import os
import platform
import re
import secrets
from dataclasses import dataclass

import psutil

from cellrepro.digests.digests import value_digest


@dataclass(frozen=True)
class Owner:
    """Who made a private folder or a scratch file; its name says so."""

    host: str
    """Eight hex digits of a digest of its name."""
    process: int | None
    """Its number on that host; None where the next process may go on with the same work."""

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(value_digest(platform.node())[:8], os.getpid())

    @classmethod
    def of(cls, name: str) -> Owner | None:
        """The owner that a folder's name says; none of a different kind of name."""
        parts = _NAME_OF_PRIVATE.fullmatch(name)
        if parts is None:
            return None
        process = parts["process"]
        return cls(parts["host"], None if process is None else int(process))

    def may_be_alive(self, here: Owner) -> bool:
        """Whether a folder whose lock is free may still be worked in, for all that is known here.

        Some file systems lock within one host only: of another host a free lock says nothing.
        """
        if self.host != here.host:
            return True
        if self.process is None or self.process == here.process:
            return False
        return psutil.pid_exists(self.process)

    def new_name(self) -> str:
        """A name for a private folder or scratch file of this owner, which no other has."""
        return f"{self.host}-{self.process}-{secrets.token_hex(8)}"


_NAME_OF_PRIVATE = re.compile(r"(?P<host>[0-9a-f]{8})-((?P<process>\d+)-[0-9a-f]{16}|resumable-.+)")
