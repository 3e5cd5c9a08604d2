"""The training step in which two runs diverge, repeated to find the operation and its fault.

Where environments or modes differ, the step is repeated in two processes, else in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cellrepro.comparison.operation_diff import first_divergence, judge_round_off
from cellrepro.divergence.evidence import Cause, Evidence
from cellrepro.divergence.first_difference import FirstDifference, Operation, Size
from cellrepro.divergence.inspection import CannotInspect, Inspection
from cellrepro.divergence.judgements import NOT_LOOKED_FOR, may_explain, of_round_off
from cellrepro.divergence.run_ledgers import image_of
from cellrepro.divergence.step_again import StepAgain, step_again, steps_again
from cellrepro.divergence.stepper import same_as_stored
from cellrepro.divergence.substitute_calls import (
    OutputsBySide,
    align_operations,
    is_call,
    whose_substitutes,
)
from cellrepro.errors import CellreproError
from cellrepro.images.folder import folder_digest
from cellrepro.run.plan import Request
from cellrepro.store.checkpoints import CHECKPOINTS
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, LedgerRow, by_place
from cellrepro.store.record_values import is_on_another_computer
from cellrepro.store.row_tables import read_rows
from cellrepro.store.stored_run import Repeat
from samebits import Draw, NondeterministicOperation, OperationRow, first_draw_difference
from samebits.call_site import Site
from samebits.modes import may_race

if TYPE_CHECKING:
    import torch

_OF_DRAWS = {"rng", "crops", "images drawn"}
"""Stages, and names of differences, that a draw of random numbers explains."""


class StepInspection(Inspection):
    """Two trainings inspected in the step in which they diverge."""

    def cause_of(self, difference: FirstDifference) -> Cause:
        """Find what made two runs differ."""
        if difference.stage == "rng" and difference.names[0].endswith(" before"):
            raise CannotInspect(f"{NOT_LOOKED_FOR}a generator changed before the step began")
        step = self._step_of(difference)
        drawn = self._cause_in_draws(difference, step)
        if drawn is not None:
            return drawn
        rows = self.stored_rows(OPERATIONS, OperationRow, step)
        stored = None if rows is None else self.cause_in_rows(difference, *rows)
        if stored is not None and stored.judgement != "unexplained":
            return stored
        try:
            if difference.step is None or not self.again:
                raise CannotInspect("what was stored does not show it; --ledger ops stores more")
            if self._computed_alike():
                return self._in_one_process(difference, step, stored)
            return self._in_two_processes(difference, step)
        except (CannotInspect, CellreproError) as error:
            if stored is None:  # a device that is not here, for example
                raise CannotInspect(f"{NOT_LOOKED_FOR}{error}") from error
            return stored

    def _step_of(self, difference: FirstDifference) -> int:
        if difference.step is not None:
            return difference.step
        # Operations of an image are numbered as the images are.
        image = image_of(difference.names[0])
        return list(self.repeats[0].manifest.masks).index(image)

    def _cause_in_draws(self, difference: FirstDifference, step: int) -> Cause | None:
        """The draw of random numbers that made the difference, where both runs recorded draws."""
        draws = self.stored_rows(DRAWS, Draw, step)
        other_draw = None if draws is None else first_draw_difference(*draws)
        if other_draw is None or not {difference.stage, *difference.names} & _OF_DRAWS:
            return None
        draw = other_draw.draw
        drawn_for = replace(
            difference, op=draw.what, module=draw.module, source=draw.source, phase=draw.phase
        )
        evidence = Evidence("stored draws", draws=other_draw.sentence())
        return Cause(drawn_for, judgement="draws", evidence=evidence)

    def _computed_alike(self) -> bool:
        """Whether both had one environment and one mode."""
        specs = [repeat.spec for repeat in self.repeats]
        a, b = ((spec.profile_settings, spec.mode, spec.loose) for spec in specs)
        return a == b

    # -- one process, the same step again and again

    def _in_one_process(
        self, difference: FirstDifference, step: int, stored: Cause | None
    ) -> Cause:
        """The cause by stored operations or repetitions, and whether it shows again."""
        repeat = self.repeats[0]
        replayed = step_again(
            self._request(repeat),
            repeat,
            step,
            repetitions=self.repetitions,
            suspects=self.suspects,
            quiet=self.quiet,
        )
        cause = stored or self._of_repetitions(difference, replayed)
        evidence = replace(
            cause.evidence,
            n_repetitions=replayed.n_repetitions,
            n_replays=replayed.n_replays,
            ends_as=self._ends_as(replayed, step),
            arrival=(replayed.arrival.words,),
            doubt=replayed.arrival.doubt or None,
        )
        cause = replace(cause, evidence=evidence)
        for audited in replayed.audited:
            if _is_about(audited, cause.difference):
                return _flipping(cause, audited)
        if cause.judgement == "race":
            return cause
        # Where a race is possible, that none was seen is no proof that there was none.
        why_no_fault = self._why_no_fault()
        is_certain = stored is not None or evidence.ends_as in ("a", "b")
        return replace(
            cause,
            judgement="fault" if why_no_fault is None and is_certain else "unexplained",
            evidence=replace(evidence, elimination=why_no_fault),
        )

    def _of_repetitions(self, difference: FirstDifference, replayed: StepAgain) -> Cause:
        """The operation in which the step diverged from itself, or the first that flips."""
        if replayed.diverged is not None:
            cause = self.cause_in_rows(difference, replayed.rows, replayed.diverged)
            if cause is not None:
                evidence = replace(cause.evidence, how="repetition")
                return replace(cause, judgement="race", evidence=evidence)
        suspects = [
            operation
            for operation in replayed.audited
            if may_explain(operation.phase, difference.stage)
        ]
        if suspects:
            first = _first_to_run(suspects, replayed.rows)
            difference = difference.made_by(first, inputs="agree")
        return Cause(difference, "unexplained", Evidence("audit"))

    def _why_no_fault(self) -> str | None:
        """Why a difference that did not show again may be no fault."""
        if self.on_two_machines:
            return "the two were computed on two machines, and the step was repeated on one only"
        spec = self.repeats[0].spec
        return may_race(
            spec.mode,
            device=str(spec.profile_settings.get("device")),
            threads=spec.profile_settings.get("threads"),
            loose=spec.loose,
        )

    def _ends_as(
        self, replayed: StepAgain, step: int
    ) -> Literal["a", "b", "both", "neither"] | None:
        """Find the side whose bits a replay of the step ends in; None if no ledger has the step."""
        a, b = (_ends_as_stored(replayed, repeat, step) for repeat in self.repeats)
        if a is None and b is None:
            return None
        if a and b:
            return "both"
        if a:
            return "a"
        return "b" if b else "neither"

    # -- two processes, each in its own environment

    def _in_two_processes(self, difference: FirstDifference, step: int) -> Cause:
        """The operation in which the step diverges, and whether all are within their error."""
        requests = [self._request(repeat) for repeat in self.repeats]
        a, b = steps_again(requests, self.repeats, step, quiet=self.quiet)
        alignment = align_operations(
            self.repeats, a.rows, b.rows, OutputsBySide(a.outputs, b.outputs)
        )
        parting = first_divergence(alignment)
        verdict, round_off = judge_round_off(a.rows, b.rows)
        draws = first_draw_difference(a.draws, b.draws)
        if parting is not None:
            size = _size_between(
                a.outputs.get(parting.a.index, []), b.outputs.get(parting.b.index, [])
            )
            if is_call(parting.a):
                between = f"between {whose_substitutes(self.repeats)}"
                size = replace(size, words=f"{size.words} {between}" if size.words else between)
            difference = difference.made_by(parting.a, inputs=parting.inputs).of_size(size)
        evidence = Evidence(
            "two replays",
            arrival=(a.arrival.words, b.arrival.words),
            doubt=a.arrival.doubt or b.arrival.doubt or None,
            draws=None if draws is None else draws.sentence(),
        ).of_operations(alignment, parting, round_off)
        judgement = of_round_off(verdict)
        drew_first = parting is not None and parting.inputs == "agree" and parting.a.draws
        if drew_first and judgement != "fault":  # as of dropout, drawn on two devices
            judgement = "draws"
        return Cause(difference, judgement, evidence, operations=alignment)

    # -- what a replay needs

    def _request(self, repeat: Repeat) -> Request:
        if repeat.spec.seed is None and not (repeat.folder / CHECKPOINTS).is_dir():
            raise CannotInspect(
                f"nothing of {repeat.name} was seeded (mode off), so that its steps cannot be "
                "carried out again; mode fast seeds, and --keep-checkpoints keeps the generators"
            )
        recorded = repeat.manifest.data.path
        if self.data is None and is_on_another_computer(recorded):
            raise CannotInspect(
                f"the images of {repeat.name} were on another computer; name their folder with "
                "--data"
            )
        folder = Path(recorded if self.data is None else self.data)
        if not folder.is_dir() or folder_digest(folder) != repeat.spec.data_digest:
            raise CannotInspect(
                f"{folder} does not hold the images of {repeat.name}; name their folder with --data"
            )
        return Request(repeat.spec, folder.resolve(), self.source_of(repeat))


def _ends_as_stored(replayed: StepAgain, repeat: Repeat, step: int) -> bool | None:
    stored = read_rows(repeat.file(LEDGER), LedgerRow, step=step)
    return same_as_stored(replayed.entries, by_place(stored))


def _is_about(audited: NondeterministicOperation, difference: FirstDifference) -> bool:
    """Whether an operation that flips is the named one, or the named one reads its output."""
    if difference.op is None:
        return False
    if difference.is_made_by(audited):
        return True
    site = Site(difference.op, difference.module, difference.source, str(difference.phase))
    return f"{site.op}, {site}" in (audited.read_by or "")


def _flipping(cause: Cause, audited: NondeterministicOperation) -> Cause:
    """Judge an operation that flips when it is repeated: a race, or unwritten memory."""
    evidence = replace(cause.evidence, flips=audited.flips, n_asked=audited.replays)
    if audited.read_by is not None:
        evidence = replace(evidence, parting=audited.sentence())
    size = Size.of_elements(audited.n_elements, audited.max_abs)
    return replace(
        cause,
        difference=cause.difference.of_size(size),
        judgement="race" if audited.read_by is None else "unwritten-memory",
        evidence=evidence,
    )


def _first_to_run(
    operations: Sequence[NondeterministicOperation], rows: Sequence[OperationRow]
) -> NondeterministicOperation:
    """The operation that ran first in a step; those that are not among its rows come last."""
    sites = [_site(row) for row in rows]

    def order_in_step(operation: NondeterministicOperation) -> int:
        site = _site(operation)
        return sites.index(site) if site in sites else len(sites)

    return min(operations, key=order_in_step)


def _site(operation: Operation) -> tuple[str | None, ...]:
    return operation.op, operation.module, operation.source, operation.phase


def _size_between(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> Size:
    """How many elements of an operation's outputs differ, and by how much."""
    from samebits.bit_equality import difference

    if not a or not b:
        return Size()
    if [(x.shape, x.dtype) for x in a] != [(y.shape, y.dtype) for y in b]:
        return Size(words="of different shapes or types in A and in B")
    differences = [difference(x, y) for x, y in zip(a, b, strict=True)]
    return Size.of_elements(
        n_elements=sum(n_elements for n_elements, _ in differences),
        max_abs=max(max_abs for _, max_abs in differences),
    )
