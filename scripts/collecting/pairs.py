"""Pairs of stored repeats, and how far they are apart: weights, steps, epochs, operations."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import pandas as pd

from cellrepro.comparison.ledger_diff import compare_ledgers
from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.divergence.growth import Moment, growth, has_checkpoints
from cellrepro.errors import BadInput
from cellrepro.spec.spec import Spec
from cellrepro.store.ledger import LEDGER, LedgerRow
from cellrepro.store.row_tables import read_rows
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from collecting.tables import Table

WEIGHTS = Table("weights.csv", ("images", "a", "b"))
STEPS = Table("steps.csv", ("images", "a", "b"))
GROWTH = Table("growth.csv", ("images", "a", "b", "epoch"))
FIRST = Table("first.csv", ("images", "a", "b"))


class RepeatPair(NamedTuple):
    """Two repeats that are compared."""

    a: Repeat
    b: Repeat

    @property
    def images(self) -> str:
        """As their folder is called."""
        return self.a.spec.data

    @property
    def names(self) -> tuple[str, str]:
        """Of both repeats."""
        return self.a.name, self.b.name

    @property
    def weights_are_equal(self) -> bool:
        """Whether both trained the same network, or none."""
        return self.a.manifest.weights == self.b.manifest.weights


# -- which pairs ---------------------------------------------------------------------------


def pairs_of_repeats(store: Store) -> Iterator[RepeatPair]:
    """Repeats 0 and 1 of each training, on one machine."""
    for run in store.runs():
        for repeats in run.machines.values():
            if run.spec.task == "train" and 0 in repeats and 1 in repeats:
                yield RepeatPair(repeats[0], repeats[1])


def pairs_of_machines(store: Store) -> Iterator[RepeatPair]:
    """Repeat 0 of one spec on each two machines."""
    for run in store.runs():
        firsts = [repeats[0] for repeats in run.machines.values() if 0 in repeats]
        for a, b in itertools.combinations(firsts, 2):
            yield RepeatPair(a, b)


def pairs_to_follow(store: Store) -> Iterator[RepeatPair]:
    """Of trainings that kept checkpoints: repeats of one spec, and first repeats of two specs.

    These differ in the mode or in the profile; or in mode strict on the profile cpu in the seed.
    """
    for pair in pairs_of_repeats(store):
        if has_checkpoints(pair.a) and has_checkpoints(pair.b):
            yield pair
    firsts = [run.repeats[0] for run in store.runs() if has_checkpoints(run.repeats[0])]
    for a, b in itertools.combinations(firsts, 2):
        differing = differing_fields(a.spec, b.spec)
        is_usual = a.spec.mode == "strict" and a.spec.profile == "cpu"
        if differing in (["mode"], ["profile"]) or (differing == ["seed"] and is_usual):
            yield RepeatPair(a, b)


def differing_fields(a: Spec, b: Spec) -> list[str]:
    """In which two specs differ; a profile's settings are no field of their own."""
    fields_a = a.model_dump(exclude={"profile_settings"})
    fields_b = b.model_dump(exclude={"profile_settings"})
    return [name for name, value in fields_a.items() if value != fields_b[name]]


# -- weights -------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightsRow:
    """How far two networks are apart; the fields are the table's columns."""

    images: str
    a: str
    b: str
    n_differing: int
    relative_l2: float
    max_abs: float


def collect_weights(store: Store) -> None:
    """Compare the networks of two repeats, and of two machines."""
    rows = []
    for pair in itertools.chain(pairs_of_repeats(store), pairs_of_machines(store)):
        if pair.a.weights is None or pair.b.weights is None:
            continue
        comparison = compare_weights(pair.a.weights, pair.b.weights)
        row = WeightsRow(
            images=pair.images,
            a=pair.a.name,
            b=pair.b.name,
            n_differing=comparison.n_differing,
            relative_l2=comparison.relative_l2,
            max_abs=comparison.max_abs,
        )
        rows.append(asdict(row))
    WEIGHTS.add(rows)


# -- steps and epochs ----------------------------------------------------------------------


@dataclass(frozen=True)
class StepsRow:
    """The steps, from 0, at which two trainings parted; the fields are the table's columns.

    Attributes
    ----------
    images, a, b, model, mode : str
    seed : int or None
    epochs, n_steps : int
    first_step : int or None
        With any difference.
    first_stage : str or None
    some_weights : float or None
        After which some weights differed.
    all_weights : float or None
        After which every trained group did.
    n_trained : int
        Groups.
    """

    images: str
    a: str
    b: str
    model: str
    mode: str
    seed: int | None
    epochs: int
    n_steps: int
    first_step: int | None
    first_stage: str | None
    some_weights: float | None
    all_weights: float | None
    n_trained: int


def collect_growth(store: Store) -> None:
    """Follow pairs epoch by epoch; and find the steps at which repeats parted."""
    STEPS.add(
        [
            asdict(parting_steps(pair))
            for pair in pairs_of_repeats(store)
            if (pair.a.folder / LEDGER).exists()
        ]
    )
    known = GROWTH.known_pairs()
    for pair in pairs_to_follow(store):
        if pair.names in known:
            continue
        # Equal networks find equal cells.
        n_masks = 0 if pair.weights_are_equal else 10_000
        moments = growth(*pair.names, n_masks=n_masks, store=store.root, quiet=True)
        GROWTH.add([_growth_row(pair, moment) for moment in moments])


def parting_steps(pair: RepeatPair) -> StepsRow:
    """Compare two ledgers."""
    rows_a = read_rows(pair.a.folder / LEDGER, LedgerRow)
    rows_b = read_rows(pair.b.folder / LEDGER, LedgerRow)
    comparison = compare_ledgers(rows_a, rows_b)
    weights = pd.DataFrame(
        [(row.name, row.digest) for row in rows_a if row.stage == "weights"],
        columns=["group", "digest"],
    )
    # The patch embedding is not trained, and has one digest throughout.
    n_trained = int((weights.groupby("group").digest.nunique() > 1).sum())
    differing = pd.Series(
        [difference.step for difference in comparison.of_stage("weights")], dtype=float
    )
    groups_by_step = differing.value_counts()
    first = comparison.first_computed
    return StepsRow(
        images=pair.images,
        a=pair.a.name,
        b=pair.b.name,
        model=pair.a.spec.model,
        mode=pair.a.spec.mode,
        seed=pair.a.spec.seed,
        epochs=pair.a.spec.epochs,
        n_steps=min(comparison.n_steps),
        first_step=None if first is None else first.step,
        first_stage=None if first is None else first.stage,
        some_weights=min(groups_by_step.index, default=None),
        all_weights=min(groups_by_step[groups_by_step >= n_trained].index, default=None),
        n_trained=n_trained,
    )


def _growth_row(pair: RepeatPair, moment: Moment) -> dict[str, object]:
    """What is of two sides stands in two columns."""
    row: dict[str, object] = {"images": pair.images, "a": pair.a.name, "b": pair.b.name}
    row |= asdict(moment)
    del row["objects"]
    row["objects_a"], row["objects_b"] = moment.objects or (None, None)
    return row


# -- operations ----------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstRow:
    """The first operation that gave different bits; the fields are the table's columns."""

    images: str
    a: str
    b: str
    task: str
    model: str
    judgement: str | None
    verdict: str
    step: int | None
    stage: str | None
    op: str | None
    module: str | None
    source: str | None
    max_abs: float | None


def collect_first(store: Store) -> None:
    """Find the first operation that gave different bits: of repeats, and of machines."""
    rows = []
    known = FIRST.known_pairs()
    for pair in itertools.chain(pairs_of_repeats(store), pairs_of_machines(store)):
        is_equal = pair.weights_are_equal and pair.a.machine == pair.b.machine
        if is_equal or pair.names in known or not (pair.a.folder / LEDGER).exists():
            continue
        try:
            row = first_operation(pair, store)
        except BadInput as error:
            print(error, file=sys.stderr)
            continue
        rows.append(asdict(row))
        print(row, file=sys.stderr)
    FIRST.add(rows)


def first_operation(pair: RepeatPair, store: Store) -> FirstRow:
    """Where two repeats part, with the judgement.

    Raises
    ------
    BadInput
        If they cannot be computed again here.
    """
    from cellrepro.divergence.diverge import diverge

    divergence = diverge(*pair.names, store=store.root, quiet=True)
    difference = divergence.computed or divergence.first
    return FirstRow(
        images=pair.images,
        a=pair.a.name,
        b=pair.b.name,
        task=pair.a.spec.task,
        model=pair.a.spec.model,
        judgement=divergence.judgement,
        verdict=str(divergence.verdict),
        step=None if difference is None else difference.step,
        stage=None if difference is None else difference.stage,
        op=None if difference is None else difference.op,
        module=None if difference is None else difference.module,
        source=None if difference is None else difference.source,
        max_abs=None if difference is None else difference.max_abs,
    )
