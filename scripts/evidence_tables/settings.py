"""What single settings change, and what a step costs in every mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cellrepro import BadInput, Store, measure_cost, sensitivity
from cellrepro.store.stored_run import Run
from evidence_tables.table import Row, StoreOfRuns, Table

SETTINGS = Table("settings", known_by=("images", "network", "name", "value"))
COST = Table("cost", known_by=("encoder", "profile", "name"))

MOST_NETWORKS = 3
"""Whose settings are varied, for each set of images."""


@dataclass(frozen=True)
class Extent:
    """How long the cost of a network is measured."""

    steps: int
    rounds: int


EXTENTS = {"tiny": Extent(steps=10, rounds=12), "vit-l": Extent(steps=1, rounds=2)}
"""By the encoder."""


def settings(store: StoreOfRuns, folders: list[Path]) -> None:
    """Each setting varied by itself, with networks trained on images of a folder's name."""
    for folder in folders:
        for network in networks_of(store, folder):
            SETTINGS.keep(*settings_of(network, folder, store))


def networks_of(store: Store, folder: Path) -> list[Run]:
    """Of the trainings in mode strict on the profile cpu those that took longest."""
    networks = [
        run
        for run in store.runs()
        if run.spec.task == "train"
        and run.spec.data == folder.name
        and run.spec.model == "tiny"
        and run.spec.mode == "strict"
        and run.spec.profile == "cpu"
    ]
    if not networks:
        raise BadInput(
            f"{store.root} holds no network of {folder.name!r} in mode strict on the profile cpu; "
            "expected a folder of images that the grids trained on"
        )
    longest = max(run.spec.epochs for run in networks)
    return [run for run in networks if run.spec.epochs == longest][:MOST_NETWORKS]


def settings_of(network: Run, folder: Path, store: Store) -> Iterator[Row]:
    """A row for each value of each setting; more columns count cells by what became of them."""
    result = sensitivity(folder, model=f"{network.key}/0", store=store.root, quiet=True)
    for variant in result.settings:
        interval = variant.interval if variant.interval_over == "images" else None
        low, high = interval or (None, None)
        yield {
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
            **variant.kinds,
        }


def cost(
    folder: Path,
    *,
    of: Annotated[Sequence[str], Parameter(consume_multiple=True)] = ("tiny:cpu",),
) -> None:
    """Time and memory of a step in every mode, of each ENCODER:PROFILE."""
    for network in of:
        encoder, _, profile = network.partition(":")
        if encoder not in EXTENTS or not profile:
            raise BadInput(f"--of {network}: expected ENCODER:PROFILE, as in tiny:cpu or vit-l:cpu")
        extent = asdict(EXTENTS[encoder])
        measured = measure_cost(folder, encoder=encoder, profile=profile, **extent)
        measured_for = {"encoder": encoder, "profile": profile}
        images = {"images": folder.name}
        COST.keep(*(measured_for | asdict(row) | extent | images for row in measured.table))
