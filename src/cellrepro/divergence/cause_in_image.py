"""The stage of an image that made the first difference of two segmentations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.divergence.evidence import Cause, Evidence
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.image_inspection import ImageInspection
from cellrepro.divergence.inspection import CannotInspect
from cellrepro.divergence.judgements import DivergenceJudgement
from cellrepro.divergence.result import Divergence
from cellrepro.divergence.run_ledgers import image_of, is_stored_file
from cellrepro.divergence.segmented_again import IMAGE_STAGES
from cellrepro.errors import CellreproError


def with_cause_in_image(
    answer: Divergence, inspection: ImageInspection, ledgers: LedgerComparison
) -> Divergence:
    """Add the first stage in which an image differs, and what inspecting it shows."""
    images = list(inspection.repeats[0].manifest.masks)
    entry = _first_in_image(ledgers, images)
    first = answer.first
    if entry is None or first is None:
        return answer
    image = image_of(entry.name)
    difference = FirstDifference.of(entry, ledgers).of_image(image, images.index(image))
    judgement = _judged_in_image(difference, ledgers)
    cause = Cause(difference, judgement, Evidence("ledgers"))
    notes = answer.notes
    try:
        cause = inspection.cause_of(cause)
    except (CannotInspect, CellreproError) as error:
        notes = (*notes, f"not segmented again: {error}")
    computed = cause.difference
    if first.stage == computed.stage:
        first = computed
    else:
        first = replace(first, size=replace(first.size, max_abs=computed.size.max_abs))
    return replace(
        answer,
        first=first,
        computed=computed,
        judgement=cause.judgement,
        evidence=cause.evidence,
        operations=cause.operations,
        notes=notes,
    )


def _first_in_image(ledgers: LedgerComparison, images: Sequence[str]) -> Difference | None:
    """The first difference in a stage of an image that both segmented."""
    for difference in ledgers.differences:
        is_of_image = difference.stage in IMAGE_STAGES and image_of(difference.name) in images
        if is_of_image and not is_stored_file(difference.name) and difference.a and difference.b:
            return difference
    return None


def _judged_in_image(difference: FirstDifference, ledgers: LedgerComparison) -> DivergenceJudgement:
    if any(entry.stage == "spec" for entry in ledgers.differences):
        return "settings"
    if difference.stage == "decoded" or ledgers.of_stage("weights-init"):
        return "data"
    return "unexplained"
