"""One image segmented again, with every stage kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cellrepro.images.folder import LabelledImage
from cellrepro.model.stages import Stages
from cellrepro.process.child import Child
from cellrepro.run.plan import Request
from cellrepro.store.ledger import SEGMENTATION_STAGES
from samebits import OperationRow

IMAGE_STAGES = SEGMENTATION_STAGES[SEGMENTATION_STAGES.index("decoded") :]
"""The stages of a segmentation that an image passes."""


@dataclass
class SegmentedAgain:
    """One image segmented again; arrays and digests by stage."""

    arrays: Mapping[str, list[np.ndarray]]
    digests: Mapping[str, str]
    rows: list[OperationRow]
    """Operations of the network."""
    diverged: SegmentedAgain | None = None
    """The first repetition that gave different bits."""
    n_repetitions: int = 0
    resized_to: Sequence[tuple[int, int]] = ()
    """Y and X of each resized image, before the edge is added that tiles need."""


def segmented_again(
    child: Child,
    *,
    request: Request,
    image: LabelledImage,
    operations: bool = False,
    repetitions: int = 0,
) -> SegmentedAgain:
    """Segment an image in the child, with every stage kept, until it differs from itself."""
    from samebits import OperationLedger

    with child.opened(request.model) as (network, _), child.loosened():
        child.setup.seed_all()
        replayed = _stages_of(network, image, request)
        if operations:
            with OperationLedger(network, step=0, reference=True, across_devices=True) as ledger:
                _stages_of(network, image, request)
            replayed.rows = ledger.rows
        while replayed.diverged is None and replayed.n_repetitions < repetitions:
            repetition = _stages_of(network, image, request)
            replayed.n_repetitions += 1
            if repetition.digests != replayed.digests:
                replayed.diverged = repetition
    child.tell("done", "segmented")
    return replayed


def _stages_of(network: Any, image: LabelledImage, request: Request) -> SegmentedAgain:
    """Segment one image, and keep every stage."""
    from cellrepro.model.inference import segment

    stages = Stages(keep=True)
    with stages.watching():
        (result,) = segment(network, (image,), **request.spec.settings.arguments())
    stages.saw("decoded", image.image)
    stages.saw("flows", *result.flows.values())
    stages.saw("filtered", result.masks)
    return SegmentedAgain(stages.arrays, stages.digests, rows=[], resized_to=stages.resized_to)
