"""Which files of two folders are masks of one image: by name, by order, by a pattern."""

import numpy as np
import pytest

from cellrepro import BadInput
from cellrepro.explanation.compare_files import compare
from cellrepro.explanation.mask_files import image_name, mask_files, paired

MASKS = np.kron(np.arange(1, 5, dtype=np.uint16).reshape(2, 2), np.ones((6, 6), np.uint16))


def folder(path, *names):
    path.mkdir()
    for name in names:
        if name.endswith(".npy"):
            np.save(path / name, MASKS)
        else:
            (path / name).write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        *((f"a{ending}", "a") for ending in ("", "_masks", "_cp_masks", "_mask", "_label")),
        *((f"a{ending}", "a") for ending in ("_labels", "_seg", "_rois", "_cp_outlines", ".ome")),
        ("a_masks.ome", "a"),
        ("man_seg007", "t007"),
        ("mask007", "t007"),
        ("mask_of_a", "mask_of_a"),
        ("_masks", "_masks"),
    ],
)
def test_the_image_of_a_file(stem, expected):
    assert image_name(stem) == expected


def test_label_images_come_before_other_files_of_an_image(tmp_path):
    names = ("a_masks.npy", "a_seg.npy", "a_rois.zip", "b_seg.npy", "b_cp_outlines.txt")
    outlines = ("c_rois.zip", "c_cp_outlines.txt", "d.geojson")
    found = mask_files(folder(tmp_path / "x", *names, *outlines))
    assert {name: file.name for name, file in found.items()} == {
        "a": "a_masks.npy",
        "b": "b_seg.npy",
        "c": "c_rois.zip",
    }


def test_pairs_by_order_and_by_pattern(tmp_path, invoke):
    a = folder(tmp_path / "a", "gt_1.npy", "gt_2.npy", "gt_10.npy")
    b = folder(tmp_path / "b", "x1_pred.npy", "x2_pred.npy", "x10_pred.npy")
    with pytest.raises(BadInput, match=r"no image of the same name .* `--pairs order`"):
        compare(a, b)
    of_a, of_b = paired(a, b, "order")
    assert [(of_a[name].name, of_b[name].name) for name in of_a] == [
        *(("gt_1.npy", "x1_pred.npy"), ("gt_2.npy", "x2_pred.npy"), ("gt_10.npy", "x10_pred.npy"))
    ]
    of_a, of_b = paired(a, b, "gt_{image}.npy=x{image}_pred.npy")
    assert of_a.keys() == of_b.keys() == {"1", "2", "10"}
    answer = invoke("compare", a, b, "--pairs", "gt_{image}.npy=x{image}_pred.npy")
    assert answer.code == 0, answer.err
    assert "on 3 images" in answer.out
    page = tmp_path / "page.html"
    assert invoke("compare", a, b, "--pairs", "order", "--html", page).code == 0
    assert page.exists()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("by name", "expected 'order', or the name of files with {image} once in it"),
        ("{image}{image}.npy", "with {image} once in it"),
        ("../{image}.npy", "with {image} once in it"),
        ("{image}_none.npy", r"a holds no file {image}_none.npy, but gt_1.npy"),
        ("order", "hold 2 and 1 masks; expected as many"),
    ],
)
def test_pairs_that_cannot_be_are_refused(tmp_path, pairs, message):
    a = folder(tmp_path / "a", "gt_1.npy", "gt_2.npy")
    b = folder(tmp_path / "b", "x1_pred.npy")
    with pytest.raises(BadInput, match=message):
        compare(a, b, pairs=pairs)
    with pytest.raises(BadInput, match="leave it out"):
        compare(a / "gt_1.npy", b / "x1_pred.npy", pairs=pairs)


def test_planes_and_frames_whose_numbers_of_cells_differ_are_named(tmp_path):
    frames = np.stack([MASKS] * 4)
    np.save(tmp_path / "a_masks.npy", frames)
    frames[2][frames[2] == 3] = 0
    np.save(tmp_path / "b_masks.npy", frames)
    notes = compare(tmp_path / "a_masks.npy", tmp_path / "b_masks.npy").notes
    assert any(note.endswith("numbers of cells in A and B: z 2: 4 and 3") for note in notes)
