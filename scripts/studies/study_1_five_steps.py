"""Study 1: is the same training the same again, step by step of holding it fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.comparison.seed_spread import measure_spread
from cellrepro.store.stored_run import Repeat, Run
from cellrepro.words import ppm_text, share_text
from studies.evidence import (
    CELLS_EPOCHS,
    ending_of,
    every_run,
    five_step_runs,
    keep_figure,
    keep_rows,
    runs_of,
    table,
)
from studies.lines import MODES, Line, StrictRuns, compare, dots, five_steps, strict_runs, table_of
from studies.numbers import range_of_scores


@dataclass(frozen=True)
class PoorlyFound:
    """Phase-contrast cells, of which forty epochs find few.

    Attributes
    ----------
    lines : dict of str to Line
    n_objects : list of int
        In each repeat.
    n_true : int
    """

    lines: dict[str, Line]
    n_objects: list[int]
    n_true: int


@dataclass(frozen=True)
class Longer:
    """Phase-contrast cells after longer trainings.

    Attributes
    ----------
    epochs : int
    lines : dict of str to Line
    table : str
    scores : str
        AP at IoU 0.5.
    """

    epochs: int
    lines: dict[str, Line]
    table: str
    scores: str


@dataclass(frozen=True)
class MachineRow:
    """An emulated machine beside the real one; the fields are columns of 1-machines.csv.

    Attributes
    ----------
    machine, profile, run : str
    first : str
        Operation with different bits.
    judgement : str
    own : str
        How many of its own repeats are equal.
    ran : str
    weights : str
        Their relative distance.
    masks : str
    n_cells : int
    """

    machine: str
    profile: str
    run: str
    first: str
    judgement: str
    own: str
    ran: str
    weights: str
    masks: str
    n_cells: int


@dataclass(frozen=True)
class Study1:
    """What the text says of the five steps."""

    lines: dict[str, Line]
    table: str
    figure: str
    strict: StrictRuns
    scores: dict[str, tuple[float, float]]
    cells: PoorlyFound
    longer: Longer
    machines: list[MachineRow]

    @property
    def n_cells(self) -> int:
        """Most cells of a segmentation on two machines."""
        return max(row.n_cells for row in self.machines)


def study_1() -> Study1:
    """Compare trainings with nothing fixed, with a seed, with everything fixed, and elsewhere."""
    runs = five_step_runs("nuclei")
    lines = five_steps("nuclei")
    title = "What differs between the masks of two trainings, nuclei"
    return Study1(
        lines=lines,
        table=table_of(lines),
        figure=keep_figure("1-nuclei.png", dots(list(lines.values()), title)),
        strict=strict_runs(runs),
        scores=scores_by_mode(runs),
        cells=poorly_found_cells(),
        longer=longer_trainings(),
        machines=between_machines(),
    )


def scores_by_mode(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Least and most AP at IoU 0.5 of the test images: of seed 42, and in strict over seeds."""
    ranges = {}
    for mode in MODES:
        scores = [
            repeat.manifest.ap50 for run in runs if run.spec.mode == mode for repeat in run.repeats
        ]
        if scores:
            ranges[mode] = (min(scores), max(scores))
    return ranges


def poorly_found_cells() -> PoorlyFound:
    """The five steps over phase-contrast cells."""
    manifests = [repeat.manifest for run in five_step_runs("cells") for repeat in run.repeats]
    return PoorlyFound(
        lines=five_steps("cells"),
        n_objects=[manifest.n_objects for manifest in manifests],
        n_true=sum(mask.n_true or 0 for mask in manifests[-1].masks.values()),
    )


def longer_trainings() -> Longer:
    """Trainings of phase-contrast cells that find some."""
    runs = runs_of("cells", CELLS_EPOCHS)
    lines = compare(
        runs,
        rows_file="1-cells-longer.csv",
        axis_labels={"mode": "fast beside strict", "seed": "seeds, mode strict"},
    )
    return Longer(CELLS_EPOCHS, lines, table_of(lines), range_of_scores(runs))


# -- machines ------------------------------------------------------------------------------


def between_machines() -> list[MachineRow]:
    """Each emulated machine beside the real one: operations, weights, masks."""
    rows = []
    for run in every_run():
        emulated = [name for name in run.machines if name.startswith("emulated")]
        real = [name for name in run.machines if name not in emulated]
        if not real:
            continue
        for name in emulated:
            rows.append(_machine_row(run, run.machines[real[0]][0], name))
    keep_rows("1-machines.csv", [asdict(row) for row in rows])
    return rows


def _machine_row(run: Run, on_real: Repeat, machine: str) -> MachineRow:
    on_emulated = run.machines[machine][0]
    first = table("first.csv")
    (operation,) = first[(first.a == on_real.name) & (first.b == on_emulated.name)].itertuples()
    where = operation.op if isinstance(operation.op, str) else f"stage {operation.stage}"
    if isinstance(operation.source, str):
        where = f"{where}, {operation.source}"
    return MachineRow(
        machine=machine,
        profile=run.spec.profile,
        run=run.key,
        first=where,
        judgement=operation.judgement,
        own=_own_repeats([*run.machines[machine].values()]),
        ran=_what_ran(on_real),
        weights=_distance_of_weights(on_real, on_emulated),
        masks=_difference_of_masks(run, on_real, on_emulated),
        n_cells=on_real.manifest.n_objects,
    )


def _own_repeats(repeats: Sequence[Repeat]) -> str:
    """How many are equal, where there are several and all are."""
    endings = {ending_of(repeat) for repeat in repeats}
    n = len(repeats)
    return f"{n} of {n}" if n > 1 and len(endings) == 1 else "–"


def _what_ran(repeat: Repeat) -> str:
    training = repeat.manifest.training
    return f"training, {training.n_steps} steps" if training else "segmentation"


def _distance_of_weights(a: Repeat, b: Repeat) -> str:
    if not a.manifest.training:
        return "–"
    weights = table("weights.csv")
    row = weights[(weights.a == a.name) & (weights.b == b.name)].iloc[0]
    return f"{row.relative_l2:.2g}"


def _difference_of_masks(run: Run, a: Repeat, b: Repeat) -> str:
    axis = measure_spread([Run(run.spec, (a, b))], axes=["machine"]).axis("machine")
    if not axis or not axis.evidence:
        return "no cell yet"
    pair: Pair = axis.pairs[0]
    n_cells = a.manifest.n_objects
    return f"{share_text(pair.changed)} of {n_cells} cells, {ppm_text(pair.ppm)}"
