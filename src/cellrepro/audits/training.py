"""Audit of Cellpose's own training steps: which operations flip, and what that does to the cells.

The steps are audited in a process of its own. What one operation does is measured by trainings in
mode ``strict`` with this operation alone left loose, beside as many that leave nothing loose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from cellrepro.asked import defaults
from cellrepro.asked.spec import Spec
from cellrepro.changes.compare_repeats import compare_masks_of
from cellrepro.determinism.known_operations import base_name
from cellrepro.determinism.modes import Mode
from cellrepro.errors import BadInput, CellreproError, whole
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.run.inputs import training_loop
from cellrepro.run.options import TrainingOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_training
from cellrepro.run.train import train_with
from cellrepro.same.weights import compare_weights
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.words import amount, ppm_text, share_text

_WARM_UP = 2  # steps, in which memory and kernels are set up


@dataclass(frozen=True)
class Effect:
    """What an operation left loose does: the largest difference of any two of its repeats."""

    op: str
    key: str  # of the run with it loose
    fixed_key: str  # of the run with nothing loose
    repeats: int  # of each
    fixed_identical: bool  # whether those with nothing loose were bit-identical
    n_weights: int  # different weights files among the loose repeats
    weights_differing: float  # share of the weights
    n_masks: int  # different sets of masks among the loose repeats
    ppm: float  # differing pixels per million
    n_objects: int  # objects without a match at IoU 0.5 in the other of two
    vacuous: tuple[str, ...] = ()  # why equality would prove nothing

    def sentence(self) -> str:
        """Whether it matters, over how much."""
        over = f"over {amount(self.repeats, 'repeat')} with it alone loose"
        if not self.fixed_identical:
            said = "cannot be told, because repeats with nothing loose differ too"
        elif self.n_weights > 1:
            said = (
                f"{self.n_weights} different weights, up to {share_text(self.weights_differing)} "
                f"of them changed {over}; {self._of_masks()}"
            )
        else:
            said = f"no effect {over}; a race may need more steps or more repeats to show"
        return "; ".join([f"{self.op}: {said}", *self.vacuous])

    def _of_masks(self) -> str:
        if not self.ppm:
            return "no pixel differs"
        unmatched = amount(self.n_objects, "object") if self.n_objects else "no object"
        return f"up to {ppm_text(self.ppm)} of the pixels differ, {unmatched} without a match"


@dataclass(frozen=True)
class TrainingAudit:
    """What the audit of a training found; the counts: `trace.operation_audit.Audit`."""

    spec: Spec  # whose training was audited
    ops: tuple[NondeterministicOperation, ...]  # whose bits flip, most flips first
    warnings: tuple[NondeterministicOperation, ...]  # of PyTorch, from one step in mode ``warn``
    n_steps: int
    n_replays: int
    threads: int
    kinds: dict[str, int]
    replays: dict[str, int]
    sentence: str  # what could have been missed, and what the audited steps changed, too
    suspects: tuple[NondeterministicOperation, ...] = ()
    """Where nothing flipped: those whose effect was measured all the same."""

    @property
    def effects(self) -> dict[str, Effect | str]:
        """By operation, as far as measured: its effect, or why it is not known."""
        known = {row.op: row.effect or row.no_effect_because for row in self.ops + self.suspects}
        return {op: effect for op, effect in known.items() if effect is not None}


def audit_training(
    data: str | Path,
    *,
    mode: Mode = "fast",
    steps: int | None = None,
    replays: int | None = None,
    suspects: int | None = None,
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
    mode : str
        In which the steps run: ``fast`` shows what flips, ``strict`` that nothing does.
    steps, replays, suspects, threads : int, optional
        As for `cellrepro.audit`; the steps all have a learning rate above 0.
    model, seed, data_seed, batch_size, profile, store, quiet
        As for `cellrepro.train`.
    """
    options = audit_options(steps=steps, replays=replays, suspects=suspects, threads=threads)
    training = TrainingOptions(
        data=data,
        model=model,
        seed=seed,
        data_seed=data_seed,
        batch_size=batch_size,
        mode=mode,
        profile=profile,
        store=store,
    )
    request = plan_training(training).request
    return in_child(
        partial(audited, request=request, options=options),
        request.setup,
        label="audit",
        steps=(steps or 3) + 3,
        quiet=quiet,
    )


def audit_options(**numbers: int | None) -> dict[str, int]:
    """Those of `cellrepro.audit` that are given, checked."""
    given = {name: number for name, number in numbers.items() if number is not None}
    return {name: whole(name, number, int(name != "suspects")) for name, number in given.items()}


def with_effects(
    found: TrainingAudit,
    data: str | Path,
    *,
    repeats: int,
    most: int | None = None,
    quiet: bool = False,
    **training: Any,
) -> Iterator[TrainingAudit]:
    """Measure what each operation that flips does when it alone is left loose.

    Where nothing flipped, those that PyTorch warned of are measured; where there are none, the
    first that the lab has a substitute for, because an audit may miss a rare flip.

    Parameters
    ----------
    found : TrainingAudit
        From `audit_training`.
    data : str or Path
        The same folder.
    repeats : int
        Trainings with it loose, and as many with nothing loose; 2 or more.
    most : int, optional
        Operations to measure; all of them by default.
    quiet : bool
        Show neither progress nor notices.
    **training
        Handed on to `cellrepro.run.options.TrainingOptions`, which documents them; seeds and batch
        size by default those of the audit.

    Yields
    ------
    TrainingAudit
        As it was given; then with the effect of one operation more each time, or why it has none.
    """
    from cellrepro.determinism.substitutes import SUBSTITUTES

    spec = found.spec
    usual = {name: getattr(spec, name) for name in ("seed", "data_seed", "batch_size")}
    options = TrainingOptions(data=data, **{**usual, **training, "mode": "strict"})
    whole("repeats", repeats, 2)
    if not found.ops:
        first = SUBSTITUTES[0]
        suspect = NondeterministicOperation(
            *(first.replaces[0], None, None, None), substitute=first.name, reason=first.reason
        )
        found = replace(found, suspects=found.warnings or (suspect,))
    yield found
    part = "ops" if found.ops else "suspects"
    rows = getattr(found, part)
    for name in list(dict.fromkeys(base_name(row.op) for row in rows))[:most]:
        same = [row for row in rows if base_name(row.op) == name]
        measured: dict[str, Any] = {}
        try:
            if any(row.read_by is not None for row in same):
                raise BadInput("memory that nobody has written cannot be held fixed by a mode")
            measured["effect"] = effect(options, same[0].op, repeats=repeats, quiet=quiet)
        except Exception as error:  # whatever comes of one, the audit and the others stand
            kind = "" if isinstance(error, CellreproError) else f"{type(error).__name__}: "
            measured["no_effect_because"] = f"{kind}{error}"
        rows = tuple(replace(row, **measured) if row in same else row for row in rows)
        changes: dict[str, Any] = {part: rows}
        found = replace(found, **changes)
        yield found


def effect(options: TrainingOptions, op: str, *, repeats: int, quiet: bool = False) -> Effect:
    """Train in mode ``strict`` with one operation left loose, and with none, and compare."""
    loose = train_with(replace(options, loose=op), repeats=repeats, quiet=quiet)
    fixed = train_with(options, repeats=repeats, quiet=quiet)
    return between(op, fixed, loose)


def between(op: str, fixed: Outcome, loose: Outcome) -> Effect:
    """The effect shown by two outcomes: nothing loose, and one operation loose."""
    (fixed_weights, fixed_masks), (weights, masks) = map(_different, (fixed, loose))
    files = [compare_weights(a.weights, b.weights) for a, b in combinations(weights, 2)]
    found = [compare_masks_of(a, b) for a, b in combinations(masks, 2)]
    reasons = [repeat.manifest.vacuous for repeat in loose.repeats]
    return Effect(
        op=op,
        key=loose.key,
        fixed_key=fixed.key,
        repeats=len(loose.repeats),
        fixed_identical=len(fixed_weights) == len(fixed_masks) == 1,
        n_weights=len(weights),
        weights_differing=max((one.n_differing / one.n_parameters for one in files), default=0.0),
        n_masks=len(masks),
        ppm=max((one.ppm for one in found), default=0.0),
        n_objects=max((one.totals.n_unmatched for one in found), default=0),
        # What holds for every repeat: cells in one and none in another are an effect.
        vacuous=tuple(why for why in reasons[0] if all(why in others for others in reasons)),
    )


def _different(outcome: Outcome) -> tuple[list[Any], list[Any]]:
    by_weights = {str(repeat.manifest.weights): repeat for repeat in outcome.repeats}
    by_masks = {repeat.manifest.masks_digest: repeat for repeat in outcome.repeats}
    return list(by_weights.values()), list(by_masks.values())


def audited(child: Child, *, request: Request, options: dict[str, int]) -> TrainingAudit:
    """Inside the child: prepare a training as a worker does, and audit its first steps."""
    from cellrepro.images.folder import read_folder
    from cellrepro.model.network import build
    from cellrepro.trace.operation_audit import STEPS, audit
    from cellrepro.trace.torch_warnings import determinism_warnings

    n_steps = options.get("steps", STEPS)
    # The first epoch, in which Cellpose's learning rate is 0, is over before the audit.
    first_epoch = {"epochs": n_steps + 2, "images_per_epoch": _WARM_UP * request.spec.batch_size}
    spec = request.spec.model_copy(update=first_epoch)
    rates: list[float] = []
    with child.prepared() as device:
        network = build(request.model, seed=spec.seed, device=device, dtype="float32")
        request.setup.seed_all()
        child.phase("images and flows")
        loop = training_loop(spec, network, replace(read_folder(request.data), test=()))
        for _ in range(_WARM_UP):
            loop.step()
        before = [parameter.detach().clone() for parameter in network.parameters()]

        def step() -> None:
            loop.step()
            rates.append(loop.optimizer.param_groups[0]["lr"])
            child.phase(f"step {loop.training.n_steps} audited")

        found = audit(step, model=network, **options)
        both = zip(before, network.parameters(), strict=True)
        n_changed = sum(int((old != new).sum()) for old, new in both)
        child.phase("what PyTorch warns of")
    warnings = tuple(determinism_warnings(loop.step, model=network))
    updates = f"learning rates {min(rates):.2g} to {max(rates):.2g}, {n_changed} weights changed"
    own = {field.name for field in fields(TrainingAudit)} & vars(found).keys()
    return TrainingAudit(
        spec=request.spec,
        warnings=warnings,
        sentence=f"{found.sentence()}; {updates}",
        **{name: getattr(found, name) for name in own},
    )
