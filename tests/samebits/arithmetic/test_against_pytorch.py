"""Every operation of PyTorch gives what PyTorch gives, or is refused, in every type and shape.

The operations and what they are called with come from PyTorch's own database, so one that is added
there, or gets a portable form here, is tried without being listed.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import operator_database as db
import pytest
import torch
from torch.utils._pytree import tree_map

import samebits
from samebits.arithmetic import operation_forms
from samebits.arithmetic.kernels.table import FORMS
from samebits.arithmetic.portable_mode import NotPortable, PortableArithmetic

pytest.importorskip("expecttest", reason="PyTorch's database needs it")
pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

ROUNDED_BY_PYTORCH = ("nn.functional.hardsigmoid",)
"""Operations in whose float64 gradient PyTorch itself takes a sixth that is rounded to float32."""


@pytest.fixture(scope="module")
def operations() -> list[Any]:
    return db.database()


@pytest.fixture(scope="module")
def first_samples(operations: list[Any]) -> list[tuple[Any, db.Sample]]:
    """Each operation with its first sample, if it has one."""
    with db.quiet():
        return [(info, s) for info in operations for s in db.samples_of(info, torch.float32, 1)]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with db.quiet():
        yield


def into_given(info: Any, sample: db.Sample) -> db.Sample | None:
    """A sample with tensors to write into; none where PyTorch refuses it."""
    try:
        expected = db.plainly(info, sample.fresh())
    except Exception:
        return None

    def of_another(leaf: Any) -> Any:
        return torch.full_like(leaf, 7) if isinstance(leaf, torch.Tensor) else leaf

    kwargs = {**sample.kwargs, "out": tree_map(of_another, expected)}
    return db.Sample(sample.input, sample.args, kwargs)


def tries(info: Any, sample: db.Sample) -> dict[str, Callable[[], str]]:
    """Ways in which one sample is tried: functions that tell the fault."""

    def of(way: Any, change: Any = None) -> Callable[[], str]:
        def tried() -> str:
            changed = sample if change is None else sample.changed(change)
            if way is db.into_given:
                given = into_given(info, changed)
                return "" if given is None else db.fault_of(info, given, way)
            return db.fault_of(info, changed, way)

        return tried

    found = {"as it is": of(db.plainly), "float64": lambda: db.fault_in_doubles(info, sample)}
    if info.get_inplace():
        found["in place"] = of(db.in_place)
    if info.supports_out:
        found["out"] = of(db.into_given)
    if info.supports_autograd:
        found["gradient"] = of(db.gradients)
    is_loss = "loss" in info.name or "entropy" in info.name
    for name, change in (db.VALUES | db.LAYOUTS).items():
        if name != "ignored" or is_loss:
            found[name] = of(db.plainly, change)
            if info.supports_autograd and name in ("small", "ignored", "repeated indices", "gaps"):
                found[f"gradient, {name}"] = of(db.gradients, change)
    return found


READING_MEMORY = ("as_strided", "as_strided_copy", "as_strided_scatter", "resize_")
"""Operations whose result is what lies in memory."""


def bits_by_layout(info: Any, sample: db.Sample) -> str:
    """Whether bits differ by the layout in memory: then they follow from an order.

    PyTorch makes some operations of others by their layout; these are not compared.
    """
    if info.name in READING_MEMORY:
        return ""
    by_operations: dict[str, set[str]] = {}
    for change in (torch.clone, db.reversed_strides, db.with_gaps):
        found = db.bits_of(info, sample.changed(change))
        if found is not None:
            by_operations.setdefault(found[0], set()).add(found[1])
    is_one = all(len(digests) == 1 for digests in by_operations.values())
    return "" if is_one else "bits depend on the layout in memory"


def faults_of(info: Any, n_samples: int) -> Iterator[tuple[str, str]]:
    """All faults of an operation, by the way in which it was tried: the cheapest first."""
    samples = db.samples_of(info, torch.float32, n_samples)
    for sample in samples:
        yield "as it is", db.fault_of(info, sample)
    for dtype in db.DTYPES:
        for sample in db.samples_of(info, dtype, n_samples):
            yield str(dtype), db.fault_of(info, sample)
    for sample in db.samples_of(info, torch.float64, 1):
        for name, fault in tries(info, sample).items():
            if "gradient" not in name or info.name not in ROUNDED_BY_PYTORCH:
                yield f"{name}, float64", fault()
    half = db.samples_of(info, torch.float16, 1)
    if half and _is_of_any_length(info):
        positive = half[0].changed(torch.abs)
        yield "many", db.fault_of(info, positive.changed(db.many))
    for sample in samples:
        for name, fault in tries(info, sample).items():
            yield name, fault()
        for change in ("as it is", "only zeros", "repeated indices"):
            changed = sample.changed(db.VALUES.get(change, torch.clone))
            yield f"layout, {change}", bits_by_layout(info, changed)


def named_faults(info: Any, n_samples: int) -> Iterator[str]:
    for name, fault in faults_of(info, n_samples):
        if fault:
            yield f"{db.name_of(info)}, {name}: {fault}"


def _is_of_any_length(info: Any) -> bool:
    kinds = {each.__name__ for each in type(info).__mro__}
    by_place = info.name.startswith(("index_", "scatter", "put"))
    return by_place or bool(kinds & {"UnaryUfuncInfo", "BinaryUfuncInfo", "ReductionOpInfo"})


def test_an_operation_gives_what_pytorch_gives_or_is_refused(first_samples):
    """One sample each, as it is and in one more way, which is another from operation to operation;
    the tests marked slow take more samples, and each in every way."""
    found = []
    for place, (info, sample) in enumerate(first_samples):
        ways = tries(info, sample)
        names = [*ways]
        for name in {names[0], names[place % len(names)]}:
            fault = ways[name]()
            found += [f"{db.name_of(info)}, {name}: {fault}"] if fault else []
    assert found == []


FLOATING = (torch.float32, torch.complex64)


def n_chosen(info: Any, sample: db.Sample) -> int:
    """How many numbers the results have if each is 0 or, but for its sign, one of the inputs."""
    try:
        results = db.tensors_in(db.expected_of(info, sample, db.plainly))
    except Exception:  # of what this machine has not
        return 0
    given = sample.tensors()
    if not all(tensor.layout is torch.strided for tensor in (*results, *given)):
        return 0
    known = torch.cat([torch.zeros(1), *(db.real(each).float().abs().flatten() for each in given)])
    numbers = [db.real(each).abs().nan_to_num() for each in results if each.dtype in FLOATING]
    is_known = all(torch.isin(each, known).all() for each in numbers)
    return sum(each.numel() for each in numbers) if is_known else 0


def is_moved(info: Any, sample: db.Sample) -> bool:
    """Whether `samebits.perturbed` moves any result."""
    plain = db.tensors_in(db.expected_of(info, sample, db.plainly))
    with samebits.perturbed(0):
        inside = db.tensors_in(db.expected_of(info, sample, db.plainly))
    return not all(map(samebits.same_bits, map(db.real, plain), map(db.real, inside)))


def mode_of(sample: db.Sample) -> tuple[str, ...]:
    """The words among what an operation is called with, such as ``amax``."""
    given = (*sample.args, *sample.kwargs.values())
    return tuple(word for word in given if isinstance(word, str))


def test_what_only_chooses_and_places_numbers_is_not_perturbed(first_samples):
    """An operation that, in one of its modes (``reduce="amax"``), computes none in any sample."""
    found = []
    for info, first in first_samples:
        if not mode_of(first) and not n_chosen(info, first):
            continue
        samples = db.samples_of(info, torch.float32, 8)
        for mode in dict.fromkeys(map(mode_of, samples)):
            of_mode = [sample for sample in samples if mode_of(sample) == mode]
            n = list(itertools.takewhile(bool, (n_chosen(info, sample) for sample in of_mode)))
            chooses = len(n) == len(of_mode) and max(n) > 1
            if chooses and any(is_moved(info, sample) for sample in of_mode):
                found.append((db.name_of(info), mode))
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_operation_in_every_way(operations, part):
    assert [fault for info in operations[part::8] for fault in named_faults(info, 2)] == []


@pytest.mark.slow
def test_bits_do_not_depend_on_threads(operations):
    found = {}
    for info, dtype in itertools.product(filter(_is_of_any_length, operations), db.PRECISE):
        for sample in db.samples_of(info, dtype, 2):
            for change in ("as it is", "only zeros", "repeated indices"):
                long = sample.changed(db.VALUES.get(change, torch.clone)).changed(db.many)
                bits = []
                for n_threads in (1, 3):
                    torch.set_num_threads(n_threads)
                    bits.append(db.bits_of(info, long))
                if bits[0] != bits[1]:
                    found[db.name_of(info), dtype, change] = bits
    torch.set_num_threads(1)
    assert found == {}


def capabilities_here():
    """Instruction sets of this processor; PyTorch ends where it is told to use another."""
    known = ["default", "avx2", "avx512"]
    most = torch.backends.cpu.get_cpu_capability().lower()
    return known[: known.index(most) + 1] if most in known else ["default"]


@pytest.mark.slow
def test_bits_do_not_depend_on_instructions():
    found = {}
    for capability in capabilities_here():
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, db.__file__, "2"]
        here = str(Path(__file__).parent)
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, check=True)
        found[capability] = json.loads(done.stdout)
    cases = set.intersection(*map(set, found.values()))
    assert len(cases) > 0.9 * len(found["default"]) > 1000
    different = [case for case in cases if len({str(bits[case]) for bits in found.values()}) > 1]
    assert different == []


# -- planted faults ------------------------------------------------------------------------------


def _mean_in_its_own_type(a, dim=None, keepdim=False, *, dtype=None):
    total = torch.zeros((), dtype=a.dtype)
    return (total + a.double().sum().to(a.dtype)) / a.numel()


def _division_as_fraction(a, b, *, rounding_mode=None):
    return torch.div(a.float(), b, rounding_mode=rounding_mode)


def _linspace_that_ends(start, end, steps, **options):
    result = torch.linspace(start, end, steps, dtype=options.get("dtype"))
    return torch.full_like(result, end) if steps == 1 else result


def _tanh_by_logistic(a):
    return torch.sigmoid(a * 2) * 2 - 1


def _root_in_doubles(a):
    return a.double().sqrt()


def _batch_norm_of_two_outputs(*arguments):
    return torch.native_batch_norm(*arguments)[:2]


def _scatter_add_with_axes(a, dim, index, source):
    return a.scatter_add(dim, index, source[: index.shape[0]])


def _product_in_one_slice(a, b):
    unit = (a.abs().amax(1, keepdim=True) * 2.0**-22).double()
    return ((a / unit).round() * unit).float() @ b


def _softmax_without_small_numbers(a, dim, half_to_float):
    result = torch.softmax(a, dim)
    return torch.where(result < 1e-9, 0.0, result)


def _exp_in_float32(a):
    return a.float().exp().to(a.dtype)


def _sorted_into_new_ones(a, dim=-1, descending=False, *, stable=None):
    return [each.clone() for each in torch.sort(a, dim=dim, descending=descending)]


PLANTED = {
    "mean": ("mean", _mean_in_its_own_type),
    "division of whole numbers": ("div", _division_as_fraction),
    "linspace of one step": ("linspace", _linspace_that_ends),
    "small numbers": ("tanh", _tanh_by_logistic),
    "type": ("sqrt", _root_in_doubles),
    "float32 in float64": ("exp", _exp_in_float32),
    "number of outputs": ("native_batch_norm", _batch_norm_of_two_outputs),
    "no axes": ("scatter_add", _scatter_add_with_axes),
    "one slice": ("mm", _product_in_one_slice),
    "small numbers of a softmax": ("_softmax", _softmax_without_small_numbers),
}
OPERATION_OF = {
    "div": "div.floor_rounding",
    "_softmax": "softmax",
}
"""Where the database has it under another name."""


def chosen(operations, name):
    return [info for info in operations if db.name_of(info) == name]


CHEAP = {"number of outputs", "small numbers", "float32 in float64"}


@pytest.mark.parametrize(
    "kind",
    [k if k in CHEAP else pytest.param(k, marks=pytest.mark.slow) for k in sorted(PLANTED)],
)
def test_a_planted_fault_is_found(operations, monkeypatch, kind):
    name, kernel = PLANTED[kind]
    monkeypatch.setattr(operation_forms, "_OPERATIONS", {})
    monkeypatch.setitem(FORMS, name, kernel)
    infos = chosen(operations, OPERATION_OF.get(name, name))
    assert any(fault for info in infos for fault in named_faults(info, 40))


@pytest.mark.parametrize(
    ("name", "change", "n_threads"),
    [("maximum", "only zeros", 1), ("sum", "as it is", 3)],
)
def test_what_counts_as_exact_and_is_not_is_found(operations, monkeypatch, name, change, n_threads):
    """Signs of zeros follow from the layout, sums from the number of threads."""
    exact = operation_forms.exact_operations()
    planted = {**exact, "moving": exact["moving"] | {name}}
    monkeypatch.setattr(operation_forms, "_OPERATIONS", {})
    monkeypatch.setattr(operation_forms, "exact_operations", lambda: planted)
    [info] = chosen(operations, name)
    found = False
    for sample in db.samples_of(info, torch.float32, 6):
        changed = sample.changed(db.VALUES.get(change, torch.clone)).changed(db.many)
        found = found or bool(bits_by_layout(info, changed))
        by_one = db.bits_of(info, changed)
        torch.set_num_threads(n_threads)
        found = found or db.bits_of(info, changed) != by_one
        torch.set_num_threads(1)
    assert found


# -- optimizers ----------------------------------------------------------------------------------

WAYS: tuple[dict[str, bool], ...] = ({}, {"foreach": True}, {"fused": True}, {"foreach": False})
"""PyTorch's own implementations of one optimizer."""


def trained(optimizer, settings):
    generator = torch.Generator().manual_seed(3)
    shapes = [(30, 7)] if optimizer is getattr(torch.optim, "Muon", None) else [(30, 7), (5,), ()]
    parameters = [torch.rand(shape, generator=generator).requires_grad_() for shape in shapes]
    updating = optimizer(parameters, **settings)

    def closure():
        updating.zero_grad()
        loss = sum((parameter - 0.3).square().sum() for parameter in parameters)
        loss.backward()
        return loss

    for _ in range(3):
        updating.step(closure)
    return [parameter.detach() for parameter in parameters]


@pytest.mark.slow
def test_every_optimizer_is_pytorchs_or_refused():
    """And has the same bits in each of its implementations."""
    n_compared = 0
    for info in db.optimizers():
        for given in info.optim_inputs_func(device="cpu"):
            found = []
            for way in WAYS:
                try:
                    settings = {**given.kwargs, **way}
                    expected = trained(info.optim_cls, settings)
                except Exception:  # PyTorch has no such implementation
                    continue
                try:
                    with PortableArithmetic():
                        found.append(trained(info.optim_cls, settings))
                except NotPortable:
                    continue
                for one, other in zip(found[-1], expected, strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)
            for of_way in found:
                assert all(map(torch.equal, of_way, found[0]))
            n_compared += len(found)
    assert n_compared > 100
