"""Make a store of many made-up runs, as a grid over seeds, devices, modes and settings leaves it.

    python scripts/made_up_store.py FOLDER

stores 10,200 repeats: of each of 34 settings 5 seeds x 4 machines x 3 modes x 5 repeats. Repeats of
strict are equal, those of fast and off each trained another network; manifests have the size of
real ones, weights and images are small.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

import numpy as np
import tifffile
from made_up_masks import IMAGES, Drawing, Labels, truth_of, write_images
from made_up_records import made_up_machine, made_up_manifest, mask_record
from numpy.typing import NDArray
from safetensors.numpy import save_file

from cellrepro.spec.new_spec import make_spec
from cellrepro.spec.spec import Spec
from cellrepro.store import manifest as records
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.store.training_record import TrainingRecord, WeightsRecord
from samebits.digests import file_digest, value_digest

Mode = Literal["off", "fast", "strict"]


def main() -> None:
    """Make the store, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=10_200, help="300 of each setting")
    arguments = parser.parse_args()
    started = time.perf_counter()
    make_store(arguments.folder, n_repeats=arguments.repeats)
    print(f"{arguments.repeats} repeats in {time.perf_counter() - started:.0f} s")


def make_store(root: Path, *, n_repeats: int) -> Store:
    """Store the first points of the grid."""
    store = Store(root)
    for point in itertools.islice(points(), n_repeats):
        add_repeat(store, point)
    return store


# -- the grid ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """A machine that nobody has."""

    label: str
    processor: str
    device: str
    """``cpu`` or ``cuda``, also the profile's name."""

    @property
    def has_gpu(self) -> bool:
        """Whether it computes on one."""
        return self.device == "cuda"


MACHINES = (
    Machine("epyc", "AMD EPYC", "cpu"),
    Machine("ryzen", "AMD Ryzen 9", "cpu"),
    Machine("a100", "NVIDIA A100", "cuda"),
    Machine("h100", "NVIDIA H100", "cuda"),
)
SEEDS = range(5)
REPEATS = range(5)
MODES: tuple[Mode, ...] = ("off", "fast", "strict")


@dataclass(frozen=True)
class GridPoint:
    """What one repeat is of."""

    setting: int
    """Number of the learning rate."""
    seed: int
    machine: Machine
    mode: Mode
    repeat: int

    @property
    def network(self) -> int:
        """Which of the networks of one spec was trained: 0 for all repeats of mode strict."""
        return 0 if self.mode == "strict" else 1 + self.repeat

    def spec(self) -> Spec:
        """What was asked for."""
        return make_spec(
            data="made-up",
            data_digest="d" * 64,
            model="tiny",
            epochs=20,
            learning_rate=round(0.001 * (self.setting + 1), 6),
            seed=None if self.mode == "off" else self.seed,
            mode=self.mode,
            profile=self.machine.device,
            profile_settings={"name": self.machine.device, "device": self.machine.device},
        )

    def weights(self) -> NDArray[np.float32]:
        """The network, as small as it may be."""
        machine = MACHINES.index(self.machine)
        mode = MODES.index(self.mode)
        random = np.random.default_rng((self.setting, self.seed, machine, mode, self.network))
        return random.standard_normal((8, 64), np.float32)

    def drawing(self, image: int) -> Drawing:
        """How the masks of an image are drawn."""
        return Drawing(
            image=image,
            setting=self.setting,
            seed=self.seed,
            on_gpu=self.machine.has_gpu,
            nuance=1 + (self.network + image) % 4 if self.network else 0,
        )


def points() -> Iterator[GridPoint]:
    """A setting after the other, without an end; 300 points of each."""
    for setting in itertools.count():
        for seed, machine, mode, repeat in itertools.product(SEEDS, MACHINES, MODES, REPEATS):
            # In mode off nothing is seeded, so that what would be every seed is the same spec.
            n_before = len(REPEATS) * seed if mode == "off" else 0
            yield GridPoint(setting, seed, machine, mode, repeat + n_before)


# -- a repeat ------------------------------------------------------------------------------------


def add_repeat(store: Store, point: GridPoint) -> Repeat:
    """Store the repeat of a point."""
    spec = point.spec()
    with store.staging() as area:
        folder = area / "repeat"
        (folder / "masks").mkdir(parents=True)
        weights = folder / "weights.safetensors"
        save_file({"encoder.blocks.0.attn.weight": point.weights()}, weights)
        notebook = f'{{"cells": ["{point}"]}}'
        (folder / "notebook.ipynb").write_text(notebook, encoding="utf-8")
        masks = write_masks(folder, point)
        manifest = manifest_of(point, spec, masks, weights_digest=file_digest(weights))
        (folder / "manifest.json").write_text(manifest.model_dump_json(), encoding="utf-8")
        if not store.kept(spec.data_digest, f"{IMAGES[0]}.tif").exists():
            write_images(folder / "data")
        return store.commit(folder, spec)


@dataclass(frozen=True)
class Masks:
    """Masks and what a manifest says of them."""

    labels: Labels
    record: records.MaskRecord


def write_masks(folder: Path, point: GridPoint) -> dict[str, records.MaskRecord]:
    """Write the masks of all images; what a manifest says of them."""
    mask_records = {}
    for index, name in enumerate(IMAGES):
        masks = masks_of(point.drawing(index))
        tifffile.imwrite(folder / masks.record.file, masks.labels, compression="zlib")
        mask_records[name] = masks.record.model_copy()
    return mask_records


@cache
def masks_of(drawing: Drawing) -> Masks:
    """Masks are drawn and scored once for all repeats that have them."""
    labels = drawing.masks()
    record = mask_record(IMAGES[drawing.image], labels, truth=truth_of(drawing.image))
    return Masks(labels, record)


# -- its manifest, as large as a real one ----------------------------------------------------------


def manifest_of(
    point: GridPoint, spec: Spec, masks: dict[str, records.MaskRecord], *, weights_digest: str
) -> records.Manifest:
    """Everything that a real repeat records."""
    machine = point.machine
    driver = "550.54" if machine.has_gpu else None
    return made_up_manifest(
        spec,
        masks,
        repeat=point.repeat,
        machine=made_up_machine(
            machine.label,
            device=machine.processor,
            driver=driver,
            cuda="12.4" if machine.has_gpu else None,
            numeric_class=machine.label,
            versions={"torch": "2.15.0", "numpy": "2.4.6", "cellpose": "4.2.1.1"},
        ),
        seconds={
            "import": 6.0,
            "data": 0.1,
            "model": 0.1,
            "train": 20.0 + point.repeat,
            "segment": 1.0,
        },
        peak_memory={"process": 2**30, "gpu": 2**31 if machine.has_gpu else None},
        host={"processor": machine.processor, "memory": 2**34, "gpus": [], "system": "Linux"},
        versions={"python": "3.11.7", "torch": "2.15.0", "cellpose": "4.2.1.1"},
        distributions=installed(),
        cuda={"driver": driver, "runtime": "12.4", "cudnn": "9.1"},
        device=machine.device,
        numeric_libraries=[{"user_api": "blas", "internal_api": "openblas", "version": "0.3.30"}],
        numeric_class=numeric_class(machine),
        variables={"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "0"},
        switches=switches(spec),
        seeds={"python": spec.seed, "numpy": spec.seed, "torch": spec.seed},
        data=data_record(spec),
        model=records.ModelRecord(
            architecture="tiny",
            n_parameters=512,
            dtype="float32",
            initial_weights=value_digest(spec.seed),
        ),
        training=training_record(spec),
        weights=WeightsRecord(digest=weights_digest, n_changed=512),
        train_scores={f"image_{number:03}": 0.9 for number in range(3)},
    )


@cache
def installed() -> dict[str, str]:
    return {each.metadata["Name"]: each.version for each in distributions()}


def numeric_class(machine: Machine) -> dict[str, object]:
    probes = {
        f"probe-{number}/float32": value_digest([machine.label, number]) for number in range(24)
    }
    return {"name": machine.label, "probes": probes}


def switches(spec: Spec) -> dict[str, bool]:
    others = {f"switch_{number}": False for number in range(20)}
    return {**others, "deterministic_algorithms": spec.mode == "strict"}


def data_record(spec: Spec) -> records.DataRecord:
    """Eight training images and three test images, each with its masks."""
    images = [f"train/image_{number:03}" for number in range(8)]
    images += [f"test/image_{number:03}" for number in range(8, 11)]
    names = [f"{image}{ending}.tif" for image in images for ending in ("", "_masks")]
    return records.DataRecord(
        path="/data/made-up",
        digest=spec.data_digest,
        files={name: value_digest(name) for name in names},
        n_train=8,
        n_test=3,
        segmented="test",
        warnings=[],
    )


def training_record(spec: Spec) -> TrainingRecord:
    return TrainingRecord(
        learning_rates=[spec.learning_rate] * 20,
        train_losses=[1 / (1 + epoch) for epoch in range(20)],
        test_losses=[None] * 20,
        n_steps=160,
        n_removed=0,
    )


if __name__ == "__main__":
    main()
