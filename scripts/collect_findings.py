"""Put into evidence/ what docs/findings.md is drawn from, out of stores with the studies' runs.

    python scripts/collect_findings.py runs STORE       # specs, manifests and masks; no weights
    python scripts/collect_findings.py weights STORE    # distances of the networks, pair by pair
    python scripts/collect_findings.py follow STORE     # pairs of repeats, by step and by epoch
    python scripts/collect_findings.py first STORE      # the first operation that gave other bits
    python scripts/collect_findings.py cells STORE      # cells: in how many runs, and what they are
    python scripts/collect_findings.py settings STORE DATA...  # settings varied one at a time
    python scripts/collect_findings.py cost DATA        # time and memory, on an idle machine

Each writes tables that hold what was measured before, too: a row is known by its first columns.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from natsort import index_natsorted

from cellrepro.divergence.growth import growth, has_checkpoints
from cellrepro.errors import BadInput
from cellrepro.same.ledger_diff import compare_ledgers
from cellrepro.same.weights import compare_weights
from cellrepro.store.ledger import LEDGER, LedgerRow, read_rows
from cellrepro.store.store import MANIFEST, SPEC, Repeat, Run, Store

EVIDENCE = Path(__file__).parents[1] / "evidence"
Row = dict[str, Any]


def write(name: str, rows: Sequence[Row], *known_by: str) -> None:
    """Add rows to a table, in the place of those with equal first columns."""
    path = EVIDENCE / name
    if not rows:
        print(f"{path}: nothing to add", file=sys.stderr)
        return
    table = pd.DataFrame(rows)
    if path.exists():
        table = pd.concat([pd.read_csv(path, dtype=dict.fromkeys(known_by, str)), table])
    table[[*known_by]] = table[[*known_by]].astype(str)
    table = table.drop_duplicates([*known_by], keep="last")
    table = table.iloc[index_natsorted(table[[*known_by]].itertuples(index=False, name=None))]
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    print(f"{path}: {len(table)} rows", file=sys.stderr)


def known(name: str) -> set[tuple[str, str]]:
    """Pairs of runs that a table has; what takes long is not measured again."""
    if not (EVIDENCE / name).exists():
        return set()
    return {*pd.read_csv(EVIDENCE / name)[["a", "b"]].itertuples(index=False, name=None)}


def named(one: Run | Repeat) -> str:
    """The images of a run, as their folder is called."""
    return one.spec.data


# -- what is copied ------------------------------------------------------------------------


def runs(store: Store) -> None:
    """Copy of every repeat what is small: what was asked for, what happened, the masks."""
    for run in store.runs():
        target = EVIDENCE / "runs" / run.key
        for repeat in run.repeats:
            place = target / repeat.folder.parent.name / repeat.folder.name
            shutil.copytree(repeat.folder / "masks", place / "masks", dirs_exist_ok=True)
            told = (repeat.folder / MANIFEST).read_text(encoding="utf-8")
            told = told.replace(f"{store.root.resolve()}/", "")  # where this machine has its store
            (place / MANIFEST).write_text(told, encoding="utf-8")
        shutil.copy(repeat.folder.parents[1] / SPEC, target / SPEC)
    for path in (EVIDENCE / "runs").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


# -- what is measured between runs ---------------------------------------------------------


def weights(store: Store) -> None:
    """How far the networks of two repeats, or of two machines, are apart."""
    rows = []
    for a, b in itertools.chain(pairs_of_repeats(store), pairs_of_machines(store)):
        if a.weights and b.weights:
            found = compare_weights(a.weights, b.weights)
            row: Row = {"images": named(a), "a": a.name, "b": b.name}
            told = ("n_differing", "relative_l2", "max_abs")
            rows.append(row | {name: getattr(found, name) for name in told})
    write("weights.csv", rows, "images", "a", "b")


def pairs_of_repeats(store: Store) -> Iterator[tuple[Repeat, Repeat]]:
    """Repeats 0 and 1 of each training, on one machine."""
    for run in store.runs():
        for repeats in run.machines.values():
            if run.spec.task == "train" and {0, 1} <= repeats.keys():
                yield repeats[0], repeats[1]


def pairs_to_follow(store: Store) -> Iterator[tuple[Repeat, Repeat]]:
    """Of trainings that kept checkpoints: repeats of one spec, and first repeats of two that differ
    in the mode or in the profile, or in mode strict on the profile cpu in the seed."""
    yield from (pair for pair in pairs_of_repeats(store) if all(map(has_checkpoints, pair)))
    firsts = [run.repeats[0] for run in store.runs() if has_checkpoints(run.repeats[0])]
    for a, b in itertools.combinations(firsts, 2):
        asked = [side.spec.model_dump(exclude={"profile_settings"}) for side in (a, b)]
        other = [name for name, value in asked[0].items() if value != asked[1][name]]
        usual = (a.spec.mode, a.spec.profile) == ("strict", "cpu")
        if other in (["mode"], ["profile"]) or (other == ["seed"] and usual):
            yield a, b


def follow(store: Store) -> None:
    """Weights, pixels and cells of pairs, epoch by epoch; and the steps at which they parted."""
    steps = []
    for a, b in pairs_of_repeats(store):
        if (a.folder / LEDGER).exists():
            both: Row = {"images": named(a), "a": a.name, "b": b.name, "model": a.spec.model}
            both |= {"mode": a.spec.mode, "seed": a.spec.seed, "epochs": a.spec.epochs}
            steps.append({**both, **parting(a, b)})
    write("steps.csv", steps, "images", "a", "b")
    done = known("growth.csv")
    for a, b in pairs_to_follow(store):
        if (a.name, b.name) in done:
            continue
        rows, n = [], 0 if a.manifest.weights == b.manifest.weights else 10_000
        for moment in growth(a.name, b.name, n_masks=n, store=store.root, quiet=True):
            found = {"images": named(a), "a": a.name, "b": b.name, **asdict(moment)}
            found["objects_a"], found["objects_b"] = found.pop("objects") or (None, None)
            found["ap50_a"], found["ap50_b"] = found.pop("ap50") or (None, None)
            rows.append(found)
        write("growth.csv", rows, "images", "a", "b", "epoch")


def parting(a: Repeat, b: Repeat) -> Row:
    """Steps, from 0, after which two ledgers differ in some weights, and in every trained group."""
    entries = [read_rows(side.folder / LEDGER, LedgerRow) for side in (a, b)]
    found = compare_ledgers(*entries)
    held = pd.DataFrame([(e.name, e.digest) for e in entries[0] if e.stage == "weights"])
    n_trained = int((held.groupby(0)[1].nunique() > 1).sum())  # the patch embedding is not
    groups = pd.Series([one.step for one in found.of_stage("weights")], dtype=float).value_counts()
    computed = found.first_computed
    return {
        "n_steps": min(found.n_steps),
        "first_step": None if computed is None else computed.step,
        "first_stage": None if computed is None else computed.stage,
        "some_weights": min(groups.index, default=None),
        "all_weights": min(groups[groups >= n_trained].index, default=None),
        "n_trained": n_trained,
    }


def first(store: Store) -> None:
    """The first operation that gave other bits, with its judgement: of repeats, and of machines."""
    from cellrepro.divergence.find import diverge

    rows, done = [], known("first.csv")
    for a, b in itertools.chain(pairs_of_repeats(store), pairs_of_machines(store)):
        equal = a.manifest.weights == b.manifest.weights and a.machine == b.machine
        if equal or (a.name, b.name) in done or not (a.folder / LEDGER).exists():
            continue
        try:
            found = diverge(a.name, b.name, store=store.root, quiet=True)
        except BadInput as error:
            print(error, file=sys.stderr)
            continue
        row: Row = {"images": named(a), "a": a.name, "b": b.name, "task": a.spec.task}
        row |= {"model": a.spec.model, "judgement": found.judgement, "verdict": str(found.verdict)}
        difference = found.computed or found.first
        row |= dict.fromkeys(("step", "stage", "op", "module", "source", "max_abs"))
        if difference is not None:
            row |= {"step": difference.step, "stage": difference.stage}
            row["max_abs"] = difference.size.max_abs
        if difference is not None and difference.operation is not None:
            operation = difference.operation
            row |= {"op": operation.op, "module": operation.module, "source": operation.source}
        rows.append(row)
        print(row, file=sys.stderr)
    write("first.csv", rows, "images", "a", "b")


def pairs_of_machines(store: Store) -> Iterator[tuple[Repeat, Repeat]]:
    """Repeat 0 of one spec on each two machines."""
    for run in store.runs():
        firsts = [repeats[0] for repeats in run.machines.values() if 0 in repeats]
        yield from itertools.combinations(firsts, 2)


# -- cells ---------------------------------------------------------------------------------


def cells(store: Store) -> None:
    """Every cell that any run found: in how many it is, its size, contrast and neighbours."""
    from cellrepro.same.consensus import agree

    rows = []
    for group, chosen in groups_of_runs(store):
        digest, spec = chosen[0].spec.data_digest, chosen[0].spec
        for image in chosen[0].manifest.masks:
            masks = [repeat.masks(image) for repeat in chosen]
            agreement = agree(masks)
            pixels, truth = store.image(digest, image), store.truth(digest, image)
            for number, cell in enumerate(agreement.objects):
                outline = outline_of(cell, masks, agreement)
                told = described(outline, pixels, agreement.consensus, truth)
                y, x = (round(value, 1) for value in cell.position)
                row = {"images": spec.data, "runs": group, "image": image, "cell": number}
                row |= {"y": y, "x": x, "area": cell.area, "n_runs": len(chosen)}
                rows.append({**row, "n_runs_with": cell.n_runs_with, **told})
    write("cells.csv", rows, "images", "runs", "image", "cell")


def groups_of_runs(store: Store) -> Iterator[tuple[str, list[Repeat]]]:
    """Trainings of the nuclei that differ in the seed, or were never seeded: short ones, of which
    those of mode strict are on one profile, and long ones."""
    trained = [run for run in store.runs() if run.spec.task == "train"]
    for epochs, modes in ((40, ("strict", "off")), (200, ("fast",))):
        asked = ("nuclei", "tiny", epochs, "cpu")
        names = ("data", "model", "epochs", "profile")
        some = [run for run in trained if asked == tuple(getattr(run.spec, n) for n in names)]
        some = [run for run in some if run.spec.mode in modes]
        seeded = [run.repeats[0] for run in some if run.spec.mode != "off"]
        free = [repeat for run in some if run.spec.mode == "off" for repeat in run.repeats]
        if len(seeded) > 2:
            yield f"{epochs} epochs", [*seeded, *free]


def outline_of(cell: Any, masks: Sequence[np.ndarray], agreement: Any) -> np.ndarray:
    """Where a cell is: in the consensus, else in the first run that has it."""
    if cell.label:
        return agreement.consensus == cell.label
    from cellrepro.same.labels import canonical

    run = cell.runs[0]
    number = agreement.objects_of(run).index(cell) + 1
    return canonical(masks[run]) == number


def described(
    outline: np.ndarray, pixels: np.ndarray, consensus: np.ndarray, truth: np.ndarray | None
) -> Row:
    """Contrast to the ring of 5 pixels around a cell, in standard deviations of the image; how
    much of that ring is other cells; and whether a true cell matches it at IoU 0.5."""
    from scipy.ndimage import binary_dilation

    grey = (pixels if pixels.ndim == 2 else pixels.mean(-1)).astype(float)
    ring = binary_dilation(outline, iterations=5) & ~outline
    others = (consensus > 0) & ring
    ground = ring & ~others
    ground = ground if ground.any() else ring
    row: Row = {"contrast": (grey[outline].mean() - grey[ground].mean()) / grey.std()}
    row["crowding"] = others.sum() / ring.sum()
    edge = np.ones(outline.shape, bool)
    edge[1:-1, 1:-1] = False
    row["at_edge"] = bool((outline & edge).any())
    if truth is not None:
        labels, counts = np.unique(truth[outline], return_counts=True)
        shared = {int(n): int(c) for n, c in zip(labels, counts, strict=True) if n}
        ious = [c / (outline.sum() + (truth == n).sum() - c) for n, c in shared.items()]
        row["true"] = max(ious, default=0) >= 0.5
    return row


# -- what needs a measurement of its own ---------------------------------------------------


def settings(store: Store, folders: Iterable[Path]) -> None:
    """Each setting varied by itself, with networks that were trained on images of that name."""
    from cellrepro import sensitivity

    rows = []
    for folder in folders:
        networks = networks_of(store, folder.name)
        if not networks:
            raise BadInput(
                f"{store.root} holds no network of {folder.name!r} in mode strict on the profile "
                "cpu; expected a folder of images that the grids trained on"
            )
        for run in networks:
            found = sensitivity(folder, model=f"{run.key}/0", store=store.root, quiet=True)
            for variant in found.variants:
                by_image = variant.interval_over == "images"
                low, high = (variant.interval if by_image else None) or (None, None)
                row: Row = {"images": folder.name, "network": run.key, "seed": run.spec.seed}
                row |= {"name": variant.name, "value": variant.value, "changed": variant.changed}
                row |= {"low": low, "high": high, "ppm": variant.ppm, "ap50": variant.ap50}
                row |= {"usual_ap50": found.ap50, "n_images": found.n_images}
                rows.append(row | {"n_objects": variant.n_objects, **variant.kinds})
            print(folder.name, run.key, file=sys.stderr)
    write("settings.csv", rows, "images", "network", "name", "value")


def networks_of(store: Store, images: str) -> list[Run]:
    """In mode strict on the profile cpu, of those that were trained longest."""
    found = [
        run
        for run in store.runs()
        if (run.spec.data, run.spec.task, run.spec.model) == (images, "train", "tiny")
        if (run.spec.mode, run.spec.profile) == ("strict", "cpu")
    ]
    longest = max((run.spec.epochs for run in found), default=0)
    return [run for run in found if run.spec.epochs == longest][:MOST_NETWORKS]


MOST_NETWORKS = 3


def cost(folder: Path, asked: Sequence[str]) -> None:
    """Time and memory of a step in every mode."""
    from cellrepro import measure_cost

    extents = {"tiny": (10, 12), "vit-l": (1, 2)}  # steps, rounds
    rows = []
    for one in asked:
        encoder, profile = one.split(":")
        steps, rounds = extents[encoder]
        found = measure_cost(folder, encoder=encoder, profile=profile, steps=steps, rounds=rounds)
        for row in found.rows:
            rows.append({"encoder": encoder, "profile": profile, **asdict(row)})
            rows[-1] |= {"steps": steps, "rounds": rounds, "images": folder.name}
    write("cost.csv", rows, "encoder", "profile", "name")


def main() -> None:
    """Collect what is named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=[*OF_STORES, "settings", "cost"])
    parser.add_argument("given", nargs="+", type=Path, help="store, or folders of images")
    parser.add_argument("--of", nargs="+", default=["tiny:cpu"], help="ENCODER:PROFILE, for cost")
    asked = parser.parse_args()
    wrong = [one for one in asked.of if not re.fullmatch("(tiny|vit-l):.+", one)]
    if wrong:
        parser.error(f"--of {wrong[0]}: expected ENCODER:PROFILE, tiny:cpu or vit-l:cpu")
    if asked.what != "cost" and not (asked.given[0] / "runs").is_dir():
        parser.error(f"{asked.given[0]} holds no run; expected a store in which grids were run")
    if asked.what == "settings" and len(asked.given) < 2:
        parser.error("settings: expected STORE and folders of images")
    try:
        if asked.what == "cost":
            cost(asked.given[0], asked.of)
        elif asked.what == "settings":
            settings(Store(asked.given[0]), asked.given[1:])
        else:
            OF_STORES[asked.what](Store(asked.given[0]))
    except BadInput as error:
        parser.error(str(error))


OF_STORES = {"runs": runs, "weights": weights, "follow": follow, "first": first, "cells": cells}

if __name__ == "__main__":
    main()
