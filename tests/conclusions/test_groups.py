"""The table of groups: as spreadsheets write it, and as nobody should."""

import pytest

from cellrepro.conclusions.groups import read_groups
from samebits.errors import BadInput

IMAGES = ["well_1", "well_2", "day1.5"]


@pytest.mark.parametrize(
    "content",
    [
        b"image,group\nwell_1,wt\nwell_2,drug\nday1.5,drug\n",
        b"\xef\xbb\xbfGroup;Image;note\r\nwt;well_1.tif;a\r\ndrug;well_2_masks.tif;\r\n\r\n"
        b"drug;day1.5.png;b\r\n",
        "image\tgroup\nC:\\x\\well_1.tif\twt\ndir/well_2_seg.npy\tdrug\nday1.5\tdrug".encode(
            "utf-16"
        ),
        b'image , group\n"well_1" , wt\n"well_2","drug"\nday1.5,drug',
    ],
    ids=["plain", "of a spreadsheet", "tabs and paths", "spaces and quotes"],
)
def test_a_table_is_read(tmp_path, content):
    (tmp_path / "groups.csv").write_bytes(content)
    groups = read_groups(tmp_path / "groups.csv", IMAGES)
    assert groups.of == {"well_1": "wt", "well_2": "drug", "day1.5": "drug"}
    assert (groups.control, groups.treated) == ("wt", ("drug",))
    assert groups.notes == ("wt is taken for the control group, by its name",)


def test_what_is_left_out_is_said(tmp_path):
    (tmp_path / "g.csv").write_text("image,group\nwell_1,b\nwell_2,a\nwell_9,a\n")
    groups = read_groups(tmp_path / "g.csv", IMAGES)
    assert groups.control == "b"
    without, unknown, control = groups.notes
    assert "1 image has no group and is left out: day1.5" in without
    assert "well_9" in unknown
    assert "b is taken for the control group, as the first one; --control" in control


@pytest.mark.parametrize(
    ("names", "doses"),
    [(("0", "0,5", "2"), {"0": 0, "0,5": 0.5, "2": 2}), (("1_0", "1_1", "1_2"), None)],
)
def test_what_is_a_dose(names, doses):
    assert read_groups(dict(zip(IMAGES, names, strict=True)), IMAGES).doses == doses


def test_the_lowest_of_two_numbers_is_the_control():
    groups = read_groups({"well_1": 5, "well_2": 0.5}, IMAGES)
    assert (groups.control, groups.treated, groups.doses) == ("0.5", ("5",), None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "expected the titles image and group"),
        (b"name,group\nwell_1,a\n", "expected the titles image and group"),
        (b"image,image,group\n", "expected the titles image and group"),
        (b"image,group\nwell_1\n", "line 2: image is 'well_1' and group ''"),
        (b"image,group\nwell_1,a\nwell_1.tif,b\n", "well_1 stands in it twice"),
        (b"image,group\n" + b"w" * 300 + b",a\n", "of up to 200 letters"),
        (b"image,group\n" + b'"' + b"w" * 200_000, "no table with commas"),
        (b"image,group\nwell_1,a\x1b[2J\nwell_2,b\n", "cannot be printed"),
        (b"image,group\nwell_1,\xff\n", "no text in UTF-8"),
        (b"PK\0\0\0", "a binary file"),
        (b"image,group\n" + b"w,a\n" * 100_001, "more than 100000 rows"),
        (b" " * (2**24 + 1), "larger than"),
    ],
)
def test_a_hostile_table_is_refused(tmp_path, content, said):
    file = tmp_path / "groups.csv"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=said):
        read_groups(file, IMAGES)


def test_no_file_and_too_many_groups(tmp_path):
    with pytest.raises(BadInput, match="no such file; expected a table of groups"):
        read_groups(tmp_path / "none.csv", IMAGES)
    with pytest.raises(BadInput, match="a folder, pipe or device"):
        read_groups(tmp_path, IMAGES)
    many = {f"i{n}": f"g{n}" for n in range(40)}
    with pytest.raises(BadInput, match="40 groups"):
        read_groups(many, list(many))
