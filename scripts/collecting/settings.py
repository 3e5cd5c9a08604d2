"""Settings of a segmentation, varied one at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Run
from collecting.tables import Table

SETTINGS = Table("settings.csv", ("images", "network", "name", "value"))

MOST_NETWORKS = 3


@dataclass(frozen=True)
class SettingRow:
    """A value of a setting beside the usual one; the fields are the table's first columns.

    More columns count the changed cells by what became of them.

    Attributes
    ----------
    images, network : str
    seed : int or None
    name : str
    value : object
    changed : float or None
        Share of the cells.
    low : float or None
        Of its interval over images.
    high : float or None
    ppm : float or None
        Differing pixels per million.
    ap50, usual_ap50 : float or None
    n_images, n_objects : int
    """

    images: str
    network: str
    seed: int | None
    name: str
    value: object
    changed: float | None
    low: float | None
    high: float | None
    ppm: float | None
    ap50: float | None
    usual_ap50: float | None
    n_images: int
    n_objects: int


def collect_settings(store: Store, folders: Iterable[Path]) -> None:
    """Vary each setting by itself, with networks that were trained on images of that name.

    Parameters
    ----------
    store : Store
        With the networks.
    folders : iterable of Path
        Of images.

    Raises
    ------
    BadInput
        If there is no network for a folder.
    """
    rows = []
    for folder in folders:
        networks = networks_of(store, folder.name)
        if not networks:
            raise BadInput(
                f"{store.root} holds no network of {folder.name!r} in mode strict on the profile "
                "cpu; expected a folder of images that the grids trained on"
            )
        for network in networks:
            rows += _rows_of(folder, network, store)
            print(folder.name, network.key, file=sys.stderr)
    SETTINGS.add(rows)


def _rows_of(folder: Path, network: Run, store: Store) -> list[dict[str, object]]:
    from cellrepro import sensitivity

    result = sensitivity(folder, model=f"{network.key}/0", store=store.root, quiet=True)
    rows = []
    for variant in result.settings:
        interval = variant.interval if variant.interval_over == "images" else None
        row = SettingRow(
            images=folder.name,
            network=network.key,
            seed=network.spec.seed,
            name=variant.name,
            value=variant.value,
            changed=variant.changed,
            low=interval[0] if interval else None,
            high=interval[1] if interval else None,
            ppm=variant.ppm,
            ap50=variant.ap50,
            usual_ap50=result.ap50,
            n_images=result.images,
            n_objects=variant.n_objects,
        )
        rows.append({**asdict(row), **variant.kinds})
    return rows


def networks_of(store: Store, images: str) -> list[Run]:
    """In mode strict on the profile cpu, of those that were trained longest.

    Parameters
    ----------
    store : Store
    images : str
        The name of the folder that they were trained on.

    Returns
    -------
    list of Run
        At most `MOST_NETWORKS`.
    """
    runs = [run for run in store.runs() if _is_strict_on_cpu(run, images)]
    longest = max((run.spec.epochs for run in runs), default=0)
    return [run for run in runs if run.spec.epochs == longest][:MOST_NETWORKS]


def _is_strict_on_cpu(run: Run, images: str) -> bool:
    spec = run.spec
    return (
        spec.task == "train"
        and spec.data == images
        and spec.model == "tiny"
        and spec.mode == "strict"
        and spec.profile == "cpu"
    )
