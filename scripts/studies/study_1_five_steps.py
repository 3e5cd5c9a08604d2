"""Study 1: is the same training the same again, step by step of holding it fixed."""

from __future__ import annotations

from collections.abc import Sequence

from cellrepro.same.seed_spread import measure_spread
from cellrepro.store.store import Run
from cellrepro.words import ppm_text, share_text
from studies.evidence import (
    CELLS,
    Values,
    digests_of,
    every_run,
    five_step_runs,
    keep_figure,
    keep_rows,
    runs_of,
    table,
)
from studies.lines import compared, dots, five_steps, of_lines, own_again
from studies.numbers import range_of_scores


def study_1() -> Values:
    """The five steps."""
    lines, runs = five_steps("nuclei"), five_step_runs("nuclei")
    title = "What differs between the masks of two trainings, nuclei"
    found: Values = {"lines": lines, "own": own_again(runs), "ap": scores(runs)}
    found["table"] = of_lines(lines)
    found["figure"] = keep_figure("1-nuclei.png", dots(list(lines.values()), title))
    found["cells"] = {"lines": five_steps("cells"), "n_true": 0, "n": []}
    for repeat in (one for run in five_step_runs("cells") for one in run.repeats):
        found["cells"]["n"].append(repeat.manifest.n_objects)
        found["cells"]["n_true"] = sum(one.n_true or 0 for one in repeat.manifest.masks.values())
    longer = runs_of("cells", CELLS)
    named = {"mode": "fast beside strict", "seed": "seeds, mode strict"}
    pairs = compared(longer, "1-cells-longer.csv", named)
    found["longer"] = {"lines": pairs, "table": of_lines(pairs), "ap": range_of_scores(longer)}
    found["longer"]["epochs"] = CELLS
    found["machines"] = between_machines()
    found["n_cells"] = max(row["n_cells"] for row in found["machines"])
    return found


def scores(runs: Sequence[Run]) -> Values:
    """AP at IoU 0.5 of the test images, least and most, by mode (seed 42) and over seeds."""
    found = {}
    for mode in ("off", "fast", "strict"):
        aps = [r.manifest.ap50 for run in runs if run.spec.mode == mode for r in run.repeats]
        found[mode] = [min(aps), max(aps)] if aps else None
    return found


def between_machines() -> list[Values]:
    """Each emulated machine beside the real one: operations, weights, masks."""
    first, weights, rows = table("first.csv"), table("weights.csv"), []
    for run in every_run():
        emulated = [name for name in run.machines if name.startswith("emulated")]
        here = [name for name in run.machines if name not in emulated]
        for name in emulated if here else ():
            a, b = run.machines[here[0]][0], run.machines[name][0]
            (op,) = first[(first.a == a.name) & (first.b == b.name)].to_dict("records")
            where = op["op"] if isinstance(op["op"], str) else f"stage {op['stage']}"
            own = [digests_of(one) for one in run.machines[name].values()]
            row: Values = {"machine": name, "profile": run.spec.profile, "run": run.key}
            row["first"] = f"{where}, {op['source']}" if isinstance(op["source"], str) else where
            row["judgement"] = op["judgement"]
            row["own"] = f"{len(own)} of {len(own)}" if len({*own}) == 1 < len(own) else "–"
            axis = measure_spread([Run(run.spec, (a, b))], axes=["machine"]).axis("machine")
            row |= {"ran": "segmentation", "weights": "–", "masks": "no cell yet"}
            row["n_cells"] = a.manifest.n_objects
            if a.manifest.training:
                row["ran"] = f"training, {a.manifest.training.n_steps} steps"
                apart = weights[(weights.a == a.name) & (weights.b == b.name)]
                row["weights"] = f"{apart.relative_l2.iloc[0]:.2g}"
            if axis and axis.evidence:
                n, ppm = a.manifest.n_objects, ppm_text(axis.pairs[0].ppm)
                row["masks"] = f"{share_text(axis.pairs[0].changed)} of {n} cells, {ppm}"
            rows.append(row)
    keep_rows("1-machines.csv", rows)
    return rows
