"""The whole chain of a run, from files to masks, written into a ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cellrepro.images.folder import ImageFolder
from cellrepro.model.training import Loop
from cellrepro.store.digests import tensor_digest, value_digest
from cellrepro.store.ledger import Ledger
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.spec import Spec


def write_beginning(
    ledger: Ledger,
    *,
    spec: Spec,
    surroundings: Mapping[str, Any],
    folder: ImageFolder,
    network: Any,
) -> None:
    """Write down surroundings, spec, data as decoded, initial weights and seeded generators.

    Parameters
    ----------
    ledger : Ledger
        At the step before the first.
    spec : Spec
    surroundings : mapping
        Fields of the manifest that numbers depend on.
    folder : ImageFolder
    network : torch.nn.Module
    """
    from cellrepro.trace.training_steps import StepWatch

    for name, value in flattened(surroundings):
        ledger.add("environment", name, value_digest(value), detail=value)
    for name, value in spec.model_dump(mode="json").items():
        ledger.add("spec", name, value_digest(value), detail=value)
    for name, digest in folder.files.items():
        ledger.add("data", f"file {name}", digest)
    for image in (*folder.train, *folder.test):
        ledger.add("data", f"{image.name} decoded", tensor_digest(image.image))
        if image.masks is not None:
            ledger.add("data", f"{image.name} masks", tensor_digest(image.masks))
    watch = StepWatch(ledger)
    watch.weights("weights-init", network)
    watch.generators("at the start")


def write_prepared(ledger: Ledger, loop: Loop) -> None:
    """Write down the training images as they are augmented, and their flows."""
    for name, array in loop.prepared.items():
        ledger.add("data", name, tensor_digest(array))


def write_segmented(
    ledger: Ledger, image: str, flows: Mapping[str, np.ndarray], masks: MaskRecord
) -> None:
    """Write down what the network gave for an image, and the masks that came of it."""
    for name, array in flows.items():
        ledger.add("flows", f"{image} {name}", tensor_digest(array))
    # Outlines first: other numbers for the same objects are the smaller difference.
    ledger.add("masks", f"{image} outlines", masks.canonical_digest, value=masks.n_objects)
    ledger.add("masks", f"{image} labels", masks.digest, value=masks.n_objects)


def flattened(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """A nested plain value field by field, with dotted names; an empty mapping has no fields.

    Examples
    --------
    >>> list(flattened({"versions": {"torch": "2.15"}, "threads": 2}))
    [('versions.torch', '2.15'), ('threads', 2)]
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flattened(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
