"""What `sensitivity` answers: how many cells each setting of a segmentation changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.asked.setting_in_words import setting_in_words
from cellrepro.show.answers.answer import Answer
from cellrepro.words import amount, share_text, some

if TYPE_CHECKING:
    from cellrepro.changes.sensitivity_result import Sensitivity, Variant


@dataclass(frozen=True)
class SensitivityDocument:
    """What ``cellrepro sensitivity --json`` prints."""

    model: str
    """The network that segmented."""
    base: Mapping[str, object]
    """The settings beside which each is varied, where they are not the usual ones."""
    settings: Sequence[Mapping[str, object]]
    """The fields of each `Variant`, and what became of the cells each as a key of its own."""
    images: int
    """How many."""
    objects: int
    """With the settings of ``base``."""
    ap50: float | None
    """The same; none without a ground truth."""
    network_passes: int
    """How often the network was run."""
    figures: Mapping[str, Path]
    """Pictures by setting."""


def sensitivity_answer(
    sensitivity: Sensitivity, figures: Mapping[str, Path]
) -> Answer[SensitivityDocument]:
    """Answer with a line for each setting and value, what changes most first; then the idle
    ones."""
    base = sensitivity.base.not_default()
    document = SensitivityDocument(
        model=sensitivity.model,
        base=base,
        settings=[_variant_document(variant) for variant in sensitivity.variants],
        images=sensitivity.n_images,
        objects=sensitivity.n_objects,
        ap50=sensitivity.ap50,
        network_passes=sensitivity.n_passes,
        figures=dict(figures),
    )
    cells = amount(sensitivity.n_objects, "cell")
    settings = ", ".join(_setting(name, value) for name, value in base.items())
    lines = [
        f"{cells} in {amount(sensitivity.n_images, 'image')} with "
        f"{settings or 'the usual settings'}. Below, each setting by itself: the cells that have "
        "no counterpart (IoU 0.5), of the cells of both results, with the usual value and "
        f"with this one; {_interval_kind(sensitivity)}; and what became of the cells, "
        "in the words of `compare`:"
    ]
    for variant in sensitivity.variants:
        if variant.changed or variant.ppm:
            lines.append(_variant_line(variant, usual_ap50=sensitivity.ap50))
    idle = [_setting(each.name, each.value) for each in sensitivity.variants if not each.ppm]
    if idle:
        lines.append(f"no pixel of {cells} changes with {some(idle, len(idle))}")
    for name, path in figures.items():
        lines.append(f"{name}: {path}")
    return Answer(document, lines)


def _variant_document(variant: Variant) -> dict[str, object]:
    """Its fields as they are, since `asdict` would copy the counts wrongly, and each count."""
    values = {field.name: getattr(variant, field.name) for field in fields(variant)}
    return {**values, **variant.kinds}


def _setting(name: str, value: object) -> str:
    return setting_in_words(f"settings.{name}", value)


def _interval_kind(sensitivity: Sensitivity) -> str:
    """Say what the intervals are of."""
    by_image = any(variant.interval_over == "images" for variant in sensitivity.variants)
    if by_image:
        return "their 95 % interval over images (bootstrap)"
    return "their 95 % interval over cells (binomial, since images are fewer than three)"


def _variant_line(variant: Variant, *, usual_ap50: float | None) -> str:
    from cellrepro.same.object_changes import ObjectKind  # not before a command computes: NumPy

    changed = share_text(variant.changed)
    if variant.interval is not None:
        low, high = variant.interval
        changed += f"; {share_text(low)} to {share_text(high)}"
    kinds = ", ".join(f"{n} {ObjectKind(kind).in_words}" for kind, n in variant.kinds.items() if n)
    scores = ""
    if usual_ap50 is not None and variant.ap50 is not None:
        scores = f"; AP@0.5 {variant.ap50:.3f} (usual {usual_ap50:.3f})"
    return (
        f"  {variant.n_changed} of {variant.n_cells} ({changed})  "
        f"{_setting(variant.name, variant.value)}: {kinds}{scores}"
    )
