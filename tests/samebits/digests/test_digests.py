"""Digests and bits: known answers, what they tell apart, and that nobody notices."""

import hashlib
import random
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from samebits import tensor_digests
from samebits.bit_equality import difference, same_bits
from samebits.digests import array_digest, file_digest, value_digest
from samebits.errors import BadInput
from samebits.generator_digests import generator_digests
from samebits.tensor_digests import comparable, lanes_digest, tensor_digest, tensors_digest


def in_lanes(value):
    """As on a GPU."""
    return lanes_digest([value])


both = pytest.mark.parametrize("digest", [tensor_digest, in_lanes])


def test_known_answers_of_sha256(tmp_path):
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert file_digest(path) == hashlib.sha256(b"abc").hexdigest()
    content = b"<u2(2, 2)" + bytes([1, 0, 2, 0, 3, 0, 4, 0])
    assert array_digest(np.array([[1, 2], [3, 4]], ">u2")) == hashlib.sha256(content).hexdigest()
    assert value_digest({"b": 1, "a": None}) == hashlib.sha256(b'{"a":null,"b":1}').hexdigest()
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert array_digest(np.repeat(array, 2, axis=1)[:, ::2]) == array_digest(array)
    others = [array, array.T, array.ravel(), array.view(np.float32), array[None]]
    assert len({array_digest(other) for other in others}) == len(others)


def test_known_answers(generators_free, monkeypatch):
    value = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7
    assert tensor_digest(value) == "c69dc4400cf6661002c843ebadc5d025"
    state = {"a": [1, 2.5, None, True, "é"], 0: (value, np.arange(3, dtype=np.int16))}
    assert tensor_digest(state) == "6114d51919881ed80658c9236ed36a38"
    group = {"bb": np.ones(3, np.float32), "a": torch.ones(2), "abc": 3, "z": None}
    assert tensors_digest(group) == "987ae66d135decd85b4d1959090859c4"
    value = torch.arange(101, dtype=torch.int16) * 331  # by the definition, in Python's numbers
    for n_words in (3, 1 << 21):
        monkeypatch.setattr(tensor_digests, "_PIECE", n_words)
        assert in_lanes(value) == "1436121eeee70699ea8fc8db776a5a2bc168cfefe72c7e03"
    assert not comparable(in_lanes(value), tensor_digest(value))
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    np.random.standard_normal(3)
    random.gauss(0, 1)
    known = {
        "numpy": "878979e7cd7dfa0de224c109804f390a",
        "python": "fc1b132bb233e61b2af3f7bd748e3e08",
        "torch": "372be0f4b637066a56987fcce7b22420",
    }
    assert known.items() <= generator_digests().items()


DTYPES = [torch.bool, torch.uint8, torch.int16, torch.uint32, torch.int64, torch.float16]
DTYPES += [torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e5m2]


@st.composite
def tensors(draw):
    """Tensors of any bits, NaN included, up to three axes."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = draw(st.binary(min_size=n_bytes, max_size=n_bytes))
    if dtype is torch.bool:
        raw = bytes(byte % 2 for byte in raw)
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).reshape(shape)


@both
@settings(max_examples=30, deadline=None)
@given(tensor=tensors(), data=st.data())
def test_any_bit_counts_and_the_order_and_no_layout(digest, tensor, data):
    before = digest(tensor)
    axes = range(tensor.ndim)[::-1]
    layouts = [
        tensor.permute(*axes).contiguous().permute(*axes),
        torch.stack([tensor, tensor], -1)[..., 1],
        torch.cat([tensor.new_zeros(3), tensor.reshape(-1)])[3:].view(tensor.shape),
    ]
    assert {digest(one) for one in layouts} == {before}
    mine = tensor.as_subclass(type("Mine", (torch.Tensor,), {}))
    assert tensor_digest(mine) == tensor_digest(tensor)
    rows = tensor.view(-1).view(torch.uint8).numpy().reshape(tensor.numel(), -1)  # shared memory
    a, b = (data.draw(st.integers(0, len(rows) - 1)) for _ in range(2))
    rows[a, 0] ^= 1
    assert digest(tensor) != before
    rows[a, 0] ^= 1
    assume((rows[a] != rows[b]).any())
    rows[[a, b]] = rows[[b, a]]
    assert digest(tensor) != before


@both
def test_shape_dtype_sign_and_payload_count(digest):
    zeros = [torch.zeros(shape) for shape in [(6,), (2, 3), (3, 2), (6, 1), (0, 3), (3, 0), ()]]
    typed = [torch.zeros(6).view(dtype) for dtype in (torch.int32, torch.int64, torch.bfloat16)]
    words = [0x7FC00000, 0x7FC00001, 0xFFC00000, 0x7F800001, 0x80000000]
    special = [torch.tensor([word], dtype=torch.uint32).view(torch.float32) for word in words]
    values = [*zeros, *typed, *special]
    assert len({digest(value) for value in values}) == len(values)
    number = torch.tensor([1 + 2j, 3 - 4j, 0 - 0j], dtype=torch.complex64)
    repeated = torch.tensor([1.0, 2.0])[:, None].expand(2, 30)
    for view in (number.conj(), number.conj().imag, torch._neg_view(torch.ones(3)), repeated):
        assert digest(view) == digest(view.resolve_conj().resolve_neg().contiguous())


def test_arrays_and_states_by_name_type_and_bits():
    array = np.arange(6, dtype=">i4").reshape(3, 2).T
    assert tensor_digest(array) == tensor_digest(torch.arange(6, dtype=torch.int32).view(3, 2).T)
    group = {"a": torch.ones(2), "b": torch.zeros(2)}
    assert tensors_digest(dict(reversed(group.items()))) == tensors_digest(group)
    assert tensors_digest({"b": group["a"], "a": group["b"]}) != tensors_digest(group)
    values = [1, 1.0, True, "1", None, 0.0, -0.0, (1,), [1], {1: 0}, np.float64(1.0)]
    values += [torch.tensor([0.0, 1]).to_sparse(), torch.tensor([1.0, 0]).to_sparse()]
    assert len({tensor_digest(value) for value in values}) == len(values)


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations.append(str(func))
        return func(*args, **(kwargs or {}))


@both
def test_a_digest_leaves_no_trace(digest):
    weight = torch.nn.Parameter(torch.ones(2, 3))
    values = [weight, (weight * 2).T, weight.to(torch.complex64).conj(), weight.bfloat16()]
    number = torch._C._autograd._get_sequence_nr()
    before = generator_digests()
    with Seen() as seen, torch.device("meta"):
        for value in values:
            digest(value)
        assert generator_digests() == before
    assert seen.operations == []
    assert torch._C._autograd._get_sequence_nr() == number
    assert [value._version for value in values] == [0] * 4


def test_what_holds_no_bits_is_refused():
    released = torch.ones(2, 3)
    released.untyped_storage().resize_(0)
    for value, message in (
        (torch.zeros(3, device="meta"), "no memory that could be read"),
        (released, "no memory that could be read"),
        (np.array([object()]), "expected numbers"),
        ([print], "type builtin_function_or_method cannot be digested"),
    ):
        with pytest.raises(BadInput, match=message):
            tensor_digest(value)


def test_one_draw_of_a_generator_is_noticed(generators_free):
    """Also of the spare normal number: the second is taken from where the first was drawn."""
    draws = {"python": lambda: random.gauss(0, 1), "numpy": np.random.standard_normal}
    for name, draw in [*draws.items(), *draws.items(), ("torch", lambda: torch.rand(1))]:
        before = generator_digests()
        draw()
        after = generator_digests()
        assert {other for other in before if before[other] != after[other]} == {name}


NAN, INFINITE = float("nan"), float("inf")
PAYLOAD = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (torch.tensor([NAN]), torch.tensor([NAN]), (0, 0.0)),
        (torch.tensor([NAN]), PAYLOAD, (1, 0.0)),
        (torch.tensor([NAN, 2.0]), torch.tensor([1.0, 2.0]), (1, INFINITE)),
        (torch.tensor([0.0]), torch.tensor([-0.0]), (1, 0.0)),
        (torch.tensor([[0.0, 1], [2, 3]])[:, 0], torch.tensor([-0.0, 2]), (1, 0.0)),
        (torch.ones(2), torch.ones(3), (3, INFINITE)),
        (torch.ones(2, 3).t(), torch.ones(3, 2), (0, 0.0)),
        (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j]), (0, 0.0)),
        (torch.tensor([1.0]).to_sparse(), torch.tensor([2.0]).to_sparse(), (1, 1.0)),
        (3, 3.0, (1, 0.0)),
        (None, torch.ones(1), (1, INFINITE)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bits_and_differences(a, b, expected):
    assert same_bits(a, b) is same_bits(b, a) is (expected[0] == 0)
    assert difference(a, b) == expected


def test_whichever_bit_generator_numpy_has(generators_free):
    """Somebody may have given NumPy's global functions another one."""
    before = np.random.get_bit_generator()
    try:
        for kind in (np.random.PCG64, np.random.Philox):
            np.random.set_bit_generator(kind(3))
            first = generator_digests()["numpy"]
            assert generator_digests()["numpy"] == first
            np.random.rand()
            assert generator_digests()["numpy"] != first
    finally:
        np.random.set_bit_generator(before)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantised_tensors_of_other_scales_differ():
    """Equal integers that stand for different numbers."""
    values = torch.arange(4.0)
    a, b = (torch.quantize_per_tensor(values * s, s, 0, torch.qint8) for s in (0.5, 0.25))
    assert torch.equal(a.int_repr(), b.int_repr())
    assert same_bits(a, a.clone())
    assert not same_bits(a, b)


NAN = float("nan")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([0.0], [-0.0], False),
        ([NAN], [NAN], True),
        ((1.0, [2.0, NAN]), (1.0, [2.0, NAN]), True),
        ({"a": 0.0}, {"a": -0.0}, False),
        (np.array([0.0, 1.0]), np.array([-0.0, 1.0]), False),
        (np.array([NAN]), np.array([NAN]), True),
        (np.array([1, 2]), np.array([1, 2], np.int32), False),
        ([torch.zeros(2)], [-torch.zeros(2)], False),
        (np.float32(0), np.float32(-0.0), False),
        ("a", "a", True),
        (1, 1.0, False),
    ],
)
def test_bits_of_values_that_are_no_tensors(a, b, expected):
    assert same_bits(a, b) is expected


def test_what_has_no_bits_is_refused():
    class Elements:
        def __eq__(self, other):
            return [True]

    with pytest.raises(BadInput, match="the bits of Elements cannot be compared"):
        same_bits(Elements(), Elements())
    with pytest.raises(BadInput, match="holds objects, which have no digest"):
        array_digest(np.array([{}, None]))


def test_the_digest_of_an_array_needs_no_copy_of_it():
    array = np.zeros(20_000_000, np.uint8)
    tracemalloc.start()
    array_digest(array)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert len({array_digest(np.zeros(shape)) for shape in ((), (0,), (1,), (2, 0))}) == 4
