"""When did two runs part, and at which operation: from the ledgers down to the cells.

A door: the command ``diverge`` and notebook 05 call it. It walks down both runs stage by stage;
where a training step computed otherwise from equal inputs, it goes through that step again with
every operation written down.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cellrepro.cells.chain import flattened
from cellrepro.cells.images import folder_digest
from cellrepro.cells.network import ModelSource, find_model
from cellrepro.compare.alignment import (
    Alignment,
    Parting,
    RoundOff,
    align,
    first_parting,
    judge_round_off,
)
from cellrepro.compare.ledgers import Difference, LedgerComparison, compare_ledgers
from cellrepro.compare.verdicts import Verdict
from cellrepro.comparison import Comparison, compare_repeats
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.record.digests import array_digest, file_digest, value_digest
from cellrepro.record.draws import first_extra_draw, from_rows
from cellrepro.record.ledger import (
    DRAWS,
    LEDGER,
    OPERATIONS,
    STAGES,
    Entry,
    Ledger,
    by_place,
    read_rows,
)
from cellrepro.record.store import Repeat, Run, Store
from cellrepro.replaying import Replay, replay
from cellrepro.show.progress import progress
from cellrepro.show.words import amount, ppm_text
from cellrepro.worker import Request

_REPETITIONS, _SUSPECTS = 6, 200
_COMPUTED = ("batch", "forward", "loss", "backward", "update", "weights")
_ASKED_OF_OPERATIONS = {"mode", "loose"}
"""What two specs may differ in and still be worth comparing operation by operation."""


@dataclass(frozen=True)
class Place:
    """A place in a run at which two runs part.

    Attributes
    ----------
    step : int or None
        Training step, from 0; None outside the training.
    epoch : int or None
    stage : str
        One of `cellrepro.record.ledger.STAGES`.
    names : tuple of str
        What differs there: variables, files, generators, groups of layers, images.
    said : str
        The first of them, with what each side holds.
    op, module, source, phase : str or None
        The operation, where one could be named.
    max_abs : float or None
        Largest difference between its outputs, in their units; None where their tensors are not
        there to be compared.
    n_elements : int or None
        How many elements of its outputs differ.
    inputs : str or None
        Whether its inputs ``agree``, ``differ``, or this is ``unknown``.
    """

    step: int | None
    epoch: int | None
    stage: str
    names: tuple[str, ...]
    said: str
    op: str | None = None
    module: str | None = None
    source: str | None = None
    phase: str | None = None
    max_abs: float | None = None
    n_elements: int | None = None
    inputs: str | None = None


@dataclass(frozen=True)
class Evidence:
    """What a closer look at the parting step saw.

    Attributes
    ----------
    how : str
        ``stored operations``, ``stored draws``, ``repetition``, ``audit`` or ``two replays``.
    n_repetitions, n_replays : int
        How often the step was repeated, and single operations were asked again.
    flips : int or None
        Of the named operation, in that many replays of it (`n_asked`).
    n_asked : int or None
    alignment : str or None
        Which operations correspond, and which could not be aligned.
    parting : str or None
        How the operation is known.
    round_off : str or None
        Whether every operation stayed within the error of its class.
    ends_as : str or None
        Whether a replay of the step ends as A, as B, as both or as neither.
    arrival : tuple of str
        How the state before the step was reached, one sentence a side.
    draws : str or None
        The first draw of random numbers in which the two differ.
    """

    how: str
    n_repetitions: int = 0
    n_replays: int = 0
    flips: int | None = None
    n_asked: int | None = None
    alignment: str | None = None
    parting: str | None = None
    round_off: str | None = None
    ends_as: str | None = None
    arrival: tuple[str, ...] = ()
    draws: str | None = None


@dataclass(frozen=True)
class Divergence:
    """Where two runs part, and what comes of it.

    Attributes
    ----------
    a, b : str
        ``KEY/REPEAT``.
    first : Place or None
        The first stage, in the order in which a run passes them, in which they differ; None if
        they differ in nothing.
    computed : Place or None
        The first thing that the two computed otherwise; the same as ``first`` unless they
        differ in what was asked for or around them.
    stages : dict of str to tuple of str
        What differs, by stage.
    judgement : str or None
        ``race``: equal inputs, other bits, in one process; ``round-off``: every operation within
        the error of its class; ``fault``: one beyond it, or one that gave other bits and does
        not when asked again; ``asked for``, ``surroundings`` or ``data``: they went in
        otherwise; ``unexplained``: none of these could be shown.
    verdict : Verdict
        Over weights and masks, as `cellrepro.comparison` gives it.
    comparison : Comparison
    evidence : Evidence or None
    n_compared : int
        Entries of the ledgers that could be compared.
    notes : tuple of str
        What was not looked at, and why.
    ledgers : LedgerComparison
        Every entry in which the ledgers differ.
    operations : Alignment or None
        The operations of the parting step on both sides, where they were seen.
    """

    a: str
    b: str
    first: Place | None
    computed: Place | None
    stages: Mapping[str, tuple[str, ...]]
    judgement: str | None
    verdict: Verdict
    comparison: Comparison
    evidence: Evidence | None
    n_compared: int
    notes: tuple[str, ...] = field(default=())
    ledgers: LedgerComparison | None = field(default=None, repr=False)
    operations: Alignment | None = field(default=None, repr=False)

    def sentence(self) -> str:
        """The answer in one sentence."""
        if self.first is None:
            return f"no difference in {self.n_compared} entries of their ledgers and files"
        parts = [_place_said(self.first)]
        if self.computed is not None and self.computed is not self.first:
            parts.append(f"it first shows in {_place_said(self.computed)}")
        if self.judgement is not None:
            parts.append(_JUDGEMENTS[self.judgement])
        parts.append(self.cells())
        return "; ".join(parts)

    def cells(self) -> str:
        """What it came to in weights and cells."""
        found = self.comparison
        n = found.n_objects
        if not found.masks:
            return "no masks to compare"
        weights = ""
        if found.weights is not None and not found.weights.equal:
            weights = f"; the weights by {found.weights.relative_l2:.2g} of their length"
        n_moved = n["matched"] - n["kept"]
        n_changed = n["lost"] + n["gained"] + n_moved
        if not n_changed and not found.ppm:
            return f"no cell changes in the end{weights}"
        return (
            f"{n_changed} of {amount(n['matched'] + n['lost'] + n['gained'], 'cell')} "
            f"{'changes' if n_changed == 1 else 'change'} in the end ({n['lost']} lost, "
            f"{n['gained']} gained, {n_moved} with another outline; {ppm_text(found.ppm)} of the "
            f"pixels){weights}"
        )


_JUDGEMENTS = {
    "race": "a race: the same process gives other bits when asked again",
    "round-off": "round-off: every operation of both runs stays within the error of its class",
    "fault": "a fault: not explained by round-off or a race",
    "asked for": "the two were asked for otherwise",
    "surroundings": "the surroundings differ, the results do not",
    "data": "what went in differs",
    "draws": "other random numbers were drawn",
    "unexplained": "what made it part was not found",
}


def _place_said(place: Place) -> str:
    where = place.stage if place.step is None else f"step {place.step}, {place.stage}"
    if place.op is None:
        return f"{where} ({place.said})"
    phase = f"{place.phase} of `{place.module}`" if place.module else str(place.phase)
    line = f" ({place.source})" if place.source else ""
    gave = {
        "agree": "got equal inputs and gave other outputs",
        "differ": "is the first whose outputs differ, and so do its inputs",
    }.get(place.inputs or "", "is the first whose outputs differ")
    size = "" if place.max_abs is None else f", largest difference {place.max_abs:.2g}"
    head = "" if place.step is None else f"step {place.step}, "
    if place.stage not in _COMPUTED:
        head = f"{place.stage} ({place.said}); {head}"
    return f"{head}{phase}{line}: `{place.op}` {gave}{size}"


def diverge(
    a: str,
    b: str,
    *,
    data: str | Path | None = None,
    again: bool = True,
    repetitions: int = _REPETITIONS,
    suspects: int = _SUSPECTS,
    store: str | Path = "outputs",
    quiet: bool = False,
) -> Divergence:
    """Name the first place where two stored runs part.

    Parameters
    ----------
    a, b : str
        ``KEY`` (its first repeat; for both of one key the first two) or ``KEY/REPEAT``.
    data : str or Path, optional
        The folder of images, to go through a step again; by default where the runs had it.
    again : bool
        Go through the step in which they part again, to name the operation; without it an
        operation is named only where both runs wrote theirs down (``ledger="ops"``).
    repetitions : int
        How often, from one state, until it parts from itself.
    suspects : int
        How often operations known to race are asked again after that.
    store : str or Path
    quiet : bool
        Show no progress.

    Returns
    -------
    Divergence

    Raises
    ------
    BadInput
        If the store holds no such runs, or an option makes no sense.
    NotPossibleHere
        If this machine lacks the device.
    """
    for name, number, least in (("repetitions", repetitions, 1), ("suspects", suspects, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise BadInput(f"{name} is {number!r}; expected a whole number, {least} or more")
    place = Store(store)
    sides = _sides(a, b, place)
    found = _ledgers_compared(*sides)
    comparison = compare_repeats(*sides)
    told = Divergence(
        a=sides[0][1].name,
        b=sides[1][1].name,
        first=None,
        computed=None,
        stages={
            stage: tuple(dict.fromkeys(difference.name for difference in found.of_stage(stage)))
            for stage in STAGES
            if found.of_stage(stage)
        },
        judgement=None,
        verdict=comparison.verdict,
        comparison=comparison,
        evidence=None,
        n_compared=found.n_compared,
        notes=_notes(found, *sides),
        ledgers=found,
    )
    if found.first is None:
        return told
    effort = _Effort(repetitions, suspects, again, quiet)
    return _explained(told, found, sides, lambda shown: _Look(sides, shown, place, data, effort))


_Side = tuple[Run, Repeat]


def _explained(
    told: Divergence,
    found: LedgerComparison,
    sides: tuple[_Side, _Side],
    look_at: Callable[[Difference], _Look],
) -> Divergence:
    """What is told of two runs that differ: the first place, its operation, and what it was."""
    assert found.first is not None
    first, shown = _place(found.first, told.stages), found.first_computed
    told = replace(told, first=first, judgement=_without_operations(found))
    if shown is None:
        return _by_image(told, first, found, sides)
    computed = _place(shown, _of_step(found, shown))
    came_in = _came_in_otherwise(found)
    if came_in:
        told = replace(
            told, notes=(*told.notes, f"operations were not compared: the two differ in {came_in}")
        )
    else:
        look = look_at(shown)
        try:
            computed, judgement, evidence = look.closer(computed)
            told = replace(told, judgement=judgement, evidence=evidence, operations=look.alignment)
        except _CannotLook as error:
            told = replace(told, notes=(*told.notes, f"the operation could not be named: {error}"))
    if shown is found.first:
        return replace(told, first=computed, computed=computed)
    if computed.op is not None and first.stage == "environment":
        # The surroundings differ, and this is the operation in which that shows.
        computed = replace(computed, stage=first.stage, names=first.names, said=first.said)
        return replace(told, first=computed, computed=computed)
    return replace(told, computed=computed)


def _by_image(
    told: Divergence, first: Place, found: LedgerComparison, sides: tuple[_Side, _Side]
) -> Divergence:
    """Where nothing was trained: the operation in which segmenting an image parts.

    Only where both runs wrote their operations down; an image stands for a step.
    """
    flows = found.of_stage("flows")
    if not flows or sides[0][0].spec.task != "segment":
        return told
    images = list(sides[0][1].manifest.masks)
    index = images.index(flows[0].name.rpartition(" ")[0])
    rows = [_stored(repeat, OPERATIONS, index) for _, repeat in sides]
    if not all(rows):
        note = "segment both with --ledger ops to have the operation named"
        return replace(told, notes=(*told.notes, note))
    alignment = align(rows[0], rows[1])
    parting = first_parting(rows[0], rows[1], alignment)
    if parting is None:
        return told
    place = _place(flows[0], told.stages)
    evidence = Evidence(
        "stored operations", alignment=alignment.sentence(), parting=parting.sentence()
    )
    computed = _named(replace(place, names=(images[index],)), parting)
    told = replace(told, computed=computed, evidence=evidence, operations=alignment)
    if first.stage in ("environment", "flows"):
        computed = replace(computed, stage=first.stage, names=first.names, said=first.said)
        told = replace(told, first=computed, computed=computed)
    return told


def _sides(a: str, b: str, store: Store) -> tuple[_Side, _Side]:
    run_a, repeat_a = store.find(a)
    run_b, repeat_b = store.find(b)
    if repeat_a is None and repeat_b is None and run_a.key == run_b.key:
        if len(run_a.repeats) < 2:
            raise BadInput(
                f"run {run_a.key} has a single repeat; name two runs, or train a second repeat "
                "with --repeats 2"
            )
        return (run_a, run_a.repeats[0]), (run_b, run_b.repeats[1])
    return (run_a, repeat_a or run_a.repeats[0]), (run_b, repeat_b or run_b.repeats[0])


# -- stage by stage ------------------------------------------------------------------------


def _ledgers_compared(a: _Side, b: _Side) -> LedgerComparison:
    """All that two runs left, compared in the order in which they passed it."""
    both = all((repeat.folder / LEDGER).exists() for _, repeat in (a, b))
    entries = [_from_ledger(*side) if both else _from_manifest(*side) for side in (a, b)]
    same_mode = a[0].spec.held == b[0].spec.held
    same_files = a[0].spec.model_digest is not None and b[0].spec.model_digest is not None

    def ignored(entry: Entry) -> bool:
        if entry.stage == "spec":
            # Data, model files and profile are told by their own stages; a ledger only looks.
            return entry.name in _TOLD_ELSEWHERE or (entry.name == "model" and same_files)
        if entry.stage == "environment" and not same_mode:
            # These follow from the mode that was asked for, and from what it leaves loose.
            return entry.name.startswith("switches.") or entry.name.endswith("WORKSPACE_CONFIG")
        return False

    return compare_ledgers(*entries, ignored=ignored)


_TOLD_ELSEWHERE = {"data", "data_digest", "model_digest", "profile", "profile_settings", "ledger"}


def _from_ledger(run: Run, repeat: Repeat) -> list[Entry]:
    entries = Ledger.read(repeat.folder / LEDGER).entries
    return [*_of_profile(run), *entries, *_of_files(repeat)]


def _from_manifest(run: Run, repeat: Repeat) -> list[Entry]:
    """What a repeat without a ledger says of itself."""
    manifest, ledger = repeat.manifest, Ledger()
    plain = manifest.model_dump(mode="json")
    for name in (
        *("host", "versions", "device", "threads", "cpu_capability", "numeric_libraries"),
        *("numeric_class", "variables", "switches"),
    ):
        for field_name, value in flattened(plain[name], name):
            ledger.add("environment", field_name, value_digest(value), detail=value)
    for name, value in run.spec.model_dump(mode="json").items():
        ledger.add("spec", name, value_digest(value), detail=value)
    for name, digest in manifest.data.files.items():
        ledger.add("data", f"file {name}", digest)
    ledger.add("weights-init", "initial weights", manifest.model.initial_weights)
    for image, masks in manifest.masks.items():
        ledger.add("masks", f"{image} outlines", masks.canonical_digest, value=masks.n_objects)
        ledger.add("masks", f"{image} labels", masks.digest, value=masks.n_objects)
    return [*_of_profile(run), *ledger.entries, *_of_files(repeat)]


def _of_profile(run: Run) -> list[Entry]:
    ledger = Ledger()
    for name, value in flattened(run.spec.profile_settings, "profile"):
        if name == "profile.name":
            continue
        ledger.add("environment", name, value_digest(value), detail=value)
    return ledger.entries


def _of_files(repeat: Repeat) -> list[Entry]:
    """The files as they lie there now, whatever the records say."""
    ledger = Ledger()
    ledger.step = _LAST
    if repeat.weights is not None:
        ledger.add("weights", "stored file", file_digest(repeat.weights))
    for image, record in repeat.manifest.masks.items():
        labels = repeat.masks(image)
        ledger.add("masks", f"{image} stored file", array_digest(labels), value=record.n_objects)
    return ledger.entries


_LAST = 2**31 - 1


def _place(difference: Difference, stages: Mapping[str, tuple[str, ...]]) -> Place:
    return Place(
        step=difference.step,
        epoch=difference.epoch,
        stage=difference.stage,
        names=stages[difference.stage],
        said=difference.said(),
    )


def _of_step(found: LedgerComparison, shown: Difference) -> dict[str, tuple[str, ...]]:
    """What differs at the stage and step of a difference."""
    return {
        shown.stage: tuple(
            difference.name
            for difference in found.of_stage(shown.stage)
            if difference.step == shown.step
        )
    }


def _without_operations(found: LedgerComparison) -> str:
    """What can be said from the ledgers alone."""
    assert found.first is not None
    stage = found.first.stage
    if stage == "spec":
        return "asked for"
    if stage in ("data", "weights-init"):
        return "data"
    if stage == "rng":
        return "draws"
    computed = [d for d in found.differences if d.stage not in ("environment", "spec")]
    if stage == "environment" and not computed:
        return "surroundings"
    return "unexplained"


def _came_in_otherwise(found: LedgerComparison) -> str:
    """In what the first step got other things on the two sides; empty where it got the same."""
    before = [difference for difference in found.differences if difference.step is None]
    asked = {d.name for d in before if d.stage == "spec"} - _ASKED_OF_OPERATIONS
    stages = {d.stage for d in before if d.stage in ("data", "weights-init", "rng")}
    return ", ".join([*sorted(asked), *sorted(stages)])


def _notes(found: LedgerComparison, a: _Side, b: _Side) -> tuple[str, ...]:
    notes = []
    without = [side[1].name for side in (a, b) if not (side[1].folder / LEDGER).exists()]
    if without:
        notes.append(
            f"{' and '.join(without)} kept no ledger, so steps were not compared; train with "
            "--ledger steps"
        )
    if found.n_not_comparable:
        notes.append(
            f"{found.n_not_comparable} entries hold digests of a processor beside those of a "
            "GPU, which say nothing about each other"
        )
    if found.n_steps[0] != found.n_steps[1]:
        notes.append(
            f"A made {found.n_steps[0]} steps and B {found.n_steps[1]}; only the first "
            f"{min(found.n_steps)} were compared"
        )
    return tuple(notes)


# -- operation by operation ----------------------------------------------------------------


class _CannotLook(Exception):
    """The step cannot be gone through again here; the message says why."""


@dataclass(frozen=True)
class _Effort:
    """How hard to look: the options of `diverge`."""

    repetitions: int
    suspects: int
    again: bool
    quiet: bool


class _Look:
    """A closer look at the step in which two runs part."""

    def __init__(
        self,
        sides: tuple[_Side, _Side],
        shown: Difference,
        store: Store,
        data: str | Path | None,
        effort: _Effort,
    ) -> None:
        assert shown.step is not None
        self._sides, self._step = sides, shown.step
        self._store, self._data, self._effort = store, data, effort
        self.alignment: Alignment | None = None
        run_a, run_b = sides[0][0], sides[1][0]
        self._alike = (
            run_a.spec.profile_settings == run_b.spec.profile_settings
            and run_a.spec.mode == run_b.spec.mode
            and run_a.spec.loose == run_b.spec.loose
        )

    def closer(self, place: Place | None) -> tuple[Place, str, Evidence]:
        """The place with its operation, what it was, and the evidence."""
        assert place is not None
        if place.stage == "rng" and place.names[0].endswith(" before"):
            raise _CannotLook(
                "a generator was moved before the step began and after the one before it had "
                "ended, where nobody writes down who draws"
            )
        if place.stage == "rng" or {"crops", "images drawn"} & set(place.names):
            drawn = self._drawn_otherwise(place)
            if drawn is not None:
                return drawn
        stored = [_stored(side[1], OPERATIONS, self._step) for side in self._sides]
        found = None
        if all(stored):
            alignment = self.alignment = align(*stored)
            parting = first_parting(stored[0], stored[1], alignment)
            if parting is not None and _may_explain(parting, place):
                evidence = Evidence(
                    "stored operations",
                    alignment=alignment.sentence(),
                    parting=parting.sentence(),
                    draws=self._draws_sentence(),
                )
                found = _named(place, parting), "unexplained", evidence
        if found is not None and not self._effort.again:
            return found
        if not self._effort.again and all(stored):
            raise _CannotLook(
                "every operation before it that both ran gave equal outputs; one that only one of "
                "them ran, or a change between two operations, parts them"
            )
        if not self._effort.again:
            raise _CannotLook(
                "neither run wrote down the operations of that step; look without --no-again, or "
                "train with --ledger ops"
            )
        try:
            with tempfile.TemporaryDirectory() as scratch:
                if not self._alike:
                    return self._side_by_side(place, Path(scratch))
                seen = self._replay(self._sides[0], Path(scratch))
        except (_CannotLook, BadInput, NotPossibleHere):
            if found is None:
                raise
            return found
        return self._repeated(place, seen) if found is None else self._held_against(found, seen)

    def _drawn_otherwise(self, place: Place) -> tuple[Place, str, Evidence] | None:
        """Who drew other numbers, if both runs wrote their draws down."""
        rows = [_stored(side[1], DRAWS, self._step) for side in self._sides]
        extra = first_extra_draw(*([row.draw() for row in side] for side in rows))
        if extra is None:
            return None
        draw = extra.draw
        named = replace(
            place, op=draw.what, module=draw.module, source=draw.source, phase=draw.phase
        )
        return named, "draws", Evidence("stored draws", draws=extra.sentence())

    def _draws_sentence(self) -> str | None:
        rows = [_stored(side[1], DRAWS, self._step) for side in self._sides]
        extra = first_extra_draw(*([row.draw() for row in side] for side in rows))
        return None if extra is None else extra.sentence()

    def _held_against(
        self, found: tuple[Place, str, Evidence], seen: Replay
    ) -> tuple[Place, str, Evidence]:
        """What both runs wrote down, beside repetitions of that step: a race, or a fault."""
        named, _, evidence = found
        flipped = _audit_of(seen, named)
        evidence = replace(
            evidence,
            n_repetitions=seen.n_repetitions,
            n_replays=seen.n_replays,
            flips=0 if flipped is None else flipped["flips"],
            n_asked=None if flipped is None else flipped["replays"],
            ends_as=self._ends_as(seen),
            arrival=(_arrived(seen),),
        )
        if flipped is None:
            return named, "fault", evidence
        sizes = {"max_abs": flipped["max_abs"], "n_elements": flipped["n_elements"]}
        return replace(named, **sizes), "race", evidence

    # -- one process, the same step again and again

    def _repeated(self, place: Place, seen: Replay) -> tuple[Place, str, Evidence]:
        evidence = Evidence(
            "repetition" if seen.again is not None else "audit",
            n_repetitions=seen.n_repetitions,
            n_replays=seen.n_replays,
            ends_as=self._ends_as(seen),
            arrival=(_arrived(seen),),
        )
        if seen.again is not None:
            alignment = self.alignment = align(seen.rows, seen.again)
            parting = first_parting(seen.rows, seen.again, alignment)
            if parting is not None:
                named = _named(place, parting)
                flipped = _audit_of(seen, named)
                evidence = replace(
                    evidence, alignment=alignment.sentence(), parting=parting.sentence()
                )
                if flipped is not None:
                    named = replace(
                        named, max_abs=flipped["max_abs"], n_elements=flipped["n_elements"]
                    )
                    evidence = replace(evidence, flips=flipped["flips"], n_asked=flipped["replays"])
                return named, "race", evidence
        if seen.audited:
            order = {
                (row.op, row.module, row.source, row.phase): row.index
                for row in reversed(seen.rows)
            }
            first = min(
                seen.audited,
                key=lambda op: order.get(
                    (op["op"], op["module"], op["source"], op["phase"]), len(order)
                ),
            )
            named = replace(
                place,
                **{name: first[name] for name in ("op", "module", "source", "phase")},
                max_abs=first["max_abs"],
                n_elements=first["n_elements"],
                inputs="agree",
            )
            return named, "race", replace(evidence, flips=first["flips"], n_asked=first["replays"])
        return (
            place,
            "unexplained" if evidence.ends_as in ("both", "neither") else "fault",
            evidence,
        )

    # -- two processes, each in its own surroundings

    def _side_by_side(self, place: Place, scratch: Path) -> tuple[Place, str, Evidence]:
        seen, parting = self._both(scratch)
        alignment = self.alignment = align(seen[0].rows, seen[1].rows)
        judged = judge_round_off(seen[0].rows, seen[1].rows)
        draws = first_extra_draw(*(from_rows(side.draws) for side in seen))
        evidence = Evidence(
            "two replays",
            alignment=alignment.sentence(),
            round_off=judged.sentence(),
            arrival=tuple(_arrived(side) for side in seen),
            draws=None if draws is None else draws.sentence(),
        )
        if parting is None:
            return place, _judged(judged), evidence
        n_elements, largest = _difference(seen[0].kept, seen[1].kept)
        named = replace(_named(place, parting), max_abs=largest, n_elements=n_elements)
        return named, _judged(judged), replace(evidence, parting=parting.sentence())

    # -- replays

    def _replay(self, side: _Side, scratch: Path) -> Replay:
        """The step again and again in one process, then its operations one by one."""
        with progress(self._step + 3, f"replay of {side[1].name}", quiet=self._effort.quiet) as bar:
            return replay(
                self._request(side),
                side[1],
                step=self._step,
                scratch=scratch,
                repetitions=self._effort.repetitions,
                suspects=self._effort.suspects,
                on_event=lambda event: bar.advance(event["name"]),
            )

    def _both(self, scratch: Path) -> tuple[list[Replay], Parting | None]:
        """Both runs' steps at the same time, and the operation in which they part."""
        rows: list[list[Any] | None] = [None, None]
        both_there = threading.Barrier(2)
        parting: list[Parting | None] = [None]

        def choose(index: int, own: list[Any]) -> int | None:
            rows[index] = own
            both_there.wait()
            if index == 0:
                parting[0] = first_parting(rows[0] or [], rows[1] or [])
            both_there.wait()
            if parting[0] is None:
                return None
            return (parting[0].a, parting[0].b)[index].index

        def one(index: int) -> Replay:
            side = self._sides[index]
            try:
                return replay(
                    requests[index],
                    side[1],
                    step=self._step,
                    scratch=scratch / "ab"[index],
                    choose=lambda own: choose(index, own),
                    on_event=lambda event: bar.advance(event["name"]),
                )
            except BaseException:
                both_there.abort()  # the other one must not wait for ever
                raise

        requests = [self._request(side) for side in self._sides]
        names = " and ".join(repeat.name for _, repeat in self._sides)
        with (
            progress(2 * (self._step + 3), f"replays of {names}", quiet=self._effort.quiet) as bar,
            ThreadPoolExecutor(2) as pool,  # each thread only waits for its process
        ):
            futures = [pool.submit(one, index) for index in (0, 1)]
        problems = [future.exception() for future in futures]
        for problem in sorted(filter(None, problems), key=_is_consequence):
            raise problem
        return [future.result() for future in futures], parting[0]

    def _request(self, side: _Side) -> Request:
        run, repeat = side
        return Request(run.spec, repeat.index, Path(), self._images(side), self._model(run))

    def _images(self, side: _Side) -> Path:
        run, repeat = side
        folder = Path(repeat.manifest.data.path if self._data is None else self._data)
        if not folder.is_dir():
            raise _CannotLook(
                f"the images of {repeat.name} are not at {folder} any more; name their folder "
                "with --data"
            )
        found = folder_digest(folder).digest
        if found != run.spec.data_digest:
            raise _CannotLook(
                f"{folder} does not hold the images of {repeat.name} (digest {found[:12]}…, "
                f"expected {run.spec.data_digest[:12]}…); name their folder with --data"
            )
        return folder.resolve()

    def _model(self, run: Run) -> ModelSource:
        try:
            source = find_model(run.spec.model, self._store)
        except BadInput as error:
            raise _CannotLook(str(error)) from error
        if source.digest != run.spec.model_digest:
            raise _CannotLook(f"the model {run.spec.model} is not the one that was trained")
        return source

    def _ends_as(self, seen: Replay) -> str:
        """Whose bits a replay of the step ends in."""
        ends = {}
        for letter, (_, repeat) in zip("ab", self._sides, strict=True):
            stored = by_place(Ledger.read(repeat.folder / LEDGER).entries)
            ends[letter] = all(
                other is None or other.digest == entry.digest
                for entry in seen.entries
                if (other := stored.get((entry.step, entry.stage, entry.name))) is not None
            )
        if ends["a"] and ends["b"]:
            return "both"
        return next((letter for letter, same in ends.items() if same), "neither")


def _stored(repeat: Repeat, name: str, step: int) -> list[Any]:
    """Operations or draws of one step that a run wrote down; none where it did not."""
    from cellrepro.record.operation_ledger import DrawRow, OperationRow

    path = repeat.folder / name
    if not path.exists():
        return []
    kind = OperationRow if name == OPERATIONS else DrawRow
    return [row for row in read_rows(path, kind) if row.step == step]


def _may_explain(parting: Parting, place: Place) -> bool:
    """Whether an operation can be why a stage differs: one that runs after the stage cannot.

    The difference then came in between two operations, by a write that was none of them.
    """
    last = {"backward": "backward", "update": "update", "weights": "update"}
    phases = ("forward", "backward", "update")
    return phases.index(parting.a.phase) <= phases.index(last.get(place.stage, "forward"))


def _named(place: Place, parting: Parting) -> Place:
    row = parting.a
    stage = place.stage
    return replace(
        place,
        stage=stage,
        op=row.op,
        module=row.module,
        source=row.source,
        phase=row.phase,
        inputs=parting.inputs,
    )


def _audit_of(seen: Replay, place: Place) -> dict[str, Any] | None:
    """What the audit says of the operation that was named."""
    for op in seen.audited:
        if (op["op"], op["module"], op["phase"]) == (place.op, place.module, place.phase):
            return op
    return None


def _arrived(seen: Replay) -> str:
    way = seen.arrival
    start = "the initial weights" if way.start == 0 else f"the checkpoint at step {way.start}"
    text = f"restored from {start}"
    if seen.step > way.start:
        text += f", {way.n_verified} of {seen.step - way.start} steps on the way in the stored bits"
    if way.n_retries:
        text += f" after {way.n_retries} tries that ended in others"
    if way.parted_at is not None:
        text += f"; from step {way.parted_at} on the stored bits could not be reached again"
    return text


def _is_consequence(problem: BaseException) -> bool:
    """Whether a thread ended only because the other one had."""
    return isinstance(problem, threading.BrokenBarrierError)


def _judged(judged: RoundOff) -> str:
    return judged.verdict if judged.verdict in ("round-off", "fault") else "unexplained"


def _difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[int, float | None]:
    """How many elements of an operation's outputs differ, and by how much at most."""
    from cellrepro.record.bits import difference

    n_elements, largest = 0, None
    for name in a.keys() & b.keys():
        if name.startswith("outputs/"):
            n, size = difference(a[name], b[name])
            n_elements += n
            largest = size if largest is None else max(largest, size)
    return n_elements, largest
