"""What a script recorded is found beside its masks, and is read as every other record is."""

import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import tifffile

from cellrepro import record
from cellrepro.explanation.image_readings import received_pixels
from cellrepro.explanation.mask_file_record import label_image_record
from cellrepro.explanation.script_record import script_record
from cellrepro.record import recorded
from samebits.errors import BadInput

RECORDS = Path(__file__).parent / "script_records"
"""Written by Cellpose 2.3.2 (Python 3.8), 3.1.1.2 and 4.0.8, each installed by itself."""
SCHEMA = json.loads(
    Path(record.__file__).with_name("record_schema.json").read_text(encoding="utf-8")
)


class Model:
    """A script's own model, with Cellpose's names of arguments: every bright pixel is a cell."""

    def eval(self, x, diameter=None, flow_threshold=0.4, cellprob_threshold=0.0, min_size=15):
        masks = np.zeros(x.shape, np.uint16)
        masks[x > (diameter or 30)] = 1
        return masks, [], []


@pytest.fixture
def two_calls(tmp_path):
    """Masks of one image at two diameters, saved as a script saves them, with their records."""
    image = np.arange(400, dtype=np.uint8).reshape(20, 20)
    model = recorded(Model(), tmp_path)
    for name, diameter in (("a", 42.4), ("b", 30.0)):
        masks, *_ = model.eval(image, diameter, record_as=name)
        tifffile.imwrite(tmp_path / f"{name}_masks.tif", masks)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "generation", "expected"),
    [
        ("2.3.2", "2", {"diameter": 30.0, "channels": [1, 2], "normalize.normalize": True}),
        ("3.1.1.2", "3", {"diameter": 30.0, "channels": [1, 2], "normalize.norm3D": True}),
        ("4.0.8", "4", {"diameter": None, "channels": "?", "normalize.norm3D": True}),
    ],
)
def test_records_of_every_generation_are_read(tmp_path, version, generation, expected):
    shutil.copy(RECORDS / f"cellpose_{version}_masks.json", tmp_path / "a_masks.json")
    found = json.loads((tmp_path / "a_masks.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    read = script_record(tmp_path / "a_masks.tif", np.ones((4, 4), np.uint16))
    assert (read.generation, read.value("cellpose")) == (generation, version)
    assert {name: read.value(name) for name in expected} == expected
    assert (read.value("cellprob_threshold"), read.value("model")) == (-6.0, "weights")
    assert "tells of different masks" in read.remarks[0]


def test_explain_says_first_what_two_scripts_did_differently(two_calls, invoke):
    a, b = (two_calls / f"{name}_masks.tif" for name in "ab")
    answer = invoke("explain", a, b, "--json")
    assert answer.code == 1, answer.err
    differs = [row for row in answer.json["settings"] if "?" not in (row["a"], row["b"])]
    assert differs[0] == {"name": "diameter", "a": 42.4, "b": 30.0}
    described = invoke("describe", a)
    assert "42.4" in described.out
    assert "pixels of the image" in described.out


def test_an_image_is_known_by_the_pixels_that_eval_received(tmp_path):
    """Also where a script took one channel of it; not where it is turned over."""
    image = np.arange(1200, dtype=np.uint16).reshape(20, 20, 3)
    masks, *_ = recorded(Model(), tmp_path).eval(image[..., 1], record_as="a")
    record = script_record(tmp_path / "a_masks.tif", masks)
    same = received_pixels(record, image)
    assert same.reading == {"image.depth": None, "image.channels": "2"}
    assert "is the one that eval received" in same.remark
    turned = received_pixels(record, image[::-1])
    assert turned.reading == {}
    assert "is not the one that eval received: that was uint16 of shape [20, 20]" in turned.remark


def test_masks_that_were_renamed_find_their_record_and_edited_ones_are_told(two_calls):
    masks = tifffile.imread(two_calls / "a_masks.tif")
    renamed = label_image_record(two_calls / "final.png", masks)
    assert (renamed.value("diameter"), renamed.source("diameter")) == (42.4, "a_masks.json")
    assert renamed.remarks == ()
    masks[0] = 0
    masks[-1] = 7
    edited = label_image_record(two_calls / "a_masks.tif", masks)
    assert "a_masks.json tells of different masks" in edited.remarks[0]
    assert script_record(two_calls / "final.png", masks) is None


def test_a_record_of_later_format_is_refused(two_calls):
    path = two_calls / "a_masks.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("cellrepro record 1", "cellrepro record 2"), encoding="utf-8")
    masks = tifffile.imread(two_calls / "a_masks.tif")
    with pytest.raises(BadInput, match="this cellrepro reads 'cellrepro record 1'"):
        label_image_record(two_calls / "a_masks.tif", masks)


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("bfloat16", "bfloat16"), (None, "?"), ("bfloat16, float32", "?"), ("float", None), (7, None)],
)
def test_the_precision_is_one_that_a_network_can_have(two_calls, precision, expected):
    path = two_calls / "a_masks.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**fields, "precision": precision}), encoding="utf-8")
    masks = tifffile.imread(two_calls / "a_masks.tif")
    if expected is None:
        with pytest.raises(BadInput, match=r"precision is .* expected one of bfloat16"):
            label_image_record(two_calls / "a_masks.tif", masks)
    else:
        read = label_image_record(two_calls / "a_masks.tif", masks)
        assert read.value("precision") == expected


def with_type_of_pixels(folder, dtype):
    """The masks of a record that says so of their image."""
    path = folder / "a_masks.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields["image"]["dtype"] = dtype
    path.write_text(json.dumps(fields), encoding="utf-8")
    return tifffile.imread(folder / "a_masks.tif")


@pytest.mark.parametrize("dtype", ["uint12", "object", "(99999,)f8", "S99999", "u1,u1", 7, None])
def test_a_record_with_an_unknown_type_of_pixels_is_refused(two_calls, dtype):
    masks = with_type_of_pixels(two_calls, dtype)
    with pytest.raises(BadInput, match=r"a_masks\.json: TypeError.* in a record of a script"):
        label_image_record(two_calls / "a_masks.tif", masks)


@pytest.mark.parametrize("dtype", ["bool", "uint8", ">u2", "float16", "complex64"])
def test_every_type_of_numbers_is_read(two_calls, dtype):
    masks = with_type_of_pixels(two_calls, dtype)
    assert label_image_record(two_calls / "a_masks.tif", masks).value("image.dtype") == dtype


def test_a_record_of_other_masks_may_be_of_any_form(two_calls):
    """Of a later version, or damaged: it is no reason to say nothing of these masks."""
    path = two_calls / "other_masks.json"
    text = (two_calls / "a_masks.json").read_text(encoding="utf-8")
    masks = tifffile.imread(two_calls / "a_masks.tif")
    masks[-1] = 7
    plain = two_calls / "plain.tif"
    tifffile.imwrite(plain, masks)
    for content in (
        text.replace("cellrepro record 1", "cellrepro record 2"),
        json.dumps({"format": "cellrepro record 1", "masks": [1]}),
    ):
        path.write_text(content, encoding="utf-8")
        assert "diameter" not in label_image_record(plain, masks).values
    (two_calls / "a_masks.json").write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match="in a record of a script"):
        label_image_record(two_calls / "a_masks.tif", masks)
