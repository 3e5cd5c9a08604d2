"""What is written down of steps and operations is true, and writing it down changes no bit."""

import gc
import math
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from cellrepro.compare.ledger_diff import compare_ledgers
from cellrepro.determinism.seeding import generators_kept, seed_everything
from cellrepro.images.folder import LabelledImage
from cellrepro.model.training import upcoming_crops
from cellrepro.store.digests import generator_digests, tensor_digest, tensors_digest, value_digest
from cellrepro.store.ledger import Ledger
from cellrepro.trace import operation_ledger
from cellrepro.trace.observer import Observer
from cellrepro.trace.operation_ledger import OperationLedger, OperationWatch, names_of
from cellrepro.trace.training_steps import StepWatch, Watch, Watches, layer_group
from small_training import IMAGES, begun, bits, outcome, walked

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

N = 5000  # floats: more memory than is digested every time anew


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.norm = nn.Linear(60, 100), nn.Dropout(0.3), nn.BatchNorm1d(100)
        self.b = nn.Linear(100, 2)

    def forward(self, x):
        return self.b(self.norm(self.drop(self.a(x)).tanh()))


def prepared(seed=0, *, optimizer=torch.optim.AdamW, **options):
    """A network and its training step, seeded."""
    seed_everything(seed)
    net = Net()
    update = optimizer(net.parameters(), lr=0.01, **options)

    def step():
        update.zero_grad()
        loss = net(torch.rand(80, 60)).square().mean()
        loss.backward()
        update.step()
        return loss.item()

    return net, update, step


def logged(function, model=None, **options):
    """The ledger of what a function does."""
    with OperationLedger(model, **options) as log:
        function()
    return log


def last(function, **options):
    return logged(function, **options).rows[-1]


def noise(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# -- what a row says -----------------------------------------------------------------------


class Places(Observer):
    def __init__(self):
        super().__init__()
        self.seen = []

    def observe(self, call):
        self.seen.append(call.place)
        return call.run()


def test_rows_in_order_with_module_line_and_phase():
    _, _, step = prepared()
    with Places() as places:
        step()
    _, _, step = prepared()
    rows = logged(step, step=7).rows
    assert [(r.op, r.module, r.source, r.phase) for r in rows] == [
        (p.op, p.module, p.source, p.phase) for p in places.seen
    ]
    assert [row.index for row in rows] == list(range(len(rows)))
    assert {row.step for row in rows} == {7}
    phases = list(dict.fromkeys(row.phase for row in rows if row.module is not None))
    assert phases == ["forward", "backward"]
    assert "update" in {row.phase for row in rows}
    modules = [row.module for row in rows if row.op == "aten.addmm.default"]
    assert modules == ["a", "b"]


def test_shapes_and_dtypes():
    linear, x = nn.Linear(3, 4), torch.ones(2, 3)
    rows = {row.op: row for row in logged(lambda: linear(x).to(torch.bfloat16).sum()).rows}
    multiplied = rows["aten.addmm.default"]
    assert multiplied.shapes == "4, 2x3, 3x4 -> 2x4"
    assert multiplied.dtypes == "float32, float32, float32 -> float32"
    assert rows["aten._to_copy.default"].dtypes == "float32 -> bfloat16"
    assert rows["aten.sum.default"].shapes == "2x4 -> 1"
    turned = rows["aten.t.default"]
    assert (turned.outputs, turned.shapes, turned.dtypes) == ("", "4x3", "float32")


def test_operations_on_lists():
    a = [torch.ones(2), torch.ones(3)]
    row = last(lambda: torch._foreach_add(a, 1.0))
    assert row.shapes == "2, 3 -> 2, 3"
    assert row.norm == pytest.approx(math.sqrt(20))
    row = last(lambda: torch._foreach_mul_(a, 3.0))
    assert row.shapes == "2, 3 -> 2, 3"
    assert row.norm == pytest.approx(math.sqrt(45))


def test_views_have_no_outputs():
    x = torch.ones(4, 6)

    def views():
        y = x.view(6, 4).t()[1:, ::2].unsqueeze(0).expand(3, -1, -1).detach()
        return torch.split(y, 2, dim=1)

    rows = logged(views).rows
    assert len(rows) >= 6
    assert {(row.outputs, row.norm) for row in rows} == {("", None)}
    assert all("->" not in row.shapes for row in rows)


@pytest.mark.parametrize(
    "values",
    [
        noise(7, 9),
        noise(N) * 1e-3,
        noise(3, N, dtype=torch.bfloat16),
        noise(N, dtype=torch.float16),
        noise(N, dtype=torch.float64),
        torch.zeros(0, 3),
        torch.tensor(-2.0),
        torch.tensor([1.0, math.nan]),
        torch.tensor([1.0, -math.inf]),
    ],
    ids=[
        *("float32", "large", "bfloat16", "float16", "float64", "empty", "a scalar", "NaN"),
        "infinity",
    ],
)
def test_the_norm_is_the_euclidean_one(values):
    expected = torch.linalg.vector_norm(values.double()).item()
    assert last(lambda: values.clone()).norm == pytest.approx(expected, rel=1e-5, nan_ok=True)
    assert last(lambda: values.clone(), norms=False).norm is None


def sparse():
    return torch.sparse_coo_tensor([[1]], [3.0], (4,), check_invariants=True) * 1


def norm_of_sparse():
    """None in PyTorch 2.6, which has no such norm."""
    try:
        return torch.linalg.vector_norm(sparse()).item()
    except NotImplementedError:
        return None


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: torch.ones(4).to(torch.float8_e4m3fn), 2),
        (sparse, norm_of_sparse()),
        (lambda: torch.ones(4, dtype=torch.int64) + 1, None),
        (lambda: torch.ones(4, dtype=torch.complex64) * 1, None),
        (lambda: torch.ones(4, device="meta") * 1, None),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(N)]) * 1, None),
    ],
    ids=["float8", "sparse", "whole numbers", "complex", "meta", "nested"],
)
@pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors", "ignore:Sparse invariant checks"
)
def test_tensors_of_every_kind_are_written_down(make, expected):
    """And none of them makes the training fail that is being watched."""
    assert last(make).norm == expected


# -- digests of outputs --------------------------------------------------------------------

LAYOUTS = {
    "small": lambda x: x[:30],
    "large": lambda x: x,
    "transposed": lambda x: x.view(50, -1).t(),
    "with gaps": lambda x: x.view(50, -1)[:, 3:40],
    "small with gaps": lambda x: x[:60].view(10, 6)[:, :4],
    "every other": lambda x: x[::2],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_one_flipped_bit_shows_in_inputs_and_outputs(layout, dtype, data):
    base = (noise(3 * N) * 100).to(dtype)
    one, same = layout(base.clone()), layout(base.clone())
    other = layout(base.clone())
    flat = other.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    place = tuple(data.draw(st.integers(0, n - 1)) for n in flat.shape)
    flat[place] ^= 1 << data.draw(st.integers(0, 8 * dtype.itemsize - 2))
    rows = [last(lambda x=x: x.clone()) for x in (one, same, other)]
    assert rows[0] == rows[1]
    assert rows[0].inputs != rows[2].inputs
    assert rows[0].outputs != rows[2].outputs
    assert (rows[0].shapes, rows[0].dtypes) == (rows[2].shapes, rows[2].dtypes)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.zeros(3), -torch.zeros(3)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.uint8)),
        (torch.zeros(0, 2), torch.zeros(0, 3)),
    ],
    ids=["sign of 0", "shape", "dtype", "whole numbers", "empty"],
)
def test_outputs_that_only_look_alike(a, b):
    assert last(lambda: a.clone()).outputs != last(lambda: b.clone()).outputs


def test_numbers_and_options_count_among_the_inputs():
    x = torch.ones(3)
    found = {
        last(each).inputs
        for each in (
            *(lambda: x.add(1), lambda: x.add(1.0), lambda: x.add(2), lambda: x.add(1, alpha=2)),
            lambda: x.add(True),
        )
    }
    assert len(found) == 5
    assert last(lambda: torch.ones(3)).inputs == last(lambda: torch.ones(3, device="meta")).inputs


def test_what_has_an_address_in_its_text_is_told_by_its_type():
    """Two runs would differ in it: a generator's state is among the draws, not the inputs."""

    def draw():
        torch.rand(3, generator=torch.Generator().manual_seed(1))
        with torch.profiler.record_function("mark"):
            torch.ones(2)

    kept = []  # so that no address is given twice
    rows = []
    for _ in range(3):
        kept.append(torch.Generator())
        rows.append(logged(draw).rows)
    assert rows[0] == rows[1] == rows[2]


# -- digests of inputs are remembered, and forgotten ---------------------------------------

WRITES = {
    "add_": lambda x: x.add_(1),
    "copy_": lambda x: x.copy_(torch.arange(float(N))),
    "zero_": lambda x: x.zero_(),
    "normal_": lambda x: x.normal_(generator=torch.Generator().manual_seed(4)),
    "an element": lambda x: x.__setitem__(7, 0.5),
    "a slice": lambda x: x.__setitem__(slice(0, N, 3), 0.5),
    "indices": lambda x: x.__setitem__(torch.tensor([1, 4]), torch.tensor([9.0, 8.0])),
    "a mask": lambda x: x.masked_fill_(x > 0, 4.0),
    "a view": lambda x: x.view(50, 100).t()[3].mul_(2),
    "a view of a view": lambda x: x[10:].unsqueeze(0)[:, 5:6].fill_(9),
    "as_strided": lambda x: x.as_strided((3,), (1,), 100).sub_(5),
    "detached": lambda x: x.detach().neg_(),
    "data": lambda x: x.data.add_(2),
    "data's view": lambda x: x.data[4:9].zero_(),
    "out=": lambda x: torch.add(torch.ones(N), 1, out=x),
    "out= of a view": lambda x: torch.mul(torch.ones(10), 3, out=x[20:30]),
    "foreach": lambda x: torch._foreach_add_([torch.ones(2), x], 1.0),
    "foreach on views": lambda x: torch._foreach_mul_([x[:5], x[40:]], 3.0),
    "other memory": lambda x: setattr(x, "data", torch.full((N,), 3.0)),
    "as another dtype": lambda x: x.view(torch.int32).bitwise_xor_(1),
    "unsaid": lambda x: functional.batch_norm(noise(2, N), x, torch.ones(N), training=True),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([3]), torch.tensor([1.0])),
    "gradient": lambda x: gradient_added_to(x),
    "an optimizer": lambda x: updated(x),
}


def gradient_added_to(x):
    weight = torch.ones(N, requires_grad=True)
    weight.grad = x
    (weight * 2).sum().backward()


def updated(x):
    parameter = nn.Parameter(x)
    parameter.grad = torch.ones(N)
    torch.optim.AdamW([parameter], lr=0.1, foreach=True).step()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("made_inside", [False, True], ids=["from outside", "made inside"])
def test_what_was_written_into_is_digested_again(write, made_inside):
    """The inputs' digest is what a new ledger, which remembers nothing, gives."""
    start = noise(N)

    def run():
        x = start.clone()
        if not made_inside:
            x = torch.from_numpy(x.numpy())
        x.exp()
        x.exp()
        x.view(50, 100).exp()
        write(x)
        return x, x.view(50, 100).exp(), x.exp()

    rows = logged(run).rows
    before, *_, in_rows, after = [row for row in rows if row.op == "aten.exp.default"]
    x, *_ = run()
    assert not torch.equal(x, start)
    assert before.inputs != after.inputs
    assert after.inputs == last(lambda: x.exp()).inputs
    assert in_rows.inputs == last(lambda: x.view(50, 100).exp()).inputs


def test_equal_inputs_have_equal_digests_whoever_made_them():
    x, y = noise(N), noise(N)
    rows = logged(lambda: (x.exp(), x.exp(), y.exp(), y.clone().exp(), (x * 1).exp())).rows
    assert len({row.inputs for row in rows if row.op == "aten.exp.default"}) == 1


def test_memory_that_was_freed_and_given_again_is_digested_anew():
    def run():
        for index in range(60):
            x = torch.full((N,), float(index))
            x.exp()
            x[100:].exp()
            del x

    rows = [row for row in logged(run).rows if row.op == "aten.exp.default"]
    assert len({row.inputs for row in rows}) == 120
    for index in (0, 31, 59):
        x = torch.full((N,), float(index))
        assert rows[2 * index].inputs == last(lambda x=x: x.exp()).inputs


def test_memory_from_outside_that_was_freed_is_digested_anew():
    def run():
        for index in range(60):
            torch.from_numpy(np.full(N, index, np.float32)).exp()

    rows = [row for row in logged(run).rows if row.op == "aten.exp.default"]
    assert len({row.inputs for row in rows}) == 60


def test_little_is_remembered_and_nothing_after_the_block(monkeypatch):
    monkeypatch.setattr(operation_ledger, "MOST_REMEMBERED", 4)
    kept = []

    def run():
        for index in range(20):
            kept.append(torch.full((N,), float(index)))
            torch.full((N,), -1.0).exp()
        for x in kept:
            x.add_(1)
            x.exp()

    log = logged(run)
    rows = [row for row in log.rows if row.op == "aten.exp.default"]
    assert len({row.inputs for row in rows}) == 21
    assert rows[-1].inputs == last(lambda: kept[-1].exp()).inputs
    assert not log._known._held


def test_a_large_tensor_is_not_kept_alive():
    import weakref

    with OperationLedger() as log:
        x = torch.ones(N).exp()
        gone = weakref.ref(x)
        del x
        gc.collect()
        assert gone() is None
    assert len(log.rows) == 2


@pytest.mark.parametrize(
    ("shape", "view"),
    [
        ((1, 50), lambda x: x.expand(200, 50)),
        ((200, 1, 50), lambda x: x.expand(200, 9, 50)),
        ((60, 100), lambda x: x.t()),
        ((60, 100), lambda x: x[5:50]),
        ((60, 100), lambda x: x[:, 20:90]),
        ((60, 100), lambda x: x[::2]),
        ((2, 60, 90), lambda x: x.view(2, 60, 3, 30)[:, :, 1].transpose(0, 1)),
    ],
    ids=["expanded", "expanded within", "transposed", "rows", "columns", "every other", "a head"],
)
@pytest.mark.parametrize("made_inside", [False, True], ids=["from outside", "made inside"])
def test_views_as_inputs(shape, view, made_inside):
    """A change anywhere in what is viewed shows; equal bits give equal rows."""
    start = noise(*shape)

    def run(place=None):
        x = start.clone()
        if place is not None:
            view(x)[tuple(n // 2 if place else -1 for n in view(x).shape)] += 1
        if made_inside:
            return logged(lambda: view(x.clone()).exp()).rows[-1]
        return logged(lambda: view(x).exp()).rows[-1]

    assert run() == run()
    digests = {row.inputs for row in (run(), run(0), run(1))}
    assert len(digests) == 3


def test_parts_of_one_memory_are_told_apart():
    """By where they begin, how they are cut and what stands there, large as they are."""
    x = noise(200, 99)

    def run():
        y = x.clone()
        parts = [y[:, start : start + 33] for start in (0, 33, 66)]
        parts += [y.as_strided((50, 100), (step, 2)) for step in (200, 300)]
        return [part.exp() for part in (*parts, *parts)]

    rows = [row for row in logged(run).rows if row.op == "aten.exp.default"]
    assert len({row.inputs for row in rows}) == 5
    assert [row.inputs for row in rows[:5]] == [row.inputs for row in rows[5:]]


class Garbage(TorchDispatchMode):
    """What stands in memory that nobody has written: something else each time."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func._schema.name.split("::")[1].lstrip("_").startswith(("empty", "new_empty")):
            made.fill_(self.value)
        return made


def in_garbage(value, function):
    with Garbage(value):
        return logged(function).rows


@pytest.mark.parametrize("n", [20, N], ids=["small", "large"])
def test_what_stands_in_unwritten_memory_does_not_count(n):
    """As where torchvision fills a grid column by column: two equal runs would differ."""

    def run(added=0.0):
        x = torch.ones(n) + added
        grid = torch.empty(n, 3)
        grid[:, 0].copy_(x)
        grid[:, 1].copy_(x)
        grid[:, 2].fill_(1)
        x.new_empty(2, n).zero_()
        torch.empty_like(x).copy_(x).exp()
        return grid.exp()

    a, b = in_garbage(5.0, run), in_garbage(6.0, run)
    assert a == b
    c = in_garbage(5.0, lambda: run(added=1.0))
    assert a[-1].inputs != c[-1].inputs  # once it is written it counts
    into_a_column = [row.op for row in a].index("aten.copy_.default")
    assert a[into_a_column].outputs != c[into_a_column].outputs  # and what writes it, at once
    assert a[-1].inputs == last(lambda: torch.stack([torch.ones(n)] * 3, dim=1).exp()).inputs


def test_reading_unwritten_memory_is_an_operation_with_equal_inputs_and_other_outputs():
    def run():
        grid = torch.empty(3, N)
        grid[0].fill_(1)
        return grid.exp()

    a, b = in_garbage(5.0, run)[-1], in_garbage(6.0, run)[-1]
    assert a.inputs == b.inputs
    assert a.outputs != b.outputs


# -- options -------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["aten.addmm.default", "aten.add_.Tensor", "aten.tanh.default"])
def test_the_tensors_of_one_operation_are_kept(op):
    _, _, step = prepared()
    rows = logged(step).rows
    index = [row.op for row in rows].index(op)
    _, _, step = prepared()
    name = names_of(rows)[index]
    log = logged(step, wanted=[name])
    assert log.rows == rows
    row, kept = rows[index], log.kept[name]
    assert row.shapes == " -> ".join(
        ", ".join("x".join(map(str, x.shape)) or "1" for x in kept[side])
        for side in ("inputs", "outputs")
    )
    func = getattr(torch.ops.aten, op.split(".")[1])
    if op == "aten.add_.Tensor":
        assert not torch.equal(kept["inputs"][0], kept["outputs"][0])
        kept["inputs"][0].add_(kept["inputs"][1] if len(kept["inputs"]) > 1 else 1)
        assert torch.equal(kept["inputs"][0], kept["outputs"][0])
    else:
        assert torch.equal(func(*kept["inputs"]), kept["outputs"][0])


def test_operations_are_found_again_by_place_not_by_order():
    """What is made only the first time moves the order of all that follows; a view is kept, too."""
    table = {}

    def step():
        if not table:
            table["ones"] = torch.ones(3)
        for n in (1.0, 2.0):
            (torch.full((2, 2), n).exp()).t()

    first = logged(step)
    name = names_of(first.rows)[[row.op for row in first.rows].index("aten.t.default") + 3]
    assert name[0] == "aten.t.default"
    again = logged(step, wanted=[name])
    assert len(again.rows) == len(first.rows) - 1
    (kept,) = again.kept.values()
    assert torch.equal(kept["outputs"][0], torch.full((2, 2), 2.0).exp())


def test_nothing_is_kept_unasked_and_a_second_block_begins_anew():
    def step():
        torch.ones(3).exp()
        torch.rand(2)

    name = names_of(logged(step).rows)[1]
    log = OperationLedger(wanted=[name])
    for _ in range(2):
        with log:
            step()
        assert len(log.rows) == 3
        assert len(log.draws) == 1
        assert log.kept[name]["inputs"][0].tolist() == [1, 1, 1]
    with log:
        pass
    assert (log.rows, log.draws, log.kept) == ([], [], {})
    assert logged(lambda: torch.ones(3)).kept == {}


class Fault(TorchDispatchMode):
    """Computes one operation otherwise, in float32."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.tanh.default and given.dtype == torch.float32:
            given[0, 0] += 1e-3
        return given


@pytest.mark.parametrize("fault", [nullcontext, Fault], ids=["none", "one element of tanh"])
def test_the_error_of_every_operation_against_its_reference(fault):
    _, _, step = prepared()
    with fault():
        rows = logged(step, reference=True).rows
    judged = [row for row in rows if row.ulp is not None]
    assert {"aten.addmm.default", "aten.tanh.default", "aten.mm.default"} <= {r.op for r in judged}
    assert all(row.limit is not None for row in judged)
    assert {row.op for row in judged if row.ulp > row.limit} == (
        {"aten.tanh.default"} if fault is Fault else set()
    )
    assert all(row.limit is None for row in rows if row.ulp is None)


def test_without_reference_no_error_is_told():
    assert {(r.ulp, r.limit) for r in logged(prepared()[2]).rows} == {(None, None)}


def test_draws_are_written_down():
    def step():
        np.random.rand(2)
        torch.rand(3)
        functional.dropout(torch.ones(4), 0.5)

    seed_everything(0)
    log = logged(step)
    assert [(draw.generator, draw.what, draw.n) for draw in log.draws] == [
        ("numpy", "np.random.rand", 4),
        ("torch", "aten.rand.default", 3),
        ("torch", log.draws[2].what, log.draws[2].n),
    ]
    drawing = [row.op for row in log.rows if row.draws]
    assert drawing == ["aten.rand.default", log.draws[2].what]


class _Every(frozenset):
    """Names of all operations there are."""

    def __contains__(self, name):
        return True

    def __bool__(self):
        return True


EVERY = _Every()

OPTIONS = {
    "plain": {},
    "no norms": {"norms": False},
    "reference": {"reference": True},
    "wanted": {"wanted": EVERY},
    "everything": {"reference": True, "wanted": EVERY, "step": 5},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_no_bit_of_a_step_changes(options, optimizer):
    extra = {"momentum": 0.9} if optimizer is torch.optim.SGD else {"foreach": True}

    def trained(watched):
        net, update, step = prepared(optimizer=optimizer, **extra)
        losses = []
        for _ in range(2):
            with OperationLedger(net, **options) if watched else nullcontext():
                losses.append(step())
        state = {
            f"{i}/{key}": value
            for i, held in update.state_dict()["state"].items()
            for key, value in held.items()
        }
        return bits(net.state_dict()), bits(state), generator_digests(), losses

    assert trained(True) == trained(False)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(None, [0, 1, 2]), ((1,), [1]), ([2, 0], [0, 2]), ((), []), (range(9), [0, 1, 2])],
    ids=["all", "one", "two", "none", "more than there are"],
)
def test_rows_and_draws_of_chosen_steps(steps, expected):
    net, _, step = prepared()
    watch = OperationWatch(net, steps=steps)
    for index in range(3):
        with watch.step(index, 0):
            step()
    assert sorted({row.step for row in watch.rows}) == expected
    assert sorted({draw.step for draw in watch.draws}) == expected
    for index in expected:
        rows = [row for row in watch.rows if row.step == index]
        assert [row.index for row in rows] == list(range(len(rows)))
        draws = [draw for draw in watch.draws if draw.step == index]
        assert [draw.index for draw in draws] == list(range(len(draws)))
        drawing = [row.op for row in rows if row.draws and row.op.startswith("aten.")]
        assert [draw.what for draw in draws] == drawing
        assert len(draws) == 2
        assert draws[0].what == "aten.rand.default"


# -- the steps of a real training ----------------------------------------------------------


class Told(Watch):
    """Writes down what it is told, in order."""

    def __init__(self):
        self.told = []

    @contextmanager
    def step(self, step, epoch):
        self.told.append((step, epoch))
        yield
        self.told.append("end")

    def batch(self, names, crops, images, targets):
        self.told.append(("batch", names, crops, tuple(images.shape), tuple(targets.shape)))

    def forward(self, output):
        self.told.append(("forward", tuple(output.shape)))

    def loss(self, loss):
        self.told.append(("loss", loss.item()))

    def backward(self, network):
        assert sum(p.grad is not None for p in network.parameters()) > 20
        self.told.append("backward")

    def updated(self, network, optimizer):
        self.told.append("updated")


@pytest.fixture(scope="module")
def unwatched():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with generators_kept():
        found = walked(*begun(n_epochs=2))
    torch.set_num_threads(threads)
    return found


def test_a_loop_tells_what_it_does_in_order(unwatched, monkeypatch):
    import cellpose.train

    told, drawn = Told(), []
    get_batch = cellpose.train._get_batch

    def spy(indices, **rest):
        drawn.append([IMAGES[index].name for index in indices])
        return get_batch(indices, **rest)

    monkeypatch.setattr(cellpose.train, "_get_batch", spy)
    _, loop = begun(watch=lambda network: Watches([told, Watch()]), batch_size=2)
    losses = [loop.step() for _ in range(3)]
    for index in range(3):
        first, batch, forward, loss, *rest = told.told[7 * index : 7 * index + 7]
        assert first == (index, index)
        assert (batch[0], batch[1]) == ("batch", drawn[index])
        assert len(batch[2]) == 2
        assert batch[3:] == ((2, 3, 256, 256), (2, 3, 256, 256))
        assert (forward, loss) == (("forward", (2, 3, 256, 256)), ("loss", losses[index]))
        assert rest == ["backward", "updated", "end"]
    assert len({tuple(names) for names in drawn}) == 2  # another order in another epoch


WATCHES = {
    "steps": lambda network: StepWatch(Ledger()),
    "operations": lambda network: OperationWatch(network),
    "both": lambda network: Watches([StepWatch(Ledger()), OperationWatch(network)]),
    "both, the other way round": lambda network: Watches(
        [OperationWatch(network), StepWatch(Ledger())]
    ),
    "one step": lambda network: OperationWatch(network, steps=(2,)),
}


@pytest.fixture(scope="module")
def watched():
    """Every kind of watching, with how the training ends and who watched."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {}
    for name, make in WATCHES.items():
        with generators_kept():
            made = []

            def watch(network, make=make, made=made):
                made.append(make(network))
                return made[0]

            network, loop = begun(watch=watch, n_epochs=2)
            found[name] = SimpleNamespace(outcome=walked(network, loop), watch=made[0])
    torch.set_num_threads(threads)
    return found


@pytest.mark.parametrize("name", WATCHES)
def test_a_watched_training_ends_in_the_same_bits(watched, unwatched, name):
    assert watched[name].outcome == unwatched


def test_who_digests_steps_is_not_among_the_operations(watched):
    alone = watched["operations"].watch
    inner = watched["both"].watch.watches[1]
    outer = watched["both, the other way round"].watch.watches[0]
    assert inner.rows == alone.rows
    assert inner.draws == alone.draws
    assert outer.rows == alone.rows
    assert outer.draws == alone.draws
    assert len(alone.rows) > 1000
    assert {row.step for row in alone.rows} == set(range(4))


def test_the_ledger_of_steps_is_the_same_beside_operations(watched):
    alone = watched["steps"].watch.ledger.entries
    assert watched["both"].watch.watches[0].ledger.entries == alone
    assert watched["both, the other way round"].watch.watches[1].ledger.entries == alone


def test_the_entries_of_a_step_in_their_order(watched):
    entries = watched["steps"].watch.ledger.entries
    for step in range(4):
        of_step = [entry for entry in entries if entry.step == step]
        assert {entry.epoch for entry in of_step} == {step // 2}
        stages = [entry.stage for entry in of_step]
        order = ["rng", "batch", "forward", "loss", "backward", "update", "weights", "rng"]
        assert [s for s, t in zip(stages, [None, *stages], strict=False) if s != t] == order
        names = [entry.name for entry in of_step]
        assert names[:3] == ["python before", "numpy before", "torch before"]
        assert names[-3:] == ["python after", "numpy after", "torch after"]
        batch = [entry.name for entry in of_step if entry.stage == "batch"]
        assert batch == ["images drawn", "crops", "images", "targets"]
        updates = [entry.name for entry in of_step if entry.stage == "update"]
        assert updates[-2:] == ["learning rate", "settings"]
        groups = [entry.name for entry in of_step if entry.stage == "weights"]
        assert {"encoder.blocks.0", "encoder.blocks.1", "out"} <= set(groups)
        assert set(updates[:-2]) <= set(groups)
        assert len(names) == len({(entry.stage, entry.name) for entry in of_step})
    assert {entry.step for entry in entries} == set(range(4))


def test_the_digests_are_those_of_what_was_there(unwatched):
    """The last step's weights, moments and generators are still there after it."""
    ledger = Ledger()
    network, loop = begun(watch=lambda network: StepWatch(ledger), n_epochs=2)
    losses = [loop.step() for _ in range(4)]
    found = {(e.step, e.stage, e.name): e for e in ledger.entries}
    for name, digest in generator_digests().items():
        assert found[3, "rng", f"{name} after"].digest == digest
        assert found[3, "rng", f"{name} before"].digest == found[2, "rng", f"{name} after"].digest
    state = network.state_dict()
    for group in ("encoder.blocks.1", "out", "W2"):
        members = {name: t for name, t in state.items() if layer_group(name) == group}
        assert members
        assert found[3, "weights", group].digest == tensors_digest(members)
        moments = {
            f"{name}/{key}": value
            for name, parameter in network.named_parameters()
            if name in members
            for key, value in loop.optimizer.state.get(parameter, {}).items()
        }
        if moments:
            assert found[3, "update", group].digest == tensors_digest(moments)
        gradients = {
            name: p.grad
            for name, p in network.named_parameters()
            if name in members and p.grad is not None
        }
        if gradients:
            assert found[3, "backward", group].digest == tensors_digest(gradients)
    assert [found[step, "loss", "loss"].value for step in range(4)] == losses
    assert found[2, "update", "learning rate"].value == pytest.approx(0.01 / 9)
    assert found[2, "update", "learning rate"].digest == value_digest([float(loop._rates[1])])
    assert outcome(network, loop) == unwatched


def entries_of(change=None, **options):
    """The step ledger of a training in which something is changed before a step."""
    ledger = Ledger()
    options = {"n_epochs": 2, **options}
    network, loop = begun(watch=lambda network: StepWatch(ledger), **options)
    for index in range(3):
        if index == 1 and change is not None:
            change(network, loop)
        loop.step()
    return ledger.entries


@pytest.fixture(scope="module")
def as_it_is():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with generators_kept():
        found = entries_of()
    torch.set_num_threads(threads)
    return found


def change_weight(network, loop):
    with torch.no_grad():
        network.out.bias.view(-1)[0] += 1e-4


def change_moment(network, loop):
    loop.optimizer.state[network.out.bias]["exp_avg_sq"].view(-1)[0] += 1e-6


def change_decay(network, loop):
    loop.optimizer.param_groups[0]["weight_decay"] = 0.2


def change_image(network, loop):
    loop._images = [image.copy() for image in loop._images]
    for image in loop._images:
        image[:, 32, 32] += 0.5


def change_flows(network, loop):
    loop._labels = [flows * 1.001 for flows in loop._labels]


def change_rate(network, loop):
    loop._rates = loop._rates * 1.001


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        (None, {}, None),
        (None, {"seed": 4}, (0, "rng", "python before")),
        (None, {"data_seed": 5}, (0, "batch", "images drawn")),
        (change_image, {}, (1, "batch", "images")),
        (change_flows, {}, (1, "batch", "targets")),
        (change_weight, {}, (1, "forward", "output")),
        (change_moment, {}, (1, "update", "out")),
        (change_decay, {}, (1, "update", "settings")),
        (change_rate, {}, (2, "update", "learning rate")),
        (lambda *_: torch.rand(1), {}, (1, "rng", "torch before")),
        (lambda *_: np.random.rand(1), {}, (1, "rng", "numpy before")),
    ],
    ids=[
        *("nothing", "seed", "data seed", "an image", "flows", "a weight", "a moment", "decay"),
        *("learning rate", "a draw of torch", "a draw of NumPy"),
    ],
)
def test_what_changes_is_the_first_difference(as_it_is, change, options, expected):
    first = compare_ledgers(as_it_is, entries_of(change, **options)).first
    assert (None if first is None else (first.step, first.stage, first.name)) == expected


def test_a_ledger_of_steps_without_operations_dispatches_as_usual():
    """Outside any observer and inside one, the digests are equal."""
    tensor = noise(N).requires_grad_()
    plain, inside = StepWatch(Ledger()), StepWatch(Ledger())
    plain.forward(tensor)
    with Places() as places:
        inside.forward(tensor)
        inside.loss(tensor.detach()[0])
    assert inside.ledger.entries[0] == plain.ledger.entries[0]
    assert plain.ledger.entries[0].digest == tensor_digest(tensor)
    assert {place.op for place in places.seen} == {"aten.detach.default", "aten.select.int"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder.blocks.0.attn.qkv.weight", "encoder.blocks.0"),
        ("encoder.blocks.10", "encoder.blocks.10"),
        ("encoder.blocks.1.mlp.lin1.bias/exp_avg", "encoder.blocks.1"),
        ("encoder.neck.0.weight", "encoder.neck.0"),
        ("encoder.patch_embed.proj.bias/step", "encoder.patch_embed"),
        ("encoder.pos_embed", "encoder"),
        ("W2", "W2"),
        ("out.weight", "out"),
        ("0.weight", "0"),
    ],
)
def test_groups_of_layers(name, expected):
    assert layer_group(name) == expected


# -- crops ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shapes",
    [[(64, 64)], [(300, 400)], [(512, 260), (64, 700), (300, 300)]],
    ids=["smaller than a crop", "larger", "three"],
)
@pytest.mark.parametrize("seed", range(4))
def test_the_crops_are_those_that_cellpose_takes(shapes, seed, monkeypatch):
    from cellpose import transforms

    taken = []
    matrix = transforms.F._get_inverse_affine_matrix
    flip = transforms.F_t.hflip
    flips = []

    def spy(center, angle, translate, scale, shear):
        taken.append((float(angle), list(map(float, translate)), float(scale)))
        flips.append(False)
        return matrix(center, angle, translate, scale, shear)

    def spy_flip(image):
        flips[-1] = True
        return flip(image)

    monkeypatch.setattr(transforms.F, "_get_inverse_affine_matrix", spy)
    monkeypatch.setattr(transforms.F_t, "hflip", spy_flip)
    batch = [np.zeros((3, *shape), np.float32) for shape in shapes]
    flows = [np.zeros((3, *shape), np.float32) for shape in shapes]
    np.random.seed(seed)
    before = generator_digests()
    crops = upcoming_crops(batch)
    assert generator_digests() == before
    transforms.random_rotate_and_resize(
        batch, lbls=flows, rescale=np.ones(len(batch), "float32"), bsize=256, scale_range=0.5
    )
    assert len(crops) == len(taken)
    for crop, (angle, (y, x), scale), flipped in zip(crops, taken, flips, strict=True):
        assert crop["degrees"] == pytest.approx(angle, rel=1e-6)
        assert crop["scale"] == pytest.approx(scale, rel=1e-6)
        assert (crop["y"], crop["x"]) == pytest.approx((y, x), rel=1e-5, abs=1e-5)
        assert crop["flipped"] is flipped


def test_the_crops_of_the_ledger_follow_numpys_state(watched):
    """They are read ahead at every step, from where the generator is just then."""
    entries = watched["steps"].watch.ledger.entries
    crops = [entry.plain for entry in entries if entry.name == "crops"]
    assert len({crop[0]["degrees"] for crop in crops}) == 4
    np.random.seed(1)  # Cellpose's seed of the second epoch
    np.random.permutation(2)
    assert crops[2] == upcoming_crops([np.zeros((3, 64, 64), np.float32)])


def test_the_images_as_they_are_augmented_are_named():
    few = np.where(IMAGES[0].masks <= 4, IMAGES[0].masks, 0)
    odd = LabelledImage("few", IMAGES[0].image, few, "few", None)
    from cellrepro.model.training import Loop

    network, _ = begun()
    loop = Loop(network, [odd, *IMAGES], (), n_epochs=2, learning_rate=0.01)
    names = [f"{image} {kind}" for image in ("a", "b") for kind in ("normalised", "flows")]
    assert list(loop.prepared) == names
    for name, array in loop.prepared.items():
        assert array.dtype == np.float32
        assert array.shape == ((4, 64, 64) if name.endswith("flows") else (3, 64, 64))
    assert loop.training.n_removed == 1
