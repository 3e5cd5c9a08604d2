"""Where two segmentations of the same images diverge: from the file to the last filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cellrepro.divergence.judgements import Judgement
from cellrepro.divergence.look import CannotLook, Look
from cellrepro.divergence.look_at_image import IMAGE_STAGES, LookAtImage
from cellrepro.divergence.result import Cause, Divergence, Evidence, FirstDifference
from cellrepro.errors import CellreproError
from cellrepro.model.stages import PASSED
from cellrepro.same.ledger_diff import Difference, LedgerComparison
from cellrepro.store.ledger import LedgerRow
from cellrepro.store.store import Repeat


def rows_by_stage(rows: Sequence[LedgerRow], repeat: Repeat) -> Iterator[LedgerRow]:
    """Give a ledger under the stages of a segmentation, without what it does not use.

    Left out are true masks, images that were not segmented, and generators.
    """
    images = repeat.manifest.masks
    for row in rows:
        name = row.name
        if row.stage == "data" and name.startswith("file "):
            if Path(name.removeprefix("file ")).stem in images:
                yield replace(row, stage="file")
        elif row.stage == "data":
            if name.endswith(" decoded") and name.removesuffix(" decoded") in images:
                yield replace(row, stage="decoded")
        elif row.stage == "masks" and not name.endswith(" masks"):
            yield replace(row, stage="filtered")
        elif row.stage != "rng":
            yield row


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


def with_images(answer: Divergence, look: Look, ledgers: LedgerComparison) -> Divergence:
    """Add the first stage at which an image differs, and what a closer look says of it.

    Parameters
    ----------
    answer : Divergence
        From the ledgers alone, of two segmentations.
    look : Look
    ledgers : LedgerComparison
    """
    images = list(look.repeats[0].manifest.masks)
    shown = _first_in_image(ledgers, images)
    first = answer.first
    if shown is None or first is None:
        return answer
    image = _image_of(shown)
    difference = FirstDifference.of(shown, ledgers).of_image(image, images.index(image))
    judgement = _judged_by_ledgers(difference, ledgers)
    cause = Cause(difference, judgement, Evidence("ledgers"))
    notes = answer.notes
    try:
        cause = LookAtImage.of(look).cause_of(cause)
    except (CannotLook, CellreproError) as error:
        notes = (*notes, f"not segmented again: {error}")
    difference = cause.difference
    if first.stage == difference.stage:
        first = difference
        computed = difference
    else:
        first = replace(first, size=replace(first.size, max_abs=difference.size.max_abs))
        computed = difference
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


def _judged_by_ledgers(difference: FirstDifference, ledgers: LedgerComparison) -> Judgement:
    if any(other.stage == "spec" for other in ledgers.differences):
        return "settings"
    if difference.stage == "decoded" or ledgers.of_stage("weights-init"):
        return "data"
    return "unexplained"


def _image_of(difference: Difference) -> str:
    return difference.name.rpartition(" ")[0]
