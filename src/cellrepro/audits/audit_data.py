"""The audit of a folder of images: as a training, a segmentation, or a function of one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypedDict

from cellrepro.audits.function import audit_function
from cellrepro.audits.segmentation import SegmentationAudit, audit_segmentation
from cellrepro.audits.training import TrainingAudit, audit_training
from cellrepro.audits.training_effects import measure_effects
from cellrepro.progress import print_note
from cellrepro.run.options import TrainingOptions
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName
from cellrepro.terminal_values import EvalSettings
from samebits import replaying
from samebits.errors import whole
from samebits.mode_names import Mode

_OF_EFFECTS = ("epochs", "images_per_epoch")
"""For the trainings of ``--effect``."""
_OF_TRAINING = ("data_seed", "batch_size", "effect", *_OF_EFFECTS)
"""Only the audit of a training has them."""


def audit_data(
    data: FileName,
    /,
    *,
    model: str | None = None,
    seed: int | None = None,
    data_seed: int | str = defaults.DATA_SEED,
    batch_size: int = defaults.BATCH_SIZE,
    profile: str = defaults.PROFILE,
    mode: Mode = "fast",
    steps: int = replaying.AUDITED_STEPS,
    replays: int = replaying.REPLAYS,
    suspects: int = replaying.SUSPECT_REPLAYS,
    threads: int | None = None,
    effect: int = 0,
    epochs: int = defaults.EPOCHS,
    images_per_epoch: int | None = None,
    task: Literal["train", "segment"] = "train",
    settings: EvalSettings | None = None,
    function: str | None = None,
    store: FileName = defaults.STORE,
) -> TrainingAudit | SegmentationAudit:
    """Repeat every operation of a training or segmentation; list those that give different bits.

    Parameters
    ----------
    data : str or Path
        Folder of images, named as Cellpose expects.
    model : str, optional
        A network as for `train` and `segment`; by default ``tiny``, to segment Cellpose's own.
    seed : int, optional
        For Python, NumPy, PyTorch and initial weights; by default 0, and none in mode ``off``.
    data_seed : int or "cellpose"
        For image order and augmentation; Cellpose's own seeding by default.
    batch_size : int
        Images in a step.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How strictly PyTorch is held to equal results.
    steps : int
        How many are audited; with ``--task segment``, images.
    replays : int
        How often each operation is repeated.
    suspects : int
        How often one that is known to vary is repeated.
    threads : int, optional
        Number of threads, in place of the profile's.
    effect : int
        Trainings that show what each operation that varies changes; 0 for none.
    epochs : int
        Of the trainings of ``--effect``.
    images_per_epoch : int, optional
        Images drawn in an epoch of these; by default all, and at least 48 for small networks.
    task : {"train", "segment"}
        What is audited.
    settings : mapping, optional
        Arguments of ``CellposeModel.eval`` by name, with ``--task segment``.
    function : str, optional
        ``MODULE:FUNCTION``, which segments in the place of Cellpose.
    store : str or Path
        Folder of finished runs.

    Returns
    -------
    TrainingAudit or SegmentationAudit
        Its table has a row for every operation whose bits vary.

    Raises
    ------
    BadInput
        If the folder cannot be read, or an option cannot be used or would be ignored.

    Examples
    --------
    Which operations of a training do not repeat?

    ``cellrepro audit data/synthetic --profile auto``

    Which operations of a segmentation do not repeat?

    ``cellrepro audit my_images --task segment``
    """
    alike: _Alike = {
        "mode": mode,
        "seed": seed,
        "profile": profile,
        "steps": steps,
        "replays": replays,
        "suspects": suspects,
        "threads": threads,
        "store": store,
    }
    if function is not None:
        why = "beside --function, which segments in the place of Cellpose"
        refuse_idle((*_OF_TRAINING, "model", "settings"), why)
        return audit_function(function, data, **alike)
    if task == "segment":
        why = "with --task segment, whose batch size is --set batch_size=4"
        refuse_idle(_OF_TRAINING, why)
        return audit_segmentation(data, model=model, settings=settings, **alike)
    refuse_idle(
        ("settings", *(() if effect else _OF_EFFECTS)),
        "where a training is audited: --set is of --task segment, --epochs and "
        "--images-per-epoch of the trainings of --effect",
    )
    if effect:
        whole("effect", effect, least=2)
    network = model or defaults.MODEL
    audit = audit_training(data, model=network, data_seed=data_seed, batch_size=batch_size, **alike)
    if not effect:
        return audit
    options = TrainingOptions(
        data=data,
        epochs=epochs,
        images_per_epoch=images_per_epoch,
        model=network,
        profile=profile,
        store=store,
    )
    return _with_effects(audit, options, repeats=effect)


class _Alike(TypedDict):
    """The options that every kind of audit has."""

    mode: Mode
    seed: int | None
    profile: str
    steps: int
    replays: int
    suspects: int
    threads: int | None
    store: FileName


def _with_effects(audit: TrainingAudit, options: TrainingOptions, *, repeats: int) -> TrainingAudit:
    """Measure what each operation that varies changes; when interrupted, show what is measured."""
    print_note(audit.sentence())
    audits = [audit]  # each with one effect more than the one before
    try:
        measure_effects(audit, options, repeats=repeats, on_effect=audits.append)
    except KeyboardInterrupt:
        return replace(audits[-1], interrupted=True)
    return audits[-1]
