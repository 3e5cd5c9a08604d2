"""Ledgers on disk, whole and in pieces."""

import math
from dataclasses import astuple, replace

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from cellrepro.store import row_tables
from cellrepro.store.ledger import LedgerRow
from cellrepro.store.row_tables import Pieces, read_rows, write_rows
from samebits.errors import BadInput

LOSS = LedgerRow(0, 0, "loss", "loss", "cd" * 16, 0.25, None)


def entries(n, start=0):
    return [replace(LOSS, step=index, digest=f"{index:032x}") for index in range(start, start + n)]


INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOAT = st.none() | st.floats(allow_nan=False) | st.just(math.nan)
ROWS = st.builds(LedgerRow, INT32, INT32, TEXT, TEXT, TEXT, FLOAT, st.none() | TEXT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ledgers")


@settings(max_examples=25, deadline=None)
@given(written=st.lists(ROWS, max_size=6))
def test_every_field_of_every_row_comes_back(folder, written):
    """With the bits of every float; NaN is one value."""
    write_rows(folder / "rows", written, LedgerRow)
    found = read_rows(folder / "rows", LedgerRow)
    assert repr([astuple(row) for row in found]) == repr([astuple(row) for row in written])


def test_one_step_is_read_by_itself(tmp_path, monkeypatch):
    """And however the rows were cut into pieces, the bytes are equal."""
    monkeypatch.setattr(row_tables, "ROWS_OF_A_GROUP", 5)
    written = [replace(LOSS, step=step, name=str(n)) for step in range(-1, 6) for n in range(3)]
    write_rows(tmp_path / "whole", written, LedgerRow)
    for n in (1, 4, 30):
        pieces = Pieces(tmp_path / f"pieces {n}", LedgerRow)
        for start in range(0, len(written), n):
            pieces.append(written[start : start + n])
        pieces.finish(tmp_path / f"joined {n}")
        assert (tmp_path / f"joined {n}").read_bytes() == (tmp_path / "whole").read_bytes()
    assert parquet.read_metadata(tmp_path / "whole").num_row_groups == 5
    for step in range(-1, 7):
        found = read_rows(tmp_path / "whole", LedgerRow, step=step)
        assert found == [row for row in written if row.step == step]


WHOLE = {"step": [0], "epoch": [0], "stage": ["loss"], "name": ["loss"], "digest": ["ab"]}


def test_what_is_no_ledger_is_refused_and_columns_that_came_later_may_be_missing(tmp_path):
    path = tmp_path / "ledger.parquet"
    for columns, said in (({"cells": [1]}, "step"), ({**WHOLE, "step": ["first"]}, "'first'")):
        parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(BadInput, match=rf"is no ledger that can be read .*{said}"):
            read_rows(path, LedgerRow)
    parquet.write_table(pyarrow.table({"note": ["by hand"], **WHOLE}), path)
    assert read_rows(path, LedgerRow) == [LedgerRow(0, 0, "loss", "loss", "ab")]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(BadInput, match=r"is no ledger that can be read .*copy the run again"):
        read_rows(path, LedgerRow)


@pytest.fixture
def pieces(tmp_path):
    """Three pieces of two rows each."""
    pieces = Pieces(tmp_path / "rows", LedgerRow)
    for start in (0, 2, 4):
        pieces.append(entries(2, start))
    return pieces


@pytest.mark.parametrize("n_rows", [0, 2, 6])
def test_going_back_to_the_end_of_a_piece(pieces, tmp_path, n_rows):
    (tmp_path / "rows" / f"{6:012d}.part").write_bytes(b"PAR1")  # half written when it was killed
    again = Pieces(tmp_path / "rows", LedgerRow)  # as another process would
    again.go_back(n_rows)
    assert again.n_rows == n_rows
    assert len(list((tmp_path / "rows").iterdir())) == n_rows // 2
    for n in range(n_rows, n_rows + 12):  # more than ten: by number, not by first digit
        again.append(entries(1, n))
    again.append([])
    again.finish(tmp_path / "ledger.parquet")
    assert read_rows(tmp_path / "ledger.parquet", LedgerRow) == entries(n_rows + 12)


@pytest.mark.parametrize("n_rows", [1, 8, 6])
def test_going_back_to_where_no_piece_ends_or_one_is_lost(pieces, tmp_path, n_rows):
    if n_rows == 6:
        (tmp_path / "rows" / f"{2:012d}.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BadInput, match=rf"rows holds \d rows .* the checkpoint says {n_rows}; rem"):
        pieces.go_back(n_rows)
