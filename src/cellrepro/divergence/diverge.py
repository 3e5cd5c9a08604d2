"""The first place where two stored runs diverge, and what made them diverge there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cellrepro.comparison.ledger_diff import Difference, LedgerComparison
from cellrepro.divergence.cause import with_cause_in_image, with_cause_in_step
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.divergence.image_inspection import ImageInspection
from cellrepro.divergence.judgements import OF_STAGE, DivergenceJudgement
from cellrepro.divergence.result import Divergence
from cellrepro.divergence.run_ledgers import compare_runs, of_segmentations, stages_of
from cellrepro.divergence.step_inspection import StepInspection
from cellrepro.errors import BadInput
from cellrepro.explanation.compare_repeats import compare_repeats
from cellrepro.spec import defaults
from cellrepro.store.ledger import LEDGER
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.terminal import FileName, Quiet, Switch
from samebits import replaying
from samebits.errors import whole
from samebits.words import amount, grouped


def diverge(
    a: str,
    b: str,
    /,
    *,
    data: FileName | None = None,
    again: Switch = True,
    repetitions: int = 20,
    suspects: int = replaying.SUSPECT_REPLAYS,
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
        The other one, of the same kind; ``KEY KEY`` means the first two repeats of a run.
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
    _refuse_two_tasks(repeats)
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
        return with_cause_in_image(answer, inspection, ledgers)
    computed = _first_computed(ledgers, repeats)
    if computed is None:
        return answer
    return with_cause_in_step(answer, computed, ledgers, inspection)


def _refuse_two_tasks(repeats: Sequence[Repeat]) -> None:
    of_a, of_b = (repeat.spec.task for repeat in repeats)
    if of_a != of_b:
        raise BadInput(
            f"A is of task {of_a} and B of task {of_b}, which share no step; expected two runs of "
            "one task: compare their masks with cellrepro compare"
        )


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
    """List the names that differ, by stage, each once."""
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


def _notes(ledgers: LedgerComparison, repeats: Sequence[Repeat]) -> Iterator[str]:
    for repeat in repeats:
        if not repeat.has(LEDGER):
            verb = "segment" if repeat.spec.task == "segment" else "train"
            yield f"{repeat.name} kept no ledger; {verb} with --ledger steps"
    n_not_comparable = ledgers.not_comparable.total()
    if n_not_comparable:
        stand = "stands" if n_not_comparable == 1 else "stand"
        digests = amount(n_not_comparable, "digest")
        yield f"{digests} of a processor {stand} beside those of a GPU"
    n_a, n_b = ledgers.n_steps
    if n_a != n_b:
        n_both = min(n_a, n_b)
        were = "was" if n_both == 1 else "were"
        only = f"only the first {grouped(n_both)} {were} compared"
        yield f"A made {amount(n_a, 'step')} and B {grouped(n_b)}; {only}"
