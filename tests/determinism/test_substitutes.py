"""Substitutes: equal to what they replace, the same bits every time, in place only for a block."""

import functools
import hashlib
import importlib
import re
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_anything.modeling import image_encoder
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from cellrepro.determinism import substitutes
from cellrepro.determinism.modes import mode_in_force
from cellrepro.determinism.seeding import seeded
from cellrepro.determinism.substitutes import (
    Substitute,
    applied,
    coefficients,
    for_operation,
    in_force,
    interpolate_linear,
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
SIZES = [(27, 27), (127, 127), (27, 63), (127, 63), (27, 31), (127, 31), (27, 127), (63, 127)]
"""Rows stored and rows wanted: SAM stores 27 and 127, Cellpose's images want 63, `tiny`'s 31."""


@pytest.fixture(scope="module", autouse=True)
def cellpose_is_there():
    """Its import moves switches; that is no single test's fault."""
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
        self.names.add(substitutes.base_name(str(func)))
        return func(*args, **(kwargs or {}))


# -- forward -------------------------------------------------------------------------------

values = st.one_of(
    st.floats(width=16), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf")])
)


@given(data=st.data(), k=st.integers(1, 12), width=st.integers(1, 3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@settings(max_examples=40, deadline=None)
def test_gather_equals_the_definition_bit_for_bit(dtype, data, k, width):
    numbers = data.draw(st.lists(values, min_size=1, max_size=8))
    rel = torch.tensor(np.resize(numbers, (2 * k - 1, width)), dtype=dtype)
    rel[k - 1] = torch.arange(width, dtype=dtype)  # so that no shift goes unseen
    rows = [rel[i - j + k - 1] for i in range(k) for j in range(k)]
    expected = torch.stack(rows).reshape(k, k, width)
    assert same_bits(toeplitz_gather(rel, k), expected)
    assert same_bits(toeplitz_gather(rel, k), ORIGINAL(k, k, rel))


def test_gather_of_not_a_number_keeps_its_bits():
    """Its payload and its sign, which no comparison of floats could see."""
    bits = np.array([[0x7FC00001], [0xFFC00002 - 2**32], [0x7F800003]], dtype=np.int32)
    actual = toeplitz_gather(torch.from_numpy(bits.view(np.float32)), 2)
    assert np.array_equal(actual.numpy().view(np.int32)[:, :, 0], bits[[[1, 0], [2, 1]], 0])


def spacing(n_rows, length, x):
    """One ulp at the largest of the stored numbers that a resampled one lies between."""
    used = coefficients(n_rows, length) != 0
    largest = torch.stack([x[torch.from_numpy(row)].abs().amax(0) for row in used]).double()
    return torch.finfo(x.dtype).eps * 2 ** torch.floor(torch.log2(largest))


def ulps_apart(n_rows, length, x):
    expected = functional.interpolate(x.T[None], size=length, mode="linear")[0].T
    actual = interpolate_linear(x, length)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    apart = (actual.double() - expected.double()).abs() / spacing(n_rows, length, x)
    return apart.max().item()


@pytest.mark.parametrize(("n_rows", "length"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_interpolation_is_within_an_ulp_at_cellposes_sizes(n_rows, length, dtype):
    for seed in range(5):
        x = normal(n_rows, 64, seed=seed, dtype=dtype)
        assert ulps_apart(n_rows, length, x) <= (0 if n_rows == length else 1)


@given(n_rows=st.integers(1, 140), length=st.integers(1, 260), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_interpolation_is_within_its_bound_at_any_size(n_rows, length, seed):
    """PyTorch rounds two products and a sum (0.5 + 0.25 + 0.5), the substitute once (0.5)."""
    assert ulps_apart(n_rows, length, normal(n_rows, 3, seed=seed)) <= 1.75


@given(n_rows=st.integers(1, 140), length=st.integers(1, 260))
@settings(max_examples=60, deadline=None)
def test_coefficients_are_pytorchs_own(n_rows, length):
    each = torch.eye(n_rows)[None]
    expected = functional.interpolate(each, size=length, mode="linear")[0].T
    assert torch.equal(torch.from_numpy(coefficients(n_rows, length)), expected)
    double = functional.interpolate(each.double(), size=length, mode="linear")[0].T
    actual = coefficients(n_rows, length, np.float64)
    assert torch.allclose(torch.from_numpy(actual), double, rtol=0, atol=1e-12)


def test_float64_is_interpolated_in_float64():
    x = normal(27, 64, dtype=torch.float64)
    expected = functional.interpolate(x.T[None], size=63, mode="linear")[0].T
    assert torch.allclose(interpolate_linear(x, 63), expected, rtol=0, atol=1e-13)


@given(seed=st.integers(0, 99), length=st.integers(1, 80))
@settings(max_examples=30, deadline=None)
def test_interpolation_is_the_exact_sum_rounded_once(seed, length):
    """So that neither order of summation nor instruction set can show."""
    from fractions import Fraction

    x = normal(11, 1, seed=seed)
    actual = interpolate_linear(x, length)[:, 0]
    for row, value in zip(coefficients(11, length).tolist(), actual.tolist(), strict=True):
        exact = sum(Fraction(a) * Fraction(b) for a, b in zip(row, x[:, 0].tolist(), strict=True))
        assert value == np.float32(float(exact))


def test_autocast_changes_nothing():
    x = normal(27, 64)
    expected = interpolate_linear(x, 63)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same_bits(interpolate_linear(x, 63), expected)


@pytest.fixture
def no_float64(monkeypatch):
    """As on MPS."""
    monkeypatch.setattr(substitutes, "_product_dtype", lambda device: torch.float32)
    substitutes._matrix.cache_clear()
    yield
    substitutes._matrix.cache_clear()


@pytest.mark.parametrize(("n_rows", "length"), SIZES)
def test_interpolation_where_there_is_no_float64(no_float64, n_rows, length):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ulps_apart(n_rows, length, normal(n_rows, 64)) <= 2


@pytest.mark.parametrize("loose", LOOSE.values(), ids=LOOSE)
@pytest.mark.parametrize(("q", "k"), [(4, 8), (8, 4), (3, 7)])
@pytest.mark.parametrize("n_rows", [15, 13, 27])
def test_attention_that_is_not_square(loose, q, k, n_rows):
    """The original's own gather serves it, with its indices."""
    rel = normal(n_rows, 5)
    expected = ORIGINAL(q, k, rel)
    with applied(without=loose):
        actual = image_encoder.get_rel_pos(q, k, rel)
    assert torch.allclose(actual, expected, rtol=0, atol=1e-6)
    if n_rows == 2 * max(q, k) - 1 or "upsample_linear1d_backward" in loose:
        assert same_bits(actual, expected)


@pytest.mark.parametrize("loose", LOOSE.values(), ids=LOOSE)
@pytest.mark.parametrize(("n_rows", "length"), SIZES)
def test_replacement_equals_the_original(loose, n_rows, length):
    k = (length + 1) // 2
    rel = normal(n_rows, 8)
    expected = ORIGINAL(k, k, rel)
    with applied(without=loose):
        actual = image_encoder.get_rel_pos(k, k, rel)
    assert torch.allclose(actual, expected, rtol=0, atol=5e-7)
    if n_rows == length or "upsample_linear1d_backward" in loose:
        assert same_bits(actual, expected)


# -- backward ------------------------------------------------------------------------------


@pytest.mark.parametrize("loose", LOOSE.values(), ids=LOOSE)
@pytest.mark.parametrize(("n_rows", "length"), SIZES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_gradient_against_float64(loose, n_rows, length, dtype, tolerance, one_thread):
    k = (length + 1) // 2
    rel = normal(n_rows, 16, dtype=dtype)
    expected = gradient(ORIGINAL, k, k, rel.double())
    with applied(without=loose):
        actual = gradient(image_encoder.get_rel_pos, k, k, rel)
    assert (actual.double() - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("loose", LOOSE.values(), ids=LOOSE)
def test_gradient_is_that_of_the_forward(loose, generators_free):
    rel = normal(5, 2, dtype=torch.float64).requires_grad_()
    with applied(without=loose):
        replacement = image_encoder.get_rel_pos
        assert torch.autograd.gradcheck(lambda x: replacement(4, 4, x), [rel])
        assert torch.autograd.gradcheck(lambda x: replacement(2, 4, x), [rel])
    assert torch.autograd.gradcheck(lambda x: toeplitz_gather(x, 3), [rel])
    assert torch.autograd.gradcheck(lambda x: interpolate_linear(x, 8), [rel])
    assert torch.autograd.gradgradcheck(lambda x: interpolate_linear(x, 8), [rel])


@pytest.mark.parametrize(("n_rows", "k", "width"), [(27, 32, 64), (127, 32, 64), (127, 16, 192)])
def test_every_repeat_and_number_of_threads_gives_the_same_bits(n_rows, k, width, threads_free):
    assert not torch.are_deterministic_algorithms_enabled()
    rel = normal(n_rows, width)
    expected = None
    with applied():
        for n_threads in (1, 2, 4):
            torch.set_num_threads(n_threads)
            for _ in range(20):
                actual = gradient(image_encoder.get_rel_pos, k, k, rel)
                expected = actual if expected is None else expected
                assert same_bits(actual, expected)


def test_an_evaluation_first_does_not_prevent_training():
    """What is kept from inference mode could not be trained with."""
    substitutes._matrix.cache_clear()
    with applied():
        with torch.inference_mode():
            image_encoder.get_rel_pos(32, 32, normal(27, 64))
        assert gradient(image_encoder.get_rel_pos, 32, 32, normal(27, 64)).any()
        with torch.no_grad():
            assert not image_encoder.get_rel_pos(32, 32, normal(27, 4)).requires_grad


def test_matrices_are_made_once_and_their_number_is_bounded():
    substitutes._matrix.cache_clear()
    for length in (9, 9, 9, *range(10, 100)):
        interpolate_linear(normal(5, 1), length)
    found = substitutes._matrix.cache_info()
    assert (found.hits, found.misses) == (2, 91)
    assert found.currsize == found.maxsize == 64


# -- the whole network ---------------------------------------------------------------------


def tiny(dtype="float32"):
    return build(ModelSource("tiny", "tiny"), seed=0, device=torch.device("cpu"), dtype=dtype)


def training_step():
    """Gradients of one step, by parameter, and the operations it ran."""
    network = tiny()
    network.train()
    ran = Operations()
    with seeded(3), ran:
        network(normal(2, 3, 256, 256))[0].square().mean().backward()
    gradients = {
        name: parameter.grad
        for name, parameter in network.named_parameters()
        if parameter.grad is not None
    }
    return gradients, ran.names


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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_evaluation(dtype, one_thread):
    """With the gather alone a network gives the same bits; with both, the same within rounding."""
    network = tiny(dtype).eval()
    image = normal(1, 3, 256, 256, dtype=getattr(torch, dtype))
    with torch.no_grad():
        expected = network(image)[0]
        with applied(without=LOOSE["gather only"]):
            assert same_bits(network(image)[0], expected)
        with applied():
            actual = network(image)[0]
    assert actual.dtype == expected.dtype
    close = 1e-4 if dtype == "float32" else 5e-2
    assert (actual - expected).abs().max() <= close * expected.abs().max()


def test_under_strict_and_autocast():
    with mode_in_force("strict"), applied(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradient(image_encoder.get_rel_pos, 16, 16, normal(127, 192))
    with applied():
        assert same_bits(found, gradient(image_encoder.get_rel_pos, 16, 16, normal(127, 192)))


# -- in place for a block ------------------------------------------------------------------


def test_undone_after_a_block():
    with applied() as chosen:
        assert image_encoder.get_rel_pos is not ORIGINAL
        assert tuple(item.name for item in chosen) == in_force() == (GATHER, INTERPOLATION)


def test_undone_after_an_exception():
    with pytest.raises(ZeroDivisionError), applied():  # noqa: PT012
        assert in_force()
        1 / 0  # noqa: B018
    assert in_force() == ()
    assert image_encoder.get_rel_pos is ORIGINAL
    assert not substitutes._ours


def test_of_nested_blocks_the_innermost_holds():
    rel = normal(27, 4)
    exact = ORIGINAL(32, 32, rel)
    with applied():
        outer = image_encoder.get_rel_pos
        assert not same_bits(outer(32, 32, rel), exact)
        with applied(without={"upsample_linear1d_backward"}):
            assert in_force() == (GATHER,)
            assert same_bits(image_encoder.get_rel_pos(32, 32, rel), exact)
            with pytest.raises(ZeroDivisionError), applied(without={"index_put"}):  # noqa: PT012
                assert in_force() == (INTERPOLATION,)
                1 / 0  # noqa: B018
            assert in_force() == (GATHER,)
        assert in_force() == (GATHER, INTERPOLATION)
        assert image_encoder.get_rel_pos is outer


@pytest.mark.parametrize("nested", [False, True])
def test_without_any_the_original_is_back(nested):
    everything = ["aten.index_put.default", "upsample_linear1d_backward"]
    with applied(without=() if nested else everything), applied(without=everything) as chosen:
        assert chosen == ()
        assert in_force() == ()
        assert image_encoder.get_rel_pos is ORIGINAL


@pytest.mark.parametrize("without", [{"put_"}, ["index_put", "bmm"], "index_put"])
def test_refuses_an_operation_without_substitute(without):
    with pytest.raises(BadInput, match=r"expected a set of .*: index_put, upsample_linear1d_ba"):
        applied(without=without).__enter__()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: toeplitz_gather(torch.zeros(8, 2), 4), "8 rows for k=4; expected .* = 7"),
        (lambda: interpolate_linear(torch.zeros(8), 4), r"shape \(8,\) and length 4; expected"),
        (lambda: interpolate_linear(torch.zeros(8, 2), 0), r"shape \(8, 2\) and length 0"),
        (lambda: interpolate_linear(torch.zeros(0, 2), 3), r"shape \(0, 2\) and length 3"),
        (lambda: interpolate_linear(torch.zeros(8, 2).long(), 3), "torch.int64 of shape"),
    ],
)
def test_refuses_what_has_the_wrong_shape(call, message):
    with pytest.raises(BadInput, match=message):
        call()


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


def refused(match):
    """Refused as a whole: the other substitutes are not in place either."""
    present = planted()
    with pytest.raises(NotPossibleHere, match=match), applied():
        pytest.fail("it was applied")
    assert image_encoder.get_rel_pos is ORIGINAL
    return present


def test_a_third_substitute_needs_one_entry(package):
    with applied(without={"index_put"}):
        assert in_force() == (INTERPOLATION, "third")
        assert planted().double(2) == ("substituted", 4)
    assert planted().double(2) == 4
    with applied(without={"cumsum"}):
        assert planted().double(2) == 4
    place = "/lib/planted_package/inner.py:9 in double"
    assert for_operation("cumsum", place).name == "third"
    assert for_operation("index_put", place) is None


def test_refused_when_the_source_has_changed(package):
    changed = 'def double(x):\n    """Twice."""\n    return 2 * x\n'
    package.write_text(f"import math\n\n\n{changed}")
    expected = substitutes.SUBSTITUTES[-1].source_digest[:12]
    found = hashlib.sha256(changed.encode()).hexdigest()[:12]
    refused(
        rf"'third' replaces planted_package\.inner\.double in {re.escape(str(package))} of "
        rf"planted-package \(no version found\), .* expected source digest {expected}, found "
        rf"{found}; install planted-package 3\.0, or run in mode fast or warn"
    )
    assert planted().double(2) == 4


def test_only_the_indentation_may_change(package):
    moved = textwrap.indent(package.read_text().partition("\n\n\n")[2], "    ")
    package.write_text(f"if True:\n{moved}")
    with applied():
        assert planted().double(2) == ("substituted", 4)


def test_refused_when_the_function_is_gone(package):
    package.write_text("")
    refused(r"the installed planted-package .* does not have \(.*double.*\); install")


def test_refused_when_the_module_is_gone(package):
    package.unlink()
    with pytest.raises(NotPossibleHere, match=r"does not have .*inner"), applied():
        pytest.fail("it was applied")


def test_refused_when_there_is_no_source(package):
    planted()
    package.unlink()
    refused("expected source digest .*, found no source to read")


def other(x):
    return x


def wrapped(function):
    return functools.wraps(function)(lambda x: function(x))


@pytest.mark.parametrize(
    ("patch", "by"),
    [
        (lambda function: other, r"test_substitutes\.other"),
        (wrapped, r"planted_package\.inner\.double"),
        (functools.partial(functools.partial), "functools.partial"),
    ],
    ids=["another function", "a decorator", "a partial"],
)
def test_refused_when_something_else_has_replaced_it(package, monkeypatch, patch, by):
    patched = patch(planted().double)
    monkeypatch.setattr(planted(), "double", patched)
    refused(f"something else has replaced it already, by .*{by}.*; undo that")
    assert planted().double is patched


def test_refused_when_its_own_module_decorates_it(package):
    """Such a wrapper shows the source of what it wraps."""
    with package.open("a") as file:
        file.write("\n\nimport functools\ndouble = functools.wraps(double)(lambda x: 7)\n")
    refused("something else has replaced it already")


def test_refused_when_replaced_within_a_block(package, monkeypatch):
    with applied():
        ours = planted().double
        monkeypatch.setattr(planted(), "double", wrapped(ours))
        with pytest.raises(NotPossibleHere, match="something else"), applied():
            pytest.fail("it was applied")
        assert in_force() == (GATHER, INTERPOLATION, "third")
    assert planted().double(2) == 4


def test_refused_in_segment_anything(monkeypatch):
    """The real message, with the installed version."""
    with monkeypatch.context() as patch:
        first, second = substitutes.SUBSTITUTES
        older = Substitute(**{**vars(first), "source_digest": "0" * 64})
        patch.setattr(substitutes, "SUBSTITUTES", (older, second))
        with (
            pytest.raises(
                NotPossibleHere,
                match=r"image_encoder\.get_rel_pos in .*image_encoder\.py of segment-anything 1\.0,"
                r" .* expected source digest 000000000000, found c8793beed55c; install "
                r"segment-anything 1\.0, .* report",
            ) as refusal,
            applied(),
        ):
            pytest.fail("it was applied")
    assert refusal.value.exit_code == 3


def test_checked_even_where_all_is_left_loose(package):
    """Else an unknown function would be taken for the original one by an inner block."""
    package.write_text("def double(x):\n    return 7\n")
    planted()
    with pytest.raises(NotPossibleHere, match="third"), applied(without={"cumsum"}):
        pytest.fail("it was applied")


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
        ("index_put", PLACE, GATHER),
        ("index_put_", PLACE, GATHER),
        ("_index_put_impl_", PLACE, GATHER),
        ("_unsafe_index_put", PLACE, GATHER),
        ("aten.index_put.default", PLACE, GATHER),
        ("aten::_index_put_impl_", PLACE, GATHER),
        ("torch.ops.aten.index_put.out", PLACE, GATHER),
        ("aten.upsample_linear1d_backward.default", PLACE, INTERPOLATION),
        ("upsample_linear1d_backward_out_cuda", PLACE, INTERPOLATION),
        ("aten.upsample_linear1d.default", PLACE, None),
        ("upsample_bilinear2d_backward", PLACE, None),
        ("index", PLACE, None),
        ("index_put", f"/any/where/site-packages/{PLACE}", GATHER),
        ("index_put", "C:\\lib\\" + PLACE.replace("/", "\\"), GATHER),
        ("index_put", "cellrepro/control/substitutes.py:7 in get_rel_pos", GATHER),
        ("index_put", "segment_anything/modeling/image_encoder.py:9 in forward", None),
        ("index_put", "my_segment_anything/modeling/image_encoder.py:9 in get_rel_pos", None),
        ("index_put", "image_encoder.py:322 in get_rel_pos", None),
        ("index_put", "segment_anything/modeling/image_encoder.py:322", None),
        ("index_put", "", None),
        ("index_put", None, None),
    ],
)
def test_for_operation(op, source, expected):
    found = for_operation(op, source)
    assert (found and found.name) == expected


def test_the_table_names_what_it_replaces_once():
    names = [item.name for item in substitutes.SUBSTITUTES]
    assert names == [GATHER, INTERPOLATION]
    for item in substitutes.SUBSTITUTES:
        assert item.reason
        assert all(substitutes.base_name(op) == op for op in item.replaces)
