"""Numbers as people read them."""

import pytest

from cellrepro import text


@pytest.mark.parametrize(
    ("ppm", "expected"),
    [(0, "0 ppm"), (0.001, "less than 0.01 ppm"), (3.25, "3.25 ppm"), (39047.4, "39 047 ppm")],
)
def test_ppm_text(ppm, expected):
    assert text.ppm_text(ppm) == expected
