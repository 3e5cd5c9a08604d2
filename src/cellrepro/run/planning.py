"""A training or a segmentation planned: all is checked before a process is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cellrepro.images.image_axes import FLAT
from cellrepro.model.cellpose_generation import Generation, generation_of, refuse_training
from cellrepro.model.encoders import LEARNING_RATES, SMALL, SMALL_DRAWS_PER_EPOCH
from cellrepro.model.epoch_schedule import trains_nothing
from cellrepro.model.segmentation_limits import refuse_impossible
from cellrepro.model.weight_sources import ModelSource
from cellrepro.profiles import profiles
from cellrepro.run.continuation import plan_continuation
from cellrepro.run.inputs import axes_of
from cellrepro.run.options import (
    RecordingOptions,
    SegmentationOptions,
    TrainingOptions,
    WrapOptions,
)
from cellrepro.run.plan import Plan, Request
from cellrepro.run.plan_sources import FolderSummary, PlanInputs
from cellrepro.run.rank_exchange import seconds_to_wait
from cellrepro.run.until_found import Goal
from cellrepro.spec.field_marks import Task
from cellrepro.spec.new_spec import make_spec
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.spec.spec import Spec
from cellrepro.store.store import Store
from samebits.errors import BadInput
from samebits.known_operations import base_name, entries


def planned(
    task: Task,
    options: TrainingOptions | SegmentationOptions | WrapOptions,
    inputs: PlanInputs,
    *,
    folder: FolderSummary,
    model: ModelSource,
    fields: Mapping[str, Any],
    request_type: Callable[..., Request] = Request,
) -> Plan:
    """Plan a new spec over a folder with a model; ``fields`` are its other fields."""
    data = Path(options.data).resolve()
    profile = inputs.profile(options.profile)
    store = Store(options.store)
    spec = make_spec(
        **fields,
        task=task,
        data=data.name,
        data_digest=folder.digest,
        model=model.label,
        model_digest=model.digest,
        profile=profile.name,
        profile_settings=profile.model_dump(mode="json", exclude={"description"}),
        seed=options.seed,
        mode=options.mode,
    )
    first = spec.as_in_first_versions
    if store.knows(first.key) and not store.knows(spec.key):
        spec = first
    request = request_type(spec, data, model, device=profile.device, asked_here=True)
    return Plan(
        request=request,
        n_images=folder.n_segmented,
        n_pixels=folder.n_pixels,
        store=store,
        notices=(*folder.warnings, *profile.replaced(request.setup.variables())),
    )


def _operation_of_strict(name: str) -> str:
    """Check that mode ``strict`` holds an operation, and give its plain name."""
    from samebits.substitutes import SUBSTITUTES

    known_to_torch = {base_name(op) for entry in entries() for op in entry.ops}
    with_substitute = {op for substitute in SUBSTITUTES for op in substitute.replaces}
    operations = known_to_torch | with_substitute
    if base_name(name) not in operations:
        known = ", ".join(sorted(operations))
        raise BadInput(f"loose is {name!r}, which mode strict does not hold; expected {known}")
    return base_name(name)


# -- a training ----------------------------------------------------------------------------------


def plan_training(
    options: TrainingOptions, *, goal: Goal | None = None, inputs: PlanInputs | None = None
) -> Plan:
    """Check the options of a training and plan it; with a goal it may end earlier."""
    refuse_training()
    if options.loose is not None:
        options = options.model_copy(update={"loose": _operation_of_strict(options.loose)})
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
    seconds_to_wait()  # refuses a variable that is no number before anything is started
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


# -- a segmentation ------------------------------------------------------------------------------


def plan_segmentation(options: SegmentationOptions, *, inputs: PlanInputs | None = None) -> Plan:
    """Check the options of a segmentation and plan it."""
    known_inputs = inputs or PlanInputs()
    settings = _settings_with_batch_size(options)
    generation = generation_of(options.cellpose)
    network = generation.default_network if options.model is None else options.model
    axes = axes_of("segment", settings)
    folder = known_inputs.folder(options.data, to_train=False, axes=axes)
    source = known_inputs.model(network, options.store, options.cellpose)
    loose = None if options.loose is None else _operation_of_strict(options.loose)
    fields = {
        "ledger": options.ledger,
        "loose": loose,
        "settings": settings,
        "cellpose": options.cellpose,
    }
    plan = planned("segment", options, known_inputs, folder=folder, model=source, fields=fields)
    _refuse_impossible_images(plan.spec, folder, generation)
    _refuse_settings_of_others(plan.spec.settings, generation, source)
    if not source.remark:
        return plan
    return replace(plan, notices=(*plan.notices, source.remark))


def _refuse_impossible_images(spec: Spec, folder: FolderSummary, generation: Generation) -> None:
    """Refuse images that Cellpose cannot segment with these settings."""
    for name, image in folder.segmented.items():
        refuse_impossible(
            image.shape,
            spec.settings.arguments(),
            stack=image.stack,
            name=name,
            n_channels=generation.n_channels,
        )


def _refuse_settings_of_others(
    settings: Settings, generation: Generation, source: ModelSource
) -> None:
    """Refuse settings of other generations of Cellpose, or of other networks."""
    if settings.channels is not None and not generation.chooses_channels:
        raise BadInput(
            f"settings.channels is {list(settings.channels)}; Cellpose 4 ignores it and reads "
            "up to three channels: leave it out, and give --set channel_axis=… where the channels "
            "are not found, or --cellpose 3.1.1.2 to segment with a version that has it"
        )
    takes_other_tiles = not generation.builds_own_networks or "dino" in source.label
    if settings.bsize is not None and not takes_other_tiles:
        raise BadInput(
            f"settings.bsize is given; {source.label} takes tiles of {generation.tile_size} pixels "
            "only"
        )


def _settings_with_batch_size(options: SegmentationOptions) -> dict[str, Any]:
    """The settings by name, with the batch size if that was given by itself."""
    settings = dict(options.settings or {})
    if options.batch_size is None:
        return settings
    in_settings = settings.setdefault("batch_size", options.batch_size)
    if in_settings != options.batch_size:
        raise BadInput(
            f"batch_size is {options.batch_size} and settings.batch_size {in_settings}, which are "
            "the same thing, tiles that the network sees at once: give one of them"
        )
    return settings
