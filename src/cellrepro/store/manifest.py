"""What happened in one repeat, as written to its ``manifest.json``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cellrepro.asked.spec import Digest
from cellrepro.bits.digests import value_digest
from cellrepro.bits.site import Site

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


def _stays_inside(name: str) -> str:
    """Refuse a name that leads out of the folder it is joined to."""
    if ".." not in name and not {*"/\\:"} & {*name[:2]}:  # thousands are read at once
        return name
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

    label: str  # readable: CELLREPRO_MACHINE, else made from the device's name
    identity: str  # CELLREPRO_MACHINE, else a salted digest of the GPU's UUID or the machine-id
    device: str  # the processor's or the GPU's name
    driver: str | None = None  # these three where the device is an NVIDIA GPU
    cuda: str | None = None
    cudnn: str | None = None
    numeric_class: str  # its name, see `cellrepro.store.numeric_class`
    versions: dict[str, str]  # of the numeric libraries, without builds such as ``+cpu``

    @property
    def name(self) -> str:
        """The label and eight hex digits of a digest of all else; a folder's name."""
        return f"{self.label}-{value_digest(self.model_dump(exclude={'label'}))[:8]}"


class DataRecord(_Record):
    """The images a repeat used."""

    path: str  # where the folder was; `digest` says what was in it
    digest: Digest
    files: dict[Inside, str]
    n_train: int
    n_test: int
    segmented: str  # ``test``, or ``train`` when the folder holds no test images
    warnings: list[str]
    kept_as: Digest | None = None  # `images_digest` of the spec, where its axes were named

    @property
    def images_digest(self) -> str:
        """Under which the store keeps the images, also of a repeat that is not stored yet."""
        return self.kept_as or self.digest


class ModelRecord(_Record):
    """The network a repeat started from."""

    architecture: str
    n_parameters: int
    dtype: str
    initial_weights: str  # SHA-256 of the starting weights, written as the store writes weights
    path: str | None = None  # where the weights file was; the spec's digest says what was in it


class Look(_Record):
    """What a network found when its training was looked at."""

    epochs: int  # that were done
    seconds: float  # since the training began
    train: float | None  # mean AP at IoU 0.5 of training images; none without one
    test: float | None  # the same of test images with a truth; none without one


class UntilRecord(_Record):
    """A training that went on until it found cells: what was asked for, and how it ended."""

    score: float  # AP at IoU 0.5 that training images and test images were to reach
    seconds: float  # after which it was to end in any case
    ended: Literal["score", "time", "epochs"]  # reached, or the time or the epochs were over
    taken: float  # seconds, those of the looks among them
    looks: list[Look]


class TrainingRecord(_Record):
    """How training went, one entry per epoch."""

    learning_rates: list[float]
    train_losses: list[float]
    test_losses: list[float | None]  # none where Cellpose's schedule evaluates nothing
    n_steps: int
    n_removed: int  # training images with fewer masks than Cellpose's minimum
    resumed_at: list[int] = Field(default_factory=list)  # epochs done when a process took over
    continued_from: str | None = None  # the finished repeat that it goes beyond
    # Mean AP at IoU 0.5 had training ended after so many epochs; of kept checkpoints with a truth.
    ap50_after: dict[int, float] = Field(default_factory=dict)
    until: UntilRecord | None = None  # of a training whose number of epochs was not given


class WeightsRecord(_Record):
    """The trained weights."""

    digest: str
    n_changed: int  # parameters (scalars) whose bits differ from the start


def mean_score(scores: Iterable[float | None]) -> float | None:
    """The mean of those that there are; none of none."""
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


class MaskRecord(_Record):
    """The masks of one image."""

    file: Inside
    digest: str  # of the labels as numbered by Cellpose
    canonical_digest: str  # of the labels in raster order: equal for equal outlines
    n_objects: int
    seconds: float
    ap50: float | None = None  # against the ground truth, at IoU 0.5; none without one
    n_true: int | None = None


class WarningRecord(_Record):
    """One kind of warning, as Python printed it."""

    message: str
    category: str
    file: str
    line: int
    phase: str
    count: int
    place: Site | None = None  # only mode ``warn`` watches operations


class ResultSummary(BaseModel):
    """What a repeat came to: as much of its manifest as it takes to hold it beside others."""

    format: int = 2
    key: str
    repeat: int
    vacuous: list[str]  # why equality with another repeat would prove nothing
    switches: dict[str, Any]  # as the mode set them, at the start
    moved: dict[str, Any] = Field(default_factory=dict)  # what one was at the end, if another
    weights: WeightsRecord | None = None
    masks: dict[Inside, MaskRecord]
    files: dict[Inside, str] = Field(default_factory=dict)  # SHA-256 of all others of the repeat

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


class Manifest(_Record, ResultSummary):
    """What happened in one repeat."""

    machine: MachineRecord
    started: str
    seconds: dict[str, float]
    peak_memory: dict[str, int | None]  # bytes: of the process, and of PyTorch on the GPU
    host: dict[str, Any]
    versions: dict[str, str]
    distributions: dict[str, str]  # version of every installed distribution, by name
    cuda: dict[str, str | None]  # as installed, also where the processor computed
    device: str
    threads: int
    cpu_capability: str
    numeric_libraries: list[dict[str, Any]]
    numeric_class: dict[str, Any] | None = None  # name and probes; none in old stores
    variables: dict[str, str]  # environment variables in force that change numbers
    seeds: dict[str, int | str | None]
    data: DataRecord
    model: ModelRecord
    training: TrainingRecord | None = None
    # AP at IoU 0.5 of training images, some or all, none where no object is; their masks were not
    # kept. Empty where these are what was segmented, and in old stores.
    train_scores: dict[Inside, float | None] = Field(default_factory=dict)
    warnings: list[WarningRecord]

    @property
    def masks_digest(self) -> str:
        """One digest for all masks, by name and as numbered."""
        return value_digest({name: mask.digest for name, mask in self.masks.items()})

    @property
    def ap50(self) -> float | None:
        """Mean average precision at IoU 0.5 over the images with ground truth."""
        return mean_score(mask.ap50 for mask in self.masks.values())

    @property
    def ap50_train(self) -> float | None:
        """The same over training images; where these are what was segmented, `ap50`."""
        if self.training is not None and self.data.segmented == "train":
            return self.ap50
        return mean_score(self.train_scores.values())

    @property
    def ap50_by_epoch(self) -> dict[int, float]:
        """The same after each epoch of a kept checkpoint, and at the end; else empty."""
        if self.training is None or self.ap50 is None or not self.training.ap50_after:
            return {}
        return {**self.training.ap50_after, len(self.training.train_losses): self.ap50}
