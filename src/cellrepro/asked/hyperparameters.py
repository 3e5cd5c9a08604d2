"""Arguments of Cellpose's training, by its names and with its defaults."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

_TAKEN_AND_IGNORED: dict[str, tuple[tuple[object, ...], str]] = {
    "normalize": (
        (True, False),
        "Cellpose 4.2.1.1 takes a dict of fields in training and ignores every one of them "
        "(_reshape_norm in train.py): give true or false",
    ),
    "SGD": ((False,), "Cellpose 4 takes SGD and ignores it: it always trains with AdamW"),
    "bsize": ((256,), "Cellpose trains this network on crops of 256 pixels only"),
    "class_weights": ((None,), "the network has one class, so that Cellpose ignores its weights"),
}
"""Arguments of ``train_seg`` of which only some values do something, and why."""


class Hyperparameters(BaseModel):
    """Arguments of ``cellpose.train.train_seg`` (4.2.1.1), with its names and defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight_decay: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Of the optimizer."""
    min_train_masks: int = Field(default=5, ge=0)
    """Training images with fewer cells are left out."""
    rescale: bool = False
    """Whether images are resized so that their cells have Cellpose's usual size."""
    scale_range: float = Field(default=0.5, ge=0, le=2)
    """Images are resized at random: 0.5 is 0.75 to 1.25 times."""
    normalize: bool = True
    """Whether intensities are scaled; false takes them as they are stored."""
    train_probs: tuple[tuple[str, Annotated[float, Field(ge=0)]], ...] | None = None
    """How often an image is drawn, by its name; none for 1 each."""
    nimg_test_per_epoch: int | None = Field(default=None, ge=1)
    """Test images that are drawn for the test loss; none for all."""
    augmentation: bool = True
    """The lab's own: without it every image is shown as it is."""
    SGD: bool = False
    """Always false: Cellpose 4 trains with AdamW."""
    bsize: int = 256
    """Always 256: side of the crops, pixels."""
    class_weights: tuple[float, ...] | None = None
    """Always none: the network has one class."""

    @field_validator("train_probs", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        return tuple(sorted(value.items())) if isinstance(value, dict) else value

    @field_validator("augmentation")
    @classmethod
    def _nothing_to_augment(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and (info.data.get("rescale") or info.data.get("scale_range") != 0.5):
            raise ValueError("rescale and scale_range are part of it: leave them out")
        return value

    @field_validator(*_TAKEN_AND_IGNORED, mode="before")
    @classmethod
    def _counts(cls, value: object, info: ValidationInfo) -> object:
        usual, reason = _TAKEN_AND_IGNORED[str(info.field_name)]
        if value not in usual:
            raise ValueError(reason)
        return value
