"""Sizes that differ by a factor, as those of masks that are not of their image's size."""

import pytest

from cellrepro.images.size_factor import other_size_text, size_factor


@pytest.mark.parametrize(
    ("masks", "image", "expected"),
    [
        ((1802, 3764), (901, 1882), 2),
        ((300, 300), (100, 100), 3),
        ((int(901 * 30 / 17), int(1882 * 30 / 17)), (901, 1882), 30 / 17),
        ((451, 941), (901, 1882), 0.5),
        ((7, 128, 128), (7, 64, 64), 2),
        ((64, 64), (64, 64), None),
        ((500, 500), (512, 512), None),
        ((256, 512), (512, 512), None),
        ((512, 256), (256, 512), None),
        ((128, 128), (3, 64, 64), None),
    ],
    ids=[
        *("twice", "three times", "rounded", "half", "a stack"),
        *("equal", "a border cut off", "a crop", "turned", "a plane of a stack"),
    ],
)
def test_a_factor_is_told_from_a_crop(masks, image, expected):
    found = size_factor(masks, image)
    assert found is None if expected is None else found == pytest.approx(expected, rel=2e-3)


def test_the_diameter_that_makes_such_masks_is_named():
    """Cellpose pull request 1434: of an image of 100 pixels diameter=10 gave masks of 300."""
    found = other_size_text((300, 300), (100, 100))
    assert "3 times as large as the image" in found
    assert "(here diameter=10)" in found
    assert found.endswith("masks[::3, ::3]")
