"""The refusal of an operation that has no portable form."""

from __future__ import annotations

from cellrepro.digests.site import Site
from cellrepro.errors import NotPossibleHere


class NotPortable(NotPossibleHere):
    """An operation was called that gives different bits on different machines."""

    def __init__(self, site: Site, reason: str) -> None:
        self.site = site
        self.reason = reason
        super().__init__(
            f"{site.op} ({site}) {reason}, so mode portable cannot promise the same bits on "
            "another machine; take it out of the network, write it with operations that are "
            "portable (cellrepro.portable_operations(step) lists them), or use mode strict, which "
            "holds on one machine"
        )

    def __reduce__(self) -> tuple[type[NotPortable], tuple[Site, str]]:
        """So that it comes out of a process as it was raised."""
        return NotPortable, (self.site, self.reason)
