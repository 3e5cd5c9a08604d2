"""The segmenting part of the worker: the images of a repeat, and the masks that the store keeps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.comparison.label_numbers import canonical
from cellrepro.images.folder import LabelledImage
from cellrepro.model.stages import Stages
from cellrepro.run.repeat_work import RepeatWork
from cellrepro.run.worker_scoring import score
from cellrepro.store.committing import STAGED_DATA
from cellrepro.store.ledger import Ledger
from cellrepro.store.manifest import MaskRecord
from samebits.digests import array_digest
from samebits.tensor_digests import tensor_digest
from samebits.words import amount

if TYPE_CHECKING:
    import numpy as np

    from cellrepro.model.inference import Segmentation

_COMPRESSION_LEVEL = 1  # of zlib; level 9 takes three times as long


def segment_images(work: RepeatWork) -> dict[str, MaskRecord]:
    """Segment the images of a repeat, and write masks, with images and truth if asked to."""
    (work.staged / "masks").mkdir()
    if work.with_images:
        (work.staged / STAGED_DATA).mkdir()
    with_ledger = work.spec.ledger != "off"
    with_stages = with_ledger and work.spec.task == "segment"
    images = work.folder.to_segment
    results = work.request.results(work.network, images, work.staged)
    records: dict[str, MaskRecord] = {}
    for index, image in enumerate(images):
        stages = Stages()
        watching_stages = stages.watching() if with_stages else nullcontext()
        with work.recorder.watching_image(work.network, index), watching_stages:
            result = next(results)
        record = _keep_masks(image, result, work.staged)
        if work.with_images:
            _keep_image(image, work.staged)
        records[image.name] = record
        if with_ledger:
            _write_down(work.recorder.ledger, result, record, stages.digests)
        work.child.tell("done", f"{image.name}: {amount(record.n_objects, 'cell')}")
    return records


def _write_down(
    ledger: Ledger, result: Segmentation, record: MaskRecord, stages: Mapping[str, str]
) -> None:
    """Add the digests of one segmentation to the ledger, in the order of the computation."""
    for stage, digest in stages.items():
        ledger.add(stage, f"{result.name} {stage}", digest)
    for name, array in result.flows.items():
        ledger.add("flows", f"{result.name} {name}", tensor_digest(array))
    # Outlines first: other numbers for the same objects are the smaller difference.
    n_objects = record.n_objects
    ledger.add("masks", f"{result.name} outlines", record.canonical_digest, value=n_objects)
    ledger.add("masks", f"{result.name} labels", record.digest, value=n_objects)


# -- files ---------------------------------------------------------------------------------------


def _keep_masks(image: LabelledImage, result: Segmentation, staged: Path) -> MaskRecord:
    """Write the masks of one image as the store keeps them."""
    import numpy as np

    masks = result.masks
    truth = image.masks
    file = f"masks/{image.name}.tif"
    fits_16_bits = masks.max(initial=0) < 2**16
    _write_tiff(staged / file, masks.astype(np.uint16) if fits_16_bits else masks)
    return MaskRecord(
        file=file,
        digest=array_digest(masks.astype(np.uint32)),
        canonical_digest=array_digest(canonical(masks).astype(np.uint32)),
        n_objects=np.unique(masks[masks > 0]).size,
        seconds=round(result.seconds, 4),
        ap50=score(image, masks),
        n_true=None if truth is None else np.unique(truth[truth > 0]).size,
    )


def _keep_image(image: LabelledImage, staged: Path) -> None:
    """Write an image and its ground truth as the store keeps them."""
    import numpy as np

    _write_tiff(staged / STAGED_DATA / f"{image.name}.tif", image.image)
    if image.masks is not None:
        _write_tiff(staged / STAGED_DATA / f"{image.name}_masks.tif", image.masks.astype(np.int32))


def _write_tiff(path: Path, array: np.ndarray) -> None:
    """Write an array so that readers know which of its axes holds colours."""
    import tifffile

    n_colours = array.shape[-1] if array.ndim >= 3 else 1
    tifffile.imwrite(
        path,
        array,
        photometric="rgb" if n_colours == 3 else "minisblack",
        planarconfig="contig" if n_colours in (2, 3) else None,
        compression="zlib",
        compressionargs={"level": _COMPRESSION_LEVEL},
        metadata=None,
        software=False,
    )
