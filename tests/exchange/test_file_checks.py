"""Files with the right digest that would do harm to what reads them."""

import json
import struct

import numpy as np
import pyarrow as pa
import pytest
import tifffile
from made_up_records import mask_record
from pyarrow import parquet
from safetensors.numpy import save_file

from cellrepro.exchange.archive.file_checks import (
    check_ledger,
    check_masks,
    check_network,
    check_notebook,
)
from cellrepro.store.ledger import Ledger, LedgerRow
from cellrepro.store.row_tables import write_rows
from samebits.errors import BadInput

LABELS = np.zeros((8, 9), np.uint16)
LABELS[2:4, 2:4] = 1


@pytest.fixture
def masks(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, LABELS, compression="zlib", metadata=None)
    return path


def test_masks_as_the_lab_writes_them(tmp_path, masks):
    check_masks(masks, mask_record("a", LABELS))
    one_plane = LABELS[np.newaxis]
    tifffile.imwrite(tmp_path / "plane.tif", one_plane, photometric="minisblack", metadata=None)
    check_masks(tmp_path / "plane.tif", mask_record("plane", one_plane))


def test_other_labels_are_refused(masks):
    with pytest.raises(BadInput, match="begins with"):
        check_masks(masks, mask_record("a", LABELS * 2))


def test_labels_of_another_type_are_refused(tmp_path):
    path = tmp_path / "float.tif"
    tifffile.imwrite(path, LABELS.astype(np.float32))
    with pytest.raises(BadInput, match="float32"):
        check_masks(path, mask_record("a", LABELS))


def with_tag(content, tag, value):
    """A little-endian TIFF one of whose tags of the first page has another value."""
    changed = bytearray(content)
    (start,) = struct.unpack_from("<I", content, 4)
    (n_tags,) = struct.unpack_from("<H", content, start)
    for index in range(n_tags):
        place = start + 2 + 12 * index
        if struct.unpack_from("<H", content, place)[0] == tag:
            struct.pack_into("<HII", changed, place + 2, 4, 1, value)
            return bytes(changed)
    raise AssertionError(tag)


@pytest.mark.parametrize(
    ("tag", "value"),
    [(256, 2**31), (257, 2**31 - 1), (273, 2**31), (279, 2**31), (259, 34712), (277, 60000)],
    ids=["width", "height", "offset", "length", "compression", "samples"],
)
def test_dimensions_and_tags_that_lie_are_refused(masks, tag, value):
    masks.write_bytes(with_tag(masks.read_bytes(), tag, value))
    with pytest.raises(BadInput):
        check_masks(masks, mask_record("a", LABELS))


@pytest.mark.parametrize("length", range(0, 120, 7))
def test_cut_masks_are_refused(masks, length):
    masks.write_bytes(masks.read_bytes()[:length])
    with pytest.raises(BadInput):
        check_masks(masks, mask_record("a", LABELS))


def header(document, *, size=None):
    text = json.dumps(document).encode() if not isinstance(document, bytes) else document
    return struct.pack("<Q", len(text) if size is None else size) + text


TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04.",
        header({}, size=2**63),
        header({}),
        header({"a": TENSOR}),
        header({"a": {**TENSOR, "shape": [2**40]}}) + bytes(8),
        header({"a": {**TENSOR, "dtype": "object"}}) + bytes(8),
        header({"a\x1b[2J": TENSOR}) + bytes(8),
        header({"a": TENSOR, "b": TENSOR}) + bytes(8),
        header({"a": TENSOR}) + bytes(9),
        header(b"[" * 10**5),
    ],
)
def test_weights_that_are_none_are_refused(tmp_path, content):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"weights\.safetensors"):
        check_network(path)


def test_weights_are_accepted(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.int64)}, path)
    check_network(path)


NOTEBOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}


@pytest.mark.parametrize(
    ("notebook", "is_sound"),
    [
        (NOTEBOOK, True),
        ({**NOTEBOOK, "cells": [{"cell_type": "code", "source": "1"}]}, True),
        ({**NOTEBOOK, "nbformat": 3}, False),
        ({**NOTEBOOK, "cells": {}}, False),
        ({**NOTEBOOK, "cells": [{"cell_type": "evil"}]}, False),
        ({**NOTEBOOK, "metadata": None}, False),
        ([], False),
        ({**NOTEBOOK, "cells": float("nan")}, False),
    ],
)
def test_notebooks(tmp_path, notebook, is_sound):
    path = tmp_path / "notebook.ipynb"
    path.write_text(json.dumps(notebook))
    if is_sound:
        check_notebook(path)
        return
    with pytest.raises(BadInput):
        check_notebook(path)


def test_ledgers_are_accepted(tmp_path):
    ledger = Ledger()
    for step in range(500):
        ledger.add("loss", "loss", f"{step:064x}", value=0.5)
    path = tmp_path / "ledger.parquet"
    write_rows(path, ledger.entries, LedgerRow)
    check_ledger(path)


def test_ledgers_that_promise_too_much_are_refused(tmp_path):
    path = tmp_path / "ledger.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(BadInput, match="no ledger"):
        check_ledger(path)
    parquet.write_table(pa.table({"step": pa.array([0] * 10**6, pa.int32())}), path)
    with pytest.raises(BadInput, match="1000000 rows"):
        check_ledger(path)
    one_text = pa.DictionaryArray.from_arrays(pa.array([0] * 1000), pa.array(["x" * 10**5]))
    parquet.write_table(pa.table({"name": one_text.cast(pa.string())}), path, compression="zstd")
    with pytest.raises(BadInput, match="1000 rows of"):
        check_ledger(path)
    parquet.write_table(pa.table({"step": pa.array([[1], [2]])}), path)
    with pytest.raises(BadInput, match="columns of type"):
        check_ledger(path)
