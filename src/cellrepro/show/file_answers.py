"""What the commands on single files answer: the JSON document, and the same in lines of words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cellrepro.words import amount, grouped, ppm_text, share_text

if TYPE_CHECKING:
    from cellrepro.changes.baseline import BaselineCheck
    from cellrepro.changes.describe import Description
    from cellrepro.show.answers import Answer

_MOST_CELLS = 12  # that are named; the JSON document names them all


def description(found: Description) -> Answer:
    """Of `cellrepro.describe`."""
    return asdict(found), _description(found)


def _description(found: Description) -> Iterator[str]:
    yield found.kind + (f" {found.official_name} of Cellpose" if found.official_name else "")
    of_network = found.n_parameters is not None or found.kind == "name"
    shown = {
        "Cellpose": found.generation or ("none" if found.n_parameters else None),
        "dtype": found.dtype,
        "parameters": found.n_parameters and grouped(found.n_parameters),
        "SHA-256": found.digest,
        "loads as": (found.loads_as or "not at all") if of_network else None,
        **found.details,
    }
    for name, value in shown.items():
        if isinstance(value, dict):
            yield from (f"  {key}: {one}" for key, one in value.items())
        elif value is not None:
            yield f"  {name.replace('_', ' ')}: {value}"
    if found.note:
        yield f"  note: {found.note}"


def baseline_saved(record: dict[str, Any], file: str) -> Answer:
    """Of `cellrepro.save_baseline`."""
    import yaml

    images, tolerance = record["images"].values(), record["reproducibility_tolerance"]
    n_cells = amount(sum(image["n_objects"] for image in images), "cell")
    config = {"config": {"bioimageio": {"reproducibility_tolerance": tolerance}}}
    lines = [
        f"{file}: {n_cells} in {amount(len(images), 'image')} of {record['from']}",
        f"  limits: {_limits(record['limits']) or 'none'} "
        f"({record.get('proposed_from', 'none proposed')})",
        "for a model description of bioimage.io:",
        yaml.safe_dump(config, sort_keys=False).rstrip() if tolerance else "  none is that wide",
    ]
    return {"file": file, **record}, lines


def baseline_check(found: BaselineCheck) -> Answer:
    """Of `cellrepro.check_baseline`."""
    document = asdict(found) | {"hidden": {"n": len(found.hidden), "smallest": None}}
    document["cells"] = [{"image": image, **cell._asdict()} for image, cell in found.cells]
    if found.hidden:
        document["hidden"]["smallest"] = found.hidden[0]._asdict()
    return document, _baseline_check(found)


def _baseline_check(found: BaselineCheck) -> Iterator[str]:
    reached = f"{ppm_text(found.ppm)}, {share_text(found.changed)} of the cells changed"
    yield f"{'ok' if found.ok else 'broken'}: {reached}, {found.lost} lost"
    yield from (f"  {text}" for text in found.broken)
    for image, cell in found.cells[:_MOST_CELLS] if found.broken else ():
        labels = " -> ".join(", ".join(map(str, own)) or "nothing" for own in cell[1:3])
        place = ", ".join(f"{at:.0f}" for at in cell.position)
        yield (
            f"    {cell.kind.value:6} {labels} in {image}, centre {place}, {cell.area_a} -> "
            f"{cell.area_b} pixels, IoU {cell.iou:.3f}"
        )
    if found.broken and len(found.cells) > _MOST_CELLS:
        yield f"    and {len(found.cells) - _MOST_CELLS} more; --json names them all"
    limits = _limits(found.limits)
    within = f"within {limits}" if limits else "without limits"
    if not found.hidden:
        yield f"  no cell could vanish unnoticed {within}"
    else:
        least, largest = found.hidden[0], found.hidden[-1].area
        n_hidden = len(found.hidden)
        cells = "one cell" if n_hidden == 1 else f"any one of {n_hidden} cells"
        text = f"of {least.area} pixels ({least.label} in {least.image})"
        if n_hidden > 1:
            text = f"the smallest {text}, the largest of {largest}"
        yield f"  {within} {cells} could vanish unnoticed: {text}"


def _limits(limits: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in limits.items())
