"""The common part of the plans of all tasks: a new spec over a folder, on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cellrepro.determinism.known_operations import base_name, entries
from cellrepro.errors import BadInput
from cellrepro.model.weight_sources import ModelSource
from cellrepro.run.options import SegmentationOptions, TrainingOptions, WrapOptions
from cellrepro.run.plan import Plan, Request
from cellrepro.run.plan_sources import FolderSummary, PlanInputs
from cellrepro.spec.field_marks import Task
from cellrepro.spec.new_spec import make_spec
from cellrepro.store.store import Store


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
        store=store,
        notices=(*folder.warnings, *profile.replaced(request.setup.variables())),
    )


def operation_of_strict(name: str) -> str:
    """Check that mode ``strict`` holds an operation, and give its plain name."""
    from cellrepro.determinism.substitutes import SUBSTITUTES

    known_to_torch = {base_name(op) for entry in entries() for op in entry.ops}
    with_substitute = {op for substitute in SUBSTITUTES for op in substitute.replaces}
    operations = known_to_torch | with_substitute
    if base_name(name) not in operations:
        known = ", ".join(sorted(operations))
        raise BadInput(f"loose is {name!r}, which mode strict does not hold; expected {known}")
    return base_name(name)
