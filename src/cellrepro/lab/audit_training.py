"""Audit of Cellpose's own training steps: which operations flip, and what that does to the cells.

The steps are audited in a process of its own. What one operation does is measured by trainings in
mode ``strict`` with this operation alone left loose, beside as many that leave nothing loose.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from cellrepro.compare.weights import compare_weights
from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput, CellreproError, whole
from cellrepro.lab.compare_results import masks_each_with_each
from cellrepro.lab.process import Child, call
from cellrepro.lab.run import Outcome, plan_training, train
from cellrepro.lab.worker import Request
from cellrepro.progress import progress
from cellrepro.store.spec import Spec
from cellrepro.store.store import Repeat
from cellrepro.text import amount, ppm_text
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation

_WARM_UP = 2  # steps, in which memory and kernels are set up
_NO_OBJECT = "no object was found"


@dataclass(frozen=True)
class Effect:
    """What an operation left loose does, over all pairs of its repeats.

    Attributes
    ----------
    op : str
    key, fixed_key : str
        Runs in the store: with it loose, and with nothing loose.
    repeats : int
        Of each.
    fixed_identical : bool
        Whether the repeats with nothing loose were bit-identical.
    n_weights, n_masks : int
        Different weights files, and different sets of masks, among the loose repeats.
    weights_differing : float
        Largest share of weights that differ between two of them.
    relative_l2 : float
        Largest distance between two of them, relative to the norm of the weights.
    ppm : float
        Most differing pixels between two of them, per million.
    n_objects : int
        Most objects without a match at IoU 0.5 in the other of two.
    vacuous : tuple of str
        Why equality would prove nothing.
    """

    op: str
    key: str
    fixed_key: str
    repeats: int
    fixed_identical: bool
    n_weights: int
    weights_differing: float
    relative_l2: float
    n_masks: int
    ppm: float
    n_objects: int
    vacuous: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Whether it matters, over how much."""
        over = f"over {amount(self.repeats, 'repeat')} with it alone loose"
        if not self.fixed_identical:
            return (
                f"{self.op}: cannot be told, because repeats with nothing loose differ too: "
                "something else is nondeterministic; audit in mode strict"
            )
        no_cells = [why for why in self.vacuous if why.startswith(_NO_OBJECT)]
        if self.n_weights == 1 and len(no_cells) < len(self.vacuous):
            return f"{self.op}: cannot be told, {'; '.join(self.vacuous)}"
        if self.n_weights == 1:
            return (
                f"{self.op}: no effect {over}: weights and masks are bit-identical; a race may "
                "need more steps or more repeats to show"
            )
        weights = (
            f"{self.n_weights} different weights, up to {100 * self.weights_differing:.0f} % of "
            f"them changed (relative distance {self.relative_l2:.1e})"
        )
        if no_cells:
            return f"{self.op}: {weights} {over}; of cells nothing can be told, {no_cells[0]}"
        if self.n_masks == 1:
            return f"{self.op}: {weights} {over}, but every mask is the same"
        return (
            f"{self.op}: {weights} {over}; up to {ppm_text(self.ppm)} of the pixels differ, "
            f"{amount(self.n_objects, 'object')} without a match"
        )


@dataclass(frozen=True)
class TrainingAudit:
    """What the audit of a training found.

    Attributes
    ----------
    spec : Spec
        Whose training was audited.
    ops : tuple of NondeterministicOperation
        Operations whose bits flip, most flips first.
    warnings : tuple of NondeterministicOperation
        Operations that PyTorch warns of, flipping or not; from one step in mode ``warn``.
    n_steps, n_calls, n_replayed, n_replays, n_followed, threads : int
    kinds, replays, not_replayed : dict of str to int
        Over how much; see `cellrepro.trace.flips.Audit`.
    groups : list of dict
        What chance of other bits could have been missed: `cellrepro.trace.flips.Group`.
    learning_rates : list of float
        Of the audited steps.
    n_moved : int
        Weights that these steps changed; 0 means that no update was seen.
    seconds : dict of str to float
        ``plain`` for one step as it is, ``audited`` for one under audit.
    sentence : str
    suspects : tuple of NondeterministicOperation
        Where nothing flipped: those whose effect was measured all the same.
    """

    spec: Spec
    ops: tuple[NondeterministicOperation, ...]
    warnings: tuple[NondeterministicOperation, ...]
    n_steps: int
    n_calls: int
    n_replayed: int
    n_replays: int
    n_followed: int
    threads: int
    kinds: dict[str, int]
    replays: dict[str, int]
    not_replayed: dict[str, int]
    groups: list[dict[str, Any]]
    learning_rates: list[float]
    n_moved: int
    seconds: dict[str, float]
    sentence: str
    suspects: tuple[NondeterministicOperation, ...] = ()

    @property
    def effects(self) -> dict[str, Effect | str]:
        """By operation, as far as measured: its effect, or why it is not known."""
        return {
            row.op: row.effect or row.no_effect_because or ""
            for row in (*self.ops, *self.suspects)
            if row.effect is not None or row.no_effect_because is not None
        }


def audit_training(
    data: str | Path,
    *,
    model: str = "tiny",
    seed: int = 0,
    data_seed: int | Literal["cellpose"] = "cellpose",
    batch_size: int = 1,
    profile: str = "cpu",
    mode: str = "fast",
    steps: int | None = None,
    replays: int | None = None,
    suspects: int | None = None,
    threads: int | None = None,
    store: str | Path = "outputs",
    quiet: bool = False,
) -> TrainingAudit:
    """Replay every operation of real Cellpose training steps and say which flip.

    Parameters
    ----------
    data : str or Path
        Folder of images with masks, as for `cellrepro.train`.
    model, seed, data_seed, batch_size, profile, store
        As for `cellrepro.train`.
    mode : str
        In which the steps run: ``fast`` shows what flips, ``strict`` that nothing does.
    steps, replays, suspects : int, optional
        As for `cellrepro.audit`; the steps all have a learning rate above 0.
    threads : int, optional
        CPU threads, instead of the profile's.
    quiet : bool
        Show no progress.
    """
    numbers = {"steps": steps, "replays": replays, "suspects": suspects, "threads": threads}
    options = {
        name: whole(name, number, 0 if name == "suspects" else 1)
        for name, number in numbers.items()
        if number is not None
    }
    plan = plan_training(
        data,
        model=model,
        seed=seed,
        data_seed=data_seed,
        batch_size=batch_size,
        profile=profile,
        mode=mode,
        store=store,
    )
    with progress((steps or 3) + 3, "audit", quiet=quiet) as bar:
        found = call(
            "cellrepro.lab.audit_training:audited",
            plan.request.setup,
            label="audit",
            on_event=lambda event: bar.advance(event["name"]),
            request=plan.request,
            options=options,
        )
    return TrainingAudit(spec=plan.spec, **found)


# -- what one operation does ---------------------------------------------------------------


def with_effects(
    found: TrainingAudit,
    data: str | Path,
    *,
    repeats: int,
    most: int | None = None,
    **settings: Any,
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
    settings
        As for `cellrepro.train`; seeds and batch size by default those of the audit.

    Yields
    ------
    TrainingAudit
        As it was given; then each time with the effect of one operation more, or with the reason
        why it is not known.
    """
    spec = found.spec
    settings = {n: getattr(spec, n) for n in ("seed", "data_seed", "batch_size")} | settings
    if not found.ops:
        found = replace(found, suspects=found.warnings or (_usual_suspect(),))
    yield found
    rows = found.ops or found.suspects
    for n, name in enumerate(dict.fromkeys(base_name(row.op) for row in rows)):
        if n == most:
            return
        same = [row for row in rows if base_name(row.op) == name]
        measured: dict[str, Any] = {}
        try:
            if any(row.read_by is not None for row in same):
                raise BadInput("memory that nobody has written cannot be held fixed by a mode")
            measured["effect"] = effect(data, same[0].op, repeats=repeats, **settings)
        except Exception as error:  # whatever comes of one, the audit and the others stand
            kind = "" if isinstance(error, CellreproError) else f"{type(error).__name__}: "
            measured["no_effect_because"] = f"{kind}{error}"
        rows = tuple(replace(row, **measured) if row in same else row for row in rows)
        found = replace(found, ops=rows) if found.ops else replace(found, suspects=rows)
        yield found


def _usual_suspect() -> NondeterministicOperation:
    from cellrepro.determinism.substitutes import SUBSTITUTES

    item = SUBSTITUTES[0]
    return NondeterministicOperation(
        item.replaces[0], None, None, None, substitute=item.name, reason=item.reason
    )


def effect(
    data: str | Path, op: str, *, repeats: int = 3, epochs: int = 12, **settings: Any
) -> Effect:
    """Train with one operation left loose, several times, and say what comes of it.

    Parameters
    ----------
    data : str or Path
        Folder of images with masks.
    op : str
        As the audit names it: ``aten.index_put.default``, or ``index_put``.
    repeats : int
        2 or more; each is a training in a process of its own, kept in the store.
    epochs : int
    settings
        As for `cellrepro.train`; the mode is ``strict``.

    Returns
    -------
    Effect
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 2:
        raise BadInput(f"repeats is {repeats!r}; expected 2 or more: an effect is a difference")
    if "mode" in settings:
        raise BadInput("an effect is measured in mode strict; leave the mode out")
    common = {"repeats": repeats, "epochs": epochs, "mode": "strict", **settings}
    loose = train(data, loose=op, **common)
    return between(op, train(data, **common), loose)


def between(op: str, fixed: Outcome, loose: Outcome) -> Effect:
    """The effect shown by two outcomes: nothing loose, and one operation loose."""
    different = _different_weights(loose.repeats)
    pairs = [
        compare_weights(a.weights, b.weights)
        for a, b in combinations(different, 2)
        if a.weights is not None and b.weights is not None
    ]
    masks = {repeat.manifest.masks_digest: repeat for repeat in loose.repeats}
    fixed_masks = {repeat.manifest.masks_digest for repeat in fixed.repeats}
    compared = masks_each_with_each(masks.values())
    reasons = [repeat.manifest.vacuous for repeat in loose.repeats]
    return Effect(
        op=op,
        key=loose.key,
        fixed_key=fixed.key,
        repeats=len(loose.repeats),
        fixed_identical=len(_different_weights(fixed.repeats)) == len(fixed_masks) == 1,
        n_weights=len(different),
        weights_differing=max(
            (pair.n_differing / pair.n_parameters for pair in pairs), default=0.0
        ),
        relative_l2=max((pair.relative_l2 for pair in pairs), default=0.0),
        n_masks=len(masks),
        ppm=max((pair.ppm for pair in compared), default=0.0),
        n_objects=max((pair.n_unmatched for pair in compared), default=0),
        # What holds for every repeat: cells in one and none in another are an effect.
        vacuous=tuple(why for why in reasons[0] if all(why in others for others in reasons)),
    )


def _different_weights(repeats: tuple[Repeat, ...]) -> list[Repeat]:
    """One repeat for each different weights file."""
    seen: dict[str, Repeat] = {}
    for repeat in repeats:
        if repeat.manifest.weights is not None:
            seen.setdefault(repeat.manifest.weights.digest, repeat)
    return list(seen.values())


# -- inside the child ----------------------------------------------------------------------


def audited(child: Child, *, request: Request, options: dict[str, int]) -> dict[str, Any]:
    """Prepare a training as a worker does, and audit its first steps: fields of the answer."""
    from cellrepro.determinism.seeding import seed_everything
    from cellrepro.images.folder import read_folder
    from cellrepro.model.network import build
    from cellrepro.model.training import Loop
    from cellrepro.trace.flips import STEPS, audit
    from cellrepro.trace.torch_warnings import determinism_warnings

    spec = request.spec
    n_steps = options.get("steps", STEPS)
    rates: list[float] = []
    with child.prepared() as device:
        network = build(request.model, seed=spec.seed, device=device, dtype="float32")
        seed_everything(spec.seed)
        child.phase("images and flows")
        loop = Loop(
            network,
            read_folder(request.data).train,
            (),
            n_epochs=n_steps + 2,
            learning_rate=spec.learning_rate,
            batch_size=spec.batch_size,
            # The first epoch, in which Cellpose's learning rate is 0, is over before the audit.
            images_per_epoch=_WARM_UP * spec.batch_size,
            data_seed=spec.data_seed,
        )
        for _ in range(_WARM_UP):
            started = time.perf_counter()
            loop.step()
            plain = time.perf_counter() - started
        before = [parameter.detach().clone() for parameter in network.parameters()]

        def step() -> None:
            loop.step()
            rates.append(loop.optimizer.param_groups[0]["lr"])
            child.phase(f"step {loop.training.n_steps} audited")

        found = audit(step, model=network, **options)
        both = zip(before, network.parameters(), strict=True)
        n_changed = sum(int((old != new).sum()) for old, new in both)
        child.phase("what PyTorch warns of")
    warned = determinism_warnings(loop.step, model=network)
    fields = vars(found) | {"groups": [asdict(group) for group in found.groups]}
    updates = "; vacuous for the updates, which changed no weight"
    if n_changed:
        updates = (
            f"; learning rates {min(rates):.2g} to {max(rates):.2g}, {n_changed} weights changed"
        )
    return fields | {
        "warnings": tuple(warned),
        "learning_rates": rates,
        "n_moved": n_changed,
        "seconds": {"plain": plain, "audited": found.seconds / n_steps},
        "sentence": found.sentence() + updates,
    }
