"""What each operation that flips does to a training, measured one after the other.

By trainings in mode ``strict`` with this operation alone left loose, beside as many that leave
nothing loose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.asked import defaults
from cellrepro.asked.choices import LedgerKind, StoredCheckpoints
from cellrepro.audits.effect import Effect, measure_effect
from cellrepro.audits.training import TrainingAudit
from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput, CellreproError, whole
from cellrepro.run.options import TrainingOptions
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation


def measure_effects(
    audit: TrainingAudit,
    data: str | Path,
    *,
    repeats: int = defaults.TRAININGS,
    most: int | None = None,
    model: str = defaults.MODEL,
    seed: int | None = None,
    data_seed: int | str | None = None,
    epochs: int = defaults.EPOCHS,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    images_per_epoch: int | None = None,
    weight_decay: float = defaults.WEIGHT_DECAY,
    min_train_masks: int = defaults.MIN_TRAIN_MASKS,
    rescale: bool = False,
    scale_range: float = defaults.SCALE_RANGE,
    normalize: bool = True,
    train_probs: Mapping[str, float] | None = None,
    nimg_test_per_epoch: int | None = None,
    augmentation: bool = True,
    ranks: int = defaults.RANKS,
    profile: str = defaults.PROFILE,
    ledger: LedgerKind = defaults.LEDGER,
    operation_steps: Sequence[int] | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    keep_checkpoints: StoredCheckpoints | bool = "none",
    store: str | Path = defaults.STORE,
    quiet: bool = False,
    on_effect: Callable[[TrainingAudit], None] | None = None,
) -> TrainingAudit:
    """Measure what each operation that flips does when it alone is left loose.

    Where nothing flipped, those that PyTorch warned of are measured; where there are none, the
    first that the lab has a substitute for, because an audit may miss a rare flip.

    Parameters
    ----------
    audit : TrainingAudit
        From `cellrepro.audit_training`.
    data : str or Path
        The same folder.
    repeats : int
        Trainings with it loose, and as many with nothing loose; 2 or more.
    most : int, optional
        Operations to measure; all of them by default.
    model : str
        As for `cellrepro.train`.
    seed : int, optional
        By default that of the audit.
    data_seed : int or "cellpose", optional
        By default that of the audit.
    epochs : int
        Of these trainings, 2 or more.
    batch_size : int, optional
        By default that of the audit.
    learning_rate : float, optional
        Peak; this and the next ones up to ``keep_checkpoints`` as for `cellrepro.train`.
    images_per_epoch : int, optional
        Draws per epoch.
    weight_decay : float
        Of the optimizer.
    min_train_masks : int
        Images with fewer cells are left out.
    rescale : bool
        Whether images are brought to one diameter of cells.
    scale_range : float
        Range of sizes in augmentation.
    normalize : bool
        Whether images are normalised.
    train_probs : mapping of str to float, optional
        How often an image is drawn, by its name.
    nimg_test_per_epoch : int, optional
        Test images per epoch.
    augmentation : bool
        False: every image as it is.
    ranks : int
        Processes that share each batch.
    profile : str
        The numeric environment: a name, or a ``.yaml`` file.
    ledger : {"steps", "ops", "off"}
        What is written down.
    operation_steps : sequence of int, optional
        Steps whose operations are written down with ``ledger="ops"``.
    resume : bool
        Go on with a training that was killed from its last checkpoint.
    checkpoint_every : int, optional
        Epochs between checkpoints, 0 for none.
    keep_checkpoints : {"none", "last", "all"}
        What is stored with the finished repeat.
    store : str or Path
        Folder of finished runs, into which these trainings go.
    quiet : bool
        Show neither progress nor notices.
    on_effect : callable, optional
        Is given the audit as far as it is known, at first and after every operation that was
        measured; who is interrupted has what was found so far.

    Returns
    -------
    TrainingAudit
        The audit, with the effect of each operation, or why it has none.

    Raises
    ------
    BadInput
        There are fewer than two repeats.
    """
    whole("repeats", repeats, least=2)
    options = TrainingOptions(
        data=data,
        model=model,
        seed=audit.spec.seed if seed is None else seed,
        data_seed=audit.spec.data_seed if data_seed is None else data_seed,
        epochs=epochs,
        batch_size=audit.spec.batch_size if batch_size is None else batch_size,
        learning_rate=learning_rate,
        images_per_epoch=images_per_epoch,
        weight_decay=weight_decay,
        min_train_masks=min_train_masks,
        rescale=rescale,
        scale_range=scale_range,
        normalize=normalize,
        train_probs=train_probs,
        nimg_test_per_epoch=nimg_test_per_epoch,
        augmentation=augmentation,
        ranks=ranks,
        profile=profile,
        mode="strict",
        ledger=ledger,
        operation_steps=operation_steps,
        resume=resume,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        store=store,
    )
    measured = audit if audit.ops else replace(audit, suspects=_suspects(audit))
    _tell(on_effect, measured)
    for name in _operations_to_measure(measured)[:most]:
        members = [row for row in _rows(measured) if base_name(row.op) == name]
        answer = _effect_of(members, options, repeats=repeats, quiet=quiet)
        measured = _with_answer(measured, members, answer)
        _tell(on_effect, measured)
    return measured


@dataclass(frozen=True)
class _Answer:
    """The effect of an operation, or why it has none."""

    effect: Effect | None = None
    no_effect_because: str | None = None


def _suspects(audit: TrainingAudit) -> tuple[NondeterministicOperation, ...]:
    """What may flip though nothing did."""
    from cellrepro.determinism.substitutes import SUBSTITUTES

    if audit.warnings:
        return audit.warnings
    substitute = SUBSTITUTES[0]
    suspect = NondeterministicOperation(
        op=substitute.replaces[0],
        module=None,
        source=None,
        phase=None,
        substitute=substitute.name,
        reason=substitute.reason,
    )
    return (suspect,)


def _rows(audit: TrainingAudit) -> tuple[NondeterministicOperation, ...]:
    """The operations whose effect is measured."""
    return audit.ops or audit.suspects


def _operations_to_measure(audit: TrainingAudit) -> list[str]:
    """Their names, each once: an operation is left loose wherever it is called."""
    return list(dict.fromkeys(base_name(row.op) for row in _rows(audit)))


def _effect_of(
    members: Sequence[NondeterministicOperation],
    options: TrainingOptions,
    *,
    repeats: int,
    quiet: bool,
) -> _Answer:
    """Measure one operation; ``members`` are its rows, one for each place that calls it."""
    try:
        if any(row.read_by is not None for row in members):
            raise BadInput("memory that nobody has written cannot be held fixed by a mode")
        effect = measure_effect(options, members[0].op, repeats=repeats, quiet=quiet)
    except CellreproError as error:
        return _Answer(no_effect_because=str(error))
    except Exception as error:  # whatever comes of one, the audit and the others stand
        return _Answer(no_effect_because=f"{type(error).__name__}: {error}")
    return _Answer(effect=effect)


def _with_answer(
    audit: TrainingAudit, members: Iterable[NondeterministicOperation], answer: _Answer
) -> TrainingAudit:
    """The audit, with the effect of an operation at each of its rows."""
    rows = tuple(
        replace(row, effect=answer.effect, no_effect_because=answer.no_effect_because)
        if row in members
        else row
        for row in _rows(audit)
    )
    if audit.ops:
        return replace(audit, operations=replace(audit.operations, ops=rows))
    return replace(audit, suspects=rows)


def _tell(on_effect: Callable[[TrainingAudit], None] | None, audit: TrainingAudit) -> None:
    if on_effect is not None:
        on_effect(audit)
