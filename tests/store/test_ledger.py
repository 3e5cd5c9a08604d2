"""Ledgers on disk and in pieces, what the chain writes into them, and two of them side by side."""

import json
import math
import struct
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellrepro.compare.ledger_diff import Difference, compare_ledgers
from cellrepro.errors import BadInput
from cellrepro.images.folder import LabelledImage
from cellrepro.lab.chain import flattened, write_beginning, write_prepared, write_segmented
from cellrepro.store import ledger
from cellrepro.store.digests import tensor_digest, tensors_digest, value_digest
from cellrepro.store.ledger import (
    BEFORE,
    STAGES,
    Entry,
    Ledger,
    by_place,
    plain_rows,
    read_rows,
    write_rows,
)
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.pieces import Pieces
from cellrepro.trace.operation_ledger import DrawRow, OperationRow

SEED = Entry(BEFORE, -1, "spec", "seed", "ab" * 32, None, "0")
LOSS = Entry(0, 0, "loss", "loss", "cd" * 16, 0.25, None)


def exact(rows):
    """Rows with the bits of every float; NaN is one value."""
    return [
        tuple(
            ("nan" if math.isnan(value) else struct.pack("<d", value))
            if isinstance(value, float)
            else (type(value), value)
            for value in (getattr(row, name) for name in type(row).__slots__)
        )
        for row in rows
    ]


# -- on disk -------------------------------------------------------------------------------

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOAT = st.none() | st.floats()
ENTRIES = st.builds(Entry, INT32, INT32, TEXT, TEXT, TEXT, FLOAT, st.none() | TEXT)
OPERATIONS = st.builds(
    OperationRow,
    *(INT32, INT32, TEXT, st.none() | TEXT, st.none() | TEXT, TEXT, TEXT, TEXT, TEXT, TEXT),
    *(FLOAT, st.booleans(), FLOAT, FLOAT),
)
DRAWS = st.builds(
    DrawRow,
    *(INT32, INT32, TEXT, st.none() | st.integers(-(2**63), 2**63 - 1), TEXT),
    *[st.none() | TEXT] * 3,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ledgers")


@pytest.mark.parametrize(
    ("kind", "rows"),
    [(Entry, ENTRIES), (OperationRow, OPERATIONS), (DrawRow, DRAWS)],
    ids=["entries", "operations", "draws"],
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_field_of_every_row_comes_back(folder, kind, rows, data):
    written = data.draw(st.lists(rows, max_size=6))
    write_rows(folder / "rows", written, kind)
    assert exact(read_rows(folder / "rows", kind)) == exact(written)


@pytest.mark.parametrize(
    "entry",
    [
        LOSS,
        SEED,
        replace(LOSS, value=math.nan),
        replace(LOSS, value=math.inf),
        replace(LOSS, value=-0.0),
        replace(LOSS, value=5e-324),
        replace(LOSS, value=0.1),
        replace(SEED, name="Zelle „Ä“ 細胞 🧫\n\0"),
        replace(SEED, detail=""),
    ],
    ids=[
        *("no detail", "no value", "NaN", "infinity", "-0", "the smallest", "0.1", "unicode"),
        "empty detail",
    ],
)
def test_one_entry_comes_back(tmp_path, entry):
    Ledger([entry]).write(tmp_path / "ledger.parquet")
    assert exact(Ledger.read(tmp_path / "ledger.parquet").entries) == exact([entry])


def test_one_step_is_read_by_itself(tmp_path, monkeypatch):
    """Only its row groups are read, however the rows were cut into pieces; the bytes are equal."""
    from pyarrow import parquet

    monkeypatch.setattr(ledger, "_GROUP", 5)
    written = [replace(LOSS, step=step, name=str(n)) for step in range(-1, 6) for n in range(3)]
    write_rows(tmp_path / "whole", written, Entry)
    for n in (1, 4, 30):
        pieces = Pieces(tmp_path / f"pieces {n}", Entry)
        for start in range(0, len(written), n):
            pieces.append(written[start : start + n])
        pieces.finish(tmp_path / f"joined {n}")
        assert (tmp_path / f"joined {n}").read_bytes() == (tmp_path / "whole").read_bytes()
    assert read_rows(tmp_path / "whole", Entry) == written
    with parquet.ParquetFile(tmp_path / "whole") as file:
        rows = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        assert rows == [6, 6, 6, 3]
        assert [ledger._groups_of(file, step) for step in (-1, 0, 2, 5, 6)] == [
            *([0], [0], [1], [3], []),
        ]
    for step in range(-1, 7):
        found = read_rows(tmp_path / "whole", Entry, step=step)
        assert found == [row for row in written if row.step == step]


def test_an_empty_ledger_comes_back(tmp_path):
    Ledger().write(tmp_path / "ledger.parquet")
    assert Ledger.read(tmp_path / "ledger.parquet").entries == []


def table(path, **columns):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)


WHOLE = {"step": [0], "epoch": [0], "stage": ["loss"], "name": ["loss"], "digest": ["ab"]}


def truncated(path):
    Ledger([LOSS] * 3).write(path)
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, r"is no ledger that can be read"),
        (lambda path: path.mkdir(), r"is no ledger that can be read"),
        (lambda path: path.write_bytes(b""), r"is no ledger that can be read"),
        (lambda path: path.write_bytes(bytes(500)), r"is no ledger that can be read"),
        (truncated, r"is no ledger that can be read .*copy the run again"),
        (lambda path: table(path, cells=[1]), r"has the columns \['cells'\], not those of a led"),
        (lambda path: table(path, step=[1], epoch=[0]), r"not those of a ledger \(step, epoch, st"),
        (
            lambda path: table(path, **{k: [] for k in WHOLE if k != "digest"}),
            r"has the columns \['step', 'epoch', 'stage', 'name'\], not",
        ),
        (lambda path: table(path, **{**WHOLE, "step": ["first"]}), r"the column step of .* is not"),
        (lambda path: table(path, **{**WHOLE, "step": [2**40]}), r"the column step of .* is not"),
        (lambda path: table(path, **{**WHOLE, "digest": [None]}), r"the column digest of .* has g"),
    ],
    ids=[
        *("missing", "a folder", "empty", "zeros", "cut short", "another table"),
        *("columns missing", "a column missing and no rows", "text for a number"),
        *("a number too large", "a gap"),
    ],
)
def test_what_is_no_ledger_is_refused(tmp_path, make, message):
    path = tmp_path / "ledger.parquet"
    make(path)
    with pytest.raises(BadInput, match=message):
        Ledger.read(path)


def test_columns_that_came_later_may_be_missing_and_others_are_passed_over(tmp_path):
    reverse = dict(reversed(WHOLE.items()))
    table(tmp_path / "ledger.parquet", note=["by hand"], **reverse)
    assert Ledger.read(tmp_path / "ledger.parquet").entries == [Entry(0, 0, "loss", "loss", "ab")]


def test_pandas_reads_it(tmp_path):
    import pandas

    Ledger([SEED, LOSS, replace(LOSS, value=math.nan)]).write(tmp_path / "ledger.parquet")
    read = pandas.read_parquet(tmp_path / "ledger.parquet")
    assert list(read.columns) == list(Entry.__slots__)
    assert read["step"].tolist() == [-1, 0, 0]
    assert read["stage"].tolist() == ["spec", "loss", "loss"]
    assert read["value"][1] == 0.25
    assert read["detail"][0] == "0"


# -- adding --------------------------------------------------------------------------------


def test_an_entry_carries_the_present_step_and_a_plain_detail(tmp_path):
    ledger = Ledger()
    ledger.add("data", "images", "aa", detail={"b": 1, "a": [0.1, None, "ä"]})
    ledger.step, ledger.epoch = 4, 1
    ledger.add("loss", "loss", "bb", value=0.5)
    assert [(e.step, e.epoch, e.value) for e in ledger.entries] == [(-1, -1, None), (4, 1, 0.5)]
    assert ledger.entries[0].plain == {"a": [0.1, None, "ä"], "b": 1}
    assert ledger.entries[1].plain is None
    other = Ledger()
    other.add("data", "images", "aa", detail={"a": [0.1, None, "ä"], "b": 1})
    assert other.entries[0] == ledger.entries[0]  # whatever the order of the keys


@pytest.mark.parametrize("detail", [0, False, "", [], {}], ids=repr)
def test_an_empty_detail_is_one(detail):
    ledger = Ledger()
    ledger.add("spec", "field", "aa", detail=detail)
    assert ledger.entries[0].plain == detail


def test_rows_as_dictionaries_and_by_place():
    assert json.loads(json.dumps(plain_rows([LOSS]))) == [
        {
            **{"step": 0, "epoch": 0, "stage": "loss", "name": "loss", "digest": "cd" * 16},
            **{"value": 0.25, "detail": None},
        }
    ]
    assert by_place([SEED, LOSS]) == {(-1, "spec", "seed"): SEED, (0, "loss", "loss"): LOSS}


# -- in pieces -----------------------------------------------------------------------------


def entries(n, start=0):
    return [Entry(index, 0, "loss", "loss", f"{index:032x}") for index in range(start, start + n)]


def finished(pieces, path):
    pieces.finish(path)
    return Ledger.read(path).entries


def test_pieces_are_joined_in_order(tmp_path):
    pieces = Pieces(tmp_path / "rows", Entry)
    for start in range(0, 24, 2):  # more than ten: by number, not by first digit
        pieces.append(entries(2, start))
    pieces.append([])
    assert pieces.n_rows == 24
    assert len(list((tmp_path / "rows").iterdir())) == 12
    assert finished(pieces, tmp_path / "ledger.parquet") == entries(24)


def test_no_piece_makes_an_empty_table_and_no_folder(tmp_path):
    pieces = Pieces(tmp_path / "rows", Entry)
    pieces.append([])
    assert finished(pieces, tmp_path / "ledger.parquet") == []
    assert not (tmp_path / "rows").exists()


def test_finished_twice_after_a_kill_between_the_end_and_the_store(tmp_path):
    pieces = Pieces(tmp_path / "rows", Entry)
    pieces.append(entries(3))
    first = finished(pieces, tmp_path / "a.parquet")
    again = Pieces(tmp_path / "rows", Entry)
    again.go_back(3)
    assert finished(again, tmp_path / "b.parquet") == first == entries(3)


def three_pieces(folder):
    pieces = Pieces(folder, Entry)
    for start in (0, 2, 4):
        pieces.append(entries(2, start))
    return pieces


@pytest.mark.parametrize("n_rows", [0, 2, 4, 6])
def test_going_back_to_the_end_of_a_piece(tmp_path, n_rows):
    three_pieces(tmp_path / "rows")
    pieces = Pieces(tmp_path / "rows", Entry)  # as another process would
    pieces.go_back(n_rows)
    assert pieces.n_rows == n_rows
    assert len(list((tmp_path / "rows").iterdir())) == n_rows // 2
    pieces.append(entries(1, n_rows))
    assert finished(pieces, tmp_path / "ledger.parquet") == entries(n_rows + 1)


@pytest.mark.parametrize("n_rows", [1, 5, 8], ids=lambda n: f"{n} rows")
def test_going_back_to_where_no_piece_ends(tmp_path, n_rows):
    pieces = three_pieces(tmp_path / "rows")
    with pytest.raises(BadInput, match=rf"rows holds \d rows .* the checkpoint says {n_rows}; rem"):
        pieces.go_back(n_rows)


@pytest.mark.parametrize("lost", [0, 2, 4], ids=["the first", "the second", "the last"])
def test_a_lost_piece_is_missed(tmp_path, lost):
    pieces = three_pieces(tmp_path / "rows")
    (tmp_path / "rows" / f"{lost:012d}.parquet").unlink()
    with pytest.raises(BadInput, match=rf"holds {lost} rows of the ledger, the checkpoint says 6"):
        pieces.go_back(6)


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more"], ids=["empty", "cut short"])
def test_a_damaged_piece_is_refused_unless_it_is_forgotten(tmp_path, content):
    pieces = three_pieces(tmp_path / "rows")
    (tmp_path / "rows" / f"{4:012d}.parquet").write_bytes(content)
    with pytest.raises(BadInput, match=r"000000000004\.parquet cannot be read .*without --resume"):
        pieces.go_back(6)
    pieces.go_back(4)
    assert finished(pieces, tmp_path / "ledger.parquet") == entries(4)


def test_a_half_written_piece_is_removed(tmp_path):
    pieces = three_pieces(tmp_path / "rows")
    (tmp_path / "rows" / f"{6:012d}.part").write_bytes(b"PAR1")
    (tmp_path / "rows" / f"{99:012d}.part").write_bytes(b"")
    pieces.go_back(6)
    assert not list((tmp_path / "rows").glob("*.part"))
    assert finished(pieces, tmp_path / "ledger.parquet") == entries(6)


@settings(max_examples=30, deadline=None)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from(["append", "append", "back", "kill"]), st.integers(0, 3)),
        max_size=12,
    )
)
def test_whatever_happens_the_rows_that_count_are_kept(tmp_path_factory, moves):
    """A kill is a new object on the folder, which goes back to an end that a checkpoint knows."""
    place = tmp_path_factory.mktemp("pieces")
    pieces, rows, ends = Pieces(place / "rows", Entry), [], [0]
    for count, (move, n) in enumerate(moves):
        if move == "append":
            new = [Entry(count, index, "loss", "loss", "aa") for index in range(n)]
            pieces.append(new)
            rows += new
        else:
            if move == "kill":
                if (place / "rows").is_dir():
                    (place / "rows" / f"{len(rows):012d}.part").write_bytes(b"PAR")
                pieces = Pieces(place / "rows", Entry)
            end = ends[n % len(ends)]
            pieces.go_back(end)
            del rows[end:]
        ends = sorted({end for end in ends if end <= len(rows)} | {len(rows)})
        assert pieces.n_rows == len(rows)
    assert finished(pieces, place / "ledger.parquet") == rows


# -- what the chain writes -----------------------------------------------------------------


def square(name, *, masks=True):
    labels = np.zeros((8, 8), np.int32)
    labels[2:5, 2:5] = 1
    return LabelledImage(name, labels.astype(np.uint8), labels if masks else None, name, None)


def beginning(made_up, *, files=None, images=None, surroundings=None, **changes):
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    train, test = images or ((square("a"),), (square("b", masks=False),))
    folder = SimpleNamespace(files=files or {"a.tif": "1" * 64}, train=train, test=test)
    ledger = Ledger()
    write_beginning(
        ledger,
        spec=made_up.spec(**changes),
        surroundings=surroundings or {"versions": {"torch": "2.15"}, "threads": 2, "host": {}},
        folder=folder,
        network=network,
    )
    return ledger.entries, network


def test_the_beginning_of_a_run(made_up):
    found, network = beginning(made_up)
    assert {(entry.step, entry.epoch) for entry in found} == {(BEFORE, -1)}
    stages = list(dict.fromkeys(entry.stage for entry in found))
    assert stages == ["environment", "spec", "data", "weights-init", "rng"]
    assert stages == [stage for stage in STAGES if stage in stages]

    def of(stage):
        return {entry.name: entry for entry in found if entry.stage == stage}

    assert {name: entry.plain for name, entry in of("environment").items()} == {
        "versions.torch": "2.15",
        "threads": 2,
    }
    assert of("spec")["seed"].plain == made_up.spec().seed
    assert of("spec")["seed"].digest == value_digest(made_up.spec().seed)
    assert of("spec").keys() == made_up.spec().model_dump(mode="json").keys()
    image = square("a")
    assert {name: entry.digest for name, entry in of("data").items()} == {
        "file a.tif": "1" * 64,
        "a decoded": tensor_digest(image.image),
        "a masks": tensor_digest(image.masks),
        "b decoded": tensor_digest(image.image),
    }
    weights = network.state_dict()
    assert {name: entry.digest for name, entry in of("weights-init").items()} == {
        "0": tensors_digest({n: t for n, t in weights.items() if n.startswith("0.")}),
        "1": tensors_digest({n: t for n, t in weights.items() if n.startswith("1.")}),
    }
    assert list(of("rng"))[:3] == [
        *("python at the start", "numpy at the start", "torch at the start")
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"seed": 7}, [("spec", "seed")]),
        ({"files": {"a.tif": "2" * 64}}, [("data", "file a.tif")]),
        ({"images": ((square("a"),), (square("b"),))}, [("data", "b masks")]),
        (
            {"surroundings": {"versions": {"torch": "2.6"}, "threads": 2, "host": {}}},
            [("environment", "versions.torch")],
        ),
    ],
    ids=["nothing", "seed", "a file", "masks", "a version"],
)
def test_one_thing_changed_at_the_beginning_is_the_only_difference(made_up, changes, expected):
    a, _ = beginning(made_up)
    b, _ = beginning(made_up, **changes)
    found = compare_ledgers(a, b)
    assert [(difference.stage, difference.name) for difference in found.differences] == expected


def test_images_as_they_are_augmented():
    pixels, flows = np.ones((3, 4, 4), np.float32), np.zeros((4, 4, 4), np.float32)
    ledger = Ledger()
    loop = SimpleNamespace(prepared={"a normalised": pixels, "a flows": flows})
    write_prepared(ledger, loop)
    assert [(entry.stage, entry.name, entry.digest) for entry in ledger.entries] == [
        ("data", "a normalised", tensor_digest(pixels)),
        ("data", "a flows", tensor_digest(flows)),
    ]


def test_flows_and_masks():
    """Outlines stand before labels: the same objects under other numbers differ in one only."""
    record = MaskRecord(
        file="masks/a.tif", digest="1" * 64, canonical_digest="2" * 64, n_objects=3, seconds=0.1
    )
    flows = {"cell probability": np.ones((2, 2), np.float32)}
    ledger, renumbered = Ledger(), Ledger()
    write_segmented(ledger, "a", flows, record)
    write_segmented(renumbered, "a", flows, record.model_copy(update={"digest": "3" * 64}))
    assert [(entry.stage, entry.name, entry.value) for entry in ledger.entries] == [
        ("flows", "a cell probability", None),
        ("masks", "a outlines", 3),
        ("masks", "a labels", 3),
    ]
    (difference,) = compare_ledgers(ledger.entries, renumbered.entries).differences
    assert difference.name == "a labels"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, []),
        (3, [("", 3)]),
        ({"a": {"b": {"c": 1}, "d": []}}, [("a.b.c", 1), ("a.d", [])]),
        ({"a": {}, "b": None}, [("b", None)]),
    ],
    ids=["nothing", "a number", "nested", "empty inside"],
)
def test_flattened(value, expected):
    assert list(flattened(value)) == expected


# -- two side by side ----------------------------------------------------------------------

IN_A_STEP = [
    *[("rng", "numpy before"), ("batch", "crops"), ("batch", "images"), ("forward", "output")],
    *[("loss", "loss"), ("backward", "out"), ("update", "out"), ("weights", "out")],
    ("rng", "numpy after"),
]
BEGINNING = [("environment", "threads"), ("spec", "seed"), ("data", "a"), ("weights-init", "out")]
END = [("flows", "a"), ("masks", "a outlines"), ("masks", "a labels")]


def made(n_steps=3, digits=32):
    """A ledger as a run makes it; every digest is the place's own."""
    places = [
        *[(BEFORE, *place) for place in BEGINNING],
        *[(step, *place) for step in range(n_steps) for place in IN_A_STEP],
        *[(n_steps, *place) for place in END],
    ]
    return [
        Entry(step, step // 2 if 0 <= step < n_steps else -1, stage, name, digest)
        for step, stage, name in places
        for digest in [value_digest([stage, name, min(step, 99)])[:digits]]
    ]


def changed(ledger, index, **changes):
    changes = changes or {"digest": "f" * len(ledger[index].digest)}
    index %= len(ledger)
    return [*ledger[:index], replace(ledger[index], **changes), *ledger[index + 1 :]]


def places(differences):
    return [(found.step, found.stage, found.name) for found in differences]


def test_equal_ledgers_differ_in_nothing():
    found = compare_ledgers(made(), made())
    assert (found.first, found.first_computed, found.differences) == (None, None, ())
    assert (found.n_compared, found.n_not_comparable, found.n_steps) == (len(made()), 0, (3, 3))


def test_empty_ledgers_differ_in_nothing():
    found = compare_ledgers([], [])
    assert (found.first, found.n_compared, found.n_steps) == (None, 0, (0, 0))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_changed_entry_is_the_only_difference_wherever_it_is(data):
    a = made()
    index = data.draw(st.integers(0, len(a) - 1))
    b = changed(a, index)
    found = compare_ledgers(a, b)
    inside = 0 <= a[index].step < 3
    step, epoch = (a[index].step, a[index].epoch) if inside else (None, None)
    expected = Difference(step, epoch, a[index].stage, a[index].name, a[index], b[index])
    assert found.differences == (expected,)
    assert found.first == expected
    assert found.first_computed == (expected if inside else None)
    assert found.of_stage(a[index].stage) == [expected]
    assert found.of_stage("nothing") == []


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_of_several_changed_entries_the_earliest_comes_first(data):
    """Also if the lists were made in another order before the first step and after the last."""
    a = made()
    some = sorted(data.draw(st.sets(st.integers(0, len(a) - 1), min_size=1, max_size=6)))
    b = a
    for index in some:
        b = changed(b, index)
    found = compare_ledgers(data.draw(st.permutations(a[:4])) + a[4:], b)
    assert places(found.differences) == [
        (a[i].step if 0 <= a[i].step < 3 else None, a[i].stage, a[i].name) for i in some
    ]


def test_before_and_after_by_stage_and_within_a_step_as_made():
    a = made(1)
    shuffled = [*a[:4][::-1], *a[4:-3], *a[-3:][::-1]]
    others = [replace(entry, digest="f" * 32) for entry in shuffled]
    found = compare_ledgers(shuffled, others)
    assert places(found.differences) == [
        *[(None, *place) for place in BEGINNING],
        *[(0, *place) for place in IN_A_STEP],
        *[(None, "flows", "a"), (None, "masks", "a labels"), (None, "masks", "a outlines")],
    ]


def test_rng_after_a_step_comes_after_its_weights():
    a = made(1)
    after = next(i for i, entry in enumerate(a) if entry.name == "numpy after")
    weights = next(i for i, entry in enumerate(a) if entry.stage == "weights")
    found = compare_ledgers(a, changed(changed(a, after), weights))
    assert [difference.name for difference in found.differences] == ["out", "numpy after"]


@pytest.mark.parametrize("in_a", [True, False], ids=["only in A", "only in B"])
@pytest.mark.parametrize("index", [1, 6, -1], ids=["before", "in a step", "after"])
def test_an_entry_of_only_one_ledger_is_a_difference(in_a, index):
    whole = made()
    entry = whole[index]
    less = [other for other in whole if other is not entry]
    found = compare_ledgers(*((whole, less) if in_a else (less, whole)))
    (difference,) = found.differences
    assert (difference.a, difference.b) == ((entry, None) if in_a else (None, entry))
    assert found.n_compared == len(less)


def test_what_only_b_has_comes_at_the_end_of_its_step():
    a = made()
    extra = replace(a[6], name="one more")
    b = [*a[:6], extra, *changed(a, 11)[6:]]  # added early in the step, another changed late in it
    found = compare_ledgers(a, b)
    assert places(found.differences) == [(0, "weights", "out"), (0, "batch", "one more")]


def test_digests_of_two_algorithms_are_not_compared():
    """Of a processor and of a GPU; the others of the same step are."""
    a = made()
    lanes = changed(a, 7, digest="e" * 48)
    found = compare_ledgers(a, lanes)
    assert (found.differences, found.n_compared, found.n_not_comparable) == ((), len(a) - 1, 1)
    found = compare_ledgers(a, changed(lanes, 9))
    assert places(found.differences) == [(0, "backward", "out")]
    both = changed(a, 7, digest="e" * 48), changed(a, 7, digest="d" * 48)
    assert places(compare_ledgers(*both).differences) == [(0, "forward", "output")]


@pytest.mark.parametrize("longer_first", [True, False])
def test_steps_that_only_one_made_are_left_out(longer_first):
    """What comes after the last step is compared, whatever its number."""
    pair = [made(5), made(3)] if longer_first else [made(3), made(5)]
    pair = [[replace(e, digest="a" * 32) if e in one[-3:] else e for e in one] for one in pair]
    found = compare_ledgers(*pair)
    assert (found.differences, found.n_steps) == ((), (5, 3) if longer_first else (3, 5))
    assert found.n_compared == len(made(3))
    pair[0] = changed(pair[0], -1)
    found = compare_ledgers(*pair)
    assert places(found.differences) == [(None, "masks", "a labels")]


def test_a_segmentation_has_no_steps():
    a = [replace(entry, step=BEFORE) for entry in [*made()[:4], *made()[-3:]]]
    found = compare_ledgers(a[::-1], changed(changed(a, 1), 5))
    assert places(found.differences) == [(None, "spec", "seed"), (None, "masks", "a outlines")]
    assert found.n_steps == (0, 0)


def test_what_is_ignored_does_not_count():
    a, b = made(), changed(changed(made(), 0), 9)
    found = compare_ledgers(a, b, ignored=lambda entry: entry.stage == "environment")
    assert places(found.differences) == [(0, "backward", "out")]
    assert found.n_compared == len(a) - 1


def test_values_and_details_do_not_count_beside_the_digest():
    a = made()
    assert compare_ledgers(a, changed(a, 8, value=3.5, detail="[1]")).first is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (SEED, replace(SEED, detail="1"), "seed: 0 in A, 1 in B"),
        (None, SEED, "seed: missing in A, 0 in B"),
        (LOSS, replace(LOSS, value=1 / 3), "loss: 0.25 (cdcdcdcd) in A, 0.333333333 (cdcdcdcd) in"),
        (replace(LOSS, value=None), LOSS, "loss: cdcdcdcd in A, 0.25 (cdcdcdcd) in B"),
        (replace(SEED, detail="x" * 60), None, f"seed: {'x' * 60} in A, missing in B"),
        (replace(SEED, detail="x" * 61), None, f"seed: {'x' * 57}… in A, missing in B"),
    ],
    ids=["details", "missing", "values", "a digest", "as long as may be", "too long"],
)
def test_what_a_difference_says(a, b, expected):
    name = (a or b).name
    said = Difference(None, None, "spec", name, a, b).said()
    assert said.startswith(expected)
