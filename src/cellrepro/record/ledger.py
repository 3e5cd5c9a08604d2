"""The ledger of one repeat: what went in and what came out, stage by stage and step by step.

A ledger is a table, one row per thing digested, in the order in which the run passed them; stored
as Parquet (``ledger.parquet``), so that pandas, R or DuckDB read it too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput

LEDGER = "ledger.parquet"
OPERATIONS = "ledger-ops.parquet"
DRAWS = "ledger-draws.parquet"

STAGES = (
    "environment",
    "spec",
    "data",
    "weights-init",
    "rng",
    "batch",
    "forward",
    "loss",
    "backward",
    "update",
    "weights",
    "flows",
    "masks",
)
"""In the order in which a run passes them; from ``rng`` to ``weights`` once in every step."""

BEFORE = -1
"""The step of everything that comes before the first one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing digested.

    Attributes
    ----------
    step : int
        From 0; `BEFORE` before the first, the number of steps after the last.
    epoch : int
        From 0; -1 before the first.
    stage : str
        One of `STAGES`.
    name : str
        What it is: a variable, a file, an image, a generator, a group of layers.
    digest : str
        Lower-case hex, see `cellrepro.record.digests`.
    value : float or None
        A number worth having beside the digest: the loss, a norm.
    detail : str or None
        A short plain value as JSON: which images, which crops, what a field holds.
    """

    step: int
    epoch: int
    stage: str
    name: str
    digest: str
    value: float | None = None
    detail: str | None = None

    @property
    def plain(self) -> Any:
        """`detail` as a plain value; None where there is none."""
        return None if self.detail is None else json.loads(self.detail)


class Ledger:
    """Entries in the order in which they were made.

    Attributes
    ----------
    step, epoch : int
        Given to every entry added.
    entries : list of Entry
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)
        self.step, self.epoch = BEFORE, -1

    def add(
        self,
        stage: str,
        name: str,
        digest: str,
        *,
        value: float | None = None,
        detail: Any = None,
    ) -> None:
        """Add one entry at the present step; ``detail`` is a plain value."""
        text = None if detail is None else json.dumps(detail, sort_keys=True, default=str)
        self.entries.append(Entry(self.step, self.epoch, stage, name, digest, value, text))

    def write(self, path: Path) -> None:
        """Write a Parquet file."""
        write_rows(path, self.entries, Entry)

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read what `write` wrote.

        Raises
        ------
        BadInput
            If the file is missing, damaged or no ledger.
        """
        return cls(read_rows(path, Entry))


_TYPES = {
    "int": "int32",
    "str": "string",
    "int | None": "int64",
    "float | None": "float64",
    "str | None": "string",
    "bool": "bool_",
}


def write_rows(path: Path, rows: Sequence[Any], kind: type) -> None:
    """Write dataclass instances of one kind as a Parquet table, one column a field."""
    import pyarrow
    from pyarrow import parquet

    columns = list(zip(*map(astuple, rows), strict=True)) or [()] * len(fields(kind))
    schema = _schema(kind)
    arrays = [
        pyarrow.array(column, type=field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), path, compression="zstd")


def read_rows(path: Path, kind: type) -> list[Any]:
    """Read what `write_rows` wrote; columns that came later may be missing.

    Raises
    ------
    BadInput
        If the file is missing, damaged, lacks a column without a default, or holds something
        else in one.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(
            f"{path} is no ledger that can be read ({error}); copy the run again, or run it again"
        ) from error
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not needed <= set(table.column_names):
        raise BadInput(
            f"{path} has the columns {table.column_names}, not those of a ledger "
            f"({', '.join(field.name for field in fields(kind))})"
        )
    columns = {}
    for field in fields(kind):
        if field.name not in table.column_names:
            continue
        try:
            column = table.column(field.name).cast(_schema(kind).field(field.name).type)
        except (KeyError, pyarrow.ArrowException) as error:  # twice there, or of another type
            raise BadInput(
                f"the column {field.name} of {path} is not that of a ledger ({error})"
            ) from error
        if column.null_count and not str(field.type).endswith("None"):
            raise BadInput(f"the column {field.name} of {path} has gaps; that of a ledger has none")
        columns[field.name] = column.to_pylist()
    return [
        kind(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]


def _schema(kind: type) -> Any:
    """The columns of a table of dataclass instances."""
    import pyarrow

    return pyarrow.schema(
        [(field.name, getattr(pyarrow, _TYPES[str(field.type)])()) for field in fields(kind)]
    )


def plain_rows(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Dataclass instances as dictionaries, for JSON and pandas."""
    return [asdict(row) for row in rows]


def by_place(entries: Iterable[Entry]) -> Mapping[tuple[int, str, str], Entry]:
    """Entries by step, stage and name."""
    return {(entry.step, entry.stage, entry.name): entry for entry in entries}
