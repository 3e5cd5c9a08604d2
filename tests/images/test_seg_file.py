"""What Cellpose's own code writes is read; what is none of it is refused, and never executed."""

import builtins
import io
import os
import pickle
import struct
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from cellrepro.images.image_file import read_labels
from cellrepro.images.seg_file import N_COLORS, read_seg
from conftest import listing
from samebits.errors import BadInput

MASKS = np.zeros((20, 30), np.uint16)
MASKS[2:6, 3:9], MASKS[10:14, 20:24] = 1, 2
STACK = np.stack([MASKS, MASKS, 0 * MASKS])


def by_script(folder, masks, monkeypatch):
    """Through ``masks_flows_to_seg``, with flows as `eval` returns them."""
    from cellpose import io as cellpose_io

    rng = np.random.default_rng(0)
    colours = rng.integers(0, 255, (*masks.shape, 3)).astype(np.uint8)
    flows = [colours, rng.normal(size=(masks.ndim, *masks.shape)), rng.normal(size=masks.shape)]
    flows = [flow.astype(np.float32) if flow.dtype == float else flow for flow in flows]
    cellpose_io.masks_flows_to_seg(masks, masks, flows, str(folder / "cells.tif"))
    return folder / "cells_seg.npy"


NORMALIZE = {"lowhigh": None, "percentile": [1.0, 99.5], "normalize": True, "norm3D": False}


def by_gui(folder, masks, monkeypatch):
    """Through the function behind the GUI's save button, which does not need Qt itself."""
    from cellpose.gui import io as gui_io

    stack = masks.reshape(-1, *masks.shape[-2:])
    window = SimpleNamespace(
        filename=str(folder / "cells.tif"),
        segmentation_settings=SimpleNamespace(
            flow_threshold=0.7, cellprob_threshold=-1.5, diameter=None if masks.ndim == 3 else 17.5
        ),
        RGBDropDown=SimpleNamespace(name_map={"RGB": 0, "red": 1}),
        color="RGB",
        NZ=len(stack),
        outpix=stack.copy(),
        cellpix=stack,
        cellcolors=np.zeros((3, 3), np.uint8),
        flows=[np.ones((1, 20, 30), np.uint8), []],
        ismanual=np.array([False, True]),
        track_changes=[["11/23/2026, 10:00:00", "added mask", [1, 4]]],
        zdraw=[None, None],
        current_model_path="/models/cpsam",
        get_normalize_params=lambda: dict(NORMALIZE),
        restore=None,
        ratio=np.float64(1.25),
        ncells=SimpleNamespace(get=lambda: 2),
        logger=Mock(),
    )
    gui_io._save_sets(window)
    return folder / "cells_seg.npy"


@pytest.mark.parametrize("masks", [MASKS, STACK], ids=["plane", "stack"])
@pytest.mark.parametrize("write", [by_script, by_gui])
def test_reads_what_cellpose_writes(write, masks, tmp_path, monkeypatch):
    """Masks and settings as `numpy.load`, which executes anything, has them."""
    path = write(tmp_path, masks, monkeypatch)
    expected = np.load(path, allow_pickle=True).item()
    actual = read_seg(path)
    np.testing.assert_array_equal(actual.masks, masks.astype(np.uint32), strict=True)
    np.testing.assert_array_equal(read_labels(path), masks)
    assert len(actual.flows) == len(expected["flows"])
    for ours, theirs in zip(actual.flows, expected["flows"], strict=True):
        np.testing.assert_array_equal(ours, np.asarray(theirs), strict=True)
    settings = dict(actual.settings)
    assert settings.pop(N_COLORS, 0) == len(expected.get("colors", ()))
    assert {*settings} == {*expected} - {"masks", "flows", "outlines", "colors"}
    if np.isnan(expected["diameter"] or 0):
        assert settings["diameter"] is None
        del settings["diameter"]
    for name, value in settings.items():
        assert value == (value if name == "zdraw" else np.asarray(expected[name], object).tolist())


def test_many_are_read_without_a_process_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    path = write_seg(tmp_path / "a_seg.npy", {"masks": MASKS, "filename": "a.tif"})
    for _ in range(99):
        np.testing.assert_array_equal(read_seg(path).masks, MASKS)


def write_seg(path, value, protocol=4):
    """As `numpy.save` does, with any pickle."""
    return write_pickle(path, pickle.dumps(np.array(value, object), protocol=protocol))


def write_pickle(path, content):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "|O", "fortran_order": False, "shape": ()}
    )
    path.write_bytes(buffer.getvalue() + content)
    return path


@pytest.mark.parametrize("protocol", range(5))  # numpy.save writes 2 to 4
@pytest.mark.parametrize("core", [b"numpy._core", b"numpy.core"])
def test_reads_every_protocol_and_numpy(protocol, core, tmp_path):
    """Big-endian, Fortran order, scalars, booleans, an empty array, a path, NaN."""
    value = {
        "masks": np.asfortranarray(MASKS).astype(">u2"),
        "flows": [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros(0, np.float32)],
        "filename": Path("/data") / "cells.tif",
        "model_path": np.str_("cpsam"),
        "diameter": np.float32(30),
        "flow_threshold": np.float64("nan"),
        "ismanual": np.array([True, False]),
        "nested": ({"n": np.int64(3)}, None, [1.5, "text", True]),
    }
    content = pickle.dumps(np.array(value, object), protocol=protocol)
    if core == b"numpy.core" and protocol < 4:  # with the length of the name before it from 4 on
        content = content.replace(b"numpy._core", core)
    actual = read_seg(write_pickle(tmp_path / "a_seg.npy", content))
    np.testing.assert_array_equal(actual.masks, MASKS)
    for ours, theirs in zip(actual.flows, value["flows"], strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)
    assert Path(actual.settings.pop("filename")) == value["filename"]
    assert actual.settings == {
        "model_path": "cpsam",
        "diameter": 30,
        "flow_threshold": None,
        "ismanual": [True, False],
        "nested": [{"n": 3}, None, [1.5, "text", True]],
    }


class Calls:
    """Pickles as a call."""

    def __init__(self, function, *given, state=None):
        self.reduced = (function, given) if state is None else (function, given, state)

    def __reduce__(self):
        return self.reduced


def fields_of_objects():
    """A dtype that would take the bytes of an array for addresses of objects."""
    state = (3, "<", None, ("p",), {"p": (np.dtype("O"), 0)}, 8, 1, 0)
    return Calls(np.dtype, "V8", False, True, state=state)


_reconstruct = np._core.multiarray._reconstruct
scalar = np._core.multiarray.scalar
TRACE = "trace"
HOSTILE = {
    "os.system": (lambda: Calls(os.system, f"touch {TRACE}"), r"'(posix|nt)\.system'"),
    "eval": (lambda: Calls(builtins.eval, f"open('{TRACE}', 'w')"), r"builtin\w+\.eval'"),
    "getattr": (lambda: Calls(getattr, Calls(__import__, "os"), "sep"), r"\.(getattr|__import__)'"),
    "nested": (lambda: [{"a": (Calls(print, Calls(os.mkdir, TRACE)),)}], r"\.(print|mkdir)'"),
    "fromfile": (lambda: Calls(np.fromfile, "/etc/hostname"), r"fromfile'"),
    "load": (lambda: Calls(np.load, "other.npy", None, True), r"\.load'"),
    "memmap": (lambda: Calls(np.memmap, TRACE, "u1", "w+", 0, (9,)), r"memmap'"),
    "array of memory": (lambda: Calls(np.ndarray, (1,), "O", b"12345678"), "given memory"),
    "other arrays": (lambda: Calls(_reconstruct, dict, (0,), b"b"), r"\.dict'"),
    "objects in bytes": (
        lambda: Calls(
            _reconstruct, np.ndarray, (0,), b"b", state=(1, (1,), np.dtype("O"), False, b"12345678")
        ),
        "objects where numbers",
    ),
    "objects in fields": (lambda: Calls(scalar, fields_of_objects(), b"12345678"), "type 'V8'"),
    "object scalar": (lambda: Calls(scalar, np.dtype("O"), b"12345678"), "objects where numbers"),
    "too few bytes": (
        lambda: Calls(
            _reconstruct, np.ndarray, (0,), b"b", state=(1, (9**9,), np.dtype("u1"), False, b"1")
        ),
        "cannot reshape",
    ),
    "codec": (lambda: Calls(__import__("_codecs").encode, "a", "zlib_codec"), "encoding"),
    "times": (lambda: MASKS.astype("M8[s]"), "type 'M8'"),
}


EACH = [(make, named, n % 6) for n, (make, named) in enumerate(HOSTILE.values())]
EVERY_PROTOCOL = [(*HOSTILE["os.system"], protocol) for protocol in range(1, 6)]


@pytest.mark.parametrize(
    ("make", "named", "protocol"), EACH + EVERY_PROTOCOL, ids=[*HOSTILE, *range(1, 6)]
)
def test_a_hostile_pickle_is_refused_by_name_and_leaves_no_trace(
    make, named, protocol, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"filename": make(), "masks": MASKS}, protocol=protocol)
    path = write_pickle(tmp_path / "a_seg.npy", content)
    before = listing(tmp_path)
    with pytest.raises(BadInput, match=rf"(?s)a_seg\.npy: refused, .*{named}.*Nothing of it"):
        read_seg(path)
    assert listing(tmp_path) == before


def swelling():
    """Lists of lists, each twice the one before: little on disk."""
    value = [0]
    for _ in range(60):
        value = [value, value]
    return value


BROKEN = {
    "empty": b"",
    "truncated": pickle.dumps({"masks": MASKS})[:200],
    "bytes": pickle.dumps({"masks": MASKS, "filename": Calls(bytearray, 10**11)}),
    "length": b"\x80\x05\x96" + struct.pack("<Q", 10**11) + b"abc.",  # a bytearray of 100 GB
    "memo": b"\x80\x04]r\xff\xff\xff\x7f.",  # remembered as number 2**31
    "swelling": pickle.dumps({"masks": MASKS, "filename": swelling()}),
    "text again": pickle.dumps({"masks": MASKS, "filename": ["a" * 2**20] * 2**18}),
    "function": b"\x80\x02cnumpy\ndtype\n}b.",  # another state of a function
    "list": pickle.dumps([1, 2]),
    "no array": pickle.dumps({"masks": [1, 2]}),
    "floats": pickle.dumps({"masks": MASKS.astype(np.float32)}),
    "negative": pickle.dumps({"masks": -MASKS.astype(np.int32)}),
    "row": pickle.dumps({"masks": MASKS[0]}),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_or_greedy_file_ends_in_one_message(content, tmp_path):
    path, started = write_pickle(tmp_path / "a_seg.npy", content), time.monotonic()
    with pytest.raises(BadInput, match=r"a_seg\.npy: ") as caught:
        read_seg(path)
    assert len(str(caught.value)) < 700
    assert time.monotonic() - started < 30


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read_seg(tmp_path / "missing_seg.npy")
    np.save(tmp_path / "plain_seg.npy", MASKS)
    with pytest.raises(BadInput, match=r"no dictionary .* TIFF"):
        read_seg(tmp_path / "plain_seg.npy")
    (tmp_path / "text_seg.npy").write_text("masks")
    with pytest.raises(BadInput, match="magic string"):
        read_seg(tmp_path / "text_seg.npy")


def test_compare_takes_them(tmp_path, invoke):
    """Against each other, against a label image, and by folders."""
    for side in ("gui", "script"):
        (tmp_path / side).mkdir()
    a, b = by_gui(tmp_path / "gui", MASKS, None), by_script(tmp_path / "script", 2 * MASKS, None)
    same = invoke("compare", str(a), str(b), "--json")
    assert same.code == 1
    assert '"same-objects"' in same.out
    np.save(tmp_path / "script" / "cells_masks.npy", MASKS)
    folders = invoke("compare", str(a.parent), str(b.parent), "--json")
    assert folders.code == 0, folders.err
    hostile = write_pickle(tmp_path / "a_seg.npy", pickle.dumps({"masks": Calls(os.getcwd)}))
    refused = invoke("compare", str(a), str(hostile))
    assert refused.code == 2
    assert "getcwd" in refused.err
