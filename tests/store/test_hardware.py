"""The GPUs that a process sees are those that CUDA would take."""

import pynvml
import pytest

from cellrepro.store import hardware
from samebits.errors import BadInput

TWO_KINDS = [{"name": "A100", "uuid": "GPU-a"}, {"name": "T4", "uuid": "GPU-b"}]
ONE_KIND = [{"name": "T4", "uuid": "GPU-a"}, {"name": "T4", "uuid": "GPU-b"}]


@pytest.mark.parametrize(
    ("present", "variables", "expected"),
    [
        (ONE_KIND, {}, ["GPU-a", "GPU-b"]),
        (ONE_KIND, {"CUDA_VISIBLE_DEVICES": "0, 1"}, ["GPU-a", "GPU-b"]),
        (ONE_KIND, {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, ["GPU-a"]),
        (ONE_KIND, {"CUDA_VISIBLE_DEVICES": ""}, []),
        (TWO_KINDS, {}, ["GPU-a", "GPU-b"]),
        (TWO_KINDS, {"CUDA_VISIBLE_DEVICES": "GPU-b"}, ["GPU-b"]),
        (
            TWO_KINDS,
            {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            ["GPU-b"],
        ),
        (TWO_KINDS, {"CUDA_VISIBLE_DEVICES": "1"}, "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    ],
)
def test_the_gpus_are_those_that_cuda_would_take(present, variables, expected, monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: present)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if isinstance(expected, list):
        assert hardware.visible_gpus() == expected
    else:
        with pytest.raises(BadInput, match=expected):
            hardware.visible_gpus()


def test_a_gpu_whose_memory_is_not_known_is_a_gpu(monkeypatch):
    """GB10 shares the memory of the processor, and the driver says of it: not supported."""

    def memory(gpu):
        if gpu == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return pynvml.c_nvmlMemory_t(total=24 * 2**30)

    answers = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda gpu: ["NVIDIA A10", "NVIDIA GB10"][gpu],
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlSystemGetDriverVersion": lambda: "580.95",
        "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    found = {gpu["name"]: gpu["memory"] for gpu in hardware.gpus()}
    assert found == {"NVIDIA A10": 24 * 2**30, "NVIDIA GB10": None}
