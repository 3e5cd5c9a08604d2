"""Options are keywords that editors know; names that come as data are refused with the near one."""

import pytest

from cellrepro.grid.task_options import options_by_name
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from samebits.errors import BadInput

NOWHERE = "no/such/folder"


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (TrainingOptions, "epoch", r"train has no option epoch; do you mean epochs\?"),
        (TrainingOptions, "settings", "one of segment: a training segments with"),
        (TrainingOptions, "program", "program, which is one of wrap"),
        (SegmentationOptions, "epochs", "epochs, which is one of train"),
        (SegmentationOptions, "modle", r"mean mode or model\?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_near_one(kind, name, expected):
    with pytest.raises(BadInput, match=expected):
        options_by_name(kind, {"data": NOWHERE, name: 3})


def test_an_option_of_another_task_may_have_its_usual_value():
    usual = {"data": NOWHERE, "cellpose": None, "settings": None}
    assert options_by_name(TrainingOptions, usual) == TrainingOptions(data=NOWHERE)
    usual = {"data": NOWHERE, "weight_decay": 0.1, "data_seed": "cellpose"}
    assert options_by_name(SegmentationOptions, usual) == SegmentationOptions(data=NOWHERE)
