"""What `baseline save` and `baseline check` answer: limits, what breaks them, what they miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellrepro.show.answers.answer import Answer
from cellrepro.show.answers.comparison import ChangedCellLine, change_table
from cellrepro.words import amount, ppm_text, share_text

if TYPE_CHECKING:
    from cellrepro.changes.baseline import BaselineCheck


@dataclass(frozen=True)
class HiddenDocument:
    """Cells that could vanish within the limits: how many, and the smallest."""

    n: int
    """Of how many cells any one could vanish."""
    all_at_once: bool
    """Whether all of them together could, so that masks without a cell pass."""
    smallest: Mapping[str, object] | None
    """Its ``image``, ``label`` in the baseline and ``area`` in pixels; None where none could."""


@dataclass(frozen=True)
class BaselineCheckDocument:
    """What ``cellrepro baseline check --json`` prints."""

    ok: bool
    """Whether every limit is kept."""
    ppm: float
    """Differing pixels per million."""
    changed: float
    """Share of the cells without a counterpart."""
    lost: int
    """Cells of the baseline without any counterpart."""
    broken: Sequence[str]
    """A sentence for each limit that is broken."""
    limits: Mapping[str, float]
    """Those that were checked."""
    cells: Sequence[Mapping[str, object]]
    """What became of each cell that changed, with its image."""
    hidden: HiddenDocument
    """What the limits could hide."""
    notes: Sequence[str]
    """How masks were read, and what was done to their numbers, a sentence each."""


def saved_baseline_answer(record: Mapping[str, Any], file: str | Path) -> Answer[dict[str, object]]:
    """Answer with the limits that a new baseline holds."""
    import yaml

    images = record["images"].values()
    tolerance = record["reproducibility_tolerance"]
    n_cells = amount(sum(image["n_objects"] for image in images), "cell")
    limits = _limits(record["limits"]) or "none"
    config = {"config": {"bioimageio": {"reproducibility_tolerance": tolerance}}}
    lines = [
        f"{file}: {n_cells} in {amount(len(images), 'image')} of {record['from']}",
        f"  limits: {limits} ({record.get('proposed_from', 'none proposed')})",
        "for a model description of bioimage.io:",
        yaml.safe_dump(config, sort_keys=False).rstrip() if tolerance else "  none is that wide",
    ]
    return Answer({"file": file, **record}, lines)


def baseline_check_answer(check: BaselineCheck) -> Answer[BaselineCheckDocument]:
    """Answer with what breaks the limits, and with which cells could vanish within them."""
    smallest = check.hidden[0]._asdict() if check.hidden else None
    document = BaselineCheckDocument(
        ok=check.ok,
        ppm=check.ppm,
        changed=check.changed,
        lost=check.lost,
        broken=check.broken,
        limits=check.limits,
        cells=[{"image": image, **change._asdict()} for image, change in check.cells],
        hidden=HiddenDocument(n=len(check.hidden), all_at_once=check.all_hidden, smallest=smallest),
        notes=check.notes,
    )
    return Answer(document, list(_check_lines(check)))


def _check_lines(check: BaselineCheck) -> Iterator[str]:
    state = "ok" if check.ok else "broken"
    changed = f"{ppm_text(check.ppm)}, {share_text(check.changed)} of the cells changed"
    yield f"{state}: {changed}, {check.lost} lost"
    if check.broken:
        yield from _broken_lines(check)
    limits = _limits(check.limits)
    within = f"within {limits}" if limits else "without limits"
    yield f"  {_hidden_text(check, within)}"
    for note in check.notes:
        yield f"  note: {note}"


def _broken_lines(check: BaselineCheck) -> Iterator[str]:
    for sentence in check.broken:
        yield f"  {sentence}"
    cells = [ChangedCellLine(image, change) for image, change in check.cells]
    yield from change_table(cells, a="baseline", b="masks")


def _hidden_text(check: BaselineCheck, within: str) -> str:
    """Say which cells could vanish unnoticed within the limits, the smallest first."""
    n_hidden = len(check.hidden)
    if check.all_hidden:
        return f"{within} every cell could vanish unnoticed: masks without any cell would pass"
    if not n_hidden:
        return f"no cell could vanish unnoticed {within}"
    smallest = check.hidden[0]
    described = f"of {smallest.area} pixels ({smallest.label} in {smallest.image})"
    if n_hidden == 1:
        return f"{within} one cell could vanish unnoticed: {described}"
    return (
        f"{within} any one of {n_hidden} cells could vanish unnoticed: the smallest {described}, "
        f"the largest of {check.hidden[-1].area}"
    )


def _limits(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in limits.items())
