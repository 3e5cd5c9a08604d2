"""What made the first difference that was computed: an operation, or a stage of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.divergence.evidence import Cause, Evidence
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.image_inspection import ImageInspection
from cellrepro.divergence.inspection import CannotInspect
from cellrepro.divergence.judgements import OF_STAGE, DivergenceJudgement
from cellrepro.divergence.result import Divergence
from cellrepro.divergence.run_ledgers import image_of, is_stored_file
from cellrepro.divergence.segmented_again import IMAGE_STAGES
from cellrepro.divergence.step_inspection import StepInspection
from cellrepro.errors import CellreproError
from cellrepro.store.stored_run import Repeat

_COMPARABLE_SETTINGS = {"mode", "loose"}
"""Settings in which two specs may differ and their operations still be compared."""
_OTHER_INPUTS = ("data", "weights-init", "rng")
"""Stages before the first step; where these differ, operations have nothing in common."""


def with_cause_in_step(
    answer: Divergence,
    first_computed: Difference,
    ledgers: LedgerComparison,
    inspection: StepInspection,
) -> Divergence:
    """Add what made the first difference that was computed."""
    computed = FirstDifference.of(first_computed, ledgers)
    is_of_step = first_computed.step is not None
    try:
        if is_of_step:
            _refuse_other_inputs(ledgers, inspection.repeats)
        cause = inspection.cause_of(computed)
    except CannotInspect as error:
        # Of masks alone no stage was computed in both runs, so the first difference stays.
        named = _with_computed(answer, computed) if is_of_step else answer
        return replace(named, notes=(*named.notes, str(error)))
    explained = _explained(_with_computed(answer, cause.difference), cause)
    return explained if is_of_step else replace(explained, judgement=answer.judgement)


def _explained(answer: Divergence, cause: Cause) -> Divergence:
    """Add a cause: the judgement, how it is known, and the operations side by side."""
    return replace(
        answer,
        judgement=cause.judgement,
        evidence=cause.evidence,
        operations=cause.operations,
    )


def _with_computed(answer: Divergence, computed: FirstDifference) -> Divergence:
    """Add the first difference that was computed.

    It replaces the first of all where both are of one stage and step. A difference of environments,
    which has no operation, gets the operation in which it shows.
    """
    first = answer.first
    assert first is not None  # what was computed otherwise differs
    if first.stage == "environment" and computed.op is not None:
        in_environment = replace(
            computed,
            stage=first.stage,
            names=first.names,
            said=first.said,
            is_of_bits=first.is_of_bits,
        )
        return replace(answer, first=in_environment, computed=in_environment)
    if (first.stage, first.step) == (computed.stage, computed.step):
        return replace(answer, first=computed, computed=computed)
    return replace(answer, computed=computed)


def _refuse_other_inputs(ledgers: LedgerComparison, repeats: Sequence[Repeat]) -> None:
    """Refuse to compare operations where the two went into the first step with other inputs."""
    if any(repeat.spec.ranks > 1 for repeat in repeats):
        raise CannotInspect("operations were not compared: several ranks shared each step")
    settings = set()
    stages = set()
    for difference in ledgers.differences:
        if difference.step is not None:
            continue
        if difference.stage == "spec":
            settings.add(difference.name)
        elif difference.stage in _OTHER_INPUTS:
            stages.add(OF_STAGE[difference.stage].name)
    obstacles = [*sorted(settings - _COMPARABLE_SETTINGS), *sorted(stages)]
    if obstacles:
        raise CannotInspect(
            f"operations were not compared: the two differ in {', '.join(obstacles)}"
        )


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
    is_of_one_stage = first.stage == computed.stage
    first = computed if is_of_one_stage else replace(first, max_abs=computed.max_abs)
    return _explained(replace(answer, first=first, computed=computed, notes=notes), cause)


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
