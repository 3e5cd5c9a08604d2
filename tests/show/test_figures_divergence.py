"""Figures of two runs that diverge: what they show, and what they refuse."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.comparison.verdicts import Verdict
from cellrepro.divergence.evidence import Evidence
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.growth import Moment
from cellrepro.divergence.result import Divergence
from cellrepro.show.figures.growth import growth_curve
from cellrepro.show.figures.operations import operations_map
from cellrepro.show.figures.stage_chain import chain
from cellrepro.show.figures.step_map import step_map
from cellrepro.store.ledger import STAGES
from drawn import texts
from samebits.errors import BadInput
from samebits.trace.operation_alignment import align
from samebits.trace.operation_ledger import OperationRow

OP = "aten.mm.default"
LINE = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"
STEP = FirstDifference(
    step=4,
    epoch=0,
    stage="backward",
    names=("m",),
    said="m: 408a8a4b in A, 0c4952cb in B",
    is_of_bits=True,
    op=OP,
    module="m",
    source=LINE,
    phase="backward",
    inputs="agree",
    max_abs=4.4e-11,
)


def ledgers(*differences, n_steps=(24, 24), compared=STAGES, other=()):
    found = tuple(Difference(step, 0, stage, "x", None, None) for step, stage in differences)
    return LedgerComparison(found, Counter(compared), Counter(other), n_steps)


DIVERGENCE = Divergence(
    a="898b5a78f1ed8f9e/0",
    b="898b5a78f1ed8f9e/1",
    first=STEP,
    computed=STEP,
    stages=dict.fromkeys(("backward", "forward", "update", "weights", "flows"), ("x",)),
    judgement="race",
    verdict=Verdict.DIFFERENT,
    comparison=SimpleNamespace(masks={}, weights=None),
    evidence=Evidence("repetition", n_repetitions=7, n_replays=40, flips=3, n_asked=10),
    compared=13,
    ledgers=ledgers((4, "backward"), (5, "update"), (None, "weights")),
)
SAME = replace(DIVERGENCE, first=None, computed=None, stages={}, judgement=None, evidence=None)


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        ({}, "======≠=!≠≠≠=", "≠ first\nstep 4\n= in\nstep 4\n≠ from\nstep 5"),
        (vars(SAME), "=" * 13, "No difference, 13 entries compared"),
        (
            {**vars(SAME), "ledgers": ledgers(other=("batch", "loss"))},
            "=====?=?=====",
            "No difference",
        ),
    ],
    ids=["race", "equal", "different digests"],
)
def test_the_chain_shows_what_agrees_and_what_differs(changes, expected, said):
    found = replace(DIVERGENCE, **changes)
    picture = chain(found)
    known = {"equal": "=", "unknown": "?", "different": "≠", "first": "!"}
    assert "".join(known[box.get_gid()] for box in picture.axes[0].patches) == expected
    assert said in texts(picture)


def fields(picture):
    """Stages by columns: before training, the steps, after it."""
    (mesh,) = picture.axes[0].collections
    return np.asarray(mesh.get_array()).reshape(len(STAGES), -1)


def test_fields_stand_at_their_stage_and_step():
    picture = step_map(DIVERGENCE)
    shown = fields(picture)
    assert shown.shape == (13, 24 + 2)
    places = [(STAGES.index("backward"), 1 + 4), (STAGES.index("update"), 1 + 5), (10, 24 + 1)]
    assert [tuple(place) for place in np.argwhere(shown > 0)] == places
    assert shown[places[0]] == 2
    with pytest.raises(BadInput, match="holds no ledgers"):
        step_map(replace(DIVERGENCE, ledgers=None))


def test_a_field_stands_for_several_of_many_steps():
    found = ledgers((900, "backward"), (4999, "update"), (5003, "loss"), n_steps=(5000, 6000))
    picture = step_map(replace(DIVERGENCE, first=replace(STEP, step=900), ledgers=found))
    assert np.argwhere(fields(picture) > 0).tolist() == [[8, 1 + 18], [9, 1 + 99]]


def test_operations_stand_by_how_far_their_outputs_differ():
    def operation(index, out="a", *, op=OP, norm=1.0, module="m"):
        return OperationRow(
            **{"step": 4, "index": index, "op": op, "module": module, "source": LINE},
            **{"inputs": "i" * 32, "outputs": out * 32, "norm": norm, "phase": "backward"},
            **{"shapes": "2 -> 2", "dtypes": "float32 -> float32"},
        )

    a = [operation(i) for i in range(6)]
    b = [*a[:3], operation(3, "b", norm=1.001), operation(4, "b"), a[5]]
    b.append(operation(6, "c", op="aten.add.default", module="z"))
    picture = operations_map(replace(DIVERGENCE, operations=align(a, b)))
    expected = "outputs in 2 of 6 operations that compute; the first: mm in m, backward"
    assert expected in texts(picture)
    above, foot = picture.axes
    shown = {line.get_gid(): line.get_xydata().tolist() for line in (*above.lines, *foot.lines)}
    assert shown["norms"] == [[3, pytest.approx(0.001 / 1.001)], [4, 0]]
    stand = {name: [x for x, _ in places] for name, places in shown.items()}
    assert (stand["named"], stand["equal bits"]) == ([3, 3], [0, 1, 2, 5])
    assert (stand["different bits"], stand["only in B"]) == ([3, 4], [5])
    assert "only in A" not in stand
    same_norms = [*a[:3], operation(3, "b"), *a[4:]]
    assert len(operations_map(replace(DIVERGENCE, operations=align(a, same_norms))).axes) == 1
    with pytest.raises(BadInput, match="were not seen"):
        operations_map(DIVERGENCE)


def test_growth_has_a_panel_for_everything_that_was_measured():
    moments = [
        Moment(1, 0, 1000, 0.0, 0.0, 0, 0, ap50_a=0.1, ap50_b=0.1),
        Moment(2, 40, 1000, math.inf),
        Moment(3, 1000, 1000, 3e-5, 12000.0, 4, 3, ap50_a=0.7, ap50_b=0.6),
    ]
    picture = growth_curve(moments)
    assert "1.2 % of the pixels" in texts(picture)
    assert "100 % of the weights differ" in picture.caption
    weights, _, cells, scores = picture.axes
    assert weights.lines[0].get_xydata().tolist() == [[1, 0], [2, math.inf], [3, 3e-5]]
    bars = {found.get_label(): [bar.get_height() for bar in found] for found in cells.containers}
    assert bars == {"of B": [0, 3], "of A": [0, -4]}
    assert [line.get_ydata().tolist() for line in scores.lines] == [[0.1, 0.7], [0.1, 0.6]]
    same_cells = [replace(moment, lost=0, gained=0) for moment in moments]
    assert len(growth_curve(same_cells).axes) == 3
    assert len(growth_curve([replace(moment, ppm=0.0) for moment in same_cells]).axes) == 2
    with pytest.raises(BadInput, match="no moment was given"):
        growth_curve([])
