"""Defaults that functions, commands and notebooks share."""

from typing import Final

MODEL = "tiny"
SEED = 0
DATA_SEED: Final = "cellpose"
EPOCHS = 12
BATCH_SIZE = 1
PROFILE = "cpu"
MODE: Final = "strict"
LEDGER: Final = "steps"
TRAININGS = 2  # repeats of a training; fewer give no verdict
SEGMENTATIONS = 3
MASKS_ON_THE_WAY = 6  # epochs of which `growth` makes masks
STORE = "outputs"
SEARCH_MINUTES = 10.0  # that `explain` searches for what nobody recorded
RANKS = 1  # processes that share each batch of a training
WEIGHT_DECAY = 0.1  # this and the next three as in ``cellpose.train.train_seg``
MIN_TRAIN_MASKS = 5
SCALE_RANGE = 0.5
CROP_SIZE = 256  # pixels
AUDITED_STEPS = 3  # of a training; of a segmentation, images
REPLAYS = 8  # of each operation that an audit looks at
SUSPECT_REPLAYS = 200  # of one that is known to race; two executions miss every second flip
