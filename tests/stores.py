"""Manifests and stores made by hand, in which every verdict is known; nothing is trained."""

import numpy as np
import tifffile
from made_up_records import made_up_machine, made_up_manifest, mask_record
from safetensors.numpy import save_file

from cellrepro.spec.spec import Spec
from cellrepro.store import manifest as records
from cellrepro.store.seal import seal_repeat
from cellrepro.store.store import Store
from cellrepro.store.training_record import TrainingRecord, WeightsRecord
from samebits.digests import file_digest


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


some_machine = made_up_machine


def some_training(last_loss):
    """Three epochs, the last of which ends with this loss."""
    return TrainingRecord(
        learning_rates=[0.0, 0.5, 1.0],
        train_losses=[2.0, 1.5, last_loss],
        test_losses=[1.9, None, None],
        n_steps=9,
        n_removed=0,
    )


def some_manifest(spec=None, *, repeat=0, weights="a", n_changed=7, masks=None, **changes):
    """A manifest with weights and masks of the digests named by single letters.

    ``masks`` maps an image to (digest, canonical digest, number of objects).
    """
    masks = {"cell": ("b", "c", 3)} if masks is None else masks
    mask_records = {
        name: records.MaskRecord(
            file=f"masks/{name}.tif",
            digest=digest * 64,
            canonical_digest=canonical_digest * 64,
            n_objects=n_objects,
            seconds=0.25,
        )
        for name, (digest, canonical_digest, n_objects) in masks.items()
    }
    if isinstance(weights, str):
        weights = WeightsRecord(digest=weights * 64, n_changed=n_changed)
    usual = {"repeat": repeat, "training": some_training(1.0), "weights": weights}
    return made_up_manifest(spec or some_spec(), mask_records, **{**usual, **changes})


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
    """Store one spec; every repeat has one value in its weights (or none), and its masks.

    ``fields`` are of the spec, ``manifest`` holds fields of every manifest.
    """
    profile = fields.get("profile", "cpu")
    threads = 1 if profile == "cpu-1thread" else 2
    usual = {
        "data": "cells",
        "learning_rate": 0.001,
        "profile": profile,
        "profile_settings": {"name": profile, "threads": threads},
    }
    spec = some_spec(**{**usual, **fields})
    for index, (weight, masks) in enumerate(outcomes):
        with store.staging() as area:
            folder = area / "repeat"
            _write_repeat(folder, spec, index, weight, masks, truth=truth, changes=manifest or {})
            store.commit(folder, spec)
    return store.run(spec.key)


def _write_repeat(folder, spec, index, weight, masks, *, truth, changes):
    (folder / "masks").mkdir(parents=True)
    (folder / "data").mkdir()
    mask_records = {
        name: _write_masks(folder, name, labels, truth) for name, labels in masks.items()
    }
    n_images = len(mask_records)
    has_objects = any(record.n_objects for record in mask_records.values())
    vacuous = [] if has_objects else [f"no object was found in any of the {n_images} images"]
    usual = {
        "repeat": index,
        "threads": spec.profile_settings.get("threads", 2),
        "switches": {"deterministic_algorithms": spec.mode != "fast"},
        "weights": None if weight is None else _write_weights(folder, weight),
        "training": None if weight is None else some_training(weight),
        "vacuous": vacuous,
    }
    manifest = made_up_manifest(spec, mask_records, **{**usual, **changes})
    if "machine" not in changes:
        manifest.machine = _machine(manifest)
    (folder / "manifest.json").write_text(manifest.model_dump_json())


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
    seal_repeat(folder, manifest.files, manifest=path.name)


def short(name):
    """``KEY/REPEAT`` of ``KEY/MACHINE/REPEAT``, for stores of one machine."""
    key, _, index = name.split("/")
    return f"{key}/{index}"


def _write_weights(folder, weight):
    path = folder / "weights.safetensors"
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    tensors = {
        "encoder.blocks.0.attn.weight": values.reshape(8, 8) * np.float32(weight),
        "out.bias": np.arange(20, dtype=np.float32),
    }
    save_file(tensors, path)
    return WeightsRecord(digest=file_digest(path), n_changed=64)


def _write_masks(folder, name, labels, has_truth):
    tifffile.imwrite(folder / "masks" / f"{name}.tif", labels.astype(np.uint16))
    image = np.random.default_rng(0).integers(0, 200, labels.shape, np.uint16)
    tifffile.imwrite(folder / "data" / f"{name}.tif", image)
    if has_truth:
        tifffile.imwrite(folder / "data" / f"{name}_masks.tif", TRUTH)
    return mask_record(name, labels, truth=TRUTH if has_truth else None)


def _machine(manifest):
    """The machine on which all that a manifest says would be so."""
    processor = manifest.host["processor"]
    gpus = manifest.host.get("gpus", [])
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
    warned = records.HeardWarning(
        message="no deterministic <implementation>",
        category="UserWarning",
        file="/home/me/lib/python3.11/site-packages/torch/nn/functional.py",
        line=7,
        phase="train",
        count=4,
    )
    grown = three(img_b=squares(grown=8))
    renumbered = three(img_c=squares(numbers=(7, 3)))
    empty = dict.fromkeys(three(), NOTHING)
    fast = {"mode": "fast"}
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
