"""A closer look at the step in which two runs diverge: the operation, and what it was.

Its operations are compared where both runs wrote them down; otherwise the step is repeated, in one
process where the two have the same environment and mode, in two where they have not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cellrepro.compare.operation_alignment import (
    Alignment,
    first_divergence,
    judge_round_off,
)
from cellrepro.determinism.known_operations import may_race
from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.folder import folder_digest
from cellrepro.lab.divergence.rerun import Replay, replay, replay_both, same_as_stored
from cellrepro.lab.divergence.result import OF_STAGE, Evidence, Place
from cellrepro.lab.divergence.substituted_calls import (
    aligned,
    is_call,
    outputs_of,
    substituted,
    whose,
)
from cellrepro.lab.worker import Request
from cellrepro.model.network import ModelSource, find_model
from cellrepro.progress import progress
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, Entry, by_place, read_rows
from cellrepro.store.store import Repeat, Store
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.trace.random_draws import Draw, DrawDifference, first_draw_difference


class CannotLook(Exception):
    """The operation cannot be named; the message says why."""


@dataclass(frozen=True)
class Effort:
    """How hard to look: the options of `cellrepro.lab.divergence.find.diverge`."""

    repetitions: int
    suspects: int
    again: bool = True
    quiet: bool = False


@dataclass(frozen=True)
class Finding:
    """What a look at a place found: its operation, what it was, and how that is known."""

    place: Place
    judgement: str
    evidence: Evidence
    operations: Alignment | None = None


def of_image(place: Place, repeats: Sequence[Repeat]) -> Finding:
    """The operation in which segmenting an image diverges, from what both runs wrote down."""
    image = place.names[0].rpartition(" ")[0]
    rows = _stored_operations(repeats, list(repeats[0].manifest.masks).index(image))
    if rows is None:
        raise CannotLook("segment both with --ledger ops to have the operation named")
    found = _of_rows(place, repeats, *rows)
    if found is None:
        raise CannotLook("every operation that both wrote down gave equal outputs")
    return found


class Look:
    """A closer look at one training step of two runs."""

    def __init__(
        self,
        repeats: Sequence[Repeat],
        step: int,
        store: Store,
        data: str | Path | None,
        effort: Effort,
    ) -> None:
        self._repeats, self._step = repeats, step
        self._store, self._data, self._effort = store, data, effort

    def at(self, place: Place) -> Finding:
        """What made a place differ.

        Raises
        ------
        CannotLook
            If that cannot be found here.
        """
        if place.stage == "rng" and place.names[0].endswith(" before"):
            raise CannotLook(
                _unnamed(
                    "a generator changed before the step began and after the one before it had "
                    "ended, where nobody writes down who draws"
                )
            )
        rows = _stored_operations(self._repeats, self._step)
        drawn = None if rows is None else self._drawn_otherwise()
        if drawn is not None and (
            place.stage == "rng" or {"crops", "images drawn"} & set(place.names)
        ):
            draw, evidence = drawn.draw, Evidence("stored draws", draws=drawn.sentence())
            named = replace(
                place, op=draw.what, module=draw.module, source=draw.source, phase=draw.phase
            )
            return Finding(named, "draws", evidence)
        stored = None if rows is None else _of_rows(place, self._repeats, *rows)
        if stored is not None and drawn is not None:
            stored = replace(stored, evidence=replace(stored.evidence, draws=drawn.sentence()))
        if not self._effort.again:
            if stored is None:
                raise CannotLook(_unnamed(_NOT_STORED if rows is None else _ALL_EQUAL))
            return stored
        try:
            if self._same_environment():
                return self._judged(place, stored, self._repeated())
            return self._side_by_side(place)
        except (CannotLook, CellreproError) as error:
            if stored is None:  # a device that is not here, for example: the rest is told
                raise CannotLook(_unnamed(str(error))) from error
            return stored

    def _drawn_otherwise(self) -> DrawDifference | None:
        """The first draw in which the two differ, of those that both wrote down."""
        sides = [
            read_rows(repeat.folder / DRAWS, Draw, step=self._step)
            for repeat in self._repeats
            if (repeat.folder / DRAWS).exists()
        ]
        if len(sides) < 2:
            return None
        return first_draw_difference(*sides)

    def _same_environment(self) -> bool:
        a, b = ((one.spec.profile_settings, one.spec.mode, one.spec.loose) for one in self._repeats)
        return a == b

    # -- one process, the same step again and again

    def _repeated(self) -> Replay:
        first = self._repeats[0]
        with progress(self._step + 3, f"replay of {first.name}", quiet=self._effort.quiet) as bar:
            return replay(
                self._request(first),
                first,
                step=self._step,
                repetitions=self._effort.repetitions,
                suspects=self._effort.suspects,
                on_event=lambda event: bar.advance(event["name"]),
            )

    def _judged(self, place: Place, stored: Finding | None, seen: Replay) -> Finding:
        """What the stored operations or the repetitions show, and whether it came again."""
        found = stored or self._of_repetitions(place, seen)
        evidence = replace(
            found.evidence,
            n_repetitions=seen.n_repetitions,
            n_replays=seen.n_replays,
            ends_as=self._ends_as(seen),
            arrival=(seen.arrival,),
        )
        flipped = _flipped(seen, found.place)
        if flipped is not None:
            said = evidence.parting
            if flipped.read_by is not None:
                said = "; ".join(filter(None, (said, flipped.sentence())))
            return replace(
                found,
                place=replace(found.place, **_sizes(flipped.n_elements, flipped.max_abs)),
                judgement="race" if flipped.read_by is None else "unwritten-memory",
                evidence=replace(
                    evidence, flips=flipped.flips, n_asked=flipped.replays, parting=said
                ),
            )
        if found.judgement == "race":
            return replace(found, evidence=evidence)
        # Where a race is possible, that none was seen is no proof that there was none.
        why = self._no_fault()
        certain = why is None and (stored is not None or evidence.ends_as in ("a", "b"))
        return replace(
            found,
            judgement="fault" if certain else "unexplained",
            evidence=replace(evidence, elimination=why, flips=None if stored is None else 0),
        )

    def _of_repetitions(self, place: Place, seen: Replay) -> Finding:
        """The operation in which the step diverged from itself, or the first that flips."""
        if seen.again is not None:
            found = _of_rows(place, self._repeats, seen.rows, seen.again)
            if found is not None:
                evidence = replace(found.evidence, how="repetition")
                return replace(found, judgement="race", evidence=evidence)
        evidence = Evidence("audit" if seen.again is None else "repetition")
        order = {_where(row): row.index for row in reversed(seen.rows)}
        suspects = [op for op in seen.audited if _may_explain(op.phase, place)]
        if suspects:
            first = min(suspects, key=lambda op: order.get(_where(op), len(order)))
            place = replace(place, **_named(first), inputs="agree")
        return Finding(place, "unexplained", evidence)

    def _no_fault(self) -> str | None:
        """Why a difference that did not come again may be something else than a fault."""
        elsewhere = sorted({repeat.machine for repeat in self._repeats})
        if len(elsewhere) > 1:
            return (
                f"the two were computed on {' and '.join(elsewhere)}, and the step was repeated "
                "on one machine only"
            )
        spec = self._repeats[0].spec
        return may_race(
            spec.mode,
            device=spec.profile_settings["device"],
            threads=spec.profile_settings.get("threads"),
            loose=spec.loose,
        )

    def _ends_as(self, seen: Replay) -> str | None:
        """Whose bits a replay of the step ends in; none where no ledger has anything of it."""
        stored = (
            by_place(read_rows(repeat.folder / LEDGER, Entry, step=self._step))
            for repeat in self._repeats
        )
        a, b = (same_as_stored(seen.entries, entries) for entries in stored)
        if a is None and b is None:
            return None
        return "both" if a and b else "a" if a else "b" if b else "neither"

    # -- two processes, each in its own environment

    def _side_by_side(self, place: Place) -> Finding:
        def choose(a: list[Any], b: list[Any]) -> list[tuple[Any, Any]]:
            """The pairs whose tensors are needed: whole calls, and where the two diverge."""
            alignment = aligned(self._repeats, a, b)
            parting = first_divergence(alignment)
            calls = [pair for pair in alignment.pairs if is_call(pair[0])]
            return calls + ([] if parting is None else [(parting.a, parting.b)])

        names = " and ".join(repeat.name for repeat in self._repeats)
        total = 2 * (self._step + 3)
        with progress(total, f"replays of {names}", quiet=self._effort.quiet) as bar:
            seen = replay_both(
                [self._request(repeat) for repeat in self._repeats],
                self._repeats,
                step=self._step,
                choose=choose,
                on_event=lambda event: bar.advance(event["name"]),
            )
        a, b = (side.rows for side in seen)
        alignment = aligned(self._repeats, a, b, [side.kept for side in seen])
        parting = first_divergence(alignment)
        verdict, round_off = judge_round_off(a, b)
        draws = first_draw_difference(*(side.draws for side in seen))
        evidence = Evidence(
            "two replays",
            alignment=alignment.sentence(),
            parting=None if parting is None else parting.sentence,
            round_off=round_off,
            arrival=tuple(side.arrival for side in seen),
            draws=None if draws is None else draws.sentence(),
            substituted=substituted(self._repeats, alignment),
        )
        judgement = {"unknown": "unexplained"}.get(verdict, verdict)
        if parting is not None:
            outputs = (
                outputs_of(side.kept, row.index)
                for side, row in zip(seen, (parting.a, parting.b), strict=True)
            )
            place = replace(
                place, **_named(parting.a), inputs=parting.inputs, **_difference(*outputs)
            )
            if is_call(parting.a):
                words = (place.apart, f"between {whose(self._repeats)}")
                place = replace(place, apart=" ".join(filter(None, words)))
        return Finding(place, judgement, evidence, alignment)

    # -- what a replay needs

    def _request(self, repeat: Repeat) -> Request:
        return Request(repeat.spec, self._images(repeat), self._model(repeat))

    def _images(self, repeat: Repeat) -> Path:
        folder = Path(repeat.manifest.data.path if self._data is None else self._data)
        if not folder.is_dir():
            raise CannotLook(
                f"the images of {repeat.name} are not at {folder} any more; name their folder "
                "with --data"
            )
        found = folder_digest(folder).digest
        if found != repeat.spec.data_digest:
            raise CannotLook(
                f"{folder} does not hold the images of {repeat.name} (digest {found[:12]}…, "
                f"expected {repeat.spec.data_digest[:12]}…); name their folder with --data"
            )
        return folder.resolve()

    def _model(self, repeat: Repeat) -> ModelSource:
        """The weights that a run started from: by their name, or where they were."""
        spec = repeat.spec
        problem: object = "it is not the one that was trained"
        for reference in (spec.model, repeat.manifest.model.path):
            try:
                source = None if reference is None else find_model(reference, self._store)
            except BadInput as error:
                problem = error
                continue
            if source is not None and source.digest == spec.model_digest:
                return replace(source, label=spec.model)
        raise CannotLook(
            f"the model {spec.model} that {spec.key} started from is not to be found "
            f"({problem}); put the file back where it was"
        )


_NOT_STORED = (
    "neither run wrote down the operations of that step; look without --no-again, or train with "
    "--ledger ops"
)
_ALL_EQUAL = (
    "every operation before it that both ran gave equal outputs; one that only one of them ran, "
    "or a change between two operations, made them diverge"
)


def _unnamed(why: str) -> str:
    return f"the operation could not be named: {why}"


def _stored_operations(
    repeats: Sequence[Repeat], step: int
) -> tuple[list[OperationRow], list[OperationRow]] | None:
    """The operations of one step, or image, that both runs wrote down; none where one did not."""
    paths = [repeat.folder / OPERATIONS for repeat in repeats]
    if not all(path.exists() for path in paths):
        return None
    a, b = (read_rows(path, OperationRow, step=step) for path in paths)
    return (a, b) if a and b else None


def _of_rows(
    place: Place, repeats: Sequence[Repeat], a: Sequence[Any], b: Sequence[Any]
) -> Finding | None:
    """The operation in which two lists of operations diverge; none that cannot be the cause."""
    alignment = aligned(repeats, a, b)
    parting = first_divergence(alignment)
    if parting is None or not _may_explain(parting.a.phase, place):
        return None
    evidence = Evidence(
        "stored operations", alignment=alignment.sentence(), parting=parting.sentence
    )
    place = replace(place, **_named(parting.a), inputs=parting.inputs)
    return Finding(place, "unexplained", evidence, alignment)


def _may_explain(phase: str | None, place: Place) -> bool:
    """Whether an operation can be why a stage differs: one that runs after the stage cannot.

    The difference then came in between two operations, by a write that was none of them.
    """
    return phase in OF_STAGE[place.stage].phases


def _named(operation: Any) -> dict[str, Any]:
    """What a `Place` says of an operation."""
    return {name: getattr(operation, name) for name in ("op", "module", "source", "phase")}


def _where(operation: Any) -> tuple[Any, ...]:
    return tuple(_named(operation).values())


def _flipped(seen: Replay, place: Place) -> NondeterministicOperation | None:
    """What the audit says of the named operation, or of unwritten memory that it read."""
    for op in seen.audited:
        if (op.op, op.module, op.phase) == (place.op, place.module, place.phase):
            return op
    reader = (
        f"{place.op}, {place.phase} of {place.module or 'no module'}, {place.source or 'no line'}"
    )
    return next((op for op in seen.audited if reader in (op.read_by or "")), None)


# -- how far results are apart -------------------------------------------------------------


def _difference(a: Sequence[Any], b: Sequence[Any]) -> dict[str, Any]:
    """How many elements of an operation's outputs differ, and by how much, for a `Place`."""
    from cellrepro.store.bits import difference

    if not a or not b:
        return {}
    shapes = [", ".join("x".join(map(str, one.shape)) or "1" for one in side) for side in (a, b)]
    dtypes = [", ".join(str(one.dtype).removeprefix("torch.") for one in side) for side in (a, b)]
    if (shapes[0], dtypes[0]) != (shapes[1], dtypes[1]):
        kinds = zip(dtypes, shapes, strict=True)
        return {"apart": " in A and ".join(f"{d} of shape {s}" for d, s in kinds) + " in B"}
    found = [difference(x, y) for x, y in zip(a, b, strict=True)]
    return _sizes(sum(n for n, _ in found), max(size for _, size in found))


def _sizes(n_elements: int, max_abs: float) -> dict[str, Any]:
    """How far two results are apart, for a `Place`; where no number says it, in words."""
    if math.isfinite(max_abs):
        return {"n_elements": n_elements, "max_abs": max_abs}
    return {"n_elements": n_elements, "apart": "with NaN or infinity beside a number"}
