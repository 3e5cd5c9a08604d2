"""Manifests and stores made by hand, in which every verdict is known; nothing is trained."""

import numpy as np
import tifffile
from safetensors.numpy import save_file

from cellrepro.asked.spec import Spec
from cellrepro.bits.digests import array_digest, file_digest
from cellrepro.same.labels import canonical
from cellrepro.same.metrics import average_precision
from cellrepro.store import manifest as records
from cellrepro.store.store import Store


def some_spec(**changes):
    """A spec that no machine is needed for."""
    fields = {
        "data": "nuclei",
        "data_digest": "d" * 64,
        "model": "tiny",
        "epochs": 3,
        "learning_rate": 0.01,
        "profile": "cpu",
        "profile_settings": {"device": "cpu", "threads": 2},
    }
    return Spec(**{**fields, **changes})


def some_machine(label="abacus", **changes):
    """A machine that nobody has; what is changed makes another one."""
    fields = {"identity": label, "device": "Abacus 9", "numeric_class": "0a"}
    return records.MachineRecord(
        label=label, **{**fields, "versions": {"torch": "2.15.0"}, **changes}
    )


def some_training(last_loss):
    losses = {"train_losses": [2.0, 1.5, last_loss], "test_losses": [1.9, None, None]}
    return records.TrainingRecord(learning_rates=[0.0, 0.5, 1.0], **losses, n_steps=9, n_removed=0)


def some_manifest(spec=None, *, repeat=0, weights="a", n_changed=7, masks=None, **changes):
    """A manifest with weights and masks of the digests named by single letters.

    ``masks`` maps an image to (digest, canonical digest, number of objects).
    """
    spec = spec or some_spec()
    masks = {"cell": ("b", "c", 3)} if masks is None else masks
    images = {"path": "/somewhere", "digest": spec.data_digest, "files": {}, "segmented": "test"}
    fields = {
        "key": spec.key,
        "repeat": repeat,
        "machine": some_machine(),
        "vacuous": [],
        "started": "2026-11-01T12:00:00+00:00",
        "seconds": {"import": 2.0, "data": 0.1, "model": 0.1, "train": 5.0, "segment": 1.0},
        "peak_memory": {"process": 2**30, "gpu": None},
        "distributions": {"torch": "2.15.0"},
        "cuda": {"driver": None, "runtime": None, "cudnn": None},
        "host": {"processor": "Abacus 9", "memory": 2**34, "gpus": []},
        "versions": {"python": "3.11.7", "torch": "2.6"},
        "device": "cpu",
        "threads": 2,
        "cpu_capability": "AVX2",
        "numeric_libraries": [],
        "variables": {"OMP_NUM_THREADS": "2"},
        "switches": {"deterministic_algorithms": True},
        "seeds": {"python": spec.seed},
        "data": records.DataRecord(**images, n_train=3, n_test=len(masks), warnings=[]),
        "model": records.ModelRecord(
            architecture="tiny", n_parameters=84, dtype="float32", initial_weights="e" * 64
        ),
        "training": some_training(1.0),
        "weights": records.WeightsRecord(digest=weights * 64, n_changed=n_changed)
        if isinstance(weights, str)
        else weights,
        "masks": {
            name: _mask(name, digest * 64, canonical_digest * 64, n_objects)
            for name, (digest, canonical_digest, n_objects) in masks.items()
        },
        "warnings": [],
    }
    return records.Manifest(**{**fields, **changes})


def _mask(name, digest, canonical_digest, n_objects, **truth):
    digests = {"digest": digest, "canonical_digest": canonical_digest}
    file = f"masks/{name}.tif"
    return records.MaskRecord(file=file, **digests, n_objects=n_objects, seconds=0.25, **truth)


SIZE = 48


def squares(*, second=True, numbers=(1, 2), grown=0):
    """Two objects of 100 and of 16 pixels; the first may be a few pixels larger."""
    labels = np.zeros((SIZE, SIZE), np.uint16)
    labels[5:15, 5:15] = numbers[0]
    labels[15, 5 : 5 + grown] = numbers[0]
    if second:
        labels[30:34, 30:34] = numbers[1]
    return labels


TRUTH = squares().astype(np.int32)
NOTHING = np.zeros((SIZE, SIZE), np.uint16)


def three(first=TRUTH, **others):
    """Masks of three images; all but the first are right."""
    return {"img_a": first, "img_b": squares(), "img_c": squares(), **others}


def add_run(store, outcomes, *, truth=True, manifest=None, **fields):
    """Store one spec; every repeat has one value in its weights (or none), and its masks."""
    given = {"data": "cells", "learning_rate": 0.001, "profile": "cpu", **fields}
    threads = 1 if given["profile"] == "cpu-1thread" else 2
    settings = {"name": given["profile"], "threads": threads}
    spec = some_spec(**{"profile_settings": settings, **given})
    for index, (weight, masks) in enumerate(outcomes):
        with store.staging() as area:
            folder = area / "repeat"
            (folder / "masks").mkdir(parents=True)
            (folder / "data").mkdir()
            found = {name: _masks(folder, name, m, truth) for name, m in masks.items()}
            changes = {
                "threads": spec.profile_settings.get("threads", 2),
                "switches": {"deterministic_algorithms": spec.mode != "fast"},
                "weights": None if weight is None else _weights(folder, weight),
                "training": None if weight is None else some_training(weight),
                **(manifest or {}),
            }
            if not any(record.n_objects for record in found.values()):
                changes["vacuous"] = [f"no object was found in any of the {len(found)} images"]
            written = some_manifest(spec, repeat=index, **changes)
            written.masks, written.data.n_test = found, len(found)
            if "machine" not in changes:
                written.machine = _machine(written)
            (folder / "manifest.json").write_text(written.model_dump_json())
            store.commit(folder, spec)
    return store.run(spec.key)


def reseal(folder):
    """Give a repeat whose files a test has changed the digests of what lies there now."""
    path = folder / "manifest.json"
    manifest = records.Manifest.model_validate_json(path.read_bytes())
    manifest.files = {
        name: file_digest(folder / name) if (folder / name).exists() else digest
        for name, digest in manifest.files.items()
    }
    path.chmod(0o644)
    path.write_text(manifest.model_dump_json())


def short(name):
    """``KEY/REPEAT`` of ``KEY/MACHINE/REPEAT``, for stores of one machine."""
    key, _, index = name.split("/")
    return f"{key}/{index}"


def _weights(folder, weight):
    path = folder / "weights.safetensors"
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    tensors = {
        "encoder.blocks.0.attn.weight": values.reshape(8, 8) * np.float32(weight),
        "out.bias": np.arange(20, dtype=np.float32),
    }
    save_file(tensors, path)
    return records.WeightsRecord(digest=file_digest(path), n_changed=64)


def _masks(folder, name, masks, truth):
    tifffile.imwrite(folder / "masks" / f"{name}.tif", masks.astype(np.uint16))
    image = np.random.default_rng(0).integers(0, 200, masks.shape, np.uint16)
    tifffile.imwrite(folder / "data" / f"{name}.tif", image)
    if truth:
        tifffile.imwrite(folder / "data" / f"{name}_masks.tif", TRUTH)
    scores = {"ap50": float(average_precision(TRUTH, masks)[0]), "n_true": 2} if truth else {}
    digests = array_digest(masks.astype(np.uint32)), array_digest(canonical(masks))
    return _mask(name, *digests, len(np.unique(masks[masks > 0])), **scores)


def _machine(manifest):
    """The machine on which all that a manifest says would be so."""
    processor, gpus = manifest.host["processor"], manifest.host.get("gpus", [])
    return some_machine(
        processor.lower().replace(" ", "-"),
        identity=processor,
        device=manifest.device if manifest.device.startswith("cuda") else processor,
        driver=gpus[0].get("driver") if gpus else None,
        numeric_class=(manifest.numeric_class or {}).get("name", ""),
        versions={n: v for n, v in manifest.versions.items() if n != "python"},
    )


def planted(root):
    """Five specs of known outcome, and one that failed."""
    store = Store(root)
    missing = three(squares(second=False))  # one object of 16 pixels is lost
    warned = records.WarningRecord(
        message="no deterministic <implementation>",
        category="UserWarning",
        file="/home/me/lib/python3.11/site-packages/torch/nn/functional.py",
        line=7,
        phase="train",
        count=4,
    )
    grown, renumbered = three(img_b=squares(grown=8)), three(img_c=squares(numbers=(7, 3)))
    empty, fast = dict.fromkeys(three(), NOTHING), {"mode": "fast"}
    warns = {"warnings": [warned]}
    one_thread = {"profile": "cpu-1thread"}
    runs = {
        "identical": add_run(store, [(1.0, three())] * 2),
        "other profile": add_run(store, [(1.25, missing)] * 2, **one_thread),
        "different": add_run(store, [(1.5, three()), (1.75, grown)], **fast, manifest=warns),
        "same objects": add_run(store, [(2.0, three()), (2.0, renumbered)], **fast, **one_thread),
        "vacuous": add_run(store, [(1.0, empty)] * 2, seed=1),
    }
    failed = runs["vacuous"].spec.model_copy(update={"mode": "fast"})
    store.keep_failure(root, failed, machine="abacus", repeat=0, reason="memory is <short>")
    return runs
