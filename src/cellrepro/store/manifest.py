"""What happened in one repeat, as written to its ``manifest.json``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cellrepro.digests.digests import value_digest
from cellrepro.digests.site import Site
from cellrepro.spec.spec import Digest

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


def stays_inside(name: str) -> str:
    """Refuse a name that leads out of the folder it is joined to."""
    # Thousands of names are read at once; most of them need no closer look.
    may_have_a_root = {"/", "\\", ":"}.intersection(name[:2])
    if ".." not in name and not may_have_a_root:
        return name
    path = PurePath(name)
    if path.anchor or ".." in path.parts:
        raise ValueError(f"{name!r} leads out of the folder; expected a name inside it")
    return name


def is_on_another_computer(path: str) -> bool:
    r"""Whether a path names another computer, ``\\server\share``, which looking would log in to.

    What a file that came from someone else records is no reason for that.
    """
    return path.replace("\\", "/").startswith("//")


Inside = Annotated[str, AfterValidator(stays_inside)]
"""A name or relative path. Stores come from others, too, and paths are made of what they say."""


_MOST_SECONDS = 1e9
"""Of a repeat: thirty years."""


def _a_moment(text: str) -> str:
    """Refuse what is no time of a run: manifests of others are read, too, and computed with."""
    moment = _moment(text)
    if moment.tzinfo is None or not 1970 <= moment.year < 9000:
        raise ValueError("no time after 1970 with its distance from UTC")
    return text


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 takes no Z


def _a_while(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    if not 0 <= total < _MOST_SECONDS:  # nor NaN
        raise ValueError(f"{total} seconds in all")
    return seconds


def _a_numeric_class(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse what is no name with the digest of each probe."""
    name, probes = value.get("name"), value.get("probes")
    is_of_texts = isinstance(probes, dict) and all(isinstance(p, str) for p in probes.values())
    if not isinstance(name, str) or not is_of_texts:
        raise ValueError("no name with the digest of each probe")
    return value


Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A number of things, which is never negative."""
Seconds = Annotated[float, Field(ge=0, lt=_MOST_SECONDS)]
"""A time that something took."""


Score = Annotated[float, Field(ge=0, le=1)]
"""An average precision."""


class _Record(BaseModel):
    # A diverged training has losses of NaN and infinity, for which JSON has no number.
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class MachineRecord(_Record):
    """Where a repeat was computed: what can change bits, or tells two machines apart."""

    label: str
    """Readable: CELLREPRO_MACHINE, else made from the device's name."""
    identity: str
    """CELLREPRO_MACHINE, else a salted digest of the GPU's UUID or the machine-id."""
    device: str
    """The processor's or the GPU's name."""
    driver: str | None = None
    """Version of NVIDIA's driver, where the device is a GPU of theirs; so are the next two."""
    cuda: str | None = None
    """Version of PyTorch's CUDA runtime."""
    cudnn: str | None = None
    """Version of cuDNN."""
    numeric_class: str
    """Its name, see `cellrepro.store.numeric_class`."""
    versions: dict[str, str]
    """Versions of the numeric libraries, without builds such as ``+cpu``."""

    @property
    def name(self) -> str:
        """The label and eight hex digits of a digest of all else; a folder's name."""
        return f"{self.label}-{value_digest(self.model_dump(exclude={'label'}))[:8]}"


class DataRecord(_Record):
    """The images a repeat used."""

    path: str
    """Where the folder was; `digest` says what was in it."""
    digest: Digest
    """SHA-256 over all images and masks of the folder."""
    files: dict[Inside, str]
    """SHA-256 of each file, by name."""
    n_train: Count
    """Training images."""
    n_test: Count
    """Test images."""
    segmented: str
    """``test``, or ``train`` when the folder holds no test images."""
    warnings: list[str]
    """What deserves a look in them, a sentence each."""
    kept_as: Digest | None = None
    """`images_digest` of the spec, where its axes were named."""

    @property
    def images_digest(self) -> str:
        """Under which the store keeps the images, also of a repeat that is not stored yet."""
        return self.kept_as or self.digest


class ModelRecord(_Record):
    """The network a repeat started from."""

    architecture: str
    """``tiny``, ``vit-l`` …"""
    n_parameters: Count
    """Numbers in all its tensors."""
    dtype: str
    """Of the weights: ``float32``, ``bfloat16``."""
    initial_weights: str
    """SHA-256 of the starting weights, written as the store writes weights."""
    path: str | None = None
    """Where the weights file was; the spec's digest says what was in it."""


class Look(_Record):
    """What a network found when its training was looked at."""

    epochs: Count
    """Epochs done."""
    seconds: Seconds
    """Since the training began."""
    train: Score | None
    """Mean AP at IoU 0.5 of training images; none without one."""
    test: Score | None
    """The same of test images with a truth; none without one."""


class UntilRecord(_Record):
    """A training that went on until it found cells: what was asked for, and how it ended."""

    score: float
    """AP at IoU 0.5 that training images and test images were to reach."""
    seconds: Seconds
    """Time after which it was to end in any case."""
    ended: Literal["score", "time", "epochs"]
    """Why it ended: the score was reached, or the time or the epochs were over."""
    taken: Seconds
    """Seconds that it took, those of the looks among them."""
    looks: list[Look]
    """The earliest first."""


class TrainingRecord(_Record):
    """How training went, one entry per epoch."""

    learning_rates: list[float]
    """Of each epoch."""
    train_losses: list[float]
    """Mean of each epoch."""
    test_losses: list[float | None]
    """None where Cellpose's schedule evaluates nothing."""
    n_steps: Count
    """Optimizer steps done, in all epochs."""
    n_removed: Count
    """Training images with fewer masks than Cellpose's minimum."""
    resumed_at: list[Count] = Field(default_factory=list)
    """Epochs done when a process took over."""
    continued_from: str | None = None
    """The finished repeat that it goes beyond."""
    ap50_after: dict[Count, Score] = Field(default_factory=dict)
    """Mean AP at IoU 0.5 had it ended after so many epochs; of kept checkpoints with a truth."""
    until: UntilRecord | None = None
    """How a training ended whose number of epochs was not given."""

    @model_validator(mode="after")
    def _of_one_length(self) -> TrainingRecord:
        curves = (self.learning_rates, self.train_losses, self.test_losses)
        lengths = [len(curve) for curve in curves]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"{lengths} learning rates, training losses and test losses, expected one of each "
                "for every epoch"
            )
        return self


class WeightsRecord(_Record):
    """The trained weights."""

    digest: str
    """SHA-256 of the file."""
    n_changed: Count
    """Parameters (scalars) whose bits differ from the start."""


def mean_score(scores: Iterable[float | None]) -> float | None:
    """The mean of those that there are; none of none."""
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


class MaskRecord(_Record):
    """The masks of one image."""

    file: Inside
    """In the repeat's folder."""
    digest: str
    """SHA-256 of the labels as numbered by Cellpose."""
    canonical_digest: str
    """SHA-256 of the labels numbered in raster order: equal for equal outlines."""
    n_objects: Count
    """Cells."""
    seconds: Seconds
    """Time that Cellpose's `eval` took."""
    ap50: Score | None = None
    """Average precision against the ground truth, at IoU 0.5; None without a truth."""
    n_true: Count | None = None
    """Objects of the ground truth; None without one."""


class WarningRecord(_Record):
    """One kind of warning, as Python printed it."""

    message: str
    """Its text."""
    category: str
    """Its class in Python."""
    file: str
    """In which it was given."""
    line: Count
    """Of that file."""
    phase: str
    """Of the repeat: ``train``, ``segment`` …"""
    count: Count
    """How often it was given."""
    place: Site | None = None
    """The operation that it was of; only mode ``warn`` watches operations."""


class ResultSummary(BaseModel):
    """What a repeat came to: as much of its manifest as it takes to hold it beside others."""

    format: int = 3
    """Number of this format; from 3 on ``SHA256SUMS`` lies beside it."""
    key: str
    """Of the spec."""
    repeat: Count
    """Its number, from 0."""
    vacuous: list[str]
    """Why equality with another repeat would prove nothing."""
    switches: dict[str, Any]
    """PyTorch's, by name, as the mode set them at the start."""
    moved: dict[str, Any] = Field(default_factory=dict)
    """Switches that had a different value at the end, with that value."""
    weights: WeightsRecord | None = None
    """None where nothing was trained."""
    masks: dict[Inside, MaskRecord]
    """By image."""
    files: dict[Inside, str] = Field(default_factory=dict)
    """SHA-256 of each other file of the repeat, by name."""

    @property
    def n_objects(self) -> int:
        """Objects in all masks together."""
        return sum(mask.n_objects for mask in self.masks.values())

    @property
    def switches_that_moved(self) -> list[str]:
        """What was not held to the end though it was asked for, a sentence each."""
        return [
            f"the switch {name} moved from {self.switches.get(name, 'its start')} to {value} "
            f"during repeat {self.repeat}, so what was asked for did not hold to its end"
            for name, value in self.moved.items()
        ]


class EnvironmentRecord(_Record):
    """What a repeat's numbers depend on beside its spec."""

    machine: MachineRecord
    """Where it was computed."""
    host: dict[str, Any]
    """As `cellrepro.store.this_machine.host` gives it."""
    versions: dict[str, str]
    """Of Python and of what can change a result, by package."""
    distributions: dict[str, str]
    """Version of every installed distribution, by name."""
    cuda: dict[str, str | None]
    """Versions of driver, runtime and cuDNN as installed, also where the processor computed."""
    device: str
    """The GPU's name, or ``cpu``."""
    threads: Count
    """PyTorch's on the processor."""
    cpu_capability: str
    """Instructions that PyTorch's own kernels use: ``AVX2``, ``AVX512``, ``DEFAULT``."""
    numeric_libraries: list[dict[str, Any]]
    """As `cellrepro.store.this_machine.numeric_libraries` gives them."""
    numeric_class: Annotated[dict[str, Any], AfterValidator(_a_numeric_class)] | None = None
    """Name and probes; none in old stores."""
    variables: dict[str, str]
    """Environment variables in force that change numbers."""


class Manifest(EnvironmentRecord, ResultSummary):
    """What happened in one repeat."""

    started: Annotated[str, AfterValidator(_a_moment)]
    """Date and time, ISO 8601, UTC."""
    seconds: Annotated[dict[str, float], AfterValidator(_a_while)]
    """Time that each phase took: ``import``, ``data``, ``model``, ``train``, ``segment``."""
    peak_memory: dict[str, Count | None]
    """Bytes: of the process, and of PyTorch on the GPU."""
    seeds: dict[str, int | str | None]
    """By generator; None where nothing was seeded."""
    data: DataRecord
    """The images."""
    model: ModelRecord
    """The network from which it started."""
    training: TrainingRecord | None = None
    """None where nothing was trained."""
    train_scores: dict[Inside, Score | None] = Field(default_factory=dict)
    """AP at IoU 0.5 of training images, some or all; None where no object is.

    Their masks were not kept. Empty where these are what was segmented, and in old stores.
    """
    warnings: list[WarningRecord]
    """Warnings of Python during the repeat."""

    @property
    def began(self) -> datetime:
        """When it began, in UTC."""
        return _moment(self.started).astimezone(timezone.utc)

    @property
    def ended(self) -> datetime:
        """When it ended, to the second: its beginning and the time of all phases."""
        return self.began + timedelta(seconds=round(sum(self.seconds.values())))

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
