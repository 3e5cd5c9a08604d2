"""What a reader gives for the replay of a run that was made elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import BUNDLE_ENDING, read_bundle
from cellrepro.words import joined


@dataclass(frozen=True)
class Given:
    """What the reader gives for a replay."""

    data: Path | None = None
    """The folder of images; none looks where it was, and what came with the run."""
    model: str | None = None
    """The network from which the run started; none looks in the same places."""
    profile: str | None = None
    """Instead of the one that was asked for; the replay then is a run of its own."""
    command: Sequence[str] = ()
    """The program that was wrapped, with its words, or the function."""


@dataclass(frozen=True)
class WantedReplay:
    """What was asked for of a replay."""

    given: Given
    run: str | None = None
    """Which repeat of several, as the user named it."""
    receipt: Path | None = None
    """The bundle to which the receipt is added."""
    signs: bool = False
    """Whether the receipt is to be signed."""

    def refuse_idle(self, *, replay: bool, is_store: bool) -> None:
        """Refuse what would do nothing, and what cannot be written, before anything is done."""
        options = {
            "--run": self.run,
            "--model": self.given.model,
            "--profile": self.given.profile,
            f"{' '.join(self.given.command)!r} after the target": self.given.command or None,
            "--receipt": self.receipt,
            "--sign": self.signs or None,
        }
        idle = [name for name, value in options.items() if value is not None]
        if idle and not replay:
            raise BadInput(
                f"{joined(idle)} would do nothing, as nothing is computed again: give --replay, or "
                "leave it out"
            )
        if replay and is_store:
            raise BadInput(
                "a whole store is not computed again: name a run of it, KEY/REPEAT, with --store"
            )
        if self.signs and self.receipt is None:
            raise BadInput("sign is given without receipt, so there is nothing to sign: give both")
        if self.receipt is not None:
            check_receipt_file(self.receipt)


def check_receipt_file(file: Path) -> None:
    """Refuse a file to which no receipt can be added, before anything is computed."""
    if not file.name.endswith(BUNDLE_ENDING) or file.name == BUNDLE_ENDING:
        raise BadInput(f"--receipt is {file}; expected a name that ends with {BUNDLE_ENDING}")
    if not file.parent.is_dir():
        raise BadInput(f"{file.parent} is no folder; expected one that is there: make it first")
    if file.exists():
        read_bundle(file)
