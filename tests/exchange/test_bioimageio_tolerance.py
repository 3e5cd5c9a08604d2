"""The tolerance of a package: it holds what was measured, is no wider, and says what it hides."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cellrepro.exchange.bioimageio.measured_words import hiding_text
from cellrepro.exchange.bioimageio.tolerance import (
    MOST_PER_MILLION,
    HiddenObjects,
    Tolerance,
    hidden_objects,
    largest_difference,
    measured_tolerance,
)
from samebits.errors import BadInput

SHAPE = (1, 3, 8, 8)
BASE = np.linspace(-6, 9, 192, dtype=np.float32).reshape(SHAPE)


def shifted(amount, *places):
    """The base with some elements moved, all of them where none is named."""
    output = BASE.copy()
    if places:
        output.ravel()[list(places)] += np.float32(amount)
    else:
        output += np.float32(amount)
    return output


@settings(max_examples=200, deadline=None)
@given(
    outputs=st.lists(
        arrays(np.float32, SHAPE, elements=st.floats(-9, 9, width=32)), min_size=1, max_size=4
    ),
    size=st.sampled_from([1e-7, 1e-5, 1e-3, 1e-2, 1e-1]),
    factor=st.sampled_from([1.0, 2.5, 10.0]),
)
def test_whatever_was_measured_is_held_within_the_limits_of_the_specification(
    outputs, size, factor
):
    measured = [BASE, *(BASE + np.float32(size) * output for output in outputs)]
    try:
        tolerance = measured_tolerance(measured, BASE, factor=factor)
    except BadInput:
        assert size >= 1e-3
        return
    assert all(tolerance.is_kept(a, b) for a in measured for b in measured)
    assert 0 < tolerance.relative_tolerance <= 0.01
    assert 0 < tolerance.absolute_tolerance <= 0.01 * BASE.max()
    assert 0 <= tolerance.mismatched_elements_per_million <= MOST_PER_MILLION
    if tolerance.relative_tolerance < 0.01:
        assert tolerance.mismatched_elements_per_million == 0


@pytest.mark.parametrize("amount", [2e-6, 3e-5, 4e-4, 5e-3])
def test_without_a_factor_it_is_no_wider_than_two_digits_make_it(amount):
    """One step of the second digit less no longer holds: the smallest of all that were allowed."""
    measured = [BASE, shifted(amount, 100)]
    level = measured_tolerance(measured, BASE, factor=1).relative_tolerance
    step = 10.0 ** (np.floor(np.log10(level)) - 1)
    narrower = Tolerance(level - 1.01 * step, 9.0 * (level - 1.01 * step))
    assert not narrower.is_kept(*measured)
    assert measured_tolerance(measured, BASE, factor=10).relative_tolerance == pytest.approx(
        10 * level, rel=0.1
    )


def test_equal_outputs_get_one_rounding_times_the_factor():
    tolerance = measured_tolerance([BASE, BASE.copy()], BASE, factor=10)
    assert tolerance == Tolerance(1.2e-6, 1.1e-5, 0)


def test_beyond_the_limits_the_share_of_elements_grows():
    """One of 192 elements is far off: 5,209 per million, with the factor."""
    tolerance = measured_tolerance([BASE, shifted(4.0, 7)], BASE, factor=1)
    assert tolerance == Tolerance(0.01, 0.089, 5209)
    assert (
        measured_tolerance([BASE, shifted(4.0, 7)], BASE, factor=2).mismatched_elements_per_million
        == 10417
    )


@pytest.mark.parametrize(
    ("outputs", "factor", "message"),
    [
        ([BASE, shifted(4.0, *range(6))], 1, r"3.1 % .* more than the 3 %"),
        ([BASE, shifted(4.0, 7)], 10, r"0.52 % .* times 10 that is more than the 3 %"),
        ([BASE, shifted(np.nan, 7)], 1, "not finite"),
        ([BASE, shifted(np.inf, 7)], 1, "not finite"),
        ([BASE], 0.5, "factor of the tolerance is 0.5; expected a number from 1 on"),
        ([BASE], np.inf, "factor of the tolerance is inf"),
        ([-abs(BASE) - 1], 10, "no number above 0"),
    ],
    ids=["too many", "too many with the factor", "nan", "inf", "factor", "no factor", "negative"],
)
def test_what_no_tolerance_can_hold_is_refused(outputs, factor, message):
    with pytest.raises(BadInput, match=message):
        measured_tolerance(outputs, outputs[0], factor=factor)


def test_the_tolerance_is_of_the_expected_element():
    """9 against 10 is allowed by 0.1 of ten, and not by 0.1 of nine: as in bioimageio.core."""
    nine, ten = np.full((1,), 9.0, np.float32), np.full((1,), 10.0, np.float32)
    tolerance = Tolerance(relative_tolerance=0.1, absolute_tolerance=0.05)
    assert tolerance.is_kept(nine, ten)
    assert not tolerance.is_kept(ten, nine)
    assert largest_difference([nine, ten], scale=1.0) == pytest.approx(0.1)


def test_what_could_hide():
    expected = np.full((1, 3, 10, 10), 5.0, np.float32)
    masks = np.zeros((10, 10), np.uint32)
    masks[1:3, 1:3] = 1
    masks[5:9, 5:9] = 2
    expected[0, 2][masks == 0] = -5
    expected[0, 2][masks == 1] = 0.5 + 1e-4  # a faint object: all of it is near to the threshold
    expected[0, 2, 5, 5] = 0.5 - 1e-4  # a faint corner of a clear one
    hidden = hidden_objects(Tolerance(1e-3, 1e-3), expected, masks, threshold=0.5)
    assert (hidden.n_pixels, hidden.diameter) == (0, 0)
    assert (hidden.n_uncertain_pixels, hidden.n_uncertain_objects) == (5, 1)
    far = hidden_objects(Tolerance(1e-3, 1e-3, 26_667), expected, masks, threshold=2.0)
    assert (far.n_uncertain_pixels, far.n_uncertain_objects) == (0, 0)
    assert far.n_pixels == 8  # of 300 elements
    assert far.diameter == pytest.approx(2 * np.sqrt(8 / np.pi))


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1, "1 pixel of the test output lies so near .* move it across it, and 1 object consists"),
        (
            2,
            "2 pixels of the test output lie so near .* move them across it, and 2 objects consist",
        ),
    ],
)
def test_one_pixel_is_said_as_one(n, expected):
    hidden = HiddenObjects(0, n, n, smallest_object=9)
    assert re.search(expected, hiding_text(hidden))


def test_the_message_of_a_limit_names_the_way_out():
    with pytest.raises(BadInput, match=re.escape("--tolerance-factor")):
        measured_tolerance([BASE, shifted(9.0)], BASE)
