"""What made-up repeats record: one home for the manifests of tests and of made-up stores."""

from __future__ import annotations

import numpy as np

from cellrepro.comparison.label_numbers import canonical
from cellrepro.comparison.scores import average_precision
from cellrepro.spec.spec import Spec
from cellrepro.store import manifest as records
from cellrepro.store.environment_record import MachineRecord
from samebits.digests import array_digest


def made_up_machine(label: str = "abacus", **fields: object) -> MachineRecord:
    """Describe a machine that nobody has; each changed field makes a different one."""
    usual = {
        "identity": label,
        "device": "Abacus 9",
        "numeric_class": "0a",
        "versions": {"torch": "2.15.0"},
    }
    return MachineRecord(label=label, **{**usual, **fields})


def made_up_manifest(
    spec: Spec, masks: dict[str, records.MaskRecord], **fields: object
) -> records.Manifest:
    """The manifest of a repeat of a small training, but for the fields that are given."""
    usual = {
        "key": spec.key,
        "repeat": 0,
        "machine": made_up_machine(),
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
        "data": made_up_data(spec, n_test=len(masks)),
        "model": records.ModelRecord(
            architecture="tiny", n_parameters=84, dtype="float32", initial_weights="e" * 64
        ),
        "masks": masks,
        "warnings": [],
    }
    return records.Manifest(**{**usual, **fields})


def made_up_data(spec: Spec, *, n_test: int) -> records.DataRecord:
    """Describe a folder of three training images, of which no file is listed."""
    return records.DataRecord(
        path="/somewhere",
        digest=spec.data_digest,
        files={},
        segmented="test",
        n_train=3,
        n_test=n_test,
        warnings=[],
    )


def mask_record(
    name: str, labels: np.ndarray, *, truth: np.ndarray | None = None
) -> records.MaskRecord:
    """Describe the masks of an image as a repeat would, scored where there is a truth."""
    return records.MaskRecord(
        file=f"masks/{name}.tif",
        digest=array_digest(labels.astype(np.uint32)),
        canonical_digest=array_digest(canonical(labels)),
        n_objects=n_objects(labels),
        seconds=0.25,
        ap50=None if truth is None else float(average_precision(truth, labels)[0]),
        n_true=None if truth is None else n_objects(truth),
    )


def n_objects(labels: np.ndarray) -> int:
    """Count the objects of a label image."""
    return len(np.unique(labels[labels > 0]))
