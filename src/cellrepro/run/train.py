"""The command `train`: one spec trained several times, and are the results the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cellrepro.run.options import TrainingOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.planning import plan_training
from cellrepro.run.repeats import carry_out
from cellrepro.spec import defaults
from cellrepro.spec.defaults import LedgerKind, StoredCheckpoints
from cellrepro.stated import STATED
from cellrepro.terminal import FileName, Quiet, Switch
from cellrepro.terminal_values import Numbers, Steps, Weights
from samebits.errors import BadInput
from samebits.mode_names import Mode

if TYPE_CHECKING:  # what Python takes
    Kept = StoredCheckpoints | bool
else:  # what a terminal writes
    Kept = StoredCheckpoints


def train(
    data: FileName,
    *,
    model: str = defaults.MODEL,
    seed: int | None = None,
    data_seed: int | str = defaults.DATA_SEED,
    epochs: int = defaults.EPOCHS,
    batch_size: int = defaults.BATCH_SIZE,
    learning_rate: float | None = None,
    images_per_epoch: int | None = None,
    weight_decay: float = defaults.WEIGHT_DECAY,
    min_train_masks: int = defaults.MIN_TRAIN_MASKS,
    rescale: Switch = False,
    scale_range: float = defaults.SCALE_RANGE,
    normalize: Switch = True,
    train_probs: Weights | None = None,
    nimg_test_per_epoch: int | None = None,
    augmentation: Switch = True,
    SGD: Annotated[bool, Parameter(name="--SGD")] = False,
    bsize: int = defaults.CROP_SIZE,
    class_weights: Numbers | None = None,
    ranks: int = defaults.RANKS,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    ledger: LedgerKind = defaults.LEDGER,
    loose: str | None = None,
    repeats: int = defaults.TRAININGS,
    resume: bool = False,
    checkpoint_every: int | None = None,
    keep_checkpoints: Kept = "none",
    continued_from: Annotated[str | None, Parameter(name="--continue")] = None,
    operation_steps: Steps | None = None,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Outcome:
    """Train one spec ``repeats`` times, each in a process of its own, and compare the repeats.

    Repeats that this machine has stored already are not run again.

    Parameters
    ----------
    data : str or Path
        Folder in Cellpose's convention: ``train/`` and ``test/`` with ``NAME.tif`` and
        ``NAME_masks.tif``; without the two it is all training.
    model : str
        ``tiny`` (2 blocks), ``tiny-4``, ``tiny-8``, ``tiny-12``, ``vit-b`` or ``vit-l`` (the size
        of Cellpose's own) from the seed, a Cellpose model name, a weights file, or ``KEY/REPEAT``
        of a stored run.
    seed : int, optional
        For Python, NumPy, PyTorch, and initial weights; by default 0, and none in mode ``off``.
    data_seed : int or "cellpose"
        For image order and augmentation; Cellpose's own seeding by default.
    epochs : int
        How often all images are shown. 1 trains nothing, and the run is vacuous: in the first epoch
        Cellpose's learning rate is 0.
    batch_size : int
        Images a step.
    learning_rate : float, optional
        Peak; by default 1e-3 for small networks, 1e-5 otherwise.
    images_per_epoch : int, optional
        Draws per epoch; by default at least 48 for small networks, every image once otherwise.
    weight_decay : float
        Of the optimizer, as for ``cellpose.train.train_seg``.
    min_train_masks : int
        A training image with fewer cells is left out.
    rescale : bool
        Resize images to the usual size of cells.
    scale_range : float
        Of the sizes that augmentation shows.
    normalize : bool
        False: pixels as they are stored.
    train_probs : mapping of str to float, optional
        How often an image is drawn, by its name; 1 for one that is not named.
    nimg_test_per_epoch : int, optional
        Test images drawn for the test loss; by default all.
    augmentation : bool
        False: every image as it is, its middle where it is larger than a crop (256 pixels).
    SGD : bool
        Refused, as ``train_seg`` takes it and goes on with AdamW.
    bsize : int
        Pixels along an edge of a crop; others than 256 are refused, as ``train_seg`` ignores them.
    class_weights : sequence of float, optional
        Refused, as there is one class.
    ranks : int
        Processes that share each batch, each on a GPU of its own, or all on the processor. Another
        number gives different bits; see docs/parallel.md.
    profile : str
        The numeric environment: a name, or a ``.yaml`` file.
    mode : {"portable", "strict", "warn", "fast", "off"}
        How strictly PyTorch is held to deterministic operations.
    ledger : {"steps", "ops", "off"}
        Digests of every step: ``steps``; of every operation, too: ``ops``.
    loose : str, optional
        One operation, ``index_put`` for example, that mode ``strict`` leaves as it is.
    repeats : int
        How many there are in the end; 2 are needed for a verdict. Where a
        finished training goes on it does not count: one repeat is added to those that there are.
    resume : bool
        Go on with a killed training of this spec from its last checkpoint, to the same result.
    checkpoint_every : int, optional
        Epochs between checkpoints, 0 for none; by default 1 for small networks, 10 otherwise.
    keep_checkpoints : {"none", "last", "all"} or bool
        Which checkpoints are stored with the finished repeat; in Python True is ``all``. While
        a training goes on its newest checkpoint lies in the store anyway, for ``resume``.
    continued_from : str, optional
        ``KEY/REPEAT`` of a finished training that stored its last checkpoint: go on from there to
        ``epochs``. Every other option with another value than its default must be as it was. An
        option with its default counts as left out, and is as it was there.
    operation_steps : sequence of int, optional
        Steps whose operations a ledger of every operation writes down and judges; by default all,
        unjudged.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show neither progress nor notices.

    Returns
    -------
    Outcome
        Its ``str`` is the verdict in a sentence; in a notebook it shows a table of the repeats,
        too.

    Raises
    ------
    BadInput
        If the folder cannot be trained on, or an option cannot be used or would be ignored.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If a process ends without finishing.

    Examples
    --------
    Train a small network twice; is every weight the same?

    ``cellrepro train data/synthetic --epochs 12 --seed 0``

    Train Cellpose's own network further on your images

    ``cellrepro train my_images --model cpsam_v2 --epochs 100 --profile auto``
    """
    stated = frozenset[str]() if continued_from is None else STATED.get()
    if "repeats" in stated:
        raise BadInput("--continue adds one repeat; leave --repeats out")
    return train_with(TrainingOptions.among(locals()), repeats=repeats, quiet=quiet)


def train_with(
    options: TrainingOptions, *, repeats: int = defaults.TRAININGS, quiet: bool = False
) -> Outcome:
    """Train as `train` does, from a record of options."""
    return carry_out(plan_training(options), repeats=repeats, quiet=quiet)
