"""One spec carried out: every repeat in a process of its own, stored whole, then judged."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cellrepro.compare.verdicts import Judgement, judge
from cellrepro.determinism import profiles
from cellrepro.errors import BadInput, whole
from cellrepro.images.folder import ImageFolder, read_folder
from cellrepro.lab import defaults
from cellrepro.lab.checkpointing import Keeping
from cellrepro.lab.machine import HOLD_VARIABLE, machine_here
from cellrepro.lab.process import Event, call
from cellrepro.lab.worker import Request, segmented_part
from cellrepro.model.network import LEARNING_RATES, TINY, TINY_DRAWS_PER_EPOCH, find_model
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
    request : Request
        The spec, where its images and weights are, and the device.
    folder : ImageFolder
        The images, read and found good.
    notices : tuple of str
        What the user should know before it starts.
    profile : Profile
        With the device as asked for; the spec has its kind.
    """

    request: Request
    folder: ImageFolder
    notices: tuple[str, ...]
    profile: profiles.Profile

    @property
    def spec(self) -> Spec:
        """What was asked for."""
        return self.request.spec

    @property
    def machine(self) -> str:
        """The name of this machine under the profile; found out once."""
        return machine_here(self.profile).name

    def replaced(self) -> list[str]:
        """What of the caller's environment its processes are not started with, in a sentence."""
        return self.profile.replaced(self.request.setup.variables())


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


# -- planned -------------------------------------------------------------------------------


def plan_training(
    data: str | Path,
    *,
    model: str = defaults.MODEL,
    epochs: int = defaults.EPOCHS,
    batch_size: int = defaults.BATCH_SIZE,
    learning_rate: float | None = None,
    images_per_epoch: int | None = None,
    loose: str | None = None,
    store: str | Path = defaults.STORE,
    **common: Any,
) -> Plan:
    """Check everything a training needs and name its spec; writes nothing.

    The parameters are those of `train`.
    """
    folder, source = read_folder(data), find_model(model, Store(store))
    if images_per_epoch is None and source.architecture == TINY:
        images_per_epoch = max(TINY_DRAWS_PER_EPOCH, len(folder.train))
    if learning_rate is None:
        learning_rate = LEARNING_RATES[source.architecture]
    plan = _plan(
        data,
        folder,
        source,
        **common,
        task="train",
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        images_per_epoch=images_per_epoch,
        loose=None if loose is None else _held_operation(loose),
    )
    if plan.spec.epochs < 1:
        raise BadInput(f"epochs is {epochs}; expected 1 or more (2 or more train something)")
    why = trains_nothing(plan.spec.epochs, plan.spec.learning_rate)
    if why is None:
        return plan
    return replace(plan, notices=(*plan.notices, f"this run will be vacuous: {why}"))


def plan_segmentation(
    data: str | Path,
    *,
    model: str = defaults.MODEL,
    store: str | Path = defaults.STORE,
    **common: Any,
) -> Plan:
    """Check everything a segmentation needs and name its spec; writes nothing.

    The parameters are those of `segment`.
    """
    folder = read_folder(data, need_masks=False, need_train=False)
    source = find_model(model, Store(store))
    plan = _plan(data, folder, source, **common, task="segment")
    if source.label != TINY:
        return plan
    notice = (
        "tiny with its initial weights has learnt nothing and finds no cells; name a trained "
        "model (KEY/REPEAT of a run, a file, a Cellpose name)"
    )
    return replace(plan, notices=(*plan.notices, notice))


def _plan(
    data: str | Path,
    folder: ImageFolder,
    source: Any,
    *,
    seed: int = defaults.SEED,
    data_seed: int | Literal["cellpose"] = "cellpose",
    profile: str = defaults.PROFILE,
    mode: str = defaults.MODE,
    ledger: str = defaults.LEDGER,
    **fields: Any,
) -> Plan:
    settings = profiles.load(profile)
    place = Path(data).resolve()
    spec = make_spec(
        data=place.name,
        data_digest=folder.digest,
        model=source.label,
        model_digest=source.digest,
        seed=seed,
        data_seed=data_seed,
        profile=settings.name,
        profile_settings=settings.model_dump(mode="json", exclude={"description"}),
        mode=mode,
        ledger=ledger,
        **fields,
    )
    request = Request(spec, place, source, settings.device)
    return Plan(request, folder, tuple(folder.warnings), settings)


def _held_operation(name: str) -> str:
    """The plain name of an operation that mode ``strict`` holds."""
    from cellrepro.determinism import known_operations, substitutes

    plain = known_operations.base_name
    held = {plain(op) for entry in known_operations.entries() for op in entry.ops}
    held |= {op for item in substitutes.SUBSTITUTES for op in item.replaces}
    if plain(name) not in held:
        raise BadInput(
            f"loose is {name!r}, an operation that mode strict does not hold; expected one that "
            f"the audit names, or one of {', '.join(sorted(held))}"
        )
    return plain(name)


# -- carried out ---------------------------------------------------------------------------


def train(
    data: str | Path,
    *,
    repeats: int = defaults.TRAININGS,
    quiet: bool = False,
    resume: bool = False,
    checkpoint_every: int | None = None,
    keep_checkpoints: bool = False,
    operation_steps: Sequence[int] | None = None,
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
    """
    plan = plan_training(data, **parameters)
    keeping = Keeping(
        resume=resume,
        checkpoint_every=epochs_between_checkpoints(plan, checkpoint_every, keep=keep_checkpoints),
        keep_checkpoints=keep_checkpoints,
        operation_steps=_operation_steps(operation_steps, plan.spec),
    )
    store = Store(parameters.get("store", defaults.STORE))
    return carry_out(plan, store=store, repeats=repeats, quiet=quiet, keeping=keeping)


def segment(
    data: str | Path,
    *,
    repeats: int = defaults.SEGMENTATIONS,
    quiet: bool = False,
    **parameters: Any,
) -> Outcome:
    """Segment the same images ``repeats`` times, each in a process of its own, and compare.

    Parameters are those of `train` that concern no training; masks need not exist.
    """
    plan = plan_segmentation(data, **parameters)
    store = Store(parameters.get("store", defaults.STORE))
    return carry_out(plan, store=store, repeats=repeats, quiet=quiet)


def carry_out(
    plan: Plan,
    *,
    store: Store,
    repeats: int,
    quiet: bool = False,
    keeping: Keeping = Keeping(),  # noqa: B008, it cannot be changed
) -> Outcome:
    """Run the repeats of a plan that the store lacks of this machine, and judge all of them."""
    whole("repeats", repeats, least=1)
    if not quiet:
        for notice in (*plan.notices, *plan.replaced()):
            _note(notice)
    if HOLD_VARIABLE in os.environ:  # a grid that is started again goes on where it was
        keeping = replace(keeping, resume=True)
    elif keeping.resume:
        _refuse_nothing_to_resume(plan, store)
    here = computes_here(plan)  # before anything looks at the machine
    done = []
    for index in range(repeats):
        repeat = store.repeat(plan.spec.key, plan.machine, index)
        if repeat is None:
            label = f"{plan.spec.task} repeat {index + 1}/{repeats}"
            with _unfinished(plan, store, index, keeping, quiet=quiet) as kept:
                repeat = _run(plan, store, index, kept, label=label, quiet=quiet, here=here)
        done.append(repeat)
    return Outcome(plan, store, tuple(done), judge([repeat.manifest for repeat in done]))


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def computes_here(plan: Plan) -> bool:
    """Whether the grid started this process for one repeat, and nothing was computed in it yet.

    Then a worker beside it would only load PyTorch and Cellpose a second time.
    """
    if HOLD_VARIABLE not in os.environ or sys.modules.keys() & {"torch", "cellpose"}:
        return False
    variables = {**plan.profile.variables(), **plan.request.setup.variables()}
    try:
        profiles.require_at_startup(variables)
    except BadInput:
        return False
    return True


def _run(
    plan: Plan, store: Store, index: int, keeping: Keeping, *, label: str, quiet: bool, here: bool
) -> Repeat:
    """Have one repeat made and stored; the grid stores its own, where the notebook left it."""
    held = os.environ.get(HOLD_VARIABLE)
    if held:
        Path(held).mkdir()
        _work(plan, index, Path(held), keeping, label=label, quiet=quiet, here=here)
        return Repeat(Path(held))
    with store.staging() as area:
        folder = area / "repeat"
        folder.mkdir()
        _work(plan, index, folder, keeping, label=label, quiet=quiet)
        return store.commit(folder, plan.spec)


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
    """Have a worker do one repeat, and show how it goes."""
    total = plan.spec.epochs + len(segmented_part(plan.folder)[1])
    with progress(total, label, quiet=quiet) as bar:

        def told(event: Event) -> None:
            match event["event"]:
                case "phase":
                    bar.note(event["name"])
                case "epoch":
                    bar.advance(
                        f"epoch {event['index'] + 1}/{plan.spec.epochs}, "
                        f"loss {event['train_loss']:.3f}, learning rate "
                        f"{event['learning_rate']:.1e}"
                    )
                case "image":
                    bar.advance(f"{event['name']}: {event['n_objects']} objects")
                case "note":
                    bar.say(f"note: {event['text']}")

        call(
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


# -- checkpoints ---------------------------------------------------------------------------


def epochs_between_checkpoints(plan: Plan, asked: int | None, *, keep: bool) -> int:
    """The number of epochs, 0 for no checkpoints; the model decides where nothing is asked for."""
    if asked is None:
        asked = defaults.CHECKPOINT_EVERY[plan.request.model.architecture]
    every = whole("checkpoint_every", asked, least=0)
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
    if not asked:
        raise BadInput(
            "operation_steps holds no step; expected steps counted from 0, such as 0,17 or 0-9, "
            "the lower one first"
        )
    if spec.ledger != "ops":
        raise BadInput(
            f"operation_steps is {list(asked)}, but ledger is {spec.ledger!r}; operations are "
            "written down with ledger 'ops'"
        )
    return tuple(whole("a step of operation_steps", step, least=0) for step in asked)


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
            _note(
                f"another process is at repeat {index} of {spec.key}; this one leaves no "
                "checkpoints"
            )
            yield replace(keeping, resume=False, checkpoint_every=0, keep_checkpoints=False)
            return
        last = folders(folder)[-1:]
        if last and not quiet:
            _note(_about_unfinished(int(last[0].name.rpartition("-")[2]), spec, keeping))
        yield replace(keeping, unfinished=folder.resolve())


def _about_unfinished(n_epochs: int, spec: Spec, keeping: Keeping) -> str:
    from cellrepro.determinism.known_operations import may_race

    done = f"{n_epochs} of {spec.epochs} epochs were done when this training was killed"
    if not keeping.resume:
        return f"{done}; it starts anew (--resume would have gone on)"
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
        name: [
            f"{field} is {other.get(field)!r} there and {value!r} here"
            for field, value in asked.items()
            if value != other.get(field)
        ]
        for name, other in unfinished.items()
    }
    nearest = min(differing, key=lambda name: len(differing[name]))
    raise BadInput(
        f"nothing of {spec.key} is there to be resumed; the unfinished training {nearest} differs "
        f"from these settings: {'; '.join(differing[nearest])}; ask for that, or train without "
        "--resume"
    )
