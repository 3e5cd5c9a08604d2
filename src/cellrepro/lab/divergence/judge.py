"""A closer look at the step in which two runs part: the operation, and what it was.

Its operations are compared where both runs wrote them down; otherwise the step is gone through
again, in one process where the two were asked for alike, in two where they were not.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from cellrepro.compare.ledger_diff import Difference
from cellrepro.compare.operation_alignment import (
    Alignment,
    DivergingOperation,
    RoundOff,
    align,
    first_divergence,
    judge_round_off,
)
from cellrepro.determinism.known_operations import may_race
from cellrepro.determinism.substitutes import stands_in
from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.folder import folder_digest
from cellrepro.lab.divergence.rerun import Replay, replay, same_as_stored
from cellrepro.lab.divergence.result import Evidence, Place
from cellrepro.lab.worker import Request
from cellrepro.model.network import ModelSource, find_model
from cellrepro.progress import progress
from cellrepro.store.ledger import DRAWS, LEDGER, OPERATIONS, Entry, by_place, read_rows
from cellrepro.store.store import Repeat, Run, Store
from cellrepro.text import amount
from cellrepro.trace.random_draws import Draw, first_draw_difference

Side = tuple[Run, Repeat]


class CannotLook(Exception):
    """The step cannot be gone through again here; the message says why."""


@dataclass(frozen=True)
class Effort:
    """How hard to look: the options of `diverge`."""

    repetitions: int
    suspects: int
    again: bool
    quiet: bool


class Look:
    """A closer look at the step in which two runs part."""

    def __init__(
        self,
        sides: tuple[Side, Side],
        shown: Difference,
        store: Store,
        data: str | Path | None,
        effort: Effort,
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
            raise CannotLook(
                "a generator was moved before the step began and after the one before it had "
                "ended, where nobody writes down who draws"
            )
        if place.stage == "rng" or {"crops", "images drawn"} & set(place.names):
            drawn = self._drawn_otherwise(place)
            if drawn is not None:
                return drawn
        stored = [stored_rows(side[1], OPERATIONS, self._step) for side in self._sides]
        found = None
        if all(stored):
            alignment = self.alignment = aligned(self._sides, *stored)
            parting = first_divergence(alignment)
            if parting is not None and _may_explain(parting.a.phase, place):
                evidence = Evidence(
                    "stored operations",
                    alignment=alignment.sentence(),
                    parting=parting.sentence(),
                    draws=self._draws_sentence(),
                )
                found = named_by(place, parting), "unexplained", evidence
        if found is not None and not self._effort.again:
            return found
        if not self._effort.again and all(stored):
            raise CannotLook(
                "every operation before it that both ran gave equal outputs; one that only one of "
                "them ran, or a change between two operations, parts them"
            )
        if not self._effort.again:
            raise CannotLook(
                "neither run wrote down the operations of that step; look without --no-again, or "
                "train with --ledger ops"
            )
        try:
            with tempfile.TemporaryDirectory() as scratch:
                if not self._alike:
                    return self._side_by_side(place, Path(scratch))
                seen = self._replay(self._sides[0], Path(scratch))
        except (CannotLook, CellreproError) as error:
            if found is None:  # a device that is not here, for example: the rest is told
                raise CannotLook(str(error)) from error
            return found
        return self._repeated(place, seen) if found is None else self._held_against(found, seen)

    def _drawn_otherwise(self, place: Place) -> tuple[Place, str, Evidence] | None:
        """Who drew other numbers, if both runs wrote their draws down."""
        rows = [stored_rows(side[1], DRAWS, self._step) for side in self._sides]
        extra = first_draw_difference(*rows)
        if extra is None:
            return None
        draw = extra.draw
        named = replace(
            place, op=draw.what, module=draw.module, source=draw.source, phase=draw.phase
        )
        return named, "draws", Evidence("stored draws", draws=extra.sentence())

    def _draws_sentence(self) -> str | None:
        rows = [stored_rows(side[1], DRAWS, self._step) for side in self._sides]
        extra = first_draw_difference(*rows)
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
            why = self._no_fault()
            return named, "unexplained" if why else "fault", replace(evidence, elimination=why)
        return replace(named, **_sizes(flipped)), _judged_by_audit(flipped), evidence

    def _no_fault(self) -> str | None:
        """Why a difference that did not come again may be something else than a fault."""
        spec = self._sides[0][0].spec
        elsewhere = {repeat.machine for _, repeat in self._sides}
        if len(elsewhere) > 1:
            return (
                f"the two were computed on {' and '.join(sorted(elsewhere))}, and the step was "
                "gone through again on one machine only"
            )
        settings = spec.profile_settings
        return may_race(
            spec.mode,
            device=settings["device"],
            threads=settings.get("threads"),
            loose=spec.loose,
        )

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
            parting = first_divergence(alignment)
            if parting is not None and _may_explain(parting.a.phase, place):
                named = named_by(place, parting)
                flipped = _audit_of(seen, named)
                evidence = replace(
                    evidence, alignment=alignment.sentence(), parting=parting.sentence()
                )
                if flipped is not None:
                    named = replace(named, **_sizes(flipped))
                    evidence = replace(evidence, flips=flipped["flips"], n_asked=flipped["replays"])
                return named, "race", evidence
        suspects = [op for op in seen.audited if _may_explain(op["phase"], place)]
        if suspects:
            order = {
                (row.op, row.module, row.source, row.phase): row.index
                for row in reversed(seen.rows)
            }
            first = min(
                suspects,
                key=lambda op: order.get(
                    (op["op"], op["module"], op["source"], op["phase"]), len(order)
                ),
            )
            named = replace(
                place,
                **{name: first[name] for name in ("op", "module", "source", "phase")},
                **_sizes(first),
                inputs="agree",
            )
            evidence = replace(evidence, flips=first["flips"], n_asked=first["replays"])
            return named, _judged_by_audit(first), evidence
        # Where a race is possible, that none was seen is no proof that there was none.
        why = self._no_fault()
        settled = evidence.ends_as in ("a", "b") and why is None
        return place, "fault" if settled else "unexplained", replace(evidence, elimination=why)

    # -- two processes, each in its own surroundings

    def _side_by_side(self, place: Place, scratch: Path) -> tuple[Place, str, Evidence]:
        seen = self._both(scratch)
        alignment = self.alignment = aligned(
            self._sides, seen[0].rows, seen[1].rows, [side.kept for side in seen]
        )
        parting = first_divergence(alignment)
        judged = judge_round_off(seen[0].rows, seen[1].rows)
        draws = first_draw_difference(*(side.draws for side in seen))
        evidence = Evidence(
            "two replays",
            alignment=alignment.sentence(),
            round_off=judged.sentence(),
            arrival=tuple(_arrived(side) for side in seen),
            draws=None if draws is None else draws.sentence(),
            substituted=self._substituted(alignment),
        )
        if parting is None:
            return place, _judged(judged), evidence
        both = (
            _outputs(side.kept, row.index)
            for side, row in zip(seen, (parting.a, parting.b), strict=True)
        )
        named = replace(named_by(place, parting), **_difference(*both))
        if _is_call(parting.a):
            words = (named.apart, f"between {self._whose()}")
            named = replace(named, apart=" ".join(filter(None, words)))
        return named, _judged(judged), replace(evidence, parting=parting.sentence())

    # -- replays

    def _replay(self, side: Side, scratch: Path) -> Replay:
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

    def _both(self, scratch: Path) -> list[Replay]:
        """Both runs' steps at the same time, with the tensors of where they may part."""
        rows: list[list[Any]] = [[], []]
        both_there = threading.Barrier(2)
        wanted: list[tuple[Any, Any]] = []

        def choose(index: int, own: list[Any]) -> list[int]:
            rows[index] = own
            both_there.wait()
            if index == 0:
                alignment = aligned(self._sides, *rows)
                parting = first_divergence(alignment)
                wanted.extend(pair for pair in alignment.pairs if _is_call(pair[0]))
                wanted.extend([(parting.a, parting.b)] if parting is not None else [])
            both_there.wait()
            return [pair[index].index for pair in wanted]

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
        return [future.result() for future in futures]

    # -- what one side has a substitute for

    def _substituted(self, alignment: Alignment) -> str | None:
        calls = [(x.outputs, y.outputs) for x, y in alignment.pairs if _is_call(x)]
        if not calls:
            return None
        n_unknown = sum(not x or not y for x, y in calls)
        n_equal = sum(x == y for x, y in calls) - n_unknown
        unknown = f", {n_unknown} could not be compared" if n_unknown else ""
        return (
            f"{n_equal} of {amount(len(calls), 'call')} gave equal bits{unknown}: {self._whose()}"
        )

    def _whose(self) -> str:
        """Whose substitutes are compared with what they stand for."""
        sides = [
            f"{' and '.join(names)} of {side}"
            for side, names in zip("AB", _own_substitutes(self._sides), strict=True)
            if names
        ]
        return f"the substitutes {' and '.join(sides)} and what they stand for"

    def _request(self, side: Side) -> Request:
        run, _ = side
        return Request(run.spec, self._images(side), self._model(side))

    def _images(self, side: Side) -> Path:
        run, repeat = side
        folder = Path(repeat.manifest.data.path if self._data is None else self._data)
        if not folder.is_dir():
            raise CannotLook(
                f"the images of {repeat.name} are not at {folder} any more; name their folder "
                "with --data"
            )
        found = folder_digest(folder).digest
        if found != run.spec.data_digest:
            raise CannotLook(
                f"{folder} does not hold the images of {repeat.name} (digest {found[:12]}…, "
                f"expected {run.spec.data_digest[:12]}…); name their folder with --data"
            )
        return folder.resolve()

    def _model(self, side: Side) -> ModelSource:
        """The weights that a run started from: by their name, or where they were."""
        run, repeat = side
        problem: object = "it is not the one that was trained"
        for reference in (run.spec.model, repeat.manifest.model.path):
            try:
                source = None if reference is None else find_model(reference, self._store)
            except BadInput as error:
                problem = error
                continue
            if source is not None and source.digest == run.spec.model_digest:
                return replace(source, label=run.spec.model)
        raise _no_model(run, problem)

    def _ends_as(self, seen: Replay) -> str | None:
        """Whose bits a replay of the step ends in; none where no ledger has anything of it."""
        ends = {
            letter: same_as_stored(
                seen.entries, by_place(read_rows(repeat.folder / LEDGER, Entry, step=self._step))
            )
            for letter, (_, repeat) in zip("ab", self._sides, strict=True)
        }
        if ends["a"] is None and ends["b"] is None:
            return None
        if ends["a"] and ends["b"]:
            return "both"
        return next((letter for letter, same in ends.items() if same), "neither")


def stored_rows(repeat: Repeat, name: str, step: int) -> list[Any]:
    """Operations or draws of one step that a run wrote down; none where it did not."""
    from cellrepro.trace.operation_ledger import OperationRow

    path = repeat.folder / name
    if not path.exists():
        return []
    kind = OperationRow if name == OPERATIONS else Draw
    return read_rows(path, kind, step=step)


def _no_model(run: Run, problem: object) -> CannotLook:
    return CannotLook(
        f"the model {run.spec.model} that {run.key} started from is not to be found ({problem}); "
        "put the file back where it was"
    )


def _may_explain(phase: str, place: Place) -> bool:
    """Whether an operation can be why a stage differs: one that runs after the stage cannot.

    The difference then came in between two operations, by a write that was none of them.
    """
    last = {"backward": "backward", "update": "update", "weights": "update"}
    phases = ("forward", "backward", "update")
    return phases.index(phase) <= phases.index(last.get(place.stage, "forward"))


def named_by(place: Place, parting: DivergingOperation) -> Place:
    """A place with the operation in which two lists of operations part."""
    row = parting.a
    return replace(
        place,
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


def _judged_by_audit(found: Mapping[str, Any]) -> str:
    """What an operation is of which the audit says that its bits flip."""
    # Reading memory that nobody has written repeats, and is no race.
    return "race" if found["read_by"] is None else "fault"


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
    if way.passed_over:
        text += f"; a nearer checkpoint was passed over: {'; '.join(way.passed_over)}"
    return text


def _is_consequence(problem: BaseException) -> bool:
    """Whether a thread ended only because the other one had."""
    return isinstance(problem, threading.BrokenBarrierError)


def _judged(judged: RoundOff) -> str:
    return judged.verdict if judged.verdict in ("round-off", "fault") else "unexplained"


def aligned(
    sides: tuple[Side, Side],
    a: list[Any],
    b: list[Any],
    kept: Sequence[Mapping[str, Any]] = ({}, {}),
) -> Alignment:
    """The operations of two runs that correspond.

    Where one side has a substitute for what the other ran, the operations inside are a difference
    of settings: each call is one operation then, and its result is compared, by its tensors where
    they were kept.
    """
    if not any(_own_substitutes(sides)):
        return align(a, b)
    alignment = align(_calls_as_one(a), _calls_as_one(b))
    pairs, all_agree = [], True
    for x, y in alignment.pairs:
        if _is_call(x):
            x, y = _with_results(x, y, kept, all_agree=all_agree)
        if x.outputs and y.outputs and x.outputs != y.outputs:
            all_agree = False
        pairs.append((x, y))
    return replace(alignment, pairs=tuple(pairs))


def _own_substitutes(sides: tuple[Side, Side]) -> tuple[list[str], list[str]]:
    """The substitutes that only one of two runs had in place, of each."""
    a, b = (set(repeat.manifest.switches.get("substitutes") or ()) for _, repeat in sides)
    return sorted(a - b), sorted(b - a)


def _calls_as_one(rows: Sequence[Any]) -> list[Any]:
    """Operations of a step, with each call of a function that has substitutes as one."""
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
            replace(
                row,
                op=function.rpartition(" ")[2],
                source=function,
                inputs="",
                **dict.fromkeys(("shapes", "dtypes"), ""),
                **dict.fromkeys(("norm", "ulp", "limit", "problem"), None),
            )
            for row in inside
            if _end_of_call(row) == last
        ]
    return found


def _end_of_call(row: Any) -> tuple[Any, ...]:
    """What the last operation of every call in a row has in common, and no other of them."""
    n_axes = row.shapes.partition(",")[0].partition(" ")[0].count("x")
    return row.op, row.source, n_axes, row.dtypes


def _is_call(row: Any) -> bool:
    """Whether a row stands for a whole call; PyTorch's own names have dots."""
    return "." not in row.op


def _with_results(
    x: Any, y: Any, kept: Sequence[Mapping[str, Any]], *, all_agree: bool
) -> tuple[Any, Any]:
    """Two calls with digests of their results, which no layout in memory changes.

    What went in agrees as long as all that came out before does.
    """
    from cellrepro.store.digests import tensor_digest

    results = [_outputs(side, row.index) for side, row in zip(kept, (x, y), strict=True)]
    if all(results):
        digests = [",".join(map(tensor_digest, result)) for result in results]
    elif x.outputs == y.outputs:
        digests = [x.outputs, y.outputs]
    else:
        digests = ["", ""]
    given = ("agree", "agree" if all_agree else "other")
    x, y = (
        replace(row, inputs=what, outputs=digest)
        for row, what, digest in zip((x, y), given, digests, strict=True)
    )
    return x, y


def _outputs(kept: Mapping[str, Any], index: int) -> list[Any]:
    """The tensors that came out of an operation, as far as they were kept."""
    names = sorted(name for name in kept if name.startswith(f"{index}/outputs/"))
    return [kept[name] for name in names]


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
    sizes = {"n_elements": sum(n for n, _ in found), "max_abs": max(size for _, size in found)}
    return _sizes(sizes)


def _sizes(found: Mapping[str, Any]) -> dict[str, Any]:
    """How far two results are apart, for a `Place`; where no number says it, in words."""
    sizes = {name: found[name] for name in ("n_elements", "max_abs")}
    if sizes["max_abs"] is not None and not math.isfinite(sizes["max_abs"]):
        sizes |= {"max_abs": None, "apart": "with NaN or infinity beside a number"}
    return sizes
