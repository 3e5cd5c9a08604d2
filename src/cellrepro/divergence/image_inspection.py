"""One image of two segmentations, segmented again with every stage kept, to find what differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cellrepro.comparison.operation_diff import first_divergence, judge_round_off
from cellrepro.divergence.evidence import Cause, Evidence
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.inspection import CannotInspect, Inspection
from cellrepro.divergence.judgements import of_round_off
from cellrepro.divergence.segmented_again import SegmentedAgain, segmented_again
from cellrepro.divergence.stages_apart import with_sizes
from cellrepro.divergence.substitute_calls import align_operations
from cellrepro.images.folder import LabelledImage
from cellrepro.model.stages import PASSED
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Event
from cellrepro.progress import progress
from cellrepro.run.plan import Request
from cellrepro.store.ledger import LEDGER, OPERATIONS, LedgerRow
from cellrepro.store.row_tables import read_rows
from cellrepro.store.stored_run import Repeat
from samebits import OperationRow
from samebits.words import amount

_OF_NETWORK = ("network", "flows")


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
        cause = with_sizes(cause, a, b)
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
        with progress(2, f"segmenting {image} again", quiet=self.quiet) as bar:
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
            difference = difference.made_by(parting.a, inputs=parting.inputs)
        evidence = cause.evidence.of_operations(alignment, parting, round_off)
        return Cause(difference, of_round_off(verdict), evidence, operations=alignment)


def _with_operation(cause: Cause, stored: Cause | None) -> Cause:
    """Add the operation that both runs recorded, if any."""
    if stored is None or stored.difference.op is None:
        return cause
    difference = cause.difference.made_by(stored.difference, inputs=stored.difference.inputs)
    evidence = replace(
        cause.evidence, alignment=stored.evidence.alignment, parting=stored.evidence.parting
    )
    return replace(cause, difference=difference, evidence=evidence, operations=stored.operations)


def _agreement_with_stored(replayed: SegmentedAgain, repeat: Repeat, image: str) -> str:
    """Say how many stages have the bits of the stored run."""
    if not repeat.has(LEDGER):
        return "there is no ledger to compare it with"
    stored = {row.name: row.digest for row in read_rows(repeat.file(LEDGER), LedgerRow)}
    in_both = [
        stage for stage in PASSED if f"{image} {stage}" in stored and stage in replayed.digests
    ]
    n_same = sum(stored[f"{image} {stage}"] == replayed.digests[stage] for stage in in_both)
    return f"{n_same} of {amount(len(in_both), 'stage')} came out as stored"
