"""All repeats of one spec on this machine, and whether they came out the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.results import Result, Row
from cellrepro.run.plan import Plan
from cellrepro.same.verdicts import Judgement
from cellrepro.store.store import Repeat, Store


@dataclass(frozen=True, repr=False)
class Outcome(Result):
    """All repeats of one spec on this machine, and whether they came out the same."""

    plan: Plan
    """What was carried out."""
    repeats: tuple[Repeat, ...]
    """As they are stored, in their order."""
    judgement: Judgement
    """Whether weights and masks are the same in all of them."""
    stored_before: tuple[Repeat, ...] = ()
    """Those of them that were not run this time."""

    def sentence(self) -> str:
        """Say the verdict over all repeats."""
        return self.judgement.sentence()

    def rows(self) -> Sequence[Row]:
        """Give one row for each repeat."""
        rows = []
        for repeat in self.repeats:
            manifest = repeat.manifest
            row: dict[str, object] = {
                "repeat": manifest.repeat,
                "weights": manifest.weights.digest[:12] if manifest.weights else "",
                "images": len(manifest.masks),
                "objects": manifest.n_objects,
                "AP@0.5": "" if manifest.ap50 is None else f"{manifest.ap50:.3f}",
                "seconds": f"{sum(manifest.seconds.values()):.1f}",
            }
            rows.append(row)
        return rows

    @property
    def store(self) -> Store:
        """Of the plan."""
        return self.plan.store

    @property
    def key(self) -> str:
        """The spec's key, the name of the run."""
        return self.plan.spec.key

    @property
    def folder(self) -> Path:
        """Where the run is, or will be once the grid has stored it."""
        return self.store.root / "runs" / self.key
