"""Profiles: the numeric environment of a process, as small YAML files a user can add to.

Libraries read these settings once, when a process starts; a profile therefore is applied to a
child process (`Profile.child_environment`) and checked inside it (`Profile.enter`). Setting a
variable later changes ``os.environ`` and nothing else, so `require_at_startup` refuses it.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

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

from cellrepro.determinism import modes
from cellrepro.determinism.seeding import check_seed
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

_FIRST_FIELDS = frozenset(
    ("name", "description", "device", "threads", "dtype", "tf32", "environment", "cpu_capability")
)

_ONEDNN_LIMITS = r"DEFAULT|SSE41|AVX|AVX2(_VNNI(_2)?)?|AVX512_CORE\w*|AVX10_\w+"
"""What oneDNN 3 understands, in either case; any other value it takes for no limit, silently."""

_DEVICE = re.compile(r"(cpu|mps|cuda)|cuda:\d+|GPU-[0-9A-Fa-f-]{36}")


def cpu_capability() -> str:
    """The instruction set PyTorch computes with; ``DEFAULT``, the lowest, is ``NO AVX`` in 2.6."""
    import torch

    found = torch.backends.cpu.get_cpu_capability()
    return "DEFAULT" if found == "NO AVX" else found


def device_kind(device: str) -> str:
    """``cpu``, ``cuda`` or ``mps``: of which kind a device is.

    Examples
    --------
    >>> device_kind("cuda:1"), device_kind("GPU-8f6c3a52-7f2e-4b0a-9a51-0d8f0a6b1c2d")
    ('cuda', 'cuda')
    """
    return device if device in ("cpu", "mps") else "cuda"


def added_later(model: BaseModel, first: Collection[str]) -> set[str]:
    """Fields that are none of the first version's and have their default: no part of a key.

    So a later version may add fields, and what was asked for without them keeps its key.
    """
    fields = type(model).model_fields
    return {n for n in fields if n not in first and getattr(model, n) == fields[n].default}


class Profile(BaseModel):
    """The numeric environment of one process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    device: str = "cpu"
    """``cpu``, ``mps``, ``cuda`` (the first GPU), ``cuda:1``, or a GPU's UUID, ``GPU-…``."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads; none leaves the machine's default, which differs between machines."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the network while it segments; Cellpose always trains in float32."""
    tf32: bool = False
    onednn: bool = True
    """Whether PyTorch may use oneDNN on the CPU; without it convolutions are its own."""
    environment: dict[str, str] = Field(default_factory=dict)
    cpu_capability: str | None = None
    """What `cpu_capability` must answer inside the process."""

    @field_validator("device")
    @classmethod
    def _device_known(cls, value: str) -> str:
        if not _DEVICE.fullmatch(value):
            raise ValueError("expected cpu, mps, cuda, cuda:N or a GPU's UUID, GPU-…")
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
        """The environment variables a process of this profile is started with."""
        threads = {} if self.threads is None else dict.fromkeys(_THREADS, str(self.threads))
        return {**_ALWAYS, **threads, **self.environment}

    def started_with(self, extra: Mapping[str, str]) -> dict[str, str]:
        """`variables` and what mode and seed add; what changes numbers is the profile's to say.

        Examples
        --------
        >>> smaller = Profile(name="mine", environment={"CUBLAS_WORKSPACE_CONFIG": ":16:8"})
        >>> smaller.started_with({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})["CUBLAS_WORKSPACE_CONFIG"]
        ':16:8'
        """
        chosen = {name: v for name, v in self.environment.items() if name in NUMERIC_VARIABLES}
        return {**self.variables(), **extra, **chosen}

    def child_environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The whole environment of a child process: the caller's, less what changes numbers."""
        kept = {name: value for name, value in os.environ.items() if name not in NUMERIC_VARIABLES}
        return {**kept, **self.started_with(extra or {})}

    def replaced(self, extra: Mapping[str, str]) -> list[str]:
        """What of the caller's environment changes numbers and reaches no child, in a sentence."""
        given = self.started_with(extra)
        found = [
            f"{name}={value} ({given.get(name, 'unset')} instead)"
            for name, value in sorted(os.environ.items())
            if name in NUMERIC_VARIABLES and value != given.get(name)
        ]
        if not found:
            return []
        return [
            f"set in your environment, but not for what the lab runs: {', '.join(found)}; profile "
            f"{self.name!r} and the mode decide these, so that a run can be repeated elsewhere. To "
            "choose a value, write it under `environment` in a profile of yours (a .yaml file)"
        ]

    def enter(self) -> Any:
        """Check that this process is what the profile says, and return its ``torch.device``.

        Raises
        ------
        NotPossibleHere
            If the device is missing, the processor lacks the instructions asked for, or oneDNN
            cannot be turned on or off.
        BadInput
            If the process was started without the profile's variables.
        """
        import torch

        require_at_startup(self.variables(), what=f"profile {self.name!r}")
        device = self.check_device()
        if device.type == "cuda":
            torch.cuda.set_device(device)  # what names no device takes this one, too
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        actual = cpu_capability()
        if self.cpu_capability is not None and actual != self.cpu_capability:
            raise NotPossibleHere(
                f"profile {self.name!r} needs the instruction set {self.cpu_capability}, but "
                f"PyTorch runs with {actual} on this processor; choose another profile: "
                f"{', '.join(names())}"
            )
        onednn: Any = torch.backends.mkldnn
        onednn.enabled = self.onednn
        if onednn.enabled != self.onednn:
            raise NotPossibleHere(
                f"profile {self.name!r} says onednn: {str(self.onednn).lower()}, but PyTorch "
                f"{torch.__version__} reads back {onednn.enabled}; choose another "
                f"profile: {', '.join(names())}"
            )
        return device

    def warnings(self) -> list[str]:
        """What this profile asks for and libraries would ignore in silence on this machine.

        Examples
        --------
        >>> Profile(name="mine", environment={"ONEDNN_MAX_CPU_ISA": "AVX3"}).warnings()[0][:60]
        "ONEDNN_MAX_CPU_ISA is 'AVX3', which oneDNN does not know and"
        """
        found = []
        limit = self.environment.get("ONEDNN_MAX_CPU_ISA")
        if limit is not None and not re.fullmatch(_ONEDNN_LIMITS, limit, re.IGNORECASE):
            found.append(
                f"ONEDNN_MAX_CPU_ISA is {limit!r}, which oneDNN does not know and takes for no "
                "limit at all; expected for example SSE41, AVX2 or AVX512_CORE"
            )
        setting = self.environment.get("MKL_CBWR", "AUTO")
        branch = setting.upper().removeprefix("BRANCH=").partition(",")[0]
        vendor = _processor_vendor()
        if branch not in ("AUTO", "COMPATIBLE", "OFF") and vendor != "GenuineIntel":
            found.append(
                f"MKL_CBWR is {setting!r}, which MKL takes for AUTO on this processor "
                f"({vendor or 'of unknown make'}), as it is not Intel's; COMPATIBLE gives equal "
                "bits on every x86-64 processor"
            )
        if not self.onednn and limit is not None:
            found.append("ONEDNN_MAX_CPU_ISA limits nothing, since the profile turns oneDNN off")
        return found

    def check_device(self) -> Any:
        """The ``torch.device``; raises `NotPossibleHere` if this machine lacks it."""
        import torch

        if self.kind == "cpu" or (self.kind == "mps" and torch.backends.mps.is_available()):
            return torch.device(self.kind)
        uuids = gpu_uuids() if self.kind == "cuda" else []
        wanted = self.device.partition(":")[2] or "0"
        if self.device.startswith("GPU-"):
            uuid = self.device.removeprefix("GPU-").lower()
            wanted = str(uuids.index(uuid)) if uuid in uuids else ""
        if wanted and int(wanted) < len(uuids):
            return torch.device("cuda", int(wanted))
        there = f"{len(uuids)} GPUs" if uuids else "none"
        on_cpu = [name for name in names() if load(name).device == "cpu"]
        raise NotPossibleHere(
            f"profile {self.name!r} needs the device {self.device!r}, and PyTorch "
            f"{torch.__version__} finds {there} on this machine; choose a profile that runs "
            f"here: {', '.join(on_cpu)}"
        )


def gpu_uuids() -> list[str]:
    """The UUIDs of the GPUs that PyTorch sees, in its order; empty strings where it knows none."""
    import torch

    if not torch.cuda.is_available():
        return []
    found = (torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count()))
    return [str(getattr(gpu, "uuid", "")).removeprefix("GPU-").lower() for gpu in found]


def _processor_vendor() -> str:
    """The maker, as x86-64 processors spell it; empty where Linux does not list it."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


# -- the files -----------------------------------------------------------------------------

_FOLDER = resources.files("cellrepro.determinism") / "profiles"


def names() -> list[str]:
    """The profiles that come with the package, sorted."""
    return sorted(Path(f.name).stem for f in _FOLDER.iterdir() if f.name.endswith(".yaml"))


def load(name: str | Path) -> Profile:
    """Read a profile that comes with the package, or a YAML file of the user's.

    Parameters
    ----------
    name : str or Path
        A name from `names`, or the path of a ``.yaml`` file; the file's stem is its name.

    Examples
    --------
    >>> load("cpu-1thread").threads
    1
    """
    path = Path(str(name))
    if path.suffix not in (".yaml", ".yml") and str(name) not in names():
        raise BadInput(
            f"unknown profile {str(name)!r}; expected one of {', '.join(names())}, "
            "or the path of a .yaml file with the same fields"
        )
    try:
        own = path.suffix in (".yaml", ".yml")
        file = path if own else _FOLDER / f"{name}.yaml"
        settings = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        return Profile(name=path.stem if own else str(name), **settings)
    except FileNotFoundError as error:
        raise BadInput(
            f"no profile file {path}; expected a YAML file or one of {', '.join(names())}"
        ) from error
    except ValidationError as error:
        problems = "; ".join(_explain(problem) for problem in error.errors())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError) as error:
        problems = str(error)
    raise BadInput(
        f"{name} is not a profile: {problems}; expected the fields "
        f"{', '.join(field for field in Profile.model_fields if field != 'name')}"
    )


def _explain(problem: Any) -> str:
    """One field's problem, what was given included."""
    place = ".".join(map(str, problem["loc"]))
    text = f"{place}: {problem['msg']}, not {problem['input']!r}"
    if problem["loc"][:1] == ("environment",) and len(problem["loc"]) > 1:
        value = str(problem["input"])
        value = value.lower() if isinstance(problem["input"], bool) else value
        text += f' (in quotes: {problem["loc"][1]}: "{value}")'
    return text


# -- what must be set before a process starts ----------------------------------------------

_INITIAL = Path("/proc/self/environ")


def startup_variables(seed: int, *, mode: str = "fast") -> dict[str, str]:
    """The variables to start a process with, beside seeding inside it.

    Parameters
    ----------
    seed : int
        In [0, 2**32); becomes ``TCNN_SEED``. ``PYTHONHASHSEED`` is always "0", so that sets and
        hashes of text come in one order whatever the seed.
    mode : str
        ``warn`` and ``strict`` add ``CUBLAS_WORKSPACE_CONFIG``.

    Examples
    --------
    >>> startup_variables(3)
    {'PYTHONHASHSEED': '0', 'TCNN_SEED': '3'}
    >>> startup_variables(3, mode="strict")["CUBLAS_WORKSPACE_CONFIG"]
    ':4096:8'
    """
    seeds = {"PYTHONHASHSEED": "0", "TCNN_SEED": str(check_seed(seed))}
    return seeds | modes.environment(mode)


def variables_at_start() -> dict[str, str]:
    """The environment this process was started with, as far as it can be known.

    On Linux the kernel keeps it. Elsewhere, and where the process has overwritten that memory
    with a title of its own (setproctitle does), it is ``os.environ`` as it is now. What
    ``PYTHONHASHSEED`` really is follows from ``sys.flags`` everywhere: ``python -I`` and ``-E``
    ignore the variable. A forked process answers as the one that was started.
    """
    try:
        entries = [entry for entry in _INITIAL.read_bytes().split(b"\0") if entry]
    except OSError:
        entries = []
    if entries and all(b"=" in entry for entry in entries):
        pairs = (os.fsdecode(entry).split("=", 1) for entry in reversed(entries))
        variables = dict(pairs)  # of two the first counts in C
    else:
        variables = dict(os.environ)
    if not sys.flags.hash_randomization:
        variables["PYTHONHASHSEED"] = "0"
    elif sys.flags.ignore_environment or variables.get("PYTHONHASHSEED") == "0":
        variables.pop("PYTHONHASHSEED", None)
    return variables


def require_at_startup(variables: Mapping[str, str], *, what: str = "this") -> None:
    """Raise unless this process was started with these variables and still has them.

    Parameters
    ----------
    variables : mapping of str to str
        As `startup_variables` or a profile's ``variables`` give them.
    what : str
        What needs them, for the message.

    Examples
    --------
    >>> require_at_startup({})
    >>> require_at_startup({"NEVER_SET": "1"}, what="the example")
    Traceback (most recent call last):
    ...
    cellrepro.errors.BadInput: the example needs ... NEVER_SET is not set, expected '1'; ...
    """
    started = variables_at_start()
    problems = []
    for name, expected in variables.items():
        then, now = started.get(name), os.environ.get(name)
        was = "not set" if then is None else repr(then)
        if then == expected != now:
            since = "removed" if now is None else f"changed to {now!r}"
            problems.append(f"{name} was {was} at the start and has since been {since}")
        elif now == expected != then:
            problems.append(f"{name} was {was} at the start and took {now!r} too late")
        elif now != expected:
            problems.append(f"{name} is {was}, expected {expected!r}")
    if problems:
        command = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        raise BadInput(
            f"{what} needs variables that must be set before the process starts, but here "
            f"{'; '.join(problems)}; start it again as `{command} python ...` (a notebook's "
            "Jupyter likewise: in a cell it is too late), or through `cellrepro train`, "
            "`cellrepro grid` or a notebook's call of cellrepro.train, which start a process of "
            "their own with their profile's variables"
        )
