"""The numeric class: the same wherever the bits are the same, and only there."""

import functools
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellrepro.determinism.modes import MODES, mode_in_force
from cellrepro.determinism.profiles import Profile
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.store import numeric
from cellrepro.store.digests import array_digest
from cellrepro.store.numeric import DTYPES, PROBES, NumericClass, differs, numeric_class
from cellrepro.store.platform import host


@pytest.fixture(autouse=True)
def _torch_is_there(one_thread):
    """One thread, where the number makes no difference to what is tested."""


PINNED = "33345de3d09e6c4b6f64facd0e6a71a82043c02c3cefd9aa260d288329e434c6"


# -- in one process ------------------------------------------------------------------------


def test_every_operation_in_both_dtypes():
    found = numeric_class()
    assert set(found.probes) == {f"{name}/{dtype}" for name in PROBES for dtype in DTYPES}
    assert len(set(found.probes.values())) == len(found.probes)
    assert len(found.name) == 12


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_overflows(dtype):
    """NaN and infinity are the same bits on every machine, so they would hide differences."""
    import torch

    for name, results in numeric._results(torch.device("cpu"), dtype):
        assert results, name
        for tensor in results:
            assert str(tensor.dtype) == f"torch.{dtype}", name
            assert bool(tensor.isfinite().all()), name
            assert tensor.numel() == 1 or len(tensor.unique()) > 10, name


def test_the_inputs_are_the_same_on_every_machine():
    import torch

    numbers = numeric._Numbers(torch.device("cpu"), "float32")
    values = numbers(64, 1000).numpy()
    assert array_digest(values) == PINNED
    assert -1 <= values.min() < -0.99 < 0.99 < values.max() < 1
    assert len(np.unique(values)) > 63_000


def test_repeats_whatever_the_surroundings(generators_free):
    """Mode, autocast, gradients, generators and default dtype are none of its business."""
    import torch

    expected = numeric_class()
    for mode in MODES:
        with mode_in_force(mode, device="cpu"):
            assert differs(expected, numeric_class()) == []
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            assert numeric_class() == expected
    finally:
        torch.set_default_dtype(before)


def test_moves_no_switch(monkeypatch):
    """Neither at its end nor when a probe fails; the generators are watched by a fixture."""
    import torch

    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        numeric_class()
        assert torch.backends.cudnn.benchmark
        monkeypatch.setattr(numeric, "PROBES", {"broken": lambda numbers: 1 / 0})
        with pytest.raises(ZeroDivisionError):
            numeric_class()
        assert torch.backends.cudnn.benchmark
        assert not torch.backends.cudnn.deterministic
    finally:
        torch.backends.cudnn.benchmark = before


def test_one_flipped_bit_makes_another_class(monkeypatch):
    import torch

    def nudged(numbers):
        total, *others = PROBES["sum"](numbers)
        return torch.nextafter(total, torch.full_like(total, 1e9)), *others

    original = numeric_class()
    monkeypatch.setattr(numeric, "PROBES", {**PROBES, "sum": nudged})
    flipped = numeric_class()
    assert differs(original, flipped) == ["sum/bfloat16", "sum/float32"]
    assert flipped.name != original.name


@pytest.mark.parametrize("device", ["gpu", "", "meta", "cuda:x", "cuda:", "cuda:-1", None, 0])
def test_refuses_what_is_no_device(device):
    with pytest.raises(BadInput, match=rf"device is {device!r}; expected cpu, cuda, cuda:N or mps"):
        numeric_class(device)


@pytest.mark.parametrize("device", ["cuda:64", "cpu:1"])
def test_refuses_a_missing_device(device):
    with pytest.raises(NotPossibleHere, match=rf"'{device}', and PyTorch .* cpu always is"):
        numeric_class(device)


@pytest.mark.gpu
def test_repeats_on_cuda():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA device")
    names = {numeric_class("cuda").name for _ in range(5)}
    assert len(names) == 1
    assert names != {numeric_class().name}


# -- which probes differ -------------------------------------------------------------------

_probes = st.dictionaries(st.sampled_from(sorted(PROBES)), st.sampled_from("abc"))


@settings(deadline=None)  # other processes may be busy
@given(_probes, _probes)
def test_differs_names_every_difference_and_no_other(a, b):
    expected = sorted(name for name in PROBES if a.get(name) != b.get(name))
    one, other = NumericClass("1", a), NumericClass("2", b)
    assert differs(one, other) == differs(other, one) == expected
    assert differs(one, one) == []


# -- in other processes --------------------------------------------------------------------

_SCRIPT = """\
import json, sys
from cellrepro.determinism.profiles import Profile
from cellrepro.store.numeric import numeric_class
Profile.model_validate_json(sys.argv[1]).enter()
found = numeric_class()
assert all(numeric_class() == found for _ in range(2)), "not even equal to itself"
print(json.dumps([found.name, dict(found.probes)]))
"""


def child_class(**fields):
    """The class of a new process, started with a profile's variables."""
    profile = Profile(name="a child's", **fields)
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, profile.model_dump_json()],
        env=profile.child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return NumericClass(*json.loads(done.stdout))


@functools.cache
def reference():
    return child_class(threads=2)


def test_equal_processes_are_of_one_class():
    assert child_class(threads=2) == reference()


X86 = host()["architecture"] in ("x86_64", "AMD64")
VECTORS = host()["instructions"]


@pytest.mark.parametrize(
    ("fields", "expected", "possible"),
    [
        ({"threads": 1}, {"sum/float32"}, True),
        (
            {"threads": 2, "environment": {"ATEN_CPU_CAPABILITY": "default"}},
            {"softmax/float32", "elementwise/float32"},
            "avx2" in VECTORS,
        ),
        (
            {"threads": 2, "environment": {"MKL_CBWR": "COMPATIBLE"}},
            {"matmul/float32", "linear/float32"},
            X86,
        ),
        (
            {"threads": 2, "environment": {"ONEDNN_MAX_CPU_ISA": "AVX2"}},
            {"conv/float32", "conv/bfloat16"},
            "avx512f" in VECTORS,
        ),
        ({"threads": 2, "onednn": False}, {"conv/float32"}, X86),
    ],
    ids=["one thread", "PyTorch's kernels", "MKL", "oneDNN's limit", "without oneDNN"],
)
def test_what_changes_bits_changes_the_class(fields, expected, possible):
    """Expected is what differs on a processor with AVX-512 and on one with AVX2 only.

    More does on either: without AVX-512 the number of threads leaves ``conv/float32`` as it is,
    and oneDNN ``conv/bfloat16``, for example.
    """
    if not possible:
        pytest.skip("this processor has nothing that could be taken away")
    other = child_class(**fields)
    assert expected <= set(differs(reference(), other))
    assert other.name != reference().name
