"""Fast digests of tensors: what they tell apart, what they do not, and that nobody notices."""

import enum
import random
import warnings
from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils._python_dispatch import TorchDispatchMode

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.store import digests
from cellrepro.store.bits import same_bits
from cellrepro.store.digests import (
    comparable,
    generator_digests,
    state_digest,
    tensor_digest,
    tensors_digest,
)

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

ALGORITHMS = ["xxh3", "lanes"]
both = pytest.mark.parametrize("algorithm", ALGORITHMS)

SHARED = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
SHARED += ["float16", "float32", "float64", "complex64", "complex128"]
OF_TORCH = [
    torch.bfloat16,
    torch.complex32,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
]
TORCH_DTYPES = [getattr(torch, name) for name in SHARED] + OF_TORCH


@st.composite
def tensors(draw, *, min_size=0):
    """Tensors of any bits, NaN included, up to three axes."""
    dtype = draw(st.sampled_from(TORCH_DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=3).filter(lambda s: np.prod(s) >= min_size))
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = draw(st.binary(min_size=n_bytes, max_size=n_bytes))
    if dtype is torch.bool:
        raw = bytes(byte % 2 for byte in raw)
    flat = torch.frombuffer(bytearray(raw or b"\0"), dtype=torch.uint8)[:n_bytes]
    return flat.view(dtype).reshape(shape)


def raw(tensor):
    """A contiguous tensor's memory as an array of bytes, shared with it."""
    return tensor.view(-1).view(torch.uint8).numpy()


# -- what changes a digest -----------------------------------------------------------------


@both
@settings(max_examples=25, deadline=None)
@given(tensor=tensors(min_size=1), data=st.data())
def test_any_bit_counts(algorithm, tensor, data):
    before = tensor_digest(tensor, algorithm=algorithm)
    content = raw(tensor)
    bits = 1 if tensor.dtype is torch.bool else 8
    place = data.draw(st.integers(0, content.size - 1))
    content[place] ^= 1 << data.draw(st.integers(0, bits - 1))
    assert tensor_digest(tensor, algorithm=algorithm) != before


@both
@settings(max_examples=25, deadline=None)
@given(tensor=tensors(min_size=2), data=st.data())
def test_order_counts(algorithm, tensor, data):
    before = tensor_digest(tensor, algorithm=algorithm)
    elements = raw(tensor).reshape(tensor.numel(), -1)
    original = elements.copy()
    a, b = (data.draw(st.integers(0, len(elements) - 1)) for _ in range(2))
    assume((elements[a] != elements[b]).any())
    elements[[a, b]] = elements[[b, a]]
    assert tensor_digest(tensor, algorithm=algorithm) != before
    elements[:] = original[::-1]
    palindrome = (original == original[::-1]).all()
    assert (tensor_digest(tensor, algorithm=algorithm) == before) == palindrome


@both
@settings(max_examples=25, deadline=None)
@given(array=hnp.arrays(np.float32, st.integers(1, 40)))
def test_the_sign_counts(algorithm, array):
    assume(not np.isnan(array).all())
    tensor = torch.from_numpy(array)
    assert tensor_digest(-tensor, algorithm=algorithm) != tensor_digest(tensor, algorithm=algorithm)


@both
@settings(max_examples=25, deadline=None)
@given(tensor=tensors(), data=st.data())
def test_the_shape_counts(algorithm, tensor, data):
    n = tensor.numel()
    shapes = [(n,), (1, n), (n, 1), (n, 1, 1), (1, n, 1), *([()] if n == 1 else [])]
    shape = data.draw(st.sampled_from(shapes))
    same = shape == tuple(tensor.shape)
    a, b = (tensor_digest(x, algorithm=algorithm) for x in (tensor, tensor.reshape(shape)))
    assert (a == b) == same


@both
def test_equal_bytes_of_another_dtype_differ(algorithm):
    content = torch.tensor([1, 0, 0, 1, 1, 0, 0, 0] * 2, dtype=torch.uint8)
    for width in (1, 2, 4, 8):
        same = [dtype for dtype in TORCH_DTYPES if dtype.itemsize == width]
        found = {tensor_digest(content.view(dtype), algorithm=algorithm) for dtype in same}
        assert len(found) == len(same) >= 4


@both
def test_values_that_compare_equal_or_never_do(algorithm):
    words = [0x7FC00000, 0x7FC00001, 0xFFC00000, 0x7F800001, 0x00000000, 0x80000000]
    found = {
        tensor_digest(np.array([word], np.uint32).view(np.float32), algorithm=algorithm)
        for word in words
    }
    assert len(found) == len(words)
    nan = torch.tensor([float("nan")])
    assert tensor_digest(nan, algorithm=algorithm) == tensor_digest(
        nan.clone(), algorithm=algorithm
    )


@both
def test_nothing_at_all_has_a_shape(algorithm):
    shapes = [(0,), (0, 3), (3, 0), (0, 0), (1, 0), ()]
    found = {tensor_digest(torch.zeros(shape), algorithm=algorithm) for shape in shapes}
    assert len(found) == len(shapes)


@both
@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 70), m=st.integers(0, 70))
def test_zeros_are_counted(algorithm, n, m):
    a, b = (tensor_digest(torch.zeros(k, dtype=torch.uint8), algorithm=algorithm) for k in (n, m))
    assert (a == b) == (n == m)


# -- what does not -------------------------------------------------------------------------


def offset(tensor):
    room = torch.empty(tensor.numel() + 3, dtype=tensor.dtype)
    room[3:] = tensor.reshape(-1)
    return room[3:].view(tensor.shape)


def spread(tensor):
    room = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    room[..., 1] = tensor
    return room[..., 1]


def reversed_axes(tensor):
    axes = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(axes).contiguous().permute(axes)


LAYOUTS = {
    "a copy": torch.clone,
    "in column order": reversed_axes,
    "strided": spread,
    "at an offset": offset,
    "a parameter": lambda t: torch.nn.Parameter(t, requires_grad=t.is_floating_point()),
    "no other tensor's class": lambda t: t.as_subclass(type("Mine", (torch.Tensor,), {})),
}


@both
@pytest.mark.parametrize("relaid", LAYOUTS.values(), ids=LAYOUTS)
@settings(max_examples=25, deadline=None)
@given(tensor=tensors())
def test_the_layout_does_not_count(algorithm, relaid, tensor):
    assume(tensor.ndim)
    expected = tensor_digest(tensor, algorithm=algorithm)
    assert tensor_digest(relaid(tensor), algorithm=algorithm) == expected


@both
def test_views_that_negate_conjugate_and_repeat(algorithm):
    def agree(view):
        plain = view.resolve_conj().resolve_neg().contiguous()
        assert plain.data_ptr() != view.data_ptr()
        a, b = (tensor_digest(x, algorithm=algorithm) for x in (view, plain))
        return a == b

    value = torch.tensor([1 + 2j, 3 - 4j, 0 - 0j], dtype=torch.complex64)
    assert value.conj().is_conj()
    assert value.conj().imag.is_neg()
    assert torch._neg_view(torch.ones(3)).is_contiguous()
    assert agree(value.conj())
    assert agree(value.conj().imag)
    assert agree(torch._neg_view(torch.ones(3)))
    assert agree(torch.tensor([1.0, 2.0])[:, None].expand(2, 30))
    assert tensor_digest(value.conj()) != tensor_digest(value)
    zeros = torch._efficientzerotensor((2, 3))
    assert tensor_digest(zeros, algorithm=algorithm) == tensor_digest(
        torch.zeros(2, 3), algorithm=algorithm
    )


@both
@pytest.mark.parametrize("name", SHARED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_arrays_and_tensors_agree(algorithm, name, data):
    array = data.draw(hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
    expected = tensor_digest(torch.from_numpy(array.copy()), algorithm=algorithm)
    swapped = array.byteswap().view(array.dtype.newbyteorder(">"))
    fixed = array.copy()
    fixed.flags.writeable = False
    for same in (array, array.copy(order="F"), swapped, fixed):
        assert tensor_digest(same, algorithm=algorithm) == expected


def test_a_number_of_numpy_is_an_array_without_axes():
    assert tensor_digest(np.float32(1.5)) == tensor_digest(torch.tensor(1.5))
    assert tensor_digest(np.array("ab")) != tensor_digest(np.array("ac"))
    days = np.array(["2020-01-01"], "M8[D]")
    assert tensor_digest(days) != tensor_digest(days.view("i8"))


# -- lanes in pieces -----------------------------------------------------------------------


def lanes_by_hand(content, header):
    """The definition, in Python's numbers."""
    import struct

    import xxhash

    content = content + bytes(-len(content) % 8)
    words = struct.unpack(f"<{len(content) // 8}Q", content)
    lanes = []
    for step in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD1B54A32D192ED03):
        total = 0
        for i, word in enumerate(words):
            x = (word + i * step) % 2**64
            x ^= x >> 32
            x = x * 0xD6E8FEB86659FD93 % 2**64
            x ^= x >> 32
            x = x * 0xD6E8FEB86659FD93 % 2**64
            x ^= x >> 32
            total += x
        lanes.append(total % 2**64)
    row = header + struct.pack("<3Q", *lanes)
    return "".join(xxhash.xxh3_64_hexdigest(row, seed) for seed in (1, 2, 3))


@settings(max_examples=25, deadline=None)
@given(content=st.binary(max_size=100), n_words=st.integers(1, 12))
def test_lanes_are_as_defined_whatever_the_pieces(content, n_words):
    expected = lanes_by_hand(content, f"tuint8({len(content)},);".encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(digests._WORDS, "cpu", n_words)
        assert tensor_digest(np.frombuffer(content, np.uint8), algorithm="lanes") == expected


@settings(max_examples=25, deadline=None)
@given(tensor=tensors(), n_words=st.integers(1, 12))
def test_pieces_do_not_count(tensor, n_words):
    assume(tensor.ndim)
    expected = tensor_digest(tensor, algorithm="lanes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(digests._WORDS, "cpu", n_words)
        for relaid in LAYOUTS.values():
            assert tensor_digest(relaid(tensor), algorithm="lanes") == expected
        assert tensor_digest(reversed_axes(tensor), algorithm="lanes") == expected


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16, 17, 24])
def test_at_the_edge_of_a_piece(monkeypatch, n):
    value = torch.arange(1, 26, dtype=torch.int64)
    value[n] = -5
    expected = lanes_by_hand(raw(value).tobytes(), b"tint64(25,);")
    monkeypatch.setitem(digests._WORDS, "cpu", 8)
    assert tensor_digest(value, algorithm="lanes") == expected


def test_the_size_of_a_piece_is_bounded(monkeypatch):
    monkeypatch.setitem(digests._WORDS, "cpu", 16)
    for value in (torch.zeros(1000), torch.zeros(1, 100, 10).mT, torch.zeros(1).expand(1000)):
        sizes = [len(words) for words in digests._words(torch, value, 16)]
        assert max(sizes) == sizes[0] <= 16
        assert sum(sizes) == 500


def test_a_device_that_miscounts_is_found_out(monkeypatch):
    digests._steps.cache_clear()
    monkeypatch.setattr(digests, "_mixed", lambda word: word)
    with pytest.raises(NotPossibleHere, match=r"cpu does not count in whole numbers.*\.cpu\(\)"):
        tensor_digest(torch.zeros(3), algorithm="lanes")


# -- known answers, so that what is stored stays comparable --------------------------------

KNOWN = {
    "xxh3": "c69dc4400cf6661002c843ebadc5d025",
    "lanes": "9f66b5de4a9df7e1e55a6c24c202c414fd05de4ebe6bed3a",
}
KNOWN_STATE = {
    "xxh3": "b321c6174d7970abaf6d1c1abfbc09e3",
    "lanes": "4f46784aad6512b2ec2633456d5840fc4c553fe9f5f5d19e",
}


@both
def test_known_answers(algorithm):
    value = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7
    assert tensor_digest(value, algorithm=algorithm) == KNOWN[algorithm]
    state = {"a": [1, 2.5, None, True, "é", b"x", 1j], 0: (value, np.arange(3, dtype=np.int16))}
    assert state_digest(state, algorithm=algorithm) == KNOWN_STATE[algorithm]


def test_the_algorithm_shows():
    assert [len(tensor_digest(torch.ones(2), algorithm=x)) for x in ALGORITHMS] == [32, 48]
    assert tensor_digest(torch.ones(2)) == tensor_digest(torch.ones(2), algorithm="xxh3")
    assert comparable("0" * 32, "f" * 32)
    assert not comparable("0" * 32, "0" * 48)


# -- tensors in parts ----------------------------------------------------------------------


def quantized(scale=0.1, zero_point=2, value=1.0):
    return torch.quantize_per_tensor(torch.full((3,), value), scale, zero_point, torch.quint8)


def by_channel(scale=0.1, axis=0):
    scales, points = torch.tensor([scale, 0.5]), torch.zeros(2, dtype=torch.int64)
    return torch.quantize_per_channel(torch.zeros(2, 2), scales, points, axis, torch.qint8)


def sparse(place=1, value=2.0, layout=torch.sparse_coo):
    dense = torch.zeros(2, 4)
    dense[0, place] = value
    if layout is torch.sparse_bsr:
        return dense.to_sparse_bsr((1, 2))
    return dense.to_sparse(layout=layout)


def nested(*sizes, layout=torch.strided, value=1.0):
    return torch.nested.nested_tensor([torch.full((n,), value) for n in sizes], layout=layout)


class Pair(torch.Tensor):
    """The usual wrapper: a tensor whose values are those of others."""

    @staticmethod
    def __new__(cls, a, b, note=""):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

    def __init__(self, a, b, note=""):
        self.a, self.b, self.note = a, b, note

    def __tensor_flatten__(self):
        return ["a", "b"], self.note

    @staticmethod
    def __tensor_unflatten__(inner, context, shape, stride):
        return Pair(inner["a"], inner["b"], context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was seen")


PARTS = {
    "quantized": (
        quantized,
        [lambda: quantized(0.2), lambda: quantized(0.1, 3), lambda: quantized(value=1.1)],
    ),
    "by channel": (by_channel, [lambda: by_channel(0.2), lambda: by_channel(axis=1)]),
    "sparse": (sparse, [lambda: sparse(2), lambda: sparse(1, 3.0), lambda: sparse().to_dense()]),
    "compressed": (
        lambda: sparse(layout=torch.sparse_csr),
        [
            lambda: sparse(2, layout=torch.sparse_csr),
            lambda: sparse(layout=torch.sparse_csc),
            lambda: sparse(layout=torch.sparse_bsr),
            sparse,
        ],
    ),
    "nested": (
        lambda: nested(2, 3),
        [lambda: nested(3, 2), lambda: nested(5), lambda: nested(2, 3, value=2.0)],
    ),
    "jagged": (
        lambda: nested(2, 3, layout=torch.jagged),
        [
            lambda: nested(3, 2, layout=torch.jagged),
            lambda: nested(2, 3, layout=torch.jagged, value=2.0),
        ],
    ),
    "wrapper": (
        lambda: Pair(torch.ones(2), torch.zeros(2)),
        [
            lambda: Pair(torch.zeros(2), torch.ones(2)),
            lambda: Pair(torch.ones(2), torch.zeros(2), "note"),
            lambda: Pair(Pair(torch.ones(2), torch.zeros(2)), torch.zeros(2)),
        ],
    ),
}


@both
@pytest.mark.filterwarnings("ignore:.*(quantize|Sparse CSR|nested tensors)")
@pytest.mark.parametrize(("made", "others"), PARTS.values(), ids=PARTS)
def test_parts_are_digested(algorithm, made, others):
    one = tensor_digest(made(), algorithm=algorithm)
    assert tensor_digest(made(), algorithm=algorithm) == one
    assert state_digest([made()], algorithm=algorithm) == state_digest(
        [made()], algorithm=algorithm
    )
    found = [tensor_digest(other(), algorithm=algorithm) for other in others]
    assert len({one, *found}) == 1 + len(found)


@pytest.mark.filterwarnings("ignore:.*(quantize|nested tensors)")
def test_what_a_jagged_tensor_has_cached_does_not_count():
    one, other = nested(2, 3, layout=torch.jagged), nested(2, 3, layout=torch.jagged)
    one._get_max_seqlen()
    assert tensor_digest(one) == tensor_digest(other)
    assert same_bits(one, other)


# -- nobody notices ------------------------------------------------------------------------


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations.append(str(func))
        return func(*args, **(kwargs or {}))


UNSEEN = {
    "plain": lambda: torch.arange(6.0).reshape(2, 3),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2, 3)),
    "result": lambda: torch.ones(2, 3, requires_grad=True) * 2,
    "transposed": lambda: (torch.ones(2, 3, requires_grad=True) * 2).T,
    "conjugate": lambda: torch.ones(2, 3, dtype=torch.complex64, requires_grad=True).conj(),
    "number": lambda: torch.tensor(2.0, requires_grad=True),
    "sparse": lambda: sparse().requires_grad_(),
    "compressed": lambda: sparse(layout=torch.sparse_csr).requires_grad_(),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16, requires_grad=True),
    "frozen": lambda: frozen(),
}


def frozen():
    with torch.inference_mode():
        return torch.ones(3, 2).T


@both
@pytest.mark.filterwarnings("ignore:.*Sparse CSR")
@pytest.mark.parametrize("made", UNSEEN.values(), ids=UNSEEN)
def test_a_digest_leaves_no_trace(algorithm, made):
    tensor = made()
    tensor_digest(torch.zeros(1), algorithm="lanes")  # the device is tried once, before
    bits = tensor.detach().clone()
    state = random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()
    version = None if tensor.is_inference() else tensor._version
    number = torch._C._autograd._get_sequence_nr()
    with Seen() as seen:
        first = tensor_digest(tensor, algorithm=algorithm)
        group = tensors_digest({"it": tensor}, algorithm=algorithm)
        tree = state_digest([tensor], algorithm=algorithm)
    assert seen.operations == []
    assert torch._C._autograd._get_sequence_nr() == number
    assert version == (None if tensor.is_inference() else tensor._version)
    assert same_bits(tensor, bits)
    assert state == (
        random.getstate(),
        torch.get_rng_state().tolist(),
        np.random.get_state()[1].tolist(),
    )
    assert len({first, group, tree}) == 3
    assert torch.is_grad_enabled()


def test_a_small_tensor_is_read_where_it_is(monkeypatch):
    def never(*_):
        raise AssertionError("copied")

    monkeypatch.setattr(digests, "_in_order", never)
    value = torch.ones(4, 4)
    for straight in (
        value,
        value[2:],
        value.view(-1)[3:],
        value.bfloat16(),
        value.reshape(()) if value.numel() == 1 else value[0, 0],
    ):
        tensor_digest(straight)
    with pytest.raises(AssertionError, match="copied"):
        tensor_digest(value[:, 1:])


@both
def test_a_default_device_elsewhere_is_no_trouble(algorithm):
    expected = tensor_digest(torch.ones(3), algorithm=algorithm)
    digests._steps.cache_clear()
    value = torch.ones(3)
    with torch.device("meta"):
        assert tensor_digest(value, algorithm=algorithm) == expected


# -- what is refused -----------------------------------------------------------------------


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: [1.0], r"type list; expected a tensor or an array \(state_digest"),
        (lambda: 1.0, "type float; expected a tensor"),
        (lambda: torch.zeros(3, device="meta"), "without values"),
        (fake, "without values"),
        (lambda: np.array([object()]), "dtype object, whose bytes"),
        (lambda: np.zeros(2, np.longdouble), "whose bytes are not just its values"),
        (lambda: np.zeros(2, "i1,f8"), "whose bytes are not just its values"),
        (lambda: np.ma.masked_array([1, 2], [0, 1]), "its data and its mask"),
    ],
    ids=["list", "number", "meta", "fake", "object", "long double", "fields", "masked"],
)
@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_what_holds_no_bits_is_refused(value, message, algorithm):
    with pytest.raises(BadInput, match=message):
        tensor_digest(value(), algorithm=algorithm)


class Hollow(torch.Tensor):
    """A wrapper that does not tell what it wraps."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,))

    __torch_dispatch__ = Pair.__torch_dispatch__


def released(turned=False):
    value = torch.ones(2, 3).T if turned else torch.ones(2, 3)
    value.untyped_storage().resize_(0)
    return value


@both
@pytest.mark.parametrize(
    "made", [released, lambda: released(True), Hollow], ids=["released", "and turned", "hollow"]
)
def test_where_there_is_no_memory_nothing_is_read(algorithm, made):
    value = made()  # never shown: to print it would end the process
    with pytest.raises(BadInput, match="no memory that could be read: it is released, fake"):
        tensor_digest(value, algorithm=algorithm)


@both
def test_inside_a_transform_nothing_is_read(algorithm):
    with pytest.raises(BadInput, match=r"inside torch\.func"):
        torch.vmap(lambda x: tensor_digest(x, algorithm=algorithm) and x)(torch.ones(3, 2))


def test_an_unknown_algorithm_is_refused():
    for digest in (tensor_digest, lambda x, **k: tensors_digest({"a": x}, **k)):
        with pytest.raises(BadInput, match="algorithm is 'md5'; expected 'xxh3', 'lanes'"):
            digest(torch.ones(2), algorithm="md5")
    with pytest.raises(BadInput, match="'lanes'"):
        state_digest({}, algorithm="LANES")


class Elsewhere:
    """Enough of a tensor on a device for what comes before the device is asked."""

    is_cpu, device = False, "cuda:0"


def test_xxh3_does_not_reach_another_device():
    with pytest.raises(BadInput, match=r"on cuda:0; leave the algorithm out.*'lanes'.*\.cpu\(\)"):
        digests._combined([Elsewhere()], "xxh3")


def test_one_tensor_elsewhere_makes_the_whole_group_lanes(monkeypatch):
    here, there = torch.ones(3), torch.zeros(3)
    expected = tensors_digest({"here": here, "there": there}, algorithm="lanes")
    monkeypatch.setattr(digests, "_is_away", lambda token: token is there)
    assert tensors_digest({"here": here, "there": there}) == expected
    assert state_digest({"here": here, "there": there}) == expected
    assert len(tensors_digest({"here": here})) == 32


# -- groups and states ---------------------------------------------------------------------


@both
def test_a_group_goes_by_name(algorithm):
    def digest(**group):
        return tensors_digest(group, algorithm=algorithm)

    a, b = torch.ones(2), torch.zeros(2)
    one = digest(a=a, b=b)
    assert digest(b=b, a=a) == one
    others = [digest(a=b, b=a), digest(a=a, c=b), digest(a=a), digest(a=a, b=b, c=b), digest()]
    others += [digest(a=a, b=None), digest(a=a, b="b"), digest(ab=a), digest(a=a, b=b[:1])]
    assert len({one, *others}) == 1 + len(others)


NUMBERS = [0, 1, -1, 0.0, -0.0, 1.0, True, False, None, "", "1", "i1;", 2**80, float("nan")]
NUMBERS += [np.float64(1.0), np.float32(1.0), np.int64(1), np.True_]


def test_numbers_go_by_type_and_bits():
    found = [tensors_digest({"n": number}) for number in NUMBERS]
    assert len(set(found)) == len(NUMBERS)
    assert found == [tensors_digest({"n": number}) for number in NUMBERS]
    payload = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0].item()
    assert tensors_digest({"n": payload}) != tensors_digest({"n": float("nan")})
    member = enum.IntEnum("Member", {"ONE": 1}).ONE
    assert tensors_digest({"n": member}) == tensors_digest({"n": 1})


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"a": [1]}, r"'a' in the group is of type list; .*\(state_digest"),
        ({"a": {}}, "'a' in the group is of type dict"),
        ({1: 2}, "a name in the group is 1; expected text"),
        ({"a": torch.zeros(2, device="meta")}, "'a' in the group is a tensor without values"),
    ],
    ids=["list", "dict", "name", "meta"],
)
def test_a_group_is_flat(group, message):
    with pytest.raises(BadInput, match=message):
        tensors_digest(group)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=6,
)


def spelled(value):
    """Equal for equal values of equal types and signs, and for those only."""
    if isinstance(value, dict):
        return sorted((repr(key), spelled(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [type(value).__name__, [spelled(item) for item in value]]
    return repr(value)


@settings(max_examples=25, deadline=None)
@given(a=plain, b=plain)
def test_states_differ_where_they_are_spelled_differently(a, b):
    same = spelled(a) == spelled(b) and type(a) is type(b)
    assert (state_digest(a) == state_digest(b)) == same
    assert state_digest([a, b]) == state_digest([a, b])
    assert (state_digest([a, b]) == state_digest([b, a])) == same
    assert state_digest([[a], b]) != state_digest([a, [b]])


@both
def test_the_state_of_an_optimizer(algorithm):
    def trained(steps):
        weight = torch.nn.Parameter(torch.ones(3, 2))
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        for _ in range(steps):
            weight.grad = torch.full((3, 2), 0.5)
            optimizer.step()
        return optimizer.state_dict()

    one = trained(2)
    turned = OrderedDict((key, one[key]) for key in reversed(one))
    turned["state"] = {0: dict(reversed(one["state"][0].items()))}
    assert state_digest(turned, algorithm=algorithm) == state_digest(one, algorithm=algorithm)
    assert state_digest(trained(3), algorithm=algorithm) != state_digest(one, algorithm=algorithm)
    one["state"][0]["exp_avg"][1, 1] += 1
    assert state_digest(turned, algorithm=algorithm) == state_digest(one, algorithm=algorithm)
    before = state_digest(one, algorithm=algorithm)
    one["param_groups"][0]["lr"] = 0.2
    assert state_digest(one, algorithm=algorithm) != before


def test_what_else_a_state_may_hold():
    values = [torch.float32, torch.float16, torch.device("cpu"), {1, 2}, {1, 3}, set(), [1, 2]]
    values += [{"1": 0}, {1: 0}, {(1, "a"): 0}, bytearray(b"x"), "x"]
    assert len({state_digest(value) for value in values}) == len(values)
    assert state_digest({3, 1, 2}) == state_digest(frozenset([2, 3, 1]))
    assert state_digest(torch.Size([1, 2])) == state_digest((1, 2))
    assert state_digest(torch.ones(2)) == tensor_digest(torch.ones(2))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [1, print]}, r"the state\['a'\]\[1\] is of type builtin_function"),
        ({torch.ones(1): 1}, "a key of the state is a tensor"),
        ({"a": {(1, 2)}}, r"the state\['a'\] is of type set"),
        ([torch.zeros(1, device="meta")], r"the state\[0\] is a tensor without values"),
    ],
    ids=["function", "key", "set of tuples", "meta"],
)
def test_what_a_state_may_not_hold(state, message):
    with pytest.raises(BadInput, match=message):
        state_digest(state)


# -- generators ----------------------------------------------------------------------------

DRAWS = {
    "python": lambda: random.random(),
    "numpy": lambda: np.random.random(),
    "torch": lambda: torch.rand(1),
}


@pytest.fixture
def put_back():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def moved(before):
    after = generator_digests()
    assert after.keys() == before.keys()
    return {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize("name", DRAWS)
def test_one_draw_is_noticed(put_back, name):
    before = generator_digests()
    assert {"python", "numpy", "torch"} <= before.keys()
    assert all(len(digest) == 32 for digest in before.values())
    assert moved(before) == set()
    DRAWS[name]()
    assert moved(before) == {name}


def test_the_spare_normal_number_is_noticed(put_back):
    """Every second one is taken from where the first was drawn; the words do not move."""
    random.gauss()
    np.random.standard_normal()
    before, words = generator_digests(), np.random.get_state()[1].tolist()
    np.random.standard_normal()
    assert np.random.get_state()[1].tolist() == words
    assert moved(before) == {"numpy"}
    random.gauss()
    assert moved(before) == {"python", "numpy"}


def test_a_state_put_back_is_the_state(put_back):
    state, before = np.random.get_state(), generator_digests()
    np.random.standard_normal(3)
    np.random.set_state(state)
    assert moved(before) == set()
    np.random.set_state(("MT19937", *state[1:3], 1, 0.25))
    one = generator_digests()
    np.random.set_state(("MT19937", *state[1:3], 1, 0.5))
    assert moved(one) == {"numpy"}


@pytest.mark.parametrize("n_draws", range(4))
def test_numpy_is_read_as_it_tells_itself(put_back, monkeypatch, n_draws):
    assert digests._gauss_offset() > 0  # NumPy's object is laid out as expected
    np.random.seed(3)
    np.random.standard_normal(n_draws)
    quick = generator_digests()
    monkeypatch.setattr(digests, "_gauss_offset", lambda: 0)
    assert generator_digests() == quick


def test_another_layout_of_numpy_is_noticed(monkeypatch):
    digests._gauss_offset.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(digests, "_twister_in_memory", lambda *_: b"")
            assert digests._gauss_offset() == 0
    finally:
        digests._gauss_offset.cache_clear()


def test_another_generator_of_numpy(put_back):
    before, other = np.random.get_bit_generator(), np.random.PCG64(3)
    digest = generator_digests()
    np.random.set_bit_generator(other)
    try:
        assert moved(digest) == {"numpy"}
        digest = generator_digests()
        assert moved(digest) == set()
        np.random.random()
        assert moved(digest) == {"numpy"}
    finally:
        np.random.set_bit_generator(before)


def test_cuda_is_asked_once_it_has_started(monkeypatch):
    generators = tuple(torch.Generator().manual_seed(seed) for seed in (1, 2))
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not {"cuda:0", "cuda:1"} & generator_digests().keys()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    before = generator_digests()
    torch.rand(1, generator=generators[1])
    assert moved(before) == {"cuda:1"}


def test_generators_are_read_unseen(put_back):
    with Seen() as seen, warnings.catch_warnings():
        warnings.simplefilter("error")
        generator_digests()
    assert seen.operations == []
    np.random.seed(5)
    random.seed(5)
    torch.manual_seed(5)
    one = generator_digests()
    np.random.seed(5)
    random.seed(5)
    torch.manual_seed(5)
    assert generator_digests() == one
