"""What a file is that holds neither masks nor weights: said in a line, with the next step."""

import gzip
import io
import struct
import zipfile

import numpy as np
import pytest
import torch

from cellrepro.exchange.export import export_runs
from cellrepro.explanation.describe import describe
from cellrepro.explanation.file_kinds import NOT_USED
from cellrepro.model.weight_sources import find_model
from cellrepro.show.report.build import write_report
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run, three


def archive(**files):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as stream:
        for name, content in files.items():
            stream.writestr(name.replace("__", "/").replace("_DOT_", "."), content)
    return held.getvalue()


def npz():
    held = io.BytesIO()
    np.savez(held, masks=np.zeros((3, 3), int))
    return held.getvalue()


NIFTI = struct.pack("<i", 348) + bytes(340) + b"n+1\0"
FILES = {
    "a_rois.bin": (archive(**{"1_DOT_roi": b"Iout", "2_DOT_roi": b"Iout"}), "ROIs of ImageJ, 2"),
    "one.bin": (b"Iout\0\xe3", "a ROI of ImageJ"),
    "outlines.txt": (b"1,2,3,4,5,6\n7,8,9,10,11,12,13,14\n", "outlines of 2 cells"),
    "geojson.txt": (
        b'{"type": "FeatureCollection", "features": [{}, {}]}',
        "GeoJSON",
    ),
    "qupath.txt": (b'[{"type": "Feature", "geometry": {}}]', "GeoJSON with 1 shape"),
    "a.mat": (b"MATLAB 5.0 MAT-file, made by hand" + bytes(90), "a MAT file of MATLAB"),
    "unknown.bin": (b"\xc3\x28\0\x01\x02\x03", "not known: it begins with"),
    "labelme.json": (b'{"shapes": [], "imagePath": "a.png"}', "LabelMe"),
    "coco.json": (b'{"images": [], "annotations": []}', "COCO"),
    "ro-crate-metadata.json": (b'{"@context": "x", "@graph": []}', "RO-Crate"),
    "any.json": (b'{"a": 1}', "a record in JSON (a)"),
    "none.json": (b"{}", "a record in JSON (empty)"),
    "npz.bin": (npz(), "1 array of NumPy (masks)"),
    "a.bmp": (b"BM" + bytes(60), "a BMP picture"),
    "a.h5": (b"\x89HDF\r\n\x1a\n" + bytes(60), "an HDF5 file"),
    "a.nii": (NIFTI, "an image in NIfTI"),
    "a.nii.gz": (gzip.compress(NIFTI), "an image in NIfTI, compressed by gzip"),
    "a.onnx": (b"\x08\x07\x12\x07pytorch\x1a\x052.0.0" + bytes(9), "a network in ONNX"),
    "network.pt": (
        archive(net__data_DOT_pkl="x", net__code__a_DOT_py="x"),
        "a network in TorchScript",
    ),
    "zoo.zip": (archive(rdf_DOT_yaml="type: model", weights_DOT_pt="x"), "package of bioimage.io"),
    "rdf.yaml": (b"format_version: 0.5.3\ntype: model\n", "a package of bioimage.io"),
    "photos.zip": (
        archive(a_DOT_jpg="x", b_DOT_jpg="y"),
        "a zip archive of 2 files",
    ),
    "a.docx": (archive(**{"[Content_Types]_DOT_xml": "<x/>"}), "an Office document"),
    "any.html": (b"<!DOCTYPE html>\n<html>", "a page in HTML"),
    "a.pdf": (b"%PDF-1.7\n%\xe2\xe3", "a PDF document"),
    "a.mp4": (b"\0\0\0\x20ftypisom" + bytes(30), "a video"),
    "a.heic": (b"\0\0\0\x18ftypheic" + bytes(30), "a HEIC or HEIF picture"),
    "a.avif": (b"\0\0\0\x1cftypavif" + bytes(30), "an AVIF picture"),
    "a.m4a": (b"\0\0\0\x20ftypM4A " + bytes(30), "a sound"),
    "a.rtf": (b"{\\rtf1\\ansi nothing}", "an RTF document"),
    "a.czi": (b"ZISRAWFILE" + bytes(30), "Zeiss"),
    "bmi.csv": (b"BMI,age\n20,30\n", "a table"),
    "a.csv": (b"image,group\na,1\n", "a table"),
    "notes.txt": (b"nothing that is known\n", "a text"),
    "a.pkl": (b"\x80\x04\x95\x10\0\0\0\0\0\0\0", "a pickle of Python"),
    "renamed.dat": (b"II*\0" + bytes(60), "a TIFF"),
    "empty": (b"", "an empty file"),
    "unknown.bin2": (b"\xc3\x28\0\x01\x02\x03", "not known: it begins with"),
    "slsa.intoto.jsonl": (b'{"_type": "https://in-toto.io/Statement/v1"}', "statement of in-toto"),
    "run.txt": (b"2025-12-01 11:41:57,884 [INFO] WRITING LOG OUTPUT TO run.log\n", "run.log"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_known_by_what_it_holds(tmp_path, invoke, name):
    content, expected = FILES[name]
    (tmp_path / name).write_bytes(content)
    answer = invoke("describe", tmp_path / name)
    assert answer.code == 0, answer.err
    first, *others = answer.out.splitlines()
    assert expected in first
    assert "no weights file" not in answer.out
    assert name == "run.txt" or others[0].startswith("  next: ") or others == [f"  {NOT_USED}"]


def test_compare_says_what_it_was_given(tmp_path, invoke):
    (tmp_path / "a_rois.bin").write_bytes(FILES["a_rois.bin"][0])
    np.save(tmp_path / "a_masks.npy", np.eye(9, dtype=np.uint16))
    answer = invoke("compare", tmp_path / "a_masks.npy", tmp_path / "a_rois.bin")
    assert answer.code == 2
    assert "a_rois.bin is ROIs of ImageJ, 2 of them; give it the ending .zip" in answer.err


def test_folders_and_what_the_lab_writes(tmp_path, invoke):
    store = Store(tmp_path / "store")
    run = add_run(store, [(1.0, three())])
    assert describe(str(store.root)).details["what"] == "a store of the lab"
    file = tmp_path / "run.cellrepro.zip"
    (repeat,) = run.repeats
    for folder in (repeat.folder, *repeat.folder.parents[:2]):  # the repeat, its machine, its run
        assert describe(str(folder), store=tmp_path).details["name"] == repeat.name
    assert "lists them" in describe(str(store.root / "runs")).details["next"]
    page = write_report(store).html
    assert describe(str(page)).details["what"] == "a page that cellrepro wrote"
    export_runs(run.key, file, store=store.root, quiet=True)
    found = describe(str(file))
    assert found.details["what"] == "a file in which runs are handed on"
    assert f"`cellrepro verify {file}` says what is in it" in found.details["next"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.pth", b"\0garbage"), ("a.safetensors", bytes(20)), ("cut", b"PK\x03\x04" + bytes(20))],
)
def test_what_is_named_or_begins_as_weights_is_damaged(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match="no weights file that can be read"):
        describe(str(tmp_path / name))


@pytest.mark.parametrize("n_header", [112, 0x4D42, 0x5A4D])
def test_the_length_of_a_header_is_no_signature(tmp_path, n_header):
    """112 begins as an image of Leica does, 0x4D42 as a BMP, 0x5A4D as a program."""
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(n_header)
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "network").write_bytes(content)
    assert describe(str(tmp_path / "network")).kind == "weights"


def test_weights_say_what_their_training_left(tmp_path, invoke):
    bad = torch.tensor([1.0, torch.nan, torch.inf])
    network = {
        "downsample.down.res_down_0.conv.conv_0.0.weight": bad,
        "diam_mean": torch.tensor([30.0]),
        "diam_labels": torch.tensor([98.0]),
    }
    for is_zip in (True, False):  # and as PyTorch wrote before 1.6
        torch.save(network, tmp_path / "CP_98", _use_new_zipfile_serialization=is_zip)
        out = invoke("describe", tmp_path / "CP_98").out
        assert "mean diameter of the training cells: 98 pixels (diam_labels)" in out
        assert "mean diameter of the network: 30 pixels (diam_mean)" in out
        assert "of 5 parameters 1 NaN and 1 infinite" in out
        assert find_model(str(tmp_path / "CP_98"), Store(tmp_path)).architecture == "cellpose"


def test_a_link_that_leads_nowhere_is_no_name_of_a_model(tmp_path, invoke):
    (tmp_path / "network").symlink_to(tmp_path / "gone")
    answer = invoke("describe", tmp_path / "network")
    assert answer.code == 2
    assert "is a link to" in answer.err


@pytest.mark.parametrize("byte", range(256))
def test_one_byte_has_a_kind(tmp_path, byte):
    (tmp_path / "a.bin").write_bytes(bytes([byte]))
    assert describe(str(tmp_path / "a.bin")).kind == "other"
