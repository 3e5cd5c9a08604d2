"""Whether listing or reading a folder again gives other images."""

from __future__ import annotations

import os
from functools import partial
from itertools import zip_longest
from pathlib import Path

import numpy as np
from natsort import natsorted

from cellrepro.audits.one_epoch import few_images, one_epoch
from cellrepro.audits.source_of_difference import Source, changed_names
from cellrepro.images.folder import ImageFolder, read_folder
from cellrepro.model.prepared_images import listed_by_cellpose
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from samebits.tensor_digests import tensor_digest
from samebits.words import amount, some, verb_of


def file_order(folder: ImageFolder) -> Source:
    """Try whether listings of a folder have different images at the same positions.

    Positions matter, as Cellpose draws indices of images.
    """
    digests = {image.image_path.name: tensor_digest(image.image) for image in folder.train}
    names = list(digests)
    facts = [f"cellrepro's reader: {some(names, 3)}"]
    deviating_listings = []
    for label, order in _listings(folder.train[0].image_path.parent, names).items():
        n_differing = sum(digests[a] != digests.get(b) for a, b in zip_longest(names, order))
        facts.append(
            f"{label}: {some(order, 3)}; {n_differing} of {len(names)} places "
            f"{verb_of(n_differing, 'holds', 'hold')} another image"
        )
        if n_differing:
            deviating_listings.append(label)
    summary = "every listing agrees"
    if deviating_listings:
        summary = f"other than the reader's: {', '.join(deviating_listings)}"
    return Source(
        name="file-order",
        moves=bool(deviating_listings),
        n_compared=len(names),
        evidence=(summary, *facts),
    )


def _listings(folder: Path, names: list[str]) -> dict[str, list[str]]:
    """The orders in which programs list the images of one folder, by who lists them."""
    with os.scandir(folder) as scan:
        directory = [entry.name for entry in scan if entry.name in names]
    by_cellpose = [path.name for path in listed_by_cellpose(folder)]
    return {
        "the directory (os.scandir, Path.iterdir)": directory,
        "sorted()": sorted(names),
        "Cellpose's io.get_image_files": [name for name in by_cellpose if name in names],
        "natsorted() of a listing backwards": natsorted(sorted(names, reverse=True)),
    }


def two_readings(folder: ImageFolder) -> Source:
    """Try whether one folder, read here and in a fresh process, gives different numbers."""
    in_this_process = digests_of_reading(folder.path)
    task = partial(read_in_child, data=folder.path.resolve())
    in_fresh_process = in_child(task, None, label="sources, readings")
    changed = changed_names(in_this_process, in_fresh_process)
    n_digests = len(in_this_process)
    count = f"read in a fresh process: {len(changed)} of {amount(n_digests, 'digest')} changed"
    return Source(
        name="two-readings",
        moves=bool(changed),
        n_compared=n_digests,
        evidence=("; ".join([count, *changed[:3]]),),
    )


def read_in_child(child: Child, *, data: Path) -> dict[str, str]:
    """Call `digests_of_reading` in the child."""
    return digests_of_reading(data)


def digests_of_reading(data: Path) -> dict[str, str]:
    """Read a folder, and prepare a few of its images for training."""
    folder = read_folder(data)
    digests = {"files": folder.digest}
    for split, images in (("train", folder.train), ("test", folder.test)):
        for image in images:
            digests[f"image {split}/{image.name}"] = tensor_digest(image.image)
            if image.masks is not None:
                digests[f"masks {split}/{image.name}"] = tensor_digest(image.masks)
    for name, array in one_epoch(few_images(folder)).prepared.items():
        digests[name] = tensor_digest(np.asarray(array))
    return digests
