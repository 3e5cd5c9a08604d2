"""The first place where two stored runs diverge, and what made them diverge there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.divergence.image_inspection import IMAGE_STAGES, ImageInspection
from cellrepro.divergence.inspection import CannotInspect
from cellrepro.divergence.judgements import OF_STAGE, DivergenceJudgement
from cellrepro.divergence.result import Cause, Divergence, Evidence, FirstDifference
from cellrepro.divergence.run_ledgers import compare_runs, of_segmentations, stages_of
from cellrepro.divergence.step_inspection import StepInspection
from cellrepro.errors import CellreproError, whole
from cellrepro.explanation.compare_repeats import compare_repeats
from cellrepro.spec import defaults
from cellrepro.store.ledger import LEDGER
from cellrepro.store.store import Repeat, Store
from cellrepro.terminal import FileName, Quiet, Switch

_COMPARABLE_SETTINGS = {"mode", "loose"}
"""Settings in which two specs may differ and their operations still be compared."""

_OTHER_INPUTS = ("data", "weights-init", "rng")
"""Stages before the first step; where these differ, operations have nothing in common."""


def diverge(
    a: str,
    b: str,
    /,
    *,
    data: FileName | None = None,
    again: Switch = True,
    repetitions: int = 20,
    suspects: int = defaults.SUSPECT_REPLAYS,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Divergence:
    """Name the first place where two stored runs diverge.

    Of two segmentations it is the first stage of an image, from its file to the filtered masks.

    Parameters
    ----------
    a : str
        ``KEY`` (its first repeat) or ``KEY/REPEAT`` of the store.
    b : str
        The second one; ``KEY KEY`` means the first two repeats of a run.
    data : str or Path, optional
        The folder of images, to repeat a step; by default where the runs had it.
    again : bool
        Repeat the step in which they diverge, to name the operation; without it an operation is
        named only where both runs wrote theirs down (``ledger="ops"``).
    repetitions : int
        How often at most a step is repeated from one state, until it diverges from itself.
    suspects : int
        How often operations known to race are run again after that; 0 for none.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show neither progress nor notices.

    Returns
    -------
    Divergence
        Its ``str`` says where they diverge, what that is, and what it came to in cells.

    Raises
    ------
    BadInput
        If a or b is not stored, ``repetitions`` is below 1, or ``suspects`` is below 0.

    Examples
    --------
    Where do repeats 0 and 1 of a run differ first?

    ``cellrepro diverge KEY/0 KEY/1``
    """
    whole("repetitions", repetitions, 1)
    whole("suspects", suspects, 0)
    opened_store = Store(store)
    repeats = opened_store.find_two(a, b)
    ledgers = compare_runs(repeats)
    answer = _by_ledgers(ledgers, repeats)
    kind: type[StepInspection | ImageInspection] = StepInspection
    if of_segmentations(repeats):
        kind = ImageInspection
    inspection = kind(
        repeats=repeats,
        store=opened_store,
        data=data,
        again=again,
        repetitions=repetitions,
        suspects=suspects,
        quiet=quiet,
    )
    if isinstance(inspection, ImageInspection):
        return _with_cause_in_image(answer, inspection, ledgers)
    computed = _first_computed(ledgers, repeats)
    if computed is None:
        return answer
    return _with_cause_in_step(answer, computed, ledgers, inspection)


def _by_ledgers(ledgers: LedgerComparison, repeats: Sequence[Repeat]) -> Divergence:
    """The answer of the ledgers alone."""
    a, b = repeats
    comparison = compare_repeats(a, b)
    first = ledgers.first
    return Divergence(
        a=a.name,
        b=b.name,
        first=None if first is None else FirstDifference.of(first, ledgers),
        computed=None,
        stages=_names_by_stage(ledgers, stages_of(repeats)),
        judgement=None if first is None else _judged_by_stage(first, ledgers),
        verdict=comparison.verdict,
        comparison=comparison,
        evidence=None,
        compared=ledgers.compared.total(),
        notes=tuple(_notes(ledgers, repeats)),
        ledgers=ledgers,
        chain=stages_of(repeats),
    )


def _names_by_stage(
    ledgers: LedgerComparison, stages: Sequence[str]
) -> Mapping[str, tuple[str, ...]]:
    """What differs, by stage, each name once."""
    by_stage = {}
    for stage in stages:
        names = dict.fromkeys(difference.name for difference in ledgers.of_stage(stage))
        if names:
            by_stage[stage] = tuple(names)
    return by_stage


def _judged_by_stage(first: Difference, ledgers: LedgerComparison) -> DivergenceJudgement:
    """The judgement of the first stage that differs; no environment explains results."""
    judgement = OF_STAGE[first.stage].judgement
    only_environment = ledgers.differences[-1].stage in ("environment", "spec")
    if judgement == "environment" and not only_environment:
        return "unexplained"
    return judgement


def _first_computed(ledgers: LedgerComparison, repeats: Sequence[Repeat]) -> Difference | None:
    """The first difference that was computed; without training steps the first in the flows."""
    if repeats[0].spec.task == "train":
        return ledgers.first_computed
    return next(iter(ledgers.of_stage("flows")), None)


def _with_cause_in_step(
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
    return replace(
        _with_computed(answer, cause.difference),
        judgement=cause.judgement if is_of_step else answer.judgement,
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
            stages.add(difference.stage)
    obstacles = [*sorted(settings - _COMPARABLE_SETTINGS), *sorted(stages)]
    if obstacles:
        raise CannotInspect(
            f"operations were not compared: the two differ in {', '.join(obstacles)}"
        )


def _notes(ledgers: LedgerComparison, repeats: Sequence[Repeat]) -> Iterator[str]:
    for repeat in repeats:
        if not repeat.has(LEDGER):
            verb = "segment" if repeat.spec.task == "segment" else "train"
            yield f"{repeat.name} kept no ledger; {verb} with --ledger steps"
    n_not_comparable = ledgers.not_comparable.total()
    if n_not_comparable:
        yield f"{n_not_comparable} digests of a processor stand beside those of a GPU"
    n_a, n_b = ledgers.n_steps
    if n_a != n_b:
        yield f"A made {n_a} steps and B {n_b}; only the first {min(n_a, n_b)} were compared"


# --- segmentations ----------------------------------------------------------------------------


def _with_cause_in_image(
    answer: Divergence, inspection: ImageInspection, ledgers: LedgerComparison
) -> Divergence:
    """Add the first stage in which an image differs, and what inspecting it shows."""
    images = list(inspection.repeats[0].manifest.masks)
    entry = _first_in_image(ledgers, images)
    first = answer.first
    if entry is None or first is None:
        return answer
    image = _image_of(entry)
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
        is_of_image = difference.stage in IMAGE_STAGES and _image_of(difference) in images
        is_stored_file = difference.name.endswith(" stored file")
        if is_of_image and not is_stored_file and difference.a and difference.b:
            return difference
    return None


def _judged_in_image(difference: FirstDifference, ledgers: LedgerComparison) -> DivergenceJudgement:
    if any(entry.stage == "spec" for entry in ledgers.differences):
        return "settings"
    if difference.stage == "decoded" or ledgers.of_stage("weights-init"):
        return "data"
    return "unexplained"


def _image_of(difference: Difference) -> str:
    return difference.name.rpartition(" ")[0]
