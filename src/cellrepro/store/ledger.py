"""The ledger of one repeat: what went in and what came out, stage by stage and step by step.

A ledger is a table, one row per thing digested, in the order in which the run passed them; stored
as Parquet (``ledger.parquet``), so that pandas, R or DuckDB read it too. While a run goes on, its
rows lie in `Pieces`, so that a killed process loses only the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, astuple, dataclass, fields
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
    """One thing digested."""

    step: int
    """From 0; `BEFORE` before the first, the number of steps after the last."""
    epoch: int
    """From 0; -1 before the first."""
    stage: str
    """One of `STAGES`."""
    name: str
    """What it is: a variable, a file, an image, a generator, a group of layers."""
    digest: str
    """Lower-case hex, see `cellrepro.store.digests`."""
    value: float | None = None
    """A number worth having beside the digest: the loss, a norm."""
    detail: str | None = None
    """A short plain value as JSON: which images, which crops, what a field holds."""

    @property
    def plain(self) -> Any:
        """`detail` as a plain value; None where there is none."""
        return None if self.detail is None else json.loads(self.detail)


class Ledger:
    """Entries in the order in which they were made; each is given the present step and epoch."""

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
        """Read what `write` wrote."""
        return cls(read_rows(path, Entry))


def by_place(entries: Iterable[Entry]) -> Mapping[tuple[int, str, str], Entry]:
    """Entries by step, stage and name."""
    return {(entry.step, entry.stage, entry.name): entry for entry in entries}


# -- tables of dataclass instances, one column a field -------------------------------------

_TYPES = {
    "int": "int32",
    "str": "string",
    "int | None": "int64",
    "float | None": "float64",
    "str | None": "string",
    "bool": "bool_",
}
_GROUP = 20_000
"""Rows after which a row group ends, with its step: what is read at a time to have one step."""


def write_rows(path: Path, rows: Sequence[Any], kind: type) -> None:
    """Write dataclass instances of one kind as a Parquet table."""
    _write_tables(path, [_table(rows, kind)], kind)


def read_rows(path: Path, kind: type, *, step: int | None = None) -> list[Any]:
    """Read what `write_rows` wrote, or only the rows of one step.

    Columns that came later may be missing, others are passed over. A file that is missing or
    damaged, or holds something else, is refused.
    """
    import pyarrow.compute
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            table = file.read() if step is None else file.read_row_groups(_groups_of(file, step))
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(
            f"{path} is no ledger that can be read ({error}); copy the run again, or run it again"
        ) from error
    columns = dict(_columns(path, table, kind))
    if step is not None:
        of_step = pyarrow.compute.equal(columns["step"], step)
        columns = {name: column.filter(of_step) for name, column in columns.items()}
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    return [kind(**dict(zip(columns, row, strict=True))) for row in rows]


def _schema(kind: type) -> Any:
    import pyarrow

    return pyarrow.schema(
        [(field.name, getattr(pyarrow, _TYPES[str(field.type)])()) for field in fields(kind)]
    )


def _table(rows: Sequence[Any], kind: type) -> Any:
    import pyarrow

    schema = _schema(kind)
    columns = list(zip(*map(astuple, rows), strict=True)) or [()] * len(schema)
    arrays = [
        pyarrow.array(column, type=field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _write_tables(path: Path, tables: Iterable[Any], kind: type) -> None:
    """Write tables as one; its bytes do not depend on where they were cut."""
    import pyarrow
    from pyarrow import parquet

    schema = _schema(kind)
    held = schema.empty_table()
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            held = pyarrow.concat_tables([held, table.cast(schema)]).combine_chunks()
            while (end := _end_of_group(held)) is not None:
                writer.write_table(held.slice(0, end).combine_chunks(), row_group_size=end)
                held = held.slice(end).combine_chunks()
        writer.write_table(held, row_group_size=max(1, held.num_rows))


def _end_of_group(table: Any) -> int | None:
    """After how many rows a row group ends; none where it may go on with what comes."""
    if table.num_rows <= _GROUP or "step" not in table.column_names:
        return None
    steps = table.column("step").to_numpy()
    ends = (steps[_GROUP:] != steps[_GROUP - 1 : -1]).nonzero()[0]
    return _GROUP + int(ends[0]) if len(ends) else None


def _groups_of(file: Any, step: int) -> list[int]:
    """The row groups of a Parquet file that may hold rows of a step, by their statistics."""
    at = file.schema_arrow.get_field_index("step")
    found = []
    for group in range(file.num_row_groups):
        held = file.metadata.row_group(group).column(at).statistics if at >= 0 else None
        if held is None or not held.has_min_max or held.min <= step <= held.max:
            found.append(group)
    return found


def _columns(path: Path, table: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """The columns of a table that are fields of a row, each checked."""
    import pyarrow

    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not needed <= set(table.column_names):
        raise BadInput(
            f"{path} has the columns {table.column_names}, not those of a ledger "
            f"({', '.join(field.name for field in fields(kind))})"
        )
    for field, column_type in zip(fields(kind), _schema(kind).types, strict=True):
        if field.name not in table.column_names:
            continue
        try:
            column = table.column(field.name).cast(column_type)
        except (KeyError, pyarrow.ArrowException) as error:  # twice there, or of another type
            raise BadInput(
                f"the column {field.name} of {path} is not that of a ledger ({error})"
            ) from error
        if column.null_count and not str(field.type).endswith("None"):
            raise BadInput(f"the column {field.name} of {path} has gaps; that of a ledger has none")
        yield field.name, column


# -- while a run goes on -------------------------------------------------------------------

_START_ANEW = "remove the unfinished run and train without --resume"


class Pieces:
    """A growing table of rows of one kind (a dataclass), in a folder of Parquet files."""

    def __init__(self, folder: Path, kind: type) -> None:
        self._folder, self._kind = folder, kind
        self.n_rows = 0

    def append(self, rows: Sequence[Any]) -> None:
        """Write a piece, whole or not at all."""
        if not rows:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        piece = self._folder / f"{self.n_rows:012d}.parquet"
        scratch = piece.with_suffix(".part")
        write_rows(scratch, rows, self._kind)
        scratch.replace(piece)
        self.n_rows += len(rows)

    def go_back(self, n_rows: int) -> None:
        """Forget every row after the first ``n_rows``, which must be there and end with a piece."""
        from pyarrow import ArrowException, parquet

        for half_written in self._folder.glob("*.part"):
            half_written.unlink()
        held = 0
        for piece in self._files():
            if held != int(piece.stem) or held >= n_rows:
                piece.unlink()
                continue
            try:
                held += parquet.read_metadata(piece).num_rows
            except (OSError, ArrowException) as error:
                raise BadInput(f"{piece} cannot be read ({error}); {_START_ANEW}") from error
        if held != n_rows:
            raise BadInput(
                f"{self._folder} holds {held} rows of the ledger, the checkpoint says {n_rows}; "
                f"{_START_ANEW}"
            )
        self.n_rows = n_rows

    def finish(self, path: Path) -> None:
        """Join the pieces into one file; they stay until the run is stored."""
        from pyarrow import parquet

        pieces = (parquet.read_table(piece, partitioning=None) for piece in self._files())
        _write_tables(path, pieces, self._kind)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.parquet"))
