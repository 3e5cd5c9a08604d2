"""A setting that an image does not allow is refused with the limit, not by a different library."""

import numpy as np
import pytest

from cellrepro.model.evaluator import evaluator
from cellrepro.model.network import seeded_network
from cellrepro.model.segmentation_limits import refuse_impossible
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.planning import plan_segmentation
from samebits.errors import BadInput


@pytest.mark.parametrize(
    ("shape", "stack", "options", "expected"),
    [
        ((80, 96), False, {"diameter": 2401.0}, "give 2400 or less"),
        ((80, 96, 3), False, {"diameter": 100_000.0}, "80 x 96 pixels"),
        ((5, 80, 96), True, {"diameter": 151.0, "do_3D": True}, "of the 5 planes .* none"),
        ((80, 96), False, {"diameter": 1e-4}, "more pixels than OpenCV can count"),
        ((80, 96), False, {"diameter": 0.14}, "less than one step"),
        ((80, 96, 3), False, {"normalize": {"lowhigh": ((0, 1), (0, 2))}}, "is given 3 channels"),
    ],
)
def test_limits(shape, stack, options, expected):
    with pytest.raises(BadInput, match=expected):
        refuse_impossible(shape, options, stack=stack, name="cells")


@pytest.mark.parametrize(
    ("shape", "stack", "options"),
    [
        ((80, 96), False, {}),
        ((80, 96), False, {"diameter": 2400.0}),
        ((5, 80, 96), True, {"diameter": 2400.0}),
        ((80, 96), False, {"diameter": 0.15}),
        ((80, 96), False, {"diameter": 0.14, "niter": 5}),
        ((80, 96, 2), False, {"normalize": {"lowhigh": ((0, 1), (0, 2))}}),
        ((80, 96, 2), False, {"normalize": {"lowhigh": (0, 1)}}),
    ],
)
def test_just_within(shape, stack, options):
    refuse_impossible(shape, options, stack=stack)


# Cellpose 4.2.1.1 makes a sparse tensor in dynamics.py; PyTorch 2.15 would be asked to check.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_what_is_let_through_works(one_thread):
    """The largest diameter, and as many pairs as channels; else OpenCV or Cellpose would fail."""
    evaluate = evaluator(seeded_network("tiny", seed=0))
    image = np.zeros((20, 24, 2), np.uint8)
    image[4:9, 4:9] = 255
    evaluate(image, diameter=600.0)
    with pytest.raises(BadInput, match="give 600 or less"):
        evaluate(image, diameter=601.0)
    evaluate(image, normalize={"lowhigh": ((0, 255), (0, 255))})


def test_a_plan_names_the_image(small_data, no_child):
    with pytest.raises(BadInput, match=r"diameter is 100000: synth_003, .* give 7680 or less"):
        plan_segmentation(SegmentationOptions(data=small_data, settings={"diameter": 100_000}))
    with pytest.raises(BadInput, match=r"batch_size is 4 and settings.batch_size 2"):
        plan_segmentation(
            SegmentationOptions(data=small_data, batch_size=4, settings={"batch_size": 2})
        )
    assert (
        plan_segmentation(
            SegmentationOptions(data=small_data, batch_size=4)
        ).spec.settings.batch_size
        == 4
    )
