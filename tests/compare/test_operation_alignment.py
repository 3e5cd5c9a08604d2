"""Operations of two runs side by side: hand-made lists, planted differences, clean ones too."""

import hashlib
import math
import random
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellrepro.compare import operation_alignment as alignment_module
from cellrepro.compare.operation_alignment import (
    HANDFUL,
    Alignment,
    DivergingOperation,
    align,
    first_divergence,
    growth,
    judge_round_off,
)
from cellrepro.errors import BadInput

# derandomize: the same examples everywhere and no example database left behind
PROPERTY = settings(derandomize=True, deadline=None, max_examples=100)


@dataclass(frozen=True, slots=True)
class Row:
    """One operation, as the ledger of operations stores it."""

    step: int = 0
    index: int = 0
    op: str = "aten.mul.Tensor"
    module: str | None = "block"
    source: str | None = "net.py:10 in forward"
    phase: str = "forward"
    inputs: str = "1111"
    outputs: str = "2222"
    shapes: str = "2x3 -> 2x3"
    dtypes: str = "float32 -> float32"
    norm: float | None = 1.0
    draws: bool = False
    ulp: float | None = None
    limit: float | None = None
    problem: str | None = None


def some(op, **fields):
    """An operation by its name without the library."""
    return Row(op=f"aten.{op}", **fields)


def view(op="view.default", **fields):
    return some(op, outputs="", norm=None, **fields)


def numbered(*rows):
    """The rows in this order of execution."""
    return [replace(row, index=index) for index, row in enumerate(rows)]


def positions(aligned):
    """Which index of A belongs to which of B."""
    return [(a.index, b.index) for a, b in aligned.pairs]


def indices(rows):
    return [row.index for row in rows]


def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def computed(rows, start="batch"):
    """The rows with the digests of a chain: each takes what the one before it gave.

    An operation's ``shapes`` and name make its output; a note in ``norm`` plants an error.
    """
    state, chain = digest(start), []
    for index, row in enumerate(rows):
        if row.outputs:
            after = digest(state, row.op, row.norm)
            chain.append(replace(row, index=index, inputs=state, outputs=after))
            state = after
        else:
            chain.append(replace(row, index=index, inputs=state))
    return chain


def some_step(n=60, seed=0):
    """A step of a small network: three modules forward, backward again, then the update."""
    rng = random.Random(seed)
    ops = ["add.Tensor", "mul.Tensor", "bmm.default", "view.default", "_softmax.default"]
    rows = []
    for at in range(n):
        module, phase = [("a", "forward"), ("b", "forward"), ("b", "backward"), (None, "update")][
            4 * at // n
        ]
        name = rng.choice(ops)
        make = view if name.startswith("view") else some
        source = f"net.py:{rng.randrange(9)} in {phase}"
        rows.append(make(name, module=module, phase=phase, source=source))
    return computed(rows)


# -- align: one rule each --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([], [], []),
        ([some("mul.Tensor")], [], []),
        ([some("mul.Tensor")], [some("mul.Tensor")], [(0, 0)]),
        ([some("mul.Tensor")], [some("add.Tensor")], []),
        ([some("add.Tensor")], [some("add_.Tensor")], [(0, 0)]),
        ([some("add.Tensor")], [some("add.Scalar")], [(0, 0)]),
        ([some("add.Tensor")], [some("addmm.default")], []),
        ([some("mul.Tensor", module="x")], [some("mul.Tensor", module="y")], []),
        ([some("mul.Tensor", module=None)], [some("mul.Tensor")], []),
        ([some("mul.Tensor")], [some("mul.Tensor", phase="backward")], []),
        ([some("mul.Tensor")], [some("mul.Tensor", source=None)], [(0, 0)]),
        ([some("mul.Tensor")], [some("mul.Tensor", shapes="3x2 -> 3x2")], [(0, 0)]),
        (
            [some("mul.Tensor", source="net.py:10 in forward")],
            [some("mul.Tensor", source="other.py:99 in call")],
            [(0, 0)],
        ),
        (
            [some("mul.Tensor")],
            [some("mul.Tensor", source="other.py:99 in call", shapes="3x2 -> 3x2")],
            [(0, 0)],
        ),
        (  # better one unpaired than two of other functions paired
            [some("mul.Tensor", source=f"net.py:1 in {name}") for name in "fgg"],
            [some("mul.Tensor", source=f"net.py:1 in {name}") for name in "ggf"],
            [(1, 0), (2, 1)],
        ),
        (  # the exact name wins over the order
            [some("add.Tensor")],
            [some("add_.Tensor"), some("add.Tensor")],
            [(0, 1)],
        ),
        (
            [some("mul.Tensor")],
            [some("mul.Tensor", shapes="9 -> 9"), some("mul.Tensor")],
            [(0, 1)],
        ),
        (
            [some("mul.Tensor")],
            [some("mul.Tensor", source="net.py:10 in helper"), some("mul.Tensor")],
            [(0, 1)],
        ),
        (  # base name: function and shapes, before shapes, before function, before nothing
            [some("add.Tensor")],
            [some("add.Scalar", source=None), some("add.Scalar"), some("add.Scalar", shapes="")],
            [(0, 1)],
        ),
        (
            [some("add.Tensor")],
            [some("add.Scalar", shapes=""), some("add.Scalar", source=None)],
            [(0, 1)],
        ),
        (
            [some("add.Tensor")],
            [some("add.Scalar", shapes="", source=None), some("add.Scalar", shapes="")],
            [(0, 1)],
        ),
        (  # base names only between what corresponds for certain
            [some("add.Tensor"), some("mul.Tensor")],
            [some("mul.Tensor"), some("add.Scalar")],
            [(1, 0)],
        ),
        (
            [some("_foreach_add_.List", module=None, phase="update")],
            [some("add_.Tensor", module=None, phase="update")] * 3,
            [],
        ),
    ],
    ids=[
        "nothing",
        "nothing on one side",
        "equal",
        "other operation",
        "in place",
        "other overload",
        "only a common start",
        "other module",
        "no module",
        "other phase",
        "no source",
        "other shapes",
        "other function",
        "other function and shapes",
        "functions in another order",
        "exact name first",
        "equal shapes first",
        "equal function first",
        "base name: function and shapes first",
        "base name: then shapes",
        "base name: then function",
        "in order between anchors",
        "foreach",
    ],
)
def test_align_rules(a, b, expected):
    actual = align(numbered(*a), numbered(*b))
    assert positions(actual) == expected
    assert indices(actual.only_a) == [i for i in range(len(a)) if i not in dict(expected)]
    assert indices(actual.only_b) == [
        j for j in range(len(b)) if j not in [pair[1] for pair in expected]
    ]
    mirrored = align(numbered(*b), numbered(*a))
    assert sorted((i, j) for j, i in positions(mirrored)) == expected


def test_align_prefers_equal_lines():
    """Two lines of one function do the same; one side left the first of them out."""
    first, second = (some("mul.Tensor", source=f"net.py:{line} in f") for line in (10, 12))
    assert positions(align(numbered(first, second), numbered(second))) == [(1, 0)]


def test_align_prefers_equal_digests():
    """In a loop over one line only the values tell which turn is missing."""
    turns = [some("mul.Tensor", inputs=f"a{n}a{n}", outputs=f"b{n}b{n}") for n in range(4)]
    a = numbered(*turns)
    assert positions(align(a, numbered(turns[0], turns[2], turns[3]))) == [(0, 0), (2, 1), (3, 2)]


def test_align_equal_digests_cost_no_pair():
    """A zero that comes first on one side and last on the other must not pull the rest apart."""
    zero = some("mul.Tensor", inputs="0000", outputs="0000")
    turns = [some("mul.Tensor", outputs=f"{n}{n}{n}{n}") for n in range(1, 6)]
    a, b = numbered(zero, turns[0], turns[1]), numbered(turns[2], turns[3], turns[4], zero)
    assert len(align(a, b).pairs) == 3


def test_align_lines_decide_where_digests_mislead():
    zero = {"inputs": "0000", "outputs": "0000"}
    a = numbered(*(some("mul.Tensor", source=f"net.py:{line} in f") for line in (5, 10, 12)))
    a[0], b = replace(a[0], **zero), numbered(a[1], replace(a[2], **zero))
    a[2] = replace(a[2], outputs="3333")
    b[0] = replace(b[0], outputs="4444")
    assert positions(align(a, b)) == [(1, 0), (2, 1)]


def test_align_shifted_lines():
    """A comment more in the library: line 12 is now what line 10 was, and so on."""
    a = numbered(*(some("mul.Tensor", source=f"net.py:{line} in f") for line in (10, 12, 14)))
    b = [
        replace(row, source=f"net.py:{line} in f")
        for row, line in zip(a, (12, 14, 16), strict=True)
    ]
    assert positions(align(a, b)) == [(0, 0), (1, 1), (2, 2)]
    assert len(align(a, [*b, replace(b[0], index=3, op="aten.sub.Tensor")]).pairs) == 3


def test_align_reordered_modules():
    """The backward pass of two branches may run in either order."""
    left = [some(op, module="left", phase="backward") for op in ("bmm.default", "sum.default")]
    right = [some(op, module="right", phase="backward") for op in ("bmm.default", "mul.Tensor")]
    actual = align(numbered(*left, *right), numbered(*right, *left))
    assert positions(actual) == [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert actual.n_moved == 2
    assert actual.only_a == actual.only_b == ()
    interleaved = align(numbered(*left, *right), numbered(left[0], right[0], left[1], right[1]))
    assert len(interleaved.pairs) == 4
    assert interleaved.n_moved == 1


def test_align_other_kernels():
    """Fused attention on one side, its parts on the other, with a clone and a copy between."""
    linear, norm = some("addmm.default"), some("native_layer_norm.default")
    a = numbered(norm, linear, view(), some("_scaled_dot_product_flash_attention_for_cpu.default"),
                 view("transpose.int"), linear)  # fmt: skip
    b = numbered(norm, some("_to_copy.default"), linear, view(), view("expand.default"),
                 some("bmm.default"), some("_softmax.default"), some("clone.default"),
                 some("bmm.default"), view("transpose.int"), linear)  # fmt: skip
    actual = align(a, b)
    assert positions(actual) == [(0, 0), (1, 2), (2, 3), (4, 9), (5, 10)]
    assert indices(actual.only_a) == [3]
    assert indices(actual.only_b) == [1, 4, 5, 6, 7, 8]


def test_align_optimizers():
    """Foreach against one parameter after the other: nothing pairs, what is around it does."""
    place = {"module": None, "phase": "update"}
    a = numbered(some("_foreach_add_.List", **place), some("_foreach_mul_.Scalar", **place))
    single = [some("add_.Tensor", **place), some("mul_.Tensor", **place)] * 3
    zero = some("zero_.default", **place)
    assert positions(align([*a, replace(zero, index=2)], numbered(*single, zero))) == [(2, 6)]


def test_align_sorts_by_index():
    rows = numbered(some("mul.Tensor"), some("add.Tensor"), some("sub.Tensor"))
    actual = align(rows[::-1], rows)
    assert positions(actual) == [(0, 0), (1, 1), (2, 2)]
    assert actual.n_moved == 0


@pytest.mark.parametrize("side", ["a", "b"])
def test_align_refuses_several_steps(side):
    mixed = [Row(step=3), Row(step=5, index=1)]
    lists = {"a": [], "b": [], side: mixed}
    with pytest.raises(BadInput, match=rf"^{side} holds operations of 2 steps \(3 to 5\); give"):
        align(**lists)


def test_align_takes_other_steps():
    """One step may be compared with a later one."""
    assert len(align([Row(step=0)], [Row(step=7)]).pairs) == 1


# -- align: properties -----------------------------------------------------------------------

operations = st.builds(
    Row,
    op=st.sampled_from(["aten.add.Tensor", "aten.add_.Tensor", "aten.mul.Tensor"]),
    module=st.sampled_from(["x", "y", None]),
    source=st.sampled_from(["net.py:1 in f", "net.py:2 in f", "net.py:9 in g", "odd", None]),
    phase=st.sampled_from(["forward", "backward"]),
    outputs=st.sampled_from(["", "0000", "1111"]),
    shapes=st.sampled_from(["2 -> 2", "3 -> 3"]),
)
lists = st.lists(operations, max_size=25).map(lambda rows: numbered(*rows))


@PROPERTY
@given(lists)
def test_aligned_with_itself(rows):
    actual = align(rows, rows)
    assert actual.pairs == tuple((row, row) for row in rows)
    assert (actual.only_a, actual.only_b, actual.n_moved) == ((), (), 0)
    assert first_divergence(rows, rows, actual) is None
    assert growth(actual) == []


@PROPERTY
@given(lists, lists)
def test_aligned_whatever_comes(a, b):
    """Nothing is lost or taken twice, phase, module and base name agree, and order holds."""
    actual = align(a, b)
    assert sorted([*indices(x for x, _ in actual.pairs), *indices(actual.only_a)]) == indices(a)
    assert sorted([*indices(y for _, y in actual.pairs), *indices(actual.only_b)]) == indices(b)
    assert positions(actual) == sorted(positions(actual))
    latest = {}
    for x, y in actual.pairs:
        assert (x.phase, x.module) == (y.phase, y.module)
        assert x.op.replace("_.", ".") == y.op.replace("_.", ".")
        assert latest.get((x.phase, x.module), -1) < y.index
        latest[x.phase, x.module] = y.index


@PROPERTY
@given(lists, st.data())
def test_deleted_operations_are_named(rows, data):
    """Distinct digests, as a real step has: exactly what was taken out is what is missing."""
    a = [replace(row, outputs=f"{row.index:04}") for row in rows]
    kept = data.draw(st.lists(st.booleans(), min_size=len(a), max_size=len(a)))
    b = numbered(*(row for row, keep in zip(a, kept, strict=True) if keep))
    actual = align(a, b)
    assert [x.outputs for x, _ in actual.pairs] == [y.outputs for _, y in actual.pairs]
    assert indices(actual.only_a) == [i for i, keep in enumerate(kept) if not keep]
    assert actual.only_b == ()


@PROPERTY
@given(lists, st.data())
def test_deleted_operations_are_counted_without_digests(rows, data):
    """However alike the operations: nobody who is left loses their counterpart."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    b = numbered(*(row for row, keep in zip(rows, kept, strict=True) if keep))
    actual = align([replace(row, outputs="") for row in rows], b)
    assert len(actual.pairs) == len(b)
    assert actual.only_b == ()


words = st.lists(st.sampled_from("abc"), max_size=14)


@PROPERTY
@given(words, words)
def test_longest_common_is_one_and_longest(a, b):
    """Against the table of lengths that every textbook has."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            longer = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else longer
    actual = list(alignment_module._longest_common(a, b))
    assert all(a[i] == b[j] for i, j in actual)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(actual))
    assert len(actual) == table[-1][-1]


def test_long_lists_with_few_names():
    """Thousands of equal operations in one module, every seventh of them missing."""
    a = numbered(*(some(f"{'mul' if n % 3 else 'add'}.Tensor", source=None) for n in range(4000)))
    b = numbered(*(row for row in a if row.index % 7))
    actual = align(a, b)
    assert len(actual.pairs) == len(b)
    assert len(actual.only_a) == 4000 - len(b)


# -- the alignment's sentence ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([], [], "neither side ran an operation"),
        ([some("mul.Tensor")], [some("mul.Tensor")], "1 operation corresponds"),
        ([some("mul.Tensor")] * 2, [some("mul.Tensor")] * 2, "all 2 operations correspond"),
        (
            [some("mul.Tensor"), some("index.Tensor", module="encoder.attn"), view()],
            [some("mul.Tensor")],
            "1 operation corresponds; only A ran 1 (aten.index.Tensor in encoder.attn) and "
            "1 without a digest",
        ),
        (
            [some("index.Tensor", module=f"blocks.{n}") for n in range(14)],
            [some("add_.Tensor", module=None), some("bmm.default"), some("mul.Tensor"),
             some("sum.default")],
            "0 operations correspond; only A ran 14 (aten.index.Tensor in blocks.0, …), only B ran "
            "4 (aten.add_.Tensor outside any module, aten.bmm.default in block, aten.mul.Tensor in "
            "block, …)",
        ),
        (
            [some("mul.Tensor")] * 2,
            [some("mul.Tensor"), view(), some("mul.Tensor")],
            "2 operations correspond; only B ran 1 without a digest",
        ),
        (
            [some("mul.Tensor"), some("add.Tensor", module="x")],
            [some("add.Tensor", module="x"), some("mul.Tensor")],
            "all 2 operations correspond, 1 of them in another order",
        ),
        (
            [some("mul.Tensor")] * 2,
            [some("mul.Tensor", outputs="22222222")] * 2,
            "all 2 operations correspond, none with digests that can be compared",
        ),
    ],
    ids=["nothing", "one", "all", "only A", "both", "a view", "moved", "two algorithms"],
)  # fmt: skip
def test_alignment_sentence(a, b, expected):
    assert align(numbered(*a), numbered(*b)).sentence() == expected


# -- first_divergence: planted ------------------------------------------------------------------

STEP = some_step(120, seed=1)
COMPUTING = [row.index for row in STEP if row.outputs]


@pytest.mark.parametrize("at", random.Random(5).sample(COMPUTING, 20))
def test_planted_difference_is_found(at):
    """One operation errs, and everything after it differs in inputs and outputs."""
    b = computed([replace(row, norm=2.0) if row.index == at else row for row in STEP])
    actual = first_divergence(STEP, b)
    assert (actual.a, actual.b) == (STEP[at], b[at])
    assert (actual.kind, actual.inputs) == ("first", "agree")
    assert actual.n_before == sum(index < at for index in COMPUTING)
    assert actual.n_after == sum(index > at for index in COMPUTING)
    assert (actual.n_differ_before, actual.through) == (0, ())


@pytest.mark.parametrize("at", random.Random(6).sample(COMPUTING, 12))
def test_planted_difference_is_found_among_other_differences(at):
    """Shifted lines, and views and copies of equal bits on one side; still that operation."""
    rng = random.Random(at)
    b = []
    for row in STEP:
        changed = replace(row, norm=2.0) if row.index == at else row
        b.append(replace(changed, source=row.source.replace(":", ":10")))
        if rng.random() < 0.3:
            b.append(view("alias.default", module=row.module, phase=row.phase))
    actual = first_divergence(STEP, computed(b))
    assert actual.a == STEP[at]
    assert (actual.b.norm, actual.kind) == (2.0, "first")
    assert actual.n_before == sum(index < at for index in COMPUTING)


@pytest.mark.parametrize("seed", range(8))
def test_two_planted_differences(seed):
    """The second one's inputs differ already, so the first is the cause."""
    planted = sorted(random.Random(seed).sample(COMPUTING, 2))
    b = computed([replace(row, norm=2.0) if row.index in planted else row for row in STEP])
    assert first_divergence(STEP, b).a.index == planted[0]


def test_difference_from_outside():
    """Another batch: nothing in the step is the cause."""
    b = computed(STEP, start="another batch")
    actual = first_divergence(STEP, b)
    assert (actual.a.index, actual.kind, actual.inputs) == (COMPUTING[0], "inherited", "differ")
    assert (actual.n_before, actual.n_after) == (0, len(COMPUTING) - 1)
    assert actual.through == ()
    assert "the difference came in with what the step was given" in actual.sentence()


def test_difference_through_a_substitute():
    """A gathers, B flips and unfolds: what follows them inherits, and they are the suspects."""
    before, after = some("mul.Tensor"), some("bmm.default")
    a = computed([before, view(), some("index.Tensor"), after, some("sum.default")])
    b = computed([before, view(), some("flip.default"), view("unfold.default"),
                  some("flip.default"), after, some("sum.default")])  # fmt: skip
    actual = first_divergence(a, b)
    assert (actual.a.index, actual.b.index, actual.inputs) == (3, 5, "differ")
    assert (actual.kind, actual.n_before, actual.n_after) == ("inherited", 1, 1)
    assert [row.op for row in actual.through] == [
        "aten.index.Tensor",
        "aten.flip.default",
        "aten.flip.default",
    ]
    assert actual.through_a == (a[2],)
    assert actual.through_b == (b[4], b[2])
    assert actual.sentence() == (
        "aten.bmm.default in block (forward, net.py:10 in forward) is the first operation whose "
        "outputs differ, but its inputs differ already; outputs agree in 1 operation before it "
        "and differ in 1 after it; before it only A ran aten.index.Tensor in block and only B ran "
        "aten.flip.default in block, …"
    )


def test_a_substitute_of_equal_bits_is_no_cause():
    """The error comes later, so the substitute before it is no suspect."""
    same = {"inputs": "aaaa", "outputs": "bbbb"}
    rest = some("bmm.default", inputs="bbbb", outputs="cccc")
    a = numbered(some("index.Tensor", **same), rest)
    b = numbered(some("flip.default", **same), replace(rest, outputs="dddd"))
    actual = first_divergence(a, b)
    assert (actual.a.index, actual.kind, actual.through) == (1, "first", ())


def test_suspects_are_few_and_near():
    extra = [some("sub.Tensor", module=f"m{n}", outputs=f"{n:04}") for n in range(9)]
    last = some("bmm.default", inputs="aaaa", outputs="bbbb")
    late = some("exp.default", module="late")
    a = numbered(*extra[:2], last, some("sub.Tensor", module="after"), late)
    later = some("sub.Tensor", module="later")
    b = numbered(*extra[2:], replace(last, inputs="cccc", outputs="dddd"), later, late)
    actual = first_divergence(a, b)
    assert len(actual.through) == HANDFUL
    assert [row.module for row in actual.through] == ["m1", "m8", "m0", "m7", "m6"]
    assert indices(align(a, b).only_a) == [0, 1, 3]  # the last of them came too late


def test_only_views_are_suspects_where_nothing_else_is():
    """A view computes nothing, but another permutation is another input."""
    last = some("bmm.default", inputs="aaaa", outputs="bbbb")
    b = replace(last, inputs="cccc", outputs="dddd")
    a = numbered(view("permute.default"), last)
    assert first_divergence(a, numbered(b)).through == (a[0],)
    a = numbered(some("clone.default"), view("permute.default"), last)
    assert first_divergence(a, numbered(b)).through == (a[0],)


def test_cause_comes_before_what_inherits():
    """What differs by its inputs is passed over, however early, and is counted."""
    rows = numbered(some("mul.Tensor"), some("add.Tensor"), some("sub.Tensor", draws=True))
    b = [
        replace(rows[0], inputs="9999", outputs="9999"),
        rows[1],
        replace(rows[2], outputs="8888"),
    ]
    actual = first_divergence(rows, b)
    assert (actual.a.index, actual.kind, actual.n_before) == (2, "first", 1)
    assert (actual.n_differ_before, actual.n_after) == (1, 0)
    assert actual.sentence() == (
        "aten.sub.Tensor in block (forward, net.py:10 in forward) is the first operation whose "
        "inputs agree and whose outputs differ; it may draw random numbers; outputs agree in 1 "
        "operation before it and differ in 0 after it; 1 before it differ too, by what went into "
        "them as far as is known"
    )


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({}, {}, ("agree", "first")),
        ({"inputs": ""}, {}, ("unknown", "inherited")),
        ({"inputs": ""}, {"inputs": ""}, ("unknown", "inherited")),
        ({"inputs": "11111111"}, {}, ("unknown", "inherited")),
        ({"inputs": "3333"}, {}, ("differ", "inherited")),
        (
            {"inputs": "", "dtypes": " -> float32"},
            {"inputs": "", "dtypes": " -> float32"},
            ("agree", "first"),
        ),
        ({"inputs": "", "dtypes": ""}, {"inputs": "", "dtypes": ""}, ("unknown", "inherited")),
        (
            {"inputs": "1111", "dtypes": " -> float32"},
            {"inputs": "3333", "dtypes": " -> float32"},
            ("differ", "inherited"),
        ),
        (
            {"inputs": "", "dtypes": " -> float32"},
            {"inputs": "", "dtypes": "float32 -> float32"},
            ("unknown", "inherited"),
        ),
    ],
    ids=[
        "equal",
        "missing on one side",
        "missing",
        "two algorithms",
        "other",
        "takes no tensor",
        "no dtypes known",
        "other numbers",
        "one takes a tensor",
    ],
)
def test_inputs(a, b, expected):
    actual = first_divergence([Row(**a)], [Row(**{"outputs": "5555", **b})])
    assert (actual.inputs, actual.kind) == expected
    if actual.inputs == "unknown":
        assert "its inputs cannot be compared" in actual.sentence()


SMALL = some_step(24, seed=3)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([], []),
        (SMALL, SMALL),
        (SMALL, []),
        (SMALL, [replace(row, outputs=row.outputs and "5" * 64) for row in SMALL]),
        (SMALL, [replace(row, norm=7.0, source=None) for row in SMALL]),
        (SMALL, [row if row.outputs else replace(row, inputs="0" * 32) for row in SMALL]),
        (SMALL, [replace(row, outputs="") for row in SMALL]),
        (SMALL, numbered(*SMALL, view(), view())),
        ([view()], [view(inputs="9999")]),
    ],
    ids=[
        "nothing",
        "equal",
        "nothing on one side",
        "two algorithms",
        "only norms and sources differ",
        "only views differ",
        "no digests",
        "more views",
        "one view",
    ],
)
def test_nothing_parts(a, b):
    assert first_divergence(a, b) is None


def test_reordered_modules_do_not_part():
    left = computed([some("bmm.default", module="left"), some("sum.default", module="left")])
    right = computed([some("bmm.default", module="right")], start="other branch")
    a, b = numbered(*left, *right), numbered(*right, *left)
    assert first_divergence(a, b) is None
    b[1] = replace(b[1], outputs="5" * 32)
    assert first_divergence(a, b).a.index == 0


def test_parting_uses_the_alignment_given():
    a, b = [Row()], [Row(outputs="5555")]
    assert first_divergence(a, b, Alignment(pairs=(), only_a=(*a,), only_b=(*b,))) is None


def test_parting_names_both_operations():
    a, b = some("add.Tensor", module=None, source=None), some("add_.Tensor", module=None)
    actual = DivergingOperation(a, b, inputs="agree", kind="first", n_before=3, n_after=1)
    assert actual.sentence() == (
        "aten.add.Tensor outside any module (forward, B: aten.add_.Tensor) is the first operation "
        "whose inputs agree and whose outputs differ; outputs agree in 3 operations before it and "
        "differ in 1 after it"
    )


# -- judge_round_off -------------------------------------------------------------------------


def judged(ulp, limit=4.0, **fields):
    return Row(ulp=ulp, limit=limit, **fields)


@pytest.mark.parametrize(
    ("a", "b", "verdict", "n_faults"),
    [
        ([], [], "unknown", (0, 0)),
        ([Row()], [Row()], "unknown", (0, 0)),
        ([judged(1.0)], [Row()], "unknown", (0, 0)),
        ([judged(1.0)], [judged(4.0)], "round-off", (0, 0)),
        ([judged(1.0)], [judged(math.nextafter(4.0, 5))], "fault", (0, 1)),
        ([judged(1.0)], [judged(2.0, math.nextafter(2.0, 0))], "fault", (0, 1)),
        ([judged(5.0)], [], "fault", (1, 0)),
        ([judged(0.0, 0.0)], [judged(0.0, 0.0)], "round-off", (0, 0)),
        ([judged(0.0, 0.0)], [judged(1e-9, 0.0)], "fault", (0, 1)),
        ([judged(math.nan), judged(math.inf)], [judged(1.0)], "fault", (2, 0)),
        ([judged(math.inf, math.inf)], [judged(9.0, math.inf)], "round-off", (0, 0)),
        ([judged(9.0, None)], [judged(None, 9.0)], "unknown", (0, 0)),
    ],
    ids=[
        "nothing",
        "nothing judged",
        "one side judged",
        "at the limit",
        "just above",
        "above by one bit",
        "fault without another side",
        "exact",
        "not exact",
        "not a number",
        "no limit at all",
        "half of what is needed",
    ],
)
def test_judge_round_off(a, b, verdict, n_faults):
    actual = judge_round_off(a, b)
    assert actual.verdict == verdict
    assert (len(actual.faults_a), len(actual.faults_b)) == n_faults
    assert actual.sentence().startswith(verdict)


def test_judge_round_off_worst_is_relative():
    """3 of 4 strains more than 50 of 100."""
    a = numbered(judged(50.0, 100.0), judged(3.0), judged(3.0), Row(), view())
    b = numbered(judged(0.5, 1.0))
    actual = judge_round_off(a, b)
    assert (actual.worst_a, actual.worst_b) == (a[1], b[0])
    assert (actual.n_judged, actual.n_unjudged) == (4, 1)
    unlimited = judged(math.inf, math.inf)
    assert judge_round_off([unlimited, judged(1.0)], []).worst_a == judged(1.0)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (
            [judged(1.0), Row()],
            [judged(3.0, op="aten.bmm.default")],
            "round-off: every judged operation of both sides stays within its limit (2 operations "
            "judged, 1 not); aten.bmm.default in block erred most, 3 ulp where 4 may be",
        ),
        (
            [judged(9.0), judged(8.0), judged(1.0)],
            [judged(1e6, op="aten.bmm.default")],
            "fault: 2 of A (aten.mul.Tensor in block, …) and 1 of B (aten.bmm.default in block) "
            "erred more than round-off explains (4 operations judged, 0 not); aten.bmm.default in "
            "block erred most, 1e+06 ulp where 4 may be",
        ),
        (
            [judged(1.0)],
            [Row()],
            "unknown: no operation of B was judged (1 operation judged, 1 not); aten.mul.Tensor in "
            "block erred most, 1 ulp where 4 may be",
        ),
        ([], [], "unknown: no operation of A or B was judged (0 operations judged, 0 not)"),
    ],
    ids=["round-off", "fault", "one side", "nothing"],
)
def test_round_off_sentence(a, b, expected):
    assert judge_round_off(a, b).sentence() == expected


# -- growth ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"norm": 4.0}, {"norm": 5.0}, [(0, 0.2)]),
        ({"norm": 5.0}, {"norm": 4.0}, [(0, 0.2)]),
        ({"norm": 5.0}, {"norm": 5.0}, [(0, 0.0)]),
        ({"norm": 0.0}, {"norm": 0.0}, [(0, 0.0)]),
        ({"norm": 0.0}, {"norm": 2.0}, [(0, 1.0)]),
        ({"norm": 4.0}, {"norm": 5.0, "outputs": "2222"}, []),
        ({"norm": 4.0}, {"norm": 5.0, "outputs": "5" * 64}, [(0, 0.2)]),
        ({"norm": 4.0}, {"norm": 4.0, "outputs": "5" * 64}, []),
        ({"norm": None}, {"norm": 5.0}, []),
        ({"norm": 5.0}, {"norm": None}, []),
        ({"norm": math.inf}, {"norm": 5.0}, []),
        ({"norm": 5.0}, {"norm": math.nan}, []),
    ],
    ids=[
        "smaller",
        "larger",
        "equal norms",
        "zeros",
        "zero and more",
        "equal outputs",
        "two algorithms",
        "two algorithms, equal norms",
        "no norm of A",
        "no norm of B",
        "infinite",
        "not a number",
    ],
)
def test_growth(a, b, expected):
    assert growth(align([Row(**a)], [Row(**{"outputs": "5555", **b})])) == expected


def test_growth_in_order_of_execution():
    a = numbered(*(some("mul.Tensor", module=name) for name in "xyz"))
    b = numbered(*(replace(a[at], norm=2.0, outputs="5555") for at in (2, 0)), a[1])
    assert growth(align(a, b)) == [(0, 0.5), (2, 0.5)]
