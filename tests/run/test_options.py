"""Options are keywords that editors know; names that come as data are refused with the near one."""

import ast
from pathlib import Path

import pytest

from cellrepro.grid.task_options import options_by_name
from cellrepro.run import options
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from samebits.errors import BadInput

NOWHERE = "no/such/folder"
SOURCES = Path(options.__file__).parents[1]


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


@pytest.mark.parametrize(
    "source",
    [path for path in SOURCES.rglob("*.py") if ".among(locals())" in path.read_text("utf-8")],
    ids=lambda source: source.stem,
)
def test_a_parameter_beside_a_record_of_options_is_one_of_them_or_is_read(source):
    """`among` passes over what the record lacks, so a parameter of another name would be lost."""
    for function in ast.parse(source.read_text("utf-8")).body:
        names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        if not isinstance(function, ast.FunctionDef) or "locals" not in names:
            continue
        (kind,) = names & {"SegmentationOptions", "TrainingOptions", "WrapOptions"}
        given = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
        assert given <= {*getattr(options, kind).model_fields} | names
