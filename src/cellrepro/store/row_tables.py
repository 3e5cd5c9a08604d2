"""Dataclass instances as rows of a Parquet file, and tables that grow while a run goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from cellrepro.store.whole_files import whole_file
from samebits.errors import BadInput

_TYPES = {
    "int": "int32",
    "int | None": "int64",
    "float | None": "float64",
    "bool": "bool_",
    "str": "string",
    "str | None": "string",
}
"""PyArrow's type of a column, by the annotation of the field; rows are defined in modules with
``from __future__ import annotations``, where that is a text."""
ROWS_OF_A_GROUP = 20_000
"""After which a row group ends: the least that is read at a time to have one step."""


def write_rows(path: Path, rows: Sequence[Any], kind: type) -> None:
    """Write rows as a Parquet table."""
    import pyarrow

    schema = _schema(kind)
    columns = {name: [getattr(row, name) for row in rows] for name in schema.names}
    _write_tables(path, [pyarrow.table(columns, schema=schema)], kind)


def read_rows(path: Path, kind: type, *, step: int | None = None) -> list[Any]:
    """Read what `write_rows` wrote: instances of ``kind``, in their order."""
    import pyarrow
    from pyarrow import parquet

    filters = None if step is None else [("step", "==", step)]
    try:
        table = parquet.read_table(path, filters=filters, partitioning=None)
        table.select([field.name for field in fields(kind) if field.default is MISSING])
        present = [field for field in _schema(kind) if field.name in table.column_names]
        table = table.select([field.name for field in present]).cast(pyarrow.schema(present))
        return [kind(**row) for row in table.to_pylist()]
    except (OSError, KeyError, TypeError, ValueError, pyarrow.ArrowException) as error:
        raise BadInput(
            f"{path} is no ledger that can be read ({error}); copy the run again, or run it again"
        ) from error


def _schema(kind: type) -> Any:
    import pyarrow

    return pyarrow.schema(
        [(field.name, getattr(pyarrow, _TYPES[str(field.type)])()) for field in fields(kind)]
    )


def _write_tables(path: Path, tables: Iterable[Any], kind: type) -> None:
    """Write tables as one file, whose bytes do not depend on where they were cut."""
    import pyarrow
    from pyarrow import parquet

    schema = _schema(kind)
    unwritten = schema.empty_table()
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            unwritten = pyarrow.concat_tables([unwritten, table.cast(schema)])
            while unwritten.num_rows > ROWS_OF_A_GROUP:
                writer.write_table(unwritten.slice(0, ROWS_OF_A_GROUP).combine_chunks())
                unwritten = unwritten.slice(ROWS_OF_A_GROUP)
        writer.write_table(unwritten.combine_chunks())


class Pieces:
    """A growing table of rows of one kind (a dataclass), in a folder of Parquet files."""

    def __init__(self, folder: Path, kind: type) -> None:
        self.folder = folder
        self.kind = kind
        self.n_rows = 0

    def append(self, rows: Sequence[Any]) -> None:
        """Write a piece, whole or not at all."""
        if not rows:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        piece = self.folder / f"{self.n_rows:012d}.parquet"
        with whole_file(piece, replace=True) as scratch:
            write_rows(scratch, rows, self.kind)
        self.n_rows += len(rows)

    def go_back(self, n_rows: int) -> None:
        """Remove every row after the first ``n_rows``, which must be there and end with a piece."""
        from pyarrow import ArrowException, parquet

        for half_written in self.folder.glob("*.part"):
            half_written.unlink()
        n_found = 0
        for piece in sorted(self.folder.glob("*.parquet")):
            if n_found != int(piece.stem) or n_found >= n_rows:
                piece.unlink()
                continue
            with contextlib.suppress(OSError, ArrowException):  # a damaged one counts as lost
                n_found += parquet.read_metadata(piece).num_rows
        if n_found != n_rows:
            raise BadInput(
                f"{self.folder} holds {n_found} rows of the ledger, the checkpoint says {n_rows}; "
                "remove the unfinished run and train without --resume"
            )
        self.n_rows = n_rows

    def finish(self, path: Path) -> None:
        """Join the pieces into one file; they stay until the run is stored."""
        from pyarrow import parquet

        files = sorted(self.folder.glob("*.parquet"))
        pieces = (parquet.read_table(piece, partitioning=None) for piece in files)
        _write_tables(path, pieces, self.kind)
