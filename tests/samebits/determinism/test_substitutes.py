"""Substitutes: equal to what they replace, the same bits every time, in place only for a block."""

import contextlib
import functools

import numpy as np
import pytest
import torch
from segment_anything.modeling import image_encoder
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from samebits.bit_equality import same_bits
from samebits.errors import BadInput, NotPossibleHere
from samebits.known_operations import base_name
from samebits.substitutes import (
    SUBSTITUTES,
    applied,
    coefficients,
    for_operation,
    in_force,
    interpolate_linear,
    stands_in,
    toeplitz_gather,
)

ORIGINAL = image_encoder.get_rel_pos
GATHER, INTERPOLATION = (item.name for item in SUBSTITUTES)


@pytest.fixture(autouse=True)
def original_afterwards():
    yield
    assert image_encoder.get_rel_pos is ORIGINAL
    assert in_force() == ()


def normal(*shape, seed=0, dtype=torch.float32):
    drawn = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(drawn).to(dtype)


def gradient(function, k, rel):
    """The gradient of a weighted sum; weights do not depend on the dtype."""
    rel = rel.detach().clone().requires_grad_()
    function(k, k, rel).backward(normal(k, k, rel.shape[1], seed=1, dtype=rel.dtype))
    return rel.grad


class Operations(TorchDispatchMode):
    """Names of all operations run in the block, backward included."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(base_name(str(func)))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_gather_equals_the_original_bit_for_bit(k):
    rel = normal(2 * k - 1, 3)
    rel[: k // 2, 0], rel[k // 2, 1] = -0.0, float("nan")
    assert same_bits(toeplitz_gather(rel, k).contiguous(), ORIGINAL(k, k, rel))


@pytest.mark.parametrize(("n_rows", "length"), [(27, 63), (127, 31), (1, 5), (9, 9), (140, 1)])
def test_interpolation_is_pytorchs_within_rounding(n_rows, length):
    """Its coefficients are PyTorch's own; PyTorch rounds thrice (0.5 + 0.25 + 0.5 ulp), it once."""

    def by_pytorch(rows):
        return functional.interpolate(rows.T[None], size=length, mode="linear")[0].T

    used = torch.from_numpy(coefficients(n_rows, length))
    assert torch.equal(used, by_pytorch(torch.eye(n_rows)))
    x = normal(n_rows, 50)
    largest = torch.stack([x[row].abs().amax(0) for row in used != 0]).double()
    spacing = torch.finfo(x.dtype).eps * 2 ** torch.floor(torch.log2(largest))
    apart = (interpolate_linear(x, length).double() - by_pytorch(x).double()).abs() / spacing
    assert apart.max() <= 1.75


def test_autocast_changes_nothing_and_other_sizes_are_refused():
    x = normal(27, 64)
    expected = interpolate_linear(x, 63)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same_bits(interpolate_linear(x, 63), expected)
    with pytest.raises(BadInput, match=r"8 rows for k=4; expected .* = 7"):
        toeplitz_gather(torch.zeros(8, 2), 4)


@pytest.mark.parametrize("loose", [(), ("upsample_linear1d_backward",), ("index_put",)])
@pytest.mark.parametrize(("n_rows", "length"), [(27, 27), (127, 63)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_values_gradient_and_operations_against_the_original(
    loose, n_rows, length, dtype, tolerance
):
    k = (length + 1) // 2
    rel = normal(n_rows, 16, dtype=dtype)
    value, expected = ORIGINAL(k, k, rel), gradient(ORIGINAL, k, rel.double())
    with applied(without=loose), Operations() as ran:
        found = image_encoder.get_rel_pos(k, k, rel)
        actual = gradient(image_encoder.get_rel_pos, k, rel)
    assert (found.double() - value.double()).abs().max() <= tolerance * value.abs().max()
    if n_rows == length or "upsample_linear1d_backward" in loose:
        assert same_bits(found.contiguous(), value)
    assert (actual.double() - expected).abs().max() <= tolerance * expected.abs().max()
    assert ran.names & {"index_put", "upsample_linear1d_backward"} <= set(loose)


def test_every_repeat_and_number_of_threads_gives_the_same_bits(one_thread):
    assert not torch.are_deterministic_algorithms_enabled()
    rel, found = normal(127, 192), []
    with applied():
        for n_threads in (1, 2, 4):
            torch.set_num_threads(n_threads)
            found += [gradient(image_encoder.get_rel_pos, 16, rel) for _ in range(10)]
    assert all(same_bits(one, found[0]) for one in found)


def test_an_evaluation_first_does_not_prevent_training():
    """What is kept from inference mode could not be trained with."""
    with applied():
        with torch.inference_mode():
            image_encoder.get_rel_pos(30, 30, normal(29, 8))
        assert gradient(image_encoder.get_rel_pos, 30, normal(29, 8)).any()


def test_of_nested_blocks_the_innermost_holds():
    rel = normal(27, 4)
    exact = ORIGINAL(32, 32, rel)
    with applied() as chosen:
        outer = image_encoder.get_rel_pos
        assert tuple(item.name for item in chosen) == in_force() == (GATHER, INTERPOLATION)
        assert not same_bits(outer(32, 32, rel).contiguous(), exact)
        with pytest.raises(ZeroDivisionError), applied(without={"upsample_linear1d_backward"}):  # noqa: PT012
            assert in_force() == (GATHER,)
            assert same_bits(image_encoder.get_rel_pos(32, 32, rel).contiguous(), exact)
            with applied(without=["aten.index_put.default", "upsample_linear1d_backward"]):
                assert in_force() == ()
                assert image_encoder.get_rel_pos is ORIGINAL
            1 / 0  # noqa: B018
        assert image_encoder.get_rel_pos is outer


def test_refuses_an_operation_without_substitute():
    with pytest.raises(BadInput, match=r"expected a set of .*: index_put, upsample_linear1d_ba"):
        applied(without=["index_put", "bmm"]).__enter__()


@pytest.mark.parametrize("block", [contextlib.nullcontext, applied])
def test_refused_where_the_code_is_another(monkeypatch, block):
    """Another release's, or a wrapper; outside of a block, and over ours within one."""
    with block(), monkeypatch.context() as context:
        wrapped = functools.wraps(image_encoder.get_rel_pos)(lambda *shapes: shapes)
        context.setattr(image_encoder, "get_rel_pos", wrapped)
        with pytest.raises(NotPossibleHere, match=r"not the code it was tested against: expected"):
            applied().__enter__()


FILE = "segment_anything/modeling/image_encoder.py"
PLACE = f"{FILE}:322 in get_rel_pos"


@pytest.mark.parametrize(
    ("op", "source", "expected"),
    [
        ("aten.index_put.default", PLACE, GATHER),
        ("upsample_linear1d_backward_out_cuda", PLACE, INTERPOLATION),
        ("aten.upsample_linear1d.default", PLACE, None),
        ("index_put", "C:\\lib\\" + PLACE.replace("/", "\\"), GATHER),
        ("index_put", "cellrepro/control/substitutes.py:7 in get_rel_pos", GATHER),
        ("index_put", f"{FILE}:9 in forward", None),
        ("index_put", f"my_{PLACE}", None),
        ("index_put", None, None),
    ],
)
def test_for_operation(op, source, expected):
    found = for_operation(op, source)
    assert (found and found.name) == expected


def test_which_lines_stand_for_one_function():
    for room in ("determinism", "control"):  # the second in older stores
        ours = f"cellrepro/{room}/substitutes.py:73 in toeplitz_gather"
        assert stands_in(PLACE) == stands_in(ours) == f"{FILE} in get_rel_pos"
    assert stands_in("my/model.py:73 in toeplitz_gather") is None
