"""A segmenter instead of Cellpose's network: its request, its plan, the check of its masks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.images.folder import LabelledImage
from cellrepro.images.label_image import label_image
from cellrepro.images.pictures import pieces_of
from cellrepro.model.weight_sources import ModelSource
from cellrepro.run.inputs import axes_of
from cellrepro.run.options import WrapOptions
from cellrepro.run.plan import Plan, Request
from cellrepro.run.plan_sources import PlanInputs
from cellrepro.run.planning import planned
from cellrepro.store.manifest import ModelRecord
from samebits.errors import BadInput

if TYPE_CHECKING:
    import torch

    from cellrepro.model.inference import Segmentation

_SETS_ARE_FIXED = (
    "the order of sets of text is held fixed (PYTHONHASHSEED); mode off shows whether the masks "
    "depend on it"
)


@dataclass(frozen=True)
class WrappedRequest(Request, ABC):
    """A request whose ``model`` names another segmenter than Cellpose's network."""

    @abstractmethod
    def segmenter(self, staged: Path) -> Callable[[LabelledImage], np.ndarray]:
        """Make the function that segments one image."""

    def label_on(self, image: LabelledImage) -> str:
        """Name the segmenter and the image, for messages."""
        return f"{self.model.label} on {image.name}"

    def build(self, device: torch.device, staged: Path) -> tuple[None, ModelRecord]:
        """Make no network."""
        record = ModelRecord(
            architecture=self.model.architecture,
            n_parameters=0,
            dtype=self.setup.profile.dtype,
            initial_weights=str(self.model.digest),
        )
        return None, record

    def results(
        self, network: None, images: tuple[LabelledImage, ...], staged: Path
    ) -> Iterator[Segmentation]:
        """Segment one image after another."""
        from cellrepro.model.inference import Segmentation

        segmenter = self.segmenter(staged)
        for image in images:
            begun = time.perf_counter()
            masks = _checked(segmenter(image), image, self.label_on(image))
            yield Segmentation(image.name, masks, time.perf_counter() - begun)


def _checked(masks: np.ndarray, image: LabelledImage, segmenter: str) -> np.ndarray:
    """Check that masks are a label image of the image's shape."""
    labels = label_image(f"what came of {segmenter}", masks)
    axes = "(Z, Y, X)" if image.stack else "(Y, X)"
    n_axes = 3 if image.stack else 2
    expected = image.image.shape[:n_axes]
    if labels.shape != expected:
        raise BadInput(
            f"{segmenter} gave masks of shape {labels.shape}; expected {axes} = {expected}, that "
            "of the image: write them at the size of the image that was given"
        )
    pieces = pieces_of(labels)
    if pieces.is_picture or pieces.in_many_pieces:
        raise BadInput(
            f"{segmenter} gave a picture or a foreground map, no label image: {pieces.n_values} of "
            f"its values are scattered over {pieces.n_pieces} places; expected a number of its own "
            "for every object (scipy.ndimage.label numbers the pieces of a foreground map)"
        )
    return labels


def plan_wrapped(
    options: WrapOptions,
    model: ModelSource,
    program: tuple[str, ...],
    *,
    inputs: PlanInputs | None,
    request_type: Callable[..., WrappedRequest],
) -> Plan:
    """Plan runs of another segmenter."""
    known_inputs = inputs or PlanInputs()
    plan = planned(
        "wrap",
        options,
        known_inputs,
        folder=known_inputs.folder(options.data, to_train=False, axes=axes_of("wrap", None)),
        model=model,
        fields={"ledger": "off", "program": program},
        request_type=request_type,
    )
    if options.mode == "off":
        return plan
    return replace(plan, notices=(*plan.notices, _SETS_ARE_FIXED))
