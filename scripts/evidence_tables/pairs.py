"""How far two repeats are apart: in their weights, their steps, their epochs, their operations."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pandas as pd

from cellrepro import BadInput, Store, compare_weights, diverge
from cellrepro import growth as follow
from cellrepro.comparison.ledger_diff import compare_ledgers
from cellrepro.divergence.growth import has_checkpoints
from cellrepro.store.ledger import LEDGER, LedgerRow
from cellrepro.store.row_tables import read_rows
from cellrepro.store.stored_run import Repeat
from evidence_tables.table import Row, StoreOfRuns, Table

_PAIR = ("images", "a", "b")
WEIGHTS = Table("weights", known_by=_PAIR)
STEPS = Table("steps", known_by=_PAIR)
GROWTH = Table("growth", known_by=(*_PAIR, "epoch"))
FIRST = Table("first", known_by=_PAIR)

_MASKS_OF_EVERY_EPOCH = 10_000


@dataclass(frozen=True)
class Pair:
    """Two repeats that are compared."""

    a: Repeat
    b: Repeat

    @property
    def names(self) -> dict[str, str]:
        """The columns by which a table knows it."""
        return {"images": self.a.spec.data, "a": self.a.name, "b": self.b.name}

    @property
    def has_equal_weights(self) -> bool:
        """Whether both trainings ended in the same network."""
        return self.a.manifest.weights == self.b.manifest.weights


def weights(store: StoreOfRuns) -> None:
    """How far networks are apart: those of two repeats, and of two machines."""
    for pair in [*pairs_of_repeats(store), *pairs_of_machines(store)]:
        if pair.a.weights and pair.b.weights:
            apart = compare_weights(pair.a.weights, pair.b.weights)
            WEIGHTS.keep(
                {
                    **pair.names,
                    "n_differing": apart.n_differing,
                    "relative_l2": apart.relative_l2,
                    "max_abs": apart.max_abs,
                }
            )


def steps(store: StoreOfRuns) -> None:
    """The steps, from 0, at which repeats parted, by their ledgers."""
    for pair in pairs_of_repeats(store):
        if pair.a.has(LEDGER):
            STEPS.keep(parting_steps(pair))


def growth(store: StoreOfRuns) -> None:
    """Pairs of trainings that kept checkpoints, epoch by epoch."""
    for pair in pairs_with_checkpoints(store):
        if not GROWTH.has(a=pair.a.name, b=pair.b.name):
            GROWTH.keep(*moments(pair, store))


def first(store: StoreOfRuns) -> None:
    """The first operation that gave other bits: of two repeats, and of two machines."""
    for pair in [*pairs_of_repeats(store), *pairs_of_machines(store)]:
        is_equal = pair.has_equal_weights and pair.a.machine == pair.b.machine
        is_known = FIRST.has(a=pair.a.name, b=pair.b.name)
        if is_equal or is_known or not pair.a.has(LEDGER):
            continue
        try:
            FIRST.keep(first_operation(pair, store))
        except BadInput as error:  # they cannot be computed again here
            print(error, file=sys.stderr)


# -- which repeats are compared --------------------------------------------------------------


def pairs_of_repeats(store: Store) -> Iterator[Pair]:
    """Repeats 0 and 1 of each training, on one machine."""
    for run in store.runs():
        for repeats in run.machines.values():
            if run.spec.task == "train" and 0 in repeats and 1 in repeats:
                yield Pair(repeats[0], repeats[1])


def pairs_of_machines(store: Store) -> Iterator[Pair]:
    """Repeat 0 of one spec on each two machines."""
    for run in store.runs():
        firsts = [repeats[0] for repeats in run.machines.values() if 0 in repeats]
        yield from itertools.starmap(Pair, itertools.combinations(firsts, 2))


def pairs_with_checkpoints(store: Store) -> Iterator[Pair]:
    """Repeats of one spec, and first repeats of two specs that differ in one field.

    That is the mode, or the profile, or in mode strict on the profile cpu the seed.
    """
    for pair in pairs_of_repeats(store):
        if has_checkpoints(pair.a) and has_checkpoints(pair.b):
            yield pair
    firsts = [run.repeats[0] for run in store.runs() if has_checkpoints(run.repeats[0])]
    for a, b in itertools.combinations(firsts, 2):
        is_usual = a.spec.mode == "strict" and a.spec.profile == "cpu"
        if differing_fields(a, b) in (["mode"], ["profile"], *([["seed"]] if is_usual else [])):
            yield Pair(a, b)


def differing_fields(a: Repeat, b: Repeat) -> list[str]:
    """The fields of two specs that differ, but for the content of their profiles."""
    fields_a, fields_b = (side.spec.model_dump(exclude={"profile_settings"}) for side in (a, b))
    return [name for name, value in fields_a.items() if value != fields_b[name]]


# -- what is measured ------------------------------------------------------------------------


def parting_steps(pair: Pair) -> Row:
    """The first step that differs, and those from which some and all weights differ."""
    rows_a, rows_b = (read_rows(side.folder / LEDGER, LedgerRow) for side in (pair.a, pair.b))
    comparison = compare_ledgers(rows_a, rows_b)
    parting = comparison.first_computed
    digests = pd.DataFrame(
        [(row.name, row.digest) for row in rows_a if row.stage == "weights"],
        columns=["group", "digest"],
    )
    # The patch embedding is not trained, and has one digest throughout.
    n_trained = int((digests.groupby("group").digest.nunique() > 1).sum())
    differing = pd.Series([each.step for each in comparison.of_stage("weights")], dtype=float)
    groups_by_step = differing.value_counts()
    spec = pair.a.spec
    return {
        **pair.names,
        "model": spec.model,
        "mode": spec.mode,
        "seed": spec.seed,
        "epochs": spec.epochs,
        "n_steps": min(comparison.n_steps),
        "first_step": parting and parting.step,
        "first_stage": parting and parting.stage,
        "some_weights": min(groups_by_step.index, default=None),
        "all_weights": min(groups_by_step[groups_by_step >= n_trained].index, default=None),
        "n_trained": n_trained,
    }


def moments(pair: Pair, store: Store) -> Iterator[Row]:
    """How far apart networks and masks are after each epoch; equal networks find equal cells."""
    n_masks = 0 if pair.has_equal_weights else _MASKS_OF_EVERY_EPOCH
    found = follow(pair.a.name, pair.b.name, n_masks=n_masks, store=store.root, quiet=True)
    for moment in found:
        row = pair.names | asdict(moment)
        row["objects_a"], row["objects_b"] = row.pop("objects") or (None, None)
        yield row


def first_operation(pair: Pair, store: Store) -> Row:
    """The operation at which a pair parts, and why."""
    divergence = diverge(pair.a.name, pair.b.name, store=store.root, quiet=True)
    difference = divergence.computed or divergence.first
    return {
        **pair.names,
        "task": pair.a.spec.task,
        "model": pair.a.spec.model,
        "judgement": divergence.judgement,
        "verdict": str(divergence.verdict),
        "step": difference and difference.step,
        "stage": difference and difference.stage,
        "op": difference and difference.op,
        "module": difference and difference.module,
        "source": difference and difference.source,
        "max_abs": difference and difference.max_abs,
    }
