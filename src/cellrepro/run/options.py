"""What a run is asked for, a record for each task; and what is said of a name that none has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from cellrepro.asked import defaults
from cellrepro.asked.choices import LedgerKind, StoredCheckpoints
from cellrepro.asked.spec import LEAVE_OUT, Spec
from cellrepro.asked.spec_fields import OF_SEGMENTATION, OF_TRAINING, OF_WRAPPING
from cellrepro.determinism.choices import Mode
from cellrepro.errors import BadInput
from cellrepro.run.until_found import Goal


@dataclass(frozen=True)
class TrainingOptions:
    """All that a training can be asked for; the parameters of `cellrepro.train` say what each
    is."""

    data: str | Path
    """Folder in Cellpose's convention: ``train/`` and ``test/`` with ``NAME.tif`` and
    ``NAME_masks.tif``; without the two it is all training."""
    _: KW_ONLY
    model: str = defaults.MODEL
    """An encoder's name, a Cellpose model name, a weights file, or ``KEY/REPEAT``."""
    seed: int | None = None
    """By default 0, and none in mode ``off``."""
    data_seed: int | str = defaults.DATA_SEED
    """For image order and augmentation."""
    epochs: int = defaults.EPOCHS
    """How often all images are shown, and images a step."""
    batch_size: int = defaults.BATCH_SIZE
    """How often all images are shown, and images a step."""
    learning_rate: float | None = None
    """Peak; by default what suits the network."""
    images_per_epoch: int | None = None
    """Draws per epoch; by default what suits the network."""
    weight_decay: float = defaults.WEIGHT_DECAY
    """Arguments of ``cellpose.train.train_seg``."""
    min_train_masks: int = defaults.MIN_TRAIN_MASKS
    """Arguments of ``cellpose.train.train_seg``."""
    rescale: bool = False
    """Arguments of ``cellpose.train.train_seg``."""
    scale_range: float = defaults.SCALE_RANGE
    """Arguments of ``cellpose.train.train_seg``."""
    normalize: bool = True
    """Arguments of ``cellpose.train.train_seg``."""
    train_probs: Mapping[str, float] | None = None
    """How often an image is drawn, by its name; 1 for one that is not named."""
    nimg_test_per_epoch: int | None = None
    """Arguments of ``cellpose.train.train_seg``."""
    augmentation: bool = True
    """False shows every image as it is."""
    SGD: bool = False
    """Arguments of ``train_seg`` that it ignores; different values are refused with the reason."""
    bsize: int = defaults.CROP_SIZE
    """Arguments of ``train_seg`` that it ignores; different values are refused with the reason."""
    class_weights: Sequence[float] | None = None
    """Arguments of ``train_seg`` that it ignores; different values are refused with the reason."""
    ranks: int = defaults.RANKS
    """Processes that share each batch."""
    profile: str = defaults.PROFILE
    """Numeric environment, how strictly PyTorch is held, and what is written down."""
    mode: Mode = defaults.MODE
    """Numeric environment, how strictly PyTorch is held, and what is written down."""
    ledger: LedgerKind = defaults.LEDGER
    """Numeric environment, how strictly PyTorch is held, and what is written down."""
    loose: str | None = None
    """The one operation that mode ``strict`` leaves as it is."""
    resume: bool = False
    """Go on with a killed training of this spec from its last checkpoint."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints, 0 for none."""
    keep_checkpoints: StoredCheckpoints | bool = "none"
    """What is stored with the finished repeat; True is ``all``, as it was asked for before."""
    continued_from: str | None = None
    """``KEY/REPEAT`` of a finished training to go on from."""
    stated: frozenset[str] = frozenset()
    """Names of options that are meant even where they have their usual value. A training that is
    continued must have had the same; an option that is not stated and has its usual value is as
    it was there."""
    operation_steps: Sequence[int] | None = None
    """Steps whose operations are written down with ``ledger="ops"``."""
    goal: Goal | None = None
    """A score that ends the training before its epochs are over."""
    store: str | Path = defaults.STORE
    """Folder of finished runs."""

    def of_spec(self) -> dict[str, Any]:
        """Those that stand in a spec as they are given."""
        names = [option.name for option in fields(self) if option.name in Spec.model_fields]
        apart = ("data", "model", "profile", "continued_from")
        return {name: getattr(self, name) for name in names if name not in apart}

    def stated_of_spec(self) -> dict[str, Any]:
        """Those of a spec that are meant: stated, or with another than their usual value."""
        apart = ("data", "epochs", "continued_from")
        return {
            option.name: getattr(self, option.name)
            for option in fields(self)
            if option.name in Spec.model_fields and option.name not in apart
            if option.name in self.stated or getattr(self, option.name) != option.default
        }


@dataclass(frozen=True)
class SegmentationOptions:
    """All that a segmentation can be asked for."""

    data: str | Path
    """Folder of images; masks need not exist."""
    _: KW_ONLY
    model: str | None = None
    """As for a training; one that has learnt something. By default Cellpose's own network."""
    seed: int | None = None
    """By default 0, and none in mode ``off``."""
    settings: Mapping[str, Any] | None = None
    """Arguments of ``CellposeModel.eval`` by name, ``{"diameter": 60, "normalize.sharpen": 4}``."""
    batch_size: int | None = None
    """Tiles of an image that the network sees at once; the same as in ``settings``."""
    cellpose: str | None = None
    """A different version of Cellpose, in an environment of its own."""
    profile: str = defaults.PROFILE
    """Numeric environment, how strictly PyTorch is held, and what is written down."""
    mode: Mode = defaults.MODE
    """Numeric environment, how strictly PyTorch is held, and what is written down."""
    ledger: LedgerKind = defaults.LEDGER
    """Numeric environment, how strictly PyTorch is held, and what is written down."""
    loose: str | None = None
    """The one operation that mode ``strict`` leaves as it is."""
    store: str | Path = defaults.STORE
    """Folder of finished runs."""


@dataclass(frozen=True)
class WrapOptions:
    """All that reaches a foreign segmenter, a program or a function."""

    data: str | Path
    """Folder of images; masks need not exist."""
    _: KW_ONLY
    mode: Mode = defaults.MODE
    """In force around a function; a program is told the seed, in modes ``off`` and ``fast``."""
    seed: int | None = None
    """By default 0, and none in mode ``off``."""
    profile: str = defaults.PROFILE
    """Numeric environment; of it a program is given the variables."""
    store: str | Path = defaults.STORE
    """Folder of finished runs."""


# -- names that come as data ---------------------------------------------------------------

Options = TypeVar("Options", TrainingOptions, SegmentationOptions)

_ELSEWHERE = (
    ("train", {option.name for option in fields(TrainingOptions)} | {*OF_TRAINING}),
    ("segment", {option.name for option in fields(SegmentationOptions)} | {*OF_SEGMENTATION}),
    ("wrap", {*OF_WRAPPING}),
)
"""Where a name belongs that a task does not take; the first that has it is named."""


def options_by_name(kind: type[Options], parameters: Mapping[str, Any]) -> Options:
    """Make the record of a task from parameters whose names come as data, from a grid."""
    known = [option.name for option in fields(kind)]
    unknown = [
        name
        for name, value in parameters.items()
        if name not in known and not _is_usual(name, value)
    ]
    function = "train" if issubclass(kind, TrainingOptions) else "segment"
    refuse_unknown(function, unknown, known)
    return kind(**{name: value for name, value in parameters.items() if name in known})


def _is_usual(name: str, value: Any) -> bool:
    if value is None:
        return True
    field = Spec.model_fields.get(name)
    return field is not None and value == field.get_default(call_default_factory=True)


def refuse_unknown(function: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `BadInput` with a sentence for each name that a function does not take.

    >>> refuse_unknown("train", ["epochs", "epoch"], ["epochs", "seed"])
    Traceback (most recent call last):
        ...
    cellrepro.errors.BadInput: train has no option epoch; do you mean epochs?
    """
    known_names = list(known)
    problems = [
        _sentence_on_unknown(function, name, known_names)
        for name in names
        if name not in known_names
    ]
    if problems:
        raise BadInput("; ".join(problems))


def _sentence_on_unknown(function: str, name: str, known: list[str]) -> str:
    has_none = f"{function} has no option {name}"
    for other, options in _ELSEWHERE:
        if name in options:
            advice = LEAVE_OUT.get(name, "leave it out") if function == "train" else "leave it out"
            return f"{has_none}, which is one of {other}: {advice}"
    near = get_close_matches(name, known, n=2, cutoff=0.75)
    if near:
        return f"{has_none}; do you mean {' or '.join(near)}?"
    return f"{has_none}; expected {', '.join(known)}"
