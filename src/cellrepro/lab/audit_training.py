"""Audit of Cellpose's own training steps on a folder of images, in a process of its own.

Answers the third and the fifth question: at which operation do equal inputs part, does PyTorch
warn of it, is there a substitute, and what does it do to the cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput, CellreproError
from cellrepro.lab.effects import effect
from cellrepro.lab.process import Child, call
from cellrepro.lab.run import Plan, plan_training
from cellrepro.lab.worker import Request
from cellrepro.progress import progress
from cellrepro.store.spec import Spec
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation


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
    effect_repeats: int = 0,
    effect_epochs: int = 12,
    images_per_epoch: int | None = None,
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
        In which the steps run: ``fast`` shows what moves, ``strict`` that nothing does.
    steps : int, optional
        Training steps to audit, all of them with a learning rate above 0.
    replays : int, optional
        How often each operation is run again on equal inputs.
    suspects : int, optional
        How often, if more, those that have a substitute or are documented to race. The defaults
        of all three are those of `cellrepro.audit`.
    threads : int, optional
        CPU threads, instead of the profile's.
    effect_repeats : int
        For each operation that flips, train that many times with it alone left loose, and as
        many with none; 0 leaves that out, 2 or more say what it does to the cells. What cannot
        be told is noted in its row, with the reason.
    effect_epochs : int
        Epochs of these trainings.
    images_per_epoch : int, optional
        Draws per epoch of these trainings; default as for `cellrepro.train`.
    quiet : bool
        Show no progress.

    Returns
    -------
    TrainingAudit

    Raises
    ------
    BadInput
        If anything given cannot be used.
    NotPossibleHere
        If this machine lacks the device or the memory.
    """
    numbers = {"steps": steps, "replays": replays, "suspects": suspects, "threads": threads}
    for name, number in numbers.items():
        least = 0 if name == "suspects" else 1
        whole = isinstance(number, int) and not isinstance(number, bool) and number >= least
        if not whole and number is not None:
            raise BadInput(f"{name} is {number!r}; expected a whole number, {least} or more")
    check_effect_repeats(effect_repeats)
    plan = plan_training(
        data,
        model=model,
        seed=seed,
        data_seed=data_seed,
        epochs=effect_epochs,
        batch_size=batch_size,
        images_per_epoch=images_per_epoch,
        profile=profile,
        mode=mode,
        store=store,
    )
    answer = _audited(plan, {**numbers, "data": str(plan.request.data)}, quiet=quiet)
    found = TrainingAudit(
        spec=plan.spec,
        ops=tuple(NondeterministicOperation(**row) for row in answer.pop("ops")),
        warnings=tuple(NondeterministicOperation(**row) for row in answer.pop("warnings")),
        **answer,
    )
    if effect_repeats:
        *_, found = with_effects(
            found,
            data,
            repeats=effect_repeats,
            images_per_epoch=images_per_epoch,
            model=model,
            profile=profile,
            store=store,
            quiet=quiet,
        )
    return found


def check_effect_repeats(repeats: int) -> None:
    """Refuse a number of trainings that compares nothing.

    Raises
    ------
    BadInput
        If it is neither 0 nor 2 or more.
    """
    if isinstance(repeats, bool) or repeats < 0 or repeats == 1:
        raise BadInput(
            f"effect_repeats is {repeats!r}; expected 0 for none, or 2 or more to compare"
        )


def with_effects(
    found: TrainingAudit, data: str | Path, *, repeats: int, **parameters: Any
) -> Iterator[TrainingAudit]:
    """Measure what each operation that flips does when it alone is left loose.

    Parameters
    ----------
    found : TrainingAudit
        From `audit_training`.
    data : str or Path
        The same folder.
    repeats : int
        2 or more.
    parameters
        As for `cellrepro.train`: ``model``, ``profile`` and what else was given to the audit and
        does not stand in its spec as it was given.

    Yields
    ------
    TrainingAudit
        As it was given; then each time with the effect of one operation more, or with the reason
        why it cannot be told.
    """
    yield found
    spec = found.spec
    of_spec = {name: getattr(spec, name) for name in ("seed", "data_seed", "epochs", "batch_size")}
    for name in dict.fromkeys(base_name(row.op) for row in found.ops):
        measured: dict[str, Any] = {}
        rows = [row for row in found.ops if base_name(row.op) == name]
        try:
            if any(row.read_by is not None for row in rows):
                raise BadInput("memory that nobody has written cannot be held fixed by a mode")
            measured["effect"] = effect(data, rows[0].op, repeats=repeats, **of_spec, **parameters)
        except Exception as error:  # whatever comes of one, the audit and the others stand
            kind = "" if isinstance(error, CellreproError) else f"{type(error).__name__}: "
            measured["no_effect_because"] = f"{kind}{error}"
        found = replace(
            found,
            ops=tuple(replace(row, **measured) if row in rows else row for row in found.ops),
        )
        yield found


def _audited(plan: Plan, options: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    with progress((options["steps"] or 3) + 3, "audit", quiet=quiet) as bar:
        return call(
            "cellrepro.lab.audit_training:audited",
            plan.request.setup,
            label="audit",
            on_event=lambda event: bar.advance(event["name"]),
            request=plan.request,
            options=options,
        )


# -- inside the child ----------------------------------------------------------------------


def audited(child: Child, *, request: Request, options: dict[str, Any]) -> dict[str, Any]:
    """Prepare a training as a worker does, and audit its first steps."""
    import time

    spec = request.spec
    from cellrepro.determinism import seeding
    from cellrepro.images.folder import read_folder
    from cellrepro.model.network import build
    from cellrepro.model.training import Loop
    from cellrepro.trace.flips import REPLAYS, STEPS, SUSPECTS, audit
    from cellrepro.trace.torch_warnings import determinism_warnings

    for name, default in (("steps", STEPS), ("replays", REPLAYS), ("suspects", SUSPECTS)):
        options[name] = default if options[name] is None else options[name]
    folder = read_folder(request.data)
    with child.prepared() as device:
        network = build(request.model, seed=spec.seed, device=device, dtype="float32")
        seeding.seed_everything(spec.seed)
        child.phase("images and flows")
        loop = Loop(
            network,
            folder.train,
            (),
            n_epochs=options["steps"] + 2,
            learning_rate=spec.learning_rate,
            batch_size=spec.batch_size,
            # The first epoch, in which Cellpose's learning rate is 0, is over before the audit.
            images_per_epoch=_WARM_UP * spec.batch_size,
            data_seed=spec.data_seed,
        )
        for _ in range(_WARM_UP):  # the first steps set memory and kernels up
            started = time.perf_counter()
            loop.step()
            plain = time.perf_counter() - started

        rates = []
        before = [parameter.detach().clone() for parameter in network.parameters()]

        def step() -> None:
            loop.step()
            rates.append(loop.optimizer.param_groups[0]["lr"])
            child.phase(f"step {loop.training.n_steps} audited")

        started = time.perf_counter()
        found = audit(
            step,
            steps=options["steps"],
            replays=options["replays"],
            suspects=options["suspects"],
            threads=options["threads"],
            model=network,
        )
        audited = (time.perf_counter() - started) / options["steps"]
        both = zip(before, network.parameters(), strict=True)
        n_moved = sum(int((old != new).sum()) for old, new in both)
    child.phase("what PyTorch warns of")
    warned = determinism_warnings(loop.step, model=network)
    return {
        "ops": [asdict(op) for op in found.ops],
        "warnings": [asdict(warning) for warning in warned],
        "n_steps": found.n_steps,
        "n_calls": found.n_calls,
        "n_replayed": found.n_replayed,
        "n_replays": found.n_replays,
        "n_followed": found.n_followed,
        "threads": found.threads,
        "kinds": found.kinds,
        "replays": found.replays,
        "not_replayed": found.not_replayed,
        "groups": [asdict(group) for group in found.groups],
        "learning_rates": rates,
        "n_moved": n_moved,
        "seconds": {"plain": plain, "audited": audited},
        "sentence": found.sentence() + _updates(rates, n_moved),
    }


_WARM_UP = 2  # steps


def _updates(rates: list[float], n_moved: int) -> str:
    """What the audited steps updated, in words."""
    if n_moved == 0:
        return "; vacuous for the updates, which changed no weight"
    return f"; learning rates {min(rates):.2g} to {max(rates):.2g}, {n_moved} weights moved"
