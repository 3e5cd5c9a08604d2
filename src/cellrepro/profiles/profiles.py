"""Profiles: the numeric environment of a process, as small YAML files a user can add to.

Libraries read these settings once, when a process starts; a profile therefore is applied to a
child process (`Profile.child_environment`) and checked inside it (`Profile.enter`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from cellrepro.errors import no_such_file
from cellrepro.field_defaults import added_later
from cellrepro.profiles.automatic_profile import AUTO, automatic_profile
from cellrepro.profiles.numeric_variables import (
    ACCELERATE_THREADS,
    MOST_THREADS,
    NUMERIC_VARIABLES,
    THREAD_VARIABLES,
)
from cellrepro.profiles.process_start import require_at_startup
from cellrepro.profiles.profile_names import PROFILE_FOLDER, profile_names
from cellrepro.wrong_fields import wrong_fields
from cellrepro.yaml_values import read_yaml
from samebits.errors import BadInput, NotPossibleHere
from samebits.libraries import has_library
from samebits.torch_switches import Switch

if TYPE_CHECKING:
    import torch


_ALWAYS = {"GOMP_SPINCOUNT": "1000"}
"""Variables of every profile. This one changes time and no numbers: waiting threads of GNU OpenMP
sleep sooner, so that two trainings on the same cores take twice as long instead of eight times
(measured: docs/building.md)."""

_FIRST_FIELDS = frozenset(
    ("name", "description", "device", "threads", "dtype", "tf32", "environment", "cpu_capability")
)
"""Fields of the first version, which are always written into a spec. A later one is written where
it differs from its default, so that the keys of earlier runs stay as they are."""


def cpu_capability() -> str:
    """The instruction set PyTorch computes with; ``DEFAULT``, the lowest, is ``NO AVX`` in 2.6.

    ``unknown`` where PyTorch is not installed.
    """
    if not has_library("torch"):
        return "unknown"
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return "DEFAULT" if capability == "NO AVX" else capability


def device_kind(device: str) -> str:
    """The kind of a device without its number: ``cpu``, ``cuda`` or ``mps``."""
    return device if device in ("cpu", "mps") else "cuda"


@dataclass(frozen=True)
class Processor:
    """Stands for ``torch.device("cpu")`` where PyTorch is not installed."""

    type: ClassVar[str] = "cpu"
    index: ClassVar[None] = None

    def __str__(self) -> str:
        return self.type


class Profile(BaseModel):
    """The numeric environment of one process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Name of the file, without its ending."""
    description: str = ""
    """One line for people."""
    device: str = Field(default="cpu", pattern=r"^(cpu|mps|cuda|cuda:\d+)$")
    """``cpu``, ``cuda`` (the first GPU), ``cuda:N`` or ``mps``."""
    threads: int | None = Field(default=None, ge=1, le=MOST_THREADS)
    """Threads of PyTorch on the processor; none for as many as PyTorch takes by itself."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision in which a network segments; training is always in float32."""
    tf32: bool = False
    """Whether an NVIDIA GPU may round products to TF32."""
    onednn: bool = True
    """Whether PyTorch uses oneDNN on the processor; without it its convolutions are its own."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables with which the process starts."""
    cpu_capability: str | None = None
    """The instruction set that PyTorch must report: ``DEFAULT``, ``AVX2``, ``AVX512``."""
    switches: dict[Switch, bool] = Field(default_factory=dict)
    """Switches of PyTorch that are not as the mode has them."""

    @field_validator("environment")
    @classmethod
    def _limits_known(cls, value: dict[str, str]) -> dict[str, str]:
        limit = value.get("ONEDNN_MAX_CPU_ISA", "DEFAULT")
        known = r"DEFAULT|SSE41|AVX|AVX2(_VNNI(_2)?)?|AVX512_CORE\w*|AVX10_\w+"  # oneDNN 3
        if not re.fullmatch(known, limit, re.IGNORECASE):
            raise ValueError(
                f"ONEDNN_MAX_CPU_ISA is {limit!r}, which oneDNN takes for no limit at all; "
                "expected for example SSE41, AVX2 or AVX512_CORE"
            )
        return value

    @property
    def kind(self) -> str:
        """``cpu``, ``cuda`` or ``mps``."""
        return device_kind(self.device)

    @model_serializer(mode="wrap")
    def _without_defaults_added_later(
        self, serialize: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        left_out = added_later(self, _FIRST_FIELDS)
        return {name: value for name, value in serialize(self).items() if name not in left_out}

    def variables(self) -> dict[str, str]:
        """The environment variables with which a process of this profile starts."""
        names = (
            (*THREAD_VARIABLES, ACCELERATE_THREADS)
            if sys.platform == "darwin"
            else THREAD_VARIABLES
        )
        threads = {} if self.threads is None else dict.fromkeys(names, str(self.threads))
        return {**_ALWAYS, **threads, **self.environment}

    def started_with(self, extra: Mapping[str, str]) -> dict[str, str]:
        """`variables`, and ``extra`` ones of mode and seed, over which numeric ones of it win."""
        numeric = {name: v for name, v in self.environment.items() if name in NUMERIC_VARIABLES}
        return {**self.variables(), **extra, **numeric}

    def child_environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a child process: `started_with`, and the caller's other variables.

        Numeric variables of the caller are left out.
        """
        kept = {name: value for name, value in os.environ.items() if name not in NUMERIC_VARIABLES}
        return {**kept, **self.started_with(extra or {})}

    def replaced(self, extra: Mapping[str, str]) -> list[str]:
        """A sentence that names the caller's variables which a child process does not inherit.

        Empty if it inherits them all; ``extra`` as in `started_with`.
        """
        of_child = self.started_with(extra)
        replaced = [
            f"{name}={value} ({of_child.get(name, 'unset')} instead)"
            for name, value in sorted(os.environ.items())
            if (name in NUMERIC_VARIABLES or name in of_child) and value != of_child.get(name)
        ]
        if not replaced:
            return []
        return [
            f"set in your environment, but not for what the lab runs: {', '.join(replaced)}; "
            f"profile {self.name!r}, the mode and the seed decide these, so that a run can be "
            "repeated elsewhere. To choose a value, write it under `environment` in a profile of "
            "yours (a .yaml file); PYTHONHASHSEED is 0 (in mode off unset), TCNN_SEED the seed"
        ]

    def enter(self) -> torch.device:
        """Set up this process, which was started with `variables`, and return the device.

        Sets the number of threads, the CUDA device and whether PyTorch uses oneDNN, and leaves
        them so. What cannot be set any more is checked. Where PyTorch is not installed, as for a
        wrapped program, the variables are all there is to check, and the device is a `Processor`.
        """
        require_at_startup(self.variables(), what=f"profile {self.name!r}")
        device = self.check_device()
        if not has_library("torch"):
            return device
        import torch

        if device.type == "cuda":
            torch.cuda.set_device(device)  # what names no device takes this one, too
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        actual = cpu_capability()
        if self.cpu_capability not in (None, actual):
            raise self._not_here(
                f"needs the instruction set {self.cpu_capability}, but PyTorch runs with {actual}"
            )
        onednn = torch.backends.mkldnn
        onednn.enabled = self.onednn  # type: ignore[assignment]
        if onednn.enabled is not self.onednn:
            raise self._not_here(f"says onednn: {self.onednn}, but PyTorch keeps {onednn.enabled}")
        return device

    def check_device(self) -> torch.device:
        """The profile's device, refused where this machine does not have it."""
        if not has_library("torch"):
            if self.kind != "cpu":
                raise self._not_here(
                    f"needs the device {self.device!r}, but PyTorch is not installed"
                )
            return cast("torch.device", Processor())
        import torch

        index = int(self.device.partition(":")[2] or 0)
        n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if self.kind == "cpu" or (self.kind == "mps" and torch.backends.mps.is_available()):
            return torch.device(self.kind)
        if self.kind == "cuda" and index < n_gpus:
            return torch.device("cuda", index)
        raise self._not_here(f"needs the device {self.device!r}, and PyTorch finds {n_gpus} GPUs")

    def _not_here(self, why: str) -> NotPossibleHere:
        on_cpu = [name for name in profile_names() if load(name).device == "cpu"]
        return NotPossibleHere(
            f"profile {self.name!r} {why} on this machine; choose a profile that runs here: "
            f"{', '.join(on_cpu)}"
        )


# -- the files -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ProfileReference:
    """A profile as a command, a grid or a spec names it: a name or a file, and more variables."""

    source: str
    """One of `profile_names`, or the path of a YAML file."""
    variables: tuple[str, ...] = ()
    """Each ``NAME=VALUE``."""

    @classmethod
    def parse(cls, text: str | Path) -> ProfileReference:
        """Read a reference.

        >>> ProfileReference.parse("cpu+MKL_CBWR=COMPATIBLE")
        ProfileReference(source='cpu', variables=('MKL_CBWR=COMPATIBLE',))
        >>> ProfileReference.parse("my+lab/own.yaml").source
        'my+lab/own.yaml'
        """
        source, *variables = re.split(r"\+(?=\w+=)", str(text))
        return cls(source, tuple(variables))

    @property
    def is_file(self) -> bool:
        """Whether it names a file, which need not be there."""
        return Path(self.source).suffix in (".yaml", ".yml")

    def __str__(self) -> str:
        return "+".join([self.source, *self.variables])


def load(name: str | Path) -> Profile:
    """Read a profile by its reference; the stem of a file is the name of its profile."""
    reference = ProfileReference.parse(name)
    if reference.source == AUTO:
        reference = replace(reference, source=automatic_profile())
    source = reference.source
    variables = dict(variable.split("=", 1) for variable in reference.variables)
    if not reference.is_file and source not in profile_names():
        near = get_close_matches(source, profile_names(), 1)
        proposal = f"; do you mean {near[0]}?" if near else ""
        raise BadInput(
            f"unknown profile {str(name)!r}; expected one of {', '.join(profile_names())}, {AUTO}, "
            f"or the path of a .yaml file with the same fields{proposal}"
        )
    file = Path(source) if reference.is_file else PROFILE_FOLDER / f"{source}.yaml"
    try:
        settings = read_yaml(file.read_text(encoding="utf-8")) or {}
        if not isinstance(settings, dict):
            raise TypeError(f"it holds {settings!r}, and no fields with values")
        if not isinstance(settings.get("environment", {}), dict):
            raise TypeError("environment holds no variables with values")
        if variables:
            settings["environment"] = {**settings.get("environment", {}), **variables}
        called = replace(reference, source=Path(source).stem) if reference.is_file else reference
        return Profile(name=str(called), **settings)
    except FileNotFoundError as error:
        raise no_such_file(file, expected="a profile (YAML)") from error
    except ValidationError as error:
        problems = wrong_fields(error, known=Profile.model_fields)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError) as error:
        problems = " ".join(str(error).split())  # the parser writes several lines
    raise BadInput(
        f"{name} is not a profile: {problems}; expected the fields "
        f"{', '.join(field for field in Profile.model_fields if field != 'name')}"
    )
