"""The manifest of one repeat: what was computed, where, and what came of it (``manifest.json``)."""

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
"""The longest repeat: thirty years."""


def _a_moment(text: str) -> str:
    """Refuse a date that no run can have: manifests of others are read, too, and computed with."""
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
    """Refuse any other value than a name with the digest of each probe."""
    name, probes = value.get("name"), value.get("probes")
    is_of_texts = isinstance(probes, dict) and all(isinstance(p, str) for p in probes.values())
    if not isinstance(name, str) or not is_of_texts:
        raise ValueError("no name with the digest of each probe")
    return value


Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A number that is never negative."""
Seconds = Annotated[float, Field(ge=0, lt=_MOST_SECONDS)]
"""A duration."""


Score = Annotated[float, Field(ge=0, le=1)]
"""An average precision, from 0 to 1."""


class _Record(BaseModel):
    # A diverged training has losses of NaN and infinity, for which JSON has no number.
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class MachineRecord(_Record):
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


class DataRecord(_Record):
    """The images a repeat used."""

    path: str
    """Path of the folder; `digest` says what was in it."""
    digest: Digest
    """SHA-256 over all images and masks of the folder."""
    files: dict[Inside, str]
    """SHA-256 of each file, by name."""
    n_train: Count
    """Number of training images."""
    n_test: Count
    """Number of test images."""
    segmented: str
    """``test``, or ``train`` when the folder holds no test images."""
    warnings: list[str]
    """Sentences on what deserves a look in the images."""
    kept_as: Digest | None = None
    """`images_digest` of the spec, where its axes were named."""

    @property
    def images_digest(self) -> str:
        """The digest under which the store keeps the images."""
        return self.kept_as or self.digest


class ModelRecord(_Record):
    """The network a repeat started from."""

    architecture: str
    """``tiny``, ``vit-l`` …"""
    n_parameters: Count
    """Number of scalars in all its tensors."""
    dtype: str
    """Dtype of the weights: ``float32``, ``bfloat16``."""
    initial_weights: str
    """SHA-256 of the starting weights, written as the store writes weights."""
    path: str | None = None
    """Path of the weights file; the spec's digest says what was in it."""


class Look(_Record):
    """How well a network segmented at one point of its training."""

    epochs: Count
    """Epochs done."""
    seconds: Seconds
    """Since the training began."""
    train: Score | None
    """Mean AP at IoU 0.5 of training images; null without one."""
    test: Score | None
    """Mean AP at IoU 0.5 of test images; null without one that has a truth."""


class UntilRecord(_Record):
    """A training that ended once it found cells: its goal, and how it ended."""

    score: float
    """AP at IoU 0.5 that training and test images were to reach."""
    seconds: Seconds
    """Time after which it was to end in any case."""
    ended: Literal["score", "time", "epochs"]
    """Why it ended: the score was reached, or the time or the epochs were over."""
    taken: Seconds
    """Seconds that it took, with those of the looks."""
    looks: list[Look]
    """The earliest first."""


class TrainingRecord(_Record):
    """The course of a training, one entry an epoch."""

    learning_rates: list[float]
    """Learning rate of each epoch."""
    train_losses: list[float]
    """Mean loss of each epoch."""
    test_losses: list[float | None]
    """Test loss of each epoch; null where Cellpose's schedule evaluates nothing."""
    n_steps: Count
    """Optimizer steps in all epochs."""
    n_removed: Count
    """Training images with fewer masks than Cellpose's minimum."""
    resumed_at: list[Count] = Field(default_factory=list)
    """Epochs that were done each time a process took over."""
    continued_from: str | None = None
    """The finished repeat that it continues."""
    ap50_after: dict[Count, Score] = Field(default_factory=dict)
    """Mean AP at IoU 0.5 after an epoch, by its number, of kept checkpoints with a truth."""
    until: UntilRecord | None = None
    """How it ended, where the number of epochs was not given."""

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
    """Number of scalars whose bits differ from the start."""


def mean_score(scores: Iterable[float | None]) -> float | None:
    """The mean of the scores that are known; None without any."""
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


class MaskRecord(_Record):
    """The masks of one image."""

    file: Inside
    """Path in the repeat's folder."""
    digest: str
    """SHA-256 of the labels as numbered by Cellpose."""
    canonical_digest: str
    """SHA-256 of the labels numbered in raster order: equal for equal outlines."""
    n_objects: Count
    """Number of cells."""
    seconds: Seconds
    """Seconds that Cellpose's `eval` took."""
    ap50: Score | None = None
    """Average precision against the ground truth, at IoU 0.5; null without a truth."""
    n_true: Count | None = None
    """Number of objects of the ground truth; null without one."""


class WarningRecord(_Record):
    """One kind of warning, as Python printed it."""

    message: str
    """Text of the warning."""
    category: str
    """Name of its Python class."""
    file: str
    """Path of the file that gave it."""
    line: Count
    """Line of that file."""
    phase: str
    """Phase of the repeat: ``train``, ``segment`` …"""
    count: Count
    """How often it was given."""
    place: Site | None = None
    """The operation that gave it; only mode ``warn`` watches operations."""


class ResultSummary(BaseModel):
    """The part of a manifest that says what came of a repeat, enough to compare it with others."""

    format: int = 3
    """Version of this format; from 3 on ``SHA256SUMS`` lies beside it."""
    key: str
    """Key of the spec."""
    repeat: Count
    """Number of the repeat, from 0."""
    vacuous: list[str]
    """Reasons why equality with another repeat would prove nothing."""
    switches: dict[str, Any]
    """PyTorch's switches by name, as the mode set them at the start."""
    moved: dict[str, Any] = Field(default_factory=dict)
    """Switches that had a different value at the end, with that value."""
    weights: WeightsRecord | None = None
    """The trained weights; null where nothing was trained."""
    masks: dict[Inside, MaskRecord]
    """The masks, by image."""
    files: dict[Inside, str] = Field(default_factory=dict)
    """SHA-256 of each other file of the repeat, by name."""

    @property
    def n_objects(self) -> int:
        """Objects in all masks together."""
        return sum(mask.n_objects for mask in self.masks.values())

    @property
    def switches_that_moved(self) -> list[str]:
        """Sentences on the switches that did not hold to the end."""
        return [
            f"the switch {name} moved from {self.switches.get(name, 'its start')} to {value} "
            f"during repeat {self.repeat}, so what was asked for did not hold to its end"
            for name, value in self.moved.items()
        ]


class EnvironmentRecord(_Record):
    """What a repeat's numbers depend on beside its spec."""

    machine: MachineRecord
    """Machine on which it was computed."""
    host: dict[str, Any]
    """As `cellrepro.store.this_machine.host` gives it."""
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
    """As `cellrepro.store.this_machine.numeric_libraries` gives them."""
    numeric_class: Annotated[dict[str, Any], AfterValidator(_a_numeric_class)] | None = None
    """Name and probes of the numeric class; null in old stores."""
    variables: dict[str, str]
    """Environment variables in force that change numbers."""


class Manifest(EnvironmentRecord, ResultSummary):
    """What happened in one repeat."""

    started: Annotated[str, AfterValidator(_a_moment)]
    """Date and time, ISO 8601, UTC."""
    seconds: Annotated[dict[str, float], AfterValidator(_a_while)]
    """Seconds of each phase: ``import``, ``data``, ``model``, ``train``, ``segment``."""
    peak_memory: dict[str, Count | None]
    """Peak bytes of the process, and of PyTorch on the GPU."""
    seeds: dict[str, int | str | None]
    """Seeds by generator; null where nothing was seeded."""
    data: DataRecord
    """The images that were used."""
    model: ModelRecord
    """The network that it started from."""
    training: TrainingRecord | None = None
    """The course of the training; null where nothing was trained."""
    train_scores: dict[Inside, Score | None] = Field(default_factory=dict)
    """AP at IoU 0.5 of some or all training images; null where no object is.

    Their masks were not kept. Empty where these are what was segmented, and in old stores.
    """
    warnings: list[WarningRecord]
    """Python's warnings during the repeat."""

    @property
    def began(self) -> datetime:
        """Time of the beginning, in UTC."""
        return _moment(self.started).astimezone(timezone.utc)

    @property
    def ended(self) -> datetime:
        """Time of the end, to the second: the beginning and the seconds of all phases."""
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
        """Mean average precision over training images; `ap50` where these were segmented."""
        if self.training is not None and self.data.segmented == "train":
            return self.ap50
        return mean_score(self.train_scores.values())

    @property
    def ap50_by_epoch(self) -> dict[int, float]:
        """Mean average precision after each epoch with a checkpoint, and at the end; else empty."""
        if self.training is None or self.ap50 is None or not self.training.ap50_after:
            return {}
        return {**self.training.ap50_after, len(self.training.train_losses): self.ap50}
