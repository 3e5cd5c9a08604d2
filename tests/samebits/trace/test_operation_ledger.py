"""What is written down of every operation is true: places, digests, tensors."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from samebits.seeds import seed_everything
from samebits.trace.operation_alignment import agreement
from samebits.trace.operation_ledger import OperationLedger

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

N = 5000  # floats: more memory than is digested every time anew


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.norm = nn.Linear(60, 100), nn.Dropout(0.3), nn.BatchNorm1d(100)
        self.b = nn.Linear(100, 2)

    def forward(self, x):
        return self.b(self.norm(self.drop(self.a(x)).tanh()))


def prepared():
    """A network and its training step, seeded."""
    seed_everything(0)
    net = Net()
    update = torch.optim.AdamW(net.parameters(), lr=0.01)

    def step():
        update.zero_grad()
        loss = net(torch.rand(80, 60)).square().mean()
        loss.backward()
        update.step()

    return net, step


def logged(function, **options):
    """The ledger of what a function does."""
    with OperationLedger(**options) as log:
        function()
    return log


def last(function):
    return logged(function).rows[-1]


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


# -- what a row says -----------------------------------------------------------------------


def test_rows_in_order_with_module_line_and_phase():
    rows = logged(prepared()[1], step=7).rows
    assert [row.index for row in rows] == list(range(len(rows)))
    assert {row.step for row in rows} == {7}
    assert [row.module for row in rows if row.op == "aten.addmm.default"] == ["a", "b"]
    assert {row.phase for row in rows} == {"forward", "backward", "update"}
    tanh = [row.op for row in rows].index("aten.tanh.default")
    again = logged(prepared()[1], step=7, wanted=[tanh])
    assert again.rows == rows
    (kept,) = again.outputs[tanh]
    assert kept.norm().item() == pytest.approx(rows[tanh].norm)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_shapes_dtypes_norms_and_views():
    linear, x = nn.Linear(3, 4), torch.ones(2, 3)
    rows = {row.op: row for row in logged(lambda: linear(x).to(torch.bfloat16).sum()).rows}
    multiplied = rows["aten.addmm.default"]
    assert multiplied.shapes == "4, 2x3, 3x4 -> 2x4"
    assert multiplied.dtypes == "float32, float32, float32 -> float32"
    assert rows["aten._to_copy.default"].dtypes == "float32 -> bfloat16"
    assert rows["aten.sum.default"].shapes == "2x4 -> 1"
    view = rows["aten.t.default"]
    assert (view.outputs, view.norm, view.shapes, view.dtypes) == ("", None, "4x3", "float32")
    lists = last(lambda: torch._foreach_mul_([torch.ones(2), torch.ones(3)], 3.0))
    assert (lists.shapes, lists.norm) == ("2, 3 -> 2, 3", pytest.approx(math.sqrt(45)))
    # Tensors of other kinds do not make the training fail that is being watched.
    assert last(lambda: torch.ones(4, device="meta") * 1).norm is None
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(N)])
    assert last(lambda: nested * 1).norm is None
    # Numbers and options count among the inputs.
    ones = torch.ones(3)
    added = [lambda: ones.add(1), lambda: ones.add(1.0), lambda: ones.add(1, alpha=2)]
    assert len({last(each).inputs for each in added}) == 3


# -- digests -------------------------------------------------------------------------------


def test_digests_across_devices_are_of_values_alone():
    """As cuDNN and a processor lay out the same numbers in other orders."""
    images = noise(2, 3, 40, 40)
    sides = images, images.contiguous(memory_format=torch.channels_last)
    a, b = (logged(lambda x=x: x * 2, across_devices=True).rows for x in sides)
    assert [(row.inputs, row.outputs) for row in a] == [(row.inputs, row.outputs) for row in b]
    other = logged(lambda: (images + 1) * 2, across_devices=True).rows
    assert other[-1].outputs != a[-1].outputs
    a, b = (logged(lambda x=x: x * 2).rows for x in sides)
    assert a[0].outputs != b[0].outputs


def test_a_digest_says_that_something_lay_elsewhere():
    """Only digests of one kind are compared; a GPU's are made in another way."""
    elsewhere = last(lambda: torch.ones(4, device="meta") * 1)
    here = last(lambda: torch.ones(4) * 1)
    assert agreement(elsewhere.outputs, here.outputs) == "unknown"
    assert agreement(elsewhere.outputs, elsewhere.outputs) == "agree"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_gpu_that_computes_the_same_has_the_same_digests():
    x = noise(2, 3, 40, 40)
    sides = [
        logged(lambda y=y: y.t_().abs(), across_devices=True).rows
        for y in (x[0, 0], x[0, 0].cuda())
    ]
    assert [row.outputs for row in sides[0]] == [row.outputs for row in sides[1]]
    stored = [last(lambda y=y: y.abs()) for y in (x, x.cuda())]
    assert agreement(stored[0].outputs, stored[1].outputs) == "unknown"


LAYOUTS = {
    "small": lambda x: x[:30],
    "transposed": lambda x: x.view(50, -1).t(),
    "with gaps": lambda x: x.view(50, -1)[:, 3:40],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_one_flipped_bit_shows_in_inputs_and_outputs(layout):
    base = noise(3 * N)
    plain, other = layout(base.clone()), layout(base.clone())
    flat = other.view(torch.int32)
    flat[tuple(n - 1 for n in flat.shape)] ^= 1
    rows = [last(lambda x=x: x.clone()) for x in (plain, layout(base.clone()), other)]
    assert rows[0] == rows[1]
    assert rows[0].inputs != rows[2].inputs
    assert rows[0].outputs != rows[2].outputs


BEFORE = [
    *(("08343902", ""), ("f47d808a", "9399c4b6"), ("88d94352", "4711099a")),
    *(("25f58392", "6a20266d"), ("66dfc263", "bd57da12"), ("4fef72e8", "")),
    ("68964f07", "8a32b0fb"),
]


def test_digests_are_those_of_the_version_before():
    """Ledgers that stores hold already are compared with new ones."""
    x = torch.arange(6.0).reshape(2, 3)
    rows = logged(lambda: (x.t() @ x, x.add(1, alpha=2), torch.arange(N).float()[::2].exp())).rows
    assert [(row.inputs[:8], row.outputs[:8]) for row in rows] == BEFORE


WRITES = {
    "a view of a view": lambda x: x[10:].unsqueeze(0)[:, 5:6].fill_(9),
    "out= of a view": lambda x: torch.mul(torch.ones(10), 3, out=x[20:30]),
    "foreach on views": lambda x: torch._foreach_mul_([x[:5], x[40:]], 3.0),
    "as a different dtype": lambda x: x.view(torch.int32).bitwise_xor_(1),
    "unsaid": lambda x: functional.batch_norm(noise(2, N), x, torch.ones(N), training=True),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_was_written_into_is_digested_again(write):
    """The inputs' digest is what a new ledger, which remembers nothing, gives."""
    start = noise(N)

    def run():
        x = start.clone()
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


def refilled(buffer, value):
    buffer[:] = value


MEMORY_OF_OTHERS = {
    "from_numpy": lambda array, _: (torch.from_numpy(array), array),
    "as_tensor": lambda array, _: (torch.as_tensor(array), array),
    "numpy of a tensor": lambda array, _: (x := torch.from_numpy(array).clone(), x.numpy()),
    "numpy of a parameter": lambda array, _: (
        x := torch.nn.Parameter(torch.from_numpy(array).clone()),
        x.detach().numpy(),
    ),
    "DLPack": lambda array, _: (torch.from_dlpack(array), array),
    "a file": lambda array, folder: _of_a_file(array, folder),
    "shared": lambda array, _: (x := torch.from_numpy(array).share_memory_(), x.numpy()),
}


def _of_a_file(array, folder):
    mapped = np.memmap(folder / "batch", "float32", "w+", shape=array.shape)
    mapped[:] = array
    return torch.from_numpy(mapped), mapped


@pytest.mark.parametrize("way", MEMORY_OF_OTHERS)
def test_a_batch_that_is_refilled_past_pytorch_is_another_input(way, tmp_path):
    """And no operation is accused of a difference that was there before it."""

    def run(value):
        x, buffer = MEMORY_OF_OTHERS[way](np.ones(N, np.float32), tmp_path)
        first = x * 2
        refilled(buffer, value)
        return first, x * 2

    a, b = ([row for row in logged(lambda v=v: run(v)).rows if "mul" in row.op] for v in (5, 6))
    assert a[0] == b[0]
    assert (a[1].inputs != b[1].inputs, a[1].outputs != b[1].outputs) == (True, True)
    assert a[0].inputs != a[1].inputs


def test_memory_that_was_freed_and_given_again_is_digested_anew():
    def run():
        for index in range(60):
            x = torch.full((N,), float(index))
            x.exp()
            x[100:].exp()
            del x
            torch.from_numpy(np.full(N, -index, np.float32)).exp()

    rows = [row for row in logged(run).rows if row.op == "aten.exp.default"]
    assert len({row.inputs for row in rows}) == 180 - 1  # 0 and -0 as int are one


def test_what_stands_in_unwritten_memory_does_not_count():
    """As where torchvision fills a grid column by column: two equal runs would differ."""

    def run(value, added=0.0, make=lambda: torch.empty(N, 3)):
        x = torch.ones(N) + added
        grid = make()
        grid.numpy()[:] = value  # which PyTorch does not dispatch
        grid[:, 0].copy_(x)
        grid[:, 1].copy_(x)
        grid[:, 2].fill_(1)
        return grid.exp()

    a, b, c = (logged(lambda g=given: run(*g)).rows for given in ((5,), (6,), (5, 1.0)))
    assert a == b
    assert a[-1].inputs != c[-1].inputs  # once it is written it counts
    into_a_column = [row.op for row in a].index("aten.copy_.default")
    assert a[into_a_column].outputs != c[into_a_column].outputs  # and what writes it, at once
    assert a[-1].inputs == last(lambda: torch.stack([torch.ones(N)] * 3, dim=1).exp()).inputs
    enlarged = [{"value": value, "make": lambda: torch.ones(2).resize_(N, 3)} for value in (5, 6)]
    c, d = (logged(lambda given=given: run(**given)).rows for given in enlarged)
    assert c == d
    assert c[-1].inputs == a[-1].inputs
