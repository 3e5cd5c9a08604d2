"""A closer look at the step in which two runs diverge: the operation, and what it was.

Where environments or modes differ, the step is repeated in two processes, else in one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from cellrepro.bits.digests import tensor_digest
from cellrepro.bits.site import Site
from cellrepro.determinism.known_operations import may_race
from cellrepro.determinism.substitutes import stands_in
from cellrepro.divergence.result import OF_STAGE, Evidence, Place
from cellrepro.divergence.step_again import Replay, replays, same_as_stored
from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.folder import folder_digest
from cellrepro.model.network import started_from
from cellrepro.run.checkpointing import CHECKPOINTS
from cellrepro.run.plan import Request
from cellrepro.same.operation_alignment import (
    Alignment,
    align,
    first_divergence,
    judge_round_off,
)
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, LedgerRow, by_place, read_rows
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
        if place.stage == "rng" and place.names[0].endswith(" before"):
            raise CannotLook("no operation is named: a generator changed before the step began")
        step = place.step
        if step is None:  # operations of an image are numbered as the images are
            step = list(self.repeats[0].manifest.masks).index(place.names[0].rpartition(" ")[0])
        rows = self.stored(OPERATIONS, OperationRow, step)
        draws = self.stored(DRAWS, Draw, step)
        drawn = None if draws is None else first_draw_difference(*draws)
        if drawn is not None and {place.stage, *place.names} & {"rng", "crops", "images drawn"}:
            evidence = Evidence("stored draws", draws=drawn.sentence())
            place = replace(place, **named(drawn.draw) | {"op": drawn.draw.what})
            return Finding(place, "draws", evidence)
        stored = None if rows is None else self.of_rows(place, *rows)
        if stored is not None and stored.judgement != "unexplained":
            return stored
        try:
            if place.step is None or not self.again:
                raise CannotLook("what was stored does not show it; --ledger ops stores more")
            a, b = ((r.spec.profile_settings, r.spec.mode, r.spec.loose) for r in self.repeats)
            return self._repeated(place, step, stored) if a == b else self._in_two(place, step)
        except (CannotLook, CellreproError) as error:
            if stored is None:  # a device that is not here, for example: the rest is told
                raise CannotLook(f"no operation is named: {error}") from error
            return stored

    # -- what both wrote down

    def stored(self, name: str, kind: type, step: int) -> list[list[Any]] | None:
        """The rows of one step, or image, of both runs; none where one did not write them down."""
        paths = [repeat.file(name) for repeat in self.repeats]
        if not all(path.exists() for path in paths):
            return None
        rows = [read_rows(path, kind, step=step) for path in paths]
        return rows if all(rows) else None

    def of_rows(self, place: Place, a: Sequence[Any], b: Sequence[Any]) -> Finding | None:
        """The operation in which two lists of operations diverge; none that is not the cause."""
        alignment = aligned(self.repeats, a, b)
        parting = first_divergence(alignment)
        if parting is None or not _may_explain(parting.a.phase, place):
            return None
        told: dict[str, Any] = {"alignment": alignment.sentence(), "parting": parting.sentence}
        judgement = "unexplained"
        if self._on_two_machines():  # each operation was held against float64 where it ran
            verdict, told["round_off"] = judge_round_off(a, b)
            judgement = verdict.replace("unknown", "unexplained")
        evidence = Evidence("stored operations", **told)
        place = replace(place, **named(parting.a), inputs=parting.inputs)
        return Finding(place, judgement, evidence, alignment)

    def _on_two_machines(self) -> bool:
        a, b = self.repeats
        return a.machine != b.machine

    # -- one process, the same step again and again

    def _repeated(self, place: Place, step: int, stored: Finding | None) -> Finding:
        """What the stored operations or the repetitions show, and whether it came again."""
        effort = {"repetitions": self.repetitions, "suspects": self.suspects}
        (seen,) = self._replays(self.repeats[:1], step, **effort)
        found = stored or self._of_repetitions(place, seen)
        evidence = replace(
            found.evidence,
            n_repetitions=seen.n_repetitions,
            n_replays=seen.n_replays,
            ends_as=self._ends_as(seen, step),
            arrival=(seen.arrival,),
        )
        place = found.place
        reader = f"{place.op}, {Site(**named(place))}"
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
        again = None if seen.again is None else self.of_rows(place, seen.rows, seen.again)
        if again is not None:
            evidence = replace(again.evidence, how="repetition")
            return replace(again, judgement="race", evidence=evidence)
        order = [named(row) for row in seen.rows]
        suspects = [op for op in seen.audited if _may_explain(op.phase, place)]
        if suspects:
            first = min(suspects, key=lambda op: [*order, named(op)].index(named(op)))
            place = replace(place, **named(first), inputs="agree")
        return Finding(place, "unexplained", Evidence("audit"))

    def _no_fault(self) -> str | None:
        """Why a difference that did not come again may be something else than a fault."""
        if self._on_two_machines():
            return "the two were computed on two machines, and the step was repeated on one only"
        spec = self.repeats[0].spec
        device, threads = (spec.profile_settings.get(name) for name in ("device", "threads"))
        return may_race(spec.mode, device=str(device), threads=threads, loose=spec.loose)

    def _ends_as(self, seen: Replay, step: int) -> str | None:
        """Whose bits a replay of the step ends in; none where no ledger has anything of it."""
        a, b = (
            same_as_stored(
                seen.entries, by_place(read_rows(one.file(LEDGER), LedgerRow, step=step))
            )
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
            found = {**named(parting.a), **_difference(*outputs)}
            place = replace(place, **found, inputs=parting.inputs)
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
        )
        judgement = verdict.replace("unknown", "unexplained")
        return Finding(place, judgement, evidence, alignment)

    # -- what a replay needs

    def _replays(self, repeats: Sequence[Repeat], step: int, **effort: int) -> list[Replay]:
        requests = [self._request(repeat) for repeat in repeats]
        return replays(requests, repeats, step, quiet=self.quiet, **effort)

    def _request(self, repeat: Repeat) -> Request:
        if repeat.spec.seed is None and not (repeat.folder / CHECKPOINTS).is_dir():
            raise CannotLook(
                f"nothing of {repeat.name} was seeded (mode off), so that its steps cannot be "
                "carried out again; mode fast seeds, and --keep-checkpoints keeps the generators"
            )
        folder = Path(repeat.manifest.data.path if self.data is None else self.data)
        if not folder.is_dir() or folder_digest(folder) != repeat.spec.data_digest:
            raise CannotLook(
                f"{folder} does not hold the images of {repeat.name}; name their folder with --data"
            )
        try:
            return Request(repeat.spec, folder.resolve(), started_from(repeat, self.store))
        except BadInput as error:
            raise CannotLook(str(error)) from error


def _may_explain(phase: str | None, place: Place) -> bool:
    """Whether an operation can be why a stage differs: one that runs after the stage cannot."""
    return phase in OF_STAGE[place.stage].phases


def named(operation: Any) -> dict[str, Any]:
    """What a `Place` says of an operation, or of a draw, which has no ``op``."""
    names = ("op", "module", "source", "phase")
    return {name: getattr(operation, name, None) for name in names}


def _difference(a: Sequence[Any], b: Sequence[Any]) -> dict[str, Any]:
    """How many elements of an operation's outputs differ, and by how much, for a `Place`."""
    from cellrepro.bits.same import difference

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


# -- operations that correspond, with each call of a substitute as one operation -----------------
#
# Where one side has a substitute for what the other ran, the operations inside are a difference of
# settings; what can be compared is the result of the call, by its tensors where they were kept.

Kept = Mapping[int, list[Any]]
"""The tensors that came out of some operations, by their order in the step."""


def aligned(
    repeats: Sequence[Repeat], a: Sequence[Any], b: Sequence[Any], kept: Sequence[Kept] = ({}, {})
) -> Alignment:
    """The operations of two runs that correspond."""
    if not any(_own_substitutes(repeats)):
        return align(a, b)
    alignment = align(_calls_as_one(a), _calls_as_one(b))
    pairs, all_agree = [], True
    for x, y in alignment.pairs:
        if is_call(x):
            x, y = _with_results(x, y, kept)
            # What went in agrees as long as all that came out before does.
            y = replace(y, inputs="agree" if all_agree else "other")
        if x.outputs and y.outputs and x.outputs != y.outputs:
            all_agree = False
        pairs.append((x, y))
    return replace(alignment, pairs=tuple(pairs))


def to_compare(
    repeats: Sequence[Repeat], a: Sequence[Any], b: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """The operations whose tensors are needed: whole calls, and where the two diverge."""
    alignment = aligned(repeats, a, b)
    parting = first_divergence(alignment)
    calls = [pair for pair in alignment.pairs if is_call(pair[0])]
    return calls + ([] if parting is None else [(parting.a, parting.b)])


def _own_substitutes(repeats: Sequence[Repeat]) -> tuple[list[str], list[str]]:
    """The substitutes that only one of two runs had in place, of each."""
    a, b = (set(repeat.manifest.switches.get("substitutes") or ()) for repeat in repeats)
    return sorted(a - b), sorted(b - a)


def _calls_as_one(rows: Sequence[Any]) -> list[Any]:
    """Operations of a step, with each call of a function that has substitutes as one."""
    nothing: dict[str, Any] = dict.fromkeys(("shapes", "dtypes", "inputs"), "")
    nothing |= dict.fromkeys(("norm", "ulp", "limit", "problem"), None)
    found: list[Any] = []
    in_order = sorted(rows, key=lambda row: row.index)
    for (function, _, _), group in groupby(
        in_order, lambda row: (stands_in(row.source), row.module, row.phase)
    ):
        inside = list(group)
        if function is None:
            found += inside
            continue
        last = _end_of_call(inside[-1])
        found += [
            replace(row, op=function.rpartition(" ")[2], source=function, **nothing)
            for row in inside
            if _end_of_call(row) == last
        ]
    return found


def _end_of_call(row: Any) -> tuple[Any, ...]:
    """What the last operation of every call in a row has in common, and no other of them."""
    n_axes = row.shapes.partition(",")[0].partition(" ")[0].count("x")
    return row.op, row.source, n_axes, row.dtypes


def is_call(row: Any) -> bool:
    """Whether a row stands for a whole call; PyTorch's own names have dots."""
    return "." not in row.op


def _with_results(x: Any, y: Any, kept: Sequence[Kept]) -> tuple[Any, Any]:
    """Two calls with digests of their results, which no layout in memory changes."""
    results = [side.get(row.index) for side, row in zip(kept, (x, y), strict=True)]
    if all(results):
        digests = [",".join(map(tensor_digest, result or ())) for result in results]
    else:
        digests = [x.outputs, y.outputs] if x.outputs == y.outputs else ["", ""]
    return replace(x, inputs="agree", outputs=digests[0]), replace(y, outputs=digests[1])


def whose(repeats: Sequence[Repeat]) -> str:
    """Whose substitutes are compared with what they stand for."""
    own = zip("AB", _own_substitutes(repeats), strict=True)
    sides = [f"{' and '.join(names)} of {side}" for side, names in own if names]
    return f"the substitutes {' and '.join(sides)} and what they stand for"
