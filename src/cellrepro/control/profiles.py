"""Profiles: the numeric surroundings of a process, as small YAML files a user can add to.

Libraries read these settings once, when a process starts; a profile therefore is applied to a
child process (`Profile.environment`) and checked inside it (`Profile.enter`).
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cellrepro.errors import BadInput, NotPossibleHere

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_ALWAYS = {
    "PYTHONHASHSEED": "0",
    # Time, not numbers: waiting threads of GNU OpenMP sleep sooner, so that two trainings on the
    # same cores take twice as long instead of eight times (measured: docs/benchmarks.md).
    "GOMP_SPINCOUNT": "1000",
}

NUMERIC_VARIABLES = (
    *_THREADS,
    "MKL_DOMAIN_NUM_THREADS",
    # How many of the threads asked for really share a sum: the limit, and the machine's load.
    "OMP_THREAD_LIMIT",
    "OMP_DYNAMIC",
    "MKL_DYNAMIC",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTHONHASHSEED",
)
"""Variables that change numbers: a profile decides all of them, the caller's shell none."""


class Profile(BaseModel):
    """The numeric surroundings of one process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads; none leaves the machine's default, which differs between machines."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the network while it segments; Cellpose always trains in float32."""
    tf32: bool = False
    environment: dict[str, str] = Field(default_factory=dict)
    cpu_capability: str | None = None
    """What ``torch.backends.cpu.get_cpu_capability()`` must answer inside the process."""

    def variables(self) -> dict[str, str]:
        """The environment variables a process of this profile is started with."""
        threads = {} if self.threads is None else dict.fromkeys(_THREADS, str(self.threads))
        return {**_ALWAYS, **threads, **self.environment}

    def child_environment(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The whole environment of a child process: the caller's, less what changes numbers."""
        kept = {name: value for name, value in os.environ.items() if name not in NUMERIC_VARIABLES}
        return {**kept, **self.variables(), **(extra or {})}

    def enter(self) -> Any:
        """Check that this process is what the profile says, and return its ``torch.device``.

        Returns
        -------
        torch.device

        Raises
        ------
        NotPossibleHere
            If the device is missing or the processor lacks the instructions asked for.
        BadInput
            If the process was started without the profile's variables.
        """
        import torch

        late = {
            name: os.environ.get(name)
            for name, value in self.variables().items()
            if os.environ.get(name) != value
        }
        if late:
            raise BadInput(
                f"profile {self.name!r} must be set before the process starts, but here "
                f"{', '.join(f'{name} is {value!r}' for name, value in late.items())}; start it "
                "through `cellrepro train`, `cellrepro grid` or a notebook's call of "
                "cellrepro.train, which start a process of their own"
            )
        self.check_device()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        actual = torch.backends.cpu.get_cpu_capability()
        if self.cpu_capability is not None and actual != self.cpu_capability:
            raise NotPossibleHere(
                f"profile {self.name!r} needs the instruction set {self.cpu_capability}, but "
                f"PyTorch runs with {actual} on this processor; choose another profile: "
                f"{', '.join(names())}"
            )
        return torch.device(self.device)

    def check_device(self) -> None:
        """Raise `NotPossibleHere` if this machine lacks the profile's device."""
        import torch

        found = {
            "cpu": True,
            "cuda": torch.cuda.is_available(),
            "mps": torch.backends.mps.is_available(),
        }
        if not found[self.device]:
            on_cpu = [name for name in names() if load(name).device == "cpu"]
            raise NotPossibleHere(
                f"profile {self.name!r} needs the device {self.device!r}, and PyTorch "
                f"{torch.__version__} finds none on this machine; choose a profile that runs "
                f"here: {', '.join(on_cpu)}"
            )


def names() -> list[str]:
    """The profiles that come with the package, sorted."""
    folder = resources.files("cellrepro.control") / "profiles"
    return sorted(Path(item.name).stem for item in folder.iterdir() if item.name.endswith(".yaml"))


def load(name: str | Path) -> Profile:
    """Read a profile that comes with the package, or a YAML file of the user's.

    Parameters
    ----------
    name : str or Path
        A name from `names`, or the path of a ``.yaml`` file; the file's stem is its name.

    Raises
    ------
    BadInput
        If there is no such profile, or the file is not one.

    Examples
    --------
    >>> load("cpu-1thread").threads
    1
    """
    if not isinstance(name, str | Path):
        raise BadInput(f"profile is {name!r}; expected one of {', '.join(names())}, or a file")
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise BadInput(f"no profile file {path}; expected a YAML file or one of {names()}")
        try:
            text, label = path.read_text(encoding="utf-8"), path.stem
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{name} is not a profile: it cannot be read as text: {error}"
            ) from error
    elif str(name) in names():
        text = (resources.files("cellrepro.control") / "profiles" / f"{name}.yaml").read_text(
            encoding="utf-8"
        )
        label = str(name)
    else:
        raise BadInput(
            f"unknown profile {str(name)!r}; expected one of {', '.join(names())}, "
            "or the path of a .yaml file with the same fields"
        )
    try:
        settings = yaml.safe_load(text) or {}
        return Profile(name=label, **settings)
    except (yaml.YAMLError, TypeError, ValidationError) as error:
        problems = (
            "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            if isinstance(error, ValidationError)
            else str(error)
        )
        raise BadInput(
            f"{name} is not a profile: {problems}; expected the fields "
            f"{', '.join(field for field in Profile.model_fields if field != 'name')}"
        ) from error
