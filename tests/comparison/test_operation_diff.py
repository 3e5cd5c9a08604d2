"""Operations of two runs side by side: hand-made lists, and differences planted in them."""

import math
from dataclasses import replace

import pytest

from cellrepro.comparison.operation_diff import first_divergence, judge_round_off
from samebits.errors import BadInput
from samebits.trace.operation_alignment import align
from samebits.trace.operation_ledger import OperationRow

ROW = OperationRow(
    0, 0, "aten.mul.Tensor", "block", "net.py:10 in forward", "forward", inputs="1111",
    outputs="2222", shapes="2x3 -> 2x3", dtypes="float32 -> float32",
)  # fmt: skip


def some(op="mul.Tensor", **fields):
    """An operation by its name without the library."""
    return replace(ROW, op=f"aten.{op}", **fields)


def view(op="view.default", **fields):
    return some(op, outputs="", **fields)


def numbered(*rows):
    """The rows in this order of execution."""
    return [replace(row, index=index) for index, row in enumerate(rows)]


def positions(aligned):
    """Which index of A belongs to which of B."""
    return [(a.index, b.index) for a, b in aligned.pairs]


def indices(rows):
    return [row.index for row in rows]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([some("add.Tensor")], [some("add_.Scalar")], [(0, 0)]),
        ([some(module="x")], [some(module="y")], []),
        ([some()], [some(source=None, shapes="9 -> 9")], [(0, 0)]),
        ([some(source=f"net.py:1 in {name}") for name in "fgg"],
         [some(source=f"net.py:1 in {name}") for name in "ggf"], [(1, 0), (2, 1)]),
        ([some("add.Tensor")], [some("add_.Tensor"), some("add.Tensor")], [(0, 1)]),
        ([some()], [some(shapes="9"), some()], [(0, 1)]),
        ([some("add.Tensor"), some()], [some(), some("add.Scalar")], [(1, 0)]),
    ],
    ids=["other overload, in place", "other module", "other function and shapes",
         "functions in a different order", "exact name first", "equal shapes first",
         "in order between anchors"],
)  # fmt: skip
def test_which_operations_correspond(a, b, expected):
    found = align(numbered(*a), numbered(*b))
    assert positions(found) == expected
    assert indices(found.only_a) == [i for i in range(len(a)) if i not in dict(expected)]
    mirrored = align(numbered(*b), numbered(*a))
    assert sorted((i, j) for j, i in positions(mirrored)) == expected


def test_modules_in_another_order():
    """The backward pass of two branches may run in either order."""
    left = [some(op, module="left", phase="backward") for op in ("bmm.default", "sum.default")]
    right = [some(op, module="right", phase="backward") for op in ("bmm.default", "mul.Tensor")]
    found = align(numbered(*left, *right)[::-1], numbered(*right, *left))
    assert positions(found) == [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert found.sentence() == "all 4 operations correspond"
    with pytest.raises(BadInput, match="operations of several steps"):
        align([], [ROW, replace(ROW, step=5, index=1)])


def test_other_kernels():
    """Fused attention on one side, its parts on the other, with a clone and a copy between."""
    linear, norm = some("addmm.default"), some("native_layer_norm.default")
    parts = [some(f"{name}.default") for name in ("bmm", "_softmax", "clone", "bmm")]
    a = numbered(norm, linear, some("_flash_attention.default"), view("transpose.int"), linear)
    b = numbered(norm, some("_to_copy.default"), linear, *parts, view("transpose.int"), linear)
    found = align(a, b)
    assert positions(found) == [(0, 0), (1, 2), (3, 7), (4, 8)]
    assert (indices(found.only_a), indices(found.only_b)) == ([2], [1, 3, 4, 5, 6])
    assert found.sentence() == (
        "4 operations correspond; only A ran 1 (aten._flash_attention.default in block), only B "
        "ran 5 (aten._to_copy.default in block, aten.bmm.default in block, aten._softmax.default "
        "in block, …)"
    )


def diverging(a, b):
    return first_divergence(align(a, b))


def step(line=1, planted=9):
    """Five operations of which each takes what the one before it gave."""
    digests = [f"{n:03}{int(n > planted)}" for n in range(6)]
    return [
        some(op, source=f"net.py:{line + n} in f", inputs=digests[n], outputs=digests[n + 1])
        for n, op in enumerate(("add.Tensor", "mul.Tensor", "add.Tensor", "bmm.default", "sum.dim"))
    ]


def test_a_planted_difference_is_found():
    """Among shifted lines, and views of equal bits on one side; a later one only inherits."""
    b = step(line=30, planted=2)
    found = diverging(numbered(*step()), numbered(view(), *b[:2], view("alias.default"), *b[2:]))
    assert (found.a.index, found.b.index, found.inputs) == (2, 4, "agree")
    assert "agree in 2 operations before it and differ in 2 after it" in found.in_words


def test_the_cause_comes_before_what_inherits():
    """What differs by its inputs is passed over, however early, and is counted."""
    rows = numbered(some(), some("add.Tensor"), some("sub.Tensor", draws=True))
    b = [replace(rows[0], inputs="9999", outputs="9999"), rows[1], replace(rows[2], outputs="8888")]
    found = diverging(rows, b)
    assert (found.a.index, found.inputs) == (2, "agree")
    assert found.in_words.endswith(
        "agree and whose outputs differ; it may draw random numbers; outputs agree in 1 operation "
        "before it and differ in 0 after it; before it 1 operation differs too, by what went in"
    )


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"inputs": ""}, {}, "unknown"),
        ({"inputs": "", "dtypes": " -> f"}, {"inputs": "", "dtypes": " -> f"}, "agree"),
        ({"inputs": "", "dtypes": " -> f"}, {"inputs": "", "dtypes": "f -> f"}, "unknown"),
    ],
    ids=["missing", "no tensor", "one takes one"],
)
def test_whether_inputs_agree(a, b, expected):
    found = diverging([replace(ROW, **a)], [replace(ROW, **{"outputs": "5555", **b})])
    assert found.inputs == expected


def test_nothing_diverges():
    a = numbered(*step())
    other_digests = [replace(row, outputs="5" * 64) for row in a]
    for b in (a, [], other_digests, numbered(*a, view(), view())):
        assert diverging(a, b) is None


def judged(ulp, limit=4.0, **fields):
    return replace(ROW, ulp=ulp, limit=limit, **fields)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([judged(1.0)], [ROW], "unknown"),
        ([judged(1.0)], [judged(4.0)], "round-off"),
        ([judged(1.0)], [judged(math.nextafter(4.0, 5))], "fault"),
        ([judged(0.0, 0.0)], [judged(1e-9, 0.0)], "fault"),
        ([judged(math.nan)], [judged(1.0)], "fault"),
        ([judged(math.inf, math.inf)], [judged(9.0, math.inf)], "round-off"),
    ],
    ids=["one side judged", "at the limit", "just above", "not exact", "not a number", "no limit"],
)
def test_round_off(a, b, verdict):
    found, sentence = judge_round_off(a, b)
    assert found == verdict
    assert sentence.startswith(verdict)
