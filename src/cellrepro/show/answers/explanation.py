"""What `explain` answers: why two results of one image differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cellrepro.show.answers.answer import Answer
from cellrepro.show.answers.explanation_lines import explanation_lines

if TYPE_CHECKING:
    from cellrepro.changes.commands import Commands
    from cellrepro.changes.crops import Part
    from cellrepro.changes.explain import Explanation
    from cellrepro.changes.replay import Change
    from cellrepro.changes.search import Fit
    from cellrepro.changes.sides import Side
    from cellrepro.model.window import Window


@dataclass(frozen=True)
class SideDocument:
    """One of the two results."""

    name: str
    """The file or the run."""
    kind: str
    """Stored run, _seg.npy, label image with or without its record."""
    recorded: Mapping[str, object]
    """What it records and cannot be varied: versions, restoration, changes by hand."""
    written_by: str
    """What wrote its files; empty where they do not tell."""
    generation: str | None
    """Of that Cellpose: ``2`` (or older), ``3`` or ``4``."""
    sources: Mapping[str, str]
    """The file that records a value, by the value's name."""
    remarks: Sequence[str]
    """What a reader has to know beyond the values."""


@dataclass(frozen=True)
class SettingDocument:
    """A setting as each side has it; ``?`` where nobody recorded it."""

    name: str
    """Cellpose's own name of it, or ``model``, ``precision``."""
    a: object
    """Its value in A; ``?`` where no file records it."""
    b: object
    """Its value in B."""


@dataclass(frozen=True)
class CauseDocument:
    """A change that makes the two differ, and how many cells it changes by itself."""

    name: str
    """The setting, or what else was changed."""
    a: object
    """Its value on each side."""
    b: object
    """Its value on each side."""
    changed: float
    """Share of the cells of both sides."""
    cells: int
    """How many cells it changes, and of how many, both sides counted."""
    of_cells: int
    """How many cells it changes, and of how many, both sides counted."""


@dataclass(frozen=True)
class EmptyDocument:
    """A change of a setting with which nothing is found."""

    name: str
    """The setting."""
    value: object
    """With which no cell was found."""


@dataclass(frozen=True)
class ReproducedDocument:
    """How near a side was made again."""

    found: str
    """``made``, ``in part``, ``not found`` or ``vacuous``."""
    cells_left: int
    """Without a counterpart, of both the side and what was made."""
    pixels_left: int
    """Pixels that still differ, and all cells of both."""
    of_cells: int
    """Pixels that still differ, and all cells of both."""
    exact: int
    """Cells made again pixel for pixel."""
    tried: int
    """Settings."""
    stopped: bool
    """Whether time was up, or the user ended the search, before everything was tried."""
    nearest: Mapping[str, object]
    """The settings that came nearest to it."""
    empty_with: Sequence[EmptyDocument]
    """Settings with which no cell was found."""
    network_doubt: str
    """``probably another``: all settings that decide are recorded, and do not make it; ``not
    searched``, as that is so of the other side. Else empty."""


@dataclass(frozen=True)
class ExplanationDocument:
    """What ``cellrepro explain --json`` prints."""

    a: SideDocument
    """The two results."""
    b: SideDocument
    """The two results."""
    verdict: str
    """As in `compare`."""
    changed: float | None
    """Share of the cells of both sides without a counterpart; None, like `ppm`, where the two
    cannot be laid on each other."""
    ppm: float | None
    """Differing pixels per million."""
    part: Part | None
    """Where one side shows a part of the image alone."""
    settings: Sequence[SettingDocument]
    """Every setting that at least one side records."""
    causes: Sequence[CauseDocument]
    """Changes that make the two differ, as few as explain them."""
    unexplained: float
    """Share of the cells that the causes leave without a counterpart."""
    reproduced: Mapping[Literal["a", "b"], ReproducedDocument]
    """Empty where nothing was replayed."""
    not_replayed: str | None
    """Why not."""
    notes: Sequence[str]
    """What a reader has to know beyond the remarks of either side."""
    window: Window | None
    """The part of the image that alone was replayed, rows and columns; `causes`, `unexplained` and
    `reproduced` are of the cells wholly in it."""
    interrupted: bool
    """Whether the user ended the search, so that the causes are those found until then."""
    commands: Mapping[str, Commands | None]
    """How to make each side again."""


def explanation_answer(explanation: Explanation) -> Answer[ExplanationDocument]:
    """Answer with what differs, what each side records, the causes, and what remains."""
    result = explanation.result
    document = ExplanationDocument(
        a=_side_document(explanation.a),
        b=_side_document(explanation.b),
        verdict=_verdict(explanation),
        changed=None if result is None else result.changed,
        ppm=None if result is None else result.ppm,
        part=explanation.part,
        settings=[SettingDocument(name, a, b) for name, a, b in explanation.settings],
        causes=list(_cause_documents(explanation)),
        unexplained=explanation.unexplained,
        reproduced=_reproduced(explanation),
        not_replayed=explanation.why_not_replayed or None,
        notes=explanation.notes,
        window=explanation.window,
        interrupted=explanation.interrupted,
        commands=explanation.commands,
    )
    return Answer(document, list(explanation_lines(explanation)))


def _verdict(explanation: Explanation) -> str:
    if explanation.vacuous:
        return "vacuous"
    if explanation.differs or explanation.result is None:
        return "different"
    return str(explanation.result.verdict)


def _side_document(side: Side) -> SideDocument:
    record = side.record
    return SideDocument(
        name=side.name,
        kind=side.kind,
        recorded=side.recorded,
        written_by=record.written_by,
        generation=record.generation,
        sources={name: entry.source for name, entry in record.values.items()},
        remarks=record.remarks,
    )


def _cause_documents(explanation: Explanation) -> Iterator[CauseDocument]:
    """The causes that were replayed; else the crop, where masks were cut, not made of a crop."""
    if explanation.replayed is not None:
        for cause in explanation.replayed.causes:
            yield _cause_document(cause)
    elif explanation.part is not None:
        yield _crop_document(explanation.part)


def _cause_document(cause: Change) -> CauseDocument:
    n_changed = cause.gap.n_unmatched
    return CauseDocument(
        name=cause.name,
        a=cause.a,
        b=cause.b,
        changed=n_changed / max(1, cause.n_cells),
        cells=n_changed,
        of_cells=cause.n_cells,
    )


def _crop_document(part: Part) -> CauseDocument:
    crop = (part.rows, part.columns)
    n_missing = part.n_outside + part.n_cut
    return CauseDocument(
        name="image.crop",
        a=crop if part.of == "a" else None,
        b=crop if part.of == "b" else None,
        changed=n_missing / max(1, part.n_cells),
        cells=n_missing,
        of_cells=part.n_cells,
    )


def _reproduced(explanation: Explanation) -> dict[Literal["a", "b"], ReproducedDocument]:
    replayed = explanation.replayed
    if replayed is None:
        return {}
    return {"a": _fit_document(replayed.a), "b": _fit_document(replayed.b)}


def _fit_document(fit: Fit) -> ReproducedDocument:
    n_cells_left, n_pixels_left = fit.gap
    return ReproducedDocument(
        found=str(fit.reproduced),
        cells_left=n_cells_left,
        pixels_left=n_pixels_left,
        of_cells=fit.n_cells,
        exact=fit.n_exact,
        tried=fit.n_tried,
        stopped=fit.stopped,
        nearest=fit.condition,
        empty_with=[EmptyDocument(name, value) for name, value in fit.empty_with],
        network_doubt=fit.network_doubt,
    )
