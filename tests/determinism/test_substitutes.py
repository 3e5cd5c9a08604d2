"""Substitutes: equal to what they replace, the same bits every time, in place only for a block."""

import functools
import hashlib
import importlib
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_anything.modeling import image_encoder
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from cellrepro.determinism import substitutes
from cellrepro.determinism.known_operations import base_name
from cellrepro.determinism.seeding import seeded
from cellrepro.determinism.substitutes import (
    Substitute,
    applied,
    coefficients,
    for_operation,
    in_force,
    interpolate_linear,
    stands_in,
    toeplitz_gather,
)
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.model.network import ModelSource, build, import_cellpose

ORIGINAL = image_encoder.get_rel_pos
GATHER, INTERPOLATION = "rel-pos-gather", "rel-pos-interpolation"
LOOSE = {
    "both": (),
    "gather only": ("upsample_linear1d_backward",),
    "interpolation only": ("index_put",),
}
SIZES = [(27, 27), (127, 63), (27, 31), (63, 127)]
"""Rows stored and rows wanted: SAM stores 27 and 127, Cellpose's images want 63, `tiny`'s 31."""


@pytest.fixture(scope="module", autouse=True)
def cellpose_is_there():
    """Its import changes switches; that is no single test's fault."""
    import_cellpose()


@pytest.fixture(autouse=True)
def original_afterwards():
    yield
    assert image_encoder.get_rel_pos is ORIGINAL
    assert in_force() == ()


@pytest.fixture
def threads_free():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def normal(*shape, seed=0, dtype=torch.float32):
    drawn = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(drawn).to(dtype)


def same_bits(a, b):
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def gradient(function, q, k, rel):
    """The gradient of a weighted sum; weights do not depend on the dtype."""
    rel = rel.detach().clone().requires_grad_()
    function(q, k, rel).backward(normal(q, k, rel.shape[1], seed=1, dtype=rel.dtype))
    return rel.grad


class Operations(TorchDispatchMode):
    """Names of all operations run in the block, backward included."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(base_name(str(func)))
        return func(*args, **(kwargs or {}))


# -- forward -------------------------------------------------------------------------------

values = st.one_of(
    st.floats(width=16), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf")])
)


@given(data=st.data(), k=st.integers(1, 12), width=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_gather_equals_the_definition_bit_for_bit(data, k, width):
    numbers = data.draw(st.lists(values, min_size=1, max_size=8))
    rel = torch.tensor(np.resize(numbers, (2 * k - 1, width)), dtype=torch.float32)
    rel[k - 1] = torch.arange(width)  # so that no shift goes unseen
    rows = [rel[i - j + k - 1] for i in range(k) for j in range(k)]
    assert same_bits(toeplitz_gather(rel, k), torch.stack(rows).reshape(k, k, width))
    assert same_bits(toeplitz_gather(rel, k), ORIGINAL(k, k, rel))


@given(n_rows=st.integers(1, 140), length=st.integers(1, 260), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_interpolation_is_pytorchs_within_rounding(n_rows, length, seed):
    """Its coefficients are PyTorch's own; PyTorch rounds thrice (0.5 + 0.25 + 0.5 ulp), it once."""
    each = torch.eye(n_rows)[None]
    expected = functional.interpolate(each, size=length, mode="linear")[0].T
    assert torch.equal(torch.from_numpy(coefficients(n_rows, length)), expected)

    x = normal(n_rows, 3, seed=seed)
    expected = functional.interpolate(x.T[None], size=length, mode="linear")[0].T
    used = coefficients(n_rows, length) != 0
    largest = torch.stack([x[torch.from_numpy(row)].abs().amax(0) for row in used]).double()
    spacing = torch.finfo(x.dtype).eps * 2 ** torch.floor(torch.log2(largest))
    apart = (interpolate_linear(x, length).double() - expected.double()).abs() / spacing
    assert apart.max() <= 1.75


@given(seed=st.integers(0, 99), length=st.integers(1, 80))
@settings(max_examples=20, deadline=None)
def test_interpolation_is_the_exact_sum_rounded_once(seed, length):
    """So that neither order of summation nor instruction set can show."""
    x = normal(11, 1, seed=seed)
    actual = interpolate_linear(x, length)[:, 0]
    for row, value in zip(coefficients(11, length).tolist(), actual.tolist(), strict=True):
        exact = sum(Fraction(a) * Fraction(b) for a, b in zip(row, x[:, 0].tolist(), strict=True))
        assert value == np.float32(float(exact))


def test_autocast_changes_nothing_and_float64_stays():
    x = normal(27, 64)
    expected = interpolate_linear(x, 63)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same_bits(interpolate_linear(x, 63), expected)
    double = functional.interpolate(x.double().T[None], size=63, mode="linear")[0].T
    assert torch.allclose(interpolate_linear(x.double(), 63), double, rtol=0, atol=1e-13)
    with pytest.raises(BadInput, match=r"8 rows for k=4; expected .* = 7"):
        toeplitz_gather(torch.zeros(8, 2), 4)


@pytest.mark.parametrize("loose", LOOSE.values(), ids=LOOSE)
@pytest.mark.parametrize(("q", "k", "n_rows"), [(4, 8, 15), (8, 4, 13), (3, 7, 27)])
def test_attention_that_is_not_square(loose, q, k, n_rows):
    """The original's own gather serves it, with its indices."""
    rel = normal(n_rows, 5)
    expected = ORIGINAL(q, k, rel)
    with applied(without=loose):
        actual = image_encoder.get_rel_pos(q, k, rel)
    assert torch.allclose(actual, expected, rtol=0, atol=1e-6)
    if n_rows == 2 * max(q, k) - 1 or "upsample_linear1d_backward" in loose:
        assert same_bits(actual, expected)


# -- backward ------------------------------------------------------------------------------


@pytest.mark.parametrize("loose", LOOSE.values(), ids=LOOSE)
@pytest.mark.parametrize(("n_rows", "length"), SIZES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_values_and_gradient_against_the_original(loose, n_rows, length, dtype, tolerance):
    k = (length + 1) // 2
    rel = normal(n_rows, 16, dtype=dtype)
    value, expected = ORIGINAL(k, k, rel), gradient(ORIGINAL, k, k, rel.double())
    with applied(without=loose):
        found = image_encoder.get_rel_pos(k, k, rel)
        actual = gradient(image_encoder.get_rel_pos, k, k, rel)
    assert (found.double() - value.double()).abs().max() <= tolerance * value.abs().max()
    if n_rows == length or "upsample_linear1d_backward" in loose:
        assert same_bits(found, value)
    assert (actual.double() - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize(("n_rows", "k", "width"), [(27, 32, 64), (127, 16, 192)])
def test_every_repeat_and_number_of_threads_gives_the_same_bits(n_rows, k, width, threads_free):
    assert not torch.are_deterministic_algorithms_enabled()
    rel = normal(n_rows, width)
    expected = None
    with applied():
        for n_threads in (1, 2, 4):
            torch.set_num_threads(n_threads)
            for _ in range(10):
                actual = gradient(image_encoder.get_rel_pos, k, k, rel)
                expected = actual if expected is None else expected
                assert same_bits(actual, expected)


def test_an_evaluation_first_does_not_prevent_training():
    """What is kept from inference mode could not be trained with."""
    with applied():
        with torch.inference_mode():
            image_encoder.get_rel_pos(30, 30, normal(29, 8))
        assert gradient(image_encoder.get_rel_pos, 30, 30, normal(29, 8)).any()


# -- the whole network ---------------------------------------------------------------------


def training_step():
    """Gradients of one step, by parameter, and the operations it ran."""
    device = torch.device("cpu")
    network = build(ModelSource("tiny", "tiny"), seed=0, device=device, dtype="float32")
    network.train()
    ran = Operations()
    with seeded(3), ran:
        network(normal(2, 3, 256, 256))[0].square().mean().backward()
    return {n: p.grad for n, p in network.named_parameters() if p.grad is not None}, ran.names


def test_training_repeats_bit_for_bit(threads_free):
    torch.set_num_threads(2)
    with applied():
        (first, ran), (second, _) = training_step(), training_step()
    original, ran_originally = training_step()
    assert sum("rel_pos" in name for name in first) == 4
    assert first.keys() == second.keys() == original.keys()
    assert all(same_bits(first[name], second[name]) for name in first)
    for name in first:
        assert torch.allclose(first[name], original[name], rtol=1e-3, atol=1e-6), name
    replaced = {"index_put", "upsample_linear1d_backward"}
    assert replaced <= ran_originally
    assert not replaced & ran


@pytest.mark.parametrize("loose", LOOSE.values(), ids=LOOSE)
def test_just_the_chosen_operations_are_replaced(loose):
    with applied(without=loose), Operations() as ran:
        gradient(image_encoder.get_rel_pos, 32, 32, normal(27, 64))
    assert ran.names & {"index_put", "upsample_linear1d_backward"} == set(loose)


# -- in place for a block ------------------------------------------------------------------


def test_of_nested_blocks_the_innermost_holds():
    rel = normal(27, 4)
    exact = ORIGINAL(32, 32, rel)
    everything = ["aten.index_put.default", "upsample_linear1d_backward"]
    with applied() as chosen:
        outer = image_encoder.get_rel_pos
        assert tuple(item.name for item in chosen) == in_force() == (GATHER, INTERPOLATION)
        assert not same_bits(outer(32, 32, rel), exact)
        with applied(without={"upsample_linear1d_backward"}):
            assert in_force() == (GATHER,)
            assert same_bits(image_encoder.get_rel_pos(32, 32, rel), exact)
            with pytest.raises(ZeroDivisionError), applied(without={"index_put"}):  # noqa: PT012
                assert in_force() == (INTERPOLATION,)
                1 / 0  # noqa: B018
            assert in_force() == (GATHER,)
        with applied(without=everything) as none:
            assert none == in_force() == ()
            assert image_encoder.get_rel_pos is ORIGINAL
        assert image_encoder.get_rel_pos is outer


@pytest.mark.parametrize("without", [{"put_"}, ["index_put", "bmm"], "index_put"])
def test_refuses_an_operation_without_substitute(without):
    with pytest.raises(BadInput, match=r"expected a set of .*: index_put, upsample_linear1d_ba"):
        applied(without=without).__enter__()


# -- only in place of what was tested ------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with one function, and a third substitute, for that function."""
    folder = tmp_path / "planted_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    source = 'def double(x):\n    """Twice."""\n    return x + x\n'
    (folder / "inner.py").write_text(f"import math\n\n\n{source}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("planted_package", "planted_package.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    third = Substitute(
        name="third",
        replaces=("cumsum",),
        reason="planted",
        module="planted_package.inner",
        attribute="double",
        source_digest=hashlib.sha256(source.encode()).hexdigest(),
        distribution="planted-package",
        version="3.0",
        wrap=lambda function: lambda x: ("substituted", function(x)),
    )
    monkeypatch.setattr(substitutes, "SUBSTITUTES", (*substitutes.SUBSTITUTES, third))
    yield folder / "inner.py"
    for name in ("planted_package", "planted_package.inner"):
        sys.modules.pop(name, None)


def planted():
    return importlib.import_module("planted_package.inner")


def test_a_third_substitute_needs_one_entry(package):
    with applied(without={"index_put"}):
        assert in_force() == (INTERPOLATION, "third")
        assert planted().double(2) == ("substituted", 4)
    assert planted().double(2) == 4
    assert for_operation("cumsum", "/lib/planted_package/inner.py:9 in double").name == "third"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def double(x):\n    return 2 * x\n",
            r"planted-package 3\.0, but what is installed .* not the code it was tested against",
        ),
        ("", r"replaces planted_package\.inner\.double .* is not there .*; install"),
        (None, "it is not there"),
    ],
    ids=["changed", "function gone", "module gone"],
)
def test_refused_where_the_code_is_another(package, text, message):
    """As a whole, and also where that operation is left loose: the others are not in place."""
    package.unlink() if text is None else package.write_text(text)
    for without in ((), {"cumsum"}):
        with pytest.raises(NotPossibleHere, match=message), applied(without=without):
            pytest.fail("it was applied")
        assert image_encoder.get_rel_pos is ORIGINAL


@pytest.mark.parametrize(
    "patch",
    [
        lambda function: print,
        lambda function: functools.wraps(function)(lambda x: function(x)),
        functools.partial(functools.partial),
    ],
    ids=["another function", "a decorator", "a partial"],
)
def test_refused_when_something_else_has_replaced_it(package, monkeypatch, patch):
    """Outside of a block, and over ours within one."""
    patched = patch(planted().double)
    with monkeypatch.context() as context:
        context.setattr(planted(), "double", patched)
        with pytest.raises(NotPossibleHere, match="something else has replaced it already: "):
            applied().__enter__()
        assert planted().double is patched
    with applied():
        monkeypatch.setattr(planted(), "double", patch(planted().double))
        with pytest.raises(NotPossibleHere, match="something else"), applied():
            pytest.fail("it was applied")
        assert in_force() == (GATHER, INTERPOLATION, "third")
    assert planted().double(2) == 4


def test_nothing_to_do_where_the_package_is_not_installed(monkeypatch):
    installed = importlib.util.find_spec

    def find_spec(name, *rest):
        return None if name == "segment_anything" else installed(name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", find_spec)
        with applied() as chosen:
            assert chosen == in_force() == ()
            assert image_encoder.get_rel_pos is ORIGINAL


# -- which one serves an operation ---------------------------------------------------------

PLACE = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"


@pytest.mark.parametrize(
    ("op", "source", "expected"),
    [
        ("aten.index_put.default", PLACE, GATHER),
        ("upsample_linear1d_backward_out_cuda", PLACE, INTERPOLATION),
        ("aten.upsample_linear1d.default", PLACE, None),
        ("index_put", f"/any/where/site-packages/{PLACE}", GATHER),
        ("index_put", "C:\\lib\\" + PLACE.replace("/", "\\"), GATHER),
        ("index_put", "cellrepro/control/substitutes.py:7 in get_rel_pos", GATHER),
        ("index_put", "cellrepro/determinism/substitutes.py:7 in get_rel_pos", GATHER),
        ("index_put", "segment_anything/modeling/image_encoder.py:9 in forward", None),
        ("index_put", "my_segment_anything/modeling/image_encoder.py:9 in get_rel_pos", None),
        ("index_put", None, None),
    ],
)
def test_for_operation(op, source, expected):
    found = for_operation(op, source)
    assert (found and found.name) == expected


@pytest.mark.parametrize("room", ["determinism", "control"], ids=["today", "in older stores"])
def test_which_lines_stand_for_one_function(room):
    expected = "segment_anything/modeling/image_encoder.py in get_rel_pos"
    assert stands_in(PLACE) == expected
    assert stands_in(f"cellrepro/{room}/substitutes.py:73 in toeplitz_gather") == expected
    assert stands_in("my/model.py:73 in toeplitz_gather") is None
