"""When did two runs part, and at which operation: from the ledgers down to the cells.

A door: the command ``diverge`` and notebook 05 call it. It walks down both runs stage by stage;
where a training step computed otherwise from equal inputs, it goes through that step again with
every operation written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from cellrepro.compare.ledger_diff import Difference, LedgerComparison, compare_ledgers
from cellrepro.compare.operation_alignment import first_divergence
from cellrepro.errors import BadInput
from cellrepro.lab.compare_results import compare_repeats
from cellrepro.lab.divergence.judge import (
    CannotLook,
    Effort,
    Look,
    Side,
    aligned,
    named_by,
    stored_rows,
)
from cellrepro.lab.divergence.result import Divergence, Evidence, Place
from cellrepro.lab.worker import flattened
from cellrepro.store.digests import array_digest, file_digest, value_digest
from cellrepro.store.ledger import LEDGER, OPERATIONS, STAGES, Entry, Ledger
from cellrepro.store.store import Repeat, Run, Store

_REPETITIONS, _SUSPECTS = 20, 200
_ASKED_OF_OPERATIONS = {"mode", "loose"}
"""What two specs may differ in and still be worth comparing operation by operation."""


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
    sides = place.find_two(a, b)
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
    effort = Effort(repetitions, suspects, again, quiet)
    return _explained(told, found, sides, lambda shown: Look(sides, shown, place, data, effort))


def _explained(
    told: Divergence,
    found: LedgerComparison,
    sides: tuple[Side, Side],
    look_at: Callable[[Difference], Look],
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
        except CannotLook as error:
            told = replace(told, notes=(*told.notes, f"the operation could not be named: {error}"))
    if shown is found.first:
        return replace(told, first=computed, computed=computed)
    if computed.op is not None and first.stage == "environment":
        # The surroundings differ, and this is the operation in which that shows.
        computed = replace(computed, stage=first.stage, names=first.names, said=first.said)
        return replace(told, first=computed, computed=computed)
    return replace(told, computed=computed)


def _by_image(
    told: Divergence, first: Place, found: LedgerComparison, sides: tuple[Side, Side]
) -> Divergence:
    """Where nothing was trained: the operation in which segmenting an image parts.

    Only where both runs wrote their operations down; an image stands for a step.
    """
    flows = found.of_stage("flows")
    if not flows or sides[0][0].spec.task != "segment":
        return told
    images = list(sides[0][1].manifest.masks)
    index = images.index(flows[0].name.rpartition(" ")[0])
    rows = [stored_rows(repeat, OPERATIONS, index) for _, repeat in sides]
    if not all(rows):
        note = "segment both with --ledger ops to have the operation named"
        return replace(told, notes=(*told.notes, note))
    alignment = aligned(sides, rows[0], rows[1])
    parting = first_divergence(alignment)
    if parting is None:
        return told
    place = _place(flows[0], told.stages)
    evidence = Evidence(
        "stored operations", alignment=alignment.sentence(), parting=parting.sentence()
    )
    computed = named_by(replace(place, names=(images[index],)), parting)
    told = replace(told, computed=computed, evidence=evidence, operations=alignment)
    if first.stage in ("environment", "flows"):
        computed = replace(computed, stage=first.stage, names=first.names, said=first.said)
        told = replace(told, first=computed, computed=computed)
    return told


# -- stage by stage ------------------------------------------------------------------------


def _ledgers_compared(a: Side, b: Side) -> LedgerComparison:
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
        labels, _ = repeat.masks_on_disk(image)
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


def _notes(found: LedgerComparison, a: Side, b: Side) -> tuple[str, ...]:
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
