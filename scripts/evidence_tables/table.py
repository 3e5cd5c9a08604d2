"""Tables of evidence/: CSV files that keep what was measured, and the stores it is measured in."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import Parameter, Token
from natsort import index_natsorted

from cellrepro import Store

EVIDENCE = Path(__file__).resolve().parents[2] / "evidence"

Row = Mapping[str, object]
"""A value for each column."""


def _store_of_runs(_type: object, tokens: Sequence[Token]) -> Store:
    folder = Path(tokens[0].value)
    if not (folder / "runs").is_dir():
        raise ValueError(f"{folder} holds no run; expected a store in which grids were run")
    return Store(folder)


StoreOfRuns = Annotated[Store, Parameter(converter=_store_of_runs, accepts_keys=False)]
"""A store in which grids were run; on a command line its folder."""


@dataclass(frozen=True)
class Table:
    """A table of evidence/, by its name."""

    name: str
    known_by: tuple[str, ...]
    """Columns that tell its rows apart, in whose order they stand."""

    @property
    def file(self) -> Path:
        """Where it lies; it need not be there yet."""
        return EVIDENCE / f"{self.name}.csv"

    def keep(self, *rows: Row) -> None:
        """Add rows, in the place of those that are known by the same."""
        columns = [*self.known_by]
        table = pd.DataFrame([*self._rows(), *rows])
        table[columns] = table[columns].astype(str)
        table = table.drop_duplicates(columns, keep="last")
        table = table.iloc[index_natsorted(table[columns].itertuples(index=False, name=None))]
        table.to_csv(self.file, index=False, float_format="%.6g", lineterminator="\n")
        print(f"{self.file}: {len(table)} rows", file=sys.stderr)

    def has(self, **values: str) -> bool:
        """Whether a row has these values; what takes long is not measured again."""
        return any(values.items() <= row.items() for row in self._rows())

    def _rows(self) -> list[Row]:
        if not self.file.exists():
            return []
        return pd.read_csv(self.file, dtype=dict.fromkeys(self.known_by, str)).to_dict("records")
