"""How far the stages of two segmentations lie apart."""

import numpy as np

from cellrepro.divergence.stages_apart import _largest_difference


def test_what_is_no_number_on_both_sides_does_not_differ():
    a = [np.array([np.nan, np.inf, 1.0])]
    b = [np.array([np.nan, np.inf, 2.0])]
    largest = _largest_difference(a, b)
    assert (largest.max_abs, largest.n_differing, largest.position) == (1.0, 1, (2,))
