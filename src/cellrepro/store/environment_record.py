"""The environment in a manifest: the machine, and what numbers depend on beside the spec."""

from __future__ import annotations

from typing import Any

from cellrepro.store.record_values import Count, NumericClass, StoredRecord
from samebits.digests import value_digest

ENVIRONMENT_FIELDS = (
    "host",
    "versions",
    "device",
    "threads",
    "cpu_capability",
    "numeric_libraries",
    "numeric_class",
    "variables",
    "switches",
)
"""Fields of a `Manifest` that say what a repeat's numbers depend on beside its spec.

``cuda`` is none of them: it names what is installed, also where the processor computed."""


class MachineRecord(StoredRecord):
    """The machine of a repeat: what can change bits, and what identifies it."""

    label: str
    """Name for people: CELLREPRO_MACHINE, else made from the device's name."""
    identity: str
    """CELLREPRO_MACHINE, else a salted digest of the GPU's UUID or the machine-id."""
    device: str
    """Name of the processor or the GPU."""
    driver: str | None = None
    """Version of NVIDIA's driver; null without such a GPU, like the next two."""
    cuda: str | None = None
    """Version of PyTorch's CUDA runtime."""
    cudnn: str | None = None
    """Version of cuDNN."""
    numeric_class: str
    """Name of the numeric class, see `cellrepro.store.numeric_class`."""
    versions: dict[str, str]
    """Versions of the numeric libraries, without builds such as ``+cpu``."""

    @property
    def name(self) -> str:
        """The label and eight hex digits of a digest of all else; the name of its folders."""
        return f"{self.label}-{value_digest(self.model_dump(exclude={'label'}))[:8]}"


class EnvironmentRecord(StoredRecord):
    """All that a repeat's numbers depend on beside its spec."""

    machine: MachineRecord
    """Machine on which it was computed."""
    host: dict[str, Any]
    """As `cellrepro.store.hardware.host` gives it."""
    versions: dict[str, str]
    """Versions of Python and of the packages that can change a result, by name."""
    distributions: dict[str, str]
    """Version of every installed distribution, by name."""
    cuda: dict[str, str | None]
    """Versions of driver, runtime and cuDNN as installed, also where the processor computed."""
    device: str
    """The GPU's name, or ``cpu``."""
    threads: Count
    """Threads of PyTorch on the processor."""
    cpu_capability: str
    """Instructions that PyTorch's own kernels use: ``AVX2``, ``AVX512``, ``DEFAULT``."""
    numeric_libraries: list[dict[str, Any]]
    """As `cellrepro.store.installed_versions.numeric_libraries` gives them."""
    numeric_class: NumericClass | None = None
    """Name and probes of the numeric class; null in old stores."""
    variables: dict[str, str]
    """Environment variables in force that change numbers."""
