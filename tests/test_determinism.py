"""The switches of a mode: set, read back, in force, given back."""

import subprocess
import sys

import pytest

from cellrepro.control.determinism import MODES, check_mode, environment, mode_in_force, switches
from cellrepro.errors import BadInput


def nondeterministic():
    """An operation without a deterministic implementation, on every device (torch 2.15)."""
    import torch

    return torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


@pytest.fixture(autouse=True)
def _torch_is_there():
    import torch  # noqa: F401


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
def test_gives_every_switch_back(mode):
    import torch

    before = switches()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    unusual = switches()
    try:
        with mode_in_force(mode):
            pass
        assert switches() == unusual
        with pytest.raises(KeyError), mode_in_force(mode):
            raise KeyError
        assert switches() == unusual
    finally:
        torch.backends.cudnn.benchmark = before["cudnn_benchmark"]
        torch.backends.cuda.matmul.allow_tf32 = before["cuda_matmul_allow_tf32"]
    assert switches() == before


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
        "import torch; before = torch.backends.cuda.matmul.allow_tf32\n"
        "import cellpose.vit; after = torch.backends.cuda.matmul.allow_tf32\n"
        "from cellrepro.control.determinism import mode_in_force\n"
        "with mode_in_force('strict') as inside: pass\n"
        "print(before, after, inside['cuda_matmul_allow_tf32'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True", "False"]


def test_the_worker_would_notice_a_moved_switch():
    """What runs inside a mode may not leave it; the worker compares before and after."""
    import torch

    from cellrepro.worker import _check_switches

    with mode_in_force("strict") as in_force:
        _check_switches(in_force)
        torch.backends.cudnn.benchmark = True
        with pytest.raises(RuntimeError, match=r"cudnn_benchmark.*False, True"):
            _check_switches(in_force)
