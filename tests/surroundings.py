"""What no test may leave behind: variables, files, PyTorch's switches, states of generators."""

import os
import sys
from pathlib import Path

import pytest
import torch

from samebits import modes
from samebits.generator_digests import generator_digests
from samebits.generator_states import generators_kept

ROOT = Path(__file__).resolve().parents[1]

_OF_THE_TOOLS = {
    "PYTEST_CURRENT_TEST",
    "LD_LIBRARY_PATH",  # OpenCV 5.0's import prepends its own folder
    "TORCHINDUCTOR_CACHE_DIR",  # PyTorch 2.15 sets it when a deterministic mode is first asked for
}
_SOURCES = {".cff", ".ipynb", ".lock", ".md", ".py", ".toml", ".yaml"}  # a person's, not a test's
_WATCHED = [ROOT, ROOT / "tests", ROOT / "data", Path.home() / ".cellpose"]


def _surroundings():
    """What a test may not change: variables, folder, files, PyTorch's switches, generators."""
    found = {f"variable {n}": v for n, v in os.environ.items() if n not in _OF_THE_TOOLS}
    for folder in filter(Path.is_dir, _WATCHED):
        for item in folder.iterdir():
            if not item.name.startswith((".", "__")) and item.suffix not in _SOURCES:
                found[str(item)] = "there"
    found |= {f"{name}'s generator": state for name, state in generator_digests().items()}
    return found | {
        **modes.switches(),
        "the working folder": Path.cwd(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "hooks on every module": len(torch.nn.modules.module._global_forward_hooks),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
    }


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Fail a test that changes what the next one sees."""
    before, cellpose = _surroundings(), "cellpose.vit" in sys.modules
    with generators_kept():
        yield
        after = _surroundings()
    # Cellpose's import allows TF32 (4.2.1.1); that is no test's fault.
    tf32 = ("cuda_matmul_allow_tf32", "float32_matmul_precision", "fp32_precision_cuda_matmul")
    excused = () if cellpose else tf32
    # CUDA starts with its first use and does not end before the process does.
    excused += tuple(name for name in after if name.startswith("cuda:") and name not in before)
    left = [
        f"{name} is {after.get(name)!r}, was {before.get(name)!r}"
        for name in sorted(before | after)
        if before.get(name) != after.get(name) and name not in excused
    ]
    if left:
        pytest.fail("the test left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture
def one_thread():
    """PyTorch on one thread: no race, and no waiting for a busy neighbour's core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def generators_free():
    """For tests that are about moving the generators: theirs are put back."""
    with generators_kept():
        yield
