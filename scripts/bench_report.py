"""The report: a store of 100 runs of the demo's size, and the seconds for its page.

Nothing is trained. The store holds what the demo's grid would leave with five seeds, five
profiles, two modes and two repeats: three images of 256 by 256 pixels a run and networks of 2.3
million parameters, equal between repeats in ``strict`` and different in ``fast``.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tifffile
from safetensors.numpy import save_file

from cellrepro.compare.metrics import average_precision, canonical
from cellrepro.images.synthetic import write_folder
from cellrepro.show.report.build import write_report
from cellrepro.store.digests import array_digest, file_digest
from cellrepro.store.manifest import (
    DataRecord,
    MachineRecord,
    Manifest,
    MaskRecord,
    ModelRecord,
    TrainingRecord,
    WarningRecord,
    WeightsRecord,
)
from cellrepro.store.spec import Spec, make_spec
from cellrepro.store.store import Store

DIGEST = "d" * 64


def report(extent: str) -> Iterator[tuple[str, float, str, str]]:
    """Seconds and size of the page."""
    n_seeds, n_profiles, rounds = (1, 1, 1) if extent == "smallest" else (5, 5, 3)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "store")
        make_store(root, n_seeds, n_profiles)
        seconds, busy, size = [], [], 0
        for _ in range(rounds):
            started, worked = time.perf_counter(), time.process_time()
            written = write_report(root)
            seconds.append(time.perf_counter() - started)
            busy.append(time.process_time() - worked)
            size = written.html.stat().st_size
    n_runs = sum(len(run["repeats"]) for run in written.runs)
    n_results = sum("weights" in group for group in written.groups)
    how = (
        f"best of {rounds} in one process, {n_runs} runs, {n_results} different networks of 2.3 M "
        "parameters, 3 images of 256² pixels"
    )
    name = f"report over {n_runs} runs of the demo's size, seconds"
    yield name, min(seconds), "<= 10", how
    yield "the same, median", statistics.median(seconds), "", how
    yield "the same, seconds of the processor", min(busy), "", how
    yield "size of the page, MB", size / 1e6, "", "one file"


# -- a store made by hand ------------------------------------------------------------------


def make_store(root: Path, n_seeds: int, n_profiles: int) -> Store:
    """Runs of the demo's size, two modes and two repeats of each, of which about half differ."""
    store = Store(root)
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(Path(scratch), n_train=0, n_test=3)
        images = {
            path.name.removesuffix("_masks.tif"): (
                tifffile.imread(path.with_name(path.name.replace("_masks", ""))),
                tifffile.imread(path).astype(np.int32),
            )
            for path in sorted(Path(scratch, "test").glob("*_masks.tif"))
        }
    combinations = itertools.product(
        range(n_seeds), range(n_profiles), ("fast", "strict"), range(2)
    )
    for seed, profile, mode, repeat in combinations:
        spec = make_spec(
            task="train",
            data="synthetic",
            data_digest=DIGEST,
            model="tiny",
            epochs=12,
            learning_rate=0.001,
            images_per_epoch=8,
            seed=seed,
            profile=f"profile-{profile}",
            profile_settings={"name": f"profile-{profile}", "threads": profile + 1},
            mode=mode,
        )
        # Strict repeats are equal, fast ones are not; seeds lie farther apart than profiles.
        nuance = (seed, profile, 0 if mode == "strict" else 1 + repeat)
        _add(store, spec, repeat, nuance, images)
    return store


def _add(
    store: Store,
    spec: Spec,
    repeat: int,
    nuance: tuple[int, int, int],
    images: dict[str, tuple[np.ndarray, np.ndarray]],
) -> None:
    with store.staging() as area:
        folder = area / "repeat"
        (folder / "masks").mkdir(parents=True)
        (folder / "data").mkdir()
        save_file(_network(*nuance), folder / "weights.safetensors")
        records = {}
        for name, (image, truth) in images.items():
            masks = _masks(truth, *nuance)
            tifffile.imwrite(folder / "masks" / f"{name}.tif", masks, compression="zlib")
            tifffile.imwrite(folder / "data" / f"{name}.tif", image)
            tifffile.imwrite(folder / "data" / f"{name}_masks.tif", truth)
            records[name] = MaskRecord(
                file=f"masks/{name}.tif",
                digest=array_digest(masks.astype(np.uint32)),
                canonical_digest=array_digest(canonical(masks)),
                n_objects=len(np.unique(masks[masks > 0])),
                seconds=0.2,
                ap50=float(average_precision(truth, masks)[0]),
                n_true=len(np.unique(truth[truth > 0])),
            )
        manifest = _manifest(spec, repeat, records, file_digest(folder / "weights.safetensors"))
        (folder / "manifest.json").write_text(manifest.model_dump_json())
        store.commit(folder, spec)


def _network(seed: int, profile: int, nuance: int) -> dict[str, np.ndarray]:
    """As many tensors and parameters as ``tiny``: far apart by seed, close by the rest."""
    weights = {}
    for i, (name, shape) in enumerate(_shapes().items()):
        own, small = np.random.default_rng((i, seed)), np.random.default_rng((i, profile, nuance))
        common = np.random.default_rng(i).standard_normal(shape, np.float32)
        weights[name] = (
            common
            + np.float32(1e-2) * own.standard_normal(shape, np.float32)
            + np.float32(1e-6) * small.standard_normal(shape, np.float32)
        )
    return weights


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"W2": (768, 3, 16, 16)}
    for block, length in ((0, 27), (1, 127)):
        shapes |= {
            f"encoder.blocks.{block}.{name}": shape
            for name, shape in {
                "attn.proj.bias": (192,),
                "attn.proj.weight": (192, 192),
                "attn.qkv.bias": (576,),
                "attn.qkv.weight": (576, 192),
                "attn.rel_pos_h": (length, 192),
                "attn.rel_pos_w": (length, 192),
                "mlp.lin1.bias": (384,),
                "mlp.lin1.weight": (384, 192),
                "mlp.lin2.bias": (192,),
                "mlp.lin2.weight": (192, 384),
                "norm1.bias": (192,),
                "norm1.weight": (192,),
                "norm2.bias": (192,),
                "norm2.weight": (192,),
            }.items()
        }
    return shapes | {
        "encoder.neck.0.weight": (256, 192, 1, 1),
        "encoder.neck.1.bias": (256,),
        "encoder.neck.1.weight": (256,),
        "encoder.neck.2.weight": (256, 256, 3, 3),
        "encoder.patch_embed.proj.weight": (192, 3, 16, 16),
        "encoder.pos_embed": (1, 16, 16, 192),
        "out.bias": (768,),
        "out.weight": (768, 256, 1, 1),
    }


def _masks(truth: np.ndarray, seed: int, profile: int, nuance: int) -> np.ndarray:
    """The truth with some cells missing and some borders moved, more by seed than by the rest."""
    masks = truth.astype(np.uint16)
    labels = np.unique(masks[masks > 0])
    masks[np.isin(masks, np.random.default_rng(seed).choice(labels, 4))] = 0
    spots = np.random.default_rng((seed, profile, nuance))
    y, x = (spots.integers(1, size - 1, 60) for size in masks.shape)
    masks[y, x] = masks[y - 1, x]
    return masks


def _manifest(
    spec: Spec, repeat: int, masks: dict[str, MaskRecord], weights_digest: str
) -> Manifest:
    generator = np.random.default_rng((spec.seed, repeat))
    losses = np.linspace(1, 0.3, spec.epochs) + generator.normal(0, 1e-3, spec.epochs)
    warned = WarningRecord(
        message="Sparse invariant checks are implicitly disabled.",
        category="UserWarning",
        file="cellpose/dynamics.py",
        line=541,
        phase="segment",
        count=1,
    )
    return Manifest(
        key=spec.key,
        repeat=repeat,
        machine=MachineRecord(
            label="abacus-9",
            identity="made up",
            device="cpu",
            numeric_class="0a",
            versions={"torch": "2.15.0"},
        ),
        vacuous=[],
        started="2026-01-01T00:00:00+00:00",
        seconds={"import": 4.0, "data": 0.1, "model": 0.1, "train": 9.0, "segment": 1.0},
        peak_memory={"process": 2**30, "gpu": None},
        distributions={"torch": "2.15.0"},
        cuda={"driver": None, "runtime": None, "cudnn": None},
        host={"processor": "Abacus 9", "memory": 2**34, "gpus": []},
        versions={"python": "3.11.7", "torch": "2.15.0", "cellpose": "4.2.1.1"},
        device="cpu",
        threads=int(spec.profile_settings["threads"]),
        cpu_capability="AVX2",
        numeric_libraries=[{"internal_api": "openblas", "version": "1", "num_threads": 2}],
        variables={},
        switches={"deterministic_algorithms": spec.mode != "fast"},
        seeds={"python": spec.seed},
        data=DataRecord(
            path="synthetic",
            digest=DIGEST,
            files={},
            n_train=8,
            n_test=len(masks),
            segmented="test",
            warnings=[],
        ),
        model=ModelRecord(
            architecture="tiny",
            n_parameters=sum(int(np.prod(shape)) for shape in _shapes().values()),
            dtype="float32",
            initial_weights="e" * 64,
        ),
        training=TrainingRecord(
            learning_rates=np.linspace(0, 1e-3, spec.epochs).tolist(),
            train_losses=losses.tolist(),
            test_losses=[0.9, *[None] * (spec.epochs - 1)],
            n_steps=8 * spec.epochs,
            n_removed=0,
        ),
        weights=WeightsRecord(digest=weights_digest, n_changed=2_000_000),
        masks=masks,
        warnings=[warned],
    )
