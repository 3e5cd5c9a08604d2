"""What `verify` is told for a check, and what it finds, whatever the target is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.exchange.bundle import Bundle
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.signed.allowed_signers import AllowedSigner
from cellrepro.exchange.verified import VerifiedModel, VerifiedRepeat
from cellrepro.store.store import Store


@dataclass(frozen=True)
class Checking:
    """The options of a check."""

    store: Store
    """The store in which runs are looked up."""
    allowed: Sequence[AllowedSigner]
    """Whom the user believes."""
    data: Path | None = None
    """The folder of images, if the user has it."""
    quiet: bool = False
    """Show no progress."""


@dataclass
class TargetFindings:
    """The outcome of checking a target."""

    repeats: list[VerifiedRepeat] = field(default_factory=list)
    vacuous: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Why repeats prove nothing, by their names."""
    models: list[VerifiedModel] = field(default_factory=list)
    """Files with networks."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    n_files: int = 0
    """Files that were compared with a digest."""
    n_repeats: int = 0
    """Repeats in the target."""

    def add_verified(self, verified: VerifiedRepeat, *, where: str) -> None:
        """Add a passport with its receipts; each of them that is badly signed is a problem."""
        self.repeats.append(verified)
        self.problems += verified.bad_signatures(where)


def verified_passports(
    name: str,
    bundle: Bundle,
    checking: Checking,
    *,
    not_here: Sequence[str] = (),
    has_images: bool = False,
) -> Iterator[VerifiedRepeat]:
    """Check the signatures of the passports and receipts of a repeat whose files are here."""
    for passport in bundle.passports_of(name):
        yield VerifiedRepeat.of(
            passport,
            bundle.receipts_of(passport),
            checking.allowed,
            is_here=True,
            not_here=not_here,
            has_images=has_images,
        )
