"""What is taken where nobody says: by functions, commands and the notebooks alike."""

MODEL = "tiny"
SEED = 0
DATA_SEED = "cellpose"
EPOCHS = 12
BATCH_SIZE = 1
PROFILE = "cpu"
MODE = "strict"
LEDGER = "steps"
TRAININGS = 2  # repeats of a training; fewer give no verdict
SEGMENTATIONS = 3
MASKS_ON_THE_WAY = 6  # epochs of which `growth` makes masks
STORE = "outputs"
SEARCH_MINUTES = 10.0  # that `explain` searches for what nobody recorded
