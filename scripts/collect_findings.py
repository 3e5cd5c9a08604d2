"""Measure the tables of evidence/ in stores in which the grids of grids/findings were run.

    python scripts/collect_findings.py weights STORE     # how far networks are apart, pair by pair
    python scripts/collect_findings.py steps STORE       # at which step repeats parted
    python scripts/collect_findings.py growth STORE      # pairs with checkpoints, epoch by epoch
    python scripts/collect_findings.py first STORE       # the first operation with other bits
    python scripts/collect_findings.py cells STORE       # in how many runs a cell is, what it is
    python scripts/collect_findings.py portable STORE    # segmentations on different devices
    python scripts/collect_findings.py portable_training STORE    # trainings on different devices
    python scripts/collect_findings.py settings STORE DATA...     # settings varied one at a time
    python scripts/collect_findings.py cost DATA --of tiny:cpu    # time and memory, when idle

A table keeps what was measured before; a row is known by its first columns. Runs themselves are
taken out of a store by `cellrepro export`: evidence/README.md says how.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
from natsort import index_natsorted
from scipy.ndimage import binary_dilation

from cellrepro import (
    BadInput,
    Store,
    agree,
    compare_repeats,
    compare_weights,
    diverge,
    growth,
    measure_cost,
    sensitivity,
)
from cellrepro.comparison.consensus import Agreement, Stability
from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.ledger_diff import compare_ledgers
from cellrepro.digests.digests import value_digest
from cellrepro.divergence.growth import has_checkpoints
from cellrepro.store.ledger import LEDGER, LedgerRow
from cellrepro.store.row_tables import read_rows
from cellrepro.store.stored_run import Repeat, Run

EVIDENCE = Path(__file__).parents[1] / "evidence"

Row = Mapping[str, object]
Pair = tuple[Repeat, Repeat]

KNOWN_BY = {
    "weights": ["images", "a", "b"],
    "steps": ["images", "a", "b"],
    "growth": ["images", "a", "b", "epoch"],
    "first": ["images", "a", "b"],
    "cells": ["images", "runs", "image", "cell"],
    "portable": ["images", "network", "mode", "machine", "profile", "batch", "torch", "numpy"],
    "portable_training": ["images", "mode", "machine", "profile", "epochs"],
    "settings": ["images", "network", "name", "value"],
    "cost": ["encoder", "profile", "name"],
}
"""Columns that tell the rows of a table apart, in whose order they stand."""


def main() -> None:
    """Measure what is named, and keep each batch of rows as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=KNOWN_BY)
    parser.add_argument("paths", nargs="+", type=Path, help="store, or folders of images")
    parser.add_argument("--of", nargs="+", default=["tiny:cpu"], help="ENCODER:PROFILE, for cost")
    arguments = parser.parse_args()
    what = arguments.what
    first, *others = arguments.paths
    if what != "cost" and not (first / "runs").is_dir():
        parser.error(f"{first} holds no run; expected a store in which grids were run")
    if what == "settings" and not others:
        parser.error("settings: expected STORE and folders of images")
    try:
        if what == "cost":
            batches = costs(first, arguments.of)
        elif what == "settings":
            batches = varied_settings(Store(first), others)
        else:
            batches = OF_STORES[what](Store(first))
        for rows in batches:
            keep(what, rows)
    except BadInput as error:
        parser.error(str(error))


def keep(name: str, rows: Sequence[Row]) -> None:
    """Add rows to a table, in the place of those that are known by the same."""
    path = EVIDENCE / f"{name}.csv"
    columns = KNOWN_BY[name]
    before = []
    if path.exists():
        before = pd.read_csv(path, dtype=dict.fromkeys(columns, str)).to_dict("records")
    table = pd.DataFrame([*before, *rows])
    table[columns] = table[columns].astype(str)
    table = table.drop_duplicates(columns, keep="last")
    table = table.iloc[index_natsorted(table[columns].itertuples(index=False, name=None))]
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    print(f"{path}: {len(table)} rows", file=sys.stderr)


def is_known(name: str, pair: Pair) -> bool:
    """Whether a table has a pair of runs; what takes long is not measured again."""
    path = EVIDENCE / f"{name}.csv"
    if not path.exists():
        return False
    pairs = pd.read_csv(path)[["a", "b"]].itertuples(index=False, name=None)
    return tuple(repeat.name for repeat in pair) in set(pairs)


# -- pairs of repeats ----------------------------------------------------------------------


def pairs_of_repeats(store: Store) -> Iterator[Pair]:
    """Repeats 0 and 1 of each training, on one machine."""
    for run in store.runs():
        for repeats in run.machines.values():
            if run.spec.task == "train" and 0 in repeats and 1 in repeats:
                yield repeats[0], repeats[1]


def pairs_of_machines(store: Store) -> Iterator[Pair]:
    """Repeat 0 of one spec on each two machines."""
    for run in store.runs():
        firsts = [repeats[0] for repeats in run.machines.values() if 0 in repeats]
        yield from itertools.combinations(firsts, 2)


def pairs_to_follow(store: Store) -> Iterator[Pair]:
    """Of trainings that kept checkpoints: repeats of one spec, and first repeats of two specs.

    These differ in the mode or in the profile; or in mode strict on the profile cpu in the seed.
    """
    for a, b in pairs_of_repeats(store):
        if has_checkpoints(a) and has_checkpoints(b):
            yield a, b
    firsts = [run.repeats[0] for run in store.runs() if has_checkpoints(run.repeats[0])]
    for a, b in itertools.combinations(firsts, 2):
        fields_a, fields_b = (side.spec.model_dump(exclude={"profile_settings"}) for side in (a, b))
        differing = [name for name, value in fields_a.items() if value != fields_b[name]]
        is_usual = a.spec.mode == "strict" and a.spec.profile == "cpu"
        if differing in (["mode"], ["profile"]) or (differing == ["seed"] and is_usual):
            yield a, b


def of_pair(a: Repeat, b: Repeat) -> dict[str, object]:
    """The columns by which a pair is known."""
    return {"images": a.spec.data, "a": a.name, "b": b.name}


def distances_of_weights(store: Store) -> Iterator[list[Row]]:
    """Compare the networks of two repeats, and of two machines."""
    for a, b in itertools.chain(pairs_of_repeats(store), pairs_of_machines(store)):
        if a.weights and b.weights:
            apart = compare_weights(a.weights, b.weights)
            row = {
                "n_differing": apart.n_differing,
                "relative_l2": apart.relative_l2,
                "max_abs": apart.max_abs,
            }
            yield [of_pair(a, b) | row]


def parting_steps(store: Store) -> Iterator[list[Row]]:
    """Find the steps, from 0, at which repeats parted, by their ledgers."""
    for a, b in pairs_of_repeats(store):
        if not a.has(LEDGER):
            continue
        rows_a, rows_b = (read_rows(side.folder / LEDGER, LedgerRow) for side in (a, b))
        comparison = compare_ledgers(rows_a, rows_b)
        first = comparison.first_computed
        weights = pd.DataFrame(
            [(row.name, row.digest) for row in rows_a if row.stage == "weights"],
            columns=["group", "digest"],
        )
        # The patch embedding is not trained, and has one digest throughout.
        n_trained = int((weights.groupby("group").digest.nunique() > 1).sum())
        steps = pd.Series([each.step for each in comparison.of_stage("weights")], dtype=float)
        groups_by_step = steps.value_counts()
        row = {
            "model": a.spec.model,
            "mode": a.spec.mode,
            "seed": a.spec.seed,
            "epochs": a.spec.epochs,
            "n_steps": min(comparison.n_steps),
            "first_step": first and first.step,
            "first_stage": first and first.stage,
            "some_weights": min(groups_by_step.index, default=None),
            "all_weights": min(groups_by_step[groups_by_step >= n_trained].index, default=None),
            "n_trained": n_trained,
        }
        yield [of_pair(a, b) | row]


def followed_pairs(store: Store) -> Iterator[list[Row]]:
    """Follow pairs epoch by epoch."""
    for a, b in pairs_to_follow(store):
        if is_known("growth", (a, b)):
            continue
        # Equal networks find equal cells.
        n_masks = 0 if a.manifest.weights == b.manifest.weights else 10_000
        rows = []
        for moment in growth(a.name, b.name, n_masks=n_masks, store=store.root, quiet=True):
            row = of_pair(a, b) | asdict(moment)
            row["objects_a"], row["objects_b"] = row.pop("objects") or (None, None)
            rows.append(row)
        yield rows


def first_operations(store: Store) -> Iterator[list[Row]]:
    """Find the first operation that gave different bits: of repeats, and of machines."""
    for a, b in itertools.chain(pairs_of_repeats(store), pairs_of_machines(store)):
        is_equal = a.manifest.weights == b.manifest.weights and a.machine == b.machine
        if is_equal or not a.has(LEDGER) or is_known("first", (a, b)):
            continue
        try:
            divergence = diverge(a.name, b.name, store=store.root, quiet=True)
        except BadInput as error:  # they cannot be computed again here
            print(error, file=sys.stderr)
            continue
        difference = divergence.computed or divergence.first
        row = {
            "task": a.spec.task,
            "model": a.spec.model,
            "judgement": divergence.judgement,
            "verdict": str(divergence.verdict),
            "step": difference and difference.step,
            "stage": difference and difference.stage,
            "op": difference and difference.op,
            "module": difference and difference.module,
            "source": difference and difference.source,
            "max_abs": difference and difference.max_abs,
        }
        yield [of_pair(a, b) | row]


# -- cells ---------------------------------------------------------------------------------

RING = 5
"""Pixels around a cell that it is compared with."""


def described_cells(store: Store) -> Iterator[list[Row]]:
    """Describe every cell that any training found; of nuclei, by what differs between them.

    Short trainings of several seeds or without one, and long ones of several seeds.
    """
    for epochs, modes in ((40, ("strict", "off")), (200, ("fast",))):
        runs = [run for run in store.runs() if _is_of_nuclei(run, epochs, modes)]
        seeded = [run.repeats[0] for run in runs if run.spec.mode != "off"]
        free = [repeat for run in runs if run.spec.mode == "off" for repeat in run.repeats]
        if len(seeded) > 2:
            for image in seeded[0].manifest.masks:
                yield [*cells_of(image, f"{epochs} epochs", [*seeded, *free], store)]


def _is_of_nuclei(run: Run, epochs: int, modes: Sequence[str]) -> bool:
    spec = run.spec
    return (
        (spec.task, spec.data, spec.model, spec.profile) == ("train", "nuclei", "tiny", "cpu")
        and spec.epochs == epochs
        and spec.mode in modes
    )


def cells_of(image: str, runs: str, repeats: Sequence[Repeat], store: Store) -> Iterator[Row]:
    """The cells of one image, in the masks of some repeats."""
    spec = repeats[0].spec
    masks = [repeat.masks(image) for repeat in repeats]
    agreement = agree(masks)
    pixels = store.image(spec.data_digest, image)
    grey = (pixels if pixels.ndim == 2 else pixels.mean(-1)).astype(float)
    truth = store.truth(spec.data_digest, image)
    is_edge = np.pad(np.zeros([n - 2 for n in grey.shape], bool), 1, constant_values=True)
    for number, cell in enumerate(agreement.objects):
        outline = outline_of(cell, masks, agreement)
        ring = binary_dilation(outline, iterations=RING) & ~outline
        is_other_cell = ring & (agreement.consensus > 0)
        ground = ring & ~is_other_cell
        brighter = grey[outline].mean() - grey[ground if ground.any() else ring].mean()
        y, x = cell.position
        yield {
            "images": spec.data,
            "runs": runs,
            "image": image,
            "cell": number,
            "y": round(y, 1),
            "x": round(x, 1),
            "area": cell.area,
            "n_runs": len(repeats),
            "n_runs_with": cell.n_runs_with,
            "contrast": brighter / grey.std(),
            "crowding": is_other_cell.sum() / ring.sum(),
            "at_edge": bool((outline & is_edge).any()),
            "true": None if truth is None else matches_true_cell(outline, truth),
        }


def outline_of(cell: Stability, masks: Sequence[np.ndarray], agreement: Agreement) -> np.ndarray:
    """Where a cell is: in the consensus, else in the first run that has it."""
    if cell.label:
        return agreement.consensus == cell.label
    run = cell.runs[0]
    return canonical(masks[run]) == agreement.objects_of(run).index(cell) + 1


def matches_true_cell(outline: np.ndarray, truth: np.ndarray) -> bool:
    """Whether a true cell overlaps by an IoU of at least 0.5."""
    labels, counts = np.unique(truth[outline], return_counts=True)
    return any(
        label and n_shared / (outline | (truth == label)).sum() >= 0.5
        for label, n_shared in zip(labels, counts, strict=True)
    )


# -- settings, devices, cost ---------------------------------------------------------------

MOST_NETWORKS = 3
"""Whose settings are varied, for each set of images."""


def varied_settings(store: Store, folders: Iterable[Path]) -> Iterator[list[Row]]:
    """Vary each setting by itself, with networks that were trained on images of that name.

    These are in mode strict on the profile cpu, of those that were trained longest.
    """
    for folder in folders:
        usual = ("train", folder.name, "tiny", "strict", "cpu")
        networks = [
            run
            for run in store.runs()
            if (run.spec.task, run.spec.data, run.spec.model, run.spec.mode, run.spec.profile)
            == usual
        ]
        if not networks:
            raise BadInput(
                f"{store.root} holds no network of {folder.name!r} in mode strict on the profile "
                "cpu; expected a folder of images that the grids trained on"
            )
        longest = max(run.spec.epochs for run in networks)
        for network in [run for run in networks if run.spec.epochs == longest][:MOST_NETWORKS]:
            yield settings_of(network, folder, store)


def settings_of(network: Run, folder: Path, store: Store) -> list[Row]:
    """A row for each value of each setting; more columns count cells by what became of them."""
    result = sensitivity(folder, model=f"{network.key}/0", store=store.root, quiet=True)
    rows = []
    for variant in result.settings:
        over_images = variant.interval if variant.interval_over == "images" else None
        low, high = over_images or (None, None)
        row = {
            "images": folder.name,
            "network": network.key,
            "seed": network.spec.seed,
            "name": variant.name,
            "value": variant.value,
            "changed": variant.changed,
            "low": low,
            "high": high,
            "ppm": variant.ppm,
            "ap50": variant.ap50,
            "usual_ap50": result.ap50,
            "n_images": result.images,
            "n_objects": variant.n_objects,
        }
        rows.append(row | variant.kinds)
    return rows


def segmented_on_devices(store: Store) -> Iterator[list[Row]]:
    """Compare segmentations with that of the profile cpu, and with that of the other mode."""
    repeats = [
        repeat
        for run in store.runs()
        if run.spec.task == "segment" and run.spec.mode in ("fast", "portable")
        for repeat in run.repeats
        if repeat.index == 0
    ]
    for repeat in repeats:
        alike = [
            other
            for other in repeats
            if other.spec.data_digest == repeat.spec.data_digest
            and other.spec.model_digest == repeat.spec.model_digest
        ]
        newest = max(map(torch_version, alike))
        reference = next(
            other
            for other in alike
            if other.spec.mode == repeat.spec.mode
            and device_of(other)[1:3] == ("cpu", 8)
            and not other.manifest.machine.label.startswith("emulated")
            and torch_version(other) == newest
        )
        in_other_mode = [
            other
            for other in alike
            if other.spec.mode != repeat.spec.mode and device_of(other) == device_of(repeat)
        ]
        machine, profile, batch, torch = device_of(repeat)
        changed, ppm = difference_of_masks(reference, repeat)
        yield [
            {
                "images": repeat.spec.data,
                "network": repeat.spec.model.split("/")[0],
                "mode": repeat.spec.mode,
                "machine": machine,
                "profile": profile,
                "batch": batch,
                "torch": torch,
                "numpy": repeat.manifest.machine.versions["numpy"],
                "network_output": digest_of_flows(repeat),
                "masks": repeat.manifest.masks_digest,
                "n_cells": repeat.manifest.n_objects,
                "changed": changed,
                "ppm": ppm,
                "changed_by_mode": next(
                    (difference_of_masks(other, repeat)[0] for other in in_other_mode), None
                ),
            }
        ]


def device_of(repeat: Repeat) -> tuple[str, str, int, str]:
    """What computed a segmentation: machine, profile, tiles at a time, version of PyTorch."""
    machine = repeat.manifest.machine
    batch_size = repeat.spec.settings.batch_size
    return machine.label, repeat.spec.profile, batch_size, machine.versions["torch"]


def torch_version(repeat: Repeat) -> tuple[int, ...]:
    return tuple(map(int, repeat.manifest.machine.versions["torch"].split(".")[:2]))


def difference_of_masks(a: Repeat, b: Repeat) -> tuple[float, float]:
    """Share of the cells of both that have no counterpart, and differing pixels per million."""
    totals = compare_repeats(a, b).totals
    return totals.n_unmatched / max(1, totals.n_objects), totals.ppm


def digest_of_flows(repeat: Repeat) -> str:
    """Of what the network gave for all images."""
    rows = read_rows(repeat.folder / LEDGER, LedgerRow)
    digests = [row.digest for row in rows if row.stage == "flows"]
    if not digests:
        raise BadInput(f"{repeat.name} has no flows in its ledger; segment with --ledger steps")
    return value_digest(digests)[:16]


def trained_on_devices(store: Store) -> Iterator[list[Row]]:
    """List what first repeats in plain float32 and in mode portable ended in."""
    for run in store.runs():
        for repeat in run.repeats:
            spec, manifest = repeat.spec, repeat.manifest
            if spec.mode in ("fast", "portable") and repeat.index == 0 and manifest.weights:
                row = {
                    "images": spec.data,
                    "mode": spec.mode,
                    "machine": manifest.machine.label,
                    "profile": spec.profile,
                    "epochs": spec.epochs,
                    "weights": manifest.weights.digest,
                    "ap50": manifest.ap50,
                    "n_cells": manifest.n_objects,
                }
                yield [row]


def costs(folder: Path, networks: Sequence[str]) -> Iterator[list[Row]]:
    """Measure time and memory of a step in every mode, of each ENCODER:PROFILE."""
    extents = {"tiny": {"steps": 10, "rounds": 12}, "vit-l": {"steps": 1, "rounds": 2}}
    for network in networks:
        encoder, _, profile = network.partition(":")
        if encoder not in extents or not profile:
            raise BadInput(f"--of {network}: expected ENCODER:PROFILE, as in tiny:cpu or vit-l:cpu")
        extent = extents[encoder]
        cost = measure_cost(folder, encoder=encoder, profile=profile, **extent)
        yield [
            {"encoder": encoder, "profile": profile}
            | asdict(row)
            | {**extent, "images": folder.name}
            for row in cost.table
        ]


OF_STORES = {
    "weights": distances_of_weights,
    "steps": parting_steps,
    "growth": followed_pairs,
    "first": first_operations,
    "cells": described_cells,
    "portable": segmented_on_devices,
    "portable_training": trained_on_devices,
}
"""What is measured in a store alone."""


if __name__ == "__main__":
    main()
