"""A store of many made-up runs, as a grid over seeds, devices, modes and settings would leave it.

`made_up_store.py FOLDER` stores 10,200 repeats: of each of 34 settings 5 seeds x 4 machines x 3
modes x 5 repeats. Repeats of strict are equal, those of fast and off each trained another
network; manifests have the size of real ones, weights and images are small.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

import numpy as np
import tifffile
from made_up_records import made_up_machine, made_up_manifest, mask_record
from numpy.typing import NDArray
from safetensors.numpy import save_file

from cellrepro.digests.digests import file_digest, value_digest
from cellrepro.spec.new_spec import make_spec
from cellrepro.spec.spec import Spec
from cellrepro.store import manifest as records
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.store.training_record import TrainingRecord, WeightsRecord

Mode = Literal["off", "fast", "strict"]


@dataclass(frozen=True)
class Machine:
    """A machine that nobody has.

    Attributes
    ----------
    label, processor : str
    device : str
        ``cpu`` or ``cuda``, also the profile's name.
    """

    label: str
    processor: str
    device: str

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

_IMAGES = ("img_a", "img_b", "img_c")
_SIZE = 256  # pixels along an edge
_CELLS = 8  # along an edge
_STEP = _SIZE // _CELLS  # pixels from a cell to the next
_DISTRIBUTIONS = {each.metadata["Name"]: each.version for each in distributions()}


@dataclass(frozen=True)
class GridPoint:
    """What one repeat is of.

    Attributes
    ----------
    setting : int
        Number of the learning rate.
    seed : int
    machine : Machine
    mode : Mode
    repeat : int
    """

    setting: int
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
        numbers_of_it = (
            self.setting,
            self.seed,
            MACHINES.index(self.machine),
            MODES.index(self.mode),
            self.network,
        )
        return np.random.default_rng(numbers_of_it).standard_normal((8, 64), np.float32)


def points() -> Iterator[GridPoint]:
    """A setting after the other, without an end; 300 points of each."""
    for setting in itertools.count():
        for seed, machine, mode, repeat in itertools.product(SEEDS, MACHINES, MODES, REPEATS):
            # In mode off nothing is seeded, so that what would be every seed is the same spec.
            n_before = len(REPEATS) * seed if mode == "off" else 0
            yield GridPoint(setting, seed, machine, mode, repeat + n_before)


def make_store(root: Path, *, n_repeats: int) -> Store:
    """Store the first points of the grid.

    Parameters
    ----------
    root : Path
        Of the store, which is made.
    n_repeats : int
        How many.
    """
    store = Store(root)
    maker = RepeatMaker(store)
    for point in itertools.islice(points(), n_repeats):
        maker.add(point)
    return store


class RepeatMaker:
    """Adds made-up repeats to a store; each label image is drawn once.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store):
        self._store = store
        self._drawn: dict[_Drawing, _Masks] = {}

    def add(self, point: GridPoint) -> Repeat:
        """Store one repeat."""
        spec = point.spec()
        with self._store.staging() as area:
            folder = area / "repeat"
            (folder / "masks").mkdir(parents=True)
            weights_path = folder / "weights.safetensors"
            save_file({"encoder.blocks.0.attn.weight": point.weights()}, weights_path)
            notebook = f'{{"cells": ["{point}"]}}'
            (folder / "notebook.ipynb").write_text(notebook, encoding="utf-8")
            masks = self._write_masks(folder, point)
            manifest = _manifest(point, spec, masks, weights_digest=file_digest(weights_path))
            (folder / "manifest.json").write_text(manifest.model_dump_json(), encoding="utf-8")
            if not self._store.kept(spec.data_digest, f"{_IMAGES[0]}.tif").exists():
                _write_images(folder / "data")
            return self._store.commit(folder, spec)

    def _write_masks(self, folder: Path, point: GridPoint) -> dict[str, records.MaskRecord]:
        mask_records = {}
        for index, name in enumerate(_IMAGES):
            drawing = _Drawing.of(point, index)
            if drawing not in self._drawn:
                self._drawn[drawing] = _draw(drawing)
            masks = self._drawn[drawing]
            tifffile.imwrite(folder / masks.record.file, masks.labels, compression="zlib")
            mask_records[name] = masks.record.model_copy()
        return mask_records


# -- images and masks ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawing:
    """What the masks of an image depend on.

    Attributes
    ----------
    image, setting, seed : int
    device : int
        0 for processors, 1 for GPUs.
    nuance : int
        Which of a few ways a race may end; 0 where there was none.
    """

    image: int
    setting: int
    seed: int
    device: int
    nuance: int

    @classmethod
    def of(cls, point: GridPoint, image: int) -> _Drawing:
        """That of one image of a repeat."""
        return cls(
            image=image,
            setting=point.setting,
            seed=point.seed,
            device=MACHINES.index(point.machine) // 2,
            nuance=1 + (point.network + image) % 4 if point.network else 0,
        )


@dataclass(frozen=True)
class _Masks:
    """Masks and what a manifest says of them."""

    labels: NDArray[np.uint16]
    record: records.MaskRecord


def _truth(image: int) -> NDArray[np.uint16]:
    """Squares in rows."""
    y, x = np.indices((_SIZE, _SIZE))
    inside = ((y % _STEP) > 3 + image) & ((x % _STEP) > 5)
    return (inside * (y // _STEP * _CELLS + x // _STEP + 1)).astype(np.uint16)


def _draw(drawing: _Drawing) -> _Masks:
    """The truth, but a setting and a seed lose and move cells, and a device and a race move few."""
    truth = _truth(drawing.image)
    labels = truth.copy()
    training = [drawing.image, drawing.setting, drawing.seed]
    on_device = [*training, drawing.device]
    for square, number in _squares(labels, _some_cells(training, 6)):
        square[:] = 0 if number % 3 == 0 else np.roll(square, 3, axis=0)
    for square, _ in _squares(labels, _some_cells(on_device, 2)):
        square[:] = np.roll(square, 3, axis=0)
    if drawing.nuance:
        for square, _ in _squares(labels, _some_cells([*on_device, drawing.nuance], 2)):
            square[:] = np.roll(square, 3, axis=0)
    record = mask_record(_IMAGES[drawing.image], labels, truth=truth)
    return _Masks(labels, record)


def _some_cells(seed: list[int], n: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).choice(_CELLS**2, n, replace=False)


def _squares(
    labels: NDArray[np.uint16], numbers: Iterable[int]
) -> Iterator[tuple[NDArray[np.uint16], int]]:
    """Views of the squares of cells, with the numbers of these."""
    for number in numbers:
        row, column = divmod(int(number), _CELLS)
        y = row * _STEP
        x = column * _STEP
        yield labels[y : y + _STEP, x : x + _STEP], int(number)


def _write_images(folder: Path) -> None:
    folder.mkdir()
    for index, name in enumerate(_IMAGES):
        truth = _truth(index)
        noise = np.random.default_rng(index).poisson(30, (_SIZE, _SIZE))
        light = (noise + 60 * (truth > 0)).astype(np.uint8)
        tifffile.imwrite(folder / f"{name}.tif", light)
        tifffile.imwrite(folder / f"{name}_masks.tif", truth)


# -- manifests -----------------------------------------------------------------------------


def _manifest(
    point: GridPoint, spec: Spec, masks: dict[str, records.MaskRecord], *, weights_digest: str
) -> records.Manifest:
    """As large as a real one."""
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
        distributions=_DISTRIBUTIONS,
        cuda={"driver": driver, "runtime": "12.4", "cudnn": "9.1"},
        device=machine.device,
        numeric_libraries=[{"user_api": "blas", "internal_api": "openblas", "version": "0.3.30"}],
        numeric_class=_numeric_class(machine),
        variables={"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "0"},
        switches=_switches(spec),
        seeds={"python": spec.seed, "numpy": spec.seed, "torch": spec.seed},
        data=_data_record(spec),
        model=records.ModelRecord(
            architecture="tiny",
            n_parameters=512,
            dtype="float32",
            initial_weights=value_digest(spec.seed),
        ),
        training=_training_record(spec),
        weights=WeightsRecord(digest=weights_digest, n_changed=512),
        train_scores={f"image_{number:03}": 0.9 for number in range(3)},
    )


def _numeric_class(machine: Machine) -> dict[str, object]:
    probes = {
        f"probe-{number}/float32": value_digest([machine.label, number]) for number in range(24)
    }
    return {"name": machine.label, "probes": probes}


def _switches(spec: Spec) -> dict[str, bool]:
    switches = {f"switch_{number}": False for number in range(20)}
    switches["deterministic_algorithms"] = spec.mode == "strict"
    return switches


def _data_record(spec: Spec) -> records.DataRecord:
    """Eight training images and three test images, each with its masks."""
    names = []
    for number in range(11):
        part = "train" if number < 8 else "test"
        names += [f"{part}/image_{number:03}.tif", f"{part}/image_{number:03}_masks.tif"]
    return records.DataRecord(
        path="/data/made-up",
        digest=spec.data_digest,
        files={name: value_digest(name) for name in names},
        n_train=8,
        n_test=3,
        segmented="test",
        warnings=[],
    )


def _training_record(spec: Spec) -> TrainingRecord:
    return TrainingRecord(
        learning_rates=[spec.learning_rate] * 20,
        train_losses=[1 / (1 + epoch) for epoch in range(20)],
        test_losses=[None] * 20,
        n_steps=160,
        n_removed=0,
    )


def main() -> int:
    """Make the store, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=10_200, help="300 of each setting")
    arguments = parser.parse_args()
    started = time.perf_counter()
    make_store(arguments.folder, n_repeats=arguments.repeats)
    print(f"{arguments.repeats} repeats in {time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
