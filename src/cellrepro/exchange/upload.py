"""A stored repeat that has been checked, with all that is logged of it in a tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.comparison.verdicts import judge
from cellrepro.digests.digests import file_digest
from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import Bundle
from cellrepro.exchange.current_passports import passports_of
from cellrepro.store.store import Store
from cellrepro.store.stored_run import MANIFEST, Repeat
from cellrepro.version import __version__

KNOWN_BY = "cellrepro.manifest"
"""Tag by which the run of a repeat is known: the digest of its manifest."""
PASSPORT_TAG = "cellrepro.passport"
"""Tag with the digest of its current passport."""


@dataclass(frozen=True)
class Upload:
    """A repeat that has been checked, with all that is logged of it."""

    repeat: Repeat
    passports: Bundle
    """The current passport is first."""
    tags: Mapping[str, str]
    """May change when the store gets more repeats, unlike all else."""
    files: tuple[Path, ...]
    """Artifacts beside the passport."""

    @classmethod
    def of(cls, repeat: Repeat, store: Store, files: Sequence[str]) -> Upload:
        """Check a repeat, and that it has the files that were asked for."""
        repeat.refuse_damage()
        for name in files:
            if not repeat.has(name):
                raise BadInput(
                    f"{repeat.name} has no {name}; leave --{Path(name).stem} out, or name a repeat "
                    "that has one"
                )
        paths = [repeat.folder / MANIFEST, *(repeat.file(name) for name in files)]
        passports = passports_of([repeat], store=store)
        tags = _tags(repeat, store) | {PASSPORT_TAG: passports.passports[0].digest}
        return cls(repeat, passports, tags, tuple(paths))


def _tags(repeat: Repeat, store: Store) -> dict[str, str]:
    run = store.run(repeat.spec.key)
    machines = {} if run is None else run.machines
    same_machine = machines.get(repeat.folder.parent.name, {}).values()
    verdict = judge([other.outcome for other in same_machine]).overall
    manifest = repeat.manifest
    tags: dict[str, str | None] = {
        KNOWN_BY: file_digest(repeat.folder / MANIFEST),
        "cellrepro.repeat": repeat.name,
        "cellrepro.key": repeat.spec.key,
        "cellrepro.machine": repeat.machine,
        "cellrepro.verdict": verdict,
        "cellrepro.vacuous": "; ".join(manifest.vacuous) or None,
        "cellrepro.weights": None if manifest.weights is None else manifest.weights.digest,
        "cellrepro.masks": manifest.masks_digest,
        "cellrepro.version": __version__,
    }
    return {name: str(value) for name, value in tags.items() if value is not None}
