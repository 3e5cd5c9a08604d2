"""Choices and defaults that functions, commands and notebooks share; pydantic is not needed."""

from __future__ import annotations

from typing import Final, Literal, get_args

LedgerKind = Literal["off", "steps", "ops"]
"""What a run writes down of every step: nothing, digests of its stages, every operation."""

StoredCheckpoints = Literal["none", "last", "all"]
"""The checkpoints that are stored with the finished repeat of a training."""

STORED_CHECKPOINTS: tuple[StoredCheckpoints, ...] = get_args(StoredCheckpoints)

MODEL = "tiny"
DATA_SEED: Final = "cellpose"
EPOCHS = 12
BATCH_SIZE = 1
PROFILE = "cpu"
MODE: Final = "strict"
LEDGER: Final = "steps"
TRAININGS = 2  # repeats of a training; fewer give no verdict
SEGMENTATIONS = 3
DRAWS = 5  # of rounding, by which `forecast` segments each image again
DRAWN_TRAININGS = 3  # the same of a training, each of which takes as long as the training
MASKS_ON_THE_WAY = 6  # epochs of which `growth` makes masks
STORE = "outputs"
SEARCH_MINUTES = 10.0  # that `explain` searches for what nobody recorded
RANKS = 1  # processes that share each batch of a training
WEIGHT_DECAY = 0.1  # this and the next three as in ``cellpose.train.train_seg``
MIN_TRAIN_MASKS = 5
SCALE_RANGE = 0.5
CROP_SIZE = 256  # pixels along both sides; fixed for Cellpose's network
READOUTS: Final = "count,area"  # of which `compare --groups` says whether the conclusion stands
MARGIN = 0.1  # of the control's mean, by less than which two effects are the same
