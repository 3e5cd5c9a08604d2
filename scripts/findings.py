"""Write docs/findings.md, its figures and the tables behind them anew from evidence/.

    make findings                               # or: python scripts/findings.py
    python scripts/findings.py --check STORE    # have these runs, made anew, the same digests?

The words are in docs/findings.md.j2; every number in them is computed here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from studies.evidence import (
    DOCS,
    EVIDENCE,
    OUT,
    Values,
    about,
    digests_of,
    every_run,
    keep_rows,
    weights_of,
)
from studies.study_1_five_steps import study_1
from studies.study_2_long_training import study_2
from studies.study_3_divergence import study_3
from studies.study_4_cost import study_4
from studies.study_5_cells import study_5
from studies.study_6_settings import study_6

from cellrepro.store.ledger import LEDGER
from cellrepro.store.store import Store
from cellrepro.words import amount, ppm_text, share_text

STUDIES: dict[str, Callable[[], Values]] = {
    "one": study_1,
    "two": study_2,
    "three": study_3,
    "four": study_4,
    "five": study_5,
    "six": study_6,
}


def keep_digests() -> None:
    """A row for each run: what was asked for, where it ran, and what it ended in."""
    rows = []
    for run in every_run():
        names = ("data", "task", "model", "mode", "seed", "profile", "epochs")
        asked = {name: getattr(run.spec, name) for name in names}
        for repeat in run.repeats:
            weights, masks = digests_of(repeat)
            where = {"numeric class": repeat.manifest.machine.numeric_class}
            told: Values = {"cells": repeat.manifest.n_objects, "ap50": repeat.manifest.ap50}
            told |= {"weights": weights, "masks": masks}
            told["ledger"] = repeat.manifest.files.get(LEDGER)
            rows.append({"run": repeat.name, **asked, **where, **told})
    keep_rows("digests.csv", rows)


def check(store: Store) -> int:
    """Say which of a store's runs have the committed digests, on an equal numeric class; 1 if one
    of mode strict has others, or nothing could be compared."""
    n_equal, other = 0, []
    for run in store.runs():
        known = Store(EVIDENCE).run(run.key)
        for repeat in run.repeats if known and run.spec.mode == "strict" else ():
            here = repeat.manifest
            for one in known.repeats if known else ():
                if one.manifest.machine.numeric_class != here.machine.numeric_class:
                    continue
                same = weights_of(one) == weights_of(repeat)
                if same and one.manifest.masks_digest == here.masks_digest:
                    n_equal += 1
                else:
                    other.append(f"{repeat.name} is not {one.name}")
    print(f"{amount(n_equal, 'pair')} with equal weights and masks", *other, sep="\n")
    return int(bool(other) or not n_equal)


def main() -> int:
    """Write figures, tables and text; or check a store beside evidence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", type=Path, metavar="STORE", help="compare a store's digests")
    if given := parser.parse_args().check:
        if not (given / "runs").is_dir():
            parser.error(f"{given} holds no run; expected a store with runs of the studies")
        return check(Store(given))
    OUT.mkdir(exist_ok=True)
    found = {name: study() for name, study in STUDIES.items()} | about()
    keep_digests()
    loader = FileSystemLoader(DOCS)
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True)
    environment.globals |= {"share": share_text, "ppm": ppm_text}
    text = environment.get_template("findings.md.j2").render(**found)
    (DOCS / "findings.md").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
