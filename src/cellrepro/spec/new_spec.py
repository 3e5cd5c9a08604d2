"""New specs, which are checked more strictly than stored ones."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from cellrepro.spec.segmentation_settings import Settings
from cellrepro.spec.spec import Spec, fields_of_another_task
from cellrepro.wrong_fields import wrong_fields
from samebits.errors import BadInput

LEAVE_OUT = {
    "settings": "a training segments with Cellpose's own settings, so that trainings can be "
    "compared: leave it out, and give it to segment with the trained network as model, KEY/REPEAT",
    "cellpose": "the lab trains with the version that is installed, whose loop its own is held to: "
    "leave it out",
}
"""Advice on options of other tasks that were given to a training."""


def make_spec(**fields: Any) -> Spec:
    """Make a spec for a new run, which is checked more strictly than a stored one."""
    try:
        spec = Spec(**{"key_from": "contents"} | fields)
    except ValidationError as error:
        raise BadInput(wrong_fields(error, known=Spec.model_fields)) from error
    problems = _of_another_task(spec)
    if problems:
        raise BadInput("; ".join(problems))
    return spec


def _of_another_task(spec: Spec) -> list[str]:
    """Say of each field with a value that it does nothing in the task of a spec."""
    problems = []
    for name, task in fields_of_another_task(spec.task).items():
        value = getattr(spec, name)
        if value == Spec.model_fields[name].get_default(call_default_factory=True):
            continue
        if isinstance(value, Settings):
            value = value.not_default()
        advice = "leave it out"
        if spec.task == "train":
            advice = LEAVE_OUT.get(name, advice)
        problems.append(
            f"{name} is {value!r}, an option of {task} that does nothing in {spec.task}: {advice}"
        )
    usual_batch = Spec.model_fields["batch_size"].default
    if spec.task != "train" and spec.batch_size != usual_batch:
        advice = "give settings.batch_size" if spec.task == "segment" else "leave it out"
        problems.append(
            f"batch_size is {spec.batch_size}, images a step of train, and does nothing in "
            f"{spec.task}: {advice}"
        )
    return problems
