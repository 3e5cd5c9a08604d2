"""A closer look at the step in which two runs diverge: the operation, and what it was.

Where environments or modes differ, the step is repeated in two processes, else in one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cellrepro.compare.operation_alignment import Alignment, first_divergence, judge_round_off
from cellrepro.determinism.known_operations import may_race
from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.folder import folder_digest
from cellrepro.lab.divergence.rerun import Replay, replays, same_as_stored
from cellrepro.lab.divergence.result import OF_STAGE, Evidence, Place
from cellrepro.lab.divergence.substituted_calls import aligned, is_call, substituted, whose
from cellrepro.lab.worker import Request
from cellrepro.model.network import ModelSource, find_model
from cellrepro.progress import progress
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, Entry, by_place, read_rows
from cellrepro.store.store import Repeat, Store
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.trace.random_draws import Draw, first_draw_difference


class CannotLook(Exception):
    """The operation cannot be named; the message says why."""


@dataclass(frozen=True)
class Finding:
    """What a look at a place found: its operation, what it was, and how that is known."""

    place: Place
    judgement: str
    evidence: Evidence
    operations: Alignment | None = None


@dataclass(frozen=True)
class Look:
    """A closer look at what two runs computed; the options are those of `diverge`."""

    repeats: Sequence[Repeat]
    store: Store
    data: str | Path | None
    again: bool
    repetitions: int
    suspects: int
    quiet: bool

    def at(self, place: Place) -> Finding:
        """What made a place differ; `CannotLook` if that cannot be found here."""
        step = place.step
        if step is None:
            return self._at_image(place)
        if place.stage == "rng" and place.names[0].endswith(" before"):
            raise CannotLook(
                "the operation could not be named: a generator changed before the step began"
            )
        rows = self._stored(OPERATIONS, OperationRow, step)
        draws = self._stored(DRAWS, Draw, step)
        drawn = None if draws is None else first_draw_difference(*draws)
        if drawn is not None and {place.stage, *place.names} & {"rng", "crops", "images drawn"}:
            evidence = Evidence("stored draws", draws=drawn.sentence())
            place = replace(place, **_named(drawn.draw) | {"op": drawn.draw.what})
            return Finding(place, "draws", evidence)
        stored = None if rows is None else self._of_rows(place, *rows)
        try:
            if not self.again:
                raise CannotLook(
                    "the stored operations do not show it; look without --no-again, or train with "
                    "--ledger ops"
                )
            a, b = ((r.spec.profile_settings, r.spec.mode, r.spec.loose) for r in self.repeats)
            return self._repeated(place, step, stored) if a == b else self._in_two(place, step)
        except (CannotLook, CellreproError) as error:
            if stored is None:  # a device that is not here, for example: the rest is told
                raise CannotLook(f"the operation could not be named: {error}") from error
            return stored

    # -- what both wrote down

    def _at_image(self, place: Place) -> Finding:
        """The operation in which segmenting an image diverges."""
        image = place.names[0].rpartition(" ")[0]
        index = list(self.repeats[0].manifest.masks).index(image)
        rows = self._stored(OPERATIONS, OperationRow, index)
        if rows is None:
            raise CannotLook("segment both with --ledger ops to have the operation named")
        if found := self._of_rows(place, *rows):
            return found
        raise CannotLook("every operation that both wrote down gave equal outputs")

    def _stored(self, name: str, kind: type, step: int) -> list[list[Any]] | None:
        """The rows of one step, or image, of both runs; none where one did not write them down."""
        paths = [repeat.folder / name for repeat in self.repeats]
        if not all(path.exists() for path in paths):
            return None
        rows = [read_rows(path, kind, step=step) for path in paths]
        return rows if all(rows) else None

    def _of_rows(self, place: Place, a: Sequence[Any], b: Sequence[Any]) -> Finding | None:
        """The operation in which two lists of operations diverge; none that is not the cause."""
        alignment = aligned(self.repeats, a, b)
        parting = first_divergence(alignment)
        if parting is None or not _may_explain(parting.a.phase, place):
            return None
        evidence = Evidence(
            "stored operations", alignment=alignment.sentence(), parting=parting.sentence
        )
        place = replace(place, **_named(parting.a), inputs=parting.inputs)
        return Finding(place, "unexplained", evidence, alignment)

    # -- one process, the same step again and again

    def _repeated(self, place: Place, step: int, stored: Finding | None) -> Finding:
        """What the stored operations or the repetitions show, and whether it came again."""
        (seen,) = self._replays(
            self.repeats[:1], step, repetitions=self.repetitions, suspects=self.suspects
        )
        found = stored or self._of_repetitions(place, seen)
        evidence = replace(
            found.evidence,
            n_repetitions=seen.n_repetitions,
            n_replays=seen.n_replays,
            ends_as=self._ends_as(seen, step),
            arrival=(seen.arrival,),
        )
        place = found.place
        reader = f"{place.op}, {place.phase} of {place.module or 'no module'}, "
        reader += place.source or "no line"
        for op in seen.audited:
            unwritten = reader in (op.read_by or "")
            if unwritten or (op.op, op.module, op.phase) == (place.op, place.module, place.phase):
                if op.read_by is not None:
                    evidence = replace(evidence, parting=op.sentence())
                return replace(
                    found,
                    place=replace(place, **_sizes(op.n_elements, op.max_abs)),
                    judgement="race" if op.read_by is None else "unwritten-memory",
                    evidence=replace(evidence, flips=op.flips, n_asked=op.replays),
                )
        if found.judgement == "race":
            return replace(found, evidence=evidence)
        # Where a race is possible, that none was seen is no proof that there was none.
        why = self._no_fault()
        certain = why is None and (stored is not None or evidence.ends_as in ("a", "b"))
        evidence = replace(evidence, elimination=why)
        return replace(found, judgement="fault" if certain else "unexplained", evidence=evidence)

    def _of_repetitions(self, place: Place, seen: Replay) -> Finding:
        """The operation in which the step diverged from itself, or the first that flips."""
        again = None if seen.again is None else self._of_rows(place, seen.rows, seen.again)
        if again is not None:
            evidence = replace(again.evidence, how="repetition")
            return replace(again, judgement="race", evidence=evidence)
        order = [_named(row) for row in seen.rows]
        suspects = [op for op in seen.audited if _may_explain(op.phase, place)]
        if suspects:
            first = min(suspects, key=lambda op: [*order, _named(op)].index(_named(op)))
            place = replace(place, **_named(first), inputs="agree")
        return Finding(place, "unexplained", Evidence("audit"))

    def _no_fault(self) -> str | None:
        """Why a difference that did not come again may be something else than a fault."""
        if self.repeats[0].machine != self.repeats[1].machine:
            return "the two were computed on two machines, and the step was repeated on one only"
        spec = self.repeats[0].spec
        device, threads = (spec.profile_settings.get(name) for name in ("device", "threads"))
        return may_race(spec.mode, device=str(device), threads=threads, loose=spec.loose)

    def _ends_as(self, seen: Replay, step: int) -> str | None:
        """Whose bits a replay of the step ends in; none where no ledger has anything of it."""
        a, b = (
            same_as_stored(seen.entries, by_place(read_rows(one.folder / LEDGER, Entry, step=step)))
            for one in self.repeats
        )
        if a is None and b is None:
            return None
        return "both" if a and b else "a" if a else "b" if b else "neither"

    # -- two processes, each in its own environment

    def _in_two(self, place: Place, step: int) -> Finding:
        """Where the step diverges, and whether all in it is within the error of its class."""
        a, b = self._replays(self.repeats, step)
        alignment = aligned(self.repeats, a.rows, b.rows, [a.kept, b.kept])
        parting = first_divergence(alignment)
        verdict, round_off = judge_round_off(a.rows, b.rows)
        draws = first_draw_difference(a.draws, b.draws)
        if parting is not None:
            outputs = a.kept.get(parting.a.index, []), b.kept.get(parting.b.index, [])
            place = replace(
                place, **_named(parting.a), inputs=parting.inputs, **_difference(*outputs)
            )
            if is_call(parting.a):
                words = (place.apart, f"between {whose(self.repeats)}")
                place = replace(place, apart=" ".join(filter(None, words)))
        evidence = Evidence(
            "two replays",
            alignment=alignment.sentence(),
            parting=None if parting is None else parting.sentence,
            round_off=round_off,
            arrival=(a.arrival, b.arrival),
            draws=None if draws is None else draws.sentence(),
            substituted=substituted(self.repeats, alignment),
        )
        judgement = "unexplained" if verdict == "unknown" else verdict
        return Finding(place, judgement, evidence, alignment)

    # -- what a replay needs

    def _replays(self, repeats: Sequence[Repeat], step: int, **effort: int) -> list[Replay]:
        names = " and ".join(repeat.name for repeat in repeats)
        requests = [self._request(repeat) for repeat in repeats]
        total = len(repeats) * (step + 3)
        with progress(total, f"replay of {names}", quiet=self.quiet) as bar:
            return replays(requests, repeats, on_event=bar.heard, step=step, **effort)

    def _request(self, repeat: Repeat) -> Request:
        folder = Path(repeat.manifest.data.path if self.data is None else self.data)
        if not folder.is_dir() or folder_digest(folder) != repeat.spec.data_digest:
            raise CannotLook(
                f"{folder} does not hold the images of {repeat.name}; name their folder with --data"
            )
        return Request(repeat.spec, folder.resolve(), self._model(repeat))

    def _model(self, repeat: Repeat) -> ModelSource:
        """The weights that a run started from: by their name, or where they were."""
        spec = repeat.spec
        for reference in filter(None, (spec.model, repeat.manifest.model.path)):
            with suppress(BadInput):
                source = find_model(reference, self.store)
                if source.digest == spec.model_digest:
                    return replace(source, label=spec.model)
        raise CannotLook(
            f"the model {spec.model} that {spec.key} started from is not to be found as it was; "
            "put the file back"
        )


def _may_explain(phase: str | None, place: Place) -> bool:
    """Whether an operation can be why a stage differs: one that runs after the stage cannot."""
    return phase in OF_STAGE[place.stage].phases


def _named(operation: Any) -> dict[str, Any]:
    """What a `Place` says of an operation, or of a draw, which has no ``op``."""
    names = ("op", "module", "source", "phase")
    return {name: getattr(operation, name, None) for name in names}


def _difference(a: Sequence[Any], b: Sequence[Any]) -> dict[str, Any]:
    """How many elements of an operation's outputs differ, and by how much, for a `Place`."""
    from cellrepro.store.bits import difference

    if not a or not b:
        return {}
    if [(x.shape, x.dtype) for x in a] != [(y.shape, y.dtype) for y in b]:
        return {"apart": "of other shapes or types in A and in B"}
    found = [difference(x, y) for x, y in zip(a, b, strict=True)]
    return _sizes(sum(n for n, _ in found), max(size for _, size in found))


def _sizes(n_elements: int, max_abs: float) -> dict[str, Any]:
    """How far two results are apart, for a `Place`; where no number says it, in words."""
    if math.isfinite(max_abs):
        return {"n_elements": n_elements, "max_abs": max_abs}
    return {"n_elements": n_elements, "apart": "with NaN or infinity beside a number"}
