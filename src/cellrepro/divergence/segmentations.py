"""Where two segmentations of the same images diverge: from the file to the last filter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.divergence.image_inspection import IMAGE_STAGES, ImageInspection
from cellrepro.divergence.inspection import CannotInspect, Inspection
from cellrepro.divergence.judgements import DivergenceJudgement
from cellrepro.divergence.result import Cause, Divergence, Evidence, FirstDifference
from cellrepro.errors import CellreproError
from cellrepro.model.stages import PASSED
from cellrepro.store.ledger import LedgerRow
from cellrepro.store.store import Repeat


def rows_by_stage(rows: Sequence[LedgerRow], repeat: Repeat) -> Iterator[LedgerRow]:
    """Give a ledger under the stages of a segmentation, without what it does not use.

    Left out are true masks, images that were not segmented, and generators.
    """
    images = repeat.manifest.masks
    for row in rows:
        stage = _stage_in_segmentation(row, images)
        if stage is not None:
            yield replace(row, stage=stage)


def _stage_in_segmentation(row: LedgerRow, images: Collection[str]) -> str | None:
    """The stage of a segmentation that a row tells about; None for what it does not use."""
    match row.stage:
        case "rng":
            return None
        case "data":
            return _stage_of_data(row.name, images)
        case "masks" if not row.name.endswith(" masks"):
            return "filtered"
    return row.stage


def _stage_of_data(name: str, images: Collection[str]) -> str | None:
    """``file`` or ``decoded`` for what is of a segmented image; None for everything else."""
    if name.startswith("file "):
        if Path(name.removeprefix("file ")).stem in images:
            return "file"
        return None
    is_decoded = name.endswith(" decoded") and name.removesuffix(" decoded") in images
    return "decoded" if is_decoded else None


def comparable_stages(
    sides: Sequence[list[LedgerRow]], repeats: Sequence[Repeat]
) -> list[list[LedgerRow]]:
    """Leave out stages of which one ledger says nothing, as older ones do.

    The weights are left out, too, where they are those of one model in two precisions.
    """
    stages_a, stages_b = ({row.stage for row in side} for side in sides)
    left_out = set(PASSED.keys() - (stages_a & stages_b))
    a, b = (repeat.spec for repeat in repeats)
    same_model = (a.model, a.model_digest) == (b.model, b.model_digest)
    precisions = {spec.profile_settings.get("dtype", "float32") for spec in (a, b)}
    if same_model and len(precisions) == 2:
        left_out.add("weights-init")
    return [[row for row in side if row.stage not in left_out] for side in sides]


def with_images(
    answer: Divergence, inspection: Inspection, ledgers: LedgerComparison
) -> Divergence:
    """Add the first stage at which an image differs, and what inspecting it shows."""
    images = list(inspection.repeats[0].manifest.masks)
    entry = _first_in_image(ledgers, images)
    first = answer.first
    if entry is None or first is None:
        return answer
    image = _image_of(entry)
    difference = FirstDifference.of(entry, ledgers).of_image(image, images.index(image))
    judgement = _judged_by_ledgers(difference, ledgers)
    cause = Cause(difference, judgement, Evidence("ledgers"))
    notes = answer.notes
    try:
        cause = ImageInspection.of(inspection).cause_of(cause)
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
        is_of_image = difference.stage in IMAGE_STAGES and _image_of(difference) in images
        is_stored_file = difference.name.endswith(" stored file")
        if is_of_image and not is_stored_file and difference.a and difference.b:
            return difference
    return None


def _judged_by_ledgers(
    difference: FirstDifference, ledgers: LedgerComparison
) -> DivergenceJudgement:
    if any(entry.stage == "spec" for entry in ledgers.differences):
        return "settings"
    if difference.stage == "decoded" or ledgers.of_stage("weights-init"):
        return "data"
    return "unexplained"


def _image_of(difference: Difference) -> str:
    return difference.name.rpartition(" ")[0]
