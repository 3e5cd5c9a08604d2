"""Outlines as label images: those of Cellpose come back, others are drawn as ImageJ draws them."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import roifile
import tifffile
from skimage import draw

from cellrepro import BadInput, compare_masks
from cellrepro.explanation.describe import describe
from cellrepro.images.image_file import read_labels
from cellrepro.images.nuclei_drawing import nuclei
from cellrepro.images.outline_files import read_outlines
from cellrepro.images.outlines import Outline, Outlines

SQUARE = [[0, 0], [4, 0], [4, 3], [0, 3], [0, 0]]
"""Corners of an area of 3 rows and 4 columns."""


def feature(coordinates, kind="Polygon", **properties):
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def geojson(folder, *features, name="cells.geojson"):
    path = folder / name
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def rois(folder, *content):
    path = folder / "cells_rois.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for n, roi in enumerate(content):
            archive.writestr(f"{n}.roi", roi if isinstance(roi, bytes) else roi.tobytes())
    return path


def test_what_cellpose_writes_of_masks_comes_back(tmp_path):
    from cellpose import io, utils

    for seed in range(2):
        masks = np.asarray(nuclei(seed, shape=(200, 240), n_nuclei=40).masks)
        io.save_rois(masks, str(tmp_path / "a"))
        io.outlines_to_text(str(tmp_path / "a"), utils.outlines_list(masks))
        with zipfile.ZipFile(tmp_path / "a_rois.zip") as archive:
            archive.extractall(tmp_path / f"rois_{seed}")
        for name in ("a_rois.zip", "a_cp_outlines.txt", f"rois_{seed}"):
            drawn = read_labels(tmp_path / name, shape=masks.shape)
            result = compare_masks(masks, drawn)
            assert (result.verdict, result.n_kept) == ("identical", len(np.unique(masks)) - 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_polygon_is_filled_as_scikit_image_fills_it(seed):
    """At the centres of pixels, which lie half a pixel from their corners."""
    points = np.random.default_rng(seed).uniform(-5, 45, (7, 2))
    drawn = Outlines(Path("x"), (Outline((points,)),)).drawn((40, 40))
    expected = draw.polygon2mask((40, 40), points[:, ::-1] - 0.5)
    assert np.array_equal(drawn.labels > 0, expected)


def test_corners_and_pixels_are_told_apart(tmp_path):
    """ImageJ's square of 3 × 4 pixels has four corners, that of Cellpose ten pixels around it."""
    square = np.zeros((6, 6), np.uint16)
    square[:3, :4] = 1
    corners = rois(tmp_path, roifile.ImagejRoi.frompoints(np.array(SQUARE[:4]), name="1"))
    assert np.array_equal(read_labels(corners, shape=(6, 6)), square)
    around = [[x, 0] for x in range(4)] + [[3, 1], [3, 2], [2, 2], [1, 2], [0, 2], [0, 1]]
    pixels = rois(tmp_path, roifile.ImagejRoi.frompoints(np.array(around), name="1"))
    assert np.array_equal(read_labels(pixels, shape=(6, 6)), square)
    assert "outermost pixels" in describe(str(pixels)).details["points"]


def test_every_kind_of_area_of_imagej(tmp_path):
    box = {"left": 1, "top": 2, "right": 5, "bottom": 4}
    rectangle = roifile.ImagejRoi(roitype=roifile.ROI_TYPE.RECT, **box)
    oval = roifile.ImagejRoi(roitype=roifile.ROI_TYPE.OVAL, **{**box, "top": 5, "bottom": 9})
    point = roifile.ImagejRoi.frompoints(np.array([[1, 1]]), name="p")
    point.roitype = roifile.ROI_TYPE.POINT
    drawn = read_outlines(rois(tmp_path, rectangle, oval, point)).drawn((10, 10))
    assert np.array_equal(np.argwhere(drawn.labels == 1).max(axis=0), [3, 4])
    assert 10 <= np.count_nonzero(drawn.labels == 2) <= 14
    assert drawn.notes == ("1 ROI without an area not drawn (point)",)


def test_holes_parts_names_and_classes_of_geojson(tmp_path):
    hole = [[1, 1], [1, 2], [2, 2], [2, 1], [1, 1]]
    far = [[[x + 6, y] for x, y in SQUARE]]
    path = geojson(
        tmp_path,
        feature([SQUARE, hole], name="7", classification={"name": "Tumor"}),
        feature([far, [[[x, y + 5] for x, y in SQUARE]]], "MultiPolygon", name="3"),
        feature([3, 3], "Point"),
    )
    outlines = read_outlines(path)
    drawn = outlines.drawn((9, 11))
    assert np.count_nonzero(drawn.labels == 7) == 3 * 4 - 1
    assert np.count_nonzero(drawn.labels == 3) == 2 * 3 * 4
    assert outlines.extent == (8, 10)
    assert drawn.notes == ("1 shape without an area not drawn",)
    assert describe(str(path)).details["classes"] == "Tumor 1"


def test_annotations_of_qupath_around_cells_are_no_cells(tmp_path):
    around = [[0, 0], [9, 0], [9, 9], [0, 9]]
    path = geojson(
        tmp_path,
        feature([around], objectType="annotation"),
        feature([SQUARE], objectType="cell"),
    )
    drawn = read_outlines(path).drawn((9, 9))
    assert np.unique(drawn.labels).tolist() == [0, 1]
    assert drawn.notes == ("1 annotation of QuPath is no cell",)


def test_where_outlines_overlap_the_last_one_counts(tmp_path):
    shifted = [[x + 2, y] for x, y in SQUARE]
    drawn = read_outlines(geojson(tmp_path, feature([SQUARE]), feature([shifted]))).drawn((3, 6))
    assert drawn.labels.tolist() == [[1, 1, 2, 2, 2, 2]] * 3
    assert drawn.notes == ("6 pixels lie in several outlines, and there the last one counts",)


def test_rois_lie_on_the_planes_of_a_stack(tmp_path):
    square = np.array(SQUARE[:4])
    path = rois(
        tmp_path,
        roifile.ImagejRoi.frompoints(square, name="1", position=0),
        roifile.ImagejRoi.frompoints(square, name="2", position=2),
    )
    labels = read_labels(path, shape=(3, 5, 5))
    assert [np.unique(plane).max() for plane in labels] == [1, 0, 2]
    with pytest.raises(BadInput, match="lie on 2 planes, and the image has one"):
        read_labels(path, shape=(5, 5))


def test_the_other_side_gives_the_size(tmp_path, invoke):
    masks = np.zeros((20, 30), np.uint16)
    masks[2:8, 2:9] = 1
    tifffile.imwrite(tmp_path / "a_masks.tif", masks)
    (tmp_path / "b").mkdir()
    path = geojson(tmp_path / "b", feature([[[2, 2], [9, 2], [9, 8], [2, 8]]]))
    answer = invoke("compare", tmp_path / "a_masks.tif", path)
    assert answer.code == 0, answer.err
    assert "same 1 cell" in answer.out
    answer = invoke("compare", path, path)
    assert "the smallest one with all of them was taken, 8 × 9 pixels" in answer.out
    tifffile.imwrite(tmp_path / "image.tif", np.arange(600, dtype=np.uint16).reshape(20, 30))
    page = tmp_path / "page.html"
    for sides in ([path, path], [tmp_path / "a_masks.tif", path]):
        picture = ["--image", tmp_path / "image.tif", "--html", page, "--overwrite"]
        answer = invoke("compare", *sides, *picture)
        assert answer.code == 0, answer.err
        assert "smallest" not in answer.out


WRONG = {
    "none.geojson": (b'{"type": "FeatureCollection", "features": []}', "no outline of a cell"),
    "a.geojson": (b"{", "no JSON that can be read"),
    "nan.geojson": (b'[{"geometry": {"type": "Polygon", "coordinates": [[[NaN]]]}}]', "NaN is no"),
    "text.geojson": (
        b'{"type": "Polygon", "coordinates": [[["a", 1], [1, 2], [3, 4]]]}',
        "no pairs of numbers",
    ),
    "deep.geojson": (b"[" * 100_000, "no JSON that can be read"),
    "far.geojson": (
        b'{"type": "Polygon", "coordinates": [[[0, 0], [1e30, 2], [3, 4]]]}',
        "no place in an image",
    ),
    "large.geojson": (
        b'{"type": "Polygon", "coordinates": [[[0, 0], [1e6, 2], [3, 1e6]]]}',
        "expected at most 1073741824 pixels",
    ),
    "a_cp_outlines.txt": (b"1,2,3,4,5,6\n1,2,3\n", "line 2: no outline"),
    "b_cp_outlines.txt": (b"1,2,x,4,5,6\n", "line 1: no outline"),
    "a.roi": (b"Iout\0\xe3", "no ROI of ImageJ"),
    "b_rois.zip": (b"PK\3\4", "no zip archive of ROIs"),
    "a.npz": (b"PK\3\4", "no masks as numpy.savez writes them"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_damaged_is_refused(tmp_path, name):
    content, message = WRONG[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_labels(tmp_path / name)


def test_places_in_micrometres_are_refused(tmp_path):
    path = geojson(tmp_path, feature([[[x + 4000, y] for x, y in SQUARE]]))
    with pytest.raises(BadInput, match=r"1 of 1 outline lies outside .* export them in pixels"):
        read_labels(path, shape=(100, 100))


def test_one_array_or_a_named_one_of_an_archive(tmp_path):
    masks = np.eye(5, dtype=np.int32)
    np.savez_compressed(tmp_path / "a.npz", masks=masks, flows=np.zeros(3))
    np.savez(tmp_path / "b.npz", masks)
    np.savez(tmp_path / "c.npz", a=masks, b=masks)
    np.savez(tmp_path / "d.npz", np.array([{}], object))
    assert np.array_equal(read_labels(tmp_path / "a.npz"), masks)
    assert np.array_equal(read_labels(tmp_path / "b.npz"), masks)
    np.savez(tmp_path / "e.npz", cells=masks, flows=np.zeros((5, 5)))  # one alone has whole numbers
    assert np.array_equal(read_labels(tmp_path / "e.npz"), masks)
    with pytest.raises(BadInput, match=r"holds a \(5 × 5, int32\), b .*; expected one array"):
        read_labels(tmp_path / "c.npz")
    with pytest.raises(BadInput, match="allow_pickle"):
        read_labels(tmp_path / "d.npz")
