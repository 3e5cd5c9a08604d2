"""Names of the fields of a spec: which a user chooses, and in which task each does something."""

from __future__ import annotations

from cellrepro.asked.hyperparameters import Hyperparameters
from cellrepro.asked.segmentation_settings import CHANNELS, NAMES

FIRST_PARAMETERS = (
    "model",
    "seed",
    "data_seed",
    "epochs",
    "batch_size",
    "learning_rate",
    "images_per_epoch",
    "profile",
    "mode",
    "ledger",
)
"""Chosen by a user, and part of every spec since the first version of the lab."""

FIRST_FIELDS = frozenset(
    (*FIRST_PARAMETERS, "task", "data", "data_digest", "model_digest", "profile_settings")
)
"""They always enter the key; a field that came later does where it differs from its default."""

SETTINGS = tuple(f"settings.{name}" for name in (*NAMES, CHANNELS) if name != "batch_size")
"""Of a segmentation, as a grid names them; its batch size is ``batch_size``."""

PARAMETERS = (
    *FIRST_PARAMETERS,
    *Hyperparameters.model_fields,
    "ranks",
    "continued_from",
    "cellpose",
    *SETTINGS,
)
"""What a user chooses beside the images; named alike in options, notebooks, grids and specs."""

FIRST_OF_TRAINING = ("data_seed", "epochs", "learning_rate", "images_per_epoch")
"""Those of `FIRST_PARAMETERS` that do something in a training alone."""

OF_TRAINING = (*FIRST_OF_TRAINING, *Hyperparameters.model_fields, "ranks", "continued_from")
"""Fields that do something in a training alone."""

OF_SEGMENTATION = ("settings", "cellpose")
"""Fields that do something in a segmentation alone."""

OF_WRAPPING = ("program",)
"""Fields that do something alone where another program segments."""
