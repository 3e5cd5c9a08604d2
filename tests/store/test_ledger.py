"""Ledgers on disk, whole and in pieces."""

import math
from dataclasses import replace

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from cellrepro.errors import BadInput
from cellrepro.store import ledger
from cellrepro.store.ledger import BEFORE, Entry, Ledger, Pieces, by_place, read_rows, write_rows

SEED = Entry(BEFORE, -1, "spec", "seed", "ab" * 32, None, "0")
LOSS = Entry(0, 0, "loss", "loss", "cd" * 16, 0.25, None)


def exact(rows):
    """Rows with the bits of every float; NaN is one value."""
    values = [[getattr(row, name) for name in Entry.__slots__] for row in rows]
    return repr(values), [math.copysign(1, row.value or 0.0) for row in rows]


# -- on disk -------------------------------------------------------------------------------

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOAT = st.none() | st.floats(allow_nan=False) | st.just(math.nan)
ROWS = st.builds(Entry, INT32, INT32, TEXT, TEXT, TEXT, FLOAT, st.none() | TEXT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ledgers")


@settings(max_examples=25, deadline=None)
@given(written=st.lists(ROWS, max_size=6))
def test_every_field_of_every_row_comes_back(folder, written):
    write_rows(folder / "rows", written, Entry)
    assert exact(read_rows(folder / "rows", Entry)) == exact(written)


def test_one_step_is_read_by_itself(tmp_path, monkeypatch):
    """And however the rows were cut into pieces, the bytes are equal."""
    monkeypatch.setattr(ledger, "ROWS_OF_A_GROUP", 5)
    written = [replace(LOSS, step=step, name=str(n)) for step in range(-1, 6) for n in range(3)]
    write_rows(tmp_path / "whole", written, Entry)
    for n in (1, 4, 30):
        pieces = Pieces(tmp_path / f"pieces {n}", Entry)
        for start in range(0, len(written), n):
            pieces.append(written[start : start + n])
        pieces.finish(tmp_path / f"joined {n}")
        assert (tmp_path / f"joined {n}").read_bytes() == (tmp_path / "whole").read_bytes()
    with parquet.ParquetFile(tmp_path / "whole") as file:
        groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [5, 5, 5, 5, 1]
    for step in range(-1, 7):
        found = read_rows(tmp_path / "whole", Entry, step=step)
        assert found == [row for row in written if row.step == step]


def table(path, **columns):
    parquet.write_table(pyarrow.table(columns), path)


WHOLE = {"step": [0], "epoch": [0], "stage": ["loss"], "name": ["loss"], "digest": ["ab"]}


def cut_short(path):
    Ledger([LOSS] * 3).write(path)
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (cut_short, r"is no ledger that can be read .*copy the run again"),
        (lambda path: table(path, cells=[1]), r"no ledger .*step"),
        (lambda path: table(path, **{**WHOLE, "step": ["first"]}), r"no ledger .*'first'"),
    ],
    ids=["cut short", "another table", "text for a number"],
)
def test_what_is_no_ledger_is_refused(tmp_path, make, message):
    path = tmp_path / "ledger.parquet"
    make(path)
    with pytest.raises(BadInput, match=message):
        Ledger.read(path)


def test_columns_that_came_later_may_be_missing_and_others_are_passed_over(tmp_path):
    table(tmp_path / "ledger.parquet", note=["by hand"], **dict(reversed(WHOLE.items())))
    assert Ledger.read(tmp_path / "ledger.parquet").entries == [Entry(0, 0, "loss", "loss", "ab")]


def test_an_entry_carries_the_present_step_and_a_plain_detail():
    made = Ledger()
    made.step, made.epoch = 4, 1
    made.add("loss", "loss", "bb", value=0.5, detail={"b": 1, "a": [0.1, None]})
    entry = Entry(4, 1, "loss", "loss", "bb", 0.5, '{"a": [0.1, null], "b": 1}')
    assert by_place(made.entries) == {(4, "loss", "loss"): entry}


# -- in pieces -----------------------------------------------------------------------------


def entries(n, start=0):
    return [Entry(index, 0, "loss", "loss", f"{index:032x}") for index in range(start, start + n)]


def finished(pieces, path):
    pieces.finish(path)
    return Ledger.read(path).entries


def filled(folder, n_pieces=3):
    pieces = Pieces(folder, Entry)
    for start in range(0, 2 * n_pieces, 2):
        pieces.append(entries(2, start))
    return pieces


@pytest.mark.parametrize("n_rows", [0, 2, 6])
def test_going_back_to_the_end_of_a_piece(tmp_path, n_rows):
    filled(tmp_path / "rows")
    (tmp_path / "rows" / f"{6:012d}.part").write_bytes(b"PAR1")  # half written when it was killed
    pieces = Pieces(tmp_path / "rows", Entry)  # as another process would
    pieces.go_back(n_rows)
    assert pieces.n_rows == n_rows
    assert len(list((tmp_path / "rows").iterdir())) == n_rows // 2
    for n in range(n_rows, n_rows + 12):  # more than ten: by number, not by first digit
        pieces.append(entries(1, n))
    pieces.append([])
    assert finished(pieces, tmp_path / "ledger.parquet") == entries(n_rows + 12)


@pytest.mark.parametrize(("n_rows", "lost"), [(1, None), (8, None), (6, 2)])
def test_going_back_to_where_no_piece_ends_or_one_is_lost(tmp_path, n_rows, lost):
    pieces = filled(tmp_path / "rows")
    if lost is not None:
        (tmp_path / "rows" / f"{lost:012d}.parquet").unlink()
    with pytest.raises(BadInput, match=rf"rows holds \d rows .* the checkpoint says {n_rows}; rem"):
        pieces.go_back(n_rows)


def test_a_damaged_piece_is_refused_unless_it_is_forgotten(tmp_path):
    pieces = filled(tmp_path / "rows")
    (tmp_path / "rows" / f"{4:012d}.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BadInput, match=r"000000000004\.parquet cannot be read .*without --resume"):
        pieces.go_back(6)
    pieces.go_back(4)
    assert finished(pieces, tmp_path / "ledger.parquet") == entries(4)
