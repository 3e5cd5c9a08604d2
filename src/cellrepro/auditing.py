"""Audit of Cellpose's own training steps on a folder of images, in a process of its own.

Answers the third and the fifth question: at which operation do equal inputs part, does PyTorch
warn of it, is there a substitute, and what does it do to the cells.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cellrepro import child
from cellrepro.child import Events
from cellrepro.control import profiles
from cellrepro.effects import Effect, effect
from cellrepro.errors import BadInput
from cellrepro.record.spec import Spec
from cellrepro.run import Plan, plan_training, started_with
from cellrepro.show.progress import progress
from cellrepro.worker import Request


@dataclass(frozen=True)
class Row:
    """One operation at one place, with all that is known of it.

    Attributes
    ----------
    op, module, source, phase : str
        As in `cellrepro.record.operations.Place`.
    flips, replays : int
        Replays that gave other bits, of those made; 0 of 0 where nothing was replayed.
    warned : bool
        Whether PyTorch warns of it.
    substitute : str or None
        What mode ``strict`` puts in its place.
    max_abs : float
        Largest difference, in the units of the operation's output.
    n_elements, calls : int
        Most elements that differed in one replay; calls in the audited steps.
    reason, remedy : str
        From the documentation, and what is known beyond it.
    effect : Effect or None
        What it does to weights and cells when it alone is loose.
    """

    op: str
    module: str | None
    source: str | None
    phase: str
    flips: int
    replays: int
    warned: bool
    substitute: str | None
    max_abs: float
    n_elements: int
    calls: int
    reason: str
    remedy: str
    effect: Effect | None = None


@dataclass(frozen=True)
class TrainingAudit:
    """What the audit of a training found.

    Attributes
    ----------
    spec : Spec
        Whose training was audited.
    ops : tuple of Row
        Operations whose bits flip, most flips first.
    warnings : tuple of Row
        Operations that PyTorch warns of, flipping or not; from one step in mode ``warn``.
    n_steps, n_calls, n_replayed, n_replays, threads : int
        Over how much; see `cellrepro.record.audit.Audit`.
    seconds : dict of str to float
        ``plain`` for one step as it is, ``audited`` for one under audit.
    sentence : str
    """

    spec: Spec
    ops: tuple[Row, ...]
    warnings: tuple[Row, ...]
    n_steps: int
    n_calls: int
    n_replayed: int
    n_replays: int
    threads: int
    kinds: dict[str, int]
    not_replayed: dict[str, int]
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
    steps: int = 3,
    replays: int = 4,
    suspects: int = 200,
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
    steps : int
        Training steps to audit.
    replays : int
        How often each operation is run again on equal inputs.
    suspects : int
        How often, if more, those that have a substitute or are documented to race.
    threads : int, optional
        CPU threads, instead of the profile's.
    effect_repeats : int
        For each operation that flips, train that many times with it alone left loose, and as
        many with none; 0 leaves that out, 2 or more say what it does to the cells.
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
        if not whole and not (name == "threads" and number is None):
            raise BadInput(f"{name} is {number!r}; expected a whole number, {least} or more")
    if isinstance(effect_repeats, bool) or effect_repeats < 0 or effect_repeats == 1:
        raise BadInput(
            f"effect_repeats is {effect_repeats!r}; expected 0 for none, or 2 or more to compare"
        )
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
    answer = _audited(plan, {**numbers, "data": str(plan.data.resolve())}, quiet=quiet)
    rows = [Row(**row) for row in answer.pop("ops")]
    effects: dict[str, Effect] = {}
    if effect_repeats:
        for row in rows:
            if row.op not in effects:
                effects[row.op] = effect(
                    data,
                    row.op,
                    repeats=effect_repeats,
                    epochs=effect_epochs,
                    model=model,
                    seed=seed,
                    data_seed=data_seed,
                    batch_size=batch_size,
                    images_per_epoch=images_per_epoch,
                    profile=profile,
                    store=store,
                    quiet=quiet,
                )
    return TrainingAudit(
        spec=plan.spec,
        ops=tuple(Row(**{**asdict(row), "effect": effects.get(row.op)}) for row in rows),
        warnings=tuple(Row(**row) for row in answer.pop("warnings")),
        **answer,
    )


def _audited(plan: Plan, options: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    profile = profiles.Profile(**plan.spec.profile_settings)
    request = Request(plan.spec, 0, Path(), plan.data.resolve(), plan.model)
    with progress(options["steps"] + 3, "audit", quiet=quiet) as bar:
        return child.call(
            "cellrepro.auditing",
            json.dumps({"request": request.to_json(), **options}),
            environment=profile.child_environment(started_with(plan.spec)),
            label="audit",
            on_event=lambda event: bar.advance(event["name"]),
        )


# -- inside the child ----------------------------------------------------------------------


def _work(text: str, events: Events) -> dict[str, Any]:
    """Prepare a training as a worker does, and audit its first steps."""
    import time

    options = json.loads(text)
    request = Request.from_json(options["request"])
    spec = request.spec
    profile = profiles.Profile(**spec.profile_settings)
    events.tell("phase", name="import")
    from cellrepro.cells.images import read_folder
    from cellrepro.cells.network import build, import_cellpose
    from cellrepro.cells.training import Loop
    from cellrepro.control import determinism, seeding
    from cellrepro.record.audit import audit
    from cellrepro.record.warned import determinism_warnings

    import_cellpose()
    device = profile.enter()
    folder = read_folder(request.data)
    with determinism.mode_in_force(spec.mode, tf32=profile.tf32, device=profile.device):
        network = build(request.model, seed=spec.seed, device=device, dtype="float32")
        seeding.seed_everything(spec.seed)
        events.tell("phase", name="images and flows")
        loop = Loop(
            network,
            folder.train,
            (),
            n_epochs=options["steps"] + 4,
            learning_rate=spec.learning_rate,
            batch_size=spec.batch_size,
            images_per_epoch=max(spec.images_per_epoch or 0, 4 * spec.batch_size),
            data_seed=spec.data_seed,
        )
        for _ in range(2):  # the first steps set memory and kernels up
            started = time.perf_counter()
            loop.step()
            plain = time.perf_counter() - started

        def step() -> None:
            loop.step()
            events.tell("phase", name=f"step {loop.training.n_steps} audited")

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
    events.tell("phase", name="what PyTorch warns of")
    warned = determinism_warnings(loop.step, model=network)
    return {
        "ops": [
            {name: value for name, value in asdict(op).items() if name != "outputs"}
            for op in found.ops
        ],
        "warnings": [
            {
                "op": warning.op or warning.alert,
                "module": warning.module,
                "source": warning.source,
                "phase": warning.phase or "forward",
                "flips": 0,
                "replays": 0,
                "warned": True,
                "substitute": warning.substitute,
                "max_abs": 0.0,
                "n_elements": 0,
                "calls": warning.count,
                "reason": warning.reason,
                "remedy": warning.remedy,
            }
            for warning in warned
        ],
        "n_steps": found.n_steps,
        "n_calls": found.n_calls,
        "n_replayed": found.n_replayed,
        "n_replays": found.n_replays,
        "threads": found.threads,
        "kinds": found.kinds,
        "not_replayed": found.not_replayed,
        "seconds": {"plain": plain, "audited": audited},
        "sentence": found.sentence(),
    }


if __name__ == "__main__":
    sys.exit(child.serve(_work))
