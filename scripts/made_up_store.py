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
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from safetensors.numpy import save_file

from cellrepro.asked.spec import Spec, make_spec
from cellrepro.bits.digests import array_digest, file_digest, value_digest
from cellrepro.same.labels import canonical
from cellrepro.same.metrics import average_precision
from cellrepro.store import manifest as records
from cellrepro.store.store import Repeat, Store

SEEDS, REPEATS, MODES = range(5), range(5), ("off", "fast", "strict")
MACHINES = (
    ("epyc", "AMD EPYC", "cpu"),
    ("ryzen", "AMD Ryzen 9", "cpu"),
    ("a100", "NVIDIA A100", "cuda"),
    ("h100", "NVIDIA H100", "cuda"),
)
_IMAGES, _SIZE, _CELLS = ("img_a", "img_b", "img_c"), 256, 8  # cells along an edge
_DISTRIBUTIONS = {one.metadata["Name"]: one.version for one in distributions()}


def make_store(root: Path, *, n_repeats: int) -> Store:
    """Store as much of the grid; a learning rate after the other, with 300 repeats of each."""
    store, known = Store(root), {}
    for grid_point in itertools.islice(points(), n_repeats):
        add_repeat(store, *grid_point, known)
    return store


def points() -> Iterator[tuple[int, int, tuple, str, int]]:
    """Setting, seed, machine, mode and repeat, without an end."""
    for setting in itertools.count():
        for seed, machine, mode, repeat in itertools.product(SEEDS, MACHINES, MODES, REPEATS):
            # In mode off nothing is seeded, so that what would be every seed is the same spec.
            more = len(REPEATS) * seed if mode == "off" else 0
            yield setting, seed, machine, mode, repeat + more


def add_repeat(
    store: Store, setting: int, seed: int, machine: tuple, mode: str, repeat: int, known: dict
) -> Repeat:
    """Store one repeat; ``known`` holds the label images that were drawn before."""
    device = machine[2]
    spec = make_spec(
        **{"data": "made-up", "data_digest": "d" * 64, "model": "tiny", "epochs": 20},
        **{"learning_rate": round(0.001 * (setting + 1), 6), "profile": device, "mode": mode},
        **{"profile_settings": {"name": device, "device": device}},
        seed=None if mode == "off" else seed,
    )
    own = 0 if mode == "strict" else 1 + repeat
    training = (setting, seed, MACHINES.index(machine), MODES.index(mode), own)
    with store.staging() as area:
        folder = area / "repeat"
        (folder / "masks").mkdir(parents=True)
        weights = np.random.default_rng(training).standard_normal((8, 64), np.float32)
        save_file({"encoder.blocks.0.attn.weight": weights}, folder / "weights.safetensors")
        (folder / "notebook.ipynb").write_text(f'{{"cells": ["{training} {repeat}"]}}')
        masks = {}
        for i, name in enumerate(_IMAGES):
            # A setting and a seed move cells; a device, and each of a few ways a race may end, one.
            drawn = (i, setting, seed, MACHINES.index(machine) // 2, own and 1 + (own + i) % 4)
            if drawn not in known:
                known[drawn] = _masks(drawn)
            labels, masks[name] = known[drawn][0], known[drawn][1].model_copy()
            tifffile.imwrite(folder / masks[name].file, labels, compression="zlib")
        written = _manifest(
            spec, machine, repeat, masks, file_digest(folder / "weights.safetensors")
        )
        (folder / "manifest.json").write_text(written.model_dump_json())
        if not store.kept(spec.data_digest, f"{_IMAGES[0]}.tif").exists():
            _write_images(folder / "data")
        return store.commit(folder, spec)


def _write_images(folder: Path) -> None:
    folder.mkdir()
    for i, name in enumerate(_IMAGES):
        noise = np.random.default_rng(i).poisson(30, (_SIZE, _SIZE))
        light = (noise + 60 * (_labels(i) > 0)).astype(np.uint8)
        tifffile.imwrite(folder / f"{name}.tif", light)
        tifffile.imwrite(folder / f"{name}_masks.tif", _labels(i))


def _labels(image: int) -> np.ndarray:
    """The truth of an image: squares in rows."""
    step = _SIZE // _CELLS
    y, x = np.indices((_SIZE, _SIZE))
    inside = ((y % step) > 3 + image) & ((x % step) > 5)
    return (inside * (y // step * _CELLS + x // step + 1)).astype(np.uint16)


def _masks(drawn: tuple[int, ...]) -> tuple[np.ndarray, records.MaskRecord]:
    image, *seeds, nuance = drawn
    truth = _labels(image)
    labels, step = truth.copy(), _SIZE // _CELLS
    for one, n in ((seeds[:2], 6), (seeds, 2), ([*seeds, nuance], 2 * bool(nuance))):
        for cell in np.random.default_rng([image, *one]).choice(_CELLS**2, n, replace=False):
            y, x = (int(place) * step for place in divmod(cell, _CELLS))
            square = labels[y : y + step, x : x + step]
            square[:] = 0 if len(one) == 2 and cell % 3 == 0 else np.roll(square, 3, axis=0)
    score = float(average_precision(truth, labels)[0])
    name = _IMAGES[image]
    record = records.MaskRecord(
        file=f"masks/{name}.tif",
        digest=array_digest(labels.astype(np.uint32)),
        canonical_digest=array_digest(canonical(labels)),
        n_objects=len(np.unique(labels[labels > 0])),
        **{"seconds": 0.25, "ap50": score, "n_true": _CELLS**2},
    )
    return labels, record


def _manifest(
    spec: Spec, machine: tuple, repeat: int, masks: dict[str, Any], weights: str
) -> records.Manifest:
    label, processor, device = machine
    names = [
        f"{'train' if i < 8 else 'test'}/image_{i:03}{s}.tif"
        for i in range(11)
        for s in ("", "_masks")
    ]
    cpu = device == "cpu"
    return records.Manifest(
        **{"key": spec.key, "repeat": repeat, "vacuous": [], "device": device, "threads": 2},
        machine=records.MachineRecord(
            **{"label": label, "identity": label, "device": processor, "numeric_class": label},
            **{"driver": None if cpu else "550.54", "cuda": None if cpu else "12.4"},
            versions={"torch": "2.15.0", "numpy": "2.4.6", "cellpose": "4.2.1.1"},
        ),
        started="2026-11-01T12:00:00+00:00",
        seconds={"import": 6.0, "data": 0.1, "model": 0.1, "train": 20.0 + repeat, "segment": 1.0},
        peak_memory={"process": 2**30, "gpu": None if cpu else 2**31},
        host={"processor": processor, "memory": 2**34, "gpus": [], "system": "Linux"},
        versions={"python": "3.11.7", "torch": "2.15.0", "cellpose": "4.2.1.1"},
        distributions=_DISTRIBUTIONS,
        cuda={"driver": None if cpu else "550.54", "runtime": "12.4", "cudnn": "9.1"},
        cpu_capability="AVX2",
        numeric_libraries=[{"user_api": "blas", "internal_api": "openblas", "version": "0.3.30"}],
        numeric_class={
            "name": label,
            "probes": {f"probe-{i}/float32": value_digest([label, i]) for i in range(24)},
        },
        variables={"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "0"},
        switches={f"switch_{i}": False for i in range(20)}
        | {"deterministic_algorithms": spec.mode == "strict"},
        seeds={"python": spec.seed, "numpy": spec.seed, "torch": spec.seed},
        data=records.DataRecord(
            **{"path": "/data/made-up", "digest": spec.data_digest, "segmented": "test"},
            **{"n_train": 8, "n_test": 3, "warnings": []},
            files={name: value_digest(name) for name in names},
        ),
        model=records.ModelRecord(
            **{"architecture": "tiny", "n_parameters": 512, "dtype": "float32"},
            initial_weights=value_digest(spec.seed),
        ),
        training=records.TrainingRecord(
            **{"learning_rates": [spec.learning_rate] * 20, "n_steps": 160, "n_removed": 0},
            **{"train_losses": [1 / (1 + i) for i in range(20)], "test_losses": [None] * 20},
        ),
        weights=records.WeightsRecord(digest=weights, n_changed=512),
        masks=masks,
        train_scores={f"image_{i:03}": 0.9 for i in range(3)},
        warnings=[],
    )


def main() -> int:
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
