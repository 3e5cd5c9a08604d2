"""What `compare` answers: whether two results are the same, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from cellrepro.show.answers.answer import Answer
from cellrepro.words import amount, place_text, short_digest, some

if TYPE_CHECKING:
    from pathlib import Path

    from cellrepro.changes.comparison import Comparison
    from cellrepro.same.metrics import MaskComparison
    from cellrepro.same.object_changes import ObjectChange
    from cellrepro.same.state_comparison import StateComparison
    from cellrepro.same.verdicts import Verdict
    from cellrepro.same.weights import WeightsComparison

_MOST_CHANGES = 12
"""Cells that a terminal names; the JSON document names them all."""
_MOST_NAMES = 4
"""Of tensors."""


@dataclass(frozen=True)
class ObjectChangeDocument:
    """What became of one object. Areas are pixels, positions centroids in pixels."""

    image: str
    """In which it lies."""
    kind: str
    """``kept``, ``moved``, ``lost``, ``gained``, ``split`` or ``merged``."""
    labels_a: Sequence[int]
    """Several for the parts of a split or merge, none where missing."""
    labels_b: Sequence[int]
    """The same in B."""
    iou: float
    """Of all parts together; 0 for lost and gained."""
    position: Sequence[float]
    """In A, in B for gained; (y, x) or (z, y, x)."""
    position_b: Sequence[float] | None
    """In B, where the object has a counterpart there."""
    area_a: int
    """On each side, all parts together; 0 where missing."""
    area_b: int
    """On each side, all parts together; 0 where missing."""
    displacement: float
    """Between the centroids; NaN for lost and gained."""
    cut_between: Sequence[tuple[int, int]]
    """Of a split or merge in a stack: planes between which one part ends and the next begins."""
    renumbered: bool
    """Whether one object has different numbers on the two sides."""

    @classmethod
    def of(cls, image: str, change: ObjectChange) -> ObjectChangeDocument:
        """Describe what became of an object of an image."""
        return cls(image=image, **change._asdict(), renumbered=change.renumbered)


@dataclass(frozen=True)
class FilesDocument:
    """How two weights files differ as bytes."""

    sizes: tuple[int, int]
    """Bytes."""
    equal: bool
    """Whether every byte is equal."""
    differing: Sequence[Mapping[str, object]]
    """The parts that differ, how many bytes of each, and why."""


@dataclass(frozen=True)
class ComparisonDocument:
    """What ``cellrepro compare --json`` prints. Pairs are of A and of B."""

    verdict: Verdict
    """Over weights and masks."""
    differs: Sequence[str]
    """What differs: environment, spec, data, weights-init, weights, masks, truth; of two
    checkpoints also optimizer, scheduler, step, seed, generators, tensors, values."""
    weights: Mapping[str, object] | None
    """The fields of `WeightsComparison`, of whose tensors those that differ; of two files also
    ``files``, a `FilesDocument`. None where there are no weights."""
    masks: Mapping[str, Mapping[str, object]]
    """Figures by image."""
    objects: Mapping[str, object]
    """How many each side has, and ``changes``, an `ObjectChangeDocument` of each object."""
    ppm: float | None
    """Differing pixels per million."""
    environment: Mapping[str, tuple[object, object]]
    """What differs, each with its two values."""
    spec: Mapping[str, tuple[object, object]]
    """What differs, each with its two values."""
    ap50: tuple[float | None, float | None] | None
    """Mean AP at IoU 0.5 against the ground truth, on test and on training images; None where there
    is no truth."""
    ap50_train: tuple[float | None, float | None] | None
    """Mean AP at IoU 0.5 against the ground truth, on test and on training images; None where there
    is no truth."""
    state: Mapping[str, object] | None
    """Of two checkpoints, what lies beside their networks: ``tensors`` (by part, as `weights`),
    ``values`` (those that differ: ``part``, ``name``, ``a``, ``b``, ``n_differing``),
    ``n_values``, ``generators`` (``name``, ``kind``, ``equal``, ``seeds``, ``draws_apart``,
    ``fresh``), ``only_a`` and ``only_b``. None elsewhere."""
    settings: Sequence[Mapping[str, object]]
    """Of two mask files: ``name``, ``a`` and ``b`` of what at least one of them records; ``?`` is
    what a side does not record."""
    notes: Sequence[str]
    """What a reader has to know, a sentence each."""
    html: Path | None = None
    """The page, where one was asked for."""


def comparison_answer(
    comparison: Comparison, *, html: Path | None = None
) -> Answer[ComparisonDocument]:
    """Answer with the verdict, and with what differs: settings, weights, masks, scores."""
    changes = [
        ObjectChangeDocument.of(name, change) for name, change in _object_changes(comparison.masks)
    ]
    document = ComparisonDocument(
        verdict=comparison.verdict,
        differs=comparison.differs,
        weights=_weights_document(comparison),
        masks={name: result.figures() for name, result in comparison.masks.items()},
        objects={**comparison.n_objects, "changes": changes},
        ppm=comparison.ppm,
        environment=dict(comparison.environment),
        spec=dict(comparison.spec),
        ap50=comparison.ap50,
        ap50_train=comparison.ap50_train,
        state=_state_document(comparison.state),
        settings=[setting._asdict() for setting in comparison.settings],
        notes=comparison.notes,
        html=html,
    )
    lines = list(_comparison_lines(comparison))
    return Answer(document, lines if html is None else [*lines, f"  page: {html}"])


def _object_changes(masks: Mapping[str, MaskComparison]) -> list[tuple[str, ObjectChange]]:
    """What became of every object, with the name of its image."""
    return [(name, change) for name, result in masks.items() for change in result.objects]


def _weights_document(comparison: Comparison) -> dict[str, object] | None:
    if comparison.weights is None:
        return None
    weights = _differing_tensors(comparison.weights)
    if comparison.files is not None:
        weights["files"] = FilesDocument(
            sizes=comparison.files.sizes,
            equal=not comparison.files.parts,
            differing=[part._asdict() for part in comparison.files.parts],
        )
    return weights


def _differing_tensors(weights: WeightsComparison) -> dict[str, object]:
    """The fields of a comparison of tensors, of which those that differ."""
    document = asdict(weights)
    document["per_tensor"] = [row for row in document["per_tensor"] if row["n_differing"]]
    return document


def _state_document(state: StateComparison | None) -> dict[str, object] | None:
    if state is None:
        return None
    tensors = {part: _differing_tensors(found) for part, found in state.tensors.items()}
    return {**asdict(replace(state, tensors={})), "tensors": tensors}


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    differs = f": {', '.join(comparison.differs)}" if comparison.differs else ""
    yield f"{comparison.verdict}{differs}"
    for setting in comparison.differing_settings:
        yield f"  setting {setting.name}: {_value(setting.a)} and {_value(setting.b)}"
    if comparison.weights is not None:
        yield from _weights_lines(comparison.weights)
    if comparison.state is not None:
        yield from (f"  {sentence}" for sentence in comparison.state.sentences())
    if comparison.files is not None:
        yield "  files: " + "\n    ".join(comparison.files.sentences())
    if comparison.masks:
        yield f"  masks: {comparison.totals.sentence()}"
    yield from _change_lines(comparison.masks)
    if comparison.ap50 is not None and None not in comparison.ap50:
        yield "  ground truth: AP@0.5 {:.3f} and {:.3f}".format(*comparison.ap50)
    if comparison.ap50_train is not None and None not in comparison.ap50_train:
        yield "  on training images: AP@0.5 {:.3f} and {:.3f}".format(*comparison.ap50_train)
    yield from _pair_lines("spec", comparison.spec)
    yield from _pair_lines("environment", comparison.environment)
    for note in comparison.notes:
        yield f"  note: {note}"


def _value(value: object) -> str:
    """A setting as its user knows it: no quotes, and "none" for Python's None."""
    return "none" if value is None else short_digest(str(value))


def _pair_lines(title: str, pairs: Mapping[str, tuple[object, object]]) -> Iterator[str]:
    for name, (a, b) in pairs.items():
        yield f"  {title} {name}: {a!r} and {b!r}"


def _weights_lines(weights: WeightsComparison) -> Iterator[str]:
    """Say how far two networks lie apart, and which tensors only one of the two has."""
    from cellrepro.same.weight_tensors import layers_of

    yield f"  weights: {weights.sentence()}"
    layers = layers_of(tensor.name for tensor in weights.per_tensor if tensor.n_differing)
    if layers:
        n_layers = len(layers_of(tensor.name for tensor in weights.per_tensor))
        yield f"    in {len(layers)} of {amount(n_layers, 'layer')}: {some(layers, _MOST_NAMES)}"
    if weights.only_a:
        yield f"    only in A: {some(weights.only_a, _MOST_NAMES)}"
    if weights.only_b:
        yield f"    only in B: {some(weights.only_b, _MOST_NAMES)}"


def _change_lines(masks: Mapping[str, MaskComparison]) -> Iterator[str]:
    """Say which objects are not where they were."""
    cells = [
        ChangedCellLine(name, change, result.shape)
        for name, result in masks.items()
        for change in result.objects
        if change.kind != "kept"
    ]
    return change_table(cells, a="A", b="B")


class ChangedCellLine(NamedTuple):
    """What became of a cell, and the image in which it lies, with its shape where it is known."""

    image: str
    change: ObjectChange
    shape: tuple[int, ...] = ()


def change_table(cells: Sequence[ChangedCellLine], *, a: str, b: str) -> Iterator[str]:
    """List in a terminal what became of some cells, one a line under its headings.

    At most `_MOST_CHANGES` cells; their image where there are several.
    """
    if not cells:
        return
    with_images = len({cell.image for cell in cells}) > 1
    head = ["cell", f"in {a}", f"in {b}", "where", f"pixels in {a}", f"in {b}", "IoU"]
    rows = [["image", *head] if with_images else head]
    for image, change, shape in cells[:_MOST_CHANGES]:
        labels = [", ".join(map(str, numbers)) or "–" for numbers in change[1:3]]
        where = place_text(change.position, shape)
        areas = [str(area or "–") for area in (change.area_a, change.area_b)]
        cuts = f", cut between {change.cuts}" if change.cuts else ""
        iou = f"{change.iou:.3f}" if change.labels_a and change.labels_b else "–"
        row = [change.kind.in_words, *labels, where + cuts, *areas, iou]
        rows.append([image, *row] if with_images else row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells_of_row = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield f"    {'  '.join(cells_of_row)}".rstrip()
    if len(cells) > _MOST_CHANGES:
        yield f"    and {len(cells) - _MOST_CHANGES} more; --json names them all"
