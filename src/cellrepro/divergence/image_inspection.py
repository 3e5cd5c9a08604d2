"""One image of two segmentations, segmented again with every stage kept, to find what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.operation_diff import first_divergence
from cellrepro.comparison.round_off import judge_round_off
from cellrepro.divergence.evidence import Cause, Evidence
from cellrepro.divergence.first_difference import FirstDifference, OperationAt, Size
from cellrepro.divergence.inspection import CannotInspect, Inspection
from cellrepro.divergence.judgements import of_round_off
from cellrepro.divergence.substitute_calls import align_operations
from cellrepro.images.folder import LabelledImage
from cellrepro.model.stages import MADE_BY, PASSED, Stages
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child, Event
from cellrepro.progress import progress
from cellrepro.run.plan import Request
from cellrepro.store.ledger import LEDGER, OPERATIONS, SEGMENTATION_STAGES, LedgerRow, read_rows
from cellrepro.store.store import Repeat
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.words import amount, grouped, that_differ

IMAGE_STAGES = SEGMENTATION_STAGES[SEGMENTATION_STAGES.index("decoded") :]
"""The stages of a segmentation that an image passes."""

_OF_NETWORK = ("network", "flows")
_OF_OLDER_LEDGERS = ("flows", "filtered")  # their only stages of an image
_WITH_CHANNELS_LAST = ("channels", "normalised")
_ARRAYS = {"tiles": "tile", "network": "tile"}  # one array each; at other stages each is a plane
_FLOWS = ("the flows", "the cell probability")


@dataclass
class SegmentedAgain:
    """One image segmented again; arrays and digests by stage."""

    arrays: Mapping[str, list[np.ndarray]]
    digests: Mapping[str, str]
    rows: list[OperationRow]
    """Operations of the network."""
    diverged: SegmentedAgain | None = None
    """The first repetition that gave different bits."""
    n_repetitions: int = 0


class ImageInspection(Inspection):
    """Two segmentations inspected in one image."""

    def cause_of(self, cause: Cause) -> Cause:
        """Find the first stage that differs, how far apart the two are from there on, and why."""
        stored = self._in_stored_rows(cause.difference)
        if not self.again:
            return _with_operation(cause, stored)
        is_unexplained = cause.judgement == "unexplained"
        is_of_network = cause.difference.stage in _OF_NETWORK
        with_operations = is_of_network and is_unexplained
        sides = self._segmented_again(cause, with_operations=with_operations)
        cause = replace(cause, evidence=self._evidence(sides, str(cause.difference.image)))
        if len(sides) == 1:  # it does not differ from itself
            return _with_operation(cause, stored)
        a, b = sides
        cause = _measured(cause, a, b)
        if a.diverged is not None:
            return _with_operation(replace(cause, judgement="race"), stored)
        return self._judged(cause, a, b) if with_operations else cause

    def _evidence(self, sides: Sequence[SegmentedAgain], image: str) -> Evidence:
        """How often the image was segmented, and how many stages had the stored bits."""
        # There is one side where both should agree and the first did not differ from itself.
        arrival = [
            _agreement_with_stored(replayed, repeat, image)
            for replayed, repeat in zip(sides, self.repeats, strict=False)
        ]
        return Evidence(
            "segmented again", n_repetitions=sides[0].n_repetitions, arrival=tuple(arrival)
        )

    def _in_stored_rows(self, difference: FirstDifference) -> Cause | None:
        """The first operation that differs, where both runs recorded operations."""
        if difference.stage not in _OF_NETWORK or difference.step is None:
            return None
        rows = self.stored_rows(OPERATIONS, OperationRow, difference.step)
        return None if rows is None else self.cause_in_rows(difference, *rows)

    def _segmented_again(self, cause: Cause, *, with_operations: bool) -> list[SegmentedAgain]:
        """Segment the image on each side, or on one repeatedly where both should agree."""
        image = str(cause.difference.image)
        a, b = (repeat.spec for repeat in self.repeats)
        alike = (a.profile_settings, a.cellpose) == (b.profile_settings, b.cellpose)
        with progress(4, f"segmenting {image} again", quiet=self.quiet) as bar:
            segment_side = partial(
                self._segment_side, image, on_event=counting(bar), operations=with_operations
            )
            if cause.judgement == "unexplained" and alike:
                replayed = segment_side(self.repeats[0], repetitions=self.repetitions)
                return [replayed] if replayed.diverged is None else [replayed, replayed.diverged]
            return [segment_side(repeat) for repeat in self.repeats]

    def _segment_side(
        self,
        image: str,
        repeat: Repeat,
        *,
        on_event: Callable[[Event], None],
        operations: bool,
        repetitions: int = 0,
    ) -> SegmentedAgain:
        pixels = self.store.image(repeat.spec.images_digest, image)
        if pixels is None:
            raise CannotInspect(f"the store does not keep {image} of {repeat.name}")
        source = self.source_of(repeat)
        if source.path is None and repeat.spec.seed is None:
            raise CannotInspect(f"the random weights of {repeat.name} were not seeded (mode off)")
        stack = repeat.masks(image).ndim == 3
        request = Request(repeat.spec, Path(), source)
        task = partial(
            segmented_again,
            request=request,
            image=LabelledImage(image, pixels, None, Path(image), stack=stack),
            operations=operations,
            repetitions=repetitions,
        )
        label = f"segmenting {image} of {repeat.name} again"
        return in_child(task, request.setup, label=label, on_event=on_event)

    def _judged(self, cause: Cause, a: SegmentedAgain, b: SegmentedAgain) -> Cause:
        """Name the network's operation, and judge whether all are within their error."""
        alignment = align_operations(self.repeats, a.rows, b.rows)
        parting = first_divergence(alignment)
        verdict, round_off = judge_round_off(a.rows, b.rows)
        difference = cause.difference
        if parting is not None:
            operation = OperationAt.of(parting.a, inputs=parting.inputs)
            difference = replace(difference, operation=operation)
        evidence = cause.evidence.of_operations(alignment, parting, round_off)
        return Cause(difference, of_round_off(verdict), evidence, operations=alignment)


def _with_operation(cause: Cause, stored: Cause | None) -> Cause:
    """Add the operation that both runs recorded, if any."""
    if stored is None or stored.difference.operation is None:
        return cause
    operation = replace(stored.difference.operation, phase="forward")
    evidence = replace(
        cause.evidence, alignment=stored.evidence.alignment, parting=stored.evidence.parting
    )
    return replace(
        cause,
        difference=replace(cause.difference, operation=operation),
        evidence=evidence,
        operations=stored.operations,
    )


def _agreement_with_stored(replayed: SegmentedAgain, repeat: Repeat, image: str) -> str:
    """Say how many stages have the bits of the stored run."""
    if not repeat.has(LEDGER):
        return "there is no ledger to compare it with"
    stored = {row.name: row.digest for row in read_rows(repeat.file(LEDGER), LedgerRow)}
    in_both = [
        stage for stage in PASSED if f"{image} {stage}" in stored and stage in replayed.digests
    ]
    n_same = sum(stored[f"{image} {stage}"] == replayed.digests[stage] for stage in in_both)
    return f"{n_same} of {amount(len(in_both), 'stage')} gave the stored bits"


# -- inside the child ----------------------------------------------------------------------


def segmented_again(
    child: Child,
    *,
    request: Request,
    image: LabelledImage,
    operations: bool = False,
    repetitions: int = 0,
) -> SegmentedAgain:
    """Segment an image in the child, with every stage kept, until it differs from itself."""
    from cellrepro.trace.operation_ledger import OperationLedger

    with child.opened(request.model) as (network, _), child.loosened():
        child.setup.seed_all()
        replayed = _stages_of(network, image, request)
        if operations:
            with OperationLedger(network, step=0, reference=True, across_devices=True) as ledger:
                _stages_of(network, image, request)
            replayed.rows = ledger.rows
        while replayed.diverged is None and replayed.n_repetitions < repetitions:
            repetition = _stages_of(network, image, request)
            replayed.n_repetitions += 1
            if repetition.digests != replayed.digests:
                replayed.diverged = repetition
    child.tell("done", "segmented")
    return replayed


def _stages_of(network: Any, image: LabelledImage, request: Request) -> SegmentedAgain:
    """Segment one image, and keep every stage."""
    from cellrepro.model.inference import segment

    stages = Stages(keep=True)
    with stages.watching():
        (result,) = segment(network, (image,), **request.spec.settings.arguments())
    stages.saw("decoded", image.image)
    stages.saw("flows", *result.flows.values())
    stages.saw("filtered", result.masks)
    return SegmentedAgain(stages.arrays, stages.digests, rows=[])


# -- how far apart -------------------------------------------------------------------------


def _measured(cause: Cause, a: SegmentedAgain, b: SegmentedAgain) -> Cause:
    """Add how far apart the two are in each stage; older ledgers do not name the first."""
    sizes = dict(_sizes_by_stage(a, b))
    difference = cause.difference
    if difference.stage in _OF_OLDER_LEDGERS and sizes:
        difference = replace(difference, stage=next(iter(sizes)))
    if difference.stage in sizes:
        module, op = MADE_BY.get(difference.stage, (None, None))
        difference = replace(
            difference, size=sizes[difference.stage], operation=OperationAt(op, module)
        )
    stages_apart = tuple(f"{stage}: {size.sentence()}" for stage, size in sizes.items())
    evidence = replace(cause.evidence, stages_apart=stages_apart)
    return replace(cause, difference=difference, evidence=evidence)


def _sizes_by_stage(a: SegmentedAgain, b: SegmentedAgain) -> Iterator[tuple[str, Size]]:
    """How far apart two results are in every stage that differs, in order."""
    for stage in IMAGE_STAGES:
        if a.digests.get(stage) != b.digests.get(stage):
            yield stage, _size_at(stage, a.arrays.get(stage, []), b.arrays.get(stage, []))


def _size_at(stage: str, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Size:
    """How far apart the arrays of a stage are, and where or how."""
    shapes_a = [array.shape for array in a]
    shapes_b = [array.shape for array in b]
    if shapes_a != shapes_b or not a:
        in_a = _shapes_in_words(stage, shapes_a)
        in_b = _shapes_in_words(stage, shapes_b)
        return Size(words=f"{in_a} in A, {in_b} in B")
    if stage in ("masks", "filtered"):
        return _size_of_masks(a, b)
    largest = _largest_difference(a, b)
    y, x = largest.position[-3:-1] if stage in _WITH_CHANNELS_LAST else largest.position[-2:]
    of_array = f" of {_array_in_words(stage, largest.array, len(a))}" if len(a) > 1 else ""
    n_values = sum(array.size for array in a)
    return Size(
        max_abs=largest.max_abs,
        n_elements=largest.n_differing,
        words=(
            f"at y {y}, x {x}{of_array}, {grouped(largest.n_differing)} of {grouped(n_values)} "
            "values"
        ),
    )


def _size_of_masks(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Size:
    results = [compare_masks(masks_a, masks_b) for masks_a, masks_b in zip(a, b, strict=True)]
    n_pixels = sum(result.n_differing for result in results)
    n_cells = sum(result.n_unmatched for result in results)
    cells = amount(n_cells, "cell") if n_cells else "no cell"
    words = f"{that_differ(n_pixels, 'pixel')}, {cells} without a counterpart"
    return Size(n_elements=n_pixels, words=words)


class _Largest(NamedTuple):
    """The largest difference of two lists of arrays."""

    max_abs: float
    array: int
    """Index of its array in the lists."""
    position: tuple[int, ...]
    """Index in that array."""
    n_differing: int
    """Values that differ, in all arrays."""


def _largest_difference(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> _Largest:
    differences = [
        np.abs(array_a.astype(np.float64) - array_b.astype(np.float64))
        for array_a, array_b in zip(a, b, strict=True)
    ]
    array = int(np.argmax([difference.max(initial=0) for difference in differences]))
    difference = differences[array]
    index = np.unravel_index(int(difference.argmax()), difference.shape)
    return _Largest(
        max_abs=float(difference[index]),
        array=array,
        position=tuple(int(coordinate) for coordinate in index),
        n_differing=sum(int(np.count_nonzero(each)) for each in differences),
    )


def _array_in_words(stage: str, array: int, n_arrays: int) -> str:
    if stage == "flows":
        return _FLOWS[array]
    return f"{_ARRAYS.get(stage, 'plane')} {array + 1} of {n_arrays}"


def _shapes_in_words(stage: str, shapes: Sequence[tuple[int, ...]]) -> str:
    if not shapes:
        return "nothing"
    size = " x ".join(map(str, shapes[0]))
    return f"{amount(len(shapes), _ARRAYS.get(stage, 'plane'))} of {size}"
