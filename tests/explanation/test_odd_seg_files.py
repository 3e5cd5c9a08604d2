"""Any field of a ``_seg.npy`` may hold anything: it is read or refused, and no command breaks."""

import contextlib

import numpy as np
import pytest

from cellrepro.explanation.compare_files import compare
from cellrepro.explanation.describe import describe
from hostile_images import good_tiff
from samebits.errors import BadInput
from stores import squares

MASKS = squares()
FIELDS = {
    "masks": MASKS,
    "outlines": MASKS,
    "flows": [np.zeros((1, *MASKS.shape), np.uint8), []],
    "colors": np.zeros((3, 3), np.uint8),
    "ismanual": np.array([False, True]),
    "manual_changes": [["11/23/2026, 10:00:00", "added mask", [1, 4]]],
    "filename": "cells.tif",
    "diameter": 17.5,
    "est_diam": 17.5,
    "flow_threshold": 0.4,
    "cellprob_threshold": 0.0,
    "normalize_params": {"normalize": True, "percentile": [1.0, 99.0], "norm3D": False},
    "restore": None,
    "ratio": 1.0,
    "model_path": "cpsam",
    "chan_choose": [0, 0],
    "n_colors": 2,
}
LEFT_OUT = object()
VALUES = {
    "left out": LEFT_OUT,
    "None": None,
    "text": "<b>x</b>\n\x1b[31m",
    "half a character": "\ud800",
    "dictionary": {"a": {"b": [1, None]}, "\ud800": 1},
    "list": [],
    "nested lists": [[["a"], [None]], {}],
    "NaN": float("nan"),
    "infinity": -float("inf"),
    "negative": -5,
    "huge": 10**400,
    "true": True,
    "objects": np.array([None, {"a": 1}, [2]], dtype=object),
    "a number in an array": np.array(3.0),
    "an array of texts": np.array(["a", "b"]),
    "no numbers": np.zeros(0),
}


def write(path, fields):
    kept = {name: value for name, value in fields.items() if value is not LEFT_OUT}
    np.save(path, kept, allow_pickle=True)
    return path


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_every_command_reads_or_refuses(value, tmp_path, invoke):
    image = tmp_path / "cells.tif"
    pixels = np.arange(MASKS.size, dtype=np.uint16).reshape(MASKS.shape)
    image.write_bytes(good_tiff(pixels))
    good = write(tmp_path / "good_seg.npy", FIELDS)
    odd = tmp_path / "cells_seg.npy"
    for name in FIELDS:
        write(odd, {**FIELDS, name: value})
        with contextlib.suppress(BadInput):
            assert str(describe(odd))
        with contextlib.suppress(BadInput):
            assert str(compare(odd, good))
    write(odd, {name: MASKS if name == "masks" else value for name in FIELDS})
    for words in (["describe", odd], ["explain", good, odd]):
        assert invoke(*words).code in (0, 1)
    if isinstance(value, str | dict):  # a page takes a while
        page = tmp_path / "page.html"
        assert invoke("compare", good, odd, "--image", image, "--html", page).code in (0, 1)
        assert page.stat().st_size
