"""Pictures and label images told apart: photographs, made-up hard cases, and what stays unsure."""

import re
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from scipy import ndimage
from scipy.spatial import cKDTree

from cellrepro.images.image_file import read_labels
from cellrepro.images.label_image import LARGEST_LABEL, label_image
from cellrepro.images.nuclei_drawing import nuclei
from cellrepro.images.pictures import _fullest_part, doubt, pieces_of, refuse_picture
from cellrepro.images.synthetic_sets import IMAGES
from samebits.errors import BadInput

REAL_SETS = Path(__file__).parents[3] / "shared" / "data"
MADE = nuclei(3, n_nuclei=IMAGES[3].n_nuclei, look=IMAGES[3].look)
PICTURE = MADE.image
MASKS = MADE.masks
RANDOM = np.random.default_rng(0)


def in_8_bit(image):
    """From the darkest pixel to the brightest but one in a thousand, as people export pictures."""
    low = image.min()
    high = np.percentile(image, 99.9)
    return (255 * np.clip((image - low) / (high - low), 0, 1)).astype(np.uint8)


def blurred(image, sigma):
    return ndimage.gaussian_filter(image.astype(np.float64), sigma)


def as_jpeg(image):
    return imagecodecs.jpeg_decode(imagecodecs.jpeg_encode(image, level=30))


def enlarged(image, n):
    return np.kron(image, np.ones((n, n), image.dtype))


def touching_cells(n, shape):
    """A cell around each of some points, without background between them."""
    points = np.random.default_rng(1).integers(0, min(shape), (n, len(shape)))
    pixels = np.stack(np.indices(shape), -1).reshape(-1, len(shape))
    return (cKDTree(points).query(pixels)[1] + 1).reshape(shape)


PICTURES = {
    "as the camera gives it": PICTURE,
    "8 bit": in_8_bit(PICTURE),
    "inverted": 255 - in_8_bit(PICTURE),
    "blurred": in_8_bit(blurred(PICTURE, 3)),
    "blurred in 16 bit": blurred(PICTURE, 2).astype(np.uint16),
    "enlarged": enlarged(in_8_bit(PICTURE), 3),
    "interpolated": in_8_bit(ndimage.zoom(PICTURE[:80, :80].astype(float), 4, order=3)),
    "clipped": np.clip(PICTURE.astype(int) - 300, 0, 255).astype(np.uint8),
    "nothing but its cells": np.where(MASKS > 0, in_8_bit(PICTURE), 0).astype(np.uint8),
    "its cells in 16 bit": np.where(MASKS > 0, PICTURE, 0),
    "a few photons": RANDOM.poisson(blurred(4.0 * (MASKS > 0), 1)),
    "posterised": in_8_bit(PICTURE) // 8,
    "as JPEG had it": as_jpeg(in_8_bit(PICTURE)),
    "a small part": in_8_bit(PICTURE)[:32, :32],
    "a stack": np.stack([PICTURE[:90, :90] + plane for plane in range(6)]),
    "32 bit, no value twice": PICTURE.astype(np.uint32) * 2**19 + RANDOM.integers(2**19),
    "stretched to 16 bit": (PICTURE * 15.7 + RANDOM.random(PICTURE.shape) * 15).astype(np.uint16),
    "far from the corner": np.pad(PICTURE, ((3000, 100), (200, 2000))),
}

WITH_SPECKS = np.where(
    RANDOM.random(MASKS.shape) < 0.03, RANDOM.integers(0, MASKS.max(), MASKS.shape), MASKS
)
DOTS = np.zeros((512, 512), np.int32)
DOTS[tuple(RANDOM.integers(0, 512, (2, 4000)))] = np.arange(1, 4001)
NEURITES = np.zeros((400, 400), np.int32)
for neurite in range(1, 40):
    along = np.arange(300)
    NEURITES[(10 * neurite + 20 * np.sin(along / 20)).astype(int) % 400, along] = neurite
WOBBLE = RANDOM.normal(0, 1.5, (2, *MASKS.shape))

LABEL_IMAGES = {
    "nuclei": MASKS,
    "without background": touching_cells(200, (256, 256)),
    "as small as three pixels across": touching_cells(8000, (256, 256)),
    "a pixel each": DOTS,
    "a pixel wide": NEURITES,
    "with specks": WITH_SPECKS,
    "drawn with a shaking hand": ndimage.map_coordinates(
        MASKS, np.indices(MASKS.shape) + WOBBLE, order=0
    ),
    "a crop that was not renumbered": MASKS[100:200, 60:190],
    "in any order, up to 60 000": np.append(0, RANDOM.permutation(60_000))[MASKS],
    "cut to 8 bit": (touching_cells(3000, (512, 512)) % 256).astype(np.uint8),
    "resized with interpolation": ndimage.zoom(MASKS.astype(float), 1.3, order=1).astype(np.uint16),
    "of neurons, cut by a plane": touching_cells(6000, (512, 512)) % 700 + 1,
    "a stack of flat cells": np.stack([MASKS] * 4),
    "a stack without background": touching_cells(2000, (40, 80, 80)),
    "few on a slide": np.pad(MASKS[:100, :100], ((2000, 3000), (4000, 1000))),
    "nothing": np.zeros((64, 64), int),
    "one object": np.ones((64, 64), int),
}


@pytest.mark.parametrize("case", PICTURES)
def test_a_picture_is_refused_and_the_message_says_what_to_give(case):
    with pytest.raises(BadInput, match=r"^x: a picture, no label image: .* give the masks of this"):
        refuse_picture("x:", PICTURES[case])


@pytest.mark.parametrize("case", LABEL_IMAGES)
def test_a_label_image_is_none(case):
    refuse_picture("x:", LABEL_IMAGES[case])


def test_a_picture_somewhere_in_a_large_image(monkeypatch):
    """Of a large one every so many rows and columns tell where its fullest part is."""
    monkeypatch.setattr("cellrepro.images.pictures._MOST_PLACES", 100)
    image = np.zeros((1500, 1700), np.uint8)
    image[-512:, 900:1412] = np.random.default_rng(0).integers(1, 200, (512, 512))
    (rows, columns) = _fullest_part(image)
    assert abs(rows.start - (1500 - 512)) < 15
    assert abs(columns.start - 900) < 17
    with pytest.raises(BadInput, match="a picture, no label image"):
        refuse_picture("x:", image)


@pytest.mark.parametrize("set_name", ["nuclei", "cells"])
def test_every_photograph_and_every_mask_of_real_sets(set_name):
    files = sorted((REAL_SETS / set_name).rglob("*.tif"))
    if not files:
        pytest.skip(f"{REAL_SETS / set_name} is not here")
    found = {file.name: pieces_of(tifffile.imread(file)).is_picture for file in files}
    assert found == {name: not name.endswith("_masks.tif") for name in found}


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (
            (MASKS > 0).astype(np.uint8),
            r"1 number in \d+ separate pieces.*number its objects first",
        ),
        (np.clip(PICTURE.astype(int) // 400, 0, 3), "3 numbers in .* a map of classes"),
        (in_8_bit(PICTURE) // 40, "6 numbers in .* or a picture"),
    ],
    ids=["foreground map", "classes", "six grey values"],
)
def test_what_may_be_a_label_image_is_let_through_with_a_word(image, expected):
    refuse_picture("x:", image)
    assert doubt(MASKS) is None
    assert re.match(expected, doubt(image))


def test_a_picture_in_a_file_is_refused_wherever_masks_are_read(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", PICTURE)
    with pytest.raises(BadInput, match=r"a\.tif: a picture, no label image"):
        read_labels(tmp_path / "a.tif")


def test_numbers_that_began_anew_below_0_are_no_mark_to_be_removed():
    masks = np.arange(400, dtype=np.int64).reshape(20, 20).astype(np.int8)
    with pytest.raises(BadInput, match=r"from -128 to 127, .* for int8, .*save .* as int32"):
        label_image("masks", masks, largest=LARGEST_LABEL)
