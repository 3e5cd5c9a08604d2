"""A benchmark can miss: what was not measured meets no target."""

import math

import pytest
from benchmarks.measuring import Figure


@pytest.mark.parametrize("value", [0.0, -0.071, math.nan, math.inf])
def test_what_was_not_measured_is_no_figure(value):
    with pytest.raises(ValueError, match="measures nothing"):
        Figure("memory, GB", value, "<= 0.5", "peak of the process")


@pytest.mark.parametrize(("value", "met"), [(0.4, True), (0.6, False)])
def test_a_figure_meets_its_target_or_misses_it(value, met):
    assert Figure("memory, GB", value, "<= 0.5", "peak of the process").met is met
    assert Figure("memory, GB", value, "", "peak of the process").met is None
