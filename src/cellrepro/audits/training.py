"""Audit of Cellpose's own training steps: which operations flip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from cellrepro.audits.audit_of_run import AuditOfRun, AuditOptions, checked_options
from cellrepro.audits.effect import Effect
from cellrepro.process.child import Child
from cellrepro.run.inputs import training_loop
from cellrepro.run.options import TrainingOptions
from cellrepro.run.plan import Request
from cellrepro.run.planned_child import in_planned_child
from cellrepro.run.planning import plan_training
from cellrepro.spec import defaults
from samebits import NondeterministicOperation, replaying
from samebits.mode_names import Mode
from samebits.results import Row, in_json
from samebits.words import amount

_WARM_UP = 2  # steps, for memory and the choice of kernels


@dataclass(frozen=True)
class Updates:
    """Updates of the audited steps: an audit of steps that train nothing would prove nothing."""

    lowest_rate: float
    """The lowest learning rate of a step."""
    highest_rate: float
    """The highest."""
    n_weights_changed: int
    """Weights that the steps changed."""

    def sentence(self) -> str:
        """Say it in half a sentence."""
        return (
            f"learning rates {self.lowest_rate:.2g} to {self.highest_rate:.2g}, "
            f"{amount(self.n_weights_changed, 'weight')} changed"
        )


@dataclass(frozen=True, repr=False)
class TrainingAudit(AuditOfRun):
    """The answer of an audit of a training."""

    updates: Updates = field(repr=False)
    """The updates that the audited steps made."""
    warnings: tuple[NondeterministicOperation, ...]
    """Operations of one step of which PyTorch warns in mode ``warn``."""
    suspects: tuple[NondeterministicOperation, ...] = ()
    """Operations that are known to flip and did not here, whose effect was measured."""
    interrupted: bool = field(default=False, repr=False)
    """Whether the user ended it before every effect was measured."""

    @property
    def differs(self) -> bool:
        """Whether an operation flips, or nothing was replayed."""
        return bool(self.ops) or not self.n_replays

    @property
    def effects(self) -> dict[str, Effect | str]:
        """The measured effect of each operation, or why it is not known."""
        effects: dict[str, Effect | str] = {}
        for row in (*self.ops, *self.suspects):
            if isinstance(row.effect, Effect):
                effects[row.op] = row.effect
            elif row.no_effect_because is not None:
                effects[row.op] = row.no_effect_because
        return effects

    @in_json
    def sentence(self) -> str:
        """Say what flips, what could have been missed, and what the audited steps changed."""
        return f"{self.operations.sentence()}; {self.updates.sentence()}"

    def rows(self) -> Sequence[Row]:
        """Give one row for each operation that flips."""
        return [_row_of(operation) for operation in self.ops]

    def lines(self) -> list[str]:
        """Give what flips, where, and what holds it still; the sentence; effects, if measured."""
        lines: list[str] = []
        for operation in self.ops:
            lines += _operation_lines(operation)
        for operation in self.warnings:
            module = operation.module or "no module"
            lines.append(f"PyTorch warns of {operation.op}, {operation.phase} of {module}")
        effects = map(_effect_line, self.ops or self.suspects) if self.effects else ()
        return [*lines, self.sentence(), *dict.fromkeys(effects)]


def _operation_lines(operation: NondeterministicOperation) -> Iterator[str]:
    yield f"{operation.op}, {operation.phase} of {operation.module or 'no module'}"
    yield f"    {operation.source or 'no line of Python'}"
    warns = "warns of it" if operation.warned else "does not warn of it"
    elements = amount(operation.n_elements, "element")
    yield f"    {operation.seen}, in up to {elements}; PyTorch {warns}"
    if operation.reason:
        yield f"    {operation.reason}"
    if operation.remedy:
        yield f"    {operation.remedy}"
    if operation.substitute:
        yield f"    mode strict uses the substitute {operation.substitute}"


def _effect_line(operation: NondeterministicOperation) -> str:
    """Say what an operation does to the cells."""
    if operation.effect:
        return f"effect: {operation.effect_sentence}"
    reason = operation.no_effect_because or "not measured"
    return f"effect of {operation.op}: not known, {reason}"


def _row_of(operation: NondeterministicOperation) -> Row:
    return {
        "operation": operation.op,
        "phase": operation.phase or "",
        "module": operation.module or "",
        "line": operation.source or "",
        "seen": operation.seen,
        "effect": operation.effect or operation.no_effect_because or "not measured",
    }


def audit_training(
    data: str | Path,
    *,
    mode: Mode = "fast",
    steps: int = replaying.AUDITED_STEPS,
    replays: int = replaying.REPLAYS,
    suspects: int = replaying.SUSPECT_REPLAYS,
    threads: int | None = None,
    model: str = defaults.MODEL,
    seed: int | None = None,
    data_seed: int | str = defaults.DATA_SEED,
    batch_size: int = defaults.BATCH_SIZE,
    profile: str = defaults.PROFILE,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> TrainingAudit:
    """Replay every operation of real Cellpose training steps and say which flip.

    Parameters
    ----------
    data : str or Path
        Folder of images with masks, as for `cellrepro.train`.
    mode : {"off", "fast", "warn", "strict", "portable"}
        In which the steps run: ``fast`` shows what flips, ``strict`` that nothing does.
    steps : int
        Training steps to audit, all with a learning rate above 0.
    replays : int
        How often each operation of them is executed again.
    suspects : int
        How often, if more, those that have a substitute or are documented to race.
    threads : int, optional
        CPU threads of PyTorch meanwhile; by default the profile's.
    model : str
        The network, as for `cellrepro.train`.
    seed : int, optional
        For Python, NumPy, PyTorch, and initial weights; by default 0, and none in mode ``off``.
    data_seed : int or "cellpose"
        For image order and augmentation; Cellpose's own seeding by default.
    batch_size : int
        Images a step.
    profile : str
        The numeric environment: a name, or a ``.yaml`` file.
    store : str or Path
        Where runs are stored, for a model that is named by its key; nothing is written.
    quiet : bool
        Show no progress.

    Returns
    -------
    TrainingAudit
        Its ``str`` says what flips, over how much; in a notebook it shows a table of what does.

    Raises
    ------
    BadInput
        If the folder cannot be trained on, a number is too small, or the mode is unknown.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If the process ends without finishing.
    """
    options = checked_options(steps=steps, replays=replays, suspects=suspects, threads=threads)
    training = TrainingOptions.among(locals())
    plan = plan_training(training)
    return in_planned_child(
        plan,
        partial(audit_steps, request=plan.request, options=options),
        label="audit",
        steps=options.steps,
        quiet=quiet,
    )


def audit_steps(child: Child, *, request: Request, options: AuditOptions) -> TrainingAudit:
    """Begin a training as a worker does, in the child, and audit the steps after one epoch."""
    from cellrepro.images.folder import read_folder
    from cellrepro.model.network import build
    from samebits import determinism_warnings

    # Cellpose's learning rate is 0 in the first epoch, which ends before the audit.
    first_epoch = {
        "epochs": options.steps + 2,
        "images_per_epoch": _WARM_UP * request.spec.batch_size,
    }
    spec = request.spec.model_copy(update=first_epoch)
    rates: list[float] = []
    with child.prepared() as device:
        network = build(request.model, seed=spec.seed, device=device, dtype="float32")
        request.setup.seed_all()
        child.phase("images and flows")
        training_images = replace(read_folder(request.data), test=())
        loop = training_loop(spec, network, training_images)
        for _ in range(_WARM_UP):
            loop.step()
        weights_before = [parameter.detach().clone() for parameter in network.parameters()]

        def step() -> None:
            loop.step()
            rates.append(loop.optimizer.param_groups[0]["lr"])
            child.tell("done", f"step {loop.training.n_steps} audited")

        operations = options.audited(step, steps=options.steps, model=network)
        n_changed = sum(
            int((before != after).sum())
            for before, after in zip(weights_before, network.parameters(), strict=True)
        )
        child.phase("what PyTorch warns of")
    return TrainingAudit(
        spec=request.spec,
        operations=operations,
        updates=Updates(min(rates), max(rates), n_changed),
        warnings=tuple(determinism_warnings(loop.step, model=network)),
    )
