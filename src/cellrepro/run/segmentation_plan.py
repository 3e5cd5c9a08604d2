"""The plan of a segmentation: its options and settings are checked before a process is started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cellrepro.errors import BadInput
from cellrepro.model.cellpose_generation import Generation, generation_of
from cellrepro.model.segmentation_limits import refuse_impossible
from cellrepro.model.weight_sources import ModelSource
from cellrepro.run.inputs import axes_of
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Plan
from cellrepro.run.plan_sources import FolderSummary, PlanInputs
from cellrepro.run.planning import operation_of_strict, planned
from cellrepro.spec.segmentation_settings import Settings
from cellrepro.spec.spec import Spec


def plan_segmentation(options: SegmentationOptions, *, inputs: PlanInputs | None = None) -> Plan:
    """Check the options of a segmentation and plan it."""
    known_inputs = inputs or PlanInputs()
    settings = _settings_with_batch_size(options)
    generation = generation_of(options.cellpose)
    network = generation.default_network if options.model is None else options.model
    axes = axes_of("segment", settings)
    folder = known_inputs.folder(options.data, to_train=False, axes=axes)
    source = known_inputs.model(network, options.store, options.cellpose)
    loose = None if options.loose is None else operation_of_strict(options.loose)
    fields = {
        "ledger": options.ledger,
        "loose": loose,
        "settings": settings,
        "cellpose": options.cellpose,
    }
    plan = planned("segment", options, known_inputs, folder=folder, model=source, fields=fields)
    _refuse_impossible_images(plan.spec, folder, generation)
    _refuse_settings_of_others(plan.spec.settings, generation, source)
    if not source.untrained:
        return plan
    warning = f"{source.label} has learnt nothing yet; name a trained model (KEY/REPEAT)"
    return replace(plan, notices=(*plan.notices, warning))


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
