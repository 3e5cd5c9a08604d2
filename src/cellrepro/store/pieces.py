"""Rows of a long table, written piece by piece, so that a killed process loses only the last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput
from cellrepro.store.ledger import write_rows, write_tables


class Pieces:
    """A growing table of rows of one kind, in a folder of Parquet files.

    Parameters
    ----------
    folder : Path
        Made at the first piece.
    kind : type
        The rows' dataclass.
    """

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
        """Forget every row after the first ``n_rows``, which end with a piece.

        Raises
        ------
        BadInput
            If rows are missing or a piece is damaged.
        """
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
                raise BadInput(
                    f"{piece} cannot be read ({error}); remove the unfinished run and train "
                    "without --resume"
                ) from error
        if held != n_rows:
            raise BadInput(
                f"{self._folder} holds {held} rows of the ledger, the checkpoint says {n_rows}; "
                "remove the unfinished run and train without --resume"
            )
        self.n_rows = n_rows

    def finish(self, path: Path) -> None:
        """Join the pieces into one file; they stay until the run is stored."""
        from pyarrow import parquet

        pieces = (parquet.read_table(piece, partitioning=None) for piece in self._files())
        write_tables(path, pieces, self._kind)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.parquet"))
