"""One spec carried out: every repeat in a process of its own, stored whole, then judged."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cellrepro.compare.verdicts import Judgement, judge
from cellrepro.determinism import profiles
from cellrepro.errors import BadInput
from cellrepro.images.folder import ImageFolder, read_folder
from cellrepro.lab import process
from cellrepro.lab.keeping import Keeping
from cellrepro.lab.machine import HOLD_VARIABLE, machine_here
from cellrepro.lab.worker import Request, segmented_part
from cellrepro.model.network import (
    LEARNING_RATES,
    TINY,
    TINY_DRAWS_PER_EPOCH,
    ModelSource,
    find_model,
)
from cellrepro.model.training import trains_nothing
from cellrepro.progress import progress
from cellrepro.store.checkpoints import folders
from cellrepro.store.spec import Spec, make_spec
from cellrepro.store.store import Repeat, Store


@dataclass(frozen=True)
class Plan:
    """A spec and what is needed to carry it out on this machine.

    Attributes
    ----------
    spec : Spec
    data : Path
        The folder of images.
    folder : ImageFolder
        The same, read and found good.
    model : ModelSource
    notices : tuple of str
        What the user should know before it starts.
    profile : Profile
        With the device as asked for; the spec has its kind.
    """

    spec: Spec
    data: Path
    folder: ImageFolder
    model: ModelSource
    notices: tuple[str, ...]
    profile: profiles.Profile

    @property
    def request(self) -> Request:
        """All that a process needs to carry it out."""
        return Request(self.spec, self.data.resolve(), self.model, self.profile.device)

    @property
    def machine(self) -> str:
        """The name of this machine under the profile; found out once."""
        return machine_here(self.profile).name


@dataclass(frozen=True)
class Outcome:
    """All repeats of one spec on this machine, and whether they came out the same."""

    plan: Plan
    store: Store
    repeats: tuple[Repeat, ...]
    judgement: Judgement

    @property
    def spec(self) -> Spec:
        """What was asked for."""
        return self.plan.spec

    @property
    def key(self) -> str:
        """The spec's key, the name of the run."""
        return self.spec.key

    @property
    def folder(self) -> Path:
        """Where the run is, or will be once the grid has stored it."""
        return self.store.root / "runs" / self.key


def plan_training(
    data: str | Path,
    *,
    model: str = TINY,
    seed: int = 0,
    data_seed: int | Literal["cellpose"] = "cellpose",
    epochs: int = 12,
    batch_size: int = 1,
    learning_rate: float | None = None,
    images_per_epoch: int | None = None,
    profile: str = "cpu",
    mode: str = "strict",
    ledger: str = "steps",
    loose: str | None = None,
    store: str | Path = "outputs",
) -> Plan:
    """Check everything a training needs and name its spec; writes nothing.

    The parameters are those of `train`.
    """
    folder = read_folder(data)
    source = find_model(model, Store(store))
    if images_per_epoch is None and source.architecture == TINY:
        images_per_epoch = max(TINY_DRAWS_PER_EPOCH, len(folder.train))
    spec = make_spec(
        task="train",
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=LEARNING_RATES[source.architecture]
        if learning_rate is None
        else learning_rate,
        images_per_epoch=images_per_epoch,
        loose=None if loose is None else _known_operation(loose),
        ledger=ledger,
        **_common(data, folder, source, seed=seed, data_seed=data_seed, profile=profile, mode=mode),
    )
    if spec.epochs < 1:
        raise BadInput(f"epochs is {epochs}; expected 1 or more (2 or more train something)")
    notices = list(folder.warnings)
    why = trains_nothing(spec.epochs, spec.learning_rate)
    if why is not None:
        notices.append(f"this run will be vacuous: {why}")
    return Plan(spec, Path(data), folder, source, tuple(notices), profiles.load(profile))


def plan_segmentation(
    data: str | Path,
    *,
    model: str = TINY,
    seed: int = 0,
    profile: str = "cpu",
    mode: str = "strict",
    ledger: str = "steps",
    store: str | Path = "outputs",
) -> Plan:
    """Check everything a segmentation needs and name its spec; writes nothing.

    The parameters are those of `segment`.
    """
    folder = read_folder(data, need_masks=False, need_train=False)
    source = find_model(model, Store(store))
    spec = make_spec(
        task="segment",
        ledger=ledger,
        **_common(
            data, folder, source, seed=seed, data_seed="cellpose", profile=profile, mode=mode
        ),
    )
    notices = list(folder.warnings)
    if source.label == TINY:
        notices.append(
            "tiny with its initial weights has learnt nothing and finds no cells; name a trained "
            "model (KEY/REPEAT of a run, a file, a Cellpose name)"
        )
    return Plan(spec, Path(data), folder, source, tuple(notices), profiles.load(profile))


def train(
    data: str | Path,
    *,
    repeats: int = 2,
    quiet: bool = False,
    resume: bool = False,
    checkpoint_every: int | None = None,
    keep_checkpoints: bool = False,
    operation_steps: Sequence[int] | None = None,
    certify: bool = False,
    **parameters: Any,
) -> Outcome:
    """Train one spec ``repeats`` times, each in a process of its own, and compare the repeats.

    Repeats that this machine has stored already are not run again.

    Parameters
    ----------
    data : str or Path
        Folder in Cellpose's convention: ``train/`` and ``test/`` with ``NAME.tif`` and
        ``NAME_masks.tif``; without the two it is all training.
    repeats : int
        How often; 2 are needed for a verdict.
    quiet : bool
        Show neither progress nor notices.
    model : str
        ``tiny``, a Cellpose model name, a weights file, or ``KEY/REPEAT`` of a stored run.
    seed : int
        For Python, NumPy, PyTorch, and `tiny`'s initial weights.
    data_seed : int or "cellpose"
        For image order and augmentation; Cellpose's own seeding by default.
    epochs, batch_size : int
    learning_rate : float, optional
        Peak; by default 1e-3 for `tiny`, 1e-5 otherwise.
    images_per_epoch : int, optional
        Draws per epoch; by default at least 48 for `tiny`, every image once otherwise.
    profile : str
        Name or ``.yaml`` file.
    mode : str
        ``fast``, ``warn`` or ``strict``.
    ledger : str
        ``steps`` digests everything that goes into each step and comes out of it, ``ops`` every
        operation too, ``off`` nothing.
    loose : str, optional
        One operation, ``index_put`` for example, that mode ``strict`` leaves as it is.
    store : str or Path
        Where runs are kept.
    resume : bool
        Go on with a training of this spec that was killed, from its last checkpoint; the result
        is that of the uninterrupted one.
    checkpoint_every : int, optional
        Epochs between checkpoints, 0 for none; by default 1 for `tiny`, 10 otherwise. Only the
        last is kept, until the repeat is finished.
    keep_checkpoints : bool
        Store every checkpoint with the finished repeat.
    operation_steps : sequence of int, optional
        The steps whose operations ``ledger="ops"`` writes down; all by default.
    certify : bool
        Train again without any ledger, and with every kind of watching, and store with the repeat
        whether all ended in the same bits.

    Returns
    -------
    Outcome

    Raises
    ------
    BadInput
        If anything given cannot be used; nothing is written.
    NotPossibleHere
        If this machine lacks the device, memory or disk.
    """
    plan = plan_training(data, **parameters)
    every = epochs_between_checkpoints(plan, checkpoint_every, keep=keep_checkpoints)
    keeping = Keeping(
        resume=resume,
        checkpoint_every=every,
        keep_checkpoints=keep_checkpoints,
        operation_steps=_operation_steps(operation_steps, plan.spec),
        certify=certify,
    )
    return carry_out(
        plan,
        store=Store(parameters.get("store", "outputs")),
        repeats=repeats,
        quiet=quiet,
        keeping=keeping,
    )


def segment(
    data: str | Path, *, repeats: int = 3, quiet: bool = False, **parameters: Any
) -> Outcome:
    """Segment the same images ``repeats`` times, each in a process of its own, and compare.

    Parameters are those of `train` that concern no training; masks need not exist.
    """
    return carry_out(
        plan_segmentation(data, **parameters),
        store=Store(parameters.get("store", "outputs")),
        repeats=repeats,
        quiet=quiet,
    )


def carry_out(
    plan: Plan,
    *,
    store: Store,
    repeats: int,
    quiet: bool = False,
    keeping: Keeping | None = None,
) -> Outcome:
    """Run the repeats of a plan that the store lacks of this machine, and judge all of them."""
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise BadInput(f"repeats is {repeats!r}; expected a whole number, 1 or more")
    if not quiet:
        for notice in (*plan.notices, *replaced(plan)):
            print(f"note: {notice}", file=sys.stderr)
    keeping = keeping or Keeping()
    if HOLD_VARIABLE in os.environ:  # a grid that is started again goes on where it was
        keeping = replace(keeping, resume=True)
    elif keeping.resume:
        _refuse_nothing_to_resume(plan, store)
    here = _started_for(plan)  # before anything looks at the machine
    done = [
        _repeat(plan, store, index, keeping, repeats=repeats, quiet=quiet, here=here)
        for index in range(repeats)
    ]
    return Outcome(plan, store, tuple(done), judge([repeat.manifest for repeat in done]))


def _started_for(plan: Plan) -> bool:
    """Whether the grid started this process for one repeat, and nothing was computed in it yet.

    Then a worker beside it would only load PyTorch and Cellpose a second time.
    """
    if HOLD_VARIABLE not in os.environ or sys.modules.keys() & {"torch", "cellpose"}:
        return False
    try:
        profiles.require_at_startup({**plan.profile.variables(), **started_with(plan.spec)})
    except BadInput:
        return False
    return True


def _repeat(
    plan: Plan,
    store: Store,
    index: int,
    keeping: Keeping,
    *,
    repeats: int,
    quiet: bool,
    here: bool,
) -> Repeat:
    present = store.repeat(plan.spec.key, plan.machine, index)
    if present is not None:
        return present
    label = f"{plan.spec.task} repeat {index + 1}/{repeats}"
    held = os.environ.get(HOLD_VARIABLE)
    with _unfinished(plan, store, index, keeping, quiet=quiet) as kept:
        if held:
            folder = Path(held)
            folder.mkdir()
            _work(plan, index, folder, kept, label=label, quiet=quiet, here=here)
            return Repeat(folder)
        with store.staging() as area:
            folder = area / "repeat"
            folder.mkdir()
            _work(plan, index, folder, kept, label=label, quiet=quiet)
            return store.commit(folder, plan.spec)


@contextmanager
def _unfinished(
    plan: Plan, store: Store, index: int, keeping: Keeping, *, quiet: bool
) -> Iterator[Keeping]:
    """Where this repeat leaves its checkpoints, if it makes any."""
    spec = plan.spec
    if spec.task != "train" or not (keeping.checkpoint_every or keeping.resume):
        yield keeping
        return
    with store.unfinished(spec, plan.machine, index) as folder:
        if folder is None:
            print(
                f"note: another process is at repeat {index} of {spec.key}; this one leaves no "
                "checkpoints",
                file=sys.stderr,
            )
            yield replace(keeping, resume=False, checkpoint_every=0, keep_checkpoints=False)
            return
        last = folders(folder)[-1:]
        if last and not quiet:
            done = int(last[0].name.rpartition("-")[2])
            print(f"note: {_about_unfinished(done, spec, keeping)}", file=sys.stderr)
        yield replace(keeping, unfinished=str(folder.resolve()))


def _about_unfinished(n_epochs: int, spec: Spec, keeping: Keeping) -> str:
    done = f"{n_epochs} of {spec.epochs} epochs were done when this training was killed"
    if not keeping.resume:
        return f"{done}; it starts anew (--resume would have gone on)"
    from cellrepro.determinism.known_operations import may_race

    settings = spec.profile_settings
    race = may_race(
        spec.mode, device=settings["device"], threads=settings.get("threads"), loose=spec.loose
    )
    return f"{done}; it goes on" + (f", but not surely to the same bits: {race}" if race else "")


def _refuse_nothing_to_resume(plan: Plan, store: Store) -> None:
    """Refuse to resume where only trainings of other specs or machines are unfinished."""
    spec, unfinished = plan.spec, store.unfinished_specs()
    here = f"{spec.key}/{plan.machine}"
    begun = any(name.startswith(f"{here}/") for name in unfinished)
    if not unfinished or begun or (store.root / "runs" / here).exists():
        return
    elsewhere = sorted(name for name in unfinished if name.startswith(f"{spec.key}/"))
    if elsewhere:
        raise BadInput(
            f"nothing of {here} is there to be resumed, only {', '.join(elsewhere)}, and other "
            "machines compute other bits; go on there, or train without --resume"
        )
    asked = spec.model_dump(mode="json")
    differing = {
        name: [field for field in asked if asked[field] != other.get(field)]
        for name, other in unfinished.items()
    }
    nearest = min(differing, key=lambda name: len(differing[name]))
    there = unfinished[nearest]
    raise BadInput(
        f"nothing of {spec.key} is there to be resumed; the unfinished training {nearest} differs "
        "from what is asked for: "
        + "; ".join(
            f"{n} is {there.get(n)!r} there and {asked[n]!r} here" for n in differing[nearest]
        )
        + "; ask for that, or train without --resume"
    )


def epochs_between_checkpoints(plan: Plan, asked: int | None, *, keep: bool) -> int:
    """The number of epochs, 0 for no checkpoints.

    Parameters
    ----------
    plan : Plan
        Of a training; its model decides where nothing is asked for.
    asked : int, optional
    keep : bool
        Whether all of them are to be stored.

    Raises
    ------
    BadInput
        If that is no number of epochs, or none are to be kept.
    """
    every = asked
    if every is None:
        every = 1 if plan.model.architecture == TINY else 10
    if isinstance(every, bool) or not isinstance(every, int) or every < 0:
        raise BadInput(f"checkpoint_every is {every!r}; expected a number of epochs, 0 for none")
    if not isinstance(keep, bool):
        raise BadInput(f"keep_checkpoints is {keep!r}; expected true or false")
    if keep and not every:
        raise BadInput(
            "keep_checkpoints asks for checkpoints and checkpoint_every, 0, for none; give the "
            "epochs between them, 1 or more"
        )
    return every


def _operation_steps(asked: Sequence[int] | None, spec: Spec) -> tuple[int, ...] | None:
    if asked is None:
        return None
    if spec.ledger != "ops":
        raise BadInput(
            f"operation_steps is {list(asked)}, but ledger is {spec.ledger!r}; operations are "
            "written down with ledger 'ops'"
        )
    for step in asked:
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise BadInput(f"operation_steps holds {step!r}; expected numbers of steps, from 0")
    return tuple(asked)


def _work(
    plan: Plan,
    index: int,
    folder: Path,
    keeping: Keeping,
    *,
    label: str,
    quiet: bool,
    here: bool = False,
) -> None:
    """Have a worker do one repeat, with the profile's environment, and show how it goes.

    With `here` this process has that environment and does it itself.
    """
    total = plan.spec.epochs + len(segmented_part(plan.folder)[1])
    with progress(total, label, quiet=quiet) as bar:
        show: dict[str, Callable[[dict[str, Any]], None]] = {
            "phase": lambda event: bar.note(event["name"]),
            "epoch": lambda event: bar.advance(
                f"epoch {event['index'] + 1}/{plan.spec.epochs}, "
                f"loss {event['train_loss']:.3f}, learning rate {event['learning_rate']:.1e}"
            ),
            "image": lambda event: bar.advance(f"{event['name']}: {event['n_objects']} objects"),
            "note": lambda event: bar.say(f"note: {event['text']}"),
        }

        def told(event: dict[str, Any]) -> None:
            show[event["event"]](event)

        process.call(
            "cellrepro.lab.worker:carry_out",
            plan.request.setup,
            label=label,
            on_event=told,
            here=here,
            request=plan.request,
            repeat=index,
            staged=folder,
            keeping=keeping,
        )


def started_with(spec: Spec) -> dict[str, str]:
    """The variables a spec needs beside those of its profile."""
    return profiles.startup_variables(spec.seed, mode=spec.mode)


def replaced(plan: Plan) -> list[str]:
    """What of the caller's environment a plan's processes are not started with, in a sentence."""
    return plan.profile.replaced(started_with(plan.spec))


def _common(
    data: str | Path,
    folder: ImageFolder,
    source: ModelSource,
    *,
    seed: int,
    data_seed: int | str,
    profile: str,
    mode: str,
) -> dict[str, Any]:
    settings = profiles.load(profile)
    return {
        "data": Path(data).resolve().name,
        "data_digest": folder.digest,
        "model": source.label,
        "model_digest": source.digest,
        "seed": seed,
        "data_seed": data_seed,
        "profile": settings.name,
        "profile_settings": settings.model_dump(mode="json", exclude={"description"}),
        "mode": mode,
    }


def _known_operation(name: str) -> str:
    from cellrepro.determinism import known_operations, substitutes

    base = known_operations.base_name(name)
    held = {
        known_operations.base_name(op) for entry in known_operations.entries() for op in entry.ops
    }
    held |= {op for item in substitutes.SUBSTITUTES for op in item.replaces}
    if base not in held:
        raise BadInput(
            f"loose is {name!r}, an operation that mode strict does not hold; expected one that "
            f"the audit names, or one of {', '.join(sorted(held))}"
        )
    return base
