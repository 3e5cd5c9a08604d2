"""When did two runs diverge, and at which operation: from the ledgers down to the cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cellrepro.asked import defaults
from cellrepro.bits.digests import array_digest, file_digest, value_digest
from cellrepro.changes.compare_repeats import compare_repeats
from cellrepro.divergence.judge import CannotLook, Look
from cellrepro.divergence.result import OF_STAGE, Divergence, Place
from cellrepro.divergence.segmentations import (
    comparable_stages,
    entries_by_stage,
    with_images,
)
from cellrepro.errors import whole
from cellrepro.run.worker import flattened
from cellrepro.same.ledger_diff import LedgerComparison, compare_ledgers
from cellrepro.store.ledger import LEDGER, SEGMENTATION_STAGES, STAGES, Ledger, LedgerRow, read_rows
from cellrepro.store.manifest import ENVIRONMENT_FIELDS
from cellrepro.store.store import Repeat, Store

_LAST = 2**31 - 1  # the step of what is there once everything is done
_COMPARABLE_SETTINGS = {"mode", "loose"}
"""What two specs may differ in and still be worth comparing operation by operation."""


def diverge(
    a: str,
    b: str,
    *,
    data: str | Path | None = None,
    again: bool = True,
    repetitions: int = 20,
    suspects: int = 200,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> Divergence:
    """Name the first place where two stored runs diverge; of two segmentations the first stage of
    an image, from its file to the filtered masks.

    Parameters
    ----------
    a, b : str
        ``KEY`` (its first repeat; for both of one key the first two) or ``KEY/REPEAT``.
    data : str or Path, optional
        The folder of images, to repeat a step; by default where the runs had it.
    again : bool
        Repeat the step in which they diverge, to name the operation; without it an operation is
        named only where both runs wrote theirs down (``ledger="ops"``).
    repetitions, suspects : int
        How often, from one state, until it diverges from itself; how often operations known to
        race are run again after that.
    store, quiet
        As for `cellrepro.train`.
    """
    whole("repetitions", repetitions, 1)
    whole("suspects", suspects, 0)
    place = Store(store)
    repeats = place.find_two(a, b)
    ledgers = _ledgers_compared(repeats)
    answer = _by_ledgers(ledgers, repeats)
    look = Look(repeats, place, data, again, repetitions, suspects, quiet)
    if _of_segmentations(repeats):
        return with_images(answer, look)
    in_steps = repeats[0].spec.task == "train"
    shown = ledgers.first_computed if in_steps else next(iter(ledgers.of_stage("flows")), None)
    if shown is None:
        return answer
    computed = Place.of(shown, ledgers)
    try:
        if shown.step is not None:
            _refuse_other_inputs(ledgers, repeats)
        found = look.at(computed)
    except CannotLook as error:
        # What nothing was computed in twice, as masks alone, is no place of its own.
        named = answer if shown.step is None else _with_computed(answer, computed)
        return replace(named, notes=(*named.notes, str(error)))
    return replace(
        _with_computed(answer, found.place),
        judgement=answer.judgement if shown.step is None else found.judgement,
        evidence=found.evidence,
        operations=found.operations,
    )


def _by_ledgers(ledgers: LedgerComparison, repeats: Sequence[Repeat]) -> Divergence:
    a, b = repeats
    comparison, first = compare_repeats(a, b), ledgers.first
    stages = _stages_of(repeats)
    by_stage = {stage: [found.name for found in ledgers.of_stage(stage)] for stage in stages}
    judgement = None if first is None else OF_STAGE[first.stage].judgement
    if judgement == "environment" and ledgers.differences[-1].stage not in ("environment", "spec"):
        judgement = "unexplained"
    return Divergence(
        a=a.name,
        b=b.name,
        first=None if first is None else Place.of(first, ledgers),
        computed=None,
        stages={stage: tuple(dict.fromkeys(names)) for stage, names in by_stage.items() if names},
        judgement=judgement,
        verdict=comparison.verdict,
        comparison=comparison,
        evidence=None,
        n_compared=ledgers.compared.total(),
        notes=tuple(_notes(ledgers, repeats)),
        ledgers=ledgers,
        chain=stages,
    )


def _with_computed(answer: Divergence, computed: Place) -> Divergence:
    """The answer with the first place that was computed; it stands for the first where it can.

    Environments that differ have no operation, so the one in which that shows is named there.
    """
    first = answer.first
    assert first is not None
    if computed.op is not None and first.stage == "environment":
        computed = replace(computed, stage=first.stage, names=first.names, said=first.said)
    elif (first.stage, first.step) != (computed.stage, computed.step):
        return replace(answer, computed=computed)
    return replace(answer, first=computed, computed=computed)


def _refuse_other_inputs(ledgers: LedgerComparison, repeats: Sequence[Repeat]) -> None:
    """Raise where the first step was given something else on the two sides."""
    before = [difference for difference in ledgers.differences if difference.step is None]
    settings = {d.name for d in before if d.stage == "spec"} - _COMPARABLE_SETTINGS
    stages = {d.stage for d in before if d.stage in ("data", "weights-init", "rng")}
    if any(repeat.spec.ranks > 1 for repeat in repeats):
        raise CannotLook("operations were not compared: several ranks shared each step")
    if settings or stages:
        others = ", ".join([*sorted(settings), *sorted(stages)])
        raise CannotLook(f"operations were not compared: the two differ in {others}")


def _notes(ledgers: LedgerComparison, repeats: Sequence[Repeat]) -> Iterator[str]:
    for repeat in repeats:
        if not (repeat.folder / LEDGER).exists():
            verb = "segment" if repeat.spec.task == "segment" else "train"
            yield f"{repeat.name} kept no ledger; {verb} with --ledger steps"
    if n_unknown := ledgers.not_comparable.total():
        yield f"{n_unknown} digests of a processor stand beside those of a GPU"
    n_a, n_b = ledgers.n_steps
    if n_a != n_b:
        yield f"A made {n_a} steps and B {n_b}; only the first {min(n_a, n_b)} were compared"


# -- stage by stage ------------------------------------------------------------------------

_TOLD_ELSEWHERE = {"data", "data_digest", "model_digest", "profile", "profile_settings", "ledger"}
"""Fields of a spec that have stages of their own, or do not change what is computed."""


def _ledgers_compared(repeats: Sequence[Repeat]) -> LedgerComparison:
    """All that two runs left, compared in the order in which they passed it."""
    a, b = (repeat.spec for repeat in repeats)
    with_ledger = all((repeat.folder / LEDGER).exists() for repeat in repeats)
    told = set(_TOLD_ELSEWHERE)
    if a.model_digest is not None and b.model_digest is not None:
        told.add("model")

    def ignored(entry: LedgerRow) -> bool:
        if entry.stage == "spec":
            return entry.name in told
        if entry.name in ("versions.cellrepro", "versions.papermill") and a.cellpose != b.cellpose:
            return True  # not installed beside another version, and not used
        if entry.stage == "environment" and a.held != b.held:  # what follows from the mode
            return entry.name.startswith("switches.") or entry.name.endswith("WORKSPACE_CONFIG")
        return False

    sides = [_entries(one, with_ledger) for one in repeats]
    if _of_segmentations(repeats):
        by_stage = (entries_by_stage(*side) for side in zip(sides, repeats, strict=True))
        sides = comparable_stages([list(side) for side in by_stage], repeats)
    return compare_ledgers(*sides, stages=_stages_of(repeats), ignored=ignored)


def _of_segmentations(repeats: Sequence[Repeat]) -> bool:
    return all(repeat.spec.task == "segment" for repeat in repeats)


def _stages_of(repeats: Sequence[Repeat]) -> tuple[str, ...]:
    return SEGMENTATION_STAGES if _of_segmentations(repeats) else STAGES


def _entries(repeat: Repeat, with_ledger: bool) -> list[LedgerRow]:
    """What a repeat says of itself, and its files as they lie there now."""
    ledger = Ledger()
    for name, value in flattened(repeat.spec.profile_settings, "profile"):
        if name != "profile.name":
            ledger.add(
                "environment",
                name,
                value_digest(value),
                detail="not set" if value is None else value,
            )
    if with_ledger:
        ledger.entries += read_rows(repeat.file(LEDGER), LedgerRow)
    else:
        _add_manifest(ledger, repeat)
    ledger.step = _LAST
    if repeat.weights is not None:
        ledger.add("weights", "stored file", file_digest(repeat.weights))
    for image, record in repeat.manifest.masks.items():
        labels = repeat.masks(image)
        ledger.add("masks", f"{image} stored file", array_digest(labels), value=record.n_objects)
    return ledger.entries


def _add_manifest(ledger: Ledger, repeat: Repeat) -> None:
    """What the manifest of a repeat without a ledger says of it."""
    manifest = repeat.manifest
    environment = manifest.model_dump(mode="json", include={*ENVIRONMENT_FIELDS})
    for name, value in flattened(environment):
        ledger.add("environment", name, value_digest(value), detail=value)
    for name, value in repeat.spec.model_dump(mode="json").items():
        ledger.add("spec", name, value_digest(value), detail=value)
    for name, digest in manifest.data.files.items():
        ledger.add("data", f"file {name}", digest)
    ledger.add("weights-init", "initial weights", manifest.model.initial_weights)
    for image, masks in manifest.masks.items():
        ledger.add("masks", f"{image} outlines", masks.canonical_digest, value=masks.n_objects)
        ledger.add("masks", f"{image} labels", masks.digest, value=masks.n_objects)
