"""The tables of evidence/: a row is known by its first columns."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from natsort import index_natsorted

EVIDENCE = Path(__file__).parents[2] / "evidence"


@dataclass(frozen=True)
class Table:
    """A file of evidence/; what was measured before stays in it.

    Parameters
    ----------
    name : str
        Of the file.
    known_by : tuple of str
        Columns that tell rows apart, in whose order they stand.
    """

    name: str
    known_by: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where it is."""
        return EVIDENCE / self.name

    def add(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows, in the place of those that are known by the same."""
        if not rows:
            print(f"{self.path}: nothing to add", file=sys.stderr)
            return
        table = pd.DataFrame(rows)
        columns = list(self.known_by)
        if self.path.exists():
            before = pd.read_csv(self.path, dtype=dict.fromkeys(columns, str))
            table = pd.concat([before, table])
        table[columns] = table[columns].astype(str)
        table = table.drop_duplicates(columns, keep="last")
        table = table.iloc[index_natsorted(table[columns].itertuples(index=False, name=None))]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(self.path, index=False, float_format="%.6g", lineterminator="\n")
        print(f"{self.path}: {len(table)} rows", file=sys.stderr)

    def known_pairs(self) -> set[tuple[str, str]]:
        """Pairs of runs that it has; what takes long is not measured again."""
        if not self.path.exists():
            return set()
        pairs = pd.read_csv(self.path)[["a", "b"]]
        return set(pairs.itertuples(index=False, name=None))
