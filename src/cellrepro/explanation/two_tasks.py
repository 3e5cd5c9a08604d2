"""Two runs of different tasks: what made the masks of each, and which other fields may matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cellrepro.explanation.conditions import MODEL
from cellrepro.explanation.why import Cause
from samebits.shown_text import short

if TYPE_CHECKING:
    from cellrepro.spec.spec import Spec
    from cellrepro.store.stored_run import Repeat

_OF_EACH_TASK = frozenset({"task", "program", "model", "model_digest", "seed", "data_seed"})
"""Fields with a meaning of their own in each task: a training starts from its ``model`` and has its
seeds in what comes of it, a segmentation uses its ``model`` as it is."""

_ORDER = ("train", "wrap", "segment")  # in which a sentence names them


def fields_of_both_tasks(
    a: Spec, b: Spec, differing: Mapping[str, tuple[object, object]]
) -> dict[str, tuple[object, object]]:
    """Keep of the fields that differ those that mean the same in both tasks.

    A training segments with Cellpose's usual settings, and a segmentation may not.
    """
    fields = {name: values for name, values in differing.items() if name not in _OF_EACH_TASK}
    if "wrap" in (a.task, b.task):
        return fields
    settings_b = b.settings.by_name()
    for name, value in a.settings.by_name().items():
        if value != settings_b[name]:
            fields[f"settings.{name}"] = (value, settings_b[name])
    return fields


def maker_as_cause(a: Repeat, b: Repeat) -> Cause | None:
    """Say with which two networks or programs the masks were made; None where it is one network."""
    digest_a, digest_b = (_digest_of_maker(repeat) for repeat in (a, b))
    if digest_a == digest_b:
        return None
    sides = sorted([("A", a), ("B", b)], key=lambda side: _ORDER.index(side[1].spec.task))
    training = next((repeat for _, repeat in sides if repeat.spec.task == "train"), None)
    (first, maker), (second, other_maker) = (
        (letter, _maker(repeat, training)) for letter, repeat in sides
    )
    words = f"{first} was segmented {maker}, {second} {other_maker}"
    return Cause(MODEL, digest_a, digest_b, words=words)


def _digest_of_maker(repeat: Repeat) -> str | None:
    spec = repeat.spec
    weights = repeat.manifest.weights
    if spec.task == "train":
        return None if weights is None else weights.digest
    return spec.model_digest or spec.model


def _maker(repeat: Repeat, training: Repeat | None) -> str:
    spec = repeat.spec
    if spec.task == "wrap":
        return f"by the program {short(spec.model)}"
    if spec.task == "train":
        return "with the network that it trained"
    if training is None:
        return f"with the network {short(spec.model)}"
    began_with = (training.spec.model, training.spec.model_digest)
    which = (
        "that this training began with"
        if (spec.model, spec.model_digest) == began_with
        else "of another training or file"
    )
    return f"with the one {which} ({short(spec.model)})"
