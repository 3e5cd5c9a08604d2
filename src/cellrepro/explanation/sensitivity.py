"""Which setting matters on these images: each varied by itself, and what becomes of the cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.comparison.image_differences import difference_of
from cellrepro.comparison.mask_comparison import average_precision, compare_masks
from cellrepro.errors import BadInput
from cellrepro.explanation.sensitivity_result import (
    Example,
    Sensitivity,
    Tally,
    Variation,
    VariationTally,
    share_changed,
)
from cellrepro.images.folder import LabelledImage
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.progress import print_note
from cellrepro.run.inputs import read_images, segmented_part
from cellrepro.run.options import SegmentationOptions
from cellrepro.run.plan import Request
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.spec.segmentation_settings import AFTER_NETWORK, NAMES, Settings
from cellrepro.store.store import Store

if TYPE_CHECKING:
    from cellrepro.model.inference import Evaluator

VALUES: Mapping[str, tuple[Any, ...]] = {
    "flow_threshold": (0.0, 0.2, 0.8),
    "cellprob_threshold": (-2.0, -1.0, 1.0, 2.0),
    "niter": (50, 1000),
    "min_size": (-1, 60),
    "max_size_fraction": (0.1, 1.0),
    "diameter": (15.0, 20.0, 45.0, 60.0),
    "augment": (True,),
    "tile_overlap": (0.05, 0.3, 0.5),
    "batch_size": (1, 32),
    "normalize.percentile": ((0.0, 100.0), (3.0, 97.0), (1.0, 99.9)),
    "normalize.sharpen": (4.0,),
    "normalize.smooth_radius": (2.0,),
    "normalize.tile_norm_blocksize": (100,),
    "normalize.normalize": (False,),
}
"""What each setting is varied to, unless others are given."""


def sensitivity_of(
    options: SegmentationOptions,
    vary: Mapping[str, Sequence[Any]] | None = None,
    *,
    quiet: bool = False,
) -> Sensitivity:
    """Segment the images with each setting varied by itself, and compare the cells."""
    plan = plan_segmentation(options)
    variations = _variations(plan.spec.settings, vary)
    if not quiet:
        print_note(segmenting_announced(plan, Store(options.store), n_each=1 + len(variations)))
    return in_child(
        partial(varied, request=plan.request, variations=variations),
        plan.request.setup,
        label="settings",
        steps=1 + plan.n_images,
        quiet=quiet,
    )


def _variations(base: Settings, vary: Mapping[str, Sequence[Any]] | None) -> list[Variation]:
    """Each setting with each value, those that share the usual pass of the network first."""
    for name in vary or ():
        if name not in NAMES:
            Variation(name, None).of(base)  # says what it is called
    variations: list[Variation] = []
    for name, values in (VALUES if vary is None else vary).items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise BadInput(f"vary.{name} is {values!r}; expected a list of values")
        for value in values:
            try:
                settings = Variation(name, value).of(base)
            except BadInput:
                if vary is not None:
                    raise
                continue  # it does nothing beside these settings
            variation = Variation(name, settings.by_name()[name])
            if settings != base and variation not in variations:  # 20 and 20.0 are one value
                variations.append(variation)
    return sorted(variations, key=lambda variation: variation.name not in AFTER_NETWORK)


# -- inside the child ------------------------------------------------------------------------


def varied(child: Child, *, request: Request, variations: Sequence[Variation]) -> Sensitivity:
    """Inside the child: segment every image with every variation, and compare."""
    with child.opened(request.model) as (network, _):
        from cellrepro.determinism.generator_states import generators_kept
        from cellrepro.model.inference import evaluator

        evaluate = evaluator(network, sharing=True)
        images = segmented_part(read_images(request))
        comparison = _VariedImages(evaluate, request.spec.settings, variations)
        for image in images:
            with generators_kept():
                comparison.add(image)
            child.tell("done", image.name)
    return comparison.sensitivity(
        model=request.spec.model, n_images=len(images), n_passes=evaluate.n_passes
    )


class _VariedImages:
    """Compares each image with the usual settings and with every variation of them."""

    def __init__(
        self, evaluate: Evaluator, base: Settings, variations: Sequence[Variation]
    ) -> None:
        self._evaluate = evaluate
        self._base = base
        self._usual_tally = Tally()
        self._tallies = [VariationTally(variation) for variation in variations]
        self._examples: dict[str, Example] = {}

    def add(self, image: LabelledImage) -> None:
        """Segment an image with all settings, and count its cells."""
        usual = self._segmented(image, self._base)
        self._usual_tally.add(usual, _score(image.masks, usual))
        for tally in self._tallies:
            masks = self._segmented(image, tally.variation.of(self._base))
            tally.add(masks, _score(image.masks, masks))
            difference = difference_of(compare_masks(usual, masks))
            tally.add_difference(image.name, difference)
            example = Example(
                name=tally.variation.name,
                value=tally.variation.value,
                image=image.name,
                pixels=image.image,
                usual=usual,
                masks=masks,
                share=share_changed([difference]),
            )
            self._keep_if_worst(example)

    def _segmented(self, image: LabelledImage, settings: Settings) -> np.ndarray:
        output = self._evaluate(image.image, stack=image.stack, **settings.arguments())
        return output.masks

    def _keep_if_worst(self, example: Example) -> None:
        """Keep for each setting the image that it changes most, at whichever value."""
        worst = self._examples.get(example.name)
        if worst is None or example.share > worst.share:
            self._examples[example.name] = example

    def sensitivity(self, *, model: str, n_images: int, n_passes: int) -> Sensitivity:
        """Give the result over all images, with the settings that change most first."""
        variants = [tally.variant() for tally in self._tallies]
        variants.sort(key=lambda variant: (-variant.changed, -variant.ppm))
        names = dict.fromkeys(variant.name for variant in variants)
        examples = {name: self._examples[name] for name in names}
        return Sensitivity(
            model=model,
            base=self._base.not_default(),
            settings=tuple(variants),
            images=n_images,
            objects=self._usual_tally.n_objects,
            ap50=self._usual_tally.ap50,
            network_passes=n_passes,
            examples={name: example for name, example in examples.items() if example.share},
        )


def _score(truth: np.ndarray | None, masks: np.ndarray) -> float | None:
    """Average precision at IoU 0.5 of one image; None where there is no truth."""
    return None if truth is None else float(average_precision(truth, masks)[0])
