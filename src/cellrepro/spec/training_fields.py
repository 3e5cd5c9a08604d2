"""The fields of a training that enter its key: names, bounds, defaults and marks.

`Hyperparameters` are the arguments of Cellpose's own function; `TrainingFields` adds what the lab
asks for beside them. A stored `Spec` and the options of `cellrepro.train` have the same fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from cellrepro.spec import defaults
from cellrepro.spec.defaults import LedgerKind
from cellrepro.spec.field_marks import InSpec
from samebits.mode_names import Mode
from samebits.modes import check_mode
from samebits.seeds import check_seed

_FIRST = InSpec(first=True, chosen=True)
"""The mark of a choice in every task, in specs since the first version."""
_FIRST_OF_TRAINING = InSpec(first=True, task="train", chosen=True)
_OF_TRAINING = InSpec(task="train", chosen=True)


class _Accepted(NamedTuple):
    """The values to accept of an argument."""

    values: tuple[object, ...]
    why_no_others: str


_IGNORED_BY_CELLPOSE = {
    "normalize": _Accepted(
        (True, False),
        "Cellpose 4.2.1.1 takes a dict of fields in training and ignores every one of them "
        "(_reshape_norm in train.py): give true or false",
    ),
    "SGD": _Accepted((False,), "Cellpose 4 takes SGD and ignores it: it always trains with AdamW"),
    "bsize": _Accepted(
        (defaults.CROP_SIZE,), "Cellpose trains this network on crops of 256 pixels only"
    ),
    "class_weights": _Accepted(
        (None,), "the network has one class, so that Cellpose ignores its weights"
    ),
}
"""Arguments that ``train_seg`` takes and ignores, by name."""

_Chance = Annotated[float, Field(ge=0)]
"""How often an image is drawn, relative to the others."""


class Hyperparameters(BaseModel):
    """Arguments of ``cellpose.train.train_seg`` (4.2.1.1), with its names and defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight_decay: Annotated[float, _OF_TRAINING] = Field(
        default=defaults.WEIGHT_DECAY, ge=0, allow_inf_nan=False
    )
    """Weight decay of the optimizer."""
    min_train_masks: Annotated[int, _OF_TRAINING] = Field(default=defaults.MIN_TRAIN_MASKS, ge=0)
    """Training images with fewer cells are left out."""
    rescale: Annotated[bool, _OF_TRAINING] = False
    """Whether images are resized so that their cells have Cellpose's usual size."""
    scale_range: Annotated[float, _OF_TRAINING] = Field(default=defaults.SCALE_RANGE, ge=0, le=2)
    """Images are resized at random: 0.5 is 0.75 to 1.25 times."""
    normalize: Annotated[bool, _OF_TRAINING] = True
    """Whether intensities are scaled; false takes them as they are stored."""
    train_probs: Annotated[tuple[tuple[str, _Chance], ...] | None, _OF_TRAINING] = None
    """How often an image is drawn, by its name; none for 1 each."""
    nimg_test_per_epoch: Annotated[int | None, _OF_TRAINING] = Field(default=None, ge=1)
    """Test images that are drawn for the test loss; none for all."""
    augmentation: Annotated[bool, _OF_TRAINING] = True
    """The lab's own: without it every image is shown as it is."""
    SGD: Annotated[bool, _OF_TRAINING] = False
    """Always false: Cellpose 4 trains with AdamW."""
    bsize: Annotated[int, _OF_TRAINING] = defaults.CROP_SIZE
    """Always 256: side of the crops, pixels."""
    class_weights: Annotated[tuple[float, ...] | None, _OF_TRAINING] = None
    """Always none: the network has one class."""

    @field_validator("train_probs", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        return tuple(sorted(value.items())) if isinstance(value, dict) else value

    @field_validator("augmentation")
    @classmethod
    def _nothing_to_augment(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and (
            info.data.get("rescale") or info.data.get("scale_range") != defaults.SCALE_RANGE
        ):
            raise ValueError("rescale and scale_range are part of it: leave them out")
        return value

    @field_validator(*_IGNORED_BY_CELLPOSE, mode="before")
    @classmethod
    def _not_ignored(cls, value: object, info: ValidationInfo) -> object:
        accepted = _IGNORED_BY_CELLPOSE[str(info.field_name)]
        if value not in accepted.values:
            raise ValueError(accepted.why_no_others)
        return value


# -- types of fields, which specs and the options of every task share ------------------------


def _mode(value: str | bool) -> Mode:
    return "off" if value is False else check_mode(str(value))  # as YAML reads ``off``


def _data_seed(value: int | str) -> int | str:
    return value if isinstance(value, str) else check_seed(value, name="data_seed")


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a whole number, not yes or no")
    return value


def _text(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


WholeNumber = Annotated[int, BeforeValidator(_not_bool)]
"""An integer; pydantic would also take yes and no for one."""
Data = Annotated[str | Path, InSpec(first=True)]
"""A folder of images."""
Named = Annotated[str, BeforeValidator(_text), _FIRST]
"""A network or a profile, by its name or its file."""
Seed = Annotated[Annotated[int, AfterValidator(check_seed)] | None, _FIRST]
"""A seed, or none for the usual one of the mode."""
Epochs = Annotated[WholeNumber, Field(le=100_000), _FIRST_OF_TRAINING]
"""A number of epochs; the bound refuses one that was typed wrongly."""
LearningRate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A learning rate."""
CheckedMode = Annotated[Mode, BeforeValidator(_mode), _FIRST]
"""A mode, also where YAML has read ``off`` as no."""
Ledger = Annotated[LedgerKind, _FIRST]
"""What is written down of every step."""
Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)+\w*$")]
"""A version of Cellpose, ``4.2.1.1``."""


class TrainingFields(Hyperparameters):
    """Everything of a training that enters its key, but for the content of files."""

    data: Data
    """Folder in Cellpose's convention: ``train/`` and ``test/`` with ``NAME.tif`` and
    ``NAME_masks.tif``; without the two it is all training."""
    model: Named = defaults.MODEL
    """An encoder's name, a Cellpose model name, a weights file, or ``KEY/REPEAT``."""
    seed: Seed = None
    """The seed of every random generator; by default 0, and none in mode ``off``."""
    data_seed: Annotated[
        int | Literal["cellpose"], AfterValidator(_data_seed), _FIRST_OF_TRAINING
    ] = defaults.DATA_SEED
    """The seed of image order and augmentation; ``cellpose`` for Cellpose's own fixed order."""
    epochs: Epochs = Field(default=defaults.EPOCHS, ge=1)
    """How often all images are shown."""
    batch_size: Annotated[int, _FIRST] = Field(default=defaults.BATCH_SIZE, ge=1, le=4096)
    """Crops in each step of a training."""
    learning_rate: Annotated[LearningRate | None, _FIRST_OF_TRAINING] = None
    """The highest of the schedule; by default what suits the network."""
    images_per_epoch: Annotated[int | None, _FIRST_OF_TRAINING] = Field(default=None, ge=1)
    """Images shown in an epoch; none for every image once, or for 48 or more with a small
    network."""
    profile: Named = defaults.PROFILE
    """The numeric environment: a name, or a ``.yaml`` file."""
    mode: CheckedMode = defaults.MODE
    """How strictly PyTorch is held to equal results."""
    ledger: Ledger = defaults.LEDGER
    """What is written down of every step."""
    loose: str | None = None
    """The one operation that is left as PyTorch has it in mode ``strict``."""
    ranks: Annotated[int, _OF_TRAINING] = Field(default=defaults.RANKS, ge=1, le=1024)
    """Processes that share each batch of a training."""
    continued_from: Annotated[str | None, _OF_TRAINING] = None
    """``KEY/REPEAT`` of the finished training to go on from; in a spec only where the schedule is a
    different one."""

    @field_validator("mode")
    @classmethod
    def _nothing_seeded(cls, mode: Mode, info: ValidationInfo) -> Mode:
        seeds = {name: info.data.get(name) for name in ("seed", "data_seed")}
        given = [f"{name} {seed}" for name, seed in seeds.items() if seed not in (None, "cellpose")]
        if mode == "off" and given:
            raise ValueError(
                f"mode off seeds nothing, and {' and '.join(given)} is given: leave it out (null "
                "in a grid), or use mode fast, which seeds and fixes nothing else"
            )
        return mode

    @field_validator("loose")
    @classmethod
    def _loose_in_strict(cls, value: str | None, info: ValidationInfo) -> str | None:
        mode = info.data.get("mode")
        if value is not None and mode != "strict":
            raise ValueError(f"loose names an operation: expected mode 'strict', not {mode!r}")
        return value
