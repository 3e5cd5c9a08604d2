"""The switches of a mode: set, read back, in force, given back; one operation left loose."""

import itertools
import json
from contextlib import contextmanager
from typing import get_args

import pytest
import torch
import torch.utils.deterministic as memory
from torch.utils._python_dispatch import TorchDispatchMode

from samebits import substitutes
from samebits.errors import BadInput
from samebits.loose_operation import LooseOperation
from samebits.mode_names import MODES
from samebits.modes import check_switches, mode_in_force, switches
from samebits.torch_switches import Switch
from samebits.trace.observer import Observer

pytestmark = pytest.mark.usefixtures("one_thread")

NEWER = hasattr(torch._C, "_set_fp32_precision_setter")
NAMES = [item.name for item in substitutes.SUBSTITUTES]


@pytest.fixture(autouse=True)
def _started_for_every_mode(monkeypatch):
    """Also where there is a GPU."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def put():
    """An operation without a deterministic implementation, on every device (torch 2.15)."""
    return torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


@contextmanager
def as_found():
    """Whatever the block sets is put back by other means than a mode's."""
    backends, of_device = torch.backends, ("all", "matmul", "conv", "rnn")
    places = [("generic", "all"), *itertools.product(("cuda", "mkldnn"), of_device)] * NEWER
    precisions = [torch._C._get_fp32_precision_getter(*place) for place in places]
    debug, fill = torch.get_deterministic_debug_mode(), memory.fill_uninitialized_memory
    onednn, benchmark = backends.mkldnn.deterministic, backends.cudnn.benchmark
    tf32, matmul = backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(debug)
        memory.fill_uninitialized_memory, backends.mkldnn.deterministic = fill, onednn
        backends.cudnn.benchmark, backends.cudnn.allow_tf32 = benchmark, tf32
        torch.set_float32_matmul_precision(matmul)
        for place, value in zip(places, precisions, strict=True):
            torch._C._set_fp32_precision_setter(*place, value)


def test_fast_fixes_nothing_warn_warns_strict_raises():
    with mode_in_force("fast"):
        put()
    with mode_in_force("warn"), pytest.warns(UserWarning, match="put_"):
        put()
    with mode_in_force("strict"), pytest.raises(RuntimeError, match="does not have a determinis"):
        put()


@pytest.mark.parametrize("mode", ["fast", "warn", "strict"])
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


def test_mode_off_leaves_everything_as_it_was():
    with as_found():
        torch.backends.cudnn.benchmark = torch.backends.cuda.matmul.allow_tf32 = True
        before = switches()
        with mode_in_force("off") as found:
            assert found == before


@pytest.mark.parametrize("mode", ["off", "fast"])
@pytest.mark.parametrize("name", get_args(Switch))
def test_a_profile_sets_one_switch(mode, name):
    """Read back; others stay as the mode has them, and all are put back."""
    with as_found():
        before = switches()
        with mode_in_force(mode) as found:
            usual = dict(found)
        wanted = not usual[name]
        with mode_in_force(mode, chosen={name: wanted}) as found:
            assert found[name] is wanted
            assert [one for one in get_args(Switch) if found[one] != usual[one]] == [name]
        assert switches() == before


@pytest.mark.parametrize("mode", ["warn", "strict"])
def test_a_switch_that_would_weaken_a_mode_is_refused(mode):
    for name in ("deterministic_algorithms", "onednn_deterministic"):
        with pytest.raises(BadInput, match=f"{name} False, with which mode '{mode}'"):
            check_switches(mode, {name: False})
    with pytest.raises(BadInput, match="cudnn_benchmark True"):
        check_switches(mode, {"cudnn_benchmark": True})
    check_switches(mode, {"fill_uninitialized_memory": True, "cudnn_deterministic": True})
    with mode_in_force(mode, chosen={"fill_uninitialized_memory": True}) as found:
        assert found["fill_uninitialized_memory"]


def test_a_switch_that_does_not_take_hold_is_an_error(monkeypatch):
    stuck = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(type(torch.backends.cudnn), "deterministic", stuck)
    with pytest.raises(RuntimeError, match=r"'strict' did not take hold.*ministic': False"):
        mode_in_force("strict").__enter__()
    with pytest.raises(BadInput, match=r"unknown mode 'Strict'; expected one of off, fast, warn"):
        mode_in_force("Strict").__enter__()


@pytest.mark.parametrize(
    ("allow_tf32", "newer"),
    [
        (False, [("generic", "all", "ieee"), ("cuda", "conv", "tf32")]),
        (False, [("cuda", "matmul", "tf32")]),  # now the two interfaces disagree
        (True, [("generic", "all", "bf16")]),  # as Cellpose, and others inherit
    ],
)
def test_nested_modes_end_as_they_began(allow_tf32, newer):
    """Also where a block changes switches or raises."""
    with as_found():
        torch.backends.cuda.matmul.allow_tf32 = allow_tf32
        for place in newer * NEWER:
            torch._C._set_fp32_precision_setter(*place)
        before = switches()
        with mode_in_force("strict") as outer:
            for mode, tf32 in itertools.product(MODES, (False, True)):
                with pytest.raises(ZeroDivisionError), mode_in_force(mode, tf32=tf32):  # noqa: PT012
                    torch.set_float32_matmul_precision("high")
                    torch.backends.cudnn.benchmark = memory.fill_uninitialized_memory = True
                    torch.use_deterministic_algorithms(False)
                    1 / 0  # noqa: B018
                assert switches() == outer
        assert switches() == before


def test_refuses_a_process_in_which_cublas_may_vary(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with mode_in_force("strict", device="cuda:1"):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2")
    for mode, device in (("warn", None), ("strict", "cuda:1")):
        with pytest.raises(BadInput, match=rf"'{mode}' needs CUBLAS_WORKSPACE_.* is ':4096:2'"):
            mode_in_force(mode, device=device).__enter__()
    with mode_in_force("fast"), mode_in_force("strict", device="cpu"):
        pass


def test_only_the_calls_of_the_operation_are_loose():
    """In the backward pass, too; with its substitute left out of mode strict."""
    seen = {}

    class Switches(TorchDispatchMode):
        """Which switches each operation runs under; entered before, so it comes after."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            deterministic = torch.are_deterministic_algorithms_enabled()
            seen[str(func)] = deterministic, torch.backends.cudnn.deterministic
            return func(*args, **(kwargs or {}))

    with mode_in_force("strict", loose=["index_put"]) as in_force, Switches():
        assert in_force["substitutes"] == [NAMES[1]]
        with LooseOperation("aten::_index_put_impl_") as loose:
            x = torch.ones(3, requires_grad=True)
            x[torch.tensor([0, 0])].cos().sum().backward()
        assert switches() == in_force
    assert loose.n_calls == 1
    assert seen["aten.index_put.default"] == (False, False)
    assert seen["aten.cos.default"] == seen["aten.index.Tensor"] == (True, True)


def test_an_operation_without_deterministic_form_runs_loose_in_strict():
    seen = []

    class Log(Observer):
        def observe(self, call):
            seen.append(call.site)
            return call.run()

    with mode_in_force("strict"):
        before = switches()
        with Log(), LooseOperation("put"):
            assert put()[0] == 1
        assert switches() == before
    # an observer around it names the training's line, not this mode's
    assert {place.source.split(":")[0] for place in seen} == {"test_modes.py"}
