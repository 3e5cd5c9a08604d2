"""The spec of a run: all that was asked for, and the key that names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from cellrepro.field_defaults import added_later
from cellrepro.profiles.profiles import device_kind
from cellrepro.spec.field_marks import InSpec, Task, field_marks
from cellrepro.spec.field_words import setting_in_words
from cellrepro.spec.segmentation_settings import CHANNELS, NAMES, Settings
from cellrepro.spec.training_fields import (
    Epochs,
    LearningRate,
    Ledger,
    Named,
    TrainingFields,
    Version,
)
from samebits.digests import value_digest
from samebits.modes import SUBSTITUTING, check_switches
from samebits.shown_text import short

KEY_LENGTH = 16
"""Hex digits of a key: 64 bits, so that no two of a million specs share one by accident."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 as hex."""


class Spec(TrainingFields):
    """All that was asked for: the same spec has the same key on every machine.

    Data, weights and profiles count by their content, a device by its kind; names, paths, and which
    of several GPUs it was, are not part of it.
    """

    task: Annotated[Task, InSpec(first=True)] = "train"
    """What the run does; ``wrap`` is a different program that segments."""
    data: Annotated[str, InSpec(first=True)]
    """Name of the folder, for people; `data_digest` says what is in it."""
    data_digest: Annotated[Digest, InSpec(first=True)]
    """SHA-256 over the images and masks of the folder."""
    model: Named
    """The network from which it starts; with a digest only a name for people."""
    model_digest: Annotated[Digest | None, InSpec(first=True)] = None
    """SHA-256 of the weights file; none where the weights follow from the seed."""
    epochs: Epochs = Field(default=0, ge=0)
    """How often a training shows all images."""
    learning_rate: Annotated[LearningRate, InSpec(first=True, task="train", chosen=True)] = 0.0
    """The highest of the schedule."""
    profile: Named
    """Name of the profile."""
    profile_settings: Annotated[dict[str, Any], InSpec(first=True)]
    """All fields of the profile."""
    ledger: Ledger = "off"
    """What is written down of every step."""
    cellpose: Annotated[Version | None, InSpec(task="segment", chosen=True)] = None
    """The version that segments, if one was given; else the installed one."""
    optimizer: Literal["AdamW"] = "AdamW"
    """The optimizer of a training."""
    schedule: Literal["train_seg"] = "train_seg"
    """The schedule of the learning rate, as in `cellpose.train.train_seg`."""
    settings: Annotated[Settings, InSpec(task="segment")] = Settings()
    """Arguments of ``eval`` in a segmentation that differ from their defaults."""
    program: Annotated[tuple[str, ...] | None, InSpec(task="wrap")] = None
    """What is wrapped: the command as given, or a function."""
    key_from: Literal["names", "contents"] = "names"
    """Whether names of folder and profile are part of the key, as in the first versions."""

    @model_validator(mode="before")
    @classmethod
    def _usual_seed(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        has_none = given.get("seed") is None and given.get("mode") not in ("off", False)
        return given | {"seed": 0} if has_none else given

    @model_validator(mode="after")
    def _mode_suits_profile(self) -> Spec:
        if self.mode == "portable" and self.precision != "float32":
            raise ValueError(
                f"mode portable was asked for with a profile in {self.precision}, in which the "
                "order of additions cannot be made not to matter: half of the digits would be "
                "lost; use a profile in float32 (cpu, cuda), or mode strict"
            )
        check_switches(self.mode, self.profile_settings.get("switches", {}))
        return self

    @field_validator("profile_settings")
    @classmethod
    def _kind_of_device(cls, value: dict[str, Any]) -> dict[str, Any]:
        return value if "device" not in value else value | {"device": device_kind(value["device"])}

    @property
    def precision(self) -> str:
        """The dtype in which a network segments, by the profile; training is always in float32."""
        dtype: str = self.profile_settings.get("dtype", "float32")
        return dtype

    @property
    def is_tile_by_tile(self) -> bool:
        """Whether a network sees one tile at a time, whatever the batch size, as its bits depend
        on what else is in a batch."""
        return self.mode in SUBSTITUTING

    @property
    def mode_in_words(self) -> str:
        """The mode in words: ``strict``, or ``strict, index_put loose``."""
        return self.mode if self.loose is None else f"{self.mode}, {self.loose} loose"

    def parameters(self) -> dict[str, Any]:
        """The values of all `PARAMETERS`; "" for those that do nothing in this task.

        ``batch_size`` is that of the task: crops in a step of a training, tiles in a segmentation.
        """
        values = {name: getattr(self, name) for name in PARAMETERS if name not in SETTINGS}
        values |= dict.fromkeys(SETTINGS, "")
        if self.task == "train":
            return values
        values |= dict.fromkeys((*_FIRST_OF_TRAINING, "batch_size"), "")
        if self.task == "segment":
            for name, value in self.settings.by_name().items():
                values[name if name == "batch_size" else f"settings.{name}"] = value
        return values

    def shown_parameters(self) -> list[str]:
        """The `PARAMETERS` to show: the first version's, and later ones off their defaults."""
        hidden = added_later(self, _FIRST)
        changed_settings = self.settings.not_default()
        hidden |= {
            name for name in SETTINGS if name.removeprefix("settings.") not in changed_settings
        }
        if self.task != "train":
            hidden |= {*_FIRST_OF_TRAINING}
        if self.task == "wrap":
            hidden |= {"batch_size", *SETTINGS}
        return [name for name in PARAMETERS if name not in hidden]

    @property
    def label(self) -> str:
        """A name for people: ``train nuclei from tiny, seed 0, profile cpu, mode strict``."""
        values = self.parameters()
        unsaid = self._not_in_label()
        goes_on = "from" if self.task == "train" else "with"
        return ", ".join(
            [
                f"{self.task} {short(self.data)} {goes_on} {short(self.model)}",
                setting_in_words("seed", self.seed),
                f"profile {short(self.profile)}",
                f"mode {self.mode_in_words}",
                *(
                    setting_in_words(name, values[name])
                    for name in self.shown_parameters()
                    if name not in unsaid
                ),
            ]
        )

    def _not_in_label(self) -> set[str]:
        """Fields of the first version that `label` does not list: it says some in its own words."""
        unsaid = {*_FIRST}
        unsaid -= self.settings.not_default().keys() & {"batch_size"}
        if self.task == "train":  # other fields, such as epochs, have no usual value
            for name in ("data_seed", "batch_size"):
                if getattr(self, name) != Spec.model_fields[name].default:
                    unsaid.remove(name)
        return unsaid

    @property
    def images_digest(self) -> str:
        """SHA-256 of what the images are as arrays: of their files, and of axes that were named.

        One file gives different arrays by the axis that is taken for the channels.
        """
        axes = [self.settings.channel_axis, self.settings.z_axis]
        if axes == [None, None]:
            return self.data_digest
        return value_digest([self.data_digest, *axes])

    @property
    def key(self) -> str:
        """The first `KEY_LENGTH` hex digits of the SHA-256 of everything asked for."""
        named_by_digest = {"model"} if self.model_digest is not None else set()
        left_out = named_by_digest | added_later(self, _FIRST)
        asked_for = self.model_dump(mode="json", exclude=left_out)
        if self.key_from == "contents":
            del asked_for["data"], asked_for["profile"]
            asked_for["profile_settings"].pop("name", None)
        return value_digest(asked_for)[:KEY_LENGTH]

    @property
    def as_in_first_versions(self) -> Spec:
        """The same spec under the key that the first versions gave it, see `key_from`."""
        return self.model_copy(update={"key_from": "names"})


# -- fields by their marks -------------------------------------------------------------------

_MARKS = field_marks(Spec)
_FIRST = frozenset(name for name, mark in _MARKS.items() if mark.first)
"""Fields of the first version, which always enter the key."""
_FIRST_OF_TRAINING = tuple(
    name for name, mark in _MARKS.items() if mark.first and mark.task == "train"
)
SETTINGS = tuple(f"settings.{name}" for name in (*NAMES, CHANNELS) if name != "batch_size")
"""Settings of a segmentation as a grid names them; the batch size is ``batch_size`` there."""


def _chosen(*, first: bool) -> Iterator[str]:
    """The fields that a user chooses, of the first version or later ones."""
    return (name for name, mark in _MARKS.items() if mark.chosen and mark.first == first)


PARAMETERS = (*_chosen(first=True), *_chosen(first=False), *SETTINGS)
"""Choices of a user beside the images, under one name in options, notebooks, grids and specs."""


def fields_of_another_task(task: Task) -> dict[str, Task]:
    """Map each field that does nothing in a task to the task that it is for."""
    return {name: mark.task for name, mark in _MARKS.items() if mark.task not in (None, task)}
