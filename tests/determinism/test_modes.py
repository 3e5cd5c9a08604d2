"""The switches of a mode: set, read back, in force, given back."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cellrepro.determinism import modes, substitutes
from cellrepro.determinism.modes import (
    MIXED,
    MODES,
    MOVED_BY_CELLPOSE,
    WORKSPACES,
    check_mode,
    environment,
    mode_in_force,
    switches,
)
from cellrepro.errors import BadInput, NotPossibleHere


def nondeterministic():
    """An operation without a deterministic implementation, on every device (torch 2.15)."""
    import torch

    return torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


@pytest.fixture(autouse=True)
def _torch_is_there(monkeypatch):
    """And a process that was started for every mode, also where there is a GPU."""
    import torch  # noqa: F401

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextmanager
def as_found():
    """Whatever the block sets is put back by other means than a mode's."""
    import torch
    import torch.utils.deterministic as memory

    backends = torch.backends
    settings = [getattr(torch._C, name)(*place) for name, place in _readers()]
    found = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        memory.fill_uninitialized_memory,
        backends.cudnn.deterministic,
        backends.cudnn.benchmark,
        backends.mkldnn.deterministic,
        torch.get_float32_matmul_precision(),
        backends.cudnn.allow_tf32,
    )
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(found[0], warn_only=found[1])
        memory.fill_uninitialized_memory = found[2]
        backends.cudnn.deterministic, backends.cudnn.benchmark = found[3:5]
        backends.mkldnn.deterministic = found[5]
        torch.set_float32_matmul_precision(found[6])
        backends.cudnn.allow_tf32 = found[7]
        for (_, place), value in zip(_readers(), settings, strict=True):
            torch._C._set_fp32_precision_setter(*place, value)


PLACES = {
    "generic": ("generic", "all"),
    "cuda": ("cuda", "all"),
    "onednn": ("mkldnn", "all"),
    "cuda_matmul": ("cuda", "matmul"),
    "cudnn_conv": ("cuda", "conv"),
    "cudnn_rnn": ("cuda", "rnn"),
    "onednn_matmul": ("mkldnn", "matmul"),
    "onednn_conv": ("mkldnn", "conv"),
    "onednn_rnn": ("mkldnn", "rnn"),
}


def newer_interface():
    import torch

    return hasattr(torch._C, "_set_fp32_precision_setter")


def _readers():
    places = PLACES.values() if newer_interface() else ()
    return [("_get_fp32_precision_getter", place) for place in places]


def test_fast_fixes_nothing():
    with mode_in_force("fast") as in_force:
        nondeterministic()
    assert not in_force["deterministic_algorithms"]
    assert not in_force["cudnn_deterministic"]


def test_warn_warns():
    with mode_in_force("warn") as in_force, pytest.warns(UserWarning, match="put_"):
        nondeterministic()
    assert in_force["deterministic_algorithms"]
    assert in_force["deterministic_warn_only"]


def test_strict_raises():
    with (
        mode_in_force("strict") as in_force,
        pytest.raises(RuntimeError, match="does not have a deterministic implementation"),
    ):
        nondeterministic()
    assert in_force["deterministic_algorithms"]
    assert not in_force["deterministic_warn_only"]
    assert in_force["cudnn_deterministic"]
    assert not in_force["cudnn_benchmark"]
    assert not in_force["fill_uninitialized_memory"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tf32", [False, True])
def test_reads_back_what_is_in_force(mode, tf32):
    with mode_in_force(mode, tf32=tf32) as in_force:
        assert in_force == switches()
        assert in_force["cuda_matmul_allow_tf32"] is in_force["cudnn_allow_tf32"] is tf32


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tf32", [False, True])
def test_precision_is_the_profiles_in_every_mode(mode, tf32):
    """One value in PyTorch: TF32 for CUDA is what the precision "high" means."""
    import torch

    with as_found():
        torch.set_float32_matmul_precision("medium")  # bfloat16 for oneDNN's products
        with mode_in_force(mode, tf32=tf32) as in_force:
            assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
            assert in_force["float32_matmul_precision"] == ("high" if tf32 else "highest")
            if newer_interface():
                assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
                assert in_force["fp32_precision_cuda_matmul"] == ("tf32" if tf32 else "ieee")
                assert in_force["fp32_precision_onednn_matmul"] == "ieee"
        assert torch.get_float32_matmul_precision() == "medium"


def test_fast_is_pytorchs_default_whatever_was_before():
    import torch

    with as_found():
        torch.backends.cudnn.benchmark = True
        torch.backends.mkldnn.deterministic = True
        torch.use_deterministic_algorithms(True, warn_only=True)
        with mode_in_force("fast") as in_force:
            nondeterministic()
            assert not in_force["cudnn_benchmark"]
            assert not in_force["onednn_deterministic"]


def test_what_is_recorded_can_be_stored():
    with mode_in_force("strict") as in_force:
        assert json.loads(json.dumps(in_force)) == in_force
    assert {
        "onednn",
        "onednn_deterministic",
        "float32_matmul_precision",
        "cuda_bfloat16_reduced_precision_sum",
        "CUBLAS_WORKSPACE_CONFIG",
        "substitutes",
    } <= set(in_force)


def test_modes_nest():
    with mode_in_force("strict") as strict:
        with mode_in_force("warn") as warn:
            with mode_in_force("fast"):
                nondeterministic()
            assert switches() == warn
        assert switches() == strict


def test_an_unknown_mode_changes_nothing():
    before = switches()
    with (
        pytest.raises(BadInput, match=r"unknown mode 'Strict'; expected one of fast, warn, strict"),
        mode_in_force("Strict"),
    ):
        pytest.fail("entered")
    assert switches() == before


@pytest.mark.parametrize("mode", ["", "STRICT", None, True], ids=str)
def test_refuses_other_modes(mode):
    with pytest.raises(BadInput, match="unknown mode"):
        check_mode(mode)


def test_a_switch_that_does_not_take_hold_is_an_error(monkeypatch):
    import torch

    before = switches()
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *_, **__: None)
    with (
        pytest.raises(RuntimeError, match=r"'strict' did not take hold.*deterministic_algorithms"),
        mode_in_force("strict"),
    ):
        pytest.fail("entered")
    assert switches() == before


@pytest.mark.parametrize("mode", ["warn", "strict"])
def test_cublas_is_told_before_the_process_starts(mode):
    assert environment(mode) == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def test_the_environment_of_an_unknown_mode():
    with pytest.raises(BadInput, match="unknown mode 'none'"):
        environment("none")


def test_cellpose_allows_tf32_and_a_mode_undoes_it():
    """Cellpose 4.2.1.1 sets the switch on import; a fact the order in the worker rests on."""
    script = (
        "from cellrepro.determinism.modes import mode_in_force, switches\n"
        "before = switches()\n"
        "import cellpose.vit; after = switches()\n"
        "with mode_in_force('strict', device='cpu') as inside: pass\n"
        "print([name for name in before if before[name] != after[name]])\n"
        "print(after['cuda_matmul_allow_tf32'], inside['cuda_matmul_allow_tf32'])\n"
        "print(after == switches())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    moved, undone, given_back = done.stdout.splitlines()
    assert moved == str(
        [name for name in MOVED_BY_CELLPOSE if not name.startswith("fp32")]
        + (["fp32_precision_cuda_matmul"] if newer_interface() else [])
    )
    assert (undone, given_back) == ("True False", "True")


def test_the_worker_notices_a_moved_switch():
    """What runs inside a mode may not leave it; the worker compares before and after."""
    import torch

    from cellrepro.lab.worker import _moved_since

    with mode_in_force("strict") as in_force:
        assert _moved_since(in_force) == {}
        torch.backends.cudnn.benchmark = True
        assert _moved_since(in_force) == {"cudnn_benchmark": True}


# -- everything is given back, in any order ------------------------------------------------

_flags = st.booleans()
_changes = st.one_of(
    st.tuples(st.just("deterministic"), st.tuples(_flags, _flags)),
    st.tuples(st.just("fill"), _flags),
    st.tuples(st.just("cudnn_deterministic"), _flags),
    st.tuples(st.just("benchmark"), _flags),
    st.tuples(st.just("onednn_deterministic"), _flags),
    st.tuples(st.just("matmul"), st.sampled_from(["highest", "high", "medium"])),
    st.tuples(st.just("cublas_tf32"), _flags),
    st.tuples(st.just("cudnn_tf32"), _flags),
    st.tuples(st.sampled_from(sorted(PLACES)), st.sampled_from(["none", "ieee", "tf32"])),
    st.tuples(
        st.sampled_from([name for name in sorted(PLACES) if "cu" not in name]), st.just("bf16")
    ),
)
_blocks = st.recursive(
    st.just([]),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(MODES), _flags, _flags, st.lists(_changes, max_size=3), inner),
        max_size=3,
    ),
    max_leaves=8,
)


def change(name, value):
    import torch
    import torch.utils.deterministic as memory

    backends = torch.backends
    if name == "deterministic":
        torch.use_deterministic_algorithms(value[0], warn_only=value[1])
    elif name == "fill":
        memory.fill_uninitialized_memory = value
    elif name == "cudnn_deterministic":
        backends.cudnn.deterministic = value
    elif name == "benchmark":
        backends.cudnn.benchmark = value
    elif name == "onednn_deterministic":
        backends.mkldnn.deterministic = value
    elif name == "matmul":
        torch.set_float32_matmul_precision(value)
    elif name == "cublas_tf32":
        backends.cuda.matmul.allow_tf32 = value
    elif name == "cudnn_tf32":
        backends.cudnn.allow_tf32 = value
    elif newer_interface():
        torch._C._set_fp32_precision_setter(*PLACES[name], value)


def readings():
    """What PyTorch says, also once each newer setting it might inherit from is another."""
    import torch

    found = [switches()]
    if newer_interface():
        for parent in ("generic", "cuda", "onednn"):
            place = PLACES[parent]
            held = torch._C._get_fp32_precision_getter(*place)
            # only the generic one reads as what it was set to; so ask the others under "none"
            generic = torch._C._get_fp32_precision_getter("generic", "all")
            torch._C._set_fp32_precision_setter("generic", "all", "none")
            held = generic if parent == "generic" else torch._C._get_fp32_precision_getter(*place)
            for value in ("none", "ieee", "tf32"):
                torch._C._set_fp32_precision_setter(*place, value)
                found.append(switches())
            torch._C._set_fp32_precision_setter(*place, held)
            torch._C._set_fp32_precision_setter("generic", "all", generic)
    return found


class Planned(Exception):
    pass


def go_through(blocks):
    for mode, tf32, raises, changes, inner in blocks:
        before = readings()
        try:
            with mode_in_force(mode, tf32=tf32) as in_force:
                assert in_force["cuda_matmul_allow_tf32"] is in_force["cudnn_allow_tf32"] is tf32
                go_through(inner)
                assert switches() == in_force
                for name, value in changes:
                    change(name, value)
                if raises:
                    raise Planned
        except Planned:
            assert raises
        assert readings() == before


@settings(deadline=None)  # other processes may be busy
@given(start=st.lists(_changes, max_size=6), blocks=_blocks)
@example(start=[("matmul", "medium")], blocks=[("strict", False, False, [], [])])
@example(start=[("cuda_matmul", "tf32")], blocks=[("fast", False, True, [], [])])
@example(
    start=[("generic", "bf16"), ("cudnn_tf32", False), ("cudnn_conv", "tf32")],
    blocks=[("warn", True, True, [("matmul", "medium")], [("strict", False, True, [], [])])],
)
def test_any_modes_from_any_start_end_as_they_began(start, blocks):
    """Also where blocks raise or change switches, and where PyTorch refuses to read some."""
    with as_found():
        # PyTorch 2.15 tells "tf32" from "tf32 unless a parent says otherwise", the state in which
        # a process starts; no call leads back there, so that is the one start left out.
        change("cudnn_tf32", True)
        for name, value in start:
            change(name, value)
        before = readings()
        go_through(blocks)
        assert readings() == before


def test_a_new_process_reads_as_it_started():
    script = (
        "import torch\n"
        "from cellrepro.determinism.modes import MODES, mode_in_force, switches\n"
        "before = switches()\n"
        "for mode in MODES:\n"
        "    with mode_in_force(mode, tf32=True, device='cpu'): assert switches() != before\n"
        "    assert switches() == before, mode\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_a_pytorch_without_the_newer_interface(monkeypatch, precision):
    """As before torch 2.9."""
    import torch

    with as_found():
        torch.set_float32_matmul_precision(precision)
        monkeypatch.setattr(modes, "_precisions", lambda: None)
        with mode_in_force("strict", tf32=True) as in_force:
            assert in_force["cuda_matmul_allow_tf32"] is True
            assert in_force["fp32_precision_cuda_matmul"] is None
        assert torch.get_float32_matmul_precision() == precision


@pytest.mark.skipif("not newer_interface()")
def test_switches_that_pytorch_refuses_to_read():
    """It raises once both its interfaces were used; a run that gets there is told."""
    import torch

    from cellrepro.lab.worker import _moved_since

    with as_found(), mode_in_force("strict") as in_force:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        with pytest.raises(RuntimeError):
            _ = torch.backends.cuda.matmul.allow_tf32
        assert switches()["cuda_matmul_allow_tf32"] == MIXED
        assert _moved_since(in_force)["cuda_matmul_allow_tf32"] == MIXED


@pytest.mark.parametrize(
    ("owner", "function", "switch"),
    [
        ("torch.backends.cudnn", "deterministic", "cudnn_deterministic"),
        ("torch.backends.mkldnn", "deterministic", "onednn_deterministic"),
        ("torch", "set_float32_matmul_precision", "float32_matmul_precision"),
    ],
)
def test_any_switch_that_does_not_take_hold_is_an_error(monkeypatch, owner, function, switch):
    import importlib

    import torch

    with as_found():
        torch.set_float32_matmul_precision("medium")
        if function == "deterministic":
            module = importlib.import_module(owner)
            kind = type(module)
            stuck = property(lambda self: False, lambda self, value: None)
            monkeypatch.setattr(kind, "deterministic", stuck)
        else:
            monkeypatch.setattr(torch, function, lambda precision: None)
        with (
            pytest.raises(RuntimeError, match=rf"'strict' did not take hold.*{switch}"),
            mode_in_force("strict"),
        ):
            pytest.fail("entered")
        monkeypatch.undo()


def test_a_switch_that_cannot_be_set_leaves_none_set(monkeypatch):
    """The refusal comes when half of them are in force already."""
    import torch

    original, calls = torch.set_float32_matmul_precision, []

    def refuse_once(precision):
        calls.append(precision)
        if len(calls) == 1:
            raise OSError("no")
        original(precision)

    before = switches()
    monkeypatch.setattr(torch, "set_float32_matmul_precision", refuse_once)
    with pytest.raises(OSError, match="no"), mode_in_force("strict"):
        pytest.fail("entered")
    assert len(calls) == 2
    assert switches() == before


# -- substitutes ---------------------------------------------------------------------------

NAMES = [item.name for item in substitutes.SUBSTITUTES]


@pytest.mark.parametrize("mode", MODES)
def test_only_strict_has_substitutes(mode):
    assert switches()["substitutes"] == []
    with mode_in_force(mode) as in_force:
        assert in_force["substitutes"] == (NAMES if mode == "strict" else [])
        assert list(substitutes.in_force()) == in_force["substitutes"]
    assert switches()["substitutes"] == []


def test_an_operation_left_loose():
    loose = substitutes.SUBSTITUTES[0]
    with mode_in_force("strict", loose=loose.replaces) as in_force:
        assert in_force["substitutes"] == [name for name in NAMES if name != loose.name]
    with mode_in_force("fast", loose=loose.replaces) as in_force:
        assert in_force["substitutes"] == []


def test_an_operation_that_has_no_substitute():
    before = switches()
    with (
        pytest.raises(BadInput, match=r"put_with_care.*expected"),
        mode_in_force("strict", loose={"put_with_care"}),
    ):
        pytest.fail("entered")
    assert switches() == before


def test_a_substitute_that_does_not_fit_changes_nothing(monkeypatch):
    @contextmanager
    def refuse(*, without):
        raise NotPossibleHere("not the code it was tested against")
        yield

    before = switches()
    monkeypatch.setattr(substitutes, "applied", refuse)
    with pytest.raises(NotPossibleHere, match="tested against"), mode_in_force("strict"):
        pytest.fail("entered")
    assert switches() == before


def test_a_substitute_that_is_not_in_force_is_an_error(monkeypatch):
    monkeypatch.setattr(substitutes, "in_force", tuple)
    with (
        pytest.raises(RuntimeError, match=r"did not take hold.*'substitutes': \[\]"),
        mode_in_force("strict"),
    ):
        pytest.fail("entered")
    monkeypatch.undo()
    assert switches()["substitutes"] == []


def test_a_mode_itself_imports_no_network():
    """Whatever must be imported to be replaced is the substitutes' business."""
    script = (
        "import sys, contextlib\n"
        "from cellrepro.determinism import modes as determinism, substitutes\n"
        "for mode in ('fast', 'warn'):\n"
        "    with determinism.mode_in_force(mode, device='cpu'): pass\n"
        "substitutes.applied = lambda *, without: contextlib.nullcontext(())\n"
        "with determinism.mode_in_force('strict', device='cpu'): pass\n"
        "print(sorted({'segment_anything', 'cellpose'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# -- cuBLAS --------------------------------------------------------------------------------


@pytest.fixture
def a_gpu(monkeypatch):
    """A machine with CUDA, as far as a mode can see."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize("value", [None, "", ":4096:2", ":0:0"])
@pytest.mark.parametrize("mode", ["warn", "strict"])
def test_refuses_a_process_in_which_cublas_may_vary(a_gpu, monkeypatch, mode, value):
    if value is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    else:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
    before = switches()
    with (
        pytest.raises(
            BadInput,
            match=rf"'{mode}' needs CUBLAS_WORKSPACE_CONFIG to be :4096:8 or :16:8, but it is "
            rf"{value!r}; it is read once, .* before the process starts",
        ),
        mode_in_force(mode),
    ):
        pytest.fail("entered")
    assert switches() == before


@pytest.mark.parametrize("value", WORKSPACES)
def test_either_workspace_will_do(a_gpu, monkeypatch, value):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
    with mode_in_force("strict") as in_force:
        assert in_force["CUBLAS_WORKSPACE_CONFIG"] == value


@pytest.mark.parametrize(
    ("mode", "device"), [("fast", None), ("fast", "cuda"), ("strict", "cpu"), ("warn", "mps")]
)
def test_asks_nothing_of_cublas_where_it_is_not_used(a_gpu, monkeypatch, mode, device):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with mode_in_force(mode, device=device):
        pass


def test_asks_where_the_device_is_named(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    with pytest.raises(BadInput, match="is None"), mode_in_force("strict", device="cuda:1"):
        pytest.fail("entered")
