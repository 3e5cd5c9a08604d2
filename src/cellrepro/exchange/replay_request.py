"""What a user asks of a replay, and what of it is refused before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.exchange.bundle import BUNDLE_ENDING, read_bundle
from samebits.errors import BadInput
from samebits.words import joined


@dataclass(frozen=True)
class ReplayRequest:
    """The options of a replay."""

    data: Path | None = None
    """The folder of images; by default where it was, or what came with the run."""
    model: str | None = None
    """The network from which the run started; by default looked for in the same places."""
    profile: str | None = None
    """Replaces the profile of the spec, so that the replay is a run of its own."""
    command: Sequence[str] = ()
    """The words of the program that was wrapped, or the function."""
    run: str | None = None
    """Which repeat of several, as the user named it."""
    receipt: Path | None = None
    """The bundle to which the receipt is added."""
    signs: bool = False
    """Whether the receipt is to be signed."""

    def refuse_idle(self, *, replay: bool, is_store: bool) -> None:
        """Refuse options that would do nothing, and a receipt that cannot be written."""
        options = {
            "--run": self.run,
            "--model": self.model,
            "--profile": self.profile,
            f"{' '.join(self.command)!r} after the target": self.command or None,
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
            _refuse_unusable_receipt(self.receipt)


def _refuse_unusable_receipt(file: Path) -> None:
    """Refuse a file to which no receipt can be added."""
    if not file.name.endswith(BUNDLE_ENDING) or file.name == BUNDLE_ENDING:
        raise BadInput(f"--receipt is {file}; expected a name that ends with {BUNDLE_ENDING}")
    if not file.parent.is_dir():
        raise BadInput(f"{file.parent} is no folder; expected one that is there: make it first")
    if file.exists():
        read_bundle(file)
