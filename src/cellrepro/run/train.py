"""`train` and `segment`: one spec carried out several times, and are the results the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cellrepro.comparison.verdicts import judge
from cellrepro.determinism.mode_names import Mode
from cellrepro.errors import BadInput
from cellrepro.progress import print_note
from cellrepro.run.masks_folder import refuse_masks, write_masks
from cellrepro.run.options import SegmentationOptions, TrainingOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Plan
from cellrepro.run.planning import plan_segmentation, plan_training
from cellrepro.run.repeats import carry_out
from cellrepro.run.until_found import DRAWS_PER_EPOCH, FOUND, MOST_EPOCHS, Goal
from cellrepro.spec import defaults
from cellrepro.spec.choices import LedgerKind, StoredCheckpoints
from cellrepro.stated import STATED
from cellrepro.store.store import Repeat
from cellrepro.terminal import IN_PYTHON, FileName, Quiet, Switch
from cellrepro.terminal_values import EvalSettings, Numbers, Steps, Weights

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
        How many there are in the end; 2 are needed for a verdict. With ``continued_from`` it does
        not count: one repeat is added to those that there are.
    resume : bool
        Go on with a killed training of this spec from its last checkpoint, to the same result.
    checkpoint_every : int, optional
        Epochs between checkpoints, 0 for none; by default 1 for small networks, 10 otherwise.
    keep_checkpoints : {"none", "last", "all"} or bool
        Which checkpoints are stored with the finished repeat; True is ``all``. While a training
        goes on its newest checkpoint lies in the store anyway, for ``resume``.
    continued_from : str, optional
        ``KEY/REPEAT`` of a finished training that stored its last checkpoint: go on from there to
        ``epochs``. Every other option with another value than its default must be as it was. An
        option with its default counts as left out, and is as it was there.
    operation_steps : sequence of int, optional
        Steps whose operations ``ledger="ops"`` writes down and judges; by default all, unjudged.
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
    options = TrainingOptions.among(locals())
    return train_with(options, repeats=repeats, quiet=quiet)


def train_with(
    options: TrainingOptions, *, repeats: int = defaults.TRAININGS, quiet: bool = False
) -> Outcome:
    """Train as `train` does, from a record of options."""
    return carry_out(plan_training(options), repeats=repeats, quiet=quiet)


def segment(
    data: FileName,
    *,
    model: str | None = None,
    seed: int | None = None,
    settings: EvalSettings | None = None,
    batch_size: int | None = None,
    cellpose: str | None = None,
    profile: str = defaults.PROFILE,
    mode: Mode = defaults.MODE,
    ledger: LedgerKind = defaults.LEDGER,
    loose: Annotated[str | None, IN_PYTHON] = None,
    repeats: int = defaults.SEGMENTATIONS,
    masks_into: FileName | None = None,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Outcome:
    """Segment the same images ``repeats`` times, each in a process of its own, and compare.

    Parameters
    ----------
    data : str or Path
        Folder of images, or one image file; masks need not exist.
    model : str, optional
        As for `train`; one that has learnt something. By default the network that Cellpose itself
        takes, in the version that segments.
    seed : int, optional
        For Python, NumPy, PyTorch; by default 0, and none in mode ``off``.
    settings : mapping of str to value, optional
        Arguments of ``CellposeModel.eval`` by name, ``{"diameter": 60, "normalize.sharpen": 4}``.
    batch_size : int, optional
        How many tiles of an image the network sees at once; may be given among the settings, too.
    cellpose : str, optional
        A different version in an environment of its own, ``"4.0.9"``; see docs/grids.md.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    ledger : {"off", "steps", "ops"}
        What is written down of the computation, for `cellrepro.diverge`.
    loose : str, optional
        The one operation that mode ``strict`` leaves as it is.
    repeats : int
        How often; 2 are needed for a verdict.
    masks_into : str or Path, optional
        A new folder for NAME_masks.tif, and NAME_masks.json: how they were made.
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
        If the folder cannot be read, or an option or setting cannot be used or would be ignored.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If a process ends without finishing.

    Examples
    --------
    Segment a folder three times; is every mask the same?

    ``cellrepro segment my_images --repeats 3``

    Segment once with your settings, and write the masks

    ``cellrepro segment my_images --repeats 1 --set diameter=60 --masks-into masks``
    """
    options = SegmentationOptions.among(locals())
    if masks_into is not None:
        refuse_masks(Path(masks_into), Path(data))
    outcome = carry_out(plan_segmentation(options), repeats=repeats, quiet=quiet)
    if masks_into is not None:
        write_masks(outcome.repeats[0], Path(masks_into))
    return outcome


def train_until_found(
    data: str | Path,
    *,
    model: str = defaults.MODEL,
    store: str | Path = defaults.STORE,
    goal: Goal = FOUND,
    quiet: bool = False,
) -> Outcome:
    """Train a small network until it finds the cells of a folder, and store it as one run.

    The run is that of `train` with as many epochs as it took, to the last bit; what it found
    meanwhile stands in its manifest, under ``training.until``. One that this machine has stored for
    the same goal is not made again; one that was killed goes on where it was.
    """
    options = TrainingOptions(
        data=data,
        model=model,
        store=store,
        epochs=MOST_EPOCHS,
        images_per_epoch=DRAWS_PER_EPOCH,
    )
    plan = plan_training(options, goal=goal)
    repeat = _found_before(plan, goal)
    if repeat is None:
        repeat = carry_out(plan, repeats=1, quiet=quiet).repeats[0]
    elif not quiet:
        print_note(f"this network is stored already: {repeat.name}, {repeat.spec.epochs} epochs")
    as_it_ended = replace(plan, request=replace(plan.request, spec=repeat.spec))
    return Outcome(as_it_ended, (repeat,), judge([repeat.manifest]))


def _found_before(plan: Plan, goal: Goal) -> Repeat | None:
    """Find a stored training of this machine for the same goal."""
    for run in plan.store.readable_runs(data_digest=plan.spec.data_digest):
        as_asked = {"epochs": plan.spec.epochs, "key_from": plan.spec.key_from}
        if run.spec.model_copy(update=as_asked).key != plan.spec.key:
            continue
        repeat = plan.store.repeat(run.spec.key, plan.machine, 0)
        training = None if repeat is None else repeat.manifest.training
        until = None if training is None else training.until
        if until is not None and goal == Goal(until.score, until.seconds):
            return repeat
    return None
