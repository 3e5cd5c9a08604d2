"""What happened in one repeat, as written to its ``manifest.json``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cellrepro.store.digests import value_digest
from cellrepro.store.spec import Digest


def _stays_inside(name: str) -> str:
    """Refuse a name that leads out of the folder it is joined to."""
    path = PurePath(name)
    if path.anchor or ".." in path.parts:
        raise ValueError(f"{name!r} leads out of the folder; expected a name inside it")
    return name


Inside = Annotated[str, AfterValidator(_stays_inside)]
"""A name or relative path. Stores come from others, too, and paths are made of what they say."""


class _Record(BaseModel):
    # A diverged training has losses of NaN and infinity, for which JSON has no number.
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class MachineRecord(_Record):
    """Where a repeat was computed: what can change bits, or tells two machines apart."""

    label: str
    """Readable: ``CELLREPRO_MACHINE``, else made from the device's name."""
    identity: str
    """``CELLREPRO_MACHINE``, else a salted digest of the GPU's UUID or of the machine-id."""
    device: str
    """The processor's or the GPU's name."""
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    """These three where the device is an NVIDIA GPU."""
    numeric_class: str
    """Name of `cellrepro.store.platform.numeric_class` under the profile."""
    versions: dict[str, str]
    """Of the numeric libraries, without builds such as ``+cpu``."""

    @property
    def name(self) -> str:
        """The label and eight hex digits of a digest of all else; a folder's name."""
        return f"{self.label}-{value_digest(self.model_dump(exclude={'label'}))[:8]}"


class DataRecord(_Record):
    """The images a repeat used."""

    path: str
    """Where the folder was; informative only, `digest` says what was in it."""
    digest: Digest
    files: dict[Inside, str]
    n_train: int
    n_test: int
    segmented: str
    """``test``, or ``train`` when the folder holds no test images."""
    warnings: list[str]


class ModelRecord(_Record):
    """The network a repeat started from."""

    architecture: str
    n_parameters: int
    dtype: str
    initial_weights: str
    """SHA-256 of the starting weights, written as the store writes weights."""
    path: str | None = None
    """Where the weights file was; informative only, the spec's digest says what was in it."""


class TrainingRecord(_Record):
    """How training went, one entry per epoch."""

    learning_rates: list[float]
    train_losses: list[float]
    test_losses: list[float | None]
    """Null for the epochs at which Cellpose's schedule evaluates nothing."""
    n_steps: int
    n_removed: int
    """Training images left out because they hold fewer masks than Cellpose's minimum."""
    resumed_at: list[int] = Field(default_factory=list)
    """Epochs that were done when another process took over after a kill."""


class WeightsRecord(_Record):
    """The trained weights."""

    digest: str
    n_changed: int
    """Parameters (scalars) whose bits differ from the start, out of `ModelRecord.n_parameters`."""


class MaskRecord(_Record):
    """The masks of one image."""

    file: Inside
    digest: str
    """Of the labels as numbered by Cellpose."""
    canonical_digest: str
    """Of the labels renumbered in raster order: equal for equal outlines."""
    n_objects: int
    seconds: float
    ap50: float | None = None
    """Average precision at IoU 0.5 against the ground truth; null without one."""
    n_true: int | None = None


@dataclass(frozen=True)
class Place:
    """Where an operation comes from.

    Attributes
    ----------
    op : str
        As PyTorch names it, with its overload: ``aten.index_put.default``.
    module : str or None
        Path of the innermost module inside its network (``encoder.blocks.1.attn``), or the class
        of the network itself; none outside any module.
    source : str or None
        ``FILE:LINE in FUNCTION`` of the innermost Python line outside PyTorch; in the backward
        pass the line of the forward operation, or the line inside a custom backward or a hook.
        None where there is no such line, as when a gradient is added to its parameter's.
    phase : str
        ``forward``, ``backward`` or ``update`` (inside an optimizer's step, its closure left
        out); what runs outside any module counts as forward.
    """

    op: str
    module: str | None
    source: str | None
    phase: str

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __str__(self) -> str:
        """As a sentence fragment."""
        return f"{self.phase} of {self.module or 'no module'}, {self.source or 'no line'}"


class WarningRecord(_Record):
    """One kind of warning, as Python printed it."""

    message: str
    category: str
    file: str
    line: int
    phase: str
    count: int
    place: Place | None = None
    """Where it comes from; only mode ``warn`` watches operations."""


class Manifest(_Record):
    """What happened in one repeat."""

    format: int = 2
    key: str
    repeat: int
    machine: MachineRecord
    vacuous: list[str]
    """Why equality with another repeat would prove nothing; empty if it would."""
    started: str
    seconds: dict[str, float]
    peak_memory: dict[str, int | None]
    """Bytes: of the process, and of PyTorch on the GPU (null on others)."""
    host: dict[str, Any]
    versions: dict[str, str]
    distributions: dict[str, str]
    """Version of every installed distribution, by name."""
    cuda: dict[str, str | None]
    """``driver``, ``runtime`` and ``cudnn`` as installed, also where the processor computed."""
    device: str
    threads: int
    cpu_capability: str
    numeric_libraries: list[dict[str, Any]]
    numeric_class: dict[str, Any] | None = None
    """``name`` and ``probes`` of `cellrepro.store.platform.numeric_class`; null in old stores."""
    variables: dict[str, str]
    """Environment variables in force that change numbers."""
    switches: dict[str, Any]
    """As the mode set them, at the start."""
    moved: dict[str, Any] = Field(default_factory=dict)
    """What a switch was at the end, where that is something else."""
    seeds: dict[str, int | str]
    data: DataRecord
    model: ModelRecord
    training: TrainingRecord | None = None
    weights: WeightsRecord | None = None
    masks: dict[Inside, MaskRecord]
    warnings: list[WarningRecord]
    files: dict[Inside, str] = Field(default_factory=dict)
    """SHA-256 of every other file of the repeat, by its path inside the folder."""

    @property
    def n_objects(self) -> int:
        """Objects in all masks together."""
        return sum(mask.n_objects for mask in self.masks.values())

    @property
    def switches_that_moved(self) -> list[str]:
        """What was not held to the end though it was asked for, a sentence each."""
        return [
            f"the switch {name} moved from {self.switches[name]} to {value} during repeat "
            f"{self.repeat}, so what was asked for did not hold to its end"
            for name, value in self.moved.items()
        ]

    @property
    def masks_digest(self) -> str:
        """One digest for all masks, by name and as numbered."""
        return value_digest({name: mask.digest for name, mask in self.masks.items()})

    @property
    def ap50(self) -> float | None:
        """Mean average precision at IoU 0.5 over the images with ground truth."""
        scores = [mask.ap50 for mask in self.masks.values() if mask.ap50 is not None]
        return sum(scores) / len(scores) if scores else None
