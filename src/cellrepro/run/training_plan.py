"""The plan of a training: its options are checked before a process is started."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from cellrepro.determinism import profiles
from cellrepro.errors import BadInput
from cellrepro.images.image_axes import FLAT
from cellrepro.model.cellpose_generation import refuse_training
from cellrepro.model.encoders import LEARNING_RATES, SMALL, SMALL_DRAWS_PER_EPOCH
from cellrepro.model.epoch_schedule import trains_nothing
from cellrepro.model.weight_sources import ModelSource
from cellrepro.run.continuation import plan_continuation
from cellrepro.run.options import RecordingOptions, TrainingOptions
from cellrepro.run.plan import Plan
from cellrepro.run.plan_sources import FolderSummary, PlanInputs
from cellrepro.run.planning import operation_of_strict, planned
from cellrepro.run.until_found import Goal
from cellrepro.spec.spec import Spec


def plan_training(
    options: TrainingOptions, *, goal: Goal | None = None, inputs: PlanInputs | None = None
) -> Plan:
    """Check the options of a training and plan it; with a goal it may end earlier."""
    refuse_training()
    if options.loose is not None:
        options = options.model_copy(update={"loose": operation_of_strict(options.loose)})
    known_inputs = inputs or PlanInputs()
    if options.continued_from is None:
        plan = _plan_new_training(options, known_inputs)
    else:
        plan = plan_continuation(options, options.continued_from, known_inputs)
    _refuse_ranks(plan.spec)
    recording = RecordingOptions(
        resume=options.resume or goal is not None or options.continued_from is not None,
        checkpoint_every=_checkpoint_interval(options, plan.request.model),
        keep_checkpoints=options.keep_checkpoints,
        operation_steps=_operation_steps(options, plan.spec),
    )
    notices = plan.notices
    why_nothing = trains_nothing(options.epochs, plan.spec.learning_rate)
    if why_nothing:
        notices = (*notices, f"this run will be vacuous: {why_nothing}")
    request = replace(plan.request, goal=goal)
    return replace(plan, request=request, recording=recording, notices=notices)


def _plan_new_training(options: TrainingOptions, inputs: PlanInputs) -> Plan:
    """Plan a training from its first epoch."""
    folder = inputs.folder(options.data, to_train=True, axes=FLAT)
    source = inputs.model(options.model, options.store, None)
    fields = options.of_spec()
    if options.images_per_epoch is None and source.architecture in SMALL:
        fields["images_per_epoch"] = max(SMALL_DRAWS_PER_EPOCH, len(folder.n_labels))
    if options.learning_rate is None:
        fields["learning_rate"] = LEARNING_RATES[source.architecture]
    plan = planned("train", options, inputs, folder=folder, model=source, fields=fields)
    _refuse_what_is_ignored(plan.spec, folder)
    return plan


def _checkpoint_interval(options: TrainingOptions, model: ModelSource) -> int:
    """Epochs between checkpoints, 0 for none."""
    if options.checkpoint_every is None:
        return 1 if model.architecture in SMALL else 10
    if options.keep_checkpoints == "all" and not options.checkpoint_every:
        raise BadInput("keep_checkpoints is 'all' with 0 epochs between checkpoints; expected 1")
    return options.checkpoint_every


def _operation_steps(options: TrainingOptions, spec: Spec) -> tuple[int, ...] | None:
    """The steps whose operations are written down; None for all."""
    steps = options.operation_steps
    if steps is not None and spec.ledger != "ops":
        raise BadInput(f"operation_steps is {steps}, and ledger is not 'ops': give both")
    return steps


def _refuse_ranks(spec: Spec) -> None:
    """Refuse options that several ranks cannot have."""
    if spec.ranks == 1:
        return
    problems = []
    if spec.batch_size < spec.ranks:
        problems.append(
            f"batch_size is {spec.batch_size}, and each rank needs an image of every batch: give "
            f"batch_size {spec.ranks} or more"
        )
    if spec.ledger == "ops":
        problems.append(
            "ledger is 'ops', which would show the operations of one rank: give 'steps'"
        )
    kind = profiles.device_kind(spec.profile_settings["device"])
    if kind == "mps":
        problems.append(f"a machine has one device of kind {kind!r}")
    if problems:
        raise BadInput(f"ranks is {spec.ranks}; {'; '.join(problems)}")


def _refuse_what_is_ignored(spec: Spec, folder: FolderSummary) -> None:
    """Refuse options that Cellpose would ignore with these images."""
    if spec.nimg_test_per_epoch is not None and not folder.n_test:
        raise BadInput("nimg_test_per_epoch is given, and there are no test images: leave it out")
    if spec.train_probs is None:
        return
    probabilities = dict(spec.train_probs)
    unknown = sorted(probabilities.keys() - folder.n_labels.keys())
    if unknown:
        near = ", ".join(get_close_matches(unknown[0], folder.n_labels, 3, 0.0))
        raise BadInput(f"train_probs names {unknown[0]!r}, no training image; do you mean {near}?")
    usable = folder.trainable(spec.min_train_masks)
    if not any(probabilities.get(name, 1) for name in usable):
        raise BadInput("train_probs are 0 for every training image; expected one that is not")
    if spec.images_per_epoch in (None, len(usable)):
        raise BadInput(
            f"train_probs change nothing where each of the {len(usable)} training images is shown "
            "once an epoch, as Cellpose does by default: give images_per_epoch, a different number"
        )
