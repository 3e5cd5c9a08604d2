"""Whatever a user names, compared: mask files, folders of masks, baselines, weights, runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.comparison.file_content import FileContent
from cellrepro.comparison.mask_totals import verdict_over
from cellrepro.comparison.state_comparison import StateComparison, compare_states
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.comparison.weight_comparison import WeightsComparison, compare_networks
from cellrepro.comparison.weight_files import compare_files
from cellrepro.comparison.weight_reading import open_file
from cellrepro.errors import BadInput
from cellrepro.explanation.compare_repeats import compare_repeats
from cellrepro.explanation.hand_edits import EditedSide, HandEdit, effect_of_hand
from cellrepro.explanation.recorded_settings import side_by_side
from cellrepro.explanation.references import (
    MASK_ENDINGS,
    MaskReaders,
    file_or_run,
    image_name,
    kind_in_words,
    masks_of,
    newer_seg_notes,
    reference_kind,
)
from cellrepro.explanation.sides import read_side
from cellrepro.explanation.two_results import (
    Comparison,
    Differs,
    compare_by_image,
    masks_differ,
    not_finite_notes,
    stitching_notes,
)
from cellrepro.images.image_file import read_labels
from cellrepro.images.integer_images import Integers
from cellrepro.spec import defaults
from cellrepro.store.store import Store
from cellrepro.words import joined


def compare(a: str | Path, b: str | Path, *, store: str | Path = defaults.STORE) -> Comparison:
    """Compare two files, folders or runs that both have masks, or both have weights."""
    opened_store = Store(store)
    path_a = file_or_run(a, name="a")
    path_b = file_or_run(b, name="b")
    kinds = {reference_kind(path_a), reference_kind(path_b)}
    if kinds == {"run"}:
        return compare_repeats(*opened_store.find_two(str(a), str(b)), store=opened_store)
    if kinds == {"masks"}:
        return _compare_two_files(str(a), str(b), opened_store)
    if "weights" not in kinds:
        masks_a = masks_of(str(a), opened_store)
        masks_b = masks_of(str(b), opened_store)
        if len(masks_a) == len(masks_b) == 1 and kinds != {"folder"}:  # whatever they are called
            masks_b = dict(zip(masks_a, masks_b.values(), strict=True))
        comparison = _compare_mask_files(masks_a, masks_b, who=f"{a} and {b}")
        newer = [
            f"{side}: {note}"
            for side, path in (("A", path_a), ("B", path_b))
            for note in newer_seg_notes(path)
        ]
        return replace(comparison, notes=(*comparison.notes, *newer))
    if kinds <= {"weights", "run"}:
        return _compare_weights_files(_weights_of(a, opened_store), _weights_of(b, opened_store))
    raise _not_comparable(path_a, path_b)


@dataclass(frozen=True)
class _MaskFile:
    """A mask file, with what is recorded of how it was made."""

    masks: Integers
    recorded: Mapping[str, object]
    remarks: Sequence[str]
    edits: tuple[HandEdit, ...] = ()
    """Cells that were drawn or removed by hand."""

    @classmethod
    def read(cls, file: str, store: Store) -> _MaskFile:
        """Read masks and record; a damaged record becomes a remark, as masks need none."""
        try:
            side = read_side(file, image="", store=store)
        except BadInput as error:
            return cls(read_labels(file), {}, [f"what is recorded of it is not used: {error}"])
        recorded = {**side.recorded, **side.known}
        return cls(side.masks, recorded, side.record.remarks, side.edits)


def _compare_two_files(a: str, b: str, store: Store) -> Comparison:
    """Compare two mask files, and what is recorded of how they were made."""
    file_a = _MaskFile.read(a, store)
    file_b = _MaskFile.read(b, store)
    name = image_name(Path(a).stem)
    masks_a: MaskReaders = {name: lambda: file_a.masks}
    masks_b: MaskReaders = {name: lambda: file_b.masks}
    comparison = _compare_mask_files(masks_a, masks_b, who=f"{a} and {b}")
    by_hand = effect_of_hand(
        EditedSide("A", file_a.masks, file_a.edits), EditedSide("B", file_b.masks, file_b.edits)
    )
    table = side_by_side(file_a.recorded, file_b.recorded)
    remarks = [
        f"{letter}: {remark}"
        for letter, file in (("A", file_a), ("B", file_b))
        for remark in file.remarks
    ]
    return replace(
        comparison,
        settings=tuple(setting for setting in table if setting.is_recorded),
        notes=(*comparison.notes, *by_hand.notes, *remarks),
    )


def _compare_mask_files(a: MaskReaders, b: MaskReaders, *, who: str) -> Comparison:
    compared = compare_by_image(a, b, who=who)
    masks = compared.by_image
    verdict = verdict_over(masks.values()) if a.keys() == b.keys() else Verdict.DIFFERENT
    return Comparison(
        verdict=verdict,
        differs=("masks",) if masks_differ(verdict) else (),
        masks=masks,
        notes=(*compared.notes, *stitching_notes(masks)),
    )


def _compare_weights_files(a: Path, b: Path) -> Comparison:
    """Compare two files of tensors: their networks, and what else two checkpoints hold."""
    content_a = open_file(a)
    content_b = open_file(b)
    with_networks = bool(content_a.network) and bool(content_b.network)
    state = None
    if content_a.has_more and content_b.has_more:
        state = compare_states(content_a, content_b)
    elif not with_networks:
        why = content_a.why_no_network or content_b.why_no_network
        raise BadInput(f"{a} and {b} hold nothing that both have: {why or 'no tensor'}")
    weights = compare_networks(content_a.network, content_b.network) if with_networks else None
    files = compare_files(
        a,
        b,
        same_parameters=weights is None or weights.equal,
        checkpoints=content_a.has_more or content_b.has_more,
    )
    return Comparison(
        verdict=_verdict_on_files(weights, state),
        differs=tuple(_differing_parts(content_a, content_b, weights, state)),
        weights=None if weights is None else replace(weights, files=files),
        files=files,
        state=state,
        notes=(*not_finite_notes(weights), *_checkpoint_notes(content_a, content_b)),
    )


def _verdict_on_files(weights: WeightsComparison | None, state: StateComparison | None) -> Verdict:
    """The verdict over the networks, and over what checkpoints hold beside them."""
    if state is not None and state.differing:
        return Verdict.DIFFERENT
    if weights is not None:
        return weights.verdict
    tensors = () if state is None else state.tensors.values()
    return combine(each.verdict for each in tensors)


def _differing_parts(
    a: FileContent,
    b: FileContent,
    weights: WeightsComparison | None,
    state: StateComparison | None,
) -> Iterator[Differs]:
    """The parts in which two files differ, in the order of a training step."""
    one_has_a_network = bool(a.network) != bool(b.network)
    if one_has_a_network or (weights is not None and not weights.equal):
        yield "weights"
    if state is not None:
        yield from state.differing


def _checkpoint_notes(a: FileContent, b: FileContent) -> Iterator[str]:
    """Say where networks were found, and what of a checkpoint had nothing to be compared with."""
    if a.under and a.under == b.under:
        yield f"A and B are checkpoints; their networks were found under {a.under!r}"
        return
    for side, content, other in (("A", a, b), ("B", b, a)):
        if content.why_no_network:
            yield f"{side} has no network: {content.why_no_network}"
        if not content.under:
            continue
        note = f"{side} is a checkpoint; its network was found under {content.under!r}"
        if not other.has_more and content.parts:
            note += f"; the other file is a network alone, and {joined(content.parts)} of this one "
            note += "had nothing to be compared with"
        yield note


def _weights_of(reference: str | Path, store: Store) -> Path:
    path = Path(reference)
    if reference_kind(path) == "weights":
        return path
    repeat = store.find(str(reference))
    if repeat.weights is None:
        raise BadInput(f"run {repeat.name} only segmented; it holds no weights to compare")
    return repeat.weights


def _not_comparable(a: Path, b: Path) -> BadInput:
    return BadInput(
        f"{a} and {b} are not of one kind: {kind_in_words(a)} and {kind_in_words(b)}; expected two "
        f"mask files ({', '.join(MASK_ENDINGS)}), folders of masks, baselines, KEY/REPEAT of the "
        "store, or weights files"
    )
