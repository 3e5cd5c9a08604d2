"""One spec carried out: every repeat in a process of its own, stored whole, then judged."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, get_args

from cellrepro.asked import defaults
from cellrepro.asked.spec import Spec, make_spec
from cellrepro.determinism import profiles
from cellrepro.determinism.known_operations import base_name, entries
from cellrepro.errors import BadInput, whole
from cellrepro.images.decoding import FLAT
from cellrepro.model.network import (
    LEARNING_RATES,
    SMALL,
    SMALL_DRAWS_PER_EPOCH,
    ModelSource,
    started_from,
)
from cellrepro.model.segmentation_limits import refuse_impossible
from cellrepro.model.training_loop import learning_rates, trains_nothing
from cellrepro.process.calling import in_child
from cellrepro.process.held_repeat import HOLD_VARIABLE, folder_held_for, leave_further_run
from cellrepro.process.machine_here import machine_here
from cellrepro.progress import progress
from cellrepro.run import worker
from cellrepro.run.checkpointing import CHECKPOINTS, Keeping, Kept, last_checkpoint, lay_out
from cellrepro.run.options import SEGMENTATION, TRAINING, takes
from cellrepro.run.plan_inputs import FolderSummary, PlanInputs
from cellrepro.run.until_found import DRAWS_PER_EPOCH, FOUND, MOST_EPOCHS, Goal
from cellrepro.run.worker import Request, axes_of
from cellrepro.same.verdicts import Judgement, judge
from cellrepro.store.checkpoints import differences, folders
from cellrepro.store.store import MANIFEST, Repeat, Store
from cellrepro.words import amount


@dataclass(frozen=True)
class Plan:
    """A spec, checked, and what is needed to carry it out on this machine."""

    request: Request
    keeping: Keeping
    n_images: int  # to segment
    store: Store
    notices: tuple[str, ...]  # what the user should know before it starts

    @property
    def spec(self) -> Spec:
        """What was asked for."""
        return self.request.spec

    @property
    def profile(self) -> profiles.Profile:
        """With the device as asked for; the spec has its kind."""
        return self.request.setup.profile

    @property
    def machine(self) -> str:
        """The name of this machine under the profile; found out once."""
        return machine_here(self.profile, cellpose=self.request.setup.cellpose).name


@dataclass(frozen=True)
class Outcome:
    """All repeats of one spec on this machine, and whether they came out the same."""

    plan: Plan
    repeats: tuple[Repeat, ...]
    judgement: Judgement
    stored_before: tuple[Repeat, ...] = ()  # those of the repeats that were not run this time

    @property
    def store(self) -> Store:
        """Of the plan."""
        return self.plan.store

    @property
    def key(self) -> str:
        """The spec's key, the name of the run."""
        return self.plan.spec.key

    @property
    def folder(self) -> Path:
        """Where the run is, or will be once the grid has stored it."""
        return self.store.root / "runs" / self.key


# -- planned -------------------------------------------------------------------------------


def plan_training(
    data: str | Path,
    *,
    epochs: int = defaults.EPOCHS,
    loose: str | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    keep_checkpoints: Kept | bool = "none",
    operation_steps: Sequence[int] | None = None,
    continued_from: str | None = None,
    inputs: PlanInputs | None = None,
    **parameters: Any,
) -> Plan:
    """Check all that a training needs and name its spec; the parameters are those of `train`, and
    what was read for other plans already."""
    whole("epochs", epochs, least=1)
    words: dict[Any, Any] = {True: "all", False: "none"}  # as it was asked for before
    keep = words.get(keep_checkpoints, keep_checkpoints)
    if keep not in get_args(Kept):
        raise BadInput(f"keep_checkpoints is {keep!r}; expected none, last or all")
    held = None if loose is None else _held_operation(loose)
    if held is not None or continued_from is None:
        parameters["loose"] = held
    if continued_from is None:
        plan = plan_run("train", data, epochs=epochs, inputs=inputs, **parameters)
    else:
        known = inputs or PlanInputs()
        plan = _plan_continuation(data, continued_from, epochs, known, **parameters)
    if checkpoint_every is None:
        checkpoint_every = 1 if plan.request.model.architecture in SMALL else 10
    every, steps = whole("checkpoint_every", checkpoint_every, least=0), None
    if keep == "all" and not every:
        raise BadInput("keep_checkpoints is 'all' with 0 epochs between checkpoints; expected 1")
    if operation_steps is not None:
        steps = tuple(whole("a step of operation_steps", step, 0) for step in operation_steps)
        if plan.spec.ledger != "ops":
            raise BadInput(f"operation_steps is {steps}, and ledger is not 'ops': give both")
    _refuse_ranks(plan.spec)
    why = trains_nothing(epochs, plan.spec.learning_rate)
    notices = (*plan.notices, f"this run will be vacuous: {why}") if why else plan.notices
    resume = resume or continued_from is not None
    keeping = replace(plan.keeping, resume=resume, checkpoint_every=every, keep_checkpoints=keep)
    return replace(plan, keeping=replace(keeping, operation_steps=steps), notices=notices)


def _refuse_ranks(spec: Spec) -> None:
    """Refuse what several ranks cannot do."""
    kind = profiles.device_kind(spec.profile_settings["device"])
    problems = {
        f"batch_size is {spec.batch_size}, and each rank needs an image of every batch: give "
        f"batch_size {spec.ranks} or more": spec.batch_size < spec.ranks,
        "ledger is 'ops', which would show the operations of one rank: give 'steps'": (
            spec.ledger == "ops"
        ),
        f"a machine has one device of kind {kind!r}": kind == "mps",
    }
    found = [text for text, wrong in problems.items() if wrong]
    if spec.ranks > 1 and found:
        raise BadInput(f"ranks is {spec.ranks}; {'; '.join(found)}")


def _plan_continuation(
    data: str | Path,
    reference: str,
    epochs: int,
    inputs: PlanInputs,
    *,
    store: str | Path = defaults.STORE,
    **given: Any,
) -> Plan:
    """The plan of a finished training with more epochs; what else is given must be as it was."""
    held, place = Store(store), Path(data).resolve()
    repeat = held.find(reference)
    last, name = last_checkpoint(repeat), repeat.name
    was = repeat.spec.model_dump(mode="json")
    asked = make_spec(**{**was, **given}).model_dump(mode="json")
    folder = inputs.folder(data, to_train=True, axes=FLAT)
    asked |= {"data_digest": folder.digest, "epochs": max(epochs, last.epoch)}
    problems = differences(was, asked | {"epochs": last.epoch})
    if epochs <= last.epoch:
        problems.append(f"epochs is {last.epoch} there and {epochs} here, expected more")
    if problems:
        raise BadInput(f"{name} cannot be continued so: {'; '.join(problems)}")
    then, now = (learning_rates(n, repeat.spec.learning_rate) for n in (last.epoch, epochs))
    others, notices = [i + 1 for i, rate in enumerate(then) if rate != now[i]], folder.warnings
    spec = repeat.spec.model_copy(update={"epochs": epochs})
    if others:
        spec = spec.model_copy(update={"continued_from": name})
        notices += (
            f"{len(others)} epochs of {name} ({others[0]} to {others[-1]}) had another learning "
            f"rate than in one training of {epochs} epochs, so this is not its result; it goes on "
            f"with the rates of epochs {last.epoch + 1} to {epochs}, and is stored under a key of "
            "its own, with continued_from",
        )
    profile = profiles.Profile(**spec.profile_settings)
    request = Request(spec, place, started_from(repeat, held), profile.device)
    plan = Plan(request, Keeping(continued=repeat), folder.n_segmented, held, notices)
    if plan.machine != repeat.machine:
        raise BadInput(
            f"{name} cannot be continued here: this machine, {plan.machine}, is another one or has "
            "other versions, and half a training on each is no training that either repeats"
        )
    return plan


def plan_segmentation(
    data: str | Path,
    *,
    batch_size: int | None = None,
    settings: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Plan:
    """Check all that a segmentation needs and name its spec; parameters are those of `segment`."""
    asked = dict(settings or {})
    if batch_size is not None:
        also = asked.setdefault("batch_size", batch_size)
        if also != batch_size:
            raise BadInput(
                f"batch_size is {batch_size} and settings.batch_size {also}, which are the same "
                "thing, tiles that the network sees at once: give one of them"
            )
    plan = plan_run("segment", data, settings=asked, **parameters)
    source = plan.request.model
    if plan.spec.settings.bsize is not None and "dino" not in source.label:
        raise BadInput(f"settings.bsize is given; {source.label} takes tiles of 256 pixels only")
    if not source.untrained:
        return plan
    warning = f"{source.label} has learnt nothing yet; name a trained model (KEY/REPEAT)"
    return replace(plan, notices=(*plan.notices, warning))


def plan_run(
    task: str,
    data: str | Path,
    *,
    model: str | ModelSource = defaults.MODEL,
    store: str | Path = defaults.STORE,
    profile: str = defaults.PROFILE,
    ledger: str = defaults.LEDGER,
    inputs: PlanInputs | None = None,
    **fields: Any,
) -> Plan:
    """Check what every task needs and name its spec, whose ``fields`` are given by name; ``inputs``
    have what was read for other plans already."""
    inputs = inputs or PlanInputs()
    training = task == "train"
    place = Path(data).resolve()
    version = fields.get("cellpose")
    axes = axes_of(task, fields.get("settings"))
    folder = inputs.folder(data, to_train=training, axes=axes)
    source = model if isinstance(model, ModelSource) else inputs.model(model, store, version)
    settings = inputs.profile(profile)
    if fields.get("loose") is not None:
        fields["loose"] = _held_operation(fields["loose"])
    if training:
        if fields.get("images_per_epoch") is None and source.architecture in SMALL:
            fields["images_per_epoch"] = max(SMALL_DRAWS_PER_EPOCH, len(folder.n_labels))
        if fields.get("learning_rate") is None:
            fields["learning_rate"] = LEARNING_RATES[source.architecture]
    spec = make_spec(
        task=task,
        data=place.name,
        data_digest=folder.digest,
        model=source.label,
        model_digest=source.digest,
        profile=settings.name,
        profile_settings=settings.model_dump(mode="json", exclude={"description"}),
        ledger=ledger,
        **fields,
    )
    if training:
        _refuse_what_is_ignored(spec, folder)
    if task == "segment":
        arguments = spec.settings.arguments()
        for name, image in folder.segmented.items():
            refuse_impossible(image.shape, arguments, stack=image.stack, name=name)
    request = Request(spec, place, source, settings.device)
    notices = (*folder.warnings, *settings.replaced(request.setup.variables()))
    return Plan(request, Keeping(), folder.n_segmented, Store(store), notices)


def _refuse_what_is_ignored(spec: Spec, folder: FolderSummary) -> None:
    """Refuse arguments that Cellpose would take and ignore over these images."""
    if spec.nimg_test_per_epoch is not None and not folder.n_test:
        raise BadInput("nimg_test_per_epoch is given, and there are no test images: leave it out")
    if spec.train_probs is None:
        return
    given = dict(spec.train_probs)
    if unknown := sorted(given.keys() - folder.n_labels.keys()):
        near = ", ".join(get_close_matches(unknown[0], folder.n_labels, 3, 0.0))
        raise BadInput(f"train_probs names {unknown[0]!r}, no training image; do you mean {near}?")
    usable = folder.trainable(spec.min_train_masks)
    if not any(given.get(name, 1) for name in usable):
        raise BadInput("train_probs are 0 for every training image; expected one that is not")
    if spec.images_per_epoch in (None, len(usable)):
        raise BadInput(
            f"train_probs change nothing where each of the {len(usable)} training images is shown "
            "once an epoch, as Cellpose does by default: give images_per_epoch, another number"
        )


def _held_operation(name: str) -> str:
    """The plain name of an operation that mode ``strict`` holds."""
    from cellrepro.determinism.substitutes import SUBSTITUTES

    held = {base_name(op) for entry in entries() for op in entry.ops}
    held |= {op for item in SUBSTITUTES for op in item.replaces}
    if base_name(name) not in held:
        known = ", ".join(sorted(held))
        raise BadInput(f"loose is {name!r}, which mode strict does not hold; expected {known}")
    return base_name(name)


# -- carried out ---------------------------------------------------------------------------


@takes(*TRAINING)
def train(
    data: str | Path,
    *,
    repeats: int = defaults.TRAININGS,
    quiet: bool = False,
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
        Go on with a killed training of this spec from its last checkpoint, to the same result.
    checkpoint_every : int, optional
        Epochs between checkpoints, 0 for none; by default 1 for small networks, 10 otherwise.
    keep_checkpoints : {"none", "last", "all"}
        What is stored with the finished repeat; until then the last is kept anyway.
    continued_from : str, optional
        ``KEY/REPEAT`` of a finished training that kept its last checkpoint: go on from there to
        ``epochs``. Everything else is as it was; one repeat is added.
    operation_steps : sequence of int, optional
        Steps whose operations ``ledger="ops"`` writes down and judges; by default all, unjudged.
    model : str
        ``tiny`` (2 blocks), ``tiny-4``, ``tiny-8``, ``tiny-12``, ``vit-b`` or ``vit-l`` (the size
        of Cellpose's own) from the seed, a Cellpose model name, a weights file, or ``KEY/REPEAT``
        of a stored run.
    seed, epochs, batch_size : int
        The seed is for Python, NumPy, PyTorch, and initial weights.
    data_seed : int or "cellpose"
        For image order and augmentation; Cellpose's own seeding by default.
    learning_rate : float, optional
        Peak; by default 1e-3 for small networks, 1e-5 otherwise.
    images_per_epoch : int, optional
        Draws per epoch; by default at least 48 for small networks, every image once otherwise.
    ranks : int
        Processes that share each batch, each on a GPU of its own, or all on the processor. Another
        number gives other bits; see docs/parallel.md.
    weight_decay, min_train_masks, rescale, scale_range, normalize, nimg_test_per_epoch
        As for ``cellpose.train.train_seg``; what it takes and ignores is refused with the reason.
    train_probs : dict, optional
        How often an image is drawn, by its name; 1 for one that is not named.
    augmentation : bool
        False: every image as it is, its middle where it is larger than a crop (256 pixels).
    profile, mode : str
        A name or ``.yaml`` file; ``fast``, ``warn`` or ``strict``.
    ledger : str
        Digests of every step: ``steps``; of every operation, too: ``ops``; or ``off``.
    loose : str, optional
        One operation, ``index_put`` for example, that mode ``strict`` leaves as it is.
    store : str or Path
    """
    return carry_out(plan_training(data, **parameters), repeats=repeats, quiet=quiet)


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

    Parameters
    ----------
    data : str or Path
        Folder in Cellpose's convention, as for `train`.
    model : str
        One that starts from the seed: ``tiny``, ``tiny-4`` ...
    store : str or Path
    goal : Goal
        The score to reach, and the seconds after which the training ends in any case.
    quiet : bool
        Show neither progress nor notices.

    Returns
    -------
    Outcome
        Of one repeat, whose number of epochs is what it took.

    Raises
    ------
    BadInput
        If the folder cannot be trained on.
    """
    plan = plan_training(
        data, model=model, store=store, epochs=MOST_EPOCHS, images_per_epoch=DRAWS_PER_EPOCH
    )
    plan = replace(
        plan,
        request=replace(plan.request, goal=goal),
        keeping=replace(plan.keeping, resume=True),
    )
    repeat = _found_before(plan, goal)
    if repeat is None:
        outcome = carry_out(plan, repeats=1, quiet=quiet)
        repeat = outcome.repeats[0]
    elif not quiet:
        note(f"this network is stored already: {repeat.name}, {repeat.spec.epochs} epochs")
    plan = replace(plan, request=replace(plan.request, spec=repeat.spec))
    return Outcome(plan, (repeat,), judge([repeat.manifest]))


def _found_before(plan: Plan, goal: Goal) -> Repeat | None:
    """What this machine has stored of a training for the same goal; none if there is nothing."""
    for run in plan.store.runs():
        if run.spec.model_copy(update={"epochs": plan.spec.epochs}).key != plan.spec.key:
            continue
        repeat = plan.store.repeat(run.spec.key, plan.machine, 0)
        training = None if repeat is None else repeat.manifest.training
        until = None if training is None else training.until
        if until is not None and goal == Goal(until.score, until.seconds):
            return repeat
    return None


@takes(*SEGMENTATION)
def segment(
    data: str | Path,
    *,
    repeats: int = defaults.SEGMENTATIONS,
    quiet: bool = False,
    **parameters: Any,
) -> Outcome:
    """Segment the same images ``repeats`` times, each in a process of its own, and compare.

    Parameters are those of `train` that concern no training; masks need not exist. ``settings`` are
    arguments of ``CellposeModel.eval`` by name, ``{"diameter": 60, "normalize.sharpen": 4}``; its
    ``batch_size``, how many tiles of an image the network sees at once, may be given by itself.
    ``cellpose`` is another version in an environment of its own, ``"4.0.9"``; see docs/grids.md.
    """
    return carry_out(plan_segmentation(data, **parameters), repeats=repeats, quiet=quiet)


def carry_out(plan: Plan, *, repeats: int, quiet: bool = False) -> Outcome:
    """Run the repeats of a plan that the store lacks of this machine, and judge all of them."""
    whole("repeats", repeats, least=1)
    if not quiet:
        for notice in plan.notices:
            note(notice)
    if plan.keeping.resume:
        _refuse_nothing_to_resume(plan)
    here = computes_here(plan)  # before anything looks at the machine
    if plan.keeping.continued is not None:
        repeats = _n_with_continuation(plan, plan.keeping.continued.name)
    done = []
    stored_before = []
    for index in range(repeats):
        label = f"{plan.spec.task} repeat {index + 1}/{repeats}"
        repeat = plan.store.repeat(plan.spec.key, plan.machine, index)
        if repeat is not None:
            repeat.refuse_damage()
            stored_before.append(repeat)
        else:
            with _alone(plan, index):
                present = plan.store.repeat(plan.spec.key, plan.machine, index)
                repeat = present or _run(plan, index, label=label, quiet=quiet, here=here)
        done.append(repeat)
    if stored_before and not quiet and plan.spec.task != "wrap":  # `wrap` says more of its own
        note(_of_stored(plan, stored_before, n_asked=repeats))
    judgement = judge([repeat.manifest for repeat in done])
    return Outcome(plan, tuple(done), judgement, stored_before=tuple(stored_before))


def _of_stored(plan: Plan, stored: Sequence[Repeat], *, n_asked: int) -> str:
    """What was not run, as it is stored, and what was asked for beside it and is not there."""
    folder = stored[0].folder.parent
    are = "is" if len(stored) == 1 else "are"
    ran = "nothing was run" if len(stored) == n_asked else "only the others were run"
    text = f"{amount(len(stored), 'repeat')} of this spec {are} stored already ({folder}); {ran}"
    keeping = plan.keeping
    missing = []
    if keeping.keep_checkpoints != "none":
        n_wanted = 1
        if keeping.keep_checkpoints == "all":
            n_wanted = -(-plan.spec.epochs // keeping.checkpoint_every)
        if any(len(folders(one.folder / CHECKPOINTS)) < n_wanted for one in stored):
            missing.append("--keep-checkpoints")
    if keeping.operation_steps is not None:
        missing.append("--operation-steps")
    if missing:
        text += (
            f"; {' and '.join(missing)} changed nothing of what they hold: give another --store, "
            "or remove that folder, and train again"
        )
    return text


def _alone(plan: Plan, index: int) -> AbstractContextManager[None]:
    """Wait while another process makes the same repeat; the grid has waited already."""
    # Further runs of a grid's notebook wait neither: two notebooks could wait for each other's
    # repeats for ever. Of two that make the same repeat at once the first is stored.
    if HOLD_VARIABLE in os.environ:
        return nullcontext()
    told: list[str] = []

    def waits() -> None:
        if not told:
            told.append(f"another process is at repeat {index} of {plan.spec.key}: waiting for it")
            note(told[0])

    return plan.store.alone(plan.spec.key, plan.machine, index, waits)


def _n_with_continuation(plan: Plan, name: str) -> int:
    """How many repeats there are once a continuation, if it is not stored yet, is one of them."""
    run = plan.store.run(plan.spec.key)
    held = run.machines.get(plan.machine, {}) if run else {}
    records = [repeat.manifest.training for repeat in held.values()]
    return len(held) + all(one is None or one.continued_from != name for one in records)


def note(text: str) -> None:
    """Tell the user something on standard error."""
    print(f"note: {text}", file=sys.stderr)


def computes_here(plan: Plan) -> bool:
    """Whether the grid started this process for one repeat, and nothing was computed in it yet."""
    # Then a worker beside it would only load PyTorch and Cellpose a second time.
    if HOLD_VARIABLE not in os.environ or sys.modules.keys() & {"torch", "cellpose"}:
        return False
    if plan.request.setup.cellpose is not None:
        return False
    try:
        profiles.require_at_startup(plan.profile.started_with(plan.request.setup.variables()))
    except BadInput:
        return False
    return True


def _run(plan: Plan, index: int, *, label: str, quiet: bool, here: bool) -> Repeat:
    """Have a worker make one repeat, and store it; the grid stores the one that it asked for."""
    held = folder_held_for(plan.spec.key, index)
    if held is None:
        with plan.store.staging() as area:
            folder = area / "repeat"
            folder.mkdir()
            carried_out = _make(plan, index, folder, label=label, quiet=quiet, here=False)
            repeat = plan.store.commit(folder, carried_out)
        leave_further_run(repeat.name)
        return repeat
    if (held / MANIFEST).exists():  # the notebook asks for it again
        return Repeat(held)
    shutil.rmtree(held, ignore_errors=True)  # of an attempt that failed in this notebook
    held.mkdir()
    _make(plan, index, held, label=label, quiet=quiet, here=here)
    return Repeat(held)


def _make(plan: Plan, index: int, folder: Path, *, label: str, quiet: bool, here: bool) -> Spec:
    """Have a worker leave one repeat in a folder; what was carried out, its epochs counted."""
    with (
        _unfinished(plan, index, quiet=quiet) as keeping,
        progress(plan.spec.epochs + plan.n_images, label, quiet=quiet) as bar,
    ):
        show: dict[str, Any] = {"phase": bar.note, "done": bar.advance, "note": bar.say}
        carried_out = in_child(
            partial(
                worker.carry_out,
                request=plan.request,
                repeat=index,
                staged=folder,
                keeping=keeping,
            ),
            plan.request.setup,
            label=label,
            on_event=lambda event: show[event.kind](event.text),
            here=here,
        )
    return carried_out


# -- unfinished trainings ------------------------------------------------------------------


@contextmanager
def _unfinished(plan: Plan, index: int, *, quiet: bool) -> Iterator[Keeping]:
    """What to keep of this repeat, and where it leaves its checkpoints, if it makes any."""
    # A grid that is started again goes on where it was.
    keeping = replace(plan.keeping, resume=plan.keeping.resume or HOLD_VARIABLE in os.environ)
    if plan.spec.task != "train" or not (keeping.checkpoint_every or keeping.resume):
        yield keeping
        return
    with plan.store.unfinished(plan.spec, plan.machine, index) as folder:
        if folder is None:
            if keeping.continued is not None:
                raise BadInput(f"another process is at {plan.spec.key}; wait until it has ended")
            note(f"another process is at repeat {index} of {plan.spec.key}; no checkpoints here")
            yield Keeping(operation_steps=keeping.operation_steps)
            return
        if keeping.continued is not None and not folders(folder):
            lay_out(keeping.continued, plan.spec, index, folder)
        for last in folders(folder)[-1:] if not quiet else ():
            how = "goes on" if keeping.resume else "starts anew (--resume would have gone on)"
            ended = "killed" if keeping.continued is None else "ended"
            note(f"this training was {ended} after {last.name} of {plan.spec.epochs}; it {how}")
        yield replace(keeping, unfinished=folder.resolve())


def _refuse_nothing_to_resume(plan: Plan) -> None:
    """Refuse to resume where only trainings of other specs or machines are unfinished."""
    here, unfinished = f"{plan.spec.key}/{plan.machine}", plan.store.unfinished_specs()
    begun = any(name.startswith(f"{here}/") for name in unfinished)
    if not unfinished or begun or (plan.store.root / "runs" / here).exists():
        return
    asked = plan.spec.model_dump(mode="json")
    differing = {name: differences(held, asked) for name, held in unfinished.items()}
    nearest = min(differing, key=lambda name: len(differing[name]))
    raise BadInput(
        f"nothing of {here} is there to be resumed, only {nearest}: "
        f"{'; '.join(differing[nearest]) or 'of another machine'}; train without --resume"
    )
