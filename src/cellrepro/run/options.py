"""The options of a run, a record for each task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from typing_extensions import Self

from cellrepro.spec import defaults
from cellrepro.spec.defaults import STORED_CHECKPOINTS, StoredCheckpoints
from cellrepro.spec.training_fields import (
    CheckedMode,
    Data,
    Ledger,
    Named,
    Seed,
    TrainingFields,
    Version,
    WholeNumber,
)
from cellrepro.wrong_fields import wrong_fields
from samebits.errors import BadInput


class _Options(BaseModel):
    """Options of a task; a wrong value raises `BadInput`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # who checks types reads the fields

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise BadInput(wrong_fields(error, known=type(self).model_fields)) from error

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> Self:
        """Take the options from values by name: arguments of a function, or fields of a spec."""
        return cls(**{name: given[name] for name in cls.model_fields if name in given})


class RecordingOptions(BaseModel):
    """Options of what is kept of a training beside its result; none of them changes the result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    resume: bool = False
    """Go on with a killed training of this spec from its last checkpoint."""
    checkpoint_every: WholeNumber | None = Field(default=None, ge=0)
    """Epochs between checkpoints, 0 for none; by default what suits the network."""
    keep_checkpoints: StoredCheckpoints = "none"
    """Checkpoints that are stored with the finished repeat; True is ``all``, for older scripts."""
    operation_steps: tuple[Annotated[WholeNumber, Field(ge=0)], ...] | None = None
    """Steps whose operations ``ledger="ops"`` writes down; None for all. In a segmentation these
    are images."""

    @field_validator("keep_checkpoints", mode="before")
    @classmethod
    def _with_older_values(cls, value: object) -> object:
        named = {True: "all", False: "none"}.get(value, value) if isinstance(value, bool) else value
        if named not in STORED_CHECKPOINTS:
            raise ValueError(f"keep_checkpoints is {value!r}; expected none, last or all")
        return named


class TrainingOptions(_Options, RecordingOptions, TrainingFields):
    """Options of a training; the parameters of `cellrepro.train` say what each means."""

    stated: frozenset[str] = frozenset()
    """Names of options that were given explicitly, even if with their default. A training that is
    continued must have had the same; any other option with its default is as it was there."""
    store: str | Path = defaults.STORE
    """Folder of finished runs."""

    def of_spec(self) -> dict[str, Any]:
        """The options that enter a spec unchanged, without those that every task has."""
        apart = ("data", "model", "profile", "seed", "mode", "continued_from")
        return {
            name: getattr(self, name) for name in TrainingFields.model_fields if name not in apart
        }

    def stated_of_spec(self) -> dict[str, Any]:
        """The options of a spec that were given explicitly, or have not their default."""
        apart = ("data", "epochs", "continued_from")
        return {
            name: getattr(self, name)
            for name, option in TrainingFields.model_fields.items()
            if name not in apart
            if name in self.stated or getattr(self, name) != option.default
        }


class SegmentationOptions(_Options):
    """Options of a segmentation; the parameters of `cellrepro.segment` say what each means."""

    data: Data
    """Folder of images; masks need not exist."""
    model: Named | None = None
    """A network as for a training, a trained one; by default Cellpose's own."""
    seed: Seed = None
    """Seed of every generator; by default 0, and none in mode ``off``."""
    settings: Mapping[str, Any] | None = None
    """Arguments of ``CellposeModel.eval`` by name, as ``diameter=60``."""
    batch_size: int | None = None
    """Tiles that the network sees at once; the same option as in ``settings``."""
    cellpose: Version | None = None
    """A different version of Cellpose, in an environment of its own."""
    profile: Named = defaults.PROFILE
    """Numeric environment."""
    mode: CheckedMode = defaults.MODE
    """How strictly PyTorch is held to deterministic operations."""
    ledger: Ledger = defaults.LEDGER
    """The digests that are written down."""
    loose: str | None = None
    """The one operation that mode ``strict`` leaves as it is."""
    store: str | Path = defaults.STORE
    """Folder of finished runs."""


class WrapOptions(_Options):
    """Options of a wrapped segmenter, a program or a function."""

    data: Data
    """Folder of images; masks need not exist."""
    mode: CheckedMode = defaults.MODE
    """Mode around a function; of a program only ``off`` and ``fast``, which passes the seed."""
    seed: Seed = None
    """Seed of every generator; by default 0, and none in mode ``off``."""
    profile: Named = defaults.PROFILE
    """Numeric environment; a program gets its environment variables."""
    store: str | Path = defaults.STORE
    """Folder of finished runs."""
