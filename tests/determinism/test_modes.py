"""The switches of a mode: set, read back, in force, given back; one operation left loose."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
import torch.utils.deterministic as memory
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from cellrepro.determinism import substitutes
from cellrepro.determinism.modes import (
    MODES,
    MOVED_BY_CELLPOSE,
    PARENTS,
    PRECISIONS,
    left_loose,
    mode_in_force,
    switches,
)
from cellrepro.errors import BadInput
from cellrepro.trace.observer import Observer

pytestmark = pytest.mark.usefixtures("one_thread")

NEWER = hasattr(torch._C, "_set_fp32_precision_setter")
NAMES = [item.name for item in substitutes.SUBSTITUTES]


def put():
    """An operation without a deterministic implementation, on every device (torch 2.15)."""
    return torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


@pytest.fixture(autouse=True)
def _started_for_every_mode(monkeypatch):
    """Also where there is a GPU."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextmanager
def as_found():
    """Whatever the block sets is put back by other means than a mode's."""
    backends = torch.backends
    places = PRECISIONS.values() if NEWER else ()
    precisions = [torch._C._get_fp32_precision_getter(*place) for place in places]
    debug, fill = torch.get_deterministic_debug_mode(), memory.fill_uninitialized_memory
    onednn, cudnn = backends.mkldnn.deterministic, backends.cudnn.deterministic
    benchmark, tf32 = backends.cudnn.benchmark, backends.cudnn.allow_tf32
    matmul = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(debug)
        memory.fill_uninitialized_memory, backends.mkldnn.deterministic = fill, onednn
        backends.cudnn.deterministic, backends.cudnn.benchmark = cudnn, benchmark
        torch.set_float32_matmul_precision(matmul)
        backends.cudnn.allow_tf32 = tf32
        for place, value in zip(places, precisions, strict=True):
            torch._C._set_fp32_precision_setter(*place, value)


# -- what a mode sets ----------------------------------------------------------------------


def test_fast_fixes_nothing_warn_warns_strict_raises():
    with mode_in_force("fast"):
        put()
    with mode_in_force("warn"), pytest.warns(UserWarning, match="put_"):
        put()
    with mode_in_force("strict"), pytest.raises(RuntimeError, match="does not have a determinis"):
        put()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tf32", [False, True])
def test_what_is_in_force_whatever_was_before(mode, tf32):
    """Precision is the profile's in every mode; memory is not filled, which costs most."""
    fixed = mode != "fast"
    with as_found():
        torch.backends.cudnn.benchmark = torch.backends.mkldnn.deterministic = True
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_float32_matmul_precision("medium")  # bfloat16 for oneDNN's products
        with mode_in_force(mode, tf32=tf32) as found:
            assert found == switches() == json.loads(json.dumps(found))
            expected = {
                "deterministic_algorithms": fixed,
                "deterministic_warn_only": mode == "warn",
                "cudnn_deterministic": fixed,
                "cudnn_benchmark": False,
                "onednn_deterministic": fixed,
                "cuda_matmul_allow_tf32": tf32,
                "cudnn_allow_tf32": tf32,
                "float32_matmul_precision": "high" if tf32 else "highest",
                "substitutes": NAMES if mode == "strict" else [],
            }
            if NEWER:
                expected["fp32_precision_cuda_matmul"] = "tf32" if tf32 else "ieee"
                expected["fp32_precision_onednn_matmul"] = "ieee"
            assert {name: found[name] for name in expected} == expected
            assert not (fixed and found["fill_uninitialized_memory"])
        assert torch.get_float32_matmul_precision() == "medium"


def test_refuses_another_mode_and_changes_nothing():
    before = switches()
    with pytest.raises(BadInput, match=r"unknown mode 'Strict'; expected one of fast, warn"):
        mode_in_force("Strict").__enter__()
    with pytest.raises(BadInput, match=r"put_with_care.*expected"):
        mode_in_force("strict", loose={"put_with_care"}).__enter__()
    assert switches() == before


def test_a_switch_that_does_not_take_hold_is_an_error(monkeypatch):
    before = switches()
    stuck = property(lambda self: False, lambda self, value: None)
    with monkeypatch.context() as patch:
        patch.setattr(type(torch.backends.cudnn), "deterministic", stuck)
        with pytest.raises(RuntimeError, match=r"'strict' did not take hold.*ministic': False"):
            mode_in_force("strict").__enter__()
    assert switches() == before


def test_a_new_process_reads_as_it_started_and_undoes_what_cellpose_set():
    """Cellpose 4.2.1.1 allows TF32 on import; a fact the order in the worker rests on."""
    script = (
        "from cellrepro.determinism.modes import MODES, mode_in_force, switches\n"
        "before = switches()\n"
        "for mode in MODES:\n"
        "    with mode_in_force(mode, tf32=True, device='cpu'): assert switches() != before\n"
        "    assert switches() == before, mode\n"
        "import cellpose.vit; after = switches()\n"
        "with mode_in_force('strict', device='cpu') as inside: pass\n"
        "print([name for name in before if before[name] != after[name]])\n"
        "print(after['cuda_matmul_allow_tf32'], inside['cuda_matmul_allow_tf32'])\n"
        "print(after == switches())"
    )
    told = subprocess.check_output([sys.executable, "-c", script], text=True)
    expected = [name for name in MOVED_BY_CELLPOSE if NEWER or not name.startswith("fp32")]
    assert told.splitlines() == [str(expected), "True False", "True"]


# -- everything is given back, in any order ------------------------------------------------

_flags = st.booleans()
_changes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["fill", "benchmark", "cudnn", "mkldnn", "cudnn_tf32"]), _flags),
        st.tuples(st.just("debug"), st.sampled_from(["default", "warn", "error"])),
        st.tuples(st.just("matmul"), st.sampled_from(["highest", "high", "medium"])),
        st.tuples(st.sampled_from(sorted(PRECISIONS)), st.sampled_from(["none", "ieee", "tf32"])),
    ),
    max_size=6,
)


def change(name, value):
    backends = torch.backends
    if name == "debug":
        torch.set_deterministic_debug_mode(value)
    elif name == "fill":
        memory.fill_uninitialized_memory = value
    elif name == "benchmark":
        backends.cudnn.benchmark = value
    elif name == "matmul":
        torch.set_float32_matmul_precision(value)
    elif name == "cudnn_tf32":
        backends.cudnn.allow_tf32 = value
    elif name not in PRECISIONS:
        getattr(backends, name).deterministic = value
    elif NEWER:
        torch._C._set_fp32_precision_setter(*PRECISIONS[name], value)


def readings():
    """What PyTorch says, also once each newer setting it might inherit from is another."""
    found = [switches()]
    if NEWER:
        get, put_ = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
        generic = get("generic", "all")
        for parent in PARENTS:
            place = PRECISIONS[parent]
            # only the generic one reads as what it was set to; so ask the others under "none"
            put_("generic", "all", "none")
            held = generic if parent == "generic" else get(*place)
            for value in ("none", "ieee", "tf32"):
                put_(*place, value)
                found.append(switches())
            put_(*place, held)
            put_("generic", "all", generic)
    return found


def go_through(blocks):
    if blocks:
        (mode, tf32, changes), *inner = blocks
        before = readings()
        with mode_in_force(mode, tf32=tf32) as in_force:
            go_through(inner)
            assert switches() == in_force
            for name, value in changes:
                change(name, value)
        assert readings() == before


@settings(deadline=None, max_examples=30)  # other processes may be busy
@given(
    start=_changes, blocks=st.lists(st.tuples(st.sampled_from(MODES), _flags, _changes), max_size=3)
)
@example(start=[("cuda_matmul", "tf32")], blocks=[("fast", False, [])])
@example(
    start=[("generic", "bf16"), ("cudnn_tf32", False), ("cudnn_conv", "tf32")],
    blocks=[("warn", True, [("matmul", "medium")]), ("strict", False, [])],
)
def test_any_nested_modes_from_any_start_end_as_they_began(start, blocks):
    """Also where blocks change switches, and where PyTorch refuses to read some."""
    with as_found():
        # PyTorch 2.15 tells "tf32" from "tf32 unless a parent says otherwise", the state in which
        # a process starts; no call leads back there, so that is the one start left out.
        change("cudnn_tf32", True)
        for name, value in start:
            change(name, value)
        go_through(blocks)


# -- cuBLAS --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", ":4096:2"])
def test_refuses_a_process_in_which_cublas_may_vary(monkeypatch, value):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for workspace in (":4096:8", ":16:8"):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", workspace)
        with mode_in_force("strict", device="cuda:1"):
            pass
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
    before = switches()
    for mode, device in (("warn", None), ("strict", "cuda:1")):
        message = rf"'{mode}' needs CUBLAS_WORKSPACE_CONFIG to be .*, but it is {value!r}; .* befo"
        with pytest.raises(BadInput, match=message):
            mode_in_force(mode, device=device).__enter__()
    assert switches() == before
    for mode, device in (("fast", None), ("strict", "cpu"), ("warn", "mps")):
        with mode_in_force(mode, device=device):
            pass


# -- one operation left loose --------------------------------------------------------------


class Switches(TorchDispatchMode):
    """Which switches each operation runs under; entered before, so it comes after."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        deterministic = torch.are_deterministic_algorithms_enabled()
        self.seen[str(func)] = deterministic, torch.backends.cudnn.deterministic
        return func(*args, **(kwargs or {}))


def test_only_the_calls_of_the_operation_are_loose():
    """In the backward pass, too; with its substitute left out of mode strict."""
    with mode_in_force("strict", loose=["index_put"]) as in_force, Switches() as log:
        assert in_force["substitutes"] == [NAMES[1]]
        with left_loose("aten::_index_put_impl_") as loose:
            x = torch.ones(3, requires_grad=True)
            x[torch.tensor([0, 0])].cos().sum().backward()
        assert switches() == in_force
    assert loose.n_calls == 1
    assert log.seen["aten.index_put.default"] == (False, False)
    assert log.seen["aten.cos.default"] == log.seen["aten.index.Tensor"] == (True, True)


def test_an_operation_without_deterministic_form_runs_loose_in_strict():
    with mode_in_force("strict"):
        before = switches()
        with left_loose("put"):
            assert put()[0] == 1
        with pytest.raises(RuntimeError, match="must match"), left_loose("add"):
            torch.ones(2) + torch.ones(3)
        assert switches() == before


def test_it_is_no_line_of_the_training():
    """An observer around it names the training's line, not this mode's."""
    seen = []

    class Log(Observer):
        def observe(self, call):
            seen.append(call.place)
            return call.run()

    with Log(), left_loose("cos"):
        torch.ones(1).cos()
    assert {place.source.split(":")[0] for place in seen} == {"test_modes.py"}
