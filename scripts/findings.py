"""Write docs/findings.md, its figures and the tables behind them anew from evidence/.

    make findings                               # or: python scripts/findings.py
    python scripts/findings.py --check STORE    # have these runs, made anew, the same digests?

The words are in docs/findings.md.j2 and docs/answers.md.j2; every number in them is computed here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from studies.evidence import DOCS, EVIDENCE, OUT, about, ending_of, every_run, keep_rows
from studies.study_1_five_steps import study_1
from studies.study_2_long_training import study_2
from studies.study_3_divergence import study_3
from studies.study_4_cost import study_4
from studies.study_5_cells import study_5
from studies.study_6_settings import study_6
from studies.study_7_portable import study_7

from cellrepro.store.ledger import LEDGER
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import amount, ppm_text, share_text


def main() -> int:
    """Write figures, tables and text; or check a store beside evidence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", type=Path, metavar="STORE", help="compare a store's digests")
    store = parser.parse_args().check
    if store is None:
        write_findings()
        return 0
    if not (store / "runs").is_dir():
        parser.error(f"{store} holds no run; expected a store with runs of the studies")
    return check(Store(store))


# -- writing -------------------------------------------------------------------------------


def write_findings() -> None:
    """Compute every study, and fill the words in."""
    OUT.mkdir(exist_ok=True)
    keep_digests()
    environment = Environment(
        loader=FileSystemLoader(DOCS), undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {"share": share_text, "ppm": ppm_text, "amount": amount}
    studies = {
        "about": about(),
        "one": study_1(),
        "two": study_2(),
        "three": study_3(),
        "four": study_4(),
        "five": study_5(),
        "six": study_6(),
        "seven": study_7(),
    }
    for name in ("findings.md", "answers.md"):
        text = environment.get_template(f"{name}.j2").render(studies)
        (DOCS / name).write_text(text + "\n", encoding="utf-8")


def keep_digests() -> None:
    """A row for each run: what was asked for, where it ran, and what it ended in."""
    keep_rows("digests.csv", [_digests_of(repeat) for run in every_run() for repeat in run.repeats])


def _digests_of(repeat: Repeat) -> dict[str, object]:
    spec = repeat.spec
    manifest = repeat.manifest
    ending = ending_of(repeat)
    return {
        "run": repeat.name,
        "data": spec.data,
        "task": spec.task,
        "model": spec.model,
        "mode": spec.mode,
        "seed": spec.seed,
        "profile": spec.profile,
        "epochs": spec.epochs,
        "numeric class": manifest.machine.numeric_class,
        "cells": manifest.n_objects,
        "ap50": manifest.ap50,
        "weights": ending.weights,
        "masks": ending.masks,
        "ledger": manifest.files.get(LEDGER),
    }


# -- checking ------------------------------------------------------------------------------


def check(store: Store) -> int:
    """Say which of a store's runs in mode strict have the committed digests.

    Runs are compared where their numeric class is the same.

    Returns
    -------
    int
        1 if one has others, or nothing could be compared; else 0.
    """
    n_equal = 0
    others = []
    for run in store.runs():
        committed = Store(EVIDENCE).run(run.key)
        if committed is None or run.spec.mode != "strict":
            continue
        for repeat in run.repeats:
            for counterpart in _of_one_numeric_class(repeat, committed.repeats):
                if ending_of(repeat) == ending_of(counterpart):
                    n_equal += 1
                else:
                    others.append(f"{repeat.name} is not {counterpart.name}")
    print(f"{amount(n_equal, 'pair')} with equal weights and masks", *others, sep="\n")
    return 1 if others or n_equal == 0 else 0


def _of_one_numeric_class(repeat: Repeat, repeats: tuple[Repeat, ...]) -> list[Repeat]:
    numeric_class = repeat.manifest.machine.numeric_class
    return [each for each in repeats if each.manifest.machine.numeric_class == numeric_class]


if __name__ == "__main__":
    sys.exit(main())
