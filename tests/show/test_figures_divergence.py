"""Figures of two runs that diverge: what they show, and what they refuse."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from cellrepro.compare.ledger_diff import Difference, LedgerComparison
from cellrepro.compare.operation_alignment import align
from cellrepro.compare.verdicts import Verdict
from cellrepro.errors import BadInput
from cellrepro.lab.divergence.result import JUDGEMENTS, Divergence, Evidence, Place
from cellrepro.lab.growth import Moment
from cellrepro.show import operation_tables
from cellrepro.show.figures.divergence import chain, step_map
from cellrepro.show.figures.growth import growth_curve
from cellrepro.show.figures.operations import operations_map
from cellrepro.store.ledger import STAGES
from cellrepro.trace.operation_ledger import OperationRow
from drawn import texts

OP = "aten.index_put.default"
LINE = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"
BARE = dict.fromkeys(("op", "module", "source", "phase", "max_abs", "n_elements", "inputs"))


def place(**changes):
    fields = {
        "step": 4,
        "epoch": 0,
        "stage": "backward",
        "names": ("encoder.blocks.0",),
        "said": "encoder.blocks.0: 408a8a4b in A, 0c4952cb in B",
        "op": OP,
        "module": "encoder.blocks.0.attn",
        "source": LINE,
        "phase": "backward",
        "max_abs": 4.4e-11,
        "n_elements": 12,
        "inputs": "agree",
    }
    return Place(**{**fields, **changes})


SEED = place(step=None, epoch=None, stage="spec", said="seed: 0 in A, 1 in B", **BARE)
FILE = place(step=None, epoch=None, stage="weights", said="file: 408a8a4b in A, 0 in B", **BARE)


def ledgers(*differences, n_steps=(24, 24), compared=STAGES, other=()):
    found = tuple(Difference(step, 0, stage, "x", None, None) for step, stage in differences)
    return LedgerComparison(found, Counter(compared), Counter(other), n_steps)


def divergence(**changes):
    fields = {
        "a": "898b5a78f1ed8f9e/0",
        "b": "898b5a78f1ed8f9e/1",
        "first": place(),
        "computed": place(),
        "stages": dict.fromkeys(("backward", "forward", "update", "weights", "flows"), ("x",)),
        "judgement": "race",
        "verdict": Verdict.DIFFERENT,
        "comparison": SimpleNamespace(masks={}),
        "evidence": None,
        "n_compared": 13,
        "ledgers": ledgers((4, "backward"), (5, "update"), (None, "weights")),
    }
    return Divergence(**{**fields, **changes})


NOTHING = {"first": None, "computed": None, "stages": {}, "judgement": None}


# -- stages --------------------------------------------------------------------------------


def states(picture):
    """The states of the boxes, left to right."""
    known = {"equal": "=", "unknown": "?", "different": "≠", "first": "!"}
    return "".join(known[box.get_gid()] for box in picture.axes[0].patches)


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        ({}, "======≠=!≠≠≠=", "The two runs diverge at step 4: backward"),
        (NOTHING, "=" * 13, "No difference, 13 entries compared"),
        (
            {"first": SEED, "stages": dict.fromkeys(STAGES[1:], ("x",))},
            "=!≠≠≠≠≠≠≠≠≠≠≠",
            "The two runs diverge before training: spec",
        ),
        (
            {
                **{"first": FILE, "computed": None, "stages": {"weights": ("file",)}},
                "ledgers": ledgers(compared=(*STAGES[:4], "weights", "masks")),
            },
            "====??????!?=",
            "The two runs diverge after training: weights",
        ),
        ({**NOTHING, "ledgers": ledgers(other=("batch", "loss"))}, "=====?=?=====", "="),
    ],
    ids=["race", "equal", "seed", "no ledger", "other digests"],
)
def test_the_chain_shows_what_agrees_and_what_differs(changes, expected, said):
    found = divergence(**changes)
    picture = chain(found)
    assert states(picture) == expected
    assert said in texts(picture)
    assert found.sentence()[1:] in picture.caption


# -- steps ---------------------------------------------------------------------------------


def fields(picture):
    """Stages by columns: before training, the steps, after it."""
    (mesh,) = picture.axes[0].collections
    return np.asarray(mesh.get_array()).reshape(len(STAGES), -1)


def test_fields_stand_at_their_stage_and_step():
    picture = step_map(divergence())
    assert "first: step 4, backward" in texts(picture)
    shown = fields(picture)
    assert shown.shape == (13, 24 + 2)
    assert shown[STAGES.index("backward"), 1 + 4] == 2
    assert shown[STAGES.index("update"), 1 + 5] == 1
    assert shown[STAGES.index("weights"), -1] == 1
    assert np.nansum(shown) == 2 + 1 + 1
    assert "Differs: forward, backward, update, weights, flows." in picture.alt


def test_a_field_stands_for_several_of_many_steps():
    found = ledgers((900, "backward"), (4999, "update"), (5003, "loss"), n_steps=(5000, 6000))
    picture = step_map(divergence(first=place(step=900), ledgers=found))
    shown = fields(picture)
    assert shown.shape == (13, 100 + 2)
    assert np.argwhere(shown > 0).tolist() == [[8, 1 + 18], [9, 1 + 99]]
    assert "A field stands for 50 steps" in picture.caption
    assert "A made 5000 steps and B 6000" in picture.caption


def test_what_differs_beside_the_steps_is_named():
    picture = step_map(divergence(first=SEED, ledgers=ledgers((None, "spec"), n_steps=(0, 0))))
    assert np.argwhere(fields(picture) > 0).tolist() == [[1, 0]]
    assert "first: spec; seed: 0 in A, 1 in B" in texts(picture)
    with pytest.raises(BadInput, match="holds no ledgers"):
        step_map(divergence(ledgers=None))


# -- operations ----------------------------------------------------------------------------


def operation(index, out="a", *, op="aten.mm.default", norm=1.0, module="m"):
    return OperationRow(
        **{"step": 4, "index": index, "op": op, "module": module, "source": LINE},
        **{"inputs": "i" * 32, "outputs": out * 32, "norm": norm, "phase": "forward"},
        **{"shapes": "2 -> 2", "dtypes": "float32 -> float32"},
    )


def test_operations_stand_by_how_far_their_outputs_differ():
    a = [operation(i) for i in range(6)]
    b = [*a[:3], operation(3, "b", norm=1.001), operation(4, "b"), a[5]]
    b.append(operation(6, "c", op="aten.add.default", module="z"))
    at = place(op="aten.mm.default", module="m", phase="forward", source=LINE)
    picture = operations_map(divergence(operations=align(a, b), computed=at))
    assert "Other outputs in 2 of 6 operations; they diverge at mm in m, forward" in texts(picture)
    above, foot = picture.axes
    shown = {line.get_gid(): line.get_xydata().tolist() for line in (*above.lines, *foot.lines)}
    assert shown["norms"] == [[3, pytest.approx(0.001 / 1.001)]]
    assert [x for x, _ in shown["named"]] == [3, 3]
    assert [x for x, _ in shown["equal bits"]] == [0, 1, 2, 5]
    assert [x for x, _ in shown["other bits"]] == [3, 4]
    assert [x for x, _ in shown["only in B"]] == [5]
    with pytest.raises(BadInput, match="were not seen"):
        operations_map(divergence(operations=None))


# -- epochs --------------------------------------------------------------------------------


def test_growth_has_a_panel_for_everything_that_was_measured():
    moments = [
        Moment(1, 8, 0, 1000, 0.0, 0.0, 0, 0, ap50=(0.1, 0.1)),
        Moment(2, 16, 40, 1000, math.inf),
        Moment(3, 24, 1000, 1000, 3e-5, 12000.0, 4, 3, ap50=(0.7, 0.6)),
    ]
    picture = growth_curve(moments, at_operation=4.4e-11)
    written = texts(picture)
    assert "The weights drift apart: 0 to 3e-05; 12 000 ppm of the pixels" in written
    assert "not\nfinite" in written
    assert "they differed by 4.4e-11" in picture.caption
    weights, pixels, cells, scores, shares = picture.axes
    assert weights.lines[0].get_xydata().tolist() == [[1, 0], [2, math.inf], [3, 3e-5]]
    assert pixels.lines[0].get_ydata().tolist() == [0, 12000]
    assert [bar.get_height() for bar in shares.patches] == [0, 4, 100]
    bars = {found.get_label(): [bar.get_height() for bar in found] for found in cells.containers}
    assert bars == {"gained": [0, 3], "lost": [0, -4]}
    assert [line.get_ydata().tolist() for line in scores.lines] == [[0.1, 0.7], [0.1, 0.6]]
    assert "stay equal" in texts(growth_curve(moments[:1]))
    with pytest.raises(BadInput, match="no moment was given"):
        growth_curve([])


# -- evidence ------------------------------------------------------------------------------


def test_the_evidence_answers_every_question():
    evidence = Evidence("repetition", n_repetitions=7, n_replays=40, flips=3, n_asked=10)
    shown = operation_tables.evidence_table(divergence(evidence=evidence))["what was found"]
    assert shown["they diverge at"].startswith("step 4, backward")
    assert shown["judgement"] == JUDGEMENTS["race"]
    assert shown["operation"] == OP
    assert shown["largest difference"] == "4.4e-11"
    assert shown["of these, with other bits"] == "3"
    empty = operation_tables.evidence_table(divergence(**NOTHING))["what was found"]
    assert empty.index.tolist() == shown.index.tolist()
    assert empty["operation"] == "-"
