"""The mode: what is refused, by which name and line, and what is not touched."""

import ast
import contextlib
import inspect
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import samebits
from samebits.arithmetic import portable_mode, proof
from samebits.arithmetic.portable_mode import NotPortable, PortableArithmetic
from samebits.arithmetic.portable_operations import portable_operations
from samebits.errors import NotPossibleHere

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


class Spectral(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).abs()


def line_of(function, text):
    lines, begin = inspect.getsourcelines(function)
    return begin + next(index for index, line in enumerate(lines) if text in line)


def test_an_operation_without_portable_form_is_refused_by_name_and_line():
    network = nn.Sequential(nn.Linear(4, 4), Spectral())
    with pytest.raises(NotPortable) as refusal, PortableArithmetic():
        network(torch.ones(2, 4))
    site = refusal.value.site
    assert site.op == "aten._fft_r2c.default"
    assert site.module == "1"
    assert site.source.endswith(
        f"test_portable_mode.py:{line_of(Spectral.forward, 'fft')} in forward"
    )
    assert "1, " in str(refusal.value)


class WithOwnBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, gradient):
        return torch.logcumsumexp(gradient, 0)


def test_so_is_one_of_the_backward_pass():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(NotPortable, match="logcumsumexp") as refusal, PortableArithmetic():
        WithOwnBackward.apply(x).sum().backward()
    assert refusal.value.site.phase == "backward"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: torch.ones(3).bfloat16().exp(), "float32"),
        (lambda: torch.randn(3, dtype=torch.float16), "float32 and float64"),
        (lambda: torch.ones(3).atan2(torch.ones(3).double()), "one type of numbers"),
        (lambda: torch.ones(3).scatter_reduce(0, FIRST, TWO, "prod"), "order"),
        (lambda: torch.ones(3).lgamma(), "no portable form"),
    ],
)
def test_what_has_none_says_why(call, reason):
    with pytest.raises(NotPortable, match=reason), PortableArithmetic():
        call()


def test_whole_numbers_need_no_other_form():
    with PortableArithmetic():
        counts = torch.arange(10).cumsum(0)
        assert counts[-1].item() == 45
        assert torch.ones(4, dtype=torch.int64).sum().item() == 4
        assert torch.bincount(torch.tensor([0, 1, 1])).tolist() == [1, 2]


def test_writing_in_place_and_into_what_is_given():
    with PortableArithmetic():
        x = torch.full((3,), 4.0)
        assert x.sqrt_() is x
        out = torch.empty(2, 2)
        torch.mm(torch.eye(2), torch.eye(2), out=out)
        y = torch.ones(3).add_(torch.ones(3), alpha=0.5)
    assert x.tolist() == [2, 2, 2]
    assert out.tolist() == [[1, 0], [0, 1]]
    assert y.tolist() == [1.5, 1.5, 1.5]


@pytest.mark.parametrize(
    "sorting",
    [torch.sort, partial(torch.topk, k=2), partial(torch.kthvalue, k=2)],
    ids=["sort", "topk", "kthvalue"],
)
def test_writing_into_two_tensors_is_refused(sorting):
    out = (torch.empty(0), torch.empty(0, dtype=torch.int64))
    expected = r"writes into out=\(values, indices\); take what it returns"
    with pytest.raises(NotPortable, match=expected), PortableArithmetic():
        sorting(torch.arange(4.0), out=out)


def test_a_factor_and_a_sum_are_two_roundings():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 1000, generator=generator)
    with PortableArithmetic():
        actual = [torch.add(a, b, alpha=0.1), torch.addcmul(a, b, b, value=0.1), a.lerp(b, 0.1)]
    factor = torch.tensor(0.1)
    expected = [a + b * factor, a + (b * factor) * b, a + (b - a) * factor]
    for given, wanted in zip(actual, expected, strict=True):
        assert torch.equal(given, wanted)


# -- the proof -----------------------------------------------------------------------------


def test_this_processor_is_as_assumed():
    proof.prove("cpu")


def test_a_library_that_rounds_otherwise_is_refused(monkeypatch):
    def rounded(left, right):
        return (left.float() @ right.float()).double()

    monkeypatch.setattr(torch, "mm", rounded)
    with pytest.raises(NotPossibleHere, match="products of large whole numbers"):
        proof.prove("cpu")


def test_numbers_flushed_to_zero_are_refused():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    try:
        with pytest.raises(NotPossibleHere, match="flushed to zero"):
            proof.prove("cpu")
    finally:
        torch.set_flush_denormal(False)


def test_a_device_without_float64_is_refused():
    with pytest.raises(NotPossibleHere, match=r"mps, which has no float64.*profile cpu"):
        proof.prove("mps")


# -- what of a step is portable ------------------------------------------------------------


def test_operations_of_a_step_are_listed():
    network = nn.Sequential(nn.Linear(4, 4), Spectral())
    found = portable_operations(lambda: network(torch.ones(2, 4)).sum().backward(), model=network)
    forms = {operation.name: operation.form for operation in found.operations}
    assert forms["_fft_r2c"] == "missing"
    assert forms["addmm"] == "replaced"
    assert forms["detach"] == "exact"
    assert "not portable" in str(found)
    assert (
        f"_fft_r2c (forward of 1, test_portable_mode.py:{line_of(Spectral.forward, 'fft')}"
        in str(found)
    )


def test_a_portable_step_is_said_to_be_so():
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def step():
        network(torch.rand(8, 4)).square().mean().backward()
        optimizer.step()

    assert str(portable_operations(step)).startswith("portable: ")
    assert network[1].num_batches_tracked == 1
    assert str(portable_operations(lambda: None)).startswith("vacuous")


def test_all_that_is_not_portable_is_listed():
    """Also an optimizer, whose operations go on; complex numbers are said to be the reason."""
    weight = nn.Parameter(torch.ones(3, 3))
    optimizer = torch.optim.LBFGS([weight], line_search_fn="strong_wolfe")

    def step():
        optimizer.step(lambda: torch.polar(weight[0], weight[0]).mul(2).real.sum() * weight.sum())
        torch.linalg.svdvals(weight.detach())

    found = portable_operations(step)
    missing = {each.name: each.reason for each in found.operations if each.form == "missing"}
    assert missing.keys() >= {"torch.optim.LBFGS.step", "polar", "mul", "_linalg_svd"}
    assert "complex" in missing["mul"]
    assert "complex" in found.sentence()


def test_linearize_is_refused_by_its_name():
    """It would record a graph without the numbers that portable forms compute."""
    x = torch.ones(2)
    with pytest.raises(NotPortable, match=r"torch\.func\.linearize"), PortableArithmetic():
        torch.ops.aten._new_zeros_with_same_feature_meta(x, x)  # all that it can be refused by


def test_a_tensor_without_numbers_is_said_to_be_one():
    shape = torch.ones(2, 2, device="meta")
    refused = pytest.raises(samebits.BadInput, match=r"device meta, .* expected tensors with numb")
    with refused, PortableArithmetic():
        shape @ shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8], ids=str)
def test_of_equal_numbers_the_first_comes_first(dtype):
    """Also of whole numbers: their order is part of what a sort gives."""
    numbers = torch.tensor([2, 1, 2, 1, 3] * 40, dtype=dtype)
    expected = sorted(range(len(numbers)), key=lambda place: numbers[place].item())
    with PortableArithmetic():
        ascending = numbers.argsort()
        values, largest = numbers.topk(100)
        value, third = numbers.kthvalue(3)
    assert ascending.tolist() == expected
    assert largest.tolist() == sorted(range(200), key=lambda place: -numbers[place].item())[:100]
    assert values[0] == 3
    assert (value.item(), third.item()) == (1, expected[2])


def test_every_block_is_proved_anew():
    with samebits.portable():
        pass
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    try:
        with pytest.raises(NotPossibleHere, match="flushed to zero"), samebits.portable():
            pass
    finally:
        torch.set_flush_denormal(False)


def test_flushing_small_numbers_in_a_block_is_refused():
    refused = pytest.raises(NotPortable, match=r"set_flush_denormal .*test_portable_mode")
    with refused, PortableArithmetic():
        torch.set_flush_denormal(False)
        torch.set_flush_denormal(True)


def test_a_block_in_a_compiled_function_runs_as_written(monkeypatch):
    monkeypatch.setattr(portable_mode, "prove", lambda device: None)
    compiled = []

    def step(x):
        doubled = x * 2
        with samebits.portable():
            root = doubled.exp()
        return root + 1

    def counting(graph, inputs):
        compiled.append(graph)
        return graph.forward

    x = torch.linspace(-1, 1, 9)
    assert torch.equal(torch.compile(step, backend=counting)(x), step(x))
    assert compiled


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"std": 0.02}, "98df12e14057"),
        ({"mean": 0.3, "std": 2.0, "a": 0.0, "b": 1.0}, "54d9ffff5053"),
    ],
    ids=["normal numbers drawn again", "uniform numbers accepted"],
)
def test_truncated_normal_numbers_are_alike_in_every_version(bounds, expected):
    """PyTorch 2.6 and 2.15 draw them in two ways, to which the mode gives one."""
    with PortableArithmetic(), samebits.seeded(0):
        numbers = nn.init.trunc_normal_(torch.empty(30, 20), **bounds)
    assert samebits.tensor_digest(numbers)[:12] == expected


@torch.library.custom_op("mine::relu", mutates_args=())
def relu_of_mine(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("mine::exp", mutates_args=())
def exp_of_mine(x: torch.Tensor) -> torch.Tensor:
    return x * 3


FIRST = torch.tensor([0, 0])
TWO = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "compute",
    [
        lambda: torch.nn.functional.mse_loss(torch.ones(9).half(), torch.zeros(9).half()),
        lambda: torch.tensor([4, 9]).sqrt(),
        lambda: torch.tensor([4, 9]).rsqrt(),
        lambda: torch.zeros(3).scatter(0, FIRST, TWO),
        lambda: torch.zeros(3).index_copy(0, FIRST, TWO),
        lambda: torch.zeros(3).index_put((FIRST,), TWO),
        lambda: relu_of_mine(TWO),
        lambda: exp_of_mine(TWO),
    ],
)
def test_what_has_no_right_form_is_refused_by_name(compute):
    with samebits.portable(), pytest.raises(NotPortable):
        compute()


@pytest.mark.parametrize(
    "compute",
    [
        lambda: torch.div(torch.tensor([16_777_219]), 1, rounding_mode="floor"),
        lambda: torch.tensor([16_777_219]).div_(2, rounding_mode="trunc"),
        lambda: torch.linspace(-1, 1, 1),
        lambda: torch.linspace(-1, 1, 2),
        lambda: torch.ones(100_000, dtype=torch.float16).mean(),
        lambda: torch.ones(9, dtype=torch.bfloat16).sum(),
        lambda: torch.tensor(1.0).scatter_add(0, torch.tensor(0), torch.tensor(2.0)),
        lambda: torch.nn.functional.avg_pool2d(torch.arange(32.0).reshape(2, 4, 4), 2),
        lambda: next(iter(torch.utils.data.DataLoader(TWO, batch_size=2))),
        lambda: torch.nn.functional.dropout(torch.zeros(5), 0.5),
        lambda: torch.zeros(3).scatter(0, torch.tensor([2, 0]), TWO),
        lambda: torch.zeros(3).scatter(0, FIRST, 5.0),
        lambda: torch.zeros(3).index_copy(0, torch.tensor([2, 0]), TWO),
        lambda: torch.zeros(3).index_put((FIRST,), torch.tensor(5.0)),
    ],
)
def test_results_are_those_without_the_mode(compute):
    expected = compute()
    with samebits.portable():
        actual = compute()
    assert torch.equal(actual, expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: torch.nn.functional.max_pool2d(a, 2, stride=2, dilation=2),
        lambda a: torch.nn.functional.max_pool2d(a, 3, stride=2, padding=1),
        lambda a: torch.nn.functional.interpolate(a, scale_factor=2.05, mode="nearest"),
        lambda a: torch.nn.functional.avg_pool2d(a, 3, 2, 1, ceil_mode=True),
    ],
)
def test_gradients_of_uneven_windows_are_pytorchs(operation):
    """Windows with gaps overlap, and a scale of 2.05 gives twice the pixels from other places."""
    a = torch.rand(1, 1, 10, 10, requires_grad=True)
    (expected,) = torch.autograd.grad(operation(a).square().sum(), a)
    with PortableArithmetic():
        (actual,) = torch.autograd.grad(operation(a).square().sum(), a)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("pair", [(float("nan"), 0.0), (0.0, -0.0)])
def test_two_numbers_for_one_place_are_refused_by_their_bits(pair):
    index = torch.tensor([0, 0])
    with pytest.raises(NotPortable, match="different numbers into one place"), PortableArithmetic():
        torch.zeros(3).index_copy(0, index, torch.tensor(pair))


KERNELS = Path(samebits.__file__).parent / "arithmetic" / "kernels"


def test_no_form_passes_over_what_pytorch_is_told():
    """One that ignored ``dilation`` gave another gradient in silence."""
    forms = [
        node
        for path in sorted(KERNELS.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        if any(ast.unparse(each).startswith("FORMS.of") for each in node.decorator_list)
    ]
    assert len(forms) > 50
    passed_over = []
    for form in forms:
        stated = [node.arg for node in ast.walk(form.args) if isinstance(node, ast.arg)]
        used = {
            node.id for part in form.body for node in ast.walk(part) if isinstance(node, ast.Name)
        }
        passed_over += [f"{form.name}: {name}" for name in stated if name not in used]
    assert passed_over == []


@pytest.mark.parametrize("function", [torch._safe_softmax, torch.softmax])
def test_a_result_in_another_type_is_not_given_in_float32(function):
    with PortableArithmetic():
        try:
            result = function(torch.zeros(2, 3), -1, torch.float64)
        except NotPortable:
            return
    assert result.dtype == torch.float64


ZEROS = torch.tensor([[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]])


@pytest.mark.parametrize(
    "extreme",
    [
        lambda a: a.relu(),
        lambda a: a.clamp(min=0),
        lambda a: torch.maximum(a, a.flip(1)),
        lambda a: torch.fmin(a, a.flip(1)),
        lambda a: a.amax(1),
        lambda a: a.amin(),
        lambda a: a.min(0).values,
        lambda a: torch.aminmax(a).max,
        lambda a: a.cummax(0).values,
        lambda a: a.unique(),
    ],
)
def test_zeros_of_two_signs_give_one(extreme):
    """Processors take +0 or -0 as the larger of both, or the one that they were given first."""
    with PortableArithmetic():
        assert not extreme(ZEROS).signbit().any()


@pytest.mark.parametrize("n_numbers", [16, 40, 1000])
def test_normal_numbers_are_pytorchs_within_roundings(n_numbers):
    """Made of the same uniform numbers, and the generator stands where PyTorch leaves it."""
    drawn = []
    for block in (contextlib.nullcontext(), PortableArithmetic()):
        torch.manual_seed(0)
        with block:
            drawn.append((torch.empty(n_numbers).normal_(1.0, 3.0), torch.rand(3)))
    torch.testing.assert_close(*drawn, rtol=1e-6, atol=3e-6)


def test_networks_with_few_parameters_are_initialised():
    """Also tensors of fewer numbers than PyTorch turns into normal ones at a time."""
    torch.manual_seed(0)
    with PortableArithmetic():
        few = torch.randn(100_000).reshape(-1, 10)[:, :5]
        one_by_one = torch.stack([torch.randn(5) for _ in range(2000)])
        chosen = torch.bernoulli(torch.full((10_000,), 0.25))
    for numbers in (few, one_by_one):
        assert abs(numbers.mean().item()) < 0.03
        assert abs(numbers.std().item() - 1) < 0.03
    assert abs(chosen.mean().item() - 0.25) < 0.02


def test_a_gradient_under_torch_func_is_pytorchs():
    a = torch.linspace(-2, 2, 4)
    for function in (torch.tanh, torch.sigmoid, torch.nn.functional.gelu, torch.sin):
        expected = torch.func.jacrev(function)(a)
        with PortableArithmetic():
            actual = torch.func.jacrev(function)(a)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e30], ids=["finite", "beyond float32"])
def test_a_scaled_loss_is_pytorchs(size):
    """Of a scale that is a power of two every bit; an update that is not finite is left out."""
    results = []
    for block in (contextlib.nullcontext(), PortableArithmetic()):
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=1)
        with block:
            for _ in range(2):
                scaler.scale((weight * size).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        results.append([*weight.tolist(), scaler.get_scale()])
    assert results[0] == results[1]
